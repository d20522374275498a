"""Continue the training of the pair's EAGLE-3 head and draft model on the target's answers.

It starts from the shipped weights. The commands are those of `specdec build distill` and `eagle3`,
run in this process. While one trains, a second thread stores its best weights once a minute, so
that the time limit costs a minute of training at most.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from specdec.builder import cli as build
from specdec.builder.distill import data, prompts
from specdec.builder.distill.arithmetic import work_dtype
from specdec.builder.distill.evaluate import Conversation
from specdec.builder.distill.training.run_state import BEST, LAST, RunState
from specdec.loadtest.gpu.folders import GpuFolders, home
from specdec.loadtest.gpu.step_report import StepOptions, StepReport, Verdict
from specdec.loadtest.gpu.training.bundle import FOLDER, Bundle, Contents, held_out_of
from specdec.loadtest.gpu.training.prompts import FILE, SEED
from specdec.loadtest.kit.prompts import checkpoint_of

ANSWERING_SHARE = 0.25
"""Share of the time for the target's answers.

Of the rest, the head gets twice as much as the draft model.
"""
LEAST_BOTH_S = 150.0
"""Seconds left below which only the head is trained."""
EXPORT_EVERY_S = 60.0
EXPORT_S = 15.0
"""Seconds kept for the last export of each kind."""
NUM_HELD_OUT = 96


class Training:
    """The work directory of one training, resumed from an earlier call's state."""

    def __init__(self, options: StepOptions, report: StepReport) -> None:
        folders = GpuFolders(home())
        self._options, self._report, self._folders = options, report, folders
        self._work = folders.root / "training_work"
        self._target = checkpoint_of(folders.model_repository)
        self._common = [
            *("--target", str(self._target), "--work", str(self._work)),
            *("--seed", str(SEED), "--num-top", "1"),
        ]
        self._bundle: Bundle | None = None
        self.taus: dict[str, list[float]] = {}

    def answer(self, seconds: float) -> None:
        """Have the target answer prompts for `seconds`; keep some held-out answers."""
        self._work.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self._folders.training / FILE, self._work / FILE)
        sizes = ["--num-slots", "2048", "--shard-answers", "1024", "--sort-span", "8192"]
        if self._options.is_rehearsal:
            sizes = ["--num-slots", "12", "--max-new", "20", "--max-prompt", "80"]
            sizes += ["--num-workers", "1"]
        minutes = ["--minutes", f"{seconds / 60:.3f}"]
        _build("distill", "answers", *self._common, *sizes, *minutes)
        examples = data.read_shards(self._work / "answers")
        self._report.add("num_answers", len(examples))
        self._report.add("num_answer_tokens", sum(len(each.answer) for each in examples))
        kinds = {each.index: each.kind for each in prompts.load(self._work / FILE)}
        # Held-out prompts have the lowest indices: the written prompts, which no run trains on.
        held = [
            Conversation(kinds[each.index], each.prompt.tolist(), each.answer.tolist())
            for each in data.split(examples)[1]
        ]
        contents = Contents(self._options.is_rehearsal, {}, held_out_of(held, NUM_HELD_OUT))
        self._bundle = Bundle(self._options.out.parent / FOLDER, contents)

    def train(self, kind: str, seconds: float) -> None:
        """Continue to train one kind, `draft` or `eagle3`, from its shipped weights for `seconds`.

        Its weights are exported every minute and at the end.
        """
        run, stored = f"run_{kind}", self._work / kind
        sizes = ["--batch-tokens", "16384", "--epochs", "20", "--eval-every", "50"]
        if self._options.is_rehearsal:
            sizes = ["--batch-tokens", "512", "--epochs", "1", "--eval-every", "2"]
            if work_dtype(torch.device("cpu")) != torch.bfloat16:
                sizes += ["--optimizer", "adamw"]  # Muon computes in bf16.
        sizes += ["--num-steps", "5", "--train-head"] if kind == "eagle3" else []
        common = [*self._common, "--run", run, "--draft", str(stored)]
        start = ["--start", str(self._folders.stored / kind)]
        with self._exported_meanwhile(kind, [*common, *sizes], stored):
            minutes = ["--minutes", f"{max(seconds - EXPORT_S, 5.0) / 60:.3f}"]
            self._command(kind, ["train", *common, *sizes, *start, *minutes])

    @contextlib.contextmanager
    def _exported_meanwhile(self, kind: str, options: list[str], stored: Path) -> Iterator[None]:
        """Export once a minute in a thread of its own, and once when the training has ended."""
        is_over = threading.Event()

        def export_on() -> None:
            while not is_over.wait(EXPORT_EVERY_S):
                try:
                    self._export(kind, options, stored)
                except Exception:  # noqa: BLE001  the training goes on, and the next minute may do
                    traceback.print_exc()

        thread = threading.Thread(target=export_on, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            self._export(kind, options, stored)

    def _export(self, kind: str, options: list[str], stored: Path) -> None:
        """Write the best weights so far to the files to bring back."""
        run = self._work / f"run_{kind}"
        if not (run / BEST).exists():
            return
        curve = RunState.load(run / LAST).curve
        self._report.add(f"curve_{kind}", curve)
        self.taus[kind] = [each["tau"] for each in curve]
        self._command(kind, ["export", *options])
        assert self._bundle is not None
        self._bundle.put(kind, stored)

    @staticmethod
    def _command(kind: str, arguments: list[str]) -> None:
        if kind == "draft":
            _build("distill", *arguments)
        else:
            _build(kind, *arguments, "--small")


def _build(*arguments: str) -> None:
    """Run `specdec build` with the arguments. Raises RuntimeError if that fails."""
    if status := build.main([*arguments]):
        raise RuntimeError(f"specdec build {shlex.join(arguments)} ended with status {status}")


def main(argv: list[str] | None = None) -> int:
    """Let the target answer prompts, then train the head and the draft model.

    Each export is part of the results.
    """
    options = StepOptions.parse(argv)
    report = StepReport(options.out)
    training = Training(options, report)
    start_s = time.monotonic()
    training.answer(3.0 if options.is_rehearsal else ANSWERING_SHARE * options.seconds)
    report.add("answering_s", time.monotonic() - start_s)
    head_share = 2 / 3 if options.remaining_s > LEAST_BOTH_S else 1.0
    if options.is_rehearsal:
        training.train("eagle3", 0.0)
        training.train("draft", 0.0)
    else:
        training.train("eagle3", head_share * options.remaining_s)
        if head_share < 1.0:
            training.train("draft", options.remaining_s)
    shown = [
        f"{kind} τ {taus[0]:.3f} → {max(taus):.3f} in {len(taus) - 1} checks"
        for kind, taus in training.taus.items()
    ]
    return report.finish(Verdict.PASSED, "held out: " + "; ".join(shown))


if __name__ == "__main__":
    sys.exit(main())
