"""Tests of hashes of targets and drafts, and of the watch for stale and replaced drafts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specdec.builder.errors import BuildError
from specdec.builder.fingerprint import fingerprint
from specdec.builder.repository.pair_weights import load_pair
from specdec.deployment.freshness import (
    FreshnessWatch,
    StaleDrafter,
    fingerprint_of,
    trained_on,
    weights_of,
    write_fingerprint,
    write_trained_on,
)
from specdec.deployment.versions import served_version, versions
from tests.unit.tiny_llama import save_tiny_llama

TARGET = Path(__file__).parents[3] / "model_repository" / "target" / "1" / "checkpoint"


@pytest.fixture
def target(tmp_path):
    """Return the folder of a tiny checkpoint."""
    return save_tiny_llama(tmp_path / "target")


def rewrite(folder, change):
    """Save the tensors of a checkpoint again after `change` has changed them in place."""
    file = next(folder.glob("*.safetensors"))
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


def test_hash_does_not_depend_on_how_the_checkpoint_was_written(target):
    """Other files, other metadata and another Transformers' config give the same hash."""
    before = fingerprint(target)
    tensors = load_file(target / "model.safetensors")
    names = sorted(tensors)
    (target / "model.safetensors").unlink()
    for number, some in enumerate((names[3:], names[:3])):
        save_file({name: tensors[name] for name in some}, target / f"part-{number}.safetensors")
    config = json.loads((target / "config.json").read_text())
    theta = int(config.pop("rope_theta"))
    config["rope_parameters"] = {"rope_theta": theta, "rope_type": "default"}
    (target / "config.json").write_text(json.dumps(config | {"transformers_version": "9"}))

    assert fingerprint(target) == before


def test_drafts_are_told_apart_by_their_files_not_by_their_folder(tmp_path, target):
    """A copy is the same draft. Retrained weights or a newly compiled engine make another draft."""
    paths = [tmp_path / name / "checkpoint" for name in ("copied", "trained", "compiled")]
    for path in paths:
        shutil.copytree(target, path)
    rewrite(paths[1], lambda tensors: tensors["model.norm.weight"].add_(1))
    (paths[2].parent / "engine").mkdir()
    (paths[2].parent / "engine" / "rank0.engine").write_bytes(b"compiled")
    first = target.rename(tmp_path / "checkpoint")

    copied, trained, compiled = map(weights_of, paths)
    assert copied == weights_of(first)
    assert len({copied, trained, compiled, weights_of(tmp_path / "nowhere")}) == 4


def test_hash_changes_with_any_change_of_the_model(target):
    """One bit of one weight changes it, and so does one setting of the arithmetic."""
    seen = {fingerprint(target)}

    def flip(tensors):
        name = min(tensors)
        tensors[name].view(torch.uint8).view(-1)[0] ^= 1

    rewrite(target, flip)
    seen.add(fingerprint(target))
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-4}))
    seen.add(fingerprint(target))

    assert len(seen) == 3


def test_folder_without_weights_has_no_hash(tmp_path):
    """A folder without safetensors is an error that says so."""
    with pytest.raises(BuildError, match="no safetensors"):
        fingerprint(tmp_path)


def test_default_pair_was_trained_on_its_target():
    """The stored draft and head record the hash of the target that `specdec build pair` writes."""
    pair = load_pair()

    assert fingerprint(TARGET) == fingerprint_of(TARGET)
    assert trained_on(pair.draft.directory) == fingerprint_of(TARGET)
    assert trained_on(pair.head.directory) == fingerprint_of(TARGET)


def test_highest_version_is_served(tmp_path):
    """Versions compare by number, as with `version_policy: latest`; other folders are ignored."""
    for name in ("1", "2", "10", "09", "incoming", "3.tmp"):
        (tmp_path / name).mkdir()

    assert [each.name for each in versions(tmp_path)] == ["1", "2", "10"]
    assert served_version(tmp_path).name == "10"
    assert served_version(tmp_path / "nowhere") is None


def test_watch_reports_stale_drafts_and_their_replacement(tmp_path):
    """Each draft with a record is reported once, and again when its replacement fits the target."""
    paths = {name: tmp_path / name for name in ("target", "draft", "head", "unrecorded")}
    for path in paths.values():
        path.mkdir()
    write_fingerprint(paths["target"], "aa")
    write_trained_on(paths["draft"], "bb")
    write_trained_on(paths["head"], "aa")
    heard = []
    drafters = {name: paths[name] for name in ("draft", "head", "unrecorded")}

    watch = FreshnessWatch(
        lambda: (paths["target"], drafters),
        lambda *event: heard.append(event),
        lambda drafter: pytest.fail(f"nobody has swapped {drafter}"),
        period_s=3600,
    )
    write_trained_on(paths["draft"], "aa")
    watch._look()
    watch._look()
    watch.close()

    stale = StaleDrafter("draft", "bb", "aa")
    assert heard == [("draft", stale), ("head", None), ("draft", None)]
    assert "specdec build refresh" in str(stale)


def test_without_a_hash_of_the_target_no_draft_is_reported(tmp_path):
    """Pairs from before hashes were recorded are served without a report."""
    write_trained_on(tmp_path, "bb")
    heard: list[object] = []

    watch = FreshnessWatch(
        lambda: (Path(tmp_path), {"draft": tmp_path}),
        lambda *event: heard.append(event),
        heard.append,
    )
    watch.close()

    assert heard == []


def test_swapped_draft_is_reported_once(tmp_path):
    """A draft without a record counts too: another version is another draft."""
    heard: list[str] = []
    draft, head = tmp_path / "draft", tmp_path / "target" / "1" / "head"
    (draft / "1").mkdir(parents=True)
    watch = FreshnessWatch(
        lambda: (tmp_path, {"draft": served_version(draft) or draft, "head": head}),
        lambda *event: pytest.fail(f"nothing is recorded of {event}"),
        heard.append,
        period_s=3600,
    )

    (draft / "2").mkdir()
    watch._look()
    watch._look()
    assert heard == ["draft"]
    (draft / "2").rmdir()  # The operator goes back to version 1.
    watch._look()
    watch.close()

    assert heard == ["draft", "draft"]
