"""Areas: lists of leaves that need not be regions, asked about and published."""

import csv
import json
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv as pa_csv

from tallytree import (
    Budget,
    Hierarchy,
    Ledger,
    Query,
    Release,
    ReleaseError,
    SpecError,
    one_entity,
    release,
    resume,
    verify,
)
from tallytree.publish.release import areas as areas_module
from tallytree.publish.release import table_layout as partition
from tallytree.publish.release.areas import AREA_FILES, CountedOnce, read_areas
from tallytree.publish.run_folder import RunFolder
from tallytree.publish.table import for_spreadsheets
from tallytree.tables import GroupSizes, Sealed
from tests.oracles.example import made_up
from tests.publish.forging import sign_again

AREAS = {"North": ["1", "4"], "=1+1": ["B", "5"], "State A": ["1", "2"], "All but 3": ["A", "C", "DC"]}
OPTIONS = {"budget": Budget(epsilon=1), "unit": one_entity()}


@pytest.fixture(scope="module", params=["linear", "lists", "none"])
def made(request):
    """With guaranteed intervals from least squares, from bounds of lists, and without."""
    how = {
        "linear": {"mechanism": "joint-cumulative"},
        "lists": {"mechanism": "tallytree", "options": {"leaves": "lists"}},
        "none": {"mechanism": "pgsr-chain"},
    }
    published = {"districts": AREAS, "more": pa.table({"area": ["North", "North"], "region": ["2", "DC"]})}
    return release(made_up(11, public_totals=True), areas=published, **how[request.param], **OPTIONS)


@pytest.fixture
def saved(made, tmp_path):
    made.save(tmp_path / "release")
    return tmp_path / "release"


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_totals_are_the_sums_of_the_published_leaves(saved):
    counts = {(row["region"], row["size"]): int(row["count"]) for row in read(saved / "counts.csv")}
    totals, leaves = read(saved / "areas.csv"), read(saved / "area_leaves.csv")
    assert len(totals) == 5 * 7
    for row in totals:
        inside = [leaf["region"] for leaf in leaves if (leaf["kind"], leaf["area"]) == (row["kind"], row["area"])]
        assert int(row["count"]) == sum(counts[region, row["size"]] for region in inside)
    assert {row["area"] for row in totals} == {"North", "'=1+1", "State A", "All but 3"}
    assert [row["region"] for row in leaves if row["area"] == "All but 3"] == ["1", "2", "4", "5", "6", "DC@county"]
    assert "=1+1" in pq.read_table(saved / "areas.parquet")["area"].to_pylist()


def test_the_published_intervals_are_those_of_the_answers(made):
    rows = [row for row in made.area_table().to_pylist() if row["kind"] == "districts"]
    found = [made.ask_each(Query(sizes=size), areas=AREAS) for size in made.sizes]
    for number, row in enumerate(rows):
        answer = found[number % len(made.sizes)][number // len(made.sizes)]
        assert (answer.area, answer.released) == (row["area"], row["count"])
        assert answer.guaranteed == (None if row["lower"] is None else (row["lower"], row["upper"]))
        assert answer.typical == (row["typical_lower"], row["typical_upper"])
    assert (rows[0]["lower"] is None) == (made.mechanism == "pgsr-chain")


def test_an_area_that_is_a_region_has_the_regions_own_intervals(made):
    rows = {row["size"]: row for row in made.area_table().to_pylist() if row["area"] == "State A"}
    for row in made.table().to_pylist():
        if row["region"] == "A":
            same = [name for name in row if name not in ("level", "region", "name")]
            assert [row[name] for name in same] == [rows[row["size"]][name] for name in same]


def test_a_release_with_areas_verifies_and_is_read_back(made, saved):
    found = verify(saved)
    assert found.ok, found.faults
    assert any("area_leaves.csv" in one.place for one in found.assumptions)
    again = Release.load(saved)
    assert again.areas == made.areas
    assert again.area_table().equals(made.area_table())
    quick = verify(saved, typical=False)
    assert any("typical" in one.place for one in quick.assumptions)
    statement = json.loads((saved / "privacy.json").read_text())
    assert statement["areas"]["kinds"] == {"districts": 4, "more": 1}
    assert {f"{name}" for name in AREA_FILES} <= set(json.loads((saved / "manifest.json").read_text())["files"])


def changed(path, column, add):
    table = pq.read_table(path)
    values = table[column].to_pylist()
    values[0] += add
    place = table.schema.get_field_index(column)
    pq.write_table(table.set_column(place, table.schema.field(column), pa.array(values, pa.int64())), path)


@pytest.mark.parametrize(("column", "add"), [("count", 1), ("upper", 1), ("typical_upper", 1)])
def test_a_forged_total_or_interval_is_found(tmp_path, column, add):
    made = release(made_up(11, public_totals=False), areas={"districts": AREAS}, **OPTIONS)
    made.save(tmp_path / "release")
    changed(tmp_path / "release" / "areas.parquet", column, add)
    rows = for_spreadsheets(pq.read_table(tmp_path / "release" / "areas.parquet"))
    pa_csv.write_csv(rows, tmp_path / "release" / "areas.csv")
    sign_again(tmp_path / "release")
    found = verify(tmp_path / "release")
    assert not found.ok
    assert all("areas" in fault for fault in found.faults)


def test_forged_lists_and_files_without_a_statement_are_found(tmp_path):
    made = release(made_up(11, public_totals=False), areas={"districts": AREAS}, intervals="none", **OPTIONS)
    for name in ("leaves", "kinds", "dropped"):
        made.save(tmp_path / name)
    listed = tmp_path / "leaves" / "area_leaves.csv"
    listed.write_text(listed.read_text().replace('"North","1"', '"North","2"'))
    statement = json.loads((tmp_path / "kinds" / "privacy.json").read_text())
    statement["areas"]["kinds"]["districts"] = 5
    (tmp_path / "kinds" / "privacy.json").write_text(json.dumps(statement))
    del statement["areas"]
    (tmp_path / "dropped" / "privacy.json").write_text(json.dumps(statement))
    for name, words in {
        "leaves": "areas.parquet: kind 'districts', area 'North', size 1: count is",
        "kinds": "areas.kinds",
        "dropped": "areas.csv does not belong here",
    }.items():
        sign_again(tmp_path / name)
        found = verify(tmp_path / name)
        assert any(words in fault for fault in found.faults), found.faults


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "area_leaves.csv",
            b'"kind","area","region"\n"k","\xff","1"\n',
            "area_leaves.csv cannot be used: 'utf-8' codec",
        ),
        ("area_leaves.csv", b'"kind","area","region"\n"k","a","A"\n', "a leaf that the release does not have"),
        ("area_leaves.csv", b'"kind","area","region"\n"k","a"\n', "too many or too few cells"),
        ("area_leaves.csv", b'"area","region"\n', "its columns are not kind, area, region"),
        ("area_leaves.csv", None, "area_leaves.csv is missing"),
        ("areas.parquet", b"PAR1", "areas.parquet cannot be read"),
        ("areas.parquet", None, "areas.parquet is missing"),
        ("areas.csv", b"kind,area\n", "areas.csv: row 0 is ['kind', 'area']"),
    ],
)
def test_files_of_areas_that_strangers_wrote_are_refused(tmp_path, name, content, message):
    made = release(made_up(11, public_totals=False), areas={"districts": AREAS}, intervals="guaranteed", **OPTIONS)
    made.save(tmp_path / "release")
    path = tmp_path / "release" / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
        sign_again(tmp_path / "release")
    found = verify(tmp_path / "release")
    assert any(message in fault for fault in found.faults), found.faults
    if name != "areas.csv":  # which is not loaded
        with pytest.raises(ReleaseError, match=message):
            Release.load(tmp_path / "release")


def test_a_release_without_areas_has_no_files_of_them(tmp_path):
    release(made_up(11, public_totals=False), intervals="none", **OPTIONS).save(tmp_path / "release")
    assert not any((tmp_path / "release" / name).exists() for name in AREA_FILES)
    assert "areas" not in json.loads((tmp_path / "release" / "privacy.json").read_text())
    assert verify(tmp_path / "release").ok


def test_areas_of_a_release_without_its_zero_cells_verify_too(tmp_path, monkeypatch):
    monkeypatch.setattr(partition, "SMALL", 10)
    counts = np.zeros((4, 3), dtype=np.int64)
    made = release(GroupSizes(TREE, 3, Sealed(counts)), areas={"k": {"Ash": ["Ash"], "odd": ["=x", "Ash"]}}, **OPTIONS)
    made.save(tmp_path / "release")
    assert json.loads((tmp_path / "release" / "privacy.json").read_text())["zero_cells"] == "left out"
    assert verify(tmp_path / "release").faults == ()


def test_everything_that_can_be_asked_of_a_region_can_be_asked_of_an_area(made):
    for kind in ("share", "mean", "ratio", "difference"):
        sizes = None if kind == "mean" else "2-3"
        to = "C" if kind in ("ratio", "difference") else None
        query = Query(kind, sizes=sizes, to=to)
        found = made.ask_each(query, areas={"State A": ["1", "2"], "Odd": ["2", "6"]})
        same = made.ask_each(query, level="state")[0]
        assert found[0].released == same.released
        assert found[0].guaranteed == same.guaranteed
        assert found[0].typical == same.typical
        assert "the area Odd" in found[1].sentence
        assert found[1].to_json()["area"] == "Odd"
    for each in ({}, {"level": "state", "areas": AREAS}):
        with pytest.raises(SpecError, match="give exactly one of level, areas and category"):
            made.ask_each(Query(), **each)
    with pytest.raises(SpecError, match="cannot name regions; leave them out"):
        made.ask_each(Query(regions="A"), areas=AREAS)


TREE = Hierarchy.from_levels(
    {"state": ["Ash", "Ash", "Birch", "Birch"], "county": ["North", "South", "North", "=x"]}, ["state", "county"]
)


def ids(found):
    return {area.name: [TREE.ids[region] for region in area.regions] for area in found}


def test_files_tables_and_lists_say_the_same(tmp_path):
    rows = {"area": ["one", "two", "one", "two"], "region": ["Ash/North", "Ash", "=x", "Birch/=x"]}
    wanted = {"one": ["Ash/North", "Birch/=x"], "two": ["Ash", "Birch/=x"]}
    (tmp_path / "areas.csv").write_text(
        "area,region\n" + "".join(f"{area},{region}\n" for area, region in zip(*rows.values(), strict=True))
    )
    pq.write_table(pa.table(rows), tmp_path / "areas.parquet")
    lists = {"one": ["Ash/North", "=x"], "two": ["Ash", "Birch/=x"]}
    for source in (tmp_path / "areas.csv", str(tmp_path / "areas.parquet"), pa.table(rows), lists):
        assert ids(read_areas(source, TREE)) == wanted


def test_a_published_list_can_be_asked_about_again(tmp_path):
    counts = np.ones((4, 3), dtype=np.int64)
    made = release(GroupSizes(TREE, 3, Sealed(counts)), areas={"k": {"=f()": ["=x", "Ash"]}}, **OPTIONS)
    made.save(tmp_path / "release")
    (again,) = made.ask_each(Query(), areas=tmp_path / "release" / "area_leaves.csv", typical=False)
    assert again.area == "=f()"
    assert again.regions == ("Ash", "Birch/=x")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"a": ["Ahs"]}, "area 'a': there is no region 'Ahs'; did you mean Ash"),
        ({"a": ["Asch", "Q", "R", "S", "T", "Ash"]}, "2 more unknown regions"),
        ({"a": ["North"]}, "2 regions are called 'North'; give one of the ids: Ash/North, Birch/North"),
        ({"a": []}, "the area 'a' of the list of areas is empty"),
        ({}, "the list of areas is empty"),
        ({" ": ["Ash"]}, "the name of an area is ' '; expected a text that is not empty"),
        ({3: ["Ash"]}, "the name of an area is 3"),
        ({"a\ud800": ["Ash"]}, "the name of an area is"),
        ({"a": [3]}, "3 in the area 'a' is not a region"),
        ({"a": 3}, "expected a list of regions"),
        ({"x" * 201: ["Ash"]}, "has 201 characters"),
        (pa.table({"area": pa.array([], pa.string()), "region": pa.array([], pa.string())}), "is empty"),
        (pa.table({"area": ["a", "", "b"], "region": ["Ash", "Ash", ""]}), "1 rows have no name in column 'area'"),
        (pa.table({"area": ["a", "", "b"], "region": ["Ash", "Ash", ""]}), "1 rows have no region"),
        (pa.table({"aera": ["a"], "region": ["Ash"]}), "no column 'area'; did you mean 'aera'?"),
        (pa.table({"kind": ["x", "y"], "area": ["a", "a"], "region": ["Ash", "Birch"]}), "in two kinds, 'x' and 'y'"),
        ("nowhere.csv", "there is no list of areas at nowhere.csv"),
        (3, "is of type int"),
    ],
)
def test_bad_lists_are_refused_with_what_was_found(source, message):
    with pytest.raises(SpecError) as error:
        read_areas(source, TREE)
    assert message in str(error.value)


def test_a_leaf_that_is_listed_twice_counts_once_with_a_warning():
    with pytest.warns(CountedOnce, match="the area 'a' has the leaf 'Ash/South' more than once; it counts once"):
        found = read_areas({"a": ["Ash", "Ash/South"]}, TREE)
    assert ids(found) == {"a": ["Ash"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_areas({"a": ["Ash"], "b": ["Ash/South"]}, TREE)


def test_what_cannot_be_published_is_refused_before_anything_is_spent(tmp_path, monkeypatch):
    data = made_up(11, public_totals=False, name="d")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("d", Budget(epsilon=1), release(made_up(11, public_totals=False), **OPTIONS).measurements.neighbours)
    for bad in ({"k": {"a": ["nowhere"]}}, {"": AREAS}, [AREAS], {"k": tmp_path / "nothing.csv"}):
        with pytest.raises(SpecError):
            release(data, areas=bad, ledger=ledger, **OPTIONS)
    for name, limit in {"MOST_CELLS": 4 * 7 - 1, "MOST_BYTES": 100, "MOST_WORK": 4 * 11}.items():
        monkeypatch.undo()
        monkeypatch.setattr(areas_module, name, limit)
        with pytest.raises(SpecError, match="publish fewer"):
            release(data, areas={"k": AREAS}, ledger=ledger, **OPTIONS)
    assert ledger.account("d").spent == 0


def test_a_release_that_is_resumed_publishes_its_areas_too(tmp_path):
    made = release(
        made_up(11, public_totals=False), areas={"k": AREAS}, intervals="guaranteed", keep=tmp_path / "kept", **OPTIONS
    )
    assert RunFolder(tmp_path / "kept").state().stage == "measured"
    again = resume(tmp_path / "kept", areas={"k": AREAS}, intervals="guaranteed")
    assert again.area_table().equals(made.area_table())
