"""Models that can be converted."""
