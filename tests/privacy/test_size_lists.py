"""Lists of sizes: what is added to the noise, place by place, whatever the length, the parts and the range."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tallytree.privacy.run
from tallytree.privacy.measurements import list_starts
from tallytree.privacy.plan import Band
from tallytree.privacy.run import SMALL, add_sizes, noisy_lists
from tests.oracles import neighbours as oracle
from tests.oracles.views import sorted_sizes


def silence(count):
    return np.zeros(count, np.int64)


def expected(counts, first_size, lengths):
    """Region by region, straight from the definition."""
    return [
        size
        for row, length in zip(counts, lengths, strict=True)
        for size in oracle.listed(sorted_sizes(row, first_size).tolist(), int(length))
    ]


regions = st.integers(1, 4).flatmap(
    lambda sizes: st.lists(
        st.tuples(st.lists(st.integers(0, 3), min_size=sizes, max_size=sizes), st.integers(0, 9)),
        min_size=1,
        max_size=6,
    )
)


@given(regions, st.integers(0, 1), st.integers(1, 7), st.booleans())
def test_lists_of_any_length_are_the_largest_sizes_whatever_the_parts(given_regions, first_size, part, small):
    counts = np.array([row for row, _ in given_regions])
    lengths = np.array([length for _, length in given_regions])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tallytree.privacy.run, "AT_A_TIME", part)
        found = noisy_lists(silence, counts, first_size, lengths, small=small)
    assert found.dtype == (np.int32 if small else np.int64)
    assert found.tolist() == expected(counts, first_size, lengths)


@pytest.mark.parametrize("part", [1, 3, 5, 1000])
def test_every_place_gets_its_own_noise_once(monkeypatch, part):
    monkeypatch.setattr(tallytree.privacy.run, "AT_A_TIME", part)
    counts, lengths = np.array([[2, 1, 0], [0, 0, 0], [1, 1, 5]]), np.array([4, 2, 6])
    asked = []

    def draw(count):
        asked.append(count)
        return 100 * np.arange(sum(asked) - count, sum(asked), dtype=np.int64)

    found = noisy_lists(draw, counts, 1, lengths, small=True)
    assert sum(asked) == 12
    assert max(asked) <= part
    assert found.tolist() == [100 * place + size for place, size in enumerate(expected(counts, 1, lengths))]


def test_the_lists_that_are_measured_are_those_whose_sensitivity_is_proved():
    """The oracle of the brute-force test, on every small data set, level and length."""
    for data, public in product(oracle.data_sets(3), (False, True)):
        sums = oracle.TREE.aggregate(oracle.leaf_counts(data, 2, public))
        for lengths in [(2, 1)] if public else [(0, 0), (1, 0), (2, 1), (3, 1)]:
            whole = oracle.TREE.aggregate(np.array(lengths))
            for level in range(3):
                rows = oracle.TREE.level_slice(level)
                found = noisy_lists(silence, sums[rows], 0 if public else 1, whole[rows], small=True)
                assert found.tolist() == oracle.view_of_level(data, "sorted_sizes", level, 2, public, lengths)


def test_sums_beyond_32_bits_are_held_at_the_end_of_the_range_after_adding():
    counts, lengths = np.array([[0, 0, 0, 6]]), np.array([6])  # six groups of size 4
    noise = np.array([SMALL.max - 5, SMALL.max - 4, SMALL.max - 3, SMALL.min - 5, SMALL.min - 4, SMALL.min - 3])
    exact = noise + 4
    small = noisy_lists(lambda count: noise.copy(), counts, 1, lengths, small=True)
    assert small.tolist() == [min(max(int(value), SMALL.min), SMALL.max) for value in exact]
    assert small.tolist()[3] == SMALL.min  # cut after the sum: the noise alone would have been cut to SMALL.min + 4
    large = noisy_lists(lambda count: noise.copy(), counts, 1, lengths, small=False)
    assert large.tolist() == exact.tolist()


def test_no_groups_and_no_places_are_no_trouble():
    assert noisy_lists(silence, np.zeros((3, 4), np.int64), 0, np.zeros(3, np.int64), small=True).tolist() == []
    assert noisy_lists(silence, np.zeros((2, 4), np.int64), 1, np.array([0, 2]), small=True).tolist() == [0, 0]
    assert list_starts(np.array([0, 2, 0])).tolist() == [0, 0, 2, 2]


def test_a_part_may_begin_and_end_within_a_list():
    counts, starts = np.array([[3, 2]]), np.array([0, 5])
    for begin, length in product(range(5), range(1, 6)):
        sums = np.zeros(min(length, 5 - begin), np.int64)
        add_sizes(sums, begin, starts, counts, 1, 0, 2)
        assert sums.tolist() == [1, 1, 1, 2, 2][begin : begin + length]


@given(regions, st.integers(0, 1), st.integers(1, 7), st.integers(1, 5), st.integers(0, 4))
def test_a_list_of_a_band_holds_what_each_group_has_within_it(given_regions, first_size, part, first, more):
    """Of the list of whole sizes, place by place; and bands that follow one another add up to it."""
    counts = np.array([row for row, _ in given_regions])
    lengths = np.array([length for _, length in given_regions])
    band = Band(first, first + more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tallytree.privacy.run, "AT_A_TIME", part)
        found = noisy_lists(silence, counts, first_size, lengths, small=True, band=band)
    whole = expected(counts, first_size, lengths)
    assert found.tolist() == [len(set(range(1, size + 1)) & set(range(first, first + more + 1))) for size in whole]
    bands = Band(1, first), Band(first + 1, 9)
    pieces = [noisy_lists(silence, counts, first_size, lengths, small=False, band=one) for one in bands]
    assert sum(pieces).tolist() == whole
