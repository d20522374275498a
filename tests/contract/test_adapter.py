"""The adapter to an engine: the calls that it makes, and how it reads the responses."""

import threading
import weakref
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from specdec.errors import EngineLostError
from tests.waiting import wait_for

LOST = "Stub process 'target_0_0' is not healthy."
CONTEXT = np.asarray([1, 2, 3], dtype=np.int32)


class FakeCalls:
    """Engine calls that all get the same response."""

    def __init__(self, output):
        self._output = output

    def run(self, *_, **__):
        """Yield the one response."""
        yield self._output


@pytest.mark.parametrize(
    ("parents", "tokens", "num_accepted", "ended"),
    [
        ((), (5, 6, 9), None, False),
        ((), (5, 6), None, True),
        ((), (), None, True),
        ((), (9,), None, False),
        # After a rejection, block verification may draw the same token as the target's own.
        ((), (5,), 0, False),
        ((), (5,), 1, True),
        # The target's own token equals a token of a branch that the engine did not follow.
        ((-1, -1), (6,), 0, False),
        ((-1, -1), (6, 7), 1, False),
        ((-1, -1), (6,), 1, True),
    ],
)
def test_end_of_the_answer_is_detected(inside_triton, parents, tokens, num_accepted, ended):
    """An answer has ended if the result has no token after the accepted draft tokens.

    The adapter takes the engine's count of accepted tokens; without one it compares the tokens.
    """
    adapter = inside_triton("specdec.engines.contract_engines")
    output = inside_triton("specdec.engines.calls").CallOutput(tokens, num_accepted=num_accepted)
    draft = adapter.Draft((5, 6), parents=parents)

    verification = adapter.ContractTarget(FakeCalls(output), end_id=0).verify(CONTEXT, draft)

    assert verification.ended == ended
    assert verification.tokens == tokens
    assert verification.num_accepted == num_accepted


class Counting:
    """An engine that must not stream; it continues the context by counting, up to `end`."""

    can_stream = False

    def __init__(self, end):
        self._end = end
        self.calls = []

    def run(self, call):
        """Yield the only response of the call."""
        self.calls.append(call)
        first = int(call.context[-1]) + 1
        tokens = tuple(range(first, min(first + call.max_new_tokens, self._end)))
        yield self._output(tokens, log_probs=tuple(-float(token) for token in tokens))

    def begin(self, module):
        """Take the response type from `module`; return the engine."""
        self._output = module.CallOutput
        return self


@pytest.mark.parametrize("end", [4, 5, 19, 35, 36, 1000])
@pytest.mark.parametrize("max_tokens", [1, 2, 31, 60])
def test_engine_that_must_not_stream_gets_several_calls(inside_triton, max_tokens, end):
    """Calls of 1, 2, 4, 8 and then 16 tokens together give the tokens of one long call."""
    adapter = inside_triton("specdec.engines.contract_engines")
    calls = Counting(end).begin(inside_triton("specdec.engines.calls"))
    target = adapter.ContractTarget(calls, end_id=0)

    steps = list(target.stream(CONTEXT, max_tokens))

    expected = tuple(range(4, min(4 + max_tokens, end)))
    assert tuple(token for step in steps for token in step.tokens) == expected
    assert tuple(-value for step in steps for value in step.log_probs) == expected
    assert [step.ended for step in steps[:-1]] == [False] * (len(steps) - 1)
    assert steps[-1].ended == (len(expected) < max_tokens)
    assert not any(call.streaming for call in calls.calls)
    lengths = [call.max_new_tokens for call in calls.calls]
    assert lengths[:-1] == [1, 2, 4, 8, 16, 16, 16][: len(lengths) - 1]
    assert max(lengths) <= adapter.MAX_PART_LEN


def test_length_of_calls_keeps_growing_in_the_next_stream(inside_triton):
    """A request's second stretch without speculation does not begin with a call of one token."""
    adapter = inside_triton("specdec.engines.contract_engines")
    calls = Counting(1000).begin(inside_triton("specdec.engines.calls"))
    target = adapter.ContractTarget(calls, end_id=0)

    for _ in range(3):
        list(target.stream(CONTEXT, 16))

    assert [call.max_new_tokens for call in calls.calls] == [1, 2, 4, 8, 1, 16, 16]


class Streaming:
    """An engine that streams one token per response, and counts the stop requests."""

    can_stream = True

    def __init__(self, output):
        self._output = output
        self.num_stops = 0

    def run(self, call):
        """Yield a response for each token, then an empty one."""
        for token in range(call.max_new_tokens):
            yield self._output((token,))
        yield self._output(())

    def abort(self):
        """Count a stop request."""
        self.num_stops += 1


@pytest.mark.parametrize(("num_read", "num_stops"), [(1, 1), (4, 1), (5, 0)])
def test_only_a_stream_left_before_its_last_token_is_stopped(inside_triton, num_read, num_stops):
    """The engine gets a stop request only if it has not yet sent all tokens."""
    adapter = inside_triton("specdec.engines.contract_engines")
    calls = Streaming(inside_triton("specdec.engines.calls").CallOutput)

    steps = adapter.ContractTarget(calls, end_id=0).stream(CONTEXT, 5)
    for _ in range(num_read):
        next(steps)
    steps.close()

    assert calls.num_stops == num_stops


def test_responses_are_kept_after_a_long_call(inside_triton, monkeypatch):
    """Responses stay in memory for KEPT_S seconds after the call's end, not after its start.

    Triton's background thread may drop its references to them later than the call ends.
    """
    requests = inside_triton("specdec.engines.bls_requests")
    now_s = [0.0]
    monkeypatch.setattr(requests, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    finished = requests.FinishedCalls()
    monkeypatch.setattr(requests, "_FINISHED", finished)

    class Responses(list):
        """A list that allows weak references."""

    class Response:
        """A response without an error."""

        def has_error(self):
            """Return False."""
            return False

    made = [Responses([Response(), Response()])]
    is_alive = weakref.ref(made[0])
    monkeypatch.setattr(
        requests.pb_utils,
        "InferenceRequest",
        lambda **_: SimpleNamespace(exec=lambda **_: made.pop()),
    )
    call = requests.BlsRequests("target", "id", list, ()).responses([], ["output_ids"])
    next(call)
    now_s[0] = 100.0
    assert len(list(call)) == 1
    del call
    finished.keep([])

    assert is_alive() is not None
    now_s[0] = 100.0 + requests.KEPT_S + 1
    finished.keep([])
    assert is_alive() is None


def test_error_type_of_an_engine_decides_who_is_at_fault(inside_triton):
    """`invalid_request` and `unsupported` blame the request, `configuration` the deployment.

    Any other message is `engine_failed`; one about an unhealthy stub process is an EngineLostError.
    """
    requests = inside_triton("specdec.engines.bls_requests").BlsRequests("target", "id", list, ())

    texts = ("invalid_request: too long", "unsupported: x", "configuration: no head")
    texts += ("internal: y", "broken", LOST)
    errors = [requests._failure(text) for text in texts]

    assert [str(each) for each in errors] == [
        "invalid_request: target: too long",
        "unsupported: target: x",
        "configuration: target: no head",
        "engine_failed: target: internal: y",
        "engine_failed: target: broken",
        f"engine_failed: target: {LOST}",
    ]
    assert isinstance(errors[-1], EngineLostError)


def test_aborts_at_once_send_one_stop_request(inside_triton, monkeypatch):
    """The watchdog and the request's own thread may abort a call at the same time."""
    requests = inside_triton("specdec.engines.bls_requests")
    calls = requests.BlsRequests("target", "id", list, ())
    calls._current = "id:1"
    stops, may_end = [], threading.Event()

    def stop(request_id, *_):
        stops.append(request_id)
        may_end.wait(10.0)
        return iter(())

    monkeypatch.setattr(calls, "_exec", stop)
    start = threading.Barrier(8)
    threads = [threading.Thread(target=lambda: (start.wait(), calls.abort())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    may_end.set()

    assert stops == ["id:1"]
    wait_for(lambda: not calls._is_aborting)
    assert requests._num_stops["target"] == 0


def test_abort_without_a_free_thread_can_be_repeated(inside_triton, monkeypatch):
    """If no thread can be started, the abort counts as ended, so that the next one is sent."""
    requests = inside_triton("specdec.engines.bls_requests")
    calls = requests.BlsRequests("target", "id", list, ())
    calls._current = "id:1"
    thread = MagicMock()
    thread.start.side_effect = RuntimeError("can't start new thread")
    monkeypatch.setattr(requests, "threading", SimpleNamespace(Thread=lambda **_: thread))

    calls.abort()
    calls.abort()

    assert thread.start.call_count == 2
    assert requests._num_stops["target"] == 0
