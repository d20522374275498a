"""Tests that the noise of device_noise.py has the same bits as that of acceptance/noise.py.

The operations for devices run on the CPU here.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.acceptance.noise import gumbel
from specdec.torch_engine.gpu.device_noise import NUM_ROWS, DeviceNoise, keys_of
from tests.unit.torch_engine.gpu.graph_path import bits

CPU = torch.device("cpu")
SEEDS = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 2**63 - 1, 2**63, 2**64 - 1]))
POSITIONS = st.lists(st.tuples(SEEDS, st.integers(0, 2**31)), min_size=1, max_size=2 * NUM_ROWS + 1)


def made(positions, vocab_size):
    """Return the rows [n, vocab_size] that DeviceNoise computes for pairs of (seed, position)."""
    noise = DeviceNoise(vocab_size, CPU, None)
    out = torch.empty(len(positions), vocab_size)
    noise.fill(out, keys_of(positions))
    return out


@given(positions=POSITIONS, vocab_size=st.integers(1, 300))
@settings(max_examples=60)
def test_rows_are_the_noise_of_their_seeds_and_positions(positions, vocab_size):
    """For any number of rows and any vocabulary, the bits are those from numpy's generator."""
    expected = torch.stack([gumbel(seed, position, vocab_size) for seed, position in positions])

    assert torch.equal(bits(made(positions, vocab_size)), bits(expected))


def test_noise_of_the_whole_default_vocabulary():
    """With the default pair's 49,152 tokens the generator's counter reaches high values."""
    expected = gumbel(2**64 - 3, 8191, 49152)

    assert torch.equal(bits(made([(2**64 - 3, 8191)], 49152)[0]), bits(expected))


def test_random_words_are_those_of_numpy():
    """The generator's integers, before any float operation, must be the same on each device."""
    noise = DeviceNoise(64, CPU, None)
    expected = np.random.Philox(key=np.array([7, 9], dtype=np.uint64)).random_raw(32)

    words = noise._words(keys_of([(7, 9)]))

    assert words[0].numpy().astype(np.uint32).tolist() == expected.view(np.uint32).tolist()


@pytest.mark.parametrize("shift", [1, 2])
def test_rows_of_neighbouring_seeds_and_positions_differ(shift):
    """They have no equal entries."""
    rows = made([(5, 5), (5, 5 + shift), (5 + shift, 5)], 1000)

    assert not (rows[0] == rows[1]).any()
    assert not (rows[0] == rows[2]).any()
