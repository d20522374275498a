"""`specdec bench truth`: do the server's counters say what its clients counted?

Requests of all kinds at once: over gRPC and HTTP, streamed and whole, drafters and draws of all
sorts, stop words; some are refused, some run out of time, some hang up. Then the metrics page is
compared with what the clients have counted themselves, label by label.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from clients import Final, GenerationRequest, GrpcClient, HttpClient, SpecdecError
from loadtest.bench.prompting import CHECKPOINT, TokenPrompt, load_token_prompts
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from loadtest.observe.history import History, Scrape
from loadtest.observe.sources import LiveServer
from loadtest.settings import SHIPPED_PROMPTS
from specdec.serving.launcher import TritonServer

WAYS = {
    "grpc stream": 30,
    "grpc whole": 14,
    "http stream": 20,
    "http whole": 12,
    "grpc leaving": 8,
    "http leaving": 6,
    "overdue": 5,
    "refused": 5,
}
"""What a client does, and how often in a hundred."""

LEFT, OVERDUE = "left", "overdue"
"""Tasks of those who get no statistics, so that they can be told from the rest."""

DRAFTERS = ("auto", "none", "lookup", "suffix", "draft", "eagle3", "eagle3_tree", "lookup+draft")
LONG = 3000

LABELS = {
    "specdec_requests_total": ("outcome",),
    "specdec_prompt_tokens_total": (),
    "specdec_generation_tokens_total": ("task",),
    "specdec_num_drafts_total": ("task", "drafter"),
    "specdec_num_draft_tokens_total": ("task", "drafter"),
    "specdec_num_accepted_tokens_total": ("task", "drafter"),
}

Counts = Counter[tuple[str, tuple[str, ...]]]
"""By counter and values of its labels."""


@dataclass(frozen=True, slots=True)
class Order:
    """One request, and what its client does."""

    way: str
    request: GenerationRequest
    num_chunks: int
    """After so many one who leaves goes."""


@dataclass(frozen=True, slots=True)
class Counted:
    """One counter as its clients and the server counted it, summed over its label sets."""

    counter: str
    num_label_sets: int
    by_clients: float
    by_server: float
    num_different: int
    """Label sets with another count."""


def main(argv: list[str]) -> int:
    """Ask everything and compare; 1 if a counter differs."""
    arguments = _parser().parse_args(argv)
    prompts, _ = load_token_prompts(arguments.prompts, CHECKPOINT)
    draw = random.Random(arguments.seed)
    orders = [_order(draw, draw.choice(prompts)) for _ in range(arguments.requests)]
    with TritonServer(arguments.model_repository) as server, ExitStack() as stack:
        grpc = stack.enter_context(GrpcClient(server.grpc_url, timeout_s=300.0))
        http = stack.enter_context(HttpClient(f"http://{server.http_url}", timeout_s=300.0))
        page = LiveServer(server.metrics_url, watch_s=0.0, every_s=0.0)
        grpc.generate(GenerationRequest(text_input="Hello", max_tokens=1))  # By then there is one.
        before = _settled(page)
        with ThreadPoolExecutor(arguments.concurrency) as threads:
            parts = list(threads.map(lambda order: ask(order, grpc, http), orders))
        after = _settled(page)
    clients = sum(parts, Counter())
    counted = compared(clients, History((before, after)))
    ways = Counter(order.way for order in orders)
    facts = {
        "conditions": conditions(command_line("truth", argv)),
        "ways": ways,
        "counters": counted,
    }
    raw = [[name, *key, count] for (name, key), count in sorted(clients.items())]
    asked = ", ".join(f"{count} {way}" for way, count in sorted(ways.items()))
    write_result(arguments.name, arguments.out, facts, f"{_table(counted)}\n\nAsked: {asked}.", raw)
    return 1 if any(each.num_different for each in counted) else 0


def _order(draw: random.Random, prompt: TokenPrompt) -> Order:
    way = draw.choices(list(WAYS), list(WAYS.values()))[0]
    is_long = "leaving" in way or way == "overdue"
    task = LEFT if "leaving" in way else OVERDUE if way == "overdue" else prompt.column
    request = GenerationRequest(
        input_ids=list(prompt.token_ids),
        task=task,
        drafter=draw.choice(DRAFTERS),
        num_draft_tokens=draw.choice([None, None, 1, 3, 5]),
        temperature=draw.choice([0.0, 0.0, 0.8]),
        seed=draw.randrange(1000),
        max_tokens=0 if way == "refused" else LONG if is_long else draw.randint(1, 24),
        stop_words=draw.choice([None, None, [" the"], ["\n"]]) if not is_long else None,
        deadline_ms=draw.randint(100, 900) if way == "overdue" else None,
        return_perf_metrics=True,
    )
    return Order(way, request, draw.randint(1, 8))


def ask(order: Order, grpc: GrpcClient, http: HttpClient) -> Counts:
    """What a client counts of one request."""
    client: GrpcClient | HttpClient = http if order.way.startswith("http") else grpc
    seen, outcome = Counter[tuple[str, tuple[str, ...]]](), "ok"
    task, num_tokens, final = str(order.request.task), 0, None
    try:
        if order.way.endswith("whole"):
            result = client.generate(order.request)
            num_tokens, final = len(result.token_ids), result.final
        else:
            for count, chunk in enumerate(client.stream(order.request), start=1):
                num_tokens, final = num_tokens + len(chunk.token_ids), chunk.final
                if order.way.endswith("leaving") and count == order.num_chunks and final is None:
                    outcome = "cancelled"
                    break
    except SpecdecError as error:
        outcome = error.error_type
    seen["specdec_requests_total", (outcome,)] = 1
    seen["specdec_generation_tokens_total", (task,)] = num_tokens
    if order.way != "refused":
        seen["specdec_prompt_tokens_total", ()] = len(order.request.input_ids or ())
    if final is not None:
        seen += _drafted(final, task)
    return seen


def _drafted(final: Final, task: str) -> Counts:
    parts = (final.speculative_decoding or {})["drafters"]
    names = {
        "specdec_num_drafts_total": "num_spec_steps",
        "specdec_num_draft_tokens_total": "num_draft_tokens",
        "specdec_num_accepted_tokens_total": "num_accepted_draft_tokens",
    }
    return Counter(
        {
            (family, (task, drafter)): part[own]
            for drafter, part in parts.items()
            for family, own in names.items()
        }
    )


def compared(clients: Counts, history: History) -> list[Counted]:
    """Compare every counter, and name the label sets that differ on stderr.

    To a client who left, the server may have sent more than was read.
    """
    found = []
    for family, labels in LABELS.items():
        grown = defaultdict(float, history.total(family, *labels))
        own = {key: count for (name, key), count in clients.items() if name == family}
        keys = {key for key in own.keys() | grown.keys() if not {LEFT, OVERDUE} & set(key)}
        if family == "specdec_generation_tokens_total":
            keys.add((OVERDUE,))
        wrong = sorted(key for key in keys if own.get(key, 0) != grown[key])
        for key in wrong:
            said = f"{own.get(key, 0)} counted by clients, {grown[key]:g} by the server"
            print(f"{family}{list(key)}: {said}", file=sys.stderr)
        sums = sum(own.get(key, 0) for key in keys), sum(grown[key] for key in keys)
        name = f"{family} by {', '.join(labels)}" if labels else family
        found.append(Counted(name, len(keys), *sums, len(wrong)))
    left = clients["specdec_generation_tokens_total", (LEFT,)]
    sent = history.total("specdec_generation_tokens_total", "task").get((LEFT,), 0.0)
    name = "tokens read by those who left, and sent to them"
    return [*found, Counted(name, 1, left, sent, int(sent < left))]


def _table(counted: list[Counted]) -> str:
    rows = [
        [
            each.counter,
            str(each.num_label_sets),
            f"{each.by_clients:g}",
            f"{each.by_server:g}",
            str(each.num_different),
        ]
        for each in counted
    ]
    header = ["counter", "label sets", "clients", "server", "sets that differ"]
    return markdown_table(header, rows)


def _settled(page: LiveServer) -> Scrape:
    """The page once it has not changed for a second; the gauges of control may go on."""

    def counters(scrape: Scrape) -> Mapping[object, float]:
        return {each: value for each, value in scrape.samples.items() if each.name in LABELS}

    last = page.scrape()
    while True:
        time.sleep(1.0)
        now = page.scrape()
        if counters(now) == counters(last):
            return now
        last = now


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench truth", description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS, help="JSONL file")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="truth", help="of the result files")
    return parser
