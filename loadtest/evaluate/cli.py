"""`specdec evaluate`: find out, domain by domain, whether speculation is worth deploying."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from specdec.clients import GrpcClient, SpecdecError
from specdec.drafting.names import AUTO
from specdec.folders import default_model_repository
from specdec.launch.installation import LaunchError
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.arguments import positive
from specdec.loadtest.evaluate.advice import Advice, advise
from specdec.loadtest.evaluate.asking import ask_all
from specdec.loadtest.evaluate.costs import round_costs
from specdec.loadtest.evaluate.domains import BY_RULES, DomainPrompt, load_domain_prompts
from specdec.loadtest.evaluate.findings import ALL, Finding, find
from specdec.loadtest.evaluate.offered import default_drafters
from specdec.loadtest.evaluate.picture import plot_findings
from specdec.loadtest.evaluate.probe import Probe, compare, find_tokenizer
from specdec.loadtest.evaluate.report import facts, report
from specdec.loadtest.kit.answers import Measurement
from specdec.loadtest.kit.arms import OFF
from specdec.loadtest.kit.asking import RequestSettings
from specdec.loadtest.kit.options import add_case, add_max_tokens
from specdec.loadtest.kit.results import command_line, conditions, write_result
from specdec.loadtest.load.settings import SHIPPED_PROMPTS


def main(argv: list[str]) -> int:
    """Measure and report; return 1 if no server started or a request failed, else 0."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        prompts = load_domain_prompts(arguments.prompts, arguments.by)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    settings = RequestSettings(arguments.max_tokens, arguments.case, arguments.seed)
    try:
        arms, found, num_tokens = _measure(arguments, prompts, settings)
    except (LaunchError, SpecdecError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    costs = {name: round_costs(found, own) for name, own in arms.items()}
    domains = list(dict.fromkeys(prompt.domain for prompt in prompts))
    findings = [
        find(found, domain, name, own, costs[name])
        for domain in [*domains, *([ALL] if len(domains) > 1 else [])]
        for name, own in arms.items()
    ]
    advised = [
        (each, _advice(each, findings, found, num_tokens, prompts, arguments.model_repository))
        for each in findings
    ]
    about = {
        "conditions": conditions(command_line("evaluate", argv, program="specdec")),
        "server": arguments.server or "started for this",
        "num_prompts": len(prompts),
        "max_tokens": arguments.max_tokens,
        "draw": str(settings.case),
        "costs": costs,
        "domains": facts(advised),
    }
    write_result(arguments.name, arguments.out, about, report(advised, costs), raw=found)
    title = f"{len(prompts)} prompts, {settings.case}, {arguments.max_tokens} tokens, one stream"
    plot_findings(findings, title, arguments.out / f"{arguments.name}.png")
    return 0


def _measure(
    arguments: argparse.Namespace,
    prompts: Sequence[DomainPrompt],
    settings: RequestSettings,
) -> tuple[dict[str, list[str]], list[Measurement], dict[str, int]]:
    """Ask everything; return the arms of each drafter, the answers, and the prompts' tokens by id.

    Raises SpecdecError if a request fails.
    """
    with ExitStack() as stack:
        url = arguments.server
        if url is None:
            url = stack.enter_context(TritonServer(arguments.model_repository)).grpc_url
        client = stack.enter_context(GrpcClient(url))
        drafters = arguments.drafters or default_drafters(url)
        arms = {name: _arms_of(name, arguments.k) for name in drafters}
        every_arm = [OFF, *(arm for own in arms.values() for arm in own)]
        return arms, *ask_all(client, prompts, every_arm, settings)


def _arms_of(drafter: str, lengths: Sequence[int]) -> list[str]:
    return [drafter] if drafter == AUTO else [f"{drafter}:{k}" for k in lengths]


def _advice(
    finding: Finding,
    findings: Sequence[Finding],
    found: Sequence[Measurement],
    num_tokens: dict[str, int],
    prompts: Sequence[DomainPrompt],
    repository: Path,
) -> Advice:
    arms = {arm.arm for arm in finding.arms}
    where = {each.column for each in found} if finding.domain == ALL else {finding.domain}
    own = [each for each in found if each.column in where and each.arm in arms]
    others = [
        each
        for each in findings
        if each.drafter == finding.drafter and each.domain not in {*where, ALL}
    ]
    texts = [prompt.text for prompt in prompts if prompt.domain in where]
    return advise(finding, others, own, num_tokens, _probe(repository, finding.drafter, texts))


def _probe(repository: Path, drafter: str, texts: Sequence[str]) -> Probe | None:
    """Compare the tokenizers of target and drafter.

    Returns None if the drafter has no tokenizer of its own, or a tokenizer is not in `repository`.
    """
    target, draft = (find_tokenizer(repository, model) for model in ("target", drafter))
    return compare(target, draft, texts) if target and draft else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec evaluate",
        description="Ask every prompt with and without speculation, one after another. Report by "
        "domain how much of the drafts is accepted, what it gains, and whether to deploy it. "
        "Leaves NAME.md, NAME.json and NAME.png in --out, single answers in results/scratch.",
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        default=SHIPPED_PROMPTS,
        help="JSONL: `prompt`, `messages` or `turns`, and a domain (default: ours)",
    )
    parser.add_argument(
        "--by",
        metavar="COLUMN",
        help=f"the field with the domain (default: task, or category); {BY_RULES}: by rules",
    )
    parser.add_argument(
        "--server", metavar="HOST:PORT", help="a running server's gRPC port; else one is started"
    )
    parser.add_argument(
        "--drafters",
        nargs="+",
        metavar="NAME",
        help="default: the server's draft model, else its head, else lookup; and auto, which "
        "chooses its own k",
    )
    parser.add_argument(
        "--k",
        type=positive,
        nargs="+",
        default=[2, 5],
        metavar="K",
        help="draft lengths to measure (default: 2 5); the largest bounds the predicted best k",
    )
    add_case(parser)
    add_max_tokens(parser, 96)
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the draws and of the prompts' order"
    )
    parser.add_argument(
        "--model-repository",
        type=Path,
        default=default_model_repository(),
        help="Triton models to serve, whose tokenizers are compared (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/scratch/evaluate"),
        help="folder of the result (default: %(default)s)",
    )
    parser.add_argument(
        "--name", default="evaluate", help="name of the result's files (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
