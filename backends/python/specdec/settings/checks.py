"""Check the orchestrator's settings: each value, and those that belong together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from specdec.drafting.names import JOIN, PREDICTION
from specdec.drafting.registry import RESERVED
from specdec.errors import ConfigurationError
from specdec.settings.lists import item_error

if TYPE_CHECKING:
    from specdec.settings.orchestrator import OrchestratorSettings

CONTRACT, LLMAPI = "contract", "llmapi"
"""Values of `engine_kind`."""
SHARED_SAMPLER, DRAFT_LOGITS, RECEIPTS = "shared_sampler", "draft_logits", "receipts"
"""Names that `engine_extensions` may list."""
AT_LEAST_ONE = ("inflight_limit", "draft_timeout_ms", "cancellation_check_period_ms")
"""Parameters whose numbers must be at least 1."""


def check(settings: OrchestratorSettings) -> None:
    """Raise ConfigurationError for values that are wrong or contradict one another."""
    _check_values(settings)
    _check_engine_kind(settings)
    _check_drafters(settings)
    models = sorted({settings.tensorrt_llm_model_name, *settings.draft_models})
    _check_known("engine_vocab_sizes", settings.vocab_sizes, "the engine", models)


def _check_values(settings: OrchestratorSettings) -> None:
    extensions = (SHARED_SAMPLER, DRAFT_LOGITS, RECEIPTS)
    _check_known("engine_extensions", settings.extensions, "the extension", extensions)
    for name in AT_LEAST_ONE:
        if (value := getattr(settings, name)) < 1:
            raise ConfigurationError(f"{name} must be at least 1; given {value:g}")
    if not 0 < settings.max_tenant_share <= 1:
        raise ConfigurationError(
            f"max_tenant_share must be above 0 and at most 1; given {settings.max_tenant_share:g}"
        )
    if not re.match(r"\d+\.\d+", settings.tensorrt_llm_version):
        raise ConfigurationError(
            "tensorrt_llm_version must be a release such as 1.2.1; given "
            f"{settings.tensorrt_llm_version!r}"
        )


def _check_engine_kind(settings: OrchestratorSettings) -> None:
    if settings.engine_kind not in {CONTRACT, LLMAPI}:
        raise ConfigurationError(
            f"engine_kind must be {CONTRACT} or {LLMAPI}; given {settings.engine_kind!r}"
        )
    if settings.has_receipts and not settings.is_llmapi:
        raise ConfigurationError(
            f"engine_extensions has {RECEIPTS}, which is for engine_kind = {LLMAPI} alone"
        )
    names = (*settings.draft_models, *settings.heads, *settings.scripts)
    if settings.is_llmapi and names:
        raise ConfigurationError(
            f"an {LLMAPI} engine has its drafter inside; leave {names[0]!r} out of "
            "tensorrt_llm_draft_model_name, target_head_name and scripted_drafters"
        )


def _check_drafters(settings: OrchestratorSettings) -> None:
    """Check the names of drafters, and the lists that refer to them."""
    names = settings.drafters
    configured = (each.name for each in settings.drafter_ids if each.kind.is_configured)
    for name in configured:
        if name in RESERVED or JOIN in name:
            raise ConfigurationError(
                f"a drafter cannot be named {name!r}: requests would mean another drafter"
            )
        if names.count(name) > 1:
            raise ConfigurationError(
                f"two drafters are named {name!r}; each needs a name of its own"
            )
    _check_known(
        "draft_tokenizer_dirs", settings.draft_tokenizers, "the draft model", settings.draft_models
    )
    known = () if settings.is_llmapi else tuple(each for each in names if each != PREDICTION)
    for task, drafter in settings.routes.items():
        if drafter not in known:
            allowed = f"one of the drafters {', '.join(known)}" if known else "no drafter here"
            raise item_error("task_drafters", f"{task}={drafter}", f"task=drafter, with {allowed}")


def _check_known(parameter: str, given: Iterable[str], what: str, known: Iterable[str]) -> None:
    """Raise ConfigurationError if `given` has a name that is not in `known`."""
    known = tuple(known)
    for name in given:
        if name not in known:
            allowed = f"one of {', '.join(known)}" if known else "left out: there is none"
            raise ConfigurationError(f"{parameter} has {name!r}; {what} must be {allowed}")
