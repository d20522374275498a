"""The Triton model of the double: streams cumulative text, and ends requests by id or on a hang-up.

A rendered model loads this file as it would load NVIDIA's, with this folder on the Python path.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
import yaml
from generation import Generation, RequestOutput
from llm_args import checked

from specdec.serving.text.tokenizing import Tokenizer
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.engine import EngineSettings, TorchEngine

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
NUM_THREADS = 64


class TritonPythonModel:
    """The Triton model with one torch engine; a thread of the pool serves each request."""

    def initialize(self, args: Mapping[str, str]) -> None:
        del args
        settings = _model_yaml()
        triton = settings.pop("triton_config")
        self._is_decoupled = bool(triton["decoupled"])
        self._period_s = triton["cancellation_check_period_ms"] / 1000
        checkpoint = Path(checked(settings)["model"])
        self._tokenizer = Tokenizer(checkpoint)
        self._engine = TorchEngine(EngineSettings(checkpoint, EngineLimits()))
        self._threads = ThreadPoolExecutor(NUM_THREADS)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._running: dict[str, tuple[Generation, Any]] = {}
        self._by_id: dict[str, str] = {}
        """Names in `_running` by Triton's request id. A second request with an id replaces the
        first."""
        self._is_open = True
        self._cancellation = threading.Thread(target=self._look_for_cancelled, daemon=True)
        self._cancellation.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._threads.submit(self._serve, request)

    def finalize(self) -> None:
        self._is_open = False
        self._threads.shutdown()
        self._cancellation.join()
        self._engine.close()

    def _serve(self, request: Any) -> None:
        sender, user_id = request.get_response_sender(), request.request_id()
        values = _values(request)
        if values.get("stop"):
            self._stop(user_id, sender)
            return
        name = str(next(self._numbers))
        streaming = values.get("streaming", False)
        if streaming and not self._is_decoupled:
            _fail(
                sender, "Error generating request: Streaming is only supported in decoupled mode."
            )
            return
        generation = Generation(values, name, self._engine, self._tokenizer)
        with self._lock:
            self._running[name] = generation, sender
            if user_id:
                self._by_id[user_id] = name
        asked = frozenset(request.requested_output_names())
        try:
            for output in generation:
                response = _response(output, values, asked)
                if output.finish_reason is None:
                    if streaming:
                        sender.send(response)
                elif self._forget(name, user_id) or streaming:
                    # NVIDIA's model never answers a stopped request that does not stream.
                    sender.send(response, flags=FINAL)
        finally:
            self._forget(name, user_id)

    def _stop(self, user_id: str, sender: Any) -> None:
        if not user_id:
            _fail(sender, "A request id must be provided for request cancellation")
            return
        with self._lock:
            name = self._by_id.get(user_id, "")
            generation, _ = self._running.pop(name, (None, None))
        if generation is not None:
            generation.abort()
        _fail(sender, "Request cancelled by client", pb_utils.TritonError.CANCELLED)

    def _forget(self, name: str, user_id: str) -> bool:
        """Remove a request; return whether it was still running, and had not been stopped."""
        with self._lock:
            self._by_id.pop(user_id, None)
            return self._running.pop(name, None) is not None

    def _look_for_cancelled(self) -> None:
        while self._is_open:
            time.sleep(self._period_s)
            with self._lock:
                for generation, sender in self._running.values():
                    if sender.is_cancelled():
                        generation.abort()


def _model_yaml() -> dict[str, Any]:
    text = (Path(pb_utils.get_model_dir()) / "model.yaml").read_text("utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def _values(request: Any) -> dict[str, Any]:
    values = {}
    for tensor in request.inputs():
        value = tensor.as_numpy().reshape(-1)[0]
        name = tensor.name().removeprefix("sampling_param_")
        values[name] = value.decode() if isinstance(value, bytes) else value.item()
    return values


def _response(output: RequestOutput, values: Mapping[str, Any], asked: frozenset[str]) -> Any:
    outputs = {"text_output": output.text}
    if values.get("return_finish_reason"):
        outputs["finish_reason"] = str(output.finish_reason)
    if values.get("return_perf_metrics") and output.finish_reason is not None:
        drafted, accepted = output.num_draft_tokens, output.num_accepted_tokens
        outputs |= {
            "arrival_time_ns": str(output.arrival_ns),
            "last_token_time_ns": str(output.last_token_ns),
            "acceptance_rate": str(accepted / drafted if drafted else 0.0),
            "total_accepted_draft_tokens": str(accepted),
            "total_draft_tokens": str(drafted),
        }
    # NVIDIA's model sends every output as text, whatever type the configuration declares.
    tensors = [
        pb_utils.Tensor(name, np.asarray([text.encode()], dtype=np.object_))
        for name, text in outputs.items()
        if name in asked
    ]
    return pb_utils.InferenceResponse(tensors)


def _fail(sender: Any, words: str, code: Any = None) -> None:
    error = pb_utils.TritonError(words, code or pb_utils.TritonError.INTERNAL)
    sender.send(pb_utils.InferenceResponse(error=error), flags=FINAL)
