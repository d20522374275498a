"""`specdec bench gateway_exact`: the same chats through the gateway, over KServe, by the target.

Each chat is asked with each drafter: over gRPC, and through the gateway both streamed and in one
body. The tokens of all must be those of the model `target` alone, the texts equal, and the numbers
of tokens in `usage` right.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import urllib3

from specdec.clients import GenerationRequest, GenerationResult, GrpcClient, OpenAiClient
from specdec.clients.errors import SpecdecError
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.arguments import positive
from specdec.loadtest.kit import options
from specdec.loadtest.kit.arms import OFF, Arm
from specdec.loadtest.kit.asking import RequestSettings, find_at_once
from specdec.loadtest.kit.direct import DirectTarget
from specdec.loadtest.kit.prompts import TokenPrompt, as_tokens
from specdec.loadtest.kit.results import table_of
from specdec.loadtest.load.prompts import Prompt, load_prompts
from specdec.loadtest.load.settings import SHIPPED_PROMPTS

DRAFTERS = ("lookup", "suffix", "draft", "eagle3", "tree", "auto")
STREAMED, WHOLE, KSERVE = "gateway, streamed", "gateway, one body", "KServe"


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer, compared with the target's own."""

    prompt_id: str
    arm: str
    way: str
    has_tokens: bool
    """Whether its tokens are the target's."""
    has_text: bool
    """Whether its text is the one over KServe without speculation."""
    has_usage: bool
    """Whether the numbers of tokens that it reports are right."""

    @property
    def is_right(self) -> bool:
        return self.has_tokens and self.has_text and self.has_usage

    def __str__(self) -> str:
        return f"prompt {self.prompt_id}, {self.arm}, {self.way}: another answer"


@dataclass(frozen=True, slots=True)
class _Clients:
    """The clients of one server."""

    server: TritonServer
    kserve: GrpcClient
    streamed: OpenAiClient
    pool: urllib3.PoolManager

    def ask(self, prompt: Prompt, arm: Arm, max_tokens: int) -> Iterator[tuple[str, _Answer]]:
        """Yield each way with its answer to a chat. Raises SpecdecError if a request fails."""
        request = GenerationRequest(
            messages=[{"role": "user", "content": prompt.turns[0]}],
            max_tokens=max_tokens,
            **arm.fields(),
        )
        yield KSERVE, _of_result(self.kserve.generate(request))
        yield STREAMED, _of_result(self.streamed.generate(request))
        body = {
            "model": "specdec",
            "messages": request.messages,
            "max_completion_tokens": max_tokens,
            "temperature": 0,
            "return_token_ids": True,
            **{name: value for name, value in arm.fields().items() if value is not None},
        }
        url = f"{self.server.openai_url}/v1/chat/completions"
        answer = self.pool.request("POST", url, json=body)
        if answer.status != 200:
            raise SpecdecError(answer.data.decode(errors="replace"), error_type="gateway")
        yield WHOLE, _of_body(json.loads(answer.data))


@dataclass(frozen=True, slots=True)
class _Answer:
    tokens: tuple[int, ...]
    text: str
    num_prompt: int | None
    num_answer: int | None


def _of_result(result: GenerationResult) -> _Answer:
    end = result.end
    return _Answer(
        tuple(result.token_ids), result.text, end.num_input_tokens, end.num_output_tokens
    )


def _of_body(body: dict[str, Any]) -> _Answer:
    (choice,), usage = body["choices"], body["usage"]
    return _Answer(
        tuple(choice["token_ids"]),
        choice["message"]["content"],
        usage["prompt_tokens"],
        usage["completion_tokens"],
    )


def main(argv: list[str]) -> int:
    """Ask and compare; return 1 if an answer differs."""
    arguments = _parser().parse_args(argv)
    prompts = list(itertools.chain.from_iterable(arguments.prompts))
    tokens = as_tokens(prompts, arguments.model_repository)
    arms = [Arm.parse(OFF), *(Arm(name) for name in arguments.drafters)]
    settings = RequestSettings(arguments.max_tokens)
    with (
        TritonServer(arguments.model_repository, has_openai=True) as server,
        GrpcClient(server.grpc_url) as kserve,
        OpenAiClient(server.openai_url) as streamed,
    ):
        clients = _Clients(server, kserve, streamed, urllib3.PoolManager(maxsize=64))

        def compare(pair: tuple[Prompt, TokenPrompt]) -> list[Answered]:
            with closing(DirectTarget(server.grpc_url)) as target:
                wanted = target.generate(pair[1], settings).tokens
            return list(_compare(clients, pair, arms, arguments.max_tokens, wanted))

        pairs = list(zip(prompts, tokens, strict=True))
        found = find_at_once(compare, pairs, arguments.concurrency)
        clients.pool.clear()
    wrong = [each for each in found if not each.is_right]
    rows = _rows(found)
    facts = {"num_prompts": len(prompts), "arms": rows, "wrong": wrong}
    return options.finish(
        arguments, argv, facts, _table(rows), faults=[str(each) for each in wrong]
    )


def _compare(
    clients: _Clients,
    pair: tuple[Prompt, TokenPrompt],
    arms: Sequence[Arm],
    max_tokens: int,
    wanted: tuple[int, ...],
) -> Iterator[Answered]:
    prompt, tokens = pair
    text: str | None = None
    for arm in arms:
        for way, answer in clients.ask(prompt, arm, max_tokens):
            text = answer.text if text is None else text
            usage = (answer.num_prompt, answer.num_answer)
            yield Answered(
                prompt.prompt_id,
                str(arm),
                way,
                answer.tokens == wanted,
                answer.text == text,
                usage == (len(tokens.token_ids), len(wanted)),
            )


def _rows(found: Sequence[Answered]) -> list[dict[str, Any]]:
    """Return the numbers of right answers by arm and way."""
    keys = dict.fromkeys((each.arm, each.way) for each in found)
    rows = []
    for arm, way in keys:
        own = [each for each in found if (each.arm, each.way) == (arm, way)]
        numbers = {
            name: sum(getattr(each, name) for each in own)
            for name in ("has_tokens", "has_text", "has_usage")
        }
        rows.append({"arm": arm, "way": way, "num_answers": len(own), **numbers})
    return rows


def _table(rows: Sequence[dict[str, Any]]) -> str:
    return table_of(
        {
            "drafter": lambda row: row["arm"],
            "way": lambda row: row["way"],
            "answers": lambda row: str(row["num_answers"]),
            "the target's tokens": lambda row: str(row["has_tokens"]),
            "equal text": lambda row: str(row["has_text"]),
            "right usage": lambda row: str(row["has_usage"]),
        },
        rows,
    )


def _parser() -> argparse.ArgumentParser:
    parser = options.bench_parser("gateway_exact", __doc__)
    parser.add_argument(
        "--prompts",
        type=options.read_prompts,
        nargs="+",
        default=[
            load_prompts(SHIPPED_PROMPTS),
            load_prompts(SHIPPED_PROMPTS.parent / "short.jsonl"),
        ],
        help="JSONL files (default: our 200 prompts)",
    )
    options.add_max_tokens(parser, 32)
    parser.add_argument("--drafters", nargs="+", default=DRAFTERS, help=f"default: {DRAFTERS}")
    parser.add_argument("--concurrency", type=positive, default=4, help="prompts asked at once")
    return parser
