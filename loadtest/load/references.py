"""Answers of the target without speculation, to compare a load test's answers with."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from specdec.clients import GrpcClient, HttpClient
from specdec.loadtest.load.plan import REFERENCES_FILE, make_request, prompts_of_test

if TYPE_CHECKING:
    from specdec.loadtest.load.settings import LoadSettings


def fetch_references(settings: LoadSettings) -> None:
    """Ask every prompt of the test once, without speculation, and save the answers' tokens.

    This fills the target's prefix cache, so a verified load test is no benchmark. Raises
    SpecdecError if a request fails.
    """
    prompts = prompts_of_test(settings)
    references: dict[str, tuple[int, ...]] = {}
    client: GrpcClient | HttpClient
    if settings.protocol == "grpc":
        client = GrpcClient(settings.url, model_name=settings.model, timeout_s=settings.timeout_s)
    else:
        client = HttpClient(settings.url, model_name=settings.model, timeout_s=settings.timeout_s)
    with client:
        for number, prompt in enumerate(prompts, start=1):
            request = make_request(settings, prompt, request_id=f"reference-{number}")
            answer = client.generate(replace(request, num_draft_tokens=0, drafter=None))
            references[prompt.prompt_id] = answer.token_ids
            if number % 10 == 0 or number == len(prompts):
                print(f"{number} of {len(prompts)} reference answers", file=sys.stderr)
    (settings.out / REFERENCES_FILE).write_text(json.dumps(references), encoding="utf-8")
