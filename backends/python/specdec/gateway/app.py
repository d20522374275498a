"""The gateway's application: its routes, and the form of its errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from specdec import __version__
from specdec.clients.async_grpc_client import AsyncGrpcClient
from specdec.errors import MAX_SHOWN
from specdec.gateway.answering import Answering
from specdec.gateway.metrics import GatewayMetrics
from specdec.gateway.models import ServedModels
from specdec.gateway.openai_api.chat import ChatFormat, chat_requests
from specdec.gateway.openai_api.completions import CompletionFormat, completion_requests
from specdec.gateway.openai_api.errors import (
    ApiError,
    bad_request,
    from_validation,
    unavailable,
    unreadable,
)
from specdec.gateway.openai_api.page import ERROR_RESPONSES, STREAM_RESPONSES
from specdec.gateway.openai_api.schema import ChatRequest, CompletionRequest, GenerationFields
from specdec.gateway.server_metrics import ServerMetrics
from specdec.gateway.settings import GatewaySettings
from specdec.gateway.transport.asgi import CLIENT, RECORD
from specdec.gateway.transport.guard import Guard
from specdec.gateway.transport.keys import ApiKeys, Client

CONNECT_S = 1.0
"""Seconds for which a request waits for the connection: longer than the pause before the next try,
so that a server that has come back is used at once."""

CHANNEL_OPTIONS = (
    # gRPC's default is up to 120 s, in which a server that has come back is not used.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Notices a machine that has vanished. Triton takes a ping every 5 minutes without data.
    ("grpc.keepalive_time_ms", 300_000),
)
"""Options of the connection to tritonserver."""

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of Prometheus' text format."""


def create_app(settings: GatewaySettings) -> Guard:
    """Return the application of one worker. Must be called in the event loop that runs it.

    Raises ConfigurationError if the keys cannot be read.
    """
    app = FastAPI(
        title="specdec",
        version=__version__,
        description="Speculative decoding behind OpenAI's API.",
        # A redirect would have the client's Host and the scheme before a proxy.
        redirect_slashes=False,
        responses=ERROR_RESPONSES,
    )
    client = AsyncGrpcClient(settings.server, connect_s=CONNECT_S, channel_options=CHANNEL_OPTIONS)
    metrics = GatewayMetrics()
    models = ServedModels(settings.models, client, settings.health_url)
    guard = Guard(app, ApiKeys.load(settings.api_key_file), settings.limits, metrics)
    _add_errors(app)
    _add_generation(app, models, Answering(client, settings.limits))
    load = ServerMetrics(settings.metrics_url)
    _add_information(app, models, metrics, load, guard)
    return guard


def _add_generation(app: FastAPI, models: ServedModels, answering: Answering) -> None:
    """Add the routes that generate text."""

    @app.post("/v1/chat/completions", summary="Answer a chat", responses=STREAM_RESPONSES)
    async def chat(http: Request, body: ChatRequest) -> Response:
        model, tenant = _model_and_tenant(http, models, body)
        answering.check_number(body.n or 1)
        form = ChatFormat(body)
        requests = chat_requests(body, tenant, form)
        return await answering.answer(http, model, requests, form, body.stream_options)

    @app.post("/v1/completions", summary="Complete texts or tokens", responses=STREAM_RESPONSES)
    async def complete(http: Request, body: CompletionRequest) -> Response:
        model, tenant = _model_and_tenant(http, models, body)
        form = CompletionFormat(body)
        answering.check_number(form.num_prompts * (body.n or 1))
        requests = completion_requests(body, tenant, form)
        return await answering.answer(http, model, requests, form, body.stream_options)


def _model_and_tenant(
    http: Request, models: ServedModels, body: GenerationFields
) -> tuple[str, str | None]:
    """Return Triton's name of the model, and the client's tenant; note both in the record.

    Raises ApiError.
    """
    if body.stream_options is not None and not body.stream:
        raise bad_request("stream_options needs stream: true", "stream_options")
    client: Client = http.scope[CLIENT]
    labels = http.scope[RECORD].labels
    labels |= {
        "model": body.model[:MAX_SHOWN],
        "tenant": client.tenant,
        "stream": bool(body.stream),
    }
    for name in ("user", "safety_identifier", "metadata"):
        labels[name] = getattr(body, name, None)
    return models.triton_name(body.model), client.tenant


def _add_information(
    app: FastAPI,
    models: ServedModels,
    metrics: GatewayMetrics,
    load: ServerMetrics,
    guard: Guard,
) -> None:
    """Add the routes that tell about the gateway."""

    @app.get("/v1/models", summary="List the models")
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": models.listed()}

    @app.get("/v1/models/{name:path}", summary="Describe a model")
    async def describe_model(name: str) -> dict[str, Any]:
        return models.described(name)

    @app.get("/health", summary="Whether the gateway runs")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/health/ready", summary="Whether an answer can come now")
    async def ready() -> dict[str, str]:
        if guard.is_draining:
            raise unavailable("the gateway is shutting down", "shutting_down")
        if not await models.are_ready():
            raise unavailable("the models are not ready", "not_ready")
        return {"status": "ready"}

    @app.get("/metrics", summary="The gateway's metrics", response_class=Response)
    async def page() -> Response:
        return Response(metrics.page() + await load.page(), media_type=METRICS_TYPE)

    @app.get("/version", summary="The gateway's version")
    async def version() -> dict[str, str]:
        return {"version": __version__}


def _add_errors(app: FastAPI) -> None:
    """Give all errors the form of OpenAI's."""

    def refuse(http: Request, error: ApiError) -> Response:
        http.scope[RECORD].error_code = error.code
        return JSONResponse(error.body, error.status, headers=error.headers)

    @app.exception_handler(ApiError)
    async def own(http: Request, error: ApiError) -> Response:
        return refuse(http, error)

    @app.exception_handler(RequestValidationError)
    async def invalid(http: Request, error: RequestValidationError) -> Response:
        return refuse(http, from_validation(error.errors()))

    @app.exception_handler(HTTPException)
    async def other(http: Request, error: HTTPException) -> Response:
        status = HTTPStatus(error.status_code)
        if status == HTTPStatus.BAD_REQUEST:  # FastAPI's, for a body that json cannot read
            return refuse(http, unreadable(error.__cause__))
        code = status.phrase.lower().replace(" ", "_")
        return refuse(http, ApiError(status, str(error.detail), code, None, error.headers))

    @app.exception_handler(Exception)
    async def unexpected(http: Request, error: Exception) -> Response:  # noqa: ARG001 - logged
        return refuse(
            http, ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error", "internal")
        )
