"""Drafters that ask a model: a draft engine, or the target's head."""
