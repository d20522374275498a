"""Define the parameters of our engine in its model's config.pbtxt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.settings.parameters import parameter
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.engine import EngineSettings

_LIMITS = EngineLimits()
"""The default limits."""


@dataclass(frozen=True, slots=True)
class EngineModelSettings:
    """The parameters of our engine, with their names in config.pbtxt and their defaults.

    EngineSettings describes those without a text here.
    """

    checkpoint_dir: str
    """Directory of the weights; a relative path starts at the model's version directory."""
    device: str = "auto"
    dtype: str = "bfloat16"
    num_threads: int = parameter(0, minimum=0)
    """CPU threads for one operation; 0 takes PyTorch's default."""
    kernels: str = "auto"
    weight_dtype: str = "auto"
    head_dir: str = ""
    """Directory of the target's head, absolute or relative as `checkpoint_dir`; empty: no head."""
    max_seq_len: int = parameter(_LIMITS.max_seq_len, minimum=1)
    """Most tokens of a sequence: prompt, answer and draft together."""
    max_draft_len: int = parameter(_LIMITS.max_draft_len, minimum=0)
    """Most draft tokens verified in one call; 0 if the engine only drafts."""
    max_num_tokens: int = parameter(_LIMITS.max_num_tokens, minimum=1)
    """Most rows in a pass, over all requests."""
    max_num_sequences: int = parameter(_LIMITS.max_num_sequences, minimum=1)
    """Most sequences that run at once; each path of a tree is a sequence."""
    max_tokens_in_paged_kv_cache: int = parameter(_LIMITS.num_cache_tokens, minimum=1)
    """Tokens that the KV cache holds, over all requests."""

    def engine_settings(self, version_directory: Path) -> EngineSettings:
        """Return the engine's settings; relative paths start at `version_directory`."""
        limits = EngineLimits(
            max_seq_len=self.max_seq_len,
            max_draft_len=self.max_draft_len,
            max_num_tokens=self.max_num_tokens,
            max_num_sequences=self.max_num_sequences,
            num_cache_tokens=self.max_tokens_in_paged_kv_cache,
        )
        return EngineSettings(
            checkpoint=version_directory / self.checkpoint_dir,
            limits=limits,
            device=self.device,
            dtype=self.dtype,
            num_threads=self.num_threads,
            kernels=self.kernels,
            weight_dtype=self.weight_dtype,
            drafting_head_dir=version_directory / self.head_dir if self.head_dir else None,
        )
