"""Drafting heads in the engine guess what the trained module would, round after round."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from builder.heads import checkpoint, eagle3, medusa
from builder.heads.batch import HeadBatch
from specdec.errors import ConfigurationError
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.model import LlamaModel
from specdec.torch_engine.scheduler import Scheduler
from specdec.torch_engine.task import Task, TaskOutput
from tests.unit.tiny_llama import VOCAB, save_tiny_llama

CPU = torch.device("cpu")
DRAFT_IDS = torch.arange(0, VOCAB, 2)
NUM_LAYERS = 8
LIMITS = EngineLimits(max_seq_len=1024, num_cache_tokens=8192)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight random layers: low, middle and high are layers 2, 4 and 5 here."""
    folder = tmp_path_factory.mktemp("target")
    return save_tiny_llama(
        folder, seed=3, num_layers=NUM_LAYERS, bos_token_id=1, eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip


@pytest.fixture(scope="module")
def heads(target: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A head of each kind, its weights moved away from where they begin."""
    torch.manual_seed(5)
    made = {
        "eagle3": eagle3.start(target, DRAFT_IDS, train_head=False),
        "medusa": medusa.start(target, DRAFT_IDS, 3, 2, train_head=False),
    }
    folders = {}
    for kind, module in made.items():
        with torch.no_grad():
            for weight in module.parameters():
                weight.add_(torch.randn_like(weight) * 0.1)
        folders[kind] = tmp_path_factory.mktemp(kind)
        checkpoint.store(kind, module, target, folders[kind], {})
    return folders


class Reference:
    """The module on transformers' hidden states, in float32."""

    def __init__(self, target: Path, head: Path) -> None:
        self._target = LlamaForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
        self._head = checkpoint.load(head, target)
        self._taps = [2, NUM_LAYERS // 2, NUM_LAYERS - 3]

    @torch.inference_mode()
    def guesses(self, context: list[int], behind: int, num: int) -> list[int]:
        """What follows `behind`, the target's token after the context."""
        out = self._target.model(torch.tensor([context]), output_hidden_states=True)
        taps = [*(out.hidden_states[n][0] for n in self._taps), out.last_hidden_state[0]]
        states = torch.stack(taps, dim=1)
        said: list[int] = []
        for _ in range(num):
            tokens = torch.tensor([*context[1:], behind, *said, *[0] * num])
            batch = HeadBatch(
                states, tokens, [len(context)], torch.tensor([len(context) - 1]), [1],
                *(torch.empty(0) for _ in range(4)),
            )  # fmt: skip
            logits = list(self._head.steps(batch, num))[len(said)]
            said.append(int(self._head.draft_ids[logits[0].argmax()]))
        return said


def run(scheduler: Scheduler, *tasks: Task) -> list[TaskOutput]:
    """The last output of each task; all run side by side."""
    last: dict[int, TaskOutput] = {}
    for number, task in enumerate(tasks):
        scheduler.add([task], lambda output, number=number: last.__setitem__(number, output))
    while scheduler.has_work:
        scheduler.step()
    scheduler.check_integrity()
    assert not any(output.error for output in last.values())
    return [last[number] for number in range(len(tasks))]


def make_task(context: list[int], drafts: Sequence[int] = (), num_next: int | None = 3) -> Task:
    """One round: verify the drafts, and guess on."""
    return Task(
        "r", np.int32(context), len(drafts) + 1, draft_ids=np.int32(drafts), num_next=num_next
    )


def prompt_of(seed: int, length: int) -> list[int]:
    """Random tokens."""
    return np.random.default_rng(seed).integers(3, VOCAB, length).tolist()


@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
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


@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
def test_compiled_kernels_guess_the_same(kind: str, target: Path, heads: dict[str, Path]) -> None:
    """In bfloat16, native and PyTorch's operations agree but for near ties."""
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
