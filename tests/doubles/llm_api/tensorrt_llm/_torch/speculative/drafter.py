"""The base class of drafters, as in tensorrt_llm/_torch/speculative/drafter.py of each release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from tensorrt_llm import __version__

_IS_NEW = __version__.startswith("1.3")


class _Drafter(ABC):
    @abstractmethod
    def prepare_draft_tokens(self, scheduled_requests: Any, resource_manager: Any = None) -> None:
        """Set the draft tokens of each request."""

    @property
    @abstractmethod
    def padded_length(self) -> int:
        """Length to which drafts are padded; a name that the subclass must set up to 1.2."""

    def pad_draft_tokens_for_cuda_graph(
        self, scheduled_requests: Any, resource_manager: Any = None
    ) -> None:
        """Pad each draft with token 0."""
        for request in scheduled_requests.generation_requests:
            missing = self.padded_length - len(request.py_draft_tokens)
            request.py_draft_tokens.extend(0 for _ in range(missing))
        if resource_manager is not None:
            assert self._needs_padding_kv_extension, "the cache has no room for the padding"


class _OldDrafter(_Drafter):
    """Releases 1.0 to 1.2."""

    def __init__(self, max_concurrency: int | None = None) -> None:
        self.max_concurrency = max_concurrency

    @property
    def padded_length(self) -> int:
        return self.max_draft_len


class _NewDrafter(_Drafter):
    """Release 1.3."""

    _needs_padding_kv_extension: bool = False

    def __init__(
        self,
        max_draft_len: int | None = None,
        max_total_draft_tokens: int | None = None,
        max_concurrency: int | None = None,
        draft_len_schedule: dict[int, int] | None = None,
    ) -> None:
        self.max_draft_len = max_draft_len
        self.max_total_draft_tokens = max_total_draft_tokens
        self._static_max_total_draft_tokens = max_total_draft_tokens
        self.max_concurrency = max_concurrency
        self.draft_len_schedule = draft_len_schedule

    @property
    def padded_length(self) -> int:
        return self._static_max_total_draft_tokens


Drafter = _NewDrafter if _IS_NEW else _OldDrafter
