"""As tensorrt_llm/executor/utils.py."""


class RequestError(RuntimeError):
    """The error of a single request."""
