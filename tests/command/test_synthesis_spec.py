from fractions import Fraction

import pytest

from tallytree import Attribute, HouseholdNeighbours, Marginal, PrivacyUnit, SpecError
from tallytree.command.spec import is_for_synthesis
from tallytree.command.synthesis_spec import SynthesisSpec
from tests.command.test_release_spec import GOOD as RELEASE

GOOD = """
[households]
source = "households.csv"
id = "home"
name = "homes-2020"

[persons]
source = "persons.csv"
order = "line"

[schema]
max_persons = 3
oversize = "drop"

[schema.household]
tenure = ["owned", "rented"]
county = { values = ["01", "02", "03"] }

[schema.person]
age = { cuts = [18, 65.5] }
sex = { values = ["f", "m"], missing = "unknown" }
floor = [0, 1]

[privacy]
unit = "one_group"
rho = 0.5
delta = 1e-6

[synthesis]
method = "mwem"
options = { rounds = 3, totals_share = 0.1, empty = true }
households = 40
title = "Homes"
"""

HOUSEHOLDS = "home,tenure,county\n" + "".join(
    f"{home},{('owned', 'rented')[home % 2]},{('01', '02', '03')[home % 3]}\n" for home in range(60)
)
PERSONS = "home,line,age,sex,floor\n" + "".join(
    f"{home},{line},{(home * 7 + line * 31) % 90},{('f', 'm', '')[(home + line) % 3]},{home % 2}\n"
    for home in range(60)
    for line in range(home % 5)
)
CODEBOOK = (
    "attribute,level,value,cut\ntenure,household,owned,\ntenure,household,rented,\n"
    "age,person,child,\nage,person,adult,18\n"
)


@pytest.fixture
def write(tmp_path):
    (tmp_path / "households.csv").write_text(HOUSEHOLDS)
    (tmp_path / "persons.csv").write_text(PERSONS)
    (tmp_path / "codebook.csv").write_text(CODEBOOK)

    def write(text=GOOD):
        path = tmp_path / "synth.toml"
        path.write_text(text)
        return path

    return write


def test_a_spec_reads_with_paths_relative_to_itself(write):
    spec = SynthesisSpec.load(write())
    households = spec.read()
    assert households.name == "homes-2020"
    assert households.truncation() == (
        "Of a household with more than 3 persons, the first 3 persons in the order of column 'line' were kept, "
        "regardless of their attributes."
    )
    assert households.schema.person == (
        Attribute("age", ("below 18", "18 to 65.5", "65.5 or more"), (18.0, 65.5)),
        Attribute("sex", ("f", "m", "unknown"), missing="unknown"),
        Attribute("floor", ("0", "1")),
    )
    assert spec.budget.amount == Fraction(1, 2)
    assert spec.options == {"rounds": 3, "totals_share": 0.1, "empty": True}
    assert spec.neighbours() == HouseholdNeighbours(PrivacyUnit("one_group"), 3)
    assert spec.chosen_workload(households.schema) is None
    settings = spec.settings(households.schema)
    assert (spec.ledger, settings.release, settings.region) == (None, None, None)


def test_the_schema_may_come_from_a_codebook_and_the_name_from_the_file(write):
    start, end = GOOD.index("[schema.household]"), GOOD.index("[privacy]")
    text = GOOD[:start].replace("max_persons", 'codebook = "codebook.csv"\nmax_persons') + GOOD[end:]
    spec = SynthesisSpec.load(write(text.replace('name = "homes-2020"\n', "")))
    assert [attribute.name for attribute in spec.read().schema.person] == ["age"]
    assert spec.name == "households"
    (spec.folder / "codebook.csv").unlink()
    with pytest.raises(SpecError, match="no codebook at"):
        spec.public_schema()


@pytest.mark.parametrize(
    ("section", "tables", "contains"),
    [
        ("k = 2", 31, Marginal("persons", ("tenure",), ("age",))),
        ("k = 1\nsize = true", 13, Marginal("persons", size=True)),
        ('sets = [["persons", "county"], ["age", "tenure"]]', 4, Marginal("households", ("county",), (), True)),
        ('k = 1\nsets = [["age", "tenure"]]', 13, Marginal("households", ("tenure",), ("age",))),
        ("k = 2\nsample = 1", 6, None),
    ],
)
def test_workloads_are_all_sets_a_sample_or_named_ones(write, section, tables, contains):
    spec = SynthesisSpec.load(write(f"{GOOD}\n[workload]\n{section}\n"))
    workload = spec.chosen_workload(spec.public_schema())
    assert len(workload) == tables
    assert contains is None or contains in list(workload)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("max_persons", "max_person"), r"\[schema\] unknown key 'max_person'; did you mean 'max_persons'\?"),
        (("[privacy]", "[privcy]"), r"unknown key 'privcy'; did you mean 'privacy'\?"),
        (("cuts =", "cut ="), r"\[schema.person.age\] unknown key 'cut'; did you mean 'cuts'\?"),
        (("rho = 0.5", "rh = 0.5"), r"\[privacy\] unknown key 'rh'; did you mean 'rho'\?"),
        (("max_persons = 3", 'max_persons = "3"'), r"\[schema\] max_persons: .*integer.*not '3'"),
        (('id = "home"\n', ""), r"\[households\] the key 'id' is missing"),
        (("[persons]", "[person]"), "the section 'persons' is missing"),
        (("one_group", "one_house"), "one_group"),
        (('"drop"', '"cut"'), r"\[schema\] oversize"),
        (("[schema]", "[schema"), "not a valid TOML file"),
        (("{ cuts = [18, 65.5] }", "{ }"), "'age' needs values, or cuts"),
        (("cuts = [18, 65.5]", "cuts = [65.5, 18]"), "cuts must be finite numbers in increasing order"),
        (("max_persons = 3", 'max_persons = 3\ncodebook = "codebook.csv"'), "needs either codebook"),
        (("[synthesis]", '[workload]\nsets = [["colour"]]\n[synthesis]'), "no attribute 'colour'"),
        (("[synthesis]", "[workload]\nsets = []\n[synthesis]"), "at least one table"),
        (("[synthesis]", "[workload]\nsize = true\n[synthesis]"), "needs k or sample"),
    ],
)
def test_mistakes_are_named_with_the_nearest_right_key(write, change, message):
    path = write(GOOD.replace(*change))
    with pytest.raises(SpecError, match=message):
        SynthesisSpec.load(path).chosen_workload(SynthesisSpec.load(path).public_schema())


def test_all_mistakes_are_named_at_once(write):
    text = GOOD.replace("max_persons", "max_person").replace("unit =", "units =").replace("cuts =", "cut =")
    with pytest.raises(SpecError) as error:
        SynthesisSpec.load(write(text))
    assert str(error.value).count("\n  - ") == 4


def test_the_two_kinds_of_specs_are_distinguished(write, tmp_path):
    assert is_for_synthesis(write())
    assert is_for_synthesis(write(GOOD.replace("[households]", "[household]")))
    assert not is_for_synthesis(write(RELEASE))
    assert not is_for_synthesis(write("[data"))
    assert not is_for_synthesis(tmp_path / "none.toml")
