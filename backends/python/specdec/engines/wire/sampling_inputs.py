"""Converts the sampling parameters of a request to the tensors of an engine call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.acceptance.modes import EXACT, compares_probabilities, needs_draft_logits
from specdec.acceptance.sampling import GREEDY, SamplingParams
from specdec.engines.wire import contract


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling of one request: how an engine draws and verifies its tokens."""

    params: SamplingParams = GREEDY
    num_prompt_tokens: int = 0
    """Number of tokens at the beginning of the context that are prompt, not output."""
    wants_log_probs: bool = False
    """Whether the engine is to return log-probabilities."""
    num_top_log_probs: int = 0
    """Number of most likely tokens that it is to return at each position."""
    takes_our_inputs: bool = False
    """Whether the engines take the inputs `prompt_length`, `verification`, `min_p` and
    `draft_parents`. Our own engines do, which draw with noise by position (noise.py), and so do
    engines with our drafters inside, which get no drafts from outside."""
    has_old_names: bool = False
    """Whether the engine was compiled by a TensorRT-LLM before 0.20, which renamed two inputs."""
    verification: str = EXACT
    """The verification mode, or NO_VERIFICATION."""
    vocab_size: int = 0
    """Number of tokens in the engine's vocabulary."""
    padded_vocab_size: int = 0
    """Number of columns of the engine's logits; compiled engines may have more columns than tokens.
    Needed for `logit_bias` and for draft logits."""

    cache_salt: str = ""
    """Salt of the engine's prefix cache: calls with different salts share nothing. Empty without a
    tenant, and for engines that take no salt."""

    @property
    def verifies_by_probability(self) -> bool:
        """Whether drafts are verified by probabilities, and each round has noise of its own.

        Greedy requests are always verified by equality.
        """
        return compares_probabilities(self.verification) and not self.params.is_greedy

    @property
    def uses_our_rules(self) -> bool:
        """Whether drafts are verified by probabilities in our own engine, with `verification`."""
        return self.verifies_by_probability and self.takes_our_inputs

    @property
    def needs_draft_logits(self) -> bool:
        """Whether verification needs the logits from which the draft tokens were drawn."""
        return self.verifies_by_probability and needs_draft_logits(self.verification)

    def for_draft(self, number: int) -> Sampling:
        """Return the sampling of draft model `number`.

        If drafts are verified by equality, it is the target's sampling, so that both draw with the
        same noise. If they are verified by probabilities, each draft model gets a seed of its own,
        because candidates for the same position must be drawn independently. A compiled draft
        engine then draws with temperature alone: it always returns its model's plain logits, and
        `drawn_from` (draft_logits.py) can apply nothing else to them.
        """
        if not self.verifies_by_probability:
            return self
        seed = (self.params.seed + number * 0xD1B54A32D192ED03) % 2**64
        if self.takes_our_inputs:
            return replace(self, params=replace(self.params, seed=seed))
        return replace(self, params=SamplingParams(self.params.temperature, seed=seed))


def sampling_inputs(sampling: Sampling, num_context: int) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield names and arrays [1, ...] for a call with `num_context` tokens in input_ids.

    Defaults are left out, because each tensor costs a copy through shared memory at each hop.
    """
    params = sampling.params
    yield from _draw_inputs(sampling, num_context)
    for name, value, default in (
        (contract.REPETITION_PENALTY, params.repetition_penalty, GREEDY.repetition_penalty),
        (contract.PRESENCE_PENALTY, params.presence_penalty, GREEDY.presence_penalty),
        (contract.FREQUENCY_PENALTY, params.frequency_penalty, GREEDY.frequency_penalty),
    ):
        if value != default:
            yield name, _fp32(value)
    if params.logit_bias:
        row = np.zeros((1, sampling.padded_vocab_size), dtype=np.float32)
        for token, bias in params.logit_bias:
            row[0, token] = bias
        yield contract.EMBEDDING_BIAS, row
    yield from _ban_inputs(params)
    min_tokens = contract.MIN_LENGTH if sampling.has_old_names else contract.MIN_TOKENS
    if sampling.takes_our_inputs and params.looks_back:
        yield contract.PROMPT_LENGTH, int32(sampling.num_prompt_tokens)
        yield min_tokens, int32(params.min_tokens)
    elif params.min_tokens:
        num_output = num_context - sampling.num_prompt_tokens
        yield min_tokens, int32(max(0, params.min_tokens - num_output))
    if sampling.wants_log_probs:
        yield contract.RETURN_LOG_PROBS, np.asarray([[True]])
    if sampling.num_top_log_probs:
        yield contract.NUM_TOP_LOG_PROBS, int32(sampling.num_top_log_probs)
    if sampling.cache_salt:
        yield contract.CACHE_SALT, text_array(sampling.cache_salt)


def _ban_inputs(params: SamplingParams) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the inputs that ban tokens: bad words and the guide."""
    if params.bad_words:
        yield contract.BAD_WORDS_LIST, contract.word_list(params.bad_words)[None]
    if params.bad_texts:
        texts = [text.encode() for text in params.bad_texts]
        yield contract.BAD_TEXTS, np.asarray([texts], dtype=np.object_)
    if params.guide is not None:
        yield contract.GUIDE_TYPE, text_array(params.guide.kind)
        yield contract.GUIDE, text_array(params.guide.text)


def _draw_inputs(sampling: Sampling, num_context: int) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the inputs that decide how a token is drawn from the logits."""
    params = sampling.params
    if params.is_greedy:
        yield contract.RUNTIME_TOP_K, int32(1)
        return
    yield contract.TEMPERATURE, _fp32(params.temperature)
    yield contract.RUNTIME_TOP_K, int32(params.top_k)
    yield contract.RUNTIME_TOP_P, _fp32(params.top_p)
    draws_anew = sampling.verifies_by_probability or not sampling.takes_our_inputs
    seed = round_seed(params.seed, num_context) if draws_anew else params.seed
    name = contract.RANDOM_SEED if sampling.has_old_names else contract.SEED
    yield name, np.asarray([[seed]], dtype=np.uint64)
    if params.min_p != GREEDY.min_p:
        yield contract.MIN_P, _fp32(params.min_p)


def round_seed(seed: int, num_context: int) -> int:
    """Return the seed of one call, which is the same for the draft and verification of a round.

    Each round needs another seed for two reasons. Block verification looks at tokens after the one
    at which it stops. Their noise is then biased, and the next round must not use it again. Engines
    without noise by position would use the same noise in all calls with the same seed.
    """
    return (seed + num_context * 0x9E3779B97F4A7C15) % 2**64


def int32(value: int) -> npt.NDArray[np.int32]:
    """Return a number as the array of a contract tensor: [1, 1] int32."""
    return np.asarray([[value]], dtype=np.int32)


def text_array(value: str) -> npt.NDArray[np.object_]:
    """Return a text as the array of a contract tensor: [1, 1] bytes."""
    return np.asarray([[value.encode()]], dtype=np.object_)


def _fp32(value: float) -> npt.NDArray[np.float32]:
    return np.asarray([[value]], dtype=np.float32)
