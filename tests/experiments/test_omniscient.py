"""The omniscient reference line: the paper's figure, formula against simulation, and that it can never be released."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from experiments.omniscient import omniscient, omniscient_errors

from tallytree import Budget, Hierarchy, SpecError
from tallytree.lab import Truth
from tallytree.mechanisms import MECHANISMS
from tests.oracles.trees import even_tree


def some(leaves=(2, 6), sizes=400, seed=3):
    tree = even_tree(*leaves)
    rng = np.random.default_rng(seed)
    counts = rng.poisson(4, (leaves[-1], sizes)) * (rng.random((leaves[-1], sizes)) < 0.5)
    return Truth("made up", tree, counts, public_totals=True)


def test_the_papers_example_is_33_thousand():
    # 2,352 sizes in use at the nation, ε = 0.1 per level: "around 3.3 × 10⁴".
    tree = Hierarchy.from_levels({"state": ["A", "B"]}, ["state"])
    counts = np.zeros((2, 10_001), dtype=np.int64)
    counts[0, 1:2_001] = 3
    counts[1, 1_000:2_353] = 1
    errors = omniscient_errors(Truth("housing", tree, counts, public_totals=True), Budget(epsilon="0.2"))
    assert errors[0] == pytest.approx(2_352 * 2**0.5 / 0.1)
    assert round(errors[0], -3) == 33_000
    assert errors[1] == pytest.approx((2_000 + 1_353) / 2 * 2**0.5 / 0.1)


def test_shares_of_the_budget_move_the_line():
    truth = some()
    equal = omniscient_errors(truth, Budget(epsilon=1))
    moved = omniscient_errors(truth, Budget(epsilon=1), shares=[1, 1, 4])
    assert moved == pytest.approx(equal * [2, 2, 0.5])


@pytest.mark.parametrize("epsilon", ["0.3", "3"])
def test_the_simulation_errs_as_the_formula_says(epsilon):
    truth = some()
    true, tree, budget = truth.all_levels(), truth.hierarchy, Budget(epsilon=epsilon)
    rest = np.exp(-float(Fraction(epsilon)) / 3)
    mean, square = 2 * rest / (1 - rest**2), 2 * rest / (1 - rest) ** 2
    gaps = np.abs(np.concatenate([(omniscient(truth, budget, run).counts - true)[true > 0] for run in range(20)]))
    assert abs(gaps.mean() - mean) < 5 * np.sqrt((square - mean**2) / len(gaps))
    printed = omniscient_errors(truth, budget)
    expected = [mean * (true[tree.level_slice(level)] > 0).sum(axis=1).mean() for level in range(3)]
    if epsilon == "0.3":  # small ε: the formula but for √2
        assert printed / expected == pytest.approx(2**0.5, rel=0.01)


def test_sizes_that_do_not_exist_get_no_noise_and_the_others_do():
    truth = some()
    true = truth.all_levels()
    found = omniscient(truth, Budget(epsilon=1), 1).counts
    assert (found[true == 0] == 0).all()
    assert (found[true > 0] != true[true > 0]).mean() > 0.5
    assert (omniscient(truth, Budget(epsilon=1), 1).counts == found).all()


def test_it_says_that_it_is_not_private_and_is_no_mechanism():
    assert omniscient(some(), Budget(epsilon=1), 1).certificate.startswith("NOT PRIVATE")
    assert not [name for name in MECHANISMS if "omniscient" in name]


def test_budgets_in_rho_are_refused():
    for line in (omniscient_errors, omniscient):
        with pytest.raises(SpecError, match="epsilon"):
            line(some(), Budget(rho=1))
