"""Tests of the block pool while requests start, grow, are cut back and end in any order."""

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

from specdec.torch_engine.layers.kv_cache import KVCache, common_prefix_length
from tests.unit.torch_engine.layers.token_cache import BLOCK, CONFIG, add, ids, stored


class CacheMachine(RuleBasedStateMachine):
    """A state machine of requests, which reserves blocks as the scheduler does."""

    NUM_BLOCKS = 14
    active = Bundle("active")

    def __init__(self):
        super().__init__()
        self.cache = KVCache(CONFIG, self.NUM_BLOCKS * BLOCK, torch.device("cpu"), block_size=BLOCK)
        self.most = {}
        self.reserved = 0

    @staticmethod
    def blocks_for(num_tokens):
        return -(-num_tokens // BLOCK) + 1

    @rule(
        target=active,
        prompt=st.lists(st.integers(1, 2), min_size=1, max_size=14).map(lambda t: ids(*t)),
        growth=st.integers(1, 8),
    )
    def start(self, prompt, growth):
        """Acquire the longest cached prefix and add the rest of the prompt."""
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
        """Add draft tokens or a generated token, within the reserved length."""
        room = self.most[id(sequence)][0] - sequence.length
        if room > 0:
            add(self.cache, sequence, ids(*tokens[:room]))

    @rule(sequence=active, share=st.floats(0, 1))
    def reject(self, sequence, share):
        """Cut off a tail, as after rejected draft tokens."""
        self.cache.truncate(sequence, round(share * sequence.length))

    @rule(sequence=consumes(active), keep=st.booleans())
    def end(self, sequence, keep):
        """Keep the sequence as a cached prefix, or give its blocks back."""
        self.reserved -= self.most.pop(id(sequence))[1]
        (self.cache.release if keep else self.cache.discard)(sequence)

    @invariant()
    def every_sequence_reads_its_own_tokens(self):
        """No write has changed a block that another sequence uses."""
        self.cache.check_integrity()
        for sequence in self.cache._sequences:
            assert stored(self.cache, sequence) == sequence.tokens.tolist()


CacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestCacheMachine = CacheMachine.TestCase
