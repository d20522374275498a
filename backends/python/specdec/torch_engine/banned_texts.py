"""The lists of bad texts of an engine, prepared for its vocabulary on a thread of their own.

Preparing a list searches the whole vocabulary. On the engine's thread this would delay other tasks
too long. Each round of a request sends its list again, so prepared lists are kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from specdec.acceptance.banned_text import BannedText, Vocabulary
from specdec.token_texts import read_token_texts

NUM_KEPT = 256
"""Largest number of prepared lists that are kept."""


class BannedTexts:
    """The prepared lists of one engine, and the thread that prepares new ones."""

    def __init__(self, checkpoint: Path, vocab_size: int) -> None:
        """Take the checkpoint with the tokenizer; it is read when the first list is prepared."""
        self._checkpoint = checkpoint
        self._vocab_size = vocab_size
        self._vocabulary: Vocabulary | None = None
        self._kept: dict[tuple[str, ...], BannedText] = {}
        """Prepared lists, least recently used first; guarded by `_has_ended`."""
        self._num_jobs = 0
        """Jobs that have not ended; guarded by `_has_ended`."""
        self._has_ended = threading.Condition()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="bad texts")

    @property
    def has_jobs(self) -> bool:
        """Whether a job waits or runs."""
        return self._num_jobs > 0

    def find(self, texts: tuple[str, ...]) -> BannedText | None:
        """Return the prepared list of bad texts, or None if it is not kept."""
        with self._has_ended:
            banned = self._kept.pop(texts, None)
            if banned is not None:
                self._kept[texts] = banned
            return banned

    def prepare(self, texts: tuple[str, ...]) -> BannedText:
        """Prepare a list of bad texts and keep it; only a job may call this.

        Raises UnsupportedError if the checkpoint's tokenizer is missing or unknown.
        """
        banned = self.find(texts)
        if banned is None:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary(read_token_texts(self._checkpoint, self._vocab_size))
            banned = BannedText([text.encode() for text in texts], self._vocabulary)
            with self._has_ended:
                if len(self._kept) >= NUM_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[texts] = banned
        return banned

    def run(self, job: Callable[[], None]) -> None:
        """Run a job on the thread, after those given before it."""

        def run() -> None:
            try:
                job()
            finally:
                with self._has_ended:
                    self._num_jobs -= 1
                    self._has_ended.notify_all()

        with self._has_ended:
            self._executor.submit(run)
            self._num_jobs += 1

    def close(self, timeout_s: float) -> None:
        """Take no more jobs, and wait at most `timeout_s` seconds until the others have ended."""
        self._executor.shutdown(wait=False)
        with self._has_ended:
            self._has_ended.wait_for(lambda: not self._num_jobs, timeout_s)
