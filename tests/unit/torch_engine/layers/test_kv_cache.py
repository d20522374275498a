"""Tests of the block pool: which blocks are shared, copied, kept and dropped first."""

import numpy as np
import pytest
import torch

from specdec.torch_engine.layers.kv_cache import MAX_DISCARD, KVCache, common_prefix_length
from tests.unit.torch_engine.layers.token_cache import BLOCK, CONFIG, add, ids, stored


@pytest.fixture
def cache():
    """Return a cache of 8 blocks of 4 positions."""
    return KVCache(CONFIG, 8 * BLOCK, torch.device("cpu"), block_size=BLOCK)


def new_sequence(cache, tokens):
    """Return a new sequence that holds all of `tokens`."""
    sequence = cache.acquire(tokens)
    add(cache, sequence, tokens[sequence.length :])
    return sequence


def test_last_token_is_always_left_to_compute(cache):
    """A fully cached prompt still has one row to run, the one that gives the logits."""
    tokens = ids(1, 2, 3, 4, 5)
    cache.release(new_sequence(cache, tokens))

    assert cache.acquire(tokens).length == 4


def test_idle_sequence_is_taken_over_without_copying(cache):
    """The next round of a request finds its own blocks, and rejected tokens are cut off."""
    first = new_sequence(cache, ids(1, 2, 3, 4, 5, 6))
    cache.truncate(first, 5)
    cache.release(first)

    again = cache.acquire(ids(1, 2, 3, 4, 5, 7))

    assert again is first
    assert again.in_use
    assert stored(cache, again) == [1, 2, 3, 4, 5]


def test_sequence_in_use_is_forked(cache):
    """Two requests with the same beginning share its full blocks; the last block is copied."""
    first = new_sequence(cache, ids(1, 2, 3, 4, 5, 6))

    second = cache.acquire(ids(1, 2, 3, 4, 5, 9))

    assert second is not first
    assert second.length == 5
    assert second.blocks[0] == first.blocks[0]
    assert second.blocks[1] != first.blocks[1]
    add(cache, second, ids(9))
    assert stored(cache, first) == [1, 2, 3, 4, 5, 6]
    assert stored(cache, second) == [1, 2, 3, 4, 5, 9]
    cache.check_integrity()


def test_long_rest_of_another_conversation_is_not_cut_off():
    """Up to MAX_DISCARD tokens are cut off to take over a sequence; otherwise it is forked."""
    for num_lost, is_taken_over in ((MAX_DISCARD, True), (MAX_DISCARD + 1, False)):
        cache = KVCache(CONFIG, 64 * BLOCK, torch.device("cpu"), block_size=BLOCK)
        long = new_sequence(cache, np.arange(10 + num_lost, dtype=np.int32))
        cache.release(long)

        taken = cache.acquire(np.concatenate((np.arange(10, dtype=np.int32), ids(200, 201))))

        assert (taken is long) is is_taken_over
        assert taken.length == 10
        assert long.length == (10 if is_taken_over else 10 + num_lost)


def test_shared_block_is_copied_before_it_is_written(cache):
    """A sequence that was cut back into a shared block gets a copy before it writes."""
    first = new_sequence(cache, ids(1, 2, 3, 4, 5))
    second = cache.acquire(ids(1, 2, 3, 4, 9))
    assert second.blocks == first.blocks[:1]
    cache.truncate(first, 2)

    add(cache, first, ids(7, 8))

    assert stored(cache, first) == [1, 2, 7, 8]
    assert stored(cache, second) == [1, 2, 3, 4]
    cache.check_integrity()


def test_least_recently_used_sequence_is_dropped_first(cache):
    """A full pool drops the idle sequence that was unused for the longest time."""
    sequences = [new_sequence(cache, np.full(8, n, dtype=np.int32)) for n in range(1, 5)]
    for sequence in (sequences[1], sequences[0], sequences[3], sequences[2]):
        cache.release(sequence)
    assert cache.acquire(np.full(8, 2, dtype=np.int32)) is sequences[1]  # the most recent use

    new_sequence(cache, np.full(8, 99, dtype=np.int32))

    lengths = {n: cache.acquire(np.full(8, n, dtype=np.int32)).length for n in (1, 3, 4)}
    assert lengths == {1: 0, 3: 7, 4: 7}
    cache.check_integrity()


def test_full_pool_is_a_memory_error(cache):
    """With every block in use the error names their number, and the pool works on."""
    full = new_sequence(cache, np.arange(32, dtype=np.int32))

    with pytest.raises(MemoryError, match="8 blocks"):
        cache.extend(cache.acquire(ids(99)), ids(99))

    cache.discard(full)
    add(cache, cache.acquire(ids(98)), ids(98))


def test_blocks_of_one_sequence_lie_together(cache):
    """A growing sequence takes the next block if it is free, so its range is read in place."""
    first, second = cache.acquire(ids(1)), cache.acquire(ids(2))
    add(cache, first, ids(*range(4)))
    for start in range(0, 12, 2):
        add(cache, second, ids(50 + start, 51 + start))

    assert second.blocks == [1, 2, 3]


@pytest.mark.parametrize(
    ("left", "right", "length"),
    [((), (), 0), ((1,), (), 0), ((1, 2), (1, 2), 2), ((1, 2, 3), (1, 9), 1), ((4,), (5,), 0)],
)
def test_common_prefix_ends_at_the_first_difference(left, right, length):
    """The common prefix ends at the first difference, or at the end of the shorter text."""
    assert common_prefix_length(ids(*left), ids(*right)) == length


def test_salt_keeps_prefixes_apart(cache):
    """A tenant finds its own prefixes and nothing of another's, idle or in use."""
    tokens = ids(1, 2, 3, 4, 5)
    own = cache.acquire(tokens, salt="a")
    add(cache, own, tokens)
    assert cache.num_cached(tokens, salt="b") == 0
    cache.release(own)

    assert cache.num_cached(tokens, salt="b") == cache.num_cached(tokens) == 0
    assert cache.num_cached(tokens, salt="a") == 4
    assert cache.acquire(tokens, salt="b").length == 0
    forked = cache.fork(own, 3)
    assert cache.acquire(ids(1, 2, 3, 9), salt="b") is not forked
