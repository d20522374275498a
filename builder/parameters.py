"""Reading and changing the parameters in a model's config.pbtxt."""

from __future__ import annotations

import re
from pathlib import Path

from specdec.builder.errors import BuildError

_PARAMETER = re.compile(
    r'^parameters { key: "([^"]+)" value { string_value: "([^"]*)" } }$', re.MULTILINE
)


def parameters_of(model: Path) -> dict[str, str]:
    """Return the parameters of the model in the folder `model`, by name.

    Only parameters on a line of their own, as in this repository, are found. Raises BuildError if
    config.pbtxt cannot be read.
    """
    path = model / "config.pbtxt"
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise BuildError(f"{path} cannot be read: {error}") from error
    return dict(_PARAMETER.findall(text))


def set_parameters(model: Path, **parameters: str) -> None:
    """Replace values of parameters that the config.pbtxt in the folder `model` has.

    Raises BuildError, and writes nothing, if a parameter is not there exactly once.
    """
    path = model / "config.pbtxt"
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise BuildError(f"{path} cannot be read: {error}") from error
    for name, value in parameters.items():
        pattern = rf'(key: "{name}" value {{ string_value: )"[^"]*"'
        text, count = re.subn(pattern, rf'\1"{value}"', text)
        if count != 1:
            raise BuildError(f"{path} has the parameter {name} {count} times, not once")
    path.write_text(text, "utf-8")
