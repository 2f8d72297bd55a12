"""Priors: shapes, older tables and releases, and how they are put on a hierarchy."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallytree import Budget, Categories, Hierarchy, Prior, Release, SpecError, one_entity, release
from tallytree.planning.prior import SHAPES, poisson
from tallytree.tables.group_sizes import GroupSizes, Sealed
from tests.oracles.example import made_up

TREE = Hierarchy.from_levels(
    {"state": ["A", "A", "A", "B", "B", "C"], "county": ["1", "2", "3", "4", "5", ""]}, ["state", "county"]
)
LEAVES = ["1", "2", "3", "4", "5", "C@county"]
EVERY = np.arange(6)


def fit(prior, *, first_size=1, max_size=3, tree=TREE, leaf_totals=None):
    return prior.fitted(tree, first_size=first_size, max_size=max_size, leaf_totals=leaf_totals)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("first_size", [0, 1])
def test_shapes_are_shares_whose_last_size_takes_all_larger_ones(name, first_size):
    for max_size in (1, 2, 5, 6, 7, 20, 300):
        shares = SHAPES[name](first_size, max_size)
        assert shares.shape == (max_size + 1 - first_size,)
        assert shares.min() >= 0
        assert shares.sum() == pytest.approx(1, abs=1e-12)
    if name != "uniform":
        short, long = SHAPES[name](first_size, 9), SHAPES[name](first_size, 500)
        assert short[:-1] == pytest.approx(long[: len(short) - 1], rel=1e-9)


def test_households_are_as_in_2010():
    shares = SHAPES["households"](1, 7)
    assert shares == pytest.approx(np.array([26.7, 32.8, 16.1, 13.4, 6.5, 2.6, 1.9]) / 100, abs=1e-12)


def test_made_up_counts_are_poisson():
    for mean in (0.02, 1.5, 20.0, 63.9, 64.0, 1e4):
        drawn = poisson(np.full(100_000, mean))
        deviation = math.sqrt(mean / len(drawn))
        # Bounds of six standard deviations; the variance of a sample's variance is (m + 2 m²) / n.
        assert abs(drawn.mean() - mean) < 6 * deviation + 0.01 * (mean >= 64)
        assert abs(drawn.var() - mean) < 6 * math.sqrt((mean + 2 * mean**2) / len(drawn)) + 0.1 * (mean >= 64)
        none = math.exp(-mean)
        assert abs(np.mean(drawn == 0) - none) < 6 * math.sqrt(none / len(drawn)) + 1e-9
    assert not poisson(np.zeros((3, 4))).any()


def rows_of(prior):
    older = prior.older
    cells = zip(older.region.tolist(), older.size.tolist(), older.count.tolist(), strict=True)
    return {(older.texts[region], size): count for region, size, count in cells if count}


def test_the_folder_of_a_release_says_the_same_as_the_release(tmp_path, monkeypatch):
    for place, cells in enumerate((10**6, 0)):  # with its zero cells, and without
        monkeypatch.setattr("tallytree.publish.release.table_layout.SMALL", cells)
        data = made_up(0, public_totals=True)
        made = release(data, budget=Budget(epsilon=2), unit=one_entity(), intervals="none", title="older \n <b>")
        made.save(tmp_path / str(place))
        read = Prior.of(str(tmp_path / str(place)))
        assert read.source == f"the release {place}"
        assert rows_of(read) == rows_of(Prior.of(made))


def test_the_folder_of_a_release_by_category_is_its_counts_over_all_categories(tmp_path):
    regions = Hierarchy.from_levels({"town": ["A", "B"]}, ["town"])
    tree = regions.by_category(Categories.of({"tenure": ["owned", "rented"]}, "group"))
    sizes = GroupSizes(tree, 3, Sealed(np.arange(12).reshape(4, 3)))
    made = release(sizes, budget=Budget(epsilon=50), unit=one_entity(), intervals="none")
    made.save(tmp_path / "r")
    found = fit(Prior.of(tmp_path / "r"), tree=regions)
    assert found.totals.sum() == pytest.approx(made.counts[0].sum())


def test_regions_that_look_like_formulas_are_found_again_in_the_folder(tmp_path):
    names = ["=1+1", "'=1+1", "'s-Hertogenbosch", "a\nb"]
    tree = Hierarchy.from_levels({"town": names}, ["town"])
    sizes = GroupSizes(tree, 3, Sealed(np.full((4, 3), 7)))
    made = release(sizes, budget=Budget(epsilon=2), unit=one_entity(), intervals="none")
    made.save(tmp_path / "r")
    assert rows_of(Prior.of(tmp_path / "r")) == rows_of(Prior.of(made))


def test_a_folder_that_is_no_release_or_a_damaged_one_is_a_clear_error(tmp_path):
    with pytest.raises(SpecError, match=r"without counts\.parquet"):
        Prior.of(tmp_path)
    release(made_up(0, public_totals=True), budget=Budget(epsilon=2), unit=one_entity(), intervals="none").save(
        tmp_path / "r"
    )
    whole = (tmp_path / "r" / "counts.parquet").read_bytes()
    for damage in (b"", whole[: len(whole) // 2], b"\xff\xfe{[", b"[" * 100_000):
        (tmp_path / "r" / "counts.parquet").write_bytes(damage)
        with pytest.raises(SpecError):
            Prior.of(tmp_path / "r")


def test_a_table_of_the_same_leaves_is_expected_again(tmp_path):
    rows = {
        "region": ["1", "1", "2", "3", "4", "5", "C"],
        "size": [1, 9, 2, 1, 3, 3, 1],
        "count": [4, 1, 2, 8, 5, 6, 7],
    }
    expected = [[4, 0, 1], [0, 2, 0], [8, 0, 0], [0, 0, 5], [0, 0, 6], [7, 0, 0]]
    pq.write_table(pa.table(rows), tmp_path / "old.parquet")
    text = "region,size,count\n" + "".join(f"{r},{s},{c}\n" for r, s, c in zip(*rows.values(), strict=True))
    (tmp_path / "old.csv").write_text(text)
    for source in (rows, pa.table(rows), tmp_path / "old.parquet", str(tmp_path / "old.csv")):
        found = fit(Prior.of(source))
        assert found.expected(EVERY) == pytest.approx(np.array(expected))
    # One leaf, C, is there under the name that it was carried down from.
    assert found.notes == ("1 of 6 leaves are not in the older table: filled from those above",)


def test_a_leaf_that_is_missing_takes_after_its_neighbours():
    found = fit(Prior.of({"region": ["1", "2", "4"], "size": [1, 3, 2], "count": [6, 2, 9]}))
    expected = [[6, 0, 0], [0, 0, 2], [3, 0, 1], [0, 9, 0], [0, 9, 0]]
    assert found.expected(EVERY[:5]) == pytest.approx(np.array(expected))
    # Nothing is known of C: the overall shape, and the mean of all leaves that are known.
    assert found.expected(EVERY[5:]) == pytest.approx(17 / 3 * np.array([[6, 9, 2]]) / 17)


def test_a_table_of_states_is_spread_over_counties():
    found = fit(Prior.of({"region": ["A", "B", "C"], "size": [1, 2, 3], "count": [30, 10, 5]}))
    assert found.totals.tolist() == [10, 10, 10, 5, 5, 5]
    assert found.expected(EVERY).argmax(axis=1).tolist() == [0, 0, 0, 1, 1, 2]


def test_other_regions_lend_their_shape_but_no_totals():
    prior = Prior.of({"region": ["X", "Y"], "size": [1, 2], "count": [3, 1]})
    with pytest.raises(SpecError, match="no region of the older table is in the hierarchy: say it with groups"):
        fit(prior)
    totals = np.array([4, 8, 0, 4, 4, 4])
    found = fit(prior, leaf_totals=totals)
    assert found.expected(EVERY) == pytest.approx(totals[:, None] * np.array([[0.75, 0.25, 0]]))
    assert "its overall shape is used everywhere" in " ".join(found.notes)
    assert fit(Prior.of(prior, groups=60)).totals == pytest.approx(10)


def test_groups_are_spread_evenly_or_by_weights_or_as_in_the_table():
    assert fit(Prior.of("uniform", groups=60)).totals == pytest.approx(10)
    weights = np.array([1.0, 0, 0, 0, 0, 2])
    assert fit(Prior.of("uniform", groups=60, weights=weights)).totals == pytest.approx(20 * weights)
    table = {"region": LEAVES, "size": [1] * 6, "count": [1, 2, 3, 0, 0, 0]}
    assert fit(Prior.of(table, groups=60)).totals == pytest.approx([10, 20, 30, 0, 0, 0])
    public = fit(Prior.of("uniform", groups=60), leaf_totals=np.arange(6))
    assert public.totals.tolist() == [0, 1, 2, 3, 4, 5]
    assert "public here" in public.notes[0]


def test_an_earlier_release_is_a_prior(tmp_path):
    data = made_up(3, public_totals=True)
    made = release(data, budget=Budget(epsilon=50), unit=one_entity(), title="Before")
    made.save(tmp_path / "before")
    leaves = np.arange(data.hierarchy.leaf_count)
    for source in (made, Release.load(tmp_path / "before"), tmp_path / "before", tmp_path / "before" / "counts.csv"):
        found = fit(Prior.of(source), first_size=0, max_size=6, tree=data.hierarchy)
        assert found.expected(leaves) == pytest.approx(made.counts[data.hierarchy.level_slice(2)])
    assert Prior.of(made).source == "the release 'Before'"


# -------------------------------------------------------------------- against a slow obvious twin


def slowly_fitted(rows, tree, first_size, max_size):
    """Leaf by leaf, from the definitions: (totals, shapes)."""
    listed = {}
    for region, size, count in rows:
        if size >= first_size:
            listed.setdefault(region, np.zeros(max_size + 1 - first_size))[min(size, max_size) - first_size] += count
        else:
            listed.setdefault(region, np.zeros(max_size + 1 - first_size))
    overall = sum(listed.values())
    first = int(tree.level_starts[-2])

    def leaves(region):
        return [region] if region >= first else [leaf for child in tree.children_of(region) for leaf in leaves(child)]

    def known(region):
        if tree.ids[region] in listed:
            return listed[tree.ids[region]]
        return sum((known(child) for child in tree.children_of(region)), np.zeros(max_size + 1 - first_size))

    totals, shapes = [], []
    for leaf in range(first, len(tree)):
        above = [leaf]
        while tree.parents[above[-1]] >= 0:
            above.append(int(tree.parents[above[-1]]))
        shape = next((known(region) for region in above if known(region).sum() > 0), overall)
        shapes.append(shape / shape.sum())
        if tree.ids[leaf] in listed:
            totals.append(listed[tree.ids[leaf]].sum())
            continue
        for region in above[1:]:
            have = [listed[tree.ids[one]].sum() for one in leaves(region) if tree.ids[one] in listed]
            if tree.ids[region] in listed:
                rest = listed[tree.ids[region]].sum() - sum(have)
                totals.append(max(rest, 0) / (len(leaves(region)) - len(have)))
                break
            if have:
                totals.append(sum(have) / len(have))
                break
        else:
            totals.append(None)
    return totals, shapes


cells = st.tuples(st.sampled_from(TREE.ids), st.integers(0, 5), st.integers(0, 20))


@given(st.lists(cells, min_size=1, max_size=25), st.integers(0, 1))
def test_tables_of_any_levels_are_put_on_the_tree(rows, first_size):
    if not any(size >= first_size and count for _, size, count in rows):
        return
    table = {name: [row[at] for row in rows] for at, name in enumerate(("region", "size", "count"))}
    totals, shapes = slowly_fitted(rows, TREE, first_size, 4)
    some = [total for total in totals if total is not None]
    totals = [sum(some) / len(some) if total is None else total for total in totals]
    found = fit(Prior.of(table), first_size=first_size, max_size=4)
    assert found.totals == pytest.approx(np.array(totals))
    assert found.shapes[found.shape_of] == pytest.approx(np.array(shapes))


# -------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"region": ["1"], "count": [1]}, "has no column size"),
        ({"place": ["1"], "n": [1]}, "has no column size nor count.*it has place, n"),
        ({"size": ["one"], "count": [1]}, "'size' .* holds 'one'"),
        ({"size": [1.5], "count": [1]}, "'1.5'; expected integers"),
        ({"size": [1], "count": [-3]}, "'-3'; expected numbers of at least 0"),
        ({"size": [1], "count": ["nan"]}, "'nan'"),
        ({"size": [1], "count": [0]}, "counts no group"),
        (7, "of type int"),
    ],
)
def test_wrong_tables_are_refused(table, message):
    with pytest.raises(SpecError, match=message):
        Prior.of(table)


def test_wrong_numbers_and_names_are_refused(tmp_path):
    with pytest.raises(SpecError, match="neither a shape"):
        Prior.of("housholds")
    for groups in (0, -1, 1.5, True):
        with pytest.raises(SpecError, match="integer above 0"):
            Prior.of("uniform", groups=groups)
    with pytest.raises(SpecError, match="give their number with groups"):
        Prior.of("uniform", weights=np.ones(6))
    for weights in (np.zeros(6), -np.ones(6), np.full(6, np.nan)):
        with pytest.raises(SpecError, match="not all of them 0"):
            Prior.of("uniform", groups=6, weights=weights)
    with pytest.raises(SpecError, match="expected 6 weights"):
        fit(Prior.of("uniform", groups=6, weights=np.ones(5)))
    with pytest.raises(SpecError, match=r"say it with groups = N"):
        fit(Prior.of("households"))
    with pytest.raises(SpecError, match="no group of size 1 or more"):
        fit(Prior.of({"size": [0], "count": [5]}))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(SpecError, match="cannot be read"):
        Prior.of(tmp_path / "broken.parquet")
