"""Releases by category from beginning to end: made, saved, verified, forged, loaded and asked."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallytree import Hierarchy, Ledger, Neighbours, Release, SpecError, read, release, resume, verify
from tallytree.domain.histogram import entities
from tallytree.estimate.intervals.guaranteed import guaranteed, guaranteed_entities, guaranteed_sums
from tallytree.estimate.intervals.unions import Unions
from tallytree.lab.truth import seeded
from tallytree.mechanisms import prepare
from tallytree.privacy import Budget
from tallytree.privacy.run import measure_with
from tests.publish.test_verify import sign_again

TREE = Hierarchy.from_levels({"state": ["x", "x", "y", "y"], "county": ["A", "B", "C", "D"]}, ["state", "county"])
BY = {"tenure": ["owned", "rented"]}
TWO = {**BY, "origin": ["here", "abroad", "both"]}


def microdata(homes=400, seed=3):
    rng = np.random.default_rng(seed)
    home = np.repeat(np.arange(homes), rng.integers(1, 5, homes))
    county, tenure, origin = (rng.choice(values, homes) for values in (list("ABCD"), BY["tenure"], TWO["origin"]))
    rows = pa.table({"home": home, "county": county[home], "tenure": tenure[home], "origin": origin[home]})
    return rows, pa.table({"home": np.arange(homes), "county": county, "tenure": tenure, "origin": origin})


def group_sizes(by=BY, decided_by="group", groups=(), max_size=5):
    rows, listed = microdata()
    how = {"group": "home", "region": "county", "hierarchy": TREE, "max_size": max_size, "name": "homes"}
    found = listed.select(["home", "county", *groups]) if groups is not None else None
    return read(rows, **how, by=by, decided_by=decided_by, groups=found, groups_are_public=True)


MORE = {"all_share": "0.4"}
KINDS = {
    "group, sums besides": {"groups": None},
    "group": {"groups": None},
    "group, two columns": {"by": TWO, "groups": None},
    "members": {"decided_by": "members", "groups": None},
    "group, public totals": {"groups": ("tenure",)},
    "group, public totals by region": {"groups": ()},
    "members, public totals by region": {"decided_by": "members", "groups": ()},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_by_category_adds_up_both_ways_and_is_sound(kind, tmp_path):
    private = group_sizes(**KINDS[kind])
    options = {"mechanism": "tallytree", "options": MORE} if kind == "group, sums besides" else {}
    made = release(private, budget={"epsilon": 1}, unit="one_entity", intervals="guaranteed", **options)
    made.save(tmp_path / "out")
    found = verify(tmp_path / "out")
    assert found.faults == ()
    again = Release.load(tmp_path / "out")
    assert again.table().equals(made.table())
    assert np.array_equal(again.counts, made.counts)
    assert made.counts.min() >= 0
    tree = made.hierarchy
    assert np.array_equal(tree.aggregate(made.counts[tree.level_slice(tree.depth - 1)]), made.counts)
    _, listed = microdata()
    counted = {name: listed["county"].to_pylist().count(name) for name in "ABCD"}
    public = kind.endswith(("totals", "region"))
    if public:
        sums = tree.over_categories(made.counts).sum(axis=1)[TREE.level_slice(2)]
        assert sums.tolist() == list(counted.values())
    rows = list(csv.DictReader((tmp_path / "out" / "regions.csv").open()))
    assert [row["total"] for row in rows[-4:]] == ([str(n) for n in counted.values()] if public else [""] * 4)
    statement = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert ("members decide" if kind.startswith("members") else "the group decides") in statement["statement"]


def test_the_table_has_a_column_for_each_category_and_rows_for_all(tmp_path):
    made = release(group_sizes(TWO, groups=None), budget={"epsilon": 1}, unit="one_entity", intervals="none")
    table = made.table()
    assert table.column_names == ["level", "region", "name", "tenure", "origin", "size", "count"]
    rows = {(row["region"], row["tenure"], row["origin"], row["size"]): row["count"] for row in table.to_pylist()}
    assert len(rows) == table.num_rows == 7 * (1 + 2 + 3 + 6) * 5
    for region in TREE.ids:
        for size in range(1, 6):
            for tenure in BY["tenure"]:
                parts = [rows[region, tenure, origin, size] for origin in TWO["origin"]]
                assert rows[region, tenure, "all", size] == sum(parts)
            for origin in TWO["origin"]:
                assert rows[region, "all", origin, size] == sum(rows[region, t, origin, size] for t in BY["tenure"])
            assert rows[region, "all", "all", size] == sum(rows[region, t, "all", size] for t in BY["tenure"])


@pytest.mark.parametrize("kind", KINDS)
def test_entities_by_category_agree_with_the_counts_and_over_all(kind, tmp_path):
    made = release(group_sizes(**KINDS[kind]), budget={"epsilon": 1}, unit="one_entity", intervals="guaranteed")
    made.save(tmp_path / "out")
    by = list(made.rows.categories)
    counts, found = made.table().to_pylist(), pq.read_table(tmp_path / "out" / "entities.parquet").to_pylist()
    assert found == made.entities_table().to_pylist() == Release.load(tmp_path / "out").entities_table().to_pylist()
    wanted = {}
    for row in counts:
        key = row["region"], *(row[name] for name in by)
        wanted[key] = wanted.get(key, 0) + row["size"] * row["count"]
    assert {(row["region"], *(row[name] for name in by)): row["entities"] for row in found} == wanted
    assert all(0 <= row["lower"] <= row["entities"] <= row["upper"] for row in found)
    wide = {(row["region"], *(row[name] for name in by)): row["upper"] - row["lower"] for row in found}
    if len(by) == 1:
        assert all(wide[region, "all"] <= sum(wide[region, one] for one in BY["tenure"]) for region in TREE.ids)


def test_forged_entities_of_a_sum_over_categories_are_found(tmp_path):
    release(group_sizes(), budget={"epsilon": 1}, unit="one_entity", intervals="guaranteed").save(tmp_path / "out")
    path = tmp_path / "out" / "entities.parquet"
    table = pq.read_table(path)
    for column in ("entities", "upper"):
        values = table[column].to_pylist()
        values[0] += 1
        pq.write_table(table.set_column(table.column_names.index(column), table.schema.field(column), [values]), path)
        sign_again(tmp_path / "out")
        assert any("entities.parquet: region 'total'" in fault for fault in verify(tmp_path / "out").faults)


OTHER_WAYS = {
    "totals first": ({"groups": None, "max_size": 60}, {}),
    "lists": ({"groups": ("tenure",)}, {"leaves": "lists"}),
    "beliefs": ({"groups": ("tenure",), "max_size": 12}, {"leaves": "beliefs"}),
    "entities measured": ({"groups": None}, {"entities_share": "0.3"}),
    "bands": ({"groups": None}, {"bands": [{"to": 2, "shares": [1, 1, 2]}, {"shares": [2, 1, 1]}]}),
}


@pytest.mark.parametrize("way", OTHER_WAYS)
def test_every_way_to_measure_goes_with_categories_that_the_group_decides(way, tmp_path):
    how, options = OTHER_WAYS[way]
    made = release(group_sizes(**how), budget={"epsilon": 1}, unit="one_entity", options=options)
    made.save(tmp_path / "out")
    assert verify(tmp_path / "out", typical=True).faults == ()
    assert (made.measurements.branch is not None) == (way == "totals first")
    tree = made.hierarchy
    assert np.array_equal(tree.aggregate(made.counts[tree.level_slice(tree.depth - 1)]), made.counts)


@pytest.mark.parametrize(
    "options",
    [
        {"leaves": "lists", "totals_share": "0.1"},
        {"leaves": "beliefs"},
        {"lists_below": 3},
        {"totals_share": "0.1"},
        {"entities_share": "0.1"},
        {"bands": [{"shares": [1, 1, 1]}]},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["members", "group, sums besides", "group, public totals by region"])
def test_ways_that_do_not_go_with_sums_or_lists_by_region_are_refused_before_anything_is_spent(kind, options, tmp_path):
    if kind.endswith("region") and "bands" in options:
        return  # which do
    private, book = group_sizes(**KINDS[kind]), Ledger(tmp_path / "ledger")
    book.open("homes", Budget(epsilon=1), Neighbours.of(private, "one_entity"))
    given = {**options, **(MORE if kind.endswith("besides") else {})}
    with pytest.raises(SpecError, match=r"cannot be combined|`beliefs` need public totals"):
        release(private, budget={"epsilon": 1}, unit="one_entity", mechanism="tallytree", options=given, ledger=book)
    assert book.accounts()[0].spent == 0


def test_counts_without_noise_are_the_true_ones():
    private = group_sizes(groups=None)
    made = release(private, budget={"epsilon": 10**6}, unit="one_entity", options={"borrow": False})
    rows, listed = microdata()
    sizes = np.bincount(rows["home"].to_numpy())
    where = [*zip(listed["county"].to_pylist(), listed["tenure"].to_pylist(), sizes.tolist(), strict=True)]
    for row in made.table().to_pylist():
        if row["level"] == "county" and row["tenure"] != "all":
            assert row["count"] == where.count((row["region"], row["tenure"], row["size"]))


@pytest.mark.parametrize("unit", ["one_entity", "one_group"])
@pytest.mark.parametrize("who", ["group", "members"])
def test_both_units_and_both_kinds_can_be_released_in_both_currencies(unit, who):
    private = group_sizes(decided_by=who, groups=None)
    for budget in ({"epsilon": 1}, {"rho": "0.1", "delta": "1e-6"}):
        made = release(private, budget=budget, unit=unit, intervals="none")
        at_least_detail = [part for part in made.measurements.measured if part.view == "at_least" and not part.summed]
        assert bool(at_least_detail) == (who == "group" and unit == "one_entity")


@pytest.mark.parametrize("name", ["joint-cumulative", "bottom-up", "coc-matching", "pgsr-cumulative-dp"])
def test_survival_counts_by_category_are_refused_where_members_decide(name, tmp_path):
    book = Ledger(tmp_path / "ledger")
    private = group_sizes(decided_by="members", groups=None)
    book.open("homes", Budget(epsilon=1), Neighbours.of(private, "one_entity"))
    with pytest.raises(SpecError, match=r"cannot be measured by category|totals are private"):
        release(private, budget={"epsilon": 1}, unit="one_entity", mechanism=name, ledger=book, keep=tmp_path / "keep")
    assert book.accounts()[0].spent == 0
    assert not (tmp_path / "keep").exists()


def test_totals_by_region_are_refused_by_mechanisms_that_cannot_keep_them():
    with pytest.raises(SpecError, match="public by region and not by category"):
        release(group_sizes(), budget={"epsilon": 1}, unit="one_entity", mechanism="joint-cumulative")


def test_an_interrupted_release_by_category_goes_on_from_its_measurements(tmp_path):
    private = group_sizes(decided_by="members")
    made = release(private, budget={"epsilon": 1}, unit="one_entity", intervals="none", keep=tmp_path / "keep")
    again = resume(tmp_path / "keep", intervals="none")
    assert np.array_equal(made.counts, again.counts)
    assert again.options == made.options


def test_shares_name_the_levels_of_the_regions():
    private = group_sizes(groups=None)
    shares = {"total": 1, "state": 1, "county": 2}
    made = release(private, budget={"epsilon": 1}, unit="one_entity", shares=shares, intervals="none")
    assert [str(part.share) for part in made.measurements.measured] == ["1/4", "1/4", "1/2"]


@pytest.fixture
def folder(tmp_path):
    made = release(group_sizes(), budget={"epsilon": 1}, unit="one_entity", intervals="guaranteed")
    made.save(tmp_path / "out")
    return tmp_path / "out"


def test_a_row_for_all_that_is_not_the_sum_is_found(folder):
    table = pq.read_table(folder / "counts.parquet")
    counts = table["count"].to_pylist()
    place = next(at for at, row in enumerate(table.to_pylist()) if row["tenure"] == "all" and row["level"] == "county")
    counts[place] += 1
    forged = table.set_column(table.column_names.index("count"), table.schema.field("count"), pa.array(counts))
    pq.write_table(forged, folder / "counts.parquet")
    sign_again(folder)
    assert any("counts.parquet: region" in fault and "count is " in fault for fault in verify(folder).faults)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one["neighbours"]["categories"][0].update(decided_by="members"),
        lambda one: one["neighbours"]["categories"][0].update(values=["rented", "owned"]),
        lambda one: one["neighbours"].update(groups_listed=False),
        lambda one: one["neighbours"].pop("categories"),
    ],
    ids=["who decides", "values", "list", "none"],
)
def test_another_statement_about_categories_is_found(folder, change):
    statement = json.loads((folder / "privacy.json").read_text())
    change(statement)
    (folder / "privacy.json").write_text(json.dumps(statement))
    sign_again(folder)
    assert not verify(folder).ok


# ---------------------------------------------------------------- intervals of sums


@pytest.mark.parametrize("who", ["group", "members"])
def test_guaranteed_intervals_of_sums_hold_the_truth_as_often_as_they_say(who):
    private = group_sizes(decided_by=who, groups=None)
    truth = private.hierarchy.over_categories(private.hierarchy.aggregate(private.counts.open_at_the_privacy_border()))
    neighbours = Neighbours.of(private, "one_entity")
    mechanism, plan = prepare(
        "auto", neighbours=neighbours, hierarchy=private.hierarchy, totals=None, budget=Budget(epsilon=1)
    )
    outside, runs = 0, 60
    for seed in range(runs):
        measurements = measure_with(seeded(seed), private, plan)
        counts = mechanism.estimate(measurements).counts
        cells = guaranteed(measurements, counts, level=0.9)
        found = guaranteed_sums(measurements, counts, Unions.of_margins(private.hierarchy), cells)
        lower, upper = (ends[: len(TREE)] for ends in (found.lower, found.upper))
        outside += int(((truth < lower) | (truth > upper)).sum())
    assert outside <= 0.1 * runs * truth.size


@pytest.mark.parametrize("way", ["group", "members", "lists", "totals first"])
def test_guaranteed_intervals_of_entities_over_categories_hold_as_often_as_they_say(way):
    how, options = OTHER_WAYS.get(way, ({"groups": None, "decided_by": way}, {}))
    private = group_sizes(**how)
    tree = private.hierarchy
    every = tree.aggregate(private.counts.open_at_the_privacy_border())
    truth = tree.margin_sums(entities(every, 0 if private.public_totals else 1))
    neighbours = Neighbours.of(private, "one_entity")
    mechanism, plan = prepare(
        "auto",
        options,
        neighbours=neighbours,
        hierarchy=tree,
        totals=private.region_totals,
        budget=Budget(epsilon=1),
    )
    outside, runs = 0, 60
    for seed in range(runs):
        measurements = measure_with(seeded(seed), private, plan, derive_facts=mechanism.derive_facts)
        counts = mechanism.estimate(measurements).counts
        found = guaranteed_entities(measurements, counts, Unions.of_margins(tree), level=0.8)
        outside += int(((truth < found.lower) | (truth > found.upper)).sum())
    assert outside <= 0.25 * runs * truth.size  # which one quarter too narrow would not keep to


def test_typical_intervals_of_sums_are_no_wider_than_those_of_the_parts_together():
    made = release(group_sizes(groups=None), budget={"epsilon": 1}, unit="one_entity")
    lower, upper = made.error_bars.columns["typical_lower"], made.error_bars.columns["typical_upper"]
    parts = (upper - lower)[made.hierarchy.cell_rows].sum(axis=1)
    sums = (upper - lower)[len(made.hierarchy) :]
    assert sums.mean() < parts.mean()
