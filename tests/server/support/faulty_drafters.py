"""Drafters inside an engine that fail and hang again and again."""

import itertools
import time
from pathlib import Path

from specdec.batch_drafting.requests import BatchRequest
from specdec.batch_engines.step_drafting import StepDrafting
from specdec.batch_engines.vllm.worker import SpecdecWorker

EVERY_STEP = 50
"""Steps from one failing step to the next."""
EVERY_PROPOSAL = 70
"""Proposals from one that raises to the next; halfway between, one sleeps."""
SLEEP_S = 0.3
"""Longer than twice the draft_budget_ms of the test."""

MODEL_PY = """import sys

sys.path[:0] = {folders!r}

from specdec.batch_engines.vllm import engine  # noqa: E402
from tests.server.support import faulty_drafters  # noqa: E402

engine.WORKER = "tests.server.support.faulty_drafters.FaultyWorker"
faulty_drafters.plant()

from specdec.engine_model.{module} import TritonPythonModel  # noqa: E402, F401
"""


def plant_in(model: Path, module: str, *folders: Path) -> None:
    """Write a model.py whose drafters fail; `module` has the real model's class.

    `folders` are where its Python finds further packages.
    """
    given = [str(Path(__file__).parents[3]), *map(str, folders)]
    text = MODEL_PY.format(folders=given, module=module)
    (model / "1" / "model.py").write_text(text, "utf-8")


def plant():
    """Make the drafters of this process fail."""
    steps, proposals = itertools.count(1), itertools.count(1)
    end_step, propose = StepDrafting.end_step, BatchRequest.propose

    def failing_step(self, *args):
        if next(steps) % EVERY_STEP == 0:
            raise RuntimeError("planted in a step")
        return end_step(self, *args)

    def failing_proposal(self, *args):
        number = next(proposals) % EVERY_PROPOSAL
        if number == 0:
            raise RuntimeError("planted in a proposal")
        if number == EVERY_PROPOSAL // 2:
            time.sleep(SLEEP_S)
        return propose(self, *args)

    StepDrafting.end_step, BatchRequest.propose = failing_step, failing_proposal


class FaultyWorker(SpecdecWorker):
    """vLLM's worker with drafters that fail."""

    def specdec_bind(self, *args):
        """Start drafting, with faults."""
        plant()
        return super().specdec_bind(*args)
