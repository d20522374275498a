"""The description of a pair: target, draft models, hardware, limits and expected load."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from specdec.builder.description.engine import EngineDescription

TORCH, TENSORRTLLM, LLMAPI = "torch", "tensorrtllm", "llmapi"
VLLM, LLMAPI_DRAFTS = "vllm", "llmapi-drafts"
ENGINES = (TORCH, TENSORRTLLM, LLMAPI, VLLM, LLMAPI_DRAFTS)
"""Values of `engine`. In the last two, our drafters run inside the engine."""

MODES_OF = {
    TORCH: ("eagle3", "medusa"),
    TENSORRTLLM: ("medusa", "eagle", "redrafter", "lookahead"),
    LLMAPI: ("eagle3", "ngram", "draft_target"),
    VLLM: ("eagle3", "draft_model", "mtp", "dflash"),
    LLMAPI_DRAFTS: (),
}
"""Modes of [self_speculation] that each kind of engine has."""
MODES = tuple(dict.fromkeys(mode for modes in MODES_OF.values() for mode in modes))
"""All modes of [self_speculation]."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """The kind of GPU that all engines run on."""

    name: str
    memory_mib: int
    """Memory of one device in MiB, as nvidia-smi shows it."""
    compute_capability: int
    """Compute capability times ten: 80 for 8.0."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that the engines are built for; a request beyond them is refused."""

    max_batch_size: int = 64
    """Sequences in one pass of an engine."""
    max_input_len: int = 8191
    """Input of one engine call, in tokens."""
    max_seq_len: int = 8192
    """Prompt and answer of one request together, in tokens."""
    max_draft_len: int = 8
    """Draft tokens of one request that the target can verify in one pass."""
    max_num_tokens: int = 8192
    """Rows (token positions) in one pass, over all requests."""
    inflight_limit: int = 64
    """Requests in flight at most, in the orchestrator."""


@dataclass(frozen=True, slots=True)
class Load:
    """The expected load, for which the KV cache is planned."""

    num_sequences: int
    """Sequences in the KV cache at once."""
    sequence_len: int
    """Tokens of each sequence, prompt and answer together."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """The drafters and draft lengths used unless a request says otherwise."""

    num_draft_tokens: int = 4
    """Draft tokens that a draft model proposes in one round."""
    lookup_num_draft_tokens: int = 7
    """Draft tokens that `lookup` proposes in one round."""
    drafters: tuple[str, ...] = ("lookup",)
    """Draft models, head or copy drafters ("lookup", "suffix", "prediction"), by name."""
    draft_logits: bool = False
    """Whether drafts return logits, so compiled engines verify sampled requests by rejection."""


@dataclass(frozen=True, slots=True)
class SelfSpeculation:
    """Drafting by the target's own engine: with a head, or in a mode built into the engine.

    - A torch target can have an EAGLE-3 or Medusa head in addition to its draft models.
    - A compiled `tensorrtllm` target has one mode (medusa, eagle, redrafter or lookahead). It then
      takes no draft tokens from outside.
    - An `llmapi` target drafts only in this way: eagle3, ngram, or draft_target, which runs the
      pair's draft model inside the engine.
    - A `vllm` target can have one of vLLM's own drafters beside our copy drafters.
    """

    mode: str
    """Kind of head or mode; one of MODES."""
    name: str = ""
    """Name of the head's checkpoint, shown to people."""
    licence: str = ""
    num_draft_tokens: int = 3
    """Draft tokens in one round: the depth of a head's chain, or llmapi's `max_draft_len`."""
    max_draft_len: int | None = None
    """Tokens of the whole draft tree in a compiled engine; None: the default of the mode."""
    draft_vocab_size: int | None = None
    """Output rows of an EAGLE-3 head; None: as many as the target's vocabulary."""
    num_heads: int | None = None
    """Number of Medusa heads."""
    window_size: int | None = None
    """Window size W of lookahead decoding."""
    ngram_size: int | None = None
    """N-gram size N of lookahead decoding; for ngram, the longest n-gram that is matched."""
    verification_set_size: int | None = None
    """Verification set size G of lookahead decoding."""
    checkpoint: Path | None = None
    """Folder with the head's config.json and weights."""
    stored: Path | None = None
    """Folder with the head, relative to the pair file (used by the default pair)."""

    @property
    def num_lookahead_tokens(self) -> int | None:
        """Tokens that lookahead decoding verifies in one pass; None if W, N or G is missing.

        Source: TensorRT-LLM's lookahead README.
        """
        window, ngram, verified = self.window_size, self.ngram_size, self.verification_set_size
        if not window or not ngram or verified is None:
            return None
        return max(ngram - 2, 0) + (window - 1 + verified) * (ngram - 1)


@dataclass(frozen=True, slots=True)
class Runtime:
    """The container that serves the engines, and the TensorRT-LLM release that compiles them."""

    version: str = "1.2.1"
    """Release of TensorRT-LLM."""
    container: str = "26.07"
    """Release of Triton's container with TensorRT-LLM or vLLM."""

    @property
    def image(self) -> str:
        """Name of the container image with TensorRT-LLM."""
        return f"nvcr.io/nvidia/tritonserver:{self.container}-trtllm-python-py3"

    @property
    def vllm_image(self) -> str:
        """Name of the container image with vLLM."""
        return f"nvcr.io/nvidia/tritonserver:{self.container}-vllm-python-py3"


@dataclass(frozen=True, slots=True)
class PairDescription:
    """The contents of a pair file, with names resolved to shapes and GPUs."""

    name: str
    """Name of the pair file, without .toml."""
    engine: str
    """Kind of engine, one of ENGINES. Draft models have the same kind, except for a target with our
    drafters inside: theirs are torch engines."""
    target: EngineDescription
    drafts: tuple[EngineDescription, ...]
    limits: Limits
    load: Load
    speculation: Speculation
    tasks: tuple[tuple[str, str], ...] = ()
    """Drafter for requests of a task, as (task label, drafter)."""
    self_speculation: SelfSpeculation | None = None
    gpu: Gpu | None = None
    """Kind of all GPUs; None if everything runs on the CPU."""
    runtime: Runtime = field(default_factory=Runtime)

    @property
    def engines(self) -> tuple[EngineDescription, ...]:
        """The target and then the draft models, the order in which ranks and memory are assigned.

        Triton loads models in no fixed order.
        """
        return (self.target, *self.drafts)

    @property
    def speculates_inside(self) -> bool:
        """Whether the target's engine speculates by itself and takes no draft tokens."""
        has_own_mode = self.self_speculation is not None
        return self.engine == LLMAPI or (self.engine == TENSORRTLLM and has_own_mode)

    @property
    def has_drafters_inside(self) -> bool:
        """Whether our drafters run inside the target's engine."""
        return self.engine in (VLLM, LLMAPI_DRAFTS)

    @property
    def serves_drafts(self) -> bool:
        """Whether the draft models are Triton models, and not inside the target's engine."""
        own = self.self_speculation
        is_inside = self.has_drafters_inside and own is not None and own.mode == "draft_model"
        return not (self.speculates_inside or is_inside)

    def kind_of(self, engine: EngineDescription) -> str:
        """Return the kind of one engine, one of ENGINES."""
        is_beside = self.has_drafters_inside and self.serves_drafts and engine is not self.target
        return TORCH if is_beside else self.engine

    @property
    def visible_devices(self) -> tuple[int, ...]:
        """GPUs of a target with our drafters inside, and then those of the draft models beside it.

        Engines number GPUs by their position here.
        """
        served = self.served_engines
        return tuple(dict.fromkeys(each for one in served for each in one.placement.devices))

    @property
    def served_engines(self) -> tuple[EngineDescription, ...]:
        """The engines that are Triton models: the target, and drafts that are not inside it."""
        return self.engines if self.serves_drafts else (self.target,)
