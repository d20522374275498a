"""The warm-up call of an engine, which Triton makes before it reports the model as ready.

A pair that cannot work then fails at load, not at the first request: for example if drafts are
longer than the engine allows, or an engine does not start.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

NUM_PROMPT_TOKENS = 8
"""Tokens of the warm-up call's prompt."""
_TYPES = {"int32": "TYPE_INT32", "bool": "TYPE_BOOL"}


def write_warmup(model: Path, *, num_draft_tokens: int = 0) -> str:
    """Write the call's tensors to `model`/warmup; return the statement for its config.pbtxt.

    The call verifies `num_draft_tokens` draft tokens, or generates two tokens if that is 0.
    """
    tensors: dict[str, npt.NDArray[np.generic]] = {
        # Every vocabulary has small ids, and the text does not matter.
        "input_ids": np.arange(1, NUM_PROMPT_TOKENS + 1, dtype=np.int32),
        "input_lengths": np.asarray([NUM_PROMPT_TOKENS], dtype=np.int32),
        "request_output_len": np.asarray([max(num_draft_tokens + 1, 2)], dtype=np.int32),
        "exclude_input_in_output": np.asarray([True]),
    }
    if num_draft_tokens:
        tensors["draft_input_ids"] = np.arange(1, num_draft_tokens + 1, dtype=np.int32)
    folder = model / "warmup"
    folder.mkdir()
    lines = ["model_warmup [", "  {", '    name: "first_call"', "    batch_size: 1"]
    for name, array in tensors.items():
        (folder / name).write_bytes(array.tobytes())
        kind = _TYPES[str(array.dtype)]
        lines.append(
            f'    inputs {{ key: "{name}" value {{ data_type: {kind} dims: [ {array.size} ] '
            f'input_data_file: "{name}" }} }}'
        )
    return "\n".join([*lines, "  }", "]"])
