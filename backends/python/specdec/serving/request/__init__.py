"""A client's request: its values, read and checked once."""
