"""Read the parameters of a model's config.pbtxt into a tree of frozen dataclasses.

A field whose type is a dataclass is a group, which is read in turn. Each other field is a parameter
of type str, int, float or bool with the field's name. `parameter` gives it another name or a lower
limit, and `parsed` another type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar, get_type_hints

from specdec.errors import ConfigurationError

Settings = TypeVar("Settings")

ENGINE_SEPARATOR = "."
"""Separator between engine and parameter. `target.kernels` is the parameter `kernels` of the engine
`target`, which then runs in the orchestrator's process."""


def parameter(default: object, *, name: str = "", minimum: float | None = None) -> Any:
    """Declare a field whose parameter has another name, or whose number has a lower limit."""
    return dataclasses.field(default=default, metadata={"name": name, "minimum": minimum})


def parsed(name: str, parse: Callable[[str, str], Any], default: str = "") -> Any:
    """Declare a field for the parameter `name` whose text, such as a list, is parsed.

    `parse` takes name and text, and returns the field's value or raises ConfigurationError.
    """
    return dataclasses.field(
        default_factory=partial(parse, name, default), metadata={"name": name, "parse": parse}
    )


def read_parameters(kind: type[Settings], model_config: Mapping[str, Any]) -> Settings:
    """Return an instance of the dataclass `kind`, filled from a Triton model configuration.

    A bool is written true or false. `model_config` has the keys `name` and `parameters`. Raises
    ConfigurationError for a value of the wrong type, for a missing one without a default, and for
    an unknown name, which may be a misspelt parameter.
    """
    given = {name: value["string_value"] for name, value in model_config["parameters"].items()}
    known = sorted(parameter_names(kind))
    if unknown := sorted(set(given).difference(known)):
        raise ConfigurationError(
            f"{model_config['name']}: unknown parameter {unknown[0]!r}; known are {known}"
        )
    return read_group(kind, model_config["name"], given)


def read_group(kind: type[Settings], model: str, given: Mapping[str, str]) -> Settings:
    """Return an instance of the dataclass `kind`, from parameters that may have others beside.

    `given` are the texts by name, and `model` is the model's name in messages. Raises
    ConfigurationError for a value of the wrong type, and for a missing one without a default.
    """
    values: dict[str, Any] = {}
    for field, type_ in _fields(kind):
        name, defaults = _name(field), (field.default, field.default_factory)
        if dataclasses.is_dataclass(type_):
            values[field.name] = read_group(type_, model, given)
        elif name in given:
            parse = field.metadata.get("parse") or partial(_scalar, model, type_)
            value = values[field.name] = parse(name, given[name])
            minimum = field.metadata.get("minimum")
            if minimum is not None and value < minimum:
                raise ConfigurationError(
                    f"{model}: parameter {name} must be at least {minimum}; given {value}"
                )
        elif defaults == (dataclasses.MISSING, dataclasses.MISSING):
            raise ConfigurationError(f"{model}: parameter {name} is missing")
    return kind(**values)


def _scalar(model: str, type_: type, name: str, text: str) -> Any:
    try:
        return {"true": True, "false": False}[text] if type_ is bool else type_(text)
    except (ValueError, KeyError):
        raise ConfigurationError(
            f"{model}: parameter {name} must be of type {type_.__name__}; given {text!r}"
        ) from None


def _fields(kind: type) -> Iterator[tuple[dataclasses.Field[Any], type]]:
    types = get_type_hints(kind)
    return ((field, types[field.name]) for field in dataclasses.fields(kind))


def _name(field: dataclasses.Field[Any]) -> str:
    return str(field.metadata.get("name") or field.name)


def parameter_names(kind: type) -> Iterator[str]:
    """Yield the names of all parameters of the dataclass `kind`, those of its groups included."""
    for field, type_ in _fields(kind):
        if dataclasses.is_dataclass(type_):
            yield from parameter_names(type_)
        else:
            yield _name(field)


def own_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model configuration without the parameters of engines (`engine.name`)."""
    own = {
        name: value for name, value in config["parameters"].items() if ENGINE_SEPARATOR not in name
    }
    return {**config, "parameters": own}
