"""Ask a draft model of this server for the drafts of several contexts, in one call."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from specdec.engines.bls_requests import BlsRequests, output, tensor
from specdec.engines.call_tensors import STOP_INPUTS
from specdec.engines.wire import contract
from specdec.engines.wire.sampling_inputs import int32
from specdec.errors import EngineFailedError
from specdec.token_ids import TokenIds

_numbers = itertools.count(1)


def ask_draft_model(
    model: str, contexts: Sequence[TokenIds], salts: Sequence[str], num_tokens: int
) -> list[tuple[int, ...]]:
    """Return up to `num_tokens` tokens after each of `contexts` ([n] int32 each).

    Only contexts with the same one of `salts` share prefixes in the model's cache. Raises
    EngineFailedError if the model fails, and EngineLostError if its process has died.
    """
    ids, lengths = np.concatenate(contexts), [len(each) for each in contexts]
    inputs = [
        tensor(contract.INPUT_IDS, ids[None]),
        tensor(contract.INPUT_LENGTHS, int32(len(ids))),
        tensor(contract.REQUEST_OUTPUT_LEN, int32(num_tokens)),
        tensor(contract.EXCLUDE_INPUT_IN_OUTPUT, np.asarray([[True]])),
        tensor(contract.ROW_LENGTHS, np.asarray([lengths], dtype=np.int32)),
        tensor(
            contract.ROW_CACHE_SALTS,
            np.asarray([[salt.encode() for salt in salts]], dtype=np.object_),
        ),
    ]
    requests = BlsRequests(
        model, f"inside:{next(_numbers)}", _stop_inputs, contract.REQUIRED_OUTPUTS
    )
    for response in requests.responses(inputs, contract.REQUIRED_OUTPUTS):
        found, counts = (output(response, name) for name in contract.REQUIRED_OUTPUTS)
        if found is not None and counts is not None:
            rows = found.reshape(len(contexts), -1).tolist()
            ends = counts.ravel().tolist()
            return [tuple(row[:end]) for row, end in zip(rows, ends, strict=True)]
    raise EngineFailedError(f"{model} has sent no drafts")


def _stop_inputs() -> list[Any]:
    return [tensor(*each) for each in STOP_INPUTS]
