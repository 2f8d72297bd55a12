import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tallytree import histogram

counts_lists = st.lists(st.integers(0, 9), min_size=1, max_size=12)


@given(counts_lists)
def test_at_least_round_trips_with_private_totals(counts):
    survivors = histogram.at_least(np.array(counts), first_size=1)
    assert survivors.tolist() == [sum(counts[size:]) for size in range(len(counts))]
    assert histogram.counts_from_at_least(survivors).tolist() == counts


@given(st.lists(st.integers(0, 9), min_size=2, max_size=12))
def test_at_least_round_trips_with_public_totals(counts):
    survivors = histogram.at_least(np.array(counts), first_size=0)
    assert len(survivors) == len(counts) - 1
    assert histogram.counts_from_at_least(survivors, np.array(sum(counts))).tolist() == counts


@given(counts_lists, st.integers(0, 1))
def test_sorted_sizes_round_trip(counts, first_size):
    sizes = histogram.sorted_sizes(np.array(counts), first_size)
    assert sizes.tolist() == sorted(sizes.tolist())
    again = histogram.counts_from_sorted_sizes(sizes, first_size, first_size + len(counts) - 1)
    assert again.tolist() == counts


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.randoms())
def test_earth_movers_distance_is_the_least_number_of_moved_entities(sizes, random):
    other = [random.randint(0, 6) for _ in sizes]
    one_counts, other_counts = (np.bincount(values, minlength=7) for values in (sizes, other))
    moved = sum(abs(a - b) for a, b in zip(sorted(sizes), sorted(other), strict=True))
    assert histogram.earth_movers_distance(one_counts, other_counts, first_size=0) == moved


def test_l1_distance_is_per_region():
    assert histogram.l1_distance(np.array([[1, 2], [3, 4]]), np.array([[0, 2], [5, 5]])).tolist() == [1, 3]
