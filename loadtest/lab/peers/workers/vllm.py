"""vLLM's CPU build in bfloat16: plain, with n-grams, our draft model, or our EAGLE-3 head."""

from __future__ import annotations

import itertools
import time
from typing import Any

import vllm

from specdec.loadtest.lab.peers.protocol import Answer, Question, WorkerSettings, without_end
from specdec.loadtest.lab.peers.workers.loop import serve

CONTEXT = 2048
SPECULATION: dict[str, dict[str, Any]] = {
    "lookup": {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4},
    "draft": {"method": "draft_model"},
    "head": {"method": "eagle3"},
}
NUM_DRAFT_TOKENS = 4


class Vllm:
    """An engine in this process, driven step by step."""

    version = f"vLLM {vllm.__version__}"

    def __init__(self, settings: WorkerSettings) -> None:
        speculation = SPECULATION.get(settings.mode)
        if speculation is not None:
            speculation = speculation | {"num_speculative_tokens": NUM_DRAFT_TOKENS}
            models = {"draft": settings.draft, "head": settings.head}
            if settings.mode in models:
                speculation |= {"model": models[settings.mode]}
        self._end_id = settings.end_id
        self._numbers = itertools.count()
        self._engine = vllm.LLM(
            model=settings.target,
            dtype="bfloat16",
            max_model_len=CONTEXT,
            max_num_seqs=64,
            speculative_config=speculation,
            disable_log_stats=True,
        ).llm_engine

    def answer(self, question: Question) -> tuple[Answer, ...]:
        params = vllm.SamplingParams(
            temperature=0.0,
            max_tokens=question.max_tokens,
            stop_token_ids=[self._end_id],
            detokenize=False,
        )
        start_s = time.perf_counter()
        names = [str(next(self._numbers)) for _ in question.prompts]
        for name, ids in zip(names, question.prompts, strict=True):
            self._engine.add_request(name, {"prompt_token_ids": list(ids)}, params)
        tokens: dict[str, list[int]] = {}
        first_s: dict[str, float] = {}
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                first_s.setdefault(output.request_id, time.perf_counter() - start_s)
                tokens[output.request_id] = list(output.outputs[0].token_ids)
        return tuple(
            Answer(without_end(tokens[name], self._end_id), first_s[name]) for name in names
        )


if __name__ == "__main__":
    serve(Vllm)
