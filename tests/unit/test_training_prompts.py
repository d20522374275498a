"""What drafts are trained on: enough, varied, and nothing that is measured with."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from builder.distill import prompts, separation
from builder.distill.data import HELD_OUT_EVERY
from builder.pair import load_pair

PAIR = load_pair().draft.directory.parent
TASKS = {
    "api_calls", "code_generation", "creative_writing", "customer_support", "legal_analysis",
    "mathematics", "question_answering", "sql", "summarization", "translation",
}  # fmt: skip


def test_every_task_has_its_prompts() -> None:
    """2,000 in all, 150 of each of the ten tasks."""
    counts = Counter(task for task, _ in prompts.shipped())

    assert counts.keys() == TASKS
    assert min(counts.values()) >= 150
    assert counts.total() >= 2000


def test_no_two_prompts_share_a_run_of_words() -> None:
    """Each was written on its own: eight words in a row stand in one prompt only."""
    owner: dict[tuple[str, ...], str] = {}
    for _, text in prompts.shipped():
        for run in set(separation.runs(text)):
            if len(run) == separation.RUN:
                assert owner.setdefault(run, text) == text, " ".join(run)


def test_nothing_measured_is_trained_on() -> None:
    """None of our measuring prompts shares a run of words with a training prompt."""
    trained = [text for _, text in prompts.shipped()]
    for file in separation.MEASURED.glob("*.jsonl"):
        assert not separation.shared(separation.texts_of(file), trained)


def test_what_is_held_out_is_in_no_training(tmp_path: Path) -> None:
    """Held-out prompts of every task stand in no first wave but where they are never trained on.

    Nor does a run of their words: not in the other written prompts, nor in what templates make.
    """
    settings = prompts.PromptSettings()
    held = prompts.held_out(settings)

    everything = prompts.build(prompts.shipped(), tmp_path, settings, [])
    trained = [p.messages[0]["content"] for p in everything if p.index % HELD_OUT_EVERY]
    never = {p.messages[0]["content"] for p in everything if p.index % HELD_OUT_EVERY == 0}

    assert {task for task, _ in held} == TASKS
    assert len(held) >= 100
    assert {text for _, text in held} <= never
    assert len(trained) > 3000
    assert not separation.shared([text for _, text in held], trained)


@pytest.mark.parametrize("part", ["draft", "eagle3"])
def test_the_shipped_pair_was_trained_with_the_default_split(part: str) -> None:
    """Its seed is the one by which `held_out` splits, so the same prompts are unseen."""
    config = json.loads((PAIR / part / "config.json").read_text("utf-8"))

    assert config["training"]["seed"] == prompts.PromptSettings().seed


def test_copies_are_found() -> None:
    """A text with eight words of another is a copy, whatever its case and punctuation."""
    told = "The keeper of the old lighthouse wrote: seven ships passed tonight, all of them dark."
    copied = "he WROTE seven ships, passed tonight all of them; indeed"
    apart = "seven ships passed tonight and all of them were dark"

    assert separation.shared([copied, apart], [told]) == [
        (copied, "wrote seven ships passed tonight all of them")
    ]
    assert separation.shared(["Good day."], ["good day"]) == [("Good day.", "good day")]
