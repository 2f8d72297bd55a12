"""Counts of single sizes with their total: what they lose, how they are estimated, and what is published of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import tallytree as tt
from tallytree.domain.histogram import earth_movers_distance
from tallytree.estimate.intervals.guaranteed import guaranteed
from tallytree.estimate.intervals.linear import MeasuredView, linear_sum
from tallytree.lab.truth import Truth, measured_without_noise, seeded_measurements
from tallytree.mechanisms import MECHANISMS, instead_of, prepare
from tallytree.mechanisms.budget_allocation import _capped, _noise, level_errors
from tallytree.mechanisms.measured_rows import add_up_sizes, noisy_rows
from tallytree.planning.simulation import half_widths
from tallytree.privacy import MeasurementQuery, Neighbours, Plan, Sensitivity
from tests.oracles.loss import measured_without_noise as measured_of_example
from tests.oracles.loss import worst_loss
from tests.oracles.trees import even_tree, random_tree

GROUP = tt.one_group()


def households(seed: int = 1, *, public: bool, sizes: int = 6, leaves: int = 120) -> Truth:
    """Households in three levels of regions below the root; leaves differ in size and a little in shape."""
    rng = np.random.default_rng(seed)
    shape = 0.6 ** np.arange(sizes + public) * (0.3 if public else 1.0) ** (np.arange(sizes + public) == 0)
    rates = rng.gamma(3, 40, (leaves, 1)) * shape * rng.gamma(30, 1 / 30, (leaves, len(shape)))
    return Truth("households", even_tree(3, 12, leaves), rng.poisson(rates), public)


def prepared(truth: Truth, epsilon: object = 1, mechanism: str = "auto", unit: tt.PrivacyUnit = GROUP, **options):
    private = truth.group_sizes()
    return prepare(
        mechanism,
        options or None,
        neighbours=Neighbours.of(private, unit),
        hierarchy=truth.hierarchy,
        totals=private.region_totals,
        budget=epsilon if isinstance(epsilon, tt.Budget) else tt.Budget(epsilon=str(epsilon)),
    )


# -------------------------------------------------------------------- privacy


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("unit", [tt.one_entity(), GROUP], ids=str)
def test_a_plan_of_counts_loses_exactly_the_budget(unit, public):
    budget = Fraction(7, 10)
    view = "counts" if public else "counts_total"
    asked = tuple(MeasurementQuery(view, level, share) for level, share in enumerate((Fraction(1, 5), Fraction(4, 5))))
    plan = Plan(tt.Budget(epsilon=budget), unit, asked)
    assert worst_loss(unit, public, lambda data: measured_of_example(data, plan, public)) == budget


def test_a_total_that_is_asked_for_apart_from_the_counts_would_cost_half_as_much_again():
    third = Fraction(1, 3)
    asked = (MeasurementQuery("counts", 1, 2 * third), MeasurementQuery("totals", 1, third))
    plan = Plan(tt.Budget(epsilon=1), GROUP, asked)
    apart = measured_of_example({"A": ("GA", 3)}, plan, False)
    together = Plan(tt.Budget(epsilon=1), GROUP, (MeasurementQuery("counts_total", 1, Fraction(1)),))
    (_, scale), *_ = measured_of_example({"A": ("GA", 3)}, together, False)
    assert [part for _, part in apart] == [scale * Fraction(3, 2)] * 2


def test_what_is_measured_are_the_counts_and_then_the_total():
    truth = households(public=False)
    asked = Plan(tt.Budget(epsilon=1), GROUP, (MeasurementQuery("counts_total", 3, Fraction(1)),))
    part = measured_without_noise(truth.group_sizes(), asked).measured[0]
    assert np.array_equal(part.values[:, :-1], truth.counts)
    assert np.array_equal(part.values[:, -1], truth.counts.sum(axis=1))


# -------------------------------------------------------------------- estimation


@pytest.mark.parametrize("public", [False, True])
def test_the_known_sum_gives_the_best_linear_estimate_and_the_stated_covariance(public):
    truth = households(public=public, leaves=12)
    _, plan = prepared(truth)
    measurements = seeded_measurements(truth, plan, 1)
    rows = noisy_rows(measurements)
    part = measurements.measured[-1]
    cells = measurements.max_size + 1
    assert rows.cells == cells
    tree, sizes = truth.hierarchy, truth.counts.shape[1]
    leaves = tree.level_slice(tree.depth - 1)
    if public:  # nearest rows with the known totals
        expected = part.values + ((truth.counts.sum(axis=1) - part.values.sum(axis=1)) / cells)[:, None]
        covariance = np.eye(cells) - 1 / cells
    else:  # least squares of the counts on themselves and on their sum
        design = np.vstack([np.eye(sizes), np.ones(sizes)])
        expected = np.linalg.lstsq(design, part.values.T.astype(float), rcond=None)[0].T
        covariance = np.linalg.inv(design.T @ design)
    assert np.allclose(rows.values[leaves], expected)
    assert np.allclose(covariance, np.eye(sizes) - 1 / cells)
    sums, variance = add_up_sizes(rows.values[leaves], np.full((len(expected), sizes), 2.0), cells)
    assert np.allclose(sums[:, 0], expected.sum(axis=1))
    assert np.allclose(variance, 2.0 * np.ones(sizes) @ covariance @ np.ones(sizes))


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("budget", [tt.Budget(epsilon="0.01"), tt.Budget(epsilon=3), tt.Budget(rho="0.1")], ids=str)
def test_counts_are_integers_that_add_up_and_keep_public_totals(public, budget):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        tree = random_tree(rng, 1 + seed, most_children=4)
        truth = Truth("any", tree, rng.poisson(2, (tree.leaf_count, 3 + public)), public)
        mechanism, plan = prepared(truth, budget)
        assert mechanism.name == "tallytree"
        found = mechanism.estimate(seeded_measurements(truth, plan, seed)).counts
        assert found.min() >= 0
        assert np.array_equal(tree.aggregate(found[tree.level_slice(tree.depth - 1)]), found)
        assert not public or np.array_equal(found.sum(axis=1), truth.all_levels().sum(axis=1))


@pytest.mark.parametrize("public", [False, True])
def test_without_noise_the_estimate_is_the_truth(public):
    truth = households(public=public)
    mechanism, plan = prepared(truth, 10**5)
    assert np.array_equal(mechanism.estimate(seeded_measurements(truth, plan, 1)).counts, truth.all_levels())


@pytest.mark.parametrize(
    ("public", "before", "most"), [(False, "pgsr-hierarchical-dp", 0.7), (True, "joint-counts", 0.8)]
)
def test_errors_are_smaller_than_those_of_the_nearest_counts(public, before, most):
    truth = households(public=public)
    ratios = []
    for epsilon in ("0.3", "1"):
        found = {}
        for name in ("auto", before):
            mechanism, plan = prepared(truth, epsilon, name)
            counts = [mechanism.estimate(seeded_measurements(truth, plan, run)).counts for run in range(12)]
            true, tree = truth.all_levels(), truth.hierarchy
            errors = np.mean([earth_movers_distance(one, true, truth.first_size) for one in counts], axis=0)
            found[name] = np.array([errors[tree.level_slice(level)].sum() for level in range(tree.depth)])
        ratios += (found["auto"] / found[before]).tolist()
    assert np.exp(np.mean(np.log(ratios))) < most
    assert max(ratios[3::4]) < 0.9  # the leaves


def test_leaves_are_shrunk_unless_that_is_switched_off():
    truth = households(public=False)
    mechanism, plan = prepared(truth, "0.3")
    measurements = seeded_measurements(truth, plan, 1)
    assert "leaves are shrunk" in mechanism.estimate(measurements).certificate
    alone = mechanism.configured({"borrow": False})
    assert "not shrunk" in alone.estimate(measurements).certificate
    assert alone.suited_to(measurements.neighbours, truth.hierarchy, None).options["leaves"] == "counts_total"
    played = mechanism.simulate_truths(measurements, mechanism.estimate(measurements).counts)(0)
    assert played.min() >= 0
    assert np.array_equal(truth.hierarchy.aggregate(played[truth.hierarchy.level_slice(3)]), played)


@pytest.mark.parametrize("public", [False, True])
def test_other_mechanisms_can_estimate_from_the_same_measurements(public):
    truth = households(public=public)
    mechanism, plan = prepared(truth)
    every = replace(plan, queries=tuple(MeasurementQuery(plan.queries[0].view, n, Fraction(1, 4)) for n in range(4)))
    for asked in (plan, every):
        measurements = seeded_measurements(truth, asked, 1)
        names = [row.name for row in instead_of(mechanism, measurements)]
        assert names == ["pgsr-hierarchical-dp", "bottom-up"][len(asked.queries) < 4 :]
        for row in instead_of(mechanism, measurements):
            found = row.estimate(measurements).counts
            assert found.min() >= 0
            assert np.array_equal(truth.hierarchy.aggregate(found[truth.hierarchy.level_slice(3)]), found)


# -------------------------------------------------------------------- shares


@pytest.mark.parametrize(("cap", "regions"), list(product((1.0, 1.05, 1.2), ((1, 40), (1, 7, 26, 2896), (1, 13, 27)))))
def test_no_other_division_within_the_cap_is_better(cap, regions):
    budget, sensitivity = tt.Budget(epsilon=1), Sensitivity(2, 2)
    depth, noise = len(regions), _noise(budget, sensitivity)
    alike = np.array(level_errors(regions, noise, [1 / depth] * depth))

    def ratios(shares):
        return np.array(level_errors(regions, noise, [share / sum(shares) for share in shares])) / alike

    def cost(found):
        return 0.65 * np.log(found[-1]) + 0.35 * np.log(found[:-1]).mean()

    found = ratios(_capped(regions, budget, sensitivity, cap))
    assert found[:-1].max() <= cap * (1 + 1e-6)
    for upper in product(range(0, 24, 2), repeat=depth - 1):
        if sum(upper) < 24:
            other = ratios((*upper, 24 - sum(upper)))
            assert other[:-1].max() > cap or cost(found) <= cost(other) + 0.01


def test_priorities_divide_the_budget_of_counts_too():
    truth = households(public=False)
    shares = {}
    for priority in ("upper", "balanced", "leaves"):
        private = truth.group_sizes()
        facts = {"neighbours": Neighbours.of(private, GROUP), "hierarchy": truth.hierarchy, "totals": None}
        _, plan = prepare("auto", **facts, budget=tt.Budget(epsilon=1), priority=priority)
        assert {query.view for query in plan.queries} == {"counts_total"}
        shares[priority] = float(plan.queries[-1].share)
    assert shares["upper"] < shares["balanced"] < shares["leaves"]


# -------------------------------------------------------------------- intervals


@pytest.mark.parametrize("public", [False, True])
def test_guaranteed_intervals_hold(public):
    truth = households(public=public, leaves=40)
    mechanism, plan = prepared(truth)
    true, inside, cells = truth.all_levels(), 0, 0
    for run in range(60):
        measurements = seeded_measurements(truth, plan, "hold", run)
        ends = guaranteed(measurements, mechanism.estimate(measurements).counts)
        inside += int(((ends.lower <= true) & (true <= ends.upper)).sum())
        cells += true.size
    assert inside / cells >= 0.945


def test_sums_use_the_measured_total_and_have_the_variance_of_their_error():
    truth = households(public=False, leaves=12)
    _, plan = prepared(truth, tt.Budget(rho="0.5"))
    true = truth.all_levels()
    questions = {"one": [2], "two": [1, 4], "all": range(1, 7)}
    found = {name: [] for name in questions}
    for run in range(300):
        view = MeasuredView.of(seeded_measurements(truth, plan, run))
        for name, sizes in questions.items():
            one = linear_sum(view, [1], np.isin(np.arange(8), list(sizes)).astype(float))
            found[name].append((one.estimate - true[1, [size - 1 for size in sizes]].sum(), one.variance))
    for errors, variances in (np.array(found[name]).T for name in questions):
        assert abs(errors.mean()) < 5 * np.sqrt(variances[0] / 300)
        assert 0.6 < (errors**2).mean() / variances[0] < 1.6
    by_name = {name: each[0][1] for name, each in found.items()}
    assert by_name["one"] == pytest.approx(by_name["all"])  # K / (K + 1) of a column's variance, both
    assert by_name["two"] == pytest.approx(2 * (1 - 2 / 7) / (1 - 1 / 7) * by_name["one"])


def test_a_plan_predicts_the_widths_that_the_release_has():
    truth = households(public=False)
    relation = Neighbours.of(truth.group_sizes(), GROUP)
    _, plan = prepared(truth)
    widths = half_widths(truth.hierarchy, relation, plan)
    measurements = seeded_measurements(truth, plan, 1)
    shifted = tuple(replace(part, values=part.values + 10**6) for part in measurements.measured)  # far from 0
    measurements = replace(measurements, measured=shifted)
    ends = guaranteed(measurements, np.zeros((len(truth.hierarchy), 6), np.int64))
    lower = guaranteed(measurements, np.full((len(truth.hierarchy), 6), 1 << 40)).lower
    for level, width in enumerate(widths):
        rows = truth.hierarchy.level_slice(level)
        reach = (ends.upper - lower)[rows] / 2
        assert np.all(np.abs(reach - width) < 1)  # ends are integers


def test_a_release_of_households_is_verified_and_answers_questions(tmp_path):
    truth = households(public=False, leaves=24)
    made = tt.release(truth.group_sizes(), budget=tt.Budget(epsilon=1), unit=GROUP, intervals="guaranteed")
    assert made.mechanism == "tallytree"
    assert {part.view for part in made.measurements.measured} == {"counts_total"}
    made.save(tmp_path / "release")
    outcome = tt.verify(tmp_path / "release")
    assert outcome.ok, outcome
    true = truth.all_levels()[0]
    median = made.ask(tt.Query("median", made.hierarchy.ids[0]))
    assert median.guaranteed[0] <= 1 + int(np.searchsorted(np.cumsum(true), true.sum() / 2)) <= median.guaranteed[1]
    again = tt.Release.load(tmp_path / "release")
    assert np.array_equal(again.counts, made.counts)
    assert str(again.estimate(made.hierarchy.ids[:1], [1, 2])) == str(made.estimate(made.hierarchy.ids[:1], [1, 2]))


def test_options_that_need_other_measurements_are_refused_or_decide():
    truth, public = households(public=False), households(public=True)
    for options in ({"entities_share": "1/4"}, {"totals_share": "1/4"}):
        _, plan = prepared(truth, mechanism="tallytree", **options)
        assert "at_least" in {query.view for query in plan.queries}
        with pytest.raises(tt.SpecError, match="counts of single sizes are measured alone"):
            prepared(truth, mechanism="tallytree", leaves="counts", **options)
    with pytest.raises(tt.SpecError, match="counts_total would measure known numbers"):
        prepared(public, mechanism="tallytree", leaves="counts_total")
    with pytest.raises(tt.SpecError, match="up to max_size = 64"):
        prepared(households(public=False, sizes=65, leaves=12), mechanism="tallytree", leaves="counts")
    bare = MECHANISMS["tallytree"].configured({"leaves": "counts"})
    plan = bare.plan(truth.hierarchy, tt.Budget(epsilon=1), GROUP)
    with pytest.raises(tt.ReleaseError, match="need their total"):
        bare.estimate(seeded_measurements(truth, plan, 1))


def test_one_entity_may_ask_for_counts_and_they_cost_as_much():
    truth = households(public=False)
    mechanism, plan = prepared(truth, mechanism="tallytree", unit=tt.one_entity(), leaves="counts")
    assert mechanism.options["leaves"] == "counts_total"
    measurements = seeded_measurements(truth, plan, 1)
    assert {part.sensitivity for part in measurements.measured} == {Sensitivity(2, 2)}
