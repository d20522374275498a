"""Run TensorRT-LLM's LLM API for a Triton model, with our drafters in its executor."""

from __future__ import annotations

import importlib
import json
import logging
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from specdec.batch_drafting.options import DraftingOptions
from specdec.batch_engines.draft_models import AskDraftModel, LocalDraftModels
from specdec.batch_engines.engine import BatchEngine
from specdec.batch_engines.generator import Generator
from specdec.batch_engines.reports import LocalReports
from specdec.batch_engines.requests import NewRequest
from specdec.batch_engines.step_drafting import StepDrafting
from specdec.batch_engines.tensorrt_llm.generator import LlmApiArguments, LlmApiGenerator
from specdec.batch_engines.tensorrt_llm.guides import BACKEND
from specdec.batch_engines.tensorrt_llm.hooks import (
    StepHooks,
    drafter_object,
    resource_manager_object,
)
from specdec.batch_engines.tensorrt_llm.sampling import min_tokens, sampling_arguments
from specdec.errors import ConfigurationError
from specdec.health.board import NO_HEARTBEAT, Heartbeat
from specdec.round_records import ExpectedRounds
from specdec.settings.engines import read_release
from specdec.settings.parameters import read_parameters
from specdec.settings.tensorrt_llm_engine import TensorRtLlmModelSettings
from specdec.torch_engine.task import Task

logger = logging.getLogger("specdec.tensorrt_llm")

HOOKS = (
    ("tensorrt_llm.llmapi", "UserProvidedDecodingConfig"),
    ("tensorrt_llm._torch.speculative.drafter", "Drafter"),
    ("tensorrt_llm._torch.pyexecutor.resource_manager", "BaseResourceManager"),
)
"""Modules and names of TensorRT-LLM through which our drafters are hooked in."""


class TensorRtLlmEngine(BatchEngine):
    """One engine of the LLM API, with our drafters in its executor, in this process."""

    name = "TensorRT-LLM"

    def __init__(
        self,
        model_config: Mapping[str, Any],
        version_directory: Path,
        heartbeat: Heartbeat = NO_HEARTBEAT,
        ask_draft_model: AskDraftModel | None = None,
    ) -> None:
        """Start the engine and wait until it can serve.

        `model_config` is Triton's model configuration. Relative paths in it start at
        `version_directory`. `ask_draft_model` may be None if it names no draft models. Raises
        ConfigurationError if it cannot be started with it.
        """
        self._settings = read_parameters(TensorRtLlmModelSettings, model_config)
        self._directory = version_directory
        self._ask_draft_model = ask_draft_model
        self._reports = LocalReports()
        self._drafting: StepDrafting | None = None
        self._hooks: StepHooks | None = None
        super().__init__(self._settings, self._reports, heartbeat)

    async def _start(self) -> tuple[Generator, int]:
        settings = self._settings
        # Only so our object is called in this process instead of a copy in another.
        os.environ["TLLM_WORKER_USE_SINGLE_PROCESS"] = "1"
        tensorrt_llm = importlib.import_module("tensorrt_llm")
        self._release = read_release("tensorrt_llm.__version__", tensorrt_llm.__version__)
        llmapi = importlib.import_module("tensorrt_llm.llmapi")
        arguments: dict[str, Any] = {
            "model": str(self._directory / settings.checkpoint_dir),
            "backend": "pytorch",
            "dtype": settings.dtype,
            "max_seq_len": settings.max_seq_len,
            "max_batch_size": settings.max_num_sequences,
            "max_num_tokens": settings.max_num_tokens,
            "kv_cache_config": llmapi.KvCacheConfig(
                free_gpu_memory_fraction=settings.kv_cache_fraction,
                dtype=settings.kv_cache_dtype,
                # TensorRT-LLM tests user-provided drafters without it, and it must not mix tenants.
                enable_block_reuse=False,
            ),
            "guided_decoding_backend": BACKEND,
            **settings.engine_args,
        }
        if settings.max_draft_len:
            arguments |= {
                "speculative_config": self._speculation(),
                # The draft tokens of a step must be known before it begins.
                "disable_overlap_scheduler": True,
            }
        self._llm = tensorrt_llm.LLM(**arguments)
        if not hasattr(getattr(self._llm, "_executor", None), "is_shutdown"):
            raise ConfigurationError("this TensorRT-LLM's LLM lacks _executor.is_shutdown")
        logger.info("TensorRT-LLM %s has started", tensorrt_llm.__version__)
        generator = LlmApiGenerator(tensorrt_llm, self._llm, self._hooks)
        return generator, _vocab_size(self._directory / settings.checkpoint_dir)

    async def _stop(self) -> None:
        try:
            self._llm.shutdown()
        finally:
            if self._drafting is not None:
                self._drafting.close()

    def _arguments(self, task: Task, options: DraftingOptions) -> LlmApiArguments:
        return LlmApiArguments(
            sampling_arguments(task, self._release, self._vocab_size),
            partial(_new_request, task, options),
        )

    def _rounds(self) -> ExpectedRounds:
        return ExpectedRounds()

    def _speculation(self) -> Any:
        """Return the speculative configuration with our drafters in it.

        Raises ConfigurationError if this release lacks something that is needed.
        """
        settings = self._settings
        config, drafter, resources = (_hook(module, name) for module, name in HOOKS)
        draft_models, ask = None, self._ask_draft_model
        if settings.drafters.draft_models and ask is not None:
            vocab_size = _vocab_size(self._directory / settings.checkpoint_dir)
            draft_models = LocalDraftModels(ask, vocab_size)
        self._drafting = StepDrafting(
            settings, self._directory, self._reports.send, draft_models, reports_drafts=True
        )
        self._hooks = hooks = StepHooks(self._drafting)
        return config(
            max_draft_len=settings.max_draft_len,
            drafter=drafter_object(drafter, hooks, settings.max_draft_len),
            resource_manager=resource_manager_object(resources, hooks, settings.max_num_sequences),
        )


def _new_request(task: Task, options: DraftingOptions, client_id: int) -> NewRequest:
    return NewRequest(
        str(client_id),
        task.input_ids.tolist(),
        task.max_new_tokens,
        min_tokens(task),
        frozenset() if task.end_id is None else frozenset((task.end_id,)),
        {**options.to_json(), "id": task.request_id},
    )


def _hook(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise ConfigurationError(
            f"our drafters need {module}.{name}, which this TensorRT-LLM lacks"
        ) from None


def _vocab_size(checkpoint: Path) -> int:
    """Return the number of tokens in the vocabulary of a Hugging Face checkpoint."""
    config = json.loads((checkpoint / "config.json").read_text("utf-8"))
    return int(config.get("vocab_size") or config["text_config"]["vocab_size"])
