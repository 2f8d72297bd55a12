"""Details and sums together: the root's estimate is that of least squares, and options that do not fit are refused."""

from fractions import Fraction

import numpy as np
import pytest

from tallytree import Categories, Hierarchy, Neighbours, SpecError
from tallytree.domain.histogram import earth_movers_distance
from tallytree.lab.truth import seeded
from tallytree.mechanisms import prepare
from tallytree.mechanisms.measured_leaves import noisy_values
from tallytree.mechanisms.topdown_estimate import estimate_details
from tallytree.privacy import Budget
from tallytree.privacy.run import measure_with
from tallytree.tables import GroupSizes, Sealed
from tests.oracles.decomposition import PARTS, MeasuredMargin, margins_least_squares

TREE = Hierarchy.from_levels({"state": ["x", "x", "y"], "county": ["A", "B", "C"]}, ["state", "county"])
BY = {who: Categories.of({"sort": ["a", "b", "c"]}, who) for who in ("group", "members")}


def prepared(who, **options):
    tree = TREE.by_category(BY[who])
    private = GroupSizes(tree, 4, Sealed(np.arange(36).reshape(9, 4)))
    plan = prepare(
        "tallytree",
        options,
        neighbours=Neighbours.of(private, "one_entity"),
        hierarchy=tree,
        totals=None,
        budget=Budget(epsilon=1),
    )
    return private, *plan


def test_at_the_root_details_and_sums_together_are_least_squares_over_both():
    private, _, plan = prepared("group", all_share="0.4")
    measurements, tree = measure_with(seeded(5), private, plan), private.hierarchy
    over = measurements.over_categories
    mean, variance = estimate_details(measurements, noisy_values(measurements), noisy_values(over))
    margins = []
    for part in measurements.measured:
        values = part.values.astype(float)
        axes = frozenset({2}) if part.summed else PARTS[-1]
        if not part.summed:
            values = values.reshape(3, -1, 4).transpose(1, 0, 2)
        margins.append(MeasuredMargin(part.level - 1, axes, values, part.variance))
    best = margins_least_squares(margins, TREE, 3, 4)
    assert np.allclose(tree.on_level(mean, 1)[:, 0], best[0], rtol=0, atol=1e-9)
    assert np.allclose(mean[0], best[0].sum(axis=0), rtol=0, atol=1e-9)
    assert (variance > 0).all()


def test_variances_are_those_that_noise_shows():
    private, _, plan = prepared("group", all_share="0.4")
    draws = []
    for seed in range(400):
        measurements = measure_with(seeded(seed), private, plan)
        over = measurements.over_categories
        mean, variance = estimate_details(measurements, noisy_values(measurements), noisy_values(over))
        draws.append(mean)
    ratio = np.var(draws, axis=0) / variance
    assert 0.9 < ratio.mean() < 1.1  # 400 seeds, fixed
    assert 0.9 < ratio[0].mean() < 1.1


@pytest.mark.parametrize(
    ("who", "options", "words"),
    [
        ("members", {"leaves": "lists"}, "leave out lists"),
        ("members", {"totals_share": "0.1"}, "leave out lists"),
        ("members", {"bands": [{"to": 2, "shares": [0, 1, 1, 1]}, {"shares": [0, 1, 1, 1]}]}, "leave out lists"),
        ("group", {"all_share": "0.2", "leaves": "lists", "totals_share": "0.1"}, "leave out lists"),
        ("group", {"all_share": "1"}, "must lie between 0 and 1"),
    ],
)
def test_options_that_do_not_go_with_sums_are_refused(who, options, words):
    with pytest.raises(SpecError, match=words):
        prepared(who, **options)


def test_sums_without_categories_are_refused():
    with pytest.raises(SpecError, match="the data have no categories"):
        prepare(
            "tallytree",
            {"all_share": "0.2"},
            neighbours=Neighbours("one_entity", 4, False),
            hierarchy=TREE,
            totals=None,
            budget=Budget(epsilon=1),
        )


def test_levels_have_equal_shares_unless_something_else_is_said():
    _, _, plan = prepared("group")
    assert [query.share for query in plan.queries] == [Fraction(1, 3)] * 3
    tree = TREE.by_category(BY["group"])
    chosen, upper = prepare(
        "tallytree",
        neighbours=Neighbours.of(prepared("group")[0], "one_entity"),
        hierarchy=tree,
        totals=None,
        budget=Budget(epsilon=1),
        priority="upper",
    )
    assert [query.share for query in upper.queries] == [Fraction(4, 7), Fraction(2, 7), Fraction(1, 7)]
    assert chosen.name == "tallytree"


@pytest.mark.parametrize(("states", "borrow"), [(2, False), (12, True)])
def test_levels_between_root_and_leaves_borrow_if_they_have_more_than_two_regions(states, borrow):
    of = np.repeat([f"{state:02d}" for state in range(states)], 4)
    regions = Hierarchy.from_levels(
        {"state": list(of), "county": [f"{n:03d}" for n in range(len(of))]}, ["state", "county"]
    )
    tree = regions.by_category(BY["group"])
    counts = np.random.default_rng(0).poisson(40 * 0.6 ** np.arange(6), (3 * len(of), 6))
    private, true = GroupSizes(tree, 6, Sealed(counts)), tree.aggregate(counts)
    between = tree.level_slice(2)
    errors = []
    for options in ({}, {"borrow": False}):
        mechanism, plan = prepare(
            "tallytree",
            options,
            neighbours=Neighbours.of(private, "one_entity"),
            hierarchy=tree,
            totals=None,
            budget=Budget(epsilon="0.2"),
        )
        found = [mechanism.estimate(measure_with(seeded(seed), private, plan)).counts for seed in range(5)]
        errors.append(sum(earth_movers_distance(one, true, 1)[between].sum() for one in found))
    assert errors[0] < 0.8 * errors[1] if borrow else errors[0] == errors[1]


def test_one_region_by_category_borrows_nothing():
    tree = Hierarchy.from_levels({"nation": ["x"]}, ["nation"]).by_category(BY["group"])
    private = GroupSizes(tree, 4, Sealed(np.arange(12).reshape(3, 4)))
    neighbours = Neighbours.of(private, "one_entity")
    mechanism, plan = prepare("tallytree", neighbours=neighbours, hierarchy=tree, totals=None, budget=Budget(epsilon=1))
    assert "not shrunk" in mechanism.estimate(measure_with(seeded(1), private, plan)).certificate
