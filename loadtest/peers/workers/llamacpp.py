"""llama.cpp through its C interface: one prompt at a time, greedily."""

from __future__ import annotations

import time
from typing import Any

import llama_cpp

from loadtest.peers.protocol import Answer, Question
from loadtest.peers.workers.loop import WorkerSettings, serve

CONTEXT = 2048


class LlamaCpp:
    """A model and a context; `target` is a GGUF file."""

    version = f"llama-cpp-python {llama_cpp.__version__}"

    def __init__(self, settings: WorkerSettings) -> None:
        """Load the model. Raises OSError if the file cannot be loaded."""
        llama_cpp.llama_backend_init()
        self._end_id = settings.end_id
        self._model = llama_cpp.llama_model_load_from_file(
            settings.target.encode(), llama_cpp.llama_model_default_params()
        )
        if not self._model:
            raise OSError(f"llama.cpp cannot load {settings.target}")
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = options.n_batch = CONTEXT
        options.n_threads = options.n_threads_batch = settings.num_threads
        self._context = llama_cpp.llama_init_from_model(self._model, options)
        self._sampler = llama_cpp.llama_sampler_init_greedy()

    def answer(self, question: Question) -> tuple[Answer, ...]:
        return tuple(self._answer(ids, question.max_tokens) for ids in question.prompts)

    def _answer(self, ids: tuple[int, ...], max_tokens: int) -> Answer:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)
        start_s = time.perf_counter()
        first_s = 0.0
        tokens: list[int] = []
        pending: Any = (llama_cpp.llama_token * len(ids))(*ids)
        while len(tokens) < max_tokens:
            batch = llama_cpp.llama_batch_get_one(pending, len(pending))
            status = llama_cpp.llama_decode(self._context, batch)
            if status != 0:
                raise RuntimeError(f"llama_decode returned {status}")
            token = llama_cpp.llama_sampler_sample(self._sampler, self._context, -1)
            first_s = first_s or time.perf_counter() - start_s
            if token == self._end_id:
                break
            tokens.append(token)
            pending = (llama_cpp.llama_token * 1)(token)
        return Answer(tuple(tokens), first_s)


if __name__ == "__main__":
    serve(LlamaCpp)
