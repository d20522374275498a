"""OpenVINO GenAI on fp16 weights, continuous batching: plain, with our draft, prompt lookup."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import openvino
import openvino_genai

from specdec.loadtest.lab.peers.protocol import Answer, Question, WorkerSettings, without_end
from specdec.loadtest.lab.peers.workers.loop import serve

CACHE_GB = 1
NUM_DRAFT_TOKENS = 4
MAX_NGRAM = 3


class OpenVino:
    """A continuous batching pipeline, driven step by step."""

    version = f"OpenVINO GenAI {openvino_genai.__version__}"

    def __init__(self, settings: WorkerSettings) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GB
        scheduler.max_num_seqs = 64
        options: dict[str, Any] = {}
        if settings.mode == "draft":
            options["draft_model"] = openvino_genai.draft_model(settings.draft, "CPU")
        elif settings.mode == "lookup":
            options["prompt_lookup"] = True
        self._mode = settings.mode
        self._end_id = settings.end_id
        self._numbers = itertools.count()
        threads = {"INFERENCE_NUM_THREADS": settings.num_threads}
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            settings.target, scheduler, "CPU", {**threads, **options}
        )

    def answer(self, question: Question) -> tuple[Answer, ...]:
        config = self._config(question.max_tokens)
        start_s = time.perf_counter()
        handles = [
            self._pipeline.add_request(
                next(self._numbers), openvino.Tensor(np.asarray([ids], dtype=np.int64)), config
            )
            for ids in question.prompts
        ]
        tokens: list[list[int]] = [[] for _ in handles]
        first_s = [0.0] * len(handles)
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for number, handle in enumerate(handles):
                while handle.can_read():
                    first_s[number] = first_s[number] or time.perf_counter() - start_s
                    for output in handle.read().values():
                        tokens[number] += output.generated_ids
        return tuple(
            Answer(without_end(each, self._end_id), first)
            for each, first in zip(tokens, first_s, strict=True)
        )

    def _config(self, max_tokens: int) -> Any:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = max_tokens
        config.do_sample = False
        config.set_eos_token_id(self._end_id)
        if self._mode in {"draft", "lookup"}:
            config.num_assistant_tokens = NUM_DRAFT_TOKENS
        if self._mode == "lookup":
            config.max_ngram_size = MAX_NGRAM
        return config


if __name__ == "__main__":
    serve(OpenVino)
