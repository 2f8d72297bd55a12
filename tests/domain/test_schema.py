"""The public shape of household microdata: what it refuses, and what it says of tables."""

import json

import pytest

from tallytree.core.errors import SpecError
from tallytree.domain.schema import Attribute, Marginal, Schema, check_all

AGE = Attribute("age", ("child", "adult", "old", "unknown"), cuts=(18, 65), missing="unknown")
SEX = Attribute("sex", ("f", "m"))
AREA = Attribute("area", ("town", "country"))
SCHEMA = Schema((AREA,), (AGE, SEX), 3)


def test_what_is_written_is_read_back():
    assert Schema.from_json(json.loads(json.dumps(SCHEMA.to_json()))) == SCHEMA
    marginal = Marginal("persons", ("area",), ("sex", "age"), size=True)
    assert Marginal.from_json(json.loads(json.dumps(marginal.to_json()))) == marginal


def test_the_shape_of_a_table_is_size_then_households_then_persons():
    marginal = Marginal("households", ("area",), ("sex", "age"), size=True)
    assert marginal.shape(SCHEMA) == (4, 2, 2, 4)
    assert marginal.cells(SCHEMA) == 64
    assert Marginal("households").shape(SCHEMA) == ()
    assert Marginal("households").cells(SCHEMA) == 1


def test_the_domain_counts_households_of_one_person_up_to_the_most():
    assert SCHEMA.domain_size == 2 * (8 + 8**2 + 8**3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Attribute("", ("a",)), "needs a name"),
        (lambda: Attribute("a", ()), "list of values"),
        (lambda: Attribute("a", (1, 2)), "each of them text"),
        (lambda: Attribute("a", ("x", "x")), "lists a value twice"),
        (lambda: Attribute("a", ("x",), missing="y"), "not among its values"),
        (lambda: Attribute("a", ("x", "y"), cuts=(2, 1)), "cuts must be finite numbers in increasing order"),
        (lambda: Attribute("a", ("x", "y"), cuts=(float("nan"),)), "cuts must be finite numbers in increasing order"),
        (lambda: Attribute("a", ("x", "y"), cuts=(1, 2)), "its cuts make 3 bins, but 2 are named"),
        (lambda: Attribute("a", ("n", "x", "y"), cuts=(1,), missing="n"), "the missing value comes last"),
        (lambda: Schema((), (), 1), "at least one attribute"),
        (lambda: Schema((SEX,), (SEX,), 1), "need different names; sex came twice"),
        (lambda: Schema((SEX,), (), 0), "integer of at least 1"),
        (lambda: Schema((SEX,), (), True), "integer of at least 1"),
        (lambda: Schema((Attribute("persons", ("1",)),), (), 1), "rename the attribute"),
        (lambda: SCHEMA.attribute("race"), "no attribute 'race'; it has area, age, sex"),
        (lambda: Marginal("streets"), "counts households or persons"),
        (lambda: Marginal("persons", ("a",), ("a",)), "names an attribute twice"),
        (lambda: check_all([Marginal("persons", ("sex",))], SCHEMA), "households have no attribute 'sex'"),
        (lambda: check_all([Marginal("persons", (), ("area",))], SCHEMA), "persons have no attribute 'area'"),
    ],
)
def test_nonsense_is_refused(make, message):
    with pytest.raises(SpecError, match=message):
        make()


def test_tables_are_described_in_words():
    assert Marginal("households", ("area",), size=True).describe() == "households by persons, area"
    assert Marginal("households", (), ("sex", "age")).describe() == "households with a person of each sex and age"
    assert Marginal("persons", ("area",), ("sex",)).describe() == "persons by area by sex"
