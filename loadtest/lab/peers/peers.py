"""`specdec bench peers`: other engines on the same weights and prompts.

Each peer has an environment of its own in .cache/peers/, installed when it is first needed. All
arms are asked prompt by prompt in random order. Peers that are not asked are paused, so that none
of them disturbs the one that is. A peer that fails is a row with the reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from specdec.loadtest.arguments import positive
from specdec.loadtest.kit.options import add_numbers, add_prompt_options, bench_parser, finish
from specdec.loadtest.kit.prompts import as_tokens, spread
from specdec.loadtest.lab.peers.catalogue import COMPARED, OUR_ARMS, PEERS, REFERENCE, Peer, PeerArm
from specdec.loadtest.lab.peers.measuring import Engine, PeerRun
from specdec.loadtest.lab.peers.ours import OurServer
from specdec.loadtest.lab.peers.prepare import workers
from specdec.loadtest.lab.peers.report import figures_and_tables
from specdec.loadtest.lab.peers.worker import num_cores
from specdec.loadtest.load.prompts import load_prompts
from specdec.loadtest.load.settings import SHIPPED_PROMPTS

CACHE = Path(".cache/peers")


def main(argv: list[str]) -> int:
    """Measure and report; return 1 if an arm of ours failed."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    num_prompts = len(arguments.prompts)
    if max(arguments.streams) > num_prompts:
        parser.error(
            f"--streams must be at most the number of prompts, {num_prompts}; "
            f"given {max(arguments.streams)}"
        )
    modes = {*arguments.ours, COMPARED.mode, REFERENCE.mode}
    ours = [arm for arm in OUR_ARMS if arm.mode in modes]
    peers = [PEERS[name] for name in arguments.peers]
    engine_run = PeerRun(arguments.seed)
    _measure(engine_run, arguments, ours, peers)
    arms = [*ours, *(arm for peer in peers for arm in peer.arms)]
    facts, table = figures_and_tables(engine_run, arms, arguments.streams)
    facts = {"max_tokens": arguments.max_tokens, "num_threads": num_cores(), **facts}
    failures = engine_run.failures
    faults = [f"{arm.label}: {failures[arm]}" for arm in ours if arm in failures]
    return finish(arguments, argv, facts, table, raw=engine_run.measurements, faults=faults)


def _measure(
    engine_run: PeerRun,
    arguments: argparse.Namespace,
    ours: Sequence[PeerArm],
    peers: Sequence[Peer],
) -> None:
    repository, cache = arguments.model_repository, CACHE.resolve()
    prompts = as_tokens(arguments.prompts, repository)
    own_prompts = as_tokens(load_prompts(SHIPPED_PROMPTS), repository, "learning")
    learning, end_id = spread(own_prompts, arguments.learning), prompts[0].end_id
    assert end_id is not None
    engines: dict[PeerArm, Engine] = {
        arm: OurServer(repository, arm.mode, end_id, cache, learning) for arm in ours
    }
    failures, may_install = engine_run.failures, not arguments.no_install
    engines |= workers(peers, repository, end_id, cache, failures, may_install=may_install)
    with engine_run.running(engines):
        if 1 in arguments.streams:
            alone = {each.prompt_id: [each] for each in prompts[:: arguments.every]}
            engine_run.ask_all(1, alone, arguments.max_tokens)
        for num_streams in (each for each in arguments.streams if each > 1):
            together = {}
            for salt in (f"{num_streams}-{number}" for number in range(arguments.repeats)):
                salted = as_tokens(arguments.prompts, repository, salt)
                together[salt] = spread(salted, num_streams)
            engine_run.ask_all(num_streams, together, arguments.max_tokens)


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
    add_numbers(parser, "--streams", (1, 16, 48), "prompts at the same time")
    parser.add_argument(
        "--learning", type=int, default=24, help="prompts that auto is asked first, to learn"
    )
    parser.add_argument("--repeats", type=positive, default=3, help="with more than one stream")
    parser.add_argument(
        "--no-install", action="store_true", help="leave out what is not installed yet"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the arms' order")
    return parser
