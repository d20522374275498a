"""`specdec bench peers`: other engines beside us, on the same weights and the same prompts.

Each peer lives in an environment of its own (.cache/peers/), installed when it is first needed.
All arms are asked prompt by prompt in random order; peers that are not asked are stopped, so that
nobody waits busily beside the one that is. A peer that fails is a row with the reason.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadtest.bench.prompting import TokenPrompt, load_token_prompts
from loadtest.bench.reporting import RESULTS, command_line, conditions, write_result
from loadtest.peers.catalogue import JUDGED, OUR_ARMS, OURS, PEERS, REFERENCE, ArmName, Peer
from loadtest.peers.drafts_report import drafts_figures, drafts_table
from loadtest.peers.errors import PeerError
from loadtest.peers.install import ensure_installed, python_of
from loadtest.peers.measuring import Contest, Contestant, Measurement
from loadtest.peers.ours import OurServer
from loadtest.peers.picture import plot_peers
from loadtest.peers.report import (
    load_figures,
    load_table,
    one_stream_figures,
    one_stream_table,
)
from loadtest.peers.weights import PairPaths, gguf_pair, openvino_pair, plain_pair
from loadtest.peers.worker import Worker, WorkerCommand, num_cores
from loadtest.settings import SHIPPED_PROMPTS

CACHE = Path(".cache/peers")


def main(argv: list[str]) -> int:
    """Measure and report; 1 if an arm of ours failed."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    checkpoint = arguments.model_repository / "target" / "1" / "checkpoint"
    every_prompt, end_id = load_token_prompts(arguments.prompts, checkpoint)
    if max(arguments.streams) > len(every_prompt):
        parser.error(
            f"--streams must be at most the number of prompts, {len(every_prompt)}; "
            f"given: {max(arguments.streams)}"
        )
    contest = Contest(arguments.seed)
    ours = [arm for arm in OUR_ARMS if arm.mode in arguments.ours or arm in (JUDGED, REFERENCE)]
    cache = CACHE.resolve()
    own_prompts, _ = load_token_prompts(SHIPPED_PROMPTS, checkpoint, "learning")
    learning = _spread(own_prompts, arguments.learning)
    contestants: dict[ArmName, Contestant] = {
        arm: OurServer(arguments.model_repository, arm.mode, end_id, cache, learning)
        for arm in ours
    }
    peers = [PEERS[name] for name in arguments.peers]
    contestants |= workers(peers, arguments, end_id, cache, contest.failures)
    arms = [*ours, *(arm for peer in peers for arm in peer.arms)]
    prompts = every_prompt[:: arguments.every]
    with contest.running(contestants):
        if 1 in arguments.streams:
            contest.one_stream(prompts, arguments.max_tokens)
        for num_streams in (each for each in arguments.streams if each > 1):
            repetitions = [
                _spread(
                    load_token_prompts(arguments.prompts, checkpoint, f"{num_streams}-{i}")[0],
                    num_streams,
                )
                for i in range(arguments.repeats)
            ]
            contest.many_streams(num_streams, repetitions, arguments.max_tokens)
    known = figures(contest.measurements, arms)
    facts = {
        "conditions": conditions(command_line("peers", argv)),
        "max_tokens": arguments.max_tokens,
        "num_threads": num_cores(),
        "versions": contest.versions,
        "failures": {arm.label: reason for arm, reason in contest.failures.items()},
        **known,
    }
    raw = [each.facts() for each in contest.measurements]
    table = _tables(contest, known, arms, arguments.streams)
    write_result(arguments.name, arguments.out, facts, table, raw)
    if contest.measurements:
        title = f"{facts['conditions']['processor']}, {num_cores()} cores; greedy, "
        title += f"{arguments.max_tokens} tokens, prompt processing included"
        path = arguments.out / f"{arguments.name}.png"
        plot_peers(contest.measurements, arms, title, path)
    return 1 if any(arm in contest.failures for arm in ours) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench peers", description=__doc__)
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS, help="JSONL file")
    parser.add_argument("--every", type=int, default=1, help="one stream: every n-th prompt")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument(
        "--peers",
        nargs="*",
        choices=tuple(PEERS),
        default=list(PEERS),
        help=f"beside {OURS}, which always takes part (default: all)",
    )
    modes = [arm.mode for arm in OUR_ARMS]
    parser.add_argument(
        "--ours",
        nargs="*",
        choices=modes,
        default=modes,
        help="our arms beside off and auto; each has a server, and memory, of its own",
    )
    parser.add_argument(
        "--streams", type=int, nargs="+", default=[1, 16, 48], help="prompts at the same time"
    )
    parser.add_argument(
        "--learning",
        type=int,
        default=24,
        help="prompts of our own that auto is asked first: it learns from what it serves",
    )
    parser.add_argument("--repeats", type=int, default=3, help="with more than one stream")
    parser.add_argument(
        "--no-install", action="store_true", help="leave out what is not installed yet"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the arms' order")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="peers", help="of the result files")
    return parser


def workers(
    peers: Sequence[Peer],
    arguments: argparse.Namespace,
    end_id: int,
    cache: Path,
    failures: dict[ArmName, str],
) -> dict[ArmName, Contestant]:
    """A worker for each arm of the peers that could be prepared; the others go to `failures`."""
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
    return gguf_pair(plain) if peer.name == "llamacpp" else plain


def _spread(prompts: Sequence[TokenPrompt], count: int) -> list[TokenPrompt]:
    """So many, evenly from the whole file."""
    return [prompts[i * len(prompts) // count] for i in range(count)]


def figures(found: Sequence[Measurement], arms: Sequence[ArmName]) -> dict[str, Any]:
    """Return the figures with one stream, with several, and what became of draft tokens."""
    many = sorted({each.num_streams for each in found} - {1})
    return {
        "one_stream": one_stream_figures(found, arms),
        "many_streams": [own for count in many for own in load_figures(found, arms, count)],
        "drafts": drafts_figures(found, arms),
    }


def _tables(
    contest: Contest, known: dict[str, Any], arms: Sequence[ArmName], streams: Sequence[int]
) -> str:
    failures = contest.failures
    tables = []
    if 1 in streams:
        tables.append(one_stream_table(known["one_stream"], arms, failures))
        tables.append(drafts_table(contest.measurements, arms, failures))
    loaded = [arm for arm in arms if arm.has_load]
    many = known["many_streams"]
    tables += [load_table(many, loaded, failures, count) for count in streams if count > 1]
    return "\n\n".join([*tables, "; ".join(contest.versions.values()) + "."])
