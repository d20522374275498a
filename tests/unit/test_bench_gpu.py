"""`specdec bench gpu` where there is no GPU: the same measurements of a tiny model."""

import json

import pytest
import torch

from loadtest.bench import main
from loadtest.bench.gpu_shapes import SHAPES, num_cache_bytes, num_weight_bytes, random_weights

CPU = torch.device("cpu")


def test_tiny_shape_on_a_cpu_writes_every_column(tmp_path, capsys, one_thread):
    """The command runs without a checkpoint; what it writes covers rows, batches and leaps."""
    sizes = ["--gigabytes", "0.01", "--calls", "1", "--seq-len", "512"]
    options = ["--device", "cpu", "--shape", "tiny", *sizes]

    assert main(["gpu", *options, "--out", str(tmp_path)]) == 0

    facts = json.loads((tmp_path / "gpu.json").read_text())
    measured = {(each["num_sequences"], each["num_rows"]) for each in facts["steps"]}
    assert measured == {(batch, rows) for batch in (1, 4, 16) for rows in (1, 2, 5, 9)}
    assert all(
        0 < each["limit_us"] < min(each["called_us"], each["graph_us"]) for each in facts["steps"]
    )
    assert {each["num_tokens"] for each in facts["leaps"]} == {2, 5, 9}
    assert facts["read_bandwidth_gb_per_s"] > 0
    printed = capsys.readouterr().out
    assert "graph ÷ limit" in printed
    assert "in one go" in printed


@pytest.mark.parametrize("name", ["tiny", "draft"])
def test_byte_limit_counts_what_a_pass_reads(name):
    """The bytes of the limit are those of the tensors: all but the embedding's table and norms."""
    weights = random_weights(SHAPES[name], CPU, torch.bfloat16)
    matrices = [weights.head_rows]
    for layer in weights.layers:
        matrices += [layer.qkv, layer.output, layer.gate, layer.up, layer.down]

    assert num_weight_bytes(SHAPES[name], torch.bfloat16) == sum(each.nbytes for each in matrices)


def test_large_shape_is_llama_3_1_8b():
    """Eight billion parameters, 16 GB a pass; 128 KiB of KV cache a token."""
    config = SHAPES["8b"]

    assert num_weight_bytes(config, torch.bfloat16) == 2 * 7_504_658_432
    assert num_cache_bytes(config, torch.bfloat16, 1) == 128 * 1024
