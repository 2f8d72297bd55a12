"""Every registered mechanism's exact privacy loss on the paper's 11-person example, both units and both settings."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tallytree import Budget, one_entity, one_group
from tallytree.mechanisms import MECHANISMS
from tallytree.privacy.measurements import FirstStageFacts
from tests.oracles.example import TABLE_4
from tests.oracles.loss import GROUPS, US, leaf_counts, measured_without_noise, worst_loss

EPSILON = Fraction(7, 10)
UNITS = [one_entity(), one_group()]
LEAVES_ONLY = {"bottom-up", "naive"}
COUNT_OF_COUNTS = {
    "Hc×Hc": ("coc-matching", {"methods": ["cumulative", "cumulative-l2"]}),
    "Hg×Hg": ("coc-matching", {"methods": ["sorted-sizes", "sorted-sizes-l1"]}),
    "Hg×Hc": ("coc-matching", {"methods": ["sorted-sizes", "cumulative"]}),
    "BU Hc": ("bottom-up", {"method": "cumulative"}),
    "BU Hg": ("bottom-up", {"method": "sorted-sizes"}),
    "BU H": ("bottom-up", {"method": "naive"}),
}
SETTLED = list(product(range(5), repeat=2))  # three groups in each region: too few places, too many, none


@pytest.mark.parametrize("public_totals", [False, True])
@pytest.mark.parametrize("unit", [one_entity(), one_group()], ids=str)
@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_the_worst_log_likelihood_ratio_is_within_the_budget(name, unit, public_totals):
    mechanism = MECHANISMS[name]
    for shares in (None,) if name in LEAVES_ONLY else (None, [1, 4]):
        plan = mechanism.plan(US, Budget(epsilon=EPSILON), unit, shares)
        worst = worst_loss(
            unit, public_totals, lambda data, plan=plan: measured_without_noise(data, plan, public_totals)
        )
        # No group of the example has size 0 or 5, so a replaced one moves by 4 sizes at most; a new one moves by 5.
        short = unit == one_group() and public_totals and mechanism.view in ("at_least", "chain")
        assert worst == EPSILON * (Fraction(4, 5) if short else 1)


def worst_in_two_stages(unit, public_totals, plan, outcomes):
    """The worst loss over all outcomes of what is measured first, and all neighbours."""
    return max(
        worst_loss(
            unit,
            public_totals,
            lambda data, first_stage=first_stage: measured_without_noise(
                data, plan, public_totals, lambda known: first_stage
            ),
        )
        for first_stage in outcomes
    )


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("choice", COUNT_OF_COUNTS)
def test_lists_and_cumulative_counts_with_public_totals_lose_no_more_than_the_budget(choice, unit):
    name, options = COUNT_OF_COUNTS[choice]
    mechanism = MECHANISMS[name].configured(options)
    for shares in (None,) if name in LEAVES_ONLY else (None, [1, 4]):
        plan = mechanism.plan(US, Budget(epsilon=EPSILON), unit, shares)
        worst = worst_in_two_stages(unit, True, plan, [FirstStageFacts()])
        # No group of the example has size 0 or 5, so a replaced one moves by 4 sizes at most.
        short = unit == one_group() and choice != "BU H"
        assert worst == EPSILON * (Fraction(4, 5) if short else 1)


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("choice", COUNT_OF_COUNTS)
def test_totals_and_all_that_may_follow_from_them_together_lose_exactly_the_budget(choice, unit):
    """A new group changes its total and, where its region was given a place for it, the list: all of the budget."""
    name, options = COUNT_OF_COUNTS[choice]
    mechanism = MECHANISMS[name].configured({**options, "totals_share": "0.3"})
    plan = mechanism.plan(US, Budget(epsilon=EPSILON), unit)
    outcomes = [FirstStageFacts(US.aggregate(np.array(lengths))) for lengths in SETTLED]
    worst = worst_in_two_stages(unit, False, plan, outcomes)
    # Two counts change where a group moves, and its total does not; one count and its total where it is new.
    assert worst == EPSILON * (Fraction(7, 10) if choice == "BU H" else 1)


@pytest.mark.parametrize("public_totals", [False, True])
@pytest.mark.parametrize("choice", COUNT_OF_COUNTS)
def test_a_measured_largest_size_and_all_that_may_follow_from_it_stay_within_the_budget(choice, public_totals):
    name, options = COUNT_OF_COUNTS[choice]
    totals = {} if public_totals else {"totals_share": "0.3"}
    mechanism = MECHANISMS[name].configured({**options, **totals, "largest_share": "0.2"})
    plan = mechanism.plan(US, Budget(epsilon=EPSILON), one_entity())
    lengths = [None] if public_totals else [US.aggregate(np.array(some)) for some in ((0, 0), (2, 3), (4, 4), (1, 5))]
    outcomes = [FirstStageFacts(some, largest) for some, largest in product(lengths, range(1, 6))]
    worst = worst_in_two_stages(one_entity(), public_totals, plan, outcomes)
    assert worst <= EPSILON
    if public_totals:  # the largest group grows by one: both stages see it
        assert worst == EPSILON


BANDS = [{"to": 2, "shares": [1, 2]}, {"to": 3, "shares": [0, 1]}, {"to": 5, "shares": [3, 1]}]


@pytest.mark.parametrize("public_totals", [False, True])
@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("leaves", ["at_least", "lists"])
def test_bands_of_sizes_lose_the_budget_and_no_more(leaves, unit, public_totals):
    options = {"bands": BANDS, "leaves": leaves, **({} if public_totals else {"totals_share": "0.3"})}
    plan = MECHANISMS["tallytree"].configured(options).plan(US, Budget(epsilon=EPSILON), unit)
    outcomes = (
        [FirstStageFacts()]
        if public_totals
        else [FirstStageFacts(US.aggregate(np.array(lengths))) for lengths in SETTLED]
    )
    worst = worst_in_two_stages(unit, public_totals, plan, outcomes)
    # No group of the example has size 0 or 5, so a replaced one moves by 4 sizes at most; a new one moves by 5.
    assert worst == EPSILON * (Fraction(4, 5) if unit == one_group() and public_totals else 1)


def test_the_two_stages_can_see_a_cheat():
    """Lists measured with the noise of half their sensitivity lose more than the budget."""
    mechanism = MECHANISMS["coc-matching"].configured({"methods": ["sorted-sizes"] * 2, "totals_share": "0.3"})
    plan = mechanism.plan(US, Budget(epsilon=EPSILON), one_entity())
    first_stage = FirstStageFacts(US.aggregate(np.array([4, 4])))

    def cheat(data):
        seen = measured_without_noise(data, plan, False, lambda known: first_stage)
        return [(values, scale / 2 if values.ndim == 1 else scale) for values, scale in seen]

    assert worst_loss(one_entity(), False, cheat) == EPSILON * (Fraction(3, 10) + 2 * Fraction(7, 10))


def test_the_example_is_the_papers_tables_3_and_4():
    assert {name: size for name, (_, size) in GROUPS.items()} == {"A": 3, "B": 1, "C": 1, "D": 3, "E": 1, "F": 2}
    counts = US.aggregate(leaf_counts(GROUPS, public_totals=False))
    assert dict(zip(US.ids, counts.tolist(), strict=True)) == TABLE_4
    assert US.aggregate(leaf_counts(GROUPS, public_totals=True))[:, 0].tolist() == [0, 0, 0]


def test_halving_the_noise_doubles_the_loss():
    """The computation can see a mechanism that cheats: this is not a test that always passes."""
    for unit, public_totals in product([one_entity(), one_group()], [False, True]):
        plan = MECHANISMS["pgsr-hierarchical-dp"].plan(US, Budget(epsilon=EPSILON), unit)

        def cheat(data, plan=plan, public_totals=public_totals):
            return [(values, scale / 2) for values, scale in measured_without_noise(data, plan, public_totals)]

        assert worst_loss(unit, public_totals, cheat) == 2 * EPSILON
