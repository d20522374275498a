"""One engine request and what comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from specdec.acceptance.banned_text import BannedText
from specdec.acceptance.sampling import GREEDY, SamplingParams
from specdec.errors import InvalidRequestError
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.kv_cache import TokenIds

if TYPE_CHECKING:
    from specdec.torch_engine.judging import TreeJudge

NO_TOKENS: TokenIds = np.zeros(0, dtype=np.int32)


class Branch(NamedTuple):
    """A path of a tree: its nodes, and who judges it together with the others."""

    judge: TreeJudge
    path: tuple[int, ...]
    is_judged: bool
    """The tree is verified by probabilities; also where no node is left of this path."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One engine request: generate freely, or verify `draft_ids` in one pass and end."""

    request_id: str
    input_ids: TokenIds
    max_new_tokens: int
    draft_ids: TokenIds = field(default_factory=lambda: NO_TOKENS)
    end_id: int | None = None
    params: SamplingParams = GREEDY
    num_prompt_tokens: int = 0
    """How much of `input_ids` is no output, for what looks back at the output."""
    draft_parents: tuple[int, ...] = ()
    """For a tree of drafts: the place in `draft_ids` that each follows, -1 the context itself."""
    branch: Branch | None = None
    """Set where `draft_ids` is one path of a tree, whose other paths run beside it."""
    wants_log_probs: bool = False
    wants_logits: bool = False
    """The warped logits that each token was drawn from: what a draft's verification needs."""
    verification: str = "exact"
    """Or a rule of acceptance/rules.py; greedy tasks are verified by equality in any case."""
    draft_logits: npt.NDArray[np.float32] | None = None
    """[drafts, vocab]: what the drafts were drawn from; None for drafts that were looked up."""
    num_next: int | None = None
    """Guesses of the drafting head that come with the last output; 0 lets it read along, None
    leaves it out."""
    next_depth: int | None = None
    """Guesses of a tree of num_next that may follow each other; None asks for a chain."""
    banned: BannedText | None = None
    """`params.bad_texts` in the model's vocabulary; the engine fills it in."""
    cache_salt: str = ""
    """Only tasks of one salt find each other's prefixes in the KV cache."""
    arrival_ns: int = field(default_factory=time.monotonic_ns)

    @property
    def is_round(self) -> bool:
        """One step of a caller who will come back with what it said."""
        return len(self.draft_ids) > 0 or self.max_new_tokens == 1

    @property
    def is_judged(self) -> bool:
        """Verified by probabilities, rather than by comparing with the target's own draw."""
        if self.branch is not None:
            return self.branch.is_judged
        return (
            self.verification != "exact" and len(self.draft_ids) > 0 and not self.params.is_greedy
        )


@dataclass(slots=True)
class TaskStats:
    """What return_perf_metrics reports; times are time.monotonic_ns()."""

    arrival_ns: int = 0
    first_scheduled_ns: int = 0
    first_token_ns: int = 0
    last_token_ns: int = 0
    num_reused_blocks: int = 0
    num_new_blocks: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """New tokens of a task (without its end token); `stats` on the last output only."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...] = ()
    """Of `tokens`, where the task wants them."""
    logits: tuple[npt.NDArray[np.float32], ...] = ()
    """[vocab] for each of `tokens`, where the task wants them."""
    next_drafts: tuple[int, ...] = ()
    """What the drafting head guesses behind the last token."""
    next_parents: tuple[int, ...] = ()
    """For a tree of them, as Task.draft_parents."""
    stats: TaskStats | None = None
    error: Exception | None = None

    @property
    def is_final(self) -> bool:
        return self.stats is not None or self.error is not None


NOTHING_SAID = TaskOutput(())

Receiver = Callable[[TaskOutput], None]


def fit(task: Task, limits: EngineLimits, vocab_size: int) -> Task:
    """The task as the tensorrtllm backend would run it, or InvalidRequestError.

    Source: LlmRequest::validate of TensorRT-LLM 1.2: an over-long draft is refused, an output
    that would pass the end of the context is shortened.
    """
    num_input, num_drafts = len(task.input_ids), len(task.draft_ids)
    if num_input == 0:
        raise InvalidRequestError("input_ids is empty; at least 1 token is needed")
    if num_drafts > limits.max_draft_len:
        raise InvalidRequestError(
            f"draft token length {num_drafts} exceeds the engine's max_draft_len "
            f"{limits.max_draft_len}"
        )
    if num_input >= limits.max_seq_len:
        raise InvalidRequestError(
            f"the prompt has {num_input} tokens; the limit is {limits.max_seq_len - 1} "
            f"(max_seq_len {limits.max_seq_len} less one token of output)"
        )
    if task.draft_logits is not None and task.draft_logits.shape != (num_drafts, vocab_size):
        raise InvalidRequestError(
            f"draft_logits must have the shape [{num_drafts}, {vocab_size}]; "
            f"given {list(task.draft_logits.shape)}"
        )
    _check_tokens(task, vocab_size)
    num_room = limits.max_seq_len - num_input
    max_new_tokens = min(task.max_new_tokens, num_room)
    return replace(
        task, max_new_tokens=max_new_tokens, draft_ids=task.draft_ids[: max_new_tokens - 1]
    )


def _check_tokens(task: Task, vocab_size: int) -> None:
    """Raise InvalidRequestError for a token outside the vocabulary, wherever the task names one."""
    bad_words = np.asarray([token for word in task.params.bad_words for token in word], np.int64)
    for name, ids in (
        ("input_ids", task.input_ids),
        ("draft_input_ids", task.draft_ids),
        ("bad_words_list", bad_words),
    ):
        outside = ids[(ids < 0) | (ids >= vocab_size)]
        if len(outside):
            raise InvalidRequestError(
                f"{name} contains token {outside[0]}; the vocabulary has {vocab_size} tokens"
            )
    for token, _ in task.params.logit_bias[-1:]:
        if token >= vocab_size:
            raise InvalidRequestError(
                f"embedding_bias has a value for token {token}; the vocabulary has {vocab_size}"
            )
