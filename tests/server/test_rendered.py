"""Repositories that `specdec build render` wrote, served: as shipped, another family, tampered.

A rendered compiled pair is what all tests of `[compiled]` engines run on; test_llmapi.py has a
rendered `llmapi` pair.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from builder.cli import main
from builder.colocate import linked
from builder.parameters import set_parameters
from clients import GenerationRequest, GrpcClient, collect
from specdec.serving.launcher import LaunchError, TritonServer
from tests.server.live import MODEL_REPOSITORY
from tests.server.prompts import CHATS, COUNT

pytestmark = pytest.mark.engines("torch")  # the repository that renderings are compared with

ROOT = Path(__file__).parents[2]
WAYS = [
    {"drafter": "none"},
    {"drafter": "auto"},
    {"drafter": "lookup", "num_draft_tokens": 8},
    {"drafter": "draft"},
    {"drafter": "eagle3"},
]
SAMPLINGS = [{"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.95, "seed": 7}]
STORY = "Write a short story about a ship, and then the same story once more."
RIVER = "请介绍一下长江。"


def rendered(pair, directory):
    """Render a shipped pair from its TOML file, as a user does."""
    output = directory / "repository"
    cache = ["--cache", str(ROOT / ".cache" / "models")]
    assert main(["render", pair, "--output", str(output), *cache]) == 0
    return output


@pytest.fixture(scope="module")
def default_pair(tmp_path_factory):
    """Return the default pair's repository, made of its description alone."""
    return rendered("smollm2_135m", tmp_path_factory.mktemp("default"))


@pytest.fixture(scope="module")
def other_family(tmp_path_factory):
    """Return a server with another target, whose vocabulary is its own, and no draft."""
    directory = tmp_path_factory.mktemp("minimind2")
    repository = rendered("minimind2_small", directory)
    with TritonServer(repository, log_path=directory / "server.log") as running:
        yield running


def test_rendered_default_pair_is_the_shipped_one(server, default_pair, tmp_path):
    """The server starts on it, its engines warmed up, and says token for token the same."""
    requests = [
        GenerationRequest(text_input=COUNT, max_tokens=16, **sampling, **way)
        for sampling in SAMPLINGS
        for way in WAYS
    ]
    with (
        TritonServer(default_pair, log_path=tmp_path / "server.log") as running,
        GrpcClient(server.grpc_url) as shipped,
        GrpcClient(running.grpc_url) as client,
    ):
        for request in requests:
            assert client.generate(request).token_ids == shipped.generate(request).token_ids


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled"])
def test_another_family_is_served_exactly(other_family, sampling):
    """On = off, token for token, with the same commands and no line of code for this model."""
    prompts = [CHATS[0], *([{"role": "user", "content": text}] for text in (STORY, RIVER))]
    fields = [{"messages": each, "max_tokens": 48, **sampling} for each in prompts]
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
            for alone, answer in zip(expected, answers, strict=True):
                assert answer.token_ids == alone.token_ids, drafter
                assert answer.text == alone.text
                num_accepted += answer.final.total_accepted_draft_tokens
    assert num_accepted > 50


def copied(repository, directory):
    """Copy a repository, weights linked."""
    copy = directory / "repository"
    shutil.copytree(repository, copy, symlinks=True, copy_function=linked)
    for path in copy.glob("*/config.pbtxt"):  # to be edited: no link
        text = path.read_bytes()
        path.unlink()
        path.write_bytes(text)
    return copy


def refusal(repository, directory, *extra_args):
    """Start a server that must not become ready; return its log."""
    server = TritonServer(
        repository,
        log_path=directory / "server.log",
        admin_key_file=directory / "admin.key",
        extra_args=extra_args,
    )
    with pytest.raises(LaunchError), server:
        pass
    return (directory / "server.log").read_text()


def test_what_no_longer_fits_is_refused_at_load(default_pair, tmp_path):
    """Other weights by a single byte, and a limit that would fail long rounds: all is said at once.

    What else is refused: tests/unit/test_load_check.py.
    """
    repository = copied(default_pair, tmp_path)
    weights = repository / "draft/1/checkpoint/model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.unlink()
    weights.write_bytes(content)
    set_parameters(repository / "specdec", max_draft_len="32")

    log = refusal(repository, tmp_path, "--model-control-mode=explicit", "--load-model=specdec")

    assert "does not match its manifest (pair smollm2_135m)" in log
    assert "draft/1/checkpoint/model.safetensors has other content" in log
    assert "specdec: max_draft_len is 32, the engines were rendered for 16" in log
    assert "target: max_draft_len is 16, specdec asks for up to 32" in log
    assert "`specdec build manifest` records it" in log


def test_pair_that_cannot_verify_fails_at_load(default_pair, tmp_path):
    """The first call is Triton's own: a target that takes no drafts is never ready."""
    repository = copied(default_pair, tmp_path)
    (repository / "manifest.json").unlink()  # it would be refused before
    set_parameters(repository / "target", max_draft_len="1")

    log = refusal(repository, tmp_path, "--model-control-mode=explicit", "--load-model=target")

    # Mostly it says "failed to run warmup sample 'first_call': invalid_request: draft token length
    # 2 exceeds …", but where a warm-up fails, tritonserver 2.51.0 may also crash (status 139).
    assert "successfully loaded 'target'" not in log


def test_shipped_repository_has_no_manifest():
    """Without one a repository is served as it is: `make serve` is for trying things out."""
    assert not (MODEL_REPOSITORY / "manifest.json").exists()
