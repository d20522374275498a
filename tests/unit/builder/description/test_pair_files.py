"""Tests of pair files: the keys that they may have, and the refusal of bad ones."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from specdec.builder import cli
from specdec.builder.checking import check_description
from specdec.builder.description import (
    EngineDescription,
    Gpu,
    Limits,
    Load,
    ModelShape,
    PairDescription,
    Placement,
    Precision,
    Runtime,
    SelfSpeculation,
    Speculation,
    known_pairs,
    load_description,
)
from specdec.builder.description.loading import GPUS_FILE, PAIRS_DIRECTORY, known_shape
from specdec.builder.description.reading import read_toml
from specdec.builder.errors import BuildError
from specdec.builder.repository.pair_weights import load_pair

MODELS = Path(__file__).parents[4] / "model_repository"
CHECKPOINTS = {name: MODELS / name / "1" / "checkpoint" for name in ("target", "draft")}

OWN = """
engine = "tensorrtllm"
gpu = { name = "Mine", memory_mib = 40000, compute_capability = 90 }
[target]
model = "Mine"
licence = "mine"
checkpoint = "weights"
placement = { devices = [0, 1, 2, 3], tensor_parallel = 2 }
[target.shape]
family = "mine"
num_layers = 2
hidden_size = 64
intermediate_size = 128
num_heads = 4
num_kv_heads = 2
head_dim = 16
num_tokens = 100
vocab_size = 101
max_position_embeddings = 512
[load]
num_sequences = 3
sequence_len = 100
[speculation]
[limits]
"""


def test_users_own_file_is_read(tmp_path):
    """Tables may replace names, and paths are relative to the file.

    Devices are divided among instances in order. Missing keys have defaults.
    """
    file = tmp_path / "mine.toml"
    file.write_text(OWN)

    pair = load_description(file)

    assert (pair.name, pair.gpu, pair.drafts) == ("mine", Gpu("Mine", 40000, 90), ())
    assert pair.target.checkpoint == tmp_path / "weights"
    assert pair.target.placement.instances == ((0, 1), (2, 3))
    assert pair.target.shape.padded_vocab_size(2) == 102
    assert (pair.limits, pair.runtime) == (Limits(), Runtime())


def test_every_key_is_described():
    """The pair files' README.md names each key that a file may have, and each shipped pair."""
    described = (PAIRS_DIRECTORY / "README.md").read_text("utf-8")
    known = set(re.findall(r"\w+", described))

    for kind in (
        *(PairDescription, EngineDescription, ModelShape, Placement, Precision, Limits, Load),
        *(Speculation, SelfSpeculation, Runtime, Gpu),
    ):
        assert {each.name for each in dataclasses.fields(kind)} <= known
    assert set(known_pairs()) <= known


def test_unknown_pair_lists_the_known_ones():
    """A pair that does not exist is refused with the names of those that do."""
    with pytest.raises(BuildError, match=r"no pair 'nonsense'; known: .*smollm2_135m"):
        load_description("nonsense")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", r"p\.toml is not TOML"),
        ('target = "x"', r"\[target\] must be a table; given 'x'"),
        ("drafts = 1\n[target]", "drafts must be a table; given 1|lacks 'model'"),
        (OWN.replace("num_layers = 2", "num_layers = true"), "num_layers must be a whole number"),
    ],
)
def test_malformed_file_is_refused_by_name_and_key(tmp_path, text, message):
    """The message names the file or the key that is wrong."""
    (tmp_path / "p.toml").write_text(text)

    with pytest.raises(BuildError, match=message):
        load_description(tmp_path / "p.toml")


def test_missing_file_is_named(tmp_path):
    """The message names a path that is a folder or does not exist."""
    with pytest.raises(BuildError, match=r"is not a pair file: name one that ends in \.toml"):
        load_description(tmp_path)
    with pytest.raises(BuildError, match=r"p\.toml cannot be read: No such file"):
        load_description(tmp_path / "p.toml")


def test_published_figures_of_a_gpu_and_of_a_padded_vocabulary():
    """H100 has 81559 MiB. Models of Qwen2.5 pad the same vocabulary to different sizes."""
    assert read_toml(GPUS_FILE)["H100-80GB"]["memory_mib"] == 81559
    assert [known_shape(f"Qwen2.5-{size}").vocab_size for size in ("3B", "7B")] == [151936, 152064]
    assert known_shape("Qwen2.5-3B").num_tokens == known_shape("Qwen2.5-7B").num_tokens


def test_weights_of_a_compiled_pair_are_refused():
    """`build pair` fills in the weights of pairs of our own engine only, and says so."""
    with pytest.raises(BuildError, match="cannot obtain the weights of llama31_8b_1b"):
        load_pair("llama31_8b_1b")


def test_default_pair_agrees_with_its_file():
    """Shapes, weights and tokenizers of the real checkpoints are those in the pair file."""
    report = check_description(load_description("smollm2_135m"), CHECKPOINTS)

    assert {each.code for each in report.findings} == {"size_ratio", "small_draft"}
    assert report.pair.target.checkpoint == CHECKPOINTS["target"]


def test_another_checkpoint_overrides_and_is_reported():
    """The draft's checkpoint as the target has its own shape; differences are reported."""
    report = check_description(load_description("smollm2_135m"), {"target": CHECKPOINTS["draft"]})

    told = [each.message for each in report.findings if each.code == "shape"]
    assert report.pair.target.shape.num_layers == 3
    assert "num_layers 3 instead of 30" in told[0]


def test_check_prints_a_report_and_exits_0(capsys):
    """The report has parameters, the memory of each device, cache shares and a verdict."""
    assert cli.main(["check", "llama31_70b_8b"]) == 0

    shown = capsys.readouterr().out
    assert "70,553,706,496" in shown
    assert re.search(r"GPU 0,1,2,3 +target +34\.3 +20\.2 ", shown)
    assert re.search(r"draft +0\.9\d +\d{6}", shown)
    assert shown.splitlines()[-1].startswith("can be built")


def test_check_takes_a_head_and_compares_its_sizes(tmp_path, capsys):
    """`--checkpoint head=DIR` is a folder with the head's config.json; another size is an error."""
    (tmp_path / "config.json").write_text('{"hidden_size": 576, "vocab_size": 49152}')
    arguments = ["check", "smollm2_135m", "--checkpoint", f"head={tmp_path}"]
    assert cli.main(arguments) == 0
    (tmp_path / "config.json").write_text('{"hidden_size": 64}')

    assert cli.main(arguments) == 1

    assert "its hidden_size is 64, the target's is 576" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["check", "llama31_8b_1b", "--checkpoint", f"head={tmp_path}"]) == 1
    assert "no engine 'head' in llama31_8b_1b" in capsys.readouterr().err


def test_check_exits_1_for_a_pair_that_cannot_be_built(tmp_path, capsys):
    """Scripts see the failure from the exit status, and from the codes in the JSON report."""
    text = (PAIRS_DIRECTORY / "llama31_8b_1b.toml").read_text("utf-8")
    (tmp_path / "p.toml").write_text(text.replace('gpu = "L40S"', 'gpu = "L4"'))

    assert cli.main(["check", str(tmp_path / "p.toml"), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["buildable"]
    assert "memory" in {each["code"] for each in report["findings"]}
    assert report["memory"][0]["needed"] > report["memory"][0]["capacity"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("target", "--checkpoint takes ENGINE=DIRECTORY; given 'target'"),
        ("other=x", "no engine 'other' in llama31_8b_1b; known: target, draft"),
    ],
)
def test_bad_checkpoint_option_is_refused(capsys, option, message):
    """--checkpoint must name an engine of the pair and a directory."""
    assert cli.main(["check", "llama31_8b_1b", "--checkpoint", option]) == 1
    assert message in capsys.readouterr().err
