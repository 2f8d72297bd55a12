"""Reading groups by category: what is counted where, and each bad input with a clear error before anything is spent."""

import warnings

import numpy as np
import pyarrow as pa
import pytest

from tallytree import Categories, Category, Hierarchy, SpecError, read
from tallytree.domain.categories import AlikeValues, margins
from tallytree.tables import InputProblems
from tallytree.tables.group_sizes import Options
from tallytree.tables.reading import read_groups

TREE = Hierarchy.from_levels({"state": ["x", "x", "y"], "county": ["A", "B", "C"]}, ["state", "county"])
# group, county, tenure, origin, size
GROUPS = [(1, "A", "owned", "h", 2), (2, "A", "rented", "h", 1), (3, "B", "rented", "f", 3), (4, "C", "owned", "f", 1)]
BY = {"tenure": ["owned", "rented"]}
HOW = {"group": "home", "region": "county", "hierarchy": TREE, "max_size": 2}


def rows(groups=GROUPS, **columns):
    every = [group for group in groups for _ in range(group[4])]
    names = {"home": 0, "county": 1, "tenure": 2, "origin": 3}
    table = {name: [row[at] for row in every] for name, at in names.items()} | columns
    return pa.table({name: cells for name, cells in table.items() if cells is not None})


def listed(*names, groups=GROUPS):
    places = {"home": 0, "county": 1, "tenure": 2}
    return pa.table({name: [group[places[name]] for group in groups] for name in ("home", "county", *names)})


def counts(found):
    """Counts `[categories, counties, sizes]`."""
    sealed = found.counts.open_at_the_privacy_border()
    return sealed.reshape(len(found.hierarchy.by), 3, -1)


def problems(**change):
    with pytest.raises(InputProblems) as caught:
        read(**{"source": rows(), **HOW, "by": BY, "decided_by": "group", "groups_are_public": True, **change})
    text = str(caught.value)
    assert not any(value in text for value in ("owned", "rented", "leased"))  # values of cells are not told
    return text


def test_groups_are_counted_by_region_category_and_size():
    found = read(rows(), **HOW, by=BY, decided_by="group")
    assert found.hierarchy.levels == ("all categories", "total", "state", "county")
    assert counts(found).tolist() == [[[0, 1], [0, 0], [1, 0]], [[1, 0], [0, 1], [0, 0]]]
    assert found.leaf_totals is None


def test_two_columns_give_pairs_the_last_column_fastest():
    found = read(rows(), **HOW, by={**BY, "origin": ["h", "f"]}, decided_by={"tenure": "group", "origin": "members"})
    assert found.hierarchy.by.labels == ("owned, h", "owned, f", "rented, h", "rented, f")
    assert found.hierarchy.by.members_decide
    assert counts(found).sum(axis=(1, 2)).tolist() == [1, 1, 1, 1]


def test_a_public_list_may_have_the_categories_or_leave_them_to_the_rows():
    both = read(rows(), **HOW, by=BY, decided_by="group", groups=listed("tenure"), groups_are_public=True)
    assert both.leaf_totals.tolist() == [1, 0, 1, 1, 1, 0]
    assert both.listed_totals is None
    by_region = read(rows(), **HOW, by=BY, decided_by="group", groups=listed(), groups_are_public=True)
    assert by_region.leaf_totals is None
    assert by_region.listed_totals.tolist() == [2, 1, 1]
    assert np.array_equal(counts(both)[..., 1:], counts(by_region))
    by = Categories.of(BY, "group")
    tree, totals = read_groups(
        listed("tenure"), Options("home", ("county",), TREE, "error", groups_are_public=True, categories=by)
    )
    assert tree.by.names == ("tenure",)
    assert totals.tolist() == both.leaf_totals.tolist()


def test_unknown_and_empty_values_are_counted_or_go_to_the_stated_one():
    odd = rows([*GROUPS, (5, "A", "leased", "h", 1), (6, "A", None, "h", 2)])
    assert "3 rows have none of the 2 listed values (column 'tenure')" in problems(source=odd)
    found = read(odd, **HOW, by={"tenure": {"values": BY["tenure"], "decided_by": "group", "other": "rented"}})
    assert counts(found)[1, 0].tolist() == [2, 1]


def test_numbers_are_compared_as_text():
    codes = rows(tenure=[1, 1, 2, 2, 2, 2, 1])
    found = read(codes, **HOW, by={"tenure": [1, 2]}, decided_by="group")
    assert found.hierarchy.by.labels == ("1", "2")
    assert counts(found).sum(axis=(1, 2)).tolist() == [2, 2]


@pytest.mark.parametrize("groups", [None, listed()], ids=["without a list", "with one"])
def test_a_group_with_two_values_is_a_problem(groups):
    two = rows(tenure=["owned", "rented", "rented", "rented", "rented", "rented", "owned"])
    found = problems(source=two, groups=groups)
    assert "1 group has rows in more than one category (column 'tenure')" in found


def test_a_listed_group_without_entities_has_no_category_and_is_a_problem():
    more = listed(groups=[*GROUPS, (7, "B", "owned", "h", 0)])
    assert "1 group has no entities, so their category is unknown" in problems(groups=more)


def test_unknown_values_in_the_groups_table_are_a_problem():
    odd = listed("tenure", groups=[*GROUPS[:3], (4, "C", "leased", "f", 1)])
    assert "1 row has none of the 2 listed values in the groups table" in problems(groups=odd)


def test_a_missing_column_is_a_problem():
    assert "column 'tenure' is not in the microdata" in problems(source=rows(tenure=None))
    assert "column 'tenure' is not in the microdata" in problems(source=rows(tenure=None), groups=listed())


@pytest.mark.parametrize(
    ("by", "decided_by", "words"),
    [
        ({"tenure": ["owned"]}, "group", "has one value; expected two or more"),
        ({"tenure": []}, "group", "has no values; expected two or more"),
        ({"tenure": ["owned", ""]}, "group", "has an empty value"),
        ({"tenure": ["owned", "owned"]}, "group", "lists 'owned' twice"),
        ({"tenure": ["owned", "all"]}, "group", "has a value 'all'"),
        ({"tenure": "owned"}, "group", "expected a list of texts"),
        (BY, None, "decided_by of 'tenure' is missing; expected \"group\" if"),
        (BY, "house", "decided_by of 'tenure' is 'house'; expected"),
        (BY, {"origin": "group"}, "decided_by of 'tenure' is missing"),
        (BY, {"tenure": "group", "origin": "group"}, "decided_by names 'origin'"),
        ({"tenure": {"values": ["a", "b"], "decided_by": "group"}}, "members", "is said twice, and not alike"),
        ({"tenure": {"values": ["a", "b"], "decided": "group"}}, None, "has no 'decided'"),
        ({"tenure": {"decided_by": "group"}}, None, "has no values"),
        ({"tenure": {"values": ["a", "b"], "other": "c"}}, "group", "other = 'c' is not a value of 'tenure'"),
        ({"a": ["1", "2"], "b": ["1", "2"], "c": ["1", "2"]}, "group", "names 3 categories; expected one or two"),
        ({}, "group", "names 0 categories"),
        ([Category("tenure", ("a", "b"), "group")] * 2, None, "names the category 'tenure' twice"),
        ("tenure", "group", "expected categories with their public values"),
        ({"size": ["1", "2"]}, "group", "cannot be called 'size'"),
        ({"county": ["A", "B"]}, "group", "both name column 'county'"),
        (None, "group", "but by has none"),
    ],
)
def test_wrong_options_are_refused_with_what_was_expected(by, decided_by, words):
    with pytest.raises(SpecError) as caught:
        read(rows(), **HOW, by=by, decided_by=decided_by)
    assert words in str(caught.value)


def test_values_that_differ_in_capital_letters_or_spaces_alone_are_warned_of():
    with pytest.warns(AlikeValues, match="'Owned' and 'owned ' of 'tenure' differ only in case or spaces"):
        Category("tenure", ("Owned", "owned "), "group")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Category("tenure", ("owned", "rented"), "group")


def test_members_go_with_neither_a_list_that_has_the_category_nor_dropped_rows():
    with pytest.raises(SpecError, match="members decide cannot be in it"):
        read(rows(), **HOW, by=BY, decided_by="members", groups=listed("tenure"), groups_are_public=True)
    with pytest.raises(SpecError, match="rows_per_entity selects rows by a hash"):
        read(rows(), **HOW, by=BY, decided_by="members", entity="origin", rows_per_entity=9)


def test_more_cells_than_memory_are_refused_with_their_number():
    with pytest.raises(SpecError, match=r"there are [\d,]+ cells \(regions × categories × sizes\)"):
        read(rows(), **{**HOW, "max_size": 10**14}, by=BY, decided_by="group")


# ---------------------------------------------------------------- trees


def test_a_tree_is_by_category_once():
    tree = TREE.by_category(Categories.of(BY, "group"))
    with pytest.raises(SpecError, match="already"):
        tree.by_category(Categories.of(BY, "group"))


def test_rows_and_sums_of_a_tree_are_where_they_are_said_to_be():
    categories = Categories.of({**BY, "origin": ["h", "f", "g"]}, "group")
    tree = TREE.by_category(categories)
    for region, places in enumerate(tree.cell_rows):
        for label, place in zip(categories.labels, places, strict=True):
            assert tree.ids[place] == f"{TREE.ids[region]} [{label}]"
            above = TREE.parents[region]
            assert tree.parents[place] == (0 if above < 0 else tree.cell_rows[above][categories.labels.index(label)])
    values = np.arange(len(tree))
    sums = tree.margin_sums(values).reshape(len(margins(categories)), len(TREE))
    for margin, found in zip(margins(categories), sums, strict=True):
        assert found.tolist() == values[tree.cell_rows][:, list(margin.cells)].sum(axis=1).tolist()
