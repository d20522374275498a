"""A reader for the weights in an ONNX file that does not need the onnx package.

An ONNX file is a protobuf message. The field numbers below are those of onnx.proto3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.builder.errors import BuildError

_MODEL_GRAPH = 7
_GRAPH_NODE = 1
_GRAPH_INITIALIZER = 5
_NODE_INPUT = 1
_NODE_NAME = 3
_TENSOR_DIMS = 1
_TENSOR_TYPE = 2
_TENSOR_FLOATS = 4
_TENSOR_INTS = 5
_TENSOR_NAME = 8
_TENSOR_RAW = 9
_NUMPY_TYPES = {1: np.float32, 2: np.uint8, 3: np.int8}

_VARINT, _EIGHT_BYTES, _LENGTH_DELIMITED, _FOUR_BYTES = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class OnnxGraph:
    """The stored tensors and the nodes of an ONNX graph."""

    tensors: dict[str, NDArray[Any]]
    """Stored tensors of dtype float32, uint8 and int8, by name."""
    node_inputs: dict[str, tuple[str, ...]]
    """Names of each node's inputs, by the node's name."""

    def dequantized(self, name: str) -> NDArray[np.float32]:
        """Return (q - zero_point) * scale for the 8-bit tensor `name`_quantized, in its shape.

        Raises BuildError if the tensor, its zero point or its scale is missing.
        """
        try:
            quantized = self.tensors[f"{name}_quantized"].astype(np.int32)
            zero_point = self.tensors[f"{name}_zero_point"].astype(np.int32)
            scale = self.tensors[f"{name}_scale"].astype(np.float32)
        except KeyError as error:
            raise BuildError(f"the ONNX graph lacks {error.args[0]}") from error
        result: NDArray[np.float32] = (quantized - zero_point).astype(np.float32) * scale
        return result


def read_graph(data: bytes) -> OnnxGraph:
    """Return the graph in the bytes of an ONNX file. Raises BuildError if they are not one.

    Tensors of other dtypes than float32, uint8 and int8 are left out.
    """
    tensors: dict[str, NDArray[Any]] = {}
    node_inputs = {}
    try:
        graph = next(value for field, value in _fields(memoryview(data)) if field == _MODEL_GRAPH)
        for field, value in _fields(graph):
            if field == _GRAPH_NODE:
                parts = list(_fields(value))
                name = b"".join(bytes(part) for kind, part in parts if kind == _NODE_NAME)
                inputs = (bytes(part).decode() for kind, part in parts if kind == _NODE_INPUT)
                node_inputs[name.decode()] = tuple(inputs)
            elif field == _GRAPH_INITIALIZER:
                tensors.update(_tensor(value))
    except (StopIteration, IndexError, ValueError, TypeError) as error:
        raise BuildError(f"not a readable ONNX file: {error}") from error
    return OnnxGraph(tensors, node_inputs)


def _tensor(message: memoryview) -> dict[str, NDArray[Any]]:
    """Return {name: tensor}, or an empty dict if the dtype is not supported."""
    dims: list[int] = []
    name, kind = "", 0
    values: NDArray[Any] | None = None
    for field, value in _fields(message):
        if field == _TENSOR_DIMS:
            dims += [value] if isinstance(value, int) else _varints(value)
        elif field == _TENSOR_TYPE:
            kind = value
        elif field == _TENSOR_NAME:
            name = bytes(value).decode()
        elif field == _TENSOR_FLOATS:
            values = np.frombuffer(value, np.float32)
        elif field == _TENSOR_INTS:
            values = np.array(_varints(value), np.int64)
        elif field == _TENSOR_RAW and kind in _NUMPY_TYPES:
            values = np.frombuffer(value, _NUMPY_TYPES[kind])
    if kind not in _NUMPY_TYPES or values is None:
        return {}
    return {name: values.astype(_NUMPY_TYPES[kind]).reshape(dims)}


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield (field number, value). A varint becomes an int, everything else a memoryview."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        wire_type = key & 7
        if wire_type == _VARINT:
            value, position = _varint(message, position)
            yield key >> 3, value
            continue
        if wire_type == _LENGTH_DELIMITED:
            num_bytes, position = _varint(message, position)
        elif wire_type in {_EIGHT_BYTES, _FOUR_BYTES}:
            num_bytes = 8 if wire_type == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"wire type {wire_type} is not used by ONNX")
        yield key >> 3, message[position : position + num_bytes]
        position += num_bytes


def _varints(message: memoryview) -> list[int]:
    """Return the numbers of a packed repeated field."""
    values, position = [], 0
    while position < len(message):
        value, position = _varint(message, position)
        values.append(value)
    return values


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """Return the variable-length number at `position`, and the position after it."""
    value, shift = 0, 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
