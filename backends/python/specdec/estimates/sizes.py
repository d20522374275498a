"""Rules of thumb for the size of a draft model, relative to its target.

They are those of "Speculative Decoding for LLM Acceleration", checked against reports on other
systems.
"""

MIN_RATIO, IDEAL_RATIO, MAX_RATIO = 5, 10, 20
"""Parameters of the target ÷ those of the draft model: smallest and largest good ratio, and the
ideal between them."""
COSTLY_SHARE = 0.3
"""Share of the target's parameters above which a draft model's own passes cost most of the gain."""
MIN_DRAFT_PARAMETERS = 50_000_000
"""Parameters below which few tokens of a draft model are accepted, unless it was distilled from its
target."""
