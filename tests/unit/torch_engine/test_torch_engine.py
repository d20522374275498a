"""The engine's thread: it takes tasks from any thread and survives a pass that fails."""

import queue
import threading
import time

import numpy as np
import pytest

from specdec.acceptance.banned_text import BannedText
from specdec.acceptance.sampling import SamplingParams
from specdec.errors import (
    ConfigurationError,
    EngineFailedError,
    EngineLostError,
    InvalidRequestError,
)
from specdec.health.board import BoardHeartbeat, State, read_board
from specdec.torch_engine import preparing
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.engine import IDLE_BEAT_S, EngineSettings, TorchEngine
from specdec.torch_engine.model import LlamaModel
from specdec.torch_engine.scheduling.scheduler import Scheduler
from specdec.torch_engine.task import Task
from tests.unit.tiny_llama import VOCAB, save_tiny_llama

LIMITS = EngineLimits(max_seq_len=512, max_num_tokens=64, num_cache_tokens=8 * 256)
PATIENCE_S = 60


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Return the directory of a tiny checkpoint."""
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def engine(checkpoint):
    """Return a running engine."""
    running = TorchEngine(EngineSettings(checkpoint, LIMITS, device="cpu"))
    yield running
    running.close()


def submit(engine, *tokens, max_new_tokens=5, request_id="r", bad_texts=()):
    """Submit a task; return the queue of its outputs."""
    outputs = queue.SimpleQueue()
    input_ids = np.asarray(tokens, dtype=np.int32)
    params = SamplingParams(bad_texts=bad_texts)
    engine.submit(Task(request_id, input_ids, max_new_tokens, params=params), outputs.put)
    return outputs


def last_of(outputs):
    """Wait for the last output; return (all tokens, last output)."""
    tokens = []
    while True:
        output = outputs.get(timeout=PATIENCE_S)
        tokens += output.tokens
        if output.is_final:
            return tokens, output


def fail_next(monkeypatch, kind, method, error):
    """Let only the next call of a method fail, with `error`."""
    original = getattr(kind, method)

    def fail_once(*_):
        monkeypatch.setattr(kind, method, original)
        raise error

    monkeypatch.setattr(kind, method, fail_once)


def test_failing_pass_ends_its_tasks_but_not_the_engine(engine, monkeypatch):
    """Every task in it gets an error that names the cause; the next task is served as before."""
    expected, _ = last_of(submit(engine, 1, 2, 3))
    fail_next(monkeypatch, LlamaModel, "run", RuntimeError("out of luck"))

    tokens, output = last_of(submit(engine, 1, 2, 3))

    assert tokens == []
    assert isinstance(output.error, EngineFailedError)
    assert "RuntimeError: out of luck" in str(output.error)
    assert last_of(submit(engine, 1, 2, 3))[0] == expected


@pytest.fixture
def engine_on_board(checkpoint, tmp_path):
    """Return an engine, and the directory of the board with its heartbeat."""
    board = tmp_path / "board"
    running = TorchEngine(
        EngineSettings(checkpoint, LIMITS, device="cpu"), BoardHeartbeat("target", directory=board)
    )
    yield running, board
    running.close()


def test_pass_that_fails_after_writing_leaves_nothing_in_the_cache(engine, monkeypatch):
    """The keys and values that it wrote are not taken for cached text."""
    expected, _ = last_of(submit(engine, *range(40, 60)))
    fail_next(monkeypatch, Scheduler, "_verify", RuntimeError("late"))

    assert last_of(submit(engine, *range(40, 60)))[1].error is not None
    assert last_of(submit(engine, *range(40, 60)))[0] == expected


def test_refused_task_gets_its_error_as_an_output(engine):
    """The error takes the same way to the receiver as outputs do."""
    _, output = last_of(submit(engine, *range(100), max_new_tokens=5, request_id="x"))
    assert output.error is None

    _, output = last_of(submit(engine, 1000))

    assert isinstance(output.error, InvalidRequestError)


def test_cancel_ends_a_running_task(engine):
    """A cancelled task soon gets its last output, and keeps the tokens so far."""
    outputs = submit(engine, 5, max_new_tokens=500, request_id="long")
    outputs.get(timeout=PATIENCE_S)

    engine.cancel("long")

    tokens, output = last_of(outputs)
    assert output.error is None
    assert len(tokens) < 499


def test_known_bad_texts_do_not_wait_for_new_ones(engine, monkeypatch):
    """Each round of a request sends its list again, while another client's new list takes long."""
    may_end = threading.Event()

    def prepare(texts, vocabulary):
        if texts == [b"new"]:
            may_end.wait(PATIENCE_S)
        return BannedText(texts, vocabulary)

    monkeypatch.setattr(preparing, "read_token_texts", lambda *_: [b"x"] * VOCAB)
    monkeypatch.setattr(preparing, "BannedText", prepare)
    expected, _ = last_of(submit(engine, 1, 2, bad_texts=("known",)))

    new = submit(engine, 1, 2, bad_texts=("new",))

    assert last_of(submit(engine, 1, 2, bad_texts=("known",)))[0] == expected
    assert new.empty()
    may_end.set()
    assert last_of(new)[0] == expected


def test_cancel_finds_a_task_whose_bad_texts_are_being_prepared(engine, monkeypatch):
    """The task then ends early, although it had not started when it was cancelled."""
    may_end = threading.Event()

    def prepare(texts, vocabulary):
        may_end.wait(PATIENCE_S)
        return BannedText(texts, vocabulary)

    monkeypatch.setattr(preparing, "read_token_texts", lambda *_: [b"x"] * VOCAB)
    monkeypatch.setattr(preparing, "BannedText", prepare)
    outputs = submit(engine, 5, max_new_tokens=500, request_id="slow", bad_texts=("new",))

    engine.cancel("slow")
    may_end.set()

    assert len(last_of(outputs)[0]) < 499


def test_closing_ends_running_tasks(checkpoint):
    """Each gets an error, so that no receiver waits for ever."""
    engine = TorchEngine(EngineSettings(checkpoint, LIMITS, device="cpu"))
    outputs = submit(engine, 5, max_new_tokens=500)
    outputs.get(timeout=PATIENCE_S)

    engine.close()

    assert isinstance(last_of(outputs)[1].error, EngineFailedError)
    assert not engine._thread.is_alive()


def test_closing_does_not_wait_longer_than_its_timeout(checkpoint, monkeypatch):
    """A list of bad texts that takes long to prepare must not delay the end of the process."""
    is_preparing, may_end = threading.Event(), threading.Event()

    def prepare(texts, vocabulary):
        is_preparing.set()
        may_end.wait(PATIENCE_S)
        return BannedText(texts, vocabulary)

    monkeypatch.setattr(preparing, "read_token_texts", lambda *_: [b"x"] * VOCAB)
    monkeypatch.setattr(preparing, "BannedText", prepare)
    engine = TorchEngine(EngineSettings(checkpoint, LIMITS, device="cpu"))
    outputs = submit(engine, 5, 2, bad_texts=("new",))
    assert is_preparing.wait(PATIENCE_S)

    engine.close(timeout_s=0.1)

    assert outputs.empty()
    may_end.set()
    assert isinstance(last_of(outputs)[1].error, EngineFailedError)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model_type": "mamba"}, "mamba"),
        ({"attention_bias": True}, "attention_bias"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "llama3"),
        ({"intermediate_size": 150}, r"gate_proj.* \[160, 64\], config.json makes it \[150, 64\]"),
        ({"num_hidden_layers": 3}, "no tensor model.layers.2"),
        ({"vocab_size": 100}, "embed_tokens"),
    ],
)
def test_error_for_an_unusable_checkpoint_says_why(tmp_path, overrides, message):
    """Its architecture or arithmetic is not implemented, or its shapes do not match."""
    save_tiny_llama(tmp_path, **overrides)

    with pytest.raises(ConfigurationError, match=message):
        TorchEngine(EngineSettings(tmp_path, LIMITS, device="cpu"))


def test_error_for_a_missing_checkpoint_names_the_path(tmp_path):
    """A directory that is empty or has no weights is a configuration error."""
    with pytest.raises(ConfigurationError, match=f"{tmp_path}/config.json"):
        TorchEngine(EngineSettings(tmp_path, LIMITS, device="cpu"))
    save_tiny_llama(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ConfigurationError, match="safetensors"):
        TorchEngine(EngineSettings(tmp_path, LIMITS, device="cpu"))


def test_unknown_dtype_is_refused(tmp_path):
    """A typing mistake in config.pbtxt must not select another arithmetic."""
    save_tiny_llama(tmp_path)

    with pytest.raises(ConfigurationError, match=r"float32.*given 'float'"):
        TorchEngine(EngineSettings(tmp_path, LIMITS, device="cpu", dtype="float"))


def test_failed_loop_ends_all_tasks_and_is_shown_on_the_board(checkpoint, tmp_path):
    """An error outside a pass ends the engine; no receiver waits, and the board says FAILED."""
    heartbeat = BoardHeartbeat("target", directory=tmp_path / "board")
    engine = TorchEngine(EngineSettings(checkpoint, LIMITS, device="cpu"), heartbeat)
    outputs = submit(engine, 5, max_new_tokens=500)
    outputs.get(timeout=PATIENCE_S)

    engine._post(lambda _: 1 / 0)

    assert isinstance(last_of(outputs)[1].error, EngineLostError)
    (beat,) = read_board(tmp_path / "board")
    assert beat.state is State.FAILED
    with pytest.raises(EngineFailedError):
        submit(engine, 5)


def test_engine_sends_heartbeats_while_it_works_and_while_it_waits(engine_on_board):
    """The time of the last heartbeat advances, and it shows work only while there is some."""
    engine, board = engine_on_board
    (idle,) = read_board(board)
    outputs = submit(engine, 5, max_new_tokens=400)
    outputs.get(timeout=PATIENCE_S)
    (working,) = read_board(board)
    last_of(outputs)
    time.sleep(2 * IDLE_BEAT_S)
    (waiting,) = read_board(board)

    assert (idle.state, idle.has_work, waiting.has_work) == (State.SERVING, False, False)
    assert working.has_work
    assert idle.beat_s < working.beat_s < waiting.beat_s
    assert time.monotonic() - waiting.beat_s < 2 * IDLE_BEAT_S
