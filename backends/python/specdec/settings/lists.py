"""Parse the lists in parameters: names `a,b`, pairs `a=b,c=d` and vocabulary sizes.

Items are separated by commas. Spaces around items, names and values do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from specdec.errors import ConfigurationError


def item_error(parameter: str, item: str, form: str) -> ConfigurationError:
    """Return the error for an item of a list that does not have the allowed form."""
    return ConfigurationError(f"{parameter} has {item!r}; an item must be {form}")


def check_known(parameter: str, given: Iterable[str], what: str, known: Iterable[str]) -> None:
    """Raise ConfigurationError if `given` has a name that is not in `known`.

    The message calls such a name by `what`, for example "the engine".
    """
    known = tuple(known)
    for name in given:
        if name not in known:
            allowed = f"one of {', '.join(known)}" if known else "left out: there is none"
            raise ConfigurationError(f"{parameter} has {name!r}; {what} must be {allowed}")


def read_names(parameter: str, text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list; empty for an empty text.

    Raises ConfigurationError if a name is repeated.
    """
    names = tuple(filter(None, (each.strip() for each in text.split(","))))
    for index, name in enumerate(names):
        if name in names[:index]:
            raise item_error(parameter, name, "a name that the list has only once")
    return names


def read_pairs(parameter: str, text: str, form: str) -> dict[str, str]:
    """Return the values of a list of `name=value` by name.

    `form` is the form of an item for error messages. Raises ConfigurationError if an item lacks
    name, `=` or value, or if a name is repeated.
    """
    pairs: dict[str, str] = {}
    for item in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = (part.strip() for part in item.partition("="))
        if not name or not value:
            raise item_error(parameter, item, form)
        if name in pairs:
            raise item_error(parameter, item, f"{form}, with each name only once")
        pairs[name] = value
    return pairs


class VocabSize(NamedTuple):
    """The vocabulary size of one engine."""

    num_tokens: int
    num_columns: int
    """Columns of the engine's logits. These may be padded, so it is at least `num_tokens`."""


def read_vocab_sizes(parameter: str, text: str) -> dict[str, VocabSize]:
    """Return the sizes in a list of `model=tokens:columns` by model.

    Raises ConfigurationError for an item of another form or with fewer columns than tokens.
    """
    form = "model=tokens:columns, with at least as many columns as tokens"
    sizes = {}
    for model, value in read_pairs(parameter, text, form).items():
        numbers = [part.strip() for part in value.split(":")]
        if len(numbers) != 2 or not all(each.isdecimal() for each in numbers):
            raise item_error(parameter, f"{model}={value}", form)
        sizes[model] = size = VocabSize(*map(int, numbers))
        if size.num_columns < size.num_tokens:
            raise item_error(parameter, f"{model}={value}", form)
    return sizes
