"""Checks keys, limits and drain before each HTTP request, and writes log and metrics after it."""

from __future__ import annotations

from http import HTTPStatus

import anyio
from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from specdec.errors import shown
from specdec.gateway.metrics import GatewayMetrics
from specdec.gateway.openai_api.errors import RETRY_S, ApiError, bad_request, unavailable
from specdec.gateway.settings import GatewayLimits
from specdec.gateway.transport.access import NO_CLIENT, RequestRecord, new_record, write_record
from specdec.gateway.transport.asgi import (
    CLIENT,
    RECORD,
    Application,
    Message,
    Receive,
    Scope,
    Send,
)
from specdec.gateway.transport.keys import ApiKeys, Client

PROTECTED = "/v1/"
"""Beginning of the paths that need a key, and that are refused during a drain."""

MAX_DISCARDED = 4
"""A body is read up to this multiple of its limit, and discarded, so that the client reads the
answer before it notices that the connection is closed."""


class Guard:
    """An ASGI application around another one; it passes on only what that one may answer."""

    def __init__(
        self, app: Application, keys: ApiKeys, limits: GatewayLimits, metrics: GatewayMetrics
    ) -> None:
        self._app = app
        self._keys = keys
        self._limits = limits
        self._metrics = metrics
        self.is_draining = False
        """Whether new requests are refused, because the gateway is about to stop."""
        self.num_running = 0
        """Requests that are being read or answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request; other events of ASGI are passed on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        record = scope[RECORD] = new_record(scope, headers)
        is_protected = record.path.startswith(PROTECTED)
        noting = _noting(send, record)
        self._count(+1)
        try:
            if is_protected:
                scope[CLIENT] = self._admit(headers)
                receive = await self._with_body(headers, receive)
            await self._app(scope, receive, noting)
        except _HungUpError:
            record.is_hang_up, record.status = True, NO_CLIENT
        except ApiError as error:
            record.error_code = error.code
            refusal = JSONResponse(error.body, error.status, headers=error.headers)
            await refusal(scope, receive, noting)
        finally:
            self._count(-1)
            route = getattr(scope.get("route"), "path", "unknown")
            write_record(record, self._metrics, route)

    def _count(self, change: int) -> None:
        self.num_running += change
        self._metrics.num_running.inc(change)

    def _admit(self, headers: Headers) -> Client:
        """Return who sends a request. Raises ApiError if it is refused unread."""
        client = self._keys.client_of(headers.get("authorization", ""))
        if client is None:
            raise ApiError(
                HTTPStatus.UNAUTHORIZED,
                "a valid API key is needed: Authorization: Bearer KEY",
                "invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if self.is_draining:
            raise unavailable("the gateway is shutting down", "shutting_down")
        if self.num_running > self._limits.max_requests:
            raise ApiError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"at most {self._limits.max_requests} requests may run at a time",
                "overloaded",
                headers={"Retry-After": str(RETRY_S)},
            )
        return client

    async def _with_body(self, headers: Headers, receive: Receive) -> Receive:
        """Read the whole body; return a `receive` that gives it and then what follows.

        Raises ApiError if the body is too long or comes too slowly.
        """
        if (encoding := headers.get("content-encoding", "identity").lower()) != "identity":
            raise bad_request(
                f"Content-Encoding {shown(encoding)} is not supported", None, "unsupported"
            )
        limit = self._limits.max_body_bytes
        body, size = bytearray(), 0
        try:
            with anyio.fail_after(self._limits.body_s):
                if int(headers.get("content-length", "0")) > MAX_DISCARDED * limit:
                    raise _too_large(limit)
                more = True
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise _HungUpError
                    size += len(message.get("body", b""))
                    if size > MAX_DISCARDED * limit:
                        raise _too_large(limit)
                    if size <= limit:
                        body += message.get("body", b"")
                    more = message.get("more_body", False)
        except TimeoutError:
            raise ApiError(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the body must arrive within {self._limits.body_s:g} s",
                "body_timeout",
                headers={"Connection": "close"},
            ) from None
        if size > limit:
            raise _too_large(limit)
        first: Message | None = {"type": "http.request", "body": bytes(body), "more_body": False}

        async def replay() -> Message:
            nonlocal first
            message, first = first, None
            return message if message is not None else await receive()

        return replay


class _HungUpError(Exception):
    """The client hung up while its request was being read."""


def _too_large(limit: int) -> ApiError:
    return ApiError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"a body may have {limit} bytes",
        "body_too_large",
        headers={"Connection": "close"},
    )


def _noting(send: Send, record: RequestRecord) -> Send:
    """Return a `send` that notes the status, and adds the request's id to the headers."""

    async def noting(message: Message) -> None:
        if message["type"] == "http.response.start":
            record.status = message["status"]
            id_header = (b"x-request-id", record.request_id.encode())
            message["headers"] = [*message.get("headers", ()), id_header]
        await send(message)

    return noting
