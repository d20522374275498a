"""Define the settings of the orchestrator: its parameters, read and checked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from specdec.drafting import registry
from specdec.drafting.names import HEAD_TREE, JOIN, PREDICTION
from specdec.drafting.registry import RESERVED, DrafterId, drafter_ids
from specdec.errors import ConfigurationError
from specdec.settings.lists import VocabSize, item_error, read_names, read_pairs, read_vocab_sizes
from specdec.settings.orchestrator_parameters import CONTRACT, LLMAPI, OrchestratorParameters
from specdec.settings.prompt_log import PromptLogSettings
from specdec.steering.settings import ControlSettings

SHARED_SAMPLER, DRAFT_LOGITS, RECEIPTS = "shared_sampler", "draft_logits", "receipts"
"""Names that `engine_extensions` may list."""
AT_LEAST_ONE = ("inflight_limit", "draft_timeout_ms", "cancellation_check_period_ms")
"""Parameters whose numbers must be at least 1."""


@dataclass(frozen=True)
class OrchestratorSettings(OrchestratorParameters):
    """The orchestrator's settings; each list among the parameters is read once, by a property."""

    def __post_init__(self) -> None:
        """Raise ConfigurationError for values that are wrong or contradict one another."""
        _check(self)

    @property
    def is_llmapi(self) -> bool:
        """Whether the target is an `llmapi` engine, which speculates inside."""
        return self.engine_kind == LLMAPI

    @cached_property
    def extensions(self) -> tuple[str, ...]:
        """Names of what the engines can do beyond NVIDIA's tensors."""
        return read_names("engine_extensions", self.engine_extensions)

    @cached_property
    def draft_models(self) -> tuple[str, ...]:
        """Names of the draft models, in their configured order."""
        return read_names("tensorrt_llm_draft_model_name", self.tensorrt_llm_draft_model_name)

    @cached_property
    def draft_tokenizers(self) -> dict[str, str]:
        """Tokenizer folders of cross-vocabulary draft models, by model name."""
        return read_pairs("draft_tokenizer_dirs", self.draft_tokenizer_dirs, "model=folder")

    @cached_property
    def vocab_sizes(self) -> dict[str, VocabSize]:
        """The configured vocabulary sizes of engines, by model name."""
        return read_vocab_sizes("engine_vocab_sizes", self.engine_vocab_sizes)

    def vocab_size(self, model: str, num_tokens: int) -> VocabSize:
        """Return an engine's configured vocabulary size, else `num_tokens` tokens and columns."""
        return self.vocab_sizes.get(model, VocabSize(num_tokens, num_tokens))

    @property
    def has_old_names(self) -> bool:
        """Whether the engines' inputs have the names from before TensorRT-LLM 0.20."""
        major, minor = self.tensorrt_llm_version.split(".")[:2]
        return (int(major), int(minor)) < (0, 20)

    @property
    def heads(self) -> tuple[str, ...]:
        """Drafter name of the head's chains; empty without a head."""
        return (self.target_head_name,) if self.target_head_name else ()

    @property
    def head_trees(self) -> tuple[str, ...]:
        """Drafter name of the head's trees; empty without a head."""
        return tuple(name + HEAD_TREE for name in self.heads)

    @cached_property
    def routes(self) -> dict[str, str]:
        """The configured drafter of each task."""
        return read_pairs("task_drafters", self.task_drafters, "task=drafter")

    @cached_property
    def scripts(self) -> dict[str, str]:
        """The file of each scripted drafter, by drafter name."""
        return read_pairs("scripted_drafters", self.scripted_drafters, "name=file")

    @property
    def control(self) -> ControlSettings:
        """The controller's settings. Raises ConfigurationError for wrong values."""
        return ControlSettings(self.speculation, self.speculation_schedule, self.control_share)

    def prompt_log(self, version_directory: Path) -> PromptLogSettings | None:
        """Return the prompt log's settings, or None without a log. Raises ConfigurationError."""
        if not self.prompt_log_dir:
            return None
        return PromptLogSettings(
            (version_directory / self.prompt_log_dir).resolve(),
            frozenset(read_names("prompt_log_tenants", self.prompt_log_tenants)),
            self.prompt_log_share,
            self.prompt_log_max_mb << 20,
        )

    @property
    def has_shared_sampler(self) -> bool:
        """Whether the engines draw with the shared noise and take our optional inputs."""
        return SHARED_SAMPLER in self.extensions

    @property
    def has_receipts(self) -> bool:
        """Whether the streams of an `llmapi` target wait for receipts."""
        return RECEIPTS in self.extensions

    @property
    def has_draft_logits(self) -> bool:
        """Whether compiled draft models return logits and the target takes them."""
        return DRAFT_LOGITS in self.extensions

    @cached_property
    def drafter_ids(self) -> tuple[DrafterId, ...]:
        """All drafters that requests can name, in the order of `output_sources`."""
        return drafter_ids(
            {
                registry.DRAFT_MODEL: self.draft_models,
                registry.HEAD: self.heads,
                registry.HEAD_TREE: self.head_trees,
                registry.SCRIPTED: tuple(self.scripts),
            }
        )

    @property
    def drafters(self) -> tuple[str, ...]:
        """Names of all drafters; `output_sources` numbers them from 1 in this order."""
        return tuple(each.name for each in self.drafter_ids)


def _check(settings: OrchestratorSettings) -> None:
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
