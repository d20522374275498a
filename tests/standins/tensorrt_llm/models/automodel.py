"""The class for a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

from tensorrt_llm.models.modeling_utils import PretrainedModel

MODEL_MAP = {"LlamaForCausalLM": PretrainedModel, "Qwen2ForCausalLM": PretrainedModel}


class AutoModelForCausalLM:
    """Finds a model's class by the architecture in its config.json."""

    @staticmethod
    def get_trtllm_model_class(hf_model_or_dir: str) -> type[PretrainedModel]:
        """Look the architecture up."""
        (architecture,) = json.loads(Path(hf_model_or_dir, "config.json").read_text())[
            "architectures"
        ]
        if architecture not in MODEL_MAP:
            raise NotImplementedError(f"The given huggingface model architecture {architecture}")
        return MODEL_MAP[architecture]
