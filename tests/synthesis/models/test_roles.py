"""Models with roles: tables by role against all households, gradients, and draws that break no rule, whatever it is."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tallytree.core.errors import SpecError
from tallytree.domain.edit_rules import Attribute, Below, Has, Role, Structure
from tallytree.domain.feasibility import possible_sizes
from tallytree.domain.schema import Marginal, Schema
from tallytree.lab.rivals.hgem import Generator
from tallytree.lab.rivals.mwem import Histogram
from tallytree.lab.truth import SeededWords
from tallytree.synthesis.fitting import Stop, fit, loss_and_gradient, slopes_by_logits, target_of
from tallytree.synthesis.mixture import Mixture, joined, softmax
from tallytree.synthesis.model import Measured, Wanted
from tallytree.synthesis.roles import cleared, structural_tables, variants, zero_tables
from tallytree.synthesis.sampling import counted, draw
from tests.oracles.rules import AREA, keeps, schema_with, structures
from tests.oracles.synthesis import expected_table, mixture_chances
from tests.synthesis.helpers import schema_of

BY_PLACE = Structure((Role("head", position=1), Role("second", position=2, household={"h0": "1"})))
BY_VALUE = Structure(
    (
        Role("head", "exactly one", attribute="p0", values=("0",)),
        Role("second", "at most one", attribute="p0", values=("1",)),
    )
)
SCHEMAS = [replace(schema_of((2,), (3, 2), 3), structure=structure) for structure in (BY_PLACE, BY_VALUE)]
TABLES = [
    Marginal(of, home, person, size, roles)
    for roles in [(("head", "p1"),), (("second", "p1"),), (("second", "p1"), ("head", "p0"), ("head", "p1"))]
    for of, home, person, size in [
        ("households", (), (), False),
        ("households", ("h0",), (), True),
        ("households", ("h0",), ("p0",), False),
        ("households", (), ("p1",), True),
        ("persons", (), (), False),
        ("persons", ("h0",), ("p1", "p0"), False),
        ("persons", (), ("p0",), True),
    ]
]
IN_GROUPS = [
    Marginal("households", ("h0",), (), True, (("second", "p0"),), groups=((), (0, 1, 0))),
    Marginal("households", ("h0",), ("p0", "p1"), roles=(("head", "p1"),), groups=((), (), (1, 0, 0), ())),
    Marginal("households", (), ("p0",), groups=((0, 0, 1),)),
    Marginal("persons", ("h0",), ("p0", "p1"), roles=(("second", "p1"),), groups=((0, 0), (), (0, 1, 1), ())),
    Marginal("persons", (), ("p0",), True, groups=((0, 1, 1),)),
]
TABLES += IN_GROUPS


@pytest.mark.parametrize("schema", SCHEMAS, ids=["by place", "by value"])
def test_tables_by_role_are_the_sums_over_all_households(schema):
    model = Mixture.start(schema, components=5, seed_text="roles")
    chances = mixture_chances(model)
    assert sum(chances.values()) == pytest.approx(1)
    for table in TABLES:
        assert model.answers(table) == pytest.approx(expected_table(schema, table, chances), abs=1e-12), (
            table.describe()
        )


@pytest.mark.parametrize("table", TABLES, ids=Marginal.describe)
def test_the_gradient_of_tables_by_role_is_that_of_finite_differences(table):
    schema = SCHEMAS[1]
    truth, model = (Mixture.start(schema, components=3, seed_text=text) for text in ("truth", "model"))
    measured = Measured(table, 100 * truth.answers(table), np.array(100.0))
    target = target_of(schema, measured, 100)
    logits = {name: array.astype(np.float64) for name, array in model.to_arrays().items()}

    def value(logits):
        other = Mixture.from_arrays(schema, model.to_arrays())
        object.__setattr__(other, "chances", {name: softmax(array) for name, array in logits.items()})
        return 100 * ((other.answers(table) - measured.values / 100) ** 2).sum()

    chances = {name: softmax(array).astype(np.float32) for name, array in logits.items()}
    _, gradient = loss_and_gradient(schema, chances, [target])
    slopes = slopes_by_logits(chances, gradient)
    largest = max(float(np.abs(slope).max()) for slope in slopes.values())
    for name, array in logits.items():
        for place in list(np.ndindex(array.shape))[::3]:
            step = np.zeros(array.shape)
            step[place] = 1e-5
            difference = (value(logits | {name: array + step}) - value(logits | {name: array - step})) / 2e-5
            assert float(slopes[name][place]) == pytest.approx(difference, rel=1e-3, abs=1e-4 * largest)


def broken_in(chunk, schema):
    """How many drawn households break a rule, by the definition of the rules."""
    households = [
        (
            tuple(chunk.household[home].tolist()),
            tuple(tuple(row) for row in chunk.person[chunk.offsets[home] : chunk.offsets[home + 1]].tolist()),
        )
        for home in range(len(chunk.sizes))
    ]
    return sum(not keeps(schema.structure, schema, household) for household in households)


@settings(max_examples=40, deadline=None)
@given(structures(), st.integers(0, 5), st.sampled_from([0.2, 3.0, 30.0]))
def test_no_draw_breaks_a_rule_whatever_the_rules_and_the_model_are(structure, seed, spread):
    schema = schema_with(structure)
    assume(schema is not None)
    model = Mixture.start(schema, components=24, spread=spread, seed_text=str(seed))
    [chunk] = draw(model, 60, source=SeededWords("roles", seed))
    assert broken_in(chunk, schema) == 0
    assert 0 <= chunk.redrawn <= 60
    sizes = np.flatnonzero(possible_sizes(schema.search))
    codes, wanted = [], []
    for code in range(AREA.codes):
        for size in sizes.tolist():
            if schema.search.household(size, fixed={"area": code}) is not None:
                codes.append(code)
                wanted.append(size)
    asked = Wanted({"area": np.array(codes)}, np.array(wanted), schema.max_persons, np.full(len(codes), 5))
    given_chunk = model.draw_given(asked, SeededWords("given", seed))
    assert broken_in(given_chunk, schema) == 0
    found = counted(given_chunk, Marginal("households", ("area",), size=True), schema)
    assert found[np.array(wanted), np.array(codes)].tolist() == [5] * len(codes)


@settings(max_examples=10, deadline=None)
@given(structures(), st.integers(0, 5))
def test_the_network_and_the_histogram_break_no_rule_either(structure, seed):
    schema = schema_with(structure)
    assume(schema is not None)
    network = Generator.start(schema, batch=24, seed_text=str(seed))
    [chunk] = draw(network, 40, source=SeededWords("network", seed))
    assert broken_in(chunk, schema) == 0
    small = replace(schema, max_persons=2)
    [chunk] = draw(Histogram.start(small), 40, source=SeededWords("histogram", seed))
    assert broken_in(chunk, small) == 0


def test_zeros_of_rules_are_empty_in_households_that_keep_them():
    structure = Structure(
        (
            Role("head", "exactly one", attribute="relation", values=("head",), may={"age": "20 or more"}),
            Role("spouse", "at most one", attribute="relation", values=("spouse",)),
            Role("child", attribute="relation", values=("child",)),
        ),
        (Below("child", "head", "age", by=5), Below("child", "spouse", "age"), Has("spouse", {"kind": "couple"}, True)),
        empty=False,
    )
    schema = schema_with(structure)
    [chunk] = draw(Mixture.start(schema, components=20, spread=2), 500, source=SeededWords("zeros"))
    zeros = zero_tables(schema)
    assert len(zeros) == 2
    for zero in zeros:
        counts = counted(chunk, zero.marginal, schema)
        assert zero.impossible.any()
        assert counts[zero.impossible].sum() == 0
        assert counts.sum() > 0
    described = [table.describe() for table in structural_tables(schema)]
    assert "households by age of head, age of spouse" in described
    assert "persons other than head by age of head by relation and age" in described


def test_cells_of_couples_ages_that_noise_explains_are_cleared_and_no_others():
    roles = (Role("head", position=1), Role("spouse", position=2))
    ages = Attribute("age", ("0", "20", "40", "60"), cuts=(20, 40, 60))
    schema = Schema((AREA,), (ages, Attribute("sex", ("f", "m"))), 3, Structure(roles))
    pair = Marginal("households", roles=(("head", "age"), ("spouse", "age")))
    noisy = np.diag([500.0, 400, 300, 200]) + np.array([[0, 19, -30, 5], [21, 0, 0, 0], [0, 0, 0, 0], [0, 0, -9, 0]])
    table = Measured(pair, noisy, np.array(100.0))
    found = cleared(schema, table)
    assert found.values[0, 1] == found.values[0, 2] == found.values[0, 3] == found.values[3, 2] == 0
    assert found.values[1, 0] == 21
    assert np.array_equal(np.diag(found.values), np.diag(noisy))
    assert (found.variance[found.values > 0] == 100).all()
    assert (found.variance[found.values == 0] < 10).all()
    rare = cleared(schema, Measured(pair, np.full((4, 4), 15.0), np.array(100.0)))
    assert not rare.values.any()  # always, however little the other cells hold
    for other in [
        Marginal("households", roles=(("head", "sex"), ("spouse", "sex"))),
        Marginal("households", roles=(("head", "age"), ("spouse", "sex"))),
        Marginal("households", roles=(("head", "age"),)),
        Marginal("persons", (), ("age",), roles=(("head", "age"),)),
        Marginal("persons", (), ("age",)),
    ]:
        small = Measured(other, np.zeros(other.shape(schema)) - 1, np.array(100.0))
        assert cleared(schema, small) is small


def test_a_fit_with_zeros_leaves_them_nearly_no_chance():
    structure = Structure(
        (
            Role("head", "exactly one", attribute="relation", values=("head",)),
            Role("child", attribute="relation", values=("child",)),
        ),
        (Below("child", "head", "age"),),
    )
    schema = schema_with(structure)
    model = Mixture.start(schema, components=20)
    [zero] = zero_tables(schema)
    before = model.answers(zero.marginal)[zero.impossible].sum()
    sizes = Measured(Marginal("households", size=True), np.array([0.0, 100, 300, 600]), np.array(10.0))
    zeros = Measured(zero.marginal, np.zeros(zero.impossible.shape), np.where(zero.impossible, 10.0, np.inf))
    after = fit(model, [sizes], 1000, zeros=[zeros], rate=0.05, stop=Stop(noise_explains=0)).model
    assert after.answers(zero.marginal)[zero.impossible].sum() < before / 10


def test_at_the_start_head_and_spouse_are_alike_in_age_and_nothing_else_is():
    ages = Attribute("age", ("0", "20", "40", "60", "80"), cuts=(20, 40, 60, 80))
    for roles, together in [
        ((Role("head", position=1), Role("spouse", position=2, household={"kind": "pair"})), True),
        ((Role("head", position=1),), False),
    ]:
        schema = Schema(
            (Attribute("kind", ("pair", "other")),), (ages, Attribute("work", ("no", "yes"))), 3, Structure(roles)
        )
        model = Mixture.start(schema, components=200, spread=0.2)
        age, work = (model.chances[f"person {name}"] for name in ("age", "work"))
        pairs = np.arange(200) % len(variants(schema)) == 0
        alike = np.corrcoef(age[pairs, 0].ravel(), age[pairs, 1].ravel())[0, 1]
        assert (alike > 0.9) if together else (abs(alike) < 0.2)
        assert np.abs(age[:, 2] - 1 / 5).max() < 0.2
        assert np.abs(work - 1 / 2).max() < 0.3
        if together:
            assert np.abs(age[~pairs] - 1 / 5).max() < 0.2


@pytest.mark.parametrize("schema", [*SCHEMAS, replace(SCHEMAS[0], structure=None)], ids=["place", "value", "none"])
@pytest.mark.parametrize("part", [0.5, 2 / 3])
def test_joined_mixtures_answer_with_their_mean(schema, part):
    one, other = (Mixture.start(schema, components=6, seed_text=text) for text in ("one", "other"))
    both = joined(one, other, part)
    assert both.components == 12
    for table in TABLES if schema.structure is not None else [Marginal("persons", ("h0",), ("p0", "p1"))]:
        mean = part * one.answers(table) + (1 - part) * other.answers(table)
        assert both.answers(table) == pytest.approx(mean, abs=1e-6)


def test_mixtures_whose_kinds_of_household_do_not_come_in_whole_turns_are_not_joined():
    one = Mixture.start(SCHEMAS[0], components=5)
    with pytest.raises(SpecError, match="as many components of each kind"):
        joined(one, one, 0.5)


def test_fewer_components_than_kinds_of_household_are_refused():
    with pytest.raises(SpecError, match="needs at least as many components"):
        Mixture.start(SCHEMAS[1], components=1)
