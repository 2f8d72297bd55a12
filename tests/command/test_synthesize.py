"""`tallytree synthesize` as a user types it: from a spec to a directory, killed and resumed, and with bad input."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from fractions import Fraction

import pytest

from tests.command.test_main import run
from tests.command.test_synthesis_spec import GOOD, HOUSEHOLDS, PERSONS

LEDGERED = GOOD.replace("rho = 0.5", 'rho = 0.5\nledger = "ledger.db"')
KILLED = """
import os, signal
from tallytree.privacy.journal import Journal

real, seen = Journal.record, []

def record(self, result):
    seen.append(result)
    if len(seen) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    real(self, result)

Journal.record = record
from tallytree.command.main import main
main()
"""

KILLED_WHILE_WRITING = """
import os, signal
import tallytree.publish.microdata.synthesis as microdata

microdata.data_package = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
from tallytree.command.main import main
main()
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "households.csv").write_text(HOUSEHOLDS)
    (tmp_path / "persons.csv").write_text(PERSONS)
    (tmp_path / "synth.toml").write_text(GOOD)
    return tmp_path


def test_from_a_spec_to_a_directory_that_verifies(folder, typed):
    (folder / "synth.toml").write_text(LEDGERED)
    assert "Nothing was spent" in typed("validate", "synth.toml")
    assert "no ledger at" in typed("synthesize", "synth.toml", "--out", "first", code=3)
    assert not (folder / "first.partial").exists()
    assert "0.6 left" in typed("ledger", "open", "synth.toml", "--rho", "0.6")
    out = run("synthesize", "synth.toml", "--out", "first", folder=folder)
    assert "40 synthetic households for 60 real ones (public)" in out
    assert "Reliability of the workload's tables" in out
    assert all(len(line) <= 80 for line in out.splitlines()), out
    saved = out.split("\nid ")[1].split()[0]
    assert not (folder / "first.partial").exists()
    assert "All checks passed" in typed("verify", "first", "--id", saved[:16])
    account = json.loads(typed("ledger", "show", "ledger.db", "--json"))[0]
    assert [spending["release_id"] for spending in account["spendings"]] == [saved]
    assert "Nothing was spent" in typed("synthesize", "synth.toml", "--out", "second", code=3)
    assert not list(folder.glob("second*"))
    rounds = json.loads((folder / "first" / "privacy.json").read_text())["rounds"]
    why = [row["why"] for row in rows_measured(rounds)]
    assert why[0] == "a total, as the base of shares"
    assert set(why[1:]) == {"in the workload"}
    assert "1 × a total" in " ".join(out.split())
    assert "households.csv, persons.csv" in typed("export", "first", "--to", "activitysim")
    lines = (folder / "first-activitysim" / "households.csv").read_text().splitlines()
    assert lines[0].replace('"', "") == "household_id,tenure,county,hhsize"  # no release, so no zones
    assert len(lines) == 41
    assert "holds synthetic households: --to activitysim" in typed("export", "first", "--to", "csvw", code=2)
    assert "already" in typed("export", "first", "--to", "activitysim", code=2)


def rows_measured(rounds):
    return [row for row in rounds if row["kind"] == "measure"]


@pytest.mark.parametrize("option", ["--suggest", "--prior", "--mechanism", "--plot", "--report"])
def test_options_of_plan_that_are_for_releases_are_refused_for_a_synthesis(folder, typed, option):
    assert f"{option} is for releases" in typed("plan", "synth.toml", option, "page.html", code=2)
    assert not (folder / "page.html").exists()


def test_without_a_ledger_a_synthesis_asks_whether_that_is_meant(folder, typed):
    out = typed("synthesize", "synth.toml", "--out", "first", code=3)
    assert "no ledger was named" in out
    assert "--no-ledger" in out
    assert not list(folder.glob("first*"))
    typed("synthesize", "synth.toml", "--out", "first", "--no-ledger", "--quiet")
    assert "without a ledger" in json.loads((folder / "first" / "privacy.json").read_text())["statement"]
    (folder / "synth.toml").write_text(GOOD.replace("rho = 0.5", "rho = 0.5\nledger = false"))
    typed("synthesize", "synth.toml", "--out", "second", "--quiet")


def test_households_that_were_cut_are_said_to_be(folder, typed):
    rule = "Of a household with more than 3 persons, the first 3 persons in the order of column 'line' were kept"
    words = typed("validate", "synth.toml")
    assert "For your eyes only: not private." in words
    assert "10 % of 120 persons (12) are left out; 25 % of 48 households with persons (12) lose some" in words
    out = typed("synthesize", "synth.toml", "--out", "s", "--no-ledger")
    assert f"All counts and errors describe the data as truncated. {rule}" in out
    statement = json.loads((folder / "s" / "privacy.json").read_text())
    package = json.loads((folder / "s" / "datapackage.json").read_text())
    assert statement["truncated"] is True
    told = [part["description"] for part in package["resources"] if part["name"] not in ("households", "persons")]
    for text in (statement["statement"], package["description"], *told):
        assert f"the data as truncated. {rule}" in text
    typed("verify", "s")
    for change in ({"truncated": False}, {"statement": statement["statement"].replace(" as truncated", "")}):
        path = folder / "s" / "privacy.json"
        path.write_text(json.dumps({**statement, **change}))
        manifest = json.loads((folder / "s" / "manifest.json").read_text())
        manifest["files"]["privacy.json"] = hashlib.sha256(path.read_bytes()).hexdigest()
        (folder / "s" / "manifest.json").write_text(json.dumps(manifest))
        assert "do not use this release" in typed("verify", "s", code=2)


def killed(folder, code, *more):
    """Run the command until it kills itself, and return the lines of its journal."""
    words = [sys.executable, "-c", code, "synthesize", "synth.toml", "--out", "mine", *more]
    done = subprocess.run(words, cwd=folder, capture_output=True, timeout=300, check=False, env=dict(os.environ))
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (folder / "mine").exists()
    content = (folder / "mine.partial" / "journal.jsonl").read_text().rstrip("\0")  # room for more
    return [json.loads(line) for line in content.splitlines()]


def test_a_run_that_was_killed_while_writing_has_all_its_rounds(folder, typed):
    before = killed(folder, KILLED_WHILE_WRITING, "--no-ledger")
    typed("synthesize", "synth.toml", "--out", "mine", "--no-ledger", "--resume", "--quiet")
    told = json.loads((folder / "mine" / "privacy.json").read_text())
    assert [row["cost"] for row in told["rounds"]] == [line["cost"] for line in before if "reserved" in line]
    assert not any(row["lost"] for row in told["rounds"])
    assert sum(Fraction(row["cost"]) for row in told["rounds"]) == Fraction(1, 2)


def test_a_killed_run_is_resumed_and_spends_nothing_twice(folder, typed):
    (folder / "synth.toml").write_text(LEDGERED)
    typed("ledger", "open", "synth.toml", "--rho", "0.6")
    before = killed(folder, KILLED)
    assert "--resume" in typed("synthesize", "synth.toml", "--out", "mine", code=2)
    assert "were lost" in typed("synthesize", "synth.toml", "--out", "mine", "--resume")
    assert not (folder / "mine.partial").exists()
    told = json.loads((folder / "mine" / "privacy.json").read_text())
    reserved = [line["cost"] for line in before if "reserved" in line]
    assert len(reserved) == 4
    assert [row["cost"] for row in told["rounds"][:4]] == reserved
    assert [row["lost"] for row in told["rounds"][:5]] == [False, False, False, True, False]
    assert sum(Fraction(row["cost"]) for row in told["rounds"]) == Fraction(1, 2)
    account = json.loads(typed("ledger", "show", "ledger.db", "--json"))[0]
    assert [spending["cost"] for spending in account["spendings"]] == ["1/2"]
    typed("verify", "mine")
    assert "does not exist" in typed("synthesize", "synth.toml", "--out", "other", "--resume", code=2)


def test_bad_data_are_told_in_counts_and_never_in_values(folder, typed):
    rows = (folder / "households.csv").read_text()
    (folder / "households.csv").write_text(rows.replace("1,rented,02", "1,SECRET,02"))
    text = typed("synthesize", "synth.toml", "--out", "s", "--no-ledger", code=2)
    assert "SECRET" not in text
    assert "'tenure'" in text
    (folder / "households.csv").write_text(rows)
    (folder / "persons.csv").write_text(PERSONS + "777,1,20,f,0\n")
    text = typed("validate", "synth.toml", code=2)
    assert "777" not in text
    assert "household" in text
    (folder / "persons.csv").write_text(PERSONS)
    spec = GOOD.replace('oversize = "drop"\n', "").replace('order = "line"\n', "")
    (folder / "synth.toml").write_text(spec)
    assert 'oversize = "drop"' in typed("synthesize", "synth.toml", "--out", "s", "--no-ledger", code=2)
    assert not list(folder.glob("s*.partial"))
    assert not (folder / "s").exists()


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("rho = 0.5\ndelta = 1e-6", "epsilon = 1"), 3, "delta is missing"),
        (("[synthesis]", '[workload]\nsets = [["colour"]]\n[synthesis]'), 2, "no attribute 'colour'"),
        (("floor = [0, 1]", f"floor = {list(range(400))}"), 2, "tallytree-marginals or h-gem"),
        (("rounds = 3", "round = 3"), 2, "did you mean 'rounds'"),
        (("mwem", "mwen"), 2, "no synthesis method 'mwen'"),
        (("[synthesis]", '[agreement]\nrelease = "no"\nregion = "county"\n[synthesis]'), 2, "no release at"),
        (("max_persons", "max_person"), 2, "did you mean 'max_persons'"),
    ],
)
def test_mistakes_are_told_before_anything_is_kept(folder, typed, change, code, message):
    assert change[0] in GOOD
    (folder / "synth.toml").write_text(GOOD.replace(*change))
    assert message in typed("synthesize", "synth.toml", "--out", "s", "--no-ledger", code=code)
    assert not (folder / "s.partial").exists()


def test_an_existing_target_is_refused(folder, typed):
    (folder / "s").mkdir()
    assert "already exists" in typed("synthesize", "synth.toml", "--out", "s", "--no-ledger", code=2)


def test_agreement_with_a_release_from_the_command(folder, typed):
    (folder / "regions.csv").write_text("state,county\nA,01\nA,02\nB,03\n")
    (folder / "homes.csv").write_text(HOUSEHOLDS)
    counties = dict(line.split(",")[::2] for line in HOUSEHOLDS.splitlines()[1:])
    rows = [line.split(",")[0] for line in PERSONS.splitlines()[1:]]
    (folder / "people.csv").write_text("home,county\n" + "".join(f"{home},{counties[home]}\n" for home in rows))
    (folder / "release.toml").write_text("""
[regions]
table = "regions.csv"
levels = ["state", "county"]
[data]
source = "people.csv"
group = "home"
groups = "homes.csv"
groups_are_public = true
region = "county"
max_size = 3
[privacy]
unit = "one_group"
rho = 0.2
""")
    typed("release", "release.toml", "--out", "release", "--no-ledger")
    spec = GOOD.replace("households = 40\n", "").replace(
        "[synthesis]", '[agreement]\nrelease = "release"\nregion = "county"\n\n[synthesis]'
    )
    (folder / "synth.toml").write_text(spec)
    assert "with 60 released households by county and size" in typed("validate", "synth.toml")
    text = typed("synthesize", "synth.toml", "--out", "s", "--no-ledger")
    assert "together are zero-concentrated differentially private with ρ = 0.7" in text
    typed("verify", "s")


def test_agreement_by_category_from_the_command(folder, typed):
    (folder / "regions.csv").write_text("state,county\nA,01\nA,02\nB,03\n")
    (folder / "homes.csv").write_text(HOUSEHOLDS.replace("tenure", "holding"))
    head, *homes = HOUSEHOLDS.splitlines()
    assert head == "home,tenure,county"
    of_home = dict(line.split(",", 1) for line in homes)
    rows = [line.split(",")[0] for line in PERSONS.splitlines()[1:]]
    (folder / "people.csv").write_text("home,holding,county\n" + "".join(f"{row},{of_home[row]}\n" for row in rows))
    (folder / "release.toml").write_text("""
[regions]
table = "regions.csv"
levels = ["state", "county"]
[data]
source = "people.csv"
group = "home"
region = "county"
max_size = 3
[by.holding]
values = ["owned", "rented"]
decided_by = "group"
[privacy]
unit = "one_group"
rho = 0.2
""")
    typed("release", "release.toml", "--out", "release", "--no-ledger")
    plain = GOOD.replace("households = 40\n", "").replace(
        "[synthesis]", '[agreement]\nrelease = "release"\nregion = "county"\n\n[synthesis]'
    )
    (folder / "synth.toml").write_text(plain)
    assert "distinguishes households by 'holding'" in typed("validate", "synth.toml", code=2)
    (folder / "synth.toml").write_text(plain.replace("[synthesis]", '[agreement.by]\nholding = "tenure"\n[synthesis]'))
    assert "released households by county, tenure and size" in typed("validate", "synth.toml")
    text = typed("synthesize", "synth.toml", "--out", "s", "--no-ledger")
    assert "ρ = 1.3" in text  # 4 · 0.2 for the release, 0.5 for the synthesis
    assert (folder / "s" / "size_table.csv").read_text().startswith("region,holding,size,count\n")
    typed("verify", "s")


def test_of_two_copies_of_a_killed_run_one_is_finished_and_the_other_refused(folder, typed):
    (folder / "synth.toml").write_text(LEDGERED)
    typed("ledger", "open", "synth.toml", "--rho", "0.6")
    killed(folder, KILLED)
    shutil.copytree(folder / "mine.partial", folder / "other.partial")
    typed("synthesize", "synth.toml", "--out", "mine", "--resume")
    assert "is a copy, or was restored" in typed("synthesize", "synth.toml", "--out", "other", "--resume", code=2)
    assert not (folder / "other").exists()
    spendings = json.loads(typed("ledger", "show", "ledger.db", "--json"))[0]["spendings"]
    assert [spending["cost"] for spending in spendings] == ["1/2"]
    drawn = [Fraction(each["cost"]) for each in spendings[0]["rounds"]]
    told = json.loads((folder / "mine" / "privacy.json").read_text())
    assert drawn == [Fraction(row["cost"]) for row in told["rounds"]]
    assert sum(drawn) <= Fraction(1, 2)


def test_other_rows_under_the_same_name_are_refused_on_resuming(folder, typed):
    killed(folder, KILLED, "--no-ledger")
    rows = (folder / "households.csv").read_text().splitlines()
    changed = [
        rows[0],
        rows[1].replace("rented", "owned") if "rented" in rows[1] else rows[1].replace("owned", "rented"),
    ]
    assert changed[1] != rows[1]
    (folder / "households.csv").write_text("\n".join([*changed, *rows[2:], ""]))
    text = typed("synthesize", "synth.toml", "--out", "mine", "--resume", "--no-ledger", code=2)
    assert "rows are not those that this run began with" in text
    (folder / "households.csv").write_text("\n".join([rows[0], *reversed(rows[1:]), ""]))
    typed("synthesize", "synth.toml", "--out", "mine", "--resume", "--no-ledger")
    typed("verify", "mine")
    assert "nothing guarded against copies" in (folder / "mine" / "privacy.json").read_text().lower()


def test_the_help_says_that_copies_are_not_guarded_against_without_a_ledger(typed):
    assert "Without a ledger nothing guards against copies" in typed("synthesize", "--help")
