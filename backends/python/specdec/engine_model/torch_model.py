"""The Triton model of our own engine, which PyTorch runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec.engine_model.engine_model import EngineModel
from specdec.engines.wire.engine_call import EngineCall
from specdec.health.board import Heartbeat
from specdec.health.occupancy import Occupancy
from specdec.settings.parameters import read_parameters
from specdec.settings.torch_engine import EngineModelSettings
from specdec.torch_engine.engine import TorchEngine
from specdec.torch_engine.task import Receiver


class _ServedTorchEngine:
    """The torch engine as a Triton model calls it."""

    def __init__(self, config: Mapping[str, Any], version: Path, heartbeat: Heartbeat) -> None:
        settings = read_parameters(EngineModelSettings, config)
        self._engine = TorchEngine(settings.engine_settings(version), heartbeat)

    def submit(self, call: EngineCall, receive: Receiver) -> None:
        self._engine.submit(call.task, receive)

    def cancel(self, request_id: str) -> None:
        self._engine.cancel(request_id)

    def occupancy(self) -> Occupancy:
        return self._engine.occupancy()

    def close(self) -> None:
        self._engine.close()


class TritonPythonModel(EngineModel):
    """The class that Triton's Python backend looks for."""

    load = _ServedTorchEngine
