"""Requests in flight: which are admitted, and how each of them ends."""
