"""Tests that heads in the engine draft what the trained module would, round after round."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from specdec.errors import ConfigurationError
from specdec.torch_engine.model import LlamaModel
from specdec.torch_engine.scheduling.scheduler import Scheduler
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
def test_drafts_are_those_of_the_trained_module(
    kind: str, target: Path, heads: dict[str, Path]
) -> None:
    """They are the same after a prompt, after accepted and rejected drafts, and in a batch."""
    reference = Reference(target, heads[kind])
    model = LlamaModel(target, 8192, CPU, torch.float32, "torch", drafting_head_dir=heads[kind])
    scheduler = Scheduler(model, LIMITS)
    contexts = [prompt_of(seed, length) for seed, length in ((1, 5), (2, 300), (3, 40))]
    drafts: list[list[int]] = [[] for _ in contexts]
    for number in range(6):
        tasks = [make_task(c, d) for c, d in zip(contexts, drafts, strict=True)]
        for index, output in enumerate(run(scheduler, *tasks)):
            *accepted, next_token = output.tokens
            contexts[index] += accepted
            assert output.next_drafts == tuple(
                reference.draft_tokens(contexts[index], next_token, 3)
            )
            contexts[index].append(next_token)
            # The next draft begins with 0, 1 or 2 of the target's tokens, then has the head's.
            plain = run(scheduler, Task("p", np.int32(contexts[index]), 4))[0]
            drafts[index] = [*plain.tokens[: number % 3], *output.next_drafts][:4]


@pytest.mark.parametrize("kind", ["eagle3", "medusa", "medusa_with_rows"])
def test_compiled_kernels_draft_nearly_the_same(
    kind: str, target: Path, heads: dict[str, Path]
) -> None:
    """Compiled heads are quantised; at least 80 % of their chains equal PyTorch's."""
    same = total = 0
    engines = [
        Scheduler(
            LlamaModel(target, 8192, CPU, kernels=kernels, drafting_head_dir=heads[kind]), LIMITS
        )
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
    """Quantised weights take half the bytes; the mean error of the output is below 5 %."""
    native, reference = (
        LlamaModel(
            target, 8192, CPU, kernels=kernels, drafting_head_dir=heads["eagle3"]
        ).drafting_head._layer
        for kernels in ("native", "torch")
    )
    states = torch.randn(7, 3 * native._model.hidden_size, generator=torch.manual_seed(4))
    ours, exact = native.fuse(states), reference.fuse(states).float()

    assert native._fusion._packed.scales is not None
    assert (ours - exact).abs().mean() < 0.05 * exact.abs().mean()


def test_positions_that_the_head_has_not_read_are_computed_again(
    target: Path, heads: dict[str, Path]
) -> None:
    """A context that first ran without the head gives the same draft as one that ran with it."""
    alone, after_others = (
        Scheduler(LlamaModel(target, 8192, CPU, drafting_head_dir=heads["eagle3"]), LIMITS)
        for _ in range(2)
    )
    context = prompt_of(9, 100)
    run(after_others, make_task(context[:60], num_next=None), make_task(context, num_next=None))

    assert (
        run(alone, make_task(context))[0].next_drafts
        == run(after_others, make_task(context))[0].next_drafts
    )


def test_copy_that_a_tree_made_superfluous_is_not_read(
    target: Path, heads: dict[str, Path]
) -> None:
    """The same text runs twice in a pass, once with a tree.

    The tree's end discards the other sequence and its blocks, which the head must not read then.
    """
    scheduler = Scheduler(LlamaModel(target, 8192, CPU, drafting_head_dir=heads["eagle3"]), LIMITS)
    context = prompt_of(11, 40)
    run(scheduler, make_task(context, num_next=0))

    plain = make_task(context, num_next=0)
    tree = make_task(context, (5, 6, 7), num_next=0, parents=(-1, -1, 0))
    first, second = run(scheduler, plain, tree)

    assert first.tokens == second.tokens[:1]


def test_chain_does_not_depend_on_other_requests(target: Path, heads: dict[str, Path]) -> None:
    """Eight requests get the same drafts in one batch as one after the other."""
    contexts = [prompt_of(seed, 30 + seed) for seed in range(8)]
    engines = [
        Scheduler(LlamaModel(target, 8192, CPU, drafting_head_dir=heads["eagle3"]), LIMITS)
        for _ in range(2)
    ]
    alone = [run(engines[0], make_task(context))[0].next_drafts for context in contexts]
    together = [each.next_drafts for each in run(engines[1], *map(make_task, contexts))]
    assert alone == together
    assert all(len(draft_tokens) == 3 for draft_tokens in alone)


def test_a_head_for_another_target_is_refused(
    target: Path, heads: dict[str, Path], tmp_path: Path
) -> None:
    """The message names the size in the head's config.json and the size that the target needs."""
    config = json.loads((heads["eagle3"] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 64}))
    with pytest.raises(ConfigurationError, match=r"vocab_size is 64; this target needs 128"):
        LlamaModel(target, 8192, CPU, drafting_head_dir=tmp_path)


@pytest.mark.parametrize(
    ("kind", "field"), [("eagle3", "draft_vocab_size"), ("medusa", "medusa_num_heads")]
)
def test_a_head_without_a_field_in_its_config_is_refused(
    target: Path, heads: dict[str, Path], tmp_path: Path, kind: str, field: str
) -> None:
    """A head that was copied by hand from elsewhere may lack fields; the message names one."""
    config = json.loads((heads[kind] / "config.json").read_text())
    del config[field]
    shutil.copytree(heads[kind], tmp_path / "head")
    (tmp_path / "head" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigurationError, match=rf"config.json has no field {field}"):
        LlamaModel(target, 8192, CPU, drafting_head_dir=tmp_path / "head")
