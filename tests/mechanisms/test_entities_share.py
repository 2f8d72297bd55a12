"""A share of the budget for the numbers of entities: the plan, what it loses, and what it is good for."""

from fractions import Fraction

import numpy as np
import pytest

from tallytree import Budget, SpecError, one_entity, one_group
from tallytree.domain.histogram import at_least, entities
from tallytree.lab.datasets import make
from tallytree.lab.truth import Truth, measured_without_noise, seeded_measurements
from tallytree.mechanisms import MECHANISMS, instead_of, prepare
from tallytree.privacy import Neighbours
from tests.oracles.loss import US, worst_loss
from tests.oracles.loss import measured_without_noise as measured_of_example
from tests.oracles.trees import even_tree


def chosen(truth, epsilon=1, shares=None, **options):
    private = truth.group_sizes()
    return prepare(
        "tallytree",
        options,
        neighbours=Neighbours.of(private, one_entity()),
        hierarchy=truth.hierarchy,
        totals=private.region_totals,
        budget=Budget(epsilon=epsilon),
        shares=shares,
    )


def country(*, public_totals):
    """Households of up to 12 persons in 40 counties."""
    whole = make("census", scale=0.01, seed=1)
    sizes = np.pad(whole.counts, ((0, 0), (whole.first_size, 0)))  # from 0 on
    counts = np.hstack([sizes[:, :12], sizes[:, 12:].sum(axis=1, keepdims=True)])
    return Truth("country", whole.hierarchy, counts if public_totals else counts[:, 1:], public_totals)


@pytest.mark.parametrize("public_totals", [False, True])
@pytest.mark.parametrize("unit", [one_entity(), one_group()], ids=str)
def test_entities_and_sizes_together_lose_the_budget_and_no_more(unit, public_totals):
    budget = Fraction(7, 10)
    plan = MECHANISMS["tallytree"].configured({"entities_share": "1/3"}).plan(US, Budget(epsilon=budget), unit, [1, 4])
    worst = worst_loss(unit, public_totals, lambda data: measured_of_example(data, plan, public_totals))
    # No group of the example has size 0 or 5, so a replaced one moves by 4 sizes at most; a new one moves by 5.
    assert worst == budget * (Fraction(4, 5) if unit == one_group() and public_totals else 1)


@pytest.mark.parametrize("public_totals", [False, True])
def test_without_noise_the_estimate_is_the_truth(public_totals):
    truth = country(public_totals=public_totals)
    mechanism, plan = chosen(truth, epsilon=10**6, entities_share="1/4")
    measurements = seeded_measurements(truth, plan, 1, derive_facts=mechanism.derive_facts)
    found = mechanism.estimate(measurements)
    np.testing.assert_array_equal(found.counts, truth.all_levels())
    assert "measured numbers of entities" in found.certificate


@pytest.mark.parametrize("public_totals", [False, True])
def test_half_of_the_budget_for_entities_makes_them_better_on_each_level_and_sizes_worse(public_totals):
    truth = country(public_totals=public_totals)
    true = truth.all_levels()
    errors = []
    for options in ({}, {"entities_share": "1/2"}):
        mechanism, plan = chosen(truth, 0.3, leaves="at_least", **options)
        found = [mechanism.estimate(seeded_measurements(truth, plan, seed)).counts for seed in range(12)]
        persons = [entities(one - true, truth.first_size) for one in found]
        sizes = [at_least(one - true, truth.first_size) for one in found]
        rows = [truth.hierarchy.level_slice(level) for level in range(truth.hierarchy.depth)]
        errors.append([[np.abs([run[part] for run in some]).mean() for part in rows] for some in (persons, sizes)])
    derived, measured = np.array(errors)
    assert np.all(measured[0] < 0.9 * derived[0])
    assert np.all(measured[1] > derived[1])


def test_another_mechanism_takes_over_from_the_same_measurements():
    truth = Truth("few", even_tree(2, 4), np.random.default_rng(1).poisson(5, (4, 6)), public_totals=False)
    mechanism, plan = chosen(truth, shares=[1, 1, 1], entities_share="1/2")
    measurements = measured_without_noise(truth.group_sizes(), plan)
    others = list(instead_of(mechanism, measurements))
    assert [one.name for one in others] == ["pgsr-cumulative-dp", "bottom-up"]
    for one in others:
        np.testing.assert_array_equal(one.estimate(measurements).counts, truth.all_levels())


def test_what_cannot_be_is_refused_before_anything_is_spent():
    truth = country(public_totals=True)
    for options in ({"leaves": "lists"}, {"bands": [{"to": 3, "shares": [1, 1, 1]}, {"shares": [0, 0, 1]}]}):
        with pytest.raises(SpecError, match="entities_share needs at_least"):
            chosen(truth, entities_share="1/2", **options)
    for share in (0, 1, "-1/2", 2):
        with pytest.raises(SpecError, match="entities_share must lie between 0 and 1"):
            chosen(truth, entities_share=share)
    with pytest.raises(SpecError, match="leave out bands, lists, `beliefs` and totals_share"):
        chosen(country(public_totals=False), entities_share="1/4", totals_share="1/4")


def test_beliefs_are_refused_where_they_would_leave_entities_out_or_take_too_long():
    with pytest.raises(SpecError, match="lists, `beliefs` and totals_share"):
        chosen(country(public_totals=True), entities_share="1/4", leaves="beliefs")
    truth = Truth("one leaf", even_tree(1, 1), np.array([[0, *[30_000] * 60]]), public_totals=True)
    with pytest.raises(SpecError, match=r"up to 1,800,000 × 60 in one leaf"):
        chosen(truth, leaves="beliefs")


def test_few_groups_are_measured_by_at_least_counts_where_entities_are_measured():
    truth = Truth("few", even_tree(2, 4), np.random.default_rng(1).poisson(0.1, (4, 61)), public_totals=True)
    assert chosen(truth)[0].settings.leaves == "lists"
    assert chosen(truth, entities_share="1/2")[0].settings.leaves == "at_least"
