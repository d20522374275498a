"""Run vLLM's AsyncLLM for a Triton model; it runs its engine core in a process of its own."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from specdec.batch_drafting.options import DraftingOptions
from specdec.batch_engines.draft_models import AskDraftModel, DraftRelay
from specdec.batch_engines.engine import BatchEngine
from specdec.batch_engines.generator import Generator
from specdec.batch_engines.reports import ReportReader
from specdec.batch_engines.vllm.generator import VllmGenerator
from specdec.batch_engines.vllm.guides import BACKEND
from specdec.batch_engines.vllm.occupancy import occupancy_logger
from specdec.batch_engines.vllm.process import computed_dtype, prepared_vllm
from specdec.batch_engines.vllm.sampling import sampling_arguments
from specdec.health.board import NO_HEARTBEAT, Heartbeat
from specdec.health.occupancy import Occupancy, PeakOccupancy
from specdec.round_records import UnreadRounds
from specdec.settings.parameters import read_parameters
from specdec.settings.vllm_engine import VllmModelSettings
from specdec.torch_engine.task import Task

logger = logging.getLogger("vllm.specdec")

WORKER = "specdec.batch_engines.vllm.worker.SpecdecWorker"
"""Class from which vLLM's worker gets our methods."""
CLOSE_S = 5.0
"""Most seconds for the worker to write its files at a stop."""


class VllmEngine(BatchEngine):
    """One vLLM engine, with our drafters in its worker."""

    name = "vLLM"

    def __init__(
        self,
        model_config: Mapping[str, Any],
        version_directory: Path,
        heartbeat: Heartbeat = NO_HEARTBEAT,
        ask_draft_model: AskDraftModel | None = None,
    ) -> None:
        """Start vLLM and wait until it can serve.

        `model_config` is Triton's model configuration. Relative paths in it start at
        `version_directory`. `ask_draft_model` may be None if it names no draft models. Raises
        ConfigurationError if vLLM cannot be started with it.
        """
        self._settings = read_parameters(VllmModelSettings, model_config)
        self._config = {"name": model_config["name"], "parameters": model_config["parameters"]}
        self._directory = version_directory
        self._reports = ReportReader()
        self._peaks = PeakOccupancy()
        self._relay: DraftRelay | None = None
        if self._settings.drafters.draft_models and ask_draft_model is not None:
            self._relay = DraftRelay(ask_draft_model)
        super().__init__(self._settings, self._reports, heartbeat)

    def occupancy(self) -> Occupancy:
        """Return how full vLLM was at most since the last call."""
        return self._peaks.take()

    def close(self) -> None:
        """End all tasks and vLLM's processes."""
        super().close()
        self._reports.close()
        if self._relay is not None:
            self._relay.close()

    async def _start(self) -> tuple[Generator, int]:
        settings = self._settings
        vllm = prepared_vllm(settings.kv_cache_gib)
        structured_outputs = import_module("vllm.config").StructuredOutputsConfig
        drafter = settings.vllm_drafter_dir
        arguments = {
            "model": str(self._directory / settings.checkpoint_dir),
            "dtype": computed_dtype(settings.dtype),
            "max_model_len": settings.max_seq_len,
            "max_num_seqs": settings.max_num_sequences,
            "speculative_config": settings.speculative_config(
                str(self._directory / drafter) if drafter else ""
            ),
            "worker_extension_cls": WORKER,
            # vLLM's scheduler must know the draft tokens before it begins the next step.
            "async_scheduling": False,
            "structured_outputs_config": structured_outputs(backend=BACKEND),
            "disable_log_stats": True,
            **settings.engine_args,
        }
        self._llm = vllm.AsyncLLMEngine.from_engine_args(
            vllm.AsyncEngineArgs(**arguments),
            stat_loggers=[occupancy_logger(self._peaks)],
        )
        if settings.max_draft_len:
            addresses = self._reports.address, self._relay.address if self._relay else ""
            given = json.dumps(self._config), str(self._directory), *addresses
            runners = await self._llm.collective_rpc("specdec_bind", args=given)
            names = ", ".join(filter(None, runners))
            logger.info("vLLM %s: our drafters are bound to %s", vllm.__version__, names)
        vocab_size = int(self._llm.model_config.get_vocab_size())
        return VllmGenerator(vllm, self._llm), vocab_size

    async def _stop(self) -> None:
        try:
            if self._settings.max_draft_len and not self._llm.errored:
                await asyncio.wait_for(self._llm.collective_rpc("specdec_close"), CLOSE_S)
        finally:
            self._llm.shutdown()

    def _arguments(self, task: Task, options: DraftingOptions) -> Mapping[str, Any]:
        has_drafts = self._settings.max_draft_len > 0
        return sampling_arguments(task, options.to_json(), has_drafts=has_drafts)

    def _rounds(self) -> UnreadRounds:
        return UnreadRounds()
