"""Options of training: `--start` and `--kinds`, which answers it uses, and `--smoke`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from specdec.builder import cli
from specdec.builder.distill import checkpoint
from specdec.builder.distill.answers.answering import AnswerSettings, feature_taps, save_shard
from specdec.builder.distill.answers.writer import Job, Written
from specdec.builder.distill.network import start_from_target
from specdec.builder.distill.options import add_training_options, settings_from
from specdec.builder.distill.prompts import Prompt, PromptSettings, save
from specdec.builder.distill.training.draft_model import DraftModelSettings
from specdec.builder.distill.training.run_state import LAST, RunState
from specdec.builder.heads import checkpoint as head_checkpoint
from specdec.builder.heads import eagle3, medusa
from tests.unit.tiny_llama import VOCAB, save_tiny_llama

pytestmark = pytest.mark.usefixtures("one_thread")

DRAFT_IDS = torch.arange(1, VOCAB, 3)
"""Tokens of the drafts' reduced vocabulary; not the likeliest ones in the answers below."""


def save_draft(target: Path, out: Path) -> None:
    """Store a draft model with one layer of the target, changed by noise."""
    draft = start_from_target(target, [2], DRAFT_IDS, train_head=False)
    moved(draft)
    checkpoint.store(draft, target, out, {})


def save_head(kind: str) -> Callable[[Path, Path], None]:
    """Return a function that stores a head of this kind, changed by noise."""

    def save(target: Path, out: Path) -> None:
        head = (
            eagle3.start(target, DRAFT_IDS, train_head=False)
            if kind == "eagle3"
            else medusa.start(target, DRAFT_IDS, 4, 2, train_head=True)
        )
        moved(head)
        notes = {"training": {"train_head": kind == "medusa"}}
        head_checkpoint.store(head, target, out, notes)
        head_checkpoint.shrink(out)

    return save


def moved(module: torch.nn.Module) -> None:
    """Add noise to all weights that are trained."""
    torch.manual_seed(2)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.requires_grad:
                weight.add_(0.1 * torch.randn_like(weight))


def write_answers(target: Path, folder: Path, hidden: int) -> None:
    """Write forty answers that count upwards, with random hidden states of size `hidden`."""
    folder.mkdir(parents=True)
    num_taps, written = len(feature_taps(target)), []
    for index in range(40):
        tokens = list(range(index, index + 12))
        ids = torch.tensor(tokens)[:, None]
        states = torch.randn(4 + 12 - 1, num_taps, hidden).bfloat16()
        job = Job(index, [3, 4, 5, 6], 0.0, 12)
        written.append(Written(job, tokens, ids, torch.zeros(12, 1), states))
    save_shard(folder / "w0-0000.safetensors", written)


def save_target(folder: Path) -> Path:
    """Save a target of eight layers, of which heads read three; return its folder."""
    return save_tiny_llama(
        folder, num_layers=8, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("store", "command", "small"),
    [
        pytest.param(save_draft, "distill", [], id="distill"),
        *(pytest.param(save_head(k), k, ["--small"], id=k) for k in ("eagle3", "medusa")),
    ],
)
def test_training_continues_from_the_stored_draft(store, command, small, tmp_path):
    """With a learning rate of 0 the same files come out, whatever shape the options ask for."""
    target, work = save_target(tmp_path / "target"), tmp_path / "work"
    store(target, tmp_path / "first")
    hidden = load_file(target / "model.safetensors")["model.embed_tokens.weight"].shape[1]
    write_answers(target, work / "answers", hidden)

    def ask(step: str, run: str, *more: str) -> None:
        argv = [command, step, "--target", str(target), "--work", str(work), "--run", run, *more]
        assert cli.main(argv) == 0

    def train(run: str, rate: str) -> dict[str, torch.Tensor]:
        options = [
            "--start",
            str(tmp_path / "first"),
            "--draft-vocab",
            "20",
            "--batch-tokens",
            "64",
        ]
        for name in ("learning-rate", "matrix-learning-rate", "head-learning-rate"):
            options += [f"--{name}", rate]
        ask("train", run, *options)
        return RunState.load(work / run / LAST).weights

    still, onward = train("still", "0"), train("onward", "0.05")
    ask("export", "still", "--draft", str(tmp_path / "again"), *small)

    first, again = (
        {path.name: load_file(path) for path in (tmp_path / name).glob("*.safetensors")}
        for name in ("first", "again")
    )
    assert first.keys() == again.keys()
    for name, tensors in first.items():
        assert tensors.keys() == again[name].keys()
        assert all(torch.equal(tensor, again[name][key]) for key, tensor in tensors.items())
    assert any(not torch.equal(tensor, onward[name]) for name, tensor in still.items())


@pytest.mark.parametrize(
    ("command", "own", "other"),
    [
        ("eagle3", "steps of the training-time test", "number of heads"),
        ("medusa", "number of heads", "steps of the training-time test"),
    ],
)
def test_help_describes_the_commands_own_steps(command, own, other, capsys):
    """The help of one kind of head says nothing of the other kind."""
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])

    text = " ".join(capsys.readouterr().out.split())
    assert own in text
    assert other not in text


def test_training_uses_only_answers_of_the_named_kinds(tmp_path, capsys):
    """A kind without answers, and a start that does not exist, are refused."""
    target, work = save_target(tmp_path / "target"), tmp_path / "work"
    write_answers(target, work / "answers", 1)
    save(work / "prompts.jsonl", [Prompt(i, ("sql", "math")[i % 4 > 0], []) for i in range(40)])
    argv = ["distill", "train", "--target", str(target), "--work", str(work)]
    argv += ["--epochs", "1", "--layers", "0"]

    assert cli.main([*argv, "--draft-vocab", "20", "--kinds", "sql"]) == 0
    assert "train: 8 answers" in capsys.readouterr().out
    assert cli.main([*argv, "--kinds", "cobol"]) == 1
    assert "no answer is of the kind cobol; known: math, sql" in capsys.readouterr().err
    assert cli.main([*argv, "--start", str(tmp_path / "nowhere")]) == 1
    assert "nowhere is not a draft of this kind" in capsys.readouterr().err


def test_smoke_settings_are_small_and_options_win() -> None:
    """With --smoke each setting has its small value, unless the option is given."""
    parser = argparse.ArgumentParser()
    add_training_options(parser, DraftModelSettings)
    common = ["all", "--target", "target", "--work", "work", "--num-second", "7"]
    full, smoke = (parser.parse_args([*common, *more]) for more in ([], ["--smoke"]))

    assert settings_from(PromptSettings, full) == PromptSettings(num_second=7)
    small = settings_from(PromptSettings, smoke)
    assert (small.num_second, small.num_math, small.num_long) == (7, 24, 0)
    assert settings_from(DraftModelSettings, smoke).layers == (0, 29)
    assert settings_from(AnswerSettings, smoke).max_new < AnswerSettings().max_new
