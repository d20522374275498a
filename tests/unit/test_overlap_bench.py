"""Tests of the setup and the tables of `specdec bench overlap`, without a server."""

import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field

import pytest

from builder.errors import BuildError
from builder.parameters import set_parameters
from loadtest.bench.overlap_tables import (
    comparison_figures,
    comparison_table,
    recorded_figures,
    recorded_table,
)
from loadtest.bench.overlapping import Costs, Trace, replay
from loadtest.bench.repository import add_front_door
from loadtest.bench.separating import separate
from specdec.serving.installation import LaunchError

COSTS = Costs(((1, 0.002), (16, 0.032)), ((1, 0.01), (16, 0.01)), 0.001)


@dataclass
class FakeAnswer:
    """An answer of the bench, with 41 tokens in 1.5 s by default."""

    prompt_id: str
    arm: str
    tokens: tuple[int, ...] = (1,) * 41
    num_first: int = 1
    first_s: float = 0.5
    last_s: float = 1.5
    times: dict[str, float] = field(default_factory=dict)


def test_replay_is_compared_with_answers_that_gave_no_costs():
    """Rounds and seconds are compared; c is the time of a draft token ÷ that of a target pass."""
    traces = {str(seed): Trace.of_chance(0.6, 60, seed) for seed in range(4)}
    replays = {name: replay(traces[name], 2, COSTS, "serial") for name in "13"}
    others = [
        FakeAnswer(name, "serial", times=asdict(each) | {"total_s": each.total_s * 1.25})
        for name, each in replays.items()
    ]

    table = recorded_table(COSTS, recorded_figures(COSTS, others, traces, 2))

    num_rounds = sum(each.num_rounds for each in replays.values())
    assert f"{num_rounds} / {num_rounds}" in table
    assert "-20.0%" in table
    assert "| 0.20 " in table  # 2 ms of 10 ms


def test_rates_leave_the_first_response_out():
    """Tokens and seconds count after the first response, which waits for the prompt."""
    found = [
        FakeAnswer(
            prompt,
            arm,
            last_s=0.5 + (0.8 if arm == "ahead" else 1.0),
            times={"num_rounds": 10, "target_s": 0.3 if arm == "ahead" else 0.2},
        )
        for prompt in "abc"
        for arm in ("off", "serial", "ahead")
    ]

    speeds = comparison_figures(COSTS, {"a": Trace.of_chance(0.6, 60)}, found, 2)
    rows = comparison_table(speeds).splitlines()

    cells = {row.split("|")[1].strip(): [c.strip() for c in row.split("|")[2:4]] for row in rows}
    assert "replayed, ahead, steps × 1.50" in cells
    assert cells["run, serial"] == ["40.0", "1.00"]
    assert cells["run, ahead"] == ["50.0", "1.25 (1.25–1.25)"]


def test_copied_orchestrator_has_its_own_parameters(tmp_path):
    """The copy has another name and other parameters; an unknown parameter is refused."""
    door = tmp_path / "specdec"
    door.mkdir()
    text = 'name: "specdec"\nparameters { key: "a" value { string_value: "1" } }\n'
    (door / "config.pbtxt").write_text(text)

    add_front_door(tmp_path, "second", a="2")

    assert (door / "config.pbtxt").read_text() == text
    expected = text.replace("specdec", "second").replace('"1"', '"2"')
    assert (tmp_path / "second" / "config.pbtxt").read_text() == expected
    with pytest.raises(BuildError, match="parameter b 0 times"):
        set_parameters(door, b="2")


def test_each_models_process_gets_a_core_of_its_own():
    """Processes are found by the model's name.

    A model without a process is refused, and so are more models than cores.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core")
    wait = "import sys; print(flush=True); sys.stdin.read()"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", wait, f"{model}_0_0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for model in ("draft", "target")
    ]
    try:
        for each in processes:
            each.stdout.readline()
        assert separate(os.getpid(), "draft", "target") == tuple(cores[:2])
        found = [os.sched_getaffinity(each.pid) for each in processes]
        with pytest.raises(LaunchError, match="'other'"):
            separate(os.getpid(), "other")
        with pytest.raises(LaunchError, match=f"there are {len(cores)}"):
            separate(os.getpid(), *["draft"] * (len(cores) + 1))
    finally:
        for each in processes:
            each.communicate()

    assert found == [{cores[0]}, {cores[1]}]
