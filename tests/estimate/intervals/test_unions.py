"""Unions of regions: as few nodes as a search over all signs finds, and intervals that hold the truth as promised."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree import Budget, Hierarchy, one_entity
from tallytree.estimate.intervals.guaranteed import guaranteed, guaranteed_sums
from tallytree.estimate.intervals.linear import MeasuredView
from tallytree.estimate.intervals.unions import Unions, fewest_nodes, largest_regions, leaf_range, leaves_of
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import MECHANISMS
from tallytree.publish.release.error_bars import Publication
from tallytree.publish.release.release_run import choose_for, estimate_release
from tests.oracles.example import made_up

TREES = {
    "flat": {"state": ["a", "b", "c", "d", "e"]},
    "uneven": {"state": ["A", "A", "B", "B", "B"], "county": ["1", "2", "3", "4", "5"]},
    "carried": {"state": ["A", "A", "A", "B"], "county": ["1", "2", "3", ""]},
    "deep": {"a": ["x"] * 4, "b": ["y", "y", "y", "z"], "c": ["1", "2", "3", "4"]},
}


def tree_of(name):
    return Hierarchy.from_levels(TREES[name], list(TREES[name]))


def leaves(tree):
    rows = tree.level_slice(tree.depth - 1)
    return range(rows.start, rows.stop)


def path(leaf, tree):
    while leaf >= 0:
        yield leaf
        leaf = int(tree.parents[leaf])


def inside(signs, tree):
    """What leaves' signs add up to."""
    return tuple(sum(signs[node] for node in path(leaf, tree)) for leaf in leaves(tree))


@pytest.mark.parametrize("name", TREES)
def test_no_signs_make_up_a_union_with_fewer_nodes(name):
    tree = tree_of(name)
    fewest = {}
    for signs in itertools.product((-1, 0, 1), repeat=len(tree)):
        found = inside(signs, tree)
        fewest[found] = min(fewest.get(found, len(tree)), sum(map(abs, signs)))
    for wanted in itertools.product((0, 1), repeat=len(leaves(tree))):
        if any(wanted):
            chosen = [leaf for leaf, is_in in zip(leaves(tree), wanted, strict=True) if is_in]
            plus, minus = fewest_nodes(chosen, tree)
            signs = [(node in plus) - (node in minus) for node in range(len(tree))]
            assert inside(signs, tree) == wanted
            assert len(plus) + len(minus) == fewest[wanted]
            union = largest_regions(np.array(chosen), tree)
            assert sorted(leaves_of(union, tree)) == chosen
            if len(union) == fewest[wanted]:
                assert (plus, minus) == (union, ())


def test_twice_as_large_signs_would_gain_nothing():
    tree = tree_of("flat")
    for signs in itertools.product((-2, -1, 0, 1, 2), repeat=len(tree)):
        found = inside(signs, tree)
        if set(found) == {0, 1}:
            plus, minus = fewest_nodes([leaf for leaf, is_in in zip(leaves(tree), found, strict=True) if is_in], tree)
            assert len(plus) + len(minus) <= sum(map(bool, signs))


@given(st.data())
@settings(max_examples=100)
def test_counts_of_a_cover_are_those_of_the_leaves(data):
    width = data.draw(st.integers(1, 4))
    rows = data.draw(st.lists(st.tuples(*[st.integers(0, 3)] * width), min_size=1, max_size=30, unique=True))
    names = [f"c{number}" for number in range(width)]
    columns = {
        name: [f"{name}-" + "-".join(map(str, row[: number + 1])) for row in rows] for number, name in enumerate(names)
    }
    tree = Hierarchy.from_levels(columns, names)
    chosen = sorted(data.draw(st.sets(st.sampled_from(list(leaves(tree))), min_size=1)))
    counts = tree.aggregate(np.random.default_rng(1).integers(0, 50, (tree.leaf_count, 3)))
    plus, minus = fewest_nodes(chosen, tree)
    assert (counts[list(plus)].sum(axis=0) - counts[list(minus)].sum(axis=0) == counts[chosen].sum(axis=0)).all()
    union = largest_regions(np.array(chosen), tree)
    assert len(plus) + len(minus) <= len(union) <= len(chosen)
    assert (Unions.of_regions([union, chosen]).add_up(counts) == counts[chosen].sum(axis=0)).all()
    assert [leaf for region in union for leaf in leaf_range(region, tree)].__len__() == len(chosen)


@given(st.data())
@settings(max_examples=60)
def test_a_sum_of_rows_without_a_common_parent_has_no_smaller_cover(data):
    tree = tree_of(data.draw(st.sampled_from(list(TREES))))
    chosen = data.draw(st.sets(st.sampled_from(list(leaves(tree))), min_size=1))
    union = Unions.of_regions([largest_regions(np.array(sorted(chosen)), tree)])
    plus, minus = fewest_nodes(union.rows.tolist(), tree)
    if not union.covers(tree):
        assert len(plus) + len(minus) == len(union.rows)


@pytest.mark.parametrize("kind", ["at_least", "counts"])
def test_errors_of_independent_rows_are_those_of_all_measurements(kind):
    """Rows in different branches below a root without a measurement: summed, and looked through one by one."""
    _, made = measured(kind, 1, public_totals=False)
    below = tuple(part for part in made.measurements.measured if part.level > 0)
    view = MeasuredView.of(replace(made.measurements, measured=below))
    tree = made.hierarchy
    unions = Unions.of_regions([[tree.index[region] for region in union] for union in (("1", "4"), ("A", "B", "DC"))])
    assert not unions.share_a_branch(tree).any()
    found = view.errors_of(unions)
    for place in range(2):
        weights = view.law.region_sum(unions.of(place))
        assert math.isclose(found.variance[place], view.law.variance_of(weights), rel_tol=1e-9)
        spread = np.where(np.isfinite(view.law.noise), view.law.noise, 0)
        largest = (view.law.measurement_weights(weights) ** 2 * spread).max()
        assert math.isclose(found.term[place], largest, rel_tol=1e-9)


UNIONS = [("1", "4"), ("3", "4", "5"), ("A", "B", "4", "5", "DC"), ("C",)]
KINDS = {
    "at_least": ("joint-cumulative", {}),
    "counts": ("pgsr-hierarchical-dp", {}),
    "lists": ("tallytree", {"leaves": "lists"}),
}


def measured(kind, seed, *, public_totals):
    mechanism, options = KINDS[kind]
    data = made_up(7, public_totals=public_totals)
    truth = Truth("made up", data.hierarchy, data.counts.open_at_the_privacy_border(), public_totals=public_totals)
    if kind == "lists" and not public_totals:
        options = {**options, "totals_share": "1/4"}
    chosen = MECHANISMS[mechanism].configured(options)
    plan = chosen.plan(truth.hierarchy, Budget(epsilon=1), one_entity())
    measurements = seeded_measurements(truth, plan, "unions", seed, derive_facts=chosen.derive_facts)
    chosen = chosen if kind == "lists" else choose_for(measurements, mechanism)
    return truth.all_levels(), estimate_release(measurements, chosen, Publication(intervals="none"))


@pytest.mark.parametrize("public_totals", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_guaranteed_intervals_of_unions_hold_the_truth_as_promised(kind, public_totals):
    runs, held, together = 40, 0, 0
    for seed in range(runs):
        truth, made = measured(kind, seed, public_totals=public_totals)
        tree = made.hierarchy
        unions = Unions.of_regions([[tree.index[region] for region in union] for union in UNIONS])
        for simultaneous in (False, True):
            cells = guaranteed(made.measurements, made.counts, level=0.8, simultaneous=simultaneous)
            found = guaranteed_sums(made.measurements, made.counts, unions, cells)
            right, released = unions.add_up(truth), unions.add_up(made.counts)
            assert (found.lower <= released).all()
            assert (released <= found.upper).all()
            assert (found.lower >= 0).all()
            holds = (found.lower <= right) & (right <= found.upper)
            held, together = held + holds * (not simultaneous), together + holds.all(axis=1) * simultaneous
            assert (found.lower[3] == cells.lower[tree.index["C"]]).all()
            assert (found.upper[3] == cells.upper[tree.index["C"]]).all()
    assert (held / runs >= 0.8 - 5 * math.sqrt(0.16 / runs)).all()
    assert (together / runs >= 0.8 - 5 * math.sqrt(0.16 / runs)).all()


def test_a_union_is_bounded_better_than_its_leaves_added_up():
    _, made = measured("at_least", 1, public_totals=False)
    union = [made.hierarchy.index[region] for region in ("1", "4", "5", "6")]
    cells = guaranteed(made.measurements, made.counts)
    found = guaranteed_sums(made.measurements, made.counts, Unions.of_regions([union]), cells)
    width, added = (found.upper - found.lower)[0], (cells.upper - cells.lower)[union].sum(axis=0)
    assert (width < added).all()
