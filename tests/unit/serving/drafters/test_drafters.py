"""Tests of the drafter factory: which drafters a request gets, and how they are combined."""

import dataclasses
import json
import time

import numpy as np
import pytest

from specdec.acceptance.modes import NO_VERIFICATION
from specdec.acceptance.sampling import SamplingParams
from specdec.drafter_building import steered as steered_building
from specdec.drafting.asked import read_drafter
from specdec.drafting.combining.first import FirstProposal
from specdec.drafting.combining.late import LateDrafter
from specdec.drafting.combining.tree import TreeDrafter
from specdec.drafting.combining.vote import VoteDrafter
from specdec.drafting.models.ahead import AheadDrafter
from specdec.drafting.registry import RESERVED
from specdec.engines.protocol import EngineClock
from specdec.engines.wire.sampling_inputs import Sampling
from specdec.serving.admission.in_flight import RequestInFlight
from specdec.serving.drafters import building
from specdec.serving.request_context import RequestContext
from specdec.serving.task_labels import RequestTask
from specdec.steering.choices import COPY, Choice, RequestTraits
from tests.unit.orchestrator_settings import settings_of
from tests.unit.serving.request_arrays import parse

EXACT_SAMPLING = Sampling()
PROMPT = np.asarray([1, 2, 3], dtype=np.int32)


class FakeTokenizer:
    """A tokenizer of 100 tokens; each character of a text is one token."""

    vocab_size = model_vocab_size = 100
    end_id = 0

    def plain(self, text):
        return np.asarray([ord(each) % 100 for each in text], dtype=np.int32)


class FakeCalls:
    """Engine calls that are never made."""

    def abort(self):
        """Do nothing."""

    def check(self):
        """Do nothing."""


class FakeEngines:
    """Engines that record for which calls they were asked."""

    def __init__(self):
        self.asked = []

    def calls(self, model, _request_id, label, sampling, _clock):
        self.asked.append((model, label, sampling))
        return FakeCalls()


@dataclasses.dataclass
class Steered:
    """The arguments of a SteeredDrafter."""

    traits: RequestTraits
    copying: list
    engines: dict
    heads: dict
    clock: object


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Return a function that builds the drafter of a request with these fields."""
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps({"prompt": PROMPT.tolist(), "guesses": [7, 8]}) + "\n")
    monkeypatch.setattr(steered_building, "RequestSteering", lambda _controller, traits, *_: traits)
    monkeypatch.setattr(steered_building, "SteeredDrafter", Steered)
    factories = []

    def build(
        parameters=(), *, sampling=EXACT_SAMPLING, task=None, engines=None, other=(), **fields
    ):
        given = {"target_head_name": "eagle3", "scripted_drafters": f"script={script}"}
        given |= {"tensorrt_llm_draft_model_name": "draft,big"} | dict(parameters)
        settings = settings_of(**given)
        factory = building.DrafterFactory(
            settings,
            FakeTokenizer(),
            dict(other),
            engines or FakeEngines(),
            None,
            None,
            lambda _name, error: pytest.fail(str(error)),
        )
        factories.append(factory)
        drafter = read_drafter(fields.pop("drafter", "auto"), settings.drafters.ids)
        request = dataclasses.replace(parse(**fields), drafter=drafter)
        flight = RequestInFlight(lambda: False, None, time.monotonic())
        context = RequestContext(
            request, "id", PROMPT, sampling, None, flight, EngineClock(), RequestTask("chat", task)
        )
        return factory.make(context)

    yield build
    for factory in factories:
        factory.close()


def shape(drafter):
    """Return the structure of a drafter, with names and draft lengths."""
    if isinstance(drafter, LateDrafter):
        return shape(drafter._drafter)
    if isinstance(drafter, AheadDrafter):
        return "ahead", shape(drafter._drafter), shape(drafter._ahead)
    if isinstance(drafter, TreeDrafter | FirstProposal | VoteDrafter):
        return type(drafter).__name__, *map(shape, drafter._members)
    return drafter._name, drafter._num_tokens


def copies(steered):
    """Return the names of the copy drafters that a steered drafter may use."""
    return [shape(each)[0] for each in steered.copying]


def test_auto_may_choose_every_drafter_that_fits(make):
    """These are lookup, all draft models and the head, and prediction if the request has one."""
    steered = make()
    assert copies(steered) == ["lookup"]
    assert list(steered.engines) == ["draft", "big"]
    assert list(steered.heads) == ["eagle3", "eagle3_tree"]
    assert steered.traits.default == Choice("eagle3", 3)
    assert steered.traits.may_be_off
    assert copies(make(prediction="abc")) == ["prediction", "lookup"]


def test_configured_drafter_of_a_task_is_the_default(make):
    """A copy drafter is also asked, after the prediction and before the others."""
    assert make(task="big").traits.default == Choice("big", 2)
    steered = make(task="suffix", prediction="abc")
    assert steered.traits.default == Choice(COPY)
    assert copies(steered) == ["prediction", "suffix", "lookup"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("tree", ("TreeDrafter", ("lookup", 7), ("suffix", 7), ("draft", 2), ("big", 2))),
        ("vote", ("VoteDrafter", ("draft", 2), ("big", 2))),
        ("draft+lookup", ("TreeDrafter", ("draft", 2), ("lookup", 7))),
    ],
)
def test_several_drafters_are_combined(make, asked, expected):
    """Their order is that of the name, and their draft lengths are the configured ones."""
    assert shape(make(drafter=asked)) == expected


def test_without_trees_the_first_proposal_is_used(make):
    """Compiled engines take chains only."""
    drafter = make({"engine_extensions": ""}, drafter="draft+lookup")
    assert shape(drafter) == ("FirstProposal", ("draft", 2), ("lookup", 7))


@pytest.mark.parametrize("asked", ["lookup", "draft", "eagle3", "script"])
def test_no_draft_is_longer_than_the_target_takes(make, asked):
    """A configured draft length above `max_draft_len` counts as `max_draft_len`."""
    drafter = make({"max_draft_len": 1}, drafter=asked)

    lengths = [shape(each)[1] for each in drafter.copying]
    lengths += [shape(each.drafter)[1] for each in drafter.engines.values()]
    lengths += [each.shape.num_tokens for each in drafter.heads.values()]
    assert lengths == [1]


@pytest.mark.parametrize("asked", ["lookup", "script", "lookup+eagle3", "suffix+eagle3_tree"])
def test_named_drafter_is_measured_and_not_replaced(make, asked):
    """A head drafts beside the copy drafters that the request joins to it."""
    steered = make(drafter=asked)
    *copying, last = asked.split("+")
    expected = copying if last.startswith("eagle3") else [last]
    assert copies(steered) == expected
    assert steered.traits.is_fixed
    assert not steered.traits.may_be_off


@pytest.mark.parametrize(
    "fields",
    [
        {"drafter": "none"},
        {"num_draft_tokens": 0},
        {"sampling": Sampling(verification=NO_VERIFICATION)},
    ],
)
def test_request_without_speculation_gets_no_drafter(make, fields):
    """It names no drafter, asks for no draft tokens, or cannot be verified."""
    assert make(**fields) is None


def test_draft_ahead_wraps_draft_models(make):
    """The drafter ahead proposes one token more, because it predicts the target's own too."""
    steered = make({"draft_ahead": True}, drafter="draft")
    assert shape(steered.engines["draft"].drafter) == ("ahead", ("draft", 2), ("draft", 3))


def test_draft_with_another_vocabulary_draws_greedily(make):
    """Noise and penalties would go to the wrong tokens of its vocabulary."""

    class Other:
        tokenizer = FakeTokenizer()

        def translating(self, engine, _target, _max_seq_len):
            return engine

    sampling = Sampling(SamplingParams(temperature=0.7, seed=5), cache_salt="acme")
    engines = FakeEngines()
    make(sampling=sampling, engines=engines, other={"big": Other()}, temperature=0.7)

    asked = {model: sampling for model, _, sampling in engines.asked}
    assert asked["draft"].params == sampling.params
    assert asked["big"].params == Sampling().params
    assert {each.cache_salt for each in asked.values()} == {"acme"}


def test_compiled_engines_verify_probabilities_of_draft_models_only(make):
    """Copied tokens have no logits, and one chain is verified."""
    sampling = Sampling(SamplingParams(temperature=0.7), verification="rejection")
    settings = {"engine_extensions": "draft_logits"}
    for asked in ("tree", "vote", "lookup+draft"):
        steered = make(settings, sampling=sampling, drafter=asked, temperature=0.7)
        assert list(steered.engines) == ["draft"]
        assert not steered.copying
        assert not steered.heads
    assert make(settings, sampling=sampling, drafter="lookup", temperature=0.7) is None


def test_names_of_drafters_are_reserved_and_numbered():
    """Requests name drafters, and `output_sources` numbers them, in a fixed order."""
    settings = settings_of(target_head_name="eagle3", scripted_drafters="a=b").drafters
    assert settings.names == (
        *("lookup", "draft", "suffix", "prediction", "eagle3", "eagle3_tree", "a", "grammar"),
    )
    assert [each.source for each in settings.ids] == list(range(1, 9))
    assert {"lookup", "suffix", "prediction", "auto", "copy", "none", "tree", "vote"} < set(
        RESERVED
    )
