"""Every experiment says what it does when asked for help, is named by the docs that show its results, and runs."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import tallytree
from experiments import hqr

ROOT = Path(__file__).parents[2]
COMMANDS = [
    path.stem
    for path in sorted((ROOT / "experiments").glob("*.py"))
    if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
]


def typed(monkeypatch, name, *words):
    monkeypatch.setattr(sys, "argv", [name, *words])
    importlib.import_module(f"experiments.{name}").main()


def test_these_are_the_experiments():
    assert COMMANDS == [
        "accuracy",
        "all",
        "audit",
        "borrowing",
        "categories",
        "changes",
        "coc",
        "figures",
        "hqr",
        "interval_coverage",
        "one_group",
        "pgsr",
        "picture",
        "plausible",
        "plausible_regions",
        "rivals",
        "root_bias",
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_the_command_and_says_where_results_go(monkeypatch, capsys, name):
    with pytest.raises(SystemExit) as stop:
        typed(monkeypatch, name, "--help")
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert f"python -m experiments.{name}" in shown
    assert "--out" in shown


def test_the_docs_name_commands_that_exist():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile"]
    named = {found for page in pages for found in re.findall(r"-m\s+experiments\.(\w+)", page.read_text())}
    assert named == set(COMMANDS)


def test_nothing_of_them_is_in_the_wheel():
    tomllib = pytest.importorskip("tomllib")
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build == {"packages": ["src/tallytree"]}
    assert ROOT / "experiments" not in Path(tallytree.__file__).parents


def test_the_picture_is_drawn(monkeypatch, tmp_path):
    typed(monkeypatch, "picture", "--out", str(tmp_path / "picture.svg"))
    drawn = (tmp_path / "picture.svg").read_text()
    assert drawn.startswith("<svg")
    assert drawn.count("✓") >= 5  # what is released adds up


@pytest.mark.parametrize("name", hqr.READERS)
@pytest.mark.parametrize("small", [True, False], ids=["small", "whole"])
def test_real_households_are_read_with_their_members(public_file, name, small):
    files = {
        "oregon": ("oregon_2000_pums_households", "oregon_2000_pums_persons"),
        "atlanta": ("atlanta_arc_households", "atlanta_arc_persons"),
        "cps": ("us_cps_2012_2014_households", "us_cps_2012_2014_taxunits"),
    }
    homes, members = (public_file(f"{file}.parquet") for file in files[name])
    truth = hqr.READERS[name](homes.parent, small)
    table = hqr.read(homes.parent, homes.stem)
    stated = table["tax_units" if name == "cps" else "persons"]
    if name == "oregon":
        stated = stated[table["unittype"] == 0]
    kept = (stated >= 1) & (stated <= truth.schema.max_persons)
    assert np.diff(truth.codes.starts).tolist() == stated[kept].tolist()
    assert members.parent == homes.parent
    for codes in (*truth.codes.household.values(), *truth.codes.person.values()):
        assert len(np.unique(codes)) > 1  # no attribute is the same for everybody
