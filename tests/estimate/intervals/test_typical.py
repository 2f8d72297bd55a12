"""Typical intervals: the bootstrap against a slow twin, how often they hold, and the clusters on which they fail."""

from __future__ import annotations

import math

import numpy as np
import pytest
from experiments.interval_coverage import kinds_of, strata, with_clusters
from experiments.named_files import load

import tallytree as tt
from tallytree.core.errors import SpecError
from tallytree.core.progress import Stage
from tallytree.estimate.intervals.guaranteed import guaranteed
from tallytree.estimate.intervals.typical import (
    ReplicateNoise,
    Simulation,
    digest_of,
    factor_for,
    simulate_measurements,
    typical,
    without_noise,
)
from tallytree.lab.datasets import make
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import MECHANISMS, choose
from tallytree.mechanisms.count_of_counts import CountOfCounts
from tallytree.privacy.neighbours import Neighbours
from tests.oracles.trees import even_tree

RELEASED = [name for name, each in MECHANISMS.items() if not each.refused and each.most_cells is None]


def small(*, public_totals=True, sizes=8):
    rng = np.random.default_rng(4)
    tree = even_tree(4, 12)
    rates = rng.gamma(1, 40, (12, 1)) * np.exp(-np.arange(sizes + public_totals) / 3)
    return Truth("small", tree, rng.poisson(rates), public_totals)


def released(truth, budget, *seed, mechanism="auto", unit=None):
    unit = tt.one_entity() if unit is None else unit
    chosen = choose(mechanism, Neighbours.of(truth.group_sizes(), unit))
    measurements = seeded_measurements(truth, chosen.plan(truth.hierarchy, budget, unit), *seed)
    return chosen, measurements, chosen.estimate(measurements).counts


def measured(truth, mechanism, *seed):
    plan = mechanism.plan(truth.hierarchy, tt.Budget(epsilon=1), tt.one_entity())
    return seeded_measurements(truth, plan, *seed, derive_facts=mechanism.derive_facts)


@pytest.mark.parametrize("sizes", [8, 30])
@pytest.mark.parametrize("budget", [tt.Budget(epsilon=1), tt.Budget(rho="0.1")], ids=lambda budget: budget.currency)
def test_the_ends_are_those_of_all_replicates_kept_and_squared(sizes, budget):
    truth = small(sizes=sizes)
    chosen, measurements, counts = released(truth, budget, "twin")
    found = typical(
        measurements,
        counts,
        Simulation(chosen.estimate),
        replicates=7,
        functions=[lambda each: each[:, 2:5].sum(axis=1)],
    )
    noises = [ReplicateNoise(digest_of(measurements), number) for number in range(7)]
    all_of_them = [chosen.estimate(simulate_measurements(measurements, counts, noise)).counts for noise in noises]
    squares = np.mean([(each - counts) ** 2 for each in all_of_them], axis=0)
    if sizes == 30:
        padded = np.pad(squares, ((0, 0), (2, 2)), constant_values=np.nan)
        around = np.nanmean([padded[:, shift : shift + squares.shape[1]] for shift in range(5)], axis=0)
        squares = np.maximum(squares, around)
    half = np.maximum(1, np.ceil(2.25 * np.sqrt(squares) - 1e-9)).astype(np.int64)
    assert np.array_equal(found.intervals.lower, np.maximum(counts - half, 0))
    assert np.array_equal(found.intervals.upper, np.minimum(counts + half, measurements.region_totals[:, np.newaxis]))
    sums = [each[:, 2:5].sum(axis=1) - counts[:, 2:5].sum(axis=1) for each in all_of_them]
    assert np.allclose(found.deviations[0], np.sqrt(np.mean(np.square(sums), axis=0)))


def test_replicates_have_the_law_of_the_measurement():
    """A mean of squares within 6 standard errors of the stated variance (fourth moment of a Laplace: 6 variance²)."""
    truth = make("census", scale=0.02, max_size=200)
    chosen, measurements, counts = released(truth, tt.Budget(epsilon=1), "law")
    views = [without_noise(part, counts, measurements) for part in measurements.measured]
    first, second = (simulate_measurements(measurements, counts, ReplicateNoise(b"law", number)) for number in (0, 1))
    for view, after in zip(views, first.measured, strict=True):
        noise = (after.values - view).astype(float)
        error = 6 * math.sqrt(5.1 / noise.size)
        assert abs(np.mean(noise**2) / after.variance - 1) < error
        assert abs(noise.mean()) < 6 * math.sqrt(after.variance / noise.size)
    assert not np.array_equal(first.measured[-1].values, second.measured[-1].values)
    assert chosen.view == "at_least"


@pytest.mark.parametrize("name", RELEASED)
@pytest.mark.parametrize("public_totals", [True, False])
def test_every_mechanism_that_can_be_released_has_them(name, public_totals):
    truth, options = small(public_totals=public_totals), {}
    if MECHANISMS[name].needs_public_totals and not public_totals:
        return
    if isinstance(MECHANISMS[name], CountOfCounts) and not public_totals:
        options = {"totals_share": "1/10"}
    if name == "naive":
        truth = Truth("one region", even_tree(1), truth.counts[:1], public_totals)
    chosen = MECHANISMS[name].configured(options)
    measurements = measured(truth, chosen, name)
    counts = chosen.estimate(measurements).counts
    found = typical(measurements, counts, Simulation(chosen.estimate, chosen.derive_facts), replicates=3).intervals
    assert (found.lower >= 0).all()
    assert (found.lower <= counts).all()
    assert (counts <= found.upper).all()
    if public_totals and chosen.keeps_totals:
        assert (found.upper <= measurements.region_totals[:, np.newaxis]).all()


@pytest.mark.parametrize("public_totals", [True, False])
def test_lists_of_sizes_are_measured_again_with_their_totals(public_totals):
    truth = small(public_totals=public_totals)
    options = {"methods": ["sorted-sizes"] * 3} | ({} if public_totals else {"totals_share": "1/10"})
    chosen = MECHANISMS["coc-matching"].configured(options)
    measurements = measured(truth, chosen, "lists")
    counts = chosen.estimate(measurements).counts
    again = [
        simulate_measurements(measurements, counts, ReplicateNoise(b"lists", number), chosen.derive_facts)
        for number in range(2)
    ]
    lists = [part for part in again[0].measured if part.view == "sorted_sizes"]
    assert [part.view for part in again[0].measured] == [part.view for part in measurements.measured]
    for part in lists:
        assert len(part.values) == again[0].lengths(part.level).sum()
        assert part.values.dtype == measurements.on_level(part.level).values.dtype
    totals = [each.known_totals for each in again]
    assert np.array_equal(*totals) == public_totals
    found = typical(measurements, counts, Simulation(chosen.estimate, chosen.derive_facts), replicates=3).intervals
    assert (found.upper - found.lower).max() > 1


def covered(truth, budget, *, level, runs, planted=None, mechanism="auto"):
    true, found = truth.all_levels(), {}
    kinds = kinds_of(true, planted)
    for run in range(runs):
        chosen, measurements, counts = released(truth, budget, "coverage", run, mechanism=mechanism)
        both = (
            typical(measurements, counts, Simulation(chosen.estimate), level=level).intervals,
            guaranteed(measurements, counts, level=level),
        )
        for intervals in both:
            for each in strata(intervals, true, truth.hierarchy, kinds):
                key = (intervals.kind, each.level, each.kind)
                found[key] = found[key] + each if key in found else each
    return found


def check(found, level, *, least=200):
    """Typical intervals: nominal − 2 points beyond simulation error (3 standard errors), but for planted clusters."""
    enough = [each for (kind, *_), each in found.items() if kind == "typical" and each.cells >= least]
    enough = [each for each in enough if each.kind != "planted cluster"]
    assert enough
    for each in enough:
        assert each.coverage >= level - 0.02 - 3 * math.sqrt(level * (1 - level) / each.cells), each


@pytest.mark.parametrize("epsilon", ["0.1", "1"])
def test_they_hold_but_for_planted_clusters_on_which_they_fail(epsilon):
    truth, planted = with_clusters(make("census", scale=0.02, max_size=60), clusters=60)
    found = covered(truth, tt.Budget(epsilon=epsilon), level=0.95, runs=4, planted=planted)
    check(found, 0.95)
    failing, safe = (found[kind, "county", "planted cluster"] for kind in ("typical", "guaranteed"))
    assert failing.cells >= 200
    assert failing.coverage < (0.5 if epsilon == "0.1" else 0.92)
    assert safe.coverage > 0.93
    narrow, wide = (found[kind, "county", "zero beyond the support"] for kind in ("typical", "guaranteed"))
    assert narrow.width < wide.width / (3 if epsilon == "0.1" else 1)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("switzerland_2003_municipality_household_size.csv", {}),
        ("us2010_county_household_size_2plus.csv", {"public_totals": False}),
    ],
)
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_they_hold_on_public_data(public_file, name, options, level):
    truth = load(public_file(name), **options)
    check(covered(truth, tt.Budget(epsilon="0.5"), level=level, runs=1, mechanism="pgsr-cumulative-dp"), level)


def test_functions_of_counts_stream_through_the_same_replicates():
    truth = small()
    chosen, measurements, counts = released(truth, tt.Budget(epsilon=1), "functions")
    functions = [
        lambda each: each[0, 3:].sum(),
        lambda each: each[1:5, 2] / each[1:5].sum(axis=1),
        lambda each: np.log(each[1].sum() / each[2].sum()),
    ]
    seen = []
    found = typical(
        measurements,
        counts,
        Simulation(chosen.estimate),
        replicates=4,
        functions=functions,
        progress=seen.append,
    )
    assert seen == [Stage("typical intervals", done, 4) for done in range(5)]
    assert [each.shape for each in found.deviations] == [(), (4,), ()]
    assert found.deviations[0] > 0
    assert found.deviations[2] == 0  # public totals are kept in every replicate
    assert found.replicates == 4
    assert found.factor == factor_for(0.95)
    narrower = found.intervals_at(0.8)
    assert narrower.level == 0.8
    assert (narrower.upper - narrower.lower).sum() < (found.intervals.upper - found.intervals.lower).sum()


def test_factors_rise_with_the_level():
    factors = [factor_for(level) for level in (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)]
    assert factors == sorted(factors)
    assert math.isclose(factor_for(0.95), 2.25)
    assert math.isclose(factor_for(0.9), 1.8)


def test_wrong_input_is_refused():
    chosen, measurements, counts = released(small(), tt.Budget(epsilon=1), "wrong")
    for replicates in (1, 0, True, 2.5):
        with pytest.raises(SpecError, match="replicates"):
            typical(measurements, counts, Simulation(chosen.estimate), replicates=replicates)
    with pytest.raises(SpecError, match="level of an interval"):
        typical(measurements, counts, Simulation(chosen.estimate), level=2)
    with pytest.raises(SpecError, match=r"counts is .* one row per region"):
        typical(measurements, counts[:-1], Simulation(chosen.estimate))


def test_where_leaves_borrow_typical_intervals_hold_about_as_often_as_they_say():
    """Released leaves are closer together than true ones: where they play the truth, intervals hold less often."""
    rng = np.random.default_rng(9)
    apart = np.exp(0.35 * rng.normal(size=(120, 8)))
    counts = rng.poisson(60 * apart * np.exp(-np.arange(8) / 3))
    truth = Truth("apart", even_tree(5, 120), counts, True)
    chosen = MECHANISMS["tallytree"].configured({"leaves": "at_least"})
    plan = chosen.plan(truth.hierarchy, tt.Budget(epsilon="0.15"), tt.one_entity())
    leaves, held = truth.hierarchy.level_slice(2), {True: [], False: []}
    for run in range(3):
        measurements = seeded_measurements(truth, plan, "borrowing", run)
        released = chosen.estimate(measurements).counts
        for better, kept in held.items():
            played = chosen.simulate_truths(measurements, released) if better else None
            found = typical(measurements, released, Simulation(chosen.estimate, truth=played)).intervals
            true = truth.all_levels()
            kept.append(((found.lower <= true) & (true <= found.upper))[leaves].mean())
    assert np.mean(held[True]) > 0.9
    assert np.mean(held[False]) < np.mean(held[True]) - 0.02


def sparse(leaves, *, public_totals=True):
    """Regions with few groups, most of them empty or small, and different from one another."""
    rng = np.random.default_rng(12)
    rates = rng.gamma(1, 1, (leaves, 1)) * 2 / (1 + np.arange(1, 41)) ** 1.2
    counts = np.column_stack([rng.poisson(rng.gamma(4, 6, leaves)), rng.poisson(rates)])
    return Truth("sparse", even_tree(8, leaves), counts if public_totals else counts[:, 1:].copy(), public_totals)


def test_where_lists_are_measured_typical_intervals_hold_at_least_nine_in_ten_of_each_kind_of_cell():
    """Where the released counts play the truth instead, those of 10 to 99 are held less often than that."""
    truth = sparse(160)
    true, tree = truth.all_levels(), truth.hierarchy
    chosen = MECHANISMS["tallytree"].configured({"leaves": "lists"})
    plan = chosen.plan(tree, tt.Budget(epsilon="0.1"), tt.one_entity())
    measurements = seeded_measurements(truth, plan, "sparse")
    counts = chosen.estimate(measurements).counts
    found = {}
    for better in (True, False):
        played = chosen.simulate_truths(measurements, counts) if better else None
        intervals = typical(measurements, counts, Simulation(chosen.estimate, truth=played)).intervals
        for one in strata(intervals, true, tree, kinds_of(true)):
            if one.cells >= 100:
                found[better, one.level, one.kind] = one.coverage
    leaves = tree.levels[-1]
    assert min(coverage for (better, *_), coverage in found.items() if better) > 0.9
    assert found[False, leaves, "10–99"] < 0.9
