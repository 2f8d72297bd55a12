"""The ledger knows the files that an account was charged for. It does not charge other files without a question."""

import os
import pty
import subprocess
import sys
import warnings

import pytest

import tallytree as tt
from tests.privacy.test_unit_columns import typed

SPEC = """
[regions]
table = "regions.csv"
levels = ["county"]

[data]
source = "people.csv"
name = "{name}"
group = "household"
region = "county"
max_size = 3

[privacy]
unit = "one_entity"
epsilon = 1
ledger = "ledger.db"

[release]
intervals = "none"
"""


def rows(year):
    return "household,county\n" + "".join(f"{year}-{at},{('east', 'west')[at % 2]}\n" for at in range(8))


@pytest.fixture
def spec(tmp_path, monkeypatch, capsys):
    (tmp_path / "regions.csv").write_text("county\neast\nwest\n")
    (tmp_path / "people.csv").write_text(rows(2025))
    path = tmp_path / "spec.toml"
    path.write_text(SPEC.format(name="people"))
    assert typed(monkeypatch, capsys, "ledger", "open", path, "--epsilon", "3")[0] == 0
    assert typed(monkeypatch, capsys, "release", path, "--out", tmp_path / "2025", "--no-report")[0] == 0
    return path


def spent(spec):
    return tt.Ledger(spec.parent / "ledger.db").account("people").spent


def released(spec, monkeypatch, capsys, out, *more):
    return typed(monkeypatch, capsys, "release", spec, "--out", spec.parent / out, "--no-report", *more)


def test_new_files_under_an_old_name_are_refused_before_anything_is_spent(spec, monkeypatch, capsys):
    (spec.parent / "people.csv").write_text(rows(2026))
    code, shown = released(spec, monkeypatch, capsys, "2026")
    assert code == 2
    assert "Nothing was spent" in shown
    assert f"tallytree ledger open {spec}" in shown
    assert f"tallytree release {spec} --out {spec.parent / '2026'} --changed-files" in shown
    assert spent(spec) == 1
    assert not (spec.parent / "2026").exists()
    assert not (spec.parent / "2026.partial").exists()


def test_new_files_are_charged_to_the_old_account_where_the_user_says_so(spec, monkeypatch, capsys):
    (spec.parent / "people.csv").write_text(rows(2026))
    assert released(spec, monkeypatch, capsys, "2026", "--changed-files")[0] == 0
    assert spent(spec) == 2
    assert released(spec, monkeypatch, capsys, "again")[0] == 0  # both files are known now
    assert spent(spec) == 3


def test_the_same_files_are_charged_again_without_a_question(spec, monkeypatch, capsys):
    os.utime(spec.parent / "people.csv", (1, 1))
    assert released(spec, monkeypatch, capsys, "again")[0] == 0
    assert spent(spec) == 2


def test_in_python_new_files_are_refused_too(spec):
    (spec.parent / "people.csv").write_text(rows(2026))
    tree = tt.Hierarchy.from_levels(str(spec.parent / "regions.csv"), ["county"])
    data = tt.read(
        str(spec.parent / "people.csv"), group="household", region="county", hierarchy=tree, max_size=3, name="people"
    )
    how = {"budget": tt.Budget(epsilon=1), "unit": "one_entity", "intervals": "none"}
    ledger = tt.Ledger(spec.parent / "ledger.db")
    with pytest.raises(tt.SpecError, match="changed_files=True"):
        tt.release(data, ledger=ledger, **how)
    assert spent(spec) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tt.release(data, ledger=ledger, changed_files=True, **how)
    assert spent(spec) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("answer", "code", "costs"), [(b"n\n", 2, 1), (b"y\n", 0, 2)])
def test_on_a_terminal_the_user_is_asked(spec, answer, code, costs):
    (spec.parent / "people.csv").write_text(rows(2026))
    outside, inside = pty.openpty()
    words = [sys.executable, "-m", "tallytree", "release", str(spec), "--out", str(spec.parent / "2026"), "--no-report"]
    process = subprocess.Popen(words, stdin=inside, stdout=inside, stderr=inside, close_fds=True)
    os.close(inside)
    os.write(outside, answer)
    shown = b""
    try:
        while piece := os.read(outside, 4096):
            shown += piece
    except OSError:  # the other side was closed
        pass
    assert process.wait() == code, shown
    os.close(outside)
    assert b"[y/N]" in shown
    assert spent(spec) == costs
