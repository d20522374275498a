"""Prompts to train on: those that the user gives or that are shipped, and generated ones.

Generated prompts are made of text from package registries (`sources`) and templates, or sampled
from the target itself (`builder/distill/answers/questions.py`). Prompts that measure a draft are
read only to leave similar ones out (`separation`).
"""

from specdec.builder.distill.prompts.building import (
    PromptSettings,
    build,
    follow_ups,
    held_out,
    with_sampled,
)
from specdec.builder.distill.prompts.prompt import (
    Prompt,
    all_tokens,
    chat_ids,
    load,
    save,
)
from specdec.builder.prompt_files import shipped

__all__ = [
    "Prompt",
    "PromptSettings",
    "all_tokens",
    "build",
    "chat_ids",
    "follow_ups",
    "held_out",
    "load",
    "save",
    "shipped",
    "with_sampled",
]
