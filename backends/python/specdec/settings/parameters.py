"""Read the parameters of a model's config.pbtxt into a frozen dataclass."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from specdec.errors import ConfigurationError

Settings = TypeVar("Settings")

ENGINE_SEPARATOR = "."
"""Separator between engine and parameter. `target.kernels` is the parameter `kernels` of the engine
`target`, which then runs in the orchestrator's process."""


def _bool(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(text)
    return text == "true"


_READERS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": _bool,
}


def read_parameters(kind: type[Settings], model_config: Mapping[str, Any]) -> Settings:
    """Return an instance of the dataclass `kind`, filled from a Triton model configuration.

    Fields have type str, int, float or bool; a bool is written true or false. `model_config` has
    the keys `name` and `parameters`. Raises ConfigurationError for a value of the wrong type, for a
    missing one without a default, and for an unknown name, which may be a misspelt parameter.
    """
    given = {name: value["string_value"] for name, value in model_config["parameters"].items()}
    values: dict[str, Any] = {}
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(given) - set(fields))
    if unknown:
        raise ConfigurationError(
            f"{model_config['name']}: unknown parameter {unknown[0]!r}; known are {sorted(fields)}"
        )
    for name, field in fields.items():
        if name in given:
            try:
                values[name] = _READERS[str(field.type)](given[name])
            except ValueError:
                raise ConfigurationError(
                    f"{model_config['name']}: parameter {name} must be of type {field.type}; "
                    f"given {given[name]!r}"
                ) from None
        elif field.default is dataclasses.MISSING:
            raise ConfigurationError(f"{model_config['name']}: parameter {name} is missing")
    return kind(**values)


def own_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model configuration without the parameters of engines (`engine.name`)."""
    own = {
        name: value for name, value in config["parameters"].items() if ENGINE_SEPARATOR not in name
    }
    return {**config, "parameters": own}
