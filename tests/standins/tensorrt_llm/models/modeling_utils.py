"""Base classes of all models."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tensorrt_llm.mapping import Mapping
from tensorrt_llm.strict import only_known


class QuantConfig:
    """How a model is quantized."""

    def __init__(self, **keywords: Any) -> None:
        only_known("QuantConfig", keywords)
        self.quant_algo = keywords.get("quant_algo")
        self.kv_cache_quant_algo = keywords.get("kv_cache_quant_algo")

    def to_dict(self) -> dict[str, str | None]:
        """Return the entries of a checkpoint's config.json."""
        return {
            name: getattr(value, "value", None)
            for name, value in (
                ("quant_algo", self.quant_algo),
                ("kv_cache_quant_algo", self.kv_cache_quant_algo),
            )
        }


class PretrainedModel:
    """One rank of a model."""

    def __init__(self, config: dict[str, Any], rank: int) -> None:
        self.config = config
        self.rank = rank

    @classmethod
    def from_hugging_face(cls, hf_model_or_dir: str, **keywords: Any) -> PretrainedModel:
        """Read a rank of a Hugging Face directory."""
        only_known("from_hugging_face", keywords)
        mapping = keywords.get("mapping") or Mapping()
        return cls(_config(hf_model_or_dir, keywords, mapping), mapping.rank)

    @classmethod
    def quantize(cls, hf_model_dir: str, output_dir: str, **keywords: Any) -> None:
        """Calibrate, and write all ranks."""
        only_known("quantize", keywords)
        mapping = keywords.get("mapping") or Mapping()
        config = _config(hf_model_dir, keywords, mapping)
        for rank in range(mapping.world_size):
            cls(config, rank).save_checkpoint(output_dir, save_config=rank == 0)

    def save_checkpoint(self, output_dir: str, **keywords: Any) -> None:
        """Write the rank's weights, and the configuration if asked for."""
        only_known("save_checkpoint", keywords)
        Path(output_dir, f"rank{self.rank}.safetensors").write_text(f"weights of {self.rank}")
        _fail_if_asked(f"rank{self.rank}")
        if keywords.get("save_config", True):
            Path(output_dir, "config.json").write_text(json.dumps(self.config, indent=2))


def _config(directory: str, keywords: dict[str, Any], mapping: Mapping) -> dict[str, Any]:
    raw = json.loads(Path(directory, "config.json").read_text())
    quantization = keywords.get("quant_config") or QuantConfig()
    return {
        "architecture": raw["architectures"][0],
        "dtype": keywords.get("dtype", "auto"),
        "vocab_size": raw["vocab_size"],
        "max_position_embeddings": raw["max_position_embeddings"],
        "mapping": mapping.to_dict(),
        "quantization": quantization.to_dict(),
    }


def _fail_if_asked(place: str) -> None:
    """End the process at the step that a test names, to show which files it leaves."""
    if os.environ.get("STANDIN_FAILS_AT") == place:
        raise SystemExit(f"CUDA out of memory at {place}")
