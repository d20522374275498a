"""Drafters that combine, order or delay the proposals of others."""
