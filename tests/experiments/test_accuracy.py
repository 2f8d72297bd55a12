"""The tables of accuracy: ratios and standings by hand, what is run, and a small run from end to end."""

from __future__ import annotations

import csv
from fractions import Fraction

import numpy as np
import pytest
from experiments.accuracy import (
    DATA_SETS,
    ORACLES,
    SEEDS,
    DataSet,
    Given,
    errors_of,
    ours,
    root_against_leaves,
    run,
    seeds,
    settings_of,
)
from experiments.accuracy_tables import (
    Case,
    Cell,
    Error,
    best_of,
    case_table,
    relative,
    standing,
    tables,
)

from tallytree import Budget, one_entity
from tallytree.lab import Truth
from tallytree.privacy import Neighbours
from tests.oracles.trees import even_tree

CASE = Case("households", "here", "public", 1.0)
CELLS = [Cell(CASE, depth, level, metric) for depth, level in enumerate(("nation", "town")) for metric in ("emd", "l1")]


def of(*means, deviation=0.1):
    return {cell: Error(mean, deviation) for cell, mean in zip(CELLS, means, strict=True)}


def small(public, sizes=8, groups=20):
    counts = np.random.default_rng(1).poisson(groups, (6, sizes + public))
    return Truth("small", even_tree(2, 6), counts, public)


def test_the_best_seed_is_chosen_cell_by_cell_and_ratios_are_to_it():
    errors = {"one": of(10, 20, 30, 40), "other": of(5, 40, 60, 10), "tallytree": of(10, 10, 60, 10)}
    best = best_of(errors, ["one", "other", "absent"])
    assert [best[cell].mean for cell in CELLS] == [5, 20, 30, 10]
    found = relative(errors["tallytree"], best, CELLS)
    assert found.mean == pytest.approx((2 * 0.5 * 2 * 1) ** 0.25)
    assert (found.worst, found.behind, found.cells) == (2, 2, 4)


def test_cells_without_an_error_to_compare_with_are_left_out():
    found = relative(of(1, 2, 3, 4), of(0, 1, 3, 8), CELLS)
    assert found.cells == 3
    assert relative(of(1, 2, 3, 4), of(0, 0, 0, 0), CELLS) is None
    assert relative({}, of(1, 2, 3, 4), CELLS) is None


def test_a_setting_stands_if_it_is_nowhere_beaten_and_somewhere_better():
    errors = {"seed": of(100, 100, 100, 100), "a": of(50, 50, 104, 90), "b": of(103, 102, 100, 99)}
    (one,) = standing(errors, "seed", ["a", "b"])
    assert one.holds
    assert one.setting == "b"  # a is beaten at the town's EMD: 1.04
    assert one.gains == pytest.approx([np.sqrt(1.03 * 1.02), np.sqrt(1 * 0.99)])
    (one,) = standing(errors, "seed", ["a"])
    assert not one.holds
    assert [(cell.level, cell.metric, ratio) for cell, ratio in one.beaten] == [("town", "emd", 1.04)]
    (row,) = case_table([one]).rows
    assert row == ["seed", "here", "public", "1", "a", "no", "town EMD 1.04", "0.50 0.97"]


def test_where_all_are_beaten_the_one_that_is_beaten_by_least_is_chosen():
    errors = {"seed": of(100, 100, 100, 100), "a": of(300, 10, 10, 10), "b": of(110, 110, 110, 110)}
    assert standing(errors, "seed", ["a", "b"])[0].setting == "b"


def test_standard_errors_forgive_what_they_explain():
    loud = {"seed": of(100, 100, 100, 100, deviation=3), "a": of(50, 50, 111, 90, deviation=3)}
    assert standing(loud, "seed", ["a"])[0].holds  # 111 is within 103 + 2 · 4.3
    alike = {"seed": of(100, 100, 100, 100), "a": of(100, 100, 100, 100)}
    (one,) = standing(alike, "seed", ["a"])
    assert not one.holds
    (row,) = case_table([one]).rows
    assert row[5:7] == ["no", ""]  # not beaten anywhere, and not better anywhere


def test_a_setting_without_a_result_in_some_cell_is_not_taken():
    part = {cell: error for cell, error in of(1, 1, 1, 1).items() if cell.depth == 0}
    assert standing({"seed": of(9, 9, 9, 9), "a": part}, "seed", ["a"]) == []


def test_a_table_is_printed_and_written_as_csv(tmp_path):
    errors = {"seed": of(100, 100, 100, 100), "tallytree": of(50, 50, 104, 90)}
    for table in tables(errors, ["seed"], ["tallytree"]):
        assert table.printed().startswith(f"### {table.title}\n\n| {table.head[0]} |")
        with table.write(tmp_path, "held").open(encoding="utf-8", newline="") as file:
            assert list(csv.reader(file)) == [[*table.head], *([*row] for row in table.rows)]
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"accuracy-held-{name}.csv" for name in ("default", "levels", "mechanisms", "settings", "cases")}


def test_each_data_set_has_its_name_and_both_halves_have_every_kind():
    assert len({data.name for data in DATA_SETS}) == len(DATA_SETS)
    for half in ("tune", "held"):
        assert len({data.kind for data in DATA_SETS if data.half == half}) == 3
    assert all(data.half == "tune" for data in DATA_SETS if "made up" in data.name)


@pytest.mark.parametrize("public", [True, False])
def test_each_setting_divides_the_budget_as_its_name_says(public):
    truth = small(public)
    shares = {}
    for mechanism in ours(truth):
        data = truth.group_sizes()
        decided = mechanism.suited_to(Neighbours.of(data, one_entity()), truth.hierarchy, data.region_totals)
        plan = decided.plan(truth.hierarchy, Budget(epsilon=1), one_entity())
        asked = {ask.level: ask.share for ask in plan.queries if ask.view != "totals"}
        shares[mechanism.name] = [asked.get(level, Fraction(0)) for level in range(3)]
    assert shares["tallytree equal"] == [Fraction(1, 3)] * 3
    assert shares["tallytree only leaves"] == [0, 0, 1]
    assert shares["tallytree"][2] > shares["tallytree equal"][2]
    assert shares["tallytree leaves"][2] == Fraction(9, 10)
    assert shares["tallytree upper"][0] > shares["tallytree"][0]
    assert "tallytree lists" in shares


def test_seeds_are_all_that_the_data_suit():
    for public in (True, False):
        names = [one if isinstance(one, str) else one.name for one in seeds(small(public))]
        assert sorted(names) == sorted(set(SEEDS) - (set() if public else {"joint-counts"}))


def test_a_small_run_gives_tables_with_every_contender(tmp_path):
    data = DataSet("small", "households", "tune", lambda _, stated: small(stated))
    given = Given(tmp_path, runs=1, results=tmp_path / "results", out=tmp_path, jobs=1, limit=60, epsilons=("1",))
    results = run(given, data, public=False)
    assert not results.failures()
    errors = errors_of(results, data, public=False)
    contenders = {one.name for one in ours(small(False))}
    assert set(errors) == set(SEEDS) - {"joint-counts"} | contenders | set(ORACLES)
    assert all(len(found) == 6 for found in errors.values())  # three levels, two metrics
    assert settings_of(errors)[0] == "tallytree"
    found = tables(errors, [seed for seed in SEEDS if seed in errors], settings_of(errors), ORACLES)
    (by_mechanism,) = (table for table in found if table.name == "mechanisms")
    private = {f"{name} (NOT PRIVATE)" for name in ORACLES}
    assert {row[0] for row in by_mechanism.rows} == set(errors) - set(ORACLES) | private
    assert run(given, data, public=False).rows.equals(results.rows)  # from the journals
    shown = root_against_leaves(errors, "private").to_dict()
    drawn = {found for found in errors if f"'mechanism': '{found}'" in str(shown)}
    assert drawn == set(errors) - set(ORACLES)
    assert "NOT PRIVATE" in shown["title"]["subtitle"]
    assert root_against_leaves(errors, "public") is None
