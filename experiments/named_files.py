"""Public data sets from files that the user has, by file name; nothing is bundled and no place is assumed.

`load(path)` knows the files below and reads any other as a plain one with `read_counts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.errors import SpecError
from tallytree.domain.categories import Categories
from tallytree.domain.hierarchy import Hierarchy
from tallytree.lab.counts_files import read_counts, region_columns, text_table, truth_of_cells, whole_numbers
from tallytree.lab.datasets import Tables
from tallytree.lab.truth import Truth

__all__ = ["LOADERS", "REGION_TABLES", "TWO_TABLES", "load", "load_regions", "load_tables", "read_counts"]

FilePath = str | PathLike[str]
RACES = ("white", "black", "hisp", "aian", "asian", "nhpi", "other", "two")


def load(path: FilePath, **options: Any) -> Truth:
    """The counts in a file: by its own loader if its name is known, otherwise as a plain file."""
    name = Path(path).name
    if name in REGION_TABLES:
        raise SpecError(f"{name} is a table of regions without group sizes; read it with `load_regions`")
    if name in TWO_TABLES:
        raise SpecError(f"{name} holds members of groups; read it and its groups with `load_tables`")
    return LOADERS.get(name, read_counts)(path, **options)


# -------------------------------------------------------------------- counts by region


def us_counties(path: FilePath, *, public_totals: bool = True) -> Truth:
    """US 2010, region → division → state → county: households of 2 … 7 or more (no source for those of 1: zero)."""
    return read_counts(path, ["region", "division", "state", "county"], public_totals=public_totals)


def bay_area(path: FilePath, *, public_totals: bool = True) -> Truth:
    """San Francisco Bay Area 2010, county → PUMA → taz → maz: households of 1 … 4 or more, many leaves empty."""
    return read_counts(path, ["county_name", "PUMA", "taz", "maz"], public_totals=public_totals)


def switzerland(path: FilePath, *, public_totals: bool = True) -> Truth:
    """Switzerland 2003, region → canton → municipality: households of 1 … 4 or more."""
    return read_counts(path, ["region", "canton", "municipality"], public_totals=public_totals)


def medallions(path: FilePath, *, public_totals: bool = True, max_size: int | None = None) -> Truth:
    """Manhattan 2013, area → neighbourhood: groups are taxis seen there, sizes their pick-ups (CoC's taxi data)."""
    return read_counts(path, ["area", "neighbourhood"], public_totals=public_totals, max_size=max_size)


def hawaiian_blocks(path: FilePath, *, public_totals: bool = True, max_size: int | None = None) -> Truth:
    """US 2010, nation only: blocks by persons of one race, most of size 0 (CoC's Hawaiian data)."""
    return _as_stated(read_counts(path, [], max_size=max_size), public_totals)


# -------------------------------------------------------------------- one row per group


def cps(
    path: FilePath,
    *,
    public_totals: bool = True,
    size: str = "persons",
    max_size: int | None = None,
    by: str | None = None,
    most_values: int | None = None,
) -> Truth:
    """US Current Population Survey 2012–2014, region → division → state: households by persons (or `tax_units`).

    `by` may be `year`, or `children_u18`, which members decide; the categories of experiments are the group's.
    """
    levels = ["region", "division", "state"]
    found = _rows(path, levels, size, public_totals, max_size)
    return found if by is None else _by(found, path, levels, size, by, most_values)


def oregon(
    path: FilePath,
    *,
    public_totals: bool = True,
    max_size: int | None = None,
    by: str | None = None,
    most_values: int | None = None,
) -> Truth:
    """Oregon 2000 census sample, area → puma: housing units by persons; vacant ones have size 0.

    Group quarters are left out. With private totals so are vacant units. `by` may be `bldgsz`, the kind of building.
    """
    found = _rows(path, ["area", "puma"], "persons", public_totals, max_size, only=("unittype", "0"))
    return found if by is None else _by(found, path, ["area", "puma"], "persons", by, most_values, ("unittype", "0"))


def atlanta(
    path: FilePath,
    *,
    public_totals: bool = True,
    size: str = "persons",
    max_size: int | None = None,
    by: str | None = None,
    most_values: int | None = None,
) -> Truth:
    """Atlanta, a synthetic population, puma → maz: households by persons (or `workers`, `veh`).

    `by` may be `bld` (building), `hht` (type of household) or `veh`.
    """
    found = _rows(path, ["puma", "maz"], size, public_totals, max_size)
    return found if by is None else _by(found, path, ["puma", "maz"], size, by, most_values)


def rhode_island(
    path: FilePath, *, race: str = "white", public_totals: bool = True, max_size: int | None = None
) -> Truth:
    """Rhode Island 2010, state → county → tract → block group: blocks by persons of a race; many have none."""
    levels = ["state", "county", "tract", "blockgroup"]
    return _rows(path, levels, _race(race), public_totals, max_size)


def voting_districts(
    path: FilePath, *, race: str = "nhpi", public_totals: bool = True, max_size: int | None = None
) -> Truth:
    """US 2010 without five states, state → county: voting districts by persons of a race.

    Other races than the default reach sizes of thousands; `max_size` keeps them in bounds.
    """
    return _rows(path, ["state", "county"], _race(race), public_totals, max_size)


def _race(race: str) -> str:
    if race not in (*RACES, "all"):
        raise SpecError(f"race must be one of {', '.join(RACES)} or all, not {race!r}")
    return "pop" if race == "all" else f"pop_{race}"


def _those(path: FilePath, only: tuple[str, str] | None) -> Any:
    """The rows of a file; with `only`, those that have a value in a column."""
    from pyarrow import compute

    table = text_table(path)
    return table if only is None else table.filter(compute.equal(table[only[0]], only[1]))


def _rows(
    path: FilePath,
    levels: list[str],
    size: str,
    public_totals: bool,
    max_size: int | None,
    only: tuple[str, str] | None = None,
) -> Truth:
    table = _those(path, only)
    sizes = whole_numbers(table, size)
    regions = region_columns(table, levels)
    return _as_stated(truth_of_cells(Path(path).stem, regions, sizes, None, True, max_size), public_totals)


def _by(
    truth: Truth,
    path: FilePath,
    levels: list[str],
    size: str,
    by: str,
    most_values: int | None,
    only: tuple[str, str] | None = None,
) -> Truth:
    """The same groups told apart by a column; with `most_values` the rarest of its values count as one, `other`."""
    table = _those(path, only)
    if by not in table.column_names:
        raise SpecError(f"{Path(path).name} has no column {by!r}")
    column = [text or "none" for text in table[by].to_pylist()]
    common = [value for value, _ in Counter(column).most_common(most_values)]
    if most_values is not None and len(set(column)) > most_values:
        common = [*common[:-1], "other"]
    known = {value: place for place, value in enumerate(common)}
    cell = np.array([known.get(value, len(common) - 1) for value in column])
    tree, parts = truth.hierarchy, np.zeros((len(common), *truth.counts.shape), dtype=np.int64)
    leaves = {name: place for place, name in enumerate(tree.names[tree.level_slice(tree.depth - 1)])}
    leaf = np.array([leaves.get(text, -1) for text in table[levels[-1]].to_pylist()])
    sizes = np.minimum(np.asarray(whole_numbers(table, size)), truth.max_size) - truth.first_size
    there = sizes >= 0  # with private totals nobody knows of the empty ones
    np.add.at(parts, (cell[there], leaf[there], sizes[there]), 1)
    if leaf.min() < 0 or not np.array_equal(parts.sum(axis=0), truth.counts):
        raise SpecError(f"{by!r} does not tell apart the groups that {Path(path).name} has")
    return truth.by_category(Categories.of({by: common}, "group"), parts)


def _as_stated(truth: Truth, public_totals: bool) -> Truth:
    """With private totals nobody knows of the groups of size 0."""
    if public_totals:
        return truth
    return Truth(truth.name, truth.hierarchy, truth.counts[:, 1:].copy(), public_totals=False)


LOADERS: Mapping[str, Callable[..., Truth]] = {
    "us2010_county_household_size_2plus.csv": us_counties,
    "bayarea_2010_maz_household_size.csv": bay_area,
    "switzerland_2003_municipality_household_size.csv": switzerland,
    "us_cps_2012_2014_households.parquet": cps,
    "oregon_2000_pums_households.parquet": oregon,
    "atlanta_arc_households.parquet": atlanta,
    "ri_2010_block_race.csv": rhode_island,
    "us2010_vtd_race.parquet": voting_districts,
    "nyc_taxi_medallion_pickups.csv": medallions,
    "us2010_block_hawaiian_national_hist.csv": hawaiian_blocks,
}


# -------------------------------------------------------------------- regions without counts; groups with their members

# File name → columns from the top down.
REGION_TABLES: Mapping[str, tuple[str, ...]] = {
    "us2010_county_geography.csv": ("region", "division", "state", "county"),
    "nyc_taxi_zone_lookup.csv": ("borough", "location_id"),
}

# File of the members → file of their groups, which lies beside it. Both have the column household_id.
TWO_TABLES: Mapping[str, str] = {
    "us_cps_2012_2014_taxunits.parquet": "us_cps_2012_2014_households.parquet",
    "oregon_2000_pums_persons.parquet": "oregon_2000_pums_households.parquet",
    "atlanta_arc_persons.parquet": "atlanta_arc_households.parquet",
}


def load_regions(path: FilePath) -> Hierarchy:
    """The tree in a table of regions, for a file named in `REGION_TABLES`."""
    levels = REGION_TABLES.get(Path(path).name)
    if levels is None:
        raise SpecError(f"known tables of regions are {', '.join(REGION_TABLES)}; for others use Hierarchy.from_levels")
    return Hierarchy.from_levels(path, levels)


def load_tables(path: FilePath) -> Tables:
    """Households and their members (persons, tax units) as Arrow tables, for a file of members named in `TWO_TABLES`.

    The file of the households must lie beside it. Every member's household is in it, or a `SpecError` says how many
    are not.
    """
    from pyarrow import compute, parquet

    members = Path(path)
    groups = TWO_TABLES.get(members.name)
    if groups is None:
        raise SpecError(f"known files of members are {', '.join(TWO_TABLES)}")
    for needed in (members, members.with_name(groups)):
        if not needed.exists():
            raise SpecError(f"there is no file at {needed}")
    tables = Tables(parquet.read_table(members.with_name(groups)), parquet.read_table(members))
    known = compute.is_in(tables.persons["household_id"], value_set=tables.households["household_id"])
    if lost := tables.persons.num_rows - compute.sum(known).as_py():
        raise SpecError(f"{lost} members belong to households that {groups} does not have")
    return tables
