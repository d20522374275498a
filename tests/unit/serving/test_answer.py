"""Tests of one request from prompt to last response, with scripted engines and a real tokenizer."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from specdec.engines.protocol import EngineClock
from specdec.errors import DeadlineExceededError, InvalidRequestError, RequestCancelledError
from specdec.serving.admission.in_flight import RequestInFlight
from specdec.serving.answer import Answerer
from specdec.serving.job import Job, JobEngines
from specdec.serving.request.request import GenerationRequest
from specdec.serving.text.tokenizing import Tokenizer
from tests.unit.scripted import KnowingTarget, ScriptedDrafter, accepted_except, always_accepted

CHECKPOINT = Path(__file__).parents[3] / "model_repository/target/1/checkpoint"
PROMPT = "Sing:"
SONG = "The ship sails at noon 🚀 and the ship returns at night."


class NoMetrics:
    """A metrics sink that ignores all updates."""

    def add(self, *_, **__):
        """Ignore the update."""

    def observe(self, *_):
        """Ignore the update."""


@pytest.fixture(scope="module")
def tokenizer():
    """Return the target's real tokenizer."""
    return Tokenizer(CHECKPOINT)


class Session:
    """Answers requests by a scripted target that generates SONG.

    Attributes:
        prompt: the tokens of PROMPT.
        song: the tokens of SONG.
        target: the scripted target of the latest request.
    """

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        self._answerer = Answerer(tokenizer, NoMetrics())
        self.prompt = tuple(tokenizer._backend.encode(PROMPT).ids)
        self.song = tuple(tokenizer._backend.encode(SONG, add_special_tokens=False).ids)
        self.target = None

    def drafter(self, *wrong_positions):
        """Return a drafter with k = 4 whose tokens are rejected at these positions of the song."""
        token_at = accepted_except(self.song, set(wrong_positions)) if wrong_positions else None
        return ScriptedDrafter(4, token_at or always_accepted(self.song), prompt=self.prompt)

    def answer(self, drafter=None, in_flight=None, on_send=None, **fields):
        """Answer one request; return all its responses as (outputs, is_last).

        Without a drafter there is no speculation. `on_send` is called after each response.
        `fields` are those of the GenerationRequest.
        """
        sent = []
        self.target = KnowingTarget(self.song, self.prompt)

        def send(outputs, is_last):
            sent.append((outputs, is_last))
            if on_send:
                on_send()

        request = GenerationRequest(**{"text_input": PROMPT, "max_tokens": 60} | fields)
        self._answerer.answer(
            Job(
                request=request,
                prompt=self._tokenizer.prompt(request, max_seq_len=100),
                seed=7,
                in_flight=in_flight or RequestInFlight(lambda: False, None, time.monotonic()),
                engines=JobEngines(self.target, drafter, "exact" if drafter else "off"),
                target_clock=EngineClock(),
                draft_clock=EngineClock(),
                task_label="default",
                arrival_s=time.perf_counter(),
            ),
            send,
        )
        return sent


@pytest.fixture
def session(tokenizer):
    """Return a new session."""
    return Session(tokenizer)


def text_of(sent):
    """Return the joined text of responses."""
    return b"".join(outputs["text_output"][0] for outputs, _ in sent).decode()


def ids_of(sent):
    """Return the joined tokens of responses."""
    return tuple(np.concatenate([outputs["output_ids"] for outputs, _ in sent]).tolist())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wrong", [None, (), (2, 9, 10)])
def test_answer_is_the_same_with_and_without_speculation(session, stream, wrong):
    """The text is the target's own with any drafts, streamed or whole; only one response is last.

    The cases: no speculation, all drafts right, drafts wrong at some positions.
    """
    drafter = None if wrong is None else session.drafter(*wrong)

    sent = session.answer(drafter, stream=stream)

    assert text_of(sent) == SONG
    assert ids_of(sent) == session.song
    assert [is_last for _, is_last in sent] == [False] * (len(sent) - 1) + [True]
    assert (len(sent) > 1) == stream
    final = sent[-1][0]
    assert final["finish_reason"][0] == b"stop"
    assert final["num_input_tokens"].tolist() == [len(session.prompt)]
    assert final["num_output_tokens"].tolist() == [len(session.song)]
    assert final["verification"][0] == (b"off" if wrong is None else b"exact")


def test_sources_follow_their_tokens(session):
    """The source of an accepted token is the drafter's number, that of the target's own token 0."""
    sent = session.answer(session.drafter(2), stream=True, return_perf_metrics=True)

    sources = np.concatenate([outputs["output_sources"] for outputs, _ in sent]).tolist()
    assert sources[:8] == [1, 1, 0, 1, 1, 1, 1, 0]
    figures = json.loads(sent[-1][0]["speculative_decoding"][0])
    assert figures["num_accepted_draft_tokens"] == sum(sources)


@pytest.mark.parametrize("max_tokens", [1, 4, 5, 6])
def test_length_ends_the_answer(session, max_tokens):
    """The answer has exactly max_tokens tokens, and its finish reason is `length`."""
    sent = session.answer(session.drafter(), max_tokens=max_tokens)

    assert ids_of(sent) == session.song[:max_tokens]
    assert sent[-1][0]["finish_reason"][0] == b"length"


@pytest.mark.parametrize("off", [True, False])
def test_stop_word_ends_the_answer_and_the_engine(session, off):
    """The text ends before the stop text. A target that streams is stopped early."""
    sent = session.answer(None if off else session.drafter(), stop_words=(" and",), stream=True)

    assert text_of(sent) == SONG.partition(" and")[0]
    assert ids_of(sent) == session.song[: len(ids_of(sent))]
    assert sent[-1][0]["finish_reason"][0] == b"stop"
    if off:
        assert session.target.stream_closed
        assert session.target.num_streamed < len(session.song)


def test_prompt_comes_once_and_first(session):
    """With exclude_input_in_output=false the prompt's text comes before the answer's.

    The tokens of the answer do not change.
    """
    for stream in (True, False):
        sent = session.answer(session.drafter(), stream=stream, exclude_input_in_output=False)

        assert text_of(sent) == PROMPT + SONG
        assert ids_of(sent) == session.song


def test_context_limit_is_named(session):
    """A request is refused if prompt and max_tokens together exceed the context limit.

    The message has the limit and the sum, and no engine was called.
    """
    given = len(session.prompt) + 99

    with pytest.raises(InvalidRequestError, match=f"at most 100; given {given}"):
        session.answer(max_tokens=99)

    assert session.target.num_passes == session.target.num_streamed == 0


@pytest.mark.parametrize("off", [True, False])
def test_cancelled_request_stops_at_the_next_round(session, off):
    """After the client hangs up, no response is sent and at most one more engine call is made."""
    gone = []
    in_flight = RequestInFlight(lambda: bool(gone), None, time.monotonic())
    drafter = None if off else session.drafter()

    def hang_up():
        gone.append(1)
        # In the orchestrator the watchdog polls, every 50 ms.
        in_flight.poll()

    with pytest.raises(RequestCancelledError):
        session.answer(drafter, in_flight, on_send=hang_up, stream=True)

    assert len(gone) == 1
    assert session.target.num_passes + session.target.num_streamed == 2
    assert session.target.stream_closed == off


def test_overdue_request_makes_no_call(session):
    """A request whose deadline passed while it waited ends before any engine is called."""
    in_flight = RequestInFlight(lambda: False, 0.001, time.monotonic() - 1.0)

    with pytest.raises(DeadlineExceededError):
        session.answer(session.drafter(), in_flight)

    assert session.target.num_passes == 0
