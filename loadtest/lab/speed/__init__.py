"""Benches of one stream: its speed, its acceptance, and the time of a target pass."""
