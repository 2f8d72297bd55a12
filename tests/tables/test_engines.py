"""The same rows on every engine: the same counts, the same refusals, and nothing leaves it but counts."""

from __future__ import annotations

import datetime
import re
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pytest

from tallytree import Hierarchy
from tallytree.tables import InputProblems, read, source
from tallytree.tables.count import truncated
from tallytree.tables.group_sizes import Options
from tallytree.tables.problems import TEXTS
from tallytree.tables.reading import groups_at_largest, rows_left_out

STATES = [("GA", "Fulton"), ("GA", "Kings"), ("NY", "Kings"), ("DC", None)]
TREE = Hierarchy.from_levels(
    {"state": [state for state, _ in STATES], "county": [county for _, county in STATES]}, ["state", "county"]
)
OPTIONS = {"group": "home", "region": ["state", "county"], "hierarchy": TREE, "max_size": 4}
BY = {"by": {"tenure": ["owned", "rented"]}, "decided_by": "group"}


def people(rows=400, homes=150):
    made = np.random.default_rng(11)
    home = made.integers(0, homes, rows)
    return pa.table(
        {
            "person": np.arange(rows),
            "home": [f"SECRET-{number}" for number in home],
            "state": [STATES[number % 4][0] for number in home],
            "county": [STATES[number % 4][1] for number in home],
            "tenure": [("owned", "rented")[number % 2] for number in home],
            "amount": made.integers(0, 3, rows),
            "share": made.integers(0, 3, rows).astype(float),
            "text": [f" {value}.0" for value in made.integers(0, 3, rows)],
            "flag": made.random(rows) < 0.5,
        }
    )


def listed(homes=150):
    return pa.table(
        {
            "home": [f"SECRET-{number}" for number in range(homes)],
            "state": [STATES[number % 4][0] for number in range(homes)],
            "county": [STATES[number % 4][1] for number in range(homes)],
        }
    )


PEOPLE, HOMES = people(), listed()


def opened(sizes):
    return sizes.counts.open_at_the_privacy_border().tolist()


WAYS = {
    "rows": {},
    "whole numbers": {"quantity": "amount", "quantity_bound": 2},
    "floating point": {"quantity": "share", "quantity_bound": 2},
    "texts": {"quantity": "text", "quantity_bound": 2},
    "true or false": {"quantity": "flag", "quantity_bound": 1},
    "bounded, by category": {"entity": "person", "rows_per_entity": 2, **BY},
    "all": {
        "groups": HOMES,
        "groups_are_public": True,
        "on_spanning_group": "split",
        "quantity": "amount",
        "quantity_bound": 2,
        "entity": "person",
    },
    "two private tables": {"groups": HOMES, "entity": "person", "rows_per_entity": 2, **BY},
}


def options_there(placed, options):
    """Options with the groups table on the engine, if it is private: such a table is not copied."""
    private = "groups" in options and "groups_are_public" not in options
    return options | ({"groups": placed(options["groups"])} if private else {})


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_the_same_counts(placed, options):
    expected = opened(read(PEOPLE, **OPTIONS, **options))
    assert opened(read(placed(PEOPLE), **OPTIONS, **options_there(placed, options))) == expected
    assert sum(map(sum, expected)) > 100


def test_the_groups_table_may_be_on_the_engine_too(placed):
    expected = opened(read(PEOPLE, **OPTIONS, groups=HOMES, groups_are_public=True))
    assert opened(read(placed(PEOPLE), **OPTIONS, groups=placed(HOMES), groups_are_public=True)) == expected
    assert opened(read(PEOPLE, **OPTIONS, groups=placed(HOMES), groups_are_public=True)) == expected


def test_the_same_rows_are_left_out(placed):
    options = Options(
        "home", ("state",), None, "error", groups_are_public=True, max_size=3, entity="amount", rows_per_entity=9
    )

    def told(rows):
        parts = [*rows_left_out(rows, options), groups_at_largest(rows, options)]
        return [(part.part, part.whole) for part in parts]

    assert told(placed(PEOPLE)) == told(PEOPLE)


def test_the_same_lots(placed):
    made = np.random.default_rng(12)
    visits = pa.table(
        {
            "who": made.integers(0, 30, 300),
            "place": [f"ß{place}" for place in made.integers(0, 40, 300)],
            "weight": made.integers(0, 3, 300),
        }
    )
    key = sha256(b"the same on all").hexdigest()

    def kept(rows):
        with source.workspace(None) as connect:
            table = source.open_source(rows, None, connect)
            rows = f"SELECT * FROM {table.table.source}"
            key_table = table.put({"hash_key": [key]}).name
            marked = truncated(rows, ["place", "weight"], 2, entity="who", key_table=key_table)
            texts = ", ".join(f"CAST({name} AS VARCHAR) AS {name}" for name in ("who", "place", "weight"))
            chosen = f"SELECT {texts} FROM ({marked}) AS given WHERE kept"
            return sorted(tuple(row.values()) for row in table.fetch("Reading", chosen, "string").to_pylist())

    found = kept(placed(visits))
    assert found == kept(visits)
    assert len(found) == 60


# ---------------------------------------------------------------- refusals


def bad_rows():
    return pa.table(
        {
            "home": ["a", None, "", "b", "c", "d", "d", "e", "f", "g", "h", "i", "j", "k"],
            "county": ["Fulton", "Fulton", "Fulton", None, "TX", "Kings", "Fulton", "", *["Fulton"] * 6],
            "person": [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, None],
            "text": ["1", "1", "1", "1", "1", "1", "1", None, "", "x1", "-2", "99", "1.5", "1e1"],
            "share": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, None, float("nan"), float("inf"), -2.0, 1e300, 1.5, 0.0],
            "amount": [1, 1, 1, 1, 1, 1, 1, None, 0, 0, -2, 2**40, 0, 0],
            "tenure": ["owned", *["rented"] * 4, "owned", "owned", None, "Rented", *["rented"] * 5],
            "day": [datetime.date(2020, 1, 1)] * 14,
        }
    )


def bad_homes():
    return pa.table(
        {
            "home": ["a", "b", "b", "c", "d", None, "e", "f"],
            "county": ["Fulton", "Fulton", "Fulton", None, "TX", "Fulton", "Kings", "GA-2"],
            "tenure": ["owned", "rented", "rented", "x", None, "owned", "owned", "owned"],
        }
    )


ROWS, LISTED = bad_rows(), bad_homes()
NONE = ROWS.slice(0, 0)
FEW = pa.table({"home": ["a", "b"], "tenure": ["owned", "rented"], "amount": [1, 0]})
BAD = {"group": "home", "region": "county", "hierarchy": TREE, "max_size": 3}
HOME = pa.table({"home": ["a", "b", "c"], "county": ["Fulton"] * 3})
SMALL = pa.table({"home": ["z", "a"], "county": ["Fulton", "Fulton"]})
REFUSALS = {
    "texts": (ROWS, {"quantity": "text", "quantity_bound": 9, "entity": "person", **BY}),
    "floating point": (ROWS, {"quantity": "share", "quantity_bound": 9, "entity": "person", "rows_per_entity": 2}),
    "whole numbers": (ROWS, {"quantity": "amount", "quantity_bound": 9, "on_spanning_group": "split"}),
    "spanning": (pa.table({"home": ["a", "a"], "county": ["Fulton", "DC"]}), {}),
    "several categories": (pa.table({**SMALL.to_pydict(), "home": ["a"] * 2, "tenure": ["owned", "rented"]}), BY),
    "groups": (ROWS, {"groups_are_public": True, "groups": LISTED, **BY}),
    "two private tables": (ROWS, {"groups": LISTED, **BY}),
    "pairs": (SMALL, {"groups_are_public": True, "groups": LISTED, "on_spanning_group": "split"}),
    "elsewhere": (SMALL, {"groups_are_public": True, "groups": pa.table({"home": ["a", "b"], "county": ["DC", "DC"]})}),
    "empty groups": (FEW, {"groups_are_public": True, "groups": HOME, "quantity": "amount", "quantity_bound": 3, **BY}),
    "no groups": (FEW, {"groups_are_public": True, "groups": HOME.slice(0, 0), "hierarchy": None}),
    "no regions": (NONE, {"hierarchy": None, "regions_are_public": True}),
    "columns": (ROWS, {"group": "house", "entity": "persons"}),
    "type": (ROWS, {"quantity": "day", "quantity_bound": 9}),
}
OF_HOUSEHOLDS = {"number_type", "unknown_value", "not_a_number", "empty_cell", "no_order", "no_household"}
OF_HOUSEHOLDS |= {"repeated_household", "unknown_household", "too_many_persons", "broken_rule"}


def refused(rows, options):
    with pytest.raises(InputProblems) as caught:
        read(rows, **(BAD | options))
    assert "SECRET" not in str(caught.value)
    return caught.value.problems


@pytest.mark.parametrize(("rows", "options"), REFUSALS.values(), ids=REFUSALS)
def test_the_same_refusals(placed, rows, options):
    there = options | ({"groups": placed(options["groups"])} if "groups" in options else {})
    assert refused(placed(rows), there) == refused(rows, options)


def test_every_problem_is_among_the_refusals():
    texts = [problem.text for rows, options in REFUSALS.values() for problem in refused(rows, options)]
    found = set()
    for kind, (_, what) in TEXTS.items():
        pattern = re.sub(r"\\{\w+(:,)?\\}", ".*", re.escape(what))
        if any(re.search(f"(^| ){pattern}$", text) for text in texts):
            found.add(kind)
    assert set(TEXTS) - found == OF_HOUSEHOLDS


# ---------------------------------------------------------------- what leaves the engine


@pytest.fixture
def received(monkeypatch):
    """All that comes back from an engine: what is fetched here, and what drivers were sent."""
    found = []

    def spied(of, name):
        real = getattr(of, name)

        def call(*given, **named):
            found.append(real(*given, **named))
            return found[-1]

        monkeypatch.setattr(of, name, call)

    spied(source.Opened, "fetch")
    psycopg = pytest.importorskip("psycopg")
    for cursor in (psycopg.Cursor, psycopg.ServerCursor):
        for name in ("fetchone", "fetchmany", "fetchall"):
            spied(cursor, name)
    for way in ("classic", "connect"):
        dataframe = pytest.importorskip(f"pyspark.sql.{way}.dataframe").DataFrame
        for name in ("collect", "toPandas", "toArrow", *(["_collect_as_arrow"] if way == "classic" else [])):
            spied(dataframe, name)
    return found


@pytest.mark.parametrize("way", ["rows", "all", "bounded, by category", "two private tables"])
def test_nothing_but_counts_by_leaf_and_size_leaves_the_engine(placed, received, way):
    rows, options = placed(PEOPLE), options_there(placed, WAYS[way])
    received.clear()
    sizes = read(rows, **OPTIONS, **options)
    tables = [each for each in received if isinstance(each, pa.Table)]
    counts = [table for table in tables if "leaf" in table.column_names]
    assert counts
    for table in tables:
        told = {"leaf", "size", "groups", "trouble", "category"}
        assert (
            table in counts and set(table.column_names) <= told
        ) or table.num_rows == 1  # a row of counts of bad rows
        assert all(pa.types.is_integer(kind) for kind in table.schema.types)
        assert table.num_rows <= (sizes.hierarchy.leaf_count + 2) * (OPTIONS["max_size"] + 1)
    assert "SECRET" not in str([each.to_pydict() if isinstance(each, pa.Table) else each for each in received])
