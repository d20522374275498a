"""`specdec bench record`: what the controller is replayed against, from a real server.

How far each drafter is right: greedy answers to held-out prompts of ours, with each drafter making
as many guesses as it can; what copying offers is worked out from the answers. What rounds cost: all
streams ask in the same way, for some numbers of streams, and the gaps between the chunks that they
receive are taken. Rows without a drafter's time come from predictions that are right.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clients import GenerationRequest, GrpcClient
from loadtest.bench.prompting import TokenPrompt, as_tokens, held_out_prompts
from loadtest.bench.reporting import command_line, conditions
from loadtest.replay.trace import DEFAULT_TRACE, OFF, PLAIN_ROUND, ROWS, Answer, Cost, Trace
from specdec.drafting.lookup import LookupDrafter
from specdec.serving.launcher import TritonServer

COPYING = "copy"
RECORDED = {"draft": 6, "eagle3": 6, "eagle3_tree": 8}
"""Guesses a round, by drafter, for how far it is right."""
TIMED = (
    *(("draft", length) for length in (1, 2, 4)),
    *(("eagle3", length) for length in (1, 2, 3, 6)),
    ("eagle3_tree", 8),
    *((ROWS, length) for length in (1, 3, 7, 11)),
    (PLAIN_ROUND, 0),
    (OFF, 0),
)
NUM_PASSES = 2
"""Over all that is timed, in turns: a machine that is slow for a while is so for all of it."""
TIMED_TOKENS, TIMED_ROUNDS = 72, 12
"""Of an answer by which a way is timed once; with as many rounds if it is all predicted."""
KNOWN_TOKENS = TIMED_ROUNDS * (1 + max(length for kind, length in TIMED if kind == ROWS))
FIRST_ROUNDS = 3
"""They pay for the prompt."""
NUM_QUANTILES = 21
CONCURRENCY = 8
NEVER_MET = "~"


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer as the client heard it."""

    tokens: tuple[int, ...]
    text: str
    rounds: tuple[tuple[int, int], ...]
    """Of each chunk: its tokens, and how many of them a drafter had proposed."""
    times_s: tuple[float, ...]
    """When the chunks came."""


def main(argv: list[str]) -> int:
    """Record; 0 always."""
    arguments = _parser().parse_args(argv)
    checkpoint = arguments.model_repository / "target" / "1" / "checkpoint"
    prompts, _ = as_tokens(held_out_prompts(arguments.per_task), checkpoint)
    with (
        TritonServer(arguments.model_repository) as server,
        closing(GrpcClient(server.grpc_url)) as client,
    ):
        answers = _answers(Asker(client, arguments.max_tokens), prompts)
        costs = list(_costs(Asker(client, KNOWN_TOKENS), prompts, arguments.streams))
    facts = {name: str(value) for name, value in conditions(command_line("record", argv)).items()}
    Trace(facts, tuple(answers), tuple(costs)).write(arguments.trace)
    print(f"{len(answers)} answers, {len(costs)} costs: {arguments.trace}")
    return 0


class Asker:
    """Asks the server in one way or another."""

    def __init__(self, client: GrpcClient, max_tokens: int) -> None:
        self._client = client
        self._defaults = {"max_tokens": max_tokens}

    def ask(self, prompt: TokenPrompt, fields: Mapping[str, Any]) -> Heard:
        asked = {"input_ids": list(prompt.token_ids), **self._defaults, **fields}
        request = GenerationRequest(**asked)
        tokens: list[int] = []
        rounds: list[tuple[int, int]] = []
        times_s: list[float] = []
        text = ""
        for chunk in self._client.stream(request):
            times_s.append(time.perf_counter())
            tokens += chunk.token_ids
            text += chunk.text
            rounds.append((len(chunk.token_ids), sum(map(bool, chunk.sources))))
        return Heard(tuple(tokens), text, tuple(rounds), tuple(times_s))

    def ask_all(
        self, prompts: Iterable[TokenPrompt], fields: Mapping[str, Any], num_streams: int
    ) -> list[Heard]:
        with ThreadPoolExecutor(num_streams) as pool:
            return list(pool.map(lambda prompt: self.ask(prompt, fields), prompts))


def _answers(asker: Asker, prompts: tuple[TokenPrompt, ...]) -> list[Answer]:
    plain = asker.ask_all(prompts, {"num_draft_tokens": 0}, CONCURRENCY)
    right: dict[str, list[tuple[int, ...]]] = {}
    for name, length in RECORDED.items():
        fields = {"drafter": name, "num_draft_tokens": length}
        heard = asker.ask_all(prompts, fields, CONCURRENCY)
        right[name] = [how_far_right(each.rounds, len(each.tokens)) for each in heard]
        print(f"{name}: {len(heard)} answers", file=sys.stderr)
    answers = []
    for place, (prompt, each) in enumerate(zip(prompts, plain, strict=True)):
        offered, stood = _copied(prompt.token_ids, each.tokens)
        own = {name: counts[place] for name, counts in right.items()}
        answers.append(
            Answer(
                prompt.column,
                len(prompt.token_ids),
                len(each.tokens),
                offered,
                {**own, COPYING: stood},
            )
        )
    return answers


def how_far_right(rounds: Iterable[tuple[int, int]], num_tokens: int) -> tuple[int, ...]:
    """By place in the answer: how many guesses of a draft made there would stand.

    Between rounds a draft would say the rest of what the last one said: guesses depend on the text
    alone.
    """
    found = [0] * num_tokens
    place = 0
    for count, accepted in rounds:
        for step in range(accepted + 1):
            if place + step < num_tokens:
                found[place + step] = accepted - step
        place += count
    return tuple(found)


def _copied(
    prompt: tuple[int, ...], tokens: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What prompt lookup offers before each token, and how much of it would stand."""
    drafter = LookupDrafter(COPYING, 1, 7, 11)
    text = np.asarray((*prompt, *tokens), dtype=np.int32)
    offered, stood = [], []
    for place in range(len(tokens)):
        left = len(tokens) - place - 1
        guesses = drafter.propose(text[: len(prompt) + place], left).tokens if left else ()
        following = tokens[place : place + len(guesses)]
        wrong = [
            i for i, pair in enumerate(zip(guesses, following, strict=True)) if len(set(pair)) > 1
        ]
        offered.append(len(guesses))
        stood.append(wrong[0] if wrong else len(guesses))
    return tuple(offered), tuple(stood)


def _costs(asker: Asker, prompts: tuple[TokenPrompt, ...], loads: Iterable[int]) -> Iterable[Cost]:
    answers = asker.ask_all(prompts, {"num_draft_tokens": 0}, CONCURRENCY)
    long = [pair for pair in zip(prompts, answers, strict=True) if is_long(pair[1])]
    for num_streams in loads:
        asked = [long[place % len(long)] for place in range(max(2, num_streams))]
        gaps_ms: dict[tuple[str, int], list[float]] = defaultdict(list)
        for _ in range(NUM_PASSES):
            for kind, length in TIMED:
                heard = _timed(asker, asked, kind, length, num_streams)
                together = [heard] if num_streams > 1 else [[each] for each in heard]
                for group in together:
                    gaps_ms[kind, length] += [1000 * gap for gap in gaps_s(group, kind)]
        for (kind, length), found in gaps_ms.items():
            if not found:
                raise RuntimeError(
                    f"{num_streams} streams never answered together by {kind}:{length}"
                )
            quantiles = np.quantile(found, np.linspace(0.02, 0.98, NUM_QUANTILES))
            yield Cost(
                kind, length, num_streams, tuple(round(float(each), 3) for each in quantiles)
            )
            print(
                f"{num_streams} streams, {kind}:{length}: {statistics.median(found):.2f} ms",
                file=sys.stderr,
            )


def is_long(heard: Heard) -> bool:
    """Whether the answer goes on to the last token that was asked for."""
    return len(heard.tokens) == KNOWN_TOKENS


def _timed(
    asker: Asker,
    asked: list[tuple[TokenPrompt, Heard]],
    kind: str,
    length: int,
    num_streams: int,
) -> list[Heard]:
    """`asked`: prompts, and their answers as they are known."""
    num_tokens = max(TIMED_TOKENS, TIMED_ROUNDS * (length + 1)) if kind == ROWS else TIMED_TOKENS
    fields: dict[str, Any] = {"num_draft_tokens": length, "max_tokens": num_tokens}
    if kind not in (OFF, ROWS, PLAIN_ROUND):
        fields["drafter"] = kind

    def ask(pair: tuple[TokenPrompt, Heard]) -> Heard:
        prompt, known = pair
        if kind == ROWS:
            return asker.ask(prompt, fields | {"drafter": "prediction", "prediction": known.text})
        if kind == PLAIN_ROUND:
            never = {"drafter": "prediction", "prediction": NEVER_MET}
            return asker.ask(prompt, never | {"max_tokens": num_tokens})
        return asker.ask(prompt, fields)

    with ThreadPoolExecutor(num_streams) as pool:
        return list(pool.map(ask, asked))


def gaps_s(heard: Sequence[Heard], kind: str) -> list[float]:
    """Between chunks, as long as all of them answer; of ROWS where the prediction was taken up."""
    if any(len(each.times_s) <= FIRST_ROUNDS for each in heard):
        return []
    start_s = max(each.times_s[FIRST_ROUNDS - 1] for each in heard)
    end_s = min(each.times_s[-2] for each in heard)
    found = []
    for each in heard:
        chunks = zip(each.times_s, each.rounds, strict=True)
        for (last_s, _), (now_s, (_, accepted)) in itertools.pairwise(chunks):
            is_shared = start_s <= last_s and now_s <= end_s
            if is_shared and (kind != ROWS or accepted):
                found.append(now_s - last_s)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench record", description=__doc__)
    parser.add_argument("--per-task", type=int, default=6, metavar="N", help="prompts of a task")
    parser.add_argument("--max-tokens", type=int, default=80)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 16, 48])
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--trace", type=Path, default=DEFAULT_TRACE, help="the file to write")
    return parser
