"""The server-sent events of a streamed answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec.clients.response import AnswerEnd, Chunk
from specdec.gateway.answer_format import AnswerFormat
from specdec.gateway.delivery import DONE, event


class AnswerEvents:
    """Turns the chunks of one API request into events."""

    def __init__(self, form: AnswerFormat, num_answers: int, *, has_usage: bool) -> None:
        """`has_usage`: whether the last event has the numbers of tokens."""
        self._form = form
        self._num_answers = num_answers
        self._has_usage = has_usage
        self._usage: Mapping[str, None] = {"usage": None} if has_usage else {}
        """The field that OpenAI's other events have beside that."""
        self._opened: set[int] = set()
        self._ends: dict[int, AnswerEnd] = {}

    @property
    def ends(self) -> list[AnswerEnd]:
        """The ends of the answers, in their order."""
        return [self._ends[index] for index in sorted(self._ends)]

    def of(self, index: int, chunk: Chunk) -> bytes:
        """Return the events of a chunk; empty if it has neither text nor the end."""
        form, choices = self._form, []
        if index not in self._opened:
            self._opened.add(index)
            choices.append(form.opening(index))
        choices.append(form.piece(index, chunk))
        found = b"".join(self._event(each) for each in choices if each is not None)
        if chunk.end is not None:
            self._ends[index] = chunk.end
            is_last = len(self._ends) == self._num_answers and not self._has_usage
            rest = {"metrics": form.metrics(self.ends)} if is_last else {}
            found += self._event(form.closing(index, chunk.end), **rest)
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

    def _event(self, choice: Mapping[str, Any], **rest: Any) -> bytes:
        return event(self._form.body([choice], is_chunk=True, **self._usage, **rest))
