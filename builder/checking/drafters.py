"""Checks of drafters, tasks and modes: all named ones exist, are used and fit the engine."""

from __future__ import annotations

from collections.abc import Iterator

from specdec.builder.checking.findings import Finding, error, note, warning
from specdec.builder.description import (
    LLMAPI,
    TENSORRTLLM,
    TORCH,
    VLLM,
    PairDescription,
    SelfSpeculation,
)
from specdec.builder.description.pair import MODES_OF
from specdec.drafting.names import COPY_DRAFTERS, PREDICTION

MAX_EAGLE_BATCH, MAX_EAGLE_DRAFT = 512, 256
"""TensorRT-LLM's limits of EAGLE engines: sequences in a pass, and tokens of a draft tree."""


def check_drafters(pair: PairDescription) -> Iterator[Finding]:
    """Check drafters, tasks, the mode of self-speculation, and that weights are named."""
    yield from _check_names(pair)
    if pair.self_speculation is not None:
        yield from _check_mode(pair, pair.self_speculation)
    yield from _check_engine_kind(pair)
    yield from _check_weights(pair)


def drafter_names(pair: PairDescription) -> list[str]:
    """Return the names that `drafters` may hold; none for an llmapi engine, which drafts inside."""
    if pair.engine == LLMAPI:
        return []
    own = pair.self_speculation
    heads = [own.mode] if own is not None and pair.engine in (TORCH, VLLM) else []
    runs_inside = pair.has_drafters_inside and not pair.serves_drafts
    drafts = () if runs_inside else pair.drafts
    return [*(draft.name for draft in drafts), *COPY_DRAFTERS, *heads]


def _check_names(pair: PairDescription) -> Iterator[Finding]:
    known = drafter_names(pair)
    for name in pair.speculation.drafters:
        if name not in known:
            yield error(
                "drafter",
                f"drafters names {name!r}, which is no draft of this pair and no copy drafter",
                f"one of: {', '.join(known) or 'none: an llmapi engine speculates inside'}",
            )
    yield from _check_tasks(pair, [name for name in known if name != PREDICTION])
    named = {*pair.speculation.drafters, *(name for _, name in pair.tasks)}
    if pair.engine != LLMAPI and (pair.serves_drafts or not pair.has_drafters_inside):
        for draft in pair.drafts:
            if draft.name not in named:
                yield warning(
                    "unused_draft",
                    f"{draft.name} is built and takes memory, but neither drafters nor [tasks] "
                    "name it",
                    f"add {draft.name!r} to drafters, or leave the draft out",
                )


def _check_tasks(pair: PairDescription, known: list[str]) -> Iterator[Finding]:
    for task, name in pair.tasks:
        if name not in known:
            yield error(
                "task",
                f"[tasks]: {task} goes to {name!r}, which is not a drafter of this pair for tasks",
                f"one of: {', '.join(known)}",
            )
        if not task or set(task) & set('=,"'):
            yield error(
                "task",
                f"[tasks]: {task!r} cannot be sent to a drafter: a label has no '=', ',' or '\"'",
                "rename the task, here and in requests",
            )


def _check_mode(pair: PairDescription, own: SelfSpeculation) -> Iterator[Finding]:
    possible = MODES_OF[pair.engine]
    if own.mode not in possible:
        yield error(
            "mode",
            f"[self_speculation]: a {pair.engine} engine has no mode {own.mode!r}",
            f"one of: {', '.join(possible) or 'none'}; or another kind of engine",
        )
        return
    if pair.engine == TENSORRTLLM:
        used = [*(draft.name for draft in pair.drafts), *pair.speculation.drafters]
        if used:
            yield error(
                "mode",
                f"a compiled target has one mode: built for {own.mode} it takes no draft tokens "
                f"from outside, so {', '.join(dict.fromkeys(used))} could not draft for it",
                "leave the drafts and drafters out, or [self_speculation]",
            )
    if own.mode in ("draft_target", "draft_model") and len(pair.drafts) != 1:
        yield error(
            "mode",
            f"{own.mode} needs the one draft that runs inside the engine; given {len(pair.drafts)}",
            "describe it as [drafts.draft], or take another mode",
        )
    if own.mode == "medusa" and not own.num_heads:
        yield error(
            "mode",
            "[self_speculation]: medusa needs num_heads",
            "set it as in the heads' config.json",
        )
    if own.mode == "eagle":
        yield from _check_eagle(pair, own)
    if own.mode == "lookahead":
        yield from _check_lookahead(own)


def _check_eagle(pair: PairDescription, own: SelfSpeculation) -> Iterator[Finding]:
    for what, value, limit in (
        ("max_batch_size", pair.limits.max_batch_size, MAX_EAGLE_BATCH),
        ("max_draft_len", own.max_draft_len or 0, MAX_EAGLE_DRAFT),
    ):
        if value > limit:
            yield error(
                "eagle_limits",
                f"{what} is {value}; TensorRT-LLM builds EAGLE engines up to {limit}",
                f"set {what} = {limit} or less",
            )


def _check_lookahead(own: SelfSpeculation) -> Iterator[Finding]:
    needed = own.num_lookahead_tokens
    if needed is None:
        yield error(
            "mode",
            "[self_speculation]: lookahead needs window_size, ngram_size and verification_set_size "
            "(W, N, G)",
            "for example 7, 7 and 7",
        )
        return
    if own.max_draft_len is not None and own.max_draft_len < needed:
        yield error(
            "max_draft_len",
            f"[self_speculation]: lookahead with (W, N, G) = ({own.window_size}, "
            f"{own.ngram_size}, {own.verification_set_size}) verifies {needed} tokens; "
            f"max_draft_len is {own.max_draft_len}",
            f"set max_draft_len = {needed}, or leave it out",
        )


def _check_engine_kind(pair: PairDescription) -> Iterator[Finding]:
    own = pair.self_speculation
    if pair.engine == LLMAPI:
        if pair.drafts and (own is None or own.mode != "draft_target"):
            yield error(
                "mode",
                "an llmapi engine takes no draft tokens from outside: it has no token ids, draft "
                "tokens or logits among its inputs and outputs",
                'add [self_speculation] mode = "draft_target", and the draft runs inside it; or '
                'compile both (engine = "tensorrtllm")',
            )
        for draft in pair.drafts:
            if draft.placement != pair.target.placement:
                yield error(
                    "devices",
                    f"{draft.name} is placed on its own, but in an llmapi engine draft and target "
                    "are one engine",
                    "give it the target's placement",
                )
        if own is None:
            yield note("off", "no [self_speculation]: this llmapi engine does not speculate")
        return
    if not pair.speculation.drafters and own is None:
        yield warning(
            "off", "drafters is empty: the pair does not speculate", 'add drafters = ["lookup"]'
        )
    if pair.engine == TENSORRTLLM and pair.drafts and not pair.speculation.draft_logits:
        yield note(
            "sampled_requests",
            "draft_logits is false: compiled engines then speculate for greedy requests only; "
            "requests with a temperature run without speculation",
        )
    if pair.engine == TORCH and pair.speculation.draft_logits:
        yield warning(
            "draft_logits",
            "draft_logits is for compiled engines: torch engines share their random numbers and "
            "verify sampled requests exactly without it",
            "leave draft_logits out",
        )


def _check_weights(pair: PairDescription) -> Iterator[Finding]:
    for engine in pair.engines:
        sources = (engine.checkpoint, engine.imported, engine.stored)
        kind = pair.kind_of(engine)
        is_needed = kind == TORCH or (kind == VLLM and pair.gpu is None)
        if is_needed and not any(sources):
            yield error(
                "weights",
                f"{engine.name}: the file does not say where the weights of {engine.model} are",
                "name a checkpoint directory, or an entry of models.toml as imported",
            )
