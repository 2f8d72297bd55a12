"""What a first user meets: interrupts, hints to paste, warnings, output for programs, exit codes."""

import csv
import io
import json
import os
import shlex
import subprocess
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest

import tallytree.command.main
from tallytree.privacy.ledger import Ledger
from tallytree.publish.strength import WeakPromise
from tests.command.test_release_spec import GOOD

LEDGER = GOOD.replace("epsilon = 0.1", 'epsilon = 0.1\nledger = "ledger.db"')
COMMANDS = ["demo", "validate", "plan", "release", "synthesize", "verify", "query", "mechanisms", "evaluate", "audit"]
OF_LEDGER = ["open", "show", "link", "anchor"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "regions.csv").write_text("state,county\nA,01\nA,02\nB,03\n")
    (tmp_path / "people.csv").write_text("household,county\n1,01\n1,01\n2,02\n3,03\n")
    (tmp_path / "release.toml").write_text(LEDGER)
    return tmp_path


@pytest.fixture
def typed(folder, monkeypatch, capsys):
    """The command as typed, within this process: what it wrote to its two streams."""

    def typed(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["tallytree", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            tallytree.command.main.main()
        shown = capsys.readouterr()
        assert (stop.value.code or 0) == code, shown
        return shown

    return typed


@pytest.fixture
def interrupted(typed, monkeypatch):
    """The command, interrupted when it comes to a stage."""

    def interrupted(stage, *arguments):
        @contextmanager
        def shown(quiet):
            def progress(told):
                if told.doing == stage:
                    raise KeyboardInterrupt

            yield progress

        with monkeypatch.context() as patch:
            patch.setattr("tallytree.command.make.show_progress", shown)
            return " ".join(typed(*arguments, code=130).err.split())

    return interrupted


def spent(path="ledger.db"):
    return [len(account.spendings) for account in Ledger(path).accounts()]


# -------------------------------------------------------------------- interrupts


@pytest.mark.parametrize("stage", ["reading the data", "measuring"])
def test_an_interrupt_before_reserving_says_that_nothing_was_spent(typed, interrupted, folder, stage):
    typed("ledger", "open", "release.toml", "--epsilon", "1")
    told = interrupted(stage, "release", "release.toml", "--out", "mine")
    assert told == "interrupted. Nothing was spent."
    assert spent() == [0]
    assert not list(folder.glob("mine*"))
    typed("release", "release.toml", "--out", "mine")


@pytest.mark.parametrize("stage", ["estimating", "typical intervals", "writing"])
def test_an_interrupt_after_reserving_says_what_was_spent_and_the_command_to_go_on(typed, interrupted, folder, stage):
    typed("ledger", "open", "release.toml", "--epsilon", "1")
    told = interrupted(stage, "release", "release.toml", "--out", "my release")
    assert "ε = 0.1 of 'people' in" in told
    assert "is spent" in told
    command = told.split("Go on with: ")[1]
    assert command == "tallytree release release.toml --out 'my release' --resume"
    typed(*shlex.split(command)[1:])
    assert spent() == [1]
    typed("verify", "my release")


def test_an_interrupt_when_all_is_done_says_so(typed, monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tallytree.command.screen.release_summary", stop)
    told = typed("release", "release.toml", "--out", "mine", "--no-ledger", code=130).err
    assert "mine is complete, and its budget is spent." in told
    assert "  tallytree verify mine\n" in told


def test_an_interrupt_of_a_command_that_spends_nothing_says_so(typed, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tallytree.publish.verify.verify", stop)
    assert typed("verify", "mine", code=130).err == "interrupted.\nNothing was spent.\n"


# -------------------------------------------------------------------- before reading, and resuming


def test_the_account_is_asked_before_the_data_are_read(typed, folder):
    typed("ledger", "open", "release.toml", "--epsilon", "0.05")
    (folder / "people.csv").unlink()  # whoever tried to read it would complain of that
    assert "Nothing was spent" in typed("release", "release.toml", "--out", "mine", code=3).err
    assert not list(folder.glob("mine*"))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("epsilon = 0.1", "epsilon = 0.2", "[privacy] epsilon was '1/10' and is '1/5' now"),
        ('unit = "one_entity"', 'unit = "one_group"', "[privacy] unit was 'one_entity' and is 'one_group' now"),
        ("max_size = 4", "max_size = 5", "[data] max_size was '4' and is '5' now"),
        ('source = "people.csv"', 'source = "others.csv"', "[data] source was 'people.csv' and is 'others.csv' now"),
        ("", '\n[release]\ntitle = "New"\n', "[release] title was not given and is 'New' now"),
    ],
)
def test_resuming_with_a_changed_spec_says_what_differs_and_stops(typed, interrupted, folder, old, new, told):
    interrupted("estimating", "release", "release.toml", "--out", "mine", "--no-ledger")
    (folder / "release.toml").write_text(LEDGER.replace(old, new) if old else LEDGER + new)
    found = typed("release", "release.toml", "--out", "mine", "--resume", code=2).err
    assert told in " ".join(found.split())
    assert (folder / "mine.partial" / "measurements.parquet").exists()
    (folder / "release.toml").write_text(LEDGER.replace("epsilon = 0.1", "epsilon = 0.10"))  # the same number
    typed("release", "release.toml", "--out", "mine", "--resume")
    typed("verify", "mine")


# -------------------------------------------------------------------- warnings


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ("epsilon = 25", "ε = 25 protects little: a result may be more than 10^10 times as likely"),
        ("rho = 30", "(at δ = 1e-06, from ρ = 30) protects little"),
        ("epsilon = 1\ndelta = 1e-3", "δ = 0.001 is large"),
    ],
)
def test_a_budget_that_promises_little_is_warned_of_in_words(typed, folder, budget, told):
    (folder / "release.toml").write_text(GOOD.replace("epsilon = 0.1", budget))
    for words in (["validate", "release.toml"], ["release", "release.toml", "--out", "mine", "--no-ledger"]):
        with warnings.catch_warnings():
            warnings.simplefilter("always", WeakPromise)
            shown = " ".join(typed(*words, "--quiet").err.split())
        assert shown.count("warning: ") == 1 + ("the noise is Gaussian" in shown)
        assert told in shown


def test_a_delta_above_one_over_the_public_number_of_groups_is_warned_of(typed, folder):
    rows = "".join(f"{household},0{(household - 1) % 3 + 1}\n" for household in range(1, 150_001))
    (folder / "groups.csv").write_text(f"household,county\n{rows}")
    text = GOOD.replace("max_size = 4", 'max_size = 4\ngroups = "groups.csv"\ngroups_are_public = true')
    for delta, count in (("9e-6", 1), ("6e-6", 0)):
        (folder / "release.toml").write_text(text.replace("epsilon = 0.1", f"epsilon = 1\ndelta = {delta}"))
        with warnings.catch_warnings():
            warnings.simplefilter("always", WeakPromise)
            told = typed("validate", "release.toml").err
        assert told.count("warning: ") == count + ("the noise is Gaussian" in told)
        assert count == 0 or "δ = 9e-06 is more than 1 / 150,000" in " ".join(told.split())


# -------------------------------------------------------------------- for programs


def test_json_is_all_that_is_written_to_the_standard_output(typed, folder):
    ready = json.loads(typed("validate", "release.toml", "--json").out)
    assert (ready["valid"], ready["kind"], ready["mechanism"]) == (True, "release", "tallytree")
    assert ready["regions"] == {"total": 1, "state": 2, "county": 3}
    assert ready["warnings"] == []
    assert list(ready["for_the_data_holder_alone"]) == ["max_size"]
    made = json.loads(typed("release", "release.toml", "--out", "mine", "--no-ledger", "--json").out)
    assert (made["directory"], made["ledger"], made["sizes"], made["unit"]) == ("mine", False, [1, 4], "one_entity")
    checked = json.loads(typed("verify", "mine", "--json").out)
    assert (checked["ok"], checked["release_id"]) == (True, made["release_id"])
    (folder / "mine" / "counts.csv").write_text("nothing")
    broken = json.loads(typed("verify", "mine", "--json", code=2).out)
    assert not broken["ok"]
    assert any("counts.csv was changed" in fault for check in broken["checks"] for fault in check["faults"])


def test_what_is_wrong_with_data_is_json_too_without_values(typed, folder):
    (folder / "people.csv").write_text("household,county\n1,01\n1,02\nSECRET,77\n,01\n")
    shown = typed("validate", "release.toml", "--json", code=2)
    found = json.loads(shown.out)
    assert not found["valid"]
    assert "data holder" in found["error"]
    assert "SECRET" not in shown.out + shown.err


def test_the_fields_of_json_are_those_that_the_page_lists(typed):
    page = (Path(__file__).parents[2] / "docs" / "release.md").read_text()
    outputs = {
        "validate": typed("validate", "release.toml", "--json"),
        "release": typed("release", "release.toml", "--out", "mine", "--no-ledger", "--json"),
        "verify": typed("verify", "mine", "--json"),
    }
    for command, shown in outputs.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{command} --json` |"))
        for field in json.loads(shown.out):
            assert f"`{field}`" in row, (command, field)


def test_answers_as_csv(typed, folder):
    (folder / "regions.csv").write_text("state,county\n=A,01\n=A,02\nB,03\n")
    typed("release", "release.toml", "--out", "mine", "--no-ledger", "--quiet")
    rows = list(csv.DictReader(io.StringIO(typed("query", "mine", "--level", "state", "--csv").out)))
    assert [row["region"] for row in rows] == ["'=A", "B"]
    assert all(float(row["lower"]) <= float(row["released"]) <= float(row["upper"]) for row in rows)
    one = list(csv.DictReader(io.StringIO(typed("query", "mine", "--mean", "--csv", "--no-typical").out)))
    assert (len(one), one[0]["kind"], one[0]["typical_lower"]) == (1, "mean", "")
    bands = list(csv.DictReader(io.StringIO(typed("query", "mine", "--region", "B", "--simultaneous", "--csv").out)))
    assert [row["size"] for row in bands] == ["1", "2", "3", "4"]
    assert "not both" in typed("query", "mine", "--csv", "--json", code=2).err


def test_quiet_prints_the_id_alone(typed):
    made = typed("release", "release.toml", "--out", "mine", "--no-ledger", "--quiet")
    assert made.err == ""
    assert typed("verify", "mine", "--id", made.out.strip(), "--quiet").out == ""
    assert len(made.out.strip()) == 64


# -------------------------------------------------------------------- help, hints and exit codes


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS), ["ledger"], *(["ledger", x] for x in OF_LEDGER)])
def test_h_is_help_everywhere(typed, words):
    shown = typed(*words, "-h").out
    assert shown == typed(*words, "--help").out
    assert shown.startswith("Usage: ")
    assert "--quiet" in shown or words in ([], ["ledger"])


def test_shells_can_complete(tmp_path):
    script = tmp_path / "tallytree"
    script.write_text("from tallytree.command.main import main\nmain()\n")
    asked = {"_TALLYTREE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "tallytree ver"}
    words = [sys.executable, str(script)]
    done = subprocess.run(words, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    assert '"verify"' in done.stdout


def test_hints_can_be_pasted_however_long_the_path_is(typed, folder):
    out = "a folder's name/" + "long " * 30 + "name"
    shown = typed("release", "release.toml", "--out", out, "--no-ledger").out
    commands = [line for line in shown.splitlines() if line.startswith("  tallytree ")]
    assert len(commands) == 2
    for command in commands:
        typed(*shlex.split(command)[1:])


def test_a_hint_in_an_error_can_be_pasted_too(typed, interrupted):
    out = "x" * 90
    interrupted("estimating", "release", "release.toml", "--out", out, "--no-ledger")
    told = typed("release", "release.toml", "--out", out, "--no-ledger", code=2).err
    command = next(line for line in told.splitlines() if line.startswith("  tallytree "))
    typed(*shlex.split(command)[1:])


def test_numbers_say_what_they_are(typed, folder):
    spec = (folder / "release.toml").read_text()
    assert "[release]" not in spec
    (folder / "release.toml").write_text(f'{spec}\n[release]\nmechanism = "joint-cumulative"\n')
    shown = " ".join(typed("release", "release.toml", "--out", "mine", "--no-ledger").out.split())
    assert "noise (st. dev.)" in shown
    assert "made by joint-cumulative (" in shown
    assert "the paper" not in shown


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["validate", "nowhere.toml"], 2),
        (["plan", "nowhere.toml"], 2),
        (["plan", "release.toml", "--epsilon", "x", "--prior", "geometric", "--groups", "9"], 2),
        (["plan", "release.toml", "--plot", "nowhere/x.png", "--prior", "geometric", "--groups", "9"], 2),
        (["release", "nowhere.toml", "--out", "x", "--no-ledger"], 2),
        (["release", "release.toml", "--out", "x"], 3),
        (["release", "release.toml", "--out", "x", "--ledger", "nowhere.db"], 3),
        (["release", "release.toml", "--out", "x", "--resume"], 2),
        (["synthesize", "release.toml", "--out", "x", "--no-ledger"], 2),
        (["verify", "nowhere"], 2),
        (["verify", "release.toml"], 2),
        (["query", "nowhere"], 2),
        (["query", "release.toml", "--size", "3"], 2),
        (["ledger", "show", "nowhere.db"], 3),
        (["ledger", "open", "release.toml", "--epsilon", "one"], 2),
        (["ledger", "open", "release.toml", "--epsilon", "-1"], 2),
        (["ledger", "open", "release.toml"], 2),
        (["ledger", "link", "nowhere.db", "a", "b", "--epsilon", "1"], 3),
        (["ledger", "link", "nowhere.db", "a", "b", "--epsilon", "0"], 2),
        (["ledger", "anchor", "nowhere.db"], 3),
        (["evaluate", "nowhere"], 2),
        (["evaluate", "census", "--epsilon", "x"], 2),
        (["audit", "--mechanism", "nothing"], 2),
        (["nothing"], 2),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else None,
)
def test_exit_codes_are_2_for_what_was_written_and_3_for_budgets(typed, words, code):
    shown = typed(*words, code=code)
    assert "defect" not in shown.err
    assert shown.out == ""


def test_a_malformed_budget_in_a_spec_is_a_mistake_in_the_spec(typed, folder):
    for budget in ("epsilon = 0", "epsilon = 'x'", "epsilon = 1\nrho = 1", "rho = 1\ndelta = 2"):
        (folder / "release.toml").write_text(GOOD.replace("epsilon = 0.1", budget))
        assert typed("validate", "release.toml", code=2).err.startswith("error: [privacy] ")
