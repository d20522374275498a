"""Prompts for the training step, prepared on a machine with a package index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specdec.builder.distill import prompts
from specdec.builder.distill.prompts import PromptSettings, separation, sources

FILE = "prompts.jsonl"
SEED = 20
"""The seed of the shipped weights, so that the same written prompts are held out again."""
MANY = PromptSettings(
    num_again=8000,
    num_sampled=0,
    num_summarise=4000,
    num_question=6000,
    num_rewrite=3000,
    num_translate=6000,
    num_math=6000,
    num_short=1000,
    num_functions=2000,
    share_warm=0.25,
    seed=SEED,
)
"""About 34,000 prompts: at 46,000 tokens a second an H100 answers them in two minutes."""
FEW = PromptSettings(
    num_again=0, num_sampled=0, num_summarise=0, num_question=0, num_rewrite=0,
    num_translate=0, num_math=0, num_short=0, num_code=0, seed=SEED,
)  # fmt: skip
NUM_FEW = 24


def prepare_prompts(folder: Path, archives: Path, questions: Sequence[Path], *, few: bool) -> None:
    """Write prompts that share no run of words with prompts that we measure with.

    `archives` is the folder for sources from package registries. `questions` are files of prompts
    for measuring that are not in this repository. `few` takes some of the shipped prompts, for a
    rehearsal, without asking a registry.
    """
    never = [text for path in questions for text in separation.texts_of(path)]
    if not few:
        sources.fetch(archives)
    made = prompts.build(prompts.shipped(), archives, FEW if few else MANY, never)
    prompts.save(folder / FILE, made[:NUM_FEW] if few else made)
