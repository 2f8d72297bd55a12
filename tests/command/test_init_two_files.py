"""`tallytree init PERSONS HOUSEHOLDS`: a spec for two private files, and no value of a column of either anywhere."""

import re

import pytest

import tallytree as tt
from tallytree.command.release_spec import ReleaseSpec
from tests.command.test_init import PLACES, REGIONS, everything

HOMES = [(f"h{home}", *PLACES[home % 4], ("owned", "rented")[home % 2]) for home in range(60)]
PERSONS = [(f"p{home}-{n}", f"h{home}") for home in range(60) for n in range(home % 4)]
ALL = ["--yes", "--regions", "places.csv"]
FILES = ["persons.csv", "homes.csv"]


def csv_text(rows, *names, delimiter=";"):
    return "\n".join(delimiter.join(map(str, row)) for row in (names, *rows)) + "\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "persons.csv").write_text(csv_text(PERSONS, "person_id", "hhid"))
    (tmp_path / "homes.csv").write_bytes(csv_text(HOMES, "hhid", "canton", "municipality", "tenure").encode("cp1252"))
    (tmp_path / "places.csv").write_text(REGIONS)
    return tmp_path


def test_guesses_make_a_spec_that_is_released_and_verified(typed, folder):
    told = typed("init", *FILES, *ALL)
    for command in re.findall(r"tallytree (validate|ledger open|release|verify) ([\w. -]*?)(?= [A-Z]|$)", told):
        typed(*" ".join(command).split())
    assert tt.verify(folder / "release").ok
    text, spec = (folder / "release.toml").read_text(), ReleaseSpec.load("release.toml")
    assert re.search('persons = "persons.csv" .*\nhouseholds = "homes.csv" .*\n.*\nid = "hhid" ', text)
    assert (spec.data.group, spec.data.entity, spec.data.region) == ("hhid", "person_id", "municipality")
    assert (spec.data.encoding, spec.regions.levels) == ("windows-1252", ["canton", "municipality"])
    assert spec.read().counts.open_at_the_privacy_border().sum() == 45  # nobody lives in 15 of the households
    assert spec.report.groups == "households"


def test_the_only_column_in_both_files_is_the_guess_for_the_id(typed, folder):
    for name in FILES:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content.replace(b"hhid", b"number", 1))
    typed("init", *FILES, *ALL)
    assert ReleaseSpec.load("release.toml").data.group == "number"


def test_two_sheets_of_a_workbook(typed, folder):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for sheet, rows in (("persons", [("person_id", "hhid"), *PERSONS]), ("homes", [("hhid", "municipality"), *(
            (home, place) for home, _, place, _ in HOMES)])):  # fmt: skip
        page = book.create_sheet(sheet)
        for row in rows:
            page.append(row)
    book.save(folder / "data.xlsx")
    how = ["--table", "persons", "--households-table", "homes"]
    refused = typed("init", "data.xlsx", "data.xlsx", *ALL, "--table", "homes", "--households-table", "homes", code=2)
    assert "expected another table, with one row for each group" in refused
    (folder / "copy.xlsx").write_bytes((folder / "data.xlsx").read_bytes())
    typed("init", "data.xlsx", "copy.xlsx", *ALL, *how)
    assert ReleaseSpec.load("release.toml").read().counts.open_at_the_privacy_border().sum() == 45


# -------------------------------------------------------------------- private values

CANARY = re.compile("zebra|7770[0-9]")


@pytest.fixture
def canaries(folder):
    """Files whose every cell of every column is a canary; the public regions are not."""
    persons = [(f"zebra-p{n}", f"zebra-{n % 9}", 77700 + n % 3) for n in range(40)]
    homes = [(f"zebra-{n}", f"zebra-c{n % 2}", f"zebra-m{n % 3}", f"zebra-{n % 2}") for n in range(9)]
    (folder / "persons.csv").write_text(csv_text(persons, "person_id", "hhid", "income"))
    (folder / "homes.csv").write_text(csv_text(homes, "hhid", "canton", "municipality", "tenure"))
    return folder


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([*ALL], 0),
        ([*ALL, "--counts"], 0),
        ([*ALL, "--counts", "--entity", "income"], 2),
        ([*ALL, "--counts", "--entity", "nonsense"], 2),
        ([*ALL, "--group", "tenure"], 2),
        ([*ALL, "--region", "nonsense"], 2),
        (["--yes"], 2),
        ([], 2),
    ],
)
def test_no_value_of_either_file_is_shown_or_stored(typed, canaries, words, code):
    before = everything(canaries)
    assert not CANARY.search(typed("init", *FILES, *words, code=code))
    after = everything(canaries)
    new = {name: content for name, content in after.items() if name not in before}
    assert {name: after[name] for name in before} == before
    assert sorted(new) == ([] if code else ["release.schema.json", "release.toml"])
    assert not any(CANARY.search(content.decode()) for content in new.values())


def test_regions_that_are_declared_public_are_all_that_is_stored(typed, canaries):
    told = typed("init", *FILES, "--yes", "--regions-are-public", "--region", "canton", "--counts")
    assert not CANARY.search(told)
    assert "40 and 9 rows" in told
    assert not CANARY.search((canaries / "release.toml").read_text())
    assert (canaries / "regions.csv").read_text().split() == ["canton", "zebra-c0", "zebra-c1"]


# -------------------------------------------------------------------- bad input

BAD = {
    "no first line of names": ({"homes.csv": "h1;0261\nh2;0198\nh1;0261\n"}, [], "does not look like names of columns"),
    "a column twice": ({"homes.csv": "hhid;hhid\n1;2\n"}, [], "each column a different name"),
    "an empty name": ({"homes.csv": "hhid;\n1;2\n"}, [], "each column a different name"),
    "an empty file": ({"homes.csv": ""}, [], "each column a different name"),
    "one column": ({"homes.csv": "hhid\nh1\n"}, [], "homes.csv has one column"),
    "no common column": ({"homes.csv": "number;municipality\n1;0261\n"}, [], "have no column of the same name"),
    "an id in one file": ({}, ["--group", "person_id"], "there is no column 'person_id' in both files"),
    "ids that repeat": (
        {"homes.csv": csv_text([*HOMES, HOMES[0]], "hhid", "canton", "municipality", "tenure")},
        ["--counts"],
        "'hhid' repeats: 60 values in 61 rows, so it does not name a household",
    ),
    "no region of the persons": ({}, ["--region", "person_id"], "there is no column 'person_id'"),
    "regions that do not match": ({"places.csv": "land,ort\nA,B\n"}, [], "unknown which names the regions"),
    "the households as regions": ({}, ["--regions", "homes.csv"], "is a file of the microdata"),
    "a spec that exists": ({"release.toml": "# mine\n"}, [], "release.toml exists already; nothing was written"),
    "no such file": ({}, ["--households-table", "x"], "leave it out for other sources"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_and_nothing_is_written(typed, folder, name):
    files, words, message = BAD[name]
    for file, content in files.items():
        (folder / file).write_text(content)
    before = everything(folder)
    given = ["--yes", *([] if "--regions" in words else ["--regions", "places.csv"]), *words]
    assert message in typed("init", *FILES, *given, code=2)
    assert everything(folder) == before


def test_the_second_file_is_another_one_that_exists(typed, folder):
    before = everything(folder)
    assert "expected another table" in typed("init", "persons.csv", "./persons.csv", *ALL, code=2)
    assert "no file matches none.csv" in typed("init", "persons.csv", "none.csv", *ALL, code=2)
    assert everything(folder) == before
