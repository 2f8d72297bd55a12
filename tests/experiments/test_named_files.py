"""Public data sets by file name: the real ones against the totals stated with them, made-up ones counted by hand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from experiments.named_files import LOADERS, REGION_TABLES, TWO_TABLES, load, load_regions, load_tables
from pyarrow import csv

from tallytree.core.errors import SpecError
from tests.real_data import MADE_UP, VARIABLE, made_up, real

# regions on each level below the total (or the single state), groups, largest size
STATED = {
    "us2010_county_household_size_2plus.csv": ([4, 9, 51, 3108], 84_637_848, 7),
    "bayarea_2010_maz_household_size.csv": ([9, 54, 4688, 39_785], 2_608_016, 4),
    "switzerland_2003_municipality_household_size.csv": ([7, 26, 2896], 3_115_399, 4),
    "us_cps_2012_2014_households.parquet": ([4, 9, 51], 200_576, 16),
    "oregon_2000_pums_households.parquet": ([13, 27], 66_686 + 5_949, 17),
    "atlanta_arc_households.parquet": ([2, 34], 24_061, 9),
    "ri_2010_block_race.csv": ([5, 244, 815], 25_181, 2328),
    "us2010_vtd_race.parquet": ([46, 2919], 159_898, 1332),
    "nyc_taxi_medallion_pickups.csv": ([2, 28], 360_872, 4919),
    "us2010_block_hawaiian_national_hist.csv": ([], 11_155_486, 908),
}

# columns with regions, from the top down, and of sizes: numbers of persons, or one column for each size, or `size`
COLUMNS = {
    "us2010_county_household_size_2plus.csv": ("region division state county", "hh2 hh3 hh4 hh5 hh6 hh7plus"),
    "bayarea_2010_maz_household_size.csv": ("county_name PUMA taz maz", "hh1 hh2 hh3 hh4plus"),
    "switzerland_2003_municipality_household_size.csv": ("region canton municipality", "hh1 hh2 hh3 hh4plus"),
    "us_cps_2012_2014_households.parquet": ("region division state", "persons"),
    "oregon_2000_pums_households.parquet": ("area puma", "persons"),
    "atlanta_arc_households.parquet": ("puma maz", "persons"),
    "ri_2010_block_race.csv": ("county tract blockgroup", "pop_white"),
    "us2010_vtd_race.parquet": ("state county", "pop_nhpi"),
    "nyc_taxi_medallion_pickups.csv": ("area neighbourhood", "size"),
    "us2010_block_hawaiian_national_hist.csv": ("", "size"),
}
ENTITIES = {
    "nyc_taxi_medallion_pickups.csv": 130_962_398,
    "us2010_block_hawaiian_national_hist.csv": 540_383,
    "atlanta_arc_households.parquet": 67_101,
    "us_cps_2012_2014_households.parquet": 542_168,
    "ri_2010_block_race.csv": 803_685,
}


def read(path):
    """All rows, as they are."""
    return csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)


def by_hand(path):
    """Regions on each level, groups, largest size and entities, without any of the code that loads them."""
    rows = read(path).to_pylist()
    if "unittype" in rows[0]:
        rows = [row for row in rows if row["unittype"] == 0]
    levels, sizes = (names.split() for names in COLUMNS[path.name])
    regions = [len({tuple(row[name] for name in levels[: depth + 1]) for row in rows}) for depth in range(len(levels))]
    if len(sizes) > 1:
        cells = [(int(name.strip("hplus")), row[name]) for row in rows for name in sizes]
    else:
        cells = [(row[sizes[0]], row.get("count", 1)) for row in rows]
    return regions, sum(n for _, n in cells), max(size for size, _ in cells), sum(size * n for size, n in cells)


def entities(truth):
    return int(truth.counts.sum(axis=0) @ np.arange(truth.max_size + 1))


def test_every_loader_is_checked():
    assert set(STATED) == set(COLUMNS) == set(LOADERS)


def test_every_reader_has_a_made_up_file():
    assert set(MADE_UP) == {*LOADERS, *REGION_TABLES, *TWO_TABLES}


def test_the_real_files_are_tested_only_where_a_variable_names_their_folder(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    words = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-q", "-k", "keep_their_codes"]
    words += [__file__, f"--rootdir={Path(__file__).parents[2]}"]
    without = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert without.stdout.splitlines()[-1].startswith("1 passed"), without.stdout
    assert not re.search("real|skipped", without.stdout), without.stdout
    empty = subprocess.run(
        words, env=environment | {VARIABLE: str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert empty.stdout.splitlines()[-1].startswith("1 failed, 1 passed"), empty.stdout
    assert f"{tmp_path / 'us2010_county_household_size_2plus.csv'} does not exist" in empty.stdout


@pytest.mark.real_data
def test_every_real_file_has_a_reader_and_a_made_up_file_with_the_same_columns(tmp_path):
    files = {file.name for file in real("README.md").parent.iterdir() if file.suffix in (".csv", ".parquet")}
    assert files == {*LOADERS, *REGION_TABLES, *TWO_TABLES}
    for name in files:
        wanted, found = (read(path).column_names for path in (real(name), made_up(name, tmp_path)))
        if name == "us_cps_2012_2014_taxunits.parquet":  # of which many columns are never read
            wanted = [column for column in wanted if column in found]
        assert found == wanted, name


@pytest.mark.parametrize("name", STATED)
def test_a_data_set_has_its_regions_and_groups(public_file, name):
    truth = load(public_file(name))
    if public_file is real:
        regions, groups, largest = STATED[name]
        members = ENTITIES.get(name, entities(truth))
    else:
        regions, groups, largest, members = by_hand(public_file(name))
    assert np.diff(truth.hierarchy.level_starts).tolist() == [1, *regions]
    assert truth.counts.sum() == groups
    assert truth.max_size == largest
    assert entities(truth) == members
    assert truth.public_totals
    assert truth.name == Path(name).stem


@pytest.mark.parametrize("name", STATED)
def test_a_data_set_can_have_private_totals(public_file, name):
    public, private = load(public_file(name)), load(public_file(name), public_totals=False)
    assert np.array_equal(private.counts, public.counts[:, 1:])
    assert private.first_size == 1


@pytest.mark.parametrize(
    "name", ["bayarea_2010_maz_household_size.csv", "switzerland_2003_municipality_household_size.csv"]
)
def test_households_of_a_wide_file_add_up_to_its_own_totals(public_file, name):
    assert load(public_file(name)).counts.sum() == sum(read(public_file(name))["households"].to_pylist())


def test_counties_keep_their_codes(public_file):
    codes = load(public_file("us2010_county_household_size_2plus.csv")).hierarchy.index
    assert ("01001" if public_file is real else "01010101") in codes


def test_a_race_can_be_chosen_and_sizes_bounded(public_file):
    path = public_file("ri_2010_block_race.csv")
    assert entities(load(path, race="all")) == sum(read(path)["pop"].to_pylist())
    black = load(path, race="black", max_size=5)
    assert black.max_size == 5
    assert black.counts[:, 5].sum() == sum(persons >= 5 for persons in read(path)["pop_black"].to_pylist()) > 0
    with pytest.raises(SpecError, match="race must be one of"):
        load(path, race="green")


@pytest.mark.parametrize(
    ("name", "stated"), [("us2010_county_geography.csv", 3_143), ("nyc_taxi_zone_lookup.csv", 265)]
)
def test_region_tables_give_trees(public_file, name, stated):
    path = public_file(name)
    tree = load_regions(path)
    assert tree.leaf_count == (stated if public_file is real else read(path).num_rows)
    assert tree.levels[-len(REGION_TABLES[name]) :] == REGION_TABLES[name]
    with pytest.raises(SpecError, match="load_regions"):
        load(path)


def test_an_unknown_table_of_regions_is_refused():
    with pytest.raises(SpecError, match="known tables"):
        load_regions("other.csv")


@pytest.mark.parametrize(
    ("name", "groups", "members"),
    [
        ("us_cps_2012_2014_taxunits.parquet", 200_576, 280_005),
        ("oregon_2000_pums_persons.parquet", 76_516, 171_666),
        ("atlanta_arc_persons.parquet", 24_061, 67_101),
    ],
)
def test_groups_come_with_their_members(public_file, name, groups, members):
    path, homes = public_file(name), public_file(TWO_TABLES[name])
    tables = load_tables(path)
    assert (tables.households.num_rows, tables.persons.num_rows) == (read(homes).num_rows, read(path).num_rows)
    column = "tax_units" if "cps" in name else "persons"
    assert sum(tables.households[column].to_pylist()) == tables.persons.num_rows
    if public_file is real:
        assert (tables.households.num_rows, tables.persons.num_rows) == (groups, members)
    with pytest.raises(SpecError, match="load_tables"):
        load(path)


def test_members_need_their_groups_beside_them(tmp_path):
    name = next(iter(TWO_TABLES))
    pq.write_table(pa.table({"household_id": [1]}), tmp_path / name)
    with pytest.raises(SpecError, match="there is no file"):
        load_tables(tmp_path / name)
    pq.write_table(pa.table({"household_id": [2]}), tmp_path / TWO_TABLES[name])
    with pytest.raises(SpecError, match="1 members belong to households"):
        load_tables(tmp_path / name)
    with pytest.raises(SpecError, match="known files of members"):
        load_tables(tmp_path / "other.parquet")


def test_an_absent_file_is_said(tmp_path):
    with pytest.raises(SpecError, match="there is no file"):
        load(tmp_path / "nothing.csv")


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("oregon_2000_pums_households.parquet", "bldgsz"),
        ("us_cps_2012_2014_households.parquet", "children_u18"),
        ("atlanta_arc_households.parquet", "bld"),
    ],
)
def test_groups_told_apart_by_a_column_add_up_to_the_same_counts(public_file, name, by, public):
    path = public_file(name)
    whole = load(path, public_totals=public, max_size=7)
    for most in (2, 4):
        parts = load(path, public_totals=public, max_size=7, by=by, most_values=most)
        tree = parts.hierarchy
        assert len(tree.by) == most
        assert tree.by.columns[0].values[-1] == "other"
        assert np.array_equal(tree.over_categories(parts.all_levels()), whole.all_levels())
    with pytest.raises(SpecError, match="has no column 'colour'"):
        load(path, by="colour")
