"""On CUDA a row's bits depend on its own sequence alone: what exactness stands on there."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from loadtest.bench.gpu_shapes import SHAPES, Streams, random_decoder
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.gpu.tiles import TILE, product
from specdec.torch_engine.kv_cache import KVCache
from tests.unit.graph_path import bits

pytestmark = pytest.mark.gpu
LIMITS = EngineLimits(
    max_seq_len=2048, max_draft_len=8, max_num_sequences=16, num_cache_tokens=64 * 256
)
CONTEXTS = (3, 250, 255, 256, 500, 511, 512, 513, 700, 900, 17, 1000, 255, 60, 1, 1200)


def cuda():
    """Return the device, once a test runs."""
    return torch.device("cuda")


@pytest.fixture(scope="module")
def parts():
    """Return the default target's shapes with random weights, graphs not yet captured."""
    return random_decoder(SHAPES["default"], cuda(), torch.bfloat16)


def hidden_of(parts, requests, num_rows, *, with_graphs):
    """Return hidden states [requests, num_rows, hidden] behind each request's own prompt."""
    shape = SHAPES["default"]
    cache = KVCache(shape, LIMITS.num_cache_tokens, cuda())
    if with_graphs:
        parts.prepare(LIMITS, cache)
    streams = Streams(cache)
    for request in requests:  # Prompts one by one: what is compared is the pass behind them.
        parts.decoder.run(streams.rows([request], CONTEXTS[request], num_asked=0), cache)
    rows = streams.rows(requests, num_rows, num_asked=num_rows)
    return parts.decoder.run(rows, cache).view(len(requests), num_rows, -1).clone()


@pytest.mark.parametrize("num_rows", [1, 2, 5, 9])
@torch.inference_mode()
def test_graphs_give_the_bits_of_the_steps_called(parts, num_rows):
    """Capture and replay change nothing, for one sequence and for sixteen."""
    for requests in ([3], list(range(16))):
        called, replayed = (
            hidden_of(parts, requests, num_rows, with_graphs=flag) for flag in (False, True)
        )
        assert torch.equal(bits(called), bits(replayed))


@pytest.mark.parametrize("num_rows", [1, 5])
@torch.inference_mode()
def test_alone_and_among_fifteen_others(parts, num_rows):
    """Every one of sixteen sequences: the same bits in the batch and alone."""
    together = hidden_of(parts, list(range(16)), num_rows, with_graphs=True)

    for request in range(16):
        (alone,) = hidden_of(parts, [request], num_rows, with_graphs=True)
        assert torch.equal(bits(alone), bits(together[request])), f"sequence {request} differs"


@torch.inference_mode()
def test_rows_of_a_verification_are_those_of_steps(parts):
    """Nine rows in one pass, five, and one by one: the same bits, over block borders."""
    request = 1  # 250 tokens: the ninth row lies in the next block
    (nine,) = hidden_of(parts, [request], 9, with_graphs=True)
    (five,) = hidden_of(parts, [request], 5, with_graphs=True)
    cache = KVCache(SHAPES["default"], LIMITS.num_cache_tokens, cuda())
    parts.prepare(LIMITS, cache)
    streams = Streams(cache)
    parts.decoder.run(streams.rows([request], CONTEXTS[request], num_asked=0), cache)

    for number in range(9):
        rows = streams.rows([request], 1, num_asked=1)
        (single,) = parts.decoder.run(rows, cache)
        assert torch.equal(bits(single), bits(nine[number])), f"row {number} differs"
    assert torch.equal(bits(five), bits(nine[:5]))


def test_place_in_a_tile_does_not_matter():
    """Every matrix of the default target: a row's bits in each of a tile's places."""
    shape = SHAPES["default"]
    hidden, inner = shape.hidden_size, shape.intermediate_size
    for num_out, num_in in ((2 * inner, hidden), (hidden, inner), (hidden, hidden), (960, hidden)):
        weight = torch.randn(num_out, num_in, device="cuda").to(torch.bfloat16)
        x = torch.randn(TILE, num_in, device="cuda").to(torch.bfloat16)
        expected = product(x, weight)
        for shift in (1, 7, 16, 33):
            assert torch.equal(product(x.roll(shift, 0), weight), expected.roll(shift, 0))
            assert torch.equal(product(torch.cat((x, x.roll(shift, 0))), weight)[:TILE], expected)


@torch.inference_mode()
def test_attention_ignores_padding_and_company():
    """More masked keys, more sequences, more rows: the bits of a row stay."""
    keys, queries = (
        torch.randn(16, 3, size, 64, device="cuda").to(torch.bfloat16) for size in (1024, 51)
    )
    mask = torch.zeros(16, 1, 51, 1024, dtype=torch.bfloat16, device="cuda")
    mask[..., 200:] = float("-inf")

    def attend(sequences, rows, length):
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            own = keys[:sequences, :, :length]
            return torch.nn.functional.scaled_dot_product_attention(
                queries[:sequences, :, :rows], own, own,
                attn_mask=mask[:sequences, :, :rows, :length].contiguous(),
            )[0, :, :3]  # fmt: skip

    expected = attend(1, 3, 256)
    for sequences, rows, length in ((16, 3, 256), (1, 51, 256), (1, 3, 1024), (16, 51, 1024)):
        assert torch.equal(attend(sequences, rows, length), expected)
