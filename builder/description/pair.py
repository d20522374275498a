"""A whole pair: target, drafts, what they run on, and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from builder.description.engine import EngineDescription

TORCH, TENSORRTLLM, LLMAPI = "torch", "tensorrtllm", "llmapi"
ENGINES = (TORCH, TENSORRTLLM, LLMAPI)

MODES = ("eagle3", "medusa", "eagle", "redrafter", "lookahead", "ngram", "draft_target")


@dataclass(frozen=True, slots=True)
class Gpu:
    """The kind of GPU that all engines run on."""

    name: str
    memory_mib: int
    """Of one device, as nvidia-smi shows it."""
    compute_capability: int
    """80 for 8.0 and so on."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the engines are built for; a request beyond them is refused."""

    max_batch_size: int = 64
    """Sequences in one step of an engine."""
    max_input_len: int = 8191
    max_seq_len: int = 8192
    """Prompt and output of one request together, in tokens."""
    max_draft_len: int = 8
    """Guesses that the target verifies in one pass."""
    max_num_tokens: int = 8192
    """Rows in one forward pass, over all requests."""
    inflight_limit: int = 64
    """Requests that the orchestrator serves at once."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the memory must hold at once: the KV cache is planned for it."""

    num_sequences: int
    sequence_len: int
    """Tokens of each, prompt and output together."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """How the pair guesses unless a request says otherwise."""

    num_draft_tokens: int = 4
    """Guesses of a draft engine in one round."""
    lookup_num_draft_tokens: int = 7
    """Guesses of prompt lookup in one round."""
    drafters: tuple[str, ...] = ("lookup",)
    """Names of drafts, of a head, or of ways to copy ("lookup", "suffix", "prediction")."""
    draft_logits: bool = False
    """The draft returns its logits: compiled engines then verify sampled requests by rejection."""


@dataclass(frozen=True, slots=True)
class SelfSpeculation:
    """The target's own way to guess: a head on its states, or what its engine does alone.

    A torch target takes an EAGLE-3 or Medusa head beside its drafts. A compiled `tensorrtllm`
    target has one mode: medusa, eagle, redrafter or lookahead instead of draft tokens from outside.
    A `llmapi` target guesses only like this: eagle3, ngram, or draft_target with the pair's draft.
    """

    mode: str
    """One of MODES."""
    name: str = ""
    """Of the head's checkpoint, for people."""
    licence: str = ""
    num_draft_tokens: int = 3
    """Guesses in one round: the depth of a head's chain, `max_draft_len` of llmapi."""
    max_draft_len: int | None = None
    """For compiled engines: tokens of the whole tree; none: what the mode's checkpoint says."""
    draft_vocab_size: int | None = None
    """Rows of an EAGLE-3 head's output; none: the target's vocabulary."""
    num_heads: int | None = None
    """Of Medusa."""
    window_size: int | None = None
    """Of lookahead: W, and below N and G."""
    ngram_size: int | None = None
    verification_set_size: int | None = None
    checkpoint: Path | None = None
    stored: Path | None = None
    """A folder beside the pair file (the default pair's head)."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """Which TensorRT-LLM compiles and serves the engines."""

    version: str = "1.2.1"
    container: str = "26.07"
    """Release of nvcr.io/nvidia/tritonserver:…-trtllm-python-py3."""


@dataclass(frozen=True, slots=True)
class PairDescription:
    """What a pair file says."""

    name: str
    """The file's, without .toml."""
    engine: str
    """One of ENGINES; target and drafts are of one kind."""
    target: EngineDescription
    drafts: tuple[EngineDescription, ...]
    limits: Limits
    load: Load
    speculation: Speculation
    tasks: tuple[tuple[str, str], ...] = ()
    """(task label, drafter): who guesses for which kind of request."""
    self_speculation: SelfSpeculation | None = None
    gpu: Gpu | None = None
    """None: everything runs on the CPU."""
    runtime: Runtime = field(default_factory=Runtime)

    @property
    def engines(self) -> tuple[EngineDescription, ...]:
        """The target, then the drafts: so ranks and memory are given out.

        Triton loads models in no order to rely on.
        """
        return (self.target, *self.drafts)
