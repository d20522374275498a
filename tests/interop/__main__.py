"""Tries clients against a real tritonserver with the gateway, and writes docs/interop.md.

python -m tests.interop                # all clients; writes the table
python -m tests.interop openai litellm # some; prints their table only

The exit status is 1 if a check failed.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specdec.clients import GenerationRequest, GrpcClient
from specdec.launch.triton_server import TritonServer
from tests.interop.clients.kit import EXPECTED_VARIABLE, Answer, Expected, Outcome, labelled
from tests.interop.environments import ROOT, environment, versions
from tests.interop.table import Trial, table_of, write

CLIENTS = {
    "openai": "OpenAI's package",
    "langchain": "LangChain, `ChatOpenAI` and `OpenAI`",
    "llamaindex": "LlamaIndex, `OpenAILike`",
    "litellm": "LiteLLM",
    "llamaindex_triton": "LlamaIndex, `NvidiaTriton` over gRPC",
    "langchain_triton": "LangChain, `TritonTensorRTLLM` over gRPC",
}
"""Titles of the clients in the table; each is a script of `clients/` and a file of requirements."""

QUESTION = "Write one sentence about a river."
PROMPT = "The three longest rivers of the world are"
MAX_TOKENS = 64
"""Most tokens of each answer; the one to the question ends by itself, with 48."""
CLIENT_S = 900.0
"""Seconds for all checks of a client, some of which may take the longest time for one."""
SETTINGS = {
    # Without a network: no price list, no tracing, no proxy in front of the loopback address.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
    "NO_PROXY": "127.0.0.1",
}


def main(names: list[str]) -> int:
    """Try these clients, all without names; return the exit status."""
    pythons = {name: environment(name) for name in names or CLIENTS}
    trials = []
    with _settings() as settings:
        for name, python in pythons.items():
            outcomes = list(_outcomes(name, python, settings))
            trials.append(Trial(CLIENTS[name], versions(name), outcomes))
            for each in outcomes:
                result = "ok" if each.ok else "FAILED"
                print(f"{name}: {each.name}: {result} {each.detail}", flush=True)
    print(table_of(trials))
    if not names:
        write(trials)
    return 1 if any(each.failures for each in trials) else 0


@contextmanager
def _settings() -> Iterator[dict[str, str]]:
    """Run a server, and yield the environment variables that a script needs."""
    with tempfile.TemporaryDirectory(prefix="specdec-interop-") as directory:
        key, keys = secrets.token_hex(16), Path(directory) / "keys"
        keys.write_text(f"{key}\n", "utf-8")
        log = Path(directory) / "server.log"
        with TritonServer(
            has_openai=True, gateway_args=("--api-key-file", str(keys)), log_path=log
        ) as server:
            yield (
                os.environ
                | SETTINGS
                | {
                    "OPENAI_BASE_URL": f"{server.openai_url}/v1",
                    "OPENAI_API_KEY": key,
                    "SPECDEC_GRPC_URL": server.grpc_url,
                    EXPECTED_VARIABLE: _expected(server.grpc_url).to_json(),
                }
            )


def _expected(grpc_url: str) -> Expected:
    """Ask for the expected answers with our own client."""
    with GrpcClient(grpc_url, timeout_s=120.0) as client:

        def ask(**given: object) -> Answer:
            found = client.generate(GenerationRequest(max_tokens=MAX_TOKENS, **given))
            end = found.end
            numbers = end.num_input_tokens, end.num_output_tokens
            return Answer(found.text, end.finish_reason, *numbers)

        return Expected(
            question=QUESTION,
            chat=ask(messages=[{"role": "user", "content": QUESTION}]),
            prompt=PROMPT,
            completion=ask(text_input=PROMPT),
            labelled=ask(text_input=labelled(QUESTION)),
            max_tokens=MAX_TOKENS,
        )


def _outcomes(name: str, python: Path, settings: dict[str, str]) -> Iterator[Outcome]:
    """Run a client's script; yield its checks' outcomes, and one of the script if it fails."""
    command = [str(python), "-m", f"tests.interop.clients.{name}"]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=settings,
            capture_output=True,
            text=True,
            timeout=CLIENT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        yield from _printed((error.stdout or b"").decode())
        yield Outcome("the whole script", ok=False, detail=f"has not ended within {CLIENT_S:g} s")
        return
    yield from _printed(done.stdout)
    if done.returncode:
        yield Outcome("the whole script", ok=False, detail=done.stderr[-2000:])


def _printed(text: str) -> Iterator[Outcome]:
    """Yield the outcomes among the lines that a script has printed; some clients print too."""
    for line in text.splitlines():
        if line.startswith('{"name":'):
            yield Outcome(**json.loads(line))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(CLIENTS)}")
    chosen = parser.parse_args().names
    if unknown := set(chosen) - CLIENTS.keys():
        parser.error(f"unknown clients: {', '.join(sorted(unknown))}")
    sys.exit(main(chosen))
