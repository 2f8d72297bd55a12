"""The command's output can be written in every encoding, and says the same in each."""

import io
import json
import os
import subprocess
import sys

import pytest
import typer

from tallytree.command.main import app, main
from tallytree.publish.folder import digest
from tests.command.test_release_spec import GOOD

NAMES = ["Åland", "Κρήτη", "दादरा"]
SPEC = GOOD.replace("epsilon = 0.1", 'epsilon = 0.1\nledger = "ledger.db"') + '\n[release]\ntitle = "Größen ± ε"\n'
IN_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TERM": "dumb"}  # then Python writes ASCII


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "regions.csv").write_text("state,county\nA,Åland\nA,Κρήτη\nB,दादरा\n", encoding="utf-8")
    (tmp_path / "people.csv").write_text("household,county\n1,Åland\n1,Åland\n2,Κρήτη\n3,दादरा\n", encoding="utf-8")
    (tmp_path / "release.toml").write_text(SPEC, encoding="utf-8")
    return tmp_path


@pytest.fixture(params=["cp1252", "ascii"])
def command(request, folder, monkeypatch):
    """The command with streams of an encoding: what it prints, after a check of its exit code."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")

    def run(*words, code=0):
        with monkeypatch.context() as patch:
            printed = io.BytesIO()
            for stream in ("stdout", "stderr"):
                text = io.TextIOWrapper(printed, encoding=request.param, write_through=True)
                patch.setattr(sys, stream, text)
            patch.setattr(sys, "argv", ["tallytree", *words])
            with pytest.raises(SystemExit) as stop:
                main()
            shown = printed.getvalue().decode(request.param)
        assert (stop.value.code or 0) == code, shown
        return shown

    return run


def test_what_was_paid_for_is_told_with_its_id_in_every_encoding(command, folder):
    assert "can be released" in command("validate", "release.toml")
    command("ledger", "open", "release.toml", "--epsilon", "1")
    assert "+/-" in command("plan", "release.toml", "--prior", "households", "--groups", "30").replace("±", "+/-")
    made = command("release", "release.toml", "--out", "out", "--no-report")
    assert digest(folder / "out" / "manifest.json")[:16] in made
    assert "All checks passed" in command("verify", "out")
    assert "epsilon" in command("ledger", "show", "ledger.db")
    assert len(command("mechanisms")) > 100


def test_names_come_whole_in_json_and_escaped_elsewhere(command):
    command("release", "release.toml", "--out", "other", "--no-ledger", "--no-report", "--quiet")
    found = json.loads(command("query", "other", "--level", "county", "--size", ">=1", "--json", "--no-typical"))
    assert {row["regions"][0] for row in found} == set(NAMES)
    assert "\\u0926\\u093e" in command("query", "other", "--level", "county", "--size", ">=1", "--no-typical")
    assert "\\u0926\\u093e" in command("query", "other", "--level", "county", "--csv", "--no-typical")
    assert "there is no region" in command("query", "other", "--region", "‹दादरा›", code=2)


def test_the_command_runs_in_the_c_locale(folder):
    words = [sys.executable, "-m", "tallytree", "release", "release.toml", "--out", "out", "--no-ledger", "--no-report"]
    done = subprocess.run(words, cwd=folder, capture_output=True, env=os.environ | IN_C, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert digest(folder / "out" / "manifest.json")[:16] in done.stdout.decode("ascii")


def test_help_is_in_ascii():
    def check(one):
        assert one.get_help(typer.Context(one)).isascii(), one.name
        for inner in getattr(one, "commands", {}).values():
            check(inner)

    check(typer.main.get_command(app))
