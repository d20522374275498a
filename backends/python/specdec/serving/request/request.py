"""Read a client's request from its tensors, check it once, and freeze it.

The functions are pure. Every error names the limit and the value given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specdec.acceptance.modes import VERIFICATION_MODES
from specdec.acceptance.sampling import GREEDY, SamplingParams
from specdec.constraints.guide import read_guide
from specdec.drafting.asked import AUTO_DRAFTER, AskedDrafter, read_drafter
from specdec.drafting.registry import DrafterId
from specdec.errors import InvalidRequestError, shown
from specdec.serving.request.parameters import check_neutral_inputs
from specdec.serving.request.values import Arrays, Reader
from specdec.token_ids import MAX_TOP_LOG_PROBS

DEFAULT_TASK = "default"
"""Task of a request that names none."""

MAX_REPETITION_PENALTY = 100.0
"""Largest repetition penalty; above it, logits leave the range of float32 or become equal."""

MIN_REPETITION_PENALTY = float(np.float32(0.01))
"""Smallest repetition penalty, 1 ÷ the largest. Clients send float32, so it is rounded to that and
lies a little below 0.01."""

ALL_THAT_FITS = -1
"""`max_tokens` of a request for as many tokens as the context has room for after the prompt."""

PROMPT_INPUTS = ("text_input", "messages", "input_ids")
"""Inputs that can hold the prompt; a request has exactly one of them."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A checked request to `specdec`; the fields are inputs of its config.pbtxt.

    `sampling` holds several inputs. docs/api.md describes each input.
    """

    text_input: str | None = None
    messages: tuple[Mapping[str, Any], ...] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tools that the chat template shows to the model, in the form of OpenAI's API."""
    input_ids: tuple[int, ...] | None = None
    max_tokens: int = 256
    """Most tokens of the answer; ALL_THAT_FITS until the prompt's length is known."""
    stream: bool = False
    sampling: SamplingParams = GREEDY
    """Sampling parameters except seed and bad words, which are fields of their own."""
    seed: int | None = None
    bad_words: tuple[str, ...] = ()
    return_log_probs: bool = False
    num_top_log_probs: int = 0
    """Most likely tokens to return at each position, with `return_log_probs`."""
    stop_words: tuple[str, ...] = ()
    add_generation_prompt: bool = True
    """Whether the prompt of `messages` ends with the start of an answer's turn."""
    continue_final_message: bool = False
    """Whether the answer continues the last of `messages`; it has no new turn then."""
    end_id: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the answer as a stop word does."""
    skip_special_tokens: bool = True
    """Whether special tokens add nothing to the answer's text."""
    return_prompt_token_ids: bool = False
    ignore_eos: bool = False
    """Whether no token ends the answer."""
    exclude_input_in_output: bool = True
    num_draft_tokens: int | None = None
    drafter: AskedDrafter = AUTO_DRAFTER
    verification: str | None = None
    prediction: str = ""
    task: str = DEFAULT_TASK
    tenant: str | None = None
    deadline_ms: int | None = None
    return_perf_metrics: bool = False


DEFAULTS = GenerationRequest()
"""The values of inputs that a request leaves out."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits that this deployment sets for requests."""

    vocab_size: int
    """Tokens of the target's tokenizer."""
    max_draft_len: int
    """Most draft tokens in a round."""
    drafters: tuple[DrafterId, ...]
    """All drafters that a request can name."""
    max_seq_len: int = 2**31 - 1
    """Most tokens of prompt and answer together."""
    max_text_bytes: int = 2**31 - 1
    """Most bytes of a text. A longer one cannot fit into `max_seq_len` and is refused unread."""


def parse_request(arrays: Arrays, limits: RequestLimits) -> GenerationRequest:
    """Return the request in `arrays` after checking everything that needs no tokenizer.

    `arrays` holds the inputs by name, without the batch dimension. Raises InvalidRequestError,
    and UnsupportedError for an input of NVIDIA's models that asks for something.
    """
    check_neutral_inputs(arrays)
    read = Reader(arrays, limits.max_text_bytes)
    given = [name for name in PROMPT_INPUTS if name in arrays]
    if len(given) != 1:
        raise InvalidRequestError(
            f"exactly one of {', '.join(PROMPT_INPUTS)} must be given; "
            f"given {', '.join(given) or 'none'}"
        )
    drafter = read_drafter(read.text("drafter", DEFAULTS.drafter.name), limits.drafters)
    num_draft_tokens = read.integer("num_draft_tokens", None, 0, limits.max_draft_len)
    max_tokens = _max_tokens(read)
    continues = read.flag("continue_final_message", DEFAULTS.continue_final_message)
    adds_turn = read.flag("add_generation_prompt", not continues)
    if continues and adds_turn:
        raise InvalidRequestError(
            "add_generation_prompt must be false with continue_final_message; given true"
        )
    return GenerationRequest(
        text_input=read.prompt_text(),
        messages=read.messages(limits.max_seq_len),
        tools=read.tools(),
        input_ids=read.prompt_ids(limits.vocab_size, limits.max_seq_len),
        max_tokens=max_tokens,
        stream=read.flag("stream", DEFAULTS.stream),
        sampling=_sampling(read, max_tokens, limits.vocab_size),
        seed=_seed(read),
        bad_words=read.words("bad_words"),
        return_log_probs=read.flag("return_log_probs", DEFAULTS.return_log_probs),
        num_top_log_probs=_num_top_log_probs(read),
        stop_words=read.words("stop_words"),
        end_id=read.integer("end_id", None, 0, limits.vocab_size - 1),
        stop_token_ids=read.tokens("stop_token_ids", limits.vocab_size),
        skip_special_tokens=read.flag("skip_special_tokens", DEFAULTS.skip_special_tokens),
        return_prompt_token_ids=read.flag(
            "return_prompt_token_ids", DEFAULTS.return_prompt_token_ids
        ),
        add_generation_prompt=adds_turn,
        continue_final_message=continues,
        ignore_eos=read.flag("ignore_eos", DEFAULTS.ignore_eos),
        exclude_input_in_output=read.flag(
            "exclude_input_in_output", DEFAULTS.exclude_input_in_output
        ),
        num_draft_tokens=num_draft_tokens,
        drafter=drafter,
        verification=_verification(read),
        prediction=read.text("prediction", DEFAULTS.prediction),
        task=read.label("task", DEFAULTS.task),
        tenant=read.label("tenant", "") or None,
        deadline_ms=read.integer("deadline_ms", None, 1, 2**31 - 1),
        return_perf_metrics=read.flag("return_perf_metrics", DEFAULTS.return_perf_metrics),
    )


def with_max_tokens(request: GenerationRequest, num_left: int) -> GenerationRequest:
    """Return the request with a number for ALL_THAT_FITS; `num_left` tokens fit after the prompt.

    Raises InvalidRequestError if that is less than `min_tokens`.
    """
    if request.max_tokens != ALL_THAT_FITS:
        return request
    if request.sampling.min_tokens > num_left:
        raise InvalidRequestError(
            f"min_tokens must be at most {num_left}, which fit after the prompt; "
            f"given {request.sampling.min_tokens}"
        )
    return replace(request, max_tokens=num_left)


def _max_tokens(read: Reader) -> int:
    value: int = read.integer("max_tokens", DEFAULTS.max_tokens, ALL_THAT_FITS, 2**31 - 1)
    if value == 0:
        raise InvalidRequestError(
            f"max_tokens must be at least 1, or {ALL_THAT_FITS} for all that fit; given 0"
        )
    return value


def _sampling(read: Reader, max_tokens: int, vocab_size: int) -> SamplingParams:
    default = DEFAULTS.sampling
    temperature = read.number("temperature", default.temperature, 0.0, 10.0)
    top_p = read.number("top_p", default.top_p, 0.0, 1.0)
    is_greedy = top_p == 0.0  # The smallest nucleus is the most probable token.
    most = 2**31 - 1 if max_tokens == ALL_THAT_FITS else max_tokens
    return SamplingParams(
        temperature=0.0 if is_greedy else temperature,
        top_k=read.integer("top_k", default.top_k, 0, 2**31 - 1),
        top_p=default.top_p if is_greedy else top_p,
        min_p=read.number("min_p", default.min_p, 0.0, 1.0),
        repetition_penalty=read.number(
            "repetition_penalty",
            default.repetition_penalty,
            MIN_REPETITION_PENALTY,
            MAX_REPETITION_PENALTY,
        ),
        presence_penalty=read.number("presence_penalty", default.presence_penalty, -2.0, 2.0),
        frequency_penalty=read.number("frequency_penalty", default.frequency_penalty, -2.0, 2.0),
        min_tokens=_min_tokens(read, most),
        guide=read_guide(
            read.text("guided_decoding_guide_type", ""), read.text("guided_decoding_guide", "")
        ),
        logit_bias=read.logit_bias(vocab_size),
    )


def _min_tokens(read: Reader, most: int) -> int:
    names = "min_tokens", "min_length"
    given = _same({name: read.integer(name, None, 0, most) for name in names})
    return DEFAULTS.sampling.min_tokens if given is None else given


def _seed(read: Reader) -> int | None:
    names = "seed", "random_seed"
    return _same({name: read.integer(name, None, 0, 2**64 - 1) for name in names})


def _same(given: Mapping[str, int | None]) -> int | None:
    """Return the value of an input with two names, None without one.

    Raises InvalidRequestError if both are given and differ.
    """
    values = [value for value in given.values() if value is not None]
    if len(set(values)) > 1:
        first, second = given
        raise InvalidRequestError(
            f"{first} and {second} are the same input; given {values[0]} and {values[1]}"
        )
    return values[0] if values else None


def _num_top_log_probs(read: Reader) -> int:
    number: int = read.integer("num_top_log_probs", 0, 0, MAX_TOP_LOG_PROBS)
    if number and not read.flag("return_log_probs", DEFAULTS.return_log_probs):
        raise InvalidRequestError(
            f"num_top_log_probs must be 0 without return_log_probs; given {number}"
        )
    return number


def _verification(read: Reader) -> str | None:
    name = read.text("verification", "")
    if name not in ("", *VERIFICATION_MODES):
        raise InvalidRequestError(
            f"verification must be one of {', '.join(VERIFICATION_MODES)}; given {shown(name)}"
        )
    return name or None
