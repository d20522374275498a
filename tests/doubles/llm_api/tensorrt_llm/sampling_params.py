"""SamplingParams, as in tensorrt_llm/sampling_params.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, kw_only=True)
class GuidedDecodingParams:
    """The constraint of a request, of which one field may be set."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    grammar: str | None = None
    json_object: bool = False
    structural_tag: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for several guides."""
        num_guides = sum(bool(getattr(self, name)) for name in self.__slots__)
        if num_guides > 1:
            raise ValueError(f"Only one guide can be used for a request, but got {num_guides}.")


@dataclass(slots=True, kw_only=True)
class SamplingParams:
    """The fields that are read; unknown ones raise TypeError."""

    end_id: int | None = None
    pad_id: int | None = None
    max_tokens: int = 32
    min_tokens: int | None = None
    ignore_eos: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    embedding_bias: Any = None
    logprobs: int | None = None
    guided_decoding: GuidedDecodingParams | None = None
    detokenize: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError for values that TensorRT-LLM refuses."""
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be greater than 0, got {self.max_tokens}")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise ValueError(f"require 0 <= top_p <= 1, got top_p={self.top_p}")
        if self.top_k is not None and self.top_k < 0:
            raise ValueError(f"require top_k >= 0, got top_k={self.top_k}")

    @property
    def _greedy_decoding(self) -> bool:
        return self.top_k in {None, 1} and self.top_p in {None, 0.0}
