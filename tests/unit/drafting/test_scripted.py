"""The scripted drafter, whose acceptance is set in advance."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from specdec.drafting.scripted import ScriptedDrafter, Scripts
from specdec.errors import ConfigurationError
from specdec.estimates.formulas import alpha_of_tau
from specdec.loop import Context, speculate
from tests.unit.scripted import PROMPT, KnowingTarget

ANSWER = [(7919 * n) % 49000 + 1 for n in range(6000)]


@pytest.mark.parametrize(("tau", "k"), [(2.0, 4), (3.0, 4), (2.0, 2)])
def test_rounds_have_the_mean_length_asked_for(tmp_path, tau, k):
    """Over a long answer a round gives `tau` tokens on average, and no token is changed."""
    file = tmp_path / "scripts.jsonl"
    write_script(file, alpha_of_tau(tau, k))
    ids = np.asarray(PROMPT, dtype=np.int32)
    drafter = ScriptedDrafter("s", 1, k, Scripts.load(file).draft_tokens(ids), len(PROMPT))
    context = Context(ids, len(ANSWER))

    rounds = list(speculate(context, KnowingTarget(ANSWER), drafter))

    assert context.tokens[len(PROMPT) :].tolist() == ANSWER
    assert len(ANSWER) / len(rounds) == pytest.approx(tau, rel=0.03)


def write_script(file, alpha):
    """Write the answer to PROMPT with each token, independently, left right with chance `alpha`."""
    draw = random.Random(0)
    draft_tokens = [
        token if draw.random() < alpha else (token + draw.randrange(1, 1000)) % 49152
        for token in ANSWER
    ]
    file.write_text(json.dumps({"prompt": list(PROMPT), "guesses": draft_tokens}) + "\n")


def test_prompt_without_a_script_gets_no_draft(tmp_path):
    """Its request runs without draft tokens."""
    file = tmp_path / "scripts.jsonl"
    file.write_text(json.dumps({"prompt": [1], "guesses": [2, 3]}) + "\n")
    scripts = Scripts.load(file)

    assert scripts.draft_tokens(np.asarray([1], dtype=np.int32)).tolist() == [2, 3]
    unknown = scripts.draft_tokens(np.asarray([1, 1], dtype=np.int32))
    assert ScriptedDrafter("s", 1, 4, unknown, 2).propose(np.zeros(2, np.int32), 4).tokens == ()


def test_impossible_tau_and_missing_scripts_are_refused(tmp_path):
    """A round gives at most k + 1 tokens, and the file must exist."""
    with pytest.raises(ValueError, match="with 1 draft tokens a round it is from 1 to 2, not 3"):
        alpha_of_tau(3.0, 1)
    with pytest.raises(ConfigurationError, match="holds no scripts"):
        Scripts.load(Path(tmp_path / "none"))
