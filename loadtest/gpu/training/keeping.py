"""Compare trained weights with the shipped ones on held-out prompts, and keep the better."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from specdec.builder.distill import checkpoint as drafts
from specdec.builder.distill import evaluate, measure
from specdec.builder.distill.answers.answering import feature_taps
from specdec.builder.distill.evaluate import Conversation
from specdec.builder.distill.measure import Acceptance
from specdec.builder.heads import checkpoint as heads
from specdec.builder.heads.features import with_features
from specdec.builder.heads.learner import accepted
from specdec.loadtest.gpu.training.bundle import read_contents, restore
from specdec.loadtest.kit.ratios import Ratio, resampled

NUM_DRAFT = 4
"""Draft tokens per round, as in the pair's model cards."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Trained weights of one kind beside the shipped ones, on the same conversations."""

    kind: str
    num_conversations: int
    shipped_tau: float
    """Mean tokens of a round with the shipped weights, the target's own token included."""
    trained_tau: float
    gain: Ratio
    """τ of the trained ÷ τ of the shipped weights, over resampled conversations."""

    @property
    def is_better(self) -> bool:
        """True if the whole interval lies above 1."""
        return self.gain.low > 1.0

    def __str__(self) -> str:
        kept = "kept" if self.is_better else "not kept: the interval must lie above 1"
        return (
            f"{self.kind}: τ {self.shipped_tau:.3f} → {self.trained_tau:.3f}, {self.gain} times "
            f"on {self.num_conversations} held-out prompts; {kept}"
        )


def keep_better(returned: Path, target: Path, shipped: Path) -> list[Comparison]:
    """Compare each kind of trained weights in `returned`; replace the shipped ones if better.

    `shipped` holds one folder for each kind. Raises ValueError for weights from a rehearsal.
    """
    contents = read_contents(returned)
    if contents.is_rehearsal:
        raise ValueError(f"{returned} was trained in a rehearsal: nothing to keep")
    found = []
    for kind in sorted(contents.small):
        with TemporaryDirectory(prefix="specdec-keep-") as scratch:
            stored = Path(scratch) / kind
            restore(returned, kind, stored)
            found.append(compare(kind, stored, shipped / kind, target, contents.held_out))
            if found[-1].is_better:
                _replace(stored, shipped / kind)
    return found


def compare(
    kind: str, trained: Path, shipped: Path, target: Path, held_out: Sequence[Conversation]
) -> Comparison:
    """Measure both on every conversation, greedily, with chains of NUM_DRAFT tokens."""
    acceptance = {"draft": _draft_acceptance, "eagle3": _head_acceptance}[kind]
    before, after = (acceptance(folder, target, held_out) for folder in (shipped, trained))
    names = [str(number) for number in range(len(before))]

    def tau(of: Sequence[Acceptance], drawn: Sequence[str]) -> float:
        return measure.total((of[int(name)] for name in drawn), NUM_DRAFT).tau

    gain = resampled(names, lambda drawn: tau(after, drawn) / tau(before, drawn))
    return Comparison(kind, len(names), tau(before, names), tau(after, names), gain)


def _draft_acceptance(
    stored: Path, target: Path, held_out: Sequence[Conversation]
) -> list[Acceptance]:
    with TemporaryDirectory(prefix="specdec-keep-") as scratch:
        drafts.assemble(stored, target, Path(scratch))
        draft = drafts.load_draft(Path(scratch))
    return [
        measure.rounds(evaluate.match_row(draft, each.prompt, each.answer), NUM_DRAFT)
        for each in held_out
    ]


def _head_acceptance(
    stored: Path, target: Path, held_out: Sequence[Conversation]
) -> list[Acceptance]:
    with TemporaryDirectory(prefix="specdec-keep-") as scratch:
        heads.assemble(stored, target, Path(scratch))
        head = heads.load(Path(scratch), target)
    return [
        measure.walk(accepted(head, [example], torch.device("cpu"), NUM_DRAFT)[0], NUM_DRAFT)
        for _, example in with_features(target, held_out, feature_taps(target))
    ]


def _replace(stored: Path, shipped: Path) -> None:
    """Replace shipped files with trained ones; the model card has to be updated by hand."""
    for old in shipped.glob("*.safetensors"):
        old.unlink()
    for path in stored.iterdir():
        shutil.copyfile(path, shipped / path.name)
