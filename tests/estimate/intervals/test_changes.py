"""Changes between two releases: the p-value inverts the quantile, differences by hand, and many tests at once."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tallytree as tt
from tallytree.estimate.intervals.changes import (
    RATE,
    Rule,
    benjamini_hochberg,
    bound_changes,
    find_changes,
    holm,
    percent_changes,
)
from tallytree.estimate.intervals.guaranteed import SumBounds
from tallytree.estimate.intervals.linear import MeasuredView, entity_weights, estimate_sums, ratio
from tallytree.estimate.intervals.tails import MOST_COPIES, Errors, Noise, chances_beyond, quantile
from tallytree.estimate.intervals.unions import Unions
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import MECHANISMS
from tests.estimate.intervals.test_linear import sum_of

PLAIN = Rule()
laws = st.tuples(
    st.sampled_from(
        [
            ("discrete_laplace", Fraction(1, 2)),
            ("discrete_laplace", Fraction(10)),
            ("discrete_laplace", Fraction(100)),
            ("discrete_gaussian", Fraction(25)),
        ]
    ),
    st.sampled_from([1, 2, 12, MOST_COPIES + 1]),
    st.floats(0.001, 1) | st.just(1.0),
)


@settings(max_examples=60, deadline=None)
@given(laws, st.floats(1e-8, 0.4))
def test_the_chance_of_a_place_inverts_the_quantile(law, chance):
    (kind, scale), copies, part = law
    place = quantile(kind, scale, copies, part, chance)
    near = 2e-3 * max(place, 1)
    beyond, before = chances_beyond(kind, scale, copies, part, np.array([place + near, place - near]))
    assert beyond <= chance * (1 + 1e-9)
    assert before >= chance * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(laws, st.lists(st.floats(-12, 12), min_size=1, max_size=5))
def test_the_interval_at_the_error_probability_of_a_p_value_excludes_zero(law, estimates):
    (kind, scale), copies, part = law
    number = len(estimates)
    errors = Errors(
        (Noise(kind, scale),),
        np.zeros(number, np.int64),
        np.full(number, copies),
        np.full(number, 4 * part / copies),
        np.full(number, 4.0),
    )
    found = errors.p_values(np.array(estimates))
    for estimate, p_value in zip(estimates, found.tolist(), strict=True):
        if p_value < 1:
            assert errors.reach(p_value / 2)[0] < abs(estimate)
            if p_value > 1e-8:
                assert errors.reach(p_value / 2 * 0.9)[0] > 0.97 * abs(estimate) - 0.05
    assert errors.scaled(0.0).p_values(np.array(estimates)).tolist() == [1.0] * number


def test_a_symmetric_noise_is_as_likely_beyond_as_its_exact_law_says():
    """P(|N| ≥ t) = 2 p^t / (1 + p) for discrete Laplace noise: at a whole t, t itself counts as beyond."""
    p = math.exp(-1 / 3)
    variance = 2 * p / (1 - p) ** 2
    one = np.ones(1)
    errors = Errors(
        (Noise("discrete_laplace", Fraction(3)),), np.zeros(1, int), np.ones(1, int), variance * one, variance * one
    )
    for place in (1, 4, 20):
        assert math.isclose(errors.p_values(np.array([float(place)]))[0], min(1, 2 * p**place / (1 + p)), rel_tol=1e-6)


# -------------------------------------------------------------------- estimates of two releases


def measured(seed, *, epsilon=1, public=False, name="pgsr-cumulative-dp", tree=None, counts=None, shares=None):
    rng = np.random.default_rng(seed)
    if tree is None:
        tree = tt.Hierarchy.from_levels({"state": list("AABBB"), "county": list("12345")}, ["state", "county"])
    counts = rng.poisson(30, (tree.leaf_count, 4 + public)) if counts is None else counts
    truth = Truth("made up", tree, counts, public_totals=public)
    plan = MECHANISMS[name].plan(tree, tt.Budget(epsilon=epsilon), tt.one_entity(), shares or [1] * tree.depth)
    return seeded_measurements(truth, plan, "changes", seed)


def alone(tree):
    each = np.arange(len(tree))
    return Unions(each, each, each[:0])


def test_the_change_on_a_tree_of_three_regions_by_hand():
    """Two children and their sum with noise of one variance v: x₁ = y₁ + (y₀ − y₁ − y₂) / 3, of variance 2 v / 3."""
    tree = tt.Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    counts = np.array([[5, 3], [4, 1]])
    first, second = (measured(seed, tree=tree, counts=counts, epsilon="1/4") for seed in (1, 2))
    by_size = np.array([0.0, 1.0, 1.0, 0.0])
    values, variances = [], []
    for one in (first, second):
        noisy = one.stacked("at_least")[:, 0].astype(float)
        surplus = (noisy[0] - noisy[1] - noisy[2]) / 3
        values.append([noisy[0] - surplus, noisy[1] + surplus, noisy[2] + surplus])
        variances.append(one.variances("at_least")[0] * 2 / 3)
    old, new = (estimate_sums(one, by_size, alone(tree)) for one in (first, second))
    change = new.minus(old)
    assert np.allclose(change.values, np.subtract(values[1], values[0]))
    assert np.allclose(change.errors.variance, sum(variances))
    # The largest terms are the region's own measurements of both years, each with 2/3 of its deviation.
    assert change.errors.copies.tolist() == [2, 2, 2]
    assert np.allclose(change.errors.term, variances[0] * 2 / 3)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1000),
    st.booleans(),
    st.sampled_from(["pgsr-cumulative-dp", "pgsr-hierarchical-dp"]),
    st.sampled_from(["1", "1/10"]),
)
def test_many_sums_are_those_of_the_one_engine_for_a_single_sum(seed, public, name, epsilon):
    first, second = (
        measured(seed, public=public, name=name),
        measured(seed + 1, epsilon=epsilon, public=public, name=name),
    )
    tree = first.hierarchy
    by_size = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    old, new = (estimate_sums(one, by_size, alone(tree)) for one in (first, second))
    change = new.minus(old)
    for region in range(len(tree)):
        one, other = (sum_of(MeasuredView.of(each), [region], [2, 3, 4]) for each in (first, second))
        apart = other.minus(one)
        assert change.errors.variance[region] <= apart.variance * (1 + 1e-9)
        assert change.errors.reach(0.025)[region] <= apart.half_width() * (1 + 1e-9)
        if not (public and name == "pgsr-hierarchical-dp"):  # there the public total leaves less noise
            assert math.isclose(change.values[region], apart.estimate, abs_tol=1e-6)
            assert math.isclose(change.errors.variance[region], apart.variance, rel_tol=1e-9)
            assert math.isclose(change.errors.reach(0.025)[region], apart.half_width(), rel_tol=0.05)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["1", "1/3"]), st.booleans(), st.floats(0, 0.2))
def test_swapping_the_releases_negates_everything(seed, epsilon, family_wise, more_than):
    first, second = measured(seed), measured(seed + 1, epsilon=epsilon)
    by_size = entity_weights(first)
    old, new = (estimate_sums(one, by_size, alone(first.hierarchy)) for one in (first, second))
    published = np.rint(new.values - old.values).astype(np.int64) + 1
    rule = Rule(family_wise, more_than if more_than > 0.1 else 0.0)
    one, other = find_changes(old, new, published, rule), find_changes(new, old, -published, rule)
    assert (one.lower == -other.upper).all()
    assert (one.upper == -other.lower).all()
    if not rule.more_than:  # otherwise the part is one of the old number
        assert np.array_equal(one.p_value, other.p_value, equal_nan=True)
        assert (one.direction == -other.direction).all()
        assert np.array_equal(one.selected_lower, -other.selected_upper, equal_nan=True)


def test_the_relative_change_is_the_ratio_of_the_single_sums():
    first, second = measured(3), measured(4)
    by_size = np.array([0.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    old, new = (estimate_sums(one, by_size, alone(first.hierarchy)) for one in (first, second))
    published = 100 * (new.values / old.values - 1)
    lower, upper = percent_changes(old, new, published)
    for region in range(len(first.hierarchy)):
        one, other = (sum_of(MeasuredView.of(each), [region], [1, 2, 3, 4]) for each in (first, second))
        found = ratio(other, one)
        assert math.isclose(lower[region], 100 * (found.lower - 1), rel_tol=1e-2, abs_tol=0.05)
        assert math.isclose(upper[region], 100 * (found.upper - 1), rel_tol=1e-2, abs_tol=0.05)
    none = percent_changes(old._replace(values=0 * old.values), new, np.full(len(published), math.nan))
    assert np.isinf(none).all()


def test_numbers_without_noise_are_outside_the_family():
    first, second = measured(3, public=True), measured(4, public=True)
    tree = first.hierarchy
    known = np.arange(len(tree), dtype=np.float64)
    exact = tt_estimates(known, Errors.none(len(tree)))
    more = tt_estimates(known + np.array([0, 1, 0, -1, 2, 0, 0, 0]), Errors.none(len(tree)))
    found = find_changes(exact, more, np.rint(more.values - known).astype(np.int64), PLAIN)
    assert np.isnan(found.p_value).all()
    assert found.tested == 0
    assert found.direction.tolist() == [0, 1, 0, -1, 1, 0, 0, 0]
    assert (found.lower == found.upper).all()
    assert second.region_totals is not None


def tt_estimates(values, errors):
    from tallytree.estimate.intervals.linear import Estimates

    return Estimates(np.asarray(values, float), errors)


def test_a_published_change_against_the_unbiased_one_is_not_flagged_and_is_in_its_interval():
    number = 4
    law = (Noise("discrete_laplace", Fraction(10)),)
    errors = Errors(law, np.zeros(number, int), np.ones(number, int), np.ones(number), np.ones(number))
    old, new = tt_estimates(np.zeros(number), errors), tt_estimates([50, 50, -50, 50], errors)
    published = np.array([60, -3, 2, 0])
    found = find_changes(old, new, published, PLAIN)
    assert found.direction.tolist() == [1, 0, 0, 0]
    assert found.p_value.tolist()[1:] == [1, 1, 1]
    assert (found.lower <= published).all()
    assert (found.upper >= published).all()


def test_flags_of_more_than_a_part_ask_for_more_than_any_change():
    number = 3
    law = (Noise("discrete_laplace", Fraction(10)),)
    errors = Errors(law, np.zeros(number, int), np.ones(number, int), np.full(number, 9.0), np.full(number, 9.0))
    old, new = tt_estimates([1000] * number, errors), tt_estimates([1040, 1200, 800], errors)
    published = np.array([40, 200, -200])
    assert find_changes(old, new, published, PLAIN).direction.tolist() == [1, 1, -1]
    assert find_changes(old, new, published, Rule(more_than=0.05)).direction.tolist() == [0, 1, -1]
    assert find_changes(old, new, published, Rule(more_than=0.2)).direction.tolist() == [0, 0, 0]


# -------------------------------------------------------------------- bounds


@pytest.mark.parametrize("public", [False, True])
def test_bounds_alone_hold_for_every_region_at_once(public):
    """Intervals of sums from bounds contain the interval of the linear estimate, and flags need them to exclude 0."""
    first, second = measured(5, public=public), measured(6, public=public)
    tree = first.hierarchy
    by_size = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 0.0])

    def ends_of(error):
        return tuple(SumBounds(one).of(by_size, alone(tree), error) for one in (first, second))

    old, new = (estimate_sums(one, by_size, alone(tree)) for one in (first, second))
    published = np.rint(new.values - old.values).astype(np.int64)
    found = bound_changes(ends_of, published, PLAIN)
    sharp = find_changes(old, new, published, PLAIN)
    assert (found.lower <= sharp.lower).all()
    assert (found.upper >= sharp.upper).all()
    (old_low, old_high), (new_low, new_high) = ends_of(RATE / len(tree) / 2)
    flagged = ((new_low > old_high) & (published > 0)) | ((new_high < old_low) & (published < 0))
    assert (found.direction != 0).tolist() == flagged.tolist()
    assert np.isnan(found.p_value).all()


# -------------------------------------------------------------------- many tests at once

p_values = st.lists(st.floats(0, 1), max_size=12).map(np.array)


@given(p_values, st.sampled_from([0.05, 0.2]))
def test_benjamini_hochberg_flags_the_largest_set_that_its_rule_allows(found, rate):
    flags = benjamini_hochberg(found, rate)
    counts = [r for r in range(len(found) + 1) if np.count_nonzero(found <= rate * r / max(len(found), 1)) >= r]
    limit = rate * max(counts) / max(len(found), 1)
    assert flags.tolist() == (found <= limit).tolist() if max(counts) else not flags.any()


@given(p_values, st.sampled_from([0.05, 0.2]))
def test_holm_stops_at_the_first_p_value_that_is_too_large(found, rate):
    flags, expected = holm(found, rate), set()
    for place, at in enumerate(sorted(range(len(found)), key=lambda one: found[one])):
        if found[at] > rate / (len(found) - place):
            break
        expected.add(at)
    assert set(np.flatnonzero(flags).tolist()) == expected
