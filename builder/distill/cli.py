"""`specdec build distill`: prompts, answers, train, export, evaluate, or all of them."""

from __future__ import annotations

import argparse

from specdec.builder.distill.options import add_training_options, run_steps
from specdec.builder.distill.steps import Steps
from specdec.builder.distill.training.draft_model import DraftModelSettings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `distill` to the parser."""
    parser.description = "Distil a small standalone draft from a target."
    add_training_options(parser, DraftModelSettings)


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen steps and return 0. Raises BuildError without a target, or if a step fails."""
    return run_steps(arguments, Steps)
