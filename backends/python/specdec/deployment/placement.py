"""Reach each engine where it runs: as a model of its own, or in the orchestrator's process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec.deployment.versions import CHECKPOINT, HEAD, served_version
from specdec.engines.bls_calls import BlsCalls
from specdec.engines.calls import EngineCalls
from specdec.engines.protocol import EngineClock
from specdec.engines.wire.sampling_inputs import Sampling
from specdec.health.board import BoardHeartbeat
from specdec.health.occupancy import Occupancy, OccupancyWatch
from specdec.settings.parameters import ENGINE_SEPARATOR, read_parameters

if TYPE_CHECKING:
    from specdec.torch_engine.engine import TorchEngine


class PlacedEngines:
    """All engines of an orchestrator, by model name.

    An engine with parameters in the orchestrator's configuration runs in this process. The others
    are Triton models of this server.
    """

    def __init__(self, config: Mapping[str, Any], version_directory: Path) -> None:
        """Load the engines that run in this process.

        Raises ConfigurationError if their parameters are wrong or their weights cannot be served.
        """
        self._local: dict[str, TorchEngine] = {}
        self._folders: dict[str, tuple[Path, Path]] = {}
        self._models = version_directory.parents[1]
        for name, parameters in _by_engine(config["parameters"]).items():
            # Imported here, because a deployment of compiled engines need not have PyTorch.
            from specdec.settings.torch_engine import EngineModelSettings  # noqa: PLC0415
            from specdec.torch_engine.engine import TorchEngine  # noqa: PLC0415

            settings = read_parameters(
                EngineModelSettings, {"name": name, "parameters": parameters}
            )
            own = settings.engine_settings(version_directory)
            self._local[name] = TorchEngine(own, BoardHeartbeat(name))
            self._folders[name] = own.checkpoint, own.drafting_head_dir or own.checkpoint / HEAD

    def calls(
        self,
        model: str,
        request_id: str,
        label: str,
        sampling: Sampling,
        clock: EngineClock | None = None,
    ) -> EngineCalls:
        """Return the calls of one request to the engine `model`, wherever it runs.

        Each call has the id `<request_id>:<label>:<number>`. With a `clock`, calls add the engine's
        own times to it.
        """
        engine = self._local.get(model)
        if engine is None:
            return BlsCalls(model, request_id, label, sampling, clock)
        from specdec.engines.local_calls import LocalCalls  # noqa: PLC0415

        return LocalCalls(model, engine, f"{request_id}:{label}", sampling, clock)

    def checkpoint(self, model: str) -> Path:
        """Return the folder of the weights that an engine serves now.

        A compiled engine has only records of its weights there.
        """
        return self._folders_of(model)[0]

    def head(self, model: str) -> Path:
        """Return the folder of the engine's head; it need not exist."""
        return self._folders_of(model)[1]

    def _folders_of(self, model: str) -> tuple[Path, Path]:
        if model in self._folders:
            return self._folders[model]
        version = served_version(self._models / model) or self._models / model / "1"
        return version / CHECKPOINT, version / HEAD

    def watch(self, show: Callable[[str, Occupancy], object]) -> list[OccupancyWatch]:
        """Start a watch for each engine in this process; it calls `show` with name and occupancy.

        An engine that is a Triton model of its own has gauges of its own.
        """
        return [
            OccupancyWatch(engine.occupancy, partial(show, name))
            for name, engine in self._local.items()
        ]

    def close(self) -> None:
        for engine in self._local.values():
            engine.close()


def _by_engine(parameters: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    engines: dict[str, dict[str, Any]] = {}
    for key, value in parameters.items():
        engine, dot, name = key.rpartition(ENGINE_SEPARATOR)
        if dot:
            engines.setdefault(engine, {})[name] = value
    return engines
