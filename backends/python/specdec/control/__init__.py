"""Decisions taken by measurement: whether a draft pays."""
