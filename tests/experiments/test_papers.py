"""Every figure and table of the papers is in the index, every item has code and tests, and one command makes all."""

import csv
import json
import re
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from experiments.summaries import COLUMNS, of_runs, summarised, write_rows

import tallytree as tt
from experiments import all as everything
from experiments import coc, pgsr
from tallytree.lab import compare
from tests.lab import helpers

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
INDEX = (ROOT / "docs" / "papers-index.md").read_text(encoding="utf-8")
# What the papers have: numbers of figures and of tables; the tables of the count-of-counts paper have none.
PAPERS = {
    "PGSR": (range(1, 10), range(1, 8)),
    "PGSR 2019": (range(1, 11), range(1, 2)),
    "count-of-counts": (range(1, 7), ()),
    "HQR": (range(1, 2), range(1, 3)),
}
WITHOUT_NUMBER = (
    "table of four groups",
    "table of data sets",
    "table of the naive method",
    "table of bottom-up and H_c",
)


def index_rows():
    """The rows of the index: paper, what it has, where that is here, the command, what differs."""
    lines = INDEX.split("## Methods")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in rows if row[0] != "paper"]


def numbers(cell, word):
    found = set()
    for part in re.findall(rf"{word}s? ((?:\d+(?:, | and | to )?)+)", cell):
        found |= {int(number) for number in re.findall(r"\d+", part)}
    return found


def rows_of(name):
    with (FIGURES / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("paper", PAPERS)
def test_every_figure_and_table_of_the_papers_is_in_the_index(paper):
    cells = [row[1] for row in index_rows() if re.fullmatch(rf"{paper}, [\w. ]+", row[0])]
    for word, wanted in zip(("Figure", "Table"), PAPERS[paper], strict=True):
        assert set().union(*(numbers(cell, word) for cell in cells)) == set(wanted)
    if paper == "count-of-counts":
        assert all(any(name in cell for cell in cells) for name in WITHOUT_NUMBER)


def test_the_index_names_files_that_exist_and_parts_that_the_commands_have():
    for path in re.findall(r"`(tests/[\w/]+\.py)`", INDEX):
        assert (ROOT / path).exists()
    for name in re.findall(r"\(figures/([\w.-]+)\)", INDEX):
        assert (FIGURES / name).exists()
    commands = [cell for row in index_rows() for cell in re.findall(r"`([^`]*--part[^`]*)`", row[3])]
    named = {part for command in commands for part in re.findall(r"--part ([\w-]+)", command)}
    assert {*pgsr.PARTS, *coc.PARTS} - named == {"methods", "chosen"}  # not of the paper
    assert named <= {*pgsr.PARTS, *coc.PARTS}


def test_the_one_command_has_every_part():
    parts = {(part.module, *part.words) for part in everything.PARTS}
    assert {("pgsr", "--part", part) for part in pgsr.PARTS} <= parts
    assert {("coc", "--part", part) for part in coc.PARTS} <= parts
    assert {part.name for part in everything.PARTS} >= everything.SLOW
    assert len({part.name for part in everything.PARTS}) == len(everything.PARTS)


@pytest.mark.parametrize("item", rows_of("papers-items.csv"), ids=lambda item: f"{item['paper']}, {item['item']}"[:60])
def test_every_item_of_the_papers_has_code_and_a_test_or_a_reason(item):
    where = item["where"]
    if where.startswith("docs/"):
        assert (ROOT / where).exists()
    else:
        found, names = None, where.split(".")
        for length in range(len(names), 0, -1):
            try:
                found = import_module(".".join(names[:length]))
                break
            except ModuleNotFoundError:
                continue
        for name in names[length:]:
            found = getattr(found, name)
        assert found is not None
    path, _, function = item["checked by"].partition("::")
    assert path or item["what differs"].startswith("absent: ")
    if path:
        text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
        assert (ROOT / path).exists()
        assert not function or f"def {function}(" in text


def test_there_are_about_a_hundred_items_of_all_three_papers():
    items = rows_of("papers-items.csv")
    assert len(items) >= 100
    assert {item["paper"] for item in items} == {"PGSR 2021", "count-of-counts 2018", "HQR"}


def test_figure_7_shows_tables_that_grow_with_the_noise():
    """The tables of Algorithm 1 are as fast as the relaxation at ε = 1, and far slower at 0.1; ours does not change."""
    times = {
        (row["mechanism"], float(row["epsilon"]), int(row["max_size"])): float(row["mean"])
        for row in rows_of("pgsr-figure-7.csv")
        if row["status"] == "done"
    }
    for size in (5, 10, 20):
        assert times["M_H^dp as printed", 0.1, size] > 10 * times["M_H^dp as printed", 1, size]
        assert times["M_H^dp without tables", 0.1, size] < 10 * times["M_H^dp without tables", 1, size]
        assert times["M_H^r", 0.1, size] < times["M_H^dp as printed", 0.1, size]
    assert {row["mechanism"] for row in rows_of("pgsr-figure-7.csv")} == set(pgsr.FIGURE_7)


def test_figures_1_and_6_have_each_level_by_itself():
    assert {row["mechanism"] for row in rows_of("coc-figure-1.csv")} == {"Hg", "Hc"}
    rows = [row for row in rows_of("coc-figure-6.csv") if row["status"] == "done"]
    means = {(row["mechanism"], row["level"]): float(row["mean"]) for row in rows if row["epsilon"] == "1"}
    for methods in ("Hc×Hc×Hc", "Hg×Hg×Hg"):  # what the page says of ε = 1 per level
        for level in ("nation", "state", "county"):
            assert means[methods, level] < means[methods + coc.ALONE, level]
        assert means[methods, "nation"] < 0.85 * means[methods + coc.ALONE, "nation"]


def test_relaxed_mechanisms_break_sums_and_the_others_do_not():
    rows = [
        row for row in rows_of("pgsr-relaxed.csv") if row["metric"] == "violations" and row["level"] == "all levels"
    ]
    assert {row["mechanism"] for row in rows} == {pgsr.OURS, "M_c^dp", *pgsr.RELAXED}
    assert all((float(row["mean"]) > 0) == (row["mechanism"] in pgsr.RELAXED) for row in rows)


def test_table_7_has_the_papers_errors_beside_ours():
    rows = [row for row in rows_of("pgsr-table-7-census.csv") if row["published"]]
    assert len(rows) == 4 * 3 * 3  # mechanisms, ε and levels; the relaxed ones do not run at this size
    ours = {(row["mechanism"], row["epsilon"], row["level"]): row for row in rows}
    assert ours["TopDown", "0.5", "state"]["published"] == "8600"
    assert ours[pgsr.CHAIN, "1", "county"]["published"] == "86900"
    assert ours[pgsr.OURS, "0.1", "nation"]["published"] == "10300"
    for epsilon in ("0.1", "0.5", "1"):  # the order that the page calls the paper's, at the states
        for column in ("mean", "published"):
            errors = [
                float(ours[name, epsilon, "state"][column]) for name in (pgsr.CHAIN, "M_c^dp", "TopDown", pgsr.OURS)
            ]
            assert errors == sorted(errors)


def test_the_parts_write_what_the_index_names():
    """Rows have runs, seed and seconds."""
    for row in [*rows_of("pgsr-figure-7.csv"), *rows_of("pgsr-table-7-census.csv"), *rows_of("coc-figure-6.csv")]:
        assert tuple(row)[: len(COLUMNS)] == COLUMNS
        assert row["privacy"] == "NOT PRIVATE"
        assert row["seed"] == "0"
        timed = row["status"] == "done" and row["mechanism"] != "omniscient"
        assert not timed or (int(row["runs"]) >= 1 and float(row["seconds"]) > 0)


def test_one_run_has_a_mean_and_no_nan(tmp_path, capsys):
    assert coc.shown([[1.0, 2.0]]) == "1.0 | 2.0"
    assert coc.shown([[1.0, 2.0], [3.0, 2.0]]) == "2.0 ± 1.0 | 2.0 ± 0.0"
    (row, _) = of_runs("data", "name", ["a", "b"], [[1.0, 2.0]])
    assert (row["mean"], row["standard_error"], row["runs"]) == (1.0, None, 1)
    budgets = [tt.Budget(epsilon="0.1")]
    refused = "M_dp^OP"
    results = compare(helpers.small_truth(), ["M_c^dp", refused], budgets, runs=1, jobs=1)
    found = summarised([results], ("l1",))
    assert {row["mechanism"]: row["status"].split(":")[0] for row in found} == {
        "pgsr-cumulative-dp": "done",
        "pgsr-hierarchical-programs": "refused",
    }
    write_rows(tmp_path / "rows.csv", found)
    text = (tmp_path / "rows.csv").read_text()
    assert "nan" not in text
    assert text.count("\n") == len(found) + 1


def test_finished_parts_are_not_run_again_and_failed_ones_are(monkeypatch, tmp_path, capsys):
    called = []

    def pretend(command, check):
        called.append(command)
        return SimpleNamespace(returncode=int("figure-7" in command and len(called) < 3))

    monkeypatch.setattr(everything.subprocess, "run", pretend)
    words = ["all", "--quick", "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match="failed: pgsr-figure-7; the same command runs them again"):
        everything.main()
    first = len(called)
    assert first == len([part for part in everything.PARTS if not part.real and part.name not in everything.SLOW])
    everything.main()
    assert len(called) == first + 1
    assert called[-1] == called[0]
    assert str(tmp_path) in called[0][-1]  # not into docs
    everything.main()
    assert len(called) == first + 1
    monkeypatch.setattr(sys, "argv", ["all", "--results", str(tmp_path), "--out", str(tmp_path)])
    everything.main()  # another command: everything again
    assert len(called) > 2 * first
    assert json.loads((tmp_path / "pgsr-figure-7.done.json").read_text())["seconds"] >= 0
