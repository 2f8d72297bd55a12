"""The directory of synthetic households: linked tables, a statement that adds up, and no change that goes unseen."""

import csv
import json
import shutil
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallytree import Budget, Marginal, ReleaseError, Synthesis, synthesize, verify
from tallytree.publish.folder import digest, write_json
from tallytree.publish.microdata import synthesis as microdata
from tests.synthesis.made_up import made_up, released_sizes

HOMES = made_up()
QUICK = {"budget": Budget(rho="0.5", delta="1e-6"), "method": "mwem", "options": {"rounds": 3, "empty": True}}


@pytest.fixture(scope="module")
def plain():
    return synthesize(HOMES, **QUICK)


@pytest.fixture(scope="module")
def agreeing():
    return synthesize(HOMES, **QUICK, release=released_sizes(HOMES, public=False), region="county")


@pytest.fixture(scope="module")
def saved(agreeing, tmp_path_factory):
    folder = tmp_path_factory.mktemp("microdata") / "synthetic"
    return folder, agreeing.save(folder)


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved[0], tmp_path / "copy")


def forge(folder):
    """Make the manifest fit again, so that only the other promises can find a change."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = {name: digest(folder / name) for name in manifest["files"]}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def statement(folder):
    return json.loads((folder / "privacy.json").read_text())


# -------------------------------------------------------------------- what is written


def test_a_saved_directory_keeps_its_promises_and_has_the_id_that_was_returned(saved):
    folder, given = saved
    found = verify(folder, id=given)
    assert found.ok, found.faults
    assert found.release_id == given
    assert not verify(folder, id="0" * 64).ok


def test_the_two_tables_are_linked_and_hold_labels(saved, agreeing):
    homes, people = (pq.read_table(saved[0] / name).to_pandas() for name in ("households.parquet", "persons.parquet"))
    assert list(homes.columns) == ["household_id", "tenure", "county", "persons"]
    assert list(people.columns) == ["household_id", "person", "age", "sex"]
    assert homes["household_id"].tolist() == list(range(1, agreeing.number + 1))
    assert set(homes["county"]) <= {"01", "02", "03"}
    assert set(people["sex"]) <= {"f", "m"}
    sizes = people.groupby("household_id").size().reindex(homes["household_id"], fill_value=0)
    assert sizes.tolist() == homes["persons"].tolist()
    assert (
        people.groupby("household_id")["person"]
        .apply(lambda numbers: numbers.tolist())
        .map(lambda numbers: numbers == list(range(1, len(numbers) + 1)))
        .all()
    )


def test_the_statement_has_every_round_and_adds_up(saved, agreeing):
    told = statement(saved[0])
    assert sum(Fraction(row["cost"]) for row in told["rounds"]) == Fraction(told["spent"]) == Fraction(1, 2)
    assert told["unspent"] == "0"
    assert [row["kind"] for row in told["rounds"]] == [past.request["kind"] for past in agreeing.rounds]
    assert {row["noise"] for row in told["rounds"] if row["kind"] == "measure"} == {"discrete_gaussian"}
    assert told["agreement"]["rho"] == str(Fraction(1, 2) + 4 * Fraction(1, 20))
    assert "four times the ρ" in told["agreement"]["statement"]
    assert told["agreement"]["statement"] in told["statement"]
    assert "ρ = 0.5," not in told["statement"]  # what the rounds cost alone is not the promise of these files
    assert "none were drawn" in told["agreement"]["promise"]
    assert told["truncation"].startswith("Households with more than 3 persons were refused")
    assert "without a ledger" in told["statement"]


def test_with_public_totals_the_statement_says_that_regions_are_not_protected(tmp_path):
    made = synthesize(HOMES, **QUICK, release=released_sizes(HOMES, public=True), region="county")
    made.save(tmp_path / "out")
    told = statement(tmp_path / "out")
    assert "the region of each household" in " ".join(told["not_protected"])
    assert "NOT protected: the regions" in told["statement"]
    assert "the regions of households" in told["public"]
    assert told["agreement"]["rho"] == str(Fraction(1, 2) + Fraction(1, 20))
    assert verify(tmp_path / "out").ok


def test_answers_are_the_files_counts_scaled_to_the_real_number(plain, tmp_path):
    plain.save(tmp_path / "out", number=120)
    answers = pq.read_table(tmp_path / "out" / "answers.parquet").to_pandas()
    homes = pq.read_table(tmp_path / "out" / "households.parquet").to_pandas()
    with (tmp_path / "out" / "questions.csv").open(newline="") as file:
        asked = list(csv.DictReader(file))
    place = next(row["question"] for row in asked if row["table"] == Marginal("households", ("county",)).describe())
    rows = answers[answers["question"] == int(place)].set_index("values")
    for county in ("01", "02", "03"):
        assert rows["synthetic"][county] == (homes["county"] == county).sum()
        assert rows["answer"][county] == pytest.approx(rows["synthetic"][county] / 2)
    assert len(asked) == len(plain.workload)
    assert verify(tmp_path / "out").ok


def test_many_households_are_written_in_chunks_and_an_empty_table_is_a_table(plain, tmp_path, monkeypatch):
    real = Synthesis.draw
    monkeypatch.setattr(Synthesis, "draw", lambda self, number=None: real(self, number, chunk=40))
    told = []
    plain.save(tmp_path / "many", number=130, progress=told.append)
    assert [stage.done for stage in told] == [33, 66, 98, 130]
    assert {stage.of for stage in told} == {130}
    assert pq.ParquetFile(tmp_path / "many" / "households.parquet").num_row_groups == 4
    assert verify(tmp_path / "many").ok
    plain.save(tmp_path / "none", number=0)
    assert pq.read_table(tmp_path / "none" / "persons.parquet").num_rows == 0
    assert verify(tmp_path / "none").ok


def test_answers_beyond_the_limit_are_left_out_and_counted(plain, tmp_path, monkeypatch):
    monkeypatch.setattr(microdata, "MOST_ANSWERS", 30)
    plain.save(tmp_path / "out")
    written = pq.read_table(tmp_path / "out" / "answers.parquet").num_rows
    assert 0 < written <= 30
    assert statement(tmp_path / "out")["answers_left_out"] == plain.workload.queries - written
    assert verify(tmp_path / "out").ok


@pytest.mark.parametrize("unit", ["one_group_added_or_removed", "one_person_attributes"])
def test_other_units_verify_and_say_what_is_not_protected(unit, tmp_path):
    synthesize(HOMES, unit=unit, **QUICK).save(tmp_path / "out")
    found, told = verify(tmp_path / "out"), statement(tmp_path / "out")
    assert found.ok, found.faults
    words = " ".join(told["not_protected"])
    assert ("their numbers of persons" in words) == (unit == "one_person_attributes")
    assert [row["words"] for row in told["published_exactly"]] == (
        ["persons"] if unit == "one_person_attributes" else []
    )
    assert told["real_households"]["known"] == ("public" if unit == "one_person_attributes" else "measured with noise")


def test_nothing_is_written_over_and_nothing_is_left_half_written(plain, saved, tmp_path, monkeypatch):
    with pytest.raises(ReleaseError, match="already exists"):
        plain.save(saved[0])

    def fail(*_):
        raise OSError

    monkeypatch.setattr(microdata, "data_package", fail)
    with pytest.raises(OSError):  # noqa: PT011
        plain.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------- what verify finds


def rewritten(folder, name, change):
    path = folder / name
    groups = pq.ParquetFile(path)
    tables = [change(groups.read_row_group(group)) for group in range(groups.num_row_groups)]
    with pq.ParquetWriter(path, tables[0].schema) as file:
        for table in tables:
            file.write_table(table, row_group_size=max(1, table.num_rows))


def with_column(table, name, values):
    place = table.column_names.index(name)
    return table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))


def other_label(table, name, label):
    values = table[name].cast(pa.string()).to_pylist()
    return table.set_column(table.column_names.index(name), name, pa.array([label, *values[1:]]).dictionary_encode())


def in_json(folder, change):
    told = statement(folder)
    change(told)
    (folder / "privacy.json").write_text(json.dumps(told))


def in_sizes(folder):
    path = folder / "size_table.csv"
    lines = path.read_text().splitlines()
    region, size, count = lines[1].split(",")
    path.write_text("\n".join([lines[0], f"{region},{size},{int(count) + 1}", *lines[2:]]) + "\n")


def cheaper(told):
    row = next(row for row in told["rounds"] if row["kind"] == "measure")
    row["cost"] = str(Fraction(row["cost"]) / 2)


def less_sensitive(told):
    row = next(row for row in told["rounds"] if row["kind"] == "measure")
    row["sensitivity"] = {"l1": 0, "l2_squared": 0}


CHANGES = {
    "an unknown label": (
        lambda folder: rewritten(folder, "households.parquet", lambda table: other_label(table, "tenure", "lent")),
        "'lent'",
    ),
    "another label": (
        lambda folder: rewritten(
            folder,
            "households.parquet",
            # One label for all: two that are swapped leave the counts as they are where there are as many of each.
            lambda table: with_column(
                table, "tenure", ["owned" if "rented" in table["tenure"].to_pylist() else "rented"] * table.num_rows
            ),
        ),
        "answers.parquet: question",
    ),
    "an id twice": (
        lambda folder: rewritten(
            folder,
            "households.parquet",
            lambda table: with_column(table, "household_id", [1, *table["household_id"].to_pylist()[:-1]]),
        ),
        "households.parquet: household_id 2: household_id is 1",
    ),
    "a person in another household": (
        lambda folder: rewritten(
            folder,
            "persons.parquet",
            lambda table: with_column(table, "household_id", [9999, *table["household_id"].to_pylist()[1:]]),
        ),
        "persons.parquet: household_id 1: household_id is 9999",
    ),
    "persons out of number": (
        lambda folder: rewritten(
            folder, "persons.parquet", lambda table: with_column(table, "person", [7, *table["person"].to_pylist()[1:]])
        ),
        "person is 7; expected 1",
    ),
    "a household too large": (
        lambda folder: rewritten(
            folder,
            "households.parquet",
            lambda table: with_column(table, "persons", [4, *table["persons"].to_pylist()[1:]]),
        ),
        "more than 3",
    ),
    "a cheaper round": (lambda folder: in_json(folder, cheaper), "privacy.json: spent is '1/2'"),
    "a smaller sensitivity": (lambda folder: in_json(folder, less_sensitive), "sensitivity.l1 is 0"),
    "a smaller budget": (
        lambda folder: in_json(folder, lambda told: told["budget"].update(rho="1/4")),
        "more than the budget 1/4",
    ),
    "a lost measurement that is used": (
        lambda folder: in_json(
            folder, lambda told: [row.update(lost=True) for row in told["rounds"] if row["kind"] == "measure"]
        ),
        "but no round of privacy.json measured",
    ),
    "a protected table published exactly": (
        lambda folder: in_json(
            folder,
            lambda told: told["published_exactly"].append({"table": Marginal("persons").to_json(), "words": "persons"}),
        ),
        "although they are protected",
    ),
    "another released count": (in_sizes, "were released"),
    "a cheaper release": (
        lambda folder: in_json(folder, lambda told: told["agreement"].update(steps_of_the_release=1)),
        "agreement.steps_of_the_release is 1",
    ),
    "fewer things not protected": (
        lambda folder: in_json(folder, lambda told: told.update(not_protected=[])),
        "not_protected is []",
    ),
    "another relation in words": (
        lambda folder: in_json(folder, lambda told: told.update(neighbours_in_words="one person")),
        "neighbours_in_words is 'one person'",
    ),
    "a smaller error": (
        lambda folder: (folder / "questions.csv").write_text(
            (folder / "questions.csv").read_text().replace("not measured", "measured", 1)
        ),
        "questions.csv: row ",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_found_even_if_the_manifest_was_made_to_fit(change, copy):
    alter, message = CHANGES[change]
    alter(copy)
    found = verify(copy)
    assert any("was changed" in fault for fault in found.faults)
    forge(copy)
    found = verify(copy)
    assert any(message in fault for fault in found.faults), found.faults
    assert not any("was changed" in fault for fault in found.faults)


def leaves(value, place=()):
    """The place of each plain value, and of each empty list."""
    if isinstance(value, dict | list) and value:
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, (*place, key))
    else:
        yield place


def changed(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list):
        return [*value, "more"]
    return f"{value} more" if isinstance(value, str) else "more"


def kind_of(place):
    return ".".join("*" if isinstance(key, int) else key for key in place)


@pytest.mark.parametrize("name", ["privacy.json", "datapackage.json", "schema.json"])
def test_every_stated_value_is_made_again_or_listed_as_an_assumption(name, saved, tmp_path):
    folder = shutil.copytree(saved[0], tmp_path / "copy")
    whole = (folder / name).read_text()
    last = {kind_of(place): place for place in leaves(json.loads(whole))}
    for kind, place in last.items():
        content = json.loads(whole)
        inside = content
        for key in place[:-1]:
            inside = inside[key]
        inside[place[-1]] = changed(inside[place[-1]])
        write_json(folder / name, content)
        forge(folder)
        found = verify(folder)
        listed = {one.place for one in found.assumptions}
        assert not found.ok or f"{name}: {kind}" in listed, kind


@pytest.mark.parametrize("name", ["privacy.json", "datapackage.json", "schema.json"])
def test_added_and_missing_fields_are_found(name, saved, tmp_path):
    folder = shutil.copytree(saved[0], tmp_path / "copy")
    whole = json.loads((folder / name).read_text())
    changes = [{**whole, "more": 1}] + [{key: whole[key] for key in whole if key != left} for left in whole]
    for change in changes:
        (folder / name).write_text(json.dumps(change))
        forge(folder)
        assert not verify(folder).ok, set(whole) ^ set(change)


def with_cells(table, name, change):
    return with_column(table, name, change(table[name].to_pylist()))


MEASURED = {
    "a smaller variance": lambda table: with_cells(table, "variance", lambda all_: [all_[0] / 2, *all_[1:]]),
    "another cell": lambda table: with_cells(table, "cell", lambda all_: [all_[0] + 1, *all_[1:]]),
    "another count": lambda table: with_cells(table, "value", lambda all_: [all_[0] + 7, *all_[1:]]),
    "a row more": lambda table: pa.concat_tables([table, with_column(table.slice(0, 1), "measurement", [99])]),
    "a row less": lambda table: table.slice(1),
    "rows in another order": lambda table: table.take(list(reversed(range(table.num_rows)))),
}


@pytest.mark.parametrize("change", MEASURED)
def test_measurements_are_compared_with_the_rounds_that_paid_for_them(change, copy):
    path = copy / "measurements.parquet"
    pq.write_table(MEASURED[change](pq.read_table(path)), path)
    forge(copy)
    assert not verify(copy).ok


@pytest.mark.parametrize("name", [*microdata.FILES, "size_table.csv", "manifest.json"])
def test_a_missing_or_damaged_file_is_a_fault_and_never_a_crash(name, copy):
    for content in (b"\x00nonsense", b""):
        (copy / name).write_bytes(content)
        assert not verify(copy).ok
    (copy / name).unlink()
    assert not verify(copy).ok


def test_an_added_file_is_found(copy):
    (copy / "notes.txt").write_text("hello")
    assert any("notes.txt was added" in fault for fault in verify(copy).faults)


def test_the_sizes_in_the_files_are_the_released_ones(saved, agreeing):
    homes = pq.read_table(saved[0] / "households.parquet").to_pandas()
    released = agreeing.table.counts
    for county, sizes in zip(("01", "02", "03"), released, strict=True):
        found = np.bincount(homes["persons"][homes["county"] == county], minlength=4)
        assert found.tolist() == [0, *sizes.tolist()]
