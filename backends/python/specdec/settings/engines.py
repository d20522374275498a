"""The settings of the engines that the orchestrator calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from specdec.errors import ConfigurationError
from specdec.settings.lists import VocabSize, check_known, read_names, read_vocab_sizes
from specdec.settings.parameters import parameter, parsed

KINDS = CONTRACT, LLMAPI, INSIDE = "contract", "llmapi", "drafters_inside"
"""Values of `engine_kind`."""

SHARED_SAMPLER, DRAFT_LOGITS = "shared_sampler", "draft_logits"
RECEIPTS, BATCH_INVARIANT = "receipts", "batch_invariant"
EXTENSIONS = SHARED_SAMPLER, DRAFT_LOGITS, RECEIPTS, BATCH_INVARIANT
"""Names that `engine_extensions` may list."""


def read_release(parameter: str, text: str) -> tuple[int, int]:
    """Return the first two numbers of a release such as 1.2.1. Raises ConfigurationError."""
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ConfigurationError(f"{parameter} must be a release such as 1.2.1; given {text!r}")
    return int(found[1]), int(found[2])


@dataclass(frozen=True, slots=True)
class CalledEngineSettings:
    """The engines: the target's name, what they can do, and their limits."""

    tokenizer_dir: str
    """Folder with the target's tokenizer."""
    target: str = parameter("target", name="tensorrt_llm_model_name")
    """Name of the target's model."""
    kind: str = parameter(CONTRACT, name="engine_kind")
    """Kind of engines. `contract`: they take tokens and drafts. `llmapi`: the target is a model of
    TensorRT-LLM's LLM API, which speculates inside. `drafters_inside`: the target is an engine with
    a batch loop of its own, such as vLLM, in which our drafters run."""
    extensions: tuple[str, ...] = parsed("engine_extensions", read_names, SHARED_SAMPLER)
    """Abilities of the engines beyond NVIDIA's tensors. `shared_sampler`: they draw with noise that
    depends on the position, and take our optional inputs, such as trees. `draft_logits`: the draft
    model returns its logits and the target takes them; compiled engines must be built for it.
    `receipts`: streams of an `llmapi` target wait for their reader, as those of our engines do.
    `batch_invariant`: with `drafters_inside`, the target's tokens do not depend on what else is in
    the batch, so that greedy output is exactly that without drafts.
    Without any, only greedy requests are speculated on."""
    release: tuple[int, int] = parsed("tensorrt_llm_version", read_release, "1.2")
    """TensorRT-LLM release that compiled the engines. Before 0.20 two inputs had other names; our
    own engines take both names."""
    vocab_sizes: Mapping[str, VocabSize] = parsed("engine_vocab_sizes", read_vocab_sizes)
    """Vocabulary sizes of compiled engines, by model name, where logits do not have one column for
    each token of the target's tokenizer. Columns may be padded for tensor parallelism, and models
    of one family may have different numbers of tokens."""
    max_draft_len: int = parameter(16, minimum=0)
    """Most draft tokens in a round that the target takes; a request may not ask for more."""
    max_seq_len: int = parameter(8192, minimum=2)
    """Most tokens of prompt and output together; at most the limit of each engine. For compiled
    engines at most `max_input_len` + 1 too, because a round sends prompt and output as input."""

    def __post_init__(self) -> None:
        """Raise ConfigurationError for wrong values."""
        check_known("engine_extensions", self.extensions, "the extension", EXTENSIONS)
        if self.kind not in KINDS:
            raise ConfigurationError(
                f"engine_kind must be one of {', '.join(KINDS)}; given {self.kind!r}"
            )
        if self.has_receipts and not self.is_llmapi:
            raise ConfigurationError(
                f"engine_extensions has {RECEIPTS}, which is for engine_kind = {LLMAPI} alone"
            )
        if self.is_batch_invariant and not self.has_drafters_inside:
            raise ConfigurationError(
                f"engine_extensions has {BATCH_INVARIANT}, which is for engine_kind = {INSIDE}"
            )

    @property
    def is_llmapi(self) -> bool:
        """Whether the target is an `llmapi` engine, which speculates inside."""
        return self.kind == LLMAPI

    @property
    def has_drafters_inside(self) -> bool:
        """Whether our drafters run inside the target."""
        return self.kind == INSIDE

    @property
    def takes_our_inputs(self) -> bool:
        """Whether the target takes our optional inputs, such as `min_p` and `bad_texts`."""
        return self.has_drafters_inside or self.has_shared_sampler

    @property
    def is_batch_invariant(self) -> bool:
        """Whether the target's tokens do not depend on what else is in the batch."""
        return BATCH_INVARIANT in self.extensions

    @property
    def has_shared_sampler(self) -> bool:
        """Whether the engines draw with the shared noise and take our optional inputs."""
        return SHARED_SAMPLER in self.extensions

    @property
    def has_draft_logits(self) -> bool:
        """Whether compiled draft models return logits and the target takes them."""
        return DRAFT_LOGITS in self.extensions

    @property
    def has_receipts(self) -> bool:
        """Whether the streams of an `llmapi` target wait for receipts."""
        return RECEIPTS in self.extensions

    @property
    def has_old_names(self) -> bool:
        """Whether the engines' inputs have the names from before TensorRT-LLM 0.20."""
        return self.release < (0, 20)

    def vocab_size(self, model: str, num_tokens: int) -> VocabSize:
        """Return an engine's configured vocabulary size, else `num_tokens` tokens and columns."""
        return self.vocab_sizes.get(model, VocabSize(num_tokens, num_tokens))
