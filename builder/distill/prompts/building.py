"""Making the prompts of a run: written ones first, then generated ones, then follow-ups."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specdec.builder.distill.data import HELD_OUT_EVERY
from specdec.builder.distill.option import option
from specdec.builder.distill.prompts import separation, sources, templates
from specdec.builder.distill.prompts.prompt import Prompt
from specdec.builder.distill.seeding import seeded
from specdec.builder.prompt_files import shipped

PROSE = ("technical", "speech", "novel")
MOST_JOINED = 6
"""Most passages in a long prompt."""
MOST_PASSAGES = 4000
"""Most passages that are taken from one kind of prose."""


@dataclass(frozen=True)
class PromptSettings:
    """The number of prompts of each kind, besides those from files.

    The target itself writes `num_sampled`. Prompts from files are answered again, at a temperature
    above 0, `num_again` times. `num_long` are tasks on passages of several paragraphs.
    """

    num_again: int = option(
        2000, "prompts from files that are answered again, at a temperature above 0", smoke=4
    )
    num_sampled: int = option(1500, "questions that the target itself writes", smoke=24)
    num_summarise: int = option(300, "passages to summarise", smoke=2)
    num_question: int = option(400, "questions about a passage", smoke=2)
    num_rewrite: int = option(150, "passages to rewrite", smoke=2)
    num_long: int = option(0, "tasks on passages of several paragraphs")
    num_translate: int = option(600, "German passages to translate", smoke=2)
    num_math: int = option(300, "arithmetic problems", smoke=24)
    num_short: int = option(100, "short questions", smoke=24)
    num_code: int = option(164, "tasks on code", smoke=4)
    num_functions: int = option(0, "functions of the standard library to work on")
    num_second: int = option(1200, "prompts of the second wave, made of answers", smoke=12)
    share_warm: float = option(
        0.2,
        "share of the generated prompts that are answered at one of the temperatures; "
        "the others are greedy",
    )
    temperatures: tuple[float, ...] = option(
        (0.7, 0.8, 1.0), "temperatures above 0 at which prompts are answered"
    )
    seed: int = 20


def topic_of(text: str, rng: random.Random) -> str:
    """Return something to ask for: a capitalised phrase inside the passage, if there is one.

    Otherwise it is one of the eight longest words, or "it" without long words.
    """
    names = re.findall(r"(?<=[a-z,;] )[A-Z][a-z]{2,}(?: [A-Z][a-z]+)*", text)
    if names:
        return str(rng.choice(names))
    words = sorted(set(re.findall(r"[a-z]{5,}", text)), key=lambda w: (-len(w), w))
    return rng.choice(words[:8]) if words else "it"


def from_text(texts: dict[str, list[str]], settings: PromptSettings) -> list[tuple[str, str]]:
    """Return (kind, user text) made of registry passages and code, arithmetic, short questions."""
    rng = seeded(settings.seed + 1)
    passages = [t for k in PROSE for t in _some(rng, texts[k], MOST_PASSAGES)]
    rng.shuffle(passages)
    feed = itertools.cycle(passages)
    out: list[tuple[str, str]] = []
    if passages:
        for kind, num, forms in (
            ("summarise", settings.num_summarise, templates.SUMMARISE),
            ("rewrite", settings.num_rewrite, templates.REWRITE),
        ):
            out += [(kind, rng.choice(forms).format(text=next(feed))) for _ in range(num)]
        for _ in range(settings.num_question):
            text, other = next(feed), rng.choice(passages)
            topic = topic_of(text, rng)
            form = rng.choice(templates.QUESTION)
            asked = form.format(text=text, other=other, topic=topic)
            out += [("question", asked)]
        out += [("long", text) for text in _long(texts, settings)]
    german = _some(rng, texts["german"], settings.num_translate)
    out += [("translate", rng.choice(templates.TRANSLATE).format(text=t)) for t in german]
    code = _some(seeded(settings.seed + 4), texts["code"], settings.num_code)
    out += [("code", rng.choice(templates.CODE).format(text=t)) for t in code]
    if settings.num_functions:
        functions = _some(rng, sources.stdlib_functions(), settings.num_functions)
        out += [("function", rng.choice(templates.FUNCTION).format(text=t)) for t in functions]
    out += [("math", templates.math_problem(rng)) for _ in range(settings.num_math)]
    shorts = {templates.short_question(rng) for _ in range(settings.num_short)}
    return out + [("short", text) for text in sorted(shorts)]


def _long(texts: dict[str, list[str]], settings: PromptSettings) -> Iterator[str]:
    """Yield tasks on neighbouring passages, or on passages of several texts.

    The latter resemble what a search returns.
    """
    rng = seeded(settings.seed + 5)
    kinds = [kind for kind in PROSE if len(texts[kind]) > MOST_JOINED]

    def joined(num: int) -> str:
        some = texts[rng.choice(kinds)]
        at = rng.randrange(len(some) - num)
        return "\n\n".join(some[at : at + num])

    for _ in range(settings.num_long if kinds else 0):
        num = rng.randint(2, MOST_JOINED)
        if rng.random() < 0.5:
            form = rng.choice(templates.SUMMARISE + templates.REWRITE)
            yield form.format(text=joined(num))
            continue
        found = [joined(1) for _ in range(num)]
        form = rng.choice(templates.QUESTION)
        cut = num // 2
        text, other = ("\n\n".join(some) for some in (found[:cut], found[cut:]))
        yield form.format(text=text, other=other, topic=topic_of(rng.choice(found), rng))


def _some(rng: random.Random, items: list[str], num: int) -> list[str]:
    """Return `num` items in random order, or all if they are fewer."""
    return rng.sample(items, min(num, len(items)))


def build(
    written: list[tuple[str, str]], folder: Path, settings: PromptSettings, excluded: Sequence[str]
) -> list[Prompt]:
    """Return all first-wave prompts but sampled ones: `written` ones first, then those from text.

    Each part is in random order. `folder` holds the fetched archives. No prompt shares a run of
    words with the texts in `excluded`. Each written prompt gets a greedy answer. `num_again` times,
    one of them gets another answer, at a temperature above 0; held-out prompts do not.
    """
    rng = seeded(settings.seed + 2)
    more = from_text(sources.load(folder), settings)
    written, more = _in_order(written, rng, excluded), separation.separate(more, excluded)
    texts = [*written, *rng.sample(more, len(more))]
    out = [
        Prompt(i, kind, _turn(text), 0.0 if i < len(written) else _temperature(rng, settings))
        for i, (kind, text) in enumerate(texts)
    ]
    known = [prompt for prompt in out[: len(written)] if prompt.index % HELD_OUT_EVERY]
    numbers = (n for n in itertools.count(len(out)) if n % HELD_OUT_EVERY)
    for prompt in itertools.islice(itertools.cycle(known), settings.num_again if known else 0):
        temperature = rng.choice(settings.temperatures)
        out.append(replace(prompt, index=next(numbers), temperature=temperature))
    return out


def with_sampled(
    known: list[Prompt], texts: Iterable[str], settings: PromptSettings, excluded: Sequence[str]
) -> list[Prompt]:
    """Return `known`, then the sampled texts that are new, by the rules of `build`."""
    seen = {message["content"] for prompt in known for message in prompt.messages}
    fresh = [("sampled", text) for text in dict.fromkeys(texts) if text not in seen]
    rng = seeded(settings.seed + 6)
    start = 1 + max((prompt.index for prompt in known), default=-1)
    added = [
        Prompt(start + number, kind, _turn(text), _temperature(rng, settings))
        for number, (kind, text) in enumerate(separation.separate(fresh, excluded))
    ]
    return known + added


def held_out(settings: PromptSettings) -> list[tuple[str, str]]:
    """Return (task, user text) of the shipped prompts that training with these settings never sees.

    It is every 20th of them, in the order in which `build` numbers them from the seed. The numbers
    agree if `build` is given the shipped prompts and its `excluded` texts match none of them.
    """
    return _in_order(shipped(), seeded(settings.seed + 2))[::HELD_OUT_EVERY]


def _in_order(
    written: list[tuple[str, str]], rng: random.Random, excluded: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Return the written prompts in the order in which they are numbered from 0 on."""
    written = separation.separate(written, excluded)
    return rng.sample(written, len(written))


def _turn(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def follow_ups(
    answered: list[tuple[Prompt, str]],
    start: int,
    settings: PromptSettings,
    excluded: Sequence[str],
) -> list[Prompt]:
    """Return the second wave: second turns on the target's answers, and its answers as passages.

    Indices run from `start` on.
    """
    rng = seeded(settings.seed + 3)
    long = [(p, text) for p, text in answered if len(text) > 200 and len(p.messages) == 1]
    rng.shuffle(long)
    out: list[Prompt] = []
    for number, (prompt, text) in enumerate(long[: settings.num_second]):
        if number % 3 == 0 and len(prompt.messages[0]["content"]) < 400:
            ask = rng.choice(templates.FOLLOW_UPS)
            messages = [
                *prompt.messages,
                {"role": "assistant", "content": text},
                {"role": "user", "content": ask},
            ]
        else:
            form = rng.choice(templates.SUMMARISE + templates.QUESTION + templates.REWRITE)
            other = rng.choice(long)[1]
            content = form.format(text=text, other=other, topic=topic_of(text, rng))
            messages = [{"role": "user", "content": content}]
        fresh = Prompt(start + number, "second", messages, 0.0)
        out.append(replace(fresh, temperature=_temperature(rng, settings)))
    asked = [("second", prompt.messages[-1]["content"]) for prompt in out]
    clean = {text for _, text in separation.separate(asked, excluded)}
    return [prompt for prompt in out if prompt.messages[-1]["content"] in clean]


def _temperature(rng: random.Random, settings: PromptSettings) -> float:
    """Return one of the temperatures for `share_warm` of all calls, else 0."""
    is_warm = rng.random() < settings.share_warm
    return rng.choice(settings.temperatures) if is_warm else 0.0
