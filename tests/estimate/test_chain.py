"""Model 3: the chain as isotonic regression, against the paper's own recurrence and against exhaustive search."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree import Hierarchy, SpecError
from tallytree.estimate.isotonic import _is_less, nearest_chain
from tests.oracles.trees import random_tree

US = Hierarchy.from_edges([("GA", "US"), ("NY", "US")], levels=["nation", "state"])


def chain_nodes(tree, sizes):
    """(level, region, size) in the order of the paper's Figure 6, read from the back: a region before its leaves."""

    def below(region, size):
        yield int(tree.level_of[region]), region, size
        for child in tree.children_of(region):
            yield from below(child, size)

    for size in range(sizes):
        yield from below(0, size)


def chain_of(counts, tree):
    """For each cell how many groups of its level are in it or later, written out."""
    chain = np.zeros_like(counts)
    for level in range(tree.depth):
        regions = range(*tree.level_slice(level).indices(len(tree)))
        order = [(size, region) for size in range(counts.shape[1]) for region in regions]
        for place, (size, region) in enumerate(order):
            chain[region, size] = sum(counts[r, s] for s, r in order[place:])
    return chain


def recurrence_cost(noisy, tree, total, weights, most):
    """The paper's tables (6), from the back of the chain to its front: the least cost of Model 3."""
    nodes = list(chain_nodes(tree, noisy.shape[1]))
    table, last_level = None, None
    for level, region, size in reversed(nodes):
        own = [weights[level] * (value - int(noisy[region, size])) ** 2 for value in range(most + 1)]
        if table is None:
            carried = [0] * (most + 1)
        elif level < last_level:  # (6b), first case: a region equals its first child
            carried = table
        else:
            carried = [min(table[: value + 1]) for value in range(most + 1)]
        table, last_level = [a + b for a, b in zip(own, carried, strict=True)], level
    if total is None:
        return min(table)
    return table[total]


def cost(noisy, counts, tree, weights):
    gaps = (chain_of(counts, tree) - noisy) ** 2
    return int((gaps.sum(axis=1) * np.array(weights)[tree.level_of]).sum())


@settings(max_examples=120)
@given(seed=st.integers(0, 2**32 - 1), levels=st.integers(1, 3), public=st.booleans(), weighted=st.booleans())
def test_the_chain_reaches_the_cost_of_the_papers_recurrence(seed, levels, public, weighted):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, most_children=2)
    sizes = int(rng.integers(1, 4))
    truth = tree.aggregate(rng.integers(0, 3, (tree.leaf_count, sizes)))
    noisy = chain_of(truth, tree) + rng.integers(-4, 5, truth.shape)
    total = int(truth[0].sum()) if public else None
    weights = [int(w) for w in rng.integers(1, 6, tree.depth)] if weighted else [1] * tree.depth
    counts = nearest_chain(noisy, tree, total=total, weights=weights)
    assert counts.min() >= 0
    assert np.array_equal(tree.aggregate(counts[tree.level_slice(tree.depth - 1)]), counts)
    most = max(int(noisy.max()), 0) if total is None else total
    assert cost(noisy, counts, tree, weights) == recurrence_cost(noisy, tree, total, weights, most)


def test_no_chain_is_nearer_by_exhaustive_search():
    rng = np.random.default_rng(8)
    for _ in range(25):
        noisy = rng.integers(-2, 6, (3, 2))
        found = nearest_chain(noisy, US, total=3)
        best = min(
            cost(noisy, US.aggregate(np.array([a, b])), US, [1, 1])
            for a, b in product(product(range(4), repeat=2), repeat=2)
            if sum(a) + sum(b) == 3
        )
        assert cost(noisy, found, US, [1, 1]) == best


def test_figure_6_orders_the_nodes_of_the_example_as_the_paper_does():
    names = [f"{US.ids[region]}{size}" for _, region, size in chain_nodes(US, 2)]
    # The paper's order is GA1 NY1 US1 GA2 …, with US tied to NY before it; from the back US is tied to GA after it.
    assert names == ["US0", "GA0", "NY0", "US1", "GA1", "NY1"]
    table_4 = np.array([[3, 1, 2, 0, 0], [2, 0, 1, 0, 0], [1, 1, 1, 0, 0]])
    chain = chain_of(table_4, US)
    assert chain.tolist() == [[6, 3, 2, 0, 0], [6, 3, 2, 0, 0], [4, 3, 1, 0, 0]]
    for (level, region, size), (below, other, other_size) in pairwise(chain_nodes(US, 5)):
        if below > level:  # a region and its first leaf count the same
            assert chain[region, size] == chain[other, other_size]
    assert np.array_equal(nearest_chain(chain, US, total=6), table_4)


def test_table_6_and_example_6():
    """The paper's counts from the front: noisy GA = 3, NY = 3, US = 2, with US = NY ≥ GA."""
    noisy = {"GA": 3, "NY": 3, "US": 2}
    ga = [(v - noisy["GA"]) ** 2 for v in range(5)]
    ny = [(v - noisy["NY"]) ** 2 + min(ga[: v + 1]) for v in range(5)]
    us = [(v - noisy["US"]) ** 2 + ny[v] for v in range(5)]
    assert ga == [9, 4, 1, 0, 1]
    assert ny == [18, 8, 2, 0, 1]
    assert us == [22, 9, 2, 1, 5]
    # Read from the back, with the order of regions turned round, the same three nodes give the same optimum, 3.
    tree = Hierarchy.from_edges([("NY", "US"), ("GA", "US")], levels=["nation", "state"])
    rows = np.array([[noisy["US"]], [noisy["NY"]], [noisy["GA"]]])
    counts = nearest_chain(rows, tree)
    assert chain_of(counts, tree).ravel().tolist() == [3, 3, 3]
    assert cost(rows, counts, tree, [1, 1]) == min(us) == 1


@given(st.integers(1, 10**18), st.integers(1, 10**18), st.integers(0, 10**18), st.integers(0, 10**18))
def test_fractions_are_compared_exactly(bottom, other_bottom, top, other_top):
    top, other_top = top % bottom, other_top % other_bottom
    assert bool(_is_less(top, bottom, other_top, other_bottom)) == (top * other_bottom < other_top * bottom)


def test_wrong_input_is_refused():
    with pytest.raises(SpecError, match="one row per region"):
        nearest_chain(np.zeros((2, 2), dtype=np.int64), US)
    with pytest.raises(SpecError, match="total"):
        nearest_chain(np.zeros((3, 2), dtype=np.int64), US, total=-1)
    with pytest.raises(SpecError, match="weights"):
        nearest_chain(np.zeros((3, 2), dtype=np.int64), US, weights=[1])
    with pytest.raises(SpecError, match="smaller"):
        nearest_chain(np.full((3, 2), 2**60), US)
