"""Rules for bad rows: each looks at one row alone, so sensitivities hold; and bad rows are found by their number."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations_with_replacement, product

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from tallytree import Hierarchy, Neighbours, SpecError, one_entity, one_group, release, verify
from tallytree.tables import InputProblems, read
from tallytree.tables.group_sizes import Options
from tallytree.tables.reading import BadRows, find_bad_rows, rows_by_rule

TREE = Hierarchy.from_levels({"state": ["A", "A", "B"], "county": ["x", "y", "z"]}, ["state", "county"])
LEAVES = {"x": 0, "y": 1, "z": 2}
K = 2
RULES = [(unknown, missing) for unknown in ("refuse", "drop", "y") for missing in ("refuse", "drop")]
HOW = {"group": "home", "region": "county", "hierarchy": TREE, "max_size": K}


def image(row, unknown, missing):
    """The row that a row counts as: a group and a leaf; None if it is dropped, and an error if it is refused."""
    home, county = row
    if (home is None and missing == "drop") or (county not in LEAVES and unknown == "drop"):
        return None
    if home is None:
        raise ValueError
    if county in LEAVES:
        return home, LEAVES[county]
    if unknown == "refuse":
        raise ValueError
    return home, LEAVES[unknown]


def slowly(rows, unknown, missing):
    """The counts [leaf, size] of rows, or None if they are refused."""
    try:
        kept = [found for row in rows if (found := image(row, unknown, missing)) is not None]
    except ValueError:
        return None
    leaves = {}
    for home, leaf in kept:
        leaves.setdefault(home, set()).add(leaf)
    if any(len(each) > 1 for each in leaves.values()):
        return None
    counts = np.zeros((3, K), dtype=int)
    for home, size in Counter(home for home, _ in kept).items():
        (leaf,) = leaves[home]
        counts[leaf, min(size, K) - 1] += 1
    return counts


def table(rows):
    homes, counties = zip(*rows, strict=True) if rows else ((), ())
    return pa.table({"home": pa.array(homes, pa.string()), "county": pa.array(counties, pa.string())})


def read_counts(rows, unknown, missing):
    try:
        found = read(table(rows), **HOW, on_unknown_region=unknown, on_missing=missing)
    except InputProblems:
        return None
    return found.counts.open_at_the_privacy_border()


CELLS = [*product(("a", "b", None), ("x", "y", "?", None))]


@pytest.mark.parametrize("rule", RULES)
def test_reading_by_a_rule_is_counting_what_each_row_becomes(rule):
    dice = random.Random(str(rule))
    for _ in range(8):
        rows = dice.choices(CELLS, k=dice.randrange(1, 7))
        rows = [row for row in rows if dice.random() < 0.3 or row[1] in LEAVES]
        slow, fast = slowly(rows, *rule), read_counts(rows, *rule)
        assert (slow is None) == (fast is None), rows
        assert slow is None or np.array_equal(slow, fast), rows


def at_least(counts):
    return counts[:, ::-1].cumsum(axis=1)[:, ::-1]


VIEWS = {"counts": lambda counts: counts, "at_least": at_least, "totals": lambda counts: counts.sum(axis=1)}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("rule", RULES)
def test_sensitivities_hold_for_all_small_tables_that_differ_in_one_row_or_one_group(rule, view):
    """Every table of up to four rows, with every row and every group taken away."""
    entity, group = (Neighbours(unit(), K, False).sensitivity(view) for unit in (one_entity, one_group))
    seen = {rows: slowly(rows, *rule) for size in range(5) for rows in combinations_with_replacement(CELLS, size)}
    steps = Counter()
    for rows, counts in seen.items():
        if counts is None:
            continue
        without = {rows[:at] + rows[at + 1 :]: entity for at in range(len(rows))}
        for home in {row[0] for row in rows} - {None}:
            without[tuple(row for row in rows if row[0] != home)] = group
        for fewer, bound in without.items():
            other = seen[fewer]
            assert other is not None  # what is accepted stays accepted without an entity or a group
            change = VIEWS[view](counts) - VIEWS[view](other)
            assert np.abs(change).sum() <= bound.l1
            assert (change**2).sum() <= bound.l2_squared
            steps[int(np.abs(change).sum())] += 1
    assert steps[0] > 0 or rule == ("refuse", "refuse")  # some rows change nothing
    assert max(steps) == group.l1


def test_a_rule_for_whole_groups_would_break_them():
    """Why there is none: one bad row would take a group of any size away."""
    rows = [("a", "x")] * 9
    kept, gone = Counter(home for home, _ in rows), Counter()
    assert kept["a"] - gone["a"] > Neighbours(one_entity(), 9, False).sensitivity("at_least").l1


def test_quantities_and_entities_that_are_missing_are_dropped_too():
    rows = pa.table(
        {
            "home": ["a", "a", "b", "b"],
            "county": ["x"] * 4,
            "person": ["1", None, "3", "4"],
            "size": pa.array([1, 1, None, 2]),
        }
    )
    how = {**HOW, "entity": "person", "quantity": "size", "quantity_bound": 2}
    with pytest.raises(InputProblems):
        read(rows, **how)
    found = read(rows, **how, on_missing="drop").counts.open_at_the_privacy_border()
    assert found.tolist() == [[1, 1], [0, 0], [0, 0]]


@pytest.mark.parametrize("rule", [{}, {"on_missing": "drop"}, {"on_unknown_region": "z"}])
def test_the_privacy_statement_repeats_the_rules(tmp_path, rule):
    private = read(table([("a", "x"), ("b", "z")]), **HOW, **rule)
    made = release(private, budget={"epsilon": 1}, unit="one_entity", intervals="none")
    made.save(tmp_path / "made")
    assert verify(tmp_path / "made").ok
    told = (tmp_path / "made" / "privacy.json").read_text()
    assert ("rows without a group are dropped" in told) == ("on_missing" in rule)
    assert ("rows without a known region are counted in 'z'" in told) == ("on_unknown_region" in rule)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"on_unknown_region": "q"}, "'q' is not a leaf"),
        ({"on_unknown_region": "A"}, "'A' is not a leaf"),
        ({"on_unknown_region": ""}, "expected refuse, drop or a region"),
        ({"on_missing": "x"}, "choose from refuse, drop"),
    ],
)
def test_wrong_rules_are_refused(rule, words):
    with pytest.raises(SpecError, match=words):
        read(table([("a", "x")]), **HOW, **rule)


def test_rows_by_rule_are_counted_for_the_data_holder():
    rows = table([("a", "x"), (None, "?"), ("b", "?"), ("c", None)])
    options = Options("home", ("county",), TREE, "error", False, on_missing="drop", on_unknown_region="y")
    found = rows_by_rule(rows, options)
    assert {name: (part.part, part.whole) for name, part in found.items()} == {
        ("on_missing", "rows"): (1, 4),
        ("on_unknown_region", "rows"): (2, 3),
    }


# -------------------------------------------------------------------- bad rows by number

BAD = pa.table(
    {
        "home": ["a", None, "c", "d", "d", "f", "g", "h"],
        "county": ["x", "x", "?", "x", "y", "", "A", "z"],
        "person": ["1", "2", "3", "4", "5", "6", "7", "1"],
        "size": ["1", "2", "x", "-1", "1", "", "9", "1"],
        "tenure": ["o", "r", "o", "o", "r", "q", "o", "o"],
    }
)
FULL = Options(
    "home", ("county",), TREE, "error", False, entity="person", quantity="size", quantity_bound=3, max_size=5
)
EXPECTED = {
    (2, "no_group"),
    (3, "unknown_region"),
    (3, "unreadable_quantity"),
    (4, "negative_quantity"),
    (4, "spanning"),
    (5, "spanning"),
    (6, "no_region"),
    (6, "no_quantity"),
    (7, "unknown_region"),
    (7, "large_quantity"),
    (1, "repeated_entity"),
    (8, "repeated_entity"),
}


def test_bad_rows_are_listed_with_the_line_of_the_file(tmp_path):
    csv.write_csv(BAD, tmp_path / "people.csv")
    parquet.write_table(BAD, tmp_path / "people.parquet")
    found = find_bad_rows(tmp_path / "people.csv", FULL)
    assert found.columns == ("file", "line", "problem")  # the first line has the names
    assert set(found.rows) == {("people.csv", row + 1, kind) for row, kind in EXPECTED}
    found = find_bad_rows(tmp_path / "people.parquet", FULL)
    assert found.columns == ("file", "row", "problem")
    assert set(found.rows) == {("people.parquet", *each) for each in EXPECTED}
    assert repr(found) == "BadRows(private)"


def test_every_kind_of_problem_that_is_counted_is_listed_as_often(tmp_path):
    csv.write_csv(BAD, tmp_path / "people.csv")
    how = {"entity": "person", "quantity": "size", "quantity_bound": 3}
    with pytest.raises(InputProblems) as caught:
        read(tmp_path / "people.csv", **(HOW | {"max_size": 5}), **how)
    listed = Counter(kind for *_, kind in find_bad_rows(tmp_path / "people.csv", FULL).rows)
    listed = dict(listed) | {"spanning": 1, "repeated_entity": 1}  # of groups and entities, not of rows
    assert sorted(listed.values()) == sorted(each.count for each in caught.value.problems)


def test_rows_are_numbered_in_the_order_of_a_large_file(tmp_path):
    number = 300_000
    homes = [str(home) for home in range(number)]
    bad = sorted(random.Random(3).sample(range(number), 50))
    counties = np.full(number, "x", dtype=object)
    counties[bad] = "?"
    csv.write_csv(pa.table({"home": homes, "county": counties}), tmp_path / "people.csv")
    options = Options("home", ("county",), TREE, "error", False)
    found = find_bad_rows(tmp_path / "people.csv", options)
    rows = tuple(("people.csv", place + 2, "unknown_region") for place in bad)
    assert found == BadRows(("file", "line", "problem"), rows)


def test_bad_rows_beside_a_list_of_groups_and_with_categories(tmp_path):
    csv.write_csv(BAD.select(["home", "county", "tenure"]), tmp_path / "people.csv")
    from tallytree.domain.categories import Categories

    by = Categories.of({"tenure": {"values": ["o", "r"], "decided_by": "group"}})
    options = Options("home", ("county",), TREE, "error", False, categories=by)
    found = {tuple(each) for _, *each in find_bad_rows(tmp_path / "people.csv", options).rows}
    assert {(5, "several_categories"), (6, "several_categories"), (7, "unknown_category")} <= found
    groups = pa.table({"home": ["a", "c", "d"], "county": ["y", "x", "x"]})
    options = Options("home", ("county",), None, "error", True)
    found = {tuple(each) for _, *each in find_bad_rows(tmp_path / "people.csv", options, groups=groups).rows}
    assert {(2, "disagreeing_region"), (6, "disagreeing_region"), (9, "unlisted_group")} <= found


def test_unknown_regions_that_belong_to_a_level_above_say_so():
    rows = table([("a", "A"), ("b", "A"), ("c", "B"), ("d", "?")])
    with pytest.raises(InputProblems, match="3 of them name a region of level 'state'"):
        read(rows, **HOW)
