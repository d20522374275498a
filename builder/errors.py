"""The error that every step of a build raises."""


class BuildError(RuntimeError):
    """An error that ends a build; its message says why and what to do."""
