"""On CUDA, the bits of a row depend only on its own sequence; mode `exact` needs this."""

from dataclasses import dataclass

import pytest
import torch

from specdec.loadtest.gpu.decoders.shapes import SHAPES, Streams, random_decoder
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.gpu.layers import attention_kernel
from specdec.torch_engine.gpu.tiles import TILE, product
from specdec.torch_engine.layers.kv_cache import KVCache
from specdec.torch_engine.parts import Parts
from tests.gpu.device import DEVICE, IS_CUDA, assert_same
from tests.unit.torch_engine.gpu.graph_path import empty

pytestmark = pytest.mark.gpu
SHAPE = SHAPES["default"] if IS_CUDA else SHAPES["tiny"]
DTYPE = torch.bfloat16 if IS_CUDA else torch.float32
LIMITS = EngineLimits(
    max_seq_len=2048, max_draft_len=8, max_num_sequences=16, num_cache_tokens=64 * 256
)
CONTEXTS = (3, 250, 255, 256, 500, 511, 512, 513, 700, 900, 17, 1000, 255, 60, 1, 1200)
"""Context length of each request in tokens, on both sides of the borders of cache blocks."""


@dataclass(frozen=True)
class Decoder:
    """A decoder in the default target's shapes with random weights, and two caches."""

    parts: Parts
    captured: KVCache
    """Cache that the graphs read and write."""
    launched: KVCache
    """Cache without graphs, so that its passes are launched operation by operation."""

    def streams(self, *, with_graphs=True):
        """Return an emptied cache and new streams in it."""
        cache = self.captured if with_graphs else self.launched
        empty(cache)
        return cache, Streams(cache)

    def read(self, streams, cache, requests):
        """Read each request's context in a pass of its own; only the next pass is compared."""
        for request in requests:
            rows = streams.rows([request], CONTEXTS[request], num_asked=0)
            self.parts.decoder.run(rows, cache)

    def hidden_of(self, requests, num_rows, *, with_graphs=True):
        """Return the hidden states [requests, num_rows, hidden] of `num_rows` rows per request.

        The rows follow each request's own context and are computed in one pass.
        """
        cache, streams = self.streams(with_graphs=with_graphs)
        self.read(streams, cache, requests)
        rows = streams.rows(requests, num_rows, num_asked=num_rows)
        return self.parts.decoder.run(rows, cache).view(len(requests), num_rows, -1).clone()


@pytest.fixture(scope="module")
def decoder():
    """Return the decoder; its graphs are captured once for all tests."""
    parts = random_decoder(SHAPE, DEVICE, DTYPE)
    captured, launched = (KVCache(SHAPE, LIMITS.num_cache_tokens, DEVICE, DTYPE) for _ in range(2))
    with torch.inference_mode():
        parts.prepare(LIMITS, captured)
    return Decoder(parts, captured, launched)


@pytest.mark.parametrize("num_rows", [1, 2, 5, 9])
@torch.inference_mode()
def test_graphs_give_the_bits_of_launched_operations(decoder, num_rows):
    """A replayed graph and single launches give equal bits, for one sequence and for sixteen."""
    for requests in ([3], list(range(16))):
        launched, replayed = (
            decoder.hidden_of(requests, num_rows, with_graphs=flag) for flag in (False, True)
        )
        assert_same(launched, replayed)


@pytest.mark.parametrize("num_rows", [1, 5])
@torch.inference_mode()
def test_batch_of_sixteen_gives_the_bits_of_each_sequence_by_itself(decoder, num_rows):
    """Fifteen other sequences in the pass, and the padding for them, change no bit."""
    together = decoder.hidden_of(list(range(16)), num_rows)

    for request in range(16):
        (by_itself,) = decoder.hidden_of([request], num_rows)
        assert_same(by_itself, together[request], f"sequence {request} differs")


@torch.inference_mode()
def test_rows_of_a_verification_have_the_bits_of_single_steps(decoder):
    """Passes of nine rows, five rows and single rows over a block border give equal bits."""
    # After 250 tokens, the seventh of nine rows is the first of the next block.
    request = 1
    (nine,) = decoder.hidden_of([request], 9)
    (five,) = decoder.hidden_of([request], 5)
    cache, streams = decoder.streams()
    decoder.read(streams, cache, [request])

    for number in range(9):
        (single,) = decoder.parts.decoder.run(streams.rows([request], 1, num_asked=1), cache)
        assert_same(single, nine[number], f"row {number} differs")
    assert_same(five, nine[:5])


def test_index_of_a_row_in_its_tile_does_not_matter():
    """A row gives the same bits at other indices of its tile, and beside a second tile.

    The matrices have the shapes of the default target's layers.
    """
    hidden, inner = SHAPE.hidden_size, SHAPE.intermediate_size
    num_qkv = (SHAPE.num_heads + 2 * SHAPE.num_kv_heads) * SHAPE.head_dim
    for num_out, num_in in ((2 * inner, hidden), (hidden, inner), (num_qkv, hidden)):
        weight, x = (
            torch.randn(num, num_in, device=DEVICE).mul(num_in**-0.5).to(DTYPE)
            for num in (num_out, TILE)
        )
        expected = product(x, weight)
        for shift in (1, 7, 16, 33):
            assert_same(product(x.roll(shift, 0), weight), expected.roll(shift, 0))
            assert_same(product(torch.cat((x, x.roll(shift, 0))), weight)[:TILE], expected)


@torch.inference_mode()
def test_attention_ignores_padding_and_other_sequences():
    """More masked keys, more sequences and more rows leave the bits of a row as they are."""
    keys, queries = (torch.randn(16, 3, size, 64, device=DEVICE).to(DTYPE) for size in (1024, 51))
    mask = torch.zeros(16, 1, 51, 1024, dtype=DTYPE, device=DEVICE)
    mask[..., 200:] = float("-inf")

    def attend(sequences, rows, length):
        with attention_kernel(DEVICE):
            own = keys[:sequences, :, :length]
            return torch.nn.functional.scaled_dot_product_attention(
                queries[:sequences, :, :rows], own, own,
                attn_mask=mask[:sequences, :, :rows, :length].contiguous(),
            )[0, :, :3]  # fmt: skip

    expected = attend(1, 3, 256)
    for sequences, rows, length in ((16, 3, 256), (1, 51, 256), (1, 3, 1024), (16, 51, 1024)):
        assert_same(attend(sequences, rows, length), expected)
