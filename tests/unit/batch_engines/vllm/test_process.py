"""vLLM computes in a dtype for which the CPU has instructions."""

import pytest
import torch

from specdec.batch_engines.vllm.process import fast_cpu_dtype

SUPPORT = {"bfloat16": "_is_mkldnn_bf16_supported", "float16": "_is_mkldnn_fp16_supported"}


@pytest.mark.parametrize("dtype", SUPPORT)
@pytest.mark.parametrize("is_supported", [True, False])
def test_a_cpu_without_instructions_for_a_dtype_computes_in_float32(
    monkeypatch, dtype, is_supported
):
    """Without them vLLM would convert each value by itself, which is five times as slow."""
    monkeypatch.setattr(torch.ops.mkldnn, SUPPORT[dtype], lambda: is_supported)
    assert fast_cpu_dtype(dtype) == (dtype if is_supported else "float32")


def test_float32_stays_float32():
    """There is nothing to choose."""
    assert fast_cpu_dtype("float32") == "float32"
