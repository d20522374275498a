"""Derive the task of a request that names none, by rules on its words."""

from __future__ import annotations

import re
from collections.abc import Iterator

from specdec.tasks.cues import QUESTION, SHAPES, SIGNS, SUMMARY, TASKS, WORDS

HEAD, TAIL = 250, 150
"""Characters read at the beginning and at the end, where instructions usually are."""

MIN_POINTS = 3
"""Points that a task needs. A request with fewer gets no task: a wrong one would distort the
figures of that task."""

MOST_OF_A_QUESTION = 4
"""Most points of QUESTION. Any request can be put as a question, so its topic must count more."""

LONG = 700
"""Characters above which a request probably contains a text to work on."""

_POINTS = {
    cue: tuple((rule.task, rule.points) for rule in WORDS if cue in rule.cues)
    for each in WORDS
    for cue in each.cues
}
_WORD = re.compile(r"[^\W\d_][\w'+#-]*")


def classify(text: str) -> str | None:
    """Return one of `TASKS`, or None if no rule decides. The time is bounded for any length."""
    is_long = len(text) > LONG
    text = text if len(text) <= HEAD + TAIL else f"{text[:HEAD]}\n{text[-TAIL:]}"
    points = dict.fromkeys(TASKS, 0)
    for word in set(_words(text)):
        for task, worth in _POINTS.get(word, ()):
            points[task] += worth
    for each in SIGNS:
        if any(sign in text for sign in each.signs):
            points[each.task] += each.points
    for shape in SHAPES:
        if shape.pattern.search(text):
            points[shape.task] += shape.points
    if is_long:
        points[SUMMARY] += 2
        points[QUESTION] += 1
    points[QUESTION] = min(points[QUESTION], MOST_OF_A_QUESTION)
    best = max(TASKS, key=points.__getitem__)
    return best if points[best] >= MIN_POINTS else None


def _words(text: str) -> Iterator[str]:
    """Yield each word and each two in a row in lower case, and words in capitals unchanged too."""
    before = ""
    for written in _WORD.findall(text):
        if written.isupper():
            yield written
        word = written.lower()
        yield word
        yield f"{before} {word}"
        before = word
