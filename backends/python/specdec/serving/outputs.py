"""Make the arrays of a response from an answer's text, tokens and statistics.

The functions are pure. docs/api.md describes each output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.drafting.names import PREDICTION
from specdec.serving.job import Job
from specdec.serving.metrics.statistics import RoundTimes, SpeculationSummary
from specdec.serving.text.text_stream import Token

Outputs = Mapping[str, npt.NDArray[Any]]
"""A response's arrays by output name, without the batch dimension."""


def token_outputs(text: str, tokens: Sequence[Token]) -> dict[str, npt.NDArray[Any]]:
    """Return the outputs of every response: its text and its tokens with their sources."""
    return {
        "text_output": _texts(text),
        "output_ids": np.asarray([token.id for token in tokens], dtype=np.int32),
        "output_sources": np.asarray([token.source for token in tokens], dtype=np.int32),
    }


def log_prob_outputs(tokens: Sequence[Token], token_bytes: Callable[[int], bytes]) -> Outputs:
    """Return the outputs of every response to a request with `return_log_probs`."""
    log_probs = [token.log_prob for token in tokens]
    return {
        "output_log_probs": np.asarray(log_probs, dtype=np.float32),
        # As hexadecimal text: a token may be a part of a character, which no JSON can hold.
        "output_token_bytes": _texts(*(token_bytes(token.id).hex() for token in tokens)),
    }


def top_log_prob_outputs(tokens: Sequence[Token], token_bytes: Callable[[int], bytes]) -> Outputs:
    """Return the most likely tokens at the position of each token, position after position."""
    pairs = [pair for token in tokens for pair in token.top_log_probs]
    return {
        "top_ids": np.asarray([token for token, _ in pairs], dtype=np.int32),
        "top_log_probs": np.asarray([value for _, value in pairs], dtype=np.float32),
        "top_token_bytes": _texts(*(token_bytes(token).hex() for token, _ in pairs)),
    }


def first_outputs(job: Job) -> Outputs:
    """Return the outputs that the first response has too."""
    outputs = {"num_input_tokens": np.asarray([len(job.prompt)], dtype=np.int32)}
    if job.request.return_prompt_token_ids:
        outputs["prompt_token_ids"] = job.prompt
    return outputs


def end_outputs(job: Job, num_sent: int, finish_reason: str) -> Outputs:
    """Return the outputs that only the last response has; `num_sent` tokens were sent in all."""
    return {
        "finish_reason": _texts(finish_reason),
        "num_input_tokens": np.asarray([len(job.prompt)], dtype=np.int32),
        "num_output_tokens": np.asarray([num_sent], dtype=np.int32),
        "seed": np.asarray([job.seed], dtype=np.uint64),
        "verification": _texts(job.engines.verification),
    }


def statistics_outputs(job: Job, summary: SpeculationSummary, times: RoundTimes) -> Outputs:
    """Return the outputs of the last response to a request with `return_perf_metrics`."""
    outputs: dict[str, npt.NDArray[Any]] = {
        "total_draft_tokens": np.asarray([summary.num_draft_tokens], dtype=np.int32),
        "total_accepted_draft_tokens": np.asarray([summary.num_accepted_tokens], dtype=np.int32),
        "acceptance_rate": np.asarray([summary.acceptance_rate], dtype=np.float32),
        "speculative_decoding": _texts(summary.to_json(times)),
    }
    if job.request.prediction:
        drafted, accepted = summary.counts_of(PREDICTION)
        outputs |= {
            "accepted_prediction_tokens": np.asarray([accepted], dtype=np.int32),
            "rejected_prediction_tokens": np.asarray([drafted - accepted], dtype=np.int32),
        }
    return outputs


def _texts(*texts: str) -> npt.NDArray[np.object_]:
    """Return the texts as a STRING tensor: an array [n] of UTF-8 bytes."""
    return np.asarray([text.encode() for text in texts], dtype=np.object_)
