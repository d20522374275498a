"""Suffix decoding: proposes what followed the same tokens in this or in earlier requests.

The method follows SuffixDecoding (Oliaro et al. 2024). It finds all matches of the greatest length,
and proposes their most frequent continuation while enough of them share it. A longer match allows
more draft tokens.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

import numpy as np

from specdec.drafting.combining.late import LateDrafter
from specdec.drafting.context import DrafterContext
from specdec.drafting.copying.matching import longest_matches
from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.rounds import Round
from specdec.token_ids import TokenIds

TOKENS_PER_MATCHED = 2
"""Draft tokens allowed for each token of the match."""

MIN_SHARE = 0.3
"""Least share of all matches that must have a continuation for it to be proposed."""

MAX_TENANTS = 64
"""Most tenants in the memory; those whose requests ended last are kept."""
MAX_TENANT_TOKENS = 65536
"""Most tokens in the memory for a tenant, separators included; the latest requests are kept."""

SEPARATOR = -1
"""Token id that ends each remembered text; no real token equals it."""


class Memory:
    """The texts of finished requests, separate for each tenant. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: OrderedDict[str | None, deque[TokenIds]] = OrderedDict()
        self._joined: dict[str | None, TokenIds] = {}

    def learn(self, tenant: str | None, text: TokenIds) -> None:
        """Remember the text [n] int32 of a finished request, prompt included.

        To stay within the limits, forget the tenant's oldest texts, and the tenant whose latest
        text is oldest. `tenant` is None for requests that name none; these share one memory.
        """
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
        """Return all texts of a tenant in one array [n] int32, each ended by SEPARATOR.

        Do not change the array: other callers get the same one.
        """
        with self._lock:
            if tenant not in self._texts:  # An unknown tenant gets no entry by asking.
                return np.zeros(0, dtype=np.int32)
            if tenant not in self._joined:
                self._joined[tenant] = np.concatenate(self._texts[tenant])
            return self._joined[tenant]


class SuffixDrafter:
    """A drafter that continues the longest match in this request or in its tenant's memory.

    If both matches are equally long, the one in the request is used.
    """

    def __init__(self, name: str, source: int, num_tokens: int, remembered: TokenIds) -> None:
        self._name = name
        self._source = source
        self._num_tokens = num_tokens
        self._remembered = remembered

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        own, elsewhere = (
            _continuation(text, context, min(self._num_tokens, max_tokens))
            for text in (context, self._remembered)
        )
        tokens = own[0] if own[1] >= elsewhere[1] else elsewhere[0]
        return Proposal(tokens, self._name, self._source) if tokens else NO_PROPOSAL

    def observe(self, confirmed: Round) -> None:
        """Do nothing: the confirmed tokens are in the next context."""


def _continuation(
    text: TokenIds, context: TokenIds, max_tokens: int
) -> tuple[tuple[int, ...], int]:
    """Return the most frequent continuation of the longest matches, and the matches' length.

    Search in `text` for the end of `context`, both [n] int32. The continuation may be empty.
    """
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


def build(context: DrafterContext) -> Drafter:
    """Return the suffix drafter of a request."""
    return LateDrafter(
        SuffixDrafter(context.name, context.source, context.num_tokens, context.remembered())
    )
