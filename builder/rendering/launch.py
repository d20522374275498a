"""The script that starts a rendered repository, and the MPI ranks of its engines.

Compiled engines have two modes. Leader mode starts a tritonserver for each rank of a single engine.
Orchestrator mode starts one tritonserver, which spawns the workers of several engines. Source:
scripts/launch_triton_server.py of TensorRT-LLM's triton_backend (1.2).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from specdec.builder.description import TENSORRTLLM, TORCH, VLLM, EngineDescription, PairDescription
from specdec.launch.server_command import (
    REGION_PREFIX,
    SHM_PREFIX_VARIABLE,
    python_backend_options,
)

LAUNCH_FILE = "launch.sh"
EXIT_TIMEOUT_S = 30
"""Seconds that tritonserver waits for running requests when it stops."""
BREAK = " \\\n    "
"""A line break within a shell command."""
SHM_PREFIX = "${shm_prefix}"
SHM_PREFIX_LINE = f'shm_prefix="${{{SHM_PREFIX_VARIABLE}:-{REGION_PREFIX}$$_}}"'
"""Shell line that sets the name prefix of the Python backend's shared memory: the supervisor's, or
one with this process's id. By it `specdec serve` finds what a killed server left."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The command that starts a repository, and its environment."""

    comment: str
    """Sentence for the head of the script."""
    command: str
    """Shell command, in which `$repository` is the repository's folder."""
    environment: tuple[tuple[str, str], ...] = ()
    """Environment variables, as (name, value)."""
    participants: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    """MPI ranks of each instance, by engine; empty unless mpirun starts every rank."""

    def script(self, pair: PairDescription) -> str:
        """Return the text of `launch.sh`; it passes its arguments on to the server."""
        exports = [f"export {name}={shlex.quote(value)}" for name, value in self.environment]
        return "\n".join(
            [
                "#!/usr/bin/env bash",
                f"# Starts the pair {pair.name}.",
                f"# {self.comment}",
                "set -eu",
                'repository="$(cd "$(dirname "$0")" && pwd)"',
                *exports,
                *([SHM_PREFIX_LINE] if SHM_PREFIX in self.command else []),
                self.command,
                "",
            ]
        )


def plan_launch(pair: PairDescription, *, starts_ranks: bool = False) -> Launch:
    """Return the command that starts the pair's server.

    With `starts_ranks`, mpirun starts every rank and each engine is told which ranks are its own.
    This is for machines where MPI may not spawn processes (Slurm, Kubernetes across nodes).
    """
    if pair.engine == TORCH or pair.has_drafters_inside:
        return _supervised(pair)
    image = pair.runtime.image
    if pair.engine != TENSORRTLLM:
        return Launch(f"Inside {image}.", f'exec {_server(pair)} "$@"', _visible(pair))
    num_ranks = sum(_num_ranks(each) for each in pair.engines)
    if len(pair.engines) == 1 and num_ranks == 1:
        return Launch(f"Inside {image}: one engine on one GPU.", f'exec {_server(pair)} "$@"')
    if len(pair.engines) == 1 and len(pair.target.placement.instances) == 1:
        comment = f"Inside {image}: leader mode, a process for each of {num_ranks} ranks."
        return Launch(comment, _mpirun(pair, num_ranks))
    if starts_ranks:
        comment = f"Inside {image}: orchestrator mode, {num_ranks} workers started by mpirun."
        return Launch(comment, _mpirun(pair, 1 + num_ranks), _orchestrator("0"), _ranks(pair))
    # Workers that Triton spawns would inherit its CUDA memory pools.
    pools = ["--pinned-memory-pool-byte-size=0", "--enable-peer-access=false"]
    num_gpus = 1 + max(device for each in pair.engines for device in each.placement.devices)
    pools += [f"--cuda-memory-pool-byte-size={index}:0" for index in range(num_gpus)]
    line = f'exec mpirun --allow-run-as-root -n 1 {BREAK.join((_server(pair), *pools))} "$@"'
    comment = f"Inside {image}: orchestrator mode, {num_ranks} workers are spawned."
    return Launch(comment, line, _orchestrator("1"))


def _supervised(pair: PairDescription) -> Launch:
    """Return the launch of engines that run in Triton's Python backend, under our supervisor."""
    line = 'exec specdec serve --model-repository "$repository" --inflight-limit {} "$@"'
    command = line.format(pair.limits.inflight_limit)
    if pair.engine == TORCH:
        return Launch("Runs wherever the package specdec is installed.", command)
    if pair.gpu is None:
        return Launch(f"Runs wherever {pair.engine} and specdec are installed.", command)
    image = pair.runtime.vllm_image if pair.engine == VLLM else pair.runtime.image
    return Launch(f"Runs inside {image}, with specdec installed.", command, _visible(pair))


def _visible(pair: PairDescription) -> tuple[tuple[str, str], ...]:
    """Return CUDA_VISIBLE_DEVICES for a single instance, and no variable for several.

    NVIDIA's llmapi model reads its `gpu_device_ids` only if it has several instances.
    """
    if pair.has_drafters_inside:
        return (("CUDA_VISIBLE_DEVICES", ",".join(map(str, pair.visible_devices))),)
    instances = pair.target.placement.instances
    if len(instances) != 1:
        return ()
    return (("CUDA_VISIBLE_DEVICES", ",".join(map(str, instances[0]))),)


def _orchestrator(spawns: str) -> tuple[tuple[str, str], ...]:
    return ("TRTLLM_ORCHESTRATOR", "1"), ("TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES", spawns)


def _num_ranks(engine: EngineDescription) -> int:
    return engine.placement.world_size * len(engine.placement.instances)


def _ranks(pair: PairDescription) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Return the ranks of each engine's instances. Rank 0 is the server, engines follow."""
    ranks, first = {}, 1
    for engine in pair.engines:
        size, count = engine.placement.world_size, len(engine.placement.instances)
        ranks[engine.name] = tuple(
            tuple(range(first + i * size, first + (i + 1) * size)) for i in range(count)
        )
        first += size * count
    return ranks


def _mpirun(pair: PairDescription, num_ranks: int) -> str:
    """Return the mpirun command: rank 0 serves all models, the others only load the engines."""
    loads = [f"--load-model={each.name}" for each in pair.engines]
    worker = ["--model-control-mode=explicit", *loads]
    ranks = [f'-n 1 {_server(pair)} "$@"']
    ranks += [f"-n 1 {BREAK.join((_server(pair, rank), *worker))}" for rank in range(1, num_ranks)]
    return "exec mpirun --allow-run-as-root " + " : \\\n  ".join(ranks)


def _server(pair: PairDescription, rank: int = 0) -> str:
    options = python_backend_options(pair.limits.inflight_limit, f"{SHM_PREFIX}{rank}_")
    # Auto-completion would start each Python model once more; our configurations are complete.
    options += ["--disable-auto-complete-config", f"--exit-timeout-secs={EXIT_TIMEOUT_S}"]
    return BREAK.join(['tritonserver --model-repository="$repository"', *options])
