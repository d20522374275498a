"""Tests that run `launch.sh` of rendered repositories, with stand-ins for Triton and MPI.

What must come out is taken from scripts/launch_triton_server.py of TensorRT-LLM's triton_backend,
and from the ranks of several models in its docs/model_config.md.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from specdec.builder.description import Placement, load_description
from specdec.builder.rendering.launch import LAUNCH_FILE, plan_launch
from specdec.launch.launcher import _parser
from specdec.launch.server_command import SHM_PREFIX_VARIABLE

STANDINS = Path(__file__).parents[2] / "standins" / "launch"
EXTRA = ("--http-port=9000", "--log-format=ISO8601")
EAGLE3, LOOKUP, TWO = "llama31_8b_eagle3", "llama31_8b_lookup", "qwen25_14b_two_drafts"
SPAWNING = ("--pinned-memory-pool-byte-size=0", "--enable-peer-access=false")


@dataclass(frozen=True)
class Case:
    """A placement of engines, and the servers that its script starts."""

    pair: str
    num_servers: int
    placements: dict[str, Placement]
    environment: dict[str, str]
    """Environment variables of every server, without its rank."""
    num_pools: int = 0
    """GPUs on which Triton keeps no memory pool of its own, since workers would inherit it."""
    starts_ranks: bool = False
    models: tuple[str, ...] = ()
    """Models that the servers after the first one load."""


SPAWNED = {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "1"}
STARTED = SPAWNED | {"TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "0"}
SPLIT = {"target": Placement((0, 1, 2, 3), 4)}
CASES = {
    "one engine": Case(LOOKUP, 1, {}, {}),
    "leader mode": Case(LOOKUP, 4, SPLIT, {}, models=("target",)),
    "one device": Case("llama31_8b_1b", 1, {}, SPAWNED, num_pools=1),
    "separate devices": Case("llama31_70b_8b", 1, {}, SPAWNED, num_pools=5),
    "draft instances": Case(
        "llama31_70b_8b", 1, {"draft": Placement((4, 5))}, SPAWNED, num_pools=6
    ),
    "two drafts": Case(TWO, 1, {}, SPAWNED, num_pools=2),
    "ranks": Case(
        *("llama31_70b_8b", 7, {"draft": Placement((4, 5))}, STARTED),
        starts_ranks=True,
        models=("target", "draft"),
    ),
    "ranks of two drafts": Case(
        *(TWO, 4, {}, STARTED),
        starts_ranks=True,
        models=("target", "draft_chat", "draft_code"),
    ),
    "inside": Case(EAGLE3, 1, {"target": Placement((3,))}, {"CUDA_VISIBLE_DEVICES": "3"}),
    "inside, twice": Case(EAGLE3, 1, {"target": Placement((0, 1))}, {}),
}


def placed(name, placements):
    """Return a shipped pair with its engines placed otherwise."""
    pair = load_description(name)
    target, *drafts = (
        replace(each, placement=placements.get(each.name, each.placement)) for each in pair.engines
    )
    return replace(pair, target=target, drafts=tuple(drafts))


def started(pair, folder, *, starts_ranks=False, extra=EXTRA, shm_prefix="specdec_7_ab_"):
    """Run the pair's script in the new folder `folder`.

    Return (arguments, environment) of each server.
    """
    folder.mkdir()
    (folder / LAUNCH_FILE).write_text(plan_launch(pair, starts_ranks=starts_ranks).script(pair))
    log = folder / "starts"
    known = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    path = os.pathsep.join([str(STANDINS), os.environ["PATH"]])
    subprocess.run(
        ["bash", folder / LAUNCH_FILE, *extra],
        env=known
        | {"PATH": path, "STANDIN_STARTS": str(log)}
        | ({SHM_PREFIX_VARIABLE: shm_prefix} if shm_prefix else {}),
        cwd="/",
        check=True,
    )
    return [json.loads(line).values() for line in log.read_text().splitlines()]


@pytest.mark.parametrize("name", CASES)
def test_script_starts_the_servers_that_the_placement_needs(name, tmp_path):
    """Each rank gets a server; the first serves all models and takes the caller's arguments."""
    case = CASES[name]
    pair = placed(case.pair, case.placements)
    repository = tmp_path / "a repository"  # the blank must not split the path

    servers = started(pair, repository, starts_ranks=case.starts_ranks)

    assert len(servers) == case.num_servers
    for rank, (arguments, environment) in enumerate(servers):
        assert arguments[0] == f"--model-repository={repository}"
        assert f"--backend-config=python,shm-region-prefix-name=specdec_7_ab_{rank}_" in arguments
        own_rank = environment.pop("OMPI_COMM_WORLD_RANK", "0")
        assert own_rank == str(rank)
        assert environment == case.environment
        assert set(EXTRA) <= set(arguments) if rank == 0 else not set(EXTRA) & set(arguments)
        loaded = [each for each in arguments if each.startswith("--load-model=")]
        assert loaded == ([f"--load-model={each}" for each in case.models] if rank else [])
        assert ("--model-control-mode=explicit" in arguments) == (rank > 0)
        threads = f"--backend-config=python,thread-pool-size={3 * pair.limits.inflight_limit}"
        assert threads in arguments
        assert "--disable-auto-complete-config" in arguments
        pools = [each for each in arguments if each.startswith("--cuda-memory-pool-byte-size=")]
        assert pools == [f"--cuda-memory-pool-byte-size={i}:0" for i in range(case.num_pools)]
        assert (set(SPAWNING) <= set(arguments)) == (case.num_pools > 0)


def test_shared_memory_is_named_after_the_process_by_default(tmp_path):
    """The process id lets the next `specdec serve` find out whether the owner still lives."""
    ((arguments, _),) = started(load_description(EAGLE3), tmp_path / "pair", shm_prefix="")
    (option,) = [each for each in arguments if "shm-region-prefix-name" in each]
    assert re.search(r"=specdec_run_[0-9]+_0_$", option)


def test_torch_pair_is_started_by_specdec_serve(tmp_path, monkeypatch):
    """The launcher parses the script's command line as it parses a user's."""
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "specdec").symlink_to(STANDINS / "tritonserver")  # the stand-in logs its arguments
    monkeypatch.setenv("PATH", os.pathsep.join([str(commands), os.environ["PATH"]]))
    pair = load_description("smollm2_135m")

    ((arguments, _),) = started(pair, tmp_path / "repository", extra=["--http-port", "9000"])

    assert arguments[0] == "serve"
    given = _parser().parse_args(arguments[1:])
    assert given.model_repository == tmp_path / "repository"
    assert given.inflight_limit == pair.limits.inflight_limit
    assert given.http_port == 9000
