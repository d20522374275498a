"""One engine of a pair: which model, at which precision, on which devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from builder.description.shape import ModelShape

DTYPES = ("bfloat16", "float16", "float32")
QUANTIZATIONS = ("none", "fp8", "int8_wo", "int8_sq", "int4_wo", "int4_awq", "nvfp4")
"""Names of TensorRT-LLM's examples/quantization/quantize.py (`--qformat`)."""
KV_CACHES = ("auto", "fp8", "int8")
"""auto: the dtype of the engine."""
TEXT, TOKENS = "text", "tokens"
TRANSLATIONS = (TEXT, TOKENS)
"""How a draft with another vocabulary meets the target (builder/vocabulary.py)."""


@dataclass(frozen=True, slots=True)
class Precision:
    """What weights and the KV cache are stored in."""

    dtype: str = "bfloat16"
    """Of activations, norms, embedding and head; one of DTYPES."""
    quantization: str = "none"
    """Of the layers' projections; one of QUANTIZATIONS."""
    kv_cache: str = "auto"
    """One of KV_CACHES."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an engine runs. Each of its instances takes tensor × pipeline devices in turn."""

    devices: tuple[int, ...] = ()
    """Indices of GPUs; none: the CPU."""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1

    @property
    def world_size(self) -> int:
        """GPUs, and MPI ranks, of one instance."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def instances(self) -> tuple[tuple[int, ...], ...]:
        """The devices of each instance: `gpu_device_ids` joins them by ";"."""
        size = self.world_size
        return tuple(self.devices[i : i + size] for i in range(0, len(self.devices), size))


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """A target or a draft."""

    name: str
    """Of its Triton model: "target", "draft", or what the pair file calls a draft."""
    model: str
    """The checkpoint's name, for people."""
    licence: str
    shape: ModelShape
    precision: Precision = field(default_factory=Precision)
    placement: Placement = field(default_factory=Placement)
    kv_cache_fraction: float | None = None
    """Of the memory that is free when the engine allocates its cache; none: computed."""
    checkpoint: Path | None = None
    """A Hugging Face directory; overrides the shape, and is checked against it."""
    imported: str | None = None
    """An entry of models.toml: weights that come out of a package registry."""
    stored: Path | None = None
    """A folder beside the pair file that holds a draft's own layers (the default pair's)."""
    translation: str | None = None
    """One of TRANSLATIONS, for a draft with another vocabulary than the target's."""
