"""Writing config.pbtxt, in the layout of the files in `model_repository/`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specdec.builder.config_file import parameter_line


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of a Triton model."""

    name: str
    data_type: str
    """Triton's data type without the prefix TYPE_."""
    dims: tuple[int, ...] = (1,)
    """Shape without the batch dimension; -1 for any size."""
    is_scalar: bool = False
    """Whether it has `reshape: { shape: [ ] }`: sent as [1, 1], but [1] in the model."""
    is_optional: bool = False
    """Whether a request may leave it out."""
    is_ragged: bool = False
    """Whether requests of one batch may have different shapes (`allow_ragged_batch`)."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a Triton model, with a comment to write above it."""

    name: str
    value: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The contents of a config.pbtxt."""

    name: str
    backend: str
    comment: str
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    max_batch_size: int
    """Largest batch; 0 if tensors have no batch dimension."""
    parameters: Sequence[Parameter] = ()
    num_instances: int = 1
    max_queue_size: int | None = None
    """Requests that may wait for the engine; None for no queue policy."""
    blocks: Sequence[str] = field(default=())
    """Further statements, which are copied as they are."""

    def text(self) -> str:
        """Return the text of the file; equal configurations give equal text."""
        lines = [
            *_comment(self.comment),
            f'name: "{self.name}"',
            f'backend: "{self.backend}"',
            f"max_batch_size: {self.max_batch_size}",
            "model_transaction_policy { decoupled: true }",
            "version_policy: { latest: { num_versions: 1 } }",
            f"instance_group [ {{ count: {self.num_instances} kind: KIND_CPU }} ]",
        ]
        if self.max_queue_size is not None:
            lines += [
                "dynamic_batching {",
                f"  preferred_batch_size: [ {self.max_batch_size} ]",
                "  max_queue_delay_microseconds: 0",
                f"  default_queue_policy {{ max_queue_size: {self.max_queue_size} }}",
                "}",
            ]
        lines += ["", "input [", *_tensors(self.inputs), "]"]
        lines += ["output [", *_tensors(self.outputs), "]", ""]
        for each in self.parameters:
            lines += [*_comment(each.comment), parameter_line(each.name, each.value)]
        for block in self.blocks:
            lines += ["", block.rstrip()]
        return "\n".join(lines) + "\n"


def _tensors(tensors: Sequence[Tensor]) -> list[str]:
    last = len(tensors) - 1
    return [f"  {_tensor(each)}{'' if i == last else ','}" for i, each in enumerate(tensors)]


def _tensor(tensor: Tensor) -> str:
    dims = ", ".join(map(str, tensor.dims))
    parts = [f'name: "{tensor.name}" data_type: TYPE_{tensor.data_type} dims: [ {dims} ]']
    if tensor.is_scalar:
        parts.append("reshape: { shape: [ ] }")
    if tensor.is_ragged:
        parts.append("allow_ragged_batch: true")
    if tensor.is_optional:
        parts.append("optional: true")
    return f"{{ {' '.join(parts)} }}"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in text.splitlines()]
