"""A task, which is one call of the engine, and its outputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from specdec.acceptance.banned_text import BannedText
from specdec.acceptance.exact import Verdict
from specdec.acceptance.modes import EXACT, compares_probabilities
from specdec.acceptance.sampling import GREEDY, SamplingParams
from specdec.constraints.constraint import Constraint
from specdec.errors import ConfigurationError, InvalidRequestError
from specdec.round_records import DraftingReport
from specdec.token_ids import TokenIds, TopLogProbs
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.sampler import DrawnToken

NO_TOKENS: TokenIds = np.zeros(0, dtype=np.int32)


class PathVerifier(Protocol):
    """The verification of a tree, once all its paths have run."""

    def add(self, path: Sequence[int], drawn: Sequence[DrawnToken]) -> Verdict | None:
        """Add a path that has run; return the verdict after the last path, else None.

        `drawn` are the target's tokens after the context and after each node of `path`. Nodes
        that are on no path that ran are left out. Raises InvalidRequestError if the task's draft
        logits are no distribution.
        """
        ...


class Branch(NamedTuple):
    """A path of a tree, with the object that verifies the tree."""

    verifier: PathVerifier
    path: tuple[int, ...]
    """The nodes of the path from the root on, as indices into the tree's draft tokens."""
    verifies_by_probability: bool
    """Whether the tree is verified by probabilities. `fit` may cut the path to no nodes, so the
    path alone does not tell."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One call of the engine: it verifies a draft, or generates tokens.

    With `draft_ids` the task verifies them and ends with the target's own token. Without, it
    generates up to `max_new_tokens` tokens, one per pass or several in chained steps.
    """

    request_id: str
    """The id of the call, `<request>:<label>:<number>` if the orchestrator made it."""
    input_ids: TokenIds
    """[n ≥ 1] int32: the context."""
    max_new_tokens: int
    """Largest number of tokens in the output, accepted draft tokens included."""
    draft_ids: TokenIds = field(default_factory=lambda: NO_TOKENS)
    """[drafts] int32: the draft tokens to verify."""
    end_id: int | None = None
    """The token that ends the answer; it is never part of the output."""
    params: SamplingParams = GREEDY
    num_prompt_tokens: int = 0
    """Leading tokens of `input_ids` that are prompt; penalties treat the rest as output."""
    draft_parents: tuple[int, ...] = ()
    """For a tree: the index in `draft_ids` of the node that each draft token follows, -1 for the
    context. Empty for a chain."""
    branch: Branch | None = None
    """Set if `draft_ids` is one path of a tree. The other paths are tasks of the same group."""
    wants_log_probs: bool = False
    """Whether the output holds the model's own log-probability of each token."""
    num_top_log_probs: int = 0
    """Most likely tokens of the model at each position that the output holds, with
    `wants_log_probs`; at most MAX_TOP_LOG_PROBS."""
    wants_logits: bool = False
    """Whether the output holds the warped logits that each token was drawn from. The target needs a
    draft model's logits to verify its tokens by probabilities."""
    verification: str = EXACT
    """Verification mode. Greedy tasks are always verified by comparing tokens."""
    draft_logits: npt.NDArray[np.float32] | None = None
    """[drafts, vocab] float32: the warped logits that the draft tokens were drawn from; None if the
    tokens were copied."""
    num_next: int | None = None
    """Largest number of draft tokens that the drafting head proposes with the last output. With 0
    the head only reads the confirmed rows. With None it is not used."""
    next_depth: int | None = None
    """Largest number of draft tokens on one path of the head's tree; None asks for a chain."""
    banned: BannedText | None = None
    """`params.bad_texts`, prepared for the model's vocabulary; the engine fills it in."""
    constraint: Constraint | None = None
    """`params.guide`, compiled for the model's vocabulary; the engine fills it in."""
    cache_salt: str = ""
    """Only tasks with the same salt share prefixes in the KV cache."""
    arrival_ns: int = field(default_factory=time.monotonic_ns)
    """Time of arrival: time.monotonic_ns()."""

    @property
    def continues_answer(self) -> bool:
        """Whether this caller has called before: the number in the id is above 1."""
        number = caller_and_number(self.request_id)[1]
        return number.isdecimal() and number != "1"

    @property
    def is_round(self) -> bool:
        """Whether the caller will probably call again with the tokens of this output."""
        return len(self.draft_ids) > 0 or self.max_new_tokens == 1

    @property
    def verifies_by_probability(self) -> bool:
        """Whether the draft is verified by probabilities, not by comparing it with the draws."""
        if self.branch is not None:
            return self.branch.verifies_by_probability
        return (
            compares_probabilities(self.verification)
            and len(self.draft_ids) > 0
            and not self.params.is_greedy
        )


def caller_and_number(request_id: str) -> tuple[str, str]:
    """Split an id `<request>:<label>:<number>` into `<request>:<label>` and the number."""
    caller, _, number = request_id.rpartition(":")
    return caller, number


@dataclass(slots=True)
class TaskStats:
    """The figures that `return_perf_metrics` reports; times are those of time.monotonic_ns()."""

    arrival_ns: int = 0
    first_scheduled_ns: int = 0
    first_token_ns: int = 0
    last_token_ns: int = 0
    num_reused_blocks: int = 0
    """Cache blocks of the prefix that the task found in the cache."""
    num_new_blocks: int = 0
    """Cache blocks that the task added."""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """New tokens of a task, without the end token; the last output has `stats` or `error`."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...] = ()
    """The log-probability of each of `tokens`; empty unless the task wants them."""
    logits: tuple[npt.NDArray[np.float32], ...] = ()
    """The warped logits [vocab] of each of `tokens`; empty unless the task wants them."""
    next_drafts: tuple[int, ...] = ()
    """The drafting head's proposal: draft tokens that follow the last token."""
    next_parents: tuple[int, ...] = ()
    """The parents of `next_drafts` if they are a tree, in the form of Task.draft_parents."""
    drafting: DraftingReport | None = None
    """The rounds of `tokens`, from an engine with our drafters inside."""
    top_log_probs: tuple[TopLogProbs, ...] = ()
    """The most likely tokens at the position of each of `tokens`; empty unless asked for."""
    stats: TaskStats | None = None
    error: Exception | None = None

    @property
    def is_final(self) -> bool:
        return self.stats is not None or self.error is not None


EMPTY_OUTPUT = TaskOutput(())
"""An output without tokens."""

Receiver = Callable[[TaskOutput], None]
"""A function that is called with each output of a task, in order."""


def fit(task: Task, limits: EngineLimits, vocab_size: int) -> Task:
    """Return the task cut to the engine's limits, as the tensorrtllm backend would run it.

    Output and draft are cut to the rest of max_seq_len. Raises InvalidRequestError for an empty or
    too long context, for no tokens of output, for draft logits of another shape than [drafts,
    vocab], and for tokens outside the vocabulary. Raises ConfigurationError for a draft longer than
    max_draft_len, because the orchestrator drafts as its own configuration allows.

    Source: LlmRequest::validate of TensorRT-LLM 1.2.
    """
    num_input, num_drafts = len(task.input_ids), len(task.draft_ids)
    if num_input == 0:
        raise InvalidRequestError("input_ids is empty; at least 1 token is needed")
    if task.max_new_tokens < 1:
        raise InvalidRequestError(
            f"request_output_len must be at least 1; given {task.max_new_tokens}"
        )
    if num_drafts > limits.max_draft_len:
        raise ConfigurationError(
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
    """Raise InvalidRequestError if any token that the task names is outside the vocabulary."""
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
