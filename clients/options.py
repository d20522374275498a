"""The command-line options that `specdec chat` and `specdec generate` share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from specdec.clients.grpc_client import GrpcClient
from specdec.clients.http_client import HttpClient
from specdec.clients.openai_client import OpenAiClient
from specdec.clients.request import INPUTS, GenerationRequest
from specdec.folders import default_model_repository

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from specdec.clients.attribution import Decode

Client = GrpcClient | HttpClient | OpenAiClient

REQUEST_OPTIONS = {
    "max_tokens": ("--max-tokens", "N", "most tokens of the answer"),
    "min_tokens": ("--min-tokens", "N", "fewest tokens of the answer"),
    "drafter": ("--drafter", "NAME", "name of a configured drafter, auto, or none"),
    "num_draft_tokens": ("--num-draft-tokens", "K", "draft tokens per round; 0: no speculation"),
    "prediction": ("--prediction", "TEXT", "text that the answer will mostly repeat"),
    "verification": ("--verification", "MODE", "exact, rejection, block or typical (lossy)"),
    "temperature": ("--temperature", "T", "0: greedy"),
    "top_p": ("--top-p", "P", "sample from the likeliest tokens with probability P together"),
    "min_p": ("--min-p", "P", "sample tokens with at least P times the highest probability"),
    "top_k": ("--top-k", "N", "sample from the N likeliest tokens"),
    "seed": ("--seed", "N", "seed of sampling"),
    "repetition_penalty": ("--repetition-penalty", "R", "above 1: earlier tokens get rarer"),
    "presence_penalty": (
        "--presence-penalty",
        "X",
        "subtracted from the logits of tokens that the answer has already",
    ),
    "frequency_penalty": (
        "--frequency-penalty",
        "X",
        "subtracted once for each time the answer has the token",
    ),
    "stop_words": ("--stop", "TEXT", "text that ends the answer; may be repeated"),
    "bad_words": ("--bad-words", "TEXT", "text that the answer must not have; may be repeated"),
    "guided_decoding_guide_type": (
        "--guide-type",
        "TYPE",
        "form of the answer: json, json_schema, regex, ebnf_grammar or structural_tag",
    ),
    "guided_decoding_guide": ("--guide", "TEXT", "the schema, expression or grammar of that form"),
    "task": ("--task", "LABEL", "label by which acceptance is recorded"),
    "tenant": ("--tenant", "NAME", "whose share of the server the request uses"),
    "deadline_ms": ("--deadline-ms", "MS", "time after which the server gives up"),
}
"""Option, placeholder and help of each input that the commands take."""

INPUTS_WITHOUT_OPTION = frozenset(
    {
        # The commands set these themselves.
        *("text_input", "messages", "stream", "exclude_input_in_output", "return_perf_metrics"),
        # Token ids, logit biases and log-probabilities are for programs.
        *("input_ids", "end_id", "pad_id", "logit_bias"),
        *("return_log_probs", "num_top_log_probs"),
        *("stop_token_ids", "skip_special_tokens", "return_prompt_token_ids"),
        # The commands show text, and a call is for a program.
        "tools",
        # The commands send one message, and want a new one.
        *("add_generation_prompt", "continue_final_message"),
        # Load generators use it, to get answers of one length.
        "ignore_eos",
        # Another name of `seed`.
        "random_seed",
    }
)
"""Inputs that the commands do not take; a test checks that no input is forgotten."""

_TYPES = {"BYTES": str, "INT32": int, "UINT64": int, "FP32": float}


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the server: protocol, address, model and timeout."""
    group = parser.add_argument_group("server")
    group.add_argument("--protocol", choices=("grpc", "http", "openai"), default="grpc")
    group.add_argument(
        "--url",
        help="host:port for gRPC (default 127.0.0.1, GRPC_PORT or 8001), http://host:port for "
        "HTTP (default 127.0.0.1, HTTP_PORT or 8000) and OpenAI's API (OPENAI_PORT or 9000)",
    )
    group.add_argument(
        "--api-key",
        default=os.environ.get("SPECDEC_API_KEY", ""),
        help="key for OpenAI's API (default: $SPECDEC_API_KEY)",
    )
    group.add_argument("--model", default="specdec", help="model name (default: %(default)s)")
    group.add_argument(
        "--timeout-s", type=float, help="longest time of a request, in seconds (default: no limit)"
    )


def add_request_arguments(
    parser: argparse.ArgumentParser, names: Iterable[str] = REQUEST_OPTIONS
) -> None:
    """Add the options for the inputs in `names`; the server has the defaults."""
    group = parser.add_argument_group("request (the server has the defaults)")
    for name in names:
        (option, metavar, text), spec = REQUEST_OPTIONS[name], INPUTS[name]
        group.add_argument(
            option,
            dest=name,
            type=_TYPES[spec.datatype],
            action="append" if spec.is_list else "store",
            metavar=metavar,
            help=text,
        )


def open_client(args: argparse.Namespace) -> Client:
    """Return the client that the options describe; without --url, the environment has the port."""
    if args.protocol == "grpc":
        url = args.url or f"127.0.0.1:{os.environ.get('GRPC_PORT', '8001')}"
        return GrpcClient(url, model_name=args.model, timeout_s=args.timeout_s)
    if args.protocol == "openai":
        url = args.url or f"http://127.0.0.1:{os.environ.get('OPENAI_PORT', '9000')}"
        return OpenAiClient(
            url, model_name=args.model, timeout_s=args.timeout_s, api_key=args.api_key
        )
    url = args.url or f"http://127.0.0.1:{os.environ.get('HTTP_PORT', '8000')}"
    return HttpClient(url, model_name=args.model, timeout_s=args.timeout_s)


def build_request(args: argparse.Namespace, **prompt: Any) -> GenerationRequest:
    """Return a request from the options and a prompt (`text_input` or `messages`).

    It asks for the statistics of speculation too.
    """
    options = {name: getattr(args, name) for name in REQUEST_OPTIONS}
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
