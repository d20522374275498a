"""`specdec bench counters`: compare the server's counters with what its clients counted.

Clients send all kinds of requests at once, over gRPC and HTTP. Some are refused, some run out of
time, and some clients hang up. Then the metrics page is compared with the clients' counts, label
set by label set.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from specdec.clients import GenerationRequest, GrpcClient, HttpClient
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.arguments import positive
from specdec.loadtest.kit.options import add_prompts, bench_parser, finish
from specdec.loadtest.kit.prompts import as_tokens
from specdec.loadtest.lab.exactness.client_counts import LABELS, Counts, ask, random_request
from specdec.loadtest.lab.exactness.counter_report import compared, table
from specdec.loadtest.report.history import History, Scrape
from specdec.loadtest.report.sources import LiveServer


def main(argv: list[str]) -> int:
    """Send the requests and compare; return 1 if a counter differs."""
    parser = bench_parser("counters", __doc__)
    add_prompts(parser)
    parser.add_argument(
        "--requests", type=positive, default=1000, metavar="N", help="default: %(default)s"
    )
    parser.add_argument("--concurrency", type=positive, default=12, help="requests at once")
    parser.add_argument("--seed", type=int, default=1, help="seed of the requests' settings")
    arguments = parser.parse_args(argv)
    prompts = as_tokens(arguments.prompts, arguments.model_repository)
    draw = random.Random(arguments.seed)
    planned = [random_request(draw, draw.choice(prompts)) for _ in range(arguments.requests)]
    with TritonServer(arguments.model_repository) as server, ExitStack() as stack:
        grpc = stack.enter_context(GrpcClient(server.grpc_url, timeout_s=300.0))
        http = stack.enter_context(HttpClient(f"http://{server.http_url}", timeout_s=300.0))
        page = LiveServer(server.metrics_url, watch_s=0.0, every_s=0.0)
        # The page has specdec's counters from the first answer on.
        grpc.generate(GenerationRequest(text_input="Hello", max_tokens=1))
        before = _settled(page)
        with ThreadPoolExecutor(arguments.concurrency) as threads:
            parts = threads.map(lambda each: ask(each, grpc, http), planned)
            clients: Counts = sum(parts, Counter())
        counted = compared(clients, History((before, _settled(page))))
    behaviours = Counter(each.behaviour.name for each in planned)
    asked = ", ".join(f"{count} {name}" for name, count in sorted(behaviours.items()))
    facts = {"behaviours": behaviours, "counters": counted}
    faults = [f"{each.counter}: {text}" for each in counted for text in each.different]
    return finish(arguments, argv, facts, f"{table(counted)}\n\nAsked: {asked}.", faults=faults)


def _settled(page: LiveServer) -> Scrape:
    """Return the page once its counters have not changed for a second."""

    def counters(scrape: Scrape) -> dict[object, float]:
        return {each: value for each, value in scrape.samples.items() if each.name in LABELS}

    last = page.scrape()
    while True:
        time.sleep(1.0)
        now = page.scrape()
        if counters(now) == counters(last):
            return now
        last = now
