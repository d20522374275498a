"""The Triton model of the double: runs requests, ends them by id or on a hang-up, counts them."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.engine import EngineSettings, TorchEngine
from specdec.triton_backend.outbox import Outbox
from tests.doubles.tensorrtllm.built import BuiltEngine, LoadError
from tests.doubles.tensorrtllm.call import ExecutorFailure, Refusal, read_call, stops
from tests.doubles.tensorrtllm.running import FINAL, Running

DEFAULTS = {
    "exclude_input_in_output": "false",
    "enable_kv_cache_reuse": "true",
    "cancellation_check_period_ms": "100",
    "stats_check_period_ms": "100",
    # The double's own: threads of the engine; columns of -1 after output_ids, which the backend
    # adds if beams differ in length; milliseconds until the engine knows a request. Before that, a
    # stop finds nothing.
    "double_num_threads": "0",
    "double_num_padding": "0",
    "double_enqueue_delay_ms": "0",
}


class TritonPythonModel:
    """One instance of the model, with a torch engine of its own."""

    def initialize(self, args: Mapping[str, str]) -> None:
        config = json.loads(args["model_config"])
        given = {name: each["string_value"] for name, each in config["parameters"].items()}
        # A placeholder that was not filled counts as a parameter that is not set.
        self._parameters = DEFAULTS | {k: v for k, v in given.items() if not v.startswith("${")}
        self._is_decoupled = config["model_transaction_policy"]["decoupled"]
        try:
            self._built = BuiltEngine.load(
                Path(self._parameters["gpt_model_path"]),
                enable_kv_cache_reuse=self._flag("enable_kv_cache_reuse"),
            )
        except LoadError as error:
            raise pb_utils.TritonModelException(str(error)) from error
        self._engine = TorchEngine(_settings(self._built, self._number("double_num_threads")))
        self._outbox = Outbox()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._running: dict[int, Running] = {}
        self._by_id: dict[str, int] = {}
        """Numbers by Triton's request id. A second request with an id replaces the first, which can
        then no longer be stopped."""
        self._family = pb_utils.MetricFamily(
            name="nv_trt_llm_request_metrics",
            description="TRT LLM request metrics",
            kind=pb_utils.MetricFamily.GAUGE,
        )
        labels = {"model": args["model_name"], "version": "1", "request_type": "active"}
        self._active = self._family.Metric(labels)
        self._is_open = True
        self._threads = [
            threading.Thread(target=self._repeat, args=each, daemon=True)
            for each in (
                ("cancellation_check_period_ms", self._look_for_cancelled),
                ("stats_check_period_ms", lambda: self._active.set(len(self._running))),
            )
        ]
        for thread in self._threads:
            thread.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            try:
                self._take(request)
            except Refusal as error:
                head = "Executor failed process requestId 0 due to the following error: "
                text = f"{head if isinstance(error, ExecutorFailure) else ''}{error}"
                response = pb_utils.InferenceResponse(
                    error=pb_utils.TritonError(text, pb_utils.TritonError.INTERNAL)
                )
                request.get_response_sender().send(response, flags=FINAL)

    def finalize(self) -> None:
        self._is_open = False
        for thread in self._threads:
            thread.join()
        self._engine.close()
        self._outbox.close()
        # Triton needs the metric to go before its family.
        del self._active, self._family

    def _take(self, request: Any) -> None:
        arrays = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        if stops(arrays, request.request_id()):
            with self._lock:
                number = self._by_id.get(request.request_id())
            # A request that has ended, or has not arrived yet, is not an error.
            if number is not None:
                self._engine.cancel(str(number))
            request.get_response_sender().send(flags=FINAL)
            return
        call = read_call(
            arrays,
            self._built,
            is_decoupled=self._is_decoupled,
            excludes_input=self._flag("exclude_input_in_output"),
        )
        number = next(self._numbers)
        running = Running(
            call,
            self._built,
            number,
            request,
            self._outbox,
            lambda: self._forget(number, request.request_id()),
            self._number("double_num_padding"),
        )
        task = replace(call.task, request_id=str(number))

        def enqueue() -> None:
            with self._lock:
                self._running[number] = running
                if request.request_id():
                    self._by_id[request.request_id()] = number
            self._engine.submit(task, running.add)

        delay_s = self._number("double_enqueue_delay_ms") / 1000
        if delay_s:
            threading.Timer(delay_s, enqueue).start()
        else:
            enqueue()

    def _forget(self, number: int, request_id: str) -> None:
        with self._lock:
            self._running.pop(number, None)
            if self._by_id.get(request_id) == number:
                del self._by_id[request_id]

    def _look_for_cancelled(self) -> None:
        with self._lock:
            running = list(self._running.items())
        for number, each in running:
            if each.is_cancelled():
                self._engine.cancel(str(number))

    def _repeat(self, period: str, action: Callable[[], object]) -> None:
        while self._is_open:
            time.sleep(self._number(period) / 1000)
            action()

    def _number(self, parameter: str) -> int:
        return int(self._parameters[parameter])

    def _flag(self, parameter: str) -> bool:
        return self._parameters[parameter].lower() == "true"


def _settings(built: BuiltEngine, num_threads: int) -> EngineSettings:
    limits = EngineLimits(
        max_seq_len=built.max_seq_len - built.max_draft_len,
        max_draft_len=built.max_draft_len,
        max_num_sequences=built.max_batch_size,
    )
    return EngineSettings(built.checkpoint, limits, num_threads=num_threads)
