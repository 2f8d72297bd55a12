import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tallytree.domain import histogram
from tests.oracles.views import counts_from_sorted_sizes, sorted_sizes

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
    sizes = sorted_sizes(np.array(counts), first_size)
    assert sizes.tolist() == sorted(sizes.tolist())
    again = counts_from_sorted_sizes(sizes, first_size, first_size + len(counts) - 1)
    assert again.tolist() == counts


def test_the_views_of_the_count_of_counts_papers_example():
    """H = [0, 2, 1, 2] has H_c = [0, 2, 3, 5] and H_g = [1, 1, 2, 3, 3] (Kuo and others, Section 3)."""
    counts = np.array([0, 2, 1, 2])
    survivors, sizes = histogram.at_least(counts, first_size=0), sorted_sizes(counts, first_size=0)
    cumulative = counts.sum() - np.append(survivors, 0)  # H_c[s] = G − T[s + 1]
    assert cumulative.tolist() == [0, 2, 3, 5]
    assert sizes.tolist() == [1, 1, 2, 3, 3]
    assert histogram.counts_from_at_least(survivors, counts.sum()).tolist() == counts.tolist()
    assert counts_from_sorted_sizes(sizes, first_size=0, max_size=3).tolist() == counts.tolist()


def test_the_four_groups_of_the_papers_introduction():
    """Counts add up over regions, sorted lists do not."""
    regions = {"a": [4, 1], "b": [2, 1]}
    tables = {name: np.bincount(sizes, minlength=5) for name, sizes in regions.items()}
    top = tables["a"] + tables["b"]
    assert top[1:].tolist() == [2, 1, 0, 1]
    assert sorted_sizes(top, first_size=0).tolist() == [1, 1, 2, 4]
    assert [sorted_sizes(table, 0).tolist() for table in tables.values()] == [[1, 4], [1, 2]]


@given(st.lists(st.integers(0, 9), min_size=2, max_size=12), st.integers(0, 1))
def test_any_view_leads_to_any_other_and_back(counts, first_size):
    table, largest = np.array(counts), first_size + len(counts) - 1
    total = table.sum() if first_size == 0 else None
    sizes = sorted_sizes(table, first_size)
    survivors = histogram.at_least(table, first_size)
    assert survivors.tolist() == [int((sizes >= least).sum()) for least in range(1, largest + 1)]
    by_lists = counts_from_sorted_sizes(sizes, first_size, largest)
    by_survivors = histogram.counts_from_at_least(survivors, total)
    assert by_lists.tolist() == by_survivors.tolist() == counts
    assert histogram.at_least(by_lists, first_size).tolist() == survivors.tolist()
    assert sorted_sizes(by_survivors, first_size).tolist() == sizes.tolist()


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.randoms())
def test_earth_movers_distance_is_the_least_number_of_moved_entities(sizes, random):
    other = [random.randint(0, 6) for _ in sizes]
    one_counts, other_counts = (np.bincount(values, minlength=7) for values in (sizes, other))
    moved = sum(abs(a - b) for a, b in zip(sorted(sizes), sorted(other), strict=True))
    assert histogram.earth_movers_distance(one_counts, other_counts, first_size=0) == moved


def test_l1_distance_is_per_region():
    assert histogram.l1_distance(np.array([[1, 2], [3, 4]]), np.array([[0, 2], [5, 5]])).tolist() == [1, 3]
