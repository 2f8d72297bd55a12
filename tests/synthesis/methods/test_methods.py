"""Methods of synthesis: they spend their budget exactly, are functions of the recorded rounds, and survive kills."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from tallytree import Budget, synthesize
from tallytree.core.errors import BudgetError, SpecError
from tallytree.domain.schema import Marginal
from tallytree.lab.microdata import made_up
from tallytree.lab.truth import SeededWords
from tallytree.lab.truth import seeded as chance
from tallytree.privacy.journal import FILE, Journal
from tallytree.privacy.neighbours import HouseholdNeighbours, PrivacyUnit
from tallytree.privacy.private_tables import PrivateTables
from tallytree.synthesis.marginals import DEFAULT, METHODS, method
from tallytree.synthesis.mixture import softmax
from tallytree.synthesis.model import Measured
from tallytree.synthesis.sampling import draw
from tallytree.synthesis.workload import all_sets, named
from tallytree.tables.contingency import marginal_counts
from tallytree.tables.households import households_from_codes
from tests.oracles.households import schema_of

SCHEMA = schema_of({"area": 3}, {"age": 3, "sex": 2}, 3)
WORKLOAD = all_sets(SCHEMA, 2)
NUMBER = 400
QUICK = {
    "tallytree-marginals": {"components": 12, "steps": 8, "last_steps": 12, "rounds": 3},
    "mwem": {"rounds": 4},
    "h-gem": {"rounds": 4, "steps": 3, "batch": 20},
}
UNITS = ["one_group", "one_group_added_or_removed", "one_person_attributes"]


def homes():
    """Households whose persons' ages follow their area."""
    rng = np.random.default_rng(5)
    area = rng.integers(0, 3, NUMBER)
    home = np.repeat(np.arange(NUMBER), rng.integers(1, 4, NUMBER))
    age = np.where(rng.random(len(home)) < 0.8, area[home], rng.integers(0, 3, len(home)))
    return households_from_codes(
        SCHEMA, {"area": area}, {"age": age, "sex": rng.integers(0, 2, len(home))}, home, NUMBER, name="homes"
    )


def seeded(kind="one_group", rho="1/2", seed=1, data=None, **options):
    neighbours = HouseholdNeighbours(PrivacyUnit(kind), SCHEMA.max_persons)
    return PrivateTables(data or homes(), neighbours, Budget(rho=rho), randomness=chance(seed), **options)


def same(one, other):
    """Are two models the same, number by number?"""
    tables = zip(one.answers_all(WORKLOAD), other.answers_all(WORKLOAD), strict=True)
    return type(one) is type(other) and all(np.array_equal(first, second) for first, second in tables)


# -------------------------------------------------------------------- what every method promises


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", UNITS)
def test_every_method_spends_its_budget_to_the_last_digit_under_every_unit(name, kind):
    tables, told = seeded(kind), []
    fitted = method(name).run(tables, WORKLOAD, options=QUICK[name], progress=told.append)
    assert tables.spent == tables.budget.rho
    assert tables.left == 0
    assert sum(step.rho for step in fitted.rounds) == tables.budget.rho
    assert told[-1].done <= told[-1].of
    assert told[-1].spent == told[-1].budget == tables.budget.rho
    assert [step.kind for step in fitted.rounds].count("select") >= 1
    assert all((step.rho == 0) == (step.kind == "public") for step in fitted.rounds)
    if kind == "one_group_added_or_removed":
        assert fitted.number != NUMBER
        assert 0 < fitted.number < 2 * NUMBER
    else:
        assert fitted.number == NUMBER
    public = {step.words for step in fitted.rounds if step.kind == "public"}
    assert public == {table.describe() for table in tables.published_exactly}
    assert bool(public) == (kind == "one_person_attributes")
    for marginal, table in zip(WORKLOAD, fitted.model.answers_all(WORKLOAD), strict=True):
        assert table.shape == marginal.shape(SCHEMA)
        assert np.isfinite(table).all()
        assert (table >= 0).all()
    assert sum(len(chunk.sizes) for chunk in draw(fitted.model, 50, source=SeededWords(2))) == 50


@pytest.mark.parametrize("name", METHODS)
def test_the_model_is_a_function_of_the_recorded_rounds(name, tmp_path):
    def run():
        tables = seeded(journal=Journal(tmp_path / "journal"), seed=object())  # nothing is drawn but in the first run
        fitted = method(name).run(tables, WORKLOAD, options=QUICK[name])
        assert tables.left == 0
        assert not tables.resuming
        tables.close()
        return fitted

    first = run()
    rounds = (tmp_path / "journal" / FILE).read_bytes()
    again = run()
    assert same(first.model, again.model)
    assert first.rounds == again.rounds
    assert first.number == again.number
    assert (tmp_path / "journal" / FILE).read_bytes() == rounds


def test_the_default_can_be_the_mean_of_mixtures_that_are_fitted_to_the_same_tables(tmp_path):
    options = QUICK[DEFAULT] | {"last_steps": 300}

    def run(mixtures, told):
        tables = seeded(journal=Journal(tmp_path / str(mixtures)), seed=3)
        return method().run(tables, WORKLOAD, options=options | {"mixtures": mixtures}, progress=told.append)

    told = []
    one, three = run(1, []), run(3, told)
    assert one.rounds == three.rounds
    assert three.model.components == 3 * one.model.components
    assert list(dict.fromkeys(stage.about for stage in told))[-1] == "another mixture"
    assert told[-1].done == told[-1].of
    first = three.model.weights[: one.model.components]
    assert softmax(three.model.weights)[: len(first)].sum() == pytest.approx(1 / 3)
    assert np.array_equal(three.model.sizes[: len(first)], one.model.sizes)
    assert not np.array_equal(three.model.sizes[len(first) : 2 * len(first)], one.model.sizes)


def foreseen_part(told):
    """The work of all fits that was foreseen first, in steps times tables, as a part of what it was."""
    foreseen = [stage for stage in told if stage.of]  # nothing is said during the first, short fit
    assert told[0].of == 0
    assert [stage.done for stage in foreseen] == sorted(stage.done for stage in foreseen)
    return foreseen[0].of / told[-1].done


@pytest.mark.parametrize("mixtures", [1, 2])
@pytest.mark.parametrize("options", [{}, {"sweep_share": 0.5, "rounds": 6}])
def test_the_work_of_all_fits_is_foreseen(mixtures, options):
    told = []
    given = {"mixtures": mixtures, "components": 10, **options}
    method().run(seeded(rho="20"), WORKLOAD, options=given, progress=told.append)
    assert 0.5 <= foreseen_part(told) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("rho", ["0.1", "0.5"])
def test_the_work_of_all_fits_of_many_tables_is_foreseen(rho):
    """Within a factor of 2 on average; noise decides when a fit stops, and single runs differ by a fifth."""
    parts = []
    for _ in range(8):
        told = []
        synthesize(made_up("acs-small", scale=0.3).households(), budget=Budget(rho=rho), progress=told.append)
        parts.append(foreseen_part([stage for stage in told if stage.doing.startswith("fitting")]))
    assert 0.5 <= np.exp(np.log(parts).mean()) <= 2
    assert 0.25 <= min(parts) <= max(parts) <= 4


def test_a_mixture_that_does_not_come_close_to_the_tables_is_not_taken():
    options = QUICK[DEFAULT] | {"last_steps": 1}
    one, two = (method().run(seeded(), WORKLOAD, options=options | {"mixtures": number}) for number in (1, 2))
    assert same(one.model, two.model)


class _Killed(Exception):
    pass


def killed_at(tables, round_to_die_in):
    """Tables whose program dies in a round, after it was paid for and before its result is on disk."""
    journal, reserve = tables._reservation.journal, tables._reservation.journal.reserve

    def dying(request, cost, *room):
        reserve(request, cost, *room)
        if len(journal.rounds) == round_to_die_in:
            raise _Killed

    journal.reserve = dying
    return tables


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("last_words", [1, 5, 8])
def test_a_kill_in_a_round_loses_that_round_and_nothing_is_drawn_twice(name, last_words, tmp_path):
    options = QUICK[name]
    kind = "one_group_added_or_removed"
    tables = killed_at(seeded(kind, journal=Journal(tmp_path)), last_words)
    with pytest.raises(_Killed):
        method(name).run(tables, WORKLOAD, options=options)
    tables.close()
    before = (tmp_path / FILE).read_bytes()

    tables = seeded(kind, journal=Journal(tmp_path), seed=2)
    fitted = method(name).run(tables, WORKLOAD, options=options)
    tables.close()
    assert tables.spent == tables.budget.rho
    assert [step.lost for step in fitted.rounds].count(True) == 1
    priced = [step for step in fitted.rounds if step.kind != "public"]
    assert priced[last_words - 1].lost
    lines = (tmp_path / FILE).read_bytes()
    assert lines.startswith(before)
    reserved = [json.loads(line) for line in lines.splitlines() if b'"reserved"' in line]
    assert len(reserved) == len(priced)
    assert sum(Fraction(line["cost"]) for line in reserved) == tables.budget.rho

    tables = seeded(kind, journal=Journal(tmp_path), seed=object())
    assert same(fitted.model, method(name).run(tables, WORKLOAD, options=options).model)


@pytest.mark.parametrize(
    ("name", "options", "most"),
    [
        ("tallytree-marginals", {"components": 40}, 0.15),
        ("mwem", {"rounds": 80}, 0.15),
        pytest.param("h-gem", {"rounds": 25, "rate": 2e-3, "batch": 50, "steps": 40}, 0.6, marks=pytest.mark.slow),
    ],
)
def test_with_a_large_budget_the_model_agrees_with_the_tables_and_with_next_to_none_it_does_not(name, options, most):
    table = Marginal("persons", ("area",), ("age",))
    codes = homes().codes.open_at_the_privacy_border()
    truth = marginal_counts(codes, table) / codes.starts[-1]
    errors = {}
    for rho in ("1e-7", "1e4"):
        answers = method(name).run(seeded(rho=rho), WORKLOAD, options=options).model.answers(table)
        errors[rho] = float(np.abs(answers / answers.sum() - truth).sum())
    assert errors["1e4"] < most
    assert errors["1e-7"] > 2 * errors["1e4"]


# -------------------------------------------------------------------- the default method


def test_the_default_measures_sizes_and_every_attribute_first_then_whole_tables():
    fitted = method().run(seeded(), WORKLOAD, options=QUICK[DEFAULT])
    assert all(isinstance(table, Measured) for table in fitted.measured)
    firsts = [table.marginal for table in fitted.measured[:4]]
    assert firsts == [
        Marginal("households", size=True),
        Marginal("households", ("area",)),
        Marginal("persons", (), ("age",)),
        Marginal("persons", (), ("sex",)),
    ]
    for table in fitted.measured[4:]:
        assert table.marginal in WORKLOAD.marginals


def swept(fitted):
    """The tables after the first ones and before the first selection."""
    before = [step.kind for step in fitted.rounds].index("select")
    measures = [step for step in fitted.rounds[:before] if step.kind == "measure"]
    return [table.marginal for table in fitted.measured[: len(measures)]][4:]


def test_the_default_sweeps_everything_if_it_can_and_else_no_persons_table_that_costs_more_than_one_of_households():
    rich = swept(method().run(seeded(rho="1/2"), WORKLOAD, options=QUICK[DEFAULT]))
    assert set(rich) == set(WORKLOAD.marginals)
    poor = swept(method().run(seeded(rho="1/10"), WORKLOAD, options=QUICK[DEFAULT]))
    assert set(poor) == {
        Marginal("households", ("area",), size=True),
        *(marginal for marginal in WORKLOAD if marginal.of == "households"),
    }


def test_household_tables_are_taken_exactly_where_households_are_public():
    tables = seeded("one_person_attributes")
    fitted = method().run(tables, WORKLOAD, options=QUICK[DEFAULT])
    assert Marginal("households", ("area",)) in tables.published_exactly
    assert all(table.marginal.person for table in fitted.measured)


# -------------------------------------------------------------------- misuse


def test_an_unknown_option_is_refused_with_the_nearest_known_one():
    with pytest.raises(SpecError, match="no option 'round'; did you mean 'rounds'"):
        method("mwem").options({"round": 3})


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("tallytree-marginals", {"components": 0}),
        ("tallytree-marginals", {"first_share": 1.0}),
        ("tallytree-marginals", {"rounds": 0}),
        ("tallytree-marginals", {"mixtures": -1}),
        ("mwem", {"rounds": 0}),
        ("mwem", {"iterate": "best"}),
        ("mwem", {"selecting": 1.0}),
        ("h-gem", {"rate": 0.0}),
        ("h-gem", {"totals_share": 0.0}),
    ],
)
def test_options_that_no_run_can_have_are_refused(name, option):
    with pytest.raises(SpecError):
        method(name).options(option)


def test_an_unknown_method_is_refused():
    with pytest.raises(SpecError, match="did you mean 'h-gem'"):
        method("gem")


def test_a_workload_of_another_schema_is_refused_before_anything_is_spent():
    tables = seeded()
    with pytest.raises(SpecError, match="another schema"):
        method().run(tables, all_sets(schema_of({"area": 2}, {"age": 3}, 3), 2))
    assert tables.spent == 0


def test_tables_that_were_asked_before_are_refused():
    tables = seeded()
    tables.measure(Marginal("households", ("area",)), "1/10")
    with pytest.raises(SpecError, match="asked before"):
        method().run(tables, WORKLOAD)


def test_a_workload_of_public_tables_only_is_refused():
    with pytest.raises(SpecError, match="public under this unit"):
        method().run(seeded("one_person_attributes"), named(SCHEMA, [["area"], ["persons", "area"]]))


def test_a_domain_too_large_for_mwem_is_refused_before_anything_is_spent():
    schema = schema_of({"area": 100}, {"age": 100}, 3)
    data = households_from_codes(schema, {"area": np.array([0])}, {"age": np.array([0])}, np.array([0]), 1)
    tables = PrivateTables(data, HouseholdNeighbours(PrivacyUnit("one_group"), 3), Budget(rho=1))
    with pytest.raises(SpecError, match="mixture"):
        method("mwem").run(tables, all_sets(schema, 1))
    assert tables.spent == 0


def test_a_budget_without_delta_is_refused():
    with pytest.raises(BudgetError, match="delta is missing"):
        PrivateTables(homes(), HouseholdNeighbours(PrivacyUnit("one_group"), 3), Budget(epsilon=1))
