"""Checks of the TensorRT-LLM release and the container that a pair asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from specdec.builder.checking.findings import Finding, error, warning
from specdec.builder.description import LLMAPI, LLMAPI_DRAFTS, TENSORRTLLM, PairDescription

VERSION_OF = {
    "24.10": "0.14.0", "24.11": "0.15.0", "24.12": "0.16.0", "25.01": "0.17.0",
    "25.02": "0.17.0.post1", "25.03": "0.18.0", "25.04": "0.18.2", "25.05": "0.19.0",
    "25.06": "0.20.0", "25.07": "0.20.0", "25.08": "0.21.0", "25.09": "1.0.0", "25.10": "1.0.0",
    "25.11": "1.0.3", "25.12": "1.1.0", "26.01": "1.1.0", "26.02": "1.1.0", "26.03": "1.2.0",
    "26.04": "1.2.1", "26.05": "1.2.1", "26.06": "1.2.1", "26.07": "1.2.1",
}  # fmt: skip
"""Release of TensorRT-LLM in each release of tritonserver:…-trtllm-python-py3, from Triton's
compatibility matrix."""

LAST_ENGINES = "1.3.0rc20"
"""The last TensorRT-LLM that compiles engines (June 2026)."""
NEWEST_CONTAINER, OLDEST_CONTAINER = "26.07", "25.06"
"""Containers with the `tensorrtllm` backend: the newest known, and the oldest with the tensor names
that we use."""
NEWEST = f'container = "{NEWEST_CONTAINER}"'
"""The remedy for a container that does not serve: the line that names the newest one."""
FAULTY = ("26.04", "26.05", "26.06")
"""Containers whose Python backend frees the result of an asynchronous BLS call too early."""


def check_versions(pair: PairDescription) -> Iterator[Finding]:
    """Check the TensorRT-LLM version, the container, and whether they belong together."""
    if pair.engine not in (TENSORRTLLM, LLMAPI, LLMAPI_DRAFTS):
        return
    version, container = pair.runtime.version, pair.runtime.container
    if _parsed(version) is None:
        yield error(
            "version",
            f"[runtime]: {version!r} is not a version",
            f'write it as "{VERSION_OF[NEWEST_CONTAINER]}" or "{LAST_ENGINES}"',
        )
        return
    if container in VERSION_OF and VERSION_OF[container] != version:
        releases = [name for name, held in VERSION_OF.items() if held == version]
        fitting = f'container = "{releases[-1]}", or ' if releases else ""
        yield error(
            "container",
            f"the container {container} holds TensorRT-LLM {VERSION_OF[container]}, not {version}: "
            "an engine is loaded only by the version that built it",
            f'{fitting}version = "{VERSION_OF[container]}"',
        )
    if pair.engine == TENSORRTLLM:
        yield from _check_engine_path(version, container)


def _check_engine_path(version: str, container: str) -> Iterator[Finding]:
    if _order(version) > _order(LAST_ENGINES):
        yield error(
            "version",
            f"TensorRT-LLM {version} compiles no engines: {LAST_ENGINES} was the last, and its "
            "Triton backend went with them",
            f'stay with version = "{VERSION_OF[NEWEST_CONTAINER]}" and {NEWEST}, or describe an '
            'llmapi pair (engine = "llmapi")',
        )
    elif not re.fullmatch(r"\d\d\.\d\d", container):
        yield error(
            "container",
            f"[runtime]: {container!r} is not a release",
            f'write it as "{NEWEST_CONTAINER}"',
        )
    elif container in FAULTY:
        yield error(
            "container",
            f"the container {container} frees memory that an asynchronous call between models "
            "still reads (use after free; fixed in 26.07): the server crashes under load",
            NEWEST,
        )
    elif container > NEWEST_CONTAINER:
        yield error(
            "container",
            f"no container {container} with the tensorrtllm backend is known; {NEWEST_CONTAINER} "
            "is the newest known one",
            NEWEST,
        )
    elif container < OLDEST_CONTAINER:
        yield warning(
            "container",
            f"the container {container} is older than {OLDEST_CONTAINER}: its engine has other "
            "names for min_tokens and seed",
            NEWEST,
        )


def _parsed(version: str) -> re.Match[str] | None:
    return re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:rc(\d+)|\.post(\d+))?", version)


def _order(version: str) -> tuple[int, ...]:
    """Return a key that sorts versions, with candidates before and posts after their release."""
    found = _parsed(version)
    assert found is not None
    major, minor, patch, candidate, post = found.groups()
    rank = int(candidate) if candidate else 1_000_000 + int(post or 0)  # a release follows its rcs
    return int(major), int(minor), int(patch), rank
