"""Find the text and the tool calls in an answer, as it arrives.

A model that may choose writes a call in its own format. Two are known: Hermes' and Qwen's,
`<tool_call>{"name": …, "arguments": {…}}</tool_call>` anywhere in the text, and Llama-3's, where
the whole answer is `{"name": …, "parameters": {…}}`. The formats exclude each other, so nothing has
to be configured. If a call is required, the guide fixes the format (`openai_api/tool_use.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass

from specdec.gateway.tool_calls.call_reader import MAX_SPACE, CallReader

OPENING, CLOSING = "<tool_call>", "</tool_call>"
"""The tags around a call in Hermes' format."""
_PYTHON_TAG = "<|python_tag|>"
"""Special token that Llama-3 may put before a call; shown only if the request asks for it."""
_READ_AT_ONCE = 4096
"""Characters that are read at once: each step copies what is left of them."""


@dataclass(frozen=True, slots=True)
class CallPiece:
    """The next part of a call."""

    index: int
    """Number of the call in the answer, from 0."""
    name: str | None
    """The function, in the first part of a call; None in later ones."""
    arguments: str
    """The next characters of the arguments, which together are a JSON object."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The next part of an answer."""

    text: str
    calls: tuple[CallPiece, ...]


class AnswerReader(ABC):
    """Reads one answer; each subclass knows one kind of answers."""

    def __init__(self) -> None:
        self._text = ""
        self._calls: list[CallPiece] = []
        self.num_calls = 0
        """Calls begun so far."""

    @property
    def is_in_call(self) -> bool:
        """Whether the arguments of the last call are not complete."""
        return False

    def read(self, text: str, *, is_last: bool) -> Piece:
        """Return the part of the answer that `text` completes."""
        for begin in range(0, len(text), _READ_AT_ONCE):
            self._read(text[begin : begin + _READ_AT_ONCE])
        if is_last:
            self._end()
        piece = Piece(self._text, tuple(self._calls))
        self._text, self._calls = "", []
        return piece

    @abstractmethod
    def _read(self, text: str) -> None:
        """Take text of the answer."""

    def _end(self) -> None:  # noqa: B027 - a reader may hold nothing back
        """Take the end of the answer: what was held back is text."""

    def _begin_call(self, name: str, arguments: str) -> None:
        self._calls.append(CallPiece(self.num_calls, name, arguments))
        self.num_calls += 1

    def _add_arguments(self, arguments: str) -> None:
        if arguments:
            self._calls.append(CallPiece(self.num_calls - 1, None, arguments))


class NamedCallReader(AnswerReader):
    """Reads an answer that is the arguments of one function."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def _read(self, text: str) -> None:
        """Take text of the answer; an answer without text has no call."""
        if self.num_calls == 0:
            self._begin_call(self._name, text)
        else:
            self._add_arguments(text)


class _CallsReader(AnswerReader):
    """Reads answers with calls of several functions."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self._names = names
        self._call: CallReader | None = None
        """The call that is being read."""

    @property
    def is_in_call(self) -> bool:
        call = self._call
        return call is not None and call.name is not None and not call.is_complete

    def _read_call(self, call: CallReader, text: str) -> str:
        """Add text to a call; return what comes after its object."""
        was_known = call.name is not None
        arguments, rest = call.read(text)
        if call.name is not None and not was_known:
            self._begin_call(call.name, arguments)
        else:
            self._add_arguments(arguments)
        return rest


class RequiredCallsReader(_CallsReader):
    """Reads an answer that is a JSON list of calls."""

    def _read(self, text: str) -> None:
        while text:
            if self._call is None:
                begin = text.find("{")
                if begin < 0:
                    return
                text, self._call = text[begin:], CallReader(self._names)
            text = self._read_call(self._call, text)
            if self._call.is_complete:
                self._call = None


class FreeAnswerReader(_CallsReader):
    """Reads an answer of text and calls, in a format that the model chooses."""

    def __init__(self, names: Collection[str], max_calls: int | None = None) -> None:
        """Take the names of the functions, and the most calls; what follows the last is dropped."""
        super().__init__(names)
        self._max_calls = max_calls
        self._held = ""
        """Text that may be the beginning of a call."""
        self._prefix = ""
        """Text before the object that is being read: a tag, or white space."""
        self._may_begin = True
        """Whether a call without tags may come: at the beginning, and after another such call."""
        self._follows_call = False

    def _read(self, text: str) -> None:
        self._held += text
        while self._held and self._step():
            pass

    def _step(self) -> bool:
        """Read a part of the held text; return whether more of it can be read."""
        if self._call is not None:
            return self._step_in_call(self._call)
        if self.num_calls == self._max_calls:
            self._held = ""
            return False
        return self._step_at_beginning() if self._may_begin else self._step_in_text()

    def _step_at_beginning(self) -> bool:
        beginning = self._held.lstrip(" \n;" if self.num_calls else None)
        found = beginning.removeprefix(_PYTHON_TAG).lstrip()
        num_skipped = len(self._held) - len(found)
        if (not found or _PYTHON_TAG.startswith(beginning)) and num_skipped <= MAX_SPACE:
            return False
        self._may_begin = False
        if found.startswith("{"):
            self._begin_object(self._held[:num_skipped], found)
        return True

    def _step_in_text(self) -> bool:
        before, opening, after = self._held.partition(OPENING)
        if opening:
            self._show(before)
            self._begin_object(OPENING, after)
            return True
        num_held = next(n for n in range(len(OPENING), -1, -1) if before.endswith(OPENING[:n]))
        kept = len(before) - num_held
        self._show(before[:kept])
        self._held = before[kept:]
        return False

    def _begin_object(self, prefix: str, rest: str) -> None:
        self._prefix, self._held, self._call = prefix, rest, CallReader(self._names)

    def _step_in_call(self, call: CallReader) -> bool:
        if not call.is_complete:
            self._held = self._read_call(call, self._held)
            if not call.can_be_call:
                return self._take_for_text(call)
            if not call.is_complete:
                return False
        if call.name is None:
            self._call = None
            self._show(self._prefix + call.text)
            return True
        if self._prefix != OPENING:
            self._call, self._may_begin = None, True
            self._follows_call = True
            return True
        rest = self._held.lstrip()
        if rest != CLOSING and CLOSING.startswith(rest) and len(self._held) <= MAX_SPACE:
            return False  # The rest of the tag may still come.
        self._call, self._held = None, rest.removeprefix(CLOSING)
        self._follows_call = True
        return True

    def _take_for_text(self, call: CallReader) -> bool:
        """Show what begins no call, and read on within it, where a tag may come."""
        self._call = None
        begin = 0 if self._prefix == OPENING else 1
        self._show(self._prefix + call.text[:begin])
        self._held = call.text[begin:] + self._held
        return True

    def _show(self, text: str) -> None:
        """Give text, without the white space that follows a call."""
        if self._follows_call:
            text = text.lstrip()
        self._follows_call = self._follows_call and not text
        self._text += text

    def _end(self) -> None:
        call = self._call
        if call is None:
            if self.num_calls != self._max_calls:
                self._show(self._held)
        elif call.name is None:
            self._show(self._prefix + call.text)
        self._held = ""
