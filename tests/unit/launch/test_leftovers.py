"""Tests of what is left by killed processes of a server."""

import os
import subprocess
import sys

from specdec.health.board import BOARD_VARIABLE, SHARED_MEMORY
from specdec.launch.leftovers import kill_processes_of

HOLD_MEMORY = """
import sys, time
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=4096)
print(memory.name, flush=True)
time.sleep(60)
"""


def start(board):
    """Start a process of a server that has shared memory of a library; return both."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_MEMORY],
        env={**os.environ, BOARD_VARIABLE: str(board)},
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, SHARED_MEMORY / process.stdout.readline().strip()


def test_killed_processes_leave_no_shared_memory_of_their_libraries(tmp_path):
    """Python's own clean-up is killed with them. The memory of another server stays."""
    process, memory = start(tmp_path / "board")
    other, others_memory = start(tmp_path / "other")
    try:
        assert memory.exists()
        assert process.pid in kill_processes_of(tmp_path / "board")
        assert not memory.exists()
        assert others_memory.exists()
    finally:
        kill_processes_of(tmp_path / "other")
        for each in (process, other):
            each.wait()
            each.stdout.close()
    assert not others_memory.exists()
