"""`specdec bench record`: record a real server, as a basis for replaying the controller.

Acceptance comes from greedy answers to held-out prompts of ours, with each drafter proposing as
many tokens as it can. The proposals of prompt lookup are computed from the answers. Times of rounds
come from the gaps between chunks, while all streams ask in the same way, for several numbers of
streams. Rounds whose draft costs no time come from correct predictions.
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
"""Draft tokens per round, by drafter, for the record of acceptance."""
TIMED = (
    *(("draft", length) for length in (1, 2, 4)),
    *(("eagle3", length) for length in (1, 2, 3, 6)),
    ("eagle3_tree", 8),
    *((ROWS, length) for length in (1, 3, 7, 11)),
    (PLAIN_ROUND, 0),
    (OFF, 0),
)
NUM_PASSES = 2
"""Passes over everything that is timed, so that a slow while of the machine slows all of it."""
TIMED_TOKENS, TIMED_ROUNDS = 72, 12
"""Length of an answer for one timing.

Answers of ROWS have at least TIMED_ROUNDS rounds if the whole prediction is accepted.
"""
KNOWN_TOKENS = TIMED_ROUNDS * (1 + max(length for kind, length in TIMED if kind == ROWS))
FIRST_ROUNDS = 3
"""First rounds of an answer that are not timed, because they also pay for the prompt."""
NUM_QUANTILES = 21
CONCURRENCY = 8
NEVER_MET = "~"


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer as the client received it."""

    tokens: tuple[int, ...]
    text: str
    rounds: tuple[tuple[int, int], ...]
    """Tokens of each chunk, and how many of them a drafter had proposed."""
    times_s: tuple[float, ...]
    """Time of each chunk, by time.perf_counter()."""


def main(argv: list[str]) -> int:
    """Record a server into a file and return 0."""
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
    """Asks the server, with given fields of the request."""

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
    """Return for each position of an answer how many tokens of a draft made there are accepted.

    `rounds` has the tokens of each round, and how many of them were draft tokens. Drafts depend on
    the context only, so a draft that is made within a round continues the round's own draft.
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
    """Return the number of tokens that prompt lookup proposes before each token of the answer.

    A second tuple has how many of them would be accepted.
    """
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
    """Tell whether the answer has as many tokens as were asked for."""
    return len(heard.tokens) == KNOWN_TOKENS


def _timed(
    asker: Asker,
    asked: list[tuple[TokenPrompt, Heard]],
    kind: str,
    length: int,
    num_streams: int,
) -> list[Heard]:
    """Return the answers of `num_streams` streams that ask in the same way.

    `asked` has prompts with their known answers, which are the predictions of ROWS.
    """
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
    """Return the seconds between chunks while all streams answer.

    Of ROWS, only gaps before chunks with accepted tokens count. Empty if an answer is too short.
    """
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
