"""`specdec build colocate`: write a model repository whose orchestrator runs the engines itself."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from specdec.builder.config_file import ConfigFile, parameter_line, parameters_of
from specdec.builder.errors import BuildError
from specdec.builder.outputs import link_or_copy
from specdec.builder.repository.add_draft import DRAFTS
from specdec.builder.repository.options import add_repository_option
from specdec.builder.repository.weights import WEIGHTS
from specdec.deployment.versions import CHECKPOINT, HEAD, served_version
from specdec.errors import ConfigurationError
from specdec.settings.lists import read_names

_CHECKPOINTS = "checkpoints"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `colocate` to the parser."""
    parser.add_argument("output", type=Path, help="the new model repository")
    add_repository_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the repository and return 0. Raises BuildError if that fails."""
    names = colocate(arguments.model_repository, arguments.output)
    print(f"{arguments.output}: specdec runs {', '.join(names)} in its own process")
    return 0


def colocate(repository: Path, output: Path) -> list[str]:
    """Write a repository `output` whose one model, `specdec`, runs target and drafts itself.

    The engines' parameters become parameters of `specdec`. Rounds then need no calls between
    processes, but a crash or restart ends the orchestrator and all its engines together. Weights
    are hard links where the file system allows it. Returns the names of the engines. Raises
    BuildError if `output` exists, or if a model is missing or is no torch engine with weights.
    """
    config = ConfigFile.read(repository / "specdec")
    if output.exists():
        raise BuildError(f"{output} exists; choose another folder")
    own = config.parameters()
    try:
        names = [own["tensorrt_llm_model_name"], *read_names(DRAFTS, own[DRAFTS])]
    except ConfigurationError as error:
        raise BuildError(f"{config.path}: {error}") from error
    lines = [line for name in names for line in _engine_parameters(repository, name)]
    moved = {name: _moved(value) for name, value in own.items() if _moved(value) != value}
    # The profile was measured with separate processes.
    config = config.with_parameters(**moved | {"control_profile": ""})
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{output.name}.", dir=output.parent) as scratch:
        model = Path(scratch) / "repository" / "specdec"
        shutil.copytree(repository / "specdec" / "1", model / "1", ignore=_caches)
        for name in names:
            version = _version(repository, name)
            shutil.copytree(
                version / CHECKPOINT, model / _CHECKPOINTS / name, copy_function=link_or_copy
            )
            if (version / HEAD).is_dir():
                shutil.copytree(version / HEAD, model / _head_of(name), copy_function=link_or_copy)
        config.with_statements(["# Engines of this process.", *lines]).write(model)
        model.parent.rename(output)
    return names


def _engine_parameters(repository: Path, name: str) -> list[str]:
    found = parameters_of(repository / name)
    if "checkpoint_dir" not in found or not (_version(repository, name) / CHECKPOINT).is_dir():
        raise BuildError(f"{name} is no torch engine with weights: it cannot run in specdec")
    found["checkpoint_dir"] = f"../{_CHECKPOINTS}/{name}"
    if found.get("head_dir"):
        found["head_dir"] = f"../{_head_of(name)}"
    return [parameter_line(f"{name}.{key}", value) for key, value in found.items()]


def _moved(value: str) -> str:
    """Return a parameter's value with folders of other models moved into the orchestrator's."""
    return value.replace("../../", f"../{_CHECKPOINTS}/").replace(f"/{WEIGHTS}", "")


def _version(repository: Path, name: str) -> Path:
    """Return the folder of the served version; a refresh may have added a newer one than 1."""
    return served_version(repository / name) or repository / name / "1"


def _head_of(name: str) -> str:
    return f"{_CHECKPOINTS}/{name}-head"


def _caches(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__"]
