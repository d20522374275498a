"""The sampling part of an engine call: a request's parameters as tensors of the contract."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.acceptance.sampling import GREEDY, SamplingParams
from specdec.engines import contract

EXACT, REJECTION, OFF = "exact", "rejection", "off"
"""Verification by equality; by probabilities, token for token; no speculation, the target
alone."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How both engines draw for one request."""

    params: SamplingParams = GREEDY
    num_prompt_tokens: int = 0
    wants_log_probs: bool = False
    has_shared_sampler: bool = False
    """The engines draw by position-keyed noise; they take `prompt_length`, `verification`,
    `min_p` and `draft_parents`."""
    has_old_names: bool = False
    """The engine was compiled by a TensorRT-LLM before 0.20, which renamed two inputs."""
    verification: str = EXACT
    vocab_size: int = 0
    """The engine's tokens."""
    padded_vocab_size: int = 0
    """Columns of its logits; a compiled engine has some for no token. Needed where logits are
    biased, and where a draft's are passed on."""

    cache_salt: str = ""
    """Sent to engines that take it: those that share no KV cache between different salts."""

    @property
    def is_judged(self) -> bool:
        """Drafts are verified by probabilities, so that each round draws anew."""
        return self.verification not in (EXACT, OFF) and not self.params.is_greedy

    @property
    def needs_draft_logits(self) -> bool:
        return self.is_judged and self.verification != "typical"

    def for_draft(self, number: int) -> Sampling:
        """How draft `number` draws: with the target's noise, where tokens are compared.

        Judged drafts need noise of their own each, or two guesses for one place would not be
        independent. A compiled draft returns the model's own logits, whatever it drew from; so it
        draws from what can be made of them without repeating its arithmetic: the temperature alone.
        """
        if not self.is_judged:
            return self
        seed = (self.params.seed + number * 0xD1B54A32D192ED03) % 2**64
        if self.has_shared_sampler:
            return replace(self, params=replace(self.params, seed=seed))
        return replace(self, params=SamplingParams(self.params.temperature, seed=seed))


def sampling_inputs(sampling: Sampling, num_context: int) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Names and [1, …] arrays for a call whose input_ids has `num_context` tokens.

    Each tensor costs a copy through shared memory at each hop, so that defaults are not sent.
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
    if sampling.has_shared_sampler and params.looks_back:
        yield contract.PROMPT_LENGTH, _int32(sampling.num_prompt_tokens)
        yield min_tokens, _int32(params.min_tokens)
    elif params.min_tokens:
        num_output = num_context - sampling.num_prompt_tokens
        yield min_tokens, _int32(max(0, params.min_tokens - num_output))
    if sampling.wants_log_probs:
        yield contract.RETURN_LOG_PROBS, np.asarray([[True]])
    if sampling.cache_salt:
        salt = np.asarray([[sampling.cache_salt.encode()]], dtype=np.object_)
        yield contract.CACHE_SALT, salt


def _ban_inputs(params: SamplingParams) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    if params.bad_words:
        yield contract.BAD_WORDS_LIST, contract.word_list(params.bad_words)[None]
    if params.bad_texts:
        texts = [text.encode() for text in params.bad_texts]
        yield contract.BAD_TEXTS, np.asarray([texts], dtype=np.object_)


def _draw_inputs(sampling: Sampling, num_context: int) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """What decides how a token is drawn from the logits."""
    params = sampling.params
    if params.is_greedy:
        yield contract.RUNTIME_TOP_K, _int32(1)
        return
    yield contract.TEMPERATURE, _fp32(params.temperature)
    yield contract.RUNTIME_TOP_K, _int32(params.top_k)
    yield contract.RUNTIME_TOP_P, _fp32(params.top_p)
    draws_anew = sampling.is_judged or not sampling.has_shared_sampler
    seed = round_seed(params.seed, num_context) if draws_anew else params.seed
    name = contract.RANDOM_SEED if sampling.has_old_names else contract.SEED
    yield name, np.asarray([[seed]], dtype=np.uint64)
    if params.min_p != GREEDY.min_p:
        yield contract.MIN_P, _fp32(params.min_p)


def round_seed(seed: int, num_context: int) -> int:
    """The seed of one call, the same for a round's draft and its verification.

    A rule that looks at tokens behind the one it stops at (block verification) leaves their noise
    biased; the next round must not draw by it again. An engine without noise by position draws by
    the same noise in each call of the same seed.
    """
    return (seed + num_context * 0x9E3779B97F4A7C15) % 2**64


def _int32(value: int) -> npt.NDArray[np.int32]:
    return np.asarray([[value]], dtype=np.int32)


def _fp32(value: float) -> npt.NDArray[np.float32]:
    return np.asarray([[value]], dtype=np.float32)
