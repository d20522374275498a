"""Read one tool call, a JSON object with a name and arguments, as its text arrives."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

MAX_SPACE = 64
"""Most characters of white space before an object or its first key. Models write few."""
_FIRST_KEYS = ("name", "arguments", "parameters", "type", "id", "function")
"""Keys with which a call may begin."""
_SPACE = r"\s{0,20}"
_BEGINNING = re.compile(
    rf'{_SPACE}\{{{_SPACE}"name"{_SPACE}:{_SPACE}("(?:[^"\\]|\\.){{0,200}}")'
    rf'{_SPACE},{_SPACE}"(?:arguments|parameters)"{_SPACE}:{_SPACE}(?=\{{)'
)
"""The object up to its arguments, in the order that models are trained on. Qwen's and Hermes'
call them `arguments`, Llama-3's `parameters`. It is bounded, because it is matched again with each
chunk."""


class CallReader:
    """Reads one call. Arguments are given as they arrive, in the text that the model wrote.

    If the object has another order, or is of an unknown function, the call is known at its end.
    """

    def __init__(self, names: Collection[str]) -> None:
        """Take the names of the functions that can be called."""
        self._names = names
        self.text = ""
        """The object so far, from its first character on."""
        self.name: str | None = None
        """The function; None as long as it is not known."""
        self.is_complete = False
        self._num_scanned = 0
        self._depth = 0
        self._is_string = self._is_escaped = False
        self._arguments_begin: int | None = None
        self._arguments_end: int | None = None
        self._num_given = 0
        """Characters of the arguments that were given."""

    @property
    def can_be_call(self) -> bool:
        """Whether the object may be a call, by its first key."""
        if self.name is not None:
            return True
        beginning = self.text[: 2 * MAX_SPACE]
        head = beginning.lstrip()
        if not head:
            return len(beginning) <= MAX_SPACE
        key = head[1:].lstrip()
        if not key:
            return head[0] == "{" and len(head) <= MAX_SPACE
        if head[0] != "{" or key[0] != '"':
            return False
        name, quote, _ = key[1:].partition('"')
        return name in _FIRST_KEYS if quote else any(k.startswith(name) for k in _FIRST_KEYS)

    def read(self, text: str) -> tuple[str, str]:
        """Add text. Return the arguments that it completes, and the text after the object."""
        self.text += text
        self._find_beginning()
        rest = self._scan()
        if self.is_complete and self.name is None:
            return self._whole_arguments(), rest
        return self._new_arguments(), rest

    def _find_beginning(self) -> None:
        if self.name is None and (found := _BEGINNING.match(self.text)):
            name = _string(found[1])
            if name in self._names:
                self.name, self._arguments_begin = name, found.end()

    def _scan(self) -> str:
        """Follow the nesting to the ends of arguments and object; return what comes after it."""
        for position in range(self._num_scanned, len(self.text)):
            character = self.text[position]
            if self._is_string:
                self._is_string = self._is_escaped or character != '"'
                self._is_escaped = not self._is_escaped and character == "\\"
            elif self._depth == 0 and character != "{" and not character.isspace():
                return self._complete(position)
            elif character == '"':
                self._is_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                self._note_end(position + 1)
                if self._depth == 0:
                    return self._complete(position + 1)
        self._num_scanned = len(self.text)
        return ""

    def _complete(self, end: int) -> str:
        """End the object, and return the text after it."""
        self.is_complete = True
        self.text, rest = self.text[:end], self.text[end:]
        return rest

    def _note_end(self, end: int) -> None:
        begin = self._arguments_begin
        if self._depth == 1 and begin is not None and begin < end and self._arguments_end is None:
            self._arguments_end = end

    def _new_arguments(self) -> str:
        if self._arguments_begin is None:
            return ""
        begin = self._arguments_begin + self._num_given
        new = self.text[begin : self._arguments_end]
        self._num_given += len(new)
        return new

    def _whole_arguments(self) -> str:
        """Return the arguments of a complete object whose beginning was not the usual one.

        They may be an object, or a text with one. Otherwise it is no call.
        """
        try:
            value: Any = json.loads(self.text)
            name = value["name"]
            arguments = value.get("arguments", value.get("parameters", {}))
            if isinstance(arguments, str):
                text, arguments = arguments, json.loads(arguments)
            else:
                text = json.dumps(arguments)
        except (ValueError, RecursionError, TypeError, KeyError):
            return ""
        is_known = isinstance(name, str) and name in self._names
        if not is_known or not isinstance(arguments, dict):
            return ""
        self.name = name
        return text


def _string(text: str) -> str | None:
    """Return the value of a JSON string; None if it is none."""
    try:
        return str(json.loads(text))
    except ValueError:
        return None
