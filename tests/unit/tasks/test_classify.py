"""Tests of the rules that name the task of a request that names none.

They must be fast for any text.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.builder.distill import prompts
from specdec.tasks.classify import HEAD, TAIL, classify
from specdec.tasks.cues import SHAPES, SIGNS, TASKS, WORDS

LENGTH = 8000
ORDINARY = "The harbour committee asks what it costs to mend the wall. " * (LENGTH // 59)
MOST_TIMES = 2.5

# Pieces that, repeated many times, are known to make patterns like these slow.
HOSTILE = ["a", "_", "a_", "1", "1,", "1 ", '{"', "a(", "a(a,", "\n", "?", '" ', "-> ", "A", "中"]
HOSTILE += ["ä", "a ", "(", " ,", "x = ", "says: ", " \n\n", "`", "a\n\n", "?\n", "A ", "select "]


def test_tasks_are_those_of_our_prompts():
    """The rules know the ten tasks of our prompts, and each task has rules."""
    assert set(TASKS) == {task for task, _ in prompts.shipped()}
    assert {rule.task for rule in (*WORDS, *SIGNS, *SHAPES)} == set(TASKS)


def test_every_cue_can_match_and_counts_once():
    """A cue has one word or two, and stands in one list of its task."""
    cues = [(rule.task, cue) for rule in WORDS for cue in rule.cues]

    assert [cue for _, cue in cues if len(cue.split()) > 2] == []
    assert len(set(cues)) == len(cues)


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("Write a Python function that reverses a linked list.", "code_generation"),
        ("What does this do?\n```py\nprint(sum(x for x in xs if x > 2))\n```", "code_generation"),
        ("Table orders(id, customer_id, total). Which customers never ordered?", "sql"),
        ("Explain SELECT name FROM pets WHERE age > 3 GROUP BY name", "sql"),
        ('Reply with JSON like {"city": string, "days": int}: "Paris, three days"', "api_calls"),
        ("Translate into German: The train leaves at nine.", "translation"),
        ("Что значит это предложение?", "translation"),
        ("Summarise this in two sentences:\n\n" + "The council met again. " * 60, "summarization"),
        ("Solve x^2 - 5x + 6 = 0.", "mathematics"),
        ('Is this clause enforceable? "Tenant shall pay all costs."', "legal_analysis"),
        ("A customer wants a refund for a broken kettle. Write the reply.", "customer_support"),
        ("Write a short story about a lighthouse keeper.", "creative_writing"),
        ("Why is the sky blue?", "question_answering"),
        ("hello", None),
        ("", None),
    ],
)
def test_plain_requests_get_their_task(text, task):
    """The cases have requests of each task, and texts without any sign of one."""
    assert classify(text) == task


def test_only_head_and_tail_are_read():
    """Text between them does not matter, however long it is."""
    head, tail = "Summarise. ".ljust(HEAD, "z"), "z" * TAIL

    assert classify(head + "SELECT a FROM b GROUP BY c; def f(): return 1 " * 400 + tail) == (
        classify(head + " " * 18_000 + tail)
    )


@given(st.text(max_size=2000))
def test_any_text_has_a_task_or_none(text):
    """No text raises an error."""
    assert classify(text) in {*TASKS, None}


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_costs_no_more(piece):
    """8,000 hostile characters take less than 2.5 times as long as 8,000 of prose.

    Compared are the shortest of 200 times each, measured in turn.
    """
    hostile = piece * (LENGTH // len(piece))
    taken_s = [(_taken_s(ORDINARY), _taken_s(hostile)) for _ in range(200)]

    ordinary_s, hostile_s = map(min, zip(*taken_s, strict=True))
    assert hostile_s < MOST_TIMES * ordinary_s


def _taken_s(text):
    """Return the seconds that one classification takes."""
    start_s = time.perf_counter()
    classify(text)
    return time.perf_counter() - start_s
