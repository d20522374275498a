"""Convert the declarations of a config.pbtxt to the form of tables.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2

from tests.contract.tables import Tensor

ROOT = Path(__file__).parents[2]


def tensors_of(declared: Any) -> dict[str, Tensor]:
    """Return the tensors of a parsed `input` or `output` list, by name."""
    return {
        each.name: Tensor(
            data_type=model_config_pb2.DataType.Name(each.data_type),
            dims=tuple(each.dims),
            is_scalar=each.HasField("reshape") and not each.reshape.shape,
            is_optional=getattr(each, "optional", False),
            is_ragged=getattr(each, "allow_ragged_batch", False),
        )
        for each in declared
    }
