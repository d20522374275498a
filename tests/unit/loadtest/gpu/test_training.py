"""Training on a borrowed GPU: separate prompts, files of limited size, and only better weights."""

import hashlib
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from specdec.builder.distill import arithmetic, prompts
from specdec.builder.distill.evaluate import Conversation
from specdec.builder.distill.prompts import separation
from specdec.loadtest.gpu.training import bundle, keeping
from specdec.loadtest.gpu.training.bundle import Bundle, Contents, read_contents, restore
from specdec.loadtest.gpu.training.keeping import Comparison, compare, keep_better
from specdec.loadtest.gpu.training.prompts import FILE, NUM_FEW, prepare_prompts
from specdec.loadtest.kit.ratios import Ratio

HELD_OUT = (Conversation("short", [1, 2], [3] * 16),)


@pytest.fixture
def stored(tmp_path):
    """Return the stored form of a trained draft, in two files."""
    folder = tmp_path / "stored"
    folder.mkdir()
    for name in ("draft-1", "draft-2"):
        save_file({name: torch.ones(8)}, folder / f"{name}.safetensors")
    (folder / "config.json").write_text("{}")
    (folder / "trained_on.json").write_text('{"target": "x"}')
    (folder / "assembled.bin").write_text("not sent")
    return folder


@pytest.fixture
def returned(stored, tmp_path):
    """Return the folder of results from the GPU machine, with that draft."""
    Bundle(tmp_path / "returned", Contents(False, {}, HELD_OUT)).put("draft", stored)
    return tmp_path / "returned"


def hashes(folder):
    """Return the hash of every file, by name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def test_restoring_gives_the_files_that_were_put(returned, stored, tmp_path):
    """They are weights and small files; the held-out answers are there too."""
    restore(returned, "draft", tmp_path / "restored")

    wanted = hashes(stored)
    wanted.pop("assembled.bin")
    assert hashes(tmp_path / "restored") == wanted
    assert read_contents(returned).held_out == HELD_OUT
    assert len(list(returned.iterdir())) == 3


def test_weights_of_one_kind_leave_those_of_another_in_place(returned, tmp_path):
    """A head is put into a folder that holds a draft model already."""
    contents = read_contents(returned)
    later = tmp_path / "later"
    later.mkdir()
    save_file({"fc": torch.zeros(2)}, later / "model.safetensors")
    (later / "config.json").write_text('{"later": 1}')
    Bundle(returned, contents).put("eagle3", later)

    restore(returned, "eagle3", tmp_path / "head")
    assert load_file(tmp_path / "head" / "model.safetensors")["fc"].tolist() == [0, 0]
    assert set(read_contents(returned).small) == {"draft", "eagle3"}


def test_file_too_large_to_return_is_refused(stored, tmp_path, monkeypatch):
    """The error gives both sizes, and nothing is written."""
    monkeypatch.setattr(bundle, "MAX_FILE_BYTES", 50)

    with pytest.raises(ValueError, match="50 fit"):
        Bundle(tmp_path / "returned", Contents(False, {}, ())).put("draft", stored)
    assert not (tmp_path / "returned").exists()


@pytest.mark.parametrize(("low", "is_kept"), [(1.0, False), (1.01, True)])
def test_only_weights_that_are_better_beyond_doubt_replace_shipped_ones(
    returned, tmp_path, monkeypatch, low, is_kept
):
    """The whole interval of the gain must lie above 1; otherwise no byte changes."""
    shipped = tmp_path / "pair" / "draft"
    shipped.mkdir(parents=True)
    save_file({"old": torch.zeros(8)}, shipped / "draft-old.safetensors")
    (shipped / "README.md").write_text("card")
    before = hashes(shipped)
    found = Comparison("draft", 96, 2.0, 2.1, Ratio(1.05, low, 1.1))
    monkeypatch.setattr(keeping, "compare", lambda *_: found)

    assert keep_better(returned, tmp_path, tmp_path / "pair") == [found]

    after = hashes(shipped)
    assert (after != before) is is_kept
    assert after["README.md"] == before["README.md"]
    assert ("draft-old.safetensors" in after) is not is_kept


def test_rehearsal_is_never_kept(returned, tmp_path):
    """The few training steps of a rehearsal improve nothing."""
    contents = replace(read_contents(returned), is_rehearsal=True)
    Bundle(returned, contents).put("draft", returned)

    with pytest.raises(ValueError, match="rehearsal"):
        keep_better(returned, tmp_path, tmp_path)


def test_equal_weights_gain_nothing(monkeypatch, tmp_path):
    """With the same acceptance in every conversation the gain is exactly 1, which is not better."""
    monkeypatch.setattr(
        keeping,
        "_draft_acceptance",
        lambda *_: [keeping.Acceptance(4, (1, 2, 0, 0, n % 3)) for n in range(9)],
    )

    found = compare("draft", tmp_path, tmp_path, tmp_path, ())

    assert (found.gain.low, found.gain.middle, found.gain.high) == (1, 1, 1)
    assert not found.is_better
    assert "not kept" in str(found)


def test_training_prompts_share_nothing_with_measured_ones(tmp_path):
    """They share no run of words with the load tests' files, nor with a file of the user's."""
    prepare_prompts(tmp_path / "first", tmp_path, [], few=True)
    made = prompts.load(tmp_path / "first" / FILE)
    questions = tmp_path / "questions.jsonl"
    prompts.save(questions, [each for each in made if len(each.messages[0]["content"]) > 80][:3])
    prepare_prompts(tmp_path / "second", tmp_path, [questions], few=True)
    again = prompts.load(tmp_path / "second" / FILE)

    assert len(made) == len(again) == NUM_FEW
    trained = [each.messages[0]["content"] for each in again]
    measured = [text for path in separation.MEASURED.glob("*.jsonl") for text in texts(path)]
    assert not separation.shared(trained, measured + texts(questions))


def texts(path):
    """Return the texts of a file of prompts."""
    return separation.texts_of(path)


def test_cpu_without_bf16_products_computes_in_float32(monkeypatch):
    """A GPU keeps bfloat16 whatever the CPU supports."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)

    assert arithmetic.work_dtype(torch.device("cpu")) == torch.float32
    assert arithmetic.work_dtype(torch.device("cuda")) == torch.bfloat16
    with arithmetic.autocast(torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
