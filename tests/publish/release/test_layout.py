"""The files of a release, in one part and in several: what is written is read, asked and checked in the same way."""

import json
import shutil
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tallytree import (
    Budget,
    Hierarchy,
    Ledger,
    Query,
    Release,
    ReleaseError,
    SpecError,
    load_measurements,
    one_entity,
    release,
    resume,
    save_measurements,
    verify,
)
from tallytree.command.main import app
from tallytree.lab.blocks import blocks
from tallytree.privacy import Neighbours
from tallytree.publish.folder import MANIFEST, clear_unfinished, digest, files_in
from tallytree.publish.release import table_layout as partition
from tallytree.publish.release.error_bars import Publication
from tallytree.publish.release.files import read_for, read_upper
from tallytree.publish.release.release_run import estimate_release
from tallytree.publish.release.table_layout import COUNTS, ENTITIES, parts
from tallytree.publish.run_folder import RunFolder, record
from tallytree.publish.verify import LISTED, REGULAR
from tallytree.tables import GroupSizes, Sealed
from tests.oracles.example import made_up
from tests.publish.forging import failed, remade, sign_again
from tests.publish.release.test_categories import TWO, group_sizes

SMALL, LARGE = 1_000_000, 20  # up to so many rows are written in one part


@pytest.fixture(autouse=True, scope="module", params=[SMALL, LARGE], ids=["one part", "several parts"])
def most(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "SMALL", request.param)
        yield request.param


@pytest.fixture
def several(most, monkeypatch):
    """The same for what only a release of several parts has."""
    monkeypatch.setattr(partition, "SMALL", LARGE)


@pytest.fixture(scope="module")
def data():
    return blocks(scale=1 / 12_000).group_sizes()


@pytest.fixture(scope="module")
def made(data):
    return release(data, budget=Budget(epsilon=1), unit=one_entity(), intervals="guaranteed")


@pytest.fixture(scope="module")
def original(made, most, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "release"
    made.save(folder)
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "release")


def rewrite(path, change):
    schema = pq.read_schema(path)
    pq.write_table(pa.Table.from_pylist(change(pq.read_table(path).to_pylist()), schema=schema), path)


def broken(folder):
    return failed(verify(folder))


# -------------------------------------------------------------------- what is written is what is read


@pytest.mark.parametrize("public_totals", [False, True])
@pytest.mark.parametrize("intervals", ["guaranteed", "none", "all"])
def test_a_release_comes_back_and_passes_all_checks(public_totals, intervals, most, tmp_path):
    sizes = made_up(5, public_totals=public_totals)
    made = release(sizes, budget=Budget(epsilon=1), unit=one_entity(), intervals=intervals)
    made.save(tmp_path / "release")
    again = Release.load(tmp_path / "release")
    names = {name for name in files_in(tmp_path / "release") if name.startswith(("counts", "entities", "regions"))}
    if most == SMALL:
        assert names == {
            f"{table}.{kind}" for table in ("counts", "entities", "regions") for kind in ("csv", "parquet")
        }
    else:
        assert not [name for name in names if name.endswith(".csv")]
        assert len(names) > 10
    assert np.array_equal(again.counts, made.counts)
    assert again.hierarchy.to_json() == made.hierarchy.to_json()
    for name, cells in made.error_bars.columns.items():
        some = made.counts > 0
        assert np.array_equal(again.error_bars.columns[name][some], cells[some])
        assert np.all((again.error_bars.columns[name] >= cells) | (name.endswith("lower")))
    verification = verify(tmp_path / "release")
    assert verification.faults == ()


@pytest.mark.parametrize(
    ("mechanism", "options"),
    [("coc-matching", {"totals_share": "0.1"}), ("tallytree", {"leaves": "lists", "totals_share": "0.1"})],
)
def test_lists_of_sizes_and_settled_totals_are_kept_too(mechanism, options, tmp_path):
    sizes = made_up(7, public_totals=False)
    made = release(sizes, budget=Budget(epsilon=3), unit=one_entity(), mechanism=mechanism, options=options)
    made.save(tmp_path / "release")
    assert verify(tmp_path / "release", typical=False).faults == ()
    save_measurements(made.measurements, tmp_path / "measurements.parquet")
    again = load_measurements(tmp_path / "measurements.parquet")
    assert again.mark == made.measurements.mark
    for name in ("totals", "places"):
        one, other = getattr(again.first_stage, name), getattr(made.measurements.first_stage, name)
        assert (one is None and other is None) or np.array_equal(one, other)


def test_other_tools_read_the_data_set(made, original):
    name = COUNTS if (original / COUNTS).is_dir() else f"{COUNTS}.parquet"
    rows = ds.dataset(original / name, partitioning="hive").to_table()
    assert rows.num_rows == (np.count_nonzero(made.counts) if name == COUNTS else made.counts.size)
    by_level = rows.group_by("level").aggregate([("count", "sum")]).to_pylist()
    assert {row["count_sum"] for row in by_level} == {made.total}
    described = pq.read_schema(first(original, COUNTS))
    assert all(field.metadata[b"description"] for field in described)


def test_a_release_by_category_comes_back_and_keeps_its_promises(tmp_path):
    private = group_sizes(TWO, groups=None)
    made = release(private, budget={"epsilon": 1}, unit="one_entity", intervals="guaranteed")
    made.save(tmp_path / "release")
    again = Release.load(tmp_path / "release")
    assert np.array_equal(again.all_counts, made.all_counts)
    assert np.array_equal(
        again.error_bars.of["entities"]["guaranteed"].upper, made.error_bars.of["entities"]["guaranteed"].upper
    )
    assert verify(tmp_path / "release").faults == ()


def test_names_lead_nowhere_else(tmp_path):
    tree = Hierarchy.from_levels({"a/b": ["..", "..", "x/y", "="], "c": ["1", "2", "3", "4"]}, ["a/b", "c"])
    counts = np.arange(1, 25).reshape(4, 6)
    sizes = GroupSizes(hierarchy=tree, max_size=6, counts=Sealed(counts), name="odd")
    release(sizes, budget=Budget(epsilon=1), unit=one_entity(), intervals="none").save(tmp_path / "in" / "release")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["release"]
    assert verify(tmp_path / "in" / "release").faults == ()


@pytest.mark.parametrize("most_folders", [400, 0])
def test_each_region_is_in_one_part(data, most_folders, monkeypatch):
    monkeypatch.setattr(partition, "MOST_FOLDERS", most_folders)
    tree, found = data.hierarchy, parts(data.hierarchy, data.max_size)
    assert [region for part in found for region in part.regions] == list(range(len(tree)))
    if len(found) > 1:
        for part in found:
            assert len({int(tree.level_of[region]) for region in part.regions}) == 1


def test_releases_are_replaced_and_what_is_left_behind_is_removed(made, folder):
    before = digest(folder / MANIFEST)
    mine = first(folder, COUNTS).with_name("mine.txt")
    mine.write_text("x")
    with pytest.raises(ReleaseError, match=r"mine.txt.*which is not part of its release"):
        made.save(folder, replace=True)
    mine.unlink()
    replace(made, title="another").save(folder, replace=True)
    assert digest(folder / MANIFEST) != before
    left = folder.with_name(f".{folder.name}.tallytree-x.writing")
    shutil.copytree(folder, left)
    clear_unfinished(folder)
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name]


# -------------------------------------------------------------------- what is forged is found


def first(folder, table, level="block"):
    whole = folder / f"{table}.parquet"
    return whole if whole.exists() else next((folder / table / f"level={level}").rglob("rows.parquet"))


def remade_table(folder, table):
    """The check that makes the file or files of a table again."""
    return remade(first(folder, table).relative_to(folder).parts[0])


FORGERIES = {
    "a count": (COUNTS, lambda rows: [{**rows[0], "count": rows[0]["count"] + 1}, *rows[1:]]),
    "an end": (COUNTS, lambda rows: [*rows[:-1], {**rows[-1], "upper": rows[-1]["upper"] + 1}]),
    "a row less": (COUNTS, lambda rows: rows[1:]),
    "the last row less": (COUNTS, lambda rows: rows[:-1]),
    "a row twice": (COUNTS, lambda rows: [*rows, rows[-1]]),
    "another order": (COUNTS, lambda rows: rows[::-1]),
    "another name": (COUNTS, lambda rows: [{**rows[0], "name": "x"}, *rows[1:]]),
    "a number of entities": (ENTITIES, lambda rows: [{**rows[0], "entities": rows[0]["entities"] + 1}, *rows[1:]]),
    "an end of entities": (ENTITIES, lambda rows: [{**rows[0], "lower": rows[0]["lower"] + 1}, *rows[1:]]),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_rows_are_found(forgery, folder):
    table, change = FORGERIES[forgery]
    rewrite(first(folder, table), change)
    assert LISTED in broken(folder)
    sign_again(folder)
    assert broken(folder)[0] == remade_table(folder, table)
    assert not any("its content is right" in fault for fault in verify(folder).faults)


@pytest.fixture(scope="module")
def with_typical(most, tmp_path_factory):
    """A small release with typical intervals, whole and in parts, and what it was made of."""
    made = release(made_up(5, public_totals=False), budget=Budget(epsilon=1), unit=one_entity(), intervals="all")
    made.save(folder := tmp_path_factory.mktemp("typical") / "release")
    return made, folder


def test_one_part_and_several_hold_the_same(with_typical, tmp_path, monkeypatch):
    made, folder = with_typical
    save_measurements(made.measurements, tmp_path / "measurements.parquet")
    measured = load_measurements(tmp_path / "measurements.parquet")
    monkeypatch.setattr(partition, "SMALL", 1 << 40)
    estimate_release(measured, made.made_by, Publication(intervals="all")).save(tmp_path / "whole")
    one = Release.load(tmp_path / "whole")
    monkeypatch.undo()
    other = Release.load(folder)
    assert (tmp_path / "whole" / "counts.csv").is_file()
    assert np.array_equal(one.counts, other.counts)
    some = one.counts > 0
    for name, ends in one.error_bars.columns.items():
        assert np.array_equal(ends[some], other.error_bars.columns[name][some])
    for name, ends in one.error_bars.columns_of("entities").items():
        assert np.array_equal(ends, other.error_bars.columns_of("entities")[name])


TYPICAL_FORGERIES = {
    "an end of a count": (COUNTS, "typical_upper"),
    "a beginning of a count": (COUNTS, "typical_lower"),
    "an end of entities": (ENTITIES, "typical_upper"),
}


@pytest.mark.parametrize("forgery", TYPICAL_FORGERIES)
def test_forged_typical_intervals_are_found_file_by_file(forgery, with_typical, tmp_path):
    table, column = TYPICAL_FORGERIES[forgery]
    folder = shutil.copytree(with_typical[1], tmp_path / "release")
    levels = with_typical[0].hierarchy.levels
    rewrite(first(folder, table, levels[-1]), lambda rows: [{**rows[0], column: rows[0][column] + 1}, *rows[1:]])
    sign_again(folder)
    verification = verify(folder)
    assert failed(verification) == [remade(first(folder, table, levels[-1]).relative_to(folder).parts[0])]
    assert f"{column} is " in verification.faults[0]


def test_what_is_said_of_typical_intervals_of_cells_without_a_row_is_checked(with_typical, most, tmp_path):
    folder = shutil.copytree(with_typical[1], tmp_path / "release")
    path, last = folder / "privacy.json", with_typical[0].hierarchy.levels[-1]
    statement = json.loads(path.read_text())
    assert ("left_out_at_most" in statement["intervals"]) == (most == LARGE)
    if most == LARGE:
        statement["intervals"]["left_out_at_most"][last]["typical_upper"] += 1
        path.write_text(json.dumps(statement))
        sign_again(folder)
        assert broken(folder) == [remade("privacy.json")]


def test_a_schema_that_says_something_else_is_found(folder):
    path = first(folder, COUNTS)
    rows = pq.read_table(path)
    pq.write_table(rows.replace_schema_metadata({"note": "exact"}), path)
    sign_again(folder)
    assert broken(folder) == [remade_table(folder, COUNTS)]


def test_files_that_are_added_missing_or_links_are_found(folder):
    path = first(folder, ENTITIES)
    shutil.copy(path, path.with_name("more.parquet"))
    assert broken(folder) == [LISTED]
    sign_again(folder)
    assert broken(folder) == [remade(path.with_name("more.parquet").relative_to(folder).parts[0])]
    path.with_name("more.parquet").unlink()
    path.unlink()
    assert LISTED in broken(folder)
    path.symlink_to(first(folder, COUNTS))
    assert broken(folder) == [REGULAR]


@pytest.mark.parametrize("column", ["name", "parent", "total"])
def test_forged_regions_are_found(column, folder):
    value = {"name": "x", "parent": "01001", "total": 7}[column]
    rewrite(folder / "regions.parquet", lambda rows: [*rows[:-1], {**rows[-1], column: value}])
    sign_again(folder)
    assert not verify(folder).ok


def test_forged_measurements_are_found(folder):
    path = folder / "measurements.parquet"
    file = pq.ParquetFile(path)
    groups = [file.read_row_group(group) for group in range(file.num_row_groups)]
    rows = groups[-1].to_pylist()
    rows[0]["values"][0] += 1
    with pq.ParquetWriter(path, file.schema_arrow) as writer:
        for group in (*groups[:-1], pa.Table.from_pylist(rows, schema=file.schema_arrow)):
            writer.write_table(group)
    sign_again(folder)
    assert remade_table(folder, COUNTS) in broken(folder)
    rows[0]["region"] = rows[1]["region"]
    with pq.ParquetWriter(path, file.schema_arrow) as writer:
        for group in (*groups[:-1], pa.Table.from_pylist(rows, schema=file.schema_arrow)):
            writer.write_table(group)
    with pytest.raises(ReleaseError, match="not where its description puts them"):
        load_measurements(path)


def test_a_statement_that_says_more_is_found(folder):
    path = folder / "privacy.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "also": "exact"}))
    sign_again(folder)
    assert broken(folder) == [remade("privacy.json")]


# -------------------------------------------------------------------- nothing paid for is lost


def test_a_run_that_was_stopped_goes_on_from_its_measurements(data, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open(data.name, Budget(epsilon=1), Neighbours.of(data, one_entity()))
    kept = tmp_path / "release.partial"
    made = release(data, budget=Budget(epsilon=1), unit=one_entity(), intervals="none", ledger=ledger, keep=kept)
    assert (kept / "regions.parquet").is_file()
    again = resume(kept, intervals="none")
    assert np.array_equal(again.counts, made.counts)
    assert RunFolder(kept).measurements().mark == made.measurements.mark
    release_id = again.save(tmp_path / "release")
    assert RunFolder(kept).id_at(tmp_path / "release") == release_id
    RunFolder(kept).finish()
    assert not kept.exists()
    number, identity = record(tmp_path / "release", ledger)
    assert identity == again.release_id
    assert number == made.measurements.receipt.number


def test_the_room_that_is_taken_is_enough(data, tmp_path, monkeypatch):
    taken = []
    monkeypatch.setattr(RunFolder, "take_room", lambda self, size, tell, name: taken.append(size))
    kept = tmp_path / "kept"
    release(data, budget=Budget(epsilon="1/1000000"), unit=one_entity(), intervals="none", keep=kept)
    assert (kept / "measurements.parquet").stat().st_size <= taken[0]


# -------------------------------------------------------------------- questions


def measured(made, region):
    """What was measured of a region, or of those on the next level below it that was measured."""
    tree, regions, level = made.hierarchy, [region], int(made.hierarchy.level_of[region])
    while all(part.level != level for part in made.measurements.measured):
        regions, level = [child for one in regions for child in tree.children_of(one)], level + 1
    part = made.measurements.on_level(level)
    return part.values[np.array(regions) - tree.level_slice(level).start].sum(axis=0)


@pytest.mark.parametrize("shares", [[1, 1, 1, 1, 1, 1], [1, 0, 1, 0, 0, 1]])
def test_each_region_is_read_alone_with_what_the_table_says_of_it(data, shares, several, tmp_path):
    shares = [Fraction(share, sum(shares)) for share in shares]
    how = {"budget": Budget(epsilon=1), "unit": one_entity(), "intervals": "guaranteed"}
    made = release(data, mechanism="tallytree", shares=shares, **how)
    made.save(original := tmp_path / "release")
    tree = made.hierarchy
    some = np.random.default_rng(0).permutation(len(tree))[:40]
    for region in [2, *some.tolist()]:
        alone = excerpt(original, tree.ids[region])
        size = 1 + int(np.argmax(made.counts[region]))
        one, other = (each.estimate(tree.ids[region], size, typical=False) for each in (alone, made))
        same_cell(one, other)
        if len(alone.hierarchy) == 1:
            assert alone.estimate(tree.ids[region], ">=3", typical=False).unbiased == measured(made, region)[2]
        wide = alone.estimate(tree.ids[region], "2-4", typical=False)
        assert wide.released == made.counts[region, 1:4].sum()
        assert wide.guaranteed[0] <= wide.released <= wide.guaranteed[1]


def excerpt(folder, *regions, level=None):
    return Release(**vars(read_for(folder, regions or None, level)))


def same_cell(one, other):
    assert one.released == other.released
    if one.released:
        assert one.guaranteed == other.guaranteed
    else:  # a cell without a row has what is said of all such cells of its level
        assert one.guaranteed[0] == other.guaranteed[0] == 0
        assert one.guaranteed[1] >= other.guaranteed[1]


MECHANISMS = {
    "default": {},
    "levels": {"mechanism": "tallytree", "shares": [1, 1, 1]},
    "lists": {"mechanism": "coc-matching", "options": {"totals_share": "0.1"}},
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("public_totals", [False, True])
def test_every_kind_of_question_is_answered_from_what_it_needs(public_totals, mechanism, several, tmp_path):
    how = MECHANISMS[mechanism]
    if public_totals and mechanism == "lists":
        how = {"mechanism": "coc-matching"}
    sizes = made_up(5, public_totals=public_totals)
    made = release(sizes, budget=Budget(epsilon=2), unit=one_entity(), intervals="guaranteed", **how)
    made.save(folder := tmp_path / "release")
    made = Release.load(folder)
    for one, other in (("A", "C"), ("1", "C"), ("1", "4"), ("1", "A"), ("A", "DC")):
        some = excerpt(folder, one, other)
        for kind in ("ratio", "difference"):
            found, right = (getattr(each, kind)(one, other, ">=2", typical=False) for each in (some, made))
            assert found.released == right.released
            if found.guaranteed is not None:
                assert found.guaranteed[0] <= found.released <= found.guaranteed[1]
        union, right = (each.estimate([one, other], ">=2", typical=False) for each in (some, made))
        assert (union.released, union.regions) == (right.released, right.regions)
        assert some.share(one, 2, typical=False).released == made.share(one, 2, typical=False).released
        assert some.mean_size(other, typical=False).released == made.mean_size(other, typical=False).released
        for query in (Query("median", one), Query("quantile", one, q=0.9), Query("gini", [one, other])):
            found, right = (each.ask(query, typical=False) for each in (some, made))
            assert found.released == right.released
            if found.guaranteed is not None:
                assert found.guaranteed[0] <= found.released <= found.guaranteed[1]
    for level in ("state", "county"):
        found, right = (
            each.ask_each(Query(sizes=2), level=level, typical=False) for each in (excerpt(folder, level=level), made)
        )
        assert [one.regions for one in found] == [one.regions for one in right]
        for one, other in zip(found, right, strict=True):
            same_cell(one, other)
    within = excerpt(folder, "C", level="county").ask_each(Query("sum", "C", 2), level="county", typical=False)
    assert [one.regions for one in within] == [("4",), ("5",), ("6",)]


@pytest.mark.parametrize("options", [{}, {"mechanism": "tallytree", "options": {"all_share": "0.4"}}])
@pytest.mark.parametrize("groups", [None, ("tenure",), ()])
def test_categories_of_some_regions_are_read_without_the_others(groups, options, several, tmp_path):
    if options and groups is not None:
        options = {}
    private = group_sizes(groups=groups)
    made = release(private, budget={"epsilon": 1}, unit="one_entity", intervals="guaranteed", **options)
    made.save(folder := tmp_path / "release")
    made = Release.load(folder)
    for regions in (["A"], ["x"], ["A", "y"], ["A", "C"]):
        some = excerpt(folder, *regions)
        for by in (None, {"tenure": "owned"}):
            one, other = (each.estimate(regions[0], 2, by=by, typical=False) for each in (some, made))
            same_cell(one, other)
            one, other = (each.difference(regions[0], regions[-1], by=by, typical=False) for each in (some, made))
            assert one.released == other.released
            one, other = (each.ask(Query("median", regions, by=by), typical=False) for each in (some, made))
            assert one.released == other.released
            assert one.guaranteed[0] <= one.released <= one.guaranteed[1]


def test_intervals_of_regions_alone_hold_the_truth(made, original, most):
    if not (original / COUNTS).is_dir():  # a release in one part is read whole
        assert len(excerpt(original, made.hierarchy.ids[1]).hierarchy) == len(made.hierarchy)
        return
    truth = blocks(scale=1 / 12_000).all_levels()
    tree, missed = made.hierarchy, 0
    some = np.random.default_rng(1).permutation(np.arange(10, len(tree)))[:200].reshape(100, 2)
    for one, other in some.tolist():
        if tree.level_of[one] != tree.level_of[other]:
            continue
        found = excerpt(original, tree.ids[one], tree.ids[other])
        low, high = found.difference(tree.ids[one], tree.ids[other], ">=2", typical=False).guaranteed
        missed += not low <= truth[one, 1:].sum() - truth[other, 1:].sum() <= high
    assert missed < 25  # of at most 100 at 95 %: more has a probability far below one in a million


def test_unknown_and_ambiguous_regions_are_refused_in_words(several, tmp_path):
    tree = Hierarchy.from_levels({"state": ["a", "b"], "county": ["Lincoln", "Lincoln"]}, ["state", "county"])
    private = GroupSizes(tree, 6, Sealed(np.ones((2, 6), np.int64)), name="two")
    release(private, budget=Budget(epsilon=1), unit=one_entity(), intervals="none").save(tmp_path / "release")
    with pytest.raises(SpecError, match=r"there is no region 'nowhere'; regions.parquet lists"):
        excerpt(tmp_path / "release", "nowhere")
    with pytest.raises(SpecError, match=r"2 regions are called 'Lincoln'; give one of the ids: a/Lincoln, b/Lincoln"):
        excerpt(tmp_path / "release", "Lincoln")
    with pytest.raises(SpecError, match=r"there is no level 'town'"):
        excerpt(tmp_path / "release", level="town")
    assert excerpt(tmp_path / "release", "A").hierarchy.ids[0] == "a"  # in any case, as people write it


def test_an_excerpt_is_not_saved(made, original, several, tmp_path):
    some = replace(made, partial=True)
    with pytest.raises(ReleaseError, match="a part of a release"):
        some.save(tmp_path / "some")


def test_the_upper_levels_are_read_without_the_others(made, original, most):
    if not (original / COUNTS).is_dir():  # a release in one part is read whole
        assert len(read_upper(original, 1).hierarchy) == len(made.hierarchy)
        return
    upper = read_upper(original, 100 * made.counts.shape[1])
    rows = len(upper.hierarchy)
    assert upper.hierarchy.levels == made.hierarchy.levels[: upper.hierarchy.depth]
    assert rows < len(made.hierarchy)
    assert np.array_equal(upper.counts, made.counts[:rows])
    assert np.array_equal(
        upper.error_bars.of["entities"]["guaranteed"].lower, made.error_bars.of["entities"]["guaranteed"].lower[:rows]
    )


def query(folder, *options):
    app(["query", str(folder), "--no-typical", *options], standalone_mode=False)


def test_the_command_reads_what_it_needs(made, original, most, tmp_path, capsys):
    needed, tree = shutil.copytree(original, tmp_path / "some"), made.hierarchy
    for path in [*needed.glob("entities/**/*.parquet"), *needed.glob("counts/level=block/**/*.parquet")]:
        path.unlink()
    state, tract, another = tree.ids[1], tree.ids[3], tree.ids[4]
    query(needed, "--region", state, "--size", ">=3")
    shown = capsys.readouterr().out
    assert f"{made.counts[1, 2:].sum():,}" in shown
    assert ("Only these regions of the release were read" in shown) == (most == LARGE)
    query(needed, "--mean", "--region", state)
    assert "Mean size" in capsys.readouterr().out
    query(needed, "--level", "state", "--size", "1")
    assert "by state" in capsys.readouterr().out
    query(needed, "--ratio-to", another, "--region", tract, "--size", "1")
    assert "Ratio of groups" in capsys.readouterr().out
    (tmp_path / "areas.csv").write_text(f"area,region\nboth,{tract}\nboth,{another}\none,{tract}\n")
    query(needed, "--regions", str(tmp_path / "areas.csv"), "--size", "1")
    assert f"{made.counts[[3, 4], 0].sum():,}" in capsys.readouterr().out
    query(original, "--whole", "--region", state, "--size", ">=3")
    assert "Only these regions" not in capsys.readouterr().out


def test_verification_says_how_far_it_is(original):
    told = []
    assert verify(original, progress=told.append).ok
    assert {"checking", "estimating again", "guaranteed intervals", "comparing files"} <= {one.doing for one in told}
