"""The configurations, as in tensorrt_llm/llmapi/llm_args.py. Unknown fields raise TypeError."""

from __future__ import annotations

from dataclasses import dataclass

from tensorrt_llm.sampling_params import GuidedDecodingParams

__all__ = ["GuidedDecodingParams", "KvCacheConfig", "UserProvidedDecodingConfig"]


@dataclass(kw_only=True)
class KvCacheConfig:
    """The fields that are read."""

    free_gpu_memory_fraction: float = 0.9
    dtype: str = "auto"
    enable_block_reuse: bool = True


@dataclass(kw_only=True)
class UserProvidedDecodingConfig:
    """The configuration of a user-provided drafter."""

    max_draft_len: int
    drafter: object
    resource_manager: object = None
