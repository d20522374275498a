"""`specdec build eagle3` and `specdec build medusa`: train draft heads on a target's states."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from specdec.builder.distill.options import add_training_options, run_steps
from specdec.builder.heads import kinds
from specdec.builder.heads.steps import HeadSteps


@dataclass(frozen=True)
class HeadCommand:
    """A command that trains one kind of head."""

    kind: kinds.HeadKind
    description: str

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of the command to the parser."""
        parser.description = self.description
        add_training_options(parser, self.kind.settings)
        parser.add_argument(
            "--small",
            action="store_true",
            help="export without the weights that the target has too; add-head puts them back",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the chosen steps and return 0.

        Raises BuildError without a target, or if a step fails.
        """
        return run_steps(arguments, lambda options: HeadSteps(self.kind, options))


EAGLE3 = HeadCommand(
    kinds.EAGLE3, "Train an EAGLE-3 head: one layer on the target's hidden states."
)
MEDUSA = HeadCommand(
    kinds.MEDUSA,
    "Train Medusa heads: one for each position ahead, on the target's last hidden state.",
)
