"""Bytes of an engine's activations and buffers, and of a token in its KV cache."""

from __future__ import annotations

from specdec.builder.description import TENSORRTLLM, EngineDescription, PairDescription
from specdec.builder.memory.weights import DTYPE_BYTES, kv_heads_per_rank

TOKENS_PER_BLOCK = 32
"""Tokens in a block of a paged KV cache (`tokens_per_block` in TensorRT-LLM's PluginConfig)."""

LOGIT_BYTES = 4
"""Bytes of a logit in an engine's output, which is float32."""

DECODER_BYTES_PER_LOGIT = 20
"""Bytes of the decoder's buffers for each logit, about five float32 copies. TensorRT-LLM 0.17
printed 16 to 21 for a batch of one and vocabularies of 150,000."""

STATE_BYTES_PER_TOKEN = 40
"""Bytes of ids and offsets for each position of a sequence (runtime 24, decoder 16)."""

FP8_EXTRA_WIDTHS = 10
"""Additional activations of an FP8 engine for each row, in widths of the hidden state. Activations
of FP8 are larger than theory says (NVIDIA's docs/source/reference/memory.md, known issues). The
value comes from one printed figure: 1,112 MiB for Llama-2-7B and 8,192 rows."""

CONTEXT_BYTES = 768 << 20
"""Bytes of CUDA context, cuBLAS and NCCL of one engine on a device; logs show 0.63 and 0.76 GiB."""


def kv_bytes_per_token(engine: EngineDescription) -> int:
    """Return the bytes of one token's keys and values on each of the engine's devices."""
    shape, precision = engine.shape, engine.precision
    item = DTYPE_BYTES[precision.dtype] if precision.kv_cache == "auto" else 1
    num_layers = -(-shape.num_layers // engine.placement.pipeline_parallel)
    num_heads = kv_heads_per_rank(shape, engine.placement.tensor_parallel)
    return 2 * num_layers * num_heads * shape.head_dim * item


def num_kv_tokens(pair: PairDescription, engine: EngineDescription) -> int:
    """Return the tokens that an instance's KV cache must hold for the pair's load.

    Compiled engines use whole blocks. The target's cache also holds the draft tokens of a round.
    Several instances share the load.
    """
    instances = max(1, len(engine.placement.instances))
    num_sequences = -(-pair.load.num_sequences // instances)
    length = pair.load.sequence_len + (pair.limits.max_draft_len if engine is pair.target else 0)
    if pair.engine == TENSORRTLLM:
        length = -(-length // TOKENS_PER_BLOCK) * TOKENS_PER_BLOCK
    return num_sequences * length


def num_logit_rows(pair: PairDescription, engine: EngineDescription) -> int:
    """Return the rows of logits in one pass.

    A sequence has one row, or `max_draft_len` + 1 in the target.
    """
    each = pair.limits.max_draft_len + 1 if engine is pair.target else 1
    return min(pair.limits.max_batch_size * each, max(pair.limits.max_num_tokens, 1))


def activation_bytes(pair: PairDescription, engine: EngineDescription) -> int:
    """Return the bytes of TensorRT's "execution context memory" for the largest pass.

    For each row these are the outputs of gate and up projection, the residual and its norm; the
    logits are added. Layers use the same memory in turn, so neither their number nor the weights
    matter. This is exactly what TensorRT-LLM 0.13 to 0.17 printed for Qwen2.5 engines with 8,192
    rows and 2,048 sequences: 773.51 MiB (0.5B, INT8) and 921.51 MiB (1.5B, INT4).
    """
    shape, tensor = engine.shape, engine.placement.tensor_parallel
    widths = 2 * shape.intermediate_size // tensor + 2 * shape.hidden_size
    if engine.precision.quantization == "fp8":
        widths += FP8_EXTRA_WIDTHS * shape.hidden_size
    elements = pair.limits.max_num_tokens * widths
    elements += num_logit_rows(pair, engine) * shape.padded_vocab_size(tensor)
    return elements * DTYPE_BYTES[engine.precision.dtype]


def buffer_bytes(pair: PairDescription, engine: EngineDescription) -> int:
    """Return the bytes of the buffers that runtime and decoder allocate before the KV cache."""
    limits = pair.limits
    columns = engine.shape.padded_vocab_size(engine.placement.tensor_parallel)
    num_rows, per_logit = num_logit_rows(pair, engine), LOGIT_BYTES
    if engine.placement.devices:
        per_logit += DECODER_BYTES_PER_LOGIT
    total = num_rows * columns * per_logit
    if engine is pair.target and pair.speculation.draft_logits:
        total += limits.max_batch_size * limits.max_draft_len * columns * LOGIT_BYTES
    positions = limits.max_batch_size * (limits.max_seq_len + limits.max_draft_len)
    return total + positions * STATE_BYTES_PER_TOKEN
