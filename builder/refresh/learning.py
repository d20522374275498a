"""A draft that goes on learning from the target as it is now."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from builder.distill import checkpoint, train
from builder.distill.data import Example
from builder.distill.measure import Acceptance
from builder.distill.student import Student
from builder.distill.student_learner import StudentLearner
from builder.distill.train import TrainSettings
from builder.errors import BuildError
from builder.heads.target import target_ends

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
    parts = Answered(
        [e for e in examples if e.index % PARTS not in {JUDGING, CHOOSING}],
        [e for e in examples if e.index % PARTS == CHOOSING and len(e.answer) > 1],
        [e for e in examples if e.index % PARTS == JUDGING and len(e.answer) > 1],
    )
    if not (parts.training and parts.choosing and parts.judging):
        raise BuildError(f"only {len(examples)} prompts were answered; give it more --minutes")
    return parts


def learn(
    served: Path, target: Path, answered: Answered, run: Path, how: TrainSettings, out: Path
) -> Outcome:
    """Train the draft in `served` on and write the best as `out`, the standalone directory.

    `run` is kept and resumed. Raises BuildError for a draft of another kind than ours.
    """
    before = acceptance(StudentLearner(_load(served), how.loss), answered.judging)
    learner = StudentLearner(continued(served, target), how.loss)
    trainer = train.Trainer(learner, answered.training, answered.choosing, run, how)
    trainer.resume()
    if not trainer.step:
        trainer.check([], 0)  # What it knew before is kept unless something is better.
    trainer.run()
    best = torch.load(run / "best.pt", map_location=learner.device, weights_only=True)
    learner.module.load_state_dict(best["student"])
    stored = out.with_name("stored")
    checkpoint.store(learner.module.cpu(), target, stored, {"steps_of_refresh": best["step"]})
    checkpoint.assemble(stored, target, out)
    after = acceptance(StudentLearner(_load(out), how.loss), answered.judging)
    return Outcome(before, after, best["step"])


def acceptance(learner: StudentLearner, judging: list[Example]) -> Acceptance:
    """Greedy, of chains of SETTINGS.num_draft guesses."""
    learner.module.eval()
    with torch.inference_mode(), torch.autocast(learner.device.type, torch.bfloat16):
        return learner.evaluate(judging, SETTINGS.num_draft).acceptance


def continued(served: Path, target: Path) -> Student:
    """The served draft on the target as it is: what it has from its target is taken anew.

    Raises BuildError where the two do not fit.
    """
    student = _load(served)
    embed, _ = target_ends(target)
    if embed.shape != student.embed.shape:
        raise BuildError(
            f"the draft was made for a target of [vocabulary, width] {list(student.embed.shape)}; "
            f"this one has {list(embed.shape)}"
        )
    rows = student.lm_head.weight
    is_targets = torch.equal(rows, student.embed[student.draft_ids])
    with torch.no_grad():
        if is_targets:
            rows.copy_(embed[student.draft_ids])
        student.embed.copy_(embed)
    rows.requires_grad_(not is_targets)
    return student.train()


def _load(folder: Path) -> Student:
    try:
        return checkpoint.load_student(folder)
    except (OSError, KeyError, ValueError) as error:
        raise BuildError(
            f"{folder} holds no draft of `specdec build distill`, which alone can be trained on: "
            f"{error!r}"
        ) from error
