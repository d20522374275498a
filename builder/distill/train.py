"""Training: forward KL on stored teacher rows, AdamW or Muon, warm-up, cosine, best kept."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from builder.distill import data, loss, measure
from builder.distill.seeding import seeded
from builder.distill.student import Student, start_from_target

PAD_STEP = 256  # tokens


@dataclass(frozen=True)
class TrainSettings:
    """How the draft starts and learns.

    It starts as copies of the target's `layers`. `minutes` ends a run early: the schedule
    follows whichever of steps and minutes is further on.
    """

    layers: tuple[int, ...] = (0, 1, 29)
    draft_vocab: int = 8192
    train_head: bool = False
    optimizer: str = "muon"
    learning_rate: float = 1e-3
    matrix_learning_rate: float = 1e-2
    head_learning_rate: float = 3e-4
    weight_decay: float = 0.05
    warmup_share: float = 0.05
    final_share: float = 0.05
    clip: float = 1.0
    batch_tokens: int = 4096
    epochs: int = 3
    minutes: float = 1e9
    eval_every: int = 40
    num_draft: int = 4
    seed: int = 20


@dataclass(frozen=True)
class HeldOut:
    """Held-out figures: top-1 agreement and greedy acceptance over rounds."""

    agreement: float
    acceptance: measure.Acceptance


@torch.inference_mode()
def evaluate(student: Student, held: list[data.Example], num_draft: int) -> HeldOut:
    """Agreement of the draft's argmax with the target's greedy answers."""
    student.eval()
    device = student.embed.device
    parts, hits, num = [], 0, 0
    for group in data.batches(held, 4096, None):
        batch = data.collate(group, device)
        with torch.autocast(device.type, torch.bfloat16):
            best = student(batch.tokens, batch.lens, batch.rows).argmax(dim=1)
        match = student.draft_ids[best] == batch.answer
        hits, num = hits + int(match.sum()), num + len(match)
        by_answer = match.cpu().split([len(e.answer) for e in group])
        parts += [measure.rounds(one.tolist(), num_draft) for one in by_answer]
    student.train()
    return HeldOut(hits / max(num, 1), measure.total(parts, num_draft))


def optimizers(student: Student, settings: TrainSettings) -> list[torch.optim.Optimizer]:
    """AdamW for everything, or Muon for the layers' matrices and AdamW for the rest."""
    head = [p for p in student.lm_head.parameters() if p.requires_grad]
    matrices = [p for p in student.layers.parameters() if p.dim() == 2]
    scales = [p for p in student.parameters() if p.dim() == 1]
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
    """Share of the peak learning rate at progress 0 to 1: linear warm-up, cosine."""
    if progress < settings.warmup_share:
        return (progress + 1e-3) / (settings.warmup_share + 1e-3)
    done = min(1.0, (progress - settings.warmup_share) / (1 - settings.warmup_share))
    floor = settings.final_share
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))


def load_best(run: Path, target_dir: Path) -> tuple[Student, dict[str, object]]:
    """The best checkpoint of a run, and what its config.json should say about it."""
    state = torch.load(run / "best.pt", map_location="cpu", weights_only=True)
    settings = state["settings"]
    draft_ids = torch.tensor(json.loads((run / "draft_ids.json").read_text()))
    student = start_from_target(
        target_dir, list(settings["layers"]), draft_ids, settings["train_head"]
    )
    student.load_state_dict(state["student"])
    notes = {"training": settings, "steps": state["step"], "train_minutes": state["spent_s"] / 60}
    return student.eval(), notes


class Trainer:
    """One run: its student, optimizers and place in the data; saved and resumed as a whole."""

    def __init__(self, target_dir: Path, shards: Path, out: Path, settings: TrainSettings) -> None:
        self.settings, self.out, self.shards = settings, out, shards
        out.mkdir(parents=True, exist_ok=True)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(settings.seed)
        self.train_set, self.held = data.split(data.read_shards(shards))
        self.tokens = sum(len(e.answer) for e in self.train_set)
        config = json.loads((target_dir / "config.json").read_text())
        vocab_size = int(config["vocab_size"])
        draft_ids, self.coverage = data.choose_vocabulary(
            self.train_set, vocab_size, settings.draft_vocab, [int(config["eos_token_id"])]
        )
        vocabulary = out / "draft_ids.json"
        if vocabulary.exists():  # a resumed run keeps its vocabulary though data were added
            draft_ids = torch.tensor(json.loads(vocabulary.read_text()))
        vocabulary.write_text(json.dumps(draft_ids.tolist()))
        self.table = data.target_to_draft(draft_ids, vocab_size).to(self.device)
        self.student = start_from_target(
            target_dir, list(settings.layers), draft_ids, settings.train_head
        ).to(self.device)
        self.optimizers = optimizers(self.student, settings)
        self.rates = [[g["lr"] for g in o.param_groups] for o in self.optimizers]
        self.step, self.spent_s, self.best = 0, 0.0, 0.0

    def step_loss(self, group: list[data.Example]) -> Tensor:
        """Loss of one batch under bf16 autocast."""
        batch = data.collate(group, self.device, PAD_STEP)
        with torch.autocast(self.device.type, torch.bfloat16):
            logits = self.student(batch.tokens, batch.lens, batch.rows)
        rows = loss.soft_targets(batch.top_ids, batch.top_logprobs, self.table)
        return loss.distillation_loss(logits, *rows)

    def update(self, group: list[data.Example], progress: float) -> float:
        """One optimizer step; returns the loss."""
        for optimizer, rates in zip(self.optimizers, self.rates, strict=True):
            for param_group, rate in zip(optimizer.param_groups, rates, strict=True):
                param_group["lr"] = rate * schedule(progress, self.settings)
            optimizer.zero_grad(set_to_none=True)
        value = self.step_loss(group)
        value.backward()
        nn.utils.clip_grad_norm_(self.student.parameters(), self.settings.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        return float(value.detach())

    def save(self, name: str, with_optimizers: bool) -> None:
        """Write weights (and optimizer state) to out/name."""
        state = {"student": self.student.state_dict(), "step": self.step, "best": self.best}
        state["settings"], state["spent_s"] = asdict(self.settings), self.spent_s
        if with_optimizers:
            state["optimizers"] = [o.state_dict() for o in self.optimizers]
        torch.save(state, self.out / f"{name}.partial")
        (self.out / f"{name}.partial").rename(self.out / name)

    def resume(self) -> None:
        """Continue from out/last.pt where there is one."""
        path = self.out / "last.pt"
        if path.exists():
            state = torch.load(path, map_location=self.device, weights_only=True)
            self.student.load_state_dict(state["student"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            self.step, self.best = state["step"], state["best"]
            self.spent_s = state["spent_s"]

    def check(self, recent: list[float], trained: int) -> None:
        """Evaluate, print one line, keep the best."""
        figures = evaluate(self.student, self.held, self.settings.num_draft)
        tau = figures.acceptance.tau
        print(
            f"train: step {self.step}, {self.spent_s / 60:.1f} min, loss "
            f"{sum(recent) / max(len(recent), 1):.3f}, agreement {figures.agreement:.4f}, "
            f"tau {tau:.3f}, {trained / max(self.spent_s, 1e-9):.0f} tokens/s",
            flush=True,
        )
        if tau > self.best:
            self.best = tau
            self.save("best.pt", with_optimizers=False)
        self.save("last.pt", with_optimizers=True)

    def run(self) -> None:
        """Train to the end of the epochs or the minutes; the last line is an evaluation."""
        settings = self.settings
        input_tokens = sum(len(e.prompt) + len(e.answer) for e in self.train_set)
        num_steps = max(1, settings.epochs * round(input_tokens / settings.batch_tokens))
        print(
            f"train: {len(self.train_set)} answers, {self.tokens} answer tokens "
            f"({input_tokens} with prompts), {len(self.held)} held out, vocabulary coverage "
            f"{self.coverage:.4f}, {num_steps} steps",
            flush=True,
        )
        self.resume()
        recent: list[float] = []
        trained, clock = 0, time.monotonic()
        limit_s = settings.minutes * 60
        while self.step < num_steps and self.spent_s < limit_s:
            self.train_set, _ = data.split(data.read_shards(self.shards))  # more may be there
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
