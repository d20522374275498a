"""A rendered repository is served as it is, and refused if it was changed.

All tests of `[compiled]` engines run on a rendered compiled pair; test_llmapi.py runs on a rendered
`llmapi` pair. tests/unit/builder/rendering/test_rendering.py compares the rendered default pair
with the shipped one.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from specdec.builder.cli import main
from specdec.builder.config_file import set_parameters
from specdec.builder.outputs import link_or_copy
from specdec.clients import GenerationRequest, GrpcClient, collect
from specdec.launch.installation import LaunchError
from specdec.launch.triton_server import TritonServer
from tests.server.support.prompts import CHATS

ROOT = Path(__file__).parents[3]
SAMPLINGS = [{"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.95, "seed": 7}]
STORY = "Write a short story about a ship, and then the same story once more."
RIVER = "请介绍一下长江。"


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """Return a repository that the user's command has rendered.

    Its target has another vocabulary than that of the default pair, and it has no draft model.
    """
    output = tmp_path_factory.mktemp("rendered") / "repository"
    cache = ["--cache", str(ROOT / ".cache" / "models")]
    assert main(["render", "minimind2_small", "--output", str(output), *cache]) == 0
    return output


@pytest.fixture(scope="module")
def other_family(rendered):
    """Return a server of the rendered repository."""
    with TritonServer(rendered, log_path=rendered.parent / "server.log") as running:
        yield running


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled"])
def test_another_family_is_served_exactly(other_family, sampling):
    """With each drafter, another model family gives the tokens that it gives without speculation.

    It is built and served by the same commands, without code of its own.
    """
    prompts = [CHATS[0], *([{"role": "user", "content": text}] for text in (STORY, RIVER))]
    fields = [{"messages": each, "max_tokens": 32, **sampling} for each in prompts]
    num_accepted = 0
    with GrpcClient(other_family.grpc_url) as client, ThreadPoolExecutor() as threads:
        plain = [GenerationRequest(**each, drafter="none") for each in fields]
        expected = list(threads.map(client.generate, plain))
        for drafter in ("auto", "lookup", "suffix"):
            drafted = [
                GenerationRequest(**each, drafter=drafter, return_perf_metrics=True)
                for each in fields
            ]
            answers = threads.map(lambda each: collect(client.stream(each)), drafted)
            for single, answer in zip(expected, answers, strict=True):
                assert answer.token_ids == single.token_ids, drafter
                assert answer.text == single.text
                num_accepted += answer.end.total_accepted_draft_tokens
    assert num_accepted > 20


def copied(repository, directory):
    """Copy a repository into `directory` with links to the weights; return the copy."""
    copy = directory / "repository"
    shutil.copytree(repository, copy, symlinks=True, copy_function=link_or_copy)
    # Tests change these files, so they must not be links.
    for path in copy.glob("*/config.pbtxt"):
        text = path.read_bytes()
        path.unlink()
        path.write_bytes(text)
    return copy


def refusal(repository, directory, *extra_args):
    """Start a server on a repository, check that it does not become ready, and return its log."""
    server = TritonServer(
        repository,
        log_path=directory / "server.log",
        admin_key_file=directory / "admin.key",
        extra_args=extra_args,
    )
    with pytest.raises(LaunchError), server:
        pass
    return (directory / "server.log").read_text()


def test_repository_that_differs_from_its_manifest_is_refused_at_load(rendered, tmp_path):
    """One message names all differences: one changed byte of weights, and a draft limit too high.

    tests/unit/deployment/test_load_check.py has the other cases.
    """
    repository = copied(rendered, tmp_path)
    weights = repository / "target/1/checkpoint/model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.unlink()
    weights.write_bytes(content)
    set_parameters(repository / "specdec", max_draft_len="32")

    log = refusal(repository, tmp_path, "--model-control-mode=explicit", "--load-model=specdec")

    assert "does not match its manifest (pair minimind2_small)" in log
    assert "target/1/checkpoint/model.safetensors has other content" in log
    assert "specdec: max_draft_len is 32, the engines were rendered for 16" in log
    assert "target: max_draft_len is 16, specdec asks for up to 32" in log
    assert "`specdec build manifest` records it" in log


def test_pair_that_cannot_verify_fails_at_load(rendered, tmp_path):
    """Triton's warm-up sends a draft first, so a target that cannot verify it never gets ready."""
    repository = copied(rendered, tmp_path)
    # With a manifest the changed parameter would be refused before the warm-up.
    (repository / "manifest.json").unlink()
    set_parameters(repository / "target", max_draft_len="1")

    log = refusal(repository, tmp_path, "--model-control-mode=explicit", "--load-model=target")

    # Mostly the log says "failed to run warmup sample 'first_call': configuration: draft token
    # length 2 exceeds …". But tritonserver 2.51.0 may also crash if a warm-up fails (status 139).
    assert "successfully loaded 'target'" not in log
