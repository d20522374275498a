"""Make OpenTelemetry spans of a request's engine calls, below Triton's own span of the request.

Triton could trace BLS calls as children of their caller. But it frees the caller's trace when
`execute` returns (python_be.cc, 24.10 to 26.07), and our calls begin after that. The first call
with a freed trace crashes the server. So we make these spans ourselves.

They continue Triton's trace of the requests that --trace-config samples. They are sent to the URL
in OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, which `specdec serve --trace-url` sets.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from specdec.engines.calls import Call, CallOutput, EngineCalls
from specdec.settings.tracing import ENDPOINT_VARIABLE

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

_SERVICE_VARIABLE = "OTEL_SERVICE_NAME"


class RequestTrace:
    """The trace of one request; this base class is for requests that are not traced."""

    def calls(self, name: str, calls: EngineCalls) -> EngineCalls:  # noqa: ARG002 - a traced request uses it
        """Return the calls of one engine; in a traced request each gets a span called `name`."""
        return calls

    def end(self, outcome: str) -> None:
        """End the trace. `outcome` is the request's label in the counter `requests_total`."""


NOT_TRACED = RequestTrace()


class Tracing:
    """The sender of all spans; without an endpoint nothing is traced."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        """Read the endpoint from the environment; call `warn` if OpenTelemetry is missing."""
        self._provider: TracerProvider | None = None
        if not os.environ.get(ENDPOINT_VARIABLE):
            return
        try:
            self._provider = _provider()
        except ImportError as error:
            warn(
                f"{ENDPOINT_VARIABLE} is set, but {error.name} is missing: engine calls are not "
                "traced. `pip install 'specdec-triton[tracing]'` brings it"
            )

    def begin(self, request: Any, **attributes: str) -> RequestTrace:
        """Return the trace of a Triton request that was just admitted.

        Call it inside `execute`: Triton frees its own trace of the request afterwards.
        """
        if self._provider is None:
            return NOT_TRACED
        context: str | None = request.trace().get_context()
        if not context:
            return NOT_TRACED
        return _Traced(self._provider.get_tracer("specdec"), json.loads(context), attributes)

    def close(self) -> None:
        """Send the remaining spans."""
        if self._provider is not None:
            self._provider.shutdown()


class _Traced(RequestTrace):
    """The trace of a traced request: a span for the whole answer, below it one for each call."""

    def __init__(self, tracer: Tracer, carrier: dict[str, str], attributes: dict[str, str]) -> None:
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415
        from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415

        self._tracer = tracer
        parent = tracecontext.TraceContextTextMapPropagator().extract(carrier)
        self._span = tracer.start_span("answer", parent, attributes=attributes)
        self._context = set_span_in_context(self._span, parent)

    def calls(self, name: str, calls: EngineCalls) -> EngineCalls:
        return _TracedCalls(calls, lambda: self._tracer.start_span(name, self._context))

    def end(self, outcome: str) -> None:
        self._span.set_attribute("outcome", outcome)
        self._span.end()


class _TracedCalls:
    """The calls of one engine, each with a span."""

    def __init__(self, calls: EngineCalls, start_span: Callable[[], Span]) -> None:
        self._calls = calls
        self._start_span = start_span

    @property
    def can_stream(self) -> bool:
        return self._calls.can_stream

    def run(self, call: Call) -> Generator[CallOutput]:
        span = self._start_span()
        span.set_attribute("num_context_tokens", len(call.context))
        span.set_attribute("num_draft_tokens", len(call.draft.tokens))
        num_tokens = 0
        try:
            for output in self._calls.run(call):
                num_tokens += len(output.tokens)
                yield output
        except Exception as error:
            from opentelemetry.trace import StatusCode  # noqa: PLC0415

            span.record_exception(error)
            span.set_status(StatusCode.ERROR)
            raise
        finally:
            span.set_attribute("num_tokens", num_tokens)
            span.end()

    def abort(self) -> None:
        self._calls.abort()

    def check(self) -> None:
        self._calls.check()


def _provider() -> TracerProvider:
    """Return the sender of spans. Raises ImportError if a package of OpenTelemetry is missing."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    name = os.environ.get(_SERVICE_VARIABLE, "specdec")
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
