"""Model repositories as `specdec build render` writes them, with doubles behind the engines.

The pairs are described beside this file and go the way that they go in production: `compile`, with
the tests' stand-in for TensorRT-LLM, then `render`. All that is changed then is the backend of a
compiled engine, which this machine does not have, and its weights, which the stand-in cannot make.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.description import PairDescription, Placement, load_description
from builder.memory import KvShare
from builder.rendering.launch import plan_launch
from builder.rendering.pbtxt import parameter_line
from builder.rendering.repository import RenderOptions, render
from builder.rendering.tensorrtllm import ENGINE, write_compiled_model
from builder.tensorrt_llm.compiling import compile_steps
from builder.tensorrt_llm.installation import find_toolkit
from builder.tensorrt_llm.plan import plan_steps
from specdec.serving.manifest import MANIFEST_FILE
from tests.unit.tensorrt_llm_standin import install

DOUBLES = Path(__file__).parent
COMPILED_PAIR, LLMAPI_PAIR = DOUBLES / "compiled.toml", DOUBLES / "llmapi.toml"
LLMAPI_MODEL = DOUBLES / "llmapi"
"""For SPECDEC_LLMAPI_MODEL: where a rendered `llmapi` model finds its model.py."""
NUM_RANKS = {"target": 5, "draft": 7}
"""So many ranks pad the 49152 columns of the logits, and not to the same number."""

_MODEL = """import sys

sys.path.append({root!r})

from tests.doubles.tensorrtllm.model import TritonPythonModel  # noqa: E402, F401
"""


def compiled_repository(directory: Path, **more_drafts: Path) -> Path:
    """Make the pair's repository below `directory`; the engines' logits are padded.

    `more_drafts`: checkpoints of drafts beside the pair's own, by name.
    """
    pair = load_description(COMPILED_PAIR)
    target, draft = (
        replace(each, placement=Placement(tuple(range(count)), count))
        for each, count in zip(pair.engines, NUM_RANKS.values(), strict=True)
    )
    more = (replace(draft, name=name, checkpoint=path) for name, path in more_drafts.items())
    pair = replace(pair, target=target, drafts=(draft, *more))
    engines = compiled(pair, directory / "build")
    repository = directory / "model_repository"
    options = RenderOptions(served_at=repository, engines=engines["target"].parent)
    render(pair, COMPILED_PAIR, repository, options)
    (repository / MANIFEST_FILE).unlink()  # it asks for GPUs, where a machine has any
    _swap_backend(repository / "target")
    for each in pair.drafts:
        _swap_backend(repository / each.name, double_num_threads="1", double_num_padding="2")
    return repository


def add_narrow_engine(repository: Path) -> None:
    """Add `narrow`: short texts, few drafts, and it takes a while until it knows of a request."""
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
    """Compile a pair by the stand-in; return the directories by engine.

    The file of each rank names the checkpoint that the double runs. All return their logits, so
    that tests see them.
    """
    work.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        install(patch, work / "site", pair.runtime.version)
        toolkit = find_toolkit(pair.runtime.version, pair.runtime.container)
        found = compile_steps(plan_steps(pair, work, toolkit, ""), work)
    engines = dict(zip(pair.engines, found, strict=True))
    for engine, directory in engines.items():
        for rank in directory.glob("rank*.engine"):
            rank.write_text(str(engine.checkpoint))
        change_build(directory, gather_generation_logits=True)
    return {engine.name: directory for engine, directory in engines.items()}


def change_build(directory: Path, **values: Any) -> None:
    """Change the build_config of a compiled engine."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config["build_config"] |= values
    path.write_text(json.dumps(config))


def _swap_backend(model: Path, **parameters: str) -> None:
    """Let the double serve a model of the C++ backend, with `parameters` of the double's own."""
    config = model / "config.pbtxt"
    text = config.read_text()
    assert text.count('backend: "tensorrtllm"') == 1
    text = text.replace('backend: "tensorrtllm"', 'backend: "python"')
    own = [parameter_line(name, value) for name, value in parameters.items()]
    config.write_text("\n".join([text.rstrip(), *own, ""]))
    (model / "1" / "model.py").write_text(_MODEL.format(root=str(DOUBLES.parents[1])))


def llmapi_repository(directory: Path) -> Path:
    """Make the repository of a target that guesses by itself; serve it with LLMAPI_MODEL."""
    repository = directory / "model_repository"
    pair = load_description(LLMAPI_PAIR)
    render(pair, LLMAPI_PAIR, repository, RenderOptions(served_at=repository))
    (repository / MANIFEST_FILE).unlink()
    return repository
