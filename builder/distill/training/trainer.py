"""A training run of a draft of any kind; the best state is kept, and a killed run resumes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

from specdec.builder.distill import data
from specdec.builder.distill.arithmetic import autocast, training_device
from specdec.builder.distill.data import Example
from specdec.builder.distill.seeding import seeded
from specdec.builder.distill.training import curves
from specdec.builder.distill.training.learner import Learner, TrainSettings
from specdec.builder.distill.training.optimizers import optimizers, schedule
from specdec.builder.distill.training.run_state import BEST, LAST, RunState

NUM_CHECKED = 96
"""Most held-out answers in an evaluation."""


class Trainer:
    """A run: its draft, optimizers and step, saved and resumed as a whole."""

    def __init__(
        self, learner: Learner, train_set: list[Example], held: list[Example], out: Path,
        settings: TrainSettings, read: Callable[[list[Example]], list[Example]] = list,
    ) -> None:  # fmt: skip
        """Prepare a run that writes to `out`.

        `read` gives examples the target's probabilities and states, where they were not kept.
        """
        self.learner, self.train_set, self.out, self.read = learner, train_set, out, read
        checked = data.batches(held[:NUM_CHECKED], settings.batch_tokens, None)
        self.held = [example for group in checked for example in read(group)]
        self.settings = settings
        self.device = training_device()
        out.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(settings.seed)
        self.optimizers = optimizers(learner.module, settings)
        self.rates = [[g["lr"] for g in o.param_groups] for o in self.optimizers]
        self.step, self.spent_s, self.best_tau = 0, 0.0, 0.0
        self.curve: list[dict[str, float]] = []

    def update(self, group: list[Example], progress: float) -> float:
        """Take one optimizer step and return the loss."""
        for optimizer, rates in zip(self.optimizers, self.rates, strict=True):
            for param_group, rate in zip(optimizer.param_groups, rates, strict=True):
                param_group["lr"] = rate * schedule(progress, self.settings)
            optimizer.zero_grad(set_to_none=True)
        group = self.read(group)
        with autocast(self.device):
            value = self.learner.loss(group)
        value.backward()
        nn.utils.clip_grad_norm_(self.learner.module.parameters(), self.settings.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        return float(value.detach())

    def _state(self, *, with_optimizers: bool) -> RunState:
        return RunState(
            weights=self.learner.module.state_dict(),
            settings=asdict(self.settings),
            step=self.step,
            spent_s=self.spent_s,
            best_tau=self.best_tau,
            curve=self.curve,
            optimizers=[o.state_dict() for o in self.optimizers] if with_optimizers else None,
        )

    def resume(self) -> None:
        """Continue from the last state if there is one."""
        if not (self.out / LAST).exists():
            return
        state = RunState.load(self.out / LAST, self.device)
        self.learner.module.load_state_dict(state.weights)
        for optimizer, saved in zip(self.optimizers, state.optimizers or (), strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.spent_s = state.step, state.spent_s
        self.best_tau, self.curve = state.best_tau, state.curve

    def check(self, recent: list[float], trained: int) -> None:
        """Evaluate, print one line, save the state, and keep it as the best if tau has risen."""
        module = self.learner.module.eval()
        with torch.inference_mode(), autocast(self.device):
            figures = self.learner.evaluate(self.held, self.settings.num_draft)
        module.train()
        tau, value = figures.acceptance.tau, sum(recent) / max(len(recent), 1)
        tqdm.write(
            f"train: step {self.step}, {self.spent_s / 60:.1f} min, loss {value:.3f}, agreement "
            f"{figures.agreement:.4f}, tau {tau:.3f}, alpha {figures.acceptance.alpha:.3f}, "
            f"{trained / max(self.spent_s, 1e-9):.0f} tokens/s"
        )
        self.curve.append(
            {"step": self.step, "loss": value, "agreement": figures.agreement, "tau": tau}
        )
        if tau > self.best_tau:
            self.best_tau = tau
            self._state(with_optimizers=False).save(self.out / BEST)
        self._state(with_optimizers=True).save(self.out / LAST)

    def run(self, *, is_continued: bool = False) -> None:
        """Train to the end of the epochs or the minutes; end with an evaluation and plots.

        A draft that was trained before (`is_continued`) remains the best until another state is
        better.
        """
        settings = self.settings
        num_inputs = sum(len(e.prompt) + len(e.answer) for e in self.train_set)
        num_steps = max(1, settings.epochs * round(num_inputs / settings.batch_tokens))
        print(
            f"train: {len(self.train_set)} answers, "
            f"{sum(len(e.answer) for e in self.train_set)} answer tokens ({num_inputs} with "
            f"prompts), {len(self.held)} held out, {num_steps} steps",
            flush=True,
        )
        self.resume()
        if is_continued and not self.step:
            self.check([], 0)
        bar = tqdm(total=num_steps, initial=self.step, desc="train", unit="step", disable=None)
        recent: list[float] = []
        trained, clock = 0, time.monotonic()
        limit_s = settings.minutes * 60
        while self.step < num_steps and self.spent_s < limit_s:
            rng = seeded(f"{settings.seed}/{self.step}")
            for group in data.batches(self.train_set, settings.batch_tokens, rng):
                progress = max(self.step / num_steps, self.spent_s / limit_s)
                if progress >= 1:
                    break
                recent = [*recent[-49:], self.update(group, progress)]
                trained += sum(len(e.prompt) + len(e.answer) for e in group)
                self.step += 1
                bar.update()
                now = time.monotonic()
                self.spent_s, clock = self.spent_s + now - clock, now
                if self.step % settings.eval_every == 0:
                    self.check(recent, trained)
                    clock = time.monotonic()
        bar.close()
        self.check(recent, trained)
        curves.draw(self.curve, self.out)
