"""The target's code for GPUs, run here on a CPU: packed sequences, and answers read again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specdec.builder.distill import packing
from specdec.builder.distill.answers.reader import NUM_TOP, Reader
from specdec.builder.distill.answers.target_runner import TargetRunner
from specdec.builder.distill.answers.writer import Job, WriterSettings, write
from specdec.builder.distill.data import Example
from tests.unit.tiny_llama import save_tiny_llama

CPU = torch.device("cpu")
LENS = [7, 1, 40, 0, 38, 8, 6]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack sequences of like length together, as on a GPU."""
    alike = packing._alike
    monkeypatch.setattr(packing, "_alike", lambda lens, **_: alike(lens, joined=True))


def test_packed_sequences_attend_only_to_themselves(joined: None) -> None:
    """Packed attention gives the values and gradients that each sequence has by itself."""
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


def test_pack_like_returns_other_rows_in_their_order(joined: None) -> None:
    """A second packing takes other rows of the sequences, or none, and returns them in order."""
    first = packing.pack(LENS, CPU)
    counts = [3, 0, 5, 0, 9, 1, 2]
    second = packing.pack_like(first, counts, CPU)
    rows = torch.arange(1, 1 + sum(counts))

    laid = second.spread(rows)

    assert torch.equal(second.gather(laid), rows)
    assert sum(int((piece > 0).sum()) for piece in laid) == len(rows)
    assert second.members == first.members


def test_reading_an_answer_again_gives_its_probabilities_and_states(
    tmp_path: Path, joined: None
) -> None:
    """They equal those kept when the answer was written, up to rounding."""
    target = save_tiny_llama(tmp_path)
    taps = (1, 2)
    runner = TargetRunner(target, 3, 64, CPU, taps)
    jobs = [Job(i, list(range(3, 5 + 2 * i)), 0.7 * (i % 2), 20) for i in range(5)]
    how = WriterSettings(frozenset({2}), num_top=NUM_TOP, num_candidates=24, min_refill=1)
    written = sorted(write(runner, iter(jobs), how), key=lambda w: w.job.index)
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
