"""Public data files for tests: small made-up files, and the real data sets where an environment variable names them.

A test that takes the fixture `public_file` always runs on the made-up files. If `TALLYTREE_REAL_DATA` names the folder
of the real data sets, the test runs on these too. If the variable is not set, no test that needs them is collected.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

VARIABLE = "TALLYTREE_REAL_DATA"
REAL_DATA = os.environ.get(VARIABLE)  # None or empty: the real data sets are not wanted
SOURCES = ("made up", pytest.param("real", marks=pytest.mark.real_data))
SHARES = np.array([0.27, 0.33, 0.16, 0.13, 0.065, 0.026, 0.019])
RACES = ("white", "black", "hisp", "aian", "asian", "nhpi", "other", "two")


def real(name: str) -> Path:
    """The path of a real data set's file. The test fails if the named folder does not hold it."""
    if not REAL_DATA:
        pytest.fail(f"this test needs the real data sets: mark it `real_data`, and set {VARIABLE} to their folder")
    path = Path(REAL_DATA) / name
    if not path.is_file():
        pytest.fail(f"{VARIABLE} is set, but {path} does not exist")
    return path


def made_up(name: str, folder: Path) -> Path:
    """A file of the same name, columns and kinds of values as a real one, with fewer regions."""
    path = folder / name
    if not path.exists():
        table = pa.table(MADE_UP[name](np.random.default_rng(7)))
        if path.suffix == ".csv":
            pa.csv.write_csv(table, path)
        else:
            pq.write_table(table, path)
    return path


def _nested(prefixes, *numbers):
    """Names of every leaf's regions, level by level: a prefix and two digits for each level down to it."""
    codes, levels = [""], []
    for prefix, number in zip(prefixes, numbers, strict=True):
        codes = [f"{code}{place:02d}" for code in codes for place in range(1, number + 1)]
        levels.append([f"{prefix}{code}" for code in codes])
    return [np.repeat(level, len(codes) // len(level)) for level in levels]


def _households(rng, leaves, typical=400):
    """Households of 1 … 7 or more in each leaf, `[leaves, 7]`; some leaves have few."""
    tilt = np.exp(rng.normal(0, 0.12, (leaves, 1)) * np.arange(7))
    shares = SHARES * tilt
    return rng.poisson(rng.lognormal(np.log(typical), 1, (leaves, 1)) * shares / shares.sum(axis=1, keepdims=True))


def _us_counties(rng):
    region, division, state, county = _nested(("region ", "division ", "", ""), 2, 3, 4, 15)
    sizes = _households(rng, len(county))
    places = {"region": region, "division": division, "state": state, "state_abbr": state, "county": county}
    facts = {"county_name": county, "population": sizes @ np.arange(1, 8), "housing_units": sizes.sum(axis=1)}
    return places | facts | {f"hh{size}": sizes[:, size - 1] for size in range(2, 7)} | {"hh7plus": sizes[:, 6]}


def _us_geography(rng):
    return {name: column for name, column in _us_counties(rng).items() if not name.startswith("hh")}


def _four_classes(rng, leaves, typical):
    sizes = _households(rng, leaves, typical)
    counts = {"hh1": sizes[:, 0], "hh2": sizes[:, 1], "hh3": sizes[:, 2], "hh4plus": sizes[:, 3:].sum(axis=1)}
    return {"households": sizes.sum(axis=1), **counts}


def _bay_area(rng):
    county, puma, taz, maz = _nested(("county ", "", "", ""), 3, 2, 5, 8)
    counts = _four_classes(rng, len(maz), 20)
    empty = rng.random(len(maz)) < 0.3
    counts = {name: np.where(empty, 0, column) for name, column in counts.items()}
    quarters = dict.fromkeys(("gq_univ", "gq_mil", "gq_othernoninst"), np.zeros(len(maz), dtype=np.int64))
    return {"county_name": county, "PUMA": puma, "taz": taz, "maz": maz, **counts, **quarters}


def _switzerland(rng):
    region, canton, municipality = _nested(("", "", ""), 4, 4, 25)
    counts = _four_classes(rng, len(municipality), 700)
    places = {"region": region, "canton": canton, "municipality": municipality, "name": municipality}
    return {**places, **counts, "population": 2 * counts["households"]}


def _taxis(rng):
    """Pick-ups of 300 taxis in each of 2 + 4 neighbourhoods."""
    rows = []
    for place in range(6):
        sizes, counts = np.unique(rng.geometric(1 / (20 + 40 * place), 300), return_counts=True)
        area = "lower" if place < 2 else "upper"
        rows += [(area, place, size, count) for size, count in zip(sizes, counts, strict=True)]
    return dict(zip(("area", "neighbourhood", "size", "count"), map(list, zip(*rows, strict=True)), strict=True))


def _hawaiian(rng):
    sizes, counts = np.unique(rng.geometric(0.2, 2_000), return_counts=True)
    return {"size": [0, *sizes], "count": [100_000, *counts]}


def _by_race(rng, number, typical):
    races = {f"pop_{race}": rng.poisson(rng.gamma(0.3, typical / (1 + at), number)) for at, race in enumerate(RACES)}
    return {"pop": np.sum(list(races.values()), axis=0), **races}


def _rhode_island(rng):
    state, county, tract, group, block = _nested(("", "", "", "", ""), 1, 2, 4, 3, 20)
    places = {"state": state, "county": county, "tract": tract, "blockgroup": group, "block": block}
    return {**places, **_by_race(rng, len(block), 30)}


def _voting_districts(rng):
    state, county, district = _nested(("", "", ""), 5, 6, 15)
    return {"state": state, "county": county, "vtd": district, **_by_race(rng, len(district), 300)}


def _zones(rng):
    borough, zone = _nested(("borough ", ""), 3, 4)
    number = np.arange(1, 13)
    return {"location_id": number, "borough": borough, "zone": zone, "service_zone": borough}


def _homes(rng, places, number, most):
    """Where each household is, and its persons: 1 … `most`."""
    at = rng.integers(0, len(places[0]), number)
    persons = 1 + rng.choice(most, number, p=SHARES[:most] / SHARES[:most].sum())
    return [place[at] for place in places], persons


def _cps(rng):
    (region, division, state), persons = _homes(rng, _cps_places(), 3_000, 7)
    units = np.minimum(persons, 1 + rng.integers(0, 3, 3_000))
    wages = rng.choice([0, 30_000, 80_000], 3_000)
    places = {"region": region, "division": division, "state": state, "state_abbr": state}
    facts = {"tax_units": units, "persons": persons, "children_u18": np.maximum(persons - 2, 0), "wages": wages}
    return {"household_id": [f"2012_{n}" for n in range(3_000)], "year": np.full(3_000, 2012), **places, **facts}


def _cps_places():
    region, division, state = _nested(("", "division ", ""), 4, 2, 3)
    names = np.array(["Northeast", "Midwest", "South", "West"])
    return [names[region.astype(int) - 1], division, state]


def _tax_units(rng):
    homes = _cps(rng)
    home = np.repeat(np.arange(3_000), homes["tax_units"])
    facts = {"MARS": rng.integers(1, 5, len(home)), "age_head": rng.integers(18, 90, len(home))}
    wages = {"e00200": rng.choice([0, 5_000, 60_000], len(home))}
    ids = [homes["household_id"][at] for at in home]
    return {"household_id": ids, "taxunit_id": np.arange(len(home)), **facts, **wages}


def _oregon(rng):
    areas = np.array([f"{number:03d}" for number in range(1, 14)])
    (area, puma), persons = _homes(
        rng, [np.repeat(areas, 2), np.char.add(np.repeat(areas, 2), ["00", "01"] * 13)], 2_600, 7
    )
    kind = rng.choice([0, 1, 2], 2_600, p=[0.9, 0.05, 0.05])
    persons = np.where((kind == 0) & (rng.random(2_600) < 0.08), 0, np.where(kind == 0, persons, 1))
    building = np.where(kind == 0, rng.choice([f"{number:02d}" for number in range(1, 11)], 2_600), "")
    ids = [f"{number:07d}" for number in rng.permutation(2_600)]
    facts = {"unittype": kind, "persons": persons, "bldgsz": building, "hinc": rng.gamma(2, 25_000, 2_600).round()}
    return {"household_id": ids, "area": area, "puma": puma, **facts, "hweight": np.ones(2_600, dtype=np.int64)}


def _oregon_persons(rng):
    homes = _oregon(rng)
    home, place = _members(homes["persons"])
    age = rng.integers(0, 95, len(home))
    worked = np.where(age < 15, 0, rng.integers(1, 3, len(home)))
    income = [
        None if years < 15 else float(value)
        for years, value in zip(age, rng.integers(0, 90_000, len(home)), strict=True)
    ]
    ids = [homes["household_id"][at] for at in home]
    return {
        "household_id": ids,
        "pnum": place + 1,
        "age": age,
        "wrklyr": worked,
        "inctot": pa.array(income, pa.float64()),
    }


def _atlanta(rng):
    (puma, maz), persons = _homes(rng, _atlanta_places(), 2_000, 7)
    codes = {
        "workers": np.minimum(persons, 2),
        "hincp": rng.integers(0, 200_000, 2_000),
        "veh": rng.integers(0, 5, 2_000),
    }
    more = {"hht": rng.integers(1, 8, 2_000), "bld": rng.integers(1, 11, 2_000), "type": np.ones(2_000, dtype=np.int64)}
    places = {"household_id": 100 + np.arange(2_000), "puma": puma, "taz": puma - 1100, "maz": maz}
    return {**places, "persons": persons, **codes, **more}


def _atlanta_places():
    return [np.repeat([1101, 1102], 5), 100 + np.arange(10)]


def _atlanta_persons(rng):
    homes = _atlanta(rng)
    home, place = _members(homes["persons"])
    age = rng.integers(0, 95, len(home))
    job = np.where(age < 16, -9, rng.integers(1, 7, len(home)))
    codes = {"sporder": place + 1, "agep": age, "sex": rng.integers(1, 3, len(home)), "esr": job}
    more = {"wkhp": np.where(job == 1, 40, 0), "schg": np.full(len(home), -9), "schl": rng.integers(1, 17, len(home))}
    rest = {"mil": np.full(len(home), 5), "pecasOcc": rng.integers(0, 6, len(home))}
    return {"household_id": homes["household_id"][home], "person_id": np.arange(len(home)), **codes, **more, **rest}


def _members(persons):
    """The household of every person, and the person's place in it from 0 on."""
    home = np.repeat(np.arange(len(persons)), persons)
    return home, np.arange(len(home)) - np.repeat(np.cumsum(persons) - persons, persons)


MADE_UP = {
    "us2010_county_household_size_2plus.csv": _us_counties,
    "us2010_county_geography.csv": _us_geography,
    "bayarea_2010_maz_household_size.csv": _bay_area,
    "switzerland_2003_municipality_household_size.csv": _switzerland,
    "us_cps_2012_2014_households.parquet": _cps,
    "us_cps_2012_2014_taxunits.parquet": _tax_units,
    "oregon_2000_pums_households.parquet": _oregon,
    "oregon_2000_pums_persons.parquet": _oregon_persons,
    "atlanta_arc_households.parquet": _atlanta,
    "atlanta_arc_persons.parquet": _atlanta_persons,
    "ri_2010_block_race.csv": _rhode_island,
    "us2010_vtd_race.parquet": _voting_districts,
    "nyc_taxi_medallion_pickups.csv": _taxis,
    "nyc_taxi_zone_lookup.csv": _zones,
    "us2010_block_hawaiian_national_hist.csv": _hawaiian,
}
