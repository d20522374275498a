"""The Triton model of a vLLM engine with our drafters inside."""

from __future__ import annotations

from functools import partial

from specdec.batch_engines.vllm.engine import VllmEngine
from specdec.engine_model.draft_model_calls import ask_draft_model
from specdec.engine_model.engine_model import EngineModel


class TritonPythonModel(EngineModel):
    """The class that Triton's Python backend looks for."""

    load = partial(VllmEngine, ask_draft_model=ask_draft_model)
