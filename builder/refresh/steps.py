"""The steps of a refresh: prompts, the target's answers, training, comparison and swap."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import AutoTokenizer

from specdec.builder.distill import data, evaluate, prompts
from specdec.builder.distill.answers.answering import AnswerSettings, answer
from specdec.builder.distill.trainable import DraftModel, TrainableDraft
from specdec.builder.distill.training.run_state import RunState
from specdec.builder.errors import BuildError
from specdec.builder.fingerprint import fingerprint
from specdec.builder.hashes import directory_sha256
from specdec.builder.heads.trainable import DraftHead
from specdec.builder.refresh import gathering, learning, swapping
from specdec.builder.refresh.learning import Outcome
from specdec.builder.refresh.trial import TrialSettings, Verdict
from specdec.builder.refresh.triton import Counters, Server
from specdec.deployment.versions import CHECKPOINT, served_version

EXIT_FELL, EXIT_ROLLED_BACK = 3, 4
MIN_BASELINE_ROUNDS = 200
"""Rounds of the old draft since the command began that suffice as the trial's baseline. With fewer,
all rounds since the server started are the baseline."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The draft to be refreshed and its target, as they are served when the command starts."""

    kind: TrainableDraft
    drafter: str
    """Name of the draft in the metrics: the draft model or the head."""
    model: Path
    """Folder of the Triton model that gets a new version: the draft, or the head's target."""
    served: Path
    """Folder with the weights of the draft or head."""
    target: Path
    """Folder with the target's checkpoint."""

    @classmethod
    def of(cls, options: argparse.Namespace) -> Subject:
        """Find draft and target that the options name. Raises BuildError without weights."""
        repository: Path = options.model_repository
        kind: TrainableDraft = DraftModel() if options.head is None else DraftHead()
        model = repository / (options.draft if options.head is None else options.target)
        return cls(
            kind,
            options.head or options.draft,
            model,
            _served(model, kind.folder),
            _served(repository / options.target, CHECKPOINT),
        )


def _served(model: Path, folder: str) -> Path:
    """Return `folder` of the model's served version. Raises BuildError if there is none."""
    version = served_version(model)
    if version is None or not (version / folder / "config.json").is_file():
        raise BuildError(f"{model} has no version with a {folder}")
    return version / folder


class Refresh:
    """A run of `specdec build refresh` in one work folder."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Check the options. Raises BuildError for impossible settings or a bad URL."""
        self.options = options
        self.trial = TrialSettings(options.trial_rounds, options.trial_minutes, options.max_drop)
        self.servers = [
            Server(url, metrics, options.admin_key_file)
            for url, metrics in zip(
                options.server, [options.metrics, *[""] * len(options.server)], strict=False
            )
        ]
        self.current: Path = options.work / "current"

    def run(self) -> int:
        """Run all steps and return the exit status. Raises BuildError if a step fails."""
        options = self.options
        self.undo_left_trial(Subject.of(options).model)
        subject = Subject.of(options)
        earlier = self.counters(subject)
        self.begin(subject)
        outcome = self.learn(subject)
        print(evaluate.report({"before": outcome.before, "after": outcome.after}), flush=True)
        swapped = None
        if outcome.fell:
            result, status = "acceptance fell: the served draft stays", EXIT_FELL
        elif not outcome.num_steps:
            result, status = "training gained nothing: the served draft stays", 0
        elif not self.servers:
            result, status = "the new draft was not served; --server URL does that", 0
        else:
            swapped = self.swap(subject, earlier)
            is_kept = swapped.trial.verdict is Verdict.KEEP
            result = (
                f"{swapped.trial}; version {swapped.version} is served, "
                f"{swapped.num_requests:.0f} requests after the swap"
            )
            status = 0 if is_kept else EXIT_ROLLED_BACK
        self.finish(outcome, swapped, result)
        return status

    def undo_left_trial(self, model: Path) -> None:
        """Remove a version that a killed run left on trial, because nothing watches it any more."""
        version = swapping.left_on_trial(model)
        if version is not None:
            print(
                f"refresh: an earlier run ended during its trial of {version}; rolling back",
                flush=True,
            )
            swapping.roll_back(model, version, self.servers)

    def begin(self, subject: Subject) -> None:
        """Prepare the work folder.

        It is emptied unless it was made for this target and draft, and by a release whose training
        runs this one can resume.
        """
        origin = json.dumps(
            {
                "target": fingerprint(subject.target),
                "draft": directory_sha256(subject.served),
                "run": RunState.keys(),
            }
        )
        note = self.current / "origin.json"
        if note.exists() and note.read_text("utf-8") == origin:
            print(f"refresh: resuming in {self.current}", flush=True)
            return
        shutil.rmtree(self.current, ignore_errors=True)
        self.current.mkdir(parents=True)
        note.write_text(origin, "utf-8")

    def learn(self, subject: Subject) -> Outcome:
        """Gather prompts, let the target answer, and train; steps that are done are skipped."""
        options, asked = self.options, self.current / "prompts.jsonl"
        if not asked.exists():
            tokenizer = AutoTokenizer.from_pretrained(subject.target)
            found = (
                gathering.from_log(options.prompt_log, options.tenants, tokenizer)
                if options.prompt_log is not None
                else gathering.from_files(options.prompts)
            )
            some = gathering.chosen(found, options.max_prompts, options.seed)
            prompts.save(asked.with_suffix(".partial"), some)
            asked.with_suffix(".partial").rename(asked)
            print(f"refresh: {len(some)} prompts of {len(found)} different ones", flush=True)
        settings = AnswerSettings(
            num_workers=options.num_workers,
            max_prompt=options.max_prompt,
            max_new=options.max_new,
            features=subject.kind.reads_states,
            minutes=options.minutes,
            seed=options.seed,
        )
        answer(subject.target, asked, self.current / "answers", settings)
        answered = learning.split(data.read_shards(self.current / "answers"))
        return learning.learn(
            subject.kind,
            subject.served,
            subject.target,
            answered,
            self.current / "run",
            replace(learning.SETTINGS, minutes=options.minutes, seed=options.seed),
            self.current / "draft",
        )

    def swap(self, subject: Subject, earlier: Counters) -> swapping.Swap:
        """Add the new draft to the repository and serve it on trial.

        `earlier` are the counters when the command began.
        """
        now = self.counters(subject)
        recent = now.since(earlier)
        before = recent if recent.num_rounds >= MIN_BASELINE_ROUNDS else now
        new, kind = self.current / "draft", subject.kind
        version = swapping.add_version(subject.model, new, self.options.rebuild, kind.folder)
        print(
            f"refresh: {subject.model.name} version {version.name} on trial, at most "
            f"{self.trial.num_rounds} rounds or {self.trial.max_minutes:g} minutes",
            flush=True,
        )
        drafter = subject.drafter
        return swapping.swap(subject.model, drafter, version, self.servers, before, self.trial)

    def counters(self, subject: Subject) -> Counters:
        """Return the drafter's counters on the first server, which runs the trial.

        Without a server all are 0.
        """
        return self.servers[0].counters(subject.drafter) if self.servers else Counters()

    def finish(self, outcome: Outcome, swapped: swapping.Swap | None, result: str) -> None:
        """Write report.json, and delete prompts and answers, which contain text of users.

        The new draft is kept in the folder `last` until the next run ends.
        """
        last = self.options.work / "last"
        figures = {
            name: {"tau": one.tau, "alpha": one.alpha, "num_rounds": one.num_rounds}
            for name, one in (("before", outcome.before), ("after", outcome.after))
        }
        report = {"result": result, "held_out": figures, "num_steps": outcome.num_steps}
        if swapped is not None:
            report["trial"] = swapping.summary(swapped)
        (self.current / "report.json").write_text(json.dumps(report, indent=2) + "\n", "utf-8")
        shutil.rmtree(last, ignore_errors=True)
        shutil.rmtree(self.current / "answers")
        (self.current / "prompts.jsonl").unlink()
        self.current.rename(last)
        print(f"refresh: {result} ({last})", flush=True)
