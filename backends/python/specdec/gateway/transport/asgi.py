"""The types of ASGI, and the keys under which a request's scope has what the guard found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

RECORD = "specdec.record"
"""Key of the request's RequestRecord."""
CLIENT = "specdec.client"
"""Key of the Client who sends the request; only under /v1/."""
