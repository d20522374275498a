"""Models of the torch engine: those of `model_repository/`, with the pair's weights and limits."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from builder.add_draft import add_draft
from builder.assembly import HEAD, WEIGHTS, build_pair, fill_head, import_model
from builder.colocate import linked
from builder.description import EngineDescription, PairDescription
from builder.errors import BuildError
from builder.fingerprint import fingerprint
from builder.pair import load_pair
from builder.parameters import set_parameters
from builder.rendering.warmup import write_warmup
from specdec.serving.freshness import fingerprint_of, write_fingerprint

PATTERNS = Path(__file__).parents[2] / "model_repository"
WEIGHT_DTYPES = {"none": "auto", "int8_wo": "int8"}


def copied_model(name: str, repository: Path) -> Path:
    """Copy a model of the shipped repository, without weights. Raises BuildError."""
    pattern, model = PATTERNS / name, repository / name
    (model / "1").mkdir(parents=True)
    try:
        shutil.copyfile(pattern / "config.pbtxt", model / "config.pbtxt")
        shutil.copyfile(pattern / "1" / "model.py", model / "1" / "model.py")
    except OSError as error:
        raise BuildError(
            f"the pattern of the model {name} is missing: {error}; work in a checkout of the project"
        ) from error
    return model


def write_torch_models(
    pair: PairDescription, pair_file: Path, repository: Path, cache: Path
) -> None:
    """Write target and drafts with their weights. Raises BuildError."""
    target = copied_model("target", repository)
    if any(draft.stored for draft in pair.drafts):
        copied_model("draft", repository)
    if pair.target.checkpoint is not None:
        shutil.copytree(pair.target.checkpoint, target / WEIGHTS, copy_function=linked)
        if fingerprint_of(target / WEIGHTS) is None:
            write_fingerprint(target / WEIGHTS, fingerprint(target / WEIGHTS))
    elif pair.target.imported is not None:
        known = load_pair(pair_file)
        imported = cache / pair.target.imported
        import_model(known.target, imported, cache)
        shutil.copytree(imported, target / WEIGHTS)
        build_pair(known, repository, cache)  # draft and head; the target is up to date
    else:
        raise BuildError(
            f"{pair.name} names no weights for the target: give `checkpoint` in the pair file, or "
            "--checkpoint target=DIRECTORY"
        )
    head = pair.self_speculation
    if head is not None and head.checkpoint is not None:
        fill_head(head.checkpoint, target / WEIGHTS, target / HEAD)
    for draft in pair.drafts:
        if draft.checkpoint is not None:
            add_draft(
                repository,
                draft.name,
                draft.checkpoint,
                translation=draft.translation,
                pattern=PATTERNS / "draft",
            )
    for engine in pair.engines:
        _configure(pair, engine, repository / engine.name)


def _configure(pair: PairDescription, engine: EngineDescription, model: Path) -> None:
    limits, is_target = pair.limits, engine is pair.target
    if engine.precision.quantization not in WEIGHT_DTYPES:
        raise BuildError(
            f"{engine.name}: a torch engine has {' or '.join(WEIGHT_DTYPES)} as quantization; "
            f"given: {engine.precision.quantization!r}"
        )
    head = pair.self_speculation
    num_tokens = pair.load.num_sequences * pair.load.sequence_len
    set_parameters(
        model,
        device=_device(engine),
        dtype=engine.precision.dtype,
        weight_dtype=WEIGHT_DTYPES[engine.precision.quantization],
        head_dir="head" if is_target and head is not None else "",
        max_seq_len=str(min(limits.max_seq_len, engine.shape.max_position_embeddings)),
        max_draft_len=str(limits.max_draft_len if is_target else 0),
        max_num_tokens=str(limits.max_num_tokens),
        max_num_sequences=str(limits.max_batch_size),
        max_tokens_in_paged_kv_cache=str(num_tokens),
    )
    path = model / "config.pbtxt"
    text = path.read_text("utf-8")
    count = max(1, len(engine.placement.instances))
    text = re.sub(r"^(instance_group \[ { count: )1", rf"\g<1>{count}", text, flags=re.MULTILINE)
    drafts = min(pair.speculation.num_draft_tokens, limits.max_draft_len) if is_target else 0
    warmup = write_warmup(model, num_draft_tokens=drafts)
    path.write_text(f"{text.rstrip()}\n\n{warmup}\n", "utf-8")


def _device(engine: EngineDescription) -> str:
    devices = sorted(set(engine.placement.devices))
    if not devices:
        return "auto"
    if len(devices) > 1:
        raise BuildError(
            f"{engine.name}: all instances of a torch engine run on one device; given: "
            f"{', '.join(map(str, devices))}. Describe a draft of another name for each"
        )
    return f"cuda:{devices[0]}"
