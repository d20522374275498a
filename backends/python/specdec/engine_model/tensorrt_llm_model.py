"""The Triton model of TensorRT-LLM's LLM API with our drafters inside."""

from __future__ import annotations

from functools import partial

from specdec.batch_engines.tensorrt_llm.engine import TensorRtLlmEngine
from specdec.engine_model.draft_model_calls import ask_draft_model
from specdec.engine_model.engine_model import EngineModel


class TritonPythonModel(EngineModel):
    """The class that Triton's Python backend looks for."""

    load = partial(TensorRtLlmEngine, ask_draft_model=ask_draft_model)
