"""The audit from outputs: claims hold on all that is published, planted defects are caught, and the command says which.

Bounds on what is not seeded have a confidence of 1 − 10^−8 for each row, so all tests here together fail by chance
less than once in a million runs.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

from tallytree import Budget, SpecError
from tallytree.command.main import app
from tallytree.lab.audit import household_rounds as rounds
from tallytree.lab.audit import planted, releases
from tallytree.lab.audit.planted import Altered, defects
from tallytree.lab.audit.releases import BUDGETS, UNITS, Setting, audited, settings, worst_pairs
from tallytree.lab.audit.schedule import audit
from tallytree.lab.audit.verdicts import Audit, BorderRow, Row, lower_bound
from tallytree.lab.audit.worlds import (
    BY_GROUP,
    BY_MEMBERS,
    KINDS,
    PEOPLE,
    group_sizes,
    leaf_counts,
    pairs,
    random_pair,
    read_files,
    write_files,
)
from tallytree.lab.truth import measured_without_noise
from tallytree.mechanisms import MECHANISMS
from tallytree.privacy.selection import cost_of_selection

SURELY = 1 - 1e-8
RELEASABLE = [name for name, row in MECHANISMS.items() if not row.refused]
SETTINGS = list(settings())
# All of the default in ε, and of each mechanism what differs by unit and budget; `make audit` goes through all of them.
EXACTLY = [
    one
    for one in SETTINGS
    if (one.mechanism == "tallytree" and one.budget == BUDGETS[0])
    or (one.kind == PEOPLE and one.totals == "private" and set(one.options) <= {"totals_share"})
]


def about(setting):
    return f"{setting.mechanism} {setting.unit} {setting.budget} {setting.words()}"


# -------------------------------------------------------------------- what is audited


def test_every_mechanism_that_can_be_released_is_audited_with_each_unit_and_budget():
    for quick in (False, True):
        found = {(one.mechanism, one.unit, str(one.budget)) for one in settings(quick=quick)}
        assert found == {(name, unit, str(budget)) for name in RELEASABLE for unit in UNITS for budget in BUDGETS}
    by_group = {(one.mechanism, one.unit) for one in SETTINGS if one.kind == BY_GROUP}
    # `naive` takes a single region, and cost tables take too few regions for a tree by category.
    others = [name for name in RELEASABLE if name not in ("naive", "pgsr-hierarchical-tables")]
    assert by_group >= {(name, unit) for name in others for unit in UNITS}
    assert {one.totals for one in SETTINGS} == {"private", "public"}


@pytest.mark.parametrize("unit", UNITS)
def test_the_default_is_audited_with_all_that_it_can_measure(unit):
    own = [one for one in SETTINGS if one.mechanism == "tallytree" and one.unit == unit]
    kinds = set(KINDS) if unit == "one_entity" else {"people", BY_GROUP.name, BY_MEMBERS.name}
    assert {one.kind.name for one in own} == kinds
    plans = [(one, one.decide(one.count(next(pairs(one.kind, unit)).here))[1]) for one in own]
    views = {query.view for _, plan in plans for branch in plan.branches for query in branch.queries}
    assert views == {"at_least", "counts", "counts_total", "sorted_sizes", "entities", "totals"}
    assert any(plan.branch_rule is not None for _, plan in plans)
    assert any(query.summed for _, plan in plans for query in plan.queries)
    assert any(query.sizes for _, plan in plans for query in plan.queries)


@pytest.mark.parametrize("setting", EXACTLY, ids=about)
def test_the_exact_loss_of_the_worst_neighbours_is_within_the_claim_and_near_it(setting):
    claim, _ = releases.stated(setting.budget)
    for _, exact in worst_pairs(setting):
        assert exact <= claim * (1 + 1e-9)
        assert exact >= 0.6 * claim  # the neighbours are nearly the worst that the budget pays for


@pytest.mark.parametrize("totals", ["private", "public"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_files_are_read_as_the_tables_are_counted(kind, totals, tmp_path):
    if kind == BY_MEMBERS and totals == "public":
        return  # refused: a public list cannot have a category that members decide
    gadgets = [states[0] for unit in UNITS for pair in pairs(kind, unit) for states in (pair.here, pair.there)]
    if kind.rows_per_entity == 1:  # otherwise reading drops rows beyond the bound
        gadgets += [state for number in range(20) for state in random_pair(kind, "one_entity", totals, number).there]
    write_files(tmp_path, gadgets, kind, totals=totals)
    read = read_files(tmp_path, kind, totals=totals)
    made = group_sizes(gadgets, kind, public_totals=totals == "public")
    one, other = (some.counts.open_at_the_privacy_border() for some in (read, made))
    assert (one == other).all()
    for fact in ("quantity_bound", "rows_per_entity", "entity_column", "rows_were_bounded", "max_size"):
        assert getattr(read, fact) == getattr(made, fact), fact


def test_a_pair_differs_in_one_person_or_one_group():
    for kind, unit in [(kind, unit) for kind in KINDS.values() for unit in UNITS]:
        for pair in pairs(kind, unit):
            changed = [(one, two) for one, two in zip(pair.here[0], pair.there[0], strict=True) if one != two]
            if unit == "one_group":
                assert len(changed) == 1
            added = [row for one, two in changed for row in two.rows[len(one.rows) :]]
            if unit == "one_entity":
                assert all(two.rows[: len(one.rows)] == one.rows for one, two in changed)
                assert {person for person, _ in added} == {"somebody"}
                assert len(added) <= kind.rows_per_entity
                assert all(1 <= quantity <= kind.quantity_bound for _, quantity in added)
            moved = any(one.category != two.category for one, two in changed)
            assert not moved or kind.decided_by == "members"
    assert leaf_counts(next(pairs(PEOPLE, "one_entity")).here[0], PEOPLE, public_totals=False).tolist() == [
        [[1, 0, 0, 0]] * 2
    ]


# -------------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    "setting",
    [
        Setting("tallytree", "one_entity"),
        Setting("tallytree", "one_group"),
        Setting("tallytree", "one_group", budget=BUDGETS[1]),
        Setting("tallytree", "one_entity", kind=BY_GROUP),
        Setting("tallytree", "one_entity", kind=BY_MEMBERS),
        Setting("tallytree", "one_entity", options={"entities_share": "0.3"}),
        Setting("tallytree", "one_entity", "public", options={"bands": releases.BANDS, "leaves": "lists"}),
        Setting("pgsr-hierarchical-dp", "one_group"),
    ],
    ids=about,
)
def test_bounds_from_outputs_stay_below_the_claim(setting):
    row = audited(setting, runs=10_000, count_runs=0, command=False, confidence=SURELY)
    assert row.verdict == "consistent"  # that a bound can be above a claim is shown by the planted defects


@pytest.mark.slow
def test_bounds_of_an_adaptive_plan_stay_below_the_claim():
    row = audited(
        Setting("tallytree", "one_entity", options={"lists_below": "2"}),
        runs=600,
        count_runs=100,
        command=False,
        confidence=SURELY,
    )
    assert row.verdict == "consistent"
    assert row.counts is not None


def test_the_command_itself_is_audited():
    row = audited(Setting("tallytree", "one_entity"), runs=200, count_runs=0, command=True, confidence=SURELY)
    assert row.verdict == "consistent"
    assert row.command is not None


@pytest.mark.parametrize("case", rounds.CASES, ids=lambda case: case.unit)
@pytest.mark.parametrize("kind", rounds.ROUNDS)
def test_rounds_of_synthesis_stay_within_their_price(kind, case):
    row = rounds.audited_round(kind, case, 200, confidence=SURELY)
    assert row.verdict == "consistent"
    if row.exact is not None:
        assert row.exact > 0.8 * row.claimed


@pytest.mark.parametrize("case", rounds.CASES, ids=lambda case: case.unit)
def test_a_selection_diverges_by_no_more_than_it_costs_in_rho(case):
    cost = float(cost_of_selection(rounds.EPSILON))
    for falling in (1, 2, rounds.FALLING):
        assert rounds.choice_rho(case, falling) <= cost
    assert rounds.choice_rho(case, 1) > 0.9 * cost
    halved = [np.array(chances) for chances in rounds.choice_chances(case, Fraction(1, 2))]
    assert max(np.abs(np.log(halved[0] / halved[1]))) > float(rounds.EPSILON)


# -------------------------------------------------------------------- planted defects


@pytest.mark.parametrize("defect", defects(), ids=lambda one: f"{one.name}, {one.budget}")
def test_a_planted_defect_is_caught_from_outputs(defect):
    row = defect.audited()
    assert row.power == 1
    assert row.verdict == "VIOLATION"


def test_the_noise_and_the_levels_are_among_the_planted_defects():
    assert {
        "no noise on zero cells of at_least",
        "the same noise on two levels",
        "the noise of a count again on the total",
        "a total not charged where members move groups",
    } <= {one.name for one in defects()}


def test_a_score_for_the_right_noise_does_not_see_what_events_show(monkeypatch):
    """Without events the audit of 0.3.0 missed noise that two levels share: that is what events are for."""
    monkeypatch.setattr(
        releases.Outputs,
        "bound",
        lambda self, delta, confidence: lower_bound(*self.scores, delta=delta, confidence=confidence).epsilon,
    )
    (defect,) = [one for one in defects() if one.name == "the same noise on two levels"]
    assert defect.audited().power == 0


@pytest.mark.parametrize("setting", [Setting("tallytree", "one_entity"), Setting("tallytree", "one_group")], ids=about)
def test_the_neighbours_that_are_audited_change_a_number_from_zero_in_either_county(setting):
    """The audit of 0.3.0 took neighbours that differ in no such number, so it missed noise that zeros do not get."""
    _, plan = setting.decide(setting.count(next(pairs(PEOPLE, setting.unit)).here))
    found = worst_pairs(setting)
    assert [pair.watched for pair, _ in found] == ["w", "x"]
    for pair, _ in found:
        one, two = (
            measured_without_noise(setting.count(states), plan).measured[-1] for states in (pair.here, pair.there)
        )
        assert ((one.values == 0) != (two.values == 0)).any()


@pytest.mark.parametrize(
    "gadgets",
    [pytest.param(1, marks=pytest.mark.slow), None],
    ids=["one release each", "many in a release"],
)
def test_without_a_defect_the_same_audit_finds_nothing(gadgets):
    for seed in range(4):
        found = planted.bound_of_releases(Altered(gadgets=gadgets), BUDGETS[0], ("honest", seed), 1000, 0.0, SURELY)
        assert found <= 1


# -------------------------------------------------------------------- verdicts, the command


def row(**changes):
    about = {"part": "release", "name": "some", "unit": "one_entity", "setting": "", "budget": "ε = 1"}
    return replace(Row(**about, neighbours="somebody leaves", delta=0.0, claimed=1.0), **changes)


def at_border(**changes):
    about = {"name": "some", "unit": "one_entity", "setting": "", "budget": "ε = 1", "pairs": 4, "published": 1}
    return replace(BorderRow(**about, queries=8, change=1.0, loss=1.0, flagged=0), **changes)


def test_a_bound_beyond_the_claim_is_a_violation_wherever_it_comes_from():
    assert row().verdict == "consistent"
    for found in ("exact", "measurements", "counts", "command"):
        assert row(**{found: 1.0}).verdict == "consistent"
        assert row(**{found: 1.01}).verdict == "VIOLATION"
    assert Audit((row(), row(exact=0.5)), 0.999).ok
    assert not Audit((row(), row(exact=1.5)), 0.999).ok
    assert not Audit((row(part="planted", measurements=1.1, power=0.9),), 0.999).ok
    assert Audit((row(part="planted", measurements=1.1, power=1.0),), 0.999).ok


def test_a_flag_at_the_border_is_a_violation_and_a_planted_defect_needs_one():
    assert Audit((row(),), 0.999, (at_border(),)).ok
    assert not Audit((row(),), 0.999, (at_border(flagged=1, flags=("messages depends on private data",)),)).ok
    assert not Audit((), 0.999, (at_border(part="planted"),)).ok
    assert Audit((), 0.999, (at_border(part="planted", flagged=2, flags=("messages",)),)).ok


def test_the_command_writes_tables_and_a_plot_and_says_that_nothing_of_it_is_private(tmp_path):
    out = tmp_path / "audit"
    words = ["audit", "--mechanism", "bottom-up", "--quick", "--runs", "1000", "--jobs", "1", "--out", str(out)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "NOT PRIVATE" in done.output
    assert "8 of 8 claims are consistent" in done.output
    kept = json.loads((out / "audit.json").read_text())
    assert kept["ok"] is True
    assert kept["privacy"].startswith("NOT PRIVATE")
    for name in ("audit.csv", "audit-border.csv"):
        with (out / name).open() as file:
            assert [line["verdict"] for line in csv.DictReader(file)] == ["consistent"] * 4
    assert (out / "audit.png").stat().st_size > 10_000


def test_the_commands_exit_code_is_1_where_a_claim_is_violated(monkeypatch):
    from tallytree.command import lab_commands as command

    flagged = at_border(flagged=1, flags=("counts.csv depends on private data",))
    for found in (Audit((row(exact=1.5),), 0.999), Audit((row(),), 0.999, (flagged,))):
        monkeypatch.setattr(command, "audit", lambda found=found, **_: found)
        done = CliRunner().invoke(app, ["audit"])
        assert done.exit_code == 1
        assert "VIOLATION" in done.output
        as_json = CliRunner().invoke(app, ["audit", "--json"])
        assert as_json.exit_code == 1
        assert json.loads(as_json.output)["ok"] is False
    assert "counts.csv depends on private data" in done.output


def test_what_cannot_be_audited_is_refused():
    refused = partial(audit, release=lambda folder: "")
    with pytest.raises(SpecError, match="shows nothing"):
        refused(runs=10)
    with pytest.raises(SpecError, match="confidence"):
        refused(confidence=1.0)
    with pytest.raises(SpecError, match="no claim to audit"):
        refused(mechanisms=["pgsr-hierarchical-relaxed"])
    with pytest.raises(SpecError, match="unknown mechanism"):
        refused(mechanisms=["nonsense"])


def test_a_claim_in_rho_is_the_epsilon_that_a_release_states():
    assert releases.stated(Budget(epsilon=2)) == (2.0, 0.0)
    epsilon, delta = releases.stated(Budget(rho="1/2", delta="1/100"))
    assert delta == 0.01
    assert 2.5 < epsilon < 3
