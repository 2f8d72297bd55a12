from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree import Categories, Hierarchy
from tallytree.estimate.transport import allocate_tables
from tests.oracles import transport as oracle
from tests.oracles.trees import random_tree

numbers = st.floats(-40, 40)
precisions = st.floats(0.01, 100)


@st.composite
def problems(draw, most=3, largest=3):
    """A small table of integers whose sums are given, with targets and weights of any kind."""
    shape = draw(st.integers(1, most)), draw(st.integers(1, most))
    cells = shape[0] * shape[1]

    def filled(strategy):
        return np.array(draw(st.lists(strategy, min_size=cells, max_size=cells))).reshape(shape)

    return filled(st.integers(0, largest)), filled(numbers), filled(precisions)


@settings(max_examples=100, deadline=None)
@given(problems())
def test_no_whole_table_with_these_sums_is_nearer(problem):
    true, target, weight = problem
    rows, columns = true.sum(axis=1), true.sum(axis=0)
    found = oracle.nearest_table(target, weight, rows, columns)
    assert found.min() >= 0
    assert found.sum(axis=1).tolist() == rows.tolist()
    assert found.sum(axis=0).tolist() == columns.tolist()
    best = oracle.least_cost(target, weight, rows.tolist(), columns.tolist())
    assert oracle.cost(found, target, weight) <= best + 1e-7 * (1 + best)


@settings(max_examples=40, deadline=None)
@given(problems(most=8, largest=10**5), st.floats(0, 1e4))
def test_sums_are_kept_on_any_input(problem, noise):
    true, target, weight = problem
    found = oracle.nearest_table(true + noise * target, weight, true.sum(axis=1), true.sum(axis=0))
    assert found.min() >= 0
    assert np.array_equal(found.sum(axis=1), true.sum(axis=1))
    assert np.array_equal(found.sum(axis=0), true.sum(axis=0))


def test_a_table_is_found_where_no_row_has_two_positive_cells():
    """Column sums then do not change with small changes of the prices: the curvature is 0."""
    target = np.array([[-50.952, 40.372, -80.611], [-0.777, 29.016, -26.501]])
    found = oracle.nearest_table(target, np.full((2, 3), 1e-6), np.array([2, 0]), np.array([0, 0, 2]))
    assert found.tolist() == [[0, 0, 2], [0, 0, 0]]


def random_problem(seed):
    """A true table, a noisy target and weights over up to 16 orders of magnitude, with empty rows and columns."""
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 7), rng.integers(1, 6)
    weight = 10.0 ** (rng.choice([-6, 0, 6]) + rng.uniform(-1, 1, shape) * rng.choice([0, 2, 8]))
    if rng.random() < 0.5:
        weight = np.ascontiguousarray(np.broadcast_to(weight[:, :1] if rng.random() < 0.5 else weight[:1], shape))
    true = rng.poisson(10 ** rng.uniform(-1, 2), shape) * (rng.random(shape) < rng.choice([0.3, 1]))
    true[:, rng.random(shape[1]) < 0.1] = 0
    true[rng.random(shape[0]) < 0.1] = 0
    target = true + rng.laplace(0, 10 ** rng.uniform(-2, 5), shape)
    return true, np.round(target) if rng.random() < 0.2 else target, weight


def test_in_exact_arithmetic_no_table_is_nearer_whatever_the_weights():
    for seed in range(120):
        true, target, weight = random_problem(seed)
        found = oracle.nearest_table(target, weight, true.sum(axis=1), true.sum(axis=0))
        assert found.min() >= 0
        assert np.array_equal(found.sum(axis=1), true.sum(axis=1))
        assert np.array_equal(found.sum(axis=0), true.sum(axis=0))
        best = oracle.exact_cost(oracle.exactly_nearest(found, target, weight), target, weight)
        assert oracle.exact_cost(found, target, weight) <= best * (1 + Fraction(1, 10**12)), seed


@pytest.mark.parametrize("noise", [1e-3, 1e3, 1e9, 1e15])
def test_sums_are_kept_with_counts_up_to_a_million_million(noise):
    rng = np.random.default_rng(int(noise) + 1)
    for shape in ((2, 2), (20, 3), (60, 12)):
        true = np.floor(10 ** rng.uniform(-1, 12, shape)).astype(np.int64)
        target, weight = true + rng.laplace(0, noise, shape), 10 ** rng.uniform(-8, 8, shape)
        found = oracle.nearest_table(target, weight, true.sum(axis=1), true.sum(axis=0))
        assert found.min() >= 0
        assert np.array_equal(found.sum(axis=1), true.sum(axis=1))
        assert np.array_equal(found.sum(axis=0), true.sum(axis=0))


def test_a_whole_table_with_the_right_sums_is_its_own_nearest():
    true = np.random.default_rng(1).integers(0, 9, (40, 5))
    found = oracle.nearest_table(true.astype(float), np.ones(true.shape), true.sum(axis=1), true.sum(axis=0))
    assert np.array_equal(found, true)


def test_the_nearest_table_is_found_where_many_units_are_to_be_moved():
    """Noise far above the counts leaves prices without a slope; any exchange over two rows must then be a loss."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        true, weight = rng.integers(0, 3000, (5, 3)), rng.uniform(0.01, 100, (5, 3))
        target = rng.normal(0, 1e5, (5, 3))
        found = oracle.nearest_table(target, weight, true.sum(axis=1), true.sum(axis=0))
        assert np.array_equal(found.sum(axis=1), true.sum(axis=1))
        assert np.array_equal(found.sum(axis=0), true.sum(axis=0))
        here = oracle.cost(found, target, weight)
        for one, two in product(range(5), repeat=2):
            for left, right in product(range(3), repeat=2):
                if one != two and left != right and found[one, left] and found[two, right]:
                    moved = found.copy()
                    moved[[one, two], [left, right]] -= 1
                    moved[[one, two], [right, left]] += 1
                    assert oracle.cost(moved, target, weight) >= here * (1 - 1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_allocate_tables_add_up_over_regions_and_over_categories(levels, values, seed):
    rng = np.random.default_rng(seed)
    regions = random_tree(rng, levels, 4)
    tree = regions.by_category(Categories.of({"sort": [f"v{at}" for at in range(values)]}, "members"))
    sums = regions.aggregate(rng.integers(0, 5, (regions.leaf_count, 3)))
    mean, variance = rng.normal(0, 9, (len(tree), 3)), rng.uniform(0.1, 50, (len(tree), 3))
    found = allocate_tables(mean, variance, tree, sums)
    assert found.min() >= 0
    assert np.array_equal(tree.over_categories(found), sums)
    assert np.array_equal(tree.aggregate(found[tree.level_slice(tree.depth - 1)]), found)


def test_what_is_known_exactly_is_settled_as_it_is():
    regions = Hierarchy.from_levels({"state": ["x", "x", "y"], "county": ["A", "B", "C"]}, ["state", "county"])
    tree = regions.by_category(Categories.of({"sort": ["a", "b"]}, "members"))
    true = tree.aggregate(np.random.default_rng(2).integers(0, 7, (6, 4)))
    sums = tree.over_categories(true)
    assert np.array_equal(allocate_tables(true.astype(float), np.ones(true.shape), tree, sums), true)


@pytest.mark.parametrize("seed", range(12))
def test_an_exact_solver_finds_no_nearer_table(seed):
    scip = pytest.importorskip("pyscipopt")
    rng = np.random.default_rng(seed)
    shape = rng.integers(2, 7), rng.integers(2, 6)
    true = rng.poisson(rng.choice([0.5, 3, 40]), shape)
    target, weight = true + rng.normal(0, 4, shape), rng.uniform(0.2, 3, shape)
    found = oracle.nearest_table(target, weight, true.sum(axis=1), true.sum(axis=0))
    model = scip.Model()
    model.hideOutput()
    cells = [[model.addVar(vtype="I", lb=0) for _ in range(shape[1])] for _ in range(shape[0])]
    for row, total in zip(cells, true.sum(axis=1), strict=True):
        model.addCons(scip.quicksum(row) == int(total))
    for column, total in zip(zip(*cells, strict=True), true.sum(axis=0), strict=True):
        model.addCons(scip.quicksum(column) == int(total))
    cost = model.addVar(lb=0)
    gaps = [
        float(weight[place]) * (cells[place[0]][place[1]] - float(target[place])) ** 2 for place in np.ndindex(shape)
    ]
    model.addCons(cost >= scip.quicksum(gaps))
    model.setObjective(cost)
    model.optimize()
    assert model.getStatus() == "optimal"
    assert oracle.cost(found, target, weight) <= model.getObjVal() + 1e-4 * (1 + model.getObjVal())
