"""Read options from a command line of tritonserver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def values_of(option: str, arguments: Sequence[str]) -> Iterator[str]:
    """Yield the values of `option` (`--name`), given as `--name=value` or `--name value`."""
    for index, argument in enumerate(arguments):
        name, separator, value = argument.partition("=")
        if name == option:
            yield value if separator else " ".join(arguments[index + 1 : index + 2])


def value_of(option: str, arguments: Sequence[str]) -> str:
    """Return the last value of `option`, which Triton uses; empty if it is not given."""
    *_, last = "", *values_of(option, arguments)
    return last
