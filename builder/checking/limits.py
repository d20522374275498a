"""Checks of the limits: against each other, the models, the draft lengths and the load."""

from __future__ import annotations

from collections.abc import Iterator

from specdec.builder.checking.findings import Finding, error, note, warning
from specdec.builder.description import LLMAPI, TENSORRTLLM, TORCH, PairDescription
from specdec.drafting.names import COPY_DRAFTERS


def check_limits(pair: PairDescription) -> Iterator[Finding]:
    """Check lengths, draft tokens in a round, rows in a pass, and the load."""
    yield from _check_lengths(pair)
    yield from _check_draft_lengths(pair)
    yield from _check_rows(pair)
    limits, load = pair.limits, pair.load
    if load.sequence_len > limits.max_seq_len:
        yield error(
            "load",
            f"[load]: sequence_len is {load.sequence_len:,}, but a request may have "
            f"{limits.max_seq_len:,} tokens (max_seq_len)",
            "lower sequence_len, or raise max_seq_len",
        )
    if load.num_sequences > limits.max_batch_size:
        yield warning(
            "load",
            f"[load]: {load.num_sequences} sequences are planned for, but an engine runs "
            f"{limits.max_batch_size} at once (max_batch_size); the others wait",
            f"set max_batch_size = {load.num_sequences}, or plan for {limits.max_batch_size}",
        )
    if limits.inflight_limit < limits.max_batch_size:
        yield note(
            "inflight_limit",
            f"{limits.inflight_limit} requests are served at once (inflight_limit): engines built "
            f"for {limits.max_batch_size} (max_batch_size) are never full",
        )


def _check_lengths(pair: PairDescription) -> Iterator[Finding]:
    limits, target = pair.limits, pair.target
    positions = target.shape.max_position_embeddings
    if limits.max_seq_len > positions:
        yield error(
            "context",
            f"max_seq_len is {limits.max_seq_len:,}, but {target.model} reads {positions:,} tokens",
            f"set max_seq_len = {positions}",
        )
    if limits.max_input_len >= limits.max_seq_len:
        yield error(
            "input_len",
            f"max_input_len is {limits.max_input_len:,} and max_seq_len {limits.max_seq_len:,}: a "
            "prompt of that length leaves no room for an answer",
            f"set max_input_len below {limits.max_seq_len}",
        )
    elif pair.engine == TENSORRTLLM and limits.max_input_len < limits.max_seq_len - 1:
        yield error(
            "input_len",
            f"max_input_len is {limits.max_input_len:,} and max_seq_len {limits.max_seq_len:,}: a "
            "call sends the prompt and the answer so far as its input, so answers that go on "
            "beyond max_input_len would fail (TensorRT-LLM refuses the call)",
            f"set max_input_len = {limits.max_seq_len - 1}",
        )


def _check_draft_lengths(pair: PairDescription) -> Iterator[Finding]:
    speculation, own = pair.speculation, pair.self_speculation
    has_draft_model = any(draft.name in speculation.drafters for draft in pair.drafts)
    yield from _check_draft_length(
        pair, "num_draft_tokens", speculation.num_draft_tokens, is_used=has_draft_model
    )
    has_copies = any(name in speculation.drafters for name in COPY_DRAFTERS)
    what, count = "lookup_num_draft_tokens", speculation.lookup_num_draft_tokens
    if has_copies or count < 0:  # Without copy drafters it may be 0.
        yield from _check_draft_length(pair, what, count, is_used=has_copies)
    if own is not None:
        yield from _check_draft_length(
            pair,
            "[self_speculation]: num_draft_tokens",
            own.num_draft_tokens,
            is_used=pair.engine == LLMAPI or own.mode in speculation.drafters,
        )


def _check_draft_length(
    pair: PairDescription, what: str, count: int, *, is_used: bool
) -> Iterator[Finding]:
    """Check one draft length; the server refuses one below 1 even if no drafter uses it."""
    longest = pair.limits.max_draft_len
    if count < 1:
        yield error(
            "num_draft_tokens",
            f"{what} must be 1 or more; given {count}",
            "set 1 or more; to go without a drafter, leave it out of drafters",
        )
    elif is_used and count > longest:
        result = (
            "the engine would need more rows than planned"
            if pair.engine == LLMAPI
            else "drafts would be shorter"
        )
        yield error(
            "max_draft_len",
            f"{what} is {count}, but the target is built for {longest} draft tokens in a round "
            f"(max_draft_len): {result}",
            f"set max_draft_len = {count}, or draft fewer tokens",
        )


def _check_rows(pair: PairDescription) -> Iterator[Finding]:
    limits = pair.limits
    rows = limits.max_batch_size * (limits.max_draft_len + 1)
    # The schedulers of these engines spread rows over several passes.
    if pair.engine == TORCH or pair.has_drafters_inside:
        return
    if limits.max_num_tokens < rows:
        yield error(
            "max_num_tokens",
            f"max_num_tokens is {limits.max_num_tokens:,}, but verifying {limits.max_draft_len} "
            f"draft tokens of {limits.max_batch_size} sequences takes max_batch_size × "
            f"(max_draft_len + 1) = {rows:,} rows in one pass",
            f"set max_num_tokens = {rows} or more, or lower max_batch_size or max_draft_len",
        )
    elif pair.engine == TENSORRTLLM and limits.max_num_tokens < limits.max_seq_len - 1:
        yield warning(
            "max_num_tokens",
            f"max_num_tokens is {limits.max_num_tokens:,}, below max_seq_len "
            f"{limits.max_seq_len:,}: without chunked context an engine refuses inputs longer than "
            "one pass, and a round's input is the prompt with the answer so far",
            f"set max_num_tokens = {limits.max_seq_len}, or deploy with enable_chunked_context",
        )
