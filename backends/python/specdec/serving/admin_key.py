"""Protect the APIs that change a running server (models, shared memory, trace, log) with a key.

A client that may load a model may run code in the server, so Triton's APIs for that are never open:
they ask for the header `admin-key`. The key comes from a file; without one it is a random text that
nobody is told. Triton takes the key on its command line only, so anyone who can list the processes
of this machine can read it.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from specdec.serving.installation import LaunchError
from specdec.serving.triton_options import values_of

ADMIN_HEADER = "admin-key"
RESTRICTED_APIS = ("model-repository", "shared-memory", "trace", "logging")
RESTRICTING_OPTIONS = ("--http-restricted-api", "--grpc-restricted-protocol")
MIN_KEY_LENGTH = 16
_KEY = re.compile(r"[A-Za-z0-9._~+/-]+")
"""Triton separates its option's parts by the colon, the comma and the equals sign."""


def read_admin_key(file: Path) -> str:
    """Return the key in `file`, after making both if there is none; only its owner may read it.

    Raises LaunchError if the file cannot be read or made, or holds no usable key.
    """
    try:
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o600, exist_ok=False)
            file.write_text(secrets.token_urlsafe(32) + "\n", "utf-8")
        key = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(f"cannot read or make the admin key {file}: {error}") from error
    if len(key) < MIN_KEY_LENGTH or not _KEY.fullmatch(key):
        raise LaunchError(
            f"the admin key in {file} must be {MIN_KEY_LENGTH} or more letters, digits and ._~+/-; "
            f"given: {len(key)} characters"
        )
    return key


def restricting_options(file: Path | None, extra_args: tuple[str, ...]) -> list[str]:
    """Return the options that close those administrative APIs that `extra_args` do not restrict.

    Raises LaunchError as `read_admin_key` does.
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
    """Raise LaunchError if models could be loaded but nobody has a key, or if the key is unusable.

    `is_explicit`: models are loaded on demand.
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
