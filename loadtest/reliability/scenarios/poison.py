"""Send requests at the edges of all ranges beside streams whose tokens must not change."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from specdec.clients import GenerationRequest
from specdec.loadtest.reliability.kit.asking import Answer, Channels
from specdec.loadtest.reliability.kit.table import Row, counted, listed
from specdec.loadtest.reliability.kit.watched import described, watched_server

POISON_PER_ROUND = 350
NUM_WITNESSES = 8
NUM_POISONED_AT_ONCE = 8
WITNESS_TOKENS = 120
EDGES: dict[str, tuple[object, ...]] = {
    "temperature": (0.0, 1e-38, 1e-5, 1.0, 10.0),
    "top_p": (1e-38, 0.5, 1.0),
    "top_k": (0, 1, 2, 2**31 - 1),
    "min_p": (0.0, 1e-38, 1.0),
    "repetition_penalty": (0.01, 1.0, 100.0),
    "presence_penalty": (-2.0, 0.0, 2.0),
    "frequency_penalty": (-2.0, 0.0, 2.0),
    "min_tokens": (0, 4),
    "seed": (0, 2**64 - 1),
    "verification": ("exact", "rejection", "block", "typical"),
    "num_draft_tokens": (0, 1, 16),
    "drafter": ("auto", "none", "lookup", "draft", "eagle3", "eagle3_tree", "suffix", "tree"),
    "logit_bias": (
        {},
        {0: 100.0, 1: -100.0},
        dict.fromkeys(range(0, 49152, 2), -100.0),
    ),
    "bad_words": (
        (),
        ("e", " ", "a"),
        tuple(chr(code) for code in range(32, 127)),
        tuple("a" * length for length in range(20, 256)),
    ),
    "stop_words": ((), ("\ufffd", "<|im_end|>", "the")),
    "return_log_probs": (False, True),
}
BEYOND: dict[str, tuple[object, ...]] = {
    "temperature": (-1.0, 11.0, float("nan"), float("inf")),
    "top_p": (0.0, -1.0, 1.5, float("nan")),
    "min_p": (-0.1, 1.1),
    "repetition_penalty": (0.0, 1e-38, 1e38),
    "presence_penalty": (-2.1, float("-inf")),
    "num_draft_tokens": (17, -1),
}


@dataclass(frozen=True, slots=True)
class PoisonResult:
    """The outcomes of one round."""

    num_witnesses: int
    num_changed: int
    """Answers of witnesses that differ from those without poison, or ended without reason."""
    outcomes: tuple[str, ...]
    """Answer.outcome of the poisoned requests."""
    details: tuple[str, ...]
    """Errors that should not have come, and values beyond a range that were accepted."""


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Send POISON_PER_ROUND poisoned requests in each of `rounds`, on one server."""
    with watched_server(repository) as watched:
        url = watched.server.grpc_url
        results = [asyncio.run(play(url, POISON_PER_ROUND, seed)) for seed in range(rounds)]
        faults = watched.faults()
    outcomes = [each for result in results for each in result.outcomes]
    changed = sum(each.num_changed for each in results)
    details = [each for result in results for each in result.details]
    yield Row(
        f"{len(outcomes)} requests at the edges of all ranges beside {NUM_WITNESSES} streams",
        f"{sum(each.num_witnesses for each in results)} witnesses, {changed} changed; the others: "
        f"{counted(outcomes)}; wrong: {len(details)}{listed(details)}; {described(faults)}",
        "every witness whole and unchanged, no death, refused exactly beyond a range",
        not (changed or faults or details),
    )


async def play(url: str, count: int, seed: int) -> PoisonResult:
    """Send `count` poisoned requests beside witnesses, which ask again and again.

    Raises RuntimeError if a witness got no whole answer without poison.
    """
    draw = random.Random(seed)
    async with Channels(url, NUM_WITNESSES) as channels:
        known = await channels.ask_all([_witness(number) for number in range(NUM_WITNESSES)])
    if not all(each.is_complete for each in known):
        raise RuntimeError(f"witnesses without poison: {counted(each.outcome for each in known)}")
    poisoned: list[tuple[str, Answer]] = []
    numbers = iter(range(count))
    witnesses: list[tuple[int, Answer]] = []
    async with Channels(url, NUM_WITNESSES) as calm, Channels(url, NUM_POISONED_AT_ONCE) as other:

        async def witness(number: int) -> None:
            while len(poisoned) < count:
                witnesses.append((number, await calm.ask(number, _witness(number))))

        async def poisoner(number: int) -> None:
            for _ in numbers:
                request, beyond = poisoned_request(draw)
                poisoned.append((beyond, await other.ask(number, request)))

        await asyncio.gather(
            *(witness(n) for n in range(NUM_WITNESSES)),
            *(poisoner(n) for n in range(NUM_POISONED_AT_ONCE)),
        )
    return poison_result(known, witnesses, poisoned)


def poison_result(
    known: Sequence[Answer],
    witnesses: Sequence[tuple[int, Answer]],
    poisoned: Sequence[tuple[str, Answer]],
) -> PoisonResult:
    """Compare the witnesses' answers with the known ones, and check the poisoned requests.

    `witnesses` has the number of each witness and its answer. `poisoned` has the value beyond a
    range, empty if all were legal, and the answer.
    """
    details = []
    for beyond, answer in poisoned:
        if answer.is_complete and beyond:
            details.append(f"accepted beyond a range: {beyond}")
        elif not answer.is_complete and not (beyond and answer.error_type == "invalid_request"):
            details.append(answer.detail or answer.outcome)
    return PoisonResult(
        len(witnesses),
        sum(
            not each.is_complete or each.token_ids != known[number].token_ids
            for number, each in witnesses
        ),
        tuple(answer.outcome for _, answer in poisoned),
        tuple(details),
    )


def poisoned_request(draw: random.Random) -> tuple[GenerationRequest, str]:
    """Draw a value at an edge for every parameter; in one of ten requests, one is beyond its range.

    Returns the request and the value beyond a range, empty if all are legal.
    """
    fields = {name: draw.choice(values) for name, values in EDGES.items()}
    beyond = ""
    if draw.random() < 0.1:
        name = draw.choice(list(BEYOND))
        fields[name] = draw.choice(BEYOND[name])
        beyond = f"{name} = {fields[name]}"
    text = draw.choice(("Count: one, two,", "x", "\U0001f680", "a" * 300))
    max_tokens = draw.choice((4, 6))
    request = GenerationRequest(text_input=text, max_tokens=max_tokens, **fields)  # type: ignore[arg-type]
    return request, beyond


def _witness(number: int) -> GenerationRequest:
    drafters = ("auto", "none", "lookup", "draft")
    return GenerationRequest(
        text_input=f"{number}. Tell me about ships and the sea.",
        max_tokens=WITNESS_TOKENS,
        min_tokens=WITNESS_TOKENS,
        drafter=drafters[number % len(drafters)],
        temperature=0.8 * (number % 2),
        seed=number,
    )
