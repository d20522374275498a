"""Trace spans of engine calls: none unless they are asked for, and each of them ends."""

import sys

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from specdec.engines.calls import Call, CallOutput
from specdec.engines.protocol import Draft
from specdec.errors import EngineFailedError
from specdec.serving.tracing import NOT_TRACED, Tracing, _Traced
from specdec.settings.tracing import ENDPOINT_VARIABLE

CONTEXT = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
CALL = Call(np.arange(5, dtype=np.int32), 3, None, Draft((7, 8)))


class Calls:
    """Engine calls that return two tokens, one after the other, and then raise `error` if given."""

    def __init__(self, error=None):
        self._error = error
        self.aborted = False

    def run(self, _):
        yield CallOutput((7,))
        yield CallOutput((9,))
        if self._error is not None:
            raise self._error

    def abort(self):
        self.aborted = True


@pytest.fixture
def exported():
    """Return the trace of a request, and a function that returns its finished spans."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace = _Traced(provider.get_tracer("test"), CONTEXT, {"task": "code"})
    return trace, exporter.get_finished_spans


def test_nothing_is_traced_without_an_endpoint(monkeypatch):
    """Triton is not even asked for the request's trace context."""
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    calls = Calls()

    trace = Tracing(pytest.fail).begin(request=None)

    assert trace is NOT_TRACED
    assert trace.calls("target", calls) is calls


def test_missing_package_is_reported(monkeypatch):
    """The server runs nevertheless; the message names the package to install."""
    monkeypatch.setenv(ENDPOINT_VARIABLE, "http://127.0.0.1:4318/v1/traces")
    package = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    monkeypatch.setitem(sys.modules, package, None)
    messages = []

    tracing = Tracing(messages.append)

    assert tracing.begin(request=None) is NOT_TRACED
    assert "pip install 'specdec-triton[tracing]'" in messages[0]


def test_span_of_a_call_is_a_child_of_the_answers_span(exported):
    """Both belong to the sender's trace; the call's span has the numbers of its tokens."""
    trace, spans = exported
    calls = Calls()

    traced = trace.calls("target", calls)
    assert [output.tokens for output in traced.run(CALL)] == [(7,), (9,)]
    traced.abort()
    trace.end("ok")

    call, answer = spans()
    assert calls.aborted
    assert format(answer.context.trace_id, "032x") == CONTEXT["traceparent"].split("-")[1]
    assert format(answer.parent.span_id, "016x") == CONTEXT["traceparent"].split("-")[2]
    assert call.parent.span_id == answer.context.span_id
    assert call.attributes == {"num_context_tokens": 5, "num_draft_tokens": 2, "num_tokens": 2}
    assert answer.attributes == {"task": "code", "outcome": "ok"}


def test_span_of_a_failed_or_abandoned_call_ends(exported):
    """The span has the error of a failed call; a stream that is no longer read counts as ended."""
    trace, spans = exported

    with pytest.raises(EngineFailedError):
        list(trace.calls("draft", Calls(EngineFailedError("gone"))).run(CALL))
    left = trace.calls("target", Calls()).run(CALL)
    next(left)
    left.close()

    failed, abandoned = spans()
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.events[0].attributes["exception.message"].endswith("gone")
    assert abandoned.attributes["num_tokens"] == 1
