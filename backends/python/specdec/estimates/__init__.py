"""Formulas of speculation, and acceptance estimates from counts of draft tokens."""
