"""Parameters of the orchestrator's config.pbtxt."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from specdec.control.modes import AUTO
from specdec.control.settings import ControlSettings
from specdec.errors import ConfigurationError
from specdec.serving.drafter_names import HEAD_TREE, JOIN, LOOKUP, PREDICTION, RESERVED, SUFFIX
from specdec.serving.engine_vocab import VocabSize, read_vocab_sizes
from specdec.serving.prompt_log import PromptLogSettings

CONTRACT, LLMAPI = "contract", "llmapi"
SHARED_SAMPLER, DRAFT_LOGITS, RECEIPTS = "shared_sampler", "draft_logits", "receipts"


@dataclass(frozen=True, slots=True)
class OrchestratorSettings:
    """Field names are the parameter names; NVIDIA's where the BLS model has one."""

    tokenizer_dir: str
    """Of the target; relative paths start at the model's version directory."""
    tensorrt_llm_model_name: str = "target"
    tensorrt_llm_draft_model_name: str = "draft"
    """Comma-separated; empty for prompt lookup alone."""
    draft_tokenizer_dirs: str = ""
    """Of drafts with another vocabulary than the target's: `model=directory`, comma-separated."""
    target_head_name: str = ""
    """The drafter's name of the target's drafting head (its model's `head_dir`); empty for none."""
    scripted_drafters: str = ""
    """For measurements: drafters that replay a file of guesses, `name=file`, comma-separated."""
    engine_extensions: str = "shared_sampler"
    """What both engines can, comma-separated. `shared_sampler`: they draw by position-keyed noise
    and take our optional inputs, trees of drafts among them. `draft_logits`: the draft returns its
    logits and the target takes them (compiled engines, built for it). `receipts`: an `llmapi`
    target's streams wait for their reader, as those of engines with a shared sampler do. Empty:
    greedy speculation only."""
    engine_kind: str = CONTRACT
    """`contract`: engines that take tokens and drafts. `llmapi`: the target is a model of
    TensorRT-LLM's LLM API, which speculates inside."""
    tensorrt_llm_version: str = "1.2"
    """What compiled the engines: before 0.20 two inputs had other names. Ours take either."""
    engine_vocab_sizes: str = ""
    """Of compiled engines whose logits have other columns than the target's tokenizer has tokens:
    `model=tokens:columns`, comma-separated. Columns are padded for tensor parallelism, and models
    of one family may differ in their tokens."""
    num_draft_tokens: int = 2
    """Guesses of a draft engine in one round, unless the request says otherwise."""
    head_num_draft_tokens: int = 3
    """Guesses of the target's drafting head in one round, unless the request says otherwise."""
    head_tree_num_draft_tokens: int = 8
    """Its guesses where they are a tree."""
    lookup_num_draft_tokens: int = 7
    """Guesses of prompt lookup in one round, which cost nothing to make."""
    lookup_max_draft_tokens: int = 11
    """Its guesses behind a long match. The compiled kernels read a weight once for 12 rows."""
    max_draft_len: int = 16
    """The target engine's limit; a request may not ask for more."""
    max_seq_len: int = 8192
    """Prompt and output of one request together; the smaller engine's limit. Of compiled engines
    max_input_len is one, too: a round sends as input all that was said before."""
    inflight_limit: int = 64
    """Requests served at once; one more is refused. The Python backend's thread-pool-size must be
    at least twice as large."""
    max_tenant_share: float = 0.75
    """Share of `inflight_limit` that one tenant alone can hold, above 0; several get less each, so
    that some slots stay free (serving/tenant_shares.py). 1 sets no bound."""
    draft_timeout_ms: int = 1000
    """A draft that takes longer is given up, and the round goes on without."""
    draft_ahead: bool = False
    """Drafts while the target verifies, for a draft engine on a device of its own. Applies where
    one draft engine drafts (by its name, or for `auto`) and drafts are verified by equality."""
    cancellation_check_period_ms: int = 50
    """How often it is looked whether the clients of requests in flight are still there."""
    exit_on_dead_engine: bool = False
    """Ends tritonserver when the target has died or hangs, clients told: for a plain tritonserver
    that Kubernetes starts again. `specdec serve` does it by itself."""

    speculation: str = AUTO
    """Who decides where a request does not: `auto` (measurement), `fixed` (always the default
    drafter and its guesses), `off`, `schedule`, or `article` (accepted ÷ drafted above 0.6)."""
    speculation_schedule: str = ""
    """Of `schedule`: rules in order, `load<=2:8, 22-6h:8, 12-14h:2, else:4` (guesses; 0 is off)."""
    control_share: float = 0.01
    """Share of the requests that run plain, so that the gain is measured."""
    control_state_file: str = ""
    """Where what was measured is kept over a restart; empty for nowhere. Relative paths start at
    the model's version directory."""
    control_profile: str = ""
    """What the controller begins with: a file that `specdec build profile` wrote; empty for none.
    What `control_state_file` holds comes on top. Relative as there."""
    classify_tasks: bool = True
    """Requests without a task are told apart by plain rules, as `auto:<task>`."""
    task_drafters: str = ""
    """Who drafts first for which task, `task=drafter`, comma-separated: until it is measured there,
    and for good where nothing is. `auto:<task>` goes where the task goes."""
    acceptance_by_tenant: bool = False
    """Acceptance is measured apart for each tenant: the task label is `tenant/task`."""

    prompt_log_dir: str = ""
    """Where a sample of prompts is kept for `specdec build refresh`; empty for none. Relative paths
    start at the model's version directory."""
    prompt_log_tenants: str = ""
    """Tenants that agreed to it, comma-separated; `*` for all, requests without a tenant too."""
    prompt_log_share: float = 0.01
    """Share of their requests that is logged."""
    prompt_log_max_mb: int = 64
    """What the log may take on disk; the oldest prompts go first."""

    def __post_init__(self) -> None:
        """Raises ConfigurationError for names that the orchestrator cannot serve."""
        if unknown := sorted(self._extensions - {SHARED_SAMPLER, DRAFT_LOGITS, RECEIPTS}):
            raise ConfigurationError(
                f"engine_extensions knows {SHARED_SAMPLER}, {DRAFT_LOGITS} and {RECEIPTS}; given "
                f"{unknown[0]!r}"
            )
        for name in (*self.draft_models, *self.heads, *self.scripts):
            if name in RESERVED or JOIN in name:
                raise ConfigurationError(
                    f"a drafter cannot be named {name!r}: requests would mean another drafter"
                )
        if not 0 < self.max_tenant_share <= 1:
            raise ConfigurationError(
                f"max_tenant_share must be above 0 and at most 1; given {self.max_tenant_share:g}"
            )
        self._check_engine_kind()
        self._check_routes()
        known = {self.tensorrt_llm_model_name, *self.draft_models}
        if unknown := sorted(set(read_vocab_sizes(self.engine_vocab_sizes)) - known):
            raise ConfigurationError(
                f"engine_vocab_sizes names {unknown[0]!r}, which is no engine; known are "
                f"{', '.join(sorted(known))}"
            )
        if not re.match(r"\d+\.\d+", self.tensorrt_llm_version):
            raise ConfigurationError(
                "tensorrt_llm_version must be a release such as 1.2.1; given "
                f"{self.tensorrt_llm_version!r}"
            )
        if unknown := sorted(set(self.draft_tokenizers) - set(self.draft_models)):
            raise ConfigurationError(
                f"draft_tokenizer_dirs names {unknown[0]!r}, which is no draft model; known are "
                f"{', '.join(self.draft_models) or 'none'}"
            )

    def _check_engine_kind(self) -> None:
        if self.engine_kind not in {CONTRACT, LLMAPI}:
            raise ConfigurationError(
                f"engine_kind must be {CONTRACT} or {LLMAPI}; given {self.engine_kind!r}"
            )
        if self.has_receipts and not self.is_llmapi:
            raise ConfigurationError(
                f"engine_extensions has {RECEIPTS}, which is for engine_kind = {LLMAPI} alone"
            )
        if self.is_llmapi and (names := (*self.draft_models, *self.heads, *self.scripts)):
            raise ConfigurationError(
                f"an {LLMAPI} engine has its drafter inside; leave {names[0]!r} out of "
                "tensorrt_llm_draft_model_name, target_head_name and scripted_drafters"
            )

    def _check_routes(self) -> None:
        known = () if self.is_llmapi else tuple(n for n in self.drafters if n != PREDICTION)
        for entry in filter(None, (each.strip() for each in self.task_drafters.split(","))):
            task, _, drafter = (part.strip() for part in entry.partition("="))
            if not task or drafter not in known:
                raise ConfigurationError(
                    f"task_drafters has {entry!r}; an entry is task=drafter, with one of the "
                    f"drafters {', '.join(known) or 'of this engine: it has none'}"
                )

    @property
    def is_llmapi(self) -> bool:
        """The engine speculates by itself."""
        return self.engine_kind == LLMAPI

    @property
    def _extensions(self) -> set[str]:
        return {name.strip() for name in self.engine_extensions.split(",")} - {""}

    @property
    def draft_models(self) -> tuple[str, ...]:
        names = (name.strip() for name in self.tensorrt_llm_draft_model_name.split(","))
        return tuple(name for name in names if name)

    @property
    def draft_tokenizers(self) -> dict[str, str]:
        """Directories by draft model, of those with a vocabulary of their own."""
        return _pairs(self.draft_tokenizer_dirs)

    def vocab_size(self, model: str, num_tokens: int) -> VocabSize:
        """Of an engine; `num_tokens` where nothing else is said of it."""
        sizes = read_vocab_sizes(self.engine_vocab_sizes)
        return sizes.get(model, VocabSize(num_tokens, num_tokens))

    @property
    def has_old_names(self) -> bool:
        """The engines' inputs have the names from before TensorRT-LLM 0.20."""
        major, minor = self.tensorrt_llm_version.split(".")[:2]
        return (int(major), int(minor)) < (0, 20)

    @property
    def heads(self) -> tuple[str, ...]:
        """The target's drafting head, if it has one."""
        return (self.target_head_name,) if self.target_head_name else ()

    @property
    def head_trees(self) -> tuple[str, ...]:
        """The same head, whose guesses are a tree."""
        return tuple(name + HEAD_TREE for name in self.heads)

    @property
    def routes(self) -> dict[str, str]:
        """Drafters by task."""
        return _pairs(self.task_drafters)

    @property
    def scripts(self) -> dict[str, str]:
        """Files by scripted drafter."""
        return _pairs(self.scripted_drafters)

    @property
    def control(self) -> ControlSettings:
        """Raises ConfigurationError."""
        return ControlSettings(self.speculation, self.speculation_schedule, self.control_share)

    def prompt_log(self, version_directory: Path) -> PromptLogSettings | None:
        """What is logged, None for nothing. Raises ConfigurationError."""
        if not self.prompt_log_dir:
            return None
        tenants = {name.strip() for name in self.prompt_log_tenants.split(",")} - {""}
        return PromptLogSettings(
            (version_directory / self.prompt_log_dir).resolve(),
            frozenset(tenants),
            self.prompt_log_share,
            self.prompt_log_max_mb << 20,
        )

    @property
    def has_shared_sampler(self) -> bool:
        return SHARED_SAMPLER in self._extensions

    @property
    def has_receipts(self) -> bool:
        """Of an `llmapi` target."""
        return RECEIPTS in self._extensions

    @property
    def has_draft_logits(self) -> bool:
        return DRAFT_LOGITS in self._extensions

    @property
    def drafters(self) -> tuple[str, ...]:
        """All that propose tokens; `output_sources` counts them from 1 in this order."""
        heads = (*self.heads, *self.head_trees)
        return (LOOKUP, *self.draft_models, SUFFIX, PREDICTION, *heads, *self.scripts)


def _pairs(text: str) -> dict[str, str]:
    pairs = (each.partition("=") for each in text.split(",") if each)
    return {name.strip(): value.strip() for name, _, value in pairs}
