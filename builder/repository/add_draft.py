"""`specdec build add-draft`: add a draft engine to a model repository."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from specdec.builder.checking.compatibility import check_pair, has_same_vocabulary
from specdec.builder.checkpoints.files import count_parameters, read_config
from specdec.builder.checkpoints.vocabulary import shared_vocabulary
from specdec.builder.config_file import CONFIG, ConfigFile
from specdec.builder.description.engine import TOKENS, TRANSLATIONS
from specdec.builder.errors import BuildError
from specdec.builder.repository.names import check_drafter_name
from specdec.builder.repository.options import add_repository_option
from specdec.builder.repository.restricting import restrict
from specdec.builder.repository.weights import WEIGHTS

PATTERN = "draft"
"""Model whose config.pbtxt and model.py are copied for a new draft."""
DRAFTS = "tensorrt_llm_draft_model_name"
"""Parameter of the orchestrator with the names of its draft models."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `add-draft` to the parser."""
    parser.add_argument("name", help="the new model's name, by which requests choose it as drafter")
    parser.add_argument("checkpoint", type=Path, help="Hugging Face directory of a Llama model")
    parser.add_argument(
        "--translation",
        choices=TRANSLATIONS,
        help="for a draft with another vocabulary: translate its text, or let it propose only the "
        "tokens that both models have (default: chosen by how many these are)",
    )
    add_repository_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Add the draft and return 0. Raises BuildError if that fails."""
    vocabulary = add_draft(
        arguments.model_repository,
        arguments.name,
        arguments.checkpoint,
        translation=arguments.translation,
    )
    print(f"{arguments.name}: {vocabulary}")
    return 0


def add_draft(
    repository: Path,
    name: str,
    checkpoint: Path,
    *,
    translation: str | None = None,
    pattern: Path | None = None,
) -> str:
    """Add the draft engine `name` to `repository`; return a sentence about its vocabulary.

    `translation` (one of TRANSLATIONS) overrides how the tokens of a cross-vocabulary draft are
    translated. `pattern` is the folder of the model whose configuration is copied, by default the
    repository's `draft`. A failed check leaves the repository unchanged. Raises BuildError for a
    name that is reserved, invalid or taken, a checkpoint that is incomplete or cannot draft for
    the target, a needless translation, or a missing pattern.
    """
    target, model = repository / "target" / WEIGHTS, repository / name
    check_drafter_name("a draft", name)
    if model.exists():
        raise BuildError(f"{model} exists; choose another name")
    orchestrator = ConfigFile.read(repository / "specdec").with_item(DRAFTS, name)
    # Written beside the repository: a server that watches it must not see half a model.
    with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=repository.parent) as scratch:
        new = Path(scratch) / name
        _write_model(pattern or repository / PATTERN, name, checkpoint, new)
        if has_same_vocabulary(target, checkpoint):
            _check_translation(translation, checkpoint)
            check_pair(target, checkpoint)
            _check_context(orchestrator.parameters(), checkpoint)
            shutil.copytree(checkpoint, new / WEIGHTS)
            vocabulary = "the target's vocabulary"
        else:
            vocabulary = _write_translated(target, checkpoint, translation, new / WEIGHTS)
            tokenizer_dir = f"{name}=../../{name}/{WEIGHTS}"
            orchestrator = orchestrator.with_item("draft_tokenizer_dirs", tokenizer_dir)
        new.rename(model)
    orchestrator.write(repository / "specdec")
    return vocabulary


def _check_translation(translation: str | None, checkpoint: Path) -> None:
    if translation is not None:
        raise BuildError(
            f"{checkpoint} has the target's vocabulary, so nothing is translated: leave "
            "--translation out"
        )


def _write_translated(target: Path, checkpoint: Path, translation: str | None, output: Path) -> str:
    """Write the weights of a cross-vocabulary draft; return a sentence about its vocabulary.

    Raises BuildError for a checkpoint that is incomplete or has a reduced output vocabulary.
    """
    count_parameters(checkpoint)  # Raises BuildError if weights are missing or cut off.
    shared = shared_vocabulary(target, checkpoint)
    chosen = translation or shared.translation
    if chosen == TOKENS:
        restrict(checkpoint, shared, output)
    else:
        shutil.copytree(checkpoint, output)
    return (
        f"another vocabulary: {shared.num_shared} of its {len(shared.target_ids)} tokens are among "
        f"the target's {shared.num_target}; drafts are translated by {chosen}"
    )


def _check_context(parameters: Mapping[str, str], checkpoint: Path) -> None:
    """Raise BuildError if the draft cannot read contexts of `max_seq_len` tokens.

    Only drafts with the target's vocabulary are checked: for others the context is cut to fit.
    """
    limit = parameters.get("max_seq_len", "")
    positions = read_config(checkpoint).get("max_position_embeddings")
    if limit.isdecimal() and positions is not None and positions < int(limit):
        raise BuildError(
            f"the draft reads {positions} tokens, requests may have {limit} (max_seq_len in "
            "specdec/config.pbtxt)"
        )


def _write_model(pattern: Path, name: str, checkpoint: Path, new: Path) -> None:
    """Copy config.pbtxt and model.py of `pattern`, with the draft's name and its max_seq_len."""
    if not (pattern / CONFIG).is_file():
        raise BuildError(
            f"{pattern.parent} has no model {PATTERN!r} to take the configuration from"
        )
    config = ConfigFile.read(pattern).with_name(name)
    limit = config.parameters().get("max_seq_len", "")
    positions = read_config(checkpoint).get("max_position_embeddings")
    if limit.isdecimal() and positions is not None:
        config = config.with_parameters(max_seq_len=str(min(int(limit), positions)))
    (new / WEIGHTS).parent.mkdir(parents=True)
    shutil.copyfile(pattern / "1" / "model.py", new / "1" / "model.py")
    config.write(new)
