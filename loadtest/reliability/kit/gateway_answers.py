"""Chats over the gateway's HTTP port, read to their end or hung up on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

from specdec.loadtest.reliability.kit.asking import ANSWER_LIMIT_S, TIMED_OUT, Answer
from specdec.loadtest.reliability.kit.http_answers import CLOSED

CHATS = "/v1/chat/completions"
HEADER_S = 30.0
"""Seconds within which a connection must be made."""
_DATA = b"data: "
_DONE = b"[DONE]"


def chat(text: str, max_tokens: int, **fields: Any) -> dict[str, Any]:
    """Return the body of a greedy chat of one message, with the tokens of its answer."""
    return {
        "model": "specdec",
        "messages": [{"role": "user", "content": text}],
        "max_completion_tokens": max_tokens,
        "min_tokens": max_tokens,
        "temperature": 0,
        "return_token_ids": True,
        **fields,
    }


def session() -> aiohttp.ClientSession:
    """Return a session without a limit of connections. Must be called in an event loop."""
    limits = aiohttp.ClientTimeout(total=ANSWER_LIMIT_S, connect=HEADER_S)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=limits, trust_env=False
    )


async def ask_chat(
    own: aiohttp.ClientSession,
    url: str,
    body: Mapping[str, Any],
    started: asyncio.Event | None = None,
) -> Answer:
    """Ask the gateway at `url` and read the answer to its end.

    `started` is set at the first token, at the latest at the end. Failures become outcomes: the
    error's `code`, or CLOSED if the connection broke.
    """
    answer, started = Answer(start_s=time.monotonic()), started or asyncio.Event()
    try:
        async with own.post(url + CHATS, json=body) as response:
            if response.status != 200:
                _note_error(answer, await response.read())
            elif body.get("stream"):
                async for event in events_of(response):
                    _note(answer, event)
                    if answer.token_ids:
                        started.set()
                answer.is_complete &= not answer.error_type
            else:
                choice = json.loads(await response.read())["choices"][0]
                answer.token_ids = choice["token_ids"]
                answer.is_complete = choice["finish_reason"] is not None
    except asyncio.TimeoutError:
        answer.error_type = TIMED_OUT
    except (aiohttp.ClientError, OSError) as error:
        # Even after its last token, a stream without [DONE] is broken.
        answer.is_complete = False
        answer.error_type, answer.detail = answer.error_type or CLOSED, str(error)
    answer.last_s = time.monotonic()
    started.set()
    return answer


async def events_of(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON object of each server-sent event up to `[DONE]`.

    Raises aiohttp.ClientError if the connection ends before.
    """
    async for line in response.content:
        if line.startswith(_DATA):
            data = line.removeprefix(_DATA).strip()
            if data == _DONE:
                return
            event: dict[str, Any] = json.loads(data)
            yield event
            if "error" in event:
                return
    raise aiohttp.ClientPayloadError("the stream ended without [DONE]")


def _note(answer: Answer, event: Mapping[str, Any]) -> None:
    now_s = time.monotonic()
    if "error" in event:
        answer.error_type, answer.detail = event["error"]["code"], event["error"]["message"]
        return
    for choice in event["choices"]:
        tokens = choice.get("token_ids") or []
        answer.token_ids += tokens
        answer.is_complete |= choice["finish_reason"] is not None
        if tokens:
            answer.first_s = answer.first_s or now_s
            answer.token_times_s.append(now_s)


def _note_error(answer: Answer, data: bytes) -> None:
    try:
        error = json.loads(data)["error"]
        answer.error_type, answer.detail = error["code"], error["message"]
    except (ValueError, KeyError, TypeError):
        answer.error_type = "no error object"
        answer.detail = data[:200].decode(errors="replace")
