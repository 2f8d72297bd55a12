"""Synthetic households that agree with a release by category: exactly, in one promise with it, and verified."""

import csv
import json
import shutil
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pyarrow.parquet as pq
import pytest

from tallytree import Budget, Schema, SpecError, release, synthesize, verify
from tallytree.domain.schema import Attribute
from tallytree.tables.households import households_from_codes
from tests.publish.microdata.test_files import forge, statement
from tests.publish.release.test_categories import TREE, TWO, group_sizes, microdata

KINDS = {  # arguments of the release, and how many steps of its relation one of the joint relation is
    "group": ({"groups": None}, 2),
    "members": ({"decided_by": "members", "groups": None}, 2),
    "group, public totals": ({"groups": ("tenure",)}, 1),
    "group, public totals by region": ({"groups": ()}, 2),
    "members, public totals by region": ({"decided_by": "members", "groups": ()}, 1),
    "two columns, renamed": ({"by": TWO, "groups": None}, 2),
}
SCHEMA = Schema(
    (
        Attribute("ten", ("2", "1")),
        Attribute("tenure", ("rented", "owned")),
        Attribute("county", ("D", "A", "B", "C")),
        Attribute("origin", ("both", "abroad", "here")),
    ),
    (Attribute("sex", ("f", "m")),),
    5,
)


@pytest.fixture(scope="module")
def homes():
    return households_of_the_releases()


def households_of_the_releases():
    """The households of the releases, as codes."""
    rows, listed = microdata()
    names = {"ten": [{"rented": "2", "owned": "1"}[each] for each in listed["tenure"].to_pylist()]}
    names |= {name: listed[name].to_pylist() for name in ("tenure", "county", "origin")}
    codes = {
        name: np.array([SCHEMA.attribute(name).values.index(each) for each in column]) for name, column in names.items()
    }
    owners = rows["home"].to_numpy()
    return households_from_codes(SCHEMA, codes, {"sex": owners % 2}, owners, listed.num_rows, name="homes")


@pytest.fixture(scope="module")
def synthesized(homes):
    """A function from a kind to its release and synthesis, each made once."""
    return cache(partial(synthesize_as, homes))


def synthesize_as(homes, kind):
    how, _ = KINDS[kind]
    asked = {"budget": Budget(rho="0.1"), "unit": "one_group", "intervals": "none", "mechanism": "tallytree"}
    made = release(group_sizes(**how), **asked)
    by = {"tenure": {"attribute": "ten", "values": {"owned": "1", "rented": "2"}}} if "renamed" in kind else None
    quick = {"budget": Budget(rho="0.5", delta="1e-6"), "options": {"rounds": 2, "components": 5, "steps": 5}}
    return made, synthesize(homes, **quick, release=made, region="county", by=by)


@pytest.mark.parametrize("kind", KINDS)
def test_households_agree_by_region_category_and_size_on_every_level(kind, synthesized, tmp_path):
    made, households = synthesized(kind)
    households.save(tmp_path / "s")
    found = verify(tmp_path / "s")
    assert found.ok, found.faults
    drawn = pq.read_table(tmp_path / "s" / "households.parquet").to_pandas()
    if "renamed" in kind:
        drawn["tenure"] = drawn["ten"].map({"1": "owned", "2": "rented"})
    above = {county: ("x" if county in "AB" else "y") for county in "ABCD"}
    drawn["state"], drawn["total"] = drawn["county"].map(above), TREE.names[0]
    by = made.hierarchy.by.names
    wanted = made.table().to_pandas()
    wanted = wanted[(wanted[list(by)] != "all").all(axis=1) & (wanted["count"] > 0)]
    assert len(wanted) > 20
    assert wanted["count"].sum() == 3 * len(drawn)
    keys = [drawn[name].astype(str) for name in (*by, "persons")]
    counted = {level: drawn.groupby([drawn[level].astype(str), *keys]).size().to_dict() for level in TREE.levels}
    for row in wanted.to_dict("records"):
        assert counted[row["level"]][row["name"], *(row[name] for name in by), str(row["size"])] == row["count"]
    sums = made.hierarchy.over_categories(made.counts)[TREE.level_slice(2)]
    assert households.number == sums.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_the_promise_of_both_is_stated(kind, synthesized, tmp_path):
    _, households = synthesized(kind)
    times = KINDS[kind][1]
    assert households.together.rho == Fraction(1, 2) + times**2 * Fraction(1, 10)
    households.save(tmp_path / "s")
    told = statement(tmp_path / "s")
    public = "public totals" in kind
    assert ("the region of each household" in " ".join(told["not_protected"])) == public
    assert ("tenure is" in " ".join(told["not_protected"])) == (kind == "group, public totals")
    assert told["agreement"]["steps_of_the_release"] == times
    assert "county, ten" in told["agreement"]["promise"]


@pytest.fixture(scope="module")
def saved(synthesized, tmp_path_factory):
    folder = tmp_path_factory.mktemp("by category") / "s"
    synthesized("group")[1].save(folder)
    return folder


def change_table(folder):
    path = folder / "size_table.csv"
    rows = list(csv.reader(path.open()))
    other = next(row for row in rows[2:] if row[-1] != rows[1][-1])
    rows[1][-1], other[-1] = other[-1], rows[1][-1]
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def change_statement(change):
    def changed(folder):
        told = statement(folder)
        change(told["agreement"])
        (folder / "privacy.json").write_text(json.dumps(told))

    return changed


FORGED = {
    "a count of another category": change_table,
    "fewer steps": change_statement(lambda agreed: agreed.update(steps_of_the_release=1)),
    "without the category": change_statement(lambda agreed: agreed.pop("by")),
    "another attribute": change_statement(lambda agreed: agreed.update(by=[["tenure", "ten"]])),
    "an attribute that is not there": change_statement(lambda agreed: agreed.update(by=[["tenure", "rooms"]])),
    "no pair": change_statement(lambda agreed: agreed.update(by=[["tenure"]])),
    "a public list": change_statement(lambda agreed: agreed["release_neighbours"].update(groups_listed=True)),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_is_forged_is_found(name, saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "copy")
    FORGED[name](folder)
    forge(folder)
    assert not verify(folder).ok


def test_categories_of_no_release_are_refused(homes):
    with pytest.raises(SpecError, match="give a release too"):
        synthesize(homes, budget=Budget(rho=1), by={"tenure": "tenure"})
