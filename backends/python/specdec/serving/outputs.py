"""Make the arrays of a response from an answer's text, tokens and statistics.

The functions are pure. docs/api.md describes each output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.drafting.names import PREDICTION
from specdec.serving.job import Job
from specdec.serving.metrics.statistics import RoundTimes, SpeculationSummary
from specdec.serving.text.text_stream import Token

Outputs = Mapping[str, npt.NDArray[Any]]
"""A response's arrays by output name, without the batch dimension."""


def token_outputs(
    text: str, tokens: Sequence[Token], *, has_log_probs: bool
) -> dict[str, npt.NDArray[Any]]:
    """Return the outputs of every response: its text and its tokens with their sources."""
    outputs: dict[str, npt.NDArray[Any]] = {
        "text_output": _texts(text),
        "output_ids": np.asarray([token.id for token in tokens], dtype=np.int32),
        "output_sources": np.asarray([token.source for token in tokens], dtype=np.int32),
    }
    if has_log_probs:
        log_probs = [token.log_prob for token in tokens]
        outputs["output_log_probs"] = np.asarray(log_probs, dtype=np.float32)
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
