"""The flags and keywords that each release of TensorRT-LLM takes, from `signatures.toml`."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from specdec.builder.description.reading import read_toml
from specdec.builder.errors import BuildError

SIGNATURES_FILE = Path(__file__).with_name("signatures.toml")
COMMANDS, CALLS = "commands", "calls"
"""Tables of signatures.toml: flags of commands, and keywords of calls."""
_NAMES = {COMMANDS: "flags", CALLS: "keywords"}


@functools.cache
def _tables() -> dict[str, Any]:
    return read_toml(SIGNATURES_FILE)


def check_release(version: str) -> None:
    """Raise BuildError if `version` is not a version, or signatures.toml does not cover it."""
    first, last = map(Version, _tables()["releases"])
    try:
        is_known = first <= Version(version) <= last
    except InvalidVersion as error:
        raise BuildError(f"TensorRT-LLM {version!r} is not a version: {error}") from error
    if not is_known:
        raise BuildError(
            f"the flags of TensorRT-LLM {first} to {last} are known; given {version}. Compile "
            "with one of these, 1.2.1 for instance"
        )


def accepted(kind: str, name: str, version: str) -> frozenset[str]:
    """Return the flags of a command, or the keywords of a call, in a release.

    `kind` is COMMANDS or CALLS. Raises BuildError if signatures.toml lacks the release or `name`.
    """
    check_release(version)
    tables = _tables()[kind]
    if name not in tables:
        raise BuildError(f"{SIGNATURES_FILE.name} has no {name!r} among its {kind}")
    return frozenset(tables[name][_NAMES[kind]])


def choices(command: str) -> dict[str, tuple[str, ...]]:
    """Return the allowed values of the command's flags that have a fixed set of values."""
    return {k: tuple(v) for k, v in _tables()[COMMANDS][command].get("choices", {}).items()}


def quant_algorithms() -> tuple[str, ...]:
    """Return the names in TensorRT-LLM's enum `QuantAlgo`."""
    return tuple(_tables()["algorithms"]["quant_algo"])


def check_names(kind: str, name: str, given: Iterable[str], version: str) -> None:
    """Raise BuildError if the release does not take one of the given flags or keywords."""
    unknown = sorted(set(given) - accepted(kind, name, version))
    if unknown:
        raise BuildError(f"{name} of TensorRT-LLM {version} takes no {unknown[0]}")
