"""Tests of the files with the controller's measurements.

A state file keeps them over a restart; a profile holds measurements from before the first start.
"""

from __future__ import annotations

import json
import random
import time

import pytest

from specdec.serving.control_plane import ControlPlane
from specdec.steering.acceptance_estimates import DraftResult
from specdec.steering.choices import Candidate, Choice, EstimatedDrafter, RequestTraits
from specdec.steering.controller import Controller
from specdec.steering.estimates import HALF_LIFE_S
from specdec.steering.predictions import RequestProgress
from specdec.steering.settings import ControlSettings
from specdec.steering.state_file import FORMAT, StateFile, StateFileMismatchError
from tests.unit.steering.test_costs import fill, seconds

TRAITS = RequestTraits(
    "code",
    "greedy",
    (Candidate("draft", (1, 2, 3, 4)),),
    max_copy_tokens=7,
    default=Choice("draft", 2),
)
START = RequestProgress(num_inflight=1, num_context=100, num_left=200, is_start=True)
NOW_S = 1e9


def learned_controller(seed=1, alpha=None, now_s=NOW_S, num_rounds=300, num_prompts=4):
    """Return a controller that has learned costs, and `num_rounds` rounds of the drafter `draft`.

    `alpha`: acceptance in rounds of one draft token each. If it is None, rounds have four draft
    tokens, and 0 to 4 of them are accepted.
    """
    rng = random.Random(seed)
    controller = Controller(ControlSettings(), clock=lambda: now_s, draw=lambda: 0.99)
    fill(controller.costs, seed=seed)
    prompts = (100, False), (900, False), (100, True), (900, True)
    for num_prompt, has_head in prompts[:num_prompts]:
        controller.learn_prompt(num_prompt, 0.1 * (1 + has_head), has_head=has_head)
    controller.learn_first_draft("draft", 100, 0.05)
    for _ in range(num_rounds):
        num_right = rng.randint(0, 4) if alpha is None else int(rng.random() < alpha)
        depth = 4 if alpha is None else 1
        drafted = DraftResult(EstimatedDrafter("draft"), depth, depth, num_right)
        controller.learn_drafts(TRAITS, [drafted])
    return controller


def new_controller():
    """Return a controller without measurements."""
    return Controller(ControlSettings(), clock=lambda: NOW_S, draw=lambda: 0.99)


def state_file_at(path, signature="pair 1", machine="two cores"):
    """Return the state file at `path`."""
    return StateFile(path, signature, machine)


def take(file, controller, as_of_s=None):
    """Give the file's measurements to the controller."""
    measured = file.read(as_of_s)
    controller.take(measured.acceptance, measured.costs)


def estimate(controller, now_s=NOW_S):
    """Return the acceptance estimate of the drafter `draft` for the task `code`."""
    return controller.acceptance.estimate("code", EstimatedDrafter("draft"), "greedy", now_s, 4)


def test_measurements_survive_a_restart(tmp_path):
    """A new controller takes estimates and costs from the file, and makes the same choice."""
    file = state_file_at(tmp_path / "deep" / "control.json")
    old, new = learned_controller(), new_controller()
    assert file.read() is None
    file.save(old)

    take(file, new)

    assert estimate(old) == estimate(new)
    for choice in (Choice("copy"), Choice("draft", 4)):
        assert seconds(new.costs, choice) == pytest.approx(seconds(old.costs, choice), rel=0.01)
    for drafter, is_head in (("head", True), ("draft", False)):
        reading_s = new.costs.reading_s(drafter, 500, is_head=is_head)
        assert reading_s == old.costs.reading_s(drafter, 500, is_head=is_head) > 0.0
    assert old.choose(TRAITS, START) == new.choose(TRAITS, START)
    assert [each.name for each in (tmp_path / "deep").iterdir()] == ["control.json"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("pair 1", "pair 2"),
        lambda text: json.dumps({**json.loads(text), "acceptance": [[["a"], 1.0, [1, 2], 0.0]]}),
        lambda text: json.dumps({**json.loads(text), "costs": {}}),
        lambda text: json.dumps({**json.loads(text), "costs": {"steps": [[["a"], 1, 2, 3]]}}),
        lambda text: json.dumps({**json.loads(text), "weights": ["draft"]}),
        lambda _: "[]",
        lambda text: text.replace(f'"format": "{FORMAT}"', '"format": 9'),
    ],
)
def test_file_that_does_not_fit_is_not_used(tmp_path, damage):
    """A file of other engines or another format, and a damaged one, are refused."""
    file = state_file_at(tmp_path / "control.json")
    file.save(learned_controller())
    file.path.write_text(damage(file.path.read_text()))

    with pytest.raises(StateFileMismatchError, match=r"control\.json"):
        file.read()


def test_times_of_another_machine_are_not_used(tmp_path):
    """Acceptance does not depend on the machine, and is taken from the file."""
    old, new = learned_controller(), new_controller()
    state_file_at(tmp_path / "control.json").save(old)

    take(state_file_at(tmp_path / "control.json", machine="an H100"), new)

    assert estimate(old) == estimate(new)
    assert not new.costs.is_known


@pytest.mark.parametrize(("weights", "is_replaced"), [("old", False), ("new", True)])
def test_acceptance_of_replaced_weights_is_dropped(tmp_path, weights, is_replaced):
    """A draft model may have been trained anew while the server was off.

    Its times, and the acceptance of other drafters, are kept.
    """
    path, old = tmp_path / "control.json", learned_controller()
    old.learn_drafts(TRAITS, [DraftResult(EstimatedDrafter("lookup"), 4, 4, 3)])
    StateFile(path, "pair", "machine", lambda: {"draft": "old"}).save(old)
    file, said = StateFile(path, "pair", "machine", lambda: {"draft": weights}), []

    plane = ControlPlane(ControlSettings(), None, None, file, lambda _: None, said.append)

    known = plane.controller.acceptance.names()
    assert known == old.acceptance.names() - ({"draft"} if is_replaced else set())
    assert "lookup" in known
    assert plane.controller.costs.is_known
    assert ["other weights of draft" in each for each in said] == [True] * is_replaced


def test_profile_counts_as_new_when_it_is_read(tmp_path):
    """A profile may be months old. Its acceptance fades only from the time when it is read."""
    old, new, late_s = learned_controller(alpha=0.9), new_controller(), NOW_S + 1e7
    file = state_file_at(tmp_path / "profile.json")
    file.save(old)
    take(file, new, as_of_s=late_s)

    assert estimate(new, late_s).alphas[0] == pytest.approx(estimate(old).alphas[0])
    idle_s = 40 * HALF_LIFE_S
    assert estimate(new, late_s + idle_s).alphas == pytest.approx(
        estimate(new_controller(), late_s).alphas, abs=0.01
    )


def test_file_can_be_read_without_knowing_its_deployment(tmp_path):
    """A profile can be read where its engines are not served, because it names their deployment.

    A missing file, or one without measurements, raises an error.
    """
    path = tmp_path / "profile.json"
    with pytest.raises(StateFileMismatchError, match=r"no .*profile\.json"):
        StateFile.as_written(path)
    path.write_text("[]")
    with pytest.raises(StateFileMismatchError, match="no state file"):
        StateFile.as_written(path)

    state_file_at(path, "pair 7", "an H100").save(learned_controller())
    measured = StateFile.as_written(path).read()
    assert measured.costs.is_known
    assert measured.machine == "an H100"


def plane_of(profile, state):
    """Return the controller of a ControlPlane, and the files that it has read, in this order."""
    said = []
    plane = ControlPlane(ControlSettings(), None, state, profile, said.append, pytest.fail)
    plane.close()
    return plane.controller, [text.split("/")[-1] for text in said]


@pytest.mark.parametrize("newer", ["state", "profile"])
def test_times_come_from_the_newer_file(tmp_path, newer):
    """The newer file is the state if the server has run since the profile was made.

    Otherwise it is the profile.
    """
    files = {name: state_file_at(tmp_path / f"{name}.json") for name in ("state", "profile")}
    order = sorted(files, key=lambda name: name == newer)
    for number, name in enumerate(order, start=1):
        controller = learned_controller(seed=number)
        if name == newer:
            controller = learned_controller(seed=number, num_prompts=0)
        files[name].save(controller)

    known, said = plane_of(files["profile"], files["state"])

    assert said == [f"{name}.json" for name in order]
    expected_s = seconds(learned_controller(seed=2).costs, Choice("copy"))
    assert seconds(known.costs, Choice("copy")) == pytest.approx(expected_s, rel=0.01)
    # The newer file has no times of prompts, so those of the older one are kept.
    assert known.costs.reading_s("head", 500, is_head=True) > 0


@pytest.mark.parametrize(("hours", "alpha"), [(0, 0.1), (12, 0.9)])
def test_acceptance_comes_from_the_file_with_more_evidence(tmp_path, hours, alpha):
    """The evidence in a state file that is 12 hours old has faded, so the profile has more."""
    profile = state_file_at(tmp_path / "profile.json")
    state = state_file_at(tmp_path / "state.json")
    few = learned_controller(alpha=0.9, num_rounds=100)
    profile.save(few)
    state.save(learned_controller(alpha=0.1, now_s=time.time() - 3600 * hours))

    known, _ = plane_of(profile, state)

    assert known.acceptance.alpha("code", EstimatedDrafter("draft"))[0] == pytest.approx(
        alpha, abs=0.08
    )


def test_server_starts_without_measurements_if_the_weights_cannot_be_read(tmp_path):
    """The file of the weights may be unreadable when the server starts."""

    def unreadable():
        raise PermissionError("draft/1/checkpoint")

    path, warned = tmp_path / "control.json", []
    state_file_at(path).save(learned_controller())

    file = StateFile(path, "pair 1", "two cores", unreadable)
    plane = ControlPlane(ControlSettings(), None, None, file, pytest.fail, warned.append)

    assert not plane.controller.costs.is_known
    assert "draft/1/checkpoint" in warned[0]


@pytest.mark.parametrize(
    ("signature", "machine", "said"),
    [("pair 2", "two cores", "other engines"), ("pair 1", "an H100", "another machine")],
)
def test_operator_is_told_why_a_profile_is_not_used(tmp_path, signature, machine, said):
    """If the profile is missing, the warning names the file."""
    path, warned = tmp_path / "profile.json", []
    state_file_at(path, signature, machine).save(learned_controller())
    for profile in (state_file_at(path), state_file_at(tmp_path / "nowhere.json")):
        ControlPlane(ControlSettings(), None, None, profile, warned.append, warned.append).close()

    assert said in warned[0]
    if machine == "an H100":
        assert "machine (an H100), this is two cores" in warned[0]
    assert "nowhere.json" in warned[1]
