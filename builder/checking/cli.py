"""`specdec build check`: say whether a pair can be built and will fit, before anything is built."""

from __future__ import annotations

import argparse
import json

from specdec.builder.checking.check import check_description
from specdec.builder.checking.options import add_checkpoint_options, checkpoints
from specdec.builder.checking.text import as_data, as_text
from specdec.builder.description import load_description


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `check` to the parser."""
    add_checkpoint_options(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the report; return 0 if the pair can be built, else 1."""
    report = check_description(load_description(arguments.pair), checkpoints(arguments))
    print(json.dumps(as_data(report), indent=2) if arguments.json else as_text(report))
    return 0 if report.is_buildable else 1
