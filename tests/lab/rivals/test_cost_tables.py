"""The paper's cost tables: its own examples, both ways of making entries, and the optimum that needs no tables."""

from __future__ import annotations

import numpy as np
import pytest

from tallytree import Hierarchy, SpecError
from tallytree.estimate import nearest_consistent
from tallytree.lab.rivals.cost_tables import (
    MOST_ENTRIES,
    cheapest_split,
    cost_tables,
    paper_reach,
    table_entries,
    table_estimate,
)
from tests.oracles.trees import cost, is_feasible, noisy_counts, random_tree

US = Hierarchy.from_edges([("GA", "US"), ("NY", "US")], levels=["nation", "state"])
# Figure 3, the subtree of size 1: noisy counts of US, GA and NY.
SIZE_1 = np.array([2, 3, 0])
ONES = np.ones(3, dtype=np.int64)


def tables_of(column, reach, **options):
    lows, starts, costs = cost_tables(column, US, reach * ONES, ONES, **options)
    return {
        name: dict(enumerate(costs[starts[row] : starts[row + 1]].tolist(), start=int(lows[row])))
        for row, name in enumerate(US.ids)
    }


@pytest.mark.parametrize("per_entry", [False, True])
def test_table_5_and_figure_4(per_entry):
    tables = tables_of(SIZE_1, 4, per_entry=per_entry)
    assert [tables["GA"][v] for v in range(5)] == [9, 4, 1, 0, 1]
    assert [tables["NY"][v] for v in range(5)] == [0, 1, 4, 9, 16]
    # Table 5 prints each entry of US as (v − 2)² + the least sum over the splits of v.
    assert [tables["US"][v] for v in range(5)] == [4 + 9, 1 + 4, 0 + 1, 1 + 0, 4 + 1]
    # Example 5: the table of US goes on with 5 ↦ 11.
    assert tables["US"][5] == 11


def test_example_4_adds_one_unit_at_a_time_where_it_costs_least():
    ga = [(v, (v - 3) ** 2) for v in range(6)]
    ny = [(v, v**2) for v in range(6)]
    assert [cheapest_split([ga, ny], v) for v in (3, 4, 5)] == [0, 1, 2]


def test_the_walk_down_takes_the_starred_values_of_table_5():
    """The star of US stands at 3; the entry at 2 costs the same, so the total of all sizes decides between them."""
    tables = tables_of(SIZE_1, 4)
    assert tables["US"][2] == tables["US"][3] == 1
    found = table_estimate(SIZE_1[:, None], US, [4, 4], total=3)
    assert found.ravel().tolist() == [3, 3, 0]


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_papers_tables_and_nearest_consistent_reach_the_same_cost(public, weighted):
    rng = np.random.default_rng(4)
    for case in range(50):
        tree = random_tree(rng, 1 + case % 4, most_children=3)
        counts, noisy = noisy_counts(rng, tree, sizes=3, scale=2, mean=5)
        total = int(counts[0].sum()) if public else None
        weights = rng.integers(1, 7, tree.depth).tolist() if weighted else None
        tables = table_estimate(noisy, tree, [paper_reach(8)] * tree.depth, total=total, weights=weights)
        nearest = nearest_consistent(noisy, tree, total=total, weights=weights)
        assert is_feasible(tables, tree, total)
        assert cost(noisy, tables, tree, weights) == cost(noisy, nearest, tree, weights)


def test_a_constraint_program_per_entry_gives_the_tables_of_algorithm_1():
    rng = np.random.default_rng(6)
    for case in range(6):
        tree = random_tree(rng, 2 + case % 2, most_children=2)
        _, noisy = noisy_counts(rng, tree, sizes=1, scale=1, mean=3)
        ones = np.ones(len(tree), dtype=np.int64)
        merged = cost_tables(noisy[:, 0], tree, 4 * ones, ones)
        solved = cost_tables(noisy[:, 0], tree, 4 * ones, ones, per_entry=True)
        for one, other in zip(merged, solved, strict=True):
            assert np.array_equal(one, other)


def test_the_footnotes_domains():
    assert paper_reach(2 * 6**2) == 216
    assert paper_reach(2 * 0.6**2) == 3
    lows, starts, _ = cost_tables(np.array([5, 3, 0]), US, 4 * ONES, ONES)
    assert lows.tolist() == [1, 0, 0]
    assert np.diff(starts).tolist() == [9, 8, 5]


def test_an_empty_domain_is_an_error_that_says_what_to_do():
    with pytest.raises(SpecError, match=r"domains are empty for 1 of 3 .* pgsr-hierarchical-dp"):
        table_estimate(np.array([[2], [3], [-5]]), US, [3, 3])
    with pytest.raises(SpecError, match="domains are empty"):
        table_estimate(np.array([[30], [3], [2]]), US, [3, 3])
    with pytest.raises(SpecError, match="leaves out the public total 20"):
        table_estimate(np.array([[5], [3], [2]]), US, [3, 3], total=20)


def test_tables_that_do_not_fit_are_refused():
    assert table_entries(US, 5, [1, 2]) == 5 * (3 + 2 * 5)
    wide = MOST_ENTRIES // 3
    with pytest.raises(SpecError, match="without tables"):
        table_estimate(np.array([[2], [3], [0]]), US, [wide, wide])
    with pytest.raises(SpecError, match="overflow"):
        table_estimate(np.array([[2], [3], [0]]), US, [10**6, 10**6], weights=[1, 1_000_000])
    with pytest.raises(SpecError, match="2 reaches"):
        table_estimate(np.array([[2], [3], [0]]), US, [3])
