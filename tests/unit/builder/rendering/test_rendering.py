"""`specdec build render`: every pair, every placement, and the same bytes each time."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from specdec.builder.cli import main
from specdec.builder.description import TORCH, Placement, known_pairs, load_description
from specdec.builder.description.loading import pair_file
from specdec.builder.errors import BuildError
from specdec.builder.memory import plan_memory
from specdec.builder.rendering.repository import RenderOptions, notices, render
from specdec.deployment.manifest import load_manifest, record
from tests.unit.orchestrator_settings import settings_of

WEIGHTS = Path(__file__).parents[4] / "model_repository"
TARGET = WEIGHTS / "target/1/checkpoint"
HEAD = WEIGHTS / "target/1/head"
COMPILED = [name for name in known_pairs() if load_description(name).engine != TORCH]


def described(name):
    """Return a shipped pair; where weights are copied, they are those of our model repository."""
    pair = load_description(name)
    if pair.has_drafters_inside:
        own = pair.self_speculation
        target = replace(pair.target, checkpoint=TARGET)
        return replace(pair, target=target, self_speculation=own and replace(own, checkpoint=HEAD))
    if pair.engine != TORCH:
        return pair
    # These tests need any weights that exist.
    shape = load_description("smollm2_135m").target.shape
    return replace(pair, target=replace(pair.target, checkpoint=TARGET, shape=shape))


def rendered(name, output, pair=None, **options):
    """Render a shipped pair, or `pair` instead, and return the folder."""
    options = {"served_at": Path("/models"), **options}
    render(pair or described(name), pair_file(name), output, RenderOptions(**options))
    return output


def configurations(repository):
    """Return the configuration of each model by name, as Triton parses it."""
    return {
        path.parent.name: text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())
        for path in repository.glob("*/config.pbtxt")
    }


def parameters(config):
    """Return a model's parameters by name."""
    return {name: value.string_value for name, value in config.parameters.items()}


@pytest.mark.parametrize("name", known_pairs())
def test_every_shipped_pair_renders(name, tmp_path):
    """It has models that Triton can parse, a correct manifest and a valid launch script."""
    pair = described(name)
    repository = rendered(name, tmp_path / "repository")

    found = configurations(repository)
    inside = pair.engine != TORCH and pair.self_speculation is not None
    engines = [pair.target] if inside else pair.engines
    assert found.keys() == {"specdec", *(each.name for each in engines)}
    assert all(name == config.name for name, config in found.items())
    assert {path.name for path in repository.iterdir()} - found.keys() == {
        "launch.sh",
        "manifest.json",
    }
    manifest = load_manifest(repository)
    assert manifest.pair == name
    assert manifest.max_seq_len == int(parameters(found["specdec"])["max_seq_len"])
    assert all(record(repository / file) == each for file, each in manifest.files.items())
    subprocess.run(["bash", "-n", str(repository / "launch.sh")], check=True)
    assert os.access(repository / "launch.sh", os.X_OK)


@pytest.mark.parametrize("name", known_pairs())
def test_rendering_twice_gives_the_same_bytes(name, tmp_path):
    """Two renderings differ in no file, and a rendering replaces an earlier one in its folder."""
    first, second = (rendered(name, tmp_path / each) for each in ("a", "b"))
    rendered(name, second)

    files = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert files == sorted(p.relative_to(second) for p in second.rglob("*") if p.is_file())
    for file in files:
        assert (first / file).read_bytes() == (second / file).read_bytes(), file
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_default_pair_is_the_shipped_repository(tmp_path):
    """The repository of `make serve` equals a rendering of the default pair, except for warm-up."""
    repository = rendered("smollm2_135m", tmp_path / "repository")

    shipped, found = configurations(WEIGHTS), configurations(repository)
    for model in ("specdec", "target", "draft"):
        assert parameters(found[model]) == parameters(shipped[model])
        found[model].ClearField("model_warmup")
        assert found[model] == shipped[model]
    for folder in ("draft/1/checkpoint", "target/1/head"):
        mine, theirs = (each / folder / "model.safetensors" for each in (repository, WEIGHTS))
        assert record(mine) == record(theirs)


def placed(name, **placements):
    """Return a shipped pair; `placements` replaces the placements of engines by name."""
    pair = load_description(name)
    target, *drafts = (
        replace(each, placement=placements.get(each.name, each.placement)) for each in pair.engines
    )
    return replace(pair, target=target, drafts=tuple(drafts))


@pytest.mark.parametrize(
    ("name", "placements", "starts_ranks", "expected"),
    [
        (
            "llama31_8b_1b",
            {},
            False,
            {"target": ("0", 1, None), "draft": ("0", 1, None)},
        ),
        (
            "llama31_70b_8b",
            {},
            False,
            {"target": ("0,1,2,3", 1, None), "draft": ("4", 1, None)},
        ),
        (
            "llama31_70b_8b",
            {"draft": Placement((4, 5))},
            False,
            {"target": ("0,1,2,3", 1, None), "draft": ("4;5", 2, None)},
        ),
        (
            "llama31_70b_8b",
            {"draft": Placement((4, 5))},
            True,
            {"target": ("0,1,2,3", 1, "1,2,3,4"), "draft": ("4;5", 2, "5;6")},
        ),
        (
            "qwen25_14b_two_drafts",
            {"target": Placement((0, 1), 1, 2)},
            True,
            {"target": ("0,1", 1, "1,2"), "draft_chat": ("1", 1, "3"), "draft_code": ("1", 1, "4")},
        ),
    ],
    ids=["one device", "separate", "two drafts' instances", "ranks", "two drafts"],
)
def test_engines_get_the_devices_and_ranks_of_the_pair(
    name, placements, starts_ranks, expected, tmp_path
):
    """`expected` is (gpu_device_ids, number of instances, participant_ids) by engine."""
    pair = placed(name, **placements)
    repository = rendered(name, tmp_path / "repository", pair, starts_ranks=starts_ranks)

    found = configurations(repository)
    for engine, (devices, count, ranks) in expected.items():
        its = parameters(found[engine])
        assert its["gpu_device_ids"] == devices
        assert found[engine].instance_group[0].count == count
        assert its.get("participant_ids") == ranks
        assert its["gpt_model_path"] == f"/models/{engine}/1/engine"
        assert its["enable_kv_cache_reuse"] == "true"
    drafts = parameters(found["specdec"])["tensorrt_llm_draft_model_name"].split(",")
    assert drafts == [engine for engine in expected if engine != "target"]


def test_padded_vocabularies_reach_the_orchestrator(tmp_path):
    """The orchestrator compares logits of Qwen2.5 7B and 0.5B, so it is told both widths."""
    found = configurations(rendered("qwen25_7b_05b", tmp_path / "repository"))

    its = parameters(found["specdec"])
    assert its["engine_vocab_sizes"] == "target=152064:152064,draft=151936:151936"
    assert its["engine_extensions"] == "draft_logits"


def test_engines_on_one_device_share_its_memory(tmp_path):
    """Weights, buffers and KV caches of both fit, in any order of loading, and use over 80 %."""
    repository = rendered("llama31_8b_1b", tmp_path / "repository")

    found = {name: parameters(each) for name, each in configurations(repository).items()}
    (device,) = plan_memory(load_description("llama31_8b_1b")).devices
    taken = 0
    for engine in device.engines:
        num_tokens = int(found[engine.engine]["max_tokens_in_paged_kv_cache"])
        taken += engine.fixed + num_tokens * engine.kv_bytes_per_token
        assert 0 < float(found[engine.engine]["kv_cache_free_gpu_mem_fraction"]) < 1
    assert 0.8 * device.capacity < taken <= device.capacity


def test_colocated_repository_is_one_model(tmp_path):
    """Its manifest lists the weights of the colocated engines."""
    repository = rendered("smollm2_135m", tmp_path / "repository", colocated=True)

    assert configurations(repository).keys() == {"specdec"}
    manifest = load_manifest(repository)
    assert "specdec/checkpoints/target/model.safetensors" in manifest.files
    assert manifest.engines["draft"].trained_on == manifest.engines["target"].fingerprint != ""


def test_engine_that_speculates_inside_gets_no_drafts(tmp_path):
    """Whatever a request asks for, such a target is called once, without a draft."""
    pair = load_description("llama31_8b_lookup")
    head = replace(load_description("llama31_8b_eagle3").self_speculation, mode="lookahead")
    head = replace(head, window_size=7, ngram_size=7, verification_set_size=7)
    pair = replace(pair, self_speculation=head)
    found = configurations(rendered("llama31_8b_lookup", tmp_path / "repository", pair))

    orchestrator, target = parameters(found["specdec"]), parameters(found["target"])
    assert (orchestrator["max_draft_len"], orchestrator["speculation"]) == ("0", "off")
    assert orchestrator["tensorrt_llm_draft_model_name"] == ""
    assert target["decoding_mode"] == "lookahead"
    assert [target[f"lookahead_{each}"] for each in ("window_size", "ngram_size")] == ["7", "7"]


def test_task_drafters_of_the_pair_reach_the_orchestrator(tmp_path):
    """The orchestrator parses the rendered parameter to the pair's routes."""
    found = parameters(configurations(rendered("qwen25_14b_two_drafts", tmp_path / "r"))["specdec"])

    settings = settings_of(
        tensorrt_llm_draft_model_name=found["tensorrt_llm_draft_model_name"],
        task_drafters=found["task_drafters"],
    )
    assert settings.tasks.drafter_by_task == dict(load_description("qwen25_14b_two_drafts").tasks)
    assert set(settings.tasks.drafter_by_task.values()) == {"draft_chat", "draft_code"}


def test_notices_say_how_to_add_what_is_missing():
    """A repository without engines, weights or tokenizer comes with the commands that add them."""
    options = RenderOptions(Path("/models"))

    (tokenizer, engines) = notices(load_description("llama31_70b_8b"), options)

    assert "--checkpoint target=DIRECTORY" in tokenizer
    assert "specdec build compile" in engines
    assert notices(described("smollm2_135m"), options) == []
    (_, target, head) = notices(load_description("llama31_8b_eagle3"), options)
    assert "--checkpoint target=DIRECTORY" in target
    assert "'EAGLE3-LLaMA3.1-Instruct-8B', not a folder: give --checkpoint head=DIRECTORY" in head


@pytest.mark.parametrize("name", COMPILED)
def test_dry_run_writes_nothing(name, tmp_path, capsys):
    """It lists the files with their sizes, and the command that would serve them."""
    output = tmp_path / "repository"

    assert main(["render", name, "--output", str(output), "--dry-run"]) == 0

    printed = capsys.readouterr().out
    assert f"{output}/specdec/config.pbtxt" in printed
    assert re.search(f"--model-repository[= ]{output}", printed)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("colocated", [False, True], ids=["apart", "colocated"])
def test_dry_run_of_torch_engines_names_what_would_be_rendered(colocated, tmp_path, capsys):
    """It converts no weights, and what it lists is all that a rendering writes."""
    repository = rendered("smollm2_135m", tmp_path / "repository", colocated=colocated)
    capsys.readouterr()
    options = ["--output", str(tmp_path / "new"), "--cache", str(tmp_path / "cache"), "--dry-run"]

    assert main(["render", "smollm2_135m", *options, *(["--colocate"] if colocated else [])]) == 0

    lines = capsys.readouterr().out.split("start it:")[0].splitlines()
    planned = [Path(line.partition(":")[0]).relative_to(tmp_path / "new") for line in lines]
    assert all((repository / path).exists() for path in planned)
    written = [path.relative_to(repository) for path in repository.rglob("*") if path.is_file()]
    assert all(any(path.is_relative_to(each) for each in planned) for path in written)
    assert {path.name for path in tmp_path.iterdir()} == {"repository"}


def test_folder_that_was_not_rendered_is_not_replaced(tmp_path):
    """Render replaces only what it rendered, and refuses options that do not fit the engines."""
    (tmp_path / "mine").mkdir()

    with pytest.raises(BuildError, match="was not rendered: choose another folder"):
        rendered("llama31_8b_1b", tmp_path / "mine")
    with pytest.raises(BuildError, match="only torch engines run inside specdec"):
        rendered("llama31_8b_1b", tmp_path / "new", colocated=True)
    with pytest.raises(BuildError, match="only compiled engines run in MPI ranks"):
        rendered("llama31_8b_eagle3", tmp_path / "new", starts_ranks=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_pair_that_cannot_be_built_is_not_rendered(tmp_path, capsys):
    """The pair is checked first; the errors are printed and nothing is written."""
    status = main(
        ["render", "llama31_8b_1b", "--version", "1.1.0rc5", "--output", str(tmp_path / "new")]
    )

    assert status == 1
    assert "llama31_8b_1b cannot be built:" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
