"""SHA-256 hashes of files and folders."""

from __future__ import annotations

import hashlib
from pathlib import Path

CHUNK_BYTES = 1 << 20
"""Bytes that are read from a file at once."""


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal text."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def directory_sha256(directory: Path) -> str:
    """Return a SHA-256 over names and contents of all files in a directory, hexadecimal."""
    digest = hashlib.sha256()
    for file in sorted(path for path in directory.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(directory)}\0{file_sha256(file)}\n".encode())
    return digest.hexdigest()
