"""Tests of `specdec evaluate` without a server, on answers simulated from known acceptance."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from specdec.estimates.acceptance import AcceptanceCounts
from specdec.estimates.formulas import expected_tokens_by_length
from specdec.loadtest.evaluate.advice import (
    DEPLOY,
    DO_NOT_DEPLOY,
    TOO_FEW,
    UNCLEAR,
    advise,
    by_gain,
    by_guide,
)
from specdec.loadtest.evaluate.cli import main
from specdec.loadtest.evaluate.costs import RoundCosts, round_costs
from specdec.loadtest.evaluate.domains import load_domain_prompts
from specdec.loadtest.evaluate.findings import find, predicted_best
from specdec.loadtest.evaluate.offered import chosen
from specdec.loadtest.evaluate.picture import plot_findings
from specdec.loadtest.evaluate.probe import Probe, compare, find_tokenizer
from specdec.loadtest.evaluate.report import report
from specdec.loadtest.kit.answers import Measurement
from specdec.loadtest.kit.ratios import Ratio
from tests.unit.orchestrator_settings import settings_of

PLAIN_S, BASE_S, PER_DRAFT_TOKEN_S = 0.010, 0.011, 0.001
ALPHAS = {"sql": (0.8, 0.7, 0.6, 0.5, 0.5), "poems": (0.2, 0.2, 0.2, 0.2, 0.2)}
ARMS = ["draft:2", "draft:5"]
NUM_PROMPTS, NUM_ROUNDS = 12, 300


def answer(domain, number, k, order):
    """Return a simulated answer, with rounds drawn by the domain's α and the round times above."""
    histogram = [0] * (k + 1)
    for _ in range(NUM_ROUNDS):
        kept = 0
        while kept < k and order.random() < ALPHAS[domain][kept]:
            kept += 1
        histogram[kept] += 1
    accepted = sum(kept * count for kept, count in enumerate(histogram))
    # The first response has one round's tokens; here that is an average round.
    per_round = 1 + accepted / NUM_ROUNDS
    num_tokens = NUM_ROUNDS + accepted
    seconds = (NUM_ROUNDS - 1) * (BASE_S + PER_DRAFT_TOKEN_S * k)
    return Measurement(
        prompt_id=f"{domain}-{number}",
        column=domain,
        arm=f"draft:{k}",
        num_tokens=num_tokens,
        num_first=round(per_round),
        first_s=0.1,
        last_s=0.1 + seconds,
        statistics={
            "round_times": {"num_rounds": NUM_ROUNDS - 1},
            "acceptance_histogram_by_draft_length": {str(k): histogram},
            "num_spec_steps": NUM_ROUNDS,
            "num_draft_tokens": k * NUM_ROUNDS,
            "num_accepted_draft_tokens": accepted,
        },
    )


def plain(domain, number):
    """Return a simulated answer without speculation, one token a step."""
    where = f"{domain}-{number}", domain, "off"
    return Measurement(*where, 500, 1, 0.1, 0.1 + 499 * PLAIN_S, None)


@pytest.fixture(scope="module")
def found():
    """Return answers to twelve prompts of each domain: off, with k = 2 and with k = 5."""
    order = random.Random(11)
    return [
        each
        for domain in ALPHAS
        for number in range(NUM_PROMPTS)
        for each in (
            plain(domain, number),
            *(answer(domain, number, k, order) for k in (2, 5)),
        )
    ]


@pytest.fixture(scope="module")
def findings(found):
    """Return the findings of both domains."""
    costs = round_costs(found, ARMS)
    return {domain: find(found, domain, "draft", ARMS, costs) for domain in ALPHAS}


def test_two_draft_lengths_give_all_three_costs(found):
    """The times of a plain step, of a round without its draft, and of a draft token are found."""
    costs = round_costs(found, ARMS)

    assert costs.plain_s == pytest.approx(PLAIN_S)
    assert costs.base_s == pytest.approx(BASE_S)
    assert costs.per_draft_token_s == pytest.approx(PER_DRAFT_TOKEN_S)
    assert costs.round_s(0) == costs.plain_s


def test_one_draft_length_gives_a_line_from_the_plain_step(found):
    """With one k the line of round times begins at the plain step and ends at the measured time."""
    costs = round_costs(found, ["draft:5"])

    assert costs.base_s == costs.plain_s
    assert costs.round_s(5) == pytest.approx(BASE_S + 5 * PER_DRAFT_TOKEN_S)


def test_acceptance_estimates_recover_the_simulated_alphas(findings):
    """α̂ by position uses the rounds of both k, and its intervals contain the true α."""
    for domain, alphas in ALPHAS.items():
        for index, position in enumerate(findings[domain].positions[:3]):
            low, high = position.interval(0.999)
            assert low <= alphas[index] <= high
    assert findings["sql"].alpha.low > findings["poems"].alpha.high
    assert findings["poems"].alpha.low <= 0.2 <= findings["poems"].alpha.high


def test_gain_is_predicted_as_it_is_measured(findings):
    """E · T(0) / T(k) from α and costs equals the measured ratio of token rates."""
    for domain, alphas in ALPHAS.items():
        for arm in findings[domain].arms:
            k = arm.num_draft_tokens
            truth = expected_tokens_by_length(alphas[:k])[-1] * PLAIN_S
            truth /= BASE_S + PER_DRAFT_TOKEN_S * k
            assert arm.predicted.middle == pytest.approx(truth, rel=0.03)
            assert arm.gain.middle == pytest.approx(truth, rel=0.03)
            assert arm.predicted.low < arm.predicted.middle < arm.predicted.high


def test_best_length_of_each_domain(findings):
    """About 4 draft tokens pay at high α; at low α at most 2, or none."""
    assert findings["sql"].best.num_draft_tokens in {3, 4, 5}
    assert findings["poems"].best.num_draft_tokens in {0, 1, 2}


def test_rounds_without_a_draft_count_as_plain_steps():
    """Drafts in half of the rounds give half of the gained tokens for half of the cost."""
    positions = (AcceptanceCounts(1000, 1000),)
    costs = RoundCosts(1.0, 1.0, 0.5)

    assert predicted_best(positions, 1.0, costs).speed_up == pytest.approx(2 / 1.5)
    assert predicted_best(positions, 0.5, costs).speed_up == pytest.approx(1.5 / 1.25)


# Advice.


@pytest.mark.parametrize(
    ("gain", "advice"),
    [
        (Ratio(1.3, 1.1, 1.5), DEPLOY),
        (Ratio(1.1, 0.9, 1.3), UNCLEAR),
        (Ratio(0.8, 0.7, 0.9), DO_NOT_DEPLOY),
    ],
)
def test_advice_follows_the_interval_of_the_gain(gain, advice):
    """An interval above 1 advises to deploy, one below 1 against it, any other to measure more."""
    assert by_gain(gain) == advice


@pytest.mark.parametrize(
    ("rate", "advice"), [(0.61, DEPLOY), (0.55, UNCLEAR), (0.49, DO_NOT_DEPLOY)]
)
def test_advice_by_the_guides_thresholds(rate, advice):
    """The guide advises to deploy above 0.6 accepted ÷ drafted, and not to below 0.5."""
    assert by_guide(rate) == advice


def test_few_prompts_allow_no_advice(found, findings):
    """Four prompts are too few for advice, even with a large gain; five are enough."""
    own = [each for each in found if each.column == "sql" and each.arm in ARMS]
    lengths = {each.prompt_id: 10 for each in found}
    few, enough = (replace(findings["sql"], num_prompts=count) for count in (4, 5))

    assert advise(few, [], own, lengths, None).ours == TOO_FEW
    assert advise(enough, [], own, lengths, None).ours == DEPLOY


@pytest.mark.parametrize(
    ("parameters", "drafters"),
    [
        ({}, ["draft", "auto"]),
        (
            {"tensorrt_llm_draft_model_name": "", "target_head_name": "eagle3"},
            ["eagle3", "auto"],
        ),
        ({"tensorrt_llm_draft_model_name": ""}, ["lookup", "auto"]),
        ({"engine_kind": "llmapi", "tensorrt_llm_draft_model_name": ""}, ["auto"]),
    ],
)
def test_a_servers_best_known_drafters_are_compared_by_default(parameters, drafters):
    """They follow from the server's settings; a server that drafts inside has no choice."""
    assert chosen(settings_of(**parameters)) == drafters


def test_low_acceptance_of_copies_is_no_matter_of_training(found, findings):
    """A copy drafter learns nothing; the causes speak of the text instead."""
    own = [each for each in found if each.column == "poems" and each.arm in ARMS]
    lengths = {each.prompt_id: 10 for each in found}
    copies = {name: replace(each, drafter="lookup") for name, each in findings.items()}

    causes = "\n".join(advise(copies["poems"], [copies["sql"]], own, lengths, None).causes)

    assert "the answers repeat little of the text that the drafter copies from" in causes
    assert "its answers repeat less of earlier text" in causes
    assert "train" not in causes


def test_advice_names_causes_of_a_low_acceptance(found, findings):
    """Causes are another tokenizer, low α at the first position, and domains that do better."""
    own = [each for each in found if each.column == "poems" and each.arm in ARMS]
    lengths = {each.prompt_id: 10 for each in found}
    probe = Probe(num_texts=12, num_alike=9, first_difference="naïve")

    advice = advise(findings["poems"], [findings["sql"]], own, lengths, probe)
    causes = "\n".join(advice.causes)

    assert advice.guide == DO_NOT_DEPLOY
    assert "cut 3 of 12 texts differently, first at 'naïve'" in causes
    assert "already the first draft token is rarely accepted (0.2" in causes
    assert "the task: α̂ is 0.7" in causes


def test_advice_names_long_prompts_as_a_cause(found, findings):
    """An acceptance that falls with the prompt's length is named as a cause."""
    # All prompts count as one domain, in which the poems are the long ones.
    mixed = [each for each in found if each.arm in ARMS]
    lengths = {each.prompt_id: 900 if each.column == "poems" else 20 for each in mixed}

    advice = advise(findings["poems"], [], mixed, lengths, None)

    assert any("0.2" in cause and "length: α̂" in cause for cause in advice.causes)


def test_report_has_advice_and_gains_and_the_picture_is_drawn(findings, found, tmp_path):
    """The tables have advice and both gains; the picture is a PNG."""
    own = [each for each in found if each.arm in ARMS]
    lengths = {each.prompt_id: 10 for each in found}
    advised = [(each, advise(each, [], own, lengths, None)) for each in findings.values()]

    text = report(advised, {"draft": round_costs(found, ARMS)})
    plot_findings(list(findings.values()), "title", tmp_path / "evaluate.png")

    assert f"| sql    | draft   | 12      | **{DEPLOY}**" in text
    assert "gain measured" in text
    assert "gain predicted" in text
    assert (tmp_path / "evaluate.png").read_bytes().startswith(b"\x89PNG")


# Prompts and tokenizers.


def write(path, *lines):
    """Write a JSONL file with these lines and return its path."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_prompts_are_read_in_all_forms(tmp_path):
    """A prompt is a text, turns or messages; its domain comes from a column or from the rules."""
    file = write(
        tmp_path / "prompts.jsonl",
        {"prompt": "Write a Python function.", "task": "code"},
        {"turns": ["Why is the sky blue?", "And at night?"], "task": "qa"},
        {"messages": [{"role": "user", "content": "hello"}], "task": "chat"},
    )

    named = load_domain_prompts(file, None)
    ruled = load_domain_prompts(file, "auto")

    assert [each.domain for each in named] == ["code", "qa", "chat"]
    assert [each.text for each in named][1:] == ["Why is the sky blue?", "hello"]
    assert [each.domain for each in ruled] == ["code_generation", "question_answering", "other"]


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        (
            {"prompt": "x"},
            None,
            "line 1: a column task or category is missing; this line has prompt",
        ),
        ({"prompt": "x", "task": "t"}, "topic", "the column 'topic' is missing; this line has"),
        ({"prompt": "", "task": "t"}, None, "a line needs a text in `prompt`, `turns` or"),
        ({"turns": [], "task": "t"}, None, "a line needs a text in"),
    ],
)
def test_prompt_line_that_cannot_be_read_is_an_error(tmp_path, line, column, message):
    """The message names the line and what it lacks."""
    with pytest.raises(ValueError, match=message):
        load_domain_prompts(write(tmp_path / "prompts.jsonl", line), column)


def test_tokenizers_are_compared_by_the_ids_of_texts(tmp_path):
    """The newest version's tokenizer is used.

    Texts with other ids are counted, and the first difference is shown.
    """
    words = ["[UNK]", "a", "small", "draft"]
    for model, version, vocabulary in (
        ("target", "1", words),
        ("draft", "1", words),
        ("draft", "2", [*words[:2], "draft", "small"]),
    ):
        tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate(vocabulary)}, "[UNK]"))
        tokenizer.pre_tokenizer = Whitespace()
        folder = tmp_path / model / version / "checkpoint"
        folder.mkdir(parents=True)
        tokenizer.save(str(folder / "tokenizer.json"))
    target, draft = (find_tokenizer(tmp_path, model) for model in ("target", "draft"))

    assert draft.parts[-3] == "2"
    assert find_tokenizer(tmp_path, "lookup") is None
    assert compare(target, target, ["a small draft"]) == Probe(1, 1, "")
    assert compare(target, draft, ["a", "a small draft"]) == Probe(2, 1, "small draft")


def test_command_refuses_a_missing_prompt_file(tmp_path, capsys):
    """It ends with exit status 2 and names the file, before it contacts a server."""
    with pytest.raises(SystemExit) as ended:
        main(["--prompts", str(tmp_path / "none.jsonl")])

    assert ended.value.code == 2
    assert "none.jsonl" in capsys.readouterr().err


def test_command_without_a_server(tmp_path, capsys):
    """Without a server at the address, it prints one line and ends with exit status 1."""
    file = write(tmp_path / "prompts.jsonl", {"prompt": "x", "task": "t"})

    assert main(["--prompts", str(file), "--server", "127.0.0.1:1"]) == 1
    assert "error: connection_failed" in capsys.readouterr().err
