"""Requests that name no task get one by plain rules, fast whatever they hold."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.distill import prompts
from specdec.control.classify import HEAD, TAIL, classify
from specdec.control.cues import SHAPES, SIGNS, TASKS, WORDS

LENGTH = 8000
ORDINARY = "The harbour committee asks what it costs to mend the wall. " * (LENGTH // 59)
MOST_TIMES = 2.5

# Pieces on which patterns of this kind are known to go wrong, many times over.
HOSTILE = ["a", "_", "a_", "1", "1,", "1 ", '{"', "a(", "a(a,", "\n", "?", '" ', "-> ", "A", "中"]
HOSTILE += ["ä", "a ", "(", " ,", "x = ", "says: ", " \n\n", "`", "a\n\n", "?\n", "A ", "select "]


def test_tasks_are_those_of_our_prompts():
    """The ten labels under which acceptance is known elsewhere, and rules for each of them."""
    assert set(TASKS) == {task for task, _ in prompts.shipped()}
    assert {rule.task for rule in (*WORDS, *SIGNS, *SHAPES)} == set(TASKS)


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
def test_plain_cases(text, task):
    """One of each kind; what says nothing has no task."""
    assert classify(text) == task


def test_only_head_and_tail_are_read():
    """What stands between them, however long, changes nothing."""
    head, tail = "Summarise. ".ljust(HEAD, "z"), "z" * TAIL

    assert classify(head + "SELECT a FROM b GROUP BY c; def f(): return 1 " * 400 + tail) == (
        classify(head + " " * 18_000 + tail)
    )


@given(st.text(max_size=2000))
def test_any_text_has_a_task_or_none(text):
    """No text is refused."""
    assert classify(text) in {*TASKS, None}


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_costs_no_more(piece):
    """8,000 characters take less than 2.5 times as long as prose, best of many taken in turn."""
    hostile = piece * (LENGTH // len(piece))
    taken_s = [(_taken_s(ORDINARY), _taken_s(hostile)) for _ in range(200)]

    ordinary_s, hostile_s = map(min, zip(*taken_s, strict=True))
    assert hostile_s < MOST_TIMES * ordinary_s


def _taken_s(text):
    """Seconds that one classification takes."""
    start_s = time.perf_counter()
    classify(text)
    return time.perf_counter() - start_s
