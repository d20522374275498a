"""The line that starts a rendered repository, and the MPI ranks that its engines take in it.

Source of the compiled engines' modes: scripts/launch_triton_server.py of TensorRT-LLM's
triton_backend (1.2): leader mode starts tritonserver once for each rank of the one engine,
orchestrator mode once in all, and it spawns the workers of several engines itself.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from builder.description import TENSORRTLLM, TORCH, EngineDescription, PairDescription
from specdec.serving.server_command import (
    REGION_PREFIX,
    SHM_DEFAULT_BYTES,
    SHM_GROWTH_BYTES,
    SHM_PREFIX_VARIABLE,
)

LAUNCH_FILE = "launch.sh"
CONTAINER = "nvcr.io/nvidia/tritonserver:{}-trtllm-python-py3"
EXIT_TIMEOUT_S = 30
BREAK = " \\\n    "
SHM_PREFIX = "${shm_prefix}"
SHM_PREFIX_LINE = f'shm_prefix="${{{SHM_PREFIX_VARIABLE}:-{REGION_PREFIX}$$_}}"'
"""Names the Python backend's shared memory: as the supervisor wants it, or after this process, so
that `specdec serve` can tell what a killed server left."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a repository is started."""

    comment: str
    command: str
    """A line of shell; `$repository` is the folder."""
    environment: tuple[tuple[str, str], ...] = ()
    participants: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    """By engine and instance: the MPI ranks that are its own, where ranks are started by hand."""

    def script(self, pair: PairDescription) -> str:
        """The file `launch.sh`; its arguments go to the server."""
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
    """Decide how the pair's server is started.

    `starts_ranks`: MPI may not spawn processes (Slurm, Kubernetes across nodes), so that every rank
    is started by mpirun, and each engine is told which are its own.
    """
    if pair.engine == TORCH:
        line = 'exec specdec serve --model-repository "$repository" --inflight-limit {} "$@"'
        comment = "Runs wherever the package specdec is installed."
        return Launch(comment, line.format(pair.limits.inflight_limit))
    container = CONTAINER.format(pair.runtime.container)
    if pair.engine != TENSORRTLLM:
        return Launch(f"Inside {container}.", f'exec {_server(pair)} "$@"', _visible(pair))
    num_ranks = sum(_num_ranks(each) for each in pair.engines)
    if len(pair.engines) == 1 and num_ranks == 1:
        return Launch(f"Inside {container}: one engine on one GPU.", f'exec {_server(pair)} "$@"')
    if len(pair.engines) == 1 and len(pair.target.placement.instances) == 1:
        comment = f"Inside {container}: leader mode, a process for each of {num_ranks} ranks."
        return Launch(comment, _mpirun(pair, num_ranks))
    if starts_ranks:
        comment = f"Inside {container}: orchestrator mode, {num_ranks} workers started by mpirun."
        return Launch(comment, _mpirun(pair, 1 + num_ranks), _orchestrator("0"), _ranks(pair))
    # Triton's own CUDA pools would be inherited by the workers that it spawns.
    pools = ["--pinned-memory-pool-byte-size=0", "--enable-peer-access=false"]
    num_gpus = 1 + max(device for each in pair.engines for device in each.placement.devices)
    pools += [f"--cuda-memory-pool-byte-size={index}:0" for index in range(num_gpus)]
    line = f'exec mpirun --allow-run-as-root -n 1 {BREAK.join((_server(pair), *pools))} "$@"'
    comment = f"Inside {container}: orchestrator mode, {num_ranks} workers are spawned."
    return Launch(comment, line, _orchestrator("1"))


def _visible(pair: PairDescription) -> tuple[tuple[str, str], ...]:
    """NVIDIA's llmapi model looks at its `gpu_device_ids` only where it has several instances."""
    instances = pair.target.placement.instances
    if len(instances) != 1:
        return ()
    return (("CUDA_VISIBLE_DEVICES", ",".join(map(str, instances[0]))),)


def _orchestrator(spawns: str) -> tuple[tuple[str, str], ...]:
    return ("TRTLLM_ORCHESTRATOR", "1"), ("TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES", spawns)


def _num_ranks(engine: EngineDescription) -> int:
    return engine.placement.world_size * len(engine.placement.instances)


def _ranks(pair: PairDescription) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Rank 0 is the orchestrator; the engines' follow in their order."""
    ranks, first = {}, 1
    for engine in pair.engines:
        size, count = engine.placement.world_size, len(engine.placement.instances)
        ranks[engine.name] = tuple(
            tuple(range(first + i * size, first + (i + 1) * size)) for i in range(count)
        )
        first += size * count
    return ranks


def _mpirun(pair: PairDescription, num_ranks: int) -> str:
    """Rank 0 serves all models, the others work for the engines."""
    loads = [f"--load-model={each.name}" for each in pair.engines]
    worker = ["--model-control-mode=explicit", *loads]
    ranks = [f'-n 1 {_server(pair)} "$@"']
    ranks += [f"-n 1 {BREAK.join((_server(pair, rank), *worker))}" for rank in range(1, num_ranks)]
    return "exec mpirun --allow-run-as-root " + " : \\\n  ".join(ranks)


def _server(pair: PairDescription, rank: int = 0) -> str:
    python = {
        # A blocking BLS call holds a thread; a round has up to two in flight per request.
        "thread-pool-size": 2 * pair.limits.inflight_limit,
        "shm-default-byte-size": SHM_DEFAULT_BYTES,
        "shm-growth-byte-size": SHM_GROWTH_BYTES,
        "shm-region-prefix-name": f"{SHM_PREFIX}{rank}_",
    }
    options = [f"--backend-config=python,{name}={value}" for name, value in python.items()]
    # Completing configurations starts each Python model once more; rendered ones are complete.
    options += ["--disable-auto-complete-config", f"--exit-timeout-secs={EXIT_TIMEOUT_S}"]
    return BREAK.join(['tritonserver --model-repository="$repository"', *options])
