"""The teacher on a GPU's paths, which run on a CPU too: sequences side by side, laws read again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from builder.distill import packing
from builder.distill.data import Example
from builder.distill.reader import NUM_TOP, Reader
from builder.distill.teacher import Teacher
from builder.distill.writer import Job, WriterSettings, write
from tests.unit.tiny_llama import save_tiny_llama

CPU = torch.device("cpu")
LENS = [7, 1, 40, 0, 38, 8, 6]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack as a GPU does."""
    alike = packing._alike
    monkeypatch.setattr(packing, "_alike", lambda lens, **_: alike(lens, joined=True))


def test_sequences_side_by_side_attend_as_alone(joined: None) -> None:
    """Values and gradients are those of one sequence at a time; nothing leaks between them."""
    torch.manual_seed(3)
    q, k, v = (torch.randn(sum(LENS), heads, 16, requires_grad=True) for heads in (4, 2, 2))
    found = packing.attend(q, k, v, packing.pack(LENS, CPU))
    found.square().sum().backward()
    gradients = [each.grad for each in (q, k, v)]

    expected = []
    for own in zip(*(each.split(LENS) for each in (q, k, v)), strict=True):
        if len(own[0]):
            order = torch.arange(len(own[0]))
            alone = packing.Packing(((0,),), (len(order),), order, order)
            expected.append(packing.attend(*own, alone))
    for each in (q, k, v):
        each.grad = None
    torch.cat(expected).square().sum().backward()

    torch.testing.assert_close(found, torch.cat(expected))
    for each, gradient in zip((q, k, v), gradients, strict=True):
        torch.testing.assert_close(each.grad, gradient)
    assert len(packing.pack(LENS, CPU).members) < len([n for n in LENS if n])


def test_like_packing_finds_its_rows(joined: None) -> None:
    """Other rows of the same sequences, none of them for some, come back in their order."""
    first = packing.pack(LENS, CPU)
    counts = [3, 0, 5, 0, 9, 1, 2]
    second = packing.pack_like(first, counts, CPU)
    rows = torch.arange(1, 1 + sum(counts))

    laid = second.spread(rows)

    assert torch.equal(second.gather(laid), rows)
    assert sum(int((piece > 0).sum()) for piece in laid) == len(rows)
    assert second.members == first.members


def test_answers_read_again_have_the_laws_and_states_they_were_written_with(
    tmp_path: Path, joined: None
) -> None:
    """What was kept when an answer was written is what reading it again gives."""
    target = save_tiny_llama(tmp_path)
    taps = (1, 2)
    teacher = Teacher(target, 3, 64, CPU, taps)
    jobs = [Job(i, list(range(3, 5 + 2 * i)), 0.7 * (i % 2), 20) for i in range(5)]
    how = WriterSettings(frozenset({2}), num_top=NUM_TOP, num_candidates=24, min_refill=1)
    written = sorted(write(teacher, iter(jobs), how), key=lambda w: w.job.index)
    bare = [
        Example(
            w.job.index,
            torch.tensor(w.job.prompt),
            torch.tensor(w.tokens),
            w.top_ids[:, :1],
            w.top_logprobs[:, :1],
        )
        for w in written
    ]

    for found, kept in zip(Reader(target, CPU, taps)(bare), written, strict=True):
        assert found.features is not None
        assert kept.features is not None
        torch.testing.assert_close(found.features.load(), kept.features, atol=0.05, rtol=0.05)
        torch.testing.assert_close(found.top_logprobs, kept.top_logprobs, atol=0.05, rtol=0.02)
