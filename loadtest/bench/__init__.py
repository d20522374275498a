"""`specdec bench`: measurements that the README quotes, each with its conditions.

The list below says what each of them shows.
"""

from __future__ import annotations

import importlib
import sys

from clients.errors import SpecdecError

_BENCHES = {
    "engine": "the torch engine's tokens against transformers in float32",
    "acceptance": "tau and alpha by task, drafter, verification and temperature",
    "batches": "requests that speculate and plain ones in one batch or apart, eight streams",
    "classify": "how often the rules for requests without a task name the right one",
    "step": "a target pass against the time that reading its bytes takes",
    "crowd": "fairness among 48 streams, ten times the limit offered, 256 streams",
    "exact": "output with each drafter equals the target's, greedy or sampled, on any prompts",
    "control": "the controller at a live server against fixed choices and a hopeless draft",
    "coupling": "what shared noise costs in acceptance against rejection sampling",
    "hop": "what a round costs outside the engines, with engines that cost nothing",
    "interchange": "our draft and EAGLE-3 head in vLLM: same answers, acceptance beside ours",
    "law": "rejection and block verification keep the target's distribution: p-values",
    "memory": "KV cache used against needed, and what 10,000 requests leave behind",
    "peers": "transformers, vLLM, OpenVINO, llama.cpp and us on the same weights and prompts",
    "prediction": "what right, half right and wrong predictions come to",
    "overlap": "drafting while the target verifies, a core each: replayed and run",
    "ramp": "one server, 1 to 48 streams: auto against off, and the guesses it makes",
    "record": "acceptance and costs of the running pair, for replay",
    "replay": "the controller against the best fixed choice and an oracle, on recorded traffic",
    "reliability": "stops, deaths and refusals of a live server: what clients get, what is left",
    "speed": "one stream, on / off / target alone: tokens per second by column",
    "tasks": "ten kinds of task, each drafter: acceptance and speed beside a guide's ranges",
    "truth": "the server's counters against what 1,000 mixed clients counted themselves",
    "users": "1 to 48 users, on and off, over gRPC and HTTP: latencies and a plot",
}

_ELSEWHERE = {
    "reliability": "loadtest.reliability.cli",
    "record": "loadtest.replay.recording",
    "replay": "loadtest.replay.replaying",
}


def main(argv: list[str] | None = None) -> int:
    """Run the bench named by the first argument; 1 if the server refuses, 2 for an unknown one."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(_usage())
        return 0 if arguments else 2
    if arguments[0] not in _BENCHES:
        print(f"unknown bench {arguments[0]!r}\n{_usage()}", file=sys.stderr)
        return 2
    package = _ELSEWHERE.get(arguments[0], f"loadtest.bench.{arguments[0]}")
    module = importlib.import_module(package)
    try:
        return int(module.main(arguments[1:]))
    except SpecdecError as error:
        print(f"specdec bench {arguments[0]}: {error}", file=sys.stderr)
        return 1


def _usage() -> str:
    lines = [f"  {name:<11} {summary}" for name, summary in _BENCHES.items()]
    return "\n".join(["usage: specdec bench BENCH [options]", "", *lines])
