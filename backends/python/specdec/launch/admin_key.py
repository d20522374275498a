"""Protect Triton's administrative APIs with a key.

These APIs load models and change shared memory, trace and log settings. A client that can load a
model can run code in the server, so the APIs are never open. Each HTTP request to them must carry
the key in the header `admin-key`, each gRPC request in `triton-grpc-protocol-admin-key`.

The key comes from a file. Without a file it is random and secret, which closes the APIs.
Triton takes the key only on its command line, so anyone who can list the processes of this machine
can read it.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from specdec.launch.installation import LaunchError
from specdec.launch.triton_options import values_of

ADMIN_HEADER = "admin-key"
RESTRICTED_APIS = ("model-repository", "shared-memory", "trace", "logging")
"""Triton's names of the administrative APIs."""
RESTRICTING_OPTIONS = ("--http-restricted-api", "--grpc-restricted-protocol")
"""Options of tritonserver that demand a key for APIs, over HTTP and over gRPC."""
MIN_KEY_LENGTH = 16
"""Least number of characters in a key."""
_KEY = re.compile(r"[A-Za-z0-9._~+/-]+")
"""Pattern of a key. It has no colon, comma or equals sign, which separate the parts of Triton's
option."""


def read_admin_key(file: Path) -> str:
    """Return the key in `file`; create the file with a random key if it is missing.

    Only the owner can read a created file. Raises LaunchError if the file can be neither read nor
    created, or if the key is too short or has a character that keys may not have.
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
            f"given {len(key)} characters"
        )
    return key


def _make_key(file: Path) -> None:
    """Write a random key to `file`, unless another process has just done so. Raises OSError.

    The key is written to a temporary file first, so that a killed process leaves no empty key file.
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
    """Return the options of tritonserver that demand the key for the administrative APIs.

    APIs that `extra_args` already restrict are left out. Without `file` the key is random, so
    the APIs are closed. Raises LaunchError if the key in `file` cannot be used.
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
    """Check that the key can be used, and that there is one if models are loaded on demand.

    `is_explicit` says whether the server runs in Triton's mode `explicit`, in which it loads models
    on demand. Raises LaunchError in this mode if `file` is None, unless `extra_args` protect
    loading over both HTTP and gRPC. Raises it in any mode if the key in `file` cannot be used; a
    missing file is created.
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
    """Return the APIs that `option` restricts in the user's own arguments (`APIS:HEADER=KEY`)."""
    return {
        api for value in values_of(option, extra_args) for api in value.partition(":")[0].split(",")
    }
