"""Every registered mechanism's exact privacy loss on the paper's 11-person example, both units and both settings."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from tallytree import Budget, one_entity, one_group
from tallytree.mechanisms import MECHANISMS
from tests.oracles.example import TABLE_4
from tests.oracles.loss import GROUPS, US, leaf_counts, measured_without_noise, worst_loss

EPSILON = Fraction(7, 10)


@pytest.mark.parametrize("public_totals", [False, True])
@pytest.mark.parametrize("unit", [one_entity(), one_group()], ids=str)
@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_the_worst_log_likelihood_ratio_is_within_the_budget(name, unit, public_totals):
    mechanism = MECHANISMS[name]
    for shares in (None, [1, 4]):
        plan = mechanism.plan(US, Budget(epsilon=EPSILON), unit, shares)
        worst = worst_loss(
            unit, public_totals, lambda data, plan=plan: measured_without_noise(data, plan, public_totals)
        )
        # No group of the example has size 0 or 5, so a replaced one moves by 4 sizes at most; a new one moves by 5.
        short = unit == one_group() and public_totals and mechanism.view in ("at_least", "chain")
        assert worst == EPSILON * (Fraction(4, 5) if short else 1)


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
