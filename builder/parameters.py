"""Reading and changing the parameters in a model's config.pbtxt.

protobuf reads the file, as Triton does. Changes are made in the text, so that comments and layout
stay, and are read again before they are written.
"""

from __future__ import annotations

import re
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from specdec.builder.errors import BuildError

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
    path = model / "config.pbtxt"
    return parameters_in(_read(path), path)


def parameters_in(text: str, path: Path) -> dict[str, str]:
    """Return the parameters in the text of the file `path`, by name, in the text's order.

    Raises BuildError for a text that is no model configuration.
    """
    try:
        config = text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError as error:
        raise BuildError(f"{path} cannot be read: {error}") from error
    found = {name: each.string_value for name, each in config.parameters.items()}
    # protobuf keeps no order.
    return {name: found[name] for name in sorted(found, key=lambda name: _place(text, name))}


def set_parameters(model: Path, **parameters: str) -> None:
    """Replace values of parameters that the config.pbtxt in the folder `model` has.

    Raises BuildError, and writes nothing, if a parameter is not there exactly once.
    """
    path = model / "config.pbtxt"
    path.write_text(with_parameters(_read(path), path, **parameters), "utf-8")


def with_parameters(text: str, path: Path, **parameters: str) -> str:
    """Return the text of the file `path` with other values of parameters that it has.

    Raises BuildError if a parameter is not there exactly once.
    """
    expected = parameters_in(text, path) | parameters
    for name, value in parameters.items():
        pattern = _VALUE_OF.replace("NAME", re.escape(name))
        line = re.compile(pattern, re.MULTILINE | re.VERBOSE)
        matches = list(line.finditer(text))
        if len(matches) != 1:
            raise BuildError(f"{path} has the parameter {name} {len(matches)} times, not once")
        start, end = matches[0].end("before"), matches[0].end()
        text = f'{text[:start]}"{quoted(value)}"{text[end:]}'
    if parameters_in(text, path) != expected:
        raise BuildError(f"{path} cannot be changed: write each parameter on a line of its own")
    return text


def parameter_line(name: str, value: str) -> str:
    """Return the line of one parameter."""
    return f'parameters {{ key: "{quoted(name)}" value {{ string_value: "{quoted(value)}" }} }}'


def quoted(text: str) -> str:
    """Escape text for a string in protobuf's text format."""
    return "".join(_ESCAPES.get(each, each) for each in text)


_ESCAPES = {chr(code): f"\\{code:03o}" for code in (*range(32), 127)} | {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
}
"""Escapes by character; control characters are written in octal, as line ends may be changed."""


def _place(text: str, name: str) -> int:
    found = re.search(rf"key\s*:\s*[\"']{re.escape(quoted(name))}[\"']", text)
    return found.start() if found else len(text)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise BuildError(f"{path} cannot be read: {error}") from error
