"""Names in the files of a release: beside ids, exact in Parquet, and no formulas in CSV."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tallytree import Budget, Hierarchy, Release, SpecError, one_entity, release, verify
from tallytree.core.names import FORMULA, from_a_spreadsheet
from tallytree.tables import GroupSizes, Sealed
from tests.publish.test_verify import rewrite, sign_again

CODES = ["=1+1", "'=1+1", "+a,b", '-"q"', "@x", "\tend", "a\nb", "c\rd", "\x1b[31m", "[bold]", "plain", "Zürich"]
HALF = {"state": ["a", "b\ud800"]}
NAMES = ["=cmd|' /C calc'!A0", "'quoted", "+", "-2", "@", "", "x\ny", "c\r\nd", "\x00", "[/]", "plain", "Zürich"]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    table = {"=state": ["=A", "B"] * 6, "code": CODES, "name": NAMES}
    tree = Hierarchy.from_regions(table, leaf="code", levels=["=state"], name="name", root="=root")
    counts = np.random.default_rng(3).integers(0, 30, (tree.leaf_count, 3))
    folder = tmp_path_factory.mktemp("names") / "release"
    made = release(GroupSizes(tree, 3, Sealed(counts)), budget=Budget(epsilon=1), unit=one_entity(), intervals="none")
    made.save(folder)
    return folder, tree


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original[0], tmp_path / "release")


def rows_of(path):
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_names_stand_beside_ids_and_are_exact_in_parquet(original):
    folder, tree = original
    table = pq.read_table(folder / "counts.parquet").to_pylist()
    assert {(row["region"], row["name"]) for row in table} == set(zip(tree.ids, tree.names, strict=True))
    assert "=cmd|' /C calc'!A0" in tree.names
    assert list(table[0])[:4] == ["level", "region", "name", "size"]
    assert Release.load(folder).hierarchy.to_json() == tree.to_json()


@pytest.mark.parametrize("name", ["counts.csv", "regions.csv"])
def test_no_cell_of_a_csv_file_is_a_formula_and_all_give_their_text_back(original, name):
    folder, tree = original
    header, *rows = rows_of(folder / name)
    assert not [cell for row in rows for cell in row if cell.startswith(tuple(FORMULA))]
    found = {tuple(from_a_spreadsheet(row[header.index(column)]) for column in ("region", "name")) for row in rows}
    assert found == set(zip(tree.ids, tree.names, strict=True))


def test_a_release_with_such_names_verifies(folder):
    assert verify(folder).faults == ()


def test_a_wrong_name_is_found(folder):
    def renamed(rows):
        rows[-1]["name"] = "Springfield"
        return rows

    rewrite(folder, renamed, also_csv=False)
    assert any("the name of region 'Zürich' is wrong" in fault for fault in verify(folder).faults)


def test_a_wrong_name_in_the_csv_file_alone_is_found(folder):
    text = (folder / "counts.csv").read_text(encoding="utf-8")
    (folder / "counts.csv").write_text(text.replace('"Zürich","Zürich"', '"Zürich","Zurich"', 1), encoding="utf-8")
    sign_again(folder)
    assert any("counts.csv: row " in fault for fault in verify(folder).faults)


def test_a_formula_put_back_into_a_csv_file_is_found(folder):
    text = (folder / "counts.csv").read_text(encoding="utf-8")
    (folder / "counts.csv").write_text(text.replace('"\'=1+1"', '"=1+1"', 1), encoding="utf-8")
    sign_again(folder)
    assert any("counts.csv: row " in fault for fault in verify(folder).faults)


def test_names_cannot_be_dropped_from_one_of_the_tables_alone(folder):
    table = pq.read_table(folder / "counts.parquet")
    pq.write_table(table.drop_columns(["name"]), folder / "counts.parquet")
    sign_again(folder)
    assert not verify(folder).ok


def test_a_name_that_no_file_can_hold_is_refused():
    for made in (lambda: Hierarchy.from_edges([("a", "b\ud800")]), lambda: Hierarchy.from_levels(HALF, ["state"])):
        with pytest.raises(SpecError, match="a text that cannot be written as UTF-8; it contains half of a character"):
            made()
