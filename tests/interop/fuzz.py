"""Requests that Schemathesis makes up from the gateway's OpenAPI page, against a live server.

    python -m tests.interop.fuzz --cases 5000

It checks for every case: an answer within 60 s, no status from 500 on but 503, `Retry-After` with
429 and 503, and errors in OpenAI's form. A request that breaks the page's rules is refused, and one
that keeps all rules (`fuzz_page`) is answered 200. At the end no request runs, and gateway and
server are the same processes as before. The exit status is 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from specdec.health.processes import all_processes
from specdec.launch.triton_server import TritonServer
from specdec.metrics_page import samples_on
from tests.interop.environments import environment
from tests.interop.fuzz_page import narrowed

HOOKS = Path(__file__).with_name("fuzz_hooks.py")
EXAMPLES = 250
"""Requests that each run of Schemathesis makes up for each route, beside those of its coverage."""
TIMEOUT_S = 60
FIRST_PHASES, MORE_PHASES = "examples,coverage,fuzzing", "fuzzing"
"""Phases of Schemathesis. Coverage makes up the same requests each time. The phase `stateful` is
left out: it would follow the links of a page, and ours has none."""
CHECKS = "keeps_the_promises"
MORE_CHECKS = (
    "negative_data_rejection,unsupported_method,allow_header_conformance,"
    "status_code_conformance,content_type_conformance,response_schema_conformance"
)
"""Checks of Schemathesis itself that also hold for requests that break rules."""
QUIET_S = 10.0
"""Longest wait in seconds until no request runs."""


@dataclass(frozen=True)
class Run:
    """One run of Schemathesis."""

    page: Path
    """OpenAPI page from which the requests are made up."""
    phases: str
    is_valid_only: bool
    """Whether all requests keep all rules, also those that the gateway's page does not have."""
    seed: int

    @property
    def options(self) -> list[str]:
        """The options of `schemathesis run` that differ between runs."""
        checks = CHECKS if self.is_valid_only else f"{CHECKS},{MORE_CHECKS}"
        mode = "positive" if self.is_valid_only else "all"
        words = {"--phases": self.phases, "--mode": mode, "--checks": checks}
        return [
            str(self.page),
            "--seed",
            str(self.seed),
            *(w for pair in words.items() for w in pair),
        ]


def main(arguments: list[str]) -> int:
    """Make the cases and print their numbers; return 1 if a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=5000, help="least number of requests")
    wanted = parser.parse_args(arguments).cases
    python = environment("schemathesis")
    with tempfile.TemporaryDirectory(prefix="specdec-fuzz-") as folder:
        directory = Path(folder)
        log = directory / "server.log"
        with TritonServer(has_openai=True, log_path=log) as server:
            before = _processes(server)
            are_kept = _fuzz(server, python, directory, wanted)
            faults = _faults_at_the_end(server, before, log)
        cases = [json.loads(line) for line in (directory / "cases").read_text().splitlines()]
    for line in _summary(cases):
        _tell(line)
    for fault in faults:
        _tell(f"broken: {fault}")
    return 0 if are_kept and not faults else 1


def _fuzz(server: TritonServer, python: Path, directory: Path, wanted: int) -> bool:
    """Run Schemathesis until there are enough cases; return whether its checks held."""
    cases, num_cases, are_kept = directory / "cases", 0, True
    runs = _runs(server, directory)
    while are_kept and num_cases < wanted:
        are_kept = _run(next(runs), server.openai_url, python, cases)
        num_cases = len(cases.read_text().splitlines())
        _tell(f"{num_cases} cases")
    return are_kept


def _runs(server: TritonServer, directory: Path) -> Iterator[Run]:
    """Yield runs without an end: with the gateway's page, and with the narrower one, in turn."""
    page = urllib3.request("GET", f"{server.openai_url}/openapi.json").json()
    own, narrow = directory / "own.json", directory / "narrow.json"
    own.write_text(json.dumps(page))
    narrow.write_text(json.dumps(narrowed(page)))
    seed, phases = 0, FIRST_PHASES
    while True:
        yield Run(own, phases, is_valid_only=False, seed=seed)
        yield Run(narrow, phases, is_valid_only=True, seed=seed)
        seed, phases = seed + 1, MORE_PHASES


def _run(run: Run, url: str, python: Path, cases: Path) -> bool:
    """Run Schemathesis once; return whether all its checks held."""
    settings = cases.with_name("schemathesis.toml")
    # The default is 20, after which Schemathesis hangs up.
    settings.write_text("max-stream-events = 100000\n")
    # The hooks say what the variables mean; they can be imported only beside Schemathesis.
    own = {"SCHEMATHESIS_HOOKS": str(HOOKS), "SPECDEC_FUZZ_CASES": str(cases)}
    if run.is_valid_only:
        own["SPECDEC_FUZZ_ALL_VALID"] = "1"
    command = [str(python), "-m", "schemathesis.cli", "--config-file", str(settings), "run"]
    command += [*run.options, "--url", url, "--max-examples", str(EXAMPLES), "--no-color"]
    command += ["--request-timeout", str(TIMEOUT_S), "--continue-on-failure"]
    # Otherwise each field with "token" in its name would be left out of the report.
    command += ["--output-sanitize", "false", "--suppress-health-check", "all"]
    done = subprocess.run(command, cwd=cases.parent, env=os.environ | own, check=False)
    return done.returncode == 0


def _processes(server: TritonServer) -> set[tuple[int, int]]:
    """Return id and start of all descendants of this process; a restart changes them."""
    running = {each.pid: each for each in all_processes()}
    found, ids = set(), {os.getpid()}
    while ids:
        ids = {each.pid for each in running.values() if each.parent in ids}
        found |= {(pid, running[pid].start_ticks) for pid in ids}
    assert server.pid in dict(found)
    return found


def _faults_at_the_end(server: TritonServer, before: set[tuple[int, int]], log: Path) -> list[str]:
    """Return the promises about gateway and server that are broken after all cases."""
    faults = []
    # The gateway counts the request for the page itself.
    gauges = {
        f"{server.openai_url}/metrics": ("specdec_gateway_running_requests", 1.0),
        server.metrics_url: ("specdec_inflight_requests", 0.0),
    }
    deadline_s = time.monotonic() + QUIET_S
    for url, (name, expected) in gauges.items():
        while (found := _gauge(url, name)) != expected and time.monotonic() < deadline_s:
            time.sleep(0.1)
        _tell(f"at the end {name} is {found:g}")
        if found != expected:
            faults.append(f"{name} is {found:g} and not {expected:g}")
    if gone := before - _processes(server):
        faults.append(f"{len(gone)} processes have ended")
    if "Traceback" in log.read_text(errors="replace"):
        faults.append("the log has a traceback")
    return faults


def _gauge(url: str, name: str) -> float:
    """Return the sum of a metric over all labels."""
    page = urllib3.request("GET", url).data.decode()
    values = [each.value for each in samples_on(page) if each.name == name]
    assert values, f"{url} has no {name}"
    return sum(values)


def _tell(line: str) -> None:
    """Print a line at once, because Schemathesis prints to the same place."""
    print(line, flush=True)


def _summary(cases: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines about all cases: their numbers, the slowest one, and what was broken."""
    yield f"{len(cases)} cases"
    by_status = Counter(each["status"] for each in cases)
    for status, number in sorted(by_status.items()):
        yield f"  {status or 'no answer'}: {number} ({100 * number / len(cases):.1f} %)"
    generating = Counter(
        (each["operation"], each["status"])
        for each in cases
        if each["operation"].startswith("POST /v1/") and each["operation"].endswith("completions")
    )
    for (operation, status), number in sorted(generating.items()):
        yield f"  {operation} {status}: {number}"
    for group, number in sorted(Counter((each["phase"], each["mode"]) for each in cases).items()):
        yield f"  {' '.join(group)}: {number}"
    slowest = max(cases, key=lambda each: each["seconds"])
    yield f"slowest: {slowest['seconds']:.2f} s, {slowest['operation']}, {slowest['status']}"
    for fault, number in Counter(each["fault"] for each in cases if each["fault"]).most_common():
        yield f"broken: {number} times {fault}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
