"""A model repository with draft models that fail, and an orchestrator without a target.

There are 4 slots, and the target has a small KV cache.
"""

from __future__ import annotations

from pathlib import Path

from specdec.builder.config_file import set_parameters
from tests.server.support.live import add_python_model, copy_repository
from tests.server.support.orchestrators import add_orchestrator

INFLIGHT_LIMIT = 4
CACHE_TOKENS = 4096
FAILING_DRAFTS = {
    "raising": "engine_failed",
    "missing": "engine_failed",
    "hanging": "draft_timeout",
}
"""Names of the failing draft models, each with the reason under which its failures are counted."""

_RAISING = """
class TritonPythonModel:
    def execute(self, requests):
        raise RuntimeError("broken on purpose")
"""

# The whole model hangs, stop requests included, until the file RELEASE exists.
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
    """Write the repository below `directory` and return its path.

    The model `hanging` hangs until the file `release` exists.
    """
    repository = copy_repository(directory)
    set_parameters(repository / "target", max_tokens_in_paged_kv_cache=str(CACHE_TOKENS))
    set_parameters(
        repository / "specdec",
        tensorrt_llm_draft_model_name=",".join([*FAILING_DRAFTS, "draft"]),
        inflight_limit=str(INFLIGHT_LIMIT),
        draft_timeout_ms="300",
        control_share="0.5",
    )
    add_python_model(repository, "raising", _RAISING)
    add_python_model(repository, "hanging", _HANGING.format(release=release))
    add_orchestrator(
        repository,
        "orphan",
        tensorrt_llm_model_name="nowhere",
        tensorrt_llm_draft_model_name="",
        engine_vocab_sizes="",
    )
    return repository
