"""Rendering a whole model repository for a pair. The same input gives the same bytes."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from specdec.builder.checkpoints.files import TOKENIZER_FILES
from specdec.builder.checkpoints.tokenizers import TOKENIZER
from specdec.builder.config_file import parameters_of, set_parameters
from specdec.builder.description import (
    LLMAPI,
    TENSORRTLLM,
    TORCH,
    VLLM,
    EngineDescription,
    PairDescription,
    SelfSpeculation,
)
from specdec.builder.errors import BuildError
from specdec.builder.fingerprint import fingerprint
from specdec.builder.importing.packages import CACHE
from specdec.builder.memory import KvShare, kv_shares, plan_memory
from specdec.builder.outputs import link_or_copy
from specdec.builder.rendering.launch import LAUNCH_FILE, plan_launch
from specdec.builder.rendering.llmapi import loaded_models, write_llmapi_model
from specdec.builder.rendering.llmapi_drafts import write_llmapi_drafts_model
from specdec.builder.rendering.manifest import write_manifest
from specdec.builder.rendering.orchestrator import orchestrator_parameters, shared_parameters
from specdec.builder.rendering.tensorrtllm import ENGINE, write_compiled_model
from specdec.builder.rendering.torch_models import (
    write_target_weights,
    write_torch_drafts,
    write_torch_models,
)
from specdec.builder.rendering.vllm import write_vllm_model
from specdec.builder.repository.colocate import colocate
from specdec.builder.repository.shipped import copy_model
from specdec.builder.repository.weights import HEAD, WEIGHTS, fill_head
from specdec.deployment.compiled_engine import ENGINE_CONFIG
from specdec.deployment.freshness import RECORD_FILE, fingerprint_of, write_fingerprint
from specdec.deployment.load_check import engine_problems
from specdec.deployment.manifest import MANIFEST_FILE, Manifest
from specdec.settings.orchestrator import OrchestratorSettings
from specdec.settings.parameters import read_parameters


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """The options of rendering that a pair file does not contain."""

    served_at: Path
    """Path of the repository when it is served, which may be inside a container."""
    engines: Path | None = None
    """Folder with compiled engines (`specdec build compile`); None to render without them."""
    cache: Path = CACHE
    """Folder for downloaded weights."""
    colocated: bool = False
    """Whether torch engines run in the orchestrator's process."""
    starts_ranks: bool = False
    """Whether mpirun starts every MPI rank, where MPI may not spawn processes."""


def render(pair: PairDescription, pair_file: Path, output: Path, options: RenderOptions) -> None:
    """Write the repository `output`: the models, launch.sh and manifest.json.

    It is complete before it is moved to `output`, where it replaces a repository rendered before.
    Raises BuildError if `output` was not rendered, an option does not fit the kind of engine, or
    weights or engines are missing or do not fit.
    """
    check_options(pair, output, options)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{output.name}.", dir=output.parent) as scratch:
        new = Path(scratch) / "repository"
        new.mkdir()
        _write(pair, new, options)
        if options.colocated:
            colocate(new, Path(scratch) / "colocated")
            new = Path(scratch) / "colocated"
        script = new / LAUNCH_FILE
        launch = plan_launch(pair, starts_ranks=options.starts_ranks)
        script.write_text(launch.script(pair), "utf-8")
        script.chmod(0o755)
        manifest = write_manifest(pair, pair_file, new)
        if options.engines is not None:
            _check_engines(new, manifest)
        if output.exists():
            output.rename(Path(scratch) / "old")
        new.rename(output)


def check_options(pair: PairDescription, output: Path, options: RenderOptions) -> None:
    """Raise BuildError if `output` was not rendered, or an option does not fit the engines."""
    if output.exists() and not (output / MANIFEST_FILE).is_file():
        raise BuildError(f"{output} exists and was not rendered: choose another folder")
    if options.colocated and pair.engine != TORCH:
        raise BuildError(
            f"only torch engines run inside specdec; {pair.name} has {pair.engine} engines"
        )
    if options.starts_ranks and pair.engine != TENSORRTLLM:
        raise BuildError(
            f"only compiled engines run in MPI ranks; {pair.name} has {pair.engine} engines"
        )


def notices(pair: PairDescription, options: RenderOptions) -> list[str]:
    """Return sentences about what is still missing before the repository can be served."""
    if pair.engine == TORCH or pair.has_drafters_inside:
        return []
    found = []
    if pair.target.checkpoint is None:
        folder = Path(pair.target.name) / WEIGHTS
        found.append(
            f"no tokenizer: give --checkpoint target=DIRECTORY, or put {TOKENIZER} and config.json "
            f"of {pair.target.model} into {folder}"
        )
    if pair.engine == LLMAPI:
        found += [
            f"1/model.yaml has the name {model!r}, not a folder: give --checkpoint {name}=DIRECTORY"
            for name, (model, folder) in loaded_models(pair).items()
            if folder is None
        ]
    if pair.engine == TENSORRTLLM and options.engines is None:
        found.append("no engines: run `specdec build compile` and give --engines OUTPUT/engines")
    return found


def _write(pair: PairDescription, new: Path, options: RenderOptions) -> None:
    copy_model("specdec", new)
    if pair.engine == TORCH:
        write_torch_models(pair, new, options.cache)
    elif pair.engine == LLMAPI:
        write_llmapi_model(pair, new / pair.target.name, _shares(pair)[pair.target.name])
        _copy_provenance(pair.target, new)
    elif pair.engine == TENSORRTLLM:
        _write_compiled_models(pair, new, options)
    elif pair.has_drafters_inside:
        _write_weights(pair, new, options)
    set_parameters(new / "specdec", **orchestrator_parameters(pair))
    if pair.has_drafters_inside:
        _write_engine_with_drafters(pair, new)


def _write_weights(pair: PairDescription, new: Path, options: RenderOptions) -> None:
    """Write the weights of a target with our drafters inside, and the draft models beside it."""
    own, model = pair.self_speculation, new / pair.target.name
    write_target_weights(pair, model / WEIGHTS, options.cache)
    if own is not None and own.mode != "mtp":  # The target has those weights itself.
        _write_own_drafter(pair, own, model)
    if pair.serves_drafts:
        write_torch_drafts(pair, new)


def _write_engine_with_drafters(pair: PairDescription, new: Path) -> None:
    shared = shared_parameters(parameters_of(new / "specdec"))
    model = new / pair.target.name
    if pair.engine == VLLM:
        write_vllm_model(pair, model, shared)
    else:
        write_llmapi_drafts_model(pair, model, shared, _shares(pair)[pair.target.name])


def _write_own_drafter(pair: PairDescription, own: SelfSpeculation, model: Path) -> None:
    """Write the weights of vLLM's own drafter to the folder `model`.

    Our own heads are completed from the target; other checkpoints are copied as they are. Raises
    BuildError if the pair names none.
    """
    if own.stored is not None and own.checkpoint is None:
        fill_head(own.stored, model / WEIGHTS, model / HEAD)
        return
    source = pair.drafts[0].checkpoint if own.mode == "draft_model" else own.checkpoint
    if source is None:
        name = pair.drafts[0].name if own.mode == "draft_model" else "head"
        raise BuildError(f"{pair.name} names no weights: give --checkpoint {name}=DIRECTORY")
    shutil.copytree(source, model / HEAD, copy_function=link_or_copy)


def _write_compiled_models(pair: PairDescription, new: Path, options: RenderOptions) -> None:
    shares = _shares(pair)
    launch = plan_launch(pair, starts_ranks=options.starts_ranks)
    for engine in pair.served_engines:
        write_compiled_model(
            pair,
            engine,
            new / engine.name,
            served_at=options.served_at,
            launch=launch,
            share=shares[engine.name],
        )
        _copy_provenance(engine, new)
        if options.engines is None:
            continue
        compiled = options.engines / engine.name
        if not compiled.is_dir():
            raise BuildError(f"{compiled} is missing: run `specdec build compile` first")
        for file in (compiled / ENGINE_CONFIG, *sorted(compiled.glob("*.engine"))):
            link_or_copy(str(file), str(new / engine.name / ENGINE / file.name))


def _shares(pair: PairDescription) -> dict[str, KvShare]:
    """Return each engine's KV cache share. Raises BuildError without a GPU or enough memory."""
    shares = {each.engine: each for each in kv_shares(pair, plan_memory(pair))}
    if not shares:
        raise BuildError(
            f"{pair.name} names no GPU, or does not fit on it: `specdec build check` prints the "
            "figures"
        )
    return shares


def _check_engines(repository: Path, manifest: Manifest) -> None:
    """Raise BuildError if the server would refuse to load the compiled engines."""
    values = parameters_of(repository / "specdec")
    config = {"name": "specdec", "parameters": {k: {"string_value": values[k]} for k in values}}
    settings = read_parameters(OrchestratorSettings, config)
    if problems := list(engine_problems(repository, manifest, settings)):
        listed = "\n".join(f"- {each}" for each in problems)
        raise BuildError(f"these engines are not those of {manifest.pair}:\n{listed}")


def _copy_provenance(engine: EngineDescription, new: Path) -> None:
    """Copy the checkpoint's tokenizer and training record, and write the target's fingerprint.

    Record and fingerprint tell which weights an engine was built from.
    """
    folder = new / engine.name / WEIGHTS
    folder.mkdir()
    if engine.checkpoint is None:
        return
    for name in ("config.json", *TOKENIZER_FILES, RECORD_FILE):
        if (engine.checkpoint / name).is_file():
            shutil.copyfile(engine.checkpoint / name, folder / name)
    if engine.name == "target":
        found = fingerprint_of(engine.checkpoint)
        if found is None:
            print(f"hashing the weights in {engine.checkpoint}", flush=True)
            found = fingerprint(engine.checkpoint)
        write_fingerprint(folder, found)
