"""Send random tensors and HTTP bodies: each must get an answer or a clear error."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import urllib3
from tritonclient.grpc import service_pb2, service_pb2_grpc

from specdec import errors
from specdec.clients.request import INPUTS
from specdec.loadtest.reliability.kit.asking import ANSWER_LIMIT_S
from specdec.loadtest.reliability.kit.table import Row, counted, listed
from specdec.loadtest.reliability.kit.watched import described, watched_server

FUZZ_PER_ROUND = 850
TIMEOUT_S = ANSWER_LIMIT_S
NUM_AT_ONCE = 8
BROKEN = "broken connection"
TYPES = ("BOOL", "INT32", "INT64", "UINT64", "FP32", "BYTES")
MAX_DEPTH = 5
"""Deepest nesting of HTTP bodies.

Triton 2.51 itself dies of very deep ones (docs/reliability.md).
"""
OURS = tuple(
    each.error_type
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, errors.SpecdecError)
)
"""Every error type of ours."""
_ESCAPED = ("Traceback", "Failed to process the request", "\nAt:\n", "\\nAt:\\n")
"""Marks of an exception that left a model: Triton's Python backend sends its text and origin.

JSON escapes the newlines.
"""
_TEXTS = ("", "x", "auto", "null", "\U0001f680", "<|im_end|>", "[" * 200, "9" * 400, "a" * 5000)
_NUMBERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**31, 2**63, 1e308, 0.5)


@dataclass(frozen=True, slots=True)
class FuzzResult:
    """The outcome of one random request."""

    kind: str
    """`answered`, `hang`, BROKEN, an error type of ours, or `triton`.

    `triton` is an error of Triton's own.
    """
    detail: str
    is_internal: bool
    """True for gRPC's INTERNAL or HTTP's 500."""

    @property
    def is_defect(self) -> bool:
        """True if no client may ever get this.

        That is a hang, a broken connection, an internal error of ours, or a traceback.
        """
        return self.kind in {"hang", BROKEN, "internal"} or any(
            each in self.detail for each in _ESCAPED
        )


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Send FUZZ_PER_ROUND random requests in each of `rounds`, on one server."""
    with watched_server(repository) as watched:
        urls = watched.server.grpc_url, watched.server.http_url
        results = [
            each
            for seed in range(rounds)
            for each in asyncio.run(fuzz(*urls, FUZZ_PER_ROUND, seed))
        ]
        faults = watched.faults()
    defects = [each.detail or each.kind for each in results if each.is_defect]
    num_internal = sum(each.is_internal for each in results)
    yield Row(
        f"{len(results)} random tensors (gRPC) and bodies (HTTP)",
        f"{counted(each.kind for each in results)}; {num_internal} with gRPC's INTERNAL or HTTP's "
        f"500; hangs, broken connections, tracebacks, internal errors of ours: {len(defects)}"
        f"{listed(defects)}; {described(faults)}",
        "no death, no hang, no traceback, INTERNAL only from Triton's own checks",
        not (defects or faults),
    )


def random_message(draw: random.Random) -> service_pb2.ModelInferRequest:
    """Return a request with inputs of random names, types, shapes and bytes."""
    message = service_pb2.ModelInferRequest(model_name="specdec")
    names = draw.sample([*INPUTS, "no_such_input"], draw.randint(0, 5))
    for name in {*names, *(["text_input"] if draw.random() < 0.7 else [])}:
        spec = INPUTS.get(name)
        datatype = spec.datatype if spec and draw.random() < 0.8 else draw.choice(TYPES)
        shape = [1, 1] if draw.random() < 0.8 else draw.choice(([1], [1, 0], [1, 3], [2, 1], [-1]))
        raw = _raw(draw, datatype, max(int(np.prod(shape)), 0))
        if draw.random() < 0.05:
            raw = raw[: draw.randint(0, len(raw))]
        message.inputs.add(name=name, datatype=datatype, shape=shape)
        message.raw_input_contents.append(raw)
    if draw.random() < 0.1:
        message.parameters[draw.choice(("timeout", "priority", "x", "max_tokens"))].int64_param = 1
    if "max_tokens" not in {each.name for each in message.inputs}:
        message.inputs.add(name="max_tokens", datatype="INT32", shape=[1, 1])
        message.raw_input_contents.append(np.int32(4).tobytes())
    return message


def random_body(draw: random.Random) -> bytes:
    """Return a body of random JSON, sometimes cut off or with bytes that are no text."""
    body: dict[str, Any] = {"text_input": "x", "max_tokens": 4}
    for name in draw.sample([*INPUTS, "no_such_field", "parameters"], draw.randint(0, 4)):
        body[name] = _random_json(draw, MAX_DEPTH)
    if draw.random() < 0.2:
        body.pop("text_input", None)
    encoded = json.dumps(body).encode()
    if draw.random() < 0.1:
        encoded = encoded[: draw.randint(0, len(encoded))]
    if draw.random() < 0.05:
        encoded = encoded.replace(b"x", bytes([draw.randint(128, 255)]))
    return encoded


async def fuzz(grpc_url: str, http_url: str, count: int, seed: int) -> list[FuzzResult]:
    """Send `count` requests, NUM_AT_ONCE at a time, about half over gRPC and half over HTTP."""
    draw = random.Random(seed)
    results: list[FuzzResult] = []
    with urllib3.PoolManager(maxsize=NUM_AT_ONCE) as pool:
        async with grpc.aio.insecure_channel(grpc_url) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

            numbers = iter(range(count))

            async def client() -> None:
                for _ in numbers:
                    if draw.random() < 0.5:
                        results.append(await _send_message(stub, random_message(draw)))
                    else:
                        path = draw.choice(("generate", "generate_stream"))
                        url = f"http://{http_url}/v2/models/specdec/{path}"
                        body = random_body(draw)
                        results.append(await asyncio.to_thread(_send_body, pool, url, body))

            await asyncio.gather(*(client() for _ in range(NUM_AT_ONCE)))
    return results


async def _send_message(
    stub: service_pb2_grpc.GRPCInferenceServiceStub, message: service_pb2.ModelInferRequest
) -> FuzzResult:
    detail, code, num_responses = "", None, 0
    call = stub.ModelStreamInfer(iter([message]), timeout=TIMEOUT_S)
    try:
        async for response in call:
            num_responses += 1
            detail = detail or response.error_message
    except grpc.aio.AioRpcError as error:
        detail, code = str(error.details()), error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return FuzzResult("hang", repr(message)[:500], is_internal=False)
    if code is grpc.StatusCode.UNAVAILABLE or not (num_responses or code):
        return FuzzResult(BROKEN, f"{detail}: {message!r}"[:500], is_internal=False)
    return FuzzResult(_kind(detail), detail, code is grpc.StatusCode.INTERNAL)


def _send_body(pool: urllib3.PoolManager, url: str, body: bytes) -> FuzzResult:
    try:
        response = pool.request("POST", url, body=body, timeout=TIMEOUT_S, retries=False)
    except urllib3.exceptions.TimeoutError:
        return FuzzResult("hang", repr(body)[:500], is_internal=False)
    except urllib3.exceptions.HTTPError as error:
        return FuzzResult(BROKEN, f"{error}: {body!r}"[:500], is_internal=False)
    text = response.data.decode(errors="replace")
    if response.status == HTTPStatus.OK and '"error"' not in text:
        return FuzzResult("answered", "", is_internal=False)
    is_internal = response.status == HTTPStatus.INTERNAL_SERVER_ERROR
    return FuzzResult(_kind(text), text, is_internal)


def _kind(detail: str) -> str:
    """Return the error type of ours that a message names, else `triton`.

    No message is `answered`.
    """
    if not detail:
        return "answered"
    return next((each for each in OURS if f"{each}: " in detail), "triton")


def _raw(draw: random.Random, datatype: str, count: int) -> bytes:
    if datatype == "BYTES":
        texts = [draw.choice(_TEXTS).encode() for _ in range(count)]
        return b"".join(len(each).to_bytes(4, "little") + each for each in texts)
    types = {"BOOL": "?", "INT32": "i4", "INT64": "i8", "UINT64": "u8", "FP32": "f4"}
    size = np.dtype(types[datatype]).itemsize * count
    return draw.choice((bytes(size), b"\xff" * size, draw.randbytes(size)))


def _random_json(draw: random.Random, depth: int) -> Any:
    kind = draw.randrange(6 if depth else 4)
    if kind == 0:
        return draw.choice(_TEXTS)
    if kind == 1:
        return draw.choice(_NUMBERS)
    if kind in {2, 3}:
        return draw.choice((True, False, None))
    inner = [_random_json(draw, depth - 1) for _ in range(draw.randint(0, 3))]
    return inner if kind == 4 else {str(index): each for index, each in enumerate(inner)}
