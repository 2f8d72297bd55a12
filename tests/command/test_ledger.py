"""`tallytree ledger` as a user types it."""

import json
import shutil
import stat

import pytest

from tests.command.test_release_spec import GOOD

LEDGERED = GOOD.replace("epsilon = 0.1", 'epsilon = 0.1\nledger = "ledger.db"')


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "regions.csv").write_text("state,county\nA,01\nA,02\nB,03\n")
    (tmp_path / "people.csv").write_text("household,county\n1,01\n1,01\n2,02\n3,03\n")
    (tmp_path / "release.toml").write_text(LEDGERED)
    shutil.copy(tmp_path / "people.csv", tmp_path / "again.csv")
    (tmp_path / "again.toml").write_text(LEDGERED.replace("people.csv", "again.csv").replace("people-2020", "again"))
    return tmp_path


def test_accounts_are_shown_as_they_were_opened(folder, typed):
    typed("ledger", "open", "release.toml", "--epsilon", "6", "--delta", "1e-6")
    text = typed("ledger", "show", "ledger.db")
    assert "opened with ε = 6, δ = 1e-06" in text
    assert "ρ: 0 spent of 0.638597, 0.638597 left" in text
    account = json.loads(typed("ledger", "show", "ledger.db", "--json"))[0]
    assert account["budget"]["epsilon"] == "6"
    assert account["left"] == account["total"]


def test_show_changes_nothing_of_what_it_is_pointed_at(folder, typed):
    (folder / "people.csv").chmod(0o644)
    (folder / "sub").mkdir(mode=0o755)
    for name in ("people.csv", "sub"):
        before = (folder / name).stat()
        assert "is no ledger" in typed("ledger", "show", name, code=3)
        after = (folder / name).stat()
        assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    typed("ledger", "open", "release.toml", "--epsilon", "1")
    (folder / "ledger.db").chmod(0o440)
    typed("ledger", "show", "ledger.db")
    assert stat.S_IMODE((folder / "ledger.db").stat().st_mode) == 0o440


def test_the_same_data_under_another_name_are_refused_or_said_so(folder, typed):
    typed("ledger", "open", "release.toml", "--epsilon", "1")
    typed("ledger", "open", "again.toml", "--epsilon", "1")
    first, other = (row["name"] for row in reversed(json.loads(typed("ledger", "show", "ledger.db", "--json"))))
    typed("release", "release.toml", "--out", "first")
    assert "--same-data-other-name" in typed("release", "again.toml", "--out", "second", code=3)
    assert not list(folder.glob("second*"))
    typed("release", "again.toml", "--out", "second", "--same-data-other-name")
    told = json.loads((folder / "second" / "privacy.json").read_text())["statement"]
    assert f"charged to the ledger's account {first!r} as well: what is released from all" in told
    assert "as well" not in json.loads((folder / "first" / "privacy.json").read_text())["statement"]
    typed("verify", "second")
    assert other != first


def test_linked_accounts_have_a_joint_total(folder, typed):
    typed("ledger", "open", "release.toml", "--epsilon", "1")
    typed("ledger", "open", "again.toml", "--epsilon", "1")
    accounts = [row["name"] for row in json.loads(typed("ledger", "show", "ledger.db", "--json"))]
    assert "together, ε: 0 spent of 0.15, 0.15 left" in typed(
        "ledger", "link", "ledger.db", *accounts, "--epsilon", "0.15"
    )
    typed("release", "release.toml", "--out", "first")
    assert "more together" in typed("release", "again.toml", "--out", "second", code=3)
    assert "together, ε: 0.1 spent of 0.15, 0.05 left" in typed("ledger", "show", "ledger.db")


def test_a_lost_anchor_is_made_anew_when_the_last_entries_were_compared(folder, typed):
    typed("ledger", "open", "release.toml", "--epsilon", "1")
    (folder / "ledger.db.anchor").unlink()
    assert "tallytree ledger anchor" in typed("release", "release.toml", "--out", "first", code=3)
    text = typed("ledger", "anchor", "ledger.db")
    assert "opened" in text
    assert not (folder / "ledger.db.anchor").exists()
    typed("ledger", "anchor", "ledger.db", "--accept", text.split("--accept ")[1].split()[0])
    typed("release", "release.toml", "--out", "first")
