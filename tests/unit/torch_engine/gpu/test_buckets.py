"""Tests of the padded shapes of passes: how shapes are rounded, which get a graph, the padding."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.gpu.buckets import (
    MAX_GRAPH_ROWS,
    bucket_of,
    buckets_within,
    group,
    pack,
    views,
)
from specdec.torch_engine.layers.attention import SHORT_ROWS


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 1, 1), (1, 1, 1)),
        ((3, 5, 3), (4, 5, 4)),
        ((4, 6, 4), (4, 9, 4)),
        ((5, 2, 5), (8, 2, 8)),
        ((16, 17, 32), (16, 17, 32)),
        ((1, 300, 2), (1, 300, 2)),
    ],
)
def test_bucket_is_the_smallest_that_holds_the_pass(shape, expected):
    """Sequences and blocks are powers of two; rows are 1, or a power of two plus 1.

    The rows of a prompt are not rounded.
    """
    assert bucket_of(*shape) == expected


@given(sequences=st.integers(1, 16), num_drafts=st.integers(0, 16), num_blocks=st.integers(1, 32))
def test_passes_that_verify_drafts_have_graphs(sequences, num_drafts, num_blocks):
    """Within the default limits each such pass has a graph, with two exceptions.

    They are passes of more than MAX_GRAPH_ROWS rows, and those with more blocks than the pool.
    """
    captured = set(buckets_within(EngineLimits()))
    bucket = bucket_of(sequences, 1 + num_drafts, num_blocks)
    fits_pool = bucket.num_sequences * bucket.num_blocks <= 256

    is_small = bucket.num_sequences * bucket.num_rows <= MAX_GRAPH_ROWS
    assert (bucket in captured) == (is_small and fits_pool)


def test_default_engines_capture_176_and_134_graphs():
    """Loading captures 176 graphs for the default target, and 134 for the default draft model."""
    drafting = EngineLimits(max_draft_len=0)

    assert len(list(buckets_within(EngineLimits()))) == 176
    assert len(list(buckets_within(drafting))) == 134


@given(st.lists(st.integers(1, 40), min_size=1, max_size=70))
def test_groups_hold_every_sequence_once(num_rows):
    """No sequence is lost. Sequences share a group only if a graph can run it.

    That excludes sequences with the many rows of a prompt.
    """
    groups = group(num_rows)

    assert sorted(index for members in groups for index in members) == list(range(len(num_rows)))
    for members in groups:
        longest = max(num_rows[index] for index in members)
        bucket = bucket_of(len(members), longest, 1)
        assert len(members) == 1 or longest <= SHORT_ROWS
        assert len(members) == 1 or bucket.num_sequences * bucket.num_rows <= MAX_GRAPH_ROWS


def test_sixteen_verifications_are_one_group():
    """Sixteen rounds of four draft tokens, as under load, run together."""
    assert len(group([5] * 16)) == 1


def test_missing_rows_repeat_the_last():
    """Padding repeats a sequence's last row and the last sequence, so that its inputs are valid."""
    bucket = bucket_of(3, 3, 2)
    tokens = [np.array(own, np.int32) for own in ([1, 2, 3], [4], [5, 6])]
    positions = [np.array(own) for own in ([7, 8, 9], [300], [0, 1])]

    inputs = views(bucket, torch.from_numpy(pack(bucket, tokens, positions, [[8], [3, 6], [2]])))

    assert inputs.tokens.tolist() == [[1, 2, 3], [4, 4, 4], [5, 6, 6], [5, 6, 6]]
    assert inputs.positions.tolist() == [[7, 8, 9], [300, 300, 300], [0, 1, 1], [0, 1, 1]]
    assert inputs.table.tolist() == [[8, 8], [3, 6], [2, 2], [2, 2]]
