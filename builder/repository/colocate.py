"""`specdec build colocate`: write a model repository whose orchestrator runs the engines itself."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from specdec.builder.errors import BuildError
from specdec.builder.outputs import link_or_copy
from specdec.builder.parameters import parameter_line, parameters_of, set_parameters
from specdec.builder.repository.options import add_repository_option
from specdec.builder.repository.weights import WEIGHTS
from specdec.deployment.versions import CHECKPOINT, HEAD, served_version

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
    orchestrator = repository / "specdec" / "config.pbtxt"
    try:
        config = orchestrator.read_text("utf-8")
    except OSError as error:
        raise BuildError(f"{repository} has no model specdec: {error}") from error
    if output.exists():
        raise BuildError(f"{output} exists; choose another folder")
    own = parameters_of(repository / "specdec")
    drafts = own["tensorrt_llm_draft_model_name"].split(",")
    names = [own["tensorrt_llm_model_name"], *filter(None, (name.strip() for name in drafts))]
    lines = [line for name in names for line in _engine_parameters(repository, name)]
    config = config.replace("../../", f"../{_CHECKPOINTS}/").replace(f"/{WEIGHTS}", "")
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
        text = "\n".join([config.rstrip(), "", "# Engines of this process.", *lines, ""])
        (model / "config.pbtxt").write_text(text, "utf-8")
        set_parameters(model, control_profile="")  # It was measured with separate processes.
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


def _version(repository: Path, name: str) -> Path:
    """Return the folder of the served version; a refresh may have added a newer one than 1."""
    return served_version(repository / name) or repository / name / "1"


def _head_of(name: str) -> str:
    return f"{_CHECKPOINTS}/{name}-head"


def _caches(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__"]
