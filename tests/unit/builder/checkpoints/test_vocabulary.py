"""Cross-vocabulary drafts: the tokens that two models share, and drafts restricted to them."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from specdec.builder.checkpoints.vocabulary import shared_vocabulary
from specdec.builder.importing.llama2c import import_llama2c
from specdec.builder.repository.restricting import restrict
from specdec.serving.drafters.cross_vocabulary import CrossVocabularyDraft
from specdec.torch_engine.model import LlamaModel, Segment
from tests.unit.builder.tokenizer_files import PIECES, write_byte_level, write_llama2c
from tests.unit.tiny_llama import VOCAB, save_tiny_llama


def test_tokens_with_equal_bytes_are_shared(tmp_path):
    """Each tokenizer may write a space in its own way; special tokens are never shared."""
    write_llama2c(tmp_path / "bundle", PIECES)
    (tmp_path / "draft").mkdir()
    import_llama2c(tmp_path / "bundle", tmp_path / "draft")
    target = write_byte_level(tmp_path / "target", ["a", "Ġab", "xyz", "Ã", "Ġ"])

    shared = shared_vocabulary(target, tmp_path / "draft")

    ids = {piece: number for number, piece in enumerate(PIECES)}
    found = {number: int(own) for number, own in enumerate(shared.target_ids) if own >= 0}
    # Both have byte 0xC3. The draft has the letter and the space twice, as a byte and as a piece.
    assert found == {
        ids["a"]: 0,
        3 + ord("a"): 0,
        ids[" ab"]: 1,
        3 + 0xC3: 3,
        ids[" "]: 4,
        3 + ord(" "): 4,
    } | {len(PIECES) - 8: 4, len(PIECES) - 7: 0}
    assert (shared.num_target, shared.translation) == (6, "tokens")


def test_restricted_draft_proposes_only_shared_tokens(tmp_path):
    """Shared tokens and the end token keep their logits; all other tokens get minus infinity."""
    draft = save_tiny_llama(tmp_path / "draft", eos_token_id=9)
    letters = dict(zip(range(20, 40), "abcdefghijklmnopqrst", strict=True))
    write_byte_level(draft, [letters.get(number, f"Ġ{number}") for number in range(VOCAB - 1)])
    target = write_byte_level(tmp_path / "target", ["c", "a", "zz", "t"])
    shared = shared_vocabulary(target, draft)

    restrict(draft, shared, tmp_path / "restricted")

    mapped = {20: 1, 22: 0, 39: 3}
    assert {n: int(own) for n, own in enumerate(shared.target_ids) if own >= 0} == mapped
    text = np.arange(10, 20, dtype=np.int32)
    logits = [logits_after(each, text) for each in (draft, tmp_path / "restricted")]
    assert set(np.flatnonzero(np.isfinite(logits[1]))) == {9, *mapped}
    # Small logits keep the rounding error of bfloat16, which depends on the head's shape.
    assert logits[0][[9, *mapped]] == pytest.approx(logits[1][[9, *mapped]], abs=0.02)
    assert "lm_head.weight" in load_file(tmp_path / "restricted" / "model.safetensors")
    assert (
        CrossVocabularyDraft.load(tmp_path / "restricted").target_ids.tolist()
        == shared.target_ids.tolist()
    )
    assert CrossVocabularyDraft.load(draft).target_ids is None


def logits_after(checkpoint, text):
    """Return the logits [vocab] float32 of the token after `text`."""
    model = LlamaModel(checkpoint, 512, torch.device("cpu"))
    sequence = model.cache.acquire(text)
    return model.output_head.logits(model.run([Segment(sequence, text, 1)]))[0].numpy()
