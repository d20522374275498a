"""Model repositories as `specdec build render` writes them, with doubles as engines.

The pair files are in this folder. They pass the same steps as in production: `compile`, with the
tests' stand-in for TensorRT-LLM, then `render`. Two things of a compiled engine are replaced: the
backend, which test machines do not have, and the weights, which the stand-in cannot make.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specdec.builder.config_file import parameter_line, set_parameters
from specdec.builder.description import PairDescription, Placement, load_description
from specdec.builder.memory import KvShare
from specdec.builder.rendering.launch import plan_launch
from specdec.builder.rendering.repository import RenderOptions, render
from specdec.builder.rendering.tensorrtllm import ENGINE, write_compiled_model
from specdec.builder.tensorrt_llm.compiling import compile_steps
from specdec.builder.tensorrt_llm.installation import find_toolkit
from specdec.builder.tensorrt_llm.plan import plan_steps
from specdec.deployment.manifest import MANIFEST_FILE
from tests.unit.builder.tensorrt_llm.tensorrt_llm_standin import install

DOUBLES = Path(__file__).parent
COMPILED_PAIR, LLMAPI_PAIR = DOUBLES / "compiled.toml", DOUBLES / "llmapi.toml"
INSIDE_PAIR = DOUBLES / "llmapi_drafts.toml"
LLMAPI_MODEL = DOUBLES / "llmapi"
"""Value for SPECDEC_LLMAPI_MODEL: folder of the model.py that a rendered `llmapi` model runs."""
NUM_RANKS = {"target": 5, "draft": 7}
"""Tensor-parallel ranks of each engine. They pad the 49152 columns of the logits to 49155 and
49154, so the two engines differ in the number of columns."""

_MODEL = """import sys

sys.path.append({root!r})

from tests.doubles.tensorrtllm.model import TritonPythonModel  # noqa: E402, F401
"""

_INSIDE_MODEL = """import sys

sys.path[:0] = [{root!r}, {package!r}]

from specdec.engine_model.tensorrt_llm_model import TritonPythonModel  # noqa: E402, F401
"""


def compiled_repository(directory: Path) -> Path:
    """Write the compiled pair's model repository below `directory` and return its path.

    The engines' logits are padded.
    """
    pair = load_description(COMPILED_PAIR)
    target, draft = (
        replace(each, placement=Placement(tuple(range(count)), count))
        for each, count in zip(pair.engines, NUM_RANKS.values(), strict=True)
    )
    pair = replace(pair, target=target, drafts=(draft,))
    engines = compiled(pair, directory / "build")
    repository = directory / "model_repository"
    options = RenderOptions(served_at=repository, engines=engines["target"].parent)
    render(pair, COMPILED_PAIR, repository, options)
    # The manifest asks for certain GPUs, and a test machine with others would be refused.
    (repository / MANIFEST_FILE).unlink()
    _swap_backend(repository / "target")
    for each in pair.drafts:
        _swap_backend(repository / each.name, double_num_threads="1", double_num_padding="2")
    return repository


def add_narrow_engine(repository: Path) -> None:
    """Add the engine `narrow`, with prompts of up to 64 tokens and drafts of up to 4.

    A request takes 400 ms until it is in the engine; before that, a stop does not find it.
    """
    pair = load_description(COMPILED_PAIR)
    narrow = replace(pair.drafts[0], name="narrow")
    limits = replace(pair.limits, max_input_len=64, max_draft_len=4)
    pair = replace(pair, target=narrow, drafts=(), limits=limits)
    model, launch = repository / narrow.name, plan_launch(pair)
    share = KvShare(narrow.name, 0.9, limits.max_seq_len)
    write_compiled_model(pair, narrow, model, served_at=repository, launch=launch, share=share)
    engines = compiled(pair, repository.parent / narrow.name)
    shutil.copytree(engines[narrow.name], model / ENGINE, dirs_exist_ok=True)
    _swap_backend(model, double_enqueue_delay_ms="400")


def compiled(pair: PairDescription, work: Path) -> dict[str, Path]:
    """Compile a pair with the stand-in; return each engine's directory by name.

    The file of each rank names the checkpoint that the double runs. All engines can return logits,
    so that tests can compare them.
    """
    work.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        install(patch, work / "site", pair.runtime.version)
        toolkit = find_toolkit(pair.runtime)
        found = compile_steps(plan_steps(pair, work, toolkit, ""), work)
    engines = dict(zip(pair.engines, found, strict=True))
    for engine, directory in engines.items():
        for rank in directory.glob("rank*.engine"):
            rank.write_text(str(engine.checkpoint))
        change_build(directory, gather_generation_logits=True)
    return {engine.name: directory for engine, directory in engines.items()}


def change_build(directory: Path, **values: Any) -> None:
    """Change values of `build_config` in a compiled engine's config.json."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config["build_config"] |= values
    path.write_text(json.dumps(config))


def _swap_backend(model: Path, **parameters: str) -> None:
    """Make the double serve a model of the C++ backend, and add the double's own `parameters`."""
    config = model / "config.pbtxt"
    text = config.read_text()
    assert text.count('backend: "tensorrtllm"') == 1
    text = text.replace('backend: "tensorrtllm"', 'backend: "python"')
    own = [parameter_line(name, value) for name, value in parameters.items()]
    config.write_text("\n".join([text.rstrip(), *own, ""]))
    (model / "1" / "model.py").write_text(_MODEL.format(root=str(DOUBLES.parents[1])))


def llmapi_repository(directory: Path) -> Path:
    """Write the repository of a target that speculates inside, below `directory`; return its path.

    To serve it, set SPECDEC_LLMAPI_MODEL to LLMAPI_MODEL.
    """
    repository = directory / "model_repository"
    pair = load_description(LLMAPI_PAIR)
    render(pair, LLMAPI_PAIR, repository, RenderOptions(served_at=repository))
    (repository / MANIFEST_FILE).unlink()
    return repository


def inside_repository(directory: Path) -> Path:
    """Write the repository of a target in the LLM API with our drafters inside; return its path."""
    repository = directory / "model_repository"
    pair = load_description(INSIDE_PAIR)
    render(pair, INSIDE_PAIR, repository, RenderOptions(served_at=repository))
    (repository / MANIFEST_FILE).unlink()
    # The draft model runs on the same CPU as the double.
    set_parameters(repository / "target", draft_budget_ms="2000")
    text = _INSIDE_MODEL.format(root=str(DOUBLES.parents[1]), package=str(DOUBLES / "llm_api"))
    (repository / "target" / "1" / "model.py").write_text(text)
    return repository
