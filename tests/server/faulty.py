"""A model repository with drafts that fail in every way, and an orchestrator without a target."""

from __future__ import annotations

import shutil
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from loadtest.bench.repository import add_front_door
from tests.server.live import add_python_model, copy_repository

INFLIGHT_LIMIT = 4
FAILING_DRAFTS = {
    "raising": "engine_failed",
    "missing": "engine_failed",
    "hanging": "draft_timeout",
}
"""Name of the draft model: the reason under which its failures are counted."""

OURS = (
    *("min_p", "prompt_length", "verification", "draft_parents"),
    *("num_next_drafts", "next_draft_depth"),
)
"""Inputs that no compiled engine has."""

_RAISING = """
class TritonPythonModel:
    def execute(self, requests):
        raise RuntimeError("broken on purpose")
"""

# It hangs as a whole, stop requests included, until the file named RELEASE exists.
_HANGING = """
import time
from pathlib import Path

import triton_python_backend_utils as pb_utils

RELEASE = Path("{release}")

class TritonPythonModel:
    def execute(self, requests):
        while not RELEASE.exists():
            time.sleep(0.05)
        for request in requests:
            error = pb_utils.InferenceResponse(error=pb_utils.TritonError("too late"))
            request.get_response_sender().send(
                error, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            )
"""


def make_faulty_repository(directory: Path, release: Path) -> Path:
    """Make the repository; the model `hanging` hangs until `release` exists."""
    repository = copy_repository(
        directory,
        tensorrt_llm_draft_model_name=",".join([*FAILING_DRAFTS, "draft"]),
        inflight_limit=str(INFLIGHT_LIMIT),
        draft_timeout_ms="300",
    )
    add_python_model(repository, "raising", _RAISING)
    add_python_model(repository, "hanging", _HANGING.format(release=release))
    add_front_door(
        repository,
        "orphan",
        tensorrt_llm_model_name="nowhere",
        tensorrt_llm_draft_model_name="",
    )
    # The contract as compiled engines have it: with draft logits, and without.
    for name in ("target", "draft"):
        _add_compiled(repository, name)
    engines = {
        "tensorrt_llm_model_name": "compiled_target",
        "tensorrt_llm_draft_model_name": "compiled_draft",
        "target_head_name": "",
    }
    add_front_door(repository, "strict", engine_extensions="draft_logits", **engines)
    add_front_door(repository, "bare", engine_extensions="", **engines)
    return repository


def _add_compiled(repository: Path, name: str) -> None:
    """Add an engine that declares no input of ours, so that Triton refuses what should not come."""
    compiled = repository / f"compiled_{name}"
    shutil.copytree(repository / name, compiled, symlinks=True)
    path = compiled / "config.pbtxt"
    config = text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())
    config.name = compiled.name
    kept = [each for each in config.input if each.name not in OURS]
    del config.input[:]
    config.input.extend(kept)
    path.write_text(text_format.MessageToString(config))
