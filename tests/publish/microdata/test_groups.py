"""Tables for the roles in groups of values: in every record, repeated by a resumed run, and made again by `verify`."""

import json
import os
import shutil
import signal
from fractions import Fraction

import numpy as np
import pytest

from tallytree import Attribute, Budget, Marginal, Role, Schema, Structure, synthesize, verify
from tallytree.core.errors import ReleaseError
from tallytree.privacy.journal import Journal
from tallytree.synthesis.workload import named
from tallytree.tables.households import households_from_codes
from tests.publish.microdata.test_files import forge

AGES = Attribute("age", tuple(map(str, range(8))), cuts=tuple(range(10, 80, 10)))
SCHEMA = Schema(
    (Attribute("area", ("x", "y")),),
    (Attribute("relation", ("head", "spouse", "child", "lodger", "guest")), AGES, Attribute("sex", ("f", "m"))),
    4,
    Structure(
        (
            Role("head", "exactly one", attribute="relation", values=("head",)),
            Role("spouse", "at most one", attribute="relation", values=("spouse",)),
        ),
        empty=False,
    ),
)
OPTIONS = {"rounds": 2, "components": 8, "steps": 4, "last_steps": 6}
ARGUMENTS = {"budget": Budget(rho="0.3", delta="1e-6"), "workload": named(SCHEMA, [["age"], ["sex", "area"]])}


def families(number=400):
    """A head each, two in three with a spouse of about their age, and up to two more."""
    rng = np.random.default_rng(8)
    rows = []
    for home in range(number):
        age = rng.integers(2, 8)
        rows.append((home, 0, age, rng.integers(0, 2)))
        if rng.random() < 0.66:
            rows.append((home, 1, min(7, max(2, age + rng.integers(-1, 2))), rng.integers(0, 2)))
        rows += [(home, rng.integers(2, 5), rng.integers(0, 3), rng.integers(0, 2)) for _ in range(rng.integers(0, 3))]
    home, relation, age, sex = (np.array(column) for column in zip(*rows, strict=True))
    people = {"relation": relation, "age": age, "sex": sex}
    return households_from_codes(SCHEMA, {"area": rng.integers(0, 2, number)}, people, home, number, name="families")


HOMES = families()


def made(folder=None, **more):
    return synthesize(HOMES, **ARGUMENTS, options=OPTIONS, folder=folder, **more)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups") / "families"
    made().save(folder)
    return folder


def grouped_rounds(statement):
    return [row for row in statement["rounds"] if "groups" in row.get("table", {})]


def test_tables_for_the_roles_are_measured_in_groups_and_say_so_everywhere(saved):
    statement = json.loads((saved / "privacy.json").read_text())
    rows = grouped_rounds(statement)
    assert any("age of spouse" in row["words"] for row in rows)
    assert all("groups)" in row["words"] and row["why"].startswith("for the roles") for row in rows)
    for row in rows:
        assert row["table"] in statement["measured"]
        assert row["sensitivity"]["l2_squared"] == (2 if row["table"]["of"] == "households" else 2 * 3**2)
        assert Fraction(row["scale"]) == Fraction(row["sensitivity"]["l2_squared"]) / (2 * Fraction(row["cost"]))
    by_role = [row["table"] for row in statement["rounds"] if row["kind"] == "measure"]
    for role in ("head", "spouse"):
        for name in ("age", "sex"):
            assert Marginal("households", roles=((role, name),)).to_json() in by_role
    first = by_role.index(rows[0]["table"])
    assert all(len(table.get("roles", [])) < 2 for table in by_role[:first])  # one-way tables come before
    found = verify(saved)
    assert found.ok, found.faults
    assert "the groups of values follow from the noisy measurements" in [check.what for check in found.checks]


def regroup(table):
    """Other groups of as many: the first two values of the first axis that has groups change theirs."""
    axis = next(axis for axis in table["groups"] if axis)
    axis[:] = axis[::-1]


@pytest.mark.parametrize("place", range(3))
def test_other_groups_are_found_even_if_the_statement_was_made_to_fit(saved, tmp_path, place):
    folder = shutil.copytree(saved, tmp_path / "copy")
    statement = json.loads((folder / "privacy.json").read_text())
    rows = grouped_rounds(statement)
    place %= len(rows)  # noise decides how many tables are in groups; at least one is
    before = json.dumps(rows[place]["table"])
    regroup(rows[place]["table"])
    after = rows[place]["table"]
    statement["measured"] = [after if json.dumps(table) == before else table for table in statement["measured"]]
    (folder / "privacy.json").write_text(json.dumps(statement))
    forge(folder)
    found = verify(folder)
    assert any("other groups follow from what was measured before" in fault for fault in found.faults), found.faults


@pytest.mark.parametrize("groups", [[[0]], "groups", [[0, "1"], []], [[-1] * 8, []], [[0.5] * 8, []], [[0] * 8] * 9])
def test_groups_that_are_none_are_a_fault_and_no_crash(saved, tmp_path, groups):
    folder = shutil.copytree(saved, tmp_path / "copy")
    statement = json.loads((folder / "privacy.json").read_text())
    grouped_rounds(statement)[0]["table"]["groups"] = groups
    (folder / "privacy.json").write_text(json.dumps(statement))
    forge(folder)
    assert not verify(folder).ok


def killed_in_round(folder, number):
    """Run in a forked process that dies once this round is on disk, before its noise is drawn."""
    child = os.fork()
    if not child:
        reserve = Journal.reserve

        def dying(journal, *request):
            found = reserve(journal, *request)
            if len(journal.rounds) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        Journal.reserve = dying
        try:
            made(folder)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def requests(folder):
    with Journal(folder, look=True) as journal:
        return [past.request for past in journal.rounds]


@pytest.mark.parametrize("number", [2, 4, 6, 8, 9, 10, 12])
def test_a_resumed_run_repeats_the_groups_of_the_rounds_before_the_kill(tmp_path, number):
    killed_in_round(tmp_path / "run", number)
    before = requests(tmp_path / "run")
    assert len(before) == number
    synthesis = made(tmp_path / "run", resume=True)
    after = [past.request for past in synthesis.rounds]
    assert after[:number] == before
    assert synthesis.rounds[number - 1].result is None
    assert synthesis.spent == synthesis.budget.rho
    synthesis.save(tmp_path / "out")
    found = verify(tmp_path / "out")
    assert found.ok, found.faults


def test_a_journal_with_other_groups_is_refused(tmp_path):
    synthesis = made(tmp_path / "run")
    place = next(at for at, past in enumerate(synthesis.rounds) if "groups" in past.request.get("table", {}))
    lines = (tmp_path / "run" / "journal.jsonl").read_text().splitlines()
    kept, seen = [], 0
    for line in map(json.loads, lines):
        if "reserved" in line:
            seen += 1
            if line["reserved"] == place + 1:
                regroup(line["request"]["table"])
        if "finished" not in line and "release_id" not in line:
            kept.append(json.dumps(line))
    (tmp_path / "run" / "journal.jsonl").write_text("\n".join(kept) + "\n")
    with pytest.raises(ReleaseError, match="was another one"):
        made(tmp_path / "run", resume=True)
