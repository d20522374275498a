"""Prepare the peers: install them, convert the weights, and make a worker for each arm."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from specdec.loadtest.lab.peers.catalogue import ArmName, Peer, PeerError
from specdec.loadtest.lab.peers.install import ensure_installed, python_of
from specdec.loadtest.lab.peers.weights import PairPaths, openvino_pair, plain_pair
from specdec.loadtest.lab.peers.worker import Worker, WorkerCommand


def workers(
    peers: Sequence[Peer],
    repository: Path,
    end_id: int,
    cache: Path,
    failures: dict[ArmName, str],
    *,
    may_install: bool,
) -> dict[ArmName, Worker]:
    """Return a worker for each arm of the peers that could be prepared.

    The arms of the other peers get their reason in `failures`.
    """
    plain = plain_pair(repository, cache) if peers else None
    made: dict[ArmName, Worker] = {}
    for peer in peers:
        assert plain is not None
        try:
            ensure_installed(peer, cache, may_install=may_install)
            paths = _paths(peer, plain, cache)
        except (PeerError, OSError) as error:
            print(f"{peer.name}: {error}", file=sys.stderr)
            failures.update(dict.fromkeys(peer.arms, str(error)))
            continue
        for arm in peer.arms:
            made[arm] = Worker(WorkerCommand(peer, arm, paths, end_id, cache))
    return made


def _paths(peer: Peer, plain: PairPaths, cache: Path) -> PairPaths:
    if peer.name == "openvino":
        return openvino_pair(plain, python_of(peer, cache), cache / peer.name)
    return plain
