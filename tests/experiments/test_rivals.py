"""Households as flat rows and back, and how those of another method are judged."""

import numpy as np
from experiments.flattened import flat_sizes, flattened, folded, persons_alone, persons_back
from experiments.plausible import Case, person_tables
from experiments.rivals import judged, table

from tallytree.domain.edit_rules import Structure
from tallytree.lab.microdata import HouseholdTruth
from tests.synthesis.made_up import made_up

CODES = made_up(200).codes.open_at_the_privacy_border()
CASE = Case(HouseholdTruth("made up", CODES), Structure(), ("", ""))


def same(one, other):
    pairs = [(one.starts, other.starts), *((one.household[name], other.household[name]) for name in one.household)]
    pairs += [(one.person[name], other.person[name]) for name in one.person]
    return all(np.array_equal(*pair) for pair in pairs)


def test_flat_rows_are_households_again():
    rows = flattened(CODES)
    assert rows.shape == (200, 2 + 3 * 2)
    assert rows.min() == 0
    assert (rows.max(axis=0) + 1).tolist() == flat_sizes(CODES.schema)  # someone has none in each place
    assert same(folded(CODES.schema, rows), CODES)


def test_who_has_one_code_for_nobody_is_not_there():
    rows = flattened(CODES)
    home = int(np.flatnonzero(np.diff(CODES.starts) == 3)[0])
    rows[home, 4] = CODES.schema.person[0].codes
    found = folded(CODES.schema, rows)
    assert np.diff(found.starts)[home] == 2
    assert int(found.starts[-1]) == int(CODES.starts[-1]) - 1


def test_the_truth_has_no_error_and_persons_in_another_order_have_none_alone():
    found = judged("made up", CASE, folded(CODES.schema, flattened(CODES)))
    assert found == {"max_error": 0.0, "mean_error": 0.0, "persons_apart": 0.0}
    turned = persons_back(CODES.schema, persons_alone(CODES)[::-1])
    assert person_tables(turned, CASE, CODES) == 0.0


def test_errors_are_found():
    rows = flattened(CODES)
    rows[:, 0] = 0
    found = judged("made up", CASE, folded(CODES.schema, rows))
    assert found["max_error"] > 0.01
    assert found["mean_error"] > 0
    assert found["persons_apart"] == 0.0  # tables of persons alone are as they were


def test_the_table_has_means_over_runs_and_parts_of_the_best_other():
    def row(which, largest, mean, run=0, **more):
        return {"data": "d", "epsilon": "1", "run": run, "max_error": largest, "mean_error": mean, **which, **more}

    rows = [
        row({"structure": True}, 0.1, 0.02),
        row({"structure": True}, 0.3, 0.02, 1),
        row({"structure": False}, 9, 9),
    ]
    rows += [row({"method": "mst"}, 0.4, 0.05), row({"method": "h-gem"}, 0.5, 0.04)]
    rows += [{"data": "d", "epsilon": "1", "run": 0, "method": "mst-persons", "persons_apart": 0.1}]
    *_, last = table(rows)
    assert last == "| d | 1 | 0.2000, 0.02000 (2) | 0.4000, 0.05000 (1) | 0.5000, 0.04000 (1) | 0.50, 0.50 |"
