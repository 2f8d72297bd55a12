"""`tallytree init`: a spec from the columns of a file, and no value of a private column anywhere."""

import gzip
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import tallytree as tt
from tallytree.command import init
from tallytree.command.release_spec import ReleaseSpec
from tallytree.tables.columns import describe_columns

PLACES = [("Zürich", "0261"), ("Zürich", "0198"), ("Bern", "0355"), ("Bern", "0942")]
ROWS = [(home, f"{home}-{n}", *PLACES[home % 4]) for home in range(60) for n in range(1 + home % 3)]
REGIONS = "canton,municipality,residents\nZürich,0261,9\nZürich,0198,8\nBern,0355,7\nBern,0942,6\n"
ALL = ["--yes", "--regions", "places.csv"]


def people(*rows, first="hhid,person_id,canton,municipality", delimiter=","):
    return "\n".join([first, *(",".join(map(str, row)) for row in rows or ROWS)]).replace(",", delimiter) + "\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_text(people())
    (tmp_path / "places.csv").write_text(REGIONS)
    return tmp_path


def everything(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# -------------------------------------------------------------------- from a file to a release


def test_guesses_make_a_spec_that_is_released_and_verified(typed, folder):
    told = typed("init", "people.csv", *ALL)
    assert "Wrote release.schema.json and release.toml. Nothing was spent." in told
    for command in re.findall(r"tallytree (validate|ledger open|release|verify) ([\w. -]*?)(?= [A-Z]|$)", told):
        typed(*" ".join(command).split())
    assert tt.verify(folder / "release").ok
    spec = ReleaseSpec.load("release.toml")
    assert (spec.data.group, spec.data.entity, spec.data.region) == ("hhid", "person_id", "municipality")
    assert spec.regions.levels == ["canton", "municipality"]  # not the column of residents
    assert spec.about.publisher is None


def test_every_answer_is_an_option(typed, folder):
    regions = ["--region", "canton", "--region", "municipality", "--regions-are-public"]
    rest = ["--entity", "none", "--max-size", 4, "--unit", "one_group", "--epsilon", "0.3", "--publisher", "none"]
    typed("init", "people.csv", "--group", "hhid", *regions, *rest, "--out", "spec.toml")
    spec = ReleaseSpec.load("spec.toml")
    assert spec.data.entity is None
    assert (spec.data.max_size, spec.privacy.unit, str(spec.budget.amount)) == (4, "one_group", "3/10")
    assert (folder / "regions.csv").read_text().splitlines()[0] == "canton,municipality"
    made = spec.read()
    assert made.regions_declared_public  # so the privacy statement repeats it
    assert [*made.hierarchy.ids][3:] == ["0355", "0942", "0198", "0261"]


def test_a_public_list_is_never_declared_by_a_guess(typed, folder):
    told = typed("init", "people.csv", "--yes", code=2)
    assert "--regions FILE, or --regions-are-public" in told
    assert not (folder / "release.toml").exists()
    typed("init", "people.csv", "--yes", "--regions-are-public")
    assert "regions_are_public = true" in (folder / "release.toml").read_text()


def test_files_as_offices_have_them(typed, folder):
    (folder / "people.csv.gz").write_bytes(gzip.compress(people(delimiter=";").encode("cp1252")))
    (folder / "places.csv").write_bytes(REGIONS.replace(",", "\t").encode("utf-16"))
    typed("init", "people.csv.gz", *ALL)
    text = (folder / "release.toml").read_text()
    assert 'encoding = "windows-1252"' in text
    assert 'encoding = "utf-16"' in text
    assert ReleaseSpec.load("release.toml").read().hierarchy.leaf_count == 4
    columns = zip(*ROWS, strict=True)
    parquet.write_table(pa.table(dict(zip(["hhid", "pid", "a", "municipality"], columns, strict=True))), "p.parquet")
    typed("init", "p.parquet", *ALL, "--force")
    assert ReleaseSpec.load("release.toml").read().hierarchy.leaf_count == 4


def test_paths_are_relative_to_the_spec(typed, folder):
    (folder / "work").mkdir()
    typed("init", "people.csv", *ALL, "--out", "work/r.toml")
    assert 'source = "../people.csv"' in (folder / "work" / "r.toml").read_text()
    typed("validate", "work/r.toml")


def test_names_with_every_kind_of_character_are_written_so_that_they_are_read_again(typed, folder):
    odd = 'a "b" \\ \x7f é #'
    cell = f'"{odd.replace(chr(34), chr(34) * 2)}"'
    (folder / "people.csv").write_text(people().replace("hhid", cell, 1))
    typed("init", "people.csv", *ALL, "--group", odd, "--publisher", odd)
    spec = ReleaseSpec.load("release.toml")
    assert (spec.data.group, spec.about.publisher) == (odd, odd)


def test_a_data_file_in_place_of_a_spec_points_to_init(typed):
    for command in (["validate"], ["release", "--out", "x"], ["plan"]):
        assert "tallytree init people.csv" in typed(command[0], "people.csv", *command[1:], code=2)


# -------------------------------------------------------------------- on a terminal


def on_a_terminal(answers, *words):
    """What the command shows when it is typed on a terminal of 80 columns; answers are typed as they are asked for."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    command = [sys.executable, "-m", "tallytree", "init", *words]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown, answers, end = b"", list(answers), time.monotonic() + 120
    asked = 0
    while time.monotonic() < end:
        ready, _, _ = select.select([ours], [], [], 0.5)
        try:
            got = os.read(ours, 65536) if ready else b""
        except OSError:
            break
        if not got and process.poll() is not None:
            break
        shown += got
        if answers and shown.count(b"> ") > asked:
            asked = shown.count(b"> ")
            os.write(ours, f"{answers.pop(0)}\n".encode())
    os.close(ours)
    return process.wait(10), shown.decode().replace("\r", "")


def test_on_a_terminal_it_asks_seven_questions_and_takes_guesses_for_empty_answers(folder):
    answers = ["", "persn", "", "canton,municipality", "", "", "help", ""]
    code, shown = on_a_terminal(answers, "people.csv")
    assert code == 0, shown
    assert re.findall(r"^(\d)/7", shown, re.MULTILINE) == ["1", "2", "2", "3", "4", "5", "6", "7"]
    assert "there is no column 'persn'; did you mean 'person_id'?" in shown
    assert "tallytree plan release.toml --prior households" in shown
    asked = shown.partition("Wrote")[0]
    assert max(map(len, asked.splitlines())) <= 80
    spec = ReleaseSpec.load(folder / "release.toml")
    assert (spec.data.group, spec.data.entity, spec.budget) == ("hhid", "person_id", tt.Budget(epsilon=1))


def test_without_a_terminal_the_options_are_named(typed, folder):
    before = everything(folder)
    told = typed("init", "people.csv", code=2)
    assert "no terminal" in told
    for option in ("--group", "--entity", "--regions", "--max-size", "--unit", "--epsilon", "--publisher", "--yes"):
        assert option in told
    assert everything(folder) == before


# -------------------------------------------------------------------- private values


CANARY = re.compile("zebra|7770[0-9]")


@pytest.fixture
def canaries(folder):
    """Files whose every cell of every private column is a canary; the public regions are not."""
    rows = [(f"7770{n % 9}", f"zebra-person-{n}", f"zebra-{n % 5}", f"zebra-{n % 7}", 77700 + n % 3) for n in range(40)]
    (folder / "people.csv").write_text(people(*rows, first="hhid,person_id,canton,municipality,income"))
    return folder


@pytest.mark.parametrize("counts", [[], ["--counts"]])
@pytest.mark.parametrize(
    "words",
    [
        ["--yes"],
        [*ALL],
        [*ALL, "--entity", "municipality"],
        [*ALL, "--entity", "nonsense"],
        [*ALL, "--region", "hhid", "--level", "canton", "--level", "municipality"],
        [],
    ],
)
def test_no_value_of_a_private_column_is_shown_or_stored(typed, canaries, words, counts):
    before = everything(canaries)
    for code in (0, 2):
        try:
            told = typed("init", "people.csv", *words, *counts, "--force", code=code)
        except AssertionError:
            continue
        assert not CANARY.search(told)
        break
    else:
        pytest.fail("neither done nor refused")
    for name, content in everything(canaries).items():
        assert content == before.get(name) or not CANARY.search(content.decode())


def test_regions_that_are_declared_public_are_all_that_is_stored(typed, canaries):
    told = typed("init", "people.csv", "--yes", "--regions-are-public", "--region", "canton", "--counts")
    assert not CANARY.search(told)
    assert not CANARY.search((canaries / "release.toml").read_text())
    assert (canaries / "regions.csv").read_text().split() == ["canton", *(f"zebra-{n}" for n in range(5))]


def test_distinct_values_are_counted_only_if_asked(typed, folder):
    assert "distinct values" not in typed("init", "people.csv", *ALL).partition("--counts")[0]
    told = typed("init", "people.csv", *ALL, "--counts", "--force")
    assert "for the data holder's eyes only" in told
    assert f"{len(ROWS)} rows" in told
    assert str(len(ROWS)) not in (folder / "release.toml").read_text()


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", " 22 ", "-3", ""], "integer"),
        (["1.5", "2", "1e3"], "number"),
        (["1,5", "2", "10"], "number with a decimal comma"),
        (["1", "x"], "text"),
        (["", ""], "empty"),
    ],
)
def test_types_are_the_narrowest_that_fit(folder, cells, kind):
    (folder / "t.csv").write_text("a;b\n" + "".join(f"{cell};x\n" for cell in cells))
    assert describe_columns("t.csv")[0][0].kind == kind


# -------------------------------------------------------------------- bad input


BAD = {
    "no header of numbers": ({"people.csv": "1,2,3\n4,5,6\n"}, [], "does not look like names of columns"),
    "no header of texts": ({"people.csv": "h1,Bern\nh2,Bern\n"}, [], "does not look like names of columns"),
    "a column twice": ({"people.csv": "a,a\n1,2\n"}, [], "each column a different name"),
    "an empty name": ({"people.csv": "a,\n1,2\n"}, [], "each column a different name"),
    "one column": ({"people.csv": "household\n1\n"}, [], "has one column"),
    "an empty file": ({"people.csv": ""}, [], "each column a different name"),
    "ids that repeat": (
        {"people.csv": people((1, 1, "Bern", "0355"), (1, 1, "Bern", "0355"))},
        ["--entity", "person_id", "--counts"],
        "'person_id' repeats: 1 values in 2 rows",
    ),
    "regions without a column of the data": ({"places.csv": "land,ort\nA,B\n"}, [], "--region, and the columns of the"),
    "regions that are no tree": ({"places.csv": "municipality\n0355\n0355\n"}, [], "appears twice"),
    "the data as regions": ({}, ["--regions", "people.csv"], "is a file of the microdata"),
    "no such level": ({}, ["--level", "kreis"], "has no column 'kreis'"),
    "no such column": ({}, ["--group", "hid"], "there is no column 'hid'; did you mean 'hhid'?"),
    "no such file": ({}, ["--regions", "none.csv"], "there is no region table at none.csv"),
    "no such unit": ({}, ["--unit", "person"], "choose one_entity or one_group"),
    "no budget": ({}, ["--epsilon", "0"], "epsilon"),
    "no size": ({}, ["--max-size", "0"], "expected an integer such as 10"),
    "no such encoding": ({}, ["--encoding", "klingon"], "unknown encoding 'klingon'"),
    "a spec that exists": ({"release.toml": "# mine\n"}, [], "release.toml exists already; nothing was written"),
    "a file that is none": ({}, ["--out", "places.csv/release.toml"], "nothing was written"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_and_nothing_is_written(typed, folder, name):
    files, words, message = BAD[name]
    for file, content in files.items():
        (folder / file).write_text(content)
    before = everything(folder)
    given = ["--yes", *([] if "--regions" in words else ["--regions", "places.csv"]), *words]
    told = typed("init", "people.csv", *given, code=2)
    assert message.casefold() in told.casefold()
    assert everything(folder) == before


def test_regions_that_exist_are_not_overwritten_either(typed, folder):
    (folder / "regions.csv").write_text("mine\n")
    how = ["init", "people.csv", "--yes", "--regions-are-public"]
    assert "regions.csv exists already" in typed(*how, code=2)
    assert not (folder / "release.toml").exists()
    typed(*how, "--force")
    assert (folder / "regions.csv").read_text().startswith("canton,municipality\n")


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="there is no folder that nobody may write to")
def test_a_folder_that_cannot_be_written_to_is_refused(typed, folder):
    told = typed("init", "people.csv", *ALL, "--out", "/sys/kernel/release.toml", code=2)
    assert "cannot be written" in told
    assert "Nothing was written" in told


def test_if_the_second_file_cannot_be_written_the_first_one_goes_again(folder):
    files = {folder / "regions.csv": b"a\n", folder / "missing" / "release.toml": b"b\n"}
    before = everything(folder)
    with pytest.raises(tt.SpecError, match="Nothing was written"):
        init._write(files, force=False)
    assert everything(folder) == before


def test_killed_at_any_moment_it_leaves_no_half_written_file(folder):
    before, files = everything(folder), {"regions.csv": b"a" * 9000, "release.toml": b"b" * 9000}
    steps, died = 0, True
    while died:
        steps += 1
        child = os.fork()
        if not child:
            _die_at(steps)
            init._write({folder / name: content for name, content in files.items()}, force=False)
            os._exit(0)
        died = os.waitpid(child, 0)[1] != 0
        for name, content in everything(folder).items():
            assert content == (before | files)[name]
            if name not in before:
                (folder / name).unlink()
    assert steps > 6


def _die_at(step):
    """Kill this process at the so-manieth of the system's calls that open, link or flush a file."""
    left = [step]

    def counted(function):
        def call(*given, **named):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            done = function(*given, **named)
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return call

    for name in ("open", "link", "fsync", "rename"):
        setattr(os, name, counted(getattr(os, name)))
