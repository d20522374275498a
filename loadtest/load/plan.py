"""The questions of a load test, and the condition that ends it."""

from __future__ import annotations

import json
import secrets
from itertools import islice
from typing import TYPE_CHECKING

from specdec.clients import GenerationRequest
from specdec.loadtest.load.exchange import Question
from specdec.loadtest.load.prompts import Prompt, load_prompts, shuffled_rounds

if TYPE_CHECKING:
    from specdec.loadtest.load.settings import LoadSettings

REFERENCES_FILE = "references.json"


class Plan:
    """Hands out the questions of one load test, in one order for all users."""

    def __init__(self, settings: LoadSettings) -> None:
        self._settings = settings
        self._prompts = shuffled_rounds(load_prompts(settings.prompts), settings.seed)
        self._references: dict[str, list[int]] = {}
        if settings.is_verified:
            path = settings.out / REFERENCES_FILE
            self._references = json.loads(path.read_text(encoding="utf-8"))
        # Without salt, the server might still have the prompts of an earlier test in its cache.
        self._salt = secrets.token_hex(3) if settings.is_salted else ""
        self.num_asked = 0

    def next_question(self, now_s: float, lateness_s: float = 0.0) -> Question | None:
        """Return the question to ask `now_s` seconds after the beginning; None after the last one.

        `lateness_s` is how much later than due it starts.
        """
        limit, duration_s = self._settings.num_requests, self._settings.duration_s
        if limit is not None and self.num_asked >= limit:
            return None
        if duration_s is not None and now_s >= duration_s:
            return None
        prompt = next(self._prompts)
        self.num_asked += 1
        request_id = f"load-{self.num_asked:06d}"
        request = make_request(self._settings, prompt, request_id, self._salt)
        expected = self._references.get(prompt.prompt_id)
        return Question(prompt, request, tuple(expected) if expected else None, lateness_s)


def make_request(
    settings: LoadSettings, prompt: Prompt, request_id: str, salt: str = ""
) -> GenerationRequest:
    """Return the request for a prompt's first turn; the text begins with the salt, if given."""
    text = prompt.turns[0]
    if salt:
        text = f"({salt}-{request_id}) {text}"
    parameters = {"return_perf_metrics": True} | settings.request
    if settings.has_tasks:
        parameters["task"] = prompt.category
    if settings.is_chat:
        messages = [{"role": "user", "content": text}]
        return GenerationRequest(request_id=request_id, messages=messages, **parameters)
    return GenerationRequest(request_id=request_id, text_input=text, **parameters)


def prompts_of_test(settings: LoadSettings) -> tuple[Prompt, ...]:
    """Return the different prompts that a test asks.

    If only its duration is limited, these are all prompts of the file.
    """
    prompts = load_prompts(settings.prompts)
    num_asked = min(len(prompts), settings.num_requests or len(prompts))
    return tuple(islice(shuffled_rounds(prompts, settings.seed), num_asked))
