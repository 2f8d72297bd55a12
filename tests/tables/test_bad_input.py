"""Every bad input has its own line in the one error that is raised, with its count and how to fix it."""

from __future__ import annotations

import datetime
import pickle
from string import Formatter

import pyarrow as pa
import pytest

from tallytree import DataError, Hierarchy, SpecError
from tallytree.tables import InputProblems, check, read
from tallytree.tables.problems import TEXTS

TREE = Hierarchy.from_levels(
    {"state": ["GA", "GA", "NY", "NY"], "county": ["Fulton", "Kings", "Kings", "Bronx"]}, ["state", "county"]
)
STATES = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
HOMES = {"home": ["a", "b", "c"], "state": ["GA", "GA", "NY"]}


def problems_of(rows, *, groups=None, region="state", hierarchy=STATES, **options):
    with pytest.raises(InputProblems) as caught:
        read(
            pa.table(rows),
            group="home",
            region=region,
            hierarchy=hierarchy,
            groups=None if groups is None else pa.table(groups),
            groups_are_public=groups is not None,
            max_size=3,
            **options,
        )
    assert "data holder's eyes only" in str(caught.value)
    for problem in caught.value.problems:
        assert problem.text in str(caught.value)
    return {problem.text: problem.count for problem in caught.value.problems}


def only(problems, count, *words):
    assert list(problems.values()) == [count]
    (text,) = problems
    for word in words:
        assert word in text
    return text


# ---------------------------------------------------------------- the microdata


def test_missing_columns_of_both_tables_are_named_together():
    found = problems_of({"x": [1]}, groups={"y": [1]}, quantity="amount", quantity_bound=1, entity="person")
    assert list(found.values()) == [3, 2]
    first, second = found
    assert "'home', 'amount', 'person' are not in the microdata" in first
    assert "'home', 'state' are not in the groups table" in second


def test_one_of_two_region_columns_alone_is_a_missing_column():
    found = problems_of(
        {"home": ["a"], "state": ["GA"]},
        groups={"home": ["a"], "state": ["GA"], "county": ["Fulton"]},
        region=["state", "county"],
        hierarchy=TREE,
    )
    only(found, 1, "'county' is not in the microdata")


def test_rows_without_a_group():
    found = problems_of({"home": ["a", None, None, ""], "state": ["GA"] * 4})
    assert only(found, 3) == "3 rows have no group (column 'home'): fill it in or drop them"


def test_rows_without_a_region():
    found = problems_of({"home": ["a", "b", "c"], "state": ["GA", None, ""]})
    assert only(found, 2) == "2 rows have no region (column 'state'): fill it in or drop them"


def test_rows_without_a_region_in_several_columns():
    rows = {"home": ["a", "b"], "state": ["GA", None], "county": ["Fulton", None]}
    found = problems_of(rows, region=["state", "county"], hierarchy=TREE)
    only(found, 1, "1 row has no region (columns 'state', 'county')")


def test_groups_in_two_leaves():
    found = problems_of({"home": ["a", "a", "b"], "state": ["GA", "NY", "NY"]})
    only(found, 1, "1 group lies in more than one leaf region", 'on_spanning_group = "split"')


def test_regions_not_in_the_hierarchy():
    found = problems_of({"home": ["a", "a", "b"], "state": ["GA", "TX", "TX"]})
    only(found, 2, "2 rows are in a region that is not a leaf", "column 'state'")


def test_an_inner_region_is_not_a_leaf():
    found = problems_of({"home": ["a"], "place": ["GA"]}, region="place", hierarchy=TREE)
    only(found, 1, "not a leaf of the hierarchy")


def test_codes_that_lost_their_zero_get_a_hint():
    counties = Hierarchy.from_levels({"county": ["01001", "01003"]}, ["county"])
    found = problems_of({"home": ["a"], "county": [1001]}, region="county", hierarchy=counties)
    only(found, 1, "begin with 0: read it as text")


def test_ambiguous_names():
    found = problems_of(
        {"home": ["a", "b", "c"], "county": ["Kings", "Kings", "Bronx"]}, region="county", hierarchy=TREE
    )
    only(found, 2, "2 rows name a region name that several leaves have", "one column per level")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pa.array([1, -1, -7]), "2 rows have a negative quantity"),
        (pa.array([1.0, 1.5, 0.25]), "2 rows have a fractional quantity"),
        (pa.array(["1", "SECRET", "12x"]), "2 rows have a quantity that is not a number"),
        (pa.array([5, 6, 7]), "2 rows have a quantity above quantity_bound = 5"),
        (pa.array([1, None, None]), "2 rows have no quantity"),
        (pa.array(["1", None, ""]), "2 rows have no quantity"),
        (pa.array([1.0, None, None]), "2 rows have no quantity"),
        (pa.array([1.0, float("nan"), float("inf")]), "2 rows have a quantity that is not a number"),
        (pa.array([1.0, 1e30, 1e300]), "2 rows have a quantity above"),
        (pa.array(["3", "-2", "-0.5"]), "2 rows have a negative quantity"),
    ],
)
def test_bad_quantities(values, words):
    rows = {"home": ["a", "b", "c"], "state": ["GA", "GA", "NY"], "amount": values}
    found = problems_of(rows, quantity="amount", quantity_bound=5)
    only(found, 2, words, "column 'amount'")


def test_every_bad_quantity_is_counted_once_under_one_heading():
    rows = {
        "home": list("abcdefg"),
        "state": ["GA"] * 7,
        "amount": ["1", "SECRET", "-1.5", "99.5", "1.5", None, "nan"],
    }
    found = problems_of(rows, quantity="amount", quantity_bound=5)
    assert list(found.values()) == [1, 2, 1, 1, 1]


def test_a_quantity_of_dates_is_refused_by_its_type():
    day = datetime.date(2020, 1, 1)
    found = problems_of({"home": ["a"], "state": ["GA"], "day": [day]}, quantity="day", quantity_bound=1)
    only(found, 1, "column 'day' has type date")


def test_entities_that_are_not_unique():
    rows = {"home": list("abcd"), "state": ["GA"] * 4, "person": [1, 1, 1, 2]}
    found = problems_of(rows, entity="person")
    only(found, 1, "1 entity has more than one row", "rows_per_entity")


@pytest.mark.parametrize("bound", [None, 2])
def test_rows_without_an_entity(bound):
    rows = {"home": list("abcd"), "state": ["GA"] * 4, "person": ["x", "", None, "y"]}
    found = problems_of(rows, entity="person", rows_per_entity=bound)
    only(found, 2, "2 rows have no entity (column 'person')")


def test_bounded_rows_are_checked_before_any_is_dropped():
    rows = {"home": list("abcd"), "state": ["GA", "TX", "TX", "TX"], "person": [1] * 4}
    for _ in range(5):
        only(problems_of(rows, entity="person", rows_per_entity=1), 3, "not a leaf")


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.null()])
def test_no_rows_are_a_valid_table_of_zeros(kind):
    rows = pa.table({name: pa.array([], kind) for name in ("home", "state", "person")})
    for options in (
        {},
        {"entity": "person"},
        {"entity": "person", "rows_per_entity": 2},
        {"on_spanning_group": "split"},
    ):
        counts = read(
            rows, group="home", region="state", hierarchy=STATES, max_size=3, **options
        ).counts.open_at_the_privacy_border()
        assert counts.sum() == 0
    sizes = read(
        rows, group="home", region="state", hierarchy=STATES, max_size=3, groups=pa.table(HOMES), groups_are_public=True
    )
    assert sizes.counts.open_at_the_privacy_border()[:, 0].tolist() == sizes.leaf_totals.tolist()
    assert sizes.leaf_totals.sum() == len(HOMES["home"])


def test_no_rows_have_no_regions_to_take():
    rows = {"home": pa.array([], pa.string()), "state": pa.array([], pa.string())}
    only(problems_of(rows, hierarchy=None, regions_are_public=True), 0, "no rows, and so no regions")


# ---------------------------------------------------------------- the groups table


def test_rows_whose_group_is_not_listed():
    found = problems_of({"home": ["a", "z", "z"]}, groups=HOMES)
    only(found, 2, "2 rows have a group that is not in the groups table (column 'home')")


def test_rows_whose_region_disagrees():
    found = problems_of({"home": ["a", "a", "c"], "state": ["GA", "NY", "NY"]}, groups=HOMES)
    only(found, 1, "1 row lies in another region than the groups table says")


def test_pairs_that_are_not_listed():
    found = problems_of({"home": ["a", "a", "c"], "state": ["GA", "NY", "NY"]}, groups=HOMES, on_spanning_group="split")
    only(found, 1, "1 row has a (group, region) pair that is not in the groups table")


def test_split_needs_the_region_in_the_microdata():
    found = problems_of({"home": ["a"]}, groups=HOMES, on_spanning_group="split")
    only(found, 1, "'state' is not in the microdata")


def test_groups_listed_twice():
    found = problems_of({"home": ["a"]}, groups={"home": ["a", "b", "b"], "state": ["GA", "GA", "NY"]})
    only(found, 1, "1 group appears more than once in the groups table")


def test_pairs_listed_twice():
    found = problems_of(
        {"home": ["b"], "state": ["GA"]},
        groups={"home": ["b", "b", "b"], "state": ["GA", "GA", "NY"]},
        on_spanning_group="split",
    )
    only(found, 1, "1 (group, region) pair appears more than once in the groups table")


def test_listed_groups_without_name():
    found = problems_of({"home": ["a"]}, groups={"home": ["a", None], "state": ["GA", "GA"]})
    only(found, 1, "1 row has no group in the groups table")


def test_listed_groups_without_region():
    found = problems_of({"home": ["a"]}, groups={"home": ["a", "b"], "state": ["GA", None]})
    only(found, 1, "1 row has no region in the groups table")


def test_listed_groups_in_unknown_regions():
    found = problems_of({"home": ["a"]}, groups={"home": ["a", "b"], "state": ["GA", "TX"]})
    only(found, 1, "1 row is in a region that is not a leaf of the hierarchy in the groups table")


def test_listed_groups_in_ambiguous_regions():
    found = problems_of({"home": ["a"]}, groups={"home": ["a"], "county": ["Kings"]}, region="county", hierarchy=TREE)
    only(found, 1, "1 row names a region name that several leaves have in the groups table")


def test_an_empty_groups_table():
    empty = {"home": pa.array([], pa.string()), "state": pa.array([], pa.string())}
    found = problems_of({"home": ["a"]}, groups=empty, hierarchy=None)
    only(found, 0, "the groups table has no rows")


# ---------------------------------------------------------------- all at once


def test_all_problems_are_reported_together():
    rows = {
        "home": ["a", None, "b", "c", "d", "d", "e"],
        "state": ["GA", "GA", None, "TX", "GA", "NY", "GA"],
        "amount": [1, 1, 1, 1, -1, 99, None],
        "person": [1, 1, 2, 3, 4, 5, None],
    }
    found = problems_of(rows, quantity="amount", quantity_bound=5, entity="person")
    assert len(found) == 9
    assert set(found.values()) == {1}


def test_problems_of_rows_and_of_the_groups_table_are_reported_together():
    found = problems_of(
        {"home": ["a", "c", "z", None], "state": ["GA", "GA", "GA", "GA"]},
        groups={"home": ["a", "b", "b", "c", None], "state": ["GA", "GA", "GA", "NY", "TX"]},
    )
    assert len(found) == 6


def test_check_raises_the_same_and_returns_nothing():
    options = {"group": "home", "region": "state", "hierarchy": STATES, "max_size": 3}
    assert check(pa.table({"home": ["a"], "state": ["GA"]}), **options) is None
    with pytest.raises(InputProblems, match="1 row has no region"):
        check(pa.table({"home": ["a"], "state": pa.array([None], pa.string())}), **options)


def test_the_texts_have_room_for_public_words_alone():
    public = {"column", "columns", "table", "type", "group", "region", "quantity", "entity", "bound", "listed", "hint"}
    public |= {"where", "values", "rule"}  # how many values of a category are listed; what a rule of the schema says
    for who, what in TEXTS.values():
        assert {field for _, field, _, _ in Formatter().parse(f"{who} {what}") if field} <= public


def test_the_error_survives_pickling_for_workers():
    found = InputProblems([])
    again = pickle.loads(pickle.dumps(found))  # noqa: S301
    assert isinstance(again, DataError)
    assert again.problems == ()


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_size": 0}, "max_size=0; expected an integer"),
        ({"max_size": True}, "max_size=True"),
        ({"max_size": 2.0}, "max_size=2.0"),
        ({"quantity": "amount"}, "quantity and quantity_bound need each other"),
        ({"quantity_bound": 3}, "quantity and quantity_bound need each other"),
        ({"quantity": "amount", "quantity_bound": 0}, "quantity_bound=0"),
        ({"rows_per_entity": 2}, "rows_per_entity needs entity"),
        ({"entity": "person", "rows_per_entity": 0}, "rows_per_entity=0"),
        ({"on_spanning_group": "drop"}, "choose from error, split"),
        ({"region": "home"}, "group and region\\[0\\] both name column 'home'"),
        ({"region": ["state", "state"]}, "both name column 'state'"),
        ({"region": []}, "region is an empty list"),
        ({"region": None}, "region is missing"),
        ({"region": 7}, "region is 7; expected a column"),
        ({"region": ["a", "b", "c"]}, "region names 3 columns, but the hierarchy has the levels"),
        ({"group": 3}, "group is 3; expected the name of a column"),
        ({"hierarchy": None}, "hierarchy is missing.*only resident.*set regions_are_public"),
        ({"hierarchy": {"GA": 1}}, "expected a tallytree.Hierarchy"),
        ({"table": "people"}, "names a table of a DuckDB file"),
        ({"source": 5}, "source is of type int; expected a path"),
        ({"source": []}, "empty list"),
        ({"source": "nowhere-*.parquet"}, "no file matches nowhere"),
        ({"groups": "nowhere.csv", "groups_are_public": True}, "groups: no file matches"),
    ],
)
def test_wrong_options_are_refused_with_what_was_expected(change, words):
    options = {
        "source": pa.table({"home": ["a"], "state": ["GA"], "a": [1], "b": [1], "c": [1]}),
        "group": "home",
        "region": "state",
        "hierarchy": STATES,
        "max_size": 3,
    } | change
    with pytest.raises(SpecError, match=words):
        read(options.pop("source"), **options)


def test_files_of_unknown_or_several_kinds_are_refused(tmp_path):
    for name in ("people.pdf", "people.csv", "people.parquet"):
        (tmp_path / name).write_text("home,state\n")
    options = {"group": "home", "region": "state", "hierarchy": STATES, "max_size": 3}
    with pytest.raises(SpecError, match=r"unknown kind; expected one of \.parquet"):
        read(tmp_path / "people.pdf", **options)
    with pytest.raises(SpecError, match="several kinds"):
        read([tmp_path / "people.csv", tmp_path / "people.parquet"], **options)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecError, match=r"no file matches .*empty.*\.parquet"):
        read(tmp_path / "empty", **options)
    with pytest.raises(SpecError, match="is not a file"):
        read(f"{tmp_path}/emp*", **options)


def test_more_cells_than_memory_holds_are_refused_before_anything_is_read(tmp_path):
    (tmp_path / "people.csv").write_bytes(b"\xff\x00")
    tree = Hierarchy.from_levels({"county": ["1", "2"]}, ["county"])
    with pytest.raises(SpecError, match=r"30,000,000,000,003 cells .* GB of memory.* smaller max_size"):
        read(tmp_path / "people.csv", group="home", region="county", hierarchy=tree, max_size=10**13)
