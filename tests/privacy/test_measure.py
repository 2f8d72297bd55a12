from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import tallytree.privacy.noise.samplers
import tallytree.privacy.run
from tallytree import Budget, BudgetError, Hierarchy, Ledger, ReleaseError, SpecError, measure, one_entity
from tallytree.lab.truth import Truth, seeded, seeded_measurements
from tallytree.mechanisms import MECHANISMS
from tallytree.mechanisms.budget_allocation import every_level
from tallytree.privacy import MeasurementQuery, Neighbours, Plan, one_group
from tallytree.privacy.measurements import FirstStageFacts
from tallytree.privacy.noise.samplers import laplace_variance
from tallytree.tables import GroupSizes, Sealed
from tests.oracles.neighbours import listed

TREE = Hierarchy.from_levels({"state": ["A", "A", "B", "DC"], "county": ["a", "b", "c", None]}, ["state", "county"])
LEAVES = np.arange(16, dtype=np.int64).reshape(4, 4) * 1000


def sizes(public=False, **facts):
    totals = LEAVES.sum(axis=1) if public else None
    return GroupSizes(TREE, 3 if public else 4, Sealed(LEAVES), leaf_totals=totals, **facts)


@pytest.mark.parametrize("source", ["tallytree", "opendp"])
@pytest.mark.parametrize("budget", [Budget(epsilon=3), Budget(rho=3), Budget(epsilon=3, delta="1e-9")], ids=str)
@pytest.mark.parametrize("view", ["counts", "at_least"])
@pytest.mark.parametrize("public", [False, True])
def test_what_leaves_is_the_view_of_every_level_plus_noise(view, public, budget, source):
    data = sizes(public)
    plan = every_level(view, TREE, budget, one_entity(), shares=[1, 2, 3])
    measurements = measure(data, plan, noise_source=source)
    sums = TREE.aggregate(LEAVES)
    if view == "at_least":
        sums = np.cumsum(sums[:, ::-1], axis=1)[:, ::-1][:, 1 if public else 0 :]
    noise = measurements.stacked(view) - sums
    assert noise.shape == sums.shape
    deviations = np.sqrt(measurements.variances(view))[TREE.level_of][:, None]
    assert np.all(np.abs(noise) < 60 * deviations + 60)  # fails by chance less than once in 10^20
    assert np.any(noise != 0) or deviations.max() < 0.5
    assert sum(part.cost for part in measurements.measured) <= budget.amount
    if source == "tallytree":
        assert sum(part.cost for part in measurements.measured) == budget.amount


def test_noise_is_drawn_and_the_ledger_charged_before_private_counts_are_touched(monkeypatch, tmp_path):
    events = []

    class Watched(Sealed):
        def open_at_the_privacy_border(self):
            events.append("private counts")
            return super().open_at_the_privacy_border()

    class WatchedLedger(Ledger):
        def reserve(self, *arguments, **options):
            events.append("ledger")
            return super().reserve(*arguments, **options)

    real = tallytree.privacy.noise.samplers.discrete_laplace

    def draw(scale, size):
        events.append("noise")
        return real(scale, size)

    monkeypatch.setattr(tallytree.privacy.noise.samplers, "discrete_laplace", draw)
    data = GroupSizes(TREE, 4, Watched(LEAVES), name="people")
    ledger = WatchedLedger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=1), Neighbours.of(data, one_entity()))
    measure(data, every_level("counts", TREE, Budget(epsilon=1), one_entity()), ledger=ledger)
    assert events == ["ledger", "noise", "noise", "noise", "private counts"]


def test_a_refused_cost_draws_nothing_and_touches_nothing(tmp_path):
    class Untouchable(Sealed):
        def open_at_the_privacy_border(self):
            raise AssertionError("private counts were opened")

    data = GroupSizes(TREE, 4, Untouchable(LEAVES), name="people")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=1), Neighbours.of(data, one_entity()))
    with pytest.raises(BudgetError, match="Nothing was changed"):
        measure(data, every_level("counts", TREE, Budget(epsilon=2), one_entity()), ledger=ledger)
    with pytest.raises(BudgetError, match="another neighbour relation"):
        measure(data, every_level("counts", TREE, Budget(epsilon=1), one_group()), ledger=ledger)
    with pytest.raises(SpecError, match="scale"):  # noise too large to be drawn
        measure(data, every_level("counts", TREE, Budget(epsilon="1e-50"), one_entity()), ledger=ledger)
    plan = every_level("counts", TREE, Budget(epsilon=1), one_entity())
    for source in ("numpy", seeded(0)):
        with pytest.raises(SpecError, match="unknown noise source"):
            measure(data, plan, ledger=ledger, noise_source=source)
    assert ledger.account("people").spent == 0


def test_a_plan_for_levels_that_are_not_there_is_refused():
    with pytest.raises(SpecError, match="level that is not there"):
        measure(sizes(), Plan(Budget(epsilon=1), one_entity(), (MeasurementQuery("counts", 3, 1),)))


def test_totals_can_be_measured_only_where_they_are_private():
    plan = every_level("totals", TREE, Budget(epsilon=300), one_entity())
    noisy = measure(sizes(), plan).stacked("totals")
    assert noisy.shape == (len(TREE), 1)
    assert np.abs(noisy - TREE.aggregate(LEAVES).sum(axis=1, keepdims=True)).max() < 50
    with pytest.raises(BudgetError, match="public"):
        measure(sizes(public=True), plan)


def test_variances_are_the_exact_ones():
    measurements = measure(sizes(), every_level("counts", TREE, Budget(epsilon=1), one_entity()))
    ratio = np.exp(-1 / 6)
    assert measurements.variances("counts") == pytest.approx([2 * ratio / (1 - ratio) ** 2] * 3, rel=1e-12)
    assert laplace_variance(6) == measurements.variances("counts")[0]


def test_a_view_that_was_not_measured_cannot_be_stacked():
    measurements = measure(sizes(), every_level("counts", TREE, Budget(epsilon=1), one_entity()))
    with pytest.raises(ReleaseError, match="not measured on every level"):
        measurements.stacked("at_least")


# -------------------------------------------------------------------- lists of sizes, and what is measured first

FEW = np.array([[3, 1, 0, 1], [0, 0, 0, 0], [0, 2, 0, 4], [1, 0, 5, 0]])  # the second leaf has no groups


def few(public=False, sealed=Sealed, **facts):
    totals = FEW.sum(axis=1) if public else None
    return GroupSizes(TREE, 3 if public else 4, sealed(FEW), leaf_totals=totals, **facts)


def true_lists(level, first_size, lengths, largest=4):
    """Each region's list of sizes, one after another."""
    found = []
    for row, length in zip(TREE.aggregate(FEW)[TREE.level_slice(level)], lengths, strict=True):
        sizes = [min(first_size + size, largest) for size, groups in enumerate(row) for _ in range(groups)]
        found += listed(sizes, int(length))
    return found


def two_stages(budget=Budget(epsilon=10**4), view="sorted_sizes", largest=False):  # noqa: B008
    """Totals (and the largest size) first, then a view, on every level."""
    first = [MeasurementQuery("totals", level, Fraction(1, 30)) for level in range(3)]
    if largest:
        first.append(MeasurementQuery("largest", 0, Fraction(1, 10)))
    left = 1 - sum(query.share for query in first)
    return Plan(budget, one_entity(), (*first, *(MeasurementQuery(view, level, left / 3) for level in range(3))))


@pytest.mark.parametrize("budget", [Budget(epsilon=10**4), Budget(rho=10**4)], ids=str)
def test_lists_are_the_true_ones_at_almost_no_noise_with_public_totals(budget):
    measurements = measure(few(public=True), every_level("sorted_sizes", TREE, budget, one_entity()))
    for level in range(3):
        lengths = measurements.lengths(level)
        assert np.array_equal(lengths, TREE.aggregate(FEW)[TREE.level_slice(level)].sum(axis=1))
        assert measurements.on_level(level).values.tolist() == true_lists(level, 0, lengths)


@pytest.mark.parametrize("more", [[0, 0, 0, 0], [2, 1, 0, 3], [-4, 0, -6, -1], [3, 0, -2, -6]])
def test_lists_are_padded_and_cut_to_settled_totals(more):
    totals = TREE.aggregate(FEW.sum(axis=1) + more)
    seen = []

    def derive_facts(known):
        seen.append([(part.view, part.level) for part in known.measured])
        assert known.stacked("totals")[:, 0].tolist() == TREE.aggregate(FEW).sum(axis=1).tolist()
        return FirstStageFacts(totals)

    measurements = measure(few(), two_stages(), derive_facts=derive_facts)
    assert seen == [[("totals", 0), ("totals", 1), ("totals", 2)]]
    assert np.array_equal(measurements.known_totals, totals)
    for level in range(3):
        lengths = totals[TREE.level_slice(level)]
        assert measurements.on_level(level).values.tolist() == true_lists(level, 1, lengths)


@pytest.mark.parametrize("largest", [1, 2, 3, 4])
@pytest.mark.parametrize("view", ["counts", "at_least", "sorted_sizes", "chain"])
def test_a_settled_largest_size_folds_larger_ones_into_it_in_every_view(view, largest):
    totals = TREE.aggregate(FEW).sum(axis=1)
    plan = two_stages(Budget(epsilon=10**5), view, largest=True)
    measurements = measure(few(), plan, derive_facts=lambda known: FirstStageFacts(totals, largest))
    assert measurements.max_size == largest
    assert measurements.neighbours.max_size == 4
    assert [part.values.tolist() for part in measurements.measured if part.view == "largest"] == [[[4]]]
    for level in range(3):
        groups = [
            [min(size, largest) for size, count in enumerate(row, 1) for _ in range(count)]
            for row in TREE.aggregate(FEW)[TREE.level_slice(level)]
        ]
        sizes, values = range(1, largest + 1), measurements.on_level(level).values
        if view == "sorted_sizes":
            assert values.tolist() == [size for row in groups for size in sorted(row)]
        elif view == "chain":
            cells = [(size, region) for region, row in enumerate(groups) for size in row]
            found = [[sum(c >= (size, region) for c in cells) for size in sizes] for region in range(len(groups))]
            assert values.tolist() == found
        elif view == "counts":
            assert values.tolist() == [[row.count(size) for size in sizes] for row in groups]
        else:
            assert values.tolist() == [[sum(one >= size for one in row) for size in sizes] for row in groups]


def test_the_ledger_comes_first_and_noise_before_private_counts_in_both_stages(monkeypatch, tmp_path):
    events = []

    class Watched(Sealed):
        def open_at_the_privacy_border(self):
            events.append("private counts")
            return super().open_at_the_privacy_border()

    class WatchedLedger(Ledger):
        def reserve(self, *arguments, **options):
            events.append("ledger")
            return super().reserve(*arguments, **options)

    real = tallytree.privacy.noise.samplers.discrete_laplace

    def draw(scale, size):
        events.append(f"noise {size}")
        return real(scale, size)

    def derive_facts(known):
        events.append("derive facts")
        return FirstStageFacts(TREE.aggregate(np.array([2, 0, 2, 1])), 2)

    monkeypatch.setattr(tallytree.privacy.noise.samplers, "discrete_laplace", draw)
    monkeypatch.setattr(tallytree.privacy.run, "AT_A_TIME", 3)
    data = few(sealed=Watched, name="people")
    ledger = WatchedLedger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=1), Neighbours.of(data, one_entity()))
    queries = (
        MeasurementQuery("at_least", 0, Fraction(1, 4)),
        MeasurementQuery("totals", 2, Fraction(1, 4)),
        MeasurementQuery("largest", 0, Fraction(1, 4)),
        MeasurementQuery("sorted_sizes", 2, Fraction(1, 4)),
    )
    measurements = measure(
        data, Plan(Budget(epsilon=1), one_entity(), queries), ledger=ledger, derive_facts=derive_facts
    )
    first = ["ledger", "noise 4", "noise 1", "private counts", "derive facts"]
    assert events == [*first, "noise 2", "private counts", "noise 3", "noise 2"]  # lists: a part at a time
    assert ledger.account("people").left == 0
    assert sum(part.cost for part in measurements.measured) == 1


def test_lists_without_totals_are_refused_and_the_ledger_is_untouched(tmp_path):
    class Untouchable(Sealed):
        def open_at_the_privacy_border(self):
            raise AssertionError("private counts were opened")

    data = few(sealed=Untouchable, name="people")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=10**4), Neighbours.of(data, one_entity()))
    lists = every_level("sorted_sizes", TREE, Budget(epsilon=1), one_entity())
    with pytest.raises(SpecError, match="measure totals with a share of the budget first"):
        measure(data, lists, ledger=ledger)
    with pytest.raises(SpecError, match="measure totals with a share of the budget first"):
        measure(
            data, lists, ledger=ledger, derive_facts=lambda known: FirstStageFacts(TREE.aggregate(np.ones(4, np.int64)))
        )
    with pytest.raises(SpecError, match="measure totals with a share of the budget first"):
        measure(data, two_stages(Budget(epsilon=1)), ledger=ledger)  # and nothing to settle them
    below = (MeasurementQuery("largest", 1, Fraction(1, 2)), MeasurementQuery("counts", 0, Fraction(1, 2)))
    with pytest.raises(SpecError, match="measure it on the top level"):
        measure(data, Plan(Budget(epsilon=1), one_entity(), below), ledger=ledger)
    top = (MeasurementQuery("largest", 0, Fraction(1, 2)), MeasurementQuery("counts", 0, Fraction(1, 2)))
    with pytest.raises(SpecError, match="one group can change it"):
        measure(data, Plan(Budget(epsilon=1), one_group(), top), ledger=ledger)
    assert ledger.account("people").spent == 0


def test_lists_with_noise_lie_about_the_truth_and_come_from_either_source():
    for source, budget in product(("tallytree", "opendp"), (Budget(epsilon=3), Budget(rho=3))):
        measurements = measure(
            few(public=True), every_level("sorted_sizes", TREE, budget, one_entity()), noise_source=source
        )
        for level in range(3):
            part = measurements.on_level(level)
            noise = part.values - true_lists(level, 0, measurements.lengths(level))
            assert np.abs(noise).max() < 60 * part.variance**0.5 + 60  # fails by chance less than once in 10^20
        noise = np.concatenate([measurements.on_level(level).values for level in range(3)])
        assert np.any(
            noise != np.concatenate([true_lists(level, 0, measurements.lengths(level)) for level in range(3)])
        )


@pytest.mark.parametrize("scale", ["3e6", "2e6"])
def test_noise_too_wide_for_32_bits_is_kept_in_64(scale):
    plan = Plan(Budget(epsilon=1 / Fraction(scale)), one_entity(), (MeasurementQuery("sorted_sizes", 0, Fraction(1)),))
    values = measure(few(public=True), plan).on_level(0).values
    assert values.dtype == (np.int64 if scale == "3e6" else np.int32)


def test_measuring_by_seed_is_the_same_every_time_in_two_stages_too():
    truth = Truth("few", TREE, FEW, public_totals=False)
    mechanism = MECHANISMS["coc-matching"].configured(
        {"methods": ["sorted-sizes", "cumulative", "sorted-sizes-l1"], "totals_share": "1/5", "largest_share": "1/7"}
    )
    plan = mechanism.plan(TREE, Budget(epsilon=1), one_entity())
    one, same, other = (
        seeded_measurements(truth, plan, seed, derive_facts=mechanism.derive_facts) for seed in (1, 1, 2)
    )
    assert np.array_equal(one.first_stage.totals, same.first_stage.totals)
    assert one.first_stage.max_size == same.first_stage.max_size
    assert all(np.array_equal(a.values, b.values) for a, b in zip(one.measured, same.measured, strict=True))
    assert not all(np.array_equal(a.values, b.values) for a, b in zip(one.measured, other.measured, strict=True))


@pytest.mark.parametrize("name", ["coc-matching", "bottom-up"])
@pytest.mark.parametrize("budget", [Budget(epsilon="1/3"), Budget(rho="0.7")], ids=str)
@pytest.mark.parametrize("aside", [{}, {"largest_share": "1/7"}])
def test_shares_add_up_to_one_and_costs_to_the_budget(name, budget, aside):
    mechanism = MECHANISMS[name].configured({"totals_share": "0.13", **aside})
    shares = {"total": "0.1", "state": 1, "county": "2/3"} if name == "coc-matching" else None
    plan = mechanism.plan(TREE, budget, one_entity(), shares)
    measurements = measure(few(), plan, derive_facts=mechanism.derive_facts)
    assert sum(part.share for part in measurements.measured) == 1
    assert sum(part.cost for part in measurements.measured) == budget.amount
    totals = sum(part.share for part in measurements.measured if part.view == "totals")
    assert totals == Fraction("0.13")
    largest = sum(part.share for part in measurements.measured if part.view == "largest")
    assert largest == (Fraction(1, 7) if aside else 0)


def test_lengths_are_not_made_up_where_no_totals_are_known():
    measurements = measure(sizes(), every_level("at_least", TREE, Budget(epsilon=1), one_entity()))
    with pytest.raises(ReleaseError, match="need public totals, or totals that were measured first"):
        measurements.lengths(0)
    assert measurements.known_totals is None


def test_what_was_measured_of_sizes_is_distinguished_from_what_came_first():
    totals = TREE.aggregate(FEW).sum(axis=1)
    measurements = measure(few(), two_stages(largest=True), derive_facts=lambda known: FirstStageFacts(totals))
    assert [part.view for part in measurements.measured[:4]] == ["totals", "totals", "totals", "largest"]
    assert [measurements.on_level(level).view for level in range(3)] == ["sorted_sizes"] * 3
    with pytest.raises(ReleaseError, match="expected one measurement of sizes on level 3, found 0"):
        measurements.on_level(3)
