"""Parameters of a torch engine, as its model's config.pbtxt has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.engine import EngineSettings


@dataclass(frozen=True, slots=True)
class EngineModelSettings:
    """Names and defaults of the parameters."""

    checkpoint_dir: str
    """Relative paths start at the model's version directory."""
    device: str = "auto"
    dtype: str = "bfloat16"
    num_threads: int = 0
    kernels: str = "auto"
    weight_dtype: str = "auto"
    head_dir: str = ""
    """Of a drafting head; empty for none."""
    max_seq_len: int = 8192
    max_draft_len: int = 16
    max_num_tokens: int = 512
    max_num_sequences: int = 64
    max_tokens_in_paged_kv_cache: int = 65536

    def engine_settings(self, version_directory: Path) -> EngineSettings:
        limits = EngineLimits(
            max_seq_len=self.max_seq_len,
            max_draft_len=self.max_draft_len,
            max_num_tokens=self.max_num_tokens,
            max_num_sequences=self.max_num_sequences,
            num_cache_tokens=self.max_tokens_in_paged_kv_cache,
        )
        checkpoint = version_directory / self.checkpoint_dir
        head = version_directory / self.head_dir if self.head_dir else None
        return EngineSettings(
            checkpoint,
            limits,
            self.device,
            self.dtype,
            self.num_threads,
            self.kernels,
            self.weight_dtype,
            head,
        )
