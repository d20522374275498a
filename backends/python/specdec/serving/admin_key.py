"""Protect Triton's administrative APIs with a key.

These APIs load models and change shared memory, trace and log settings. A client that may load a
model may run code in the server, so they are never open: each request to them must carry the key
in the header `admin-key`. The key comes from a file. Without a file it is a random text that nobody
is told, which closes the APIs. Triton takes the key only on its command line, so anyone who can
list the processes of this machine can read it.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from specdec.serving.installation import LaunchError
from specdec.serving.triton_options import values_of

ADMIN_HEADER = "admin-key"
RESTRICTED_APIS = ("model-repository", "shared-memory", "trace", "logging")
"""Triton's names of the administrative APIs."""
RESTRICTING_OPTIONS = ("--http-restricted-api", "--grpc-restricted-protocol")
MIN_KEY_LENGTH = 16
"""Characters that a key must have at least."""
_KEY = re.compile(r"[A-Za-z0-9._~+/-]+")
"""Characters that a key may have: not colon, comma or equals sign, which separate the parts of
Triton's option."""


def read_admin_key(file: Path) -> str:
    """Return the key in `file`; make the file, with a random key, if there is none.

    Only its owner may read a file that is made here. Raises LaunchError if the file can be neither
    read nor made, or if its key is too short or has other characters than a key may have.
    """
    try:
        if not file.exists():
            _make_key(file)
        key = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(f"cannot read or make the admin key {file}: {error}") from error
    if len(key) < MIN_KEY_LENGTH or not _KEY.fullmatch(key):
        raise LaunchError(
            f"the admin key in {file} must be {MIN_KEY_LENGTH} or more letters, digits and ._~+/-; "
            f"given: {len(key)} characters"
        )
    return key


def _make_key(file: Path) -> None:
    """Write a random key, unless another start has just made one. Raises OSError.

    It is written under another name first, so that a start that is killed leaves no empty key.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, made = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(secrets.token_urlsafe(32) + "\n")
        with suppress(FileExistsError):
            os.link(made, file)
    finally:
        Path(made).unlink()


def restricting_options(file: Path | None, extra_args: tuple[str, ...]) -> list[str]:
    """Return tritonserver's options that put the administrative APIs under the key.

    APIs that `extra_args` already restrict are left out. Without `file` the key is random, so
    nobody can use the APIs. Raises LaunchError as `read_admin_key` does.
    """
    key = secrets.token_urlsafe(32) if file is None else read_admin_key(file)
    options = []
    for option in RESTRICTING_OPTIONS:
        others = set(RESTRICTED_APIS) - _restricted_by(option, extra_args)
        if others:
            names = ",".join(each for each in RESTRICTED_APIS if each in others)
            options.append(f"{option}={names}:{ADMIN_HEADER}={key}")
    return options


def check_admin_key(file: Path | None, extra_args: tuple[str, ...], *, is_explicit: bool) -> None:
    """Raise LaunchError if models are loaded on demand and nobody has a key for it.

    Raises it also if the key in `file` is unusable; a missing file is made. `is_explicit`: the
    server runs in Triton's mode `explicit`, which loads models on demand.
    """
    if file is not None:
        read_admin_key(file)
    elif is_explicit and not all(
        "model-repository" in _restricted_by(each, extra_args) for each in RESTRICTING_OPTIONS
    ):
        raise LaunchError(
            "models that are loaded on demand take a key: name its file by --admin-key-file FILE "
            "(made if it is missing)"
        )


def _restricted_by(option: str, extra_args: tuple[str, ...]) -> set[str]:
    """Return the APIs that the user's own uses of an option restrict (`APIS:HEADER=KEY`)."""
    return {
        api for value in values_of(option, extra_args) for api in value.partition(":")[0].split(",")
    }
