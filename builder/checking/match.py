"""Checks of shapes: do target and drafts fit each other?"""

from __future__ import annotations

from collections.abc import Iterator

from specdec.builder.checking.compatibility import MAX_SIZE_RATIO
from specdec.builder.checking.findings import Finding, error, note, warning
from specdec.builder.description import (
    LLMAPI,
    TENSORRTLLM,
    TORCH,
    EngineDescription,
    PairDescription,
)
from specdec.builder.description.engine import TOKENS, TRANSLATIONS
from specdec.estimates.sizes import (
    COSTLY_SHARE,
    IDEAL_RATIO,
    MAX_RATIO,
    MIN_DRAFT_PARAMETERS,
    MIN_RATIO,
)


def check_match(pair: PairDescription) -> Iterator[Finding]:
    """Check parameter counts, and each draft's size, family, vocabulary and context length."""
    for engine in pair.engines:
        yield from _check_count(engine)
    for draft in pair.drafts:
        yield from _check_size(pair.target, draft)
        yield from _check_vocabulary(pair, draft)
        yield from _check_context(pair, draft)


def _check_count(engine: EngineDescription) -> Iterator[Finding]:
    shape = engine.shape
    if shape.num_parameters not in (None, shape.total_parameters):
        yield error(
            "parameter_count",
            f"{engine.name}: the shape has {shape.total_parameters:,} parameters, but "
            f"num_parameters says {shape.num_parameters:,}: one of its sizes is wrong, or "
            "tied_embeddings",
            "compare the shape with the model's config.json",
        )
    if shape.num_tokens > shape.vocab_size:
        yield error(
            "vocabulary",
            f"{engine.name}: the tokenizer's {shape.num_tokens:,} tokens do not fit the "
            f"embedding's {shape.vocab_size:,} rows",
            "vocab_size is that of config.json; num_tokens counts the tokenizer's, added ones "
            "included",
        )


def _check_size(target: EngineDescription, draft: EngineDescription) -> Iterator[Finding]:
    large, small = target.shape.total_parameters, draft.shape.total_parameters
    share, ratio = small / large, large / small
    sizes = f"{draft.name} has {small / 1e6:,.0f}M parameters, the target {large / 1e6:,.0f}M"
    choose = f"choose a draft {MIN_RATIO} to {MAX_RATIO} times smaller; ideal is {IDEAL_RATIO}"
    if share > MAX_SIZE_RATIO:
        yield error(
            "size_ratio",
            f"{sizes}: {share:.0%}, and at most {MAX_SIZE_RATIO:.0%} can pay off: k draft tokens "
            "cost k of its passes",
            choose,
        )
    elif share > COSTLY_SHARE:
        yield warning(
            "size_ratio",
            f"{sizes}: {share:.0%}; above {COSTLY_SHARE:.0%} the draft's passes cost most of what "
            "they gain",
            f"{choose}; short drafts (num_draft_tokens = 1 or 2) lose least",
        )
    elif not MIN_RATIO <= ratio <= MAX_RATIO:
        why = (
            "its draft tokens are cheap, but fewer are accepted"
            if ratio > MAX_RATIO
            else "its draft tokens are good, but expensive"
        )
        yield warning(
            "size_ratio",
            f"{sizes}: {ratio:.1f} times smaller, outside {MIN_RATIO} to {MAX_RATIO}: {why}",
            "measure it on your own prompts before you deploy (`specdec evaluate --prompts FILE`); "
            f"ideal is {IDEAL_RATIO} times",
        )
    if small < MIN_DRAFT_PARAMETERS:
        yield warning(
            "small_draft",
            f"{draft.name} has {small / 1e6:.1f}M parameters; below "
            f"{MIN_DRAFT_PARAMETERS / 1e6:.0f}M acceptance collapses, unless it was distilled from "
            "this target",
            "distil it from the target's own answers (`specdec build distill`), or choose a larger "
            "one",
        )


def _check_vocabulary(pair: PairDescription, draft: EngineDescription) -> Iterator[Finding]:
    target = pair.target
    mine, other = target.shape, draft.shape
    differs = mine.num_tokens != other.num_tokens or mine.family != other.family
    if other.draft_vocab_size is not None and pair.kind_of(draft) != TORCH:
        yield error(
            "reduced_vocabulary",
            f"{draft.name} proposes only {other.draft_vocab_size:,} of {other.num_tokens:,} tokens "
            "(draft_vocab_size): our own engine alone reads such weights",
            "take a draft model with all tokens; beside a target with drafters inside, leave out "
            '[self_speculation] mode = "draft_model", and our engine serves the draft',
        )
    if draft.translation is not None:
        yield from _check_translation(pair, draft, differs=differs)
        return
    if mine.num_tokens != other.num_tokens:
        yield error(
            "vocabulary",
            f"{draft.name} ({other.family}) has {other.num_tokens:,} tokens, the target "
            f"({mine.family}) {mine.num_tokens:,}: a token id means another token in each",
            'choose a draft of the target\'s family, or set translation = "text"',
        )
        return
    if mine.family != other.family:
        yield warning(
            "family",
            f"{draft.name} is of the family {other.family}, the target of {mine.family}: with the "
            "same number of tokens they may still have other tokens, and other training text costs "
            "acceptance",
            "compare their tokenizers with --checkpoint target=DIR --checkpoint "
            f'{draft.name}=DIR, or set translation = "text"',
        )
    if pair.engine == TORCH or other.draft_vocab_size is not None:
        return
    columns = [
        engine.shape.padded_vocab_size(engine.placement.tensor_parallel)
        for engine in (target, draft)
    ]
    if columns[0] != columns[1]:
        yield note(
            "vocabulary_padding",
            f"the target's logits have {columns[0]:,} columns, those of {draft.name} "
            f"{columns[1]:,}: the same {mine.num_tokens:,} tokens, padded to different sizes. "
            "Token ids fit. A target refuses draft logits of another width (TensorRT-LLM issue "
            "2789), so the orchestrator cuts or pads them to the target's",
        )


def _check_translation(
    pair: PairDescription, draft: EngineDescription, *, differs: bool
) -> Iterator[Finding]:
    if draft.translation not in TRANSLATIONS:
        yield error(
            "translation",
            f"{draft.name}: translation {draft.translation!r} is not known",
            f"one of: {', '.join(TRANSLATIONS)}",
        )
        return
    if not differs:
        yield warning(
            "translation",
            f"{draft.name} has the target's vocabulary, and translation = {draft.translation!r} "
            "would tokenize its drafts again for nothing",
            "leave translation out",
        )
    if pair.engine == LLMAPI or pair.has_drafters_inside:
        yield error(
            "translation",
            f"{draft.name}: draft and target of a pair with {pair.engine} engines exchange token "
            "ids, and cannot translate them",
            "choose a draft with the target's vocabulary",
        )
    elif pair.engine == TENSORRTLLM and draft.translation == TOKENS:
        yield error(
            "translation",
            f'{draft.name}: translation = "tokens" removes rows of the draft\'s output head, '
            "which a compiled engine keeps",
            'set translation = "text"',
        )
    if pair.speculation.draft_logits:
        yield error(
            "translation",
            f"{draft.name} has another vocabulary: its logits are not about the target's tokens",
            "set draft_logits = false",
        )


def _check_context(pair: PairDescription, draft: EngineDescription) -> Iterator[Finding]:
    positions, length = draft.shape.max_position_embeddings, pair.limits.max_seq_len
    if positions >= length:
        return
    if draft.translation is not None:
        yield note(
            "context", f"{draft.name} reads {positions:,} tokens: a longer context is cut to fit"
        )
        return
    yield error(
        "context",
        f"{draft.name} reads {positions:,} tokens, requests may have {length:,} (max_seq_len): it "
        "would fail on longer contexts",
        f"set max_seq_len = {positions}, or choose a draft that reads more",
    )
