"""A row's result has the same bits whatever rows run beside it, which makes verification exact.

Every row is compared, in the shapes of the default target: hidden size 576, MLP 1536, 9 query and
3 key heads of 64, 49,152 tokens. If a library changes its kernels, these tests notice it.
"""

import numpy as np
import pytest
import torch

from specdec.torch_engine.layers.linear import MAX_INNER, Linear
from specdec.torch_engine.layers.output_head import OutputHead, TorchOutput
from specdec.torch_engine.model import LlamaModel, Segment
from tests.unit.default_target import (
    CPU,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    VOCAB,
    bits,
    random,
)
from tests.unit.tiny_llama import save_tiny_llama

pytestmark = pytest.mark.usefixtures("two_threads")

MAX_ROWS = 1024
MAX_HEAD_ROWS = 513
"""Rows of the output head to compare. It reads no prompts, and 48 streams of 9 rows are 432."""
ROWS = (
    *(2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129),
    *(255, 256, 257, 511, 512, 513, 1023, 1024),
)
"""Numbers of rows to compare: those at which kernels change, and some between."""
NUM_PAIRED = 96
"""First rows of a product, which are compared two by two."""


def reference(product, num_rows):
    """Return the result of all rows at once; check that the first rows give the same two by two.

    The model never runs fewer than two rows. `product` takes a slice of the rows.
    """
    together = product(slice(num_rows))
    for start in range(0, min(num_rows, NUM_PAIRED), 2):
        pair = product(slice(start, start + 2))
        assert torch.equal(pair, together[start : start + 2]), "two rows alone differ from all"
    return together


@pytest.mark.parametrize(
    ("num_out", "max_rows"),
    [
        ((HEADS + 2 * KV_HEADS) * HEAD_DIM, MAX_ROWS),
        (HIDDEN, MAX_ROWS),
        (2 * INNER, MAX_ROWS),
        (VOCAB, MAX_HEAD_ROWS),
    ],
    ids=["qkv", "output", "gate_up", "head"],
)
def test_rows_of_a_product_do_not_depend_on_their_number(num_out, max_rows):
    """In Linear, each of 2 to 1,024 rows has the same bits as beside one other row."""
    linear = Linear(random(num_out, HIDDEN, scale=0.05))
    x = random(max_rows, HIDDEN, seed=1)

    expected = reference(lambda rows: bits(linear(x[rows])), max_rows)

    for num_rows in (each for each in ROWS if each <= max_rows):
        first, last = linear(x[:num_rows]), linear(x[-num_rows:])
        assert torch.equal(bits(first), expected[:num_rows]), f"{num_rows} rows differ"
        assert torch.equal(bits(last), expected[-num_rows:]), f"the last {num_rows} rows differ"


@pytest.mark.parametrize("num_in", [HIDDEN, INNER], ids=["output", "down"])
def test_rows_added_to_the_residual_do_not_depend_on_their_number(num_in):
    """Linear.add_to sums a long inner dimension in pieces, in a fixed order."""
    assert MAX_INNER < INNER, "no inner dimension here is summed in pieces"
    linear = Linear(random(HIDDEN, num_in, scale=0.05))
    x = random(MAX_ROWS, num_in, seed=2)
    residual = random(MAX_ROWS, HIDDEN, seed=3).float()

    def added(rows):
        total = residual[rows].clone()
        linear.add_to(total, x[rows])
        return bits(total)

    expected = reference(added, MAX_ROWS)

    for num_rows in ROWS:
        assert torch.equal(added(slice(num_rows)), expected[:num_rows]), f"{num_rows} rows differ"
        assert torch.equal(added(slice(-num_rows, None)), expected[-num_rows:])


def test_normalisation_and_activation_do_not_depend_on_the_rows():
    """This holds for RMSNorm in float32 and SiLU in bfloat16, as the model calls them."""
    x = random(MAX_ROWS, HIDDEN, seed=4).float()
    weight = random(HIDDEN, seed=5).float()

    def norm(rows):
        return torch.nn.functional.rms_norm(rows, (HIDDEN,), weight, 1e-5)

    def activate(rows):
        return torch.nn.functional.silu(rows)

    for function, rows in ((norm, x), (activate, random(MAX_ROWS, INNER, seed=6))):
        expected = reference(lambda at, f=function, r=rows: bits(f(r[at])), MAX_ROWS)
        for num_rows in ROWS:
            assert torch.equal(bits(function(rows[:num_rows])), expected[:num_rows])


def most_likely_of(head_rows, hidden):
    """Return the most likely token of each row, [rows] int64, as the model finds it."""
    return OutputHead(head_rows, None, len(head_rows), TorchOutput(head_rows)).most_likely(hidden)


def test_most_likely_token_of_a_row_does_not_depend_on_other_rows():
    """It is the same among 2 to 64 rows."""
    head_rows = random(VOCAB, HIDDEN, seed=12, scale=0.05)
    hidden = torch.randn(64, HIDDEN, generator=torch.Generator().manual_seed(13))
    expected = reference(lambda rows: most_likely_of(head_rows, hidden[rows]), len(hidden))

    for num_rows in (3, 5, 17, 64):
        assert torch.equal(most_likely_of(head_rows, hidden[:num_rows]), expected[:num_rows])


def test_near_ties_are_decided_in_float32():
    """Logits that are equal only in bfloat16 are told apart; a real tie gives the lowest id."""
    hidden = torch.randn(3000, HIDDEN, generator=torch.Generator().manual_seed(14))
    head_rows = random(300, HIDDEN, seed=16, scale=0.05)
    exact = hidden.double() @ head_rows.double().T

    chosen = most_likely_of(head_rows, hidden)

    gap = exact.amax(dim=-1) - exact[torch.arange(len(hidden)), chosen]
    assert gap.max() < 1e-5
    rounded = Linear(head_rows)(hidden.to(torch.bfloat16)).argmax(dim=-1)
    assert (rounded != chosen).sum() > 10, "no near ties here: the test tests nothing"
    twice = torch.cat((head_rows, head_rows))
    assert torch.equal(most_likely_of(twice, hidden), chosen)


def test_model_never_multiplies_a_single_row(tmp_path, monkeypatch):
    """A product with one row sums in another order, so a lone token runs beside its own copy."""
    model = LlamaModel(save_tiny_llama(tmp_path), 1024, CPU, kernels="torch")
    seen = []
    product = Linear._product

    def watched(self, x, weight):
        seen.append(len(x))
        return product(self, x, weight)

    monkeypatch.setattr(Linear, "_product", watched)
    tokens = np.asarray([5, 6, 7], dtype=np.int32)
    one = model.cache.acquire(tokens)
    for ids in (tokens[:1], tokens[1:2], tokens):
        model.output_head.most_likely(model.run([Segment(one, ids, num_logits=1)]))

    assert min(seen) == 2
