"""Measurements of answers that follow a guide."""
