"""Drafting heads in the engine guess what the trained module would, round after round."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from specdec.errors import ConfigurationError
from specdec.torch_engine.model import LlamaModel
from specdec.torch_engine.scheduler import Scheduler
from specdec.torch_engine.task import Task
from tests.unit.tiny_heads import (
    CPU,
    LIMITS,
    Reference,
    make_task,
    prompt_of,
    run,
)


@pytest.mark.parametrize("kind", ["eagle3", "medusa", "medusa_with_rows"])
def test_guesses_are_the_modules(kind: str, target: Path, heads: dict[str, Path]) -> None:
    """Behind a prompt, behind drafts that stand, fall, or stand in part, and beside others."""
    reference = Reference(target, heads[kind])
    model = LlamaModel(target, 8192, CPU, torch.float32, "torch", head=heads[kind])
    scheduler = Scheduler(model, LIMITS)
    contexts = [prompt_of(seed, length) for seed, length in ((1, 5), (2, 300), (3, 40))]
    drafts: list[list[int]] = [[] for _ in contexts]
    for number in range(6):
        tasks = [make_task(c, d) for c, d in zip(contexts, drafts, strict=True)]
        for place, said in enumerate(run(scheduler, *tasks)):
            *accepted, behind = said.tokens
            contexts[place] += accepted
            assert said.next_drafts == tuple(reference.guesses(contexts[place], behind, 3))
            contexts[place].append(behind)
            # The next round: the target's own continuation, cut and spoilt in different ways.
            plain = run(scheduler, Task("p", np.int32(contexts[place]), 4))[0]
            drafts[place] = [*plain.tokens[: number % 3], *said.next_drafts][:4]


@pytest.mark.parametrize("kind", ["eagle3", "medusa", "medusa_with_rows"])
def test_compiled_kernels_guess_the_same(kind: str, target: Path, heads: dict[str, Path]) -> None:
    """At least four chains of five, though compiled heads are quantised."""
    same = total = 0
    engines = [
        Scheduler(LlamaModel(target, 8192, CPU, kernels=kernels, head=heads[kind]), LIMITS)
        for kernels in ("native", "torch")
    ]
    for seed in range(20):
        context = prompt_of(seed, 20 + 7 * seed)
        (ours,), (theirs,) = (run(engine, make_task(context)) for engine in engines)
        if ours.tokens == theirs.tokens:
            total += 1
            same += ours.next_drafts == theirs.next_drafts
    assert total >= 15
    assert same >= 0.8 * total


def test_compiled_eagle3_is_quantised(target: Path, heads: dict[str, Path]) -> None:
    """Half the bytes, for a rounding that is seldom seen in a guess."""
    native, reference = (
        LlamaModel(target, 8192, CPU, kernels=kernels, head=heads["eagle3"]).drafting_head._layer
        for kernels in ("native", "torch")
    )
    states = torch.randn(7, 3 * native._model.hidden_size, generator=torch.manual_seed(4))
    ours, exact = native.fuse(states), reference.fuse(states).float()

    assert native._fusion._packed.scales is not None
    assert (ours - exact).abs().mean() < 0.05 * exact.abs().mean()


def test_what_was_not_read_is_computed_anew(target: Path, heads: dict[str, Path]) -> None:
    """A context that ran without the head gives the same guesses as one that ran with it."""
    alone, after_others = (
        Scheduler(LlamaModel(target, 8192, CPU, head=heads["eagle3"]), LIMITS) for _ in range(2)
    )
    context = prompt_of(9, 100)
    run(after_others, make_task(context[:60], num_next=None), make_task(context, num_next=None))

    assert (
        run(alone, make_task(context))[0].next_drafts
        == run(after_others, make_task(context))[0].next_drafts
    )


def test_what_a_tree_made_superfluous_is_not_read(target: Path, heads: dict[str, Path]) -> None:
    """The same text beside itself, once with a tree: its copies go, this one's blocks too."""
    scheduler = Scheduler(LlamaModel(target, 8192, CPU, head=heads["eagle3"]), LIMITS)
    context = prompt_of(11, 40)
    run(scheduler, make_task(context, num_next=0))

    plain = make_task(context, num_next=0)
    tree = make_task(context, (5, 6, 7), num_next=0, parents=(-1, -1, 0))
    first, second = run(scheduler, plain, tree)

    assert first.tokens == second.tokens[:1]


def test_guesses_do_not_depend_on_the_company(target: Path, heads: dict[str, Path]) -> None:
    """Alone or among others, read along or asked at once."""
    contexts = [prompt_of(seed, 30 + seed) for seed in range(8)]
    engines = [
        Scheduler(LlamaModel(target, 8192, CPU, head=heads["eagle3"]), LIMITS) for _ in range(2)
    ]
    alone = [run(engines[0], make_task(context))[0].next_drafts for context in contexts]
    together = [each.next_drafts for each in run(engines[1], *map(make_task, contexts))]
    assert alone == together
    assert all(len(guesses) == 3 for guesses in alone)


def test_a_head_for_another_target_is_refused(
    target: Path, heads: dict[str, Path], tmp_path: Path
) -> None:
    """The message names the file, the size and what is needed."""
    config = json.loads((heads["eagle3"] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 64}))
    with pytest.raises(ConfigurationError, match=r"vocab_size is 64; this target needs 128"):
        LlamaModel(target, 8192, CPU, head=tmp_path)
