"""The command as a user types it."""

import json
import os
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

import tallytree.command.main
from tests.command.test_release_spec import GOOD

# What the command writes does not depend on how long it takes: the log gets no lines about progress.
COMMAND = [
    sys.executable,
    "-c",
    "import math; from tallytree.command import main, progress_bar; progress_bar.BETWEEN_LINES = math.inf; main.main()",
]
TERMINAL = {"COLUMNS": "80", "TERM": "dumb"}


def run_alone(*arguments, folder, code=0):
    """What the command writes in a process of its own, after a check of its exit code."""
    words, environment = [str(argument) for argument in arguments], os.environ | TERMINAL
    done = subprocess.run(
        [*COMMAND, *words], cwd=folder, capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def run(*arguments, folder, code=0):
    """The same in this process, which has loaded the package and its kernels already."""
    result, messages = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(result), redirect_stderr(messages):
        patch.chdir(folder)
        for name, value in TERMINAL.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["tallytree", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            tallytree.command.main.main()
    written = result.getvalue() + messages.getvalue()
    assert (stop.value.code or 0) == code, f"{stop.value.code}\n{written}"
    return written


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "regions.csv").write_text("state,county\nA,01\nA,02\nB,03\n")
    (tmp_path / "people.csv").write_text("household,county\n1,01\n1,01\n2,02\n3,03\n")
    (tmp_path / "release.toml").write_text(GOOD)
    return tmp_path


def test_the_demo_makes_a_release_that_verifies_and_can_be_run_again(tmp_path):
    out = run_alone("demo", "--households", 2000, folder=tmp_path)
    assert "All checks passed." in out
    assert all(len(line) <= 80 for line in out.splitlines()), out
    assert "All checks passed" in run("verify", "demo-release", folder=tmp_path)
    assert "csv-metadata.json" in run("export", "demo-release", "--to", "csvw", folder=tmp_path)
    assert (tmp_path / "demo-release-csvw" / "csv-metadata.json").is_file()
    assert "did you mean 'csvw'?" in run("export", "demo-release", "--to", "csv", folder=tmp_path, code=2)
    assert "holds no synthetic" in run("export", "demo-release", "--to", "activitysim", folder=tmp_path, code=2)
    assert not (tmp_path / "demo-release-activitysim").exists()
    run("demo", "--households", 2000, "--quiet", folder=tmp_path)
    account = json.loads(run("ledger", "show", "demo-data/demo-ledger.db", "--json", folder=tmp_path))[0]
    assert [spending["cost"] for spending in account["spendings"]] == ["1"]
    assert account["total"] == "2"
    counts = tmp_path / "demo-release" / "counts.csv"
    counts.write_text(counts.read_text().replace(",1\n", ",2\n", 1))
    assert "counts.csv was changed" in run_alone("verify", "demo-release", folder=tmp_path, code=2)


def test_validate_says_what_is_wrong_in_counts_and_never_in_values(folder):
    assert "can be released" in run("validate", "release.toml", folder=folder)
    (folder / "people.csv").write_text("household,county\n1,01\n1,02\nSECRET,77\n,01\n")
    out = run("validate", "release.toml", folder=folder, code=2)
    assert "data holder" in out
    assert "SECRET" not in out
    assert "77" not in out


def test_validate_tells_the_data_holder_what_is_left_out_and_marks_it_as_not_private(folder):
    out = run("validate", "release.toml", folder=folder)
    assert "For your eyes only: not private." in out
    assert "0 % of 3 groups with rows (0) have 4 or more" in " ".join(out.split())
    rows = "".join(f"{trip},{trip % 2 + 1:02},{trip % 5}\n" for trip in range(100))
    (folder / "people.csv").write_text(f"household,county,driver\n{rows}")
    bounded = GOOD.replace("max_size = 4", 'max_size = 4\nentity = "driver"\nrows_per_entity = 3')
    (folder / "release.toml").write_text(bounded)
    words = " ".join(run("validate", "release.toml", folder=folder).split())
    assert "85 % of 100 rows (85) are dropped; 100 % of 5 entities (5) lose some" in words
    assert "your eyes" not in run("validate", "release.toml", "--quiet", folder=folder)
    assert run("validate", "release.toml", "--quiet", folder=folder) == ""


def test_a_release_with_a_ledger_from_opening_to_overspending(folder):
    spec = GOOD.replace("epsilon = 0.1", 'epsilon = 0.1\nledger = "ledger.db"')
    (folder / "release.toml").write_text(spec)
    assert "no ledger at" in run("release", "release.toml", "--out", "first", folder=folder, code=3)
    assert not (folder / "first.partial").exists()
    assert "0.15 left" in run("ledger", "open", "release.toml", "--epsilon", "0.15", folder=folder)
    out = run_alone("release", "release.toml", "--out", "first", folder=folder)
    release_id = out.split("release id")[1].split()[0]
    assert "0.05 left" in run("ledger", "show", "ledger.db", folder=folder)
    account = json.loads(run("ledger", "show", "ledger.db", "--json", folder=folder))[0]
    assert account["spendings"][0]["release_id"] == release_id
    run("verify", "first", "--id", release_id, folder=folder)
    assert "Nothing was spent" in run_alone("release", "release.toml", "--out", "second", folder=folder, code=3)
    assert not (folder / "second").exists()


def test_without_a_ledger_a_release_asks_whether_that_is_meant(folder, here):
    out = here("release", "release.toml", "--out", "first", code=3)
    assert "no ledger was named" in out
    assert "--no-ledger" in out
    assert "Nothing was spent." in out
    assert "give --ledger PATH or --no-ledger" in here("validate", "release.toml")
    assert not list(folder.glob("first*"))
    here("release", "release.toml", "--out", "first", "--no-ledger")
    assert "without a ledger" in json.loads((folder / "first" / "privacy.json").read_text())["statement"]
    (folder / "release.toml").write_text(GOOD.replace("epsilon = 0.1", "epsilon = 0.1\nledger = false"))
    assert "none, by the spec" in here("validate", "release.toml")
    here("release", "release.toml", "--out", "second")
    (folder / "release.toml").write_text(GOOD.replace("epsilon = 0.1", "epsilon = 0.1\nledger = true"))
    assert "ledger" in here("validate", "release.toml", code=2)


def test_a_ledger_on_the_command_line_goes_before_that_of_the_spec(folder, here):
    with_options(folder, 'method = "cumulative"', mechanism="bottom-up")
    here("ledger", "open", "release.toml", "--epsilon", "0.1")
    (folder / "ledger.db").rename(folder / "other.db")
    (folder / "ledger.db.anchor").rename(folder / "other.db.anchor")
    here("release", "release.toml", "--out", "mine", code=3)
    here("release", "release.toml", "--out", "mine", "--ledger", "other.db")
    assert len(json.loads(here("ledger", "show", "other.db", "--json"))[0]["spendings"]) == 1
    assert "Nothing was spent" in here("release", "release.toml", "--out", "more", "--ledger", "other.db", code=3)
    here("release", "release.toml", "--out", "more", "--no-ledger")
    both = here("release", "release.toml", "--out", "x", "--ledger", "other.db", "--no-ledger", code=2)
    assert "--ledger and --no-ledger cannot be combined" in both


def test_an_existing_target_is_refused_before_anything_is_spent(folder):
    (folder / "taken").mkdir()
    refused = run("release", "release.toml", "--out", "taken", folder=folder, code=2)
    assert "already exists" in refused
    assert "Nothing was spent." in refused


def test_an_interrupted_release_can_be_finished(folder):
    code = (
        "import tallytree.publish.release.files as files, tallytree.command.main, os\n"
        "files.write_measurements = lambda *_, **__: os._exit(9)\n"
        "tallytree.command.main.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "release", "release.toml", "--out", "mine", "--no-ledger"],
        cwd=folder,
        check=False,
        timeout=300,
    )
    assert done.returncode == 9
    assert not (folder / "mine").exists()
    assert "--resume" in run("release", "release.toml", "--out", "mine", "--no-ledger", folder=folder, code=2)
    run("release", "release.toml", "--out", "mine", "--resume", folder=folder)
    run("verify", "mine", "--quiet", folder=folder)
    assert not (folder / "mine.partial").exists()


def test_mechanisms_are_listed_for_people_and_programs(tmp_path):
    out = run("mechanisms", folder=tmp_path)
    assert all(len(line) <= 80 for line in out.splitlines()), out
    words = " ".join(out.split())
    for name in ("pgsr-hierarchical-dp", "coc-matching", "bottom-up", "naive"):
        assert f" {name} " in f" {words} "
    assert "on the lowest level, what its method works on: counts (naive)" in words
    rows = {row["name"]: row for row in json.loads(run("mechanisms", "--json", folder=tmp_path))}
    assert {"pgsr-hierarchical-dp", "pgsr-cumulative-dp", "coc-matching", "bottom-up", "naive"} <= set(rows)
    assert rows["coc-matching"]["takes"] == ["methods", "merge", "totals_share", "largest_share"]
    assert rows["coc-matching"]["aliases"] == ["H_g", "H_c"]
    assert "aliases H_g, H_c" in words
    assert words.count("default") == words.count("auto the default") == 1


def with_options(folder, options, *, mechanism="coc-matching", unit="one_entity"):
    spec = GOOD.replace("epsilon = 0.1", 'epsilon = 0.1\nledger = "ledger.db"').replace("one_entity", unit)
    text = f'{spec}\n[release]\nmechanism = "{mechanism}"\n\n[release.options]\n{options}\n'
    (folder / "release.toml").write_text(text)


@pytest.fixture
def here(folder, monkeypatch, capsys):
    """The command within this process, which is quicker: what it shows, in one line."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.chdir(folder)

    def here(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["tallytree", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            tallytree.command.main.main()
        shown = capsys.readouterr()
        assert stop.value.code == code, shown
        return " ".join((shown.out + shown.err).split())

    return here


def test_a_release_with_options_from_validating_to_verifying(folder, here):
    methods = 'methods = ["sorted-sizes", "cumulative", "sorted-sizes-l1"]'
    with_options(folder, f"{methods}\ntotals_share = 0.2\nlargest_share = 0.1")
    here("ledger", "open", "release.toml", "--epsilon", "0.1")
    assert "mechanism coc-matching" in here("validate", "release.toml")
    assert "made by coc-matching" in here("release", "release.toml", "--out", "mine")
    assert "All checks passed." in here("verify", "mine")
    statement = json.loads((folder / "mine" / "privacy.json").read_text())
    assert statement["mechanism"]["options"]["totals_share"] == "1/5"
    assert len(statement["measured_first"]) == 5
    assert "Nothing was spent" in here("release", "release.toml", "--out", "again", code=3)


def test_a_release_with_bands_of_sizes_from_its_spec_to_a_question(folder, here):
    bands = "bands = [{ to = 3, shares = [1, 1, 3] }, { shares = { total = 4, state = 0, county = 1 } }]"
    with_options(folder, bands, mechanism="tallytree")
    here("ledger", "open", "release.toml", "--epsilon", "0.1")
    assert "mechanism tallytree" in here("validate", "release.toml")
    shown = here("release", "release.toml", "--out", "mine")
    rows = ("total, sizes 1 to 3 1 ε = 0.02 ", "county, sizes 1 to 3 3 ε = 0.06 ", "county, size 4 3 ε = 0.02 ")
    assert all(row in shown for row in rows), shown
    assert "All checks passed." in here("verify", "mine")
    assert "Groups of size 3 or more" in here("query", "mine", "--size", ">=3", "--no-typical")


def test_levels_that_are_only_added_up_are_shown_as_such(folder, here):
    with_options(folder, 'method = "cumulative"', mechanism="bottom-up")
    here("ledger", "open", "release.toml", "--epsilon", "0.1")
    out = here("release", "release.toml", "--out", "mine")
    assert out.count("added up") == 2
    assert "ε = 0.1" in out


@pytest.mark.parametrize(
    ("mechanism", "unit", "options", "message"),
    [
        ("coc-matching", "one_entity", "", "set aside a share of the budget to measure them (totals_share"),
        ("coc-matching", "one_entity", 'methods = ["best"]', "unknown method 'best'"),
        ("coc-matching", "one_entity", "totals_share = 0.7\nlargest_share = 0.3", "leave nothing of the budget"),
        (
            "coc-matching",
            "one_entity",
            'methods = ["cumulative"]\ntotals_share = 0.1',
            "one method for each level (total, state, county), not 1",
        ),
        ("coc-matching", "one_group", "totals_share = 0.1\nlargest_share = 0.1", "with one_group as the privacy unit"),
        ("bottom-up", "one_entity", 'methods = ["cumulative"]', "bottom-up has no option 'methods'"),
        ("naive", "one_entity", "totals_share = 0.1", "naive is for data with a single region"),
        ("auto", "one_entity", 'merge = "plain"', "tallytree has no option 'merge'"),
    ],
)
def test_wrong_options_are_found_by_validate_and_cost_nothing(folder, here, mechanism, unit, options, message):
    with_options(folder, options, mechanism=mechanism, unit=unit)
    here("ledger", "open", "release.toml", "--epsilon", "0.1")
    assert message in here("validate", "release.toml", code=2)
    assert message in here("release", "release.toml", "--out", "mine", code=2)
    assert not (folder / "mine").exists()
    assert not (folder / "mine.partial").exists()
    assert json.loads(here("ledger", "show", "ledger.db", "--json"))[0]["spendings"] == []


def test_an_interrupted_release_with_options_is_finished_with_the_same(folder, here, monkeypatch):
    with_options(folder, "totals_share = 0.2")
    here("ledger", "open", "release.toml", "--epsilon", "0.1")
    with monkeypatch.context() as patch:
        patch.setattr("tallytree.publish.release.files.write_measurements", lambda *_, **__: sys.exit(9))
        here("release", "release.toml", "--out", "mine", code=9)
    here("release", "release.toml", "--out", "mine", "--resume")
    assert "All checks passed." in here("verify", "mine")
    options = json.loads((folder / "mine" / "privacy.json").read_text())["mechanism"]["options"]
    assert options["totals_share"] == "1/5"
    assert len(options["methods"]) == 3


def test_wrong_words_are_usage_errors(tmp_path):
    assert "No such command" in run("relase", folder=tmp_path, code=2)
    run("release", "x.toml", folder=tmp_path, code=2)
    assert "there is no spec" in run("validate", "x.toml", folder=tmp_path, code=2)
    run("ledger", "open", "x.toml", "--epsilon", "one", folder=tmp_path, code=2)


def test_a_defect_shows_its_place_and_not_its_message(monkeypatch, capsys, tmp_path):
    value = "".join(("SEC", "RET"))  # the traceback shows source lines, so the source must not hold it

    def fail(*_):
        raise ValueError(value)

    monkeypatch.setattr("tallytree.command.release_spec.ReleaseSpec.load", fail)
    monkeypatch.setattr(sys, "argv", ["tallytree", "validate", str(Path(tmp_path, "x.toml"))])
    with pytest.raises(SystemExit) as stop:
        tallytree.command.main.main()
    assert stop.value.code == 1
    shown = capsys.readouterr()
    assert value not in shown.out + shown.err
    assert "ValueError" in shown.err


# -------------------------------------------------------------------- interrupted releases


@pytest.fixture
def paying(folder, here):
    """A spec that is charged to a ledger; gives its account."""
    spec = GOOD.replace("epsilon = 0.1", 'epsilon = 0.1\nledger = "ledger.db"')
    (folder / "release.toml").write_text(f'{spec}\n[release]\nintervals = "none"\n')
    here("ledger", "open", "release.toml", "--epsilon", "1")
    return lambda: tallytree.Ledger(folder / "ledger.db").account("people")


def killed(*_, **__):
    sys.exit(9)


@pytest.mark.parametrize(
    ("place", "says", "charges"),
    [
        ("privacy.ledger.Ledger.reserve", "", 0),
        ("privacy.run._answered", "is spent. No measurement was published", 1),
        ("publish.run_folder.RunFolder.write_over", "is spent. No measurement was published", 1),
        ("privacy.ledger.Ledger.commit", "is spent. The measurements are stored in", 1),
        ("publish.release.release_run.estimate_release", "is spent. The measurements are stored in", 1),
        ("publish.folder.put_in_place", "is spent. The measurements are stored in", 1),
    ],
)
def test_a_release_that_was_killed_is_finished_and_paid_once(folder, here, paying, monkeypatch, place, says, charges):
    with monkeypatch.context() as patch:
        patch.setattr("tallytree.publish.run_folder.RunFolder.give_up", lambda _: None)  # what is killed clears nothing
        if place == "privacy.run._answered":
            patch.setattr(sys.modules["tallytree.privacy.run"], "_answered", killed)
        else:
            patch.setattr(f"tallytree.{place}", killed)
        here("release", "release.toml", "--out", "mine", code=9)
    assert len(paying().spendings) == charges
    if charges:
        refused = here("release", "release.toml", "--out", "mine", code=2)
        assert says in refused
        assert "tallytree release release.toml --out mine --resume" in refused
    here("release", "release.toml", "--out", "mine", *(["--resume"] * charges))
    assert "All checks passed" in here("verify", "mine", "--id", paying().spendings[0].release_id)
    assert len(paying().spendings) == 1
    assert sorted(path.name for path in folder.iterdir() if "mine" in path.name) == ["mine"]


@pytest.mark.parametrize("place", ["privacy.ledger.Ledger.record", "publish.run_folder.RunFolder.finish"])
@pytest.mark.parametrize("how", ["--resume", "ledger record", "verify --ledger"])
def test_a_kill_after_the_renaming_still_gets_its_id_into_the_ledger(folder, here, paying, monkeypatch, place, how):
    with monkeypatch.context() as patch:
        patch.setattr(f"tallytree.{place}", killed)
        here("release", "release.toml", "--out", "mine", code=9)
    if how == "--resume":
        here("release", "release.toml", "--out", "mine", "--resume")
        assert not (folder / "mine.partial").exists()
    elif how == "ledger record":
        assert "reservation 1 paid for the release" in here("ledger", "record", "mine", "--ledger", "ledger.db")
    else:
        assert "reservation 1 paid for it" in here("verify", "mine", "--ledger", "ledger.db")
    here("verify", "mine", "--id", paying().spendings[0].release_id)
    assert len(paying().spendings) == 1


@pytest.mark.parametrize("deleted", range(9))
def test_a_kill_while_the_folder_of_a_finished_run_is_removed_leaves_the_release_and_a_way_on(
    folder, here, paying, monkeypatch, deleted
):
    left, unlink = [deleted], Path.unlink

    def unlink_some(path, *given, **told):
        if path.parent.name == "mine.partial" and (folder / "mine").exists():
            left[0] -= 1
            if left[0] < 0:
                killed()
        return unlink(path, *given, **told)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink_some)
        here("release", "release.toml", "--out", "mine", code=9 if deleted < 8 else 0)
    saved = paying().spendings[0].release_id
    if deleted < 8:
        said = here("release", "release.toml", "--out", "mine", "--resume")
        assert "Move" not in said
    assert not (folder / "mine.partial").exists()
    here("verify", "mine", "--id", saved)
    assert "already exists" in here("release", "release.toml", "--out", "mine", code=2)
    assert len(paying().spendings) == 1


def test_a_folder_begun_without_a_ledger_does_not_keep_the_next_run_from_paying(folder, here, paying, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("tallytree.publish.run_folder.RunFolder.give_up", lambda _: None)
        patch.setattr("tallytree.publish.run_folder.RunFolder.write_over", killed)
        here("release", "release.toml", "--out", "mine", "--no-ledger", code=9)
    here("release", "release.toml", "--out", "mine")
    assert len(paying().spendings) == 1


def test_a_file_that_comes_to_the_target_is_left_alone_and_the_release_can_go_on(folder, here, paying, monkeypatch):
    written = tallytree.publish.release.files.write_measurements

    def meanwhile(*given):
        (folder / "mine").mkdir()
        (folder / "mine" / "thesis.txt").write_text("my own")
        written(*given)

    with monkeypatch.context() as patch:
        patch.setattr("tallytree.publish.release.files.write_measurements", meanwhile)
        said = here("release", "release.toml", "--out", "mine", code=2)
    assert "already exists" in said
    assert "is spent. The measurements are stored in" in said
    assert "Go on with: tallytree release release.toml --out mine --resume" in said
    assert "Move mine away. Go on with" in here("release", "release.toml", "--out", "mine", "--resume", code=2)
    (folder / "mine").rename(folder / "own")
    here("release", "release.toml", "--out", "mine", "--resume")
    assert (folder / "own" / "thesis.txt").read_text() == "my own"
    assert len(paying().spendings) == 1


@pytest.mark.parametrize("place", ["publish.run_folder.write_measurements", "publish.release.files.write_json"])
def test_a_full_disk_is_no_defect_and_says_what_was_spent_and_how_to_go_on(folder, here, paying, monkeypatch, place):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(f"tallytree.{place}", full)
        said = here("release", "release.toml", "--out", "mine", code=2)
    assert "This is a bug" not in said
    assert "No space left on device" in said
    assert "ε = 0.1 of 'people' in" in said
    assert "Go on with: tallytree release release.toml --out mine --resume" in said
    here("release", "release.toml", "--out", "mine", "--resume")
    assert len(paying().spendings) == 1


def test_a_second_run_with_the_same_out_is_refused_before_it_pays(folder, here, paying):
    with tallytree.publish.folder.claimed(folder / "mine"):
        assert "another run is writing" in here("release", "release.toml", "--out", "mine", code=2)
        assert "spent nothing" in here("release", "release.toml", "--out", "mine", "--resume", code=2)
    assert not paying().spendings


def test_the_command_speaks_in_the_words_of_the_spec(folder):
    (folder / "people.csv").write_text("household,county\n1,01\n1,02\n")
    out = run("validate", "release.toml", folder=folder, code=2)
    assert 'on_spanning_group = "split"' in " ".join(out.split())
    assert "on_spanning_group='split'" not in out


def test_names_are_shown_as_they_are(folder):
    text = (folder / "release.toml").read_text()
    (folder / "release.toml").write_text(
        f'{text}\n[release]\ntitle = "[red]Homes[/red]\\u001b[31m"\nintervals = "none"\n'
    )
    out = run("release", "release.toml", "--out", "[bold]out", "--no-ledger", folder=folder)
    assert "[red]Homes[/red]\\x1b[31m" in out
    assert "\x1b" not in out
    assert "[bold]out" in out


def test_a_list_of_groups_that_is_not_declared_public_stays_private(folder):
    (folder / "release.toml").write_text(GOOD.replace("max_size", 'groups = "homes.csv"\nmax_size'))
    (folder / "homes.csv").write_text("household,county\n" + "".join(f"{n},0{1 + n % 3}\n" for n in range(4711)))
    people = [line.partition(",")[0] for line in (folder / "people.csv").read_text().splitlines()]
    (folder / "people.csv").write_text("\n".join(people) + "\n")
    for command, *options in (
        ("validate",),
        ("plan", "--prior", "households", "--groups", "90"),
        ("release", "--out", "out", "--no-ledger"),
    ):
        assert "4,711" not in run(command, "release.toml", *options, folder=folder)
    stated = json.loads((folder / "out" / "privacy.json").read_text())
    assert stated["neighbours"]["public_totals"] is False
    assert "The number of groups is private" in stated["neighbours_in_words"]
    assert all(
        b"4711" not in path.read_bytes() for path in (folder / "out").iterdir() if path.suffix in (".json", ".csv")
    )


def test_the_lists_of_commands_show_whole_sentences(folder):
    for words in ((), ("ledger",)):
        listed = run(*words, "--help", folder=folder).partition("Commands:\n")[2].splitlines()
        assert listed
        assert [line for line in listed if "..." in line or not line.endswith(".")] == []
