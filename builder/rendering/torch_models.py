"""Rendering models of the torch engine: the shipped models, with a pair's weights and limits."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from specdec.builder.config_file import ConfigFile
from specdec.builder.description import TORCH, EngineDescription, PairDescription, SelfSpeculation
from specdec.builder.description.engine import TORCH_WEIGHT_DTYPES
from specdec.builder.errors import BuildError
from specdec.builder.fingerprint import fingerprint
from specdec.builder.importing.conversion import import_model
from specdec.builder.importing.models import known_models
from specdec.builder.outputs import link_or_copy
from specdec.builder.rendering.launch import LAUNCH_FILE
from specdec.builder.rendering.warmup import write_warmup
from specdec.builder.repository.add_draft import add_draft
from specdec.builder.repository.shipped import copy_model
from specdec.builder.repository.weights import HEAD, WEIGHTS, assemble_draft, fill_head
from specdec.deployment.freshness import fingerprint_of, write_fingerprint
from specdec.deployment.manifest import MANIFEST_FILE
from specdec.folders import SHIPPED_MODELS


def write_torch_models(pair: PairDescription, repository: Path, cache: Path) -> None:
    """Write the models of target and drafts, with weights, head and limits.

    `cache` is the folder for downloads. Raises BuildError if weights are missing or do not fit.
    """
    target = copy_model("target", repository) / WEIGHTS
    write_target_weights(pair, target, cache)
    head = pair.self_speculation
    if head is not None:
        fill_head(_head(head), target, repository / "target" / HEAD)
    write_torch_drafts(pair, repository)
    _configure(pair, pair.target, repository / pair.target.name)


def write_torch_drafts(pair: PairDescription, repository: Path) -> None:
    """Write the draft models; the repository has the target's weights.

    Raises BuildError if weights are missing or do not fit.
    """
    target = repository / "target" / WEIGHTS
    with tempfile.TemporaryDirectory(prefix="drafts.", dir=repository.parent) as scratch:
        for draft in pair.drafts:
            checkpoint = draft.checkpoint
            if checkpoint is None:
                if draft.stored is None:
                    raise BuildError(_no_weights(pair, draft.name))
                checkpoint = Path(scratch) / draft.name
                checkpoint.mkdir()
                assemble_draft(draft.stored, target, checkpoint)
            add_draft(
                repository,
                draft.name,
                checkpoint,
                translation=draft.translation,
                pattern=SHIPPED_MODELS / "draft",
            )
    for draft in pair.drafts:
        _configure(pair, draft, repository / draft.name)


def planned_paths(pair: PairDescription, colocated: bool) -> list[str]:
    """Return the files and folders of the rendered repository, without writing it."""
    engines = pair.served_engines
    models = ["specdec"] if colocated else ["specdec", *(each.name for each in engines)]
    paths = [f"{model}/{file}" for model in models for file in ("config.pbtxt", "1/model.py")]
    folders = {
        each.name: f"specdec/checkpoints/{each.name}" if colocated else f"{each.name}/{WEIGHTS}"
        for each in engines
    }
    paths += [f"{folders[each.name]}/: weights of {each.model}" for each in engines]
    own = pair.self_speculation
    if own is not None and own.mode != "mtp":
        folder = f"{folders['target']}-head" if colocated else f"target/{HEAD}"
        paths.append(f"{folder}/: {own.name or own.mode}")
    if not colocated:
        torch_engines = (each for each in engines if pair.kind_of(each) == TORCH)
        paths += [f"{each.name}/warmup/: tensors of the first call" for each in torch_engines]
    return [*paths, LAUNCH_FILE, MANIFEST_FILE]


def write_target_weights(pair: PairDescription, folder: Path, cache: Path) -> None:
    """Write the target's checkpoint to `folder`. Raises BuildError if the pair names none."""
    if pair.target.checkpoint is not None:
        shutil.copytree(pair.target.checkpoint, folder, copy_function=link_or_copy)
        if fingerprint_of(folder) is None:
            write_fingerprint(folder, fingerprint(folder))
        return
    model = known_models().get(pair.target.imported or "")
    if model is None:
        raise BuildError(_no_weights(pair, pair.target.name))
    imported = cache / str(pair.target.imported)
    import_model(model, imported, cache)
    shutil.copytree(imported, folder)  # no links, so that the cache stays unchanged


def _head(head: SelfSpeculation) -> Path:
    directory = head.checkpoint or head.stored
    if directory is None:
        raise BuildError(f"no weights for the head {head.name}: give --checkpoint head=DIRECTORY")
    return directory


def _no_weights(pair: PairDescription, name: str) -> str:
    return f"{pair.name} names no weights for {name}: give --checkpoint {name}=DIRECTORY"


def _configure(pair: PairDescription, engine: EngineDescription, model: Path) -> None:
    """Set the model's parameters, instances and warm-up.

    Raises BuildError for a quantization that torch engines do not have, and for several devices.
    """
    limits, is_target = pair.limits, engine is pair.target
    if engine.precision.quantization not in TORCH_WEIGHT_DTYPES:
        raise BuildError(
            f"{engine.name}: a torch engine has {' or '.join(TORCH_WEIGHT_DTYPES)} as "
            f"quantization; given {engine.precision.quantization!r}"
        )
    head = pair.self_speculation
    num_tokens = pair.load.num_sequences * pair.load.sequence_len
    config = ConfigFile.read(model).with_parameters(
        device=_device(pair, engine),
        dtype=engine.precision.dtype,
        weight_dtype=_weight_dtype(engine, is_target=is_target),
        head_dir="head" if is_target and head is not None else "",
        max_seq_len=str(min(limits.max_seq_len, engine.shape.max_position_embeddings)),
        max_draft_len=str(limits.max_draft_len if is_target else 0),
        max_num_tokens=str(limits.max_num_tokens),
        max_num_sequences=str(limits.max_batch_size),
        max_tokens_in_paged_kv_cache=str(num_tokens),
    )
    num_instances = max(1, len(engine.placement.instances))
    drafts = min(pair.speculation.num_draft_tokens, limits.max_draft_len) if is_target else 0
    warmup = write_warmup(model, num_draft_tokens=drafts)
    config.with_instances(num_instances).with_statements([warmup]).write(model)


def _weight_dtype(engine: EngineDescription, *, is_target: bool) -> str:
    """Return the parameter `weight_dtype`. A draft only proposes, so it may always use int8."""
    return TORCH_WEIGHT_DTYPES[engine.precision.quantization] if is_target else "int8_if_native"


def _device(pair: PairDescription, engine: EngineDescription) -> str:
    devices = sorted(set(engine.placement.devices))
    if not devices:
        return "auto"
    if len(devices) > 1:
        raise BuildError(
            f"{engine.name}: all instances of a torch engine run on one device; given "
            f"{', '.join(map(str, devices))}. Describe a draft of its own for each device"
        )
    number = devices[0]
    return f"cuda:{pair.visible_devices.index(number) if pair.has_drafters_inside else number}"
