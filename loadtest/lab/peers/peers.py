"""`specdec bench peers`: other engines on the same weights and prompts.

Each peer has an environment of its own in .cache/peers/, installed when it is first needed. All
arms are asked prompt by prompt in random order. Peers that are not asked are stopped, so that none
of them disturbs the one that is. A peer that fails is a row with the reason.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from specdec.loadtest.kit.options import add_prompt_options, bench_parser, finish
from specdec.loadtest.kit.prompts import load_token_prompts, spread
from specdec.loadtest.lab.peers.catalogue import (
    COMPARED,
    OUR_ARMS,
    PEERS,
    REFERENCE,
    ArmName,
    Peer,
    PeerError,
)
from specdec.loadtest.lab.peers.install import ensure_installed, python_of
from specdec.loadtest.lab.peers.measuring import Contest, Contestant
from specdec.loadtest.lab.peers.ours import OurServer
from specdec.loadtest.lab.peers.report import (
    load_figures,
    load_table,
    one_stream_figures,
    one_stream_table,
)
from specdec.loadtest.lab.peers.weights import PairPaths, openvino_pair, plain_pair
from specdec.loadtest.lab.peers.worker import Worker, WorkerCommand, num_cores
from specdec.loadtest.load.settings import SHIPPED_PROMPTS

CACHE = Path(".cache/peers")


def main(argv: list[str]) -> int:
    """Measure and report; return 1 if an arm of ours failed."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    checkpoint = arguments.model_repository / "target" / "1" / "checkpoint"
    prompts, end_id = load_token_prompts(arguments.prompts, checkpoint)
    if max(arguments.streams) > len(prompts):
        parser.error(
            f"--streams must be at most the number of prompts, {len(prompts)}; "
            f"given: {max(arguments.streams)}"
        )
    contest, cache = Contest(arguments.seed), CACHE.resolve()
    wanted = {*arguments.ours, COMPARED.mode, REFERENCE.mode}
    ours = [arm for arm in OUR_ARMS if arm.mode in wanted]
    own_prompts, _ = load_token_prompts(SHIPPED_PROMPTS, checkpoint, "learning")
    learning = spread(own_prompts, arguments.learning)
    contestants: dict[ArmName, Contestant] = {
        arm: OurServer(arguments.model_repository, arm.mode, end_id, cache, learning)
        for arm in ours
    }
    peers = [PEERS[name] for name in arguments.peers]
    contestants |= _workers(peers, arguments, end_id, cache, contest.failures)
    arms = [*ours, *(arm for peer in peers for arm in peer.arms)]
    many = [each for each in arguments.streams if each > 1]
    with contest.running(contestants):
        if 1 in arguments.streams:
            contest.one_stream(prompts[:: arguments.every], arguments.max_tokens)
        for num_streams in many:
            salts = (f"{num_streams}-{number}" for number in range(arguments.repeats))
            salted = (load_token_prompts(arguments.prompts, checkpoint, salt)[0] for salt in salts)
            repetitions = [spread(each, num_streams) for each in salted]
            contest.many_streams(num_streams, repetitions, arguments.max_tokens)
    found, failures = contest.measurements, contest.failures
    loaded = [arm for arm in arms if arm.has_load]
    alone = one_stream_figures(found, arms)
    together = {count: load_figures(found, arms, count) for count in many}
    tables = [one_stream_table(alone, arms, failures)] if 1 in arguments.streams else []
    tables += [load_table(own, loaded, failures, count) for count, own in together.items()]
    facts = {
        "max_tokens": arguments.max_tokens,
        "num_threads": num_cores(),
        "versions": contest.versions,
        "failures": {arm.label: reason for arm, reason in failures.items()},
        "one_stream": alone,
        "many_streams": [each for own in together.values() for each in own],
    }
    text = "\n\n".join([*tables, "; ".join(contest.versions.values()) + "."])
    faults = [f"{arm.label}: {failures[arm]}" for arm in ours if arm in failures]
    return finish(arguments, argv, facts, text, raw=found, faults=faults)


def _workers(
    peers: Sequence[Peer],
    arguments: argparse.Namespace,
    end_id: int,
    cache: Path,
    failures: dict[ArmName, str],
) -> dict[ArmName, Contestant]:
    """Return a worker for each arm of the peers that could be prepared.

    The arms of the other peers get their reason in `failures`.
    """
    plain = plain_pair(arguments.model_repository, cache) if peers else None
    made: dict[ArmName, Contestant] = {}
    for peer in peers:
        assert plain is not None
        try:
            ensure_installed(peer, cache, may_install=not arguments.no_install)
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


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("peers", __doc__)
    add_prompt_options(parser, max_tokens=128)
    modes = [arm.mode for arm in OUR_ARMS]
    parser.add_argument(
        "--peers", nargs="*", choices=tuple(PEERS), default=list(PEERS), help="default: all"
    )
    parser.add_argument(
        "--ours", nargs="*", choices=modes, default=modes, help="our arms beside off and auto"
    )
    parser.add_argument(
        "--streams", type=int, nargs="+", default=[1, 16, 48], help="prompts at the same time"
    )
    parser.add_argument(
        "--learning", type=int, default=24, help="prompts that auto is asked first, to learn"
    )
    parser.add_argument("--repeats", type=int, default=3, help="with more than one stream")
    parser.add_argument(
        "--no-install", action="store_true", help="leave out what is not installed yet"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the arms' order")
    return parser
