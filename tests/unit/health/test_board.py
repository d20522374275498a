"""The board has the last heartbeat of each model process, and none of processes that left."""

import os
import subprocess
import sys
import time

import pytest

from specdec.health.board import (
    BoardHeartbeat,
    Role,
    State,
    ask_to_drain,
    board_directory,
    drain_deadline_s,
    read_board,
)


@pytest.fixture
def directory(tmp_path):
    """Return the path of a board, which does not exist yet."""
    return tmp_path / "board"


def test_reader_sees_what_was_written(directory):
    """It sees model, role, needed models, state, and the time of the last heartbeat in seconds."""
    pulse = BoardHeartbeat("specdec", Role.ORCHESTRATOR, ("target", "other"), directory)
    pulse.enter(State.SERVING)
    before_s = time.monotonic()
    pulse.beat(is_working=True)

    (beat,) = read_board(directory)

    assert (beat.model, beat.role, beat.needs) == (
        "specdec",
        Role.ORCHESTRATOR,
        ("target", "other"),
    )
    assert (beat.state, beat.has_work) == (State.SERVING, True)
    assert before_s <= beat.beat_s <= time.monotonic()


def test_task_in_the_queue_is_work(directory):
    """A waiting loop has work as soon as a task is queued, until it takes the task."""
    pulse = BoardHeartbeat("target", directory=directory)
    seen = []
    for step in (lambda: None, pulse.task_queued, pulse.task_taken):
        step()
        seen += [each.has_work for each in read_board(directory)]

    assert seen == [False, True, False]


def test_last_process_removes_the_board(directory):
    """Nothing stays in shared memory when all processes have left."""
    pulses = [BoardHeartbeat(name, directory=directory) for name in ("target", "draft")]
    pulses[0].close()
    assert [each.model for each in read_board(directory)] == ["draft"]

    pulses[1].close()

    assert not directory.exists()
    assert read_board(directory) == []


def test_model_that_is_loaded_again_replaces_its_dead_processes(directory):
    """A tritonserver without supervisor may load a dead target again; other models stay listed."""
    script = (
        "from pathlib import Path; import sys, os; from specdec.health.board import BoardHeartbeat;"
        "directory = Path(sys.argv[1]);"
        "kept = [BoardHeartbeat(name, directory=directory) for name in ('target', 'draft')];"
        "os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", script, str(directory)], check=False)
    assert [each.model for each in read_board(directory)] == ["draft", "target"]

    BoardHeartbeat("target", directory=directory)

    beats = {each.model: each.pid for each in read_board(directory)}
    assert beats["target"] == os.getpid() != beats["draft"]


def test_drain_request_has_a_deadline(directory):
    """Without a request there is no deadline."""
    assert drain_deadline_s(directory) is None
    ask_to_drain(directory, 12.5)
    assert drain_deadline_s(directory) == 12.5
    assert read_board(directory) == []


def test_board_is_named_by_the_supervisor_or_after_the_parent():
    """SPECDEC_BOARD wins; without a supervisor the name ends with tritonserver's process id."""
    assert str(board_directory({"SPECDEC_BOARD": "/somewhere"})) == "/somewhere"
    assert board_directory({}).name.startswith("specdec_board_")


_BEATING = """
import sys
from pathlib import Path
from specdec.health.board import BoardHeartbeat

pulse = BoardHeartbeat("target", directory=Path(sys.argv[1]))
print("on the board", flush=True)
while True:
    for _ in range(1000):
        pulse.beat(is_working=True)
"""


def test_reader_sees_no_half_written_beat(directory):
    """A time of 0, read while another one is being written, would look like a hang of days."""
    before_s = time.monotonic()
    writer = subprocess.Popen(
        [sys.executable, "-c", _BEATING, str(directory)], stdout=subprocess.PIPE
    )
    try:
        writer.stdout.readline()
        deadline_s = time.monotonic() + 2.0
        while time.monotonic() < deadline_s:
            (beat,) = read_board(directory)
            assert before_s < beat.beat_s <= time.monotonic()
            assert beat.state is State.LOADING
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
