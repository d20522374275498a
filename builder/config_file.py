"""Reading and changing a model's config.pbtxt.

protobuf reads the file, as Triton does. Changes are made in the text, so that comments and layout
stay, and are read again before they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from specdec.builder.errors import BuildError

CONFIG = "config.pbtxt"

# Strings that follow one another are one value, on several lines too.
_STRING = r""" (?: "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' ) """
_STRINGS = rf"{_STRING} (?:\s* {_STRING})*"
# The name is put in for NAME; a line that begins with # is a comment.
_VALUE_OF = (
    r"^ (?P<before> [^#\n]*? \bkey\s*:\s* (?P<quote>[\"']) NAME (?P=quote) [\s,;]*"
    rf"value\s*:?\s*{{\s*string_value\s*:\s* ) {_STRINGS}"
)


def parameters_of(model: Path) -> dict[str, str]:
    """Return the parameters of the model in the folder `model`, by name, in the file's order.

    Raises BuildError if config.pbtxt cannot be read.
    """
    return ConfigFile.read(model).parameters()


def set_parameters(model: Path, **parameters: str) -> None:
    """Replace values of parameters that the config.pbtxt in the folder `model` has.

    Raises BuildError, and writes nothing, if a parameter is not there exactly once.
    """
    ConfigFile.read(model).with_parameters(**parameters).write(model)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The text of a model's config.pbtxt; each `with_…` returns a changed one.

    All methods raise BuildError for a text that is no model configuration, or that cannot be
    changed.
    """

    path: Path
    """File that the text was read from, for messages."""
    text: str

    @classmethod
    def read(cls, model: Path) -> ConfigFile:
        """Return the file in the folder `model`."""
        path = model / CONFIG
        try:
            return cls(path, path.read_text("utf-8"))
        except OSError as error:
            raise BuildError(f"{path} cannot be read: {error}") from error

    def write(self, model: Path) -> None:
        """Write the text to the folder `model`."""
        (model / CONFIG).write_text(self.text, "utf-8")

    def parameters(self) -> dict[str, str]:
        """Return the parameters by name, in the text's order."""
        found = {name: each.string_value for name, each in self._parsed().parameters.items()}
        # protobuf keeps no order.
        return {name: found[name] for name in sorted(found, key=self._position_of)}

    def with_parameters(self, **parameters: str) -> ConfigFile:
        """Replace values of parameters; each must be there exactly once."""
        expected, text = self.parameters() | parameters, self.text
        for name, value in parameters.items():
            pattern = _VALUE_OF.replace("NAME", re.escape(name))
            matches = list(re.compile(pattern, re.MULTILINE | re.VERBOSE).finditer(text))
            if len(matches) != 1:
                count = len(matches)
                raise BuildError(f"{self.path} has the parameter {name} {count} times, not once")
            start, end = matches[0].end("before"), matches[0].end()
            text = f'{text[:start]}"{_quoted(value)}"{text[end:]}'
        changed = replace(self, text=text)
        if changed.parameters() != expected:
            raise BuildError(
                f"{self.path} cannot be changed: write each parameter on a line of its own"
            )
        return changed

    def with_item(self, parameter: str, item: str) -> ConfigFile:
        """Add an item at the end of a parameter that is a comma-separated list."""
        old = self.parameters().get(parameter, "")
        return self.with_parameters(**{parameter: ",".join(filter(None, (old, item)))})

    def with_name(self, name: str) -> ConfigFile:
        """Give the model another name; the old one must be on a line of its own."""
        return self._with_line("name", r'name: "[^"\n]*"', f'name: "{_quoted(name)}"')

    def with_instances(self, count: int) -> ConfigFile:
        """Set the number of instances in a file with the layout of the shipped models."""
        new = f"instance_group [ {{ count: {count}"
        return self._with_line("instance_group", r"instance_group \[ { count: \d+", new)

    def with_statements(self, statements: Iterable[str]) -> ConfigFile:
        """Add statements at the end, after an empty line."""
        return replace(self, text="\n".join([self.text.rstrip(), "", *statements, ""]))

    def _parsed(self) -> model_config_pb2.ModelConfig:
        try:
            return text_format.Parse(self.text, model_config_pb2.ModelConfig())
        except text_format.ParseError as error:
            raise BuildError(f"{self.path} cannot be read: {error}") from error

    def _position_of(self, name: str) -> int:
        found = re.search(rf"key\s*:\s*[\"']{re.escape(_quoted(name))}[\"']", self.text)
        return found.start() if found else len(self.text)

    def _with_line(self, what: str, beginning: str, new: str) -> ConfigFile:
        """Replace the beginning of the one line that begins with the pattern `beginning`.

        `what` names the line in the message.
        """
        text, count = re.subn(f"^{beginning}", lambda _: new, self.text, flags=re.MULTILINE)
        if count != 1:
            raise BuildError(
                f"{self.path} has {count} lines with {what!r} in the layout of the shipped models, "
                "not one"
            )
        return replace(self, text=text)


def parameter_line(name: str, value: str) -> str:
    """Return the line of one parameter."""
    return f'parameters {{ key: "{_quoted(name)}" value {{ string_value: "{_quoted(value)}" }} }}'


def _quoted(text: str) -> str:
    """Escape text for a string in protobuf's text format."""
    return "".join(_ESCAPES.get(each, each) for each in text)


_ESCAPES = {chr(code): f"\\{code:03o}" for code in (*range(32), 127)} | {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
}
"""Escapes by character; control characters are written in octal, as line ends may be changed."""
