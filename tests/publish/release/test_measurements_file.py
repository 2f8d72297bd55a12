"""The file of measurements: read as it was written, or refused."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tallytree.publish.release.measurements_file
from tallytree import Budget, Hierarchy, ReleaseError, load_measurements, measure, one_entity, save_measurements
from tallytree.mechanisms import MECHANISMS
from tallytree.mechanisms.budget_allocation import every_level
from tallytree.tables import GroupSizes, Sealed

TREE = Hierarchy.from_levels({"state": ["A", "A", "B", "DC"], "county": ["a", "b", "c", None]}, ["state", "county"])
LEAVES = np.array([[3, 1, 0, 1], [0, 0, 0, 0], [0, 2, 0, 4], [1, 0, 5, 0]])
METHODS = ["sorted-sizes", "cumulative", "sorted-sizes-l1"]


def data(public=False):
    totals = LEAVES.sum(axis=1) if public else None
    return GroupSizes(TREE, 3 if public else 4, Sealed(LEAVES), leaf_totals=totals)


def measured(*, public, largest=True):
    options = {"methods": METHODS}
    if not public:
        options["totals_share"] = "1/3"
    if largest:
        options["largest_share"] = "1/5"
    mechanism = MECHANISMS["coc-matching"].configured(options)
    return measure(
        data(public), mechanism.plan(TREE, Budget(epsilon=20), one_entity()), derive_facts=mechanism.derive_facts
    )


def same(before, after):
    assert [part.to_json() for part in after.measured] == [part.to_json() for part in before.measured]
    for one, two in zip(before.measured, after.measured, strict=True):
        assert one.values.shape == two.values.shape
        assert np.array_equal(one.values, two.values)
    for one, two in (
        (before.first_stage.totals, after.first_stage.totals),
        (before.region_totals, after.region_totals),
    ):
        assert (one is None) == (two is None)
        assert one is None or np.array_equal(one, two)
    assert after.first_stage.max_size == before.first_stage.max_size
    assert (after.max_size, after.first_size) == (before.max_size, before.first_size)
    assert after.neighbours == before.neighbours
    assert after.budget == before.budget
    assert after.level_shares == before.level_shares


@pytest.mark.parametrize(
    ("view", "public"),
    [("counts", False), ("at_least", False), ("totals", False), ("counts", True), ("at_least", True)],
)
def test_measurements_survive_a_round_trip_through_parquet(tmp_path, view, public):
    plan = every_level(view, TREE, Budget(epsilon="1/3"), one_entity(), shares=[1, 1, 5])
    before = measure(data(public), plan)
    save_measurements(before, tmp_path / "m.parquet")
    after = load_measurements(tmp_path / "m.parquet")
    assert np.array_equal(after.stacked(view), before.stacked(view))
    assert [part.to_json() for part in after.measured] == [part.to_json() for part in before.measured]
    assert after.neighbours == before.neighbours
    assert after.budget == before.budget
    assert after.hierarchy.to_json() == before.hierarchy.to_json()
    assert (after.region_totals is None) == (not public)
    assert after.receipt is None


def test_a_damaged_file_of_measurements_is_refused(tmp_path):
    save_measurements(
        measure(data(), every_level("counts", TREE, Budget(epsilon=1), one_entity())), tmp_path / "m.parquet"
    )
    table = pq.read_table(tmp_path / "m.parquet")
    pq.write_table(table.slice(1), tmp_path / "short.parquet")
    pq.write_table(table.take(list(range(len(table)))[::-1]), tmp_path / "turned.parquet")
    pq.write_table(table.replace_schema_metadata(None), tmp_path / "bare.parquet")
    (tmp_path / "junk.parquet").write_bytes(b"PAR1 nothing PAR1")
    for name in ("short", "turned", "bare", "junk", "missing"):
        with pytest.raises(ReleaseError, match="is not a readable file of measurements"):
            load_measurements(tmp_path / f"{name}.parquet")


@pytest.mark.parametrize("rows", [1, 2, 5, 1 << 20])
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("public", [False, True])
def test_lists_and_facts_of_the_first_stage_survive_a_round_trip(tmp_path, monkeypatch, public, largest, rows):
    monkeypatch.setattr(tallytree.publish.release.measurements_file, "ROWS_IN_GROUP", rows)
    before = measured(public=public, largest=largest)
    save_measurements(before, tmp_path / "m.parquet")
    if rows < 2:
        assert pq.ParquetFile(tmp_path / "m.parquet").num_row_groups > 10
    same(before, load_measurements(tmp_path / "m.parquet"))


def test_the_file_has_a_row_for_every_region_that_was_measured(tmp_path):
    before = measured(public=True, largest=False)
    save_measurements(before, tmp_path / "m.parquet")
    table = pq.read_table(tmp_path / "m.parquet")
    assert table.column_names == ["measurement", "region", "values"]
    number = [part.level for part in before.measured].index(2)
    rows = [row for row in table.to_pylist() if row["measurement"] == str(number)]
    assert [row["region"] for row in rows] == list(TREE.ids[TREE.level_slice(2)])
    assert [len(row["values"]) for row in rows] == before.lengths(2).tolist()
    assert [value for row in rows for value in row["values"]] == before.on_level(2).values.tolist()


def test_the_regions_are_in_a_table_beside_the_file(tmp_path):
    before = measured(public=True)
    for name, regions in {"m.parquet": "m.regions.parquet", "measurements.parquet": "regions.parquet"}.items():
        save_measurements(before, tmp_path / name)
        table = pq.read_table(tmp_path / regions)
        assert table["region"].to_pylist() == list(TREE.ids)
        assert table["total"].to_pylist() == before.region_totals.tolist()
        (tmp_path / regions).unlink()
        with pytest.raises(ReleaseError, match=f"{regions} is missing"):
            load_measurements(tmp_path / name)


def test_regions_without_any_group_have_empty_lists(tmp_path):
    empty = GroupSizes(TREE, 3, Sealed(np.zeros((4, 4), np.int64)), leaf_totals=np.zeros(4, np.int64))
    before = measure(empty, every_level("sorted_sizes", TREE, Budget(epsilon=1), one_entity()))
    save_measurements(before, tmp_path / "m.parquet")
    same(before, load_measurements(tmp_path / "m.parquet"))


def rewritten(path, change, change_rows=lambda rows: None):
    """The same rows under changed facts, or others."""
    with pq.ParquetFile(path) as file:
        schema, groups = file.schema_arrow, [file.read_row_group(group) for group in range(file.num_row_groups)]
    facts = json.loads(schema.metadata[b"tallytree"])
    change(facts)
    changed = schema.with_metadata({"tallytree": json.dumps(facts)})
    target = path.with_name("changed.parquet")
    with pq.ParquetWriter(target, changed) as writer:
        for rows in groups:
            listed = rows.to_pylist()
            change_rows(listed)
            writer.write_table(pa.Table.from_pylist(listed, schema=changed), row_group_size=max(1, rows.num_rows))
    return target


def change_totals(*changes):
    """Change the totals of some regions, from the last on."""

    def change(rows):
        if rows[0]["measurement"] == "first_stage.totals":
            for row, by in zip(rows[::-1], changes, strict=False):
                row["values"] = by(row["values"])

    return change


ROW_DAMAGE = {
    "one group too many": change_totals(lambda values: [values[0] + 1]),
    "a group moved to another region": change_totals(lambda values: [values[0] + 1], lambda values: [values[0] - 1]),
    "totals of too few regions": lambda rows: rows.pop() if rows[0]["measurement"] == "first_stage.totals" else None,
    "two totals": change_totals(lambda values: values * 2),
    "no total": change_totals(lambda values: None),
    "negative totals": change_totals(*[lambda values: [-1]] * 8),
    "more rows than any memory holds": change_totals(*[lambda values: [2**50]] * 8),
}
DAMAGE = {
    "no totals": lambda facts: facts["in_rows"].remove("first_stage.totals"),
    "totals twice": lambda facts: facts["in_rows"].append("first_stage.totals"),
    "totals of something else": lambda facts: facts["in_rows"].append("first_stage.others"),
    "no facts of the first stage": lambda facts: facts.update(first_stage=None),
    "regions of another folder": lambda facts: facts["hierarchy"].update(file="../m.regions.parquet"),
    "other levels": lambda facts: facts["hierarchy"].update(levels=["a", "b", "c"]),
    "a smaller largest size": lambda facts: facts["first_stage"].update(max_size=facts["first_stage"]["max_size"] - 1),
    "another largest size": lambda facts: facts["first_stage"].update(max_size=9),
    "a largest size in words": lambda facts: facts["first_stage"].update(max_size="four"),
    "no largest size at all": lambda facts: facts["neighbours"].update(max_size=0),
    "another view": lambda facts: facts["measured"][-1].update(view="counts"),
    "an unknown view": lambda facts: facts["measured"][-1].update(view="everything"),
    "a level that is not there": lambda facts: facts["measured"][-1].update(level=9),
    "a scale that is no number": lambda facts: facts["measured"][-1].update(scale="1/0"),
    "another format": lambda facts: facts.update(format=2),
    "a measurement less": lambda facts: facts["measured"].pop(),
    "the last measurement twice": lambda facts: facts["measured"].append(facts["measured"][-1]),
}


@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_files_that_contradict_themselves_are_refused(tmp_path, damage):
    before = measured(public=False)
    save_measurements(before, tmp_path / "m.parquet")
    same(before, load_measurements(rewritten(tmp_path / "m.parquet", lambda facts: None)))
    with pytest.raises(ReleaseError, match="is not a readable file of measurements"):
        load_measurements(rewritten(tmp_path / "m.parquet", DAMAGE[damage]))


@pytest.mark.parametrize("damage", sorted(ROW_DAMAGE))
def test_rows_that_contradict_the_facts_are_refused(tmp_path, damage):
    save_measurements(measured(public=False), tmp_path / "m.parquet")
    with pytest.raises(ReleaseError, match="is not a readable file of measurements"):
        load_measurements(rewritten(tmp_path / "m.parquet", lambda facts: None, ROW_DAMAGE[damage]))


def test_lists_with_rows_that_are_missing_turned_or_renamed_are_refused(tmp_path):
    save_measurements(measured(public=True), tmp_path / "m.parquet")
    with pq.ParquetFile(tmp_path / "m.parquet") as file:
        schema, groups = file.schema_arrow, [file.read_row_group(group) for group in range(file.num_row_groups)]
    rows = groups[-1]  # the lists of all counties
    region = rows.column_names.index("region")
    turned = rows.set_column(region, "region", rows["region"].combine_chunks()[::-1])
    nowhere = rows.set_column(region, "region", pa.array(["nowhere"] * len(rows)))
    others = rows.set_column(rows.column_names.index("measurement"), "measurement", pa.array(["0"] * len(rows)))
    for name, changed in {"short": rows.slice(1), "turned": turned, "nowhere": nowhere, "others": others}.items():
        with pq.ParquetWriter(tmp_path / f"{name}.parquet", schema) as writer:
            for table in [*groups[:-1], changed]:
                writer.write_table(pa.table(table.columns, schema=schema), row_group_size=len(table))
        with pytest.raises(ReleaseError, match="is not a readable file of measurements"):
            load_measurements(tmp_path / f"{name}.parquet")
