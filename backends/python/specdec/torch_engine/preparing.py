"""The bad texts and guides of tasks, prepared on a thread of their own before the tasks run.

Preparing a list of bad texts searches the whole vocabulary, and a guide must be compiled. On the
engine's thread this would delay other tasks too long. Each round of a request sends both again, so
what was prepared is kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from specdec.acceptance.banned_text import BannedText, Vocabulary
from specdec.acceptance.sampling import SamplingParams
from specdec.constraints.compiler import CompiledGuide
from specdec.constraints.constraint import Constraint
from specdec.constraints.guide import Guide
from specdec.constraints.tokenizer import compiler_for
from specdec.token_texts import read_token_texts
from specdec.torch_engine.task import Task, caller_and_number

NUM_BAD_TEXTS_KEPT = 256
"""Largest number of prepared lists that are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """The bad texts and the guide of a task, for the engine's vocabulary; None without them."""

    banned: BannedText | None = None
    guide: CompiledGuide | None = None


class Preparations:
    """All that was prepared for the tasks of one engine, and the thread that prepares more."""

    def __init__(self, checkpoint: Path, vocab_size: int) -> None:
        """Take the checkpoint with the tokenizer, which is read when it is first needed."""
        self._checkpoint = checkpoint
        self._vocab_size = vocab_size
        self._vocabulary: Vocabulary | None = None
        self._guides = compiler_for(checkpoint, vocab_size)
        self._kept: dict[tuple[str, ...], BannedText] = {}
        """Prepared lists, least recently used first; guarded by `_has_ended`."""
        self._num_jobs = 0
        """Jobs that have not ended; guarded by `_has_ended`."""
        self._has_ended = threading.Condition()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="preparing")

    @property
    def has_jobs(self) -> bool:
        """Whether a job waits or runs."""
        return self._num_jobs > 0

    def find(self, params: SamplingParams) -> Prepared | None:
        """Return what these parameters need; None if some of it is not kept."""
        banned = self._find_banned(params.bad_texts) if params.bad_texts else None
        guide = None if params.guide is None else self._guides.find(params.guide)
        is_missing = (params.bad_texts and banned is None) or (params.guide and guide is None)
        return None if is_missing else Prepared(banned, guide)

    def prepare(self, params: SamplingParams) -> Prepared:
        """Prepare what these parameters need, and keep it; only a job may call this.

        Raises UnsupportedError if the checkpoint's tokenizer is missing or unknown, and
        InvalidRequestError for a guide that cannot be compiled.
        """
        return Prepared(
            self._prepare_banned(params.bad_texts) if params.bad_texts else None,
            None if params.guide is None else self._guides.compile(params.guide),
        )

    def _find_banned(self, texts: tuple[str, ...]) -> BannedText | None:
        with self._has_ended:
            banned = self._kept.pop(texts, None)
            if banned is not None:
                self._kept[texts] = banned
            return banned

    def _prepare_banned(self, texts: tuple[str, ...]) -> BannedText:
        banned = self._find_banned(texts)
        if banned is None:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary(read_token_texts(self._checkpoint, self._vocab_size))
            banned = BannedText([text.encode() for text in texts], self._vocabulary)
            with self._has_ended:
                if len(self._kept) >= NUM_BAD_TEXTS_KEPT:
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


class Constraints:
    """The constraints of running answers; used by the engine's thread only.

    Each round of an answer is a task of its own. Its constraint is kept, so that a round goes on
    where the last one has ended, and does not begin with the first token again.
    """

    def __init__(self, num_kept: int) -> None:
        """Take how many constraints are kept, more than there are running answers."""
        self._num_kept = num_kept
        self._kept: OrderedDict[tuple[str, Guide], Constraint] = OrderedDict()
        """Constraints by caller and guide, the least recently used first."""

    def complete(self, task: Task, prepared: Prepared) -> Task:
        """Return the task with its bad texts and its constraint."""
        return replace(task, banned=prepared.banned, constraint=self._of(task, prepared.guide))

    def _of(self, task: Task, compiled: CompiledGuide | None) -> Constraint | None:
        if compiled is None or task.params.guide is None:
            return None
        key = caller_and_number(task.request_id)[0], task.params.guide
        found = self._kept.pop(key, None)
        if found is None or found.has_failed:
            found = compiled.constraint()
        self._kept[key] = found
        if len(self._kept) > self._num_kept:
            self._kept.popitem(last=False)
        return found
