"""`tallytree` has no bias at the root from what is clipped below, and borrowing does not make leaves worse."""

from __future__ import annotations

import numpy as np
import pytest
from experiments.borrowing import against, compared
from experiments.root_bias import bias, villages

import tallytree as tt
from tallytree.lab.truth import seeded_measurements
from tallytree.mechanisms import MECHANISMS

BOUND = 5  # standard errors; beyond them less than once in a million


@pytest.mark.parametrize("borrow", [True, False])
@pytest.mark.parametrize("epsilon", ["0.1", "1"])
@pytest.mark.parametrize("public", [True, False])
def test_counts_at_the_root_are_off_to_neither_side(public, epsilon, borrow):
    """Villages of about five households: at ε = 0.1 all of their counts are far below the noise."""
    truth = villages(public_totals=public, regions=6, each=20, households=5)
    found = bias(truth, epsilon, 80, leaves="at_least", borrow=borrow)
    sizes = slice(1, 2) if public else slice(0, 2)  # a public total bounds T[1] at the root itself
    assert np.all(np.abs(found.means[sizes]) < BOUND * found.standard_errors[sizes])


@pytest.mark.parametrize("priority", ["balanced", "upper"])
def test_with_measured_totals_and_a_measured_root_there_is_no_bias_there(priority):
    """Totals of small leaves, clipped at 0 and added up, would make about a thousand groups out of noise here."""
    truth = villages(public_totals=False, regions=6, each=20, households=5)
    chosen = MECHANISMS["tallytree"].configured({"leaves": "lists", "totals_share": "1/10"})
    budget = tt.Budget(epsilon="0.5")
    shares = chosen.divided(truth.hierarchy, None, priority, budget)
    plan = chosen.plan(truth.hierarchy, budget, tt.one_entity(), shares)
    true, errors = int(truth.counts.sum()), []
    for run in range(40):
        measurements = seeded_measurements(truth, plan, "totals", run, derive_facts=chosen.derive_facts)
        errors.append(int(chosen.estimate(measurements).counts[0].sum()) - true)
    assert abs(np.mean(errors)) < BOUND * np.std(errors, ddof=1) / len(errors) ** 0.5


@pytest.mark.parametrize("epsilon", ["0.3", "3"])
@pytest.mark.parametrize("odd", ["every second", "one in fifty", "unequal"])
def test_borrowing_costs_nothing_where_leaves_are_unlike_their_parents(odd, epsilon):
    groups = np.geomspace(3, 5000, 100).astype(np.int64) if odd == "unequal" else np.full(100, 300)
    which = np.arange(100) % {"every second": 2, "one in fifty": 50, "unequal": 10}[odd] == 1
    found = compared(odd, against(odd, groups, which), epsilon, 6)
    assert not found.missed
    if epsilon == "0.3":
        assert found.ratios.max() < 0.95
