"""Tests of TensorRT-LLM's LLM API with our drafters inside, on a strict double of it."""

import json
import queue
import sys
import threading
import time
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest

from specdec.acceptance.sampling import SamplingParams
from specdec.batch_engines.step_drafting import REPORT_PERIOD_S
from specdec.batch_engines.tensorrt_llm.engine import TensorRtLlmEngine
from specdec.engines.wire.engine_call import EngineCall
from specdec.errors import (
    ConfigurationError,
    EngineFailedError,
    InvalidRequestError,
    UnsupportedError,
)
from specdec.torch_engine.task import Task
from tests.waiting import wait_for

DOUBLE = Path("tests/doubles/llm_api").absolute()
PROMPT = list(range(100, 140))
END = 2
MAX_DRAFT_LEN = 8
WITHIN_S = 5.0
PARAMETERS = {
    "checkpoint_dir": "known",
    "tensorrt_llm_draft_model_name": "",
    "max_draft_len": str(MAX_DRAFT_LEN),
    "max_seq_len": "256",
    "draft_budget_ms": "1000",
    "control_share": "0",
}


def answer(prompt):
    """Return the known answer: a part of the prompt that depends on its last token."""
    return [*PROMPT[prompt[-1] % 7 :], 7, 0, 0, 8, *PROMPT[:20], END]


@pytest.fixture(params=["1.0.3", "1.2.1", "1.3.0"])
def release(request):
    """Run a test with each release that the double knows."""
    return request.param


@pytest.fixture
def package(monkeypatch, release):
    """Return the double as the package `tensorrt_llm`, in one release."""
    monkeypatch.syspath_prepend(str(DOUBLE))
    monkeypatch.setenv("SPECDEC_DOUBLE_RELEASE", release)
    monkeypatch.setenv("TLLM_WORKER_USE_SINGLE_PROCESS", "0")
    _forget()
    import tensorrt_llm  # noqa: PLC0415 - in the release of the test
    from tensorrt_llm import target  # noqa: PLC0415

    target.KNOWN["known"] = target.KnownTexts(200, answer)
    yield tensorrt_llm
    _forget()


def _forget():
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorrt_llm"]:
        del sys.modules[name]


class Server:
    """An engine on the double."""

    def __init__(self, directory, ask=None, **parameters):
        (directory / "known").mkdir(exist_ok=True)
        (directory / "known" / "config.json").write_text(json.dumps({"vocab_size": 200}))
        given = {**PARAMETERS, **parameters}
        config = {
            "name": "target",
            "parameters": {name: {"string_value": value} for name, value in given.items()},
        }
        self.engine = TensorRtLlmEngine(config, directory, ask_draft_model=ask)
        self.executor = self.engine._llm._executor

    def begin(self, name, prompt=PROMPT, max_tokens=200, *, options=None, **fields):
        """Begin a request, and return the queue of its outputs."""
        outputs = queue.SimpleQueue()
        task = Task(
            name,
            np.asarray(prompt, dtype=np.int32),
            max_tokens,
            end_id=END,
            num_prompt_tokens=len(prompt),
            **fields,
        )
        drafting = "" if options is None else json.dumps(options)
        call = EngineCall(
            task,
            stop=False,
            streaming=True,
            exclude_input=True,
            return_perf_metrics=False,
            requested_outputs=frozenset(),
            gives_receipts=False,
            drafting=drafting,
        )
        self.engine.submit(call, outputs.put)
        return outputs


def all_of(outputs):
    """Return the tokens, the log-probabilities and the rounds of an answer, and its last output."""
    tokens, log_probs, rounds = [], [], []
    while True:
        output = outputs.get(timeout=20)
        tokens += output.tokens
        log_probs += output.log_probs
        if output.drafting is not None:
            rounds += output.drafting.rounds
        if output.is_final:
            return tokens, log_probs, rounds, output


def verified(server):
    """Return draft and confirmed tokens of each step with a draft, as the executor saw them."""
    return server.executor.verified


def num_accepted(draft, tokens):
    """Return how many draft tokens were confirmed."""
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(draft, tokens, strict=False))
    )


@pytest.fixture
def serve(package, tmp_path):
    """Return a function that starts an engine on the double."""
    assert package.__version__
    servers = []

    def start(**parameters):
        servers.append(Server(tmp_path, **parameters))
        return servers[-1]

    yield start
    for server in servers:
        server.engine.close()


@pytest.mark.parametrize("options", [None, {"drafter": "lookup"}, {}, {"drafter": "suffix"}])
def test_answers_are_those_without_drafts(serve, options):
    """With any drafter, the target confirms only its own tokens, and the rounds add up to them."""
    server = serve()
    for number in range(4):
        prompt = [*PROMPT, 100 + number]
        found = server.begin(str(number), prompt, options=options, wants_log_probs=True)
        tokens, log_probs, rounds, last = all_of(found)
        assert last.error is None
        assert tokens == answer(prompt)[:-1]
        assert log_probs == [-float(each) for each in tokens]
        assert sum(each.num_tokens for each in rounds) == len(tokens)
        assert last.stats.num_draft_tokens == sum(each.num_draft_tokens for each in rounds)
    assert bool(server.executor.verified) == (options is not None)


@pytest.mark.parametrize("k", [0, 1, 3, 8])
def test_each_request_gets_the_draft_length_that_it_asks_for(serve, k):
    """Padding is not counted."""
    server = serve()
    options = {"drafter": "lookup", "num_draft_tokens": k}
    *_, rounds, last = all_of(server.begin("a", options=options))
    assert max(each.num_draft_tokens for each in rounds) == k
    assert max([0, *(len(draft) for draft, _ in server.executor.verified)]) == k
    assert (last.stats.num_accepted_tokens > 0) == (k > 0)


@pytest.mark.parametrize("k", [2, 8])
def test_rounds_are_those_that_the_engine_verified(serve, k):
    """Drafts and accepted tokens are counted as the executor saw them, padding left out."""
    server = serve()
    options = {"drafter": "lookup", "num_draft_tokens": k}
    *_, rounds, _ = all_of(server.begin("a", options=options))
    found = [
        (each.num_draft_tokens, len(each.accepted_sources))
        for each in rounds
        if each.num_draft_tokens
    ]
    assert found == [
        (len(draft), num_accepted(draft, tokens)) for draft, tokens in verified(server)
    ]


def test_copied_tokens_are_accepted_and_named(serve):
    """The rounds tell which drafter proposed each token."""
    *_, rounds, _ = all_of(serve().begin("a", options={"drafter": "lookup"}))
    drafted = [each for each in rounds if each.num_draft_tokens]
    assert {each.drafter for each in drafted} == {"lookup"}
    assert sum(len(each.accepted_sources) for each in drafted) > 30


def test_draft_model_drafts_for_requests_of_a_step(serve):
    """It is asked with all tokens so far."""

    def ask(model, contexts, salts, num_tokens):
        assert model == "small"
        assert salts == [""] * len(contexts)
        known = answer(PROMPT)
        return [tuple(known[len(each) - len(PROMPT) :][:num_tokens]) for each in contexts]

    server = serve(ask=ask, tensorrt_llm_draft_model_name="small")
    found = server.begin("a", options={"drafter": "small", "num_draft_tokens": 4})
    tokens, _, rounds, last = all_of(found)
    assert tokens == answer(PROMPT)[:-1]
    assert {each.drafter for each in rounds if each.num_draft_tokens} == {"small"}
    assert last.stats.num_accepted_tokens > 25


def test_ended_requests_reach_the_controller(serve):
    """Its report on their task comes with the same or the next answer."""
    server, reports = serve(), []
    for number in range(2):
        *_, last = all_of(server.begin(str(number), options={"drafter": "lookup", "task": "qa"}))
        reports.append(last.drafting.task)
        time.sleep(REPORT_PERIOD_S + 0.1)
    assert any(reports)
    wait_for(lambda: not server.engine._hooks._num_seen, WITHIN_S)


def test_answer_goes_on_after_a_pause(serve, monkeypatch):
    """TensorRT-LLM frees the cache of a paused request, and reads its text again."""
    server = serve(max_draft_len="3")
    forward, goes_on = server.executor._forward, threading.Event()

    def held(request):
        if len(server.executor.verified) == 2:
            goes_on.wait(20)
        return forward(request)

    monkeypatch.setattr(server.executor, "_forward", held)
    outputs = server.begin("a", options={"drafter": "lookup"})
    first = outputs.get(timeout=20)
    server.executor.pause(1)
    goes_on.set()
    tokens, _, rounds, last = all_of(outputs)
    assert [*first.tokens, *tokens] == answer(PROMPT)[:-1]
    assert not server.executor._paused
    rounds = [*first.drafting.rounds, *rounds]
    accepted = [num_accepted(draft, tokens) for draft, tokens in verified(server)]
    assert [len(each.accepted_sources) for each in rounds if each.num_draft_tokens] == accepted
    assert last.stats.num_accepted_tokens == sum(accepted)


@pytest.mark.parametrize("waits", [False, True])
def test_cancelled_answer_ends(serve, monkeypatch, waits):
    """However early the cancel comes, the slot is free for the next request."""
    server = serve(max_num_sequences="1")
    forward = server.executor._forward

    def slowly(request):
        time.sleep(0.01)
        return forward(request)

    monkeypatch.setattr(server.executor, "_forward", slowly)
    for number in range(10):
        outputs = server.begin(str(number), options={})
        if waits:
            outputs.get(timeout=20)
        server.engine.cancel(str(number))
        assert all_of(outputs)[-1].error is None
    assert all_of(server.begin("last"))[0] == answer(PROMPT)[:-1]
    hooks = server.engine._hooks
    wait_for(lambda: not (hooks._num_seen or hooks._new), WITHIN_S)


def test_failing_drafters_fail_no_request(serve, monkeypatch):
    """The steps go on without drafts, and the failure is reported."""
    server = serve()

    def fail(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(server.engine._drafting, "end_step", fail)
    tokens, _, _, last = all_of(server.begin("a", options={}))
    assert tokens == answer(PROMPT)[:-1]
    assert ("batch", "internal") in last.drafting.failures


def test_refused_and_failed_requests_get_their_errors(serve, monkeypatch):
    """A client's mistake is not the engine's failure."""
    server = serve()
    with pytest.raises(InvalidRequestError, match="the limit is 255"):
        server.begin("a", [*PROMPT] * 7)

    def fail(*_):
        raise RuntimeError("no memory")

    monkeypatch.setattr(server.executor, "_forward", fail)
    last = all_of(server.begin("b"))[-1]
    assert isinstance(last.error, EngineFailedError)
    assert "no memory" in str(last.error)


def test_answers_at_a_stop_end_with_an_error(serve, monkeypatch):
    """A part of an answer must not look like a whole one."""
    server = serve()
    forward = server.executor._forward

    def slowly(request):
        time.sleep(0.05)
        return forward(request)

    monkeypatch.setattr(server.executor, "_forward", slowly)
    outputs = server.begin("a", options={"num_draft_tokens": 0})
    outputs.get(timeout=20)
    server.engine.close()
    assert "shutting down" in str(all_of(outputs)[-1].error)


def test_missing_hook_is_named(package, tmp_path):
    """A release without user-provided drafters is refused at the start."""
    from tensorrt_llm import llmapi  # noqa: PLC0415 - the double

    del llmapi.UserProvidedDecodingConfig
    assert package.__version__
    with pytest.raises(ConfigurationError, match=r"llmapi.UserProvidedDecodingConfig, which this"):
        Server(tmp_path)


def test_sampled_request_passes_its_parameters(serve, release):
    """At a temperature, TensorRT-LLM must not fall back to greedy decoding."""
    server = serve()
    params = SamplingParams(temperature=0.7, seed=2**63 + 5)
    if release.startswith("1.0"):
        with pytest.raises(UnsupportedError, match="temperature"):
            server.begin("a", options={}, params=params)
        return
    assert all_of(server.begin("a", options={}, params=params))[-1].error is None
    (given,) = server.executor.params
    assert not given._greedy_decoding
    assert (given.temperature, given.seed) == (0.7, 5)


def test_prompt_that_the_engine_refuses_is_the_clients_fault(serve):
    """TensorRT-LLM raises ValueError for it."""
    server = serve(max_num_tokens="39")
    last = all_of(server.begin("a"))[-1]
    assert isinstance(last.error, InvalidRequestError)
    assert "max_num_tokens (39)" in str(last.error)


def test_engine_without_drafts(serve):
    """With max_draft_len 0 nothing is hooked in."""
    tokens, *_, last = all_of(serve(max_draft_len="0").begin("a", options={"num_draft_tokens": 0}))
    assert tokens == answer(PROMPT)[:-1]
    assert last.stats.num_draft_tokens == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_executor_that_has_ended_fails_its_requests(serve, monkeypatch):
    """The heartbeat then tells the supervisor."""
    server = serve()

    def fail(_):
        raise SystemExit

    monkeypatch.setattr(server.executor, "_prepare", fail)
    last = all_of(server.begin("a"))[-1]
    assert isinstance(last.error, EngineFailedError)
    wait_for(lambda: server.engine._answers._generator.has_failed, WITHIN_S)


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"kv_cache_fraction": "1"}, "kv_cache_fraction"),
        ({"target_head_name": "eagle3"}, "target_head_name"),
        ({"tensorrt_llm_engine_args": '{"tensor_parallel_size": 2}'}, "tensor_parallel_size"),
        ({"tensorrt_llm_engine_args": '{"model": "x"}'}, "model"),
    ],
)
def test_wrong_settings_are_refused_by_name(tmp_path, parameters, name):
    """Before anything is started."""
    with pytest.raises(ConfigurationError, match=name):
        Server(tmp_path, **parameters)
