"""A synthetic country from beginning to end: agreement on every level, one budget, resumed, verified and forged."""

import csv
import json
import shutil
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallytree import (
    Budget,
    HouseholdNeighbours,
    Implies,
    Ledger,
    Marginal,
    PrivacyUnit,
    ReleaseError,
    Role,
    SpecError,
    Structure,
    population_files,
    synthesize,
    verify,
)
from tallytree.privacy.journal import Journal
from tallytree.tables import Sealed
from tests.publish.microdata.test_files import forge, statement
from tests.synthesis.made_up import made_up, released_sizes

HOMES = made_up(900)
QUICK = {
    "budget": Budget(rho=2, delta="1e-6"),
    "options": {"rounds": 2, "components": 6, "steps": 5, "last_steps": 10},
    "region": "county",
    "regional": {"share": "0.25", "tables": [["tenure"], ["age"]], "worth": 2},
}


@pytest.fixture(scope="module")
def released():
    return released_sizes(HOMES, public=False)


@pytest.fixture(scope="module")
def made(released):
    return synthesize(HOMES, **QUICK, release=released)


@pytest.fixture(scope="module")
def saved(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("country") / "s"
    made.save(folder)
    return folder


def test_households_agree_on_every_level_and_have_its_regions(saved, released):
    found = verify(saved)
    assert found.ok, found.faults
    drawn = pq.read_table(saved / "households.parquet").to_pandas()
    assert {"state", "county"} <= set(drawn.columns)
    wanted = released.table().to_pandas()
    for row in wanted.to_dict("records"):
        here = drawn if row["level"] == "total" else drawn[drawn[row["level"]].astype(str) == row["name"]]
        assert (here["persons"] == row["size"]).sum() == row["count"]
    assert list(csv.reader((saved / "regions.csv").open())) == [
        ["state", "county"],
        ["A", "01"],
        ["A", "02"],
        ["B", "03"],
    ]


def test_roles_and_rules_hold_in_every_region(tmp_path):
    """The first person is the head, no head is young, and who rents has nobody old: no region breaks that."""
    never_old = Implies(when={"tenure": ["rented"]}, then={"age": ["young", "mid"]})
    structure = Structure((Role("head", position=1, may={"age": ["mid", "old"]}),), (never_old,))
    homes = made_up(900)
    homes = replace(homes, schema=replace(homes.schema, structure=structure), codes=with_schema(homes.codes, structure))
    made = synthesize(homes, **QUICK, release=released_sizes(homes, public=False))
    made.save(tmp_path / "s")
    found = verify(tmp_path / "s")
    assert found.ok, found.faults
    persons = pq.read_table(tmp_path / "s" / "persons.parquet").to_pandas()
    rented = pq.read_table(tmp_path / "s" / "households.parquet").to_pandas().query("tenure == 'rented'")
    assert not (persons.groupby("household_id").first()["age"] == "young").any()
    assert not (persons[persons["household_id"].isin(rented["household_id"])]["age"] == "old").any()


def with_schema(codes, structure):
    opened = codes.open_at_the_privacy_border()
    return Sealed(replace(opened, schema=replace(opened.schema, structure=structure)))


def test_one_budget_pays_for_the_whole_and_the_regions_and_the_statement_has_every_round(made, saved):
    assert sum(past.cost for past in made.rounds) == 2
    by_region = [row for row in made.workload if {"state", "county"} & set(row.household)]
    assert Marginal("households", ("state", "tenure")) in by_region
    assert Marginal("households", ("county",), ("age",)) in by_region
    told = statement(saved)
    costs = [Fraction(row["cost"]) for row in told["rounds"]]
    regional = [row for row in told["rounds"] if row["words"] and ("state" in row["words"] or "county" in row["words"])]
    assert len(regional) == len(by_region) == 4
    assert sum(Fraction(row["cost"]) for row in regional) == Fraction(1, 2)
    assert sum(costs) == 2
    assert told["agreement"]["levels"] == ["state", "county"]
    assert Fraction(told["agreement"]["rho"]) == 2 + 4 * Fraction(1, 20)
    asked = list(csv.DictReader((saved / "questions.csv").open()))
    assert {row["how"] for row in asked if row["household_attributes"].startswith("county")} == {"measured"}


def test_a_cut_off_run_goes_on_in_the_regional_rounds_without_spending_twice(released, tmp_path, monkeypatch):
    released.save(tmp_path / "release")
    book = Ledger(tmp_path / "ledger.db")
    book.open("homes", Budget(rho=3), HouseholdNeighbours(PrivacyUnit("one_group"), 3))
    real = Journal.record

    class Cut(BaseException):
        pass

    def cut_in_a_regional_round(self, result):
        if "state" in str(self.rounds[-1].request):
            raise Cut
        real(self, result)

    again = {**QUICK, "release": tmp_path / "release", "ledger": book, "folder": tmp_path / "kept"}
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "record", cut_in_a_regional_round)
        with pytest.raises(Cut):
            synthesize(HOMES, **again)
    made = synthesize(HOMES, **again, resume=True)
    lost = [past for past in made.rounds if past.result is None]
    assert len(lost) == 1
    assert sum(past.cost for past in made.rounds) == 2
    assert book.account("homes").spent == 2 + Fraction(1, 5)
    made.save(tmp_path / "s")
    assert verify(tmp_path / "s").ok


def change_household(folder):
    path = folder / "households.parquet"
    table = pq.read_table(path)
    column = table["state"].combine_chunks().dictionary_decode().to_pylist()
    column[0] = "B" if column[0] == "A" else "A"
    changed = table.set_column(table.column_names.index("state"), "state", [column])
    pq.write_table(changed.cast(table.schema), path, row_group_size=table.num_rows)


def change_regions(folder):
    path = folder / "regions.csv"
    path.write_text(path.read_text().replace("A,02", "B,02"))


@pytest.mark.parametrize("change", [change_household, change_regions, lambda folder: (folder / "regions.csv").unlink()])
def test_a_household_in_a_region_that_its_leaf_is_not_in_is_found(change, saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "copy")
    change(folder)
    if (folder / "regions.csv").exists():
        forge(folder)
    assert not verify(folder).ok


def test_regions_differ_where_they_were_measured(released):
    codes = HOMES.codes.open_at_the_privacy_border()
    rich = {**QUICK, "budget": Budget(rho=2000, delta="1e-6")}
    rich["options"] = {"rounds": 2, "components": 15, "steps": 20, "last_steps": 80}
    made = synthesize(HOMES, **rich, release=released)
    chunks = list(made.draw())
    county = np.concatenate([chunk.household[:, 1] for chunk in chunks])
    tenure = np.concatenate([chunk.household[:, 0] for chunk in chunks])
    for code in range(3):
        true = np.mean(codes.household["tenure"][codes.household["county"] == code])
        assert abs(np.mean(tenure[county == code]) - true) < 0.08


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"release": None, "region": None}, "regional needs release"),
        ({"method": "mwem", "options": {"rounds": 2}}, "go with the method tallytree-marginals"),
        ({"regional": {"tables": [["county"]]}}, "no attribute 'county'"),
        ({"regional": {"share": 2}}, "between 0 and 1"),
    ],
)
def test_what_cannot_be_asked_by_region_is_refused(changes, message, released):
    with pytest.raises(SpecError, match=message):
        synthesize(HOMES, **{**QUICK, "release": released, **changes})


def test_a_workload_by_region_says_where_it_belongs(released):
    from tallytree import Workload

    workload = Workload(HOMES.schema, (Marginal("households", ("county", "tenure")),))
    with pytest.raises(SpecError, match="are named in regional"):
        synthesize(HOMES, **QUICK, release=released, workload=workload)


def test_a_table_that_is_to_be_measured_is_with_regions_too(released):
    from tallytree import Workload
    from tallytree.privacy.neighbours import PrivacyUnit
    from tallytree.publish.microdata.synthesis_run import SynthesisSettings, check_synthesis

    table = Marginal("persons", ("tenure",), ("age", "sex"))
    workload = Workload(HOMES.schema, (Marginal("households", ("tenure",)), table), (table,))
    given = {"workload": workload, "method": "tallytree-marginals", "number": None, "release": released}
    settings = SynthesisSettings(unit=PrivacyUnit.of("one_group"), **QUICK, **given)
    assert check_synthesis(HOMES, settings).chosen.workload.measured == (table,)


@pytest.mark.parametrize("form", ["activitysim", "populationsim"])
def test_population_models_get_their_names_and_every_row(form, saved, tmp_path):
    homes, people = (pq.read_table(saved / name).to_pandas() for name in ("households.parquet", "persons.parquet"))
    paths = population_files(saved, tmp_path / "out", form=form)
    found, persons = (list(csv.DictReader(path.open())) for path in paths)
    size, number = ("hhsize", "PNUM") if form == "activitysim" else ("NP", "per_num")
    assert [int(row[size]) for row in found] == homes["persons"].tolist()
    assert [row["county"] for row in found] == homes["county"].astype(str).tolist()
    assert [int(row["household_id"]) for row in persons] == people["household_id"].tolist()
    assert [int(row[number]) for row in persons] == people["person"].tolist()
    assert [int(row["person_id"]) for row in persons] == list(range(1, len(people) + 1))
    if form == "activitysim":
        assert [*found[0]] == ["household_id", "tenure", "county", "state", "hhsize", "home_zone_id"]
        assert [*persons[0]] == ["person_id", "household_id", "PNUM", "age", "sex"]
        assert [int(row["home_zone_id"]) for row in found] == [int(county) for county in homes["county"]]
    else:
        assert [*found[0]] == ["household_id", "tenure", "county", "state", "NP"]
        assert [*persons[0]] == ["person_id", "household_id", "state", "county", "per_num", "age", "sex"]
        of_home = {row["household_id"]: (row["state"], row["county"]) for row in found}
        assert [(row["state"], row["county"]) for row in persons] == [of_home[row["household_id"]] for row in persons]
    with pytest.raises(ReleaseError, match="already exists"):
        population_files(saved, tmp_path / "out", form=form)


def test_zones_are_numbered_alike_whatever_order_a_group_of_rows_lists_them_in(saved, tmp_path):
    """Regions with names are numbered by their place in the schema, not in a file."""
    copy = shutil.copytree(saved, tmp_path / "copy")
    schema = json.loads((copy / "schema.json").read_text())
    counties = next(each for each in schema["household"] if each["name"] == "county")
    named = dict(zip(counties["values"], ("X", "Y", "Z"), strict=True))
    counties["values"] = [*named.values()]
    (copy / "schema.json").write_text(json.dumps(schema))
    homes = pq.read_table(copy / "households.parquet")
    labels = [named[value] for value in homes["county"].to_pylist()]
    turned = pa.array([["Z", "Y", "X"].index(label) for label in labels], pa.int32())
    place = homes.column_names.index("county")
    pq.write_table(
        homes.set_column(place, "county", pa.DictionaryArray.from_arrays(turned, ["Z", "Y", "X"])),
        copy / "households.parquet",
    )
    path, _ = population_files(copy, tmp_path / "out")
    found = [(row["county"], int(row["home_zone_id"])) for row in csv.DictReader(path.open())]
    assert found == [(label, "XYZ".index(label) + 1) for label in labels]


def test_an_attribute_with_the_name_of_another_column_is_refused(saved, tmp_path):
    copy = shutil.copytree(saved, tmp_path / "copy")
    schema = json.loads((copy / "schema.json").read_text())
    schema["person"][0]["name"] = "PNUM"
    (copy / "schema.json").write_text(json.dumps(schema))
    with pytest.raises(SpecError, match="two columns would have the name 'PNUM'"):
        population_files(copy, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_of_two_syntheses_are_refused(saved, tmp_path):
    copy = shutil.copytree(saved, tmp_path / "copy")
    persons = pq.read_table(copy / "persons.parquet")
    pq.write_table(persons, copy / "persons.parquet", row_group_size=10)
    with pytest.raises(ReleaseError, match="not from the same synthesis"):
        population_files(copy, tmp_path / "out")


def test_no_other_form_and_no_other_folder_is_taken(saved, tmp_path):
    with pytest.raises(SpecError, match="unknown form 'activity'"):
        population_files(saved, tmp_path / "out", form="activity")
    with pytest.raises(ReleaseError, match="holds no synthetic households"):
        population_files(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
