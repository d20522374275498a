"""The base class of drafters, as in tensorrt_llm/_torch/speculative/drafter.py of each release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from tensorrt_llm import __version__


class _Drafter(ABC):
    @abstractmethod
    def prepare_draft_tokens(self, scheduled_requests: Any, resource_manager: Any = None) -> None:
        """Set the draft tokens of each request."""

    @property
    @abstractmethod
    def padded_length(self) -> int:
        """Length to which drafts are padded."""

    def _pad(self, scheduled_requests: Any) -> None:
        for request in scheduled_requests.generation_requests:
            missing = self.padded_length - len(request.py_draft_tokens)
            request.py_draft_tokens.extend(0 for _ in range(missing))


class _Drafter1_0(_Drafter):  # noqa: N801 - the release
    """Releases 1.0 and 1.1: the subclass sets `max_draft_len`."""

    def __init__(self, max_concurrency: int | None = None) -> None:
        self.max_concurrency = max_concurrency

    @property
    def padded_length(self) -> int:
        return self.max_draft_len

    def pad_draft_tokens_for_cuda_graph(self, scheduled_requests: Any) -> None:
        self._pad(scheduled_requests)


class _Drafter1_2(_Drafter):  # noqa: N801 - the release
    """Release 1.2: the length is an argument, and there may be a schedule of lengths."""

    def __init__(
        self,
        max_draft_tokens: int,
        max_concurrency: int | None = None,
        draft_len_schedule: dict[int, int] | None = None,
    ) -> None:
        self.max_concurrency = max_concurrency
        self.draft_len_schedule = draft_len_schedule
        self.max_draft_tokens = max_draft_tokens
        self._static_max_draft_tokens = max_draft_tokens

    @property
    def padded_length(self) -> int:
        return self._static_max_draft_tokens

    def pad_draft_tokens_for_cuda_graph(self, scheduled_requests: Any) -> None:
        assert self.draft_len_schedule is None
        self._pad(scheduled_requests)


class _Drafter1_3(_Drafter):  # noqa: N801 - the release
    """Release 1.3: padding extends the KV cache, if the subclass asks for it."""

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

    def pad_draft_tokens_for_cuda_graph(
        self, scheduled_requests: Any, resource_manager: Any
    ) -> None:
        assert resource_manager is not None
        assert self._needs_padding_kv_extension, "the cache has no room for the padding"
        self._pad(scheduled_requests)


_CLASSES = {"1.0": _Drafter1_0, "1.1": _Drafter1_0, "1.2": _Drafter1_2, "1.3": _Drafter1_3}
Drafter = _CLASSES[__version__[:3]]
