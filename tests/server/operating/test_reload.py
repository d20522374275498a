"""A model that is loaded again, in the same version, keeps its metrics.

Triton frees a metric for all processes that have it once one of them removes it. The new process
would write to freed memory, and the metric would be missing on the page.
"""

import os

import pytest

from tests.server.support.doors import HOPELESS, Door
from tests.server.support.live import load, metrics
from tests.server.support.prompts import COUNT
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("no_crash")


def replace(server, model):
    """Load a model whose code is newer; wait until the old process has ended."""
    ended = f"successfully unloaded '{model}' version 1"

    def num_ended():
        return server.log_path.read_text(errors="replace").count(ended)

    before = num_ended()
    os.utime(server.settings.model_repository / model / "1" / "model.py")
    load(server, model)
    wait_for(lambda: num_ended() > before)


def test_engine_that_is_replaced_keeps_its_gauges(doors):
    """The gauges of the old and of the new process are the same ones; the new one sets them."""
    gauges = {
        (name, ("model=draft", "version=1"))
        for name in ("specdec_waiting_requests", "specdec_kv_cache_usage")
    }
    wait_for(lambda: gauges <= metrics(doors, dropped=()).keys())

    replace(doors, "draft")

    assert Door(doors).ask(COUNT, drafter="draft", max_tokens=8).end.total_draft_tokens > 0
    wait_for(lambda: gauges <= metrics(doors, dropped=()).keys())


def test_orchestrator_that_is_replaced_counts_on(doors):
    """Counters go on from their values, and requests in flight are counted for the new process."""
    door = Door(doors, HOPELESS)
    door.ask(COUNT, max_tokens=2)
    wait_for(lambda: door.gauge("requests_total", outcome="ok"))
    before = door.gauge("requests_total", outcome="ok")

    replace(doors, HOPELESS)
    door.ask(COUNT, max_tokens=2)

    wait_for(lambda: door.gauge("requests_total", outcome="ok") == before + 1)
    wait_for(lambda: door.gauge("inflight_requests") == 0)
    assert door.gauge("inflight_limit") == 64
