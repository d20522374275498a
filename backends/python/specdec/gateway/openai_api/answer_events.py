"""The server-sent events of a streamed answer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from specdec.clients.response import AnswerEnd, Chunk
from specdec.gateway.openai_api.answer_format import AnswerFormat, usage_of
from specdec.gateway.openai_api.schema import StreamOptions

DONE = b"data: [DONE]\n\n"
"""Last event of a stream that has ended well."""


def event(value: Any) -> bytes:
    """Return a JSON value as a server-sent event."""
    return (
        b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
    )


class AnswerEvents:
    """Turns the chunks of one API request into events."""

    def __init__(self, form: AnswerFormat, num_answers: int, options: StreamOptions) -> None:
        self._form = form
        self._num_answers = num_answers
        self._has_usage = bool(options.include_usage)
        self._has_usage_so_far = self._has_usage and bool(options.continuous_usage_stats)
        self._opened: set[int] = set()
        self._ends: dict[int, AnswerEnd] = {}
        self._num_prompt: Counter[int] = Counter()
        """Tokens of the prompt, by the answer's index."""
        self._num_answer: Counter[int] = Counter()
        """Tokens of the answer so far, by its index."""

    @property
    def ends(self) -> list[AnswerEnd]:
        """The ends of the answers, in their order."""
        return [self._ends[index] for index in sorted(self._ends)]

    def events_of(self, index: int, chunk: Chunk) -> bytes:
        """Return the events of a chunk; empty if it has nothing to show."""
        form, choices = self._form, []
        if index not in self._opened:
            self._opened.add(index)
            self._num_prompt[index] = chunk.num_input_tokens or 0
            choices.append(form.opening(index))
        self._num_answer[index] += len(chunk.token_ids)
        choices.append(form.piece(index, chunk))
        shown = [each for each in choices if each is not None]
        found = b""
        for number, choice in enumerate(shown):
            first = form.beside_choices(chunk.prompt_token_ids) if number == 0 else {}
            found += self._event(index, choice, **first)
        if chunk.end is not None:
            self._ends[index] = chunk.end
            is_last = len(self._ends) == self._num_answers and not self._has_usage
            rest = {"metrics": form.metrics(self.ends)} if is_last else {}
            found += self._event(index, form.closing(index, chunk.end), **rest)
        return found

    def last(self) -> bytes:
        """Return the events after the last chunk."""
        if not self._has_usage:
            return DONE
        form = self._form
        body = form.body(
            [], is_chunk=True, usage=form.usage(self.ends), metrics=form.metrics(self.ends)
        )
        return event(body) + DONE

    def _event(self, index: int, choice: Mapping[str, Any], **rest: Any) -> bytes:
        if self._has_usage:
            rest["usage"] = None
        if self._has_usage_so_far:
            rest["usage"] = usage_of(self._num_prompt[index], self._num_answer[index])
        return event(self._form.body([choice], is_chunk=True, **rest))
