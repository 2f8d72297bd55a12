"""From private households to a model and back: what is refused before anything is spent, and what is spent once."""

from fractions import Fraction

import numpy as np
import pytest

from tallytree import (
    Attribute,
    Budget,
    BudgetError,
    HouseholdNeighbours,
    Ledger,
    Marginal,
    PrivacyUnit,
    ReleaseError,
    Schema,
    SpecError,
    Workload,
    one_entity,
    synthesize,
)
from tallytree.privacy.journal import Journal
from tallytree.synthesis.sampling import counted
from tallytree.synthesis.workload import named
from tallytree.tables.households import households_from_codes
from tests.synthesis.helpers import schema_of
from tests.synthesis.made_up import made_up, released_sizes

RHO = Budget(rho="0.5", delta="1e-6")
QUICK = {"budget": RHO, "method": "mwem", "options": {"rounds": 3, "empty": True}}
UNITS = ["one_group", "one_group_added_or_removed", "one_person_attributes"]


@pytest.fixture
def book(tmp_path):
    """A ledger with an account for the made-up households."""
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("homes", Budget(rho=1), HouseholdNeighbours(PrivacyUnit("one_group"), 3))
    return ledger


def every_count(synthesis, marginal, number=None):
    return sum(counted(chunk, marginal, synthesis.schema) for chunk in synthesis.draw(number, chunk=17))


@pytest.mark.parametrize("unit", UNITS)
def test_the_budget_is_spent_to_the_last_digit_and_households_are_drawn(unit):
    made = synthesize(made_up(), unit=unit, **QUICK)
    assert sum(past.cost for past in made.rounds) == Fraction(1, 2)
    assert made.neighbours == HouseholdNeighbours(PrivacyUnit(unit), 3)
    if unit != "one_group_added_or_removed":
        assert made.number == 60
    assert every_count(made, Marginal("households"), 45) == 45
    sizes = every_count(made, Marginal("households", size=True), 45)
    assert len(sizes) == 4
    asked = made.questions()
    assert [question.table for question in asked] == list(made.workload)
    assert list(made.exact) == ([Marginal("persons")] if unit == "one_person_attributes" else [])


def test_the_default_method_makes_households_too():
    options = {"rounds": 2, "components": 5, "steps": 5}
    few = named(made_up().schema, [["tenure", "age"]])
    made = synthesize(made_up(), budget=RHO, workload=few, options=options)
    assert made.method == "tallytree-marginals"
    assert every_count(made, Marginal("households")) == 60
    assert "measured" in {question.how for question in made.questions()}


# -------------------------------------------------------------------- refused before anything is spent

CASES = {
    "delta is missing": ({"budget": Budget(epsilon=1)}, BudgetError, "delta is missing"),
    "no such method": ({"method": "magic"}, SpecError, "no synthesis method 'magic'"),
    "an unknown option": ({"options": {"round": 3}}, SpecError, "did you mean 'rounds'"),
    "an unknown unit": ({"unit": "one_house"}, SpecError, "unknown privacy unit"),
    "the unit of a release": ({"unit": one_entity()}, SpecError, "unknown privacy unit 'one_entity'"),
    "another schema's workload": (
        {"workload": Workload(schema_of([2], [2], 1), (Marginal("persons"),))},
        SpecError,
        "another schema",
    ),
    "a negative number": ({"number": -1}, SpecError, "number must be a non-negative integer"),
    "a region without release": ({"region": "county"}, SpecError, "give both release and region"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_done_is_refused_before_anything_is_spent(case, book, tmp_path):
    changes, kind, message = CASES[case]
    with pytest.raises(kind, match=message):
        synthesize(made_up(), **{**QUICK, **changes}, ledger=book, folder=tmp_path / "kept")
    assert not book.account("homes").spendings
    assert not (tmp_path / "kept").exists()


def test_a_domain_too_large_for_mwem_says_what_to_use(book):
    schema = schema_of([50, 50], [20], 3)
    with pytest.raises(SpecError, match=r"possible households.*tallytree-marginals or h-gem"):
        synthesize(_empty(schema), budget=RHO, method="mwem", ledger=book)
    assert not book.account("homes").spendings


def test_tables_that_do_not_fit_into_memory_are_refused_before_anything_is_spent(book, monkeypatch):
    monkeypatch.setattr("tallytree.publish.memory.available", lambda: 1000)
    with pytest.raises(SpecError, match=r"[0-9,]+ cells together, which take at least .* GB .* Nothing was spent"):
        synthesize(made_up(), **QUICK, ledger=book)
    assert not book.account("homes").spendings
    monkeypatch.setattr("tallytree.publish.memory.available", lambda: None)
    synthesize(made_up(), **QUICK, ledger=book)


def test_a_run_that_is_to_be_resumed_is_never_begun_anew(book, tmp_path):
    with pytest.raises(ReleaseError, match="nothing is begun anew"):
        synthesize(made_up(), **QUICK, ledger=book, folder=tmp_path / "kept", resume=True)
    assert not book.account("homes").spendings
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("kept", [True, False])
def test_an_error_after_the_budget_was_reserved_says_what_was_spent(book, tmp_path, monkeypatch, kept):
    def fails(*_, **__):
        raise ReleaseError("something went wrong")

    monkeypatch.setattr("tallytree.lab.rivals.synthesizers.MwemOptions.run", fails)
    with pytest.raises(ReleaseError) as stop:
        synthesize(made_up(), **QUICK, ledger=book, folder=tmp_path / "kept" if kept else None)
    (note,) = stop.value.__notes__
    assert f"ρ = 0.5 of 'homes' in {book.path} is spent" in note
    assert f"call synthesize again with the same arguments and folder='{tmp_path}/" in note
    assert ("ledger.db.runs" in note) != kept


def test_a_missing_extra_is_told_before_anything_is_spent(book, monkeypatch):
    monkeypatch.setattr("tallytree.synthesis.methods.find_spec", lambda module: None)
    with pytest.raises(SpecError, match=r"needs jax and optax.*tallytree\[h-gem\]"):
        synthesize(made_up(), budget=RHO, ledger=book, method="h-gem")
    assert not book.account("homes").spendings
    synthesize(made_up(), **QUICK)


def test_a_workload_with_an_unknown_attribute_is_refused():
    with pytest.raises(SpecError, match="no attribute 'colour'"):
        named(made_up().schema, [["colour"]])


@pytest.mark.parametrize("name", ["household_id", "person"])
def test_attributes_cannot_take_the_names_of_columns(name):
    schema = Schema((Attribute(name, ("a", "b")),), (Attribute("age", ("x", "y")),), 2)
    with pytest.raises(SpecError, match="rename the attribute"):
        synthesize(_empty(schema), **QUICK)


def _empty(schema):
    from tallytree.tables.households import households_from_codes

    homes = {attribute.name: np.zeros(0, np.int64) for attribute in schema.household}
    people = {attribute.name: np.zeros(0, np.int64) for attribute in schema.person}
    return households_from_codes(schema, homes, people, np.zeros(0, np.int64), 0, name="homes")


# -------------------------------------------------------------------- ledger and resuming


def test_a_run_is_charged_once_and_its_id_is_recorded(book, tmp_path):
    made = synthesize(made_up(), **QUICK, ledger=book.path)
    saved = made.save(tmp_path / "out")
    (spending,) = book.account("homes").spendings
    assert (spending.cost, spending.release_id) == (Fraction(1, 2), saved)
    with pytest.raises(BudgetError, match="Nothing was changed"):
        synthesize(made_up(), **{**QUICK, "budget": Budget(rho="0.6")}, ledger=book)


def test_a_cut_off_run_goes_on_without_spending_twice(book, tmp_path, monkeypatch):
    real, recorded = Journal.record, []

    class Cut(BaseException):
        pass

    def cut_at_the_fourth(self, result):
        recorded.append(result)
        if len(recorded) == 4:
            raise Cut
        real(self, result)

    monkeypatch.setattr(Journal, "record", cut_at_the_fourth)
    with pytest.raises(Cut):
        synthesize(made_up(), **QUICK, ledger=book, folder=tmp_path / "kept")
    made = synthesize(made_up(), **QUICK, ledger=book, folder=tmp_path / "kept")
    assert [past.result for past in made.rounds[:4]] == [*recorded[:3], None]
    assert sum(past.cost for past in made.rounds) == RHO.rho
    assert len(book.account("homes").spendings) == 1
    with pytest.raises(ReleaseError, match="another"):
        synthesize(made_up(), **{**QUICK, "budget": Budget(rho="0.4")}, ledger=book, folder=tmp_path / "kept")


# -------------------------------------------------------------------- agreement

BY_COUNTY = Marginal("households", ("county",), (), True)


@pytest.mark.parametrize("public", [True, False])
def test_sizes_by_region_are_the_released_ones(public):
    households = made_up()
    released = released_sizes(households, public=public)
    made = synthesize(households, **QUICK, release=released, region="county")
    found = every_count(made, BY_COUNTY)
    leaves = released.counts[released.hierarchy.level_slice(2)]
    assert np.array_equal(found.T[:, 0 if public else 1 :], leaves)
    assert made.number == leaves.sum()
    assert made.together.rho == Fraction(1, 2) + Fraction(1, 20) * (1 if public else 4)
    with pytest.raises(SpecError, match="cannot be drawn"):
        made.draw(made.number + 1)


def test_a_release_of_other_households_is_refused():
    released = released_sizes(made_up(50), public=True)
    with pytest.raises(SpecError, match="50 households and the data 60"):
        synthesize(made_up(), **QUICK, release=released, region="county")


def test_a_release_with_another_unit_or_number_is_refused():
    households = made_up()
    with pytest.raises(SpecError, match="protects one_entity"):
        synthesize(
            households, **QUICK, release=released_sizes(households, public=True, unit=one_entity()), region="county"
        )
    with pytest.raises(SpecError, match="leave it out"):
        synthesize(households, **QUICK, release=released_sizes(households, public=True), region="county", number=7)


def test_the_release_is_charged_to_the_households_account_once(book, tmp_path):
    households = made_up()
    released = released_sizes(households, public=False)
    release_id = released.save(tmp_path / "release")
    asked = {**QUICK, "budget": Budget(rho="0.3"), "region": "county", "ledger": book}
    with pytest.raises(SpecError, match="as its directory"):
        synthesize(households, **asked, release=released)
    for _ in range(2):
        synthesize(households, **asked, release=tmp_path / "release")
    spendings = book.account("homes").spendings
    charged = [spending.cost for spending in spendings if spending.release_id == release_id]
    assert charged == [Fraction(4, 20)]
    assert book.account("homes").spent == Fraction(3, 10) * 2 + Fraction(4, 20)
    with pytest.raises(BudgetError, match="Nothing was changed"):
        synthesize(households, **asked, release=tmp_path / "release")
    assert len(book.account("homes").spendings) == 3


@pytest.mark.parametrize("unit", ["one_group", "one_person_attributes", "one_group_added_or_removed"])
def test_no_households_are_refused_where_their_number_is_public_and_synthesized_where_it_is_not(unit):
    schema, none = schema_of([2], [2], 2), np.zeros(0, np.int64)
    nobody = households_from_codes(schema, {"h0": none}, {"p0": none}, none, 0)
    how = {"budget": Budget(rho=1), "unit": unit, "method": "mwem", "options": {"rounds": 2}}
    if unit == "one_group_added_or_removed":
        assert synthesize(nobody, **how).number >= 1
    else:
        with pytest.raises(SpecError, match="nothing can be synthesized"):
            synthesize(nobody, **how)
