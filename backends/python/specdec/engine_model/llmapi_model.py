"""Load NVIDIA's `llmapi` model from its container, and let its streams wait for their readers.

In a repository for TensorRT-LLM's PyTorch runtime, the target's model.py imports this module.
NVIDIA's code reads `model.yaml` in the version directory and imports its sibling `helpers`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec.engine_model.paced_sender import PacedRequest
from specdec.engines.wire.receipts import ReceiptDesk, gives_receipts
from specdec.triton_backend.outbox import Outbox
from specdec.triton_backend.process_end import skip_destructors

DIRECTORY_VARIABLE = "SPECDEC_LLMAPI_MODEL"
"""Environment variable: the folder of NVIDIA's model.py, if it is not CONTAINER_DIRECTORY."""
CONTAINER_DIRECTORY = "/app/all_models/llmapi/tensorrt_llm/1"


def _load() -> type:
    """Return NVIDIA's TritonPythonModel. Raises RuntimeError if its file is missing."""
    directory = Path(os.environ.get(DIRECTORY_VARIABLE) or CONTAINER_DIRECTORY)
    file = directory / "model.py"
    if not file.is_file():
        raise RuntimeError(
            f"no llmapi model in {directory}: serve this repository in NVIDIA's container "
            "tritonserver:…-trtllm-python-py3, or name the folder of its "
            f"all_models/llmapi/tensorrt_llm/1 in {DIRECTORY_VARIABLE}"
        )
    sys.path.append(str(directory))
    spec = importlib.util.spec_from_file_location("llmapi_model", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["llmapi_model"] = module
    spec.loader.exec_module(module)
    found: type = module.TritonPythonModel
    return found


def _with_receipts(model: type[Any]) -> type:
    """Return a subclass whose streams wait for readers that give receipts (receipts.py)."""

    class Paced(model):  # type: ignore[misc]
        def initialize(self, args: Mapping[str, str]) -> None:
            super().initialize(args)
            config = json.loads(args["model_config"])
            self._outputs = frozenset(each["name"] for each in config["output"])
            self._desk, self._outbox = ReceiptDesk(), Outbox()

        def execute(self, requests: list[Any]) -> Any:
            return super().execute([self._paced(each) for each in requests])

        def finalize(self) -> None:
            super().finalize()
            self._desk.close()
            self._outbox.close()

        def _paced(self, request: Any) -> Any:
            requested = frozenset(request.requested_output_names())
            if not gives_receipts(requested, self._outputs):
                return request
            return PacedRequest(request, self._desk, self._outbox)

    return Paced


if not TYPE_CHECKING:
    skip_destructors()  # before NVIDIA's code, so that its own exit handlers run
    TritonPythonModel = _with_receipts(_load())
