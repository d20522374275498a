"""The keys of clients, and the tenants that they belong to."""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass
from pathlib import Path

from specdec.errors import ConfigurationError

KEY_VARIABLE = "SPECDEC_API_KEY"
"""Environment variable with one key, without a tenant."""
MIN_KEY_LENGTH = 16
"""Fewest characters of a key; shorter ones can be found by trying."""


@dataclass(frozen=True, slots=True)
class Client:
    """The sender of a request."""

    tenant: str | None = None
    """Tenant of the model `specdec`; None for none."""


class ApiKeys:
    """The keys that clients may use. Without any key, every client is let in."""

    def __init__(self, tenants: dict[str, str | None]) -> None:
        """Take the tenant of each key. Raises ConfigurationError for a key that cannot be used."""
        for key in tenants:
            if not key.isascii():
                raise ConfigurationError("an API key must have ASCII characters; one has others")
            if len(key) < MIN_KEY_LENGTH:
                raise ConfigurationError(
                    f"an API key must have at least {MIN_KEY_LENGTH} characters; one has {len(key)}"
                )
        self._clients = {_digest(key): Client(tenant) for key, tenant in tenants.items()}

    @classmethod
    def load(cls, file: Path | None) -> ApiKeys:
        """Read the keys of a file and of the environment variable KEY_VARIABLE.

        Each line has a key and, after a space, its tenant, if it has one. Empty lines and lines
        that begin with # are left out. Raises ConfigurationError if the file cannot be read or has
        no key, or for a line that is wrong.
        """
        tenants: dict[str, str | None] = {}
        if given := os.environ.get(KEY_VARIABLE, ""):
            tenants[given] = None
        if file is None:
            return cls(tenants)
        try:
            lines = file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"cannot read the API keys: {error}") from None
        num_before = len(tenants)
        for number, line in enumerate(lines, start=1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) > 2:
                raise ConfigurationError(
                    f"line {number} of {file} must be a key and a tenant; given {len(words)} words"
                )
            if words[0] in tenants:
                raise ConfigurationError(f"line {number} of {file} has a key that was given before")
            tenants[words[0]] = words[1] if len(words) == 2 else None
        if len(tenants) == num_before:
            raise ConfigurationError(f"{file} has no API key")
        return cls(tenants)

    def client_of(self, authorization: str) -> Client | None:
        """Return who sends a request with this header `Authorization`; None if it is refused.

        The time does not depend on how much of a key is right.
        """
        if not self._clients:
            return Client()
        scheme, _, key = authorization.partition(" ")
        digest, found = _digest(key.strip()), None
        for known, client in self._clients.items():
            if hmac.compare_digest(digest, known):
                found = client
        return found if scheme.lower() == "bearer" else None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()
