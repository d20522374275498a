"""Read options that the user gives to tritonserver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def values_of(option: str, arguments: Sequence[str]) -> Iterator[str]:
    """Yield an option's values, each given as `--option=value` or as `--option value`."""
    for index, argument in enumerate(arguments):
        name, separator, value = argument.partition("=")
        if name == option:
            yield value if separator else " ".join(arguments[index + 1 : index + 2])


def value_of(option: str, arguments: Sequence[str]) -> str:
    """Return an option's last value, which is the one that counts; empty if it is not given."""
    *_, last = "", *values_of(option, arguments)
    return last
