"""Memory of an engine's weights on one device, and of a target's head."""

from __future__ import annotations

from specdec.builder.description import EngineDescription, ModelShape, SelfSpeculation

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}

QUANTIZED_BITS = {
    "fp8": 8.0,
    "int8_wo": 8.0,
    "int8_sq": 8.0,
    "int4_wo": 4.0,
    "int4_awq": 4.0 + 16 / 128,  # a 16-bit scale for each group of 128
    "nvfp4": 4.0 + 8 / 16,  # an FP8 scale for each group of 16
}
"""Bits of one weight of a projection, with the scales of its group. Embedding, output head, norms
and biases stay in the engine's dtype: ModelOpt quantises only projections, and not `lm_head`."""

ID_BYTES = 8
"""Bytes of an int64 in `d2t`, which maps the rows of a reduced head to token ids."""


def projection_bytes(num_parameters: int, dtype: str, quantization: str) -> int:
    """Return the bytes of `num_parameters` weights of projections."""
    if quantization == "none":
        return num_parameters * DTYPE_BYTES[dtype]
    return int(num_parameters * QUANTIZED_BITS[quantization] / 8)


def kv_heads_per_rank(shape: ModelShape, tensor_parallel: int) -> int:
    """Return the KV heads on each rank; with more ranks than heads, several ranks keep the same."""
    return -(-shape.num_kv_heads // tensor_parallel)


def weight_bytes(engine: EngineDescription, *, is_compiled: bool) -> int:
    """Return the bytes of weights on each device; in a pipeline, in its fullest stage.

    Each rank keeps its part of the projections and of the output head, and the whole embedding
    (TensorRT-LLM splits it only with --use_parallel_embedding). A compiled engine stores tied
    embeddings twice.
    """
    shape, precision = engine.shape, engine.precision
    tensor, pipeline = engine.placement.tensor_parallel, engine.placement.pipeline_parallel
    num_layers = -(-shape.num_layers // pipeline)
    key_value = 2 * shape.hidden_size * kv_heads_per_rank(shape, tensor) * shape.head_dim
    query_output = 2 * shape.hidden_size * shape.num_heads * shape.head_dim // tensor
    projections = num_layers * (query_output + key_value + shape.num_mlp_parameters // tensor)
    others = num_layers * (shape.num_bias_parameters // tensor + 2 * shape.hidden_size)
    head = shape.num_head_parameters
    if is_compiled and shape.tied_embeddings:
        head = shape.num_embedding_parameters
    head = (head + shape.hidden_size * tensor) // tensor  # with the norm before it
    embedding = shape.num_embedding_parameters
    others += max(head, embedding) if pipeline > 1 else head + embedding
    num_ids = shape.draft_vocab_size or 0
    return (
        projection_bytes(projections, precision.dtype, precision.quantization)
        + others * DTYPE_BYTES[precision.dtype]
        + num_ids * ID_BYTES
    )


def head_bytes(target: EngineDescription, own: SelfSpeculation) -> int:
    """Return the bytes of the target's own head; 0 for modes without weights of their own.

    - EAGLE-3: a projection of three hidden states of the target, one layer whose input is twice as
      wide, four norms, an output head, and two maps if its vocabulary is reduced.
    - EAGLE: a projection of twice the hidden width, one layer and two norms.
    - Medusa: a residual block and an output head for each Medusa head.
    """
    shape, item = target.shape, DTYPE_BYTES[target.precision.dtype]
    hidden = shape.hidden_size
    layer = shape.num_attention_parameters + shape.num_mlp_parameters
    if own.mode == "eagle3":
        num_rows = own.draft_vocab_size or shape.vocab_size
        wider = hidden * (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
        num = 3 * hidden * hidden + layer + wider + 4 * hidden + num_rows * hidden
        maps = num_rows * ID_BYTES + shape.vocab_size if own.draft_vocab_size else 0
        return num * item + maps
    if own.mode == "eagle":
        return (2 * hidden * hidden + layer + 2 * hidden) * item
    if own.mode == "medusa":
        each = hidden * hidden + hidden + shape.vocab_size * hidden
        return (own.num_heads or 0) * each * item
    return 0
