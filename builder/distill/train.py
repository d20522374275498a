"""Training of a draft of any kind: AdamW or Muon, warm-up, cosine; the best state is kept."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from builder.distill import curves, data, measure
from builder.distill.arithmetic import autocast
from builder.distill.data import Example
from builder.distill.seeding import seeded

NUM_CHECKED = 96
"""Most held-out answers that an evaluation looks at."""


@dataclass(frozen=True)
class TrainSettings:
    """Settings of a training run.

    `minutes` ends a run early: the learning rate follows steps or minutes, whichever is further on.
    """

    draft_vocab: int = 8192
    train_head: bool = False
    loss: str = "kl"
    optimizer: str = "muon"
    learning_rate: float = 1e-3
    """Peak rate of AdamW, output rows excepted."""
    matrix_learning_rate: float = 1e-2
    """Peak rate of Muon."""
    head_learning_rate: float = 3e-4
    """Peak rate of the output rows."""
    weight_decay: float = 0.05
    warmup_share: float = 0.05
    """Share of the run in which the rate rises."""
    final_share: float = 0.05
    """Share of the peak rate at the end of the run."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    batch_tokens: int = 4096
    """Tokens in a step, prompts and answers together."""
    epochs: int = 3
    minutes: float = 1e9
    eval_every: int = 40
    """Steps between two evaluations."""
    num_draft: int = 4
    """Draft tokens in a round of the evaluation."""
    seed: int = 20


@dataclass(frozen=True)
class HeldOut:
    """Held-out figures: top-1 agreement of the first draft token, greedy acceptance of rounds."""

    agreement: float
    acceptance: measure.Acceptance


class Learner(Protocol):
    """A draft of one kind in training: its loss and its evaluation."""

    @property
    def module(self) -> nn.Module:
        """The module that is trained."""

    def loss(self, group: Sequence[Example]) -> Tensor:
        """Return the loss of one batch, a scalar; called under autocast."""

    def evaluate(self, held: Sequence[Example], num_draft: int) -> HeldOut:
        """Return agreement and acceptance of greedy drafts on greedy answers."""


def optimizers(module: nn.Module, settings: TrainSettings) -> list[torch.optim.Optimizer]:
    """Return AdamW for everything, or Muon for matrices and AdamW for output heads and scales.

    Raises ValueError for an unknown name, and RuntimeError if this PyTorch has no Muon.
    """
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    head = [p for name, p in named if "lm_head" in name]
    matrices = [p for name, p in named if p.dim() == 2 and "lm_head" not in name]
    scales = [p for _, p in named if p.dim() == 1]
    decay, rate = settings.weight_decay, settings.learning_rate
    groups = [{"params": scales, "weight_decay": 0.0, "lr": rate}]
    if head:
        groups.append({"params": head, "weight_decay": 0.0, "lr": settings.head_learning_rate})
    if settings.optimizer == "adamw":
        groups.append({"params": matrices, "weight_decay": decay, "lr": rate})
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.95), lr=rate)
    if settings.optimizer == "adamw":
        return [adam]
    if settings.optimizer == "muon":
        if not hasattr(torch.optim, "Muon"):
            raise RuntimeError(
                f"optimizer muon needs PyTorch 2.9 or later, given: {torch.__version__}"
            )
        muon = torch.optim.Muon(
            matrices, lr=settings.matrix_learning_rate, weight_decay=decay, momentum=0.95
        )
        return [muon, adam]
    raise ValueError(f"optimizer must be adamw or muon, not {settings.optimizer!r}")


def schedule(progress: float, settings: TrainSettings) -> float:
    """Return the share of the peak learning rate at progress 0 to 1: linear warm-up, cosine."""
    if progress < settings.warmup_share:
        return (progress + 1e-3) / (settings.warmup_share + 1e-3)
    done = min(1.0, (progress - settings.warmup_share) / (1 - settings.warmup_share))
    floor = settings.final_share
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))


def inherited(module: Any, *, train_head: bool) -> dict[str, Any]:
    """Return the settings that a draft of --start decides itself.

    With `train_head`, its output rows are trained from now on, even if they were the target's.
    """
    if train_head:
        module.lm_head.weight.requires_grad_(True)
    is_trained = module.lm_head.weight.requires_grad
    return {"draft_vocab": len(module.draft_ids), "train_head": is_trained}


def draft_vocabulary(
    examples: list[Example], target_dir: Path, out: Path, num: int, known: Learner | None
) -> Tensor:
    """Return the draft ids of a run, and write them to `out`.

    They are those of `known`, else those of the run that is resumed, else the `num` tokens that the
    answers need most.
    """
    config = json.loads((target_dir / "config.json").read_text())
    end, vocab_size = [int(config["eos_token_id"])], int(config["vocab_size"])
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "draft_ids.json"
    if known is not None:
        ids = torch.as_tensor(known.module.draft_ids)
    elif kept.exists():
        ids = torch.tensor(json.loads(kept.read_text()))
    else:
        ids = data.choose_vocabulary(examples, vocab_size, num, end)
    kept.write_text(json.dumps(ids.tolist()))
    coverage = data.coverage(examples, ids, vocab_size)
    print(f"train: the draft vocabulary covers {coverage:.4f} of the answers")
    return ids


def load_best(run: Path) -> tuple[dict[str, Any], Tensor, dict[str, object]]:
    """Return the best state of a run, its draft ids, and notes for a config.json."""
    state = torch.load(run / "best.pt", map_location="cpu", weights_only=True)
    draft_ids = torch.tensor(json.loads((run / "draft_ids.json").read_text()))
    minutes = state["spent_s"] / 60
    notes = {"training": state["settings"], "steps": state["step"], "train_minutes": minutes}
    return state["student"], draft_ids, notes


def device() -> torch.device:
    """Return CUDA if there is such a device, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Trainer:
    """One run: its draft, optimizers and step, saved and resumed as a whole."""

    def __init__(
        self, learner: Learner, train_set: list[Example], held: list[Example], out: Path,
        settings: TrainSettings, read: Callable[[list[Example]], list[Example]] = list,
    ) -> None:  # fmt: skip
        """Prepare a run that writes to `out`.

        `read` gives examples the teacher's probabilities and states, where they were not kept.
        """
        self.learner, self.train_set, self.out, self.read = learner, train_set, out, read
        checked = data.batches(held[:NUM_CHECKED], settings.batch_tokens, None)
        self.held = [example for group in checked for example in read(group)]
        self.settings = settings
        self.device = device()
        out.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(settings.seed)
        self.optimizers = optimizers(learner.module, settings)
        self.rates = [[g["lr"] for g in o.param_groups] for o in self.optimizers]
        self.step, self.spent_s, self.best = 0, 0.0, 0.0
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

    def save(self, name: str, with_optimizers: bool) -> None:
        """Write weights (and optimizer state) to out/name."""
        state = {"student": self.learner.module.state_dict(), "step": self.step, "best": self.best}
        state["settings"], state["spent_s"] = asdict(self.settings), self.spent_s
        state["curve"] = self.curve
        if with_optimizers:
            state["optimizers"] = [o.state_dict() for o in self.optimizers]
        torch.save(state, self.out / f"{name}.partial")
        (self.out / f"{name}.partial").rename(self.out / name)

    def resume(self) -> None:
        """Continue from out/last.pt if there is one."""
        path = self.out / "last.pt"
        if path.exists():
            state = torch.load(path, map_location=self.device, weights_only=True)
            self.learner.module.load_state_dict(state["student"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            self.step, self.best = state["step"], state["best"]
            self.spent_s, self.curve = state["spent_s"], state["curve"]

    def check(self, recent: list[float], trained: int) -> None:
        """Evaluate, print one line, save the state, and keep it as the best if tau has risen."""
        module = self.learner.module.eval()
        with torch.inference_mode(), autocast(self.device):
            figures = self.learner.evaluate(self.held, self.settings.num_draft)
        module.train()
        tau, value = figures.acceptance.tau, sum(recent) / max(len(recent), 1)
        print(
            f"train: step {self.step}, {self.spent_s / 60:.1f} min, loss {value:.3f}, agreement "
            f"{figures.agreement:.4f}, tau {tau:.3f}, alpha {figures.acceptance.alpha:.3f}, "
            f"{trained / max(self.spent_s, 1e-9):.0f} tokens/s",
            flush=True,
        )
        self.curve.append(
            {"step": self.step, "loss": value, "agreement": figures.agreement, "tau": tau}
        )
        if tau > self.best:
            self.best = tau
            self.save("best.pt", with_optimizers=False)
        self.save("last.pt", with_optimizers=True)

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
                now = time.monotonic()
                self.spent_s, clock = self.spent_s + now - clock, now
                if self.step % settings.eval_every == 0:
                    self.check(recent, trained)
                    clock = time.monotonic()
        self.check(recent, trained)
        curves.draw(self.curve, self.out)
