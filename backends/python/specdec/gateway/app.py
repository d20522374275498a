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
from specdec.gateway.answering import Answering
from specdec.gateway.chat import ChatFormat, chat_requests
from specdec.gateway.completions import CompletionFormat, completion_requests, prompts_of
from specdec.gateway.errors import ApiError, from_validation, unavailable
from specdec.gateway.guard import CLIENT, RECORD, Guard
from specdec.gateway.keys import ApiKeys, Client
from specdec.gateway.metrics import GatewayMetrics
from specdec.gateway.models import ServedModels
from specdec.gateway.schema import ChatRequest, CompletionRequest, GenerationFields
from specdec.gateway.settings import GatewaySettings

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
    )
    client, metrics = AsyncGrpcClient(settings.server), GatewayMetrics()
    models = ServedModels(settings.models, client, settings.health_url)
    guard = Guard(app, ApiKeys.load(settings.api_key_file), settings.limits, metrics)
    _add_errors(app)
    _add_generation(app, models, Answering(client, settings.limits))
    _add_information(app, models, metrics, guard)
    return guard


def _add_generation(app: FastAPI, models: ServedModels, answering: Answering) -> None:
    """Add the routes that generate text."""

    @app.post("/v1/chat/completions", summary="Answer a chat")
    async def chat(http: Request, body: ChatRequest) -> Response:
        model, tenant = _model_and_tenant(http, models, body)
        form = ChatFormat(body.model, 1)
        requests = chat_requests(body, tenant, form.answer_id)
        return await answering.answer(http, model, requests, form, has_usage=_has_usage(body))

    @app.post("/v1/completions", summary="Complete texts or tokens")
    async def complete(http: Request, body: CompletionRequest) -> Response:
        model, tenant = _model_and_tenant(http, models, body)
        form = CompletionFormat(body.model, len(prompts_of(body)))
        requests = completion_requests(body, tenant, form.answer_id)
        return await answering.answer(http, model, requests, form, has_usage=_has_usage(body))


def _model_and_tenant(
    http: Request, models: ServedModels, body: GenerationFields
) -> tuple[str, str | None]:
    """Return Triton's name of the model, and the client's tenant; note both in the record."""
    client: Client = http.scope[CLIENT]
    labels = http.scope[RECORD].labels
    labels |= {"model": body.model, "tenant": client.tenant, "stream": bool(body.stream)}
    labels |= {"user": body.user, "metadata": getattr(body, "metadata", None)}
    return models.triton_name(body.model), client.tenant


def _has_usage(body: GenerationFields) -> bool:
    options = body.stream_options
    return options is not None and bool(options.include_usage)


def _add_information(
    app: FastAPI, models: ServedModels, metrics: GatewayMetrics, guard: Guard
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
        return Response(metrics.page(), media_type=METRICS_TYPE)

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
        code = status.phrase.lower().replace(" ", "_")
        return refuse(http, ApiError(status, str(error.detail), code, None, error.headers))

    @app.exception_handler(Exception)
    async def unexpected(http: Request, error: Exception) -> Response:  # noqa: ARG001 - logged
        return refuse(
            http, ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error", "internal")
        )
