"""Send broken and hostile guides beside requests that must not notice them."""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.clients import GenerationRequest
from specdec.loadtest.kit.ratios import Timed, ratio
from specdec.loadtest.reliability.kit.asking import Answer, Channels
from specdec.loadtest.reliability.kit.resources import resources_of, settled
from specdec.loadtest.reliability.kit.table import Row, counted, listed
from specdec.loadtest.reliability.kit.watched import described, watched_server

NUM_CLIENTS = 8
"""Clients of good requests, each asking again at once."""
NUM_GOOD = 56
"""Good requests of a pass."""
GOOD_PER_HOSTILE = 2
"""Good requests that end before the next hostile one is sent: a third of all are hostile."""
NUM_TOKENS = 48
MIN_RATIO = 0.9
"""Least upper end of the interval of the speed beside hostile guides ÷ without them."""
MAX_GROWTH_MB = 64.0
"""Most MiB that a pass may add, once the caches of guides are full."""
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 40, "maxLength": 60},
            "city": {"enum": ["Rome", "Oslo", "Lima"]},
            "numbers": {"type": "array", "items": {"type": "integer"}, "minItems": 4},
        },
        "required": ["name", "city", "numbers"],
        "additionalProperties": False,
    }
)


def _references(number: int) -> str:
    chain = {str(n): {"items": {"$ref": f"#/x/{n + 1}"}} for n in range(1300)}
    return json.dumps({"$ref": "#/x/0", "x": {**chain, "1300": {}}, "title": str(number)})


def _rules(number: int) -> str:
    rules = "\n".join(f"x{n}: x{n + 1}" for n in range(3000))
    return f'start: x0 "{number}"\n{rules}\nx3000: "a"'


def _properties(number: int) -> str:
    names = [f"property{number}_{n}" for n in range(500)]
    properties = {name: {"type": "string", "maxLength": 8} for name in names}
    return json.dumps({"type": "object", "properties": properties, "required": names})


def _nested(number: int) -> str:
    return 200 * '{"items": ' + f'{{"const": {number}}}' + 200 * "}"


HOSTILE: tuple[tuple[str, Callable[[int], str]], ...] = (
    ("json_schema", lambda n: f'{{"type": "object", "title": {n}'),
    ("yaml", lambda n: f"a: {n}"),
    ("json_schema", lambda _: ""),
    ("json_schema", lambda n: json.dumps({"not": {"const": n}})),
    ("json_schema", lambda n: json.dumps({"enum": [], "title": str(n)})),
    ("json_schema", lambda n: json.dumps({"type": "integer", "minimum": n + 1, "maximum": n})),
    ("json_schema", lambda n: f'{{"const": "\\ud800{n}"}}'),
    ("json_schema", _nested),
    ("json_schema", lambda n: json.dumps({"const": f"{n}" + 70_000 * "x"})),
    ("json_schema", _references),
    ("json_schema", _properties),
    ("json_schema", lambda n: json.dumps({"enum": [f"{n} {m}" for m in range(4000)]})),
    ("regex", lambda n: f"({n}"),
    ("regex", lambda n: f"(((a{{1,1000}}){{1,1000}}){{1,1000}}){{1,1000}}{n}"),
    ("regex", lambda n: "(a|aa)*b" * 4000 + str(n)),
    ("ebnf_grammar", lambda n: f"start: missing{n}"),
    ("ebnf_grammar", _rules),
    ("ebnf_grammar", lambda n: f'start: x "{n}"\nx: x x | /[a-z ]/ | x x x'),
    ("structural_tag", lambda n: json.dumps({"triggers": [str(n)], "structures": []})),
    ("structural_tag", lambda n: json.dumps({"triggers": "<a>", "structures": n})),
)
"""Types of guides and functions that write one with a number in it, so that no two are equal."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """The answers of one pass."""

    good: tuple[Answer, ...]
    hostile: tuple[Answer, ...]
    seconds: float
    rss_mb: float
    """Memory of the server after it."""

    @property
    def timed(self) -> Timed:
        """Tokens and seconds of the good requests."""
        return Timed(sum(len(each.token_ids) for each in self.good), self.seconds)

    @property
    def median_s(self) -> float:
        """Median seconds of a good request."""
        return statistics.median(each.last_s - each.start_s for each in self.good)


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Run passes with and without hostile guides by turns, three of each in a round."""
    with watched_server(repository) as watched:
        server = watched.server
        numbers = itertools.count()

        def run(*, is_hostile: bool) -> PassResult:
            good, hostile, seconds = asyncio.run(
                play(server.grpc_url, numbers, is_hostile=is_hostile)
            )
            asyncio.run(settled(server))
            return PassResult(good, hostile, seconds, resources_of(server).rss_mb)

        run(is_hostile=True)  # Warms up, and reads the tokenizer.
        turns = [(run(is_hostile=False), run(is_hostile=True)) for _ in range(3 * rounds)]
        faults = watched.faults()
    yield from judged(turns, faults)


def judged(turns: Sequence[tuple[PassResult, PassResult]], faults: Sequence[str]) -> Iterator[Row]:
    """Yield the rows; each turn has a pass without hostile guides and one with them."""
    alone = {str(n): calm.timed for n, (calm, _) in enumerate(turns)}
    beside = {str(n): beset.timed for n, (_, beset) in enumerate(turns)}
    good = [each for turn in turns for found in turn for each in found.good]
    hostile = [each for _, beset in turns for each in beset.hostile]
    found = ratio(beside, alone)
    num_cut = sum(not each.is_complete for each in good)
    medians_s = [statistics.median(turn[kind].median_s for turn in turns) for kind in (0, 1)]
    yield Row(
        f"{len(good) // 2} requests beside {len(hostile)} with broken or hostile guides",
        f"tokens/s beside them ÷ without: {found}; median answer {medians_s[0]:.2f} s without, "
        f"{medians_s[1]:.2f} s beside; {num_cut} cut or refused",
        f"every good answer whole, and the interval reaches {MIN_RATIO}",
        num_cut == 0 and found.high >= MIN_RATIO,
    )
    wrong = [each.detail or each.outcome for each in hostile if not is_expected(each)]
    yield Row(
        "the hostile ones",
        f"{counted(each.outcome for each in hostile)}; wrong: {len(wrong)}{listed(wrong)}; "
        f"{described(faults)}",
        "whole, or refused as invalid_request; no fault",
        not (wrong or faults),
    )
    rss_mb = [beset.rss_mb for _, beset in turns]
    later = rss_mb[len(rss_mb) // 2 :]
    growth_mb = max(later) - later[0]
    yield Row(
        f"memory after each pass with hostile guides (×{len(rss_mb)})",
        ", ".join(f"{each:.0f}" for each in rss_mb) + " MiB",
        f"at most {MAX_GROWTH_MB:g} MiB more in the second half",
        growth_mb <= MAX_GROWTH_MB,
    )


def is_expected(answer: Answer) -> bool:
    """Return whether a request with a hostile guide ended as it should."""
    return answer.is_complete or answer.error_type == "invalid_request"


async def play(
    url: str, numbers: Iterator[int], *, is_hostile: bool
) -> tuple[tuple[Answer, ...], tuple[Answer, ...], float]:
    """Ask NUM_GOOD good requests, with hostile ones between them or without.

    Returns the answers of both kinds, and the seconds until the last good one.
    """
    left = iter(range(NUM_GOOD))
    good: list[Answer] = []
    hostile: list[asyncio.Task[Answer]] = []
    async with Channels(url, 2 * NUM_CLIENTS) as channels:

        async def ask_again(client: int) -> None:
            for _ in left:
                good.append(await channels.ask(client, good_request(next(numbers))))
                if is_hostile and len(good) % GOOD_PER_HOSTILE == 0:
                    request = hostile_request(next(numbers))
                    hostile.append(asyncio.create_task(channels.ask(client, request)))

        start_s = time.monotonic()
        await asyncio.gather(*map(ask_again, range(NUM_CLIENTS)))
        seconds = time.monotonic() - start_s
        answers = await asyncio.gather(*hostile)
    return tuple(good), tuple(answers), seconds


def good_request(number: int) -> GenerationRequest:
    """Return a request with NUM_TOKENS tokens; every second has a guide."""
    fields: dict[str, Any] = {"ignore_eos": True}
    if number % 2:
        guide = {"guided_decoding_guide_type": "json_schema", "guided_decoding_guide": SCHEMA}
        fields = {"task": "json", **guide}
    messages = [{"role": "user", "content": f"{number}. Describe a person as JSON."}]
    return GenerationRequest(messages=messages, max_tokens=NUM_TOKENS, temperature=0.0, **fields)


def hostile_request(number: int) -> GenerationRequest:
    """Return a request with a broken or hostile guide."""
    kind, guide = HOSTILE[number % len(HOSTILE)]
    return GenerationRequest(
        text_input=f"{number}. Write:",
        max_tokens=NUM_TOKENS,
        guided_decoding_guide_type=kind,
        guided_decoding_guide=guide(number),
    )
