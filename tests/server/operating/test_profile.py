"""`specdec build profile` measures a server, and the next server begins with its results."""

import json

from specdec.builder.cli import main
from specdec.builder.config_file import parameters_of, set_parameters
from specdec.builder.profiling.cli import PROFILE
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.kit.random_weights import random_draft
from specdec.loadtest.kit.repository import with_drafts
from specdec.steering.steps import load_bucket
from tests.server.support.doors import Door, num_drafts
from tests.server.support.live import MODEL_REPOSITORY
from tests.server.support.prompts import COUNT, SHIP

LOADS = (1,)


def hopeless(directory):
    """Return a repository whose only draft model has random weights."""
    weights = random_draft(MODEL_REPOSITORY / "draft" / "1" / "checkpoint", directory / "random")
    repository = with_drafts(MODEL_REPOSITORY, directory / "models", [("random", str(weights))])
    known = parameters_of(repository / "specdec")["engine_vocab_sizes"].split(",")
    set_parameters(
        repository / "specdec",
        tensorrt_llm_draft_model_name="random",
        engine_vocab_sizes=",".join(each for each in known if not each.startswith("draft=")),
        target_head_name="",
        control_share="0",
    )
    return repository


def test_server_uses_the_profile_from_its_first_request(tmp_path, capsys):
    """A draft model that the profile shows to be useless is only tried; the text is the same.

    The command prints measured times and acceptance estimates, and sets up the repository.
    """
    repository = hopeless(tmp_path)
    loads = [str(each) for each in LOADS]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(f"{json.dumps({'prompt': each})}\n" for each in (COUNT, SHIP)))
    options = ["--streams", *loads, "--max-tokens", "16", "--prompts", str(prompts)]
    assert main(["profile", "--model-repository", str(repository), *options]) == 0

    printed = capsys.readouterr().out
    assert "a round with 4 draft tokens of random" in printed
    profile = json.loads((repository / "specdec" / PROFILE).read_text())
    timed = {bucket for (drafter, _, bucket), *_ in profile["costs"]["steps"] if drafter == "none"}
    assert timed >= {load_bucket(each) for each in LOADS}
    last_line = printed.splitlines()[-1].split()
    assert last_line[0] == "random"
    assert float(last_line[1]) < 0.2  # the acceptance estimate α̂

    with TritonServer(repository, log_path=tmp_path / "server.log") as server:
        answers = [Door(server).ask(COUNT) for _ in range(3)]
        assert answers[0].token_ids == Door(server).ask(COUNT, drafter="none").token_ids
    # The second request of a task may begin with a trial, for example if times vary much.
    assert num_drafts(answers[0], "random") == num_drafts(answers[2], "random") == 0
    assert f"{PROFILE}" in (tmp_path / "server.log").read_text()
    # A server reads the profile but does not write it.
    assert json.loads((repository / "specdec" / PROFILE).read_text()) == profile
