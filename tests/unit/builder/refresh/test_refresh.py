"""`specdec build refresh`: prompts, training, the trial on a server, and versions on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from specdec.builder.distill import checkpoint
from specdec.builder.distill.network import start_from_target
from specdec.builder.distill.prompts import Prompt, all_tokens
from specdec.builder.distill.target import embedding_and_output_rows
from specdec.builder.distill.trainable import DraftModel
from specdec.builder.errors import BuildError
from specdec.builder.fingerprint import fingerprint
from specdec.builder.heads import checkpoint as head_checkpoint
from specdec.builder.heads import eagle3, medusa
from specdec.builder.heads.kinds import Eagle3Settings, MedusaSettings
from specdec.builder.heads.trainable import DraftHead
from specdec.builder.refresh import gathering, learning, swapping, trial
from specdec.builder.refresh.steps import Refresh, Subject
from specdec.builder.refresh.trial import MIN_ROUNDS, TrialSettings, Verdict, judge, watch
from specdec.builder.refresh.triton import Counters, Server, counters_of
from specdec.deployment.freshness import trained_on
from specdec.deployment.versions import served_version
from specdec.serving.request.prompt_log import PromptLog
from specdec.settings.prompt_log import PromptLogSettings
from tests.unit.tiny_llama import save_tiny_llama

pytestmark = pytest.mark.usefixtures("one_thread")

BEFORE = Counters(1000, 2000, 600, 0, 100)
SETTINGS = TrialSettings(num_rounds=500)


def seen(num_rounds, rate, num_failures=0):
    """Return the counters of a drafter with two draft tokens a round, accepted at this rate."""
    return Counters(num_rounds, 2 * num_rounds, 2 * num_rounds * rate, num_failures, 10)


@pytest.mark.parametrize(
    ("during", "is_over", "verdict"),
    [
        (seen(MIN_ROUNDS - 1, 0.0), False, None),
        (seen(MIN_ROUNDS, 0.0), False, Verdict.WORSE),
        (seen(100, 0.25), False, None),
        (seen(100, 0.14), False, Verdict.WORSE),
        (seen(500, 0.28), False, Verdict.KEEP),
        (seen(500, 0.26), False, Verdict.WORSE),
        (seen(100, 0.26), True, Verdict.WORSE),
        (seen(10, 0.0), True, Verdict.KEEP),
        (seen(40, 0.3, num_failures=6), False, Verdict.FAILING),
        (seen(400, 0.3, num_failures=6), False, None),
    ],
)
def test_only_a_failing_or_worse_draft_fails_its_trial(during, is_over, verdict):
    """A draft that fails or is clearly worse ends its trial early, a slightly worse one at the end.

    In every other case the new draft is kept.
    """
    assert judge(BEFORE, during, SETTINGS, is_over=is_over) is verdict


def test_equally_good_draft_is_kept_in_19_of_20_trials():
    """The draft is as good as the old one, and judged after every eighth round."""
    rng = np.random.default_rng(5)
    sent_back = 0
    for _ in range(400):
        first = rng.random((1000, 2)) < 0.3
        accepted = first[:, 0].astype(int) + (first[:, 0] & first[:, 1])
        before = Counters(2000, 4000, 4000 * 0.195, 0, 0)
        for num in range(8, 1001, 8):
            during = Counters(num, 2 * num, int(accepted[:num].sum()), 0, 0)
            verdict = judge(before, during, TrialSettings(), is_over=False)
            if verdict is not None:
                break
        sent_back += verdict is not Verdict.KEEP
    assert sent_back <= 20


def test_trial_ends_by_rounds_by_time_or_without_a_metrics_page():
    """A trial ends after its rounds, after its minutes, or if the metrics page cannot be read."""
    clock = iter(range(0, 100000, 10)).__next__

    def gone():
        raise BuildError("no page")

    pages = iter([seen(100, 0.3), seen(300, 0.3), seen(600, 0.3)])
    ended = watch(lambda: next(pages), BEFORE, Counters(), SETTINGS, clock, lambda _: None)
    assert (ended.verdict, ended.during.num_rounds) == (Verdict.KEEP, 600)
    quiet = watch(Counters, BEFORE, Counters(), SETTINGS, clock, lambda _: None)
    assert quiet.verdict is Verdict.KEEP
    assert "too few to compare" in str(quiet)
    lost = watch(gone, BEFORE, Counters(), SETTINGS, clock, lambda _: None)
    assert lost.verdict is Verdict.UNREADABLE


def test_counters_are_summed_over_tasks_and_survive_a_restart():
    """Only the drafter's own samples count; a server that was restarted counts from zero."""
    page = (
        "# TYPE specdec_num_drafts_total counter\n"
        'specdec_num_drafts_total{drafter="draft",model="specdec",task="a"} 3\n'
        'specdec_num_drafts_total{drafter="draft",model="specdec",task="b"} 4\n'
        'specdec_num_drafts_total{drafter="lookup",model="specdec",task="b"} 9\n'
        'specdec_num_draft_tokens_total{drafter="draft",model="specdec",task="b"} 14\n'
        'specdec_num_accepted_tokens_total{drafter="draft",model="specdec",task="b"} 7\n'
        'specdec_num_accepted_tokens_per_pos_total{drafter="draft",position="0"} 6\n'
        'specdec_requests_total{outcome="ok"} 5\n'
    )

    found = counters_of(page, "draft")

    assert found == Counters(7, 14, 7, 0, 5)
    assert found.since(Counters(5, 10, 6, 0, 4)) == Counters(2, 4, 1, 0, 1)
    assert found.since(replace(found, num_requests=90)) == found


@pytest.fixture
def model(tmp_path):
    """Return a model folder with version 1; new weights lie in the folder `new` beside it."""
    (tmp_path / "draft" / "1" / "checkpoint").mkdir(parents=True)
    (tmp_path / "draft" / "1" / "model.py").write_text("old")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.json").write_text("{}")
    return tmp_path / "draft"


def test_new_version_appears_complete_or_not_at_all(model, tmp_path):
    """A rebuild that fails adds no version; one that works leaves its engine in version 2."""
    with pytest.raises(BuildError, match="status 7"):
        swapping.add_version(model, tmp_path / "new", "bash -c 'exit 7'")
    assert [path.name for path in model.iterdir()] == ["1"]

    made = swapping.add_version(
        model, tmp_path / "new", """bash -c 'cp "$SPECDEC_CHECKPOINT/config.json" the.engine'"""
    )

    assert made == model / "2" == served_version(model)
    assert (made / "the.engine").read_text() == "{}"
    assert (made / "model.py").read_text() == "old"
    assert swapping.left_on_trial(model) == made


def test_unreachable_server_leaves_the_old_version(model, tmp_path):
    """The new version is removed, so the next start of a server finds the old one."""
    made = swapping.add_version(model, tmp_path / "new")

    with pytest.raises(BuildError, match="cannot be reached"):
        swapping.swap(model, "draft", made, [Server("http://127.0.0.1:9")], BEFORE, SETTINGS)

    assert [path.name for path in model.iterdir()] == ["1"]


class FallingSilent(Server):
    """A server that loads every version, and whose metrics page is gone after a few reads."""

    pages = iter([seen(100, 0.3), replace(seen(140, 0.3), num_requests=17)])

    def load(self, model):
        """Load nothing."""

    def counters(self, drafter):
        """Return the next counters; raise BuildError after the last."""
        found = next(self.pages, None)
        if found is None:
            raise BuildError("no page")
        return found


def test_trial_without_a_metrics_page_has_a_result(model, tmp_path, monkeypatch):
    """The draft is rolled back, and the requests up to the last readable page are counted."""
    monkeypatch.setattr(trial, "MAX_UNREADABLE_S", -1.0)
    made = swapping.add_version(model, tmp_path / "new")

    server = FallingSilent("http://127.0.0.1:9")
    swapped = swapping.swap(model, "draft", made, [server], BEFORE, SETTINGS)

    assert swapped.trial.verdict is Verdict.UNREADABLE
    assert (swapped.version, swapped.num_requests) == (1, 7)
    assert [path.name for path in model.iterdir()] == ["1"]


def test_only_versions_made_by_a_refresh_are_removed(model, tmp_path):
    """The version before the newest stays to go back to, and so does version 1, made by others."""
    for _ in range(4):
        swapping.add_version(model, tmp_path / "new")
    swapping._prune(model)

    assert sorted(path.name for path in model.iterdir()) == ["1", "4", "5"]


class Words:
    """A tokenizer that decodes each token to a word."""

    def decode(self, ids):
        """Return the words, with spaces between them."""
        return " ".join(f"w{each}" for each in ids)


def test_logged_prompts_are_the_newest_of_the_named_tenants(tmp_path):
    """They are different from each other, numbered from 0, and known as tokens."""
    settings = PromptLogSettings("log", ("*",), share=1.0, max_mb=4)
    log = PromptLog(tmp_path, settings, print, lambda: 0.0)
    for number in range(120):
        for tenant in ("acme", "globex"):
            log.offer(tenant, "sql", np.array([number, number % 7], np.int32))
            while log._waiting.qsize():
                pass
    log.close()

    found = gathering.from_log(tmp_path, ["acme"], Words())
    some = gathering.chosen(found, 110, seed=3)

    assert len(found) == 120
    assert [one.index for one in some] == list(range(110))
    assert {one.input_ids[0] for one in some} == set(range(10, 120))
    assert some[0].kind == "sql"


def test_too_few_prompts_are_refused(tmp_path):
    """Fewer than 100 different prompts cannot show whether a draft is good."""
    file = tmp_path / "few.jsonl"
    file.write_text(json.dumps({"prompt": "Why is the grass green?"}) + "\n")

    with pytest.raises(BuildError, match=r"at least 100 different prompts .* found: 1"):
        gathering.chosen(gathering.from_files([file]), 10, seed=0)


@pytest.mark.parametrize("line", ['{"turns": ["Why?"]}', "Why?", '"Why?"'])
def test_error_for_a_bad_prompt_file_names_file_and_line(tmp_path, line):
    """It also says what the line holds and what is needed, or why the file cannot be read."""
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps({"prompt": "Why is the grass green?"}) + f"\n{line}\n")

    with pytest.raises(BuildError, match=r'mine\.jsonl, line 2: {"prompt": text} .* given .*Why'):
        gathering.from_files([file])
    with pytest.raises(BuildError, match=r"nowhere\.jsonl cannot be read: .*No such file"):
        gathering.from_files([tmp_path / "nowhere.jsonl"])


@pytest.mark.parametrize("train_head", [False, True])
def test_refreshed_draft_keeps_its_weights_and_takes_new_embeddings(tmp_path, train_head):
    """Training continues from the served draft's own weights, with the new target's embeddings.

    The output rows are the new target's too, unless the draft trains its own.
    """
    old, new = (
        save_tiny_llama(tmp_path / name, seed=seed, eos_token_id=2, tie_word_embeddings=True)
        for name, seed in (("old", 1), ("new", 2))
    )
    draft = start_from_target(old, [0], torch.arange(2, 128, 3), train_head)
    with torch.no_grad():
        draft.lm_head.weight.add_(0.5 * train_head)
    checkpoint.store(draft, old, tmp_path / "stored", {})
    checkpoint.assemble(tmp_path / "stored", old, tmp_path / "served")

    going_on = DraftModel().continued(tmp_path / "served", new).module
    fresh = start_from_target(new, [0], torch.arange(2, 128, 3), False)

    name = "layers.0.mlp.up_proj.weight"
    assert torch.equal(going_on.state_dict()[name], draft.state_dict()[name].bfloat16().float())
    assert torch.equal(going_on.embed, fresh.embed)
    assert torch.equal(going_on.lm_head.weight, fresh.lm_head.weight) is not train_head
    assert going_on.lm_head.weight.requires_grad is train_head
    checkpoint.store(going_on, new, tmp_path / "again", {})
    assert trained_on(tmp_path / "again") != trained_on(tmp_path / "stored")


def test_training_choosing_and_judging_share_no_prompt():
    """40 examples are split into 32 for training, 4 for choosing and 4 for judging."""
    token = torch.tensor([1, 2])
    examples = [
        learning.Example(index, token, token, torch.zeros(2, 1), torch.zeros(2, 1))
        for index in range(40)
    ]

    parts = learning.split(examples)

    sets = (parts.training, parts.choosing, parts.measuring)
    indices = [{example.index for example in some} for some in sets]
    assert [len(some) for some in indices] == [32, 4, 4]
    assert len(set.union(*indices)) == 40


def test_prompt_sent_as_tokens_is_not_changed():
    """No chat template is applied to tokens that a client has sent."""
    assert all_tokens([Prompt(0, "x", [], input_ids=[4, 5])], None) == [[4, 5]]


def test_wrong_settings_are_refused_before_training():
    """A wrong URL or a trial too short is an error at once, not after an hour of training."""
    with pytest.raises(BuildError, match="URL"):
        Server("localhost:8000")
    with pytest.raises(BuildError, match="at least 32"):
        TrialSettings(num_rounds=5)


def test_refreshed_draft_learns_the_targets_present_answers(tmp_path):
    """With answers that count upwards, τ rises by more than 0.5 tokens a round.

    The new checkpoint records the target's fingerprint.
    """
    target = save_tiny_llama(tmp_path / "target", eos_token_id=2, tie_word_embeddings=True)
    draft = start_from_target(target, [0], torch.arange(128), train_head=False)
    checkpoint.store(draft, target, tmp_path / "stored", {})
    checkpoint.assemble(tmp_path / "stored", target, tmp_path / "served")
    examples = []
    for index in range(200):
        counted = torch.arange(index % 90, index % 90 + 24)
        examples.append(
            learning.Example(
                index, counted[:4], counted[4:], counted[4:, None].int(), torch.zeros(20, 1).half()
            )
        )

    settings = replace(learning.SETTINGS, epochs=8, batch_tokens=512, matrix_learning_rate=2e-2)
    parts, run, new = learning.split(examples), tmp_path / "run", tmp_path / "new"
    outcome = learning.learn(DraftModel(), tmp_path / "served", target, parts, run, settings, new)

    assert not outcome.fell
    assert outcome.num_steps > 0
    assert outcome.after.tau > outcome.before.tau + 0.5
    assert trained_on(new) == fingerprint(target)


@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
def test_refreshed_head_keeps_its_weights_and_takes_new_output_rows(tmp_path, kind):
    """The head's own weights are written in bfloat16, with the new target's fingerprint.

    The output rows, which this head does not train, are the new target's.
    """
    shape = {"num_layers": 8, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True}
    shape["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    old, new = (
        save_tiny_llama(tmp_path / name, seed=seed, **shape)
        for name, seed in (("old", 1), ("new", 2))
    )
    ids = torch.arange(1, 128, 3)
    made = (
        eagle3.start(old, ids, train_head=False)
        if kind == "eagle3"
        else medusa.start(old, ids, 2, 1, train_head=False)
    )
    notes = {"training": {"train_head": False}}
    head_checkpoint.store(made, old, tmp_path / "served", notes)

    learner = DraftHead().continued(tmp_path / "served", new)
    DraftHead().write(learner, new, {}, tmp_path / "again")
    again = head_checkpoint.load(tmp_path / "again", new)

    for name, weight in made.state_dict().items():
        if "lm_head" not in name:
            assert torch.equal(again.state_dict()[name], weight.bfloat16().float()), name
    assert torch.equal(again.lm_head.weight, embedding_and_output_rows(new)[1][ids])
    assert not learner.module.lm_head.weight.requires_grad
    assert trained_on(tmp_path / "again") == fingerprint(new)


def test_refreshed_head_is_trained_as_its_command_trains(tmp_path):
    """The steps of an EAGLE-3 head and the weights of their losses are the command's defaults."""
    shape = {"num_layers": 8, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True}
    shape["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    target = save_tiny_llama(tmp_path / "target", **shape)
    ids, learners = torch.arange(9), []
    for head in (eagle3.start(target, ids, False), medusa.start(target, ids, 2, 1, False)):
        served = tmp_path / type(head).__name__
        head_checkpoint.store(head, target, served, {})
        learners.append(DraftHead().served(served, target))

    found = [(learner.num_steps, learner.decay) for learner in learners]
    assert found == [
        (Eagle3Settings().num_steps, Eagle3Settings().step_decay),
        (2, MedusaSettings().step_decay),
    ]


def test_refresh_begins_anew_after_a_run_of_another_release(tmp_path):
    """The work folder is kept for the same target and draft, and emptied if the release differs."""
    target = save_tiny_llama(tmp_path / "target", eos_token_id=2)
    options = SimpleNamespace(
        work=tmp_path, server=[], metrics="", admin_key_file=None,
        trial_rounds=500, trial_minutes=1.0, max_drop=0.1,
    )  # fmt: skip
    refresh, kept = Refresh(options), tmp_path / "current" / "run" / "last.pt"
    subject = Subject(DraftModel(), "draft", tmp_path, target, target)
    note = tmp_path / "current" / "origin.json"

    def begin_with_a_run():
        kept.parent.mkdir(exist_ok=True)
        kept.touch()
        refresh.begin(subject)

    refresh.begin(subject)
    begin_with_a_run()
    assert kept.exists()
    origin = json.loads(note.read_text())
    note.write_text(json.dumps(origin | {"run": ["student", "best"]}))
    begin_with_a_run()
    assert not kept.exists()
    assert json.loads(note.read_text()) == origin
