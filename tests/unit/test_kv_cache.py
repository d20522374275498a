"""The block pool: what is shared, what is copied, what is kept, what goes first."""

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from specdec.torch_engine import kv_cache
from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.kv_cache import MAX_DISCARD, KVCache, common_prefix_length

BLOCK = 4
CONFIG = ModelConfig(
    vocab_size=256,
    hidden_size=4,
    intermediate_size=4,
    num_layers=2,
    num_heads=2,
    num_kv_heads=2,
    head_dim=2,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
    max_position=1024,
    tie_embeddings=True,
    draft_vocab_size=None,
)


@pytest.fixture
def cache(monkeypatch):
    """Return a cache of 8 blocks of 4 positions."""
    monkeypatch.setattr(kv_cache, "BLOCK_SIZE", BLOCK)
    return KVCache(CONFIG, 8 * BLOCK, torch.device("cpu"))


def ids(*tokens):
    return np.asarray(tokens, dtype=np.int32)


def add(cache, sequence, tokens):
    """Extend a sequence and write what the model would: here the token itself, in every layer."""
    start = sequence.length
    cache.extend(sequence, tokens)
    positions = np.arange(start, sequence.length)
    rows = torch.from_numpy(cache.write_index(sequence, positions).ravel())
    values = torch.from_numpy(np.repeat(tokens, 2 * CONFIG.num_kv_heads)).to(torch.bfloat16)
    for layer in range(CONFIG.num_layers):
        flat = cache.layer(layer).view(-1, CONFIG.head_dim)
        flat.index_copy_(0, rows, values[:, None].expand(-1, CONFIG.head_dim))


def stored(cache, sequence):
    """Read a sequence's tokens back from its blocks; every layer, head, key and value agrees."""
    parts = [cache._storage[:, :, block] for block in sequence.blocks]
    if not parts:
        return []
    whole = torch.cat(parts, dim=3)[:, :, :, : sequence.length].float()
    first = whole[0, 0, 0, :, 0]
    assert (whole == first[:, None]).all()
    return first.int().tolist()


def new_sequence(cache, tokens):
    """Acquire and fill a sequence with all of `tokens`."""
    sequence = cache.acquire(tokens)
    add(cache, sequence, tokens[sequence.length :])
    return sequence


def test_last_token_is_always_left_to_compute(cache):
    """A fully cached prompt still has one row to run: the one whose logits are asked."""
    tokens = ids(1, 2, 3, 4, 5)
    cache.release(new_sequence(cache, tokens))

    assert cache.acquire(tokens).length == 4


def test_idle_sequence_is_taken_over_without_copying(cache):
    """The next round of a request finds its own blocks; a rejected tail is cut off."""
    first = new_sequence(cache, ids(1, 2, 3, 4, 5, 6))
    cache.truncate(first, 5)
    cache.release(first)

    again = cache.acquire(ids(1, 2, 3, 4, 5, 7))

    assert again is first
    assert again.in_use
    assert stored(cache, again) == [1, 2, 3, 4, 5]


def test_sequence_in_use_is_forked(cache):
    """Two requests with one beginning share its full blocks; the last block is copied."""
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


def test_someone_elses_long_conversation_is_not_cut(monkeypatch):
    """Only a short tail is given up to a taker; more than that is worth a copy."""
    monkeypatch.setattr(kv_cache, "BLOCK_SIZE", BLOCK)
    for num_lost, is_taken_over in ((MAX_DISCARD, True), (MAX_DISCARD + 1, False)):
        cache = KVCache(CONFIG, 64 * BLOCK, torch.device("cpu"))
        long = new_sequence(cache, np.arange(10 + num_lost, dtype=np.int32))
        cache.release(long)

        taken = cache.acquire(np.concatenate((np.arange(10, dtype=np.int32), ids(200, 201))))

        assert (taken is long) is is_taken_over
        assert taken.length == 10
        assert long.length == (10 if is_taken_over else 10 + num_lost)


def test_shared_block_is_copied_before_it_is_written(cache):
    """A sequence cut back into a block that another shares gets its own before it writes."""
    first = new_sequence(cache, ids(1, 2, 3, 4, 5))
    second = cache.acquire(ids(1, 2, 3, 4, 9))
    assert second.blocks == first.blocks[:1]
    cache.truncate(first, 2)

    add(cache, first, ids(7, 8))

    assert stored(cache, first) == [1, 2, 7, 8]
    assert stored(cache, second) == [1, 2, 3, 4]
    cache.check_integrity()


def test_least_recently_used_goes_first(cache):
    """When room is needed, the idle sequence that was longest unused is given up."""
    sequences = [new_sequence(cache, np.full(8, n, dtype=np.int32)) for n in range(1, 5)]
    for sequence in (sequences[1], sequences[0], sequences[3], sequences[2]):
        cache.release(sequence)
    assert cache.acquire(np.full(8, 2, dtype=np.int32)) is sequences[1]  # used again

    new_sequence(cache, np.full(8, 99, dtype=np.int32))

    lengths = {n: cache.acquire(np.full(8, n, dtype=np.int32)).length for n in (1, 3, 4)}
    assert lengths == {1: 0, 3: 7, 4: 7}
    cache.check_integrity()


def test_full_pool_says_so(cache):
    """With every block in use there is an error, and nothing is broken by it."""
    full = new_sequence(cache, np.arange(32, dtype=np.int32))

    with pytest.raises(MemoryError, match="8 blocks"):
        cache.extend(cache.acquire(ids(99)), ids(99))

    cache.discard(full)
    add(cache, cache.acquire(ids(98)), ids(98))


def test_blocks_of_one_sequence_lie_together(cache):
    """A sequence that grows takes the next block while it is free: ranges are read in place."""
    first, second = cache.acquire(ids(1)), cache.acquire(ids(2))
    add(cache, first, ids(*range(4)))
    for start in range(0, 12, 2):
        add(cache, second, ids(50 + start, 51 + start))

    assert second.blocks == [1, 2, 3]


@pytest.mark.parametrize(
    ("left", "right", "length"),
    [((), (), 0), ((1,), (), 0), ((1, 2), (1, 2), 2), ((1, 2, 3), (1, 9), 1), ((4,), (5,), 0)],
)
def test_common_prefix(left, right, length):
    """Counted up to the first difference or the shorter end."""
    assert common_prefix_length(ids(*left), ids(*right)) == length


class CacheMachine(RuleBasedStateMachine):
    """Requests come, grow, are cut back and end in any order; reserved as the scheduler does."""

    NUM_BLOCKS = 14
    active = Bundle("active")

    def __init__(self):
        super().__init__()
        self._block_size, kv_cache.BLOCK_SIZE = kv_cache.BLOCK_SIZE, BLOCK
        self.cache = KVCache(CONFIG, self.NUM_BLOCKS * BLOCK, torch.device("cpu"))
        self.most = {}
        self.reserved = 0

    def teardown(self):
        kv_cache.BLOCK_SIZE = self._block_size

    @staticmethod
    def blocks_for(num_tokens):
        return -(-num_tokens // BLOCK) + 1

    @rule(
        target=active,
        prompt=st.lists(st.integers(1, 2), min_size=1, max_size=14).map(lambda t: ids(*t)),
        growth=st.integers(1, 8),
    )
    def start(self, prompt, growth):
        """Acquire the longest cached prefix and run the rest of the prompt."""
        num_blocks = self.blocks_for(len(prompt) + growth)
        if self.reserved + num_blocks > self.NUM_BLOCKS:
            return multiple()
        known = [each.tokens.copy() for each in self.cache._sequences]
        longest = max((common_prefix_length(each, prompt[:-1]) for each in known), default=0)
        sequence = self.cache.acquire(prompt)
        assert sequence.length == longest
        add(self.cache, sequence, prompt[longest:])
        self.most[id(sequence)] = (len(prompt) + growth, num_blocks)
        self.reserved += num_blocks
        return sequence

    @rule(sequence=active, tokens=st.lists(st.integers(1, 3), min_size=1, max_size=5))
    def grow(self, sequence, tokens):
        """Run a draft or a generated token, within what was reserved."""
        room = self.most[id(sequence)][0] - sequence.length
        if room > 0:
            add(self.cache, sequence, ids(*tokens[:room]))

    @rule(sequence=active, share=st.floats(0, 1))
    def reject(self, sequence, share):
        """Forget a tail."""
        self.cache.truncate(sequence, round(share * sequence.length))

    @rule(sequence=consumes(active), keep=st.booleans())
    def end(self, sequence, keep):
        """Keep the sequence as a cached prefix, or give its blocks back."""
        self.reserved -= self.most.pop(id(sequence))[1]
        (self.cache.release if keep else self.cache.discard)(sequence)

    @invariant()
    def every_sequence_reads_its_own_tokens(self):
        """No write reached a block through which another sequence looks."""
        self.cache.check_integrity()
        for sequence in self.cache._sequences:
            assert stored(self.cache, sequence) == sequence.tokens.tolist()


CacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestCacheMachine = CacheMachine.TestCase
