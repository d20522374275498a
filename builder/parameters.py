"""Parameters of a model, as its config.pbtxt has them."""

from __future__ import annotations

import re
from pathlib import Path

from builder.errors import BuildError

_PARAMETER = re.compile(
    r'^parameters { key: "([^"]+)" value { string_value: "([^"]*)" } }$', re.MULTILINE
)


def parameters_of(model: Path) -> dict[str, str]:
    """The parameters in a model's config.pbtxt. Raises BuildError where there is none."""
    path = model / "config.pbtxt"
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise BuildError(f"{path} cannot be read: {error}") from error
    return dict(_PARAMETER.findall(text))


def set_parameters(model: Path, **parameters: str) -> None:
    """Replace parameters in a model's config.pbtxt. Raises BuildError for one that is not there."""
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
