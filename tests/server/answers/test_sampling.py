"""Sampling on a live server: the text depends on seed and parameters, not on speculation."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from specdec.clients import GenerationRequest, GrpcClient

EVERY_ENGINE = pytest.mark.engines("torch", "compiled", "inside")
BANS = pytest.mark.engines("torch", "compiled")
"""The engines that ban words; the Torch sampler of TensorRT-LLM does not."""
PROMPT = [{"role": "user", "content": "Tell me about a ship. Then tell me the same story again."}]
SHIP = {6325, 5575}
"""Tokens of "ship" and " ship"; " ships" is another word, with the token 7761."""
DRAFTERS = ("auto", "lookup", "draft", "suffix", "tree", "vote", "suffix+draft")
WAYS = (*((drafter, 4) for drafter in DRAFTERS), ("lookup", 1), ("draft", 1))
"""Drafters, each with a number of draft tokens."""


@pytest.fixture(scope="module")
def client(server):
    """Return a gRPC client of the server."""
    with GrpcClient(server.grpc_url) as opened:
        yield opened


def answer(client, **fields):
    """Return the answer to PROMPT, with statistics; `fields` may change 32 tokens and seed 11."""
    defaults = {"messages": PROMPT, "max_tokens": 32, "seed": 11, "return_perf_metrics": True}
    return client.generate(GenerationRequest(**defaults | fields))


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 1.0},
        {"temperature": 0.7, "top_p": 0.9},
        {"temperature": 0.9, "repetition_penalty": 1.2, "frequency_penalty": 0.3, "top_k": 50},
        {"temperature": 0.8, "logit_bias": {28: 2.5, 30: -100}},
    ],
    ids=["plain", "nucleus", "penalties", "biased"],
)
def test_speculation_changes_no_drawn_token_and_no_log_probability(client, sampling):
    """Sampled answers have the same bits without speculation and with each drafter and k.

    Compiled engines sample otherwise (test_strict_contract.py).
    """
    expect_no_change(client, sampling)


@BANS
@pytest.mark.parametrize(
    "sampling",
    [
        {"presence_penalty": 1.0, "min_tokens": 20, "bad_words": ["ship"]},
        {"repetition_penalty": 1.2, "frequency_penalty": 0.3, "logit_bias": {28: 2.5, 30: -100}},
    ],
    ids=["bans", "penalties"],
)
def test_speculation_changes_no_greedy_token_and_no_log_probability(client, sampling):
    """Greedy answers with penalties and bans have the same bits, on all engines."""
    expect_no_change(client, sampling)


def expect_no_change(client, sampling):
    """Check tokens and log-probabilities with each drafter against those without speculation."""
    ways = [{"drafter": drafter, "num_draft_tokens": k} for drafter, k in WAYS]
    fields = {"return_log_probs": True, "max_tokens": 24, **sampling}

    off = answer(client, num_draft_tokens=0, **fields)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda way: answer(client, **way, **fields), ways))

    assert off.end.verification == "off"
    assert len(off.log_probs) == len(off.token_ids)
    for way, on in zip(ways, answers, strict=True):
        assert on.token_ids == off.token_ids, way
        assert on.log_probs == off.log_probs, way
        assert on.end.verification == "exact"
    assert "bad_words" not in sampling or SHIP.isdisjoint(off.token_ids)
    assert "logit_bias" not in sampling or 30 not in off.token_ids


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_speculation_changes_no_top_log_probability(client, temperature):
    """The likeliest tokens of each position are the same with each drafter, for each token."""
    fields = {"return_log_probs": True, "num_top_log_probs": 4, "temperature": temperature}
    off = answer(client, num_draft_tokens=0, max_tokens=24, **fields)
    for drafter, k in WAYS:
        on = answer(client, drafter=drafter, num_draft_tokens=k, max_tokens=24, **fields)
        assert on.top_tokens == off.top_tokens, drafter
    assert len(off.top_tokens) == len(off.token_ids)
    for token, log_prob, top in zip(off.token_ids, off.log_probs, off.top_tokens, strict=True):
        values = [each.log_prob for each in top]
        assert len(top) == 4
        assert values == sorted(values, reverse=True)
        assert temperature or (top[0].token_id, top[0].log_prob) == (token, log_prob)
    assert b"".join(off.token_bytes).decode() == off.text


def test_stop_token_ends_the_answer(client):
    """As a stop word does, and with every drafter."""
    whole = answer(client, num_draft_tokens=0, max_tokens=24)
    stop = whole.token_ids[10]
    first = whole.token_ids.index(stop)
    for drafter, k in WAYS:
        cut = answer(client, drafter=drafter, num_draft_tokens=k, stop_token_ids=[stop])
        assert cut.token_ids == whole.token_ids[:first], drafter
        assert cut.end.finish_reason == "stop"


def test_names_of_special_tokens_are_shown_if_asked(client):
    """The answer goes on over its end token, whose name is then in the text."""
    fields = {"ignore_eos": True, "max_tokens": 4, "logit_bias": {2: 100.0}}
    shown = answer(client, skip_special_tokens=False, **fields)
    hidden = answer(client, **fields)
    assert shown.token_ids == hidden.token_ids
    assert shown.text == "<|im_end|>" * 4
    assert hidden.text == ""


def test_seed_decides_the_text(client):
    """A repeated seed gives the same text, other seeds other texts; a drawn seed is reported.

    This is without speculation, which keeps the text (see the first tests).
    """
    fields = {"temperature": 1.0, "drafter": "none"}
    drawn = answer(client, seed=None, **fields)

    assert answer(client, seed=drawn.end.seed, **fields).token_ids == drawn.token_ids
    with ThreadPoolExecutor(4) as pool:
        texts = set(pool.map(lambda seed: answer(client, seed=seed, **fields).token_ids, range(4)))
    assert len(texts) == 4


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_banned_text_never_appears_however_it_is_tokenized(client, temperature):
    """Bans hold for parts of words and for texts across words, and with every drafter.

    Compiled engines ban only two token sequences for each word.
    """
    fields = {"temperature": temperature, "max_tokens": 32}
    free = answer(client, **fields).text
    words = [free[at : at + 3] for at in range(0, len(free) - 3, 7)]
    off = answer(client, num_draft_tokens=0, bad_words=words, **fields)

    assert len(off.token_ids) > 8
    assert not [word for word in words if word in off.text]

    def drafted(drafter):
        return answer(client, drafter=drafter, num_draft_tokens=4, bad_words=words, **fields)

    with ThreadPoolExecutor(4) as pool:
        for drafter, on in zip(DRAFTERS, pool.map(drafted, DRAFTERS), strict=True):
            assert on.token_ids == off.token_ids, drafter


@BANS
def test_bans_hold_in_sampled_text(client):
    """Bans hold even if the draft model does not know of them, as with compiled engines."""
    bans = {"bad_words": ["ship"], "logit_bias": {28: 2.5, 30: -100}, "repetition_penalty": 1.2}

    drawn = answer(client, drafter="draft", temperature=0.6, top_p=0.9, min_tokens=32, **bans)

    assert drawn.end.total_draft_tokens > 0
    assert SHIP.isdisjoint(drawn.token_ids)
    assert 30 not in drawn.token_ids
    assert len(drawn.token_ids) == 32


@EVERY_ENGINE
def test_rejection_is_reported(client):
    """On all engines the answer reports `rejection`, and some draft tokens are accepted."""
    expect_named(client, "rejection", "draft")


@pytest.mark.parametrize(
    ("verification", "drafter"),
    [
        ("rejection", "lookup"),
        *((rule, drafter) for rule in ("block", "typical") for drafter in ("draft", "lookup")),
    ],
)
def test_other_verification_modes_are_reported(client, verification, drafter):
    """The answer reports its mode, and marks each accepted draft token with its drafter.

    Compiled engines have only `rejection`, for drafts with logits.
    """
    expect_named(client, verification, drafter)


def expect_named(client, verification, drafter):
    """Check that an answer reports the mode it was asked for, and marks all accepted tokens.

    A draft model must have some accepted tokens.
    """
    fields = {"drafter": drafter, "num_draft_tokens": 3, "temperature": 0.6, "max_tokens": 32}

    one = answer(client, verification=verification, **fields)

    assert one.end.verification == verification
    assert sum(1 for source in one.sources if source) == one.end.total_accepted_draft_tokens
    assert drafter == "lookup" or one.end.total_accepted_draft_tokens > 0


def test_tree_is_verified_by_rejection(client):
    """Branches of lookup and of the draft model are verified in one pass.

    Each accepted token is marked with its own drafter. Compiled engines take no trees.
    """
    fields = {"temperature": 0.6, "max_tokens": 64, "verification": "rejection"}

    one = answer(client, drafter="lookup+draft", num_draft_tokens=3, **fields)

    assert one.end.verification == "rejection"
    assert sum(1 for source in one.sources if source) == one.end.total_accepted_draft_tokens
    assert {0, 2} <= set(one.sources)
    parts = one.end.speculative_decoding["drafters"]
    assert set(parts) == {"tree"}
    rounds = one.end.speculative_decoding["acceptance_histogram_by_draft_length"]
    assert {int(size) for size in rounds} - {1, 2, 3}, "no tree had more tokens than a chain"


@pytest.mark.engines("torch", "inside")
def test_prediction_is_counted(client):
    """The target accepts most of a right prediction, and almost nothing of a wrong one.

    The answer is the same.
    """
    plain = answer(client, num_draft_tokens=0)
    first_word = plain.text.split()[0]

    matching = answer(client, drafter="prediction", prediction=plain.text)
    wrong = answer(client, drafter="prediction", prediction=f"{first_word} completely new.")

    assert matching.token_ids == wrong.token_ids == plain.token_ids
    assert matching.end.accepted_prediction_tokens > len(plain.token_ids) // 2
    assert matching.end.rejected_prediction_tokens <= 7
    assert wrong.end.accepted_prediction_tokens <= 1
    assert wrong.end.rejected_prediction_tokens > 0


@pytest.mark.engines("torch", "inside")
def test_suffix_memory_is_kept_apart_by_tenant(client):
    """The drafter `suffix` copies from a tenant's earlier requests for that tenant only."""
    fields = {"drafter": "suffix", "num_draft_tokens": 8}

    first = answer(client, tenant="red", **fields)
    again = answer(client, tenant="red", **fields)
    other = answer(client, tenant="blue", **fields)

    assert first.token_ids == again.token_ids == other.token_ids
    assert again.end.total_accepted_draft_tokens > first.end.total_accepted_draft_tokens
    assert other.end.total_accepted_draft_tokens == first.end.total_accepted_draft_tokens
