"""Synthesis against the truth: the errors are those of the definition, and runs repeat."""

from __future__ import annotations

import numpy as np
import pytest

from tallytree import Budget
from tallytree.core.errors import SpecError
from tallytree.domain.schema import Marginal
from tallytree.lab.microdata import (
    HouseholdTruth,
    compare_synthesis,
    drawn_errors,
    made_up,
    model_errors,
)
from tallytree.lab.rivals.mwem import Histogram
from tallytree.privacy.neighbours import PrivacyUnit
from tallytree.synthesis.workload import Workload, all_sets
from tallytree.tables.contingency import grouped
from tests.oracles.households import count, schema_of

SCHEMA = schema_of({"area": 2}, {"age": 2}, 2)
WORKLOAD = all_sets(SCHEMA, 2, smaller=True)
DATA = (((0,), ((0,), (0,))), ((0,), ((1,),)), ((1,), ((1,), (0,))), ((1,), ((1,),)))


def truth():
    home = np.array([0, 0, 1, 2, 2, 3])
    codes = grouped(SCHEMA, {"area": np.array([0, 0, 1, 1])}, {"age": np.array([0, 0, 1, 1, 0, 1])}, home, 4)
    return HouseholdTruth("tiny", codes)


def exact_model():
    """The histogram that is the data."""
    cells = [np.zeros((2, 2)), np.zeros((2, 4))]
    for (area,), persons in DATA:
        place = int("".join(str(person[0]) for person in persons), 2)
        cells[len(persons) - 1][area, place] += 1 / len(DATA)
    return Histogram(SCHEMA, 1, tuple(cells), tuple(np.zeros_like(array) for array in cells))


def test_true_shares_are_of_households_and_of_persons():
    for marginal, shares in zip(WORKLOAD, truth().shares(WORKLOAD), strict=True):
        whole = 6 if marginal.of == "persons" else 4
        assert np.allclose(shares, count(DATA, marginal, SCHEMA) / whole)


def test_the_data_themselves_have_no_error_and_neither_do_as_many_draws_of_them():
    shares = truth().shares(WORKLOAD)
    classes = [f"{of}{error}" for of in ("", "household_", "person_") for error in ("max_error", "mean_error")]
    assert model_errors(exact_model(), WORKLOAD, shares) == pytest.approx(dict.fromkeys(classes, 0), abs=1e-12)
    assert drawn_errors(exact_model(), 4, WORKLOAD, shares, 1) == pytest.approx((0, 0), abs=1e-12)


def test_errors_are_the_largest_and_the_mean_over_all_cells():
    workload = Workload(SCHEMA, (Marginal("households", ("area",)), Marginal("persons", (), ("age",))))
    shares = [np.array([0.25, 0.75]), np.array([0.5, 0.6])]
    expected = {"max_error": 0.25, "mean_error": 0.15, "household_max_error": 0.25, "household_mean_error": 0.25}
    expected |= {"person_max_error": 0.1, "person_mean_error": 0.05}
    assert model_errors(exact_model(), workload, shares) == pytest.approx(expected)
    alone = model_errors(exact_model(), Workload(SCHEMA, workload.marginals[1:]), shares[1:])
    assert alone == pytest.approx(
        {"max_error": 0.1, "mean_error": 0.05, "person_max_error": 0.1, "person_mean_error": 0.05}
    )


def test_made_up_households_have_the_domain_of_the_paper():
    small = made_up("acs-small", scale=0.001)
    assert small.schema.domain_size == 262_080
    assert small.codes.number == 75
    assert all_sets(small.schema).queries == 1_640


@pytest.mark.parametrize("kind", ["one_group", "one_person_attributes"])
def test_a_comparison_has_a_row_for_every_run_and_repeats_itself(kind):
    made = made_up("acs-small", scale=0.002)
    workload = all_sets(made.schema, 1)
    options = {"mwem": {"rounds": 2}}

    def rows(seed):
        found = compare_synthesis(
            made, workload, options, [Budget(rho=1), Budget(rho=2)], unit=PrivacyUnit(kind), runs=2, seed=seed
        )
        return [{name: value for name, value in row.items() if "seconds" not in name} for row in found]

    first = rows(3)
    assert len(first) == 8
    assert [(row["rho"], row["run"], row["model"]) for row in first[:4]] == [
        (1.0, 0, "last"),
        (1.0, 0, "average"),
        (1.0, 1, "last"),
        (1.0, 1, "average"),
    ]
    assert all(0 < row["mean_error"] <= row["max_error"] < 1 for row in first)
    assert all(0 < row["drawn_mean_error"] <= row["drawn_max_error"] < 1 for row in first)
    assert all(row["residual"] > 0 for row in first)
    assert first == rows(3)
    assert [row["max_error"] for row in first] != [row["max_error"] for row in rows(4)]


def test_a_workload_of_another_schema_is_refused():
    with pytest.raises(SpecError, match="another schema"):
        list(compare_synthesis(made_up("acs-small", scale=0.001), WORKLOAD, ["mwem"], [Budget(rho=1)]))
