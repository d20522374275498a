"""Checks that need the checkpoints themselves: their shapes, weights and tokenizers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from specdec.builder.checking.compatibility import SPECIAL_IDS
from specdec.builder.checking.findings import Finding, error, note, warning
from specdec.builder.checkpoints.files import count_parameters, read_config
from specdec.builder.checkpoints.tokenizers import TOKENIZER, count_tokens, differences
from specdec.builder.checkpoints.vocabulary import shared_vocabulary
from specdec.builder.description import EngineDescription, ModelShape, PairDescription
from specdec.builder.errors import BuildError

HEAD = "head"
"""Name in --checkpoint for the head of [self_speculation]."""

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
"""The key in config.json for each of these fields of `ModelShape`."""


def with_checkpoints(
    pair: PairDescription, checkpoints: Mapping[str, Path]
) -> tuple[PairDescription, list[Finding]]:
    """Return the pair with the shapes of its checkpoints, and errors where these differ.

    `checkpoints` are directories by engine name, or HEAD. They take precedence over those of the
    pair file. Raises BuildError for a name that is not an engine of the pair.
    """
    names = [engine.name for engine in pair.engines]
    own = pair.self_speculation
    if own is not None:
        names.append(HEAD)
    unknown = sorted(set(checkpoints) - set(names))
    if unknown:
        raise BuildError(f"no engine {unknown[0]!r} in {pair.name}; known: {', '.join(names)}")
    if own is not None and HEAD in checkpoints:
        pair = replace(pair, self_speculation=replace(own, checkpoint=checkpoints[HEAD]))
    found: list[Finding] = []
    engines = [
        _with_checkpoint(engine, checkpoints.get(engine.name), found) for engine in pair.engines
    ]
    return replace(pair, target=engines[0], drafts=tuple(engines[1:])), found


def check_checkpoints(pair: PairDescription) -> Iterator[Finding]:
    """Compare weights with shapes, and each draft's tokenizer with the target's."""
    for engine in pair.engines:
        if engine.checkpoint is None:
            yield note(
                "skipped",
                f"{engine.name}: no checkpoint given: the shape of the pair file was used, and "
                "weights and tokenizer were not checked",
                f"--checkpoint {engine.name}=DIRECTORY",
            )
        else:
            yield from _check_weights(engine)
    for draft in pair.drafts:
        if pair.target.checkpoint is not None and draft.checkpoint is not None:
            yield from _check_tokenizers(pair.target.checkpoint, draft)
    own = pair.self_speculation
    if own is not None and own.checkpoint is not None:
        yield from _check_head(own.checkpoint, pair.target)


def _check_head(directory: Path, target: EngineDescription) -> Iterator[Finding]:
    """Compare the sizes in the head's config.json, where it has them, with the target's."""
    try:
        config = read_config(directory)
    except BuildError as problem:
        yield error("checkpoint", f"head: {problem}", "name the folder of an EAGLE or Medusa head")
        return
    for key in ("hidden_size", "vocab_size"):
        found, expected = config.get(key), getattr(target.shape, key)
        if found not in (None, expected):
            yield error(
                "head",
                f"head: {directory} was made for another target: its {key} is {found}, the "
                f"target's is {expected}",
                "choose a head that was trained for this target",
            )


def _with_checkpoint(
    engine: EngineDescription, given: Path | None, found: list[Finding]
) -> EngineDescription:
    """Return the engine with its checkpoint's shape; add errors to `found`."""
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
    shape = _shape_of(directory, config, engine.shape)
    others = [
        f"{key} {getattr(shape, key)} instead of {getattr(engine.shape, key)}"
        for key in (*KEY_OF, "num_tokens")
        if getattr(engine.shape, key) != getattr(shape, key)
    ]
    if others:
        found.append(
            error(
                "shape",
                f"{engine.name}: {directory} is not the model that the pair file describes: "
                f"{', '.join(others)}",
                "describe the model that is there, or name another checkpoint",
            )
        )
    return replace(engine, checkpoint=directory, shape=shape)


def _shape_of(directory: Path, config: Mapping[str, Any], described: ModelShape) -> ModelShape:
    """Return the shape of a checkpoint; values that its files lack are taken from `described`."""
    values = {key: config.get(name, getattr(described, key)) for key, name in KEY_OF.items()}
    values["draft_vocab_size"] = config.get(KEY_OF["draft_vocab_size"])
    if "head_dim" not in config and config.get("num_attention_heads"):
        values["head_dim"] = values["hidden_size"] // values["num_heads"]
    if "num_key_value_heads" not in config:
        values["num_kv_heads"] = values["num_heads"]
    with suppress(BuildError):  # reported by _check_weights
        values["num_tokens"] = count_tokens(directory)
    architecture = (config.get("architectures") or [described.architecture])[0]
    changed = any(value != getattr(described, key) for key, value in values.items())
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
    expected = engine.shape.total_parameters + (engine.shape.draft_vocab_size or 0)  # plus `d2t`
    if stored != expected:
        yield error(
            "weights",
            f"{engine.name}: {engine.checkpoint} stores {stored:,} numbers, its shape has "
            f"{expected:,}: it is incomplete, or another kind of model",
            "complete the checkpoint; only Llama and Qwen2 models can be described",
        )
    try:
        count_tokens(engine.checkpoint)
    except BuildError as problem:
        yield error(
            "tokenizer",
            f"{engine.name}: {problem}",
            f"put the model's {TOKENIZER} beside its weights",
        )


def _check_tokenizers(target: Path, draft: EngineDescription) -> Iterator[Finding]:
    assert draft.checkpoint is not None
    try:
        found = list(differences(target, draft.checkpoint))
        configs = [read_config(directory) for directory in (target, draft.checkpoint)]
    except BuildError:  # reported by _check_weights
        return
    others = [each.text for each in found if each.kind != "chat template"]
    if others:
        yield _other_tokenizer(target, draft, others)
    if draft.translation is not None:
        return
    for each in found:
        if each.kind == "chat template":
            yield warning(
                "chat_template",
                f"{draft.name}: {each.text}: a draft trained with another template drafts worse",
                "use a draft with the target's template, or distil one (`specdec build distill`)",
            )
    for key in SPECIAL_IDS:
        mine, other = (config.get(key) for config in configs)
        if mine != other:
            yield error(
                "special_ids",
                f"{draft.name}: {key} is {other}, the target's is {mine}: it would end an answer "
                "where the target goes on, or go on where it ends",
                f"set {key} = {mine} in the draft's config.json, if the tokens are the same",
            )


def _other_tokenizer(target: Path, draft: EngineDescription, others: list[str]) -> Finding:
    """Return an error, or a note with the shared tokens if the draft has a `translation`."""
    assert draft.checkpoint is not None
    shared = shared_vocabulary(target, draft.checkpoint)
    common = (
        f"{shared.num_shared:,} of the {len(shared.target_ids):,} tokens of {draft.name} are among "
        f"the target's {shared.num_target:,}"
    )
    if draft.translation is not None:
        return note("vocabulary", f"{common}; drafts are translated by {draft.translation}")
    return error(
        "tokenizer",
        f"{draft.name}: another tokenizer than the target's: {'; '.join(others)}",
        f"choose a draft with the target's tokenizer, or let drafts be translated: {common}, which "
        f'suggests translation = "{shared.translation}" (compiled engines: "text")',
    )
