"""Ask a page of the server over HTTP."""

from __future__ import annotations

import http.client
from http import HTTPStatus
from urllib.parse import urlsplit

PROBE_S = 2.0
"""Longest silence of the server in seconds."""


def get(url: str) -> bytes | None:
    """Return the body at `url`; None if the answer is not 200, or the server silent for PROBE_S."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # Not urllib.request, which would ask a proxy that the environment names.
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=PROBE_S)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        return answer.read() if answer.status == HTTPStatus.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
