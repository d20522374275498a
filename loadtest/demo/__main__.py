"""`make demo`: the real server, prompts of several tasks, speculation on and off in alternation.

Both arms ask the same prompts, since their answers are compared. So that neither finds a cache
that the other has warmed, each prompt is asked once beforehand (one token, not measured), and the
arms take turns in going first.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from specdec.clients import GenerationRequest, GrpcClient, SpecdecError
from specdec.folders import default_model_repository
from specdec.launch.installation import LaunchError
from specdec.launch.launcher import port_from_environment
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.arguments import positive
from specdec.loadtest.demo.prompts import DEMO_PROMPTS
from specdec.loadtest.kit.asking import TimedAnswer, ask
from specdec.loadtest.kit.ratios import rate
from specdec.loadtest.kit.results import markdown_table

NO_SPECULATION = 0
"""The `num_draft_tokens` that switches speculation off."""
HEADER = ["task", "tokens/s off", "tokens/s on", "speed-up", "acceptance", "identical"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answers to one prompt, with speculation off and on."""

    task: str
    off: TimedAnswer
    on: TimedAnswer

    @property
    def is_identical(self) -> bool:
        """Tell whether both answers have the same tokens, text and finish reason."""
        off, on = self.off.result, self.on.result
        return (off.token_ids, off.text) == (on.token_ids, on.text) and (
            off.end.finish_reason == on.end.finish_reason
        )


def main(argv: list[str] | None = None) -> int:
    """Run the demo and return its exit status.

    The status is 0 if every answer was the same with speculation on and off, 1 if one differed or
    failed, and 130 after Ctrl-C.
    """
    arguments = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    try:
        with ExitStack() as stack:
            url = arguments.grpc_url
            if url is None:
                url = _start_server(stack, arguments.model_repository)
            client = stack.enter_context(GrpcClient(url))
            prompts = [(task, text) for task, texts in DEMO_PROMPTS.items() for text in texts]
            comparisons = list(compare(client, prompts, arguments.max_tokens))
    except (LaunchError, SpecdecError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print("\n" + table(comparisons))
    num_different = sum(not comparison.is_identical for comparison in comparisons)
    print(
        f"\n{len(comparisons) - num_different} of {len(comparisons)} answers identical; greedy, up "
        f"to {arguments.max_tokens} tokens, one stream, prompts already in the prefix cache"
    )
    return 1 if num_different else 0


def _start_server(stack: ExitStack, model_repository: Path) -> str:
    print(f"starting tritonserver with {model_repository} …", flush=True)
    started_s = time.monotonic()
    server = stack.enter_context(
        TritonServer(
            model_repository,
            http_port=port_from_environment("http", 0),
            grpc_port=port_from_environment("grpc", 0),
            metrics_port=port_from_environment("metrics", 0),
        )
    )
    print(f"ready after {time.monotonic() - started_s:.1f} s, gRPC {server.grpc_url}", flush=True)
    return server.grpc_url


def compare(
    client: GrpcClient, prompts: Sequence[tuple[str, str]], max_tokens: int
) -> Iterator[Comparison]:
    """Ask every (task, prompt) with speculation off and on, and print a line for each.

    Each prompt is first asked for one token, so that both answers find it in the prefix cache.
    Raises SpecdecError if a request fails.
    """
    for number, (task, prompt) in enumerate(prompts):
        ask(client, _request(task, prompt, 1, NO_SPECULATION))
        arms: list[int | None] = [NO_SPECULATION, None]
        if number % 2:
            arms.reverse()
        answers = {arm: ask(client, _request(task, prompt, max_tokens, arm)) for arm in arms}
        comparison = Comparison(task, off=answers[NO_SPECULATION], on=answers[None])
        print(_line(number + 1, len(prompts), comparison), flush=True)
        yield comparison


def _request(
    task: str, prompt: str, max_tokens: int, num_draft_tokens: int | None
) -> GenerationRequest:
    """Return a greedy request; 0 draft tokens switch speculation off, None leaves it as served."""
    return GenerationRequest(
        messages=[{"role": "user", "content": prompt}],
        max_tokens=max_tokens,
        num_draft_tokens=num_draft_tokens,
        task=task,
        return_perf_metrics=True,
    )


def table(comparisons: Sequence[Comparison]) -> str:
    """Return a table with a row for each task and one for all tasks together."""
    tasks = list(dict.fromkeys(comparison.task for comparison in comparisons))
    groups = [(task, [item for item in comparisons if item.task == task]) for task in tasks]
    rows = [_row(*group) for group in [*groups, ("all", list(comparisons))]]
    return markdown_table(HEADER, rows)


def _row(task: str, group: Sequence[Comparison]) -> list[str]:
    off, on = rate(item.off.timed for item in group), rate(item.on.timed for item in group)
    num_identical = sum(item.is_identical for item in group)
    identical = "yes" if num_identical == len(group) else f"NO ({num_identical}/{len(group)})"
    speed_up = f"{on / off:.2f}" if off else "-"
    return [task, f"{off:.1f}", f"{on:.1f}", speed_up, _acceptance(group), identical]


def _acceptance(group: Sequence[Comparison]) -> str:
    """Return accepted ÷ drafted tokens of the group, or a dash if nothing was drafted."""
    finals = [item.on.result.end for item in group]
    num_drafted = sum(final.total_draft_tokens or 0 for final in finals)
    num_accepted = sum(final.total_accepted_draft_tokens or 0 for final in finals)
    return f"{num_accepted / num_drafted:.0%}" if num_drafted else "-"


def _line(number: int, total: int, item: Comparison) -> str:
    off, on = rate([item.off.timed]), rate([item.on.timed])
    verdict = "identical" if item.is_identical else "DIFFERENT"
    start = " ".join(item.on.result.text.split())[:48]
    return (
        f"[{number:>2}/{total}] {item.task:<9} {off:6.1f} → {on:6.1f} tokens/s, {verdict}: {start}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m specdec.loadtest.demo", description=__doc__)
    parser.add_argument(
        "--model-repository",
        type=Path,
        default=default_model_repository(),
        metavar="PATH",
        help="Triton models to serve (default: %(default)s)",
    )
    parser.add_argument("--grpc-url", metavar="HOST:PORT", help="use a server that runs already")
    parser.add_argument(
        "--max-tokens",
        type=positive,
        default=96,
        metavar="N",
        help="longest answer, in tokens (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
