"""Ask all arms the same questions in alternation, with only one of them running at a time."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from specdec.loadtest.kit.prompts import TokenPrompt
from specdec.loadtest.kit.ratios import Timed
from specdec.loadtest.lab.peers.catalogue import PeerArm
from specdec.loadtest.lab.peers.protocol import PeerError, Question, Reply

WARM_UP_TOKENS = 16
WARM_UP_LEN = 40


class Engine(Protocol):
    """One arm, loaded: a `worker.Worker` or an `ours.OurServer`."""

    def start(self) -> str: ...
    def ask(self, question: Question) -> Reply: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PeerMeasurement:
    """One question to one arm; `question_id` is a prompt's id, or a repetition's salt."""

    arm: PeerArm
    num_streams: int
    question_id: str
    reply: Reply

    @property
    def timed(self) -> Timed:
        return Timed(self.reply.num_tokens, self.reply.seconds)


class PeerRun:
    """The engines that still run, why the others do not, and all measurements."""

    def __init__(self, seed: int, settle_s: float = 0.0) -> None:
        """`settle_s`: seconds for which an engine goes on after an answer, and would disturb."""
        self._settle_s = settle_s
        self.measurements: list[PeerMeasurement] = []
        self.failures: dict[PeerArm, str] = {}
        self.versions: dict[str, str] = {}
        self._running: dict[PeerArm, Engine] = {}
        self._order = random.Random(seed)

    @contextmanager
    def running(self, engines: Mapping[PeerArm, Engine]) -> Iterator[None]:
        """Start the arms one after another, pausing each once it is loaded; stop them at the end.

        An arm that cannot be started is left out, with its reason in `failures`.
        """
        try:
            for arm, engine in engines.items():
                _log(f"starting {arm.label}")
                self._running[arm] = engine
                try:
                    self.versions[arm.peer] = engine.start()
                    engine.ask(_warm_up(1))
                    engine.pause()
                except PeerError as error:
                    self._give_up(arm, error)
            yield
        finally:
            for engine in self._running.values():
                engine.stop()

    def ask_all(
        self, num_streams: int, questions: Mapping[str, Sequence[TokenPrompt]], max_tokens: int
    ) -> None:
        """Ask every arm each question: `num_streams` prompts at once. The arms take turns.

        Before many streams, the arms without `has_load` are stopped for good: many streams need
        their memory.
        """
        if num_streams > 1:
            for arm in [arm for arm in self._running if not arm.has_load]:
                self._running.pop(arm).stop()
            for arm in list(self._running):
                self._attempt(arm, _warm_up(num_streams))
        for number, (name, prompts) in enumerate(questions.items(), 1):
            _log(f"streams: {num_streams}, question {number}/{len(questions)}")
            question = Question(tuple(each.token_ids for each in prompts), max_tokens)
            for arm in self._order.sample(list(self._running), len(self._running)):
                reply = self._attempt(arm, question)
                time.sleep(self._settle_s)
                if reply is not None:
                    self.measurements.append(PeerMeasurement(arm, num_streams, name, reply))

    def warm_up(self, questions: Sequence[Sequence[TokenPrompt]], max_tokens: int) -> None:
        """Ask every arm all questions without measuring, so that kernels are compiled."""
        for arm in list(self._running):
            for prompts in questions:
                if arm in self._running:
                    ids = tuple(each.token_ids for each in prompts)
                    self._attempt(arm, Question(ids, max_tokens))

    def _attempt(self, arm: PeerArm, question: Question) -> Reply | None:
        engine = self._running[arm]
        engine.resume()
        try:
            reply = engine.ask(question)
        except PeerError as error:
            self._give_up(arm, error)
            return None
        engine.pause()
        return reply

    def _give_up(self, arm: PeerArm, error: PeerError) -> None:
        self.failures[arm] = str(error)
        _log(f"{arm.label}: {error}")
        self._running.pop(arm).stop()


def _warm_up(num_streams: int) -> Question:
    """Return prompts of consecutive token ids, which no real prompt contains."""
    starts = range(1000, 1000 + num_streams * WARM_UP_LEN, WARM_UP_LEN)
    prompts = tuple(tuple(range(start, start + WARM_UP_LEN)) for start in starts)
    return Question(prompts, WARM_UP_TOKENS)


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
