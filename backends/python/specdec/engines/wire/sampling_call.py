"""Read the sampling parameters of an engine call."""

from __future__ import annotations

import math

import numpy as np

from specdec.acceptance.sampling import GREEDY, SamplingParams
from specdec.constraints.guide import read_guide
from specdec.engines.wire import contract
from specdec.engines.wire.call_values import Arrays, either, integer, number, text
from specdec.errors import InvalidRequestError

_SAMPLING = frozenset(
    {
        *(contract.RUNTIME_TOP_P, contract.TEMPERATURE, contract.MIN_P),
        *(contract.REPETITION_PENALTY, contract.PRESENCE_PENALTY, contract.FREQUENCY_PENALTY),
        *(contract.MIN_TOKENS, contract.MIN_LENGTH, contract.SEED, contract.RANDOM_SEED),
        *(contract.BAD_WORDS_LIST, contract.BAD_TEXTS, contract.EMBEDDING_BIAS),
        contract.GUIDE_TYPE,
    }
)
"""Names of sampling inputs. A call without any of them is GREEDY if its top-k is at most 1."""


def sampling_params(arrays: Arrays) -> SamplingParams:
    """Return the sampling parameters of a call, with the defaults of NVIDIA's backend.

    A call is greedy unless it gives top-k or top-p; then its default temperature is 1. Source:
    topK = topP = 0 means topK = 1, and topP = 0 with a topK means topP = 1 (TensorRT-LLM,
    topKSamplingLayer and DefaultDecodingParams). Raise InvalidRequestError for a value outside its
    limits.
    """
    top_k = integer(arrays, contract.RUNTIME_TOP_K, 0, 2**31 - 1)
    if top_k <= 1 and _SAMPLING.isdisjoint(arrays):  # a shortcut for most calls
        return GREEDY
    top_p = number(arrays, contract.RUNTIME_TOP_P, 0.0, 0.0, 1.0)
    temperature = number(arrays, contract.TEMPERATURE, 1.0, 0.0, math.inf)
    if top_k == 1 or (top_k == 0 and top_p == 0.0):
        temperature, top_k, top_p = 0.0, 0, 1.0
    repetition_penalty = number(arrays, contract.REPETITION_PENALTY, 1.0, 0.0, math.inf)
    if repetition_penalty == 0.0:
        raise InvalidRequestError("repetition_penalty must be above 0; given 0")
    min_tokens = either(arrays, contract.MIN_TOKENS, contract.MIN_LENGTH, 2**31 - 1)
    return SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p or 1.0,
        min_p=number(arrays, contract.MIN_P, 0.0, 0.0, 1.0),
        repetition_penalty=repetition_penalty,
        presence_penalty=number(arrays, contract.PRESENCE_PENALTY, 0.0, -math.inf, math.inf),
        frequency_penalty=number(arrays, contract.FREQUENCY_PENALTY, 0.0, -math.inf, math.inf),
        min_tokens=min_tokens,
        bad_words=_bad_words(arrays),
        bad_texts=_bad_texts(arrays),
        logit_bias=_logit_bias(arrays),
        guide=read_guide(text(arrays, contract.GUIDE_TYPE), text(arrays, contract.GUIDE)),
        seed=either(arrays, contract.SEED, contract.RANDOM_SEED, 2**64 - 1),
    )


def _bad_words(arrays: Arrays) -> tuple[tuple[int, ...], ...]:
    if contract.BAD_WORDS_LIST not in arrays:
        return ()
    try:
        return contract.words_of(arrays[contract.BAD_WORDS_LIST])
    except ValueError as error:
        raise InvalidRequestError(f"bad_words_list: {error}") from None


def _bad_texts(arrays: Arrays) -> tuple[str, ...]:
    if contract.BAD_TEXTS not in arrays:
        return ()
    try:
        return tuple(own for each in arrays[contract.BAD_TEXTS].ravel() if (own := each.decode()))
    except UnicodeDecodeError:
        raise InvalidRequestError("bad_texts must be UTF-8 texts") from None


def _logit_bias(arrays: Arrays) -> tuple[tuple[int, float], ...]:
    bias = arrays.get(contract.EMBEDDING_BIAS, np.zeros(0, dtype=np.float32)).ravel()
    if not np.isfinite(bias).all():
        raise InvalidRequestError("embedding_bias must be finite")
    return tuple((token, float(bias[token])) for token in np.flatnonzero(bias).tolist())
