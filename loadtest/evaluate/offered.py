"""Find the drafters that a running server offers."""

from __future__ import annotations

import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from specdec.clients import SpecdecError
from specdec.clients.errors import CONNECTION_FAILED
from specdec.drafting.names import AUTO, LOOKUP
from specdec.errors import ConfigurationError
from specdec.settings.orchestrator import OrchestratorSettings
from specdec.settings.parameters import read_group

MODEL = "specdec"


def default_drafters(url: str) -> list[str]:
    """Return the drafters to measure on the server at `url` (HOST:PORT) if the user names none.

    They are its draft model, else its head, else `lookup`; and `auto`. A server whose engine drafts
    by itself has only `auto`. Raises SpecdecError if the server does not answer, or has settings of
    another release.
    """
    return chosen(_settings_of(url))


def chosen(settings: OrchestratorSettings) -> list[str]:
    """Return the drafters to measure on a server with these settings."""
    if settings.engines.is_llmapi:
        return [AUTO]
    configured = (*settings.drafters.draft_models, *settings.drafters.heads)
    return [next(iter(configured), LOOKUP), AUTO]


def _settings_of(url: str) -> OrchestratorSettings:
    """Return the settings of the model `specdec`; parameters of other releases are left out."""
    try:
        with tritonclient.grpc.InferenceServerClient(url) as client:
            config = client.get_model_config(MODEL).config
    except InferenceServerException as error:
        raise SpecdecError(f"{url}: {error}", error_type=CONNECTION_FAILED) from None
    texts = {name: value.string_value for name, value in config.parameters.items()}
    try:
        return read_group(OrchestratorSettings, MODEL, texts)
    except ConfigurationError as error:
        raise SpecdecError(
            f"{url}: {error}; name the drafters with --drafters", error_type=error.error_type
        ) from None
