"""`specdec bench interchange`: our draft and our EAGLE-3 head in vLLM, and in our own engine.

vLLM's CPU build loads the head as it lies in the model repository, and the draft as a plain Llama
directory; both guess as many tokens a round as ours do here, greedily, on the same prompts. What
became of the guesses is what each engine counts itself. How fast they are is `peers`' to measure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from loadtest.bench.peers import CACHE, workers
from loadtest.bench.prompting import load_token_prompts
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from loadtest.peers.alike import Alike, alike
from loadtest.peers.catalogue import OURS, PEERS, REFERENCE, ArmName, Way
from loadtest.peers.drafts_report import drafts_figures, drafts_of, drafts_table
from loadtest.peers.measuring import Contest, Contestant, Measurement
from loadtest.peers.ours import OurServer
from loadtest.peers.report import of
from loadtest.settings import SHIPPED_PROMPTS

NUM_DRAFT_TOKENS = 4
"""As in the peers' workers."""
OTHER = PEERS["vllm"]
OUR_ARMS = (
    REFERENCE,
    *(
        ArmName(OURS, f"{name}:{NUM_DRAFT_TOKENS}", way, f"specdec, {way.value}")
        for name, way in (("draft", Way.DRAFT), ("eagle3", Way.HEAD))
    ),
)
THEIR_ARMS = tuple(arm for arm in OTHER.arms if arm.way in {Way.PLAIN, Way.DRAFT, Way.HEAD})


def main(argv: list[str]) -> int:
    """Measure and report; 1 if an arm failed or none of its guesses stood."""
    arguments = _parser().parse_args(argv)
    checkpoint = arguments.model_repository / "target" / "1" / "checkpoint"
    prompts, end_id = load_token_prompts(arguments.prompts, checkpoint)
    contest, cache = Contest(arguments.seed), CACHE.resolve()
    theirs = workers([OTHER], arguments, end_id, cache, contest.failures)
    contestants: dict[ArmName, Contestant] = {
        arm: OurServer(arguments.model_repository, arm.mode, end_id, cache) for arm in OUR_ARMS
    }
    contestants |= {arm: theirs[arm] for arm in THEIR_ARMS if arm in theirs}
    with contest.running(contestants):
        contest.one_stream(prompts[:: arguments.every], arguments.max_tokens)
    found, failures, arms = contest.measurements, contest.failures, (*OUR_ARMS, *THEIR_ARMS)
    facts = {
        "conditions": conditions(command_line("interchange", argv)),
        "max_tokens": arguments.max_tokens,
        "versions": contest.versions,
        "failures": {arm.label: reason for arm, reason in failures.items()},
        "drafts": drafts_figures(found, arms),
        "alike": {arm.label: alike for arm, alike in alikes(found).items()},
    }
    parts = [drafts_table(found, arms, failures), alike_table(found)]
    parts.append("; ".join(contest.versions.values()) + ".")
    raw = [each.facts() for each in found]
    write_result(arguments.name, arguments.out, facts, "\n\n".join(parts), raw)
    broken = [arm for arm in arms if arm.way is not Way.PLAIN and not _stood(contest, arm)]
    for arm in broken:
        print(f"BROKEN: {arm.label}: {failures.get(arm, 'no guess stood')}", file=sys.stderr)
    return 1 if broken or failures.keys() & set(arms) else 0


def alikes(found: Sequence[Measurement]) -> dict[ArmName, Alike]:
    """Compare the rounds of each of their drafters with ours, after the same tokens."""
    compared = {}
    for arm in THEIR_ARMS:
        if arm.way is Way.PLAIN:
            continue
        ours = next(each for each in OUR_ARMS if each.way is arm.way)
        asked = {each.question_id: each.reply.answers[0] for each in of(found, ours, 1)}
        pairs = [
            (each.reply.answers[0], asked[each.question_id])
            for each in of(found, arm, 1)
            if each.question_id in asked
        ]
        compared[arm] = alike(pairs)
    return compared


def alike_table(found: Sequence[Measurement]) -> str:
    """Show how often a draft or head proposes in vLLM what it proposes here."""
    rows = [[arm.label, str(each)] for arm, each in alikes(found).items()]
    return markdown_table(["rounds that begin after the same tokens", "as long as ours"], rows)


def _stood(contest: Contest, arm: ArmName) -> bool:
    known = drafts_of(contest.measurements, arm)
    return arm not in contest.failures and known is not None and known.num_accepted > 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench interchange", description=__doc__)
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS, help="JSONL file")
    parser.add_argument("--every", type=int, default=1, help="take every n-th prompt")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument(
        "--no-install", action="store_true", help="fail where vLLM is not installed yet"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the arms' order")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="interchange", help="of the result files")
    return parser
