"""What can go wrong in a build."""


class BuildError(RuntimeError):
    """A build cannot go on; the message says why and what to do."""
