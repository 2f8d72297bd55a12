"""Which noise an ε with a δ is spent on: the prediction, the ledger and the user's word, to the published statement."""

from fractions import Fraction

import numpy as np
import pytest

import tallytree as tt
from tallytree.lab.results import level_errors
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import prepare
from tallytree.mechanisms.noise_choice import error_ratio, noise_in_words
from tallytree.privacy.neighbours import Neighbours
from tallytree.publish.release.release_statement import privacy_statement
from tallytree.tables import GroupSizes, Sealed
from tests.oracles.trees import even_tree

OPEN = {"epsilon": 1, "delta": "1e-9"}


def private_of(*regions, name=None):
    tree = even_tree(*regions)
    counts = np.random.default_rng(1).integers(0, 9, (tree.leaf_count, 5))
    return GroupSizes(tree, 5, Sealed(counts), name=name)


def planned(private, unit, **budget):
    relation = Neighbours.of(private, unit)
    public = {"neighbours": relation, "hierarchy": private.hierarchy, "totals": private.region_totals}
    return prepare("auto", **public, budget=tt.Budget(**budget))[1], relation


DEEP = [2**level for level in range(1, 13)]
CASES = [
    ((51, 3060), tt.one_entity(), OPEN, "laplace"),
    ((3, 9), tt.one_group(), OPEN, "laplace"),
    (DEEP, tt.one_group(), {"epsilon": "0.3", "delta": "1e-5"}, "gaussian"),
    (DEEP, tt.one_entity(), {"epsilon": "0.3", "delta": "1e-9"}, "laplace"),
]


@pytest.mark.parametrize(("regions", "unit", "budget", "noise"), CASES, ids=str)
def test_the_noise_with_the_smaller_predicted_error_is_taken(regions, unit, budget, noise):
    private = private_of(*regions)
    found, relation = planned(private, unit, **budget)
    assert found.budget.noise == noise
    laplace, gaussian = (planned(private, unit, **budget, noise=one)[0] for one in ("laplace", "gaussian"))
    ratio = error_ratio(laplace, gaussian, relation, private.hierarchy)
    assert (ratio <= 1) == (noise == "laplace")
    assert found == (laplace if noise == "laplace" else gaussian)
    told = noise_in_words(found, relation, private.hierarchy)
    assert told.startswith(f"The noise is {noise.title()} noise")
    assert "asks for" not in told


def test_equal_predictions_go_to_laplace_noise_and_a_pure_statement():
    """Budgets so large that neither noise is left: both errors are the least of the model."""
    found, _ = planned(private_of(2, 4), tt.one_entity(), epsilon=900, delta="1e-9")
    assert found.budget.noise == "laplace"
    assert found.budget.amount == 900


def test_the_prediction_orders_the_errors_of_releases():
    """The better noise by prediction is the better one by at least half of the predicted ratio."""
    tree = even_tree(4, 200)
    counts = np.random.default_rng(3).poisson(20, (tree.leaf_count, 6))
    truth = Truth("made up", tree, counts, public_totals=False)
    private, unit = GroupSizes(tree, 6, Sealed(counts)), tt.one_entity()
    errors, plans = {}, {}
    for noise in ("laplace", "gaussian"):
        plans[noise], relation = planned(private, unit, **OPEN, noise=noise)
        mechanism = prepare(
            "auto", neighbours=relation, hierarchy=tree, totals=None, budget=tt.Budget(**OPEN, noise=noise)
        )[0]
        runs = []
        for seed in range(6):
            made = mechanism.estimate(seeded_measurements(truth, plans[noise], seed)).counts
            runs.append([level_errors(tree.aggregate(counts), made, tree, level, 1).emd.mean() for level in range(3)])
        errors[noise] = np.exp(np.log(np.mean(runs, axis=0)).mean())
    predicted = error_ratio(plans["gaussian"], plans["laplace"], relation, tree)
    assert predicted > 2
    assert errors["gaussian"] / errors["laplace"] > 1 + (predicted - 1) / 2


def statement_of(private, ledger=None, **budget):
    made = tt.release(private, budget=tt.Budget(**budget), unit="one_entity", intervals="none", ledger=ledger)
    return made.measurements, privacy_statement(made)


@pytest.mark.parametrize(
    ("account", "noise", "promise"),
    [
        ({"epsilon": 3}, "discrete_laplace", "differentially private with ε = 1."),
        ({"rho": 3}, "discrete_gaussian", "zero-concentrated"),
        (None, "discrete_laplace", "differentially private with ε = 1."),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::tallytree.publish.strength.PlanWarning")
def test_a_ledger_decides_an_open_noise_and_is_charged_for_it(tmp_path, account, noise, promise):
    private, ledger = private_of(51, 306, name="people"), None
    if account is not None:
        ledger = tt.Ledger(tmp_path / "ledger.db")
        ledger.open("people", tt.Budget(**account), Neighbours.of(private, tt.one_entity()))
    measured, stated = statement_of(private, ledger, **OPEN)
    assert {part.noise for part in measured.measured} == {noise}
    assert f"This release is {promise}" in stated["statement"]
    assert "The noise is" in stated["statement"]
    if ledger is not None:
        assert ledger.account("people").spent == measured.budget.amount
        assert ("asks for this noise" in stated["statement"]) == ("rho" in account)


def test_gaussian_noise_cannot_be_paid_in_pure_epsilon(tmp_path):
    private = private_of(3, 9, name="people")
    ledger = tt.Ledger(tmp_path / "ledger.db")
    ledger.open("people", tt.Budget(epsilon=3), Neighbours.of(private, tt.one_entity()))
    with pytest.raises(tt.BudgetError, match="cannot be charged to a ledger kept in pure epsilon"):
        statement_of(private, ledger, **OPEN, noise="gaussian")
    assert ledger.account("people").spent == 0


@pytest.mark.filterwarnings("ignore::tallytree.publish.strength.PlanWarning")
@pytest.mark.parametrize("noise", [None, "laplace", "gaussian", "zcdp"])
def test_a_release_with_each_noise_is_saved_and_verified(tmp_path, noise):
    budget = tt.Budget(**OPEN, noise=noise)
    made = tt.release(private_of(3, 9), budget=budget, unit="one_entity", intervals="none")
    made.save(tmp_path / "out")
    assert tt.verify(tmp_path / "out").faults == ()
    assert tt.Release.load(tmp_path / "out").measurements.budget == made.measurements.budget


WRONG = [
    ({"epsilon": 1, "noise": "gaussian"}, "needs a delta"),
    ({"rho": 1, "noise": "laplace"}, "needs an epsilon"),
    ({"epsilon": 1, "delta": 0}, "delta must be positive"),
    ({"epsilon": 1, "delta": 1}, "delta must be less than 1"),
    ({"delta": "1e-9"}, "give a budget as"),
    ({"epsilon": 1, "delta": "1e-9", "noise": "opendp"}, "expected laplace, gaussian, zcdp"),
    ({"epsilon": 1, "delta": "1e-9", "noise": 3}, "expected laplace, gaussian, zcdp"),
]


@pytest.mark.parametrize(("budget", "message"), WRONG, ids=str)
def test_budgets_whose_noise_does_not_fit_are_refused(budget, message):
    with pytest.raises(tt.BudgetError, match=message):
        tt.Budget(**budget)


def test_a_stated_rho_below_the_conversion_is_refused():
    stated = tt.Budget(**OPEN, noise="gaussian").to_json()
    with pytest.raises(tt.BudgetError, match="does not follow"):
        tt.Budget.from_json(stated | {"rho": str(Fraction(stated["rho"]) / 2)})
    with pytest.raises(tt.BudgetError, match="does not follow"):
        tt.Budget.from_json(tt.Budget(**OPEN, noise="zcdp").to_json() | {"rho": "1"})
