"""The models of a gateway: their names, and whether they can answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from specdec.clients.async_grpc_client import AsyncGrpcClient
from specdec.errors import shown
from specdec.gateway.openai_api.errors import ApiError
from specdec.gateway.probe import PROBE_S, get

PROBE_PERIOD_S = 0.5
"""Least seconds from one question about readiness to the next; all who ask share the answer."""


class ServedModels:
    """The models by the names that clients use."""

    def __init__(self, names: Mapping[str, str], client: AsyncGrpcClient, health_url: str) -> None:
        """Take Triton's name of each model; `health_url` may be empty (`GatewaySettings`)."""
        self._names = dict(names)
        self._client = client
        self._health_url = health_url
        self._created = int(time.time())
        self._probing = asyncio.Lock()
        self._probed_s = -PROBE_PERIOD_S
        self._is_ready = False

    def triton_name(self, name: str) -> str:
        """Return Triton's name of a model. Raises ApiError for an unknown one."""
        if name not in self._names:
            raise ApiError(
                HTTPStatus.NOT_FOUND,
                f"the model {shown(name)} does not exist; there is {', '.join(self._names)}",
                "model_not_found",
                "model",
            )
        return self._names[name]

    def listed(self) -> list[dict[str, Any]]:
        """Return all models as OpenAI's API lists them."""
        return [self.described(name) for name in self._names]

    def described(self, name: str) -> dict[str, Any]:
        """Return one model as OpenAI's API describes it. Raises ApiError for an unknown one."""
        root = self.triton_name(name)
        fixed = {"object": "model", "created": self._created, "owned_by": "specdec"}
        return {"id": name, **fixed, "root": root}

    async def are_ready(self) -> bool:
        """Return whether all models can answer; the answer may be PROBE_PERIOD_S old."""
        async with self._probing:
            if time.monotonic() > self._probed_s + PROBE_PERIOD_S:
                self._is_ready = await self._probe()
                self._probed_s = time.monotonic()
            return self._is_ready

    async def _probe(self) -> bool:
        if self._health_url:
            return await asyncio.to_thread(get, self._health_url) is not None
        names = sorted(set(self._names.values()))
        ready = await asyncio.gather(*(self._client.is_ready(each, PROBE_S) for each in names))
        return all(ready)
