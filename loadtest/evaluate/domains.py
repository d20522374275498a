"""A user's prompts, each with the domain that it belongs to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.tasks.classify import classify

BY_RULES = "auto"
"""The `column` for domains by the rules that classify requests without a task."""
UNKNOWN = "other"
COLUMNS = ("task", "category")
"""The columns that are looked for, in this order, if none is named."""


@dataclass(frozen=True, slots=True)
class DomainPrompt:
    """One conversation to be answered."""

    prompt_id: str
    domain: str
    messages: tuple[Mapping[str, str], ...]

    @property
    def text(self) -> str:
        """The text of all messages, one after another."""
        return "\n".join(message["content"] for message in self.messages)


def load_domain_prompts(path: Path, column: str | None) -> tuple[DomainPrompt, ...]:
    """Read a JSONL file with one prompt a line.

    A line has `prompt`, `messages`, or `turns`, whose first is asked. `column` names the field with
    the domain. None takes the first of `COLUMNS` that the line has, and `auto` classifies by rules.
    Raises ValueError for a file without prompts or a line in another format, and names that line.
    """
    prompts = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            messages = _messages(fields)
            domain = _domain(fields, messages, column)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        prompts.append(DomainPrompt(str(number), domain, messages))
    if not prompts:
        raise ValueError(f"{path}: no prompts")
    return tuple(prompts)


def _messages(fields: Mapping[str, Any]) -> tuple[Mapping[str, str], ...]:
    if "messages" in fields:
        return tuple(
            {"role": str(m["role"]), "content": str(m["content"])} for m in fields["messages"]
        )
    text = fields["prompt"] if "prompt" in fields else (fields.get("turns") or [None])[0]
    if not isinstance(text, str) or not text:
        raise ValueError("a line needs a text in `prompt`, `turns` or `messages`")
    return ({"role": "user", "content": text},)


def _domain(
    fields: Mapping[str, Any], messages: tuple[Mapping[str, str], ...], column: str | None
) -> str:
    if column == BY_RULES:
        return classify(messages[-1]["content"]) or UNKNOWN
    known = [column] if column else [name for name in COLUMNS if name in fields]
    if not known or known[0] not in fields:
        wanted = f"the column {column!r}" if column else "a column " + " or ".join(COLUMNS)
        raise ValueError(f"{wanted} is missing; this line has {', '.join(fields)}")
    return str(fields[known[0]])
