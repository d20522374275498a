"""`specdec bench record`: record a real server, as a basis for replaying the controller.

Acceptance comes from greedy answers to prompts that no training saw, with each drafter proposing as
many tokens as it can. The proposals of prompt lookup are computed from the answers. Times of rounds
come from the gaps between chunks, while all streams ask in the same way, for several numbers of
streams. Rounds whose draft costs no time come from correct predictions.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specdec.clients import GenerationRequest, GrpcClient
from specdec.drafting.copying.lookup import LookupDrafter
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.kit.options import add_max_tokens, add_numbers, bench_parser, read_prompts
from specdec.loadtest.kit.prompts import TokenPrompt, as_tokens, held_out_prompts
from specdec.loadtest.kit.results import command_line, conditions
from specdec.loadtest.lab.controller.default_pair import CANDIDATES, MAX_COPY_TOKENS, TIMED_LENGTHS
from specdec.loadtest.lab.controller.trace import (
    DEFAULT_TRACE,
    OFF,
    PLAIN_ROUND,
    ROWS,
    Answer,
    Cost,
    Trace,
)
from specdec.loadtest.load.prompts import Prompt
from specdec.steering.choices import COPY

TIMED = (
    *((name, length) for name, lengths in TIMED_LENGTHS.items() for length in lengths),
    *((ROWS, length) for length in (1, 3, 7, MAX_COPY_TOKENS)),
    (PLAIN_ROUND, 0),
    (OFF, 0),
)
NUM_PASSES = 2
"""Passes over everything that is timed, so that a slow phase of the machine affects all of it."""
TIMED_TOKENS, TIMED_ROUNDS = 72, 12
"""Length of an answer for one timing.

Answers of ROWS have at least TIMED_ROUNDS rounds if the whole prediction is accepted.
"""
KNOWN_TOKENS = TIMED_ROUNDS * (1 + max(length for kind, length in TIMED if kind == ROWS))
FIRST_ROUNDS = 3
"""First rounds of an answer that are not timed, because they also pay for the prompt."""
NUM_QUANTILES = 21
CONCURRENCY = 8
UNMATCHED = "~"
"""A prediction that no answer contains, so that its rounds have no draft tokens."""


@dataclass(frozen=True, slots=True)
class Received:
    """One answer as the client received it."""

    tokens: tuple[int, ...]
    text: str
    rounds: tuple[tuple[int, int], ...]
    """Tokens of each chunk, and how many of them a drafter had proposed."""
    times_s: tuple[float, ...]
    """Time of each chunk, by time.perf_counter()."""


def main(argv: list[str]) -> int:
    """Record a server into a file and return 0."""
    parser = bench_parser("record", __doc__, has_result=False)
    parser.add_argument("--prompts", type=read_prompts, help="JSONL file; default: ours, held out")
    parser.add_argument("--per-task", type=int, default=6, metavar="N", help="prompts per task")
    add_max_tokens(parser, 80)
    add_numbers(parser, "--streams", (1, 4, 16, 48), "loads to time")
    parser.add_argument("--trace", type=Path, default=DEFAULT_TRACE, help="the file to write")
    arguments = parser.parse_args(argv)
    repository, given, per_task = arguments.model_repository, arguments.prompts, arguments.per_task
    chosen = first_per_task(given, per_task) if given else held_out_prompts(per_task)
    prompts = as_tokens(chosen, repository)
    with TritonServer(repository) as server, GrpcClient(server.grpc_url) as client:
        answers = tuple(_answers(client, prompts, arguments.max_tokens))
        costs = tuple(_costs(client, prompts, arguments.streams))
    facts = {name: str(value) for name, value in conditions(command_line("record", argv)).items()}
    Trace(facts, answers, costs).write(arguments.trace)
    print(f"{len(answers)} answers, {len(costs)} costs: {arguments.trace}")
    return 0


def first_per_task(prompts: Iterable[Prompt], num_per_task: int) -> list[Prompt]:
    """Return the first prompts of each task, in their order."""
    numbers: dict[str, Iterator[int]] = defaultdict(itertools.count)
    return [each for each in prompts if next(numbers[each.category]) < num_per_task]


def _ask(client: GrpcClient, prompt: TokenPrompt, fields: Mapping[str, Any]) -> Received:
    tokens: list[int] = []
    rounds: list[tuple[int, int]] = []
    times_s: list[float] = []
    text = ""
    for chunk in client.stream(GenerationRequest(input_ids=list(prompt.token_ids), **fields)):
        times_s.append(time.perf_counter())
        tokens += chunk.token_ids
        text += chunk.text
        rounds.append((len(chunk.token_ids), sum(map(bool, chunk.sources))))
    return Received(tuple(tokens), text, tuple(rounds), tuple(times_s))


def _ask_all(
    client: GrpcClient, prompts: Sequence[TokenPrompt], fields: Mapping[str, Any]
) -> list[Received]:
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        return list(pool.map(lambda prompt: _ask(client, prompt, fields), prompts))


def _answers(
    client: GrpcClient, prompts: Sequence[TokenPrompt], max_tokens: int
) -> Iterator[Answer]:
    plain = _ask_all(client, prompts, {"num_draft_tokens": 0, "max_tokens": max_tokens})
    num_accepted: dict[str, list[tuple[int, ...]]] = {}
    for name, drafter in CANDIDATES.items():
        length = max(drafter.lengths)
        fields = {"drafter": name, "num_draft_tokens": length, "max_tokens": max_tokens}
        received = _ask_all(client, prompts, fields)
        num_accepted[name] = [
            accepted_by_position(each.rounds, len(each.tokens)) for each in received
        ]
        print(f"{name}: {len(received)} answers", file=sys.stderr)
    for number, (prompt, each) in enumerate(zip(prompts, plain, strict=True)):
        proposed, accepted = _copied(prompt.token_ids, each.tokens)
        own = {name: counts[number] for name, counts in num_accepted.items()} | {COPY: accepted}
        yield Answer(prompt.column, len(prompt.token_ids), len(each.tokens), proposed, own)


def accepted_by_position(rounds: Iterable[tuple[int, int]], num_tokens: int) -> tuple[int, ...]:
    """Return for each position of an answer how many tokens of a draft made there are accepted.

    `rounds` has the tokens of each round, and how many of them were draft tokens. Drafts depend on
    the context only, so a draft that is made within a round continues the round's own draft.
    """
    found = [0] * num_tokens
    position = 0
    for count, accepted in rounds:
        for step in range(accepted + 1):
            if position + step < num_tokens:
                found[position + step] = accepted - step
        position += count
    return tuple(found)


def _copied(
    prompt: tuple[int, ...], tokens: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the number of tokens that prompt lookup proposes before each token of the answer.

    A second tuple has how many of them would be accepted.
    """
    drafter = LookupDrafter(COPY, 1, 7, MAX_COPY_TOKENS)
    text = np.asarray((*prompt, *tokens), dtype=np.int32)
    proposed, accepted = [], []
    for position in range(len(tokens)):
        left = len(tokens) - position - 1
        drafted = drafter.propose(text[: len(prompt) + position], left).tokens if left else ()
        pairs = zip(drafted, tokens[position : position + len(drafted)], strict=True)
        right = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
        proposed.append(len(drafted))
        accepted.append(sum(1 for _ in right))
    return tuple(proposed), tuple(accepted)


def _costs(
    client: GrpcClient, prompts: Sequence[TokenPrompt], loads: Iterable[int]
) -> Iterator[Cost]:
    answers = _ask_all(client, prompts, {"num_draft_tokens": 0, "max_tokens": KNOWN_TOKENS})
    pairs = zip(prompts, answers, strict=True)
    long = [pair for pair in pairs if len(pair[1].tokens) == KNOWN_TOKENS]
    for num_streams in loads:
        asked = [long[number % len(long)] for number in range(max(2, num_streams))]
        gaps_ms: dict[tuple[str, int], list[float]] = defaultdict(list)
        for _ in range(NUM_PASSES):
            for kind, length in TIMED:
                received = _timed(client, asked, kind, length, num_streams)
                groups = [received] if num_streams > 1 else [[each] for each in received]
                for group in groups:
                    gaps_ms[kind, length] += [1000 * gap for gap in gaps_s(group, kind)]
        for (kind, length), found in gaps_ms.items():
            if not found:
                raise RuntimeError(
                    f"the answers of {num_streams} streams did not overlap, so {kind}:{length} was "
                    "not timed; use longer answers or fewer streams"
                )
            values = np.quantile(found, np.linspace(0.02, 0.98, NUM_QUANTILES))
            yield Cost(kind, length, num_streams, tuple(round(float(each), 3) for each in values))
            text = f"{num_streams} streams, {kind}:{length}: {np.median(found):.2f} ms"
            print(text, file=sys.stderr)


def _timed(
    client: GrpcClient,
    asked: Sequence[tuple[TokenPrompt, Received]],
    kind: str,
    length: int,
    num_streams: int,
) -> list[Received]:
    """Return the answers of `num_streams` streams that ask in the same way.

    `asked` has prompts with their known answers, which are the predictions of ROWS.
    """
    num_tokens = max(TIMED_TOKENS, TIMED_ROUNDS * (length + 1)) if kind == ROWS else TIMED_TOKENS

    def ask(pair: tuple[TokenPrompt, Received]) -> Received:
        prompt, known = pair
        special: dict[str, dict[str, Any]] = {
            OFF: {"num_draft_tokens": 0},
            PLAIN_ROUND: {"drafter": "prediction", "prediction": UNMATCHED},
            ROWS: {"drafter": "prediction", "prediction": known.text, "num_draft_tokens": length},
        }
        fields = special.get(kind, {"drafter": kind, "num_draft_tokens": length})
        return _ask(client, prompt, {"max_tokens": num_tokens, **fields})

    with ThreadPoolExecutor(num_streams) as pool:
        return list(pool.map(ask, asked))


def gaps_s(received: Sequence[Received], kind: str) -> list[float]:
    """Return the seconds between chunks while all streams answer.

    For ROWS, only gaps before chunks with accepted tokens count. Empty if an answer is too short.
    """
    if any(len(each.times_s) <= FIRST_ROUNDS for each in received):
        return []
    start_s = max(each.times_s[FIRST_ROUNDS - 1] for each in received)
    end_s = min(each.times_s[-2] for each in received)
    found = []
    for each in received:
        chunks = zip(each.times_s, each.rounds, strict=True)
        for (last_s, _), (now_s, (_, accepted)) in itertools.pairwise(chunks):
            is_shared = start_s <= last_s and now_s <= end_s
            if is_shared and (kind != ROWS or accepted):
                found.append(now_s - last_s)
    return found
