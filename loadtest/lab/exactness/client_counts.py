"""Requests of all kinds, and what their clients count by the names of the server's counters."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from specdec.clients import GenerationRequest, GrpcClient, HttpClient, SpecdecError
from specdec.loadtest.kit.prompts import TokenPrompt


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The behaviour of a client, by its name in the table."""

    name: str
    percent: int
    """Share of the requests."""
    is_http: bool = False
    is_whole: bool = False
    """True for one response, False for a stream."""
    is_leaving: bool = False
    """True to hang up after some chunks."""


LATE, REFUSED = Behaviour("overdue", 5), Behaviour("refused", 5)
BEHAVIOURS = (
    Behaviour("grpc stream", 30),
    Behaviour("grpc whole", 14, is_whole=True),
    Behaviour("http stream", 20, is_http=True),
    Behaviour("http whole", 12, is_http=True, is_whole=True),
    Behaviour("grpc leaving", 8, is_leaving=True),
    Behaviour("http leaving", 6, is_http=True, is_leaving=True),
    LATE,
    REFUSED,
)

LEFT, OVERDUE = "left", "overdue"
"""Tasks of requests whose clients get no statistics, so that their counts are kept apart."""

DRAFTERS = ("auto", "none", "lookup", "suffix", "draft", "eagle3", "eagle3_tree", "lookup+draft")
LONG_ANSWER = 3000

Counts = Counter[tuple[str, tuple[str, ...]]]
"""Counts by counter and values of its labels."""

DRAFT_COUNTERS = {
    "specdec_num_drafts_total": "num_spec_steps",
    "specdec_num_draft_tokens_total": "num_draft_tokens",
    "specdec_num_accepted_tokens_total": "num_accepted_draft_tokens",
}
"""Counters by task and drafter, with the fields of the response's statistics."""
TOKENS = "specdec_generation_tokens_total"
LABELS: dict[str, tuple[str, ...]] = {
    "specdec_requests_total": ("outcome",),
    "specdec_prompt_tokens_total": (),
    TOKENS: ("task",),
    **dict.fromkeys(DRAFT_COUNTERS, ("task", "drafter")),
}
"""The counters that clients count too, with the labels by which their counts are compared."""


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request and its client's behaviour."""

    behaviour: Behaviour
    request: GenerationRequest
    num_chunks: int
    """Chunks after which a leaving client hangs up."""


def random_request(draw: random.Random, prompt: TokenPrompt) -> PlannedRequest:
    """Return a request with random settings for a prompt."""
    behaviour = draw.choices(BEHAVIOURS, [each.percent for each in BEHAVIOURS])[0]
    is_leaving, is_overdue = behaviour.is_leaving, behaviour is LATE
    is_long = is_leaving or is_overdue
    length = LONG_ANSWER if is_long else draw.randint(1, 24)
    request = GenerationRequest(
        input_ids=list(prompt.token_ids),
        task=LEFT if is_leaving else OVERDUE if is_overdue else prompt.column,
        drafter=draw.choice(DRAFTERS),
        num_draft_tokens=draw.choice([None, None, 1, 3, 5]),
        temperature=draw.choice([0.0, 0.0, 0.8]),
        seed=draw.randrange(1000),
        max_tokens=0 if behaviour is REFUSED else length,
        stop_words=None if is_long else draw.choice([None, None, [" the"], ["\n"]]),
        deadline_ms=draw.randint(100, 900) if is_overdue else None,
        return_perf_metrics=True,
    )
    return PlannedRequest(behaviour, request, draw.randint(1, 8))


def ask(planned: PlannedRequest, grpc: GrpcClient, http: HttpClient) -> Counts:
    """Send the request and return what its client counts."""
    behaviour = planned.behaviour
    client: GrpcClient | HttpClient = http if behaviour.is_http else grpc
    counts, outcome = Counter[tuple[str, tuple[str, ...]]](), "ok"
    num_tokens, final = 0, None
    try:
        if behaviour.is_whole:
            result = client.generate(planned.request)
            num_tokens, final = len(result.token_ids), result.end
        else:
            for number, chunk in enumerate(client.stream(planned.request), start=1):
                num_tokens, final = num_tokens + len(chunk.token_ids), chunk.end
                is_last = behaviour.is_leaving and number == planned.num_chunks
                if is_last and final is None:
                    outcome = "cancelled"
                    break
    except SpecdecError as error:
        outcome = error.error_type
    task = str(planned.request.task)
    counts["specdec_requests_total", (outcome,)] = 1
    counts[TOKENS, (task,)] = num_tokens
    if behaviour is not REFUSED:
        counts["specdec_prompt_tokens_total", ()] = len(planned.request.input_ids or ())
    if final is not None:
        for drafter, own in (final.speculative_decoding or {})["drafters"].items():
            for counter, name in DRAFT_COUNTERS.items():
                counts[counter, (task, drafter)] = own[name]
    return counts
