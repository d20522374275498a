"""Further training of a draft with the answers of the target as it is now."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from specdec.builder.distill.arithmetic import autocast, training_device
from specdec.builder.distill.data import Example
from specdec.builder.distill.measure import Acceptance
from specdec.builder.distill.trainable import TrainableDraft
from specdec.builder.distill.training.learner import Learner, TrainSettings
from specdec.builder.distill.training.run_state import BEST, RunState
from specdec.builder.distill.training.trainer import Trainer
from specdec.builder.errors import BuildError

SETTINGS = TrainSettings(
    learning_rate=3e-4, matrix_learning_rate=3e-3, epochs=2, batch_tokens=2048, eval_every=20
)
"""Training settings, with smaller steps than for a new draft."""

NUM_PARTS, MEASURING, CHOOSING = 10, 0, 5
"""Split of the prompts by index modulo NUM_PARTS: part MEASURING measures the result, CHOOSING
selects the checkpoint, the rest trains. The deciding figure thus comes from answers that
influenced nothing else."""


@dataclass(frozen=True)
class Answered:
    """The answered prompts, split into three parts by purpose."""

    training: list[Example]
    """Examples that the draft is trained with."""
    choosing: list[Example]
    """Examples by which the best checkpoint is chosen."""
    measuring: list[Example]
    """Examples by which the old and the new draft are compared."""


@dataclass(frozen=True)
class Outcome:
    """Acceptance of the old and the new draft on the held-out answers."""

    before: Acceptance
    after: Acceptance
    num_steps: int
    """Training steps of the best checkpoint; 0 if no step was better than the old draft."""

    @property
    def fell(self) -> bool:
        """Whether the new draft gets fewer tokens per round than the old one."""
        return self.after.tau < self.before.tau


def split(examples: list[Example]) -> Answered:
    """Split the examples by purpose. Raises BuildError if a part is empty.

    Examples with an answer of one token are left out.
    """
    # The first token comes from the target, so an answer of one token has nothing to draft.
    some = [e for e in examples if len(e.answer) > 1]
    parts = Answered(
        [e for e in some if e.index % NUM_PARTS not in {MEASURING, CHOOSING}],
        [e for e in some if e.index % NUM_PARTS == CHOOSING],
        [e for e in some if e.index % NUM_PARTS == MEASURING],
    )
    if not (parts.training and parts.choosing and parts.measuring):
        raise BuildError(f"only {len(some)} prompts were answered; give more --minutes")
    return parts


def learn(
    kind: TrainableDraft,
    served: Path,
    target: Path,
    answered: Answered,
    run: Path,
    settings: TrainSettings,
    out: Path,
) -> Outcome:
    """Train the draft in `served` further and write the best one to `out`, as engines load it.

    `run` is the folder of the training run, from which a later call resumes. Raises BuildError for
    a draft that cannot be trained further.
    """
    before = acceptance(kind.served(served, target), answered.measuring, settings)
    learner = kind.continued(served, target)
    trainer = Trainer(learner, answered.training, answered.choosing, run, settings)
    trainer.run(is_continued=True)
    best = RunState.load(run / BEST, trainer.device)
    learner.module.load_state_dict(best.weights)
    kind.write(learner, target, {"steps_of_refresh": best.step}, out)
    after = acceptance(kind.served(out, target), answered.measuring, settings)
    return Outcome(before, after, best.step)


def acceptance(learner: Learner, measuring: list[Example], settings: TrainSettings) -> Acceptance:
    """Return the greedy acceptance on `measuring`, with `settings.num_draft` tokens in a draft."""
    learner.module.eval()
    with torch.inference_mode(), autocast(training_device()):
        return learner.evaluate(measuring, settings.num_draft).acceptance
