"""The command `specdec generate`: one prompt, one answer."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from specdec.clients.errors import SpecdecError
from specdec.clients.figures import describe_answer
from specdec.clients.options import (
    Client,
    add_request_arguments,
    add_server_arguments,
    build_request,
    open_client,
)
from specdec.clients.response import Chunk, GenerationResult, collect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from specdec.clients.request import GenerationRequest


def main(argv: list[str]) -> int:
    """Run the command; return 0, 1 if the request failed, 130 if it was cancelled by Ctrl-C."""
    args = _parser().parse_args(argv)
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    if args.chat:
        request = build_request(args, messages=[{"role": "user", "content": prompt}])
    else:
        request = build_request(args, text_input=prompt)
    try:
        with open_client(args) as client:
            return _run(client, request, args)
    except SpecdecError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ncancelled", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec generate",
        description="Send one prompt and print the answer as it is confirmed; figures about it "
        "go to standard error.",
    )
    parser.add_argument("prompt", help="the prompt, used as it is; - reads standard input")
    parser.add_argument("--chat", action="store_true", help="send it as a user's chat message")
    parser.add_argument("--no-stream", action="store_true", help="wait for the whole answer")
    parser.add_argument("--json", action="store_true", help="print answer and figures as JSON")
    parser.add_argument("--quiet", action="store_true", help="print no figures")
    add_server_arguments(parser)
    add_request_arguments(parser)
    return parser


def _run(client: Client, request: GenerationRequest, args: argparse.Namespace) -> int:
    start = time.perf_counter()
    if args.no_stream:
        result = client.generate(request)
        first_token_s = None
        if not args.json:
            print(result.text, end="")
    else:
        arrivals_s: list[float] = []
        chunks = client.stream(request)
        result = collect(_watch(chunks, start, arrivals_s, show=not args.json))
        first_token_s = arrivals_s[0] if arrivals_s else None
    total_s = time.perf_counter() - start
    if args.json:
        print(json.dumps(_as_json(result, first_token_s, total_s), ensure_ascii=False))
    else:
        print()
    if not args.quiet:
        figures = describe_answer(result.end, len(result.token_ids), first_token_s, total_s)
        print(f"[{figures}]", file=sys.stderr)
    return 0


def _watch(
    chunks: Iterable[Chunk], start: float, arrivals_s: list[float], *, show: bool
) -> Iterator[Chunk]:
    """Pass chunks on, show them, and append arrival times of chunks with tokens to `arrivals_s`.

    The times are seconds since `start`, a reading of time.perf_counter().
    """
    for chunk in chunks:
        if chunk.token_ids:
            arrivals_s.append(time.perf_counter() - start)
        if show:
            print(chunk.text, end="", flush=True)
        yield chunk


def _as_json(
    result: GenerationResult, first_token_s: float | None, total_s: float
) -> dict[str, object]:
    times = {"time_to_first_token_s": first_token_s, "e2e_s": total_s}
    return asdict(result) | times


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
