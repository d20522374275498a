"""Heads that guess from the target's own states, behind its answer: EAGLE-3 and Medusa."""
