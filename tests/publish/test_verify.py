import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import tallytree.publish.release.files
from tallytree import (
    Budget,
    Release,
    ReleaseError,
    SpecError,
    one_entity,
    one_group,
    release,
    save_measurements,
    verify,
)
from tallytree.privacy.measurements import FirstStageFacts
from tallytree.publish.folder import MANIFEST
from tallytree.publish.release.error_bars import Publication
from tallytree.publish.release.release_run import estimate_release
from tests.oracles.example import made_up
from tests.publish.forging import claim_another_version, failed, forge_statistics, remade, sign_again

FILES = (
    *(f"{table}.{kind}" for table in ("counts", "entities", "regions") for kind in ("csv", "parquet")),
    "measurements.parquet",
    "privacy.json",
    "datapackage.json",
)


@pytest.fixture(scope="module", params=[False, True], ids=["private totals", "public totals"])
def original(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "release"
    made = release(made_up(11, public_totals=request.param), budget=Budget(epsilon=1), unit=one_entity())
    made.save(folder)
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "release")


def rewrite(folder, change, *, also_csv=True):
    """Change the table of counts, in both formats, and sign again."""
    schema = pq.read_schema(folder / "counts.parquet")
    rows = pq.read_table(folder / "counts.parquet").to_pylist()
    table = pa.Table.from_pylist(change(rows), schema=schema)
    pq.write_table(table, folder / "counts.parquet")
    if also_csv:
        pa.csv.write_csv(table, folder / "counts.csv")
    sign_again(folder)


def edit(folder, name, change):
    value = json.loads((folder / name).read_text())
    change(value)
    (folder / name).write_text(json.dumps(value))
    sign_again(folder)


def test_a_fresh_release_passes_all_checks(folder):
    verification = verify(folder)
    assert verification.faults == ()
    assert verification.ok
    assert verify(folder, id=verification.release_id).ok
    assert verify(folder, id=verification.release_id[:12].upper()).ok


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_in_any_file_is_found_and_named(folder, name):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    assert any(fault.startswith(f"{name} was changed") for fault in verify(folder).faults)


@pytest.mark.parametrize("part", range(10))
def test_a_changed_byte_of_the_manifest_is_found_by_its_digests_and_by_the_id(folder, part):
    release_id = verify(folder).release_id
    content = bytearray((folder / MANIFEST).read_bytes())
    content[len(content) * part // 10] ^= 1  # in JSON no byte means the same after this
    (folder / MANIFEST).write_bytes(content)
    assert not verify(folder).ok
    assert not verify(folder, id=release_id).ok


def test_a_manifest_that_means_the_same_but_is_written_otherwise_is_found_by_the_id(folder):
    release_id = verify(folder).release_id
    (folder / MANIFEST).write_text(json.dumps(json.loads((folder / MANIFEST).read_bytes())))
    assert verify(folder).ok
    (fault,) = verify(folder, id=release_id).faults
    assert "the release's id is" in fault


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_a_missing_file_is_found_and_named(folder, name):
    (folder / name).unlink()
    assert any(name in fault and "missing" in fault for fault in verify(folder).faults)


def test_an_added_file_is_found(folder):
    (folder / "notes.txt").write_text("hello")
    assert verify(folder).faults == ("notes.txt was added: it is not in manifest.json",)


def test_another_release_does_not_pass_for_this_one(folder, tmp_path):
    other = release(made_up(12, public_totals=False), budget=Budget(epsilon=1), unit=one_entity())
    release_id = other.save(tmp_path / "other")
    verification = verify(folder, id=release_id)
    assert not verification.ok
    assert "the release's id is" in verification.faults[0]


@pytest.mark.parametrize("text", ["", "1234567", "0x345678", "z" * 64, "0" * 65])
def test_what_is_not_enough_of_an_id_asks_for_more(folder, text):
    with pytest.raises(SpecError, match="8 or more digits"):
        verify(folder, id=text)


def test_a_missing_region_is_named(folder):
    rewrite(folder, lambda rows: [row for row in rows if row["region"] != "4"])
    found(folder, "region '4' is missing")


def test_a_missing_row_is_named(folder):
    rewrite(folder, lambda rows: [row for row in rows if (row["region"], row["size"]) != ("4", 2)])
    found(folder, "the row of region '4', size 2 is missing")


def test_an_added_row_is_named(folder):
    extra = {"level": "county", "region": "99", "size": 2, "count": 1}
    rewrite(folder, lambda rows: [*rows, {**rows[-1], **extra}])
    assert any("a row was added for region '99' and size 2" in fault for fault in verify(folder).faults)


def test_a_doubled_row_is_named(folder):
    rewrite(folder, lambda rows: [*rows, rows[-1]])
    assert any("size 6 appears twice" in fault for fault in verify(folder).faults)


def test_a_negative_count_is_named(folder):
    rewrite(folder, lambda rows: [{**rows[0], "count": -1}, *rows[1:]])
    assert any("is negative" in fault for fault in verify(folder).faults)


def test_a_wrong_level_is_named(folder):
    rewrite(folder, lambda rows: [{**rows[0], "level": "county"}, *rows[1:]])
    found(folder, "the level of region 'total' is wrong")


def test_a_count_that_breaks_the_sums_is_named(folder):
    rewrite(folder, lambda rows: [{**row, "count": row["count"] + (row["region"] == "4")} for row in rows])
    found(folder, "does not add up over the regions")
    found(folder, "counts.parquet: region '4', size")
    found(folder, "count is ")


def test_counts_that_add_up_but_were_not_estimated_are_found(folder):
    def one_more_everywhere(rows):
        chain = {"total", "C", "4"}
        return [{**row, "count": row["count"] + (row["region"] in chain and row["size"] == 3)} for row in rows]

    rewrite(folder, one_more_everywhere)
    found(folder, "counts.parquet: region 'total', size 3: count is ")
    public = json.loads((folder / "privacy.json").read_text())["grand_total"] is not None
    assert any("does not keep the known totals" in fault for fault in verify(folder).faults) == public


def test_csv_and_parquet_that_differ_are_found(folder):
    rewrite(folder, lambda rows: [{**rows[0], "count": rows[0]["count"] + 1}, *rows[1:]], also_csv=False)
    assert remade("counts.parquet") in failed(verify(folder))
    assert remade("counts.csv") not in failed(verify(folder))


def test_csv_and_parquet_of_different_length_are_found(folder):
    rewrite(folder, lambda rows: rows[:-1], also_csv=False)
    found(folder, "counts.parquet: it has")


def test_other_columns_are_found(folder):
    table = pq.read_table(folder / "counts.parquet")
    pq.write_table(table.append_column("extra", table["count"]), folder / "counts.parquet")
    sign_again(folder)
    found(folder, "counts.parquet: its columns have other names, types or descriptions")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda value: value["measurements"][0].update(scale="1/1000"), "measurements.0.scale is '1/1000'"),
        (lambda value: value["measurements"][0].update(share="1/2"), "measurements.0.share is '1/2'"),
        (lambda value: value["measurements"].pop(), "privacy.json: measurements is "),
        (
            lambda value: value["measurements"][0].update(sensitivity={"l1": 0, "l2_squared": 0}),
            "measurements.0.sensitivity.l1 is 0",
        ),
        (
            lambda value: value["measurements"][0].update(noise="discrete_gaussian"),
            "noise is 'discrete_gaussian'",
        ),
        (lambda value: value["budget"].update(epsilon="1/10"), "budget.epsilon is '1/10'"),
        (lambda value: value["neighbours"].update(rows_per_entity=4), "neighbours.rows_per_entity is 4"),
        (lambda value: value.update(unit="one_group"), "unit is 'one_group'"),
        (lambda value: value.update(statement="Trust us."), "statement is 'Trust us.'"),
        (lambda value: value.update(max_size_means="6"), "max_size_means is '6'"),
        (lambda value: value.pop("budget"), "budget is missing"),
        (lambda value: value["measurements"][0].update(scale="1/0"), "measurements.0.scale is '1/0'"),
        (lambda value: value.update(measurements=[3]), "measurements.0 is 3"),
    ],
)
def test_a_forged_privacy_statement_is_found(folder, change, found):
    edit(folder, "privacy.json", change)
    assert any(found in fault for fault in verify(folder).faults), verify(folder).faults


def test_a_data_package_that_hides_the_open_last_size_is_found(folder):
    def hide(value):
        value["resources"][0]["schema"]["fields"][3]["description"] = "size"

    edit(folder, "datapackage.json", hide)
    found(folder, "datapackage.json: resources.0.schema.fields.3.description is 'size'")


def test_changed_regions_are_found(folder):
    lines = (folder / "regions.csv").read_text().splitlines()
    (folder / "regions.csv").write_text("\n".join(lines[:-1]) + "\n")
    sign_again(folder)
    found(folder, "regions.csv: row 12 is missing")


def test_forged_public_totals_are_found(folder):
    with open(folder / "regions.csv", newline="") as file:
        rows = list(csv.reader(file))
    rows[-1][5] = "12345"
    with open(folder / "regions.csv", "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    sign_again(folder)
    found(folder, "regions.csv: row ")


def test_measurements_of_another_release_are_found(folder, tmp_path):
    other = release(made_up(12, public_totals=False), budget=Budget(epsilon=2), unit=one_entity())
    save_measurements(other.measurements, folder / "measurements.parquet")
    sign_again(folder)
    found(folder, "budget.epsilon is '1'; what follows from the other files is '2'")


def test_large_releases_leave_their_zero_cells_out(tmp_path, monkeypatch):
    monkeypatch.setattr(tallytree.publish.release.table_layout, "SMALL", 10)
    made = release(made_up(2, public_totals=True, max_size=40), budget=Budget(epsilon=1), unit=one_entity())
    made.save(tmp_path / "sparse")
    assert verify(tmp_path / "sparse").faults == ()
    stored = pq.read_table(tmp_path / "sparse" / "counts")
    assert len(stored) == np.count_nonzero(made.counts) < made.counts.size
    assert np.array_equal(Release.load(tmp_path / "sparse").counts, made.counts)


def test_a_release_is_never_written_over_something_else(folder, tmp_path):
    made = Release.load(folder)
    with pytest.raises(ReleaseError, match="already exists"):
        made.save(folder)
    made.save(folder, replace=True)
    assert verify(folder).ok
    (tmp_path / "mine").mkdir()
    with pytest.raises(ReleaseError, match="is not a release"):
        made.save(tmp_path / "mine", replace=True)


def test_a_failed_write_leaves_nothing_behind(folder, tmp_path, monkeypatch):
    made = Release.load(folder)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(tallytree.publish.release.files, "write_measurements", fail)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OSError, match="disk full"):
        made.save(tmp_path / "new")
    assert sorted(tmp_path.iterdir()) == before


def test_there_is_nothing_to_verify_where_nothing_is(tmp_path):
    with pytest.raises(ReleaseError, match="no release directory"):
        verify(tmp_path / "nowhere")
    assert not verify(tmp_path).ok


def test_no_file_tells_where_or_when_it_was_made(folder):
    for name in FILES:
        content = (folder / name).read_bytes()
        assert str(folder.parent).encode() not in content
        assert b"2026" not in content or name.endswith(".parquet")


# -------------------------------------------------------------------- options, and what was measured first

OPTIONS = {"methods": ["sorted-sizes", "cumulative", "sorted-sizes"], "totals_share": "1/4", "largest_share": "1/8"}


@pytest.fixture(scope="module")
def settled_original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("settled") / "release"
    data = made_up(11, public_totals=False)
    made = release(data, budget=Budget(epsilon=8), unit=one_entity(), mechanism="coc-matching", options=OPTIONS)
    made.save(folder)
    return folder


@pytest.fixture
def settled(settled_original, tmp_path):
    folder = shutil.copytree(settled_original, tmp_path / "settled")
    assert verify(folder).faults == ()
    return folder


def found(folder, text):
    faults = verify(folder).faults
    assert any(text in fault for fault in faults), faults


def forge_measurements(folder, **changes):
    """Other totals or another largest size, in a file of measurements that is whole in itself."""
    made = Release.load(folder)
    before = made.measurements
    forged = replace(before, first_stage=replace(before.first_stage, **changes))
    measured = []
    for part in forged.measured:
        values = part.values
        if part.view == "sorted_sizes":
            values = np.resize(values, int(forged.lengths(part.level).sum()))
        elif part.view == "at_least":
            values = np.resize(values, (len(values), forged.columns(part.view)))
        measured.append(replace(part, values=values))
    save_measurements(replace(forged, measured=tuple(measured)), folder / "measurements.parquet")
    sign_again(folder)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"totals_share": "1/5"}, "does not plan these measurements"),
        ({"largest_share": None}, "does not plan these measurements"),
        ({"methods": ["cumulative"] * 3}, "does not plan these measurements"),
        ({"methods": ["cumulative"] * 3}, "works on at_least, but level 0 measured sorted_sizes"),
        ({"methods": ["cumulative"]}, "one method for each level"),
        ({"methods": ["best"] * 3}, "unknown method 'best'"),
        ({"speed": "high"}, "has no option 'speed'"),
        ({"totals_share": "2"}, "totals_share must lie between 0 and 1"),
    ],
)
def test_changed_options_are_found(settled, options, fault):
    edit(settled, "privacy.json", lambda value: value["mechanism"]["options"].update(options))
    found(settled, fault)


@pytest.mark.parametrize("options", [None, 3, ["methods"], "auto"])
def test_options_of_another_kind_are_found(settled, options):
    edit(settled, "privacy.json", lambda value: value["mechanism"].update(options=options))
    assert not verify(settled).ok


def test_another_way_to_merge_gives_other_counts_and_is_found(settled):
    edit(settled, "privacy.json", lambda value: value["mechanism"]["options"].update(merge="plain"))
    found(settled, "counts.parquet: region")


def test_changed_totals_in_the_measurements_are_found(settled):
    totals = Release.load(settled).measurements.first_stage.totals.copy()
    for region in ("total", "C", "4"):
        totals[Release.load(settled).hierarchy.ids.index(region)] += 1
    forge_measurements(settled, totals=totals)
    found(settled, "the totals or the largest size in measurements.parquet do not follow")


@pytest.mark.parametrize("largest", [3, 5, 7])
def test_a_changed_largest_size_in_the_measurements_is_found(settled, largest):
    assert Release.load(settled).measurements.max_size == 6
    forge_measurements(settled, max_size=largest)
    found(settled, "the totals or the largest size in measurements.parquet do not follow")
    found(settled, "privacy.json: max_size is 6")


def test_a_largest_size_that_was_not_measured_but_settled_is_found(folder):
    made = Release.load(folder)
    forged = replace(made.measurements, first_stage=FirstStageFacts(None, 6))
    save_measurements(forged, folder / "measurements.parquet")
    sign_again(folder)
    found(folder, "do not follow from what was measured of them")


@pytest.mark.parametrize("told", [[], ["nothing was measured first"]])
def test_a_statement_that_hides_what_was_measured_first_is_found(settled, told):
    edit(settled, "privacy.json", lambda value: value.update(measured_first=told))
    found(settled, "privacy.json: measured_first")


# -------------------------------------------------------------------- what readers use in place of the rows


@pytest.mark.parametrize("version", ["the same", "another"])
def test_forged_column_statistics_are_found_although_all_rows_are_right(folder, version):
    path = folder / "counts.parquet"
    largest = forge_statistics(path, "count")
    assert pq.read_table(path, filters=[("count", ">=", largest)]).num_rows == 0  # what readers would believe
    assert pq.read_table(path)["count"].to_pylist().count(largest) > 0
    sign_again(folder)
    if version == "another":
        claim_another_version(folder)
    assert failed(verify(folder)) == [remade("counts.parquet")]
    found(folder, "counts.parquet: the statistics of column count do not fit its rows")


@pytest.mark.parametrize("how", [{"write_page_index": True}, {"sorting_columns": [pq.SortingColumn(4)]}])
def test_an_index_or_an_order_that_nobody_checks_is_found(folder, how):
    path = folder / "counts.parquet"
    pq.write_table(pq.read_table(path), path, **how)
    claim_another_version(folder)
    assert failed(verify(folder)) == [remade("counts.parquet")]


def test_bytes_after_the_rows_are_found(folder):
    path = folder / "counts.parquet"
    content, footer = path.read_bytes(), pq.ParquetFile(path).metadata.serialized_size + 8
    path.write_bytes(content[:-footer] + b"a filter" + content[-footer:])
    claim_another_version(folder)
    found(folder, "counts.parquet: it holds more than its rows")


def test_other_bytes_with_the_same_content_pass_for_another_version_only(folder):
    path = folder / "counts.parquet"
    pq.write_table(pq.read_table(path), path, compression="none", row_group_size=7)
    sign_again(folder)
    found(folder, "counts.parquet: its content is right, but its bytes differ")
    claim_another_version(folder)
    assert verify(folder).faults == ()


# -------------------------------------------------------------------- forms and versions


@pytest.mark.parametrize("form", [None, 2, True, "1"])
def test_a_folder_of_another_form_names_the_version_that_can_verify_it(folder, form):
    edit(folder, "privacy.json", lambda value: value["software"].update(tallytree="0.2.9"))
    manifest = json.loads((folder / MANIFEST).read_text())
    if form is None:  # as up to 0.3.0
        manifest = {"files": manifest["files"]}
    else:
        manifest["form"] = form
    (folder / MANIFEST).write_text(json.dumps(manifest))
    outcome = verify(folder)
    assert outcome.faults == ("written by 0.2.9: verify it with that version",)
    assert outcome.release_id is not None


def test_versions_that_differ_within_a_folder_are_found(folder):
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, "tallytree": "9.9"}))
    found(folder, "manifest.json and privacy.json name different versions")


def test_another_optimum_of_another_version_passes_and_one_of_this_version_does_not(tmp_path):
    how = {"budget": Budget(epsilon=1), "unit": one_group(), "mechanism": "pgsr-hierarchical-dp", "intervals": "none"}
    made = release(made_up(3, public_totals=False), **how)
    tree, noisy = made.measurements.hierarchy, np.zeros_like(made.counts)
    above = int(np.argmax(np.diff(tree.child_starts)[tree.level_slice(tree.depth - 2)])) + tree.level_starts[-3]
    noisy[[*path_to(tree, above)], 0] = 1  # one group in one leaf or another below: these are as near
    parts = tuple(
        replace(part, values=np.ascontiguousarray(noisy[tree.level_slice(part.level)]))
        for part in made.measurements.measured
    )
    one = estimate_release(
        replace(made.measurements, measured=parts, receipt=None), made.made_by, Publication(intervals="none")
    )
    other, worse = np.zeros_like(one.counts), np.zeros_like(one.counts)
    first, last = tree.child_starts[above : above + 2]
    taken = first + int(np.argmax(one.counts[first:last, 0]))
    other[[*path_to(tree, first if taken > first else last - 1)], 0] = 1
    worse[[*path_to(tree, first)], 0] = 2
    for name, counts, ok in (("other", other, True), ("worse", worse, False)):
        replace(one, counts=counts).save(tmp_path / name)
        assert not verify(tmp_path / name).ok
        claim_another_version(tmp_path / name)
        assert verify(tmp_path / name).ok == ok


def path_to(tree, leaf):
    while leaf >= 0:
        yield leaf
        leaf = int(tree.parents[leaf])
