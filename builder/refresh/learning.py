"""Further training of a draft with the answers of the target as it is now."""

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
"""Training settings with smaller steps than a first training, as the draft is trained already."""

PARTS, JUDGING, CHOOSING = 10, 0, 5
"""Split of the prompts by number modulo PARTS: JUDGING measures the result, CHOOSING selects the
checkpoint, the rest trains. So the figure that decides comes from answers that nothing was fitted
to."""


@dataclass(frozen=True)
class Answered:
    """The answered prompts, split into three parts by purpose."""

    training: list[Example]
    """Examples that the draft is trained with."""
    choosing: list[Example]
    """Examples by which the best checkpoint is chosen."""
    judging: list[Example]
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


def parted(examples: list[Example]) -> Answered:
    """Split the examples by purpose. Raises BuildError if a part is empty.

    Examples with an answer of one token are left out.
    """
    # The first token comes from the target, so an answer of one token has nothing to draft.
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
    """Train the draft in `served` further and write the best one to `out`, as engines load it.

    `run` is the folder of the training run, from which a later call resumes. Raises BuildError for
    a draft that cannot be trained further.
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
    """Return the greedy acceptance on `judging`, with chains of `how.num_draft` draft tokens."""
    learner.module.eval()
    with torch.inference_mode(), autocast(train.device()):
        return learner.evaluate(judging, how.num_draft).acceptance
