"""Exports hold the released table, number for number, as the formats' own readers read them."""

import json
import re
from datetime import date

import csvw
import numpy as np
import pyarrow as pa
import pytest
import sdmx
from hypothesis import given
from hypothesis import strategies as st
from pyjstat import pyjstat

import tallytree as tt
from tallytree.core.names import from_a_spreadsheet, visible
from tallytree.publish import formats
from tallytree.publish import sdmx as own_sdmx
from tallytree.publish.formats import FORMATS
from tallytree.publish.release import table_layout as partition
from tallytree.tables import GroupSizes, Sealed
from tests.publish.release.test_categories import TREE, TWO, microdata

NASTY = '=cmd|"<b>&\x1b[31m\n☃'
ABOUT = {
    "publisher": f"Office {NASTY}",
    "contact": "data@example.org",
    "licence": "CC-BY-4.0",
    "reference_date": date(2025, 3, 31),
    "description": "All homes.",
    "source": "Register of homes",
}
AREAS = {"school districts": {"West": ["+A/" + NASTY], NASTY: ["+A", "B%2Fc"]}, "wards": {"West": ["B%2Fc"]}}


def plain(**how):
    levels = {"state": ["+A", "+A", "B/c"], "county": [NASTY, "01", "B/c"]}
    tree = tt.Hierarchy.from_levels(levels, ["state", "county"])
    rows = pa.table({"home": list(range(90)) * 2, "county": [tree.names[-3:][n % 3] for n in range(90)] * 2})
    private = tt.read(rows, group="home", region="county", hierarchy=tree, max_size=4)
    return tt.release(private, budget=tt.Budget(epsilon=1), unit="one_entity", title=NASTY, **how)


def by_two(**more):
    """Categories whose names need care: one is a column of SDMX-CSV, the other no variable of CSVW."""
    names = {"tenure": "tenure (a)", "origin": "action"}
    rows, _ = microdata()
    rows = rows.rename_columns([names.get(name, name) for name in rows.column_names])
    by = {names[name]: values for name, values in TWO.items()}
    how = {"group": "home", "region": "county", "hierarchy": TREE, "max_size": 5}
    private = tt.read(rows, **how, by=by, decided_by="group")
    return tt.release(private, budget=tt.Budget(epsilon=1), unit="one_entity", intervals="guaranteed", **more)


RELEASES = {
    "plain": plain,
    "no intervals": lambda: plain(intervals="none"),
    "by two categories": by_two,
    "with areas, and what they are about": lambda: plain(areas=AREAS, about=ABOUT),
}


@pytest.fixture(scope="module", params=RELEASES)
def release(request):
    return RELEASES[request.param]()


def exported(release, to, folder):
    names = release.export(folder / to, to=to)
    assert {*names, "manifest.json"} == {path.name for path in (folder / to).iterdir()}
    return folder / to


def cubes(release):
    """The exported tables whose numbers are in the release's own tables."""
    return [table for table in formats.exported_tables(release) if table.name != "averages"]


def numbers(release, cube):
    """The number and the ends of intervals of every row that has them, by the codes of its dimensions."""
    of = cube.name.partition("_")[0]
    rows = release.table(of=of).to_pylist()
    if of == "areas":
        rows = [row for row in rows if row["kind"] == cube.keys[0].codes[0]]
    keys, given_ = [one.name for one in cube.dimensions], [one.name for one in cube.given]
    found = {tuple(str(row[key]) for key in keys): tuple(row[name] for name in given_) for row in rows}
    assert len(found) == cube.cells == len(rows)
    return found


# -------------------------------------------------------------------- by their own readers


def test_sdmx_reads_the_structure_and_every_observation(release, tmp_path):
    folder = exported(release, "sdmx-csv", tmp_path)
    message = sdmx.read_sdmx(folder / "structure.xml")
    assert set(message.dataflow) == {*(cube.name.upper() for cube in cubes(release)), "AVERAGES"}
    for cube in cubes(release):
        flow = message.dataflow[cube.name.upper()]
        check_observations(release, cube, flow, sdmx.read_sdmx(folder / f"{cube.name}.csv", structure=flow).data[0])


def check_observations(release, cube, flow, data):
    structure, expected, time = flow.structure, numbers(release, cube), release.about.reference_date
    ids = [dimension.id for dimension in structure.dimensions]
    assert ids[len(cube.dimensions) :] == (["TIME_PERIOD"] if time else [])
    ids = ids[: len(cube.dimensions)]
    attributes = [one.id for one in structure.attributes]
    assert attributes == [*(one.name.upper() for one in cube.given[1:]), "UNIT_MEASURE", "CONF_LEVEL"]
    codes = [dimension.local_representation.enumerated for dimension in structure.dimensions if dimension.id in ids]
    back = [{own_sdmx.code(text): text for text in dimension.codes} for dimension in cube.dimensions]
    for listed, dimension in zip(codes, cube.dimensions, strict=True):
        labels = {one.id: str(one.name) for one in listed.items.values()}
        expected_labels = map(visible, dimension.labels)
        assert labels == dict(zip(map(own_sdmx.code, dimension.codes), expected_labels, strict=True))
    seen = {}
    for one in data.obs:
        key = tuple(back[place][one.dimension[name].value] for place, name in enumerate(ids))
        attached = [one.attached_attribute[name].value for name in attributes]
        assert attached[-2:] == [cube.measures[0].unit.upper(), str(cube.confidence)]
        if time:
            assert one.dimension["TIME_PERIOD"].value == time
        seen[key] = (int(one.value), *map(int, attached[:-2]))
    assert seen == expected
    if cube.dimensions[0].name == "region":
        root, child = release.hierarchy.regions.ids[:2]
        assert codes[0][own_sdmx.code(child)].parent == codes[0][own_sdmx.code(root)]


def test_a_json_stat_reader_reads_every_value(release, tmp_path):
    folder = exported(release, "json-stat", tmp_path)
    for cube in cubes(release):
        text = (folder / f"{cube.name}.json").read_text(encoding="utf-8")
        frame = pyjstat.Dataset.read(text).write("dataframe", naming="id")
        *keys, measure = json.loads(text)["id"]
        assert keys == [one.name for one in cube.dimensions]
        seen = {}
        for row in frame.to_dict("records"):
            seen.setdefault(tuple(row[key] for key in keys), {})[row[measure]] = row["value"]
        found = {key: tuple(values[one.name] for one in cube.given) for key, values in seen.items()}
        assert found == numbers(release, cube)


def test_a_json_stat_document_has_labels_units_and_what_lies_in_what(release, tmp_path):
    found = json.loads((exported(release, "json-stat", tmp_path) / "counts.json").read_text(encoding="utf-8"))
    region, regions = found["dimension"]["region"]["category"], release.hierarchy.regions
    assert list(region["label"].values()) == list(regions.names)
    below = {child: parent for parent, children in region["child"].items() for child in children}
    parents = [regions.ids[parent] for parent in regions.parents[1:]]
    assert below == dict(zip(regions.ids[1:], parents, strict=True))
    assert {one["base"] for one in found["dimension"]["measure"]["category"]["unit"].values()} == {"groups"}
    assert found["role"] == {"geo": ["region"], "metric": ["measure"]}


def with_an_empty_region():
    """Medians and means of "B" are undefined."""
    tree = tt.Hierarchy.from_levels({"county": ["A", "B"]}, ["county"])
    totals = np.array([900, 0])
    sizes = GroupSizes(tree, 3, Sealed(np.array([[0, 400, 300, 200], [0, 0, 0, 0]])), leaf_totals=totals)
    return tt.release(sizes, budget=tt.Budget(epsilon=1), unit="one_entity", intervals="none")


@pytest.mark.parametrize("make", [with_an_empty_region, by_two, plain])
def test_medians_and_means_are_exported_with_the_intervals_of_their_queries(make, tmp_path):
    release = make()
    for to in FORMATS:
        release.export(tmp_path / to, to=to)
    assert is_valid(tmp_path / "csvw")
    [table] = [each for each in formats.exported_tables(release) if each.name == "averages"]
    rows, names = table.whole().to_pylist(), release.rows.categories
    assert len(rows) == len(release.rows)
    values = json.loads((tmp_path / "json-stat/averages.json").read_text(encoding="utf-8"))["value"]
    flow = sdmx.read_sdmx(tmp_path / "sdmx-csv/structure.xml").dataflow["AVERAGES"]
    observed = sdmx.read_sdmx(tmp_path / "sdmx-csv/averages.csv", structure=flow).data[0].obs
    group = csvw.TableGroup.from_file(tmp_path / "csvw/csv-metadata.json")
    [listed] = [each for each in group.tables if each.url.string == "averages.csv"]
    width = len(table.given)
    cells = table.cells_of(table.whole()).tolist()
    for row, cell, other in zip(rows, cells, listed, strict=True):
        by = {name: row[name] for name in names}
        for kind, step in (("median", 0), ("mean", 1e-4)):
            answer = release.ask(tt.Query(kind, row["region"], by=by), typical=False)
            assert row[kind] == (None if answer.released is None else pytest.approx(answer.released, abs=step / 2))
            (low, high), ends = answer.guaranteed, (row[f"{kind}_lower"], row[f"{kind}_upper"])
            assert low - step <= ends[0] <= low
            assert high <= ends[1] <= high + step
        numbers_ = [row[each.name] for each in table.given]
        assert values[cell * width : (cell + 1) * width] == numbers_
        exact = list(other.values())[-len(table.measures) :]
        assert [None if one is None else float(one) for one in exact] == [row[each.name] for each in table.measures]
    defined = [row["median"] for row in rows if row["median"] is not None]
    assert [int(one.value) for one in observed] == defined
    assert (len(defined) < len(rows)) == (make is with_an_empty_region)


def test_averages_of_too_many_regions_are_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr(formats, "MOST_AVERAGES", 3)
    assert "averages.csv" not in plain(intervals="none").export(tmp_path / "out", to="csvw")


def is_valid(folder):
    """Does a CSVW validator find tables, kinds of values and keys in order?"""
    try:
        return csvw.CSVW(str(folder / "csv-metadata.json"), validate=True).is_valid
    except ValueError:
        return False


def test_a_csvw_reader_finds_it_valid_and_reads_every_row(release, tmp_path):
    folder = exported(release, "csvw", tmp_path)
    assert is_valid(folder)
    group = csvw.TableGroup.from_file(folder / "csv-metadata.json")
    tables = {table.url.string.removesuffix(".csv"): table for table in group.tables}
    names = ["counts", "entities", *(["areas"] if release.areas else [])]
    assert set(tables) == {*names, "averages", "regions"}
    assert group.common_props.get("dc:temporal", "") == release.about.reference_date
    for name in names:
        expected = release.table(of=name)
        columns = expected.column_names
        rows = [dict(zip(columns, row.values(), strict=True)) for row in tables[name]]
        exact = [
            {key: from_a_spreadsheet(text) if isinstance(text, str) else text for key, text in row.items()}
            for row in rows
        ]
        assert exact == expected.to_pylist()
    units = {column.name: column.common_props.get("schema:unitText") for column in tables["counts"].tableSchema.columns}
    assert units["count"] == "groups"


def test_a_csvw_reader_finds_what_was_broken(tmp_path):
    """The check above can fail: a text among numbers, and a region that is not there."""
    folder = exported(plain(intervals="none"), "csvw", tmp_path)
    counts = folder / "counts.csv"
    right = counts.read_text(encoding="utf-8")
    for was, now in ((",1,", ",one,"), ('"B%2Fc/B%2Fc"', '"elsewhere"')):
        counts.write_text(right.replace(was, now, 1), encoding="utf-8")
        assert not is_valid(folder)
    counts.write_text(right, encoding="utf-8")
    assert is_valid(folder)


# -------------------------------------------------------------------- codes


@given(st.lists(st.text(), unique=True, max_size=8))
def test_codes_are_of_the_form_that_sdmx_wants_and_no_two_texts_share_one(texts):
    codes = [own_sdmx.code(text) for text in texts]
    assert len(set(codes)) == len(texts)
    assert all(re.fullmatch(r"[A-Za-z0-9_@$\-]+", code) and code[0] not in "-@" for code in codes)


@given(st.lists(st.text(min_size=1), unique=True, max_size=8))
def test_components_have_ids_of_their_own(names):
    ids = list(own_sdmx.component_ids(names).values())
    assert len(set(ids)) == len(names)
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]*", one) for one in ids)


# -------------------------------------------------------------------- refusals


def test_what_is_too_large_for_a_format_is_refused_and_nothing_is_left(monkeypatch, tmp_path):
    release = plain(intervals="none")
    monkeypatch.setattr(formats, "MOST_VALUES", 3)
    monkeypatch.setattr(own_sdmx, "MOST_OBSERVATIONS", 3)
    for to in ("json-stat", "sdmx-csv"):
        with pytest.raises(tt.ReleaseError, match="csvw"):
            release.export(tmp_path / to, to=to)
    assert list(tmp_path.iterdir()) == []


def test_large_tables_leave_their_zeros_out_of_csvw_and_say_so(monkeypatch, tmp_path):
    monkeypatch.setattr(partition, "SMALL", 3)
    release = plain(intervals="none")
    release.export(tmp_path / "out", to="csvw")
    tables = {table.url.string: table for table in csvw.TableGroup.from_file(tmp_path / "out/csv-metadata.json").tables}
    counts = [row["count"] for row in tables["counts.csv"]]
    assert counts == [number for number in release.table()["count"].to_pylist() if number]
    assert "left out" in tables["counts.csv"].common_props["dc:description"]


@pytest.mark.parametrize("to", FORMATS)
def test_a_directory_that_is_there_is_left_alone(to, tmp_path):
    with pytest.raises(tt.ReleaseError, match="already exists"):
        plain(intervals="none").export(tmp_path, to=to)


WORDS = {"publisher": "PUBLISHER", "contact": "CONTACT", "licence": "LICENCE", "reference_date": "2025-03"}
WORDS |= {"description": "DESCRIPTION", "source": "SOURCE"}


@pytest.mark.parametrize("contact", ["CONTACT", "contact@example.org"])
@pytest.mark.parametrize("to", ["json-stat", "sdmx-csv", "csvw"])  # the test of workbooks reads the notes
def test_every_export_states_what_the_publisher_states(to, contact, tmp_path):
    release = plain(intervals="none", about=WORDS | {"contact": contact})
    folder = exported(release, to, tmp_path)
    text = "".join(path.read_text() for path in folder.iterdir())
    assert [word for word in (WORDS | {"contact": contact}).values() if word not in text] == []
    if to == "sdmx-csv":
        sender = sdmx.read_sdmx(folder / "structure.xml").header.sender
        assert (str(sender.name), len(sender.contact)) == ("PUBLISHER", 1)
        assert contact in (str(sender.contact[0].name), *sender.contact[0].email)
