"""The prompts that drafts are trained on: enough, varied, and none that we measure with."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from specdec.builder.distill import prompts
from specdec.builder.distill.data import HELD_OUT_EVERY
from specdec.builder.distill.prompts import separation
from specdec.builder.errors import BuildError
from specdec.builder.repository.pair_weights import load_pair

PAIR = load_pair().draft.directory.parent
TASKS = {
    "api_calls", "code_generation", "creative_writing", "customer_support", "legal_analysis",
    "mathematics", "question_answering", "sql", "summarization", "translation",
}  # fmt: skip


def test_every_task_has_its_prompts() -> None:
    """There are at least 2,000 in all, and at least 150 for each of the ten tasks."""
    counts = Counter(task for task, _ in prompts.shipped())

    assert counts.keys() == TASKS
    assert min(counts.values()) >= 150
    assert counts.total() >= 2000


def test_no_two_prompts_share_a_run_of_words() -> None:
    """Each was written on its own: eight words in a row occur in one prompt only."""
    owner: dict[tuple[str, ...], str] = {}
    for _, text in prompts.shipped():
        for run in set(separation.runs(text)):
            if len(run) == separation.RUN:
                assert owner.setdefault(run, text) == text, " ".join(run)


def test_no_prompt_that_we_measure_with_is_trained_on() -> None:
    """No prompt of the load tests shares a run of words with a training prompt."""
    trained = [text for _, text in prompts.shipped()]
    for file in separation.MEASURED.glob("*.jsonl"):
        assert not separation.shared(separation.texts_of(file), trained)


def test_held_out_prompts_are_never_trained_on(tmp_path: Path) -> None:
    """In the first wave, held-out prompts of every task have only numbers that are not trained on.

    No trained prompt, written or made from a template, shares a run of words with them.
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
    """Its seed is the one by which `held_out` splits, so its held-out prompts are the same."""
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


def test_missing_prompts_of_the_load_tests_are_an_error(tmp_path, monkeypatch) -> None:
    """Without them nothing could be kept out of training, so nothing is trained on."""
    monkeypatch.setattr(separation, "MEASURED", tmp_path)

    with pytest.raises(BuildError, match="holds no prompts"):
        separation.separate([("sql", "Name the largest table.")])
