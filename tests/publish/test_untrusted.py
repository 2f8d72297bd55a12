"""Folders that strangers made: whatever they hold, `verify` and `load` come to an end and say what is wrong."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallytree import Budget, Release, ReleaseError, one_entity, release, verify
from tallytree.publish.untrusted import ParquetRows, check_room, parsed
from tests.faults.mutations import alarm, mend
from tests.oracles.example import made_up
from tests.publish.forging import claim_another_version

JSON = ["privacy.json", "datapackage.json", "manifest.json"]
FILES = [*JSON, "counts.parquet", "counts.csv", "regions.csv", "measurements.parquet"]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "release"
    release(made_up(11, public_totals=True), budget=Budget(epsilon=1), unit=one_entity()).save(folder)
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "release")


def is_refused(folder, words):
    """By `verify` in these words; and `load` gives a release or an error of ours."""
    with alarm():
        outcome = verify(folder)
        assert any(words in fault for fault in outcome.faults), outcome.faults
        try:
            Release.load(folder)
        except ReleaseError:
            return


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_is_not_waited_for(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    is_refused(folder, "is a pipe, not a regular file")


@pytest.mark.parametrize("name", FILES)
def test_a_link_is_not_followed_not_even_to_the_right_file(folder, name, tmp_path):
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    is_refused(folder, "is a symbolic link, not a regular file")


@pytest.mark.parametrize("name", FILES)
def test_a_link_to_a_file_without_end_is_not_followed(folder, name):
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    is_refused(folder, "is a symbolic link")


@pytest.mark.parametrize("name", FILES)
def test_a_directory_in_the_place_of_a_file_is_named(folder, name):
    (folder / name).unlink()
    (folder / name).mkdir()
    is_refused(folder, "is a directory")


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_too_large_is_not_read(folder, name):
    os.truncate(folder / name, 1 << 40)  # a hole: it takes no room
    is_refused(folder, "bytes, more than the")


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("depth", [100, 100_000, 5_000_000])
def test_brackets_within_brackets_are_refused(folder, name, depth):
    (folder / name).write_text('{"files": ' + "[" * depth + "]" * depth + "}")
    if name != "manifest.json":
        mend(folder)
    is_refused(folder, "deep")


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": ' + "9" * 5000 + "}", "{", "nul", "\ud800", ""])
def test_json_that_cannot_be_meant_is_refused(text):
    with pytest.raises(ReleaseError, match="it cannot be read"):
        parsed(text.encode("utf-8", "surrogatepass"), "it")


def edit(folder, change):
    value = json.loads((folder / "privacy.json").read_text())
    change(value)
    (folder / "privacy.json").write_text(json.dumps(value))
    mend(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.update(max_size=10**10),
        lambda value: value["neighbours"].update(max_size=10**10),
        lambda value: value.update(title="x" * 5_000_000),
        lambda value: value["measurements"][0].update(scale="1e999999999"),
        lambda value: value["measurements"][0].update(share="1/0"),
        lambda value: value["measurements"][0].update(regions=10**4000),
        lambda value: value["budget"].update(epsilon="1e999999999"),
        lambda value: value["intervals"].update(confidence=1e400),
        lambda value: value.update(software=None),
    ],
)
def test_absurd_statements_are_refused_in_time_and_in_few_words(folder, change):
    edit(folder, change)
    with alarm():
        outcome = verify(folder)
    assert not outcome.ok
    assert all(len(fault) < 1000 for fault in outcome.faults)


def test_measurements_of_ten_billion_sizes_are_refused_before_there_is_an_array_for_them(folder):
    path = folder / "measurements.parquet"
    schema = pq.read_schema(path)
    facts = json.loads(schema.metadata[b"tallytree"])
    facts["neighbours"]["max_size"] = 10**10
    facts["measured"], facts["in_rows"] = [], []
    with pq.ParquetWriter(path, schema.with_metadata({"tallytree": json.dumps(facts)})):
        pass
    mend(folder)
    is_refused(folder, "GB of memory")
    with pytest.raises(ReleaseError, match="GB of memory"):
        Release.load(folder)


@pytest.mark.parametrize("name", ["ledgered", "regions_declared_public"])
def test_a_yes_or_no_that_is_neither_is_refused(folder, name):
    path = folder / "measurements.parquet"
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        groups = [file.read_row_group(group) for group in range(file.num_row_groups)]
    facts = {**json.loads(schema.metadata[b"tallytree"]), name: None}
    schema = schema.with_metadata({"tallytree": json.dumps(facts)})
    with pq.ParquetWriter(path, schema) as writer:
        for rows in groups:
            writer.write_table(rows.cast(schema), row_group_size=rows.num_rows)
    mend(folder)
    is_refused(folder, "must be true or false")


def test_a_file_of_few_bytes_and_a_billion_rows_is_not_read(folder):
    schema = pq.read_schema(folder / "counts.parquet")
    texts = {"level": "total", "region": "total", "name": "total"}
    rows = 1_000_000
    columns = [pa.repeat(pa.scalar(texts.get(field.name, 1), field.type), rows) for field in schema]
    pq.write_table(pa.table(columns, schema=schema), folder / "counts.parquet")
    assert (folder / "counts.parquet").stat().st_size < 100_000
    mend(folder)
    is_refused(folder, "counts.parquet says that it has 1,000,000 rows")


def test_a_long_text_in_many_rows_is_not_spread_out(tmp_path):
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), pa.array(["x" * 100_000]))
    plain = pa.schema([("text", pa.string())])
    with pq.ParquetWriter(tmp_path / "long.parquet", plain, store_schema=False) as writer:
        writer.write_table(pa.table({"text": long.slice(0, 1)}).cast(plain))
    pq.write_table(pa.table({"text": long}), tmp_path / "bomb.parquet", store_schema=False)
    with ParquetRows(tmp_path / "bomb.parquet", most=10**6) as file:
        assert file.schema.field("text").type == pa.string()
        with pytest.raises(ReleaseError, match="texts of 10,000,000,000 bytes"):
            file.group(0)
    with ParquetRows(tmp_path / "long.parquet", most=10) as file:
        assert file.group(0)["text"][0].as_py() == "x" * 100_000


def test_a_file_that_unpacks_to_a_thousand_times_its_size_is_not_read(tmp_path):
    pq.write_table(pa.table({"text": ["x" * 10_000_000]}), tmp_path / "bomb.parquet", compression="zstd")
    with pytest.raises(ReleaseError, match="bytes would become 10,"):
        ParquetRows(tmp_path / "bomb.parquet", most=10)


READ_DAMAGED = """
import sys
from contextlib import suppress
from pathlib import Path
from tallytree.core.errors import ReleaseError
from tallytree.publish.untrusted import ParquetRows

whole = Path(sys.argv[1])
content, damaged = whole.read_bytes(), whole.with_name("damaged.parquet")
for place in range(len(content) - 400, len(content)):
    for value in (33, 66):
        print("byte", place, "as", value, flush=True)
        damaged.write_bytes(content[:place] + bytes([value]) + content[place + 1 :])
        with suppress(ReleaseError), ParquetRows(damaged, most=10**6) as file:
            list(map(file.group, file.groups))
print("all were read or refused")
"""


def test_no_damaged_byte_of_a_footer_ends_the_process(tmp_path):
    """Arrow ends the process, instead of raising, when some facts of a damaged column are asked for."""
    whole = tmp_path / "whole.parquet"
    pq.write_table(pa.table({"a": list(range(1000))}), whole)
    done = subprocess.run([sys.executable, "-c", READ_DAMAGED, str(whole)], capture_output=True, text=True, check=False)
    *_, last = done.stdout.splitlines()
    assert (done.returncode, last) == (0, "all were read or refused"), done.stderr


def test_more_cells_than_memory_are_refused():
    check_room(10**6, "a small release")
    with pytest.raises(ReleaseError, match="GB of memory"):
        check_room(10**15, "a large one")


def test_a_manifest_cannot_name_files_outside_the_folder(folder, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["../mine.txt"] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert "../mine.txt is missing" in verify(folder).faults
    assert "../mine.txt does not belong here: tallytree does not write it" in verify(folder).faults


def test_many_files_are_not_looked_at(folder):
    for number in range(200):
        (folder / str(number)).touch()
    is_refused(folder, "holds more than 100 files")


def test_noise_that_hides_nothing_cannot_be_saved(folder, tmp_path):
    made = Release.load(folder)
    seeded = replace(made, measurements=replace(made.measurements, noise_source="seeded"))
    with pytest.raises(ReleaseError, match="came from 'seeded', which protects nothing"):
        seeded.save(tmp_path / "seeded")
    assert not (tmp_path / "seeded").exists()


def test_what_cannot_be_checked_is_listed(folder):
    outcome = verify(folder)
    assert outcome.ok
    assert "privacy.json: title" in {each.place for each in outcome.assumptions}
    assert not any("typical" in each.place for each in outcome.assumptions)
    quick = verify(folder, typical=False)
    assert quick.ok
    assert any("typical" in each.place for each in quick.assumptions)


def test_another_version_is_said_and_the_check_goes_on(folder):
    claim_another_version(folder)
    outcome = verify(folder)
    assert outcome.ok
    assert any("made with tallytree '9.9'" in each.what for each in outcome.assumptions)
    edit(folder, lambda value: value.update(certificate="proved to be perfect"))
    assert any("certificate is 'proved to be perfect'" in fault for fault in verify(folder).faults)
