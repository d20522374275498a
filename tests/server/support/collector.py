"""A collector of OpenTelemetry spans over HTTP: takes Triton's JSON and our protobuf."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2


@dataclass(frozen=True)
class Span:
    """One span; ids in hexadecimal, times in nanoseconds."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]


class Collector:
    """All spans received so far."""

    def __init__(self) -> None:
        self.url = ""
        self._spans: list[Span] = []

    def receive(self, content_type: str, body: bytes) -> None:
        """Add the spans of one export, in protobuf or else JSON."""
        if content_type == "application/x-protobuf":
            message = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
            self._spans += [
                _from_protobuf(span)
                for resource in message.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            ]
        else:
            self._spans += [
                _from_json(span)
                for resource in json.loads(body)["resourceSpans"]
                for scope in resource["scopeSpans"]
                for span in scope["spans"]
            ]

    def names(self, trace_id: str) -> set[str]:
        """Return the names of a trace's spans."""
        return {span.name for span in self._spans if span.trace_id == trace_id}

    def newest(self) -> list[Span]:
        """Return the spans of the trace with the latest start; an empty list without spans."""
        last = max(self._spans, key=lambda span: span.start_ns, default=None)
        return [span for span in self._spans if last and span.trace_id == last.trace_id]


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on a free port of 127.0.0.1 while the block runs."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.receive(self.headers["Content-Type"], body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        collector.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
        yield collector
        server.shutdown()


def _from_protobuf(span: Any) -> Span:
    return Span(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes},
    )


def _from_json(span: Any) -> Span:
    return Span(
        span["name"],
        span["traceId"],
        span["spanId"],
        span.get("parentSpanId", ""),
        int(span["startTimeUnixNano"]),
        int(span["endTimeUnixNano"]),
        {each["key"]: next(iter(each["value"].values())) for each in span.get("attributes", ())},
    )
