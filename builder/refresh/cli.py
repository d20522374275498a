"""`specdec build refresh`: prompts, answers, training, judgement, swap."""

from __future__ import annotations

import argparse
import fcntl
import json
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from transformers import AutoTokenizer

from builder.assembly import directory_sha256
from builder.distill import answers, data, evaluate, prompts
from builder.distill.answers import AnswerSettings
from builder.errors import BuildError
from builder.fingerprint import fingerprint
from builder.refresh import gathering, learning, swapping
from builder.refresh.learning import Outcome
from builder.refresh.trial import TrialSettings, Verdict
from builder.refresh.triton import Counters, Server
from specdec.serving.versions import CHECKPOINT, served_version

EXIT_FAILED, EXIT_FELL, EXIT_ROLLED_BACK = 1, 3, 4
MIN_BASELINE_ROUNDS = 200
"""So many rounds since the command began make what is asked now the measure, not what was asked
since the server started."""


@dataclass(frozen=True, slots=True)
class Places:
    """The models of a repository, as they are served when the command starts."""

    draft: Path
    """The model's folder."""
    served: Path
    """The draft's checkpoint."""
    target: Path
    """The target's checkpoint."""

    @classmethod
    def of(cls, repository: Path, draft: str, target: str) -> Places:
        """Raises BuildError for models without a checkpoint."""
        found = []
        for name in (draft, target):
            version = served_version(repository / name)
            if version is None or not (version / CHECKPOINT / "config.json").is_file():
                raise BuildError(f"{repository / name} has no version with a checkpoint")
            found.append(version / CHECKPOINT)
        return cls(repository / draft, *found)


class Refresh:
    """One run over one work folder."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Raises BuildError for settings that cannot be."""
        self.options = options
        self.trial = TrialSettings(options.trial_rounds, options.trial_minutes, options.max_drop)
        self.servers = [
            Server(url, metrics)
            for url, metrics in zip(
                options.server, [options.metrics, *[""] * len(options.server)], strict=False
            )
        ]
        self.current: Path = options.work / "current"

    def run(self) -> int:
        """All steps; the exit status. Raises BuildError."""
        options = self.options
        self.undo_left_trial()
        places = Places.of(options.model_repository, options.draft, options.target)
        earlier = self.counters()
        self.begin(places)
        outcome = self.learn(places)
        print(evaluate.report({"before": outcome.before, "after": outcome.after}), flush=True)
        swapped = None
        if outcome.fell:
            said, status = "acceptance fell: the served draft stays", EXIT_FELL
        elif not outcome.num_steps:
            said, status = "training brought nothing: the served draft stays", 0
        elif not self.servers:
            said, status = "it waits there; --server URL swaps it in", 0
        else:
            swapped = self.swap(places, earlier)
            is_kept = swapped.trial.verdict is Verdict.KEEP
            said = f"{swapped.trial}; version {swapped.version} is served, {swapped.num_requests:.0f} requests after the swap"
            status = 0 if is_kept else EXIT_ROLLED_BACK
        self.finish(outcome, swapped, said)
        return status

    def undo_left_trial(self) -> None:
        """A run that was killed may have left a draft that nobody watches."""
        model = self.options.model_repository / self.options.draft
        version = swapping.left_on_trial(model)
        if version is not None:
            print(
                f"refresh: {version} was left on trial by a run that died; going back", flush=True
            )
            swapping.go_back(model, version, self.servers)

    def begin(self, places: Places) -> None:
        """A work folder for this target and this draft: an older one is resumed if it fits."""
        origin = json.dumps(
            {"target": fingerprint(places.target), "draft": directory_sha256(places.served)}
        )
        note = self.current / "origin.json"
        if note.exists() and note.read_text("utf-8") == origin:
            print(f"refresh: going on in {self.current}", flush=True)
            return
        shutil.rmtree(self.current, ignore_errors=True)
        self.current.mkdir(parents=True)
        note.write_text(origin, "utf-8")

    def learn(self, places: Places) -> Outcome:
        """Prompts, the target's answers, training; each kept where it was done before."""
        options, asked = self.options, self.current / "prompts.jsonl"
        if not asked.exists():
            tokenizer = AutoTokenizer.from_pretrained(places.target)
            found = (
                gathering.from_log(options.prompt_log, options.tenants, tokenizer)
                if options.prompt_log is not None
                else gathering.from_files(options.prompts)
            )
            some = gathering.chosen(found, options.max_prompts, options.seed)
            prompts.save(asked.with_suffix(".partial"), some)
            asked.with_suffix(".partial").rename(asked)
            print(f"refresh: {len(some)} prompts of {len(found)} different ones", flush=True)
        how = AnswerSettings(
            num_workers=options.num_workers,
            max_prompt=options.max_prompt,
            max_new=options.max_new,
            minutes=options.minutes,
            seed=options.seed,
        )
        answers.answer(places.target, asked, self.current / "answers", how)
        answered = learning.parted(data.read_shards(self.current / "answers"))
        return learning.learn(
            places.served,
            places.target,
            answered,
            self.current / "run",
            replace(learning.SETTINGS, minutes=options.minutes, seed=options.seed),
            self.current / "draft",
        )

    def swap(self, places: Places, earlier: Counters) -> swapping.Swap:
        """Put the new draft into the repository and serve it on trial."""
        now = self.counters()
        recent = now.since(earlier)
        before = recent if recent.num_rounds >= MIN_BASELINE_ROUNDS else now
        version = swapping.add_version(places.draft, self.current / "draft", self.options.rebuild)
        print(
            f"refresh: {places.draft.name} version {version.name} on trial, at most "
            f"{self.trial.num_rounds} rounds or {self.trial.max_minutes:g} minutes",
            flush=True,
        )
        return swapping.swap(places.draft, version, self.servers, before, self.trial)

    def counters(self) -> Counters:
        """Of the draft on the first server, which tries it."""
        return self.servers[0].counters(self.options.draft) if self.servers else Counters()

    def finish(self, outcome: Outcome, swapped: swapping.Swap | None, said: str) -> None:
        """Write report.json; the next run begins anew, this one's work is kept until it ends."""
        last = self.options.work / "last"
        figures = {
            name: {"tau": one.tau, "alpha": one.alpha, "num_rounds": one.num_rounds}
            for name, one in (("before", outcome.before), ("after", outcome.after))
        }
        report = {"said": said, "held_out": figures, "num_steps": outcome.num_steps}
        if swapped is not None:
            report["trial"] = swapping.summary(swapped)
        (self.current / "report.json").write_text(json.dumps(report, indent=2) + "\n", "utf-8")
        shutil.rmtree(last, ignore_errors=True)
        self.current.rename(last)
        print(f"refresh: {said} ({last})", flush=True)


def main(argv: list[str]) -> int:
    """0: refreshed, or no better; 3: acceptance fell; 4: rolled back; 1: it could not be done."""
    options = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)  # A job that is stopped rolls back too.
    try:
        with _alone(options.work):
            return Refresh(options).run()
    except BuildError as error:
        print(f"specdec build refresh: {error}", file=sys.stderr)
        return EXIT_FAILED


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Hold the work folder's lock. Raises BuildError if another run has it."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BuildError(f"another refresh works in {work}") from error
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec build refresh",
        description="Train the served draft on, against the target as it is now; report acceptance "
        "before and after on held-out prompts; swap it in and watch it; go back by itself.",
        epilog="Exit status: 0 refreshed or no better, 3 acceptance fell on the held-out prompts, "
        "4 rolled back, 1 it could not be done.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--prompts", type=Path, nargs="+", metavar="FILE", help='{"prompt": text} a line'
    )
    source.add_argument(
        "--prompt-log", type=Path, metavar="DIR", help="the server's prompt_log_dir"
    )
    parser.add_argument(
        "--tenants", nargs="+", default=[], metavar="NAME", help="of the log, these alone"
    )
    parser.add_argument("--work", type=Path, required=True, help="kept and resumed")
    parser.add_argument(
        "--model-repository", type=Path, default=Path("model_repository"), metavar="PATH"
    )
    parser.add_argument("--draft", default="draft", metavar="MODEL", help="default: %(default)s")
    parser.add_argument("--target", default="target", metavar="MODEL", help="default: %(default)s")
    parser.add_argument(
        "--max-prompts", type=int, default=2000, metavar="N", help="the newest ones"
    )
    parser.add_argument(
        "--max-prompt", type=int, default=1024, metavar="TOKENS", help="longer: out"
    )
    parser.add_argument("--max-new", type=int, default=192, metavar="TOKENS", help="of an answer")
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="limit of answering and of training, each"
    )
    parser.add_argument("--num-workers", type=int, default=2, help="processes that answer on a CPU")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument(
        "--server",
        nargs="+",
        default=[],
        metavar="URL",
        help="swap there; of several, the first tries the draft; none: train and report only",
    )
    parser.add_argument(
        "--metrics", default="", metavar="URL", help="of the first (default: its port 8002)"
    )
    trial = TrialSettings()
    parser.add_argument("--trial-rounds", type=int, default=trial.num_rounds, metavar="N")
    parser.add_argument("--trial-minutes", type=float, default=trial.max_minutes, metavar="N")
    parser.add_argument(
        "--max-drop",
        type=float,
        default=trial.max_drop,
        metavar="SHARE",
        help="of live acceptance that may be lost (default: %(default)s)",
    )
    parser.add_argument(
        "--rebuild",
        metavar="COMMAND",
        help="run in the new version's folder, to compile an engine from $SPECDEC_CHECKPOINT",
    )
    return parser
