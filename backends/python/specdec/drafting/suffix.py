"""Suffix decoding: what followed the same words before, in this request and in earlier ones.

After SuffixDecoding (Oliaro et al. 2024): the longest match decides, the more often a continuation
has followed it the further it is trusted, and long matches are trusted with more tokens.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

import numpy as np

from specdec.drafting.matching import longest_matches
from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round

TOKENS_PER_MATCHED = 2
"""Guesses that one matched token is trusted with."""

MIN_SHARE = 0.3
"""A continuation is followed while at least this share of all matches has taken it."""

MAX_TENANTS = 64
MAX_TENANT_TOKENS = 65536
"""What is remembered: the latest so many tokens of the tenants served last."""

SEPARATOR = -1
"""Between texts; no token matches it."""


class Memory:
    """Texts of finished requests, apart for each tenant; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: OrderedDict[str | None, deque[TokenIds]] = OrderedDict()
        self._joined: dict[str | None, TokenIds] = {}

    def learn(self, tenant: str | None, text: TokenIds) -> None:
        """Remembers a finished text, prompt included, and forgets what is over the bounds."""
        kept = np.append(text[-MAX_TENANT_TOKENS + 1 :], np.int32(SEPARATOR)).astype(np.int32)
        with self._lock:
            texts = self._texts.setdefault(tenant, deque())
            self._texts.move_to_end(tenant)
            texts.append(kept)
            while sum(map(len, texts)) > MAX_TENANT_TOKENS:
                texts.popleft()
            self._joined.pop(tenant, None)
            if len(self._texts) > MAX_TENANTS:
                oldest, _ = self._texts.popitem(last=False)
                self._joined.pop(oldest, None)

    def text(self, tenant: str | None) -> TokenIds:
        """[n] int32: all that is remembered of a tenant, texts ending in SEPARATOR."""
        with self._lock:
            if tenant not in self._texts:  # Names that only ask must not fill the memory.
                return np.zeros(0, dtype=np.int32)
            if tenant not in self._joined:
                self._joined[tenant] = np.concatenate(self._texts[tenant])
            return self._joined[tenant]


class SuffixDrafter:
    """Guesses for one request from its own text and from what its tenant's requests have said."""

    def __init__(self, name: str, source: int, num_tokens: int, remembered: TokenIds) -> None:
        self._name = name
        self._source = source
        self._num_tokens = num_tokens
        self._remembered = remembered

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        own, elsewhere = (
            _guess(text, context, min(self._num_tokens, max_tokens))
            for text in (context, self._remembered)
        )
        tokens = own[0] if own[1] >= elsewhere[1] else elsewhere[0]
        return Proposal(tokens, self._name, self._source) if tokens else NO_PROPOSAL

    def observe(self, confirmed: Round) -> None:
        """Nothing to learn before the end: the confirmed tokens are in the next context."""


def _guess(text: TokenIds, context: TokenIds, max_tokens: int) -> tuple[tuple[int, ...], int]:
    """The most frequent continuation of the longest matches, and their length."""
    ends, matched = longest_matches(text, context)
    tokens: list[int] = []
    num_matches = len(ends)
    while len(ends) and len(tokens) < min(max_tokens, TOKENS_PER_MATCHED * matched):
        following = text[ends]
        candidates, counts = np.unique(following, return_counts=True)
        best = int(counts.argmax())
        if candidates[best] == SEPARATOR or counts[best] < MIN_SHARE * num_matches:
            break
        tokens.append(int(candidates[best]))
        ends = ends[following == candidates[best]] + 1
        ends = ends[ends < len(text)]
    return tuple(tokens), matched
