"""A peer's own virtual environment, made when it is first needed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

from specdec.loadtest.lab.peers.catalogue import Peer, PeerError

INSTALL_TIMEOUT_S = 3600


def python_of(peer: Peer, cache: Path) -> Path:
    """Return the path of Python in the peer's environment, whether it exists or not."""
    return cache / peer.name / "venv" / "bin" / "python"


def is_installed(peer: Peer, cache: Path) -> bool:
    """Tell whether the environment was installed from the present requirements."""
    stamp = _stamp(peer, cache)
    return stamp.is_file() and stamp.read_text("utf-8") == _fingerprint(peer)


def ensure_installed(peer: Peer, cache: Path, *, may_install: bool) -> None:
    """Install the peer if it is not there. Raises PeerError if that fails or is not allowed."""
    if is_installed(peer, cache):
        return
    if not may_install:
        raise PeerError("not installed")
    install(peer, cache)


def install(peer: Peer, cache: Path) -> None:
    """Make the environment; pip's output goes to install.log. Raises PeerError."""
    directory = cache / peer.name
    log_path = directory / "install.log"
    print(f"installing {peer.name}; progress in {log_path}", file=sys.stderr, flush=True)
    venv.create(directory / "venv", with_pip=True)
    command = [str(python_of(peer, cache)), "-m", "pip", "install", "--no-deps"]
    command += ["-r", str(peer.requirements)]
    with log_path.open("w", encoding="utf-8") as log:
        try:
            result = subprocess.run(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=INSTALL_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise PeerError(f"not installed within {INSTALL_TIMEOUT_S} s") from error
    if result.returncode != 0:
        raise PeerError(f"pip ended with status {result.returncode}: {_reason(log_path)}")
    _stamp(peer, cache).write_text(_fingerprint(peer), encoding="utf-8")


def _stamp(peer: Peer, cache: Path) -> Path:
    return cache / peer.name / "installed"


def _fingerprint(peer: Peer) -> str:
    return hashlib.sha256(peer.requirements.read_bytes()).hexdigest()


def _reason(log_path: Path) -> str:
    """Return the first line in which pip names an error, else its last line."""
    lines = [line.strip() for line in log_path.read_text("utf-8").splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["it printed nothing"])[0 if errors else -1]
