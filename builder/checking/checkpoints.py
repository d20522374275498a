"""What only a real checkpoint can tell: its shape, its weights, its tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from builder.checking.findings import Finding, error, note, warning
from builder.checks import SPECIAL_IDS, count_parameters, read_config
from builder.description import EngineDescription, ModelShape, PairDescription
from builder.errors import BuildError
from builder.tokenizer_match import TOKENIZER, count_tokens, differences

KEY_OF = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
    "max_position_embeddings": "max_position_embeddings",
    "tied_embeddings": "tie_word_embeddings",
    "draft_vocab_size": "draft_vocab_size",
}
"""A shape's fields, and what config.json calls them."""


def with_checkpoints(
    pair: PairDescription, checkpoints: Mapping[str, Path]
) -> tuple[PairDescription, list[Finding]]:
    """The pair with the shapes of its checkpoints, and where these differ from what the file says.

    `checkpoints` (engine name: directory) go before those that the file names. Raises BuildError
    for a name that is no engine's.
    """
    names = [engine.name for engine in pair.engines]
    unknown = sorted(set(checkpoints) - set(names))
    if unknown:
        raise BuildError(f"no engine {unknown[0]!r} in {pair.name}; known: {', '.join(names)}")
    found: list[Finding] = []
    engines = [
        _with_checkpoint(engine, checkpoints.get(engine.name), found) for engine in pair.engines
    ]
    return replace(pair, target=engines[0], drafts=tuple(engines[1:])), found


def check_checkpoints(pair: PairDescription) -> Iterator[Finding]:
    """Weights against shapes, and the draft's tokenizer against the target's."""
    for engine in pair.engines:
        if engine.checkpoint is None:
            yield note(
                "skipped",
                f"{engine.name}: no checkpoint at hand: its published shape was taken as it "
                "stands, and weights and tokenizer were not looked at",
                f"--checkpoint {engine.name}=DIRECTORY",
            )
        else:
            yield from _check_weights(engine)
    for draft in pair.drafts:
        if pair.target.checkpoint is not None and draft.checkpoint is not None:
            yield from _check_tokenizers(pair.target.checkpoint, draft)


def _with_checkpoint(
    engine: EngineDescription, given: Path | None, found: list[Finding]
) -> EngineDescription:
    directory = given or engine.checkpoint
    if directory is None:
        return engine
    try:
        config = read_config(directory)
    except BuildError as problem:
        found.append(
            error("checkpoint", f"{engine.name}: {problem}", "name a Hugging Face directory")
        )
        return replace(engine, checkpoint=None)
    shape = _shape_of(config, engine.shape)
    for key, name in KEY_OF.items():
        here, there = getattr(engine.shape, key), getattr(shape, key)
        if here != there:
            found.append(
                error(
                    "shape",
                    f"{engine.name}: {key} is {here} in the pair file, but {there} in "
                    f"{directory / 'config.json'} ({name})",
                    f"describe the model that is there: {key} = {str(there).lower()}; or name "
                    "another checkpoint",
                )
            )
    return replace(engine, checkpoint=directory, shape=shape)


def _shape_of(config: Mapping[str, Any], described: ModelShape) -> ModelShape:
    values = {key: config.get(name, getattr(described, key)) for key, name in KEY_OF.items()}
    if "head_dim" not in config and config.get("num_attention_heads"):
        values["head_dim"] = values["hidden_size"] // values["num_heads"]
    if "num_key_value_heads" not in config:
        values["num_kv_heads"] = values["num_heads"]
    architecture = (config.get("architectures") or [described.architecture])[0]
    changed = any(values[key] != getattr(described, key) for key in KEY_OF)
    published = None if changed else described.num_parameters
    return replace(described, **values, architecture=architecture, num_parameters=published)


def _check_weights(engine: EngineDescription) -> Iterator[Finding]:
    assert engine.checkpoint is not None
    try:
        stored = count_parameters(engine.checkpoint)
    except BuildError as problem:
        yield error(
            "weights", f"{engine.name}: {problem}", "complete the checkpoint, or name another"
        )
        return
    expected = engine.shape.total_parameters + (engine.shape.draft_vocab_size or 0)  # with d2t
    if stored != expected:
        yield error(
            "weights",
            f"{engine.name}: {engine.checkpoint} stores {stored:,} numbers, its shape has "
            f"{expected:,}: it is incomplete, or of another kind of model",
            "complete the checkpoint; models beside Llama and Qwen2 are not described",
        )
    try:
        num_tokens = count_tokens(engine.checkpoint)
    except BuildError as problem:
        yield error(
            "tokenizer",
            f"{engine.name}: {problem}",
            f"put the model's {TOKENIZER} beside its weights",
        )
        return
    if num_tokens != engine.shape.num_tokens:
        yield error(
            "vocabulary",
            f"{engine.name}: the tokenizer has {num_tokens:,} tokens, the pair file says "
            f"{engine.shape.num_tokens:,}",
            f"num_tokens = {num_tokens}, if this is the model that is meant",
        )


def _check_tokenizers(target: Path, draft: EngineDescription) -> Iterator[Finding]:
    assert draft.checkpoint is not None
    if draft.translation is not None:
        return
    try:
        found = list(differences(target, draft.checkpoint))
        configs = [read_config(directory) for directory in (target, draft.checkpoint)]
    except BuildError:  # said by _check_weights
        return
    for each in found:
        if each.what == "chat template":
            yield warning(
                "chat_template",
                f"{draft.name}: {each.text}: a draft that learned another framing guesses worse",
                "take a draft with the target's template, or distil one (`specdec build distill`)",
            )
        else:
            yield error(
                "tokenizer",
                f"{draft.name}: another tokenizer than the target's: {each.text}",
                "choose a draft with the target's tokenizer, or say how they meet: translation = "
                '"text"',
            )
    for key in SPECIAL_IDS:
        mine, other = (config.get(key) for config in configs)
        if mine != other:
            yield error(
                "special_ids",
                f"{draft.name}: {key} is {other}, the target's is {mine}: it would end, or go on, "
                "where the target does not",
                f"set {key} = {mine} in the draft's config.json, if the tokens are the same",
            )
