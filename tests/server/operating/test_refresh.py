"""Draft models and heads are replaced under load: no request fails, and no token changes.

A worse replacement is rolled back.
"""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager

import pytest

from specdec.builder.config_file import set_parameters
from specdec.builder.refresh import swapping
from specdec.builder.refresh.trial import TrialSettings, Verdict
from specdec.builder.refresh.triton import Server
from specdec.clients import GenerationRequest, GrpcClient, collect
from specdec.deployment.freshness import trained_on, write_trained_on
from specdec.deployment.versions import served_version
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.kit.random_weights import random_draft
from specdec.serving.request.prompt_log import read_log
from tests.server.support.live import MODEL_REPOSITORY, SLOW_DRAFT_MS, copy_repository, metrics
from tests.server.support.prompts import PLAIN
from tests.waiting import wait_for

NUM_STREAMS = 4
NUM_ROUNDS = 64
"""Rounds of a draft that are counted before it is replaced, and in a trial of a good one."""
KEPT = TrialSettings(NUM_ROUNDS, max_minutes=5, max_drop=0.5)
"""The trial of a good draft: so short that it allows a large loss by chance."""
MAX_TOKENS = 24
MAX_REQUESTS_UNTIL_BACK = 100
"""Most requests answered between the swap to random weights and the return of the old ones."""
PROMPTS = [prompt for prompt in PLAIN if len(prompt) < 200]
DRAFT = MODEL_REPOSITORY / "draft" / "1" / "checkpoint"
STALE = ("specdec_draft_stale", ("drafter=draft",))


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Return a repository whose draft model claims to be trained on another target.

    Prompts of the tenant acme are logged.
    """
    directory = tmp_path_factory.mktemp("refresh")
    repository = copy_repository(
        directory, prompt_log_dir=str(directory / "log"), prompt_log_tenants="acme"
    )
    set_parameters(repository / "specdec", prompt_log_share="1", draft_timeout_ms=SLOW_DRAFT_MS)
    served = repository / "draft" / "1" / "checkpoint"
    served.unlink()
    shutil.copytree(DRAFT, served)
    write_trained_on(served, "0" * 64)
    return repository


@pytest.fixture(scope="module")
def running(repository):
    """Return a server whose models can be loaded while it runs."""
    explicit = ("--model-control-mode=explicit", "--load-model=*")
    log = repository.parent / "server.log"
    key = repository.parent / "admin.key"
    with TritonServer(repository, log_path=log, admin_key_file=key, extra_args=explicit) as server:
        yield server


def refreshed(running):
    """Return the server as the object that a refresh uses."""
    key = running.settings.admin_key_file
    return Server(f"http://{running.http_url}", running.metrics_url, key)


def ask(client, prompt, drafter, **options):
    """Return the tokens of a streamed answer."""
    request = GenerationRequest(
        text_input=prompt, drafter=drafter, max_tokens=MAX_TOKENS, **options
    )
    return collect(client.stream(request)).token_ids


@pytest.fixture(scope="module")
def expected(running):
    """Return the answer to each prompt without speculation."""
    with GrpcClient(running.grpc_url, timeout_s=120.0) as client:
        return {prompt: ask(client, prompt, "none") for prompt in PROMPTS}


@contextmanager
def streams(server, expected, *drafters):
    """Keep four streams busy with these drafters while the block runs.

    Fail at the end if a request failed, if tokens differ from `expected`, or if a stream got no
    answer.
    """
    wrong, num_answered, stop = [], [0] * NUM_STREAMS, threading.Event()

    def run(number):
        with GrpcClient(server.grpc_url, timeout_s=120.0) as client:
            while not stop.is_set():
                prompt = PROMPTS[(number + num_answered[number]) % len(PROMPTS)]
                tenant = ("acme", "globex")[number % 2]
                try:
                    tokens = ask(client, prompt, drafters[number % len(drafters)], tenant=tenant)
                except Exception as error:  # noqa: BLE001 - any failure that a client can see
                    wrong.append(repr(error))
                else:
                    if tokens != expected[prompt]:
                        wrong.append(f"other tokens: {prompt}")
                num_answered[number] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(NUM_STREAMS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert min(num_answered) > 0


def test_draft_models_are_swapped_under_load(running, expected, repository, tmp_path):
    """A good draft model is kept and ends the warning; one with random weights is rolled back."""
    model, served = repository / "draft", refreshed(running)
    wait_for(lambda: metrics(running).get(STALE) == 1)
    warning = "drafter 'draft' is stale: it was trained on the target 0000"
    assert warning in running.log_path.read_text()

    with streams(running, expected, "draft"):
        wait_for(lambda: served.counters("draft").num_rounds >= NUM_ROUNDS)
        before = served.counters("draft")
        good = swapping.add_version(model, DRAFT)
        kept = swapping.swap(model, "draft", good, [served], before, KEPT)
        bad = swapping.add_version(model, random_draft(DRAFT, tmp_path / "random"))
        sent_back = swapping.swap(model, "draft", bad, [served], before, TrialSettings())

    assert (kept.trial.verdict, kept.version) == (Verdict.KEEP, 2)
    assert (sent_back.trial.verdict, sent_back.version) == (Verdict.WORSE, 2)
    assert sent_back.num_requests <= MAX_REQUESTS_UNTIL_BACK
    assert served_version(model) == good
    assert trained_on(good / "checkpoint") == trained_on(DRAFT)
    assert swapping.left_on_trial(model) is None
    assert served.counters("draft").num_failures == 0
    wait_for(lambda: metrics(running).get(STALE) == 0)
    assert "another version of draft is served" in running.log_path.read_text()


def test_head_is_swapped_with_its_target(running, expected, repository, tmp_path):
    """Requests with and without the head go on while versions of the target get other heads.

    A good head is kept; one with random weights is rolled back.
    """
    model, served = repository / "target", refreshed(running)
    head = MODEL_REPOSITORY / "target" / "1" / "head"

    with streams(running, expected, "eagle3", "none"):
        wait_for(lambda: served.counters("eagle3").num_rounds >= NUM_ROUNDS)
        before = served.counters("eagle3")
        new = swapping.add_version(model, head, folder="head")
        kept = swapping.swap(model, "eagle3", new, [served], before, KEPT)
        random_head = random_draft(head, tmp_path / "random")
        bad = swapping.add_version(model, random_head, folder="head")
        sent_back = swapping.swap(model, "eagle3", bad, [served], before, TrialSettings())

    assert (kept.trial.verdict, kept.version) == (Verdict.KEEP, 2)
    assert (sent_back.trial.verdict, sent_back.version) == (Verdict.WORSE, 2)
    assert sent_back.num_requests <= MAX_REQUESTS_UNTIL_BACK
    assert served_version(model) == new
    assert served.counters("eagle3").num_failures == 0
    assert metrics(running)["specdec_draft_stale", ("drafter=eagle3",)] == 0


def test_prompts_of_the_tenant_that_agreed_are_logged(running, repository):
    """The log has prompts of acme, which agreed, and none of globex."""
    with GrpcClient(running.grpc_url, timeout_s=120.0) as client:
        ask(client, PROMPTS[0], "none", tenant="acme")
        ask(client, PROMPTS[1], "none", tenant="globex")

    logged = wait_for(lambda: read_log(repository.parent / "log"))
    assert {one.tenant for one in logged} == {"acme"}


def test_model_that_cannot_load_leaves_the_served_one(running, repository, tmp_path):
    """A folder without a checkpoint gives an error, and the old draft model goes on drafting."""
    model, served = repository / "draft", refreshed(running)
    version = served_version(model)
    (tmp_path / "broken").mkdir()
    broken = swapping.add_version(model, tmp_path / "broken")

    with pytest.raises(Exception, match="did not load draft"):
        swapping.swap(model, "draft", broken, [served], served.counters("draft"), TrialSettings())

    assert served_version(model) == version
    with GrpcClient(running.grpc_url, timeout_s=120.0) as client:
        rounds = served.counters("draft").num_rounds
        ask(client, PROMPTS[0], "draft")
    wait_for(lambda: served.counters("draft").num_rounds > rounds)
