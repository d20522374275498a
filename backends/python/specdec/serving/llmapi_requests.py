"""Make the target of a request from an engine that speculates inside (TensorRT-LLM's LLM API)."""

from __future__ import annotations

from dataclasses import replace

from specdec.acceptance.sampling import GREEDY
from specdec.drafting.names import AUTO
from specdec.engines.llmapi_target import LlmapiTarget, TextPrompt
from specdec.engines.protocol import EngineClock, EngineCounts
from specdec.errors import UnsupportedError
from specdec.serving.request.request import GenerationRequest
from specdec.serving.text.tokenizing import Tokenizer


def llmapi_target(
    model: str,
    request: GenerationRequest,
    request_id: str,
    seed: int,
    tokenizer: Tokenizer,
    clock: EngineClock,
    counts: EngineCounts,
    has_receipts: bool,
) -> LlmapiTarget:
    """Return the engine as the target of one request.

    `clock` and `counts` are advanced by what the engine reports at its end. `has_receipts`: the
    engine waits for receipts of its responses. Raises UnsupportedError if the request has a
    parameter that such an engine does not take, InvalidRequestError if its messages are refused.
    """
    _check(request)
    prompt = TextPrompt(tokenizer.prompt_text(request), replace(request.sampling, seed=seed))
    cut, max_tokens = tokenizer.cut, request.max_tokens
    return LlmapiTarget(model, request_id, prompt, cut, max_tokens, clock, counts, has_receipts)


def _check(request: GenerationRequest) -> None:
    sampling = request.sampling
    given = {
        "input_ids": request.input_ids is not None,
        "end_id": request.end_id is not None,
        "ignore_eos": request.ignore_eos,
        "stop_token_ids": bool(request.stop_token_ids),
        "skip_special_tokens": not request.skip_special_tokens,
        "num_draft_tokens": request.num_draft_tokens is not None,
        "drafter": request.drafter.name != AUTO,
        "verification": request.verification is not None,
        "prediction": bool(request.prediction),
        "bad_words": bool(request.bad_words),
        "return_log_probs": request.return_log_probs,
        "min_p": sampling.min_p != GREEDY.min_p,
        "min_tokens": sampling.min_tokens != GREEDY.min_tokens,
        "repetition_penalty": sampling.repetition_penalty != GREEDY.repetition_penalty,
        "logit_bias": bool(sampling.logit_bias),
        "guided_decoding_guide_type": sampling.guide is not None,
    }
    if names := [name for name, is_given in given.items() if is_given]:
        raise UnsupportedError(
            f"an engine that takes text and speculates by itself cannot be told {names[0]}; "
            "leave it out"
        )
