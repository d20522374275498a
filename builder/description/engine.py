"""The description of one engine: its model, its precision and its devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from specdec.builder.description.shape import ModelShape

DTYPES = ("bfloat16", "float16", "float32")
QUANTIZATIONS = ("none", "fp8", "int8_wo", "int8_sq", "int4_wo", "int4_awq", "nvfp4")
"""Quantizations by the names of `--qformat` in TensorRT-LLM's quantize.py (examples)."""
TORCH_WEIGHT_DTYPES = {"none": "auto", "int8_wo": "int8"}
"""The quantizations that torch engines support, with their parameter `weight_dtype` for each."""
KV_CACHES = ("auto", "fp8", "int8")
"""Formats of the KV cache. `auto` is the dtype of the engine."""
TEXT, TOKENS = "text", "tokens"
TRANSLATIONS = (TEXT, TOKENS)
"""Ways to translate the tokens of a cross-vocabulary draft (builder/checkpoints/vocabulary.py)."""


@dataclass(frozen=True, slots=True)
class Precision:
    """The number formats of weights, activations and KV cache."""

    dtype: str = "bfloat16"
    """Format of activations, norms, embedding and output head; one of DTYPES."""
    quantization: str = "none"
    """Format of the projections in all layers; one of QUANTIZATIONS. "none" means `dtype`."""
    kv_cache: str = "auto"
    """Format of the KV cache; one of KV_CACHES."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The devices of an engine. Its instances take `world_size` of them each, in order."""

    devices: tuple[int, ...] = ()
    """Indices of the GPUs; empty for the CPU."""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1

    @property
    def world_size(self) -> int:
        """Number of GPUs of one instance, which is its number of MPI ranks."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def instances(self) -> tuple[tuple[int, ...], ...]:
        """Devices of each instance, as `gpu_device_ids` lists them with ";" in between."""
        size = self.world_size
        return tuple(self.devices[i : i + size] for i in range(0, len(self.devices), size))


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """The target or one draft model of a pair, as an engine runs it."""

    name: str
    """Name of its Triton model: "target", or the draft's name in the pair file."""
    model: str
    """Name of the checkpoint, shown to people."""
    licence: str
    shape: ModelShape
    precision: Precision = field(default_factory=Precision)
    placement: Placement = field(default_factory=Placement)
    kv_cache_fraction: float | None = None
    """KV cache as a share of the memory free at its allocation; None: it is computed."""
    checkpoint: Path | None = None
    """Hugging Face directory. Its shape is compared with `shape` and replaces it."""
    imported: str | None = None
    """Entry of models.toml, for weights that come from a package registry."""
    stored: Path | None = None
    """Folder with a draft's own layers, relative to the pair file (used by the default pair)."""
    translation: str | None = None
    """One of TRANSLATIONS, for a cross-vocabulary draft; None with the target's vocabulary."""
