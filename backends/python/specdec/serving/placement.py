"""Where the orchestrator's engines run: models of their own, or its own process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec.engines.bls_calls import BlsCalls
from specdec.engines.calls import EngineCalls
from specdec.engines.protocol import EngineClock
from specdec.engines.sampling_inputs import Sampling
from specdec.health.board import Pulse
from specdec.serving.parameters import OF, read_parameters
from specdec.serving.versions import CHECKPOINT, HEAD, served_version

if TYPE_CHECKING:
    from specdec.torch_engine.engine import TorchEngine


class PlacedEngines:
    """Engines that have parameters here run here; all others are models of this server."""

    def __init__(self, config: Mapping[str, Any], version_directory: Path) -> None:
        """Loads the engines of this process. Raises ConfigurationError."""
        self._local: dict[str, TorchEngine] = {}
        self._folders: dict[str, tuple[Path, Path]] = {}
        self._models = version_directory.parents[1]
        for name, parameters in _by_engine(config["parameters"]).items():
            # Beside compiled engines there need not be PyTorch.
            from specdec.serving.engine_settings import EngineModelSettings  # noqa: PLC0415
            from specdec.torch_engine.engine import TorchEngine  # noqa: PLC0415

            settings = read_parameters(
                EngineModelSettings, {"name": name, "parameters": parameters}
            )
            own = settings.engine_settings(version_directory)
            self._local[name] = TorchEngine(own, Pulse(name))
            self._folders[name] = own.checkpoint, own.head or own.checkpoint / HEAD

    def calls(
        self,
        model: str,
        request_id: str,
        label: str,
        sampling: Sampling,
        clock: EngineClock | None = None,
    ) -> EngineCalls:
        engine = self._local.get(model)
        if engine is None:
            return BlsCalls(model, request_id, label, sampling, clock)
        from specdec.engines.local_calls import LocalCalls  # noqa: PLC0415

        return LocalCalls(model, engine, f"{request_id}:{label}", sampling, clock)

    def checkpoint(self, model: str) -> Path:
        """Where the engine's weights lie at the moment, or what is recorded of compiled ones."""
        return self._folders_of(model)[0]

    def head(self, model: str) -> Path:
        """The same of the head on the engine's states."""
        return self._folders_of(model)[1]

    def _folders_of(self, model: str) -> tuple[Path, Path]:
        if model in self._folders:
            return self._folders[model]
        version = served_version(self._models / model) or self._models / model / "1"
        return version / CHECKPOINT, version / HEAD

    def close(self) -> None:
        for engine in self._local.values():
            engine.close()


def _by_engine(parameters: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    engines: dict[str, dict[str, Any]] = {}
    for key, value in parameters.items():
        engine, dot, name = key.rpartition(OF)
        if dot:
            engines.setdefault(engine, {})[name] = value
    return engines
