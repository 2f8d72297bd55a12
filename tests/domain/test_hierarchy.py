import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallytree import Hierarchy, SpecError
from tests.oracles.region_paths import from_paths

STATES = {"state": ["GA", "GA", "NY"], "county": ["Fulton", "Cobb", "Kings"]}


def test_levels_become_a_breadth_first_tree_with_contiguous_children():
    tree = Hierarchy.from_levels(STATES, ["state", "county"])
    assert tree.levels == ("total", "state", "county")
    assert tree.ids == ("total", "GA", "NY", "Fulton", "Cobb", "Kings")
    assert [list(tree.children_of(region)) for region in range(6)] == [[1, 2], [3, 4], [5], [], [], []]
    assert tree.parents.tolist() == [-1, 0, 0, 1, 1, 2]


def test_a_single_name_in_the_first_column_is_the_root():
    tree = Hierarchy.from_levels({"nation": ["US", "US"], "state": ["GA", "NY"]}, ["nation", "state"])
    assert tree.ids == ("US", "GA", "NY")
    assert tree.levels == ("nation", "state")


def test_short_branches_are_carried_down_under_their_own_name():
    tree = Hierarchy.from_levels({"state": ["DC", "VA", "VA"], "county": [None, "A", "B"]}, ["state", "county"])
    assert tree.names == ("total", "DC", "VA", "DC", "A", "B")
    assert tree.ids == ("total", "DC", "VA", "DC@county", "A", "B")
    assert tree.carried.tolist() == [False, False, False, True, False, False]
    assert tree.path_of(3) == ("total", "DC")


def test_names_that_repeat_get_their_path_as_id():
    tree = Hierarchy.from_levels({"state": ["OR", "ME"], "county": ["Lincoln", "Lincoln"]}, ["state", "county"])
    assert tree.ids == ("total", "OR", "ME", "OR/Lincoln", "ME/Lincoln")


@pytest.mark.parametrize(
    "paths",
    [
        [("a", "b/c"), ("a/b", "c")],
        [("a", "x"), ("a/x", "x"), ("b", "x")],
        [("x",), ("x@county", "y")],
        [("total", "total"), ("other", "total")],
        [("p", "q"), ("p/q", "r"), ("s", "q")],
    ],
)
def test_ids_are_unique_whatever_the_names(paths):
    columns = list(zip(*[(*path, "")[:2] for path in paths], strict=True))
    tree = Hierarchy.from_levels({"state": columns[0], "county": columns[1]}, ["state", "county"])
    assert len(set(tree.ids)) == len(tree)


def test_codes_keep_their_leading_zero_from_every_format(tmp_path):
    (tmp_path / "regions.csv").write_text("state,county\n01,01001\n01,01003\n02,02013\n")
    pq.write_table(
        pa.table({"state": ["01", "01", "02"], "county": ["01001", "01003", "02013"]}), tmp_path / "r.parquet"
    )
    for path in (tmp_path / "regions.csv", str(tmp_path / "r.parquet")):
        assert Hierarchy.from_levels(path, ["state", "county"]).ids[-3:] == ("01001", "01003", "02013")


def test_from_regions_keeps_codes_as_ids_and_shows_names():
    table = {"state": ["OR", "ME"], "code": ["41041", "23015"], "label": ["Lincoln", "Lincoln"]}
    tree = Hierarchy.from_regions(table, leaf="code", levels=["state"], name="label")
    assert tree.ids == ("total", "OR", "ME", "41041", "23015")
    assert tree.names[-2:] == ("Lincoln", "Lincoln")


def test_from_edges_finds_the_root_and_names_levels():
    tree = Hierarchy.from_edges([("NY", "US"), ("GA", "US"), ("Kings", "NY")], levels=["nation", "state", "county"])
    assert tree.ids == ("US", "NY", "GA", "Kings", "GA@county")
    assert Hierarchy.from_edges([("US", None)]).ids == ("US",)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([("a", "x"), ("b", "y")], "two roots or more: x, y"),
        ([("a", "b"), ("b", "a")], "cycle"),
        ([("a", "r"), ("b", "c"), ("c", "b")], "cycle that the root does not reach: b, c"),
        ([("a", "r"), ("a", "s"), ("s", "r")], "a child has two parents: a"),
        ([("a", "r"), ("a", "r")], "edges appear more than once: a under r"),
        ([("", "r")], "empty child"),
        ([], "no edges"),
        ([("a", "b", "c")], "pairs"),
    ],
)
def test_bad_edges_are_refused_by_name(edges, message):
    with pytest.raises(SpecError, match=message):
        Hierarchy.from_edges(edges)


@pytest.mark.parametrize(
    ("table", "levels", "message"),
    [
        ({"s": ["A", "A"], "c": ["x", "x"]}, ["s", "c"], "a name appears twice within a parent: A/x"),
        ({"s": ["A", None], "c": ["x", "y"]}, ["s", "c"], "empty name in column 's'"),
        ({"s": ["A", ""], "c": ["x", ""]}, ["s", "c"], "empty"),
        ({"s": ["A", "A"], "c": ["", "y"]}, ["s", "c"], "both a leaf and a parent: A"),
        ({"s": ["A"]}, ["s", "c"], "no column c"),
        ({"s": []}, ["s"], "no rows"),
        ({"s": ["A"]}, [], "levels must be"),
        ({"s": ["A"]}, "s", "levels must be"),
        ({"s": ["A"]}, ["s", "s"], "named twice: s"),
        ({"total": ["A", "B"]}, ["total"], "give another `root`"),
    ],
)
def test_bad_region_tables_are_refused(table, levels, message):
    with pytest.raises(SpecError, match=message):
        Hierarchy.from_levels(table, levels)


def test_a_leaf_code_under_two_parents_is_refused():
    with pytest.raises(SpecError, match="two parents: 7"):
        Hierarchy.from_regions({"state": ["A", "B"], "code": ["7", "7"]}, leaf="code", levels=["state"])


def test_a_missing_or_broken_file_is_an_error_not_a_traceback(tmp_path):
    with pytest.raises(SpecError, match="no region table"):
        Hierarchy.from_levels(tmp_path / "nowhere.csv", ["state"])
    (tmp_path / "broken.parquet").write_bytes(b"not parquet")
    with pytest.raises(SpecError, match="cannot be read"):
        Hierarchy.from_levels(tmp_path / "broken.parquet", ["state"])


@given(st.lists(st.tuples(*[st.sampled_from("abc")] * 3), min_size=1, max_size=20, unique=True), st.randoms())
def test_aggregate_equals_sums_over_descendants(paths, random):
    tree = Hierarchy.from_levels(dict(zip("xyz", zip(*paths, strict=True), strict=True)), list("xyz"))
    leaves = np.array([[random.randint(-9, 9) for _ in range(4)] for _ in range(tree.leaf_count)])
    sums = tree.aggregate(leaves)
    assert sums[tree.level_slice(tree.depth - 1)].tolist() == leaves.tolist()
    for region in range(len(tree)):
        children = tree.children_of(region)
        if children:
            assert sums[region].tolist() == sums[children.start : children.stop].sum(axis=0).tolist()


@given(
    st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple), min_size=1, max_size=12, unique=True)
)
def test_layouts_survive_a_round_trip(paths):
    paths = [path for path in paths if not any(other != path and other[: len(path)] == path for other in paths)]
    padded = list(zip(*[path + ("",) * (4 - len(path)) for path in paths], strict=True))
    width = max(len(path) for path in paths)
    tree = Hierarchy.from_levels(dict(zip("wxyz", padded, strict=True)), list("wxyz")[:width])
    again = Hierarchy.from_layout(**tree.to_json())
    assert again.to_json() == tree.to_json()
    assert again.child_starts.tolist() == tree.child_starts.tolist()
    assert len(set(tree.ids)) == len(tree)
    assert tree.leaf_count == len(paths)


def test_a_wrong_layout_is_refused():
    good = Hierarchy.from_levels(STATES, ["state", "county"]).to_json()
    for change in ({"parents": [-1, 0, 0, 2, 1, 1]}, {"parents": [-1, -1, 0, 1, 1, 2]}, {"levels": ["a", "b"]}):
        with pytest.raises(SpecError):
            Hierarchy.from_layout(**{**good, **change})
    with pytest.raises(SpecError, match="appears twice: GA"):
        Hierarchy.from_layout(**{**good, "ids": ["t", "GA", "GA", "a", "b", "c"]})


def test_aggregate_refuses_wrong_shapes_and_floats():
    tree = Hierarchy.from_levels(STATES, ["state", "county"])
    with pytest.raises(ValueError, match="3 rows"):
        tree.aggregate(np.zeros((2, 4), dtype=np.int64))
    with pytest.raises(TypeError, match="integers"):
        tree.aggregate(np.zeros((3, 4)))


NAMES = st.sampled_from(["a", "b", "c", "a/b", "%", "a@b", "é"])


def leaf_paths(names):
    """Paths of one to three names, none of which begins another."""
    some = st.lists(st.lists(names, min_size=1, max_size=3).map(tuple), min_size=1, max_size=30, unique=True)
    return some.map(lambda all_: [one for one in all_ if not any(o != one and o[: len(one)] == one for o in all_)])


@given(leaf_paths(NAMES), st.booleans())
def test_columns_and_rows_lay_out_the_same_tree(rows, from_dictionary):
    """By columns, and by the oracle that looks at each row."""
    levels = ["one", "two", "three"][: max(map(len, rows))]
    cells = zip(*[(*row, "", "")[: len(levels)] for row in rows], strict=True)
    columns = {level: pa.array(each) for level, each in zip(levels, cells, strict=True)}
    if from_dictionary:  # with a text that no row has
        columns = {
            level: pa.DictionaryArray.from_arrays(cells.dictionary_encode().indices, [*cells.unique().to_pylist(), "z"])
            for level, cells in columns.items()
        }
    found, right = Hierarchy.from_levels(pa.table(columns), levels), from_paths(rows, levels, "total")
    assert found.to_json() == right.to_json()
    for name in ("level_starts", "child_starts", "parents", "carried"):
        assert np.array_equal(getattr(found, name), getattr(right, name))


@pytest.mark.parametrize("cell", [" b", "b\t", "\u2003b", "b\x1f", "b\x85"])
def test_blanks_around_names_are_dropped_as_ever(cell):
    tree = Hierarchy.from_levels({"state": ["a", cell]}, ["state"])
    assert tree.ids == ("total", "a", "b")
