"""Write to Triton's log."""

from __future__ import annotations

import traceback

import triton_python_backend_utils as pb_utils

from specdec.errors import SpecdecError


def inform(text: str) -> None:
    """Write a message at the level INFO."""
    pb_utils.Logger.log_info(f"[specdec] {text}")


def warn(text: str) -> None:
    """Write a warning."""
    pb_utils.Logger.log_warn(f"[specdec] {text}")


def log_unexpected(error: Exception) -> None:
    """Write an exception with its traceback; do nothing for a SpecdecError."""
    if not isinstance(error, SpecdecError):
        text = "".join(traceback.format_exception(error))
        pb_utils.Logger.log_error(f"[specdec] an unexpected failure: {text}")
