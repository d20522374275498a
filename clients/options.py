"""The command-line options that `specdec chat` and `specdec generate` share."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from specdec.clients.grpc_client import GrpcClient
from specdec.clients.http_client import HttpClient
from specdec.clients.request import GenerationRequest
from specdec.folders import default_model_repository

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from specdec.clients.attribution import Decode

Client = GrpcClient | HttpClient


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the server: protocol, address, model and timeout."""
    group = parser.add_argument_group("server")
    group.add_argument("--protocol", choices=("grpc", "http"), default="grpc")
    group.add_argument(
        "--url",
        help="host:port for gRPC (default 127.0.0.1, GRPC_PORT or 8001), http://host:port for "
        "HTTP (default 127.0.0.1, HTTP_PORT or 8000)",
    )
    group.add_argument("--model", default="specdec", help="model name (default: %(default)s)")
    group.add_argument(
        "--timeout-s", type=float, help="longest wait for an answer, in seconds (default: no limit)"
    )


def add_request_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for a request's parameters; the server has the defaults."""
    group = parser.add_argument_group("request (the server has the defaults)")
    group.add_argument("--max-tokens", type=int, metavar="N", help="most tokens of the answer")
    group.add_argument(
        "--num-draft-tokens",
        type=int,
        metavar="K",
        help="draft tokens per round; 0: no speculation",
    )
    group.add_argument("--drafter", help="name of a configured drafter, auto, or none")
    group.add_argument("--verification", help="exact, rejection, block or typical (lossy)")
    group.add_argument("--temperature", type=float, metavar="T", help="0: greedy")
    group.add_argument(
        "--top-p",
        type=float,
        metavar="P",
        help="sample from the likeliest tokens with probability P together",
    )
    group.add_argument("--top-k", type=int, metavar="N", help="sample from the N likeliest tokens")
    group.add_argument("--seed", type=int, metavar="N", help="seed of sampling")
    group.add_argument(
        "--stop",
        action="append",
        dest="stop_words",
        metavar="TEXT",
        help="text that ends the answer; may be repeated",
    )
    group.add_argument("--task", help="label by which acceptance is recorded")
    group.add_argument(
        "--deadline-ms", type=int, metavar="MS", help="time after which the server gives up"
    )


def open_client(args: argparse.Namespace) -> Client:
    """Return the client that the options describe; without --url, the environment has the port."""
    if args.protocol == "grpc":
        url = args.url or f"127.0.0.1:{os.environ.get('GRPC_PORT', '8001')}"
        return GrpcClient(url, model_name=args.model, timeout_s=args.timeout_s)
    url = args.url or f"http://127.0.0.1:{os.environ.get('HTTP_PORT', '8000')}"
    return HttpClient(url, model_name=args.model, timeout_s=args.timeout_s)


def build_request(args: argparse.Namespace, **prompt: Any) -> GenerationRequest:
    """Return a request from the options and a prompt (`text_input` or `messages`).

    It asks for the statistics of speculation too.
    """
    names = [each.name for each in fields(GenerationRequest)]
    options = {name: getattr(args, name) for name in names if hasattr(args, name)}
    return GenerationRequest(**options, **prompt, return_perf_metrics=True)


def load_decoder(directory: str | None) -> Callable[[], Decode] | None:
    """Return a function that makes a new token-by-token decoder for each answer.

    The tokenizer is `tokenizer.json` in `directory`. With None it is the target's in our model
    repository, and the result is None if there is no such file. Raises FileNotFoundError if
    `directory` has no `tokenizer.json`.
    """
    path = Path(directory or default_model_repository() / "target/1/checkpoint") / "tokenizer.json"
    if not path.is_file():
        if directory:
            raise FileNotFoundError(path)
        return None
    tokenizer = Tokenizer.from_file(str(path))

    def new_decoder() -> Decode:
        stream = DecodeStream(skip_special_tokens=True)
        return lambda token_id: stream.step(tokenizer, token_id)

    return new_decoder
