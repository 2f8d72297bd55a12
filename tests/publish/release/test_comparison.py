"""Changes between two releases, from public values alone: symmetric, comparable, and with the promised error rates."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tallytree as tt
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.changes import FLAGS
from tallytree.estimate.intervals.linear import LinearSum, MeasuredView
from tallytree.publish.release.comparability import check_comparable
from tallytree.publish.release.comparison import Comparison
from tallytree.publish.release.region_pairs import Pairing
from tallytree.tables import GroupSizes, Sealed
from tests.estimate.intervals.test_linear import sum_of
from tests.oracles.example import made_up
from tests.oracles.trees import random_tree
from tests.publish.release.test_categories import KINDS, MORE, group_sizes

RUN = {"budget": tt.Budget(epsilon=1), "unit": "one_entity", "intervals": "none"}


def released(seed, *, public=False, max_size=6, **options):
    return tt.release(made_up(seed, public_totals=public, max_size=max_size), **{**RUN, **options})


def of_counts(counts, tree, epsilon=1, **options):
    data = GroupSizes(tree, counts.shape[1], Sealed(counts), leaf_totals=None)
    return tt.release(data, **{**RUN, "budget": tt.Budget(epsilon=epsilon), **options})


def rows(comparison, **having):
    return [row for row in comparison.rows.to_pylist() if all(row[name] == value for name, value in having.items())]


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("epsilon", ["1", "1/3"])
def test_swapping_old_and_new_negates_every_change(public, epsilon):
    one, other = released(1, public=public), released(2, public=public, budget=tt.Budget(epsilon=epsilon))
    found, back = tt.compare(one, other).rows, tt.compare(other, one).rows
    negated = {"change": "change", "lower": "upper", "upper": "lower", "selected_lower": "selected_upper"}
    for name, opposite in negated.items():
        assert found[name].to_pylist() == pc.negate(back[opposite]).to_pylist(), name
    assert found["p_value"].equals(back["p_value"])
    swapped = {"increased": "decreased", "decreased": "increased"}
    assert found["flag"].to_pylist() == [swapped.get(flag, flag) for flag in back["flag"].to_pylist()]


def test_intervals_are_those_of_the_engine_for_one_region_and_size():
    old, new = released(1), released(2)
    (row,) = rows(tt.compare(old, new, level="county"), region="4", question="size 2")
    region = old.hierarchy.index["4"]
    one, other = (sum_of(MeasuredView.of(each.measurements), [region], [2]) for each in (old, new))
    change: LinearSum = other.minus(one)
    low, high = change.estimate - change.half_width(), change.estimate + change.half_width()
    assert low - 1 <= min(row["lower"], row["change"]) <= low + 0.05 * (high - low) + 1
    assert high + 1 >= max(row["upper"], row["change"]) >= high - 0.05 * (high - low) - 1
    assert row["before"] == old.counts[region, 1]
    assert row["after"] == new.counts[region, 1]


def test_public_numbers_are_exact_and_untested():
    found = tt.compare(released(1, public=True), released(2, public=True))
    (family,) = [one for one in found.families if (one.level, one.question) == ("county", "groups")]
    assert (family.tested, family.method) == (0, "public")
    for row in rows(found, level="county", question="groups"):
        assert row["lower"] == row["upper"] == row["change"]
        assert row["p_value"] is None
        assert row["flag"] == FLAGS[int(np.sign(row["change"]))]
    assert all(one.tested for one in found.families if one.question != "groups")


def test_releases_with_another_largest_size_are_compared_up_to_the_smaller_one():
    old, new = released(1, max_size=6), released(1, max_size=4)
    found = tt.compare(old, new)
    assert any("Sizes above 4 count as 4 on both sides" in text for text in found.warnings)
    assert {row["question"] for row in rows(found)} == {
        "groups",
        "entities",
        "size 1",
        "size 2",
        "size 3",
        "size 4 or more",
    }
    (row,) = rows(found, region="4", question="size 4 or more")
    region = old.hierarchy.index["4"]
    assert row["before"] == old.counts[region, 3:].sum()
    (row,) = rows(found, region="4", question="entities")
    assert row["before"] == old.counts[region] @ np.minimum(np.arange(1, 7), 4)


def test_a_public_and_a_private_list_of_groups_are_compared_without_empty_groups():
    old, new = released(1, public=True), released(1)
    found = tt.compare(old, new)
    assert any("size 0 are left out" in text for text in found.warnings)
    (row,) = rows(found, region="4", question="groups")
    assert row["before"] == old.counts[old.hierarchy.index["4"], 1:].sum()


@pytest.mark.parametrize("public", [False, True])
def test_lists_are_compared_by_their_bounds(public):
    lists = {"mechanism": "coc-matching", "options": {"methods": ["sorted-sizes"] * 3}}
    how = lists if public else {"options": {"leaves": "lists", "totals_share": "1/10"}}
    found = tt.compare(released(1, public=public, **how), released(2, public=public))
    bounded = [one for one in found.families if one.method == "Bonferroni"]
    assert bounded
    for row in rows(found, level="county", question="size 2"):
        assert row["p_value"] is None
        assert row["lower"] <= row["change"] <= row["upper"]


@pytest.mark.parametrize("kind", ["group, sums besides", "members", "group, public totals", "group, two columns"])
def test_questions_may_be_bands_of_sizes_and_categories(kind):
    options = {"mechanism": "tallytree", "options": MORE} if kind == "group, sums besides" else {}
    made = [tt.release(group_sizes(**KINDS[kind]), **RUN, **options) for _ in range(2)]
    names, one = made[0].hierarchy.by.names, made[0]
    found = tt.compare(*made, [tt.Query("sum", sizes="2-4"), "groups"], by="tenure")
    assert set(found.rows["tenure"].to_pylist()) == {"owned", "rented", "all"}
    for value in ("owned", "all"):
        having = {"region": "B", "question": "sizes 2 to 4", **dict.fromkeys(names, "all"), "tenure": value}
        (row,) = rows(found, **having)
        assert row["before"] == one.estimate("B", "2-4", by={"tenure": value}, typical=False).released
        assert row["lower"] <= row["change"] <= row["upper"]
    (row,) = rows(tt.compare(*made), region="B", question="groups")
    assert row["before"] == one.estimate("B", typical=False).released
    assert (row["p_value"] is None) == (kind == "group, public totals")
    with pytest.raises(tt.SpecError, match="there is no category"):
        tt.compare(*made, by="nonsense")


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ("nonsense", "unknown question"),
        ([tt.Query("mean")], "kind 'sum'"),
        ([tt.Query("median")], "kind 'sum'"),
        ([tt.Query("quantile", q=0.9)], "kind 'sum'"),
        ([tt.Query("gini")], "kind 'sum'"),
        ([tt.Query("sum", "A")], "without regions"),
        ([], "no question"),
        ([3], "each item a text or a Query"),
    ],
)
def test_wrong_questions_are_refused(questions, message):
    with pytest.raises(tt.SpecError, match=message):
        tt.compare(released(1), released(2), questions)


# -------------------------------------------------------------------- what can be compared


def test_releases_that_share_measurements_or_units_that_differ_are_refused():
    old, new = released(1), released(2)
    with pytest.raises(tt.ReleaseError, match="same release"):
        tt.compare(old, old)
    with pytest.raises(tt.ReleaseError, match="same noisy measurements"):
        tt.compare(old, replace(old, measurements=replace(old.measurements)))
    parts = (*new.measurements.measured[:-1], old.measurements.measured[-1])
    shared = replace(new, measurements=replace(new.measurements, measured=parts))
    with pytest.raises(tt.ReleaseError, match="same noisy measurements"):
        tt.compare(old, shared)
    columns = [replace(one.measurements.neighbours, columns={"group": name}) for one, name in ((old, "a"), (new, "b"))]
    named = [
        replace(one, measurements=replace(one.measurements, neighbours=relation))
        for one, relation in zip((old, new), columns, strict=True)
    ]
    with pytest.raises(tt.ReleaseError, match="different units: the group column is 'a'"):
        tt.compare(*named)
    stated = replace(columns[1], unit=tt.one_entity(same_unit_as=["a"]))
    fine = replace(named[1], measurements=replace(named[1].measurements, neighbours=stated))
    assert isinstance(tt.compare(named[0], fine), Comparison)
    elsewhere = Hierarchy.from_levels({"city": ["X", "Y"]}, ["city"], root="all")
    other = of_counts(np.full((2, 3), 9), replace(elsewhere, levels=("planet", "city")))
    with pytest.raises(tt.ReleaseError, match="no common level"):
        tt.compare(old, other)


def test_differences_between_the_releases_are_warnings():
    old, new = released(1), released(2, unit="one_group")
    assert any("privacy unit differs" in text for text in check_comparable(old, new))
    assert check_comparable(old, released(3)) == []


def test_a_person_in_both_is_protected_by_the_sum():
    old, new = released(1), released(2, budget=tt.Budget(epsilon="1/2"))
    assert "the sum of both budgets, ε = 1.5" in tt.compare(old, new).protection
    zcdp = released(3, budget=tt.Budget(rho=1))
    assert "both budgets together" in tt.compare(old, zcdp).protection


def test_regions_of_one_release_only_are_listed():
    columns = {"state": ["A", "A", "B"], "county": ["1", "2", "3"]}
    later = {"state": ["A", "A", "B", "C"], "county": ["1", "9", "3", "4"]}
    old, new = (
        of_counts(np.full((len(names["state"]), 3), 50), Hierarchy.from_levels(names, ["state", "county"]))
        for names in (columns, later)
    )
    found = tt.compare(old, new)
    assert found.unmatched == {"state": ((), ("C",)), "county": (("2",), ("9", "4"))}
    assert any("1 regions of level 'county' are in the old release only: 2" in text for text in found.warnings)
    marked = {row["region"]: row["other_leaves"] for row in rows(found, question="groups")}
    assert marked == {"total": True, "A": True, "B": False, "1": False, "3": False}


# -------------------------------------------------------------------- concordances


def split_and_merged():
    """Old leaves 1, 2, 3 of A and 4 of B; leaf 1 was split into 1a and 1b, and 1b was then merged with 2."""
    old = Hierarchy.from_levels({"state": list("AAAB"), "county": ["1", "2", "3", "4"]}, ["state", "county"])
    new = Hierarchy.from_levels({"state": list("AAAB"), "county": ["1a", "2", "3", "4"]}, ["state", "county"])
    return old, new, {"old_leaf": ["1", "1", "2"], "new_leaf": ["1a", "2", "2"]}


def test_a_split_followed_by_a_merge_is_compared_as_the_union():
    old_tree, new_tree, table = split_and_merged()
    rng = np.random.default_rng(3)
    old, new = (of_counts(rng.poisson(60, (4, 3)), tree) for tree in (old_tree, new_tree))
    found = tt.compare(old, new, ["groups"], concordance=pa.table(table))
    areas = {row["region"]: row for row in rows(found, level="county")}
    assert set(areas) == {"1a;2", "3", "4"}
    assert areas["1a;2"]["old_region"] == "1;2"
    assert areas["1a;2"]["before"] == old.estimate(["1", "2"], typical=False).released
    sums = [
        sum_of(MeasuredView.of(one.measurements), [one.hierarchy.index[leaf] for leaf in leaves], [1, 2, 3])
        for one, leaves in ((old, ["1", "2"]), (new, ["1a", "2"]))
    ]
    change = sums[1].minus(sums[0])
    low, high = change.estimate - change.half_width(), change.estimate + change.half_width()
    row = areas["1a;2"]
    assert row["lower"] <= row["change"] <= row["upper"]
    assert abs(row["lower"] - min(low, row["change"])) <= 1 + 0.05 * (high - low)
    assert abs(row["upper"] - max(high, row["change"])) <= 1 + 0.05 * (high - low)
    assert not any(row["other_leaves"] for row in rows(found))
    assert found.unmatched == {}


def components(old, new, pairs):
    """Connected leaves by repeated search, slowly."""
    linked = [{("old", one), ("new", other)} for one, other in pairs]
    named = [{text for text, _ in pairs}, {text for _, text in pairs}]
    linked += [{("old", leaf), ("new", leaf)} for leaf in old if leaf in new and leaf not in named[0] | named[1]]
    while True:
        for number, one in enumerate(linked):
            other = next((each for each in linked[number + 1 :] if each & one), None)
            if other is not None:
                linked.remove(other)
                one |= other
                break
        else:
            return {frozenset(one) for one in linked}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_areas_of_a_concordance_are_its_connected_components(seed):
    rng = np.random.default_rng(seed)
    trees = [random_tree(rng, 3, most_children=3) for _ in range(2)]
    leaves = [[str(leaf) for leaf in tree.ids[tree.level_starts[-2] :]] for tree in trees]
    number = int(rng.integers(1, 6))
    pairs = {(str(rng.choice(leaves[0])), str(rng.choice(leaves[1]))) for _ in range(number)}
    table = {"old_leaf": [one for one, _ in pairs], "new_leaf": [other for _, other in pairs]}
    pairing = Pairing.of(*trees, table)
    found = pairing.pairs(trees[1].levels[-1])
    areas = {
        frozenset({("old", leaf) for leaf in old.split(";")} | {("new", leaf) for leaf in new.split(";")})
        for old, new in zip(found.old_regions, found.regions, strict=True)
    }
    assert areas == components(leaves[0], leaves[1], pairs)
    for place, (ids, union) in enumerate(zip(found.regions, [found.new] * len(found), strict=True)):
        assert [trees[1].ids[row] for row in union.of(place)] == ids.split(";")
    for level in pairing.levels[:-1]:  # an upper pair is marked unless it consists of whole areas on both sides
        upper = pairing.pairs(level)
        below = [
            {region: {leaf for leaf in own if within(tree, leaf, region)} for region in set(upper.regions)}
            for tree, own in zip(trees, leaves, strict=True)
        ]
        for region, marked in zip(upper.regions, upper.other_leaves.tolist(), strict=True):
            own = {("old", leaf) for leaf in below[0][region]} | {("new", leaf) for leaf in below[1][region]}
            inside = [area for area in areas if area & own]
            whole = all(area <= own for area in inside) and own == set().union(*inside)
            assert marked == (not whole)


def within(tree, leaf, region):
    at = tree.index[leaf]
    while at >= 0:
        if tree.ids[at] == region:
            return True
        at = int(tree.parents[at])
    return False


# -------------------------------------------------------------------- tables and displays


def test_rows_come_out_as_tables_and_frames():
    found = tt.compare(released(1), released(2))
    assert found.table("county", "groups").num_rows == 7
    assert found.table(flagged=True).num_rows == sum(one.flagged for one in found.families)
    assert found.to_pandas().shape == (found.rows.num_rows, found.rows.num_columns)
    assert found.to_polars().shape == (found.rows.num_rows, found.rows.num_columns)
    assert "changes" in repr(found)
    with pytest.raises(tt.SpecError, match="has no level 'city'"):
        found.table("city")
    with pytest.raises(AttributeError):
        found.rows = None


def test_a_large_release_is_read_for_the_level_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("tallytree.publish.release.table_layout.SMALL", 20)
    for seed in (1, 2):
        released(seed, mechanism="pgsr-cumulative-dp").save(tmp_path / str(seed))
    found = tt.compare(tmp_path / "1", tmp_path / "2", level="state")
    assert set(found.rows["level"].to_pylist()) == {"state"}
    assert found.rows["other_leaves"].null_count == found.rows.num_rows
    whole = tt.compare(tt.Release.load(tmp_path / "1"), tt.Release.load(tmp_path / "2"), level="state")
    assert whole.rows["change"].equals(found.rows["change"])


# -------------------------------------------------------------------- error rates


@pytest.mark.parametrize(("first", "second"), [(1, 1), (0.2, 1)])
def test_plain_intervals_hold_and_few_flags_are_false(first, second):
    """Families of two, half of which changed: 95 % of intervals hold, and at most 5 % of flags are false on average."""
    rng = np.random.default_rng(8)
    tree = Hierarchy.from_levels(
        {"state": [f"s{one // 2}" for one in range(400)], "county": [f"c{one}" for one in range(400)]},
        ["state", "county"],
    )
    before = rng.poisson(100, (400, 3))
    moved = before.copy()
    moved[:100] += 40
    held = cells = flags = false = 0
    for _ in range(3):
        found = tt.compare(of_counts(before, tree, first), of_counts(moved, tree, second), ["sizes"], level="county")
        for size in (1, 2, 3):
            name = f"size {size}" if size < 3 else "size 3 or more"
            change = np.array([row["change"] for row in rows(found, question=name)])
            one = rows(found, question=name)
            truth = moved[:, size - 1] - before[:, size - 1]
            held += sum(row["lower"] <= real <= row["upper"] for row, real in zip(one, truth, strict=True))
            cells += len(change)
            flagged = np.array([row["flag"] != FLAGS[0] for row in one])
            flags += int(flagged.sum())
            false += int((flagged & (truth == 0)).sum())
    assert held / cells > 0.935
    assert flags > 100
    assert false / flags < 0.08  # 3 standard errors above 5 %
