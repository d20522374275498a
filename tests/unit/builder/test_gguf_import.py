"""Tests of the end token on import from GGUF: transformers must read the one in the file."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gguf import GGUFWriter

from builder.errors import BuildError
from builder.importing.gguf import _check_end


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a GGUF file without weights, with end token 2."""
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_eos_token_id(2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_the_files_own_end_token_is_taken(file: Path) -> None:
    """The import raises nothing if transformers and the file agree on the end token."""
    known: Any = SimpleNamespace(eos_token_id=2)

    _check_end(file, known)


def test_another_end_token_is_refused(file: Path) -> None:
    """transformers 5.17 takes <|im_start|> for the end of the default target's answers."""
    mistaken: Any = SimpleNamespace(eos_token_id=1)

    with pytest.raises(BuildError, match=r"end with token 2; transformers .* takes 1"):
        _check_end(file, mistaken)
