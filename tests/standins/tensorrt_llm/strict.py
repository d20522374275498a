"""Refuses what the installed release does not know."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version

from specdec.builder.tensorrt_llm.signatures import CALLS, accepted


def only_known(call: str, keywords: Iterable[str]) -> None:
    """Raise TypeError as Python does for a keyword that the call has not."""
    unknown = sorted(set(keywords) - accepted(CALLS, call, version("tensorrt_llm")))
    if unknown:
        raise TypeError(f"{call}() got an unexpected keyword argument {unknown[0]!r}")
