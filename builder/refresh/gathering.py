"""Prompts for training a draft further, from files or from the server's prompt log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specdec.builder.distill.prompts import Prompt, separation
from specdec.builder.distill.seeding import seeded
from specdec.builder.errors import BuildError
from specdec.builder.prompt_files import read_prompts
from specdec.serving.request.prompt_log import read_log

MIN_PROMPTS = 100
"""Fewest different prompts for a refresh: one in ten measures the result, so fewer are too few."""


def from_files(files: Sequence[Path]) -> list[Prompt]:
    """Return the different prompts in JSON-lines files of {"prompt": text}, as user turns.

    Prompts that share a run of words with a benchmark prompt are left out. Raises BuildError if a
    file cannot be read or a line is not of this form.
    """
    found = {each.text: path.stem for path in files for each in read_prompts(path)}
    pairs = separation.separate([(kind, text) for text, kind in found.items()])
    return [Prompt(0, kind, [{"role": "user", "content": text}]) for kind, text in pairs]


def from_log(directory: Path, tenants: Sequence[str], tokenizer: Any) -> list[Prompt]:
    """Return the different prompts in the prompt log `directory`, in the order of first use.

    If `tenants` are named, only their prompts count. `tokenizer` is the target's. Prompts that
    share a run of words with a benchmark prompt are left out. Raises BuildError if the log cannot
    be read.
    """
    try:
        logged = read_log(directory)
    except OSError as error:
        raise BuildError(f"the prompt log cannot be read: {error}") from error
    known = {one.input_ids: one.task for one in logged if not tenants or one.tenant in tenants}
    texts = {str(tokenizer.decode(list(ids))): (task, ids) for ids, task in known.items()}
    kept = separation.separate([(task, text) for text, (task, _) in texts.items()])
    return [Prompt(0, task, [], input_ids=list(texts[text][1])) for task, text in kept]


def chosen(found: Sequence[Prompt], max_prompts: int, seed: int) -> list[Prompt]:
    """Return the last `max_prompts` of `found`, shuffled and numbered from 0.

    They ask for greedy answers. Raises BuildError if there are fewer than MIN_PROMPTS.
    """
    if len(found) < MIN_PROMPTS:
        raise BuildError(
            f"at least {MIN_PROMPTS} different prompts are needed to train and to measure; "
            f"found: {len(found)}"
        )
    newest = list(found[-max_prompts:])
    seeded(seed).shuffle(newest)
    return [
        Prompt(index, each.kind, each.messages, input_ids=each.input_ids)
        for index, each in enumerate(newest)
    ]
