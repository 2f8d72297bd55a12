"""Guaranteed intervals: how often they hold by kind of cell, that windows do what they say, and what has none."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from experiments.interval_coverage import KINDS, kinds_of, strata, with_clusters
from experiments.named_files import load

import tallytree as tt
from tallytree.core.errors import SpecError
from tallytree.estimate.intervals.guaranteed import WINDOWS, guaranteed
from tallytree.estimate.intervals.linear import no_guarantee
from tallytree.lab.datasets import make
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import MECHANISMS, choose
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.plan import MeasurementQuery, Plan
from tests.oracles.trees import even_tree


def sparse(*, public_totals=True, sizes=120):
    """1 → 6 → 40 regions with a dense head and a sparse tail."""
    rng = np.random.default_rng(4)
    tree = even_tree(6, 40)
    rates = rng.gamma(1, 40, (40, 1)) * np.exp(-np.arange(sizes + public_totals) / 6) + 0.005
    return Truth("sparse", tree, rng.poisson(rates), public_totals)


def plan_for(truth, budget, unit=None, mechanism="auto"):
    unit = tt.one_entity() if unit is None else unit
    chosen = choose(mechanism, Neighbours.of(truth.group_sizes(), unit))
    return chosen.plan(truth.hierarchy, budget, unit)


def without_hull(measurements, shape, **options):
    """A released count of 0 leaves the upper end as it is, and a huge one the lower end."""
    upper = guaranteed(measurements, np.zeros(shape, dtype=np.int64), **options)
    lower = guaranteed(measurements, np.full(shape, 1 << 50), **options)
    return replace(upper, lower=lower.lower)


def covered(truth, plan, *, level=0.95, runs, planted=None):
    """Strata over several runs, of the ends as they are before the released count is included."""
    true, found = truth.all_levels(), {}
    kinds = kinds_of(true, planted)
    for run in range(runs):
        measurements = seeded_measurements(truth, plan, "guaranteed", run)
        intervals = without_hull(measurements, true.shape, level=level)
        for each in strata(intervals, true, truth.hierarchy, kinds):
            key = (each.level, each.kind)
            found[key] = found[key] + each if key in found else each
    return found


def check(found, level, *, least=200):
    """At least nominal − 1 point beyond simulation error (3 standard errors) in every stratum of enough cells."""
    enough = [each for each in found.values() if each.cells >= least]
    assert enough
    for each in enough:
        error = 3 * math.sqrt(level * (1 - level) / each.cells)
        assert each.coverage >= level - 0.01 - error, each
    return {each.kind for each in enough}


BUDGETS = {
    "little noise": tt.Budget(epsilon=6),
    "some noise": tt.Budget(epsilon=1),
    "much noise": tt.Budget(epsilon="0.1"),
    "Gaussian noise": tt.Budget(rho="0.02"),
}


@pytest.mark.parametrize("noise", BUDGETS)
@pytest.mark.parametrize("public_totals", [True, False])
def test_they_hold_for_any_kind_of_cell(noise, public_totals):
    truth, planted = with_clusters(sparse(public_totals=public_totals), clusters=60)
    found = covered(truth, plan_for(truth, BUDGETS[noise]), runs=6, planted=planted)
    kinds = check(found, 0.95)
    assert kinds >= set(KINDS) - {"10–99"}
    dense = [each for each in found.values() if each.kind in ("10–99", "100 or more")]
    held = sum(each.held for each in dense) / sum(each.cells for each in dense)
    longer = noise in ("little noise", "much noise")  # by rounding, or because many estimates below 0 are moved to 0
    assert held < (0.995 if longer else 0.975), "wider than they need to be"


@pytest.mark.parametrize("level", [0.9, 0.99])
@pytest.mark.parametrize("unit", [tt.one_entity(), tt.one_group()], ids=lambda unit: unit.kind)
def test_they_hold_at_other_levels_and_for_counts(level, unit):
    truth, planted = with_clusters(sparse(sizes=60), clusters=60)
    check(covered(truth, plan_for(truth, tt.Budget(epsilon=1), unit), level=level, runs=5, planted=planted), level)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("switzerland_2003_municipality_household_size.csv", {}),
        ("us2010_county_household_size_2plus.csv", {"public_totals": False}),
    ],
)
@pytest.mark.parametrize("epsilon", ["0.1", "1"])
def test_they_hold_on_public_data(public_file, name, options, epsilon):
    truth = load(public_file(name), **options)
    check(covered(truth, plan_for(truth, tt.Budget(epsilon=epsilon)), runs=3), 0.95)


def test_with_unequal_shares_they_hold_on_every_level():
    truth = sparse(sizes=40)
    plan = MECHANISMS["joint-cumulative"].plan(truth.hierarchy, tt.Budget(epsilon=1), tt.one_entity(), [1, 10, 3])
    check(covered(truth, plan, runs=8), 0.95)


def leaves_only(truth, budget):
    last = truth.hierarchy.depth - 1
    return Plan(budget, tt.one_entity(), (MeasurementQuery("at_least", last, Fraction(1)),))


def test_measured_at_the_leaves_alone_they_hold_on_every_level():
    truth = sparse(sizes=60)
    found = covered(truth, leaves_only(truth, tt.Budget(epsilon=1)), runs=8)
    check(found, 0.95)
    assert {level for level, _ in found} == set(truth.hierarchy.levels)


def test_simultaneous_bands_hold_all_sizes_of_a_region_at_once():
    truth, runs, level = sparse(), 12, 0.9
    plan, true = plan_for(truth, tt.Budget(epsilon=1)), truth.all_levels()
    held, one_by_one = [], []
    for run in range(runs):
        measurements = seeded_measurements(truth, plan, "simultaneous", run)
        for simultaneous, kept in ((True, held), (False, one_by_one)):
            found = without_hull(measurements, true.shape, level=level, simultaneous=simultaneous)
            assert found.simultaneous == simultaneous
            kept.extend(((found.lower <= true) & (true <= found.upper)).all(axis=1))
    assert np.mean(held) >= level - 3 * math.sqrt(0.09 / len(held))
    assert np.mean(one_by_one) < 0.5  # which is why the option is there


def test_the_ends_are_the_formula_s():
    """A slow twin of the kernel: direct bound and all windows, from estimates and quantiles by hand."""
    from tallytree.estimate.intervals.guaranteed import WINDOW_PART, _halves, _window_reaches
    from tallytree.estimate.intervals.linear import MeasuredView
    from tests.oracles.least_squares import dense_weights

    for public in (True, False):
        truth = sparse(public_totals=public, sizes=30)
        measurements = seeded_measurements(truth, plan_for(truth, tt.Budget(epsilon=1)), "twin")
        counts = truth.all_levels()
        found = guaranteed(measurements, counts)
        view, error = MeasuredView.of(measurements), 1 - 0.95
        single, pair = _halves(view, view.errors, error * (1 - WINDOW_PART) / 2).T
        reaches, rows = _window_reaches(view, error * WINDOW_PART), view.errors.lead
        given = view.variances  # a level may have no budget of its own
        variances = [given.get(level, math.inf) for level in range(truth.hierarchy.depth)]
        fitted = dense_weights(truth.hierarchy, variances) @ view.values
        for region in (0, 3, 20, 46):
            total = measurements.region_totals[region] if public else None
            known = {size: float(fitted[region, size - 1]) for size in range(1, 31)}
            known |= dict.fromkeys(range(31, 120), 0.0)
            known |= {size: float(total) for size in range(-80, 1)} if public else {}
            for cell, size in enumerate(range(1 - public, 31)):
                exact = size in (0, 30)
                half = (single if exact else pair)[region]
                most = math.inf if total is None else total
                value = min(max(known[size] - known[size + 1], 0), most)
                bounds = [value + half]
                for width in WINDOWS:
                    before, after = range(size - width + 1, size + 1), range(size + 1, size + width + 1)
                    if all(place in known for place in before):
                        noisy = sum(1 <= place <= 30 for place in (*before, *after))
                        reach = reaches[rows[region], noisy] * math.sqrt(view.law.variance[region])
                        fall = max(sum(map(known.get, before)) - sum(map(known.get, after)), 0)
                        bounds.append((fall + reach) / width)
                lower = min(max(math.ceil(value - half - 1e-6), 0), most, counts[region, cell])
                upper = max(min(max(math.floor(min(bounds) + 1e-6), 0), most), counts[region, cell])
                assert (found.lower[region, cell], found.upper[region, cell]) == (lower, upper)


def test_windows_tighten_the_tail():
    truth = sparse()
    measurements = seeded_measurements(truth, plan_for(truth, tt.Budget(epsilon="0.1")), "tail")
    found = guaranteed(measurements, truth.all_levels())
    leaves = truth.hierarchy.level_slice(2)
    head, tail = found.upper[leaves, 2:8] - found.lower[leaves, 2:8], found.upper[leaves, 60:]
    assert tail.mean() < head.mean() / 5


def test_the_released_count_is_always_inside_and_totals_bound_the_ends():
    truth = make("census", scale=0.01, max_size=30)
    measurements = seeded_measurements(truth, plan_for(truth, tt.Budget(epsilon="0.2")), "hull")
    counts = MECHANISMS["tallytree"].estimate(measurements).counts
    found = guaranteed(measurements, counts)
    assert (found.lower >= 0).all()
    assert (found.lower <= counts).all()
    assert (counts <= found.upper).all()
    assert (found.upper <= measurements.region_totals[:, np.newaxis]).all()
    again = guaranteed(measurements, counts)
    assert np.array_equal(found.lower, again.lower)
    assert np.array_equal(found.upper, again.upper)


@pytest.mark.parametrize("budget", [tt.Budget(epsilon=300), tt.Budget(epsilon=9000), tt.Budget(rho=9000)])
def test_with_hardly_any_noise_only_the_truth_and_the_numbers_beside_it_are_left(budget):
    truth = sparse(sizes=20)
    measurements = seeded_measurements(truth, plan_for(truth, budget), "sure")
    found = guaranteed(measurements, truth.all_levels())
    assert np.array_equal(found.lower, np.maximum(truth.all_levels() - 1, 0))
    assert np.array_equal(found.upper, truth.all_levels() + 1)


def test_where_there_are_none_a_sentence_says_why():
    truth = sparse(sizes=5)
    chain = seeded_measurements(truth, plan_for(truth, tt.Budget(epsilon=1), mechanism="pgsr-chain"), 1)
    assert guaranteed(chain, truth.all_levels()) is None
    assert "measured chain there" in no_guarantee(chain)
    top = Plan(tt.Budget(epsilon=1), tt.one_entity(), (MeasurementQuery("counts", 0, Fraction(1)),))
    root_only = seeded_measurements(truth, top, 1)
    assert guaranteed(root_only, truth.all_levels()) is None
    assert "measured nothing there" in no_guarantee(root_only)
    assert no_guarantee(seeded_measurements(truth, leaves_only(truth, tt.Budget(epsilon=1)), 1)) is None


def test_wrong_input_is_refused():
    truth = sparse(sizes=5)
    measurements = seeded_measurements(truth, plan_for(truth, tt.Budget(epsilon=1)), 1)
    for level in (0.3, 1.0, 95, True, "0.95"):
        with pytest.raises(SpecError, match="level of an interval"):
            guaranteed(measurements, truth.all_levels(), level=level)
    with pytest.raises(SpecError, match=r"counts is .* one row per region"):
        guaranteed(measurements, truth.counts)
