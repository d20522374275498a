"""Benches of correctness: answers against the target's own, counters against the clients'."""
