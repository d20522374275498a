"""Tests that a row's attention has the same bits whatever runs in the same pass.

The bits do not depend either on where in the pool the sequence's cache blocks lie.
"""

import numpy as np
import pytest
import torch

from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.layers import attention
from specdec.torch_engine.layers.kv_cache import SPLIT_SIZE, CachedSequence, KVCache
from tests.unit.default_target import (
    CPU,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    VOCAB,
    bits,
    random,
)

pytestmark = pytest.mark.usefixtures("two_threads")

NUM_BLOCKS = 160
CONFIG = ModelConfig(
    VOCAB, HIDDEN, INNER, 1, HEADS, KV_HEADS, HEAD_DIM, 1e-5, 1e4, 8192, True, None
)


@pytest.fixture(scope="module")
def cache():
    """Return a cache whose pool is filled with random keys and values."""
    pool = KVCache(CONFIG, NUM_BLOCKS * SPLIT_SIZE, CPU)
    pool.storage.copy_(random(*pool.storage.shape, seed=7))
    return pool


def sequence(length, blocks):
    """Return a cached sequence of `length` positions in these blocks of the pool."""
    return CachedSequence(np.zeros(length, dtype=np.int32), list(blocks))


def blocks_for(length):
    """Return the number of blocks that hold `length` positions."""
    return -(-length // SPLIT_SIZE)


def queries_for(positions):
    """Return a random scaled query for each position: [n, kv_heads, heads / kv_heads, head_dim].

    It is bfloat16 and depends on the position alone.
    """
    rows = [random(KV_HEADS, HEADS // KV_HEADS, HEAD_DIM, seed=10_000 + p) for p in positions]
    return torch.stack(rows) * HEAD_DIM**-0.5


def attended(cache, sequences, positions):
    """Compute the attention of several sequences' rows in one pass; return the bits by sequence."""
    groups = attention.plan(sequences, [np.asarray(own) for own in positions], CPU)
    queries = queries_for([p for own in positions for p in own])
    out = attention.attend(queries, cache.layer(0), groups)
    return [bits(part) for part in torch.split(out, [len(own) for own in positions])]


def row_alone(cache, one, position):
    """Return the bits of one row's attention if nothing else runs.

    The model never runs a single row, and computes this one twice.
    """
    return attended(cache, [one], [[position, position]])[0][0]


LENGTHS = (1, 2, 8, 255, 256, 257, 513, 1024, 2050, 8191, 8192)


@pytest.mark.parametrize("length", LENGTHS)
def test_attention_of_a_row_depends_on_its_own_sequence_only(cache, length):
    """The bits stay the same with other rows of the sequence, and among other sequences.

    The other rows may belong to a round or to a prompt; the other sequences have any length.
    """
    dense = range(3, 3 + blocks_for(length))
    one = sequence(length, dense)
    num_rows = min(8, length)
    last = list(range(length - num_rows, length))
    expected = torch.stack([row_alone(cache, one, position) for position in last])

    for count in range(2, num_rows + 1):
        (rows,) = attended(cache, [one], [last[-count:]])
        assert torch.equal(rows, expected[-count:]), f"{count} rows together differ"
    if length > attention.SHORT_ROWS:
        prompt = list(range(max(0, length - 40), length))
        (rows,) = attended(cache, [one], [prompt])
        assert torch.equal(rows[-num_rows:], expected), "rows of a prompt differ"
    free = iter(range(3 + len(dense), NUM_BLOCKS))
    others = [sequence(n, [next(free) for _ in range(blocks_for(n))]) for n in (1, 300, 1500, 5000)]
    positions = [[0], [298, 299], list(range(1480, 1500)), [4998, 4999], last]
    rows = attended(cache, [*others, one], positions)[-1]
    assert torch.equal(rows, expected), "rows among other sequences differ"
    rows = attended(cache, [*others, one], [[0], [299], [1499], [4999], [length - 1]])[-1]
    assert torch.equal(rows[0], expected[-1]), "a single row among single rows differs"


@pytest.mark.parametrize("length", [200, 513, 2050, 8192])
def test_gathered_blocks_give_what_blocks_in_place_give(cache, length):
    """The bits are the same whether the blocks lie together or are scattered over the pool."""
    count = blocks_for(length)
    dense = range(10, 10 + count)
    scattered = list(range(NUM_BLOCKS - 1, 60, -3))[:count]
    saved = cache.storage.clone()
    last = list(range(max(0, length - 5), length))
    expected = attended(cache, [sequence(length, dense)], [last])[0]
    for source, target in zip(dense, scattered, strict=True):
        cache.storage[:, :, target] = saved[:, :, source]

    moved = sequence(length, scattered)
    rows = attended(cache, [moved], [last])[0]
    shared = attended(cache, [moved, moved], [last, last])
    cache.storage.copy_(saved)

    assert torch.equal(rows, expected)
    assert torch.equal(shared[0], expected)
    assert torch.equal(shared[1], expected)


@pytest.mark.parametrize("num_blocks", [1, 2, 3, 7, 31])
def test_softmax_does_not_see_masked_blocks(num_blocks):
    """Blocks of −inf after a row get weight 0 and do not change the bits of the other weights."""
    row = random(24, num_blocks * SPLIT_SIZE, seed=11).float()
    expected = torch.softmax(row, dim=-1)

    for padded in (num_blocks + 1, 2 * num_blocks, 32):
        filler = torch.full((24, (padded - num_blocks) * SPLIT_SIZE), float("-inf"))
        weights = torch.softmax(torch.cat((row, filler), dim=-1), dim=-1)
        assert torch.equal(bits(weights[:, : row.shape[1]]), bits(expected))
        assert not weights[:, row.shape[1] :].any()
