"""Random heads on a random Llama, a reference for each head, and rounds driven by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from specdec.builder.heads import checkpoint, eagle3, medusa
from specdec.builder.heads.batch import HeadBatch
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.scheduling.scheduler import Scheduler
from specdec.torch_engine.scheduling.tree import add_tree
from specdec.torch_engine.task import Receiver, Task, TaskOutput
from tests.unit.tiny_llama import VOCAB, save_tiny_llama

CPU = torch.device("cpu")
DRAFT_IDS = torch.arange(0, VOCAB, 2)
NUM_LAYERS = 8
NOISE = {"eagle3": 0.1, "medusa": 0.4, "medusa_with_rows": 0.4}
LIMITS = EngineLimits(max_seq_len=1024, num_cache_tokens=8192)


def save_target(folder: Path) -> Path:
    """Save a random target of eight layers; EAGLE-3 reads the states after layers 2, 4 and 5."""
    return save_tiny_llama(
        folder, seed=3, num_layers=NUM_LAYERS, bos_token_id=1, eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip


def save_heads(target: Path, folder: Path) -> dict[str, Path]:
    """Save a head of each kind; return their folders.

    Noise is added to the initial weights. A larger output norm makes the distributions of the
    EAGLE-3 head sharp.
    """
    torch.manual_seed(5)
    made = {
        "eagle3": eagle3.start(target, DRAFT_IDS, train_head=False),
        "medusa": medusa.start(target, DRAFT_IDS, 3, 2, train_head=False),
        "medusa_with_rows": medusa.start(target, DRAFT_IDS, 3, 2, train_head=True),
    }
    for kind, module in made.items():
        with torch.no_grad():
            for weight in module.parameters():
                weight.add_(torch.randn_like(weight) * NOISE[kind])
            if isinstance(module, eagle3.Eagle3):
                module.norm.weight.mul_(4)
        checkpoint.store(module, target, folder / kind, {})
    return {kind: folder / kind for kind in made}


class Reference:
    """The training module of a head on hidden states from transformers, in float32."""

    def __init__(self, target: Path, head: Path) -> None:
        self._target = LlamaForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
        self._head = checkpoint.load(head, target)
        self._taps = [2, NUM_LAYERS // 2, NUM_LAYERS - 3]

    @torch.inference_mode()
    def distribution(self, context: list[int], next_token: int, drafted: Sequence[int]) -> Tensor:
        """Return the head's log-probabilities [VOCAB] float32 of the token after `drafted`.

        `next_token` is the target's own token after the context; the tokens `drafted` follow it.
        Tokens that the head cannot draft get −inf.
        """
        out = self._target.model(torch.tensor([context]), output_hidden_states=True)
        taps = [*(out.hidden_states[n][0] for n in self._taps), out.last_hidden_state[0]]
        tokens = torch.tensor([*context[1:], next_token, *drafted, 0])
        batch = HeadBatch(
            torch.stack(taps, dim=1), tokens, [len(context)], torch.tensor([len(context) - 1]),
            [1], *(torch.empty(0) for _ in range(4)),
        )  # fmt: skip
        logits = list(self._head.steps(batch, len(drafted) + 1))[len(drafted)]
        distribution = torch.full((VOCAB,), float("-inf"))
        distribution[self._head.draft_ids] = logits[0].log_softmax(dim=0)
        return distribution

    def draft_tokens(self, context: list[int], next_token: int, num: int) -> list[int]:
        """Return `num` draft tokens that follow `next_token`, the target's own token."""
        drafted: list[int] = []
        for _ in range(num):
            drafted.append(int(self.distribution(context, next_token, drafted).argmax()))
        return drafted


def add_one(scheduler: Scheduler, task: Task, receive: Receiver) -> None:
    """Queue a task without a tree."""
    scheduler.add([task], receive)


def run(scheduler: Scheduler, *tasks: Task) -> list[TaskOutput]:
    """Run the tasks side by side; return the last output of each, in order."""
    last: dict[int, TaskOutput] = {}
    for number, task in enumerate(tasks):
        add = add_tree if task.draft_parents else add_one
        add(scheduler, task, lambda output, number=number: last.__setitem__(number, output))
    while scheduler.has_work:
        scheduler.step()
    scheduler.check_integrity()
    assert not any(output.error for output in last.values())
    return [last[number] for number in range(len(tasks))]


def make_task(
    context: list[int],
    drafts: Sequence[int] = (),
    num_next: int | None = 3,
    parents: Sequence[int] = (),
    **fields: Any,
) -> Task:
    """Return the task of a round: verify `drafts`, and let the head draft `num_next` tokens.

    With `num_next` None the head is asked for nothing. `parents` make a tree of the draft tokens.
    """
    return Task(
        "r",
        np.int32(context),
        len(drafts) + 1,
        draft_ids=np.int32(drafts),
        draft_parents=tuple(parents),
        num_next=num_next,
        **fields,
    )


def prompt_of(seed: int, length: int) -> list[int]:
    """Return `length` random tokens; none of them is special."""
    return np.random.default_rng(seed).integers(3, VOCAB, length).tolist()
