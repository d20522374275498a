"""Client of the model `specdec` over HTTP (Triton's generate extension)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import urllib3
from urllib3.exceptions import HTTPError

from specdec.clients.errors import BROKEN_ANSWER, SpecdecError
from specdec.clients.response import Chunk, GenerationResult, chunk_from_outputs, collect
from specdec.clients.time_limit import TimeLimit

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from specdec.clients.request import GenerationRequest

# Without 400, which Triton sends for every error of a decoupled model.
_TRITON_CODES = {404: "NOT_FOUND", 500: "INTERNAL", 501: "UNSUPPORTED", 503: "UNAVAILABLE"}
_EVENT_HEAD = b"data:"
_NOT_TENSORS = ("id", "model_name", "model_version")


class HttpClient:
    """A pool of HTTP connections to one server; threads may share it.

    `url` may leave out `http://`. `timeout_s` is the default limit of a whole request, in seconds;
    None sets no limit. `num_connections` are kept for reuse.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        model_name: str = "specdec",
        timeout_s: float | None = None,
        num_connections: int = 64,
    ) -> None:
        root = (url if "://" in url else f"http://{url}").rstrip("/")
        self._base = f"{root}/v2/models/{model_name}"
        self._timeout_s = timeout_s
        # No retries, because a request must not be generated twice.
        self._pool = urllib3.PoolManager(maxsize=num_connections, retries=False)

    def generate(
        self, request: GenerationRequest, *, timeout_s: float | None = None
    ) -> GenerationResult:
        """Wait for the whole answer, sent by the server in one response.

        The server does not notice if the client hangs up meanwhile, so set `deadline_ms` in the
        request. Raises SpecdecError.
        """
        limit = self._limit(timeout_s)
        response = self._post("generate", request, limit, stream=False)
        with limit.while_reading(response):
            body = response.data
        return collect([_decode(body, request.request_id)])

    def stream(
        self, request: GenerationRequest, *, timeout_s: float | None = None
    ) -> Generator[Chunk, None, None]:
        """Yield the answer chunk by chunk; closing the generator early cancels the request.

        Raises SpecdecError. The HTTP status comes before the first chunk, so for an error after
        that `status` follows from `error_type`, or is None.
        """
        limit = self._limit(timeout_s)
        response = self._post("generate_stream", request, limit, stream=True)
        is_complete = is_drained = False
        try:
            with limit.while_reading(response):
                for data in events_of(response):
                    chunk = _decode(data, request.request_id)
                    is_complete = chunk.end is not None
                    yield chunk
            is_drained = True
        finally:
            if is_drained:
                response.release_conn()
            else:
                response.close()
        if not is_complete:
            raise SpecdecError(
                "the stream ended before the answer was complete", error_type=BROKEN_ANSWER
            )

    def is_ready(self, timeout_s: float = 5.0) -> bool:
        """Return whether the model takes requests; false if no answer comes in `timeout_s` seconds.

        This also opens a connection.
        """
        try:
            response = self._pool.request("GET", f"{self._base}/ready", timeout=timeout_s)
        except HTTPError:
            return False
        return response.status == 200

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.clear()

    def __enter__(self) -> HttpClient:  # noqa: PYI034 (Self is newer than 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _limit(self, timeout_s: float | None) -> TimeLimit:
        return TimeLimit(self._timeout_s if timeout_s is None else timeout_s)

    def _post(
        self, path: str, request: GenerationRequest, limit: TimeLimit, *, stream: bool
    ) -> urllib3.BaseHTTPResponse:
        body = json.dumps(_body(request, stream=stream), ensure_ascii=False).encode()
        with limit.explained_errors():
            response = self._pool.request(
                "POST",
                f"{self._base}/{path}",
                body=body,
                headers={"Content-Type": "application/json"},
                timeout=limit.until_response(),
                preload_content=False,
            )
        if response.status != 200:
            with limit.while_reading(response):
                text = response.data
            raise _error_from_body(text, response.status)
        return response


def _body(request: GenerationRequest, *, stream: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"id": request.request_id} if request.request_id else {}
    for tensor in request.tensors(stream=stream):
        body[tensor.name] = list(tensor.values) if tensor.is_list else tensor.values[0]
    return body


def events_of(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the data of each server-sent event; events may arrive in parts or several at once."""
    pending = b""
    for part in response.stream():
        *lines, pending = (pending + part).split(b"\n")
        for line in lines:
            if line.startswith(_EVENT_HEAD):
                yield line.removeprefix(_EVENT_HEAD)
    if pending.startswith(_EVENT_HEAD):
        yield pending.removeprefix(_EVENT_HEAD)


def _decode(data: bytes, request_id: str) -> Chunk:
    fields = parse_object(data)
    if "error" in fields:
        raise SpecdecError.from_server(str(fields["error"]))
    if fields.get("id", "") != request_id:
        message = f"asked as {request_id!r}, answered as {fields.get('id')!r}"
        raise SpecdecError(message, error_type=BROKEN_ANSWER)
    # Triton writes a tensor of one element as a bare value.
    return chunk_from_outputs(
        {
            name: value if isinstance(value, list) else [value]
            for name, value in fields.items()
            if name not in _NOT_TENSORS
        }
    )


def parse_object(data: bytes) -> Mapping[str, Any]:
    """Return the JSON object in `data`. Raises SpecdecError (`client_broken_answer`)."""
    try:
        fields = json.loads(data)
    except ValueError as error:
        message = f"not JSON: {data[:200]!r}"
        raise SpecdecError(message, error_type=BROKEN_ANSWER) from error
    if not isinstance(fields, dict):
        raise SpecdecError(f"not an object: {data[:200]!r}", error_type=BROKEN_ANSWER)
    return fields


def _error_from_body(data: bytes, http_status: int) -> SpecdecError:
    try:
        # `generate_stream` sends an error before the first chunk as an event, with status 400.
        text = str(parse_object(data.removeprefix(_EVENT_HEAD))["error"])
    except (SpecdecError, KeyError):
        text = f"HTTP {http_status}, {data[:200]!r}"
    return SpecdecError.from_server(text, _TRITON_CODES.get(http_status))
