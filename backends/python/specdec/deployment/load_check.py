"""Refuse to load a rendered repository that no longer matches its manifest.

One ConfigurationError lists all mismatches: what is wrong, both values, and what to do.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

from specdec.deployment.compiled_engine import DRAFT_TOKENS_EXTERNAL, CompiledEngine
from specdec.deployment.manifest import EngineRecord, Manifest, changed_files, load_manifest
from specdec.deployment.versions import served_version
from specdec.errors import ConfigurationError
from specdec.settings.orchestrator import OrchestratorSettings
from specdec.settings.parameters import read_group

LIMITS = ("max_draft_len", "max_seq_len")
"""Settings for which the manifest has a limit, in tokens."""


def check_repository(repository: Path, settings: OrchestratorSettings, vocab_size: int) -> None:
    """Compare a repository and its orchestrator's settings with its manifest.

    `vocab_size` is that of the model whose tokenizer is used, in tokens. Without a manifest only
    the settings of a target with drafters inside are compared. Raises ConfigurationError with all
    mismatches, those of such settings first.
    """
    if settings.engines.has_drafters_inside:
        inside = list(_inside(repository / settings.engines.target, settings))
        if inside:
            listed = "\n".join(f"- {each}" for each in inside)
            raise ConfigurationError(f"the drafters run in {settings.engines.target}:\n{listed}")
    manifest = load_manifest(repository)
    if manifest is None:
        return
    problems = [
        *changed_files(repository, _of_served_versions(repository, manifest)),
        *_limits(repository, manifest, settings),
        *_vocabulary(manifest, settings, vocab_size),
        *engine_problems(repository, manifest, settings),
        *_machine(manifest),
    ]
    if problems:
        listed = "\n".join(f"- {each}" for each in problems)
        raise ConfigurationError(
            f"{repository} does not match its manifest (pair {manifest.pair}):\n{listed}\n"
            "Render it anew (`specdec build render`); if the change is meant, "
            "`specdec build manifest` records it"
        )


def _inside(target: Path, settings: OrchestratorSettings) -> Iterator[str]:
    """Yield the settings of drafters and controller that a target with drafters inside has not."""
    given = _parameters(target)
    if not given:
        yield f"no parameters are found in {target / 'config.pbtxt'}: write each on one line"
        return
    texts = {name: value["string_value"] for name, value in given.items()}
    for ours in (settings.drafters, settings.control.controller):
        theirs = read_group(type(ours), target.name, texts)
        for field in fields(ours):
            values = getattr(ours, field.name), getattr(theirs, field.name)
            if values[0] != values[1]:
                name = field.metadata.get("name") or field.name
                yield f"{name} is {values[0]!r} in specdec and {values[1]!r} there; make both equal"


def _of_served_versions(repository: Path, manifest: Manifest) -> Manifest:
    """Return the manifest without the files of versions that are no longer served.

    A refresh adds a newer version of a model.
    """

    def is_served(name: str) -> bool:
        model, version, *_ = Path(name).parts
        served = served_version(repository / model)
        return not version.isdigit() or served is None or served.name == version

    files = {name: each for name, each in manifest.files.items() if is_served(name)}
    return replace(manifest, files=files)


def _limits(repository: Path, manifest: Manifest, settings: OrchestratorSettings) -> Iterator[str]:
    for name in LIMITS:
        limit, configured = getattr(manifest, name), getattr(settings.engines, name)
        if configured > limit:
            yield f"specdec: {name} is {configured}, the engines were rendered for {limit}"
        engine = _parameter(repository / settings.engines.target, name)
        if engine is not None and engine < configured:
            yield (
                f"{settings.engines.target}: {name} is {engine}, specdec asks for up to "
                f"{configured}"
            )


def _vocabulary(
    manifest: Manifest, settings: OrchestratorSettings, vocab_size: int
) -> Iterator[str]:
    target = manifest.engines.get(settings.engines.target)
    if target is not None and target.vocab_size != vocab_size:
        yield (
            f"the tokenizer is of a model with {vocab_size} tokens, the target has "
            f"{target.vocab_size}"
        )


def engine_problems(
    repository: Path, manifest: Manifest, settings: OrchestratorSettings
) -> Iterator[str]:
    """Yield what is wrong with each compiled engine.

    The properties in its config.json, which TensorRT-LLM wrote, are compared with the manifest and
    with the orchestrator's settings.
    """
    for name, recorded in manifest.engines.items():
        if not recorded.engine_dir:
            continue
        try:
            engine = CompiledEngine.load(repository / recorded.engine_dir)
        except ConfigurationError as error:
            yield f"{name}: {error}"
            continue
        yield from _of_any_engine(name, engine, recorded, manifest, settings)
        if name == settings.engines.target:
            yield from _of_target(name, engine, settings)
        elif (
            name in settings.drafters.draft_models
            and settings.engines.has_draft_logits
            and not engine.gathers_generation_logits
        ):
            yield (
                f"{name}: was built without --gather_generation_logits, which engine_extensions = "
                "draft_logits needs"
            )


def _of_any_engine(
    name: str,
    engine: CompiledEngine,
    recorded: EngineRecord,
    manifest: Manifest,
    settings: OrchestratorSettings,
) -> Iterator[str]:
    if engine.version != manifest.tensorrt_llm:
        yield (
            f"{name}: was built by TensorRT-LLM {engine.version}, the repository is for "
            f"{manifest.tensorrt_llm}"
        )
    if engine.vocab_size != recorded.vocab_size:
        yield (
            f"{name}: the engine has a vocabulary of {engine.vocab_size}, {recorded.model} has "
            f"{recorded.vocab_size}"
        )
    if engine.max_seq_len < settings.engines.max_seq_len:
        yield (
            f"{name}: was built for {engine.max_seq_len} tokens (--max_seq_len), specdec takes "
            f"requests of {settings.engines.max_seq_len}"
        )
    elif engine.max_input_len < settings.engines.max_seq_len - 1:
        yield (
            f"{name}: was built for inputs of {engine.max_input_len} tokens (--max_input_len); a "
            "call sends the prompt and the answer so far, up to "
            f"{settings.engines.max_seq_len - 1} tokens of the requests that specdec takes"
        )


def _of_target(name: str, engine: CompiledEngine, settings: OrchestratorSettings) -> Iterator[str]:
    # An engine that speculates inside is sent no drafts.
    if not settings.engines.max_draft_len:
        return
    if engine.mode != DRAFT_TOKENS_EXTERNAL:
        yield (
            f"{name}: was built with the speculative decoding mode {engine.mode}: it takes no "
            "drafts from outside; build it with --speculative_decoding_mode=draft_tokens_external"
        )
    if engine.max_draft_len < settings.engines.max_draft_len:
        yield (
            f"{name}: was built for {engine.max_draft_len} draft tokens (--max_draft_len), specdec "
            f"asks for up to {settings.engines.max_draft_len}"
        )
    if not engine.has_paged_context_fmha or engine.gathers_context_logits:
        yield (
            f"{name}: cannot reuse its KV cache, which verification needs: build it with "
            "--use_paged_context_fmha=enable and without --gather_context_logits"
        )


def _machine(manifest: Manifest) -> Iterator[str]:
    """Yield what does not match this machine: its TensorRT-LLM and its GPUs, where known."""
    if manifest.tensorrt_llm:
        installed = _installed_tensorrt_llm()
        if installed is not None and installed != manifest.tensorrt_llm:
            yield (
                f"TensorRT-LLM {installed} is installed, the engines are for "
                f"{manifest.tensorrt_llm} (container {manifest.container})"
            )
    devices = {device for each in manifest.engines.values() for device in each.devices}
    if manifest.compute_capability and devices:
        found = _compute_capabilities()
        for device in sorted(devices & found.keys()):
            if found[device] != manifest.compute_capability:
                yield (
                    f"GPU {device} has compute capability {found[device] / 10}, the engines are "
                    f"for {manifest.compute_capability / 10} ({manifest.gpu})"
                )
        if found and (absent := sorted(devices - found.keys())):
            yield f"GPU {absent[0]} is configured, this machine has {len(found)}"


def _installed_tensorrt_llm() -> str | None:
    try:
        return importlib.metadata.version("tensorrt_llm")
    except importlib.metadata.PackageNotFoundError:
        return None


def _compute_capabilities() -> dict[int, int]:
    """Return the compute capability of each GPU by index, 80 for 8.0.

    The result is empty if nvidia-smi is missing or fails.
    """
    if shutil.which("nvidia-smi") is None:
        return {}
    command = ["nvidia-smi", "--query-gpu=index,compute_cap", "--format=csv,noheader"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = re.findall(r"^(\d+), (\d+)\.(\d)$", result.stdout, flags=re.MULTILINE)
    return {int(index): 10 * int(major) + int(minor) for index, major, minor in pairs}


def _parameter(model: Path, name: str) -> int | None:
    """Return a number among the parameters in a model's config.pbtxt; None if it has none."""
    text = _parameters(model).get(name, {}).get("string_value", "")
    return int(text) if text.isdecimal() else None


def _parameters(model: Path) -> dict[str, dict[str, str]]:
    """Return the parameters in a model's config.pbtxt as Triton passes them on.

    They are found if they are written as in rendered files; none if there is no file.
    """
    try:
        text = (model / "config.pbtxt").read_text("utf-8")
    except OSError:
        return {}
    found = re.findall(
        r'^parameters \{ key: "([^"]*)" value \{ string_value: "((?:[^"\\]|\\.)*)" \} \}',
        text,
        flags=re.MULTILINE,
    )
    return {name: {"string_value": re.sub(r"\\(.)", r"\1", value)} for name, value in found}
