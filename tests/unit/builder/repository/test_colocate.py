"""Tests of `specdec build colocate`, which makes one model of the orchestrator and its engines."""

import shutil
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from specdec.builder.config_file import set_parameters
from specdec.builder.errors import BuildError
from specdec.builder.repository.colocate import colocate

REPOSITORY = Path(__file__).parents[4] / "model_repository"


@pytest.fixture
def repository(tmp_path):
    """Return a copy of our model repository, with a word in place of each engine's weights."""
    for model in ("specdec", "target", "draft"):
        for part in ("config.pbtxt", "1/model.py"):
            (tmp_path / "ours" / model / "1").mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / model / part, tmp_path / "ours" / model / part)
    for model in ("target", "draft"):
        (tmp_path / "ours" / model / "1/checkpoint").mkdir()
        (tmp_path / "ours" / model / "1/checkpoint/weights").write_text(model)
    (tmp_path / "ours/target/1/head").mkdir()
    (tmp_path / "ours/target/1/head/weights").write_text("head")
    return tmp_path / "ours"


def parameters(repository, model):
    """Return the parameters of a model's config.pbtxt as Triton reads them."""
    text = (repository / model / "config.pbtxt").read_text()
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    return {name: value.string_value for name, value in config.parameters.items()}


def test_colocated_model_has_all_parameters(repository, tmp_path):
    """The orchestrator's stay, the engines' get a prefix, and their paths lead to the weights."""
    output = tmp_path / "new"

    assert colocate(repository, output) == ["target", "draft"]

    assert [path.name for path in output.iterdir()] == ["specdec"]
    found, version = parameters(output, "specdec"), output / "specdec" / "1"
    own = parameters(repository, "specdec")
    assert {k: v for k, v in found.items() if "." not in k and k != "tokenizer_dir"} == {
        k: v for k, v in own.items() if k != "tokenizer_dir"
    }
    assert (version / found["tokenizer_dir"] / "weights").read_text() == "target"
    for engine in ("target", "draft"):
        its = {k.partition(".")[2]: v for k, v in found.items() if k.startswith(f"{engine}.")}
        assert (version / its.pop("checkpoint_dir") / "weights").read_text() == engine
        theirs = parameters(repository, engine)
        if theirs["head_dir"]:
            assert (version / its.pop("head_dir") / "weights").read_text() == theirs["head_dir"]
        assert its == {k: v for k, v in theirs.items() if k in its}
        assert theirs.keys() - its.keys() <= {"checkpoint_dir", "head_dir"}


def test_names_of_drafts_may_have_spaces_around_them(repository, tmp_path):
    """The list is read as the orchestrator reads it; a repeated name is refused."""
    set_parameters(repository / "specdec", tensorrt_llm_draft_model_name=" draft , ")
    assert colocate(repository, tmp_path / "new") == ["target", "draft"]
    set_parameters(repository / "specdec", tensorrt_llm_draft_model_name="draft, draft")
    with pytest.raises(BuildError, match="only once"):
        colocate(repository, tmp_path / "other")


def test_engine_without_weights_is_refused(repository, tmp_path):
    """An engine without weights, such as a compiled one, is refused, and no output is left."""
    shutil.rmtree(repository / "draft/1/checkpoint")

    with pytest.raises(BuildError, match="draft is no torch engine with weights"):
        colocate(repository, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours"]


def test_output_that_exists_is_refused(repository):
    """An output directory that exists raises BuildError instead of being overwritten."""
    with pytest.raises(BuildError, match="exists"):
        colocate(repository, repository)
