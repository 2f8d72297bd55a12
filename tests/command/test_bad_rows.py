"""`validate --problems`: the lines of bad rows in a private file, and the rules of the spec that handle them."""

import pytest

from tests.command.test_release_spec import GOOD


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "regions.csv").write_text("state,county\nA,01\nA,02\nB,03\n")
    (tmp_path / "people.csv").write_text("household,county\n1,01\n1,01\n2,02\n3,03\n")
    return tmp_path


def test_bad_rows_are_written_for_the_data_holder_alone_and_rules_handle_them(typed, folder):
    bad = (folder / "people.csv").read_text() + ",01\n9,99\n"
    lines = bad.count("\n")
    (folder / "people.csv").write_text(bad)
    (folder / "release.toml").write_text(GOOD)
    told = typed("validate", "release.toml", "--problems", "bad.csv", code=2)
    assert "bad.csv lists 2 bad rows. It is private" in told
    found = folder / "bad.csv"
    expected = f"file,line,problem\npeople.csv,{lines - 1},no_group\npeople.csv,{lines},unknown_region\n"
    assert found.read_text() == expected
    assert found.stat().st_mode & 0o777 == 0o600
    assert "bad.csv exists already" in typed("validate", "release.toml", "--problems", "bad.csv", code=2)
    rules = 'on_missing = "drop"\non_unknown_region = "drop"\n'
    (folder / "release.toml").write_text(GOOD.replace("[data]\n", f"[data]\n{rules}"))
    told = typed("validate", "release.toml", "--problems", "more.csv")
    assert "on_missing" in told
    assert "(1) are dropped" in told
    assert not (folder / "more.csv").exists()
