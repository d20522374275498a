"""A draft that goes on learning from the target as it is now."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from builder.distill import train
from builder.distill.arithmetic import autocast
from builder.distill.data import Example
from builder.distill.measure import Acceptance
from builder.distill.train import Learner, TrainSettings
from builder.errors import BuildError
from builder.refresh.kinds import Kind

SETTINGS = TrainSettings(
    learning_rate=3e-4, matrix_learning_rate=3e-3, epochs=2, batch_tokens=2048, eval_every=20
)
"""Smaller steps than from the beginning: the draft knows much already."""

PARTS, JUDGING, CHOOSING = 10, 0, 5
"""Of ten prompts, by number, one judges the result and another one chooses the checkpoint: the
figure that decides comes from answers that nothing was fitted to."""


@dataclass(frozen=True)
class Answered:
    """Answered prompts by what they are for."""

    training: list[Example]
    choosing: list[Example]
    judging: list[Example]


@dataclass(frozen=True)
class Outcome:
    """Acceptance on the held-out answers of the draft as it was and as it is."""

    before: Acceptance
    after: Acceptance
    num_steps: int
    """Steps of the checkpoint that was best; 0: training brought nothing."""

    @property
    def fell(self) -> bool:
        return self.after.tau < self.before.tau


def parted(examples: list[Example]) -> Answered:
    """Raises BuildError if nothing is left to judge by."""
    # An answer of one token leaves nothing to guess.
    some = [e for e in examples if len(e.answer) > 1]
    parts = Answered(
        [e for e in some if e.index % PARTS not in {JUDGING, CHOOSING}],
        [e for e in some if e.index % PARTS == CHOOSING],
        [e for e in some if e.index % PARTS == JUDGING],
    )
    if not (parts.training and parts.choosing and parts.judging):
        raise BuildError(f"only {len(some)} prompts were answered; give it more --minutes")
    return parts


def learn(
    kind: Kind,
    served: Path,
    target: Path,
    answered: Answered,
    run: Path,
    how: TrainSettings,
    out: Path,
) -> Outcome:
    """Train the draft in `served` on and write the best as `out`, in the form that engines load.

    `run` is kept and resumed. Raises BuildError for a draft that cannot be trained on.
    """
    before = acceptance(kind.served(served, target, how), answered.judging, how)
    learner = kind.continued(served, target, how)
    trainer = train.Trainer(learner, answered.training, answered.choosing, run, how)
    trainer.run(is_continued=True)
    best = torch.load(run / "best.pt", map_location=trainer.device, weights_only=True)
    learner.module.load_state_dict(best["student"])
    kind.write(learner, target, {"steps_of_refresh": best["step"]}, out)
    after = acceptance(kind.served(out, target, how), answered.judging, how)
    return Outcome(before, after, best["step"])


def acceptance(learner: Learner, judging: list[Example], how: TrainSettings) -> Acceptance:
    """Greedy, of chains of `how.num_draft` guesses."""
    learner.module.eval()
    with torch.inference_mode(), autocast(train.device()):
        return learner.evaluate(judging, how.num_draft).acceptance
