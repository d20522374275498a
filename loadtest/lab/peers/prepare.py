"""Prepare the peers: install them, convert the weights, and make a worker for each arm."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from specdec.loadtest.lab.peers.catalogue import Peer, PeerArm
from specdec.loadtest.lab.peers.protocol import PeerError
from specdec.loadtest.lab.peers.weights import plain_pair
from specdec.loadtest.lab.peers.worker import Worker, WorkerCommand

INSTALL_TIMEOUT_S = 3600


def workers(
    peers: Sequence[Peer],
    repository: Path,
    end_id: int,
    cache: Path,
    failures: dict[PeerArm, str],
    *,
    may_install: bool,
) -> dict[PeerArm, Worker]:
    """Return a worker for each arm of the peers that could be prepared.

    The arms of the other peers get their reason in `failures`.
    """
    made: dict[PeerArm, Worker] = {}
    if not peers:
        return made
    plain = plain_pair(repository, cache)
    for peer in peers:
        try:
            ensure_installed(peer, cache, may_install=may_install)
            paths = plain
            if peer.convert:
                paths = peer.convert(plain, peer.python(cache), cache / peer.name)
        except (PeerError, OSError) as error:
            print(f"{peer.name}: {error}", file=sys.stderr)
            failures.update(dict.fromkeys(peer.arms, str(error)))
            continue
        for arm in peer.arms:
            made[arm] = Worker(WorkerCommand(peer, arm, paths, end_id, cache))
    return made


def ensure_installed(peer: Peer, cache: Path, *, may_install: bool) -> None:
    """Make the peer's environment if it is missing or its requirements have changed.

    pip's output goes to install.log. Raises PeerError if pip fails, takes longer than
    INSTALL_TIMEOUT_S, or may not install.
    """
    directory = cache / peer.name
    stamp, wanted = directory / "installed", hashlib.sha256(peer.requirements.read_bytes())
    if stamp.is_file() and stamp.read_text("utf-8") == wanted.hexdigest():
        return
    if not may_install:
        raise PeerError("not installed")
    log_path = directory / "install.log"
    print(f"installing {peer.name}; progress in {log_path}", file=sys.stderr, flush=True)
    venv.create(directory / "venv", with_pip=True)
    command = [str(peer.python(cache)), "-m", "pip", "install", "--no-deps"]
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
    stamp.write_text(wanted.hexdigest(), encoding="utf-8")


def _reason(log_path: Path) -> str:
    """Return the first line in which pip names an error, else its last line."""
    lines = [line.strip() for line in log_path.read_text("utf-8").splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["it printed nothing"])[0 if errors else -1]
