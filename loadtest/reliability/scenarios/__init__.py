"""Scenarios of the reliability bench: one module each, with `rows(repository, rounds)`."""
