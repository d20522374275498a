"""The table of benches, and the command that runs them."""

from __future__ import annotations

import importlib
import signal
import sys
from dataclasses import dataclass

from specdec.builder.errors import BuildError
from specdec.clients.errors import SpecdecError
from specdec.errors import ConfigurationError
from specdec.launch.installation import LaunchError


@dataclass(frozen=True, slots=True)
class Bench:
    """A measurement: the module of `loadtest` whose `main` runs it, and its line in the help."""

    module: str
    summary: str


BENCHES = {
    "acceptance": Bench("lab.speed.acceptance", "acceptance by task, drafter, verification mode"),
    "batch": Bench("lab.load.batch_step", "our drafters in a step of an engine with a batch loop"),
    "classify": Bench("lab.controller.classify", "how often the rules find the task of a request"),
    "control": Bench("lab.controller.control", "the controller against fixed choices, live"),
    "counters": Bench("lab.exactness.counters", "the server's counters against clients' counts"),
    "exact": Bench("lab.exactness.exact", "answers with each drafter against the target's own"),
    "gateway": Bench("lab.gateway.cost", "what the gateway costs beside direct gRPC"),
    "gateway_exact": Bench("lab.gateway.exact", "answers through the gateway against KServe's"),
    "guide_compilers": Bench("lab.guides.compilers", "compilers of JSON schemas: speed, coverage"),
    "guides": Bench("lab.guides.validity", "answers that follow guides, with each drafter"),
    "guides_speed": Bench("lab.guides.speed", "the cost of guides, and the gain of drafts in them"),
    "inside": Bench("lab.peers.inside", "our drafters inside vLLM, beside vLLM's own server"),
    "peers": Bench("lab.peers.peers", "other engines on the same weights and prompts"),
    "ramp": Bench("lab.load.ramp", "speculation on and off while the load of one server grows"),
    "record": Bench("lab.controller.record", "record acceptance and costs of a pair, for replay"),
    "reliability": Bench("reliability.cli", "stops, deaths, refusals and overload of a server"),
    "replay": Bench("lab.controller.replay", "the controller on recorded requests, simulated"),
    "speed": Bench("lab.speed.speed", "one stream: speculation on, off and the target alone"),
    "step": Bench("lab.speed.step", "a target pass against the time that reading its bytes takes"),
    "tasks": Bench("lab.speed.tasks", "ten kinds of task, each drafter: acceptance and speed"),
}


def main(argv: list[str] | None = None) -> int:
    """Run the bench that the first argument names and return its exit status.

    The status is 1 if no server starts, it refuses a request, or a file cannot be read, and 2 for
    an unknown bench.
    """
    arguments = sys.argv[1:] if argv is None else argv
    name = arguments[0] if arguments else ""
    if name in {"", "-h", "--help"}:
        print(_usage())
        return 0 if name else 2
    if name not in BENCHES:
        print(f"unknown bench {name!r}\n{_usage()}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"specdec.loadtest.{BENCHES[name].module}")
    # Without a handler, SIGTERM would leave the processes of the servers that a bench has started.
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        return int(module.main(arguments[1:]))
    except (SpecdecError, ConfigurationError, LaunchError, BuildError, OSError) as error:
        print(f"specdec bench {name}: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def _usage() -> str:
    lines = [f"  {name:<15} {each.summary}" for name, each in BENCHES.items()]
    return "\n".join(["usage: specdec bench BENCH [options]", "", *lines])
