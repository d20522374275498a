"""The pair's weights in the form that a peer reads, converted once."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from specdec.builder.hashes import file_sha256
from specdec.builder.repository.weights import HEAD
from specdec.loadtest.kit.prompts import checkpoint_of
from specdec.loadtest.lab.peers.protocol import PeerError

WEIGHTS = "model.safetensors"


@dataclass(frozen=True, slots=True)
class PairPaths:
    """The paths of target and draft model for a peer, and of the target's head if there is one."""

    target: Path
    draft: Path
    head: Path | None = None


def plain_pair(model_repository: Path, cache: Path) -> PairPaths:
    """Return the paths of target and head, and of our draft model as a plain Llama directory.

    That directory is made in `cache` if it is not there.
    """
    repository = model_repository.resolve()
    target, draft = checkpoint_of(repository), checkpoint_of(repository, "draft")
    head = repository / "target" / HEAD
    plain = cache / f"draft-{_name_of(draft)}"
    if not (plain / WEIGHTS).is_file():
        _write_plain_draft(draft, plain)
    return PairPaths(target, plain, head if (head / "config.json").is_file() else None)


def openvino_pair(pair: PairPaths, python: Path, cache: Path) -> PairPaths:
    """Return target and draft model as OpenVINO IR with fp16 weights.

    Raises PeerError if the converter fails.
    """
    converted = []
    for name, source in (("target", pair.target), ("draft", pair.draft)):
        output = cache / f"{name}-{_name_of(source)}"
        if not (output / "openvino_model.xml").is_file():
            print(f"converting the {name} to OpenVINO", flush=True)
            _export_openvino(python, source, output)
        converted.append(output)
    return PairPaths(*converted)


def _name_of(checkpoint: Path) -> str:
    """Return a name that changes with the weights, so that new ones are converted again."""
    return file_sha256(checkpoint / WEIGHTS)[:12]


def _write_plain_draft(draft: Path, output: Path) -> None:
    """Copy `draft` with its reduced head [rows, hidden] as one over the whole vocabulary.

    Tokens without a row get zeros.
    """
    tensors = load_file(draft / WEIGHTS)
    config = json.loads((draft / "config.json").read_text("utf-8"))
    if config.pop("draft_vocab_size", None) is not None:
        rows = tensors["lm_head.weight"]
        head = torch.zeros(config["vocab_size"], rows.shape[1], dtype=rows.dtype)
        head[torch.arange(len(rows)) + tensors.pop("d2t")] = rows
        tensors["lm_head.weight"] = head
    ignored = shutil.ignore_patterns(WEIGHTS, "config.json")
    shutil.copytree(draft, output, ignore=ignored, dirs_exist_ok=True)
    (output / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    save_file(tensors, output / WEIGHTS, metadata={"format": "pt"})


def _export_openvino(python: Path, source: Path, output: Path) -> None:
    shutil.rmtree(output, ignore_errors=True)
    command = [str(python.parent / "optimum-cli"), "export", "openvino", "--model", str(source)]
    command += ["--task", "text-generation-with-past", "--weight-format", "fp16", str(output)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        shutil.rmtree(output, ignore_errors=True)
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise PeerError(f"optimum-cli ended with status {result.returncode}: {lines[-1:]}")
