"""Counting against the obvious twin, over small random microdata with every option."""

from __future__ import annotations

from collections import Counter

import ibis
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallytree import Hierarchy
from tallytree.tables import read
from tests.oracles.counting import group_size_counts

# An uneven tree: DC has no counties, and Kings stands in two states.
PATHS = [("GA", "Fulton"), ("GA", "Kings"), ("NY", "Kings"), ("NY", "Bronx"), ("DC", "")]
TREE = Hierarchy.from_levels(
    {"state": [state for state, _ in PATHS], "county": [county for _, county in PATHS]}, ["state", "county"]
)
LEAVES = [("GA", "Fulton"), ("GA", "Kings"), ("NY", "Kings"), ("NY", "Bronx"), ("DC", "")]
CODES = {path: TREE.ids[TREE.level_starts[-2] + number] for number, path in enumerate(LEAVES)}


@st.composite
def microdata(draw):
    split = draw(st.booleans())
    names = [f"g{number}" for number in range(draw(st.integers(1, 6)))]
    home = {name: draw(st.sampled_from(PATHS)) for name in names}
    rows = []
    for _ in range(draw(st.integers(1, 14))):
        name = draw(st.sampled_from(names))
        path = draw(st.sampled_from(PATHS)) if split else home[name]
        rows.append((name, path, draw(st.integers(0, 3))))
    listed = None
    if draw(st.booleans()):
        known = {(name, path) for name, path, _ in rows} if split else set(home.items())
        listed = draw(st.permutations(sorted(known)))
        if split:
            listed = [*listed, ("empty", PATHS[0]), ("empty", PATHS[4])]
    return rows, listed, split


def region_columns(paths, how):
    if how == "ids":
        return {"region": [CODES[path] for path in paths]}, "region"
    columns = {"state": [state for state, _ in paths], "county": [county or None for _, county in paths]}
    if how == "with root":
        return {"all": ["total"] * len(paths)} | columns, ["all", *columns]
    if how == "bottom up":
        return columns, ["county", "state"]
    if how == "carried":
        return columns | {"county": [county or state for state, county in paths]}, list(columns)
    return columns, list(columns)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=microdata(),
    max_size=st.integers(1, 5),
    how=st.sampled_from(["ids", "paths", "with root", "bottom up", "carried"]),
    quantities=st.sampled_from([None, "whole", "text", "float"]),
    keys=st.sampled_from(["text", "number", "mixed"]),
    in_rows=st.booleans(),
)
def test_counts_are_those_of_the_obvious_twin(data, max_size, how, quantities, keys, in_rows):
    rows, listed, split = data
    number = {name: at for at, name in enumerate(sorted({row[0] for row in rows} | {n for n, _ in listed or []}))}
    as_key = {"text": str, "number": number.get, "mixed": number.get}[keys]
    as_listed_key = (lambda name: str(number[name])) if keys == "mixed" else as_key
    columns, region = region_columns([path for _, path, _ in rows], how)
    table = {"group": [as_key(name) for name, _, _ in rows]}
    if in_rows or listed is None or split:
        table |= columns
    options = {}
    if quantities:
        kind = {"whole": pa.int16(), "text": pa.string(), "float": pa.float64()}[quantities]
        values = [str(q) if quantities == "text" else q for _, _, q in rows]
        table["quantity"] = pa.array(values, kind)
        options = {"quantity": "quantity", "quantity_bound": 3}
    groups = None
    if listed is not None:
        columns, _ = region_columns([path for _, path in listed], how)
        groups = pa.table({"group": [as_listed_key(name) for name, _ in listed]} | columns)
    sizes = read(
        pa.table(table),
        group="group",
        region=region,
        hierarchy=TREE,
        groups=groups,
        groups_are_public=True,
        max_size=max_size,
        on_spanning_group="split" if split else "error",
        **options,
    )
    weighed = [(name, path, q if quantities else 1) for name, path, q in rows]
    expected = group_size_counts(weighed, LEAVES, max_size, listed=listed, split=split)
    counts = sizes.counts.open_at_the_privacy_border()
    assert counts.tolist() == expected
    assert sizes.groups_were_split == split
    assert sizes.quantity_bound == (3 if quantities else 1)
    if listed is None:
        assert sizes.leaf_totals is None
    else:
        assert sizes.leaf_totals.tolist() == [sum(row) for row in expected]


def test_a_carried_down_leaf_is_found_by_its_own_name():
    people = pa.table({"group": [1, 1], "region": ["DC", "DC"]})
    sizes = read(people, group="group", region="region", hierarchy=TREE, max_size=3)
    assert sizes.counts.open_at_the_privacy_border().tolist() == [[0, 0, 0]] * 4 + [[0, 1, 0]]


def test_a_region_of_whole_numbers_matches_codes_without_leading_zeros():
    tree = Hierarchy.from_levels({"county": ["1001", "01001", "-5", "x"]}, ["county"])
    people = pa.table({"group": [1, 2], "county": pa.array([1001, -5], pa.int32())})
    sizes = read(people, group="group", region="county", hierarchy=tree, max_size=1)
    assert sizes.counts.open_at_the_privacy_border().tolist() == [[1], [0], [1], [0]]


def test_regions_declared_public_are_taken_from_the_rows():
    people = pa.table({"group": [1, 2], "state": ["GA", "NY"], "county": ["Fulton", None]})
    sizes = read(people, group="group", region=["state", "county"], regions_are_public=True, max_size=1)
    assert sizes.regions_declared_public
    assert sizes.hierarchy.levels == ("total", "state", "county")
    assert sizes.counts.open_at_the_privacy_border().tolist() == [[1], [1]]


def test_a_hierarchy_of_one_leaf_needs_no_region():
    tree = Hierarchy.from_levels({"nation": ["all"]}, ["nation"])
    sizes = read(pa.table({"group": [1, 1, 2]}), group="group", hierarchy=tree, max_size=2)
    assert sizes.counts.open_at_the_privacy_border().tolist() == [[1, 1]]


@pytest.mark.parametrize("bound", [1, 2, 3, 10])
def test_exactly_so_many_rows_of_each_entity_are_kept(bound):
    rows = [(f"e{entity}", f"e{entity}-{row}") for entity in range(40) for row in range(1 + entity % 6)]
    # Every row is a group of its own, in a leaf that tells how many rows its entity has.
    tree = Hierarchy.from_levels({"leaf": [str(size) for size in range(1, 7)]}, ["leaf"])
    per_entity = Counter(entity for entity, _ in rows)
    table = pa.table(
        {
            "entity": [entity for entity, _ in rows],
            "group": [group for _, group in rows],
            "leaf": [str(per_entity[entity]) for entity, _ in rows],
        }
    )
    sizes = read(
        table, group="group", region="leaf", hierarchy=tree, max_size=1, entity="entity", rows_per_entity=bound
    )
    kept = sizes.counts.open_at_the_privacy_border()[:, 0].tolist()
    entities = Counter(per_entity.values())
    assert kept == [entities[size] * min(size, bound) for size in range(1, 7)]
    assert (sizes.rows_were_bounded, sizes.rows_per_entity, sizes.entity_column) == (True, bound, True)


def test_which_rows_are_kept_is_drawn_anew_and_evenly():
    # One entity with ten rows in ten groups, of which one is kept.
    table = pa.table({"entity": ["e"] * 10, "group": range(10), "leaf": [str(row) for row in range(10)]})
    tree = Hierarchy.from_levels({"leaf": [str(row) for row in range(10)]}, ["leaf"])
    connection = ibis.duckdb.connect()
    connection.con.register("rows", table)
    source = connection.table("rows")
    seen = Counter()
    for _ in range(60):
        sizes = read(
            source, group="group", region="leaf", hierarchy=tree, max_size=1, entity="entity", rows_per_entity=1
        )
        seen[int(sizes.counts.open_at_the_privacy_border()[:, 0].argmax())] += 1
    assert len(seen) >= 8  # 60 draws of 10: fewer than 8 different ones has a chance below 1e-7
