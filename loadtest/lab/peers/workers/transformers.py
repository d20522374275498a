"""transformers in bfloat16: plain, assisted by our draft model, or with prompt lookup."""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from specdec.loadtest.lab.peers.protocol import Answer, Question, WorkerSettings, without_end
from specdec.loadtest.lab.peers.workers.loop import serve

NUM_LOOKUP_TOKENS = 10  # There is no default; the code that introduced the idea uses 10.


class SmallHead(torch.nn.Module):
    """A language-model head that computes only the rows that are not zero.

    All other tokens get the lowest finite logit.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        """Keep the rows of `weight` [vocab, hidden] that are not zero.

        Tokens with a zero row are never drafted.
        """
        super().__init__()
        self.rows = weight.abs().sum(dim=1).nonzero().squeeze(1)
        self.weight = torch.nn.Parameter(weight[self.rows].contiguous(), requires_grad=False)
        self.num_tokens = len(weight)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        lowest = torch.finfo(hidden.dtype).min
        logits = hidden.new_full((*hidden.shape[:-1], self.num_tokens), lowest)
        logits[..., self.rows] = torch.nn.functional.linear(hidden, self.weight)
        return logits


class FirstToken:
    """A streamer that notes when the first token came: transformers sends the prompt before it."""

    def __init__(self) -> None:
        self.num_calls = 0
        self.at_s = 0.0

    def put(self, _value: Any) -> None:
        self.num_calls += 1
        if self.num_calls == 2:
            self.at_s = time.perf_counter()

    def end(self) -> None:
        """Do nothing: no token is held back."""


class Transformers:
    """Answers one prompt at a time."""

    version = f"transformers {transformers.__version__}, torch {torch.__version__}"

    def __init__(self, settings: WorkerSettings) -> None:
        torch.set_num_threads(settings.num_threads)
        self._end_id = settings.end_id
        self._model = _load(settings.target)
        self._options: dict[str, Any] = {}
        if settings.mode == "draft":
            draft = _load(settings.draft)
            draft.lm_head = SmallHead(draft.lm_head.weight.data)
            self._options = {"assistant_model": draft}
        elif settings.mode == "lookup":
            self._options = {"prompt_lookup_num_tokens": NUM_LOOKUP_TOKENS}

    def answer(self, question: Question) -> tuple[Answer, ...]:
        return tuple(self._answer(ids, question.max_tokens) for ids in question.prompts)

    def _answer(self, ids: tuple[int, ...], max_tokens: int) -> Answer:
        prompt = torch.tensor([ids])
        streamer = FirstToken()
        start_s = time.perf_counter()
        with torch.inference_mode():
            text = self._model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=max_tokens,
                do_sample=False,
                eos_token_id=self._end_id,
                pad_token_id=self._end_id,
                streamer=streamer,
                **self._options,
            )
        tokens = without_end(text[0, len(ids) :].tolist(), self._end_id)
        return Answer(tokens, streamer.at_s - start_s)


def _load(directory: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).eval()


if __name__ == "__main__":
    serve(Transformers)
