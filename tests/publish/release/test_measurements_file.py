"""The file of measurements: read as it was written, or refused."""

import json
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tallytree.domain.long_table
from tallytree import Budget, Hierarchy, ReleaseError, load_measurements, measure, one_entity, save_measurements
from tallytree.mechanisms import MECHANISMS
from tallytree.privacy import every_level
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
    return measure(data(public), mechanism.plan(TREE, Budget(epsilon=20), one_entity()), settle=mechanism.settle)


def same(before, after):
    assert [part.to_json() for part in after.measured] == [part.to_json() for part in before.measured]
    for one, two in zip(before.measured, after.measured, strict=True):
        assert one.values.shape == two.values.shape
        assert np.array_equal(one.values, two.values)
    for one, two in ((before.settled.totals, after.settled.totals), (before.region_totals, after.region_totals)):
        assert (one is None) == (two is None)
        assert one is None or np.array_equal(one, two)
    assert after.settled.max_size == before.settled.max_size
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
        with pytest.raises(ReleaseError, match="does not hold measurements"):
            load_measurements(tmp_path / f"{name}.parquet")


@pytest.mark.parametrize("rows", [1, 2, 5, 1 << 20])
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("public", [False, True])
def test_lists_and_what_was_settled_survive_a_round_trip(tmp_path, monkeypatch, public, largest, rows):
    monkeypatch.setattr(tallytree.domain.long_table, "ROWS_AT_A_TIME", rows)
    before = measured(public=public, largest=largest)
    save_measurements(before, tmp_path / "m.parquet")
    if rows < 5:
        assert pq.ParquetFile(tmp_path / "m.parquet").num_row_groups > 10
    same(before, load_measurements(tmp_path / "m.parquet"))


def test_the_file_is_a_long_table_that_names_every_region(tmp_path):
    before = measured(public=True, largest=False)
    save_measurements(before, tmp_path / "m.parquet")
    table = pq.read_table(tmp_path / "m.parquet")
    assert table.column_names == ["view", "level", "region", "size", "value"]
    rows = [row for row in table.to_pylist() if row["view"] == "sorted_sizes" and row["level"] == "county"]
    regions = TREE.ids[TREE.level_slice(2)]
    totals = before.lengths(2).tolist()
    assert totals[1] == 0
    assert [row["region"] for row in rows] == [r for r, n in zip(regions, totals, strict=True) for _ in range(n)]
    assert {row["size"] for row in rows} == {None}
    assert [row["value"] for row in rows] == before.on_level(2).values.tolist()


def test_regions_without_any_group_have_no_rows(tmp_path):
    empty = GroupSizes(TREE, 3, Sealed(np.zeros((4, 4), np.int64)), leaf_totals=np.zeros(4, np.int64))
    before = measure(empty, every_level("sorted_sizes", TREE, Budget(epsilon=1), one_entity()))
    save_measurements(before, tmp_path / "m.parquet")
    assert pq.read_table(tmp_path / "m.parquet").num_rows == 0
    same(before, load_measurements(tmp_path / "m.parquet"))


def rewritten(path, change):
    """The same rows under changed facts."""
    with pq.ParquetFile(path) as file:
        schema, groups = file.schema_arrow, [file.read_row_group(group) for group in range(file.num_row_groups)]
    facts = json.loads(schema.metadata[b"tallytree"])
    change(facts)
    changed = schema.with_metadata({"tallytree": json.dumps(facts)})
    target = path.with_name("changed.parquet")
    with pq.ParquetWriter(target, changed) as writer:
        for rows in groups:
            writer.write_table(pa.table(rows.columns, schema=changed), row_group_size=max(1, rows.num_rows))
    return target


def move_one(facts):
    totals = facts["settled"]["totals"]
    totals[-1] += 1
    totals[-2] -= 1


DAMAGE = {
    "one group too many": lambda facts: facts["settled"]["totals"].__setitem__(-1, facts["settled"]["totals"][-1] + 1),
    "a group moved to another region": move_one,
    "no totals": lambda facts: facts["settled"].update(totals=None),
    "no key for totals": lambda facts: facts["settled"].pop("totals"),
    "settled is nothing": lambda facts: facts.update(settled=None),
    "totals of too few regions": lambda facts: facts["settled"]["totals"].pop(),
    "negative totals": lambda facts: facts["settled"].update(totals=[-1] * 8),
    "totals beyond 64 bits": lambda facts: facts["settled"].update(totals=[2**70] * 8),
    "more rows than any memory holds": lambda facts: facts["settled"].update(totals=[2**50] * 8),
    "totals that are no numbers": lambda facts: facts["settled"].update(totals=["many"] * 8),
    "a smaller largest size": lambda facts: facts["settled"].update(max_size=facts["settled"]["max_size"] - 1),
    "another largest size": lambda facts: facts["settled"].update(max_size=9),
    "a largest size in words": lambda facts: facts["settled"].update(max_size="four"),
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
    with pytest.raises(ReleaseError, match="does not hold measurements that can be read"):
        load_measurements(rewritten(tmp_path / "m.parquet", DAMAGE[damage]))


def test_lists_with_rows_that_are_missing_turned_or_renamed_are_refused(tmp_path):
    save_measurements(measured(public=True), tmp_path / "m.parquet")
    with pq.ParquetFile(tmp_path / "m.parquet") as file:
        schema, groups = file.schema_arrow, [file.read_row_group(group) for group in range(file.num_row_groups)]
    rows = groups[-1]  # the lists of all counties
    assert rows["view"][0].as_py() == "sorted_sizes"
    region = rows.column_names.index("region")
    turned = rows.set_column(region, "region", rows["region"].combine_chunks()[::-1])
    nowhere = rows.set_column(region, "region", pa.array(["nowhere"] * len(rows)))
    sized = rows.set_column(rows.column_names.index("size"), "size", pa.array([1] * len(rows), pa.int32()))
    for name, changed in {"short": rows.slice(1), "turned": turned, "nowhere": nowhere, "sized": sized}.items():
        with pq.ParquetWriter(tmp_path / f"{name}.parquet", schema) as writer:
            for table in [*groups[:-1], changed]:
                writer.write_table(pa.table(table.columns, schema=schema), row_group_size=len(table))
        with pytest.raises(ReleaseError, match="does not hold measurements"):
            load_measurements(tmp_path / f"{name}.parquet")


def test_files_from_before_anything_was_settled_still_load(tmp_path):
    before = measure(data(), every_level("at_least", TREE, Budget(epsilon=1), one_entity(), shares=[1, 2, 4]))
    save_measurements(before, tmp_path / "m.parquet")
    after = load_measurements(rewritten(tmp_path / "m.parquet", lambda facts: facts.pop("settled")))
    same(before, after)
    assert after.settled.totals is None
    assert after.settled.max_size is None
    assert after.level_shares == [Fraction(1, 7), Fraction(2, 7), Fraction(4, 7)]
