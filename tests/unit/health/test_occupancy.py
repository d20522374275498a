"""How full an engine is, as its metrics show it."""

import threading

import numpy as np

from specdec.health import occupancy
from specdec.health.occupancy import Occupancy, OccupancyWatch, PeakOccupancy
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.engine import IDLE_BEAT_S, EngineSettings, TorchEngine
from specdec.torch_engine.task import Task
from tests.unit.tiny_llama import save_tiny_llama
from tests.waiting import wait_for

NUM_BLOCKS, BLOCK_SIZE = 8, 256
LIMITS = EngineLimits(max_seq_len=1024, max_num_tokens=64, num_cache_tokens=NUM_BLOCKS * BLOCK_SIZE)


def test_peak_is_kept_until_someone_asks():
    """A short peak between two looks is seen; afterwards the latest state counts."""
    peaks = PeakOccupancy()
    for now in (Occupancy(2, 0.5), Occupancy(1, 0.75), Occupancy(0, 0.25)):
        peaks.note(now)
    assert peaks.take() == Occupancy(2, 0.75)
    assert peaks.take() == Occupancy(0, 0.25)


def test_requests_without_room_wait(tmp_path):
    """A cache with room for two of four requests has two that wait, and is empty after them."""
    checkpoint = save_tiny_llama(tmp_path)
    engine = TorchEngine(EngineSettings(checkpoint, LIMITS, device="cpu", kernels="torch"))
    tokens = np.asarray([1, 2, 3], dtype=np.int32)
    try:
        for number in range(4):
            # 4 blocks: 3 for the tokens, and one for the copy of a shared block.
            task = Task(f"r{number}", tokens, 3 * BLOCK_SIZE - len(tokens))
            engine.submit(task, lambda _: None)
        wait_for(lambda: engine.occupancy() == Occupancy(2, 1.0))
        for number in range(4):
            engine.cancel(f"r{number}")
        wait_for(lambda: engine.occupancy() == Occupancy(), IDLE_BEAT_S * 20)
    finally:
        engine.close()


def test_only_changes_are_shown():
    """A state that stays is not shown at once again; an engine that cannot tell shows nothing."""
    states = iter([None, Occupancy(1), Occupancy(1), Occupancy(2)])
    shown, ended = [], threading.Event()

    def ask():
        state = next(states, Occupancy(2))
        if len(shown) == 2:
            ended.set()
        return state

    watch = OccupancyWatch(ask, shown.append)
    assert ended.wait(10)
    watch.close()
    assert shown == [Occupancy(1), Occupancy(2)]


def test_a_state_that_stays_is_shown_again(monkeypatch):
    """The old process of a model that is loaded again sets the same metrics to 0 at its end."""
    monkeypatch.setattr(occupancy, "REPEAT_S", 0.0)
    shown, ended = [], threading.Event()

    def show(state):
        shown.append(state)
        if len(shown) == 3:
            ended.set()

    watch = OccupancyWatch(lambda: Occupancy(1), show)
    assert ended.wait(10)
    watch.close()
    assert set(shown) == {Occupancy(1)}
