"""A model repository whose engines are doubles of compiled ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from string import Template
from typing import Any

from builder.parameters import set_parameters

ROOT = Path(__file__).parents[2]
NUM_TOKENS = 49152
MAX_DRAFT_LEN = 16
MAX_SEQ_LEN = 8192
RENAMED = {"min_tokens": "min_length", '"seed"': '"random_seed"'}
"""Inputs by their names before TensorRT-LLM 0.20."""

_MODEL = """import sys

sys.path.append({root!r})

from tests.doubles.{backend}.model import TritonPythonModel  # noqa: E402, F401
"""


def compile_pair(repository: Path) -> None:
    """Put doubles in the places of target and draft, and tell `specdec` of them as one would.

    The columns of their logits are padded, and not to the same number.
    """
    compile_engine(repository, "target", max_draft_len=MAX_DRAFT_LEN, tp_size=5)
    compile_engine(repository, "draft", tp_size=7, double_num_threads="1", double_num_padding="2")
    set_parameters(
        repository / "specdec",
        engine_extensions="draft_logits",
        engine_vocab_sizes=f"target={NUM_TOKENS}:49155,draft={NUM_TOKENS}:49154",
        target_head_name="",
    )


def add_odd_engines(repository: Path) -> None:
    """Add engines that refuse what others take: `whole` answers in one piece, `narrow` is small.

    `whole` has the inputs of an old release. `narrow` takes its time until it knows of a request,
    and leaves the prompt out of its output unless told otherwise.
    """
    checkpoint = repository / "draft" / "1" / "checkpoint"
    compile_engine(
        repository, "whole", checkpoint=checkpoint, is_decoupled=False, has_old_names=True
    )
    compile_engine(
        repository,
        "narrow",
        checkpoint=checkpoint,
        max_draft_len=4,
        build={"max_input_len": 64},
        exclude_input_in_output="true",
        double_enqueue_delay_ms="400",
    )


def compile_engine(
    repository: Path,
    name: str,
    *,
    checkpoint: Path | None = None,
    max_draft_len: int = 0,
    tp_size: int = 1,
    is_decoupled: bool = True,
    has_old_names: bool = False,
    build: dict[str, Any] | None = None,
    **parameters: str,
) -> None:
    """Make a model, or make one of the repository anew, from its checkpoint or another.

    `build`: what differs in the build_config of its engine.
    """
    version = repository / name / "1"
    engine = version / "engine"
    engine.mkdir(parents=True)
    (engine / "rank0.engine").symlink_to(checkpoint or version / "checkpoint")
    configuration = {
        "version": "1.2.1",
        "pretrained_config": {"vocab_size": NUM_TOKENS, "mapping": {"tp_size": tp_size}},
        "build_config": {
            "max_batch_size": 64,
            "max_input_len": MAX_SEQ_LEN,
            "max_seq_len": MAX_SEQ_LEN + max_draft_len,
            "max_draft_len": max_draft_len,
            "speculative_decoding_mode": 2 if max_draft_len else 1,
            "gather_context_logits": False,
            "gather_generation_logits": True,
            "plugin_config": {"use_paged_context_fmha": True},
        }
        | (build or {}),
    }
    (engine / "config.json").write_text(json.dumps(configuration))
    text = (Path(__file__).parent / "tensorrtllm" / "config.pbtxt").read_text()
    text = Template(text).substitute(name=name, engine=engine)
    if not is_decoupled:
        text = text.replace("decoupled: true", "decoupled: false")
    if has_old_names:
        for new, old in RENAMED.items():
            text = text.replace(new, old)
    (version.parent / "config.pbtxt").write_text(text)
    set_parameters(version.parent, **parameters)
    write_model(version, "tensorrtllm")


def serve_llmapi(repository: Path) -> None:
    """Put a double of the `llmapi` model in the place of both engines."""
    shutil.rmtree(repository / "draft")
    model = repository / "target"
    text = (Path(__file__).parent / "llmapi" / "config.pbtxt").read_text()
    (model / "config.pbtxt").write_text(Template(text).substitute(name="target"))
    write_model(model / "1", "llmapi")
    set_parameters(
        repository / "specdec",
        engine_kind="llmapi",
        tensorrt_llm_draft_model_name="",
        target_head_name="",
    )


def write_model(version: Path, backend: str) -> None:
    """Write the model.py of a double."""
    (version / "model.py").write_text(_MODEL.format(root=str(ROOT), backend=backend))
