"""Each request has one trace: Triton's spans, and below them a span for every engine call."""

from specdec.clients import GenerationRequest, GrpcClient, collect
from tests.server.support.live import ask_http
from tests.server.support.prompts import COUNT
from tests.waiting import wait_for

EXPORTED_S = 20.0
"""Longest wait in seconds for spans, which an idle machine sends 100 ms after their end."""


def traced(server, collector, **request):
    """Send a request; return its answer and, once they are complete, its spans by name."""
    known = {span.trace_id for span in collector.newest()}
    with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
        answer = collect(client.stream(GenerationRequest(text_input=COUNT, **request)))

    def is_complete():
        spans = collector.newest()
        is_new = not known & {span.trace_id for span in spans}
        return spans if is_new and {"InferRequest", "answer"} <= {s.name for s in spans} else None

    by_name = {}
    for span in wait_for(is_complete, EXPORTED_S):
        by_name.setdefault(span.name, []).append(span)
    return answer, by_name


def test_engine_calls_are_children_of_the_request(doors, collector):
    """The trace has the request, the orchestrator, the answer, and each call of draft and target.

    Spans of the calls name their numbers of draft tokens and tokens.
    """
    options = {"drafter": "draft", "task": "counting", "return_perf_metrics": True}

    answer, spans = traced(doors, collector, **options, max_tokens=12)

    (root,), (model,), (whole,) = spans["InferRequest"], spans["specdec"], spans["answer"]
    assert not root.parent_id.strip("0")
    assert (model.parent_id, whole.parent_id) == (root.span_id, model.span_id)
    assert whole.attributes == {"task": "counting", "drafter": "draft", "outcome": "ok"}
    calls = spans["target"] + spans["draft"]
    assert {span.parent_id for span in calls} == {whole.span_id}
    assert all(whole.start_ns <= call.start_ns <= call.end_ns <= whole.end_ns for call in calls)
    drafted = [span.attributes["num_draft_tokens"] for span in spans["target"]]
    assert sum(drafted) == answer.end.total_draft_tokens
    assert sum(span.attributes["num_tokens"] for span in spans["target"]) >= len(answer.token_ids)


def test_answer_without_speculation_is_one_call(doors, collector):
    """Without speculation the trace has one call of the target, with all tokens."""
    answer, spans = traced(doors, collector, drafter="none", max_tokens=8)

    (call,) = spans["target"]
    assert "draft" not in spans
    assert call.attributes["num_tokens"] == len(answer.token_ids) == 8


def test_request_joins_the_trace_of_its_client(doors, collector):
    """Spans of a request with a W3C traceparent belong to the trace that it names."""
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    url = f"http://{doors.http_url}/v2/models/specdec/generate"
    body = {"text_input": COUNT, "max_tokens": 2}

    assert ask_http("POST", url, json=body, headers=headers).status == 200

    wait_for(lambda: {"answer", "target"} <= collector.names(trace_id), EXPORTED_S)
