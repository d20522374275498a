"""Repositories that `specdec build render` wrote, served: as shipped, another family, tampered."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builder.cli import main
from builder.colocate import linked
from builder.parameters import set_parameters
from clients import GenerationRequest, GrpcClient
from specdec.serving.launcher import LaunchError, TritonServer
from tests.doubles.repository import write_model
from tests.server.live import MODEL_REPOSITORY
from tests.server.prompts import CHATS, COUNT, SHIP
from tests.unit.tensorrt_llm_standin import install

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
        GenerationRequest(text_input=text, max_tokens=24, **sampling, **way)
        for text in (COUNT, SHIP)
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
    prompts = [*CHATS, *([{"role": "user", "content": text}] for text in (STORY, RIVER))]
    num_accepted = 0
    with GrpcClient(other_family.grpc_url) as client:
        for messages in prompts:
            fields = {"messages": messages, "max_tokens": 64, **sampling}
            expected = client.generate(GenerationRequest(**fields, drafter="none"))
            for drafter in ("auto", "lookup", "suffix"):
                request = GenerationRequest(**fields, drafter=drafter, return_perf_metrics=True)
                chunks = list(client.stream(request))

                tokens = [token for chunk in chunks for token in chunk.token_ids]
                assert tuple(tokens) == tuple(expected.token_ids), (drafter, messages)
                assert "".join(chunk.text for chunk in chunks) == expected.text
                figures = chunks[-1].final.speculative_decoding
                num_accepted += figures["num_accepted_draft_tokens"]
    assert num_accepted > 100


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
    server = TritonServer(repository, log_path=directory / "server.log", extra_args=extra_args)
    with pytest.raises(LaunchError), server:
        pass
    return (directory / "server.log").read_text()


def test_changed_draft_is_refused_at_load(default_pair, tmp_path):
    """A single other byte in the draft's weights; the log names the file and what to do."""
    repository = copied(default_pair, tmp_path)
    weights = repository / "draft/1/checkpoint/model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.unlink()
    weights.write_bytes(content)

    log = refusal(repository, tmp_path)

    assert "does not match its manifest (pair smollm2_135m)" in log
    assert "draft/1/checkpoint/model.safetensors has other content" in log
    assert "`specdec build manifest` records it" in log


def test_edited_limit_is_refused_at_load(default_pair, tmp_path):
    """More guesses than the target takes would fail every long round: said before the first one."""
    repository = copied(default_pair, tmp_path)
    set_parameters(repository / "specdec", max_draft_len="32")

    log = refusal(repository, tmp_path)

    assert "specdec: max_draft_len is 32, the engines were rendered for 16" in log
    assert "target: max_draft_len is 16, specdec asks for up to 32" in log


def test_pair_that_cannot_verify_fails_at_load(default_pair, tmp_path):
    """The first call is Triton's own: a target that takes no drafts is never ready."""
    repository = copied(default_pair, tmp_path)
    (repository / "manifest.json").unlink()  # it would be refused before
    set_parameters(repository / "target", max_draft_len="1")

    log = refusal(repository, tmp_path, "--model-control-mode=explicit", "--load-model=target")

    # Mostly it says "failed to run warmup sample 'first_call': invalid_request: draft token length
    # 2 exceeds …", but where a warm-up fails, tritonserver 2.51.0 may also crash (status 139).
    assert "successfully loaded 'target'" not in log


PAIR = """
engine = "tensorrtllm"
gpu = "L4"

[target]
model = "SmolLM2-135M-Instruct"
licence = "Apache-2.0"
shape = "SmolLM2-135M"
placement = {{ devices = [0] }}
checkpoint = "{models}/target/1/checkpoint"

[drafts.draft]
model = "SmolLM2-135M-Instruct-draft"
licence = "Apache-2.0"
shape = "SmolLM2-135M-draft"
placement = {{ devices = [0] }}
checkpoint = "{models}/draft/1/checkpoint"

[limits]
max_batch_size = 16
max_input_len = 8191
max_seq_len = 8192
max_draft_len = 16
max_num_tokens = 8192
inflight_limit = 16

[load]
num_sequences = 16
sequence_len = 1024

[speculation]
num_draft_tokens = 3
drafters = ["lookup", "draft"]
draft_logits = true
"""


@pytest.fixture(scope="module")
def compiled_pair(tmp_path_factory):
    """Return a repository from TOML through `compile` and `render`, its backend a double.

    The stand-in for the compiler leaves engines without weights; each rank's file becomes a link to
    the checkpoint, which is what the double of the C++ backend runs.
    """
    directory = tmp_path_factory.mktemp("compiled")
    pair, repository = directory / "pair.toml", directory / "repository"
    pair.write_text(PAIR.format(models=MODEL_REPOSITORY))
    with pytest.MonkeyPatch.context() as patch:
        install(patch, directory / "site", "1.2.1")
        assert main(["compile", str(pair), "--output", str(directory / "work")]) == 0
    engines = str(directory / "work" / "engines")
    assert main(["render", str(pair), "--engines", engines, "--output", str(repository)]) == 0
    for name in ("target", "draft"):
        version = repository / name / "1"
        (version / "engine" / "rank0.engine").unlink()
        checkpoint = MODEL_REPOSITORY / name / "1" / "checkpoint"
        (version / "engine" / "rank0.engine").symlink_to(checkpoint)
        config = repository / name / "config.pbtxt"
        text = config.read_text()
        assert text.count('backend: "tensorrtllm"') == 1
        config.write_text(text.replace('backend: "tensorrtllm"', 'backend: "python"'))
        write_model(version, "tensorrtllm")
    assert main(["manifest", str(repository)]) == 0
    return repository


def test_compiled_pair_is_served_as_rendered(server, compiled_pair, tmp_path):
    """From TOML to tokens: the target's own, whoever drafts; sampled ones by rejection."""
    with (
        TritonServer(compiled_pair, log_path=tmp_path / "server.log") as running,
        GrpcClient(server.grpc_url) as shipped,
        GrpcClient(running.grpc_url) as client,
    ):
        for text in (COUNT, SHIP):
            fields = {"text_input": text, "max_tokens": 24}
            expected = shipped.generate(GenerationRequest(**fields, drafter="none"))
            for drafter in ("none", "auto", "lookup", "draft"):
                answer = client.generate(GenerationRequest(**fields, drafter=drafter))
                assert answer.token_ids == expected.token_ids, drafter
            sampled = client.generate(
                GenerationRequest(**fields, drafter="draft", temperature=0.8, seed=1)
            )
            assert sampled.final.verification.startswith("rejection")


def test_compiled_engine_of_another_build_is_refused(compiled_pair, tmp_path):
    """Its config.json says fewer draft tokens than specdec asks for: nothing is served."""
    repository = copied(compiled_pair, tmp_path)
    config = repository / "target/1/engine/config.json"
    text = config.read_text().replace('"max_draft_len": 16', '"max_draft_len": 4')
    config.unlink()
    config.write_text(text)

    log = refusal(repository, tmp_path)

    assert (
        "target: was built for 4 draft tokens (--max_draft_len), specdec asks for up to 16" in log
    )


def test_shipped_repository_has_no_manifest():
    """Without one a repository is served as it is: `make serve` is for trying things out."""
    assert not (MODEL_REPOSITORY / "manifest.json").exists()
