"""The options that complete a pair file on the command line."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from builder.description import EngineDescription, PairDescription, load_description
from builder.description.loading import pair_file
from builder.errors import BuildError
from builder.tensorrt_llm.signatures import releases

HEAD = "head"
"""Names the checkpoint of [self_speculation]."""


def add_pair_options(parser: argparse.ArgumentParser) -> None:
    """Add --checkpoint and --version."""
    parser.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        metavar="ENGINE=DIR",
        help="the Hugging Face directory of target, a draft, or head (of self_speculation), for "
        "pairs that describe published models by their shape",
    )
    parser.add_argument(
        "--version", metavar="X.Y.Z", help="of TensorRT-LLM (default: what the pair file says)"
    )


def asked_pair(arguments: argparse.Namespace) -> tuple[PairDescription, Path]:
    """The described pair and its file. Raises BuildError."""
    file = pair_file(arguments.pair)
    pair = _with_checkpoints(load_description(arguments.pair), _directories(arguments.checkpoint))
    if arguments.version is not None:
        containers = releases().get(arguments.version) or (pair.runtime.container,)
        runtime = replace(
            pair.runtime, version=arguments.version, container=containers[-1]
        )
        pair = replace(pair, runtime=runtime)
    return pair, file


def _directories(given: list[str]) -> dict[str, Path]:
    found = {}
    for each in given:
        name, separator, directory = each.partition("=")
        if not separator:
            raise BuildError(f"--checkpoint is ENGINE=DIRECTORY; given: {each!r}")
        if not (Path(directory) / "config.json").is_file():
            raise BuildError(f"{directory} is no Hugging Face directory: it has no config.json")
        found[name] = Path(directory).resolve()
    return found


def _with_checkpoints(pair: PairDescription, directories: dict[str, Path]) -> PairDescription:
    known = [each.name for each in pair.engines]
    if pair.self_speculation is not None:
        known.append(HEAD)
    for name in directories:
        if name not in known:
            raise BuildError(f"{pair.name} has no engine {name!r}; known: {', '.join(known)}")

    def placed(engine: EngineDescription) -> EngineDescription:
        return replace(engine, checkpoint=directories.get(engine.name, engine.checkpoint))

    head = pair.self_speculation
    if head is not None:
        head = replace(head, checkpoint=directories.get(HEAD, head.checkpoint))
    return replace(
        pair,
        target=placed(pair.target),
        drafts=tuple(placed(each) for each in pair.drafts),
        self_speculation=head,
    )
