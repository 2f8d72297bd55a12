"""Two private tables, of persons and of households: counts, neighbours, problems and bad rows."""

from __future__ import annotations

import secrets
from collections import Counter
from functools import cache
from hashlib import sha256
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from tallytree import Hierarchy, Neighbours, SpecError, one_entity, one_group, read
from tallytree.tables import InputProblems
from tallytree.tables.group_sizes import Options
from tallytree.tables.reading import BadRows, find_bad_rows, rows_by_rule

TREE = Hierarchy.from_levels({"state": ["A", "A", "B"], "county": ["x", "y", "z"]}, ["state", "county"])
HOW = {"group": "home", "region": "county", "hierarchy": TREE, "max_size": 3}
BY = {"by": {"tenure": ["owned", "rented"]}, "decided_by": "group"}


def table(names, rows):
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return pa.table({name: pa.array(cells, pa.string()) for name, cells in zip(names, columns, strict=True)})


def homes(*rows):
    return table(("home", "county"), rows)


def persons(*groups):
    return table(("home",), [(group,) for group in groups])


def opened(sizes):
    return sizes.counts.open_at_the_privacy_border()


# -------------------------------------------------------------------- what is counted


def made_up(number=300):
    """Persons with everything in their own rows, and the same in two tables; some households have nobody."""
    made = np.random.default_rng(5)
    region, tenure = made.integers(0, 3, number), made.integers(0, 2, number)
    home = np.repeat(np.arange(number), made.integers(0, 6, number))
    own = {
        "home": [f"{place:04d}" for place in home],
        "person": [f"{place}" for place in range(len(home))],
        "amount": made.integers(0, 3, len(home)),
    }
    places, tenures = np.array(["x", "y", "z"])[region], np.array(["owned", "rented"])[tenure]
    listed = {"home": [f"{place:04d}" for place in range(number)], "county": places, "tenure": tenures}
    return pa.table({**own, "county": places[home], "tenure": tenures[home]}), pa.table(own), pa.table(listed)


ONE, PERSONS, HOMES = made_up()
WAYS = {
    "rows": {},
    "persons": {"entity": "person"},
    "quantities": {"quantity": "amount", "quantity_bound": 2},
    "categories": BY,
    "categories of persons' rows": BY,
    "bounded": {"entity": "person", "rows_per_entity": 2, **BY},
}


@pytest.mark.parametrize("way", WAYS)
def test_two_tables_count_as_one_table_with_everything_in_the_rows(way):
    listed, rows = HOMES, PERSONS
    if way == "categories of persons' rows":
        listed, rows = HOMES.drop(["tenure"]), ONE.drop(["county"])
    one, two = read(ONE, **HOW, **WAYS[way]), read(rows, **HOW, groups=listed, **WAYS[way])
    assert np.array_equal(opened(one), opened(two))
    assert opened(two).sum() > 200
    for unit in (one_entity(), one_group()):
        if way != "bounded" or unit == one_entity():
            assert Neighbours.of(one, unit) == Neighbours.of(two, unit)
    assert (two.leaf_totals, two.listed_totals, two.first_size) == (None, None, 1)


def test_pairs_of_households_and_regions_may_have_a_table_too():
    rows = table(("home", "county"), [("a", "x"), ("a", "y"), ("a", "y"), ("b", "z")])
    listed = homes(("a", "x"), ("a", "y"), ("b", "z"), ("b", "x"))
    found = read(rows, **HOW, groups=listed, on_spanning_group="split")
    assert opened(found).tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0]]


def test_empty_tables_give_zeros():
    assert not opened(read(persons(), **HOW, groups=homes())).any()
    assert not opened(read(persons(), **HOW, groups=homes(("a", "x")))).any()


def test_the_regions_of_a_private_table_are_not_the_hierarchy_unless_they_are_public():
    listed, how = homes(("a", "x"), ("b", "z")), HOW | {"hierarchy": None}
    with pytest.raises(SpecError, match="hierarchy is missing"):
        read(persons("a"), **how, groups=listed)
    found = read(persons("a"), **how, groups=listed, regions_are_public=True)
    assert found.regions_declared_public
    assert opened(found).tolist() == [[1, 0, 0], [0, 0, 0]]


def test_the_digest_is_of_both_files(tmp_path):
    digests = set()
    for number, listed in enumerate([homes(("a", "x")), homes(("a", "y"))]):
        for name, rows in (("persons.csv", persons("a")), ("homes.csv", listed)):
            csv.write_csv(rows, tmp_path / name)
        found = read(tmp_path / "persons.csv", **HOW, groups=tmp_path / "homes.csv")
        digests.add(found.fingerprint())
        assert len(digests) == number + 1
    assert read(tmp_path / "persons.csv", **HOW, groups=homes(("a", "x"))).fingerprint() is None


# -------------------------------------------------------------------- neighbours
# All small data sets are read at once: each is a world with two leaves of its own.

K = 2
ABSENT = (None, 0)


def read_worlds(worlds, **options):
    """The counts `[worlds, 2 leaves, K]` of worlds that say where each household is and how many persons it has.

    The region "?" is not in the hierarchy.
    """
    leaves = [f"{number} {place}" for number in range(len(worlds)) for place in "xy"]
    listed, rows = [], []
    for number, world in enumerate(worlds):
        for home, (place, size) in zip("ab", world, strict=True):
            listed += [(f"{number} {home}", f"{number} {place}")] if place is not None else []
            rows += [f"{number} {home}"] * size
    tree = Hierarchy.from_levels({"county": leaves}, ["county"])
    how = {"group": "home", "region": "county", "hierarchy": tree, "max_size": K}
    return opened(read(persons(*rows), **how, groups=homes(*listed), **options)).reshape(len(worlds), 2, K)


@cache
def states(places):
    return (ABSENT, *product(places, range(K + 2)))


def entity_neighbours(state):
    """What a household may be after one of its persons left.

    The household's row may go with its last person. A row without persons may come and go by itself.
    """
    place, size = state
    if size:
        yield place, size - 1
    if size <= 1 and place is not None:
        yield ABSENT


def group_neighbours(state, places):
    """What a household may be if it is replaced in its region, or taken away with its row and all its persons."""
    place, _ = state
    if place is not None:
        yield ABSENT
        yield from ((place, size) for size in range(K + 2))


VIEWS = {
    "counts": lambda counts: counts,
    "at_least": lambda counts: counts[..., ::-1].cumsum(axis=-1)[..., ::-1],
    "totals": lambda counts: counts.sum(axis=-1, keepdims=True),
    "entities": lambda counts: (counts * np.arange(1, K + 1)).sum(axis=-1, keepdims=True),
}


@pytest.mark.parametrize("unit", [one_entity(), one_group()], ids=["one_entity", "one_group"])
@pytest.mark.parametrize("rule", ["refuse", "drop"])
def test_sensitivities_are_the_exact_maxima_over_all_small_neighbouring_pairs_of_tables(unit, rule):
    places = "xy" if rule == "refuse" else "xy?"
    worlds = [*product(states(places), repeat=2)]
    number = {world: at for at, world in enumerate(worlds)}
    pairs = []
    for a, b in worlds:
        others = entity_neighbours(a) if unit == one_entity() else group_neighbours(a, places)
        pairs += [(number[a, b], number[other, b]) for other in others]
    counts = read_worlds(worlds, on_unknown_region=rule)
    one, other = np.array(pairs).T
    relation = Neighbours(unit, K, public_totals=False)
    for view, of in VIEWS.items():
        change = (of(counts[one]) - of(counts[other])).reshape(len(pairs), -1)
        stated = relation.sensitivity(view)
        assert np.abs(change).sum(axis=1).max() == stated.l1
        assert (change**2).sum(axis=1).max() == stated.l2_squared


@pytest.mark.parametrize("bound", [1, 2])
def test_a_bound_on_the_rows_of_a_person_holds_with_two_tables_under_each_key(monkeypatch, bound):
    """Person e, who may be in both households, leaves; a household whose last person left may lose its row."""
    worlds, pairs = [], []
    for e, f, place in product(product(range(3), repeat=2), product(range(2), repeat=2), "xy"):
        with_e = [("e", e), ("f", f)]
        rows = [(who, home) for who, each in with_e for home, size in zip("ab", each, strict=True) for _ in range(size)]
        rest = [row for row in rows if row[0] != "e"]
        kept = {home for _, home in rest}
        for listed in ("ab", "".join(sorted(kept))):
            pairs.append((len(worlds), len(worlds) + 1))
            worlds += [(rows, dict.fromkeys("ab", place)), (rest, dict.fromkeys(listed, place))]
    names = [f"{number}" for number in range(len(worlds))]
    rows = [(f"{at} {who}", f"{at} {home}") for at, (rows, _) in zip(names, worlds, strict=True) for who, home in rows]
    listed = [(f"{at} {home}", f"{at} {place}") for at, (_, each) in zip(names, worlds, strict=True)
              for home, place in each.items()]  # fmt: skip
    tree = Hierarchy.from_levels({"county": [f"{at} {place}" for at in names for place in "xy"]}, ["county"])
    how = {"group": "home", "region": "county", "hierarchy": tree, "max_size": K, "entity": "who"}
    one, other = np.array(pairs).T
    worst = dict.fromkeys(VIEWS, 0)
    for key in range(4):
        monkeypatch.setattr(secrets, "token_hex", lambda size, key=key: sha256(bytes([key])).hexdigest())
        found = read(table(("who", "home"), rows), **how, groups=homes(*listed), rows_per_entity=bound)
        counts = opened(found).reshape(len(worlds), 2, K)
        relation = Neighbours.of(found, one_entity())
        for view, of in VIEWS.items():
            change = np.abs(of(counts[one]) - of(counts[other])).reshape(len(pairs), -1)
            worst[view] = max(worst[view], int(change.sum(axis=1).max()))
            assert (change**2).sum(axis=1).max() <= relation.sensitivity(view).l2_squared
    assert worst == {view: relation.sensitivity(view).l1 for view in VIEWS}


# -------------------------------------------------------------------- problems

BAD_HOMES = homes(("a", "x"), ("b", "y"), ("b", "y"), ("c", "?"), (None, "z"), ("e", None), ("f", "z"))
BAD_PERSONS = persons("a", None, "b", "q", "q", "c", "e", "f")
EXPECTED = {
    ("persons.csv", 3, "no_group"),
    ("persons.csv", 5, "unlisted_group"),
    ("persons.csv", 6, "unlisted_group"),
    ("homes.csv", 3, "repeated_group"),
    ("homes.csv", 4, "repeated_group"),
    ("homes.csv", 5, "unknown_region"),
    ("homes.csv", 6, "no_group"),
    ("homes.csv", 7, "no_region"),
}


@pytest.fixture
def files(tmp_path):
    for name, rows in (("persons.csv", BAD_PERSONS), ("homes.csv", BAD_HOMES)):
        csv.write_csv(rows, tmp_path / name)
    return tmp_path / "persons.csv", tmp_path / "homes.csv"


def test_every_problem_of_both_files_is_counted_and_listed_by_line(files):
    rows, listed = files
    with pytest.raises(InputProblems) as caught:
        read(rows, **HOW, groups=listed)
    found = find_bad_rows(rows, Options("home", ("county",), TREE, "error", False, max_size=3), groups=listed)
    assert found == BadRows(("file", "line", "problem"), tuple(sorted(EXPECTED, key=order)))
    counts = Counter((file, kind) for file, _, kind in found.rows)
    counts["homes.csv", "repeated_group"] = 1  # a household that is listed twice is one problem, in two lines
    assert sorted(counts.values()) == sorted(problem.count for problem in caught.value.problems)
    assert "keep one row per group" in str(caught.value)
    assert "group that is not in the groups table" in str(caught.value)


def order(row):
    return row[0] != "persons.csv", *row[1:]


@pytest.mark.parametrize(
    ("rows", "listed"),
    [
        (persons("q"), homes(("a", "x"))),  # of no household
        (persons("a"), homes(("a", "x"), ("a", "x"))),
        (persons("a"), homes(("a", "x"), ("b", "y"), ("b", "z"))),  # nobody lives there
        (persons("a", None), homes(("a", "x"))),
        (persons("a"), homes(("a", "x"), (None, "x"))),
        (persons("a"), homes(("a", "x"), ("b", "?"))),
        (persons("a"), homes(("a", None))),
    ],
)
def test_the_query_that_counts_refuses_each_problem(rows, listed):
    with pytest.raises(InputProblems) as caught:
        read(rows, **HOW, groups=listed)
    assert len(caught.value.problems) == 1


def test_a_region_in_both_tables_has_to_agree():
    rows = table(("home", "county"), [("a", "x"), ("b", "y")])
    with pytest.raises(InputProblems, match="1 row lies in another region than the groups table says"):
        read(rows, **HOW, groups=homes(("a", "x"), ("b", "z")))


RULES = {"on_missing": "drop", "on_unknown_region": "drop"}


def test_rules_handle_bad_rows_of_both_tables():
    rows, listed = persons("a", None, "c", "e", "f", "f"), homes(*map(tuple, zip(*[
        ["a", "c", None, "e", "f"], ["x", "?", "z", None, "z"]], strict=True)))  # fmt: skip
    assert opened(read(rows, **HOW, **RULES, groups=listed)).tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]
    moved = read(rows, **HOW, **(RULES | {"on_unknown_region": "y"}), groups=listed)
    assert opened(moved).tolist() == [[1, 0, 0], [2, 0, 0], [0, 1, 0]]
    options = Options("home", ("county",), TREE, "error", False, **RULES)
    found = rows_by_rule(rows, options, groups=listed)
    assert {key: (part.part, part.whole) for key, part in found.items()} == {
        ("on_missing", "rows"): (1, 6),
        ("on_missing", "groups"): (1, 5),
        ("on_unknown_region", "groups"): (2, 4),
    }


def test_a_household_that_a_rule_drops_is_still_checked():
    """An entity's rows are merged into one household. If that is dropped, the other household must not count alone."""
    rows = table(("who", "home"), [("1", "a"), ("1", "b")])
    with pytest.raises(InputProblems, match="1 entity has more than one row"):
        read(rows, **HOW, **RULES, entity="who", groups=homes(("a", "x"), ("b", "?")))
    with pytest.raises(InputProblems, match="more than once"):
        read(persons("a"), **HOW, **RULES, groups=homes(("a", "x"), ("a", "?")))


@pytest.mark.parametrize("rule", ["drop", "y"])
def test_a_public_list_has_no_bad_rows_to_drop(rule):
    with pytest.raises(InputProblems, match="not a leaf of the hierarchy in the groups table"):
        read(persons("a"), **HOW, on_unknown_region=rule, groups=homes(("a", "?")), groups_are_public=True)


def test_a_private_table_is_not_copied_to_another_engine(tmp_path):
    import ibis

    there = ibis.duckdb.connect()
    there.con.register("homes", HOMES)
    with pytest.raises(SpecError, match="on another engine than the rows"):
        read(PERSONS, **HOW, groups=there.table("homes"))
    assert read(PERSONS, **HOW, groups=there.table("homes"), groups_are_public=True).leaf_totals.sum() == 300
