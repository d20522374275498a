"""`specdec bench law`: do rejection and block verification keep the target's distribution?

At fixed contexts, with the laws that the real target and draft give there: many rounds, each with a
seed of its own, against as many plain draws of the target. A rule that is wrong on purpose is
tested beside them, so that the test is known to see.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import chi2_contingency

from loadtest.bench.prompting import CHECKPOINT, load_token_prompts
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from loadtest.settings import SHIPPED_PROMPTS
from specdec.acceptance.chance import Chance, Law, SeededChance
from specdec.acceptance.exact import Verdict
from specdec.acceptance.noise import gumbel
from specdec.acceptance.rules import Rule, verify_as_block, verify_by_rejection
from specdec.acceptance.sampling import Draw, SamplingParams
from specdec.acceptance.trees import verify_tree_by_rejection
from specdec.acceptance.warping import warp
from specdec.engines.sampling_inputs import REJECTION, Sampling, round_seed
from specdec.torch_engine.model import LlamaModel, Segment
from specdec.torch_engine.sampler import law_of

_Round = Callable[["Place", int], Verdict]

DRAFT_CHECKPOINT = CHECKPOINT.parents[2] / "draft" / "1" / "checkpoint"
NUM_DRAFTS = 2
RARE = 10
"""Outcomes seen less often are counted together."""
SIGNIFICANT = 1e-3


def resample_from_all(
    draft: Sequence[int], draft_laws: Sequence[Law] | None, laws: Sequence[Law], chance: Chance
) -> Verdict:
    """WRONG on purpose: the replacement is drawn from the target's whole law."""
    verdict = verify_by_rejection(draft, draft_laws, laws, chance)
    if verdict.num_accepted == len(draft):
        return verdict
    replacement = chance.draw(laws[verdict.num_accepted])
    return Verdict((*verdict.tokens[:-1], replacement), verdict.num_accepted)


TREE, SHARED_NOISE = "tree by rejection", "tree, drafts with one noise: broken on purpose"

RULES: dict[str, Rule] = {
    "rejection": verify_by_rejection,
    "block": verify_as_block,
    "broken on purpose": resample_from_all,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule at one context."""

    prompt_id: str
    rule: str
    num_draws: int
    num_outcomes: int
    p_value: float
    mean_accepted: float


class Place:
    """A context, and the laws of both models behind every short continuation of it."""

    def __init__(
        self, target: LlamaModel, draft: LlamaModel, text: tuple[int, ...], params: SamplingParams
    ) -> None:
        self._models = {"target": target, "draft": draft}
        self._text = text
        self._params = params
        self._found: dict[tuple[str, tuple[int, ...]], npt.NDArray[np.float64]] = {}
        tokens = self._support(((),), NUM_DRAFTS)
        self.ids = np.asarray(sorted(tokens), dtype=np.int64)
        self.position = len(text)

    def law(self, model: str, behind: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Over `ids`: all other tokens are impossible for both models at all these places."""
        return self._full_law(model, behind)[self.ids]

    def _support(self, texts: Sequence[tuple[int, ...]], depth: int) -> set[int]:
        """Tokens that either model may say behind these texts, `depth` + 1 tokens deep."""
        found: set[int] = set()
        for behind in texts:
            own: set[int] = set()
            for model in self._models:
                own |= set(np.flatnonzero(self._full_law(model, behind)).tolist())
            found |= own
            if depth:
                found |= self._support([(*behind, token) for token in own], depth - 1)
        return found

    def _full_law(self, name: str, behind: tuple[int, ...]) -> npt.NDArray[np.float64]:
        if (name, behind) not in self._found:
            text = np.asarray(self._text + behind, dtype=np.int32)
            model = self._models[name]
            sequence = model.cache.acquire(text)
            hidden = model.run([Segment(sequence, text[sequence.length :], 1)])
            model.cache.release(sequence)
            with torch.inference_mode():
                logits = warp(model.head.logits(hidden)[0], Draw(self._params, text, 0))
            self._found[name, behind] = law_of(logits)
        return self._found[name, behind]


def main(argv: list[str]) -> int:
    """Run the test; 1 if a rule is not what it should be."""
    arguments = _parser().parse_args(argv)
    prompts, _ = load_token_prompts(arguments.prompts, CHECKPOINT)
    cpu = torch.device("cpu")
    target, draft = (LlamaModel(each, 8192, cpu) for each in (CHECKPOINT, DRAFT_CHECKPOINT))
    params = SamplingParams(temperature=arguments.temperature, top_k=arguments.top_k)
    findings = []
    for prompt in prompts[:: len(prompts) // arguments.contexts][: arguments.contexts]:
        place = Place(target, draft, prompt.token_ids, params)
        plain = Counter(_plain(place, seed) for seed in range(arguments.draws))
        rounds = {name: partial(_chain_round, rule=rule) for name, rule in RULES.items()}
        rounds[TREE] = partial(_tree_round, numbers=(1, 2))
        rounds[SHARED_NOISE] = partial(_tree_round, numbers=(1, 1))
        for name, run in rounds.items():
            print(f"prompt {prompt.prompt_id}: {name}", file=sys.stderr)
            findings.append(_test(prompt.prompt_id, name, run, place, plain))
    rows = [
        [
            each.prompt_id,
            each.rule,
            str(each.num_draws),
            str(each.num_outcomes),
            f"{each.p_value:.3g}",
            f"{each.mean_accepted:.3f}",
        ]
        for each in findings
    ]
    header = ["prompt", "rule", "draws", "outcomes", "p-value", "accepted of 2"]
    facts = {"conditions": conditions(command_line("law", argv)), "findings": findings}
    write_result(arguments.name, arguments.out, facts, markdown_table(header, rows))
    lossless = [each for each in findings if "broken on purpose" not in each.rule]
    seen = {each.rule for each in findings if each.p_value < SIGNIFICANT}
    is_seen = {each.rule for each in findings} - {each.rule for each in lossless} <= seen
    # Of many honest tests the smallest p-value is small by chance.
    is_kept = all(each.p_value >= SIGNIFICANT / len(lossless) for each in lossless)
    if not is_seen:
        print("BROKEN: a wrong rule was not noticed", file=sys.stderr)
    if not is_kept:
        print("BROKEN: a lossless rule changes the distribution", file=sys.stderr)
    return 0 if is_seen and is_kept else 1


def _test(
    prompt_id: str, name: str, run: _Round, place: Place, plain: Counter[tuple[int, ...]]
) -> Finding:
    num_draws = plain.total()
    num_accepted = 0
    said: Counter[tuple[int, ...]] = Counter()
    # Other seeds than those of the plain draws: the two samples are independent.
    for seed in range(num_draws, 2 * num_draws):
        verdict = run(place, seed)
        tokens, accepted = _finished(place, verdict.tokens, seed), verdict.num_accepted
        said[tokens] += 1
        num_accepted += accepted
    outcomes = set(plain) | set(said)
    common = [each for each in outcomes if plain[each] + said[each] >= RARE]
    table = np.asarray([[sample[each] for each in common] for sample in (plain, said)])
    rest = num_draws - table.sum(axis=1, keepdims=True)
    if rest.sum() >= RARE:
        table = np.hstack((table, rest))
    p_value = float(chi2_contingency(table)[1])
    return Finding(prompt_id, name, num_draws, len(outcomes), p_value, num_accepted / num_draws)


def _chain_round(place: Place, seed: int, rule: Rule) -> Verdict:
    """A round of two drafts."""
    drafted, draft_laws = _drafted(place, seed, 1)
    behind = [_tokens(place, drafted[:size]) for size in range(NUM_DRAFTS + 1)]
    target_laws = [place.law("target", each) for each in behind]
    return rule(drafted, draft_laws, target_laws, _chance(place, seed))


def _tree_round(place: Place, seed: int, numbers: tuple[int, int]) -> Verdict:
    """A round of two branches of two drafts, drawn as by the drafts of these numbers."""
    tokens: list[int] = []
    parents: list[int] = []
    draft_laws: list[Law] = []
    behind: list[tuple[int, ...]] = [()]
    for number in numbers:
        drafted, laws = _drafted(place, seed, number)
        parents += [-1, *range(len(tokens), len(tokens) + NUM_DRAFTS - 1)]
        behind += [_tokens(place, drafted[: size + 1]) for size in range(NUM_DRAFTS)]
        tokens += drafted
        draft_laws += laws
    target_laws = [place.law("target", each) for each in behind]
    chance = _chance(place, seed)
    return verify_tree_by_rejection(tokens, parents, draft_laws, target_laws, chance)


def _drafted(place: Place, seed: int, number: int) -> tuple[list[int], list[Law]]:
    """Two tokens as draft `number` draws them, and what each was drawn from."""
    sampling = Sampling(SamplingParams(1.0, seed=seed), verification=REJECTION)
    noise_seed = round_seed(sampling.for_draft(number).params.seed, place.position)
    drafted: list[int] = []
    laws: list[Law] = []
    for offset in range(NUM_DRAFTS):
        laws.append(place.law("draft", _tokens(place, drafted)))
        drafted.append(_draw(place, laws[-1], noise_seed, place.position + offset))
    return drafted, laws


def _chance(place: Place, seed: int) -> SeededChance:
    return SeededChance(round_seed(seed, place.position), place.position)


def _finished(place: Place, said: Sequence[int], seed: int) -> tuple[int, ...]:
    """The first two tokens: what a round said, and the target's own if that was one."""
    tokens = list(said)
    while len(tokens) < NUM_DRAFTS:
        position = place.position + len(tokens)
        law = place.law("target", _tokens(place, tokens))
        tokens.append(_draw(place, law, round_seed(seed, position), position))
    return tuple(tokens[:NUM_DRAFTS])


def _plain(place: Place, seed: int) -> tuple[int, ...]:
    """Two tokens of the target alone."""
    tokens: list[int] = []
    for offset in range(NUM_DRAFTS):
        law = place.law("target", _tokens(place, tokens))
        tokens.append(_draw(place, law, seed, place.position + offset))
    return tuple(tokens)


def _draw(place: Place, law: npt.NDArray[np.float64], seed: int, position: int) -> int:
    """As the engines draw, among the few tokens that are possible; an index into `place.ids`."""
    noise = gumbel(seed, position, int(place.ids[-1]) + 1).numpy()[place.ids]
    with np.errstate(divide="ignore"):
        return int((np.log(law) + noise).argmax())


def _tokens(place: Place, indices: Sequence[int]) -> tuple[int, ...]:
    return tuple(place.ids[list(indices)].tolist())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec bench law",
        description="Two-sample tests of the lossless verifications on the real pair's laws.",
    )
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS)
    parser.add_argument("--contexts", type=int, default=4, help="prompts taken, evenly spaced")
    parser.add_argument("--draws", type=int, default=50_000, help="in each of the two samples")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-k", type=int, default=4, help="keeps the outcomes countable")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="law", help="of the result files")
    return parser
