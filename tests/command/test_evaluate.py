"""`tallytree evaluate` as a user types it."""

import csv
import io
import json
import shlex

import pytest
from typer.testing import CliRunner

from tallytree.command.main import app
from tallytree.core.errors import SpecError
from tallytree.lab import Results, compare
from tallytree.privacy import Budget
from tests.command.test_main import run
from tests.lab import helpers

TWO = ["--mechanism", "pgsr-hierarchical-dp", "--mechanism", "pgsr-cumulative-dp"]
QUICK = ["--scale", "0.0001", "--runs", "2", "--jobs", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("evaluate")


def test_a_comparison_fits_the_screen_says_it_is_not_private_and_is_kept(folder):
    words = ["evaluate", "people", *QUICK, *TWO, "--epsilon", "0.1", "--epsilon", "1", "--out", "mine"]
    out = run(*words, folder=folder)
    assert out.startswith("NOT PRIVATE")
    assert all(len(line) <= 80 for line in out.splitlines()), out
    assert out.count("pgsr-cumulative-dp") >= 6
    assert "ε = 0.1, protecting one entity" in out
    names = {path.name for path in (folder / "mine").iterdir()}
    assert {"results.parquet", "summary.csv", "journal.jsonl", "NOT-PRIVATE.txt", "error-l1.png"} <= names
    assert run(*words, folder=folder) == out  # times included: nothing was run again


def invoke(*words):
    """In this process: quicker, and errors come through as they are."""
    return CliRunner().invoke(app, ["evaluate", *words])


def test_a_file_of_public_counts_is_compared_for_people_programs_or_in_silence(folder, monkeypatch):
    lines = ["state,county,size,count", "A,01,1,20", "A,02,1,5", "A,02,3,4", "B,03,2,9"]
    (folder / "public.csv").write_text("\n".join(lines) + "\n")
    words = [str(folder / "public.csv"), "--runs", "1", "--mechanism", "pgsr-cumulative-dp", "--unit", "one_group"]
    content = json.loads(invoke(*words, "--json").stdout)
    assert content["privacy"].startswith("NOT PRIVATE")
    assert content["dataset"]["groups"] == 38
    assert {row["mechanism"] for row in content["summary"]} == {"pgsr-cumulative-dp"}
    assert {row["unit"] for row in content["summary"]} == {"one_group"}

    same = compare(helpers.small_truth(), ["pgsr-cumulative-dp"], runs=1)
    monkeypatch.setattr("tallytree.command.lab_commands.compare", lambda *_, **__: same)
    rows = list(csv.DictReader(io.StringIO(invoke(*words, "--csv").stdout)))
    assert {row["privacy"] for row in rows} == {"NOT PRIVATE"}
    assert len(rows) == same.summary().num_rows
    assert invoke(*words, "--quiet").output == ""


def test_what_gave_no_result_is_shown_with_its_reason(monkeypatch):
    lost = {"costs": {}, "scores": [], "status": "failed", "message": "ZeroDivisionError: on purpose"}
    records = [{"mechanism": "mine", "budget": Budget(epsilon=1).to_json(), "run": run, **lost} for run in range(3)]
    monkeypatch.setattr(
        "tallytree.command.lab_commands.compare", lambda *_, **__: Results.of("small", 5, "one_entity", records)
    )
    shown = invoke("people", *QUICK).stdout
    assert "without a result" in shown
    assert "failed: ZeroDivisionError: on purpose" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["censsus"], "did you mean 'census'"),
        (["nowhere.csv"], "unknown data nowhere.csv"),
        (["people", "--mechanism", "pgsr-cumulative"], "did you mean 'pgsr-cumulative-dp'"),
        (["people", "--epsilon", "none"], "--epsilon none: epsilon must be a finite number"),
        (["people", "--epsilon", "-1"], "epsilon must be positive"),
        (["people", *QUICK, "--runs", "0"], "runs must be an integer of at least 1"),
        (["people", *QUICK, "--unit", "one_house"], "unknown privacy unit"),
        (["people", "--json", "--csv"], "not both"),
        ([__file__], "cannot be read:"),
        ([__file__, "--scale", "0.5"], "--scale is for made-up data sets"),
    ],
)
def test_wrong_words_are_clear_errors(words, message):
    done = invoke(*words)
    assert isinstance(done.exception, SpecError)
    assert message in str(done.exception)


# -------------------------------------------------------------------- levels and sizes that are said, not guessed

WIDE = "state,county,total,hh1,hh2,car1,car2\nA,a,3,1,2,9,9\nA,b,7,3,4,9,9\nB,c,11,5,6,9,9\n"
ONE = ["--runs", "1", "--jobs", "1", "--mechanism", "pgsr-cumulative-dp"]


def test_unclear_columns_are_refused_with_commands_that_can_be_pasted_until_it_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wide counts.csv").write_text(WIDE)
    words = ["wide counts.csv", *ONE, "--json"]
    for told in ("several families of size columns", "'total' holds numbers"):
        done = invoke(*words)
        assert isinstance(done.exception, SpecError)
        assert told in str(done.exception)
        command = str(done.exception).splitlines()[-1].strip()
        assert command.startswith("tallytree evaluate 'wide counts.csv' ")
        words = shlex.split(command)[2:]
    assert words[1:7] == ["--level", "state", "--level", "county", "--size-columns", "hh"]
    assert set(ONE) | {"--json"} <= set(words)
    content = json.loads(invoke(*words).stdout)
    assert list(content["dataset"]["levels"]) == ["total", "state", "county"]
    assert content["dataset"]["groups"] == 21


def test_the_levels_are_those_that_were_said_in_that_order(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("county,state,size,count\na,A,1,2\nb,A,3,4\nc,B,5,6\n")
    content = json.loads(invoke(str(path), "--level", "state", "--level", "county", *ONE, "--json").stdout)
    assert content["dataset"]["levels"] == {"total": 1, "state": 2, "county": 3}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["people", "--level", "state"], "--level and --size-columns are for files"),
        (["people", "--size-columns", "hh"], "--level and --size-columns are for files"),
        (["counts.csv", "--level", "stat"], "there is no column stat; the file has state, hh1, hh2"),
        (["counts.csv", "--level", "state", "--size-columns", "car"], "no size columns car1, car2 …; it has hh1 …"),
        (["counts.csv", "--level", "state", "--level", "state"], "state is named twice"),
    ],
)
def test_wrong_levels_and_sizes_are_clear_errors(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "counts.csv").write_text("state,hh1,hh2\nA,1,2\nB,3,4\n")
    done = invoke(*words, *ONE)
    assert isinstance(done.exception, SpecError), done.output
    assert message in str(done.exception)
