"""The recorder at the privacy border: neighbours differ within their sensitivities, and identical answers give
identical releases; what breaks either is flagged. Nothing here is left to chance: tables and answers are seeded."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tallytree import Budget, ReleaseError, SpecError
from tallytree.command.lab_commands import release_in_process
from tallytree.lab.audit import border
from tallytree.lab.audit.border import BY_ATTRIBUTE, BY_POSITION, HOUSEHOLD_UNITS, audit_border, audit_rounds
from tallytree.lab.audit.releases import UNITS, Setting
from tallytree.lab.audit.worlds import BY_GROUP, BY_MEMBERS, SEVERAL_ROWS, random_pair
from tallytree.mechanisms import MECHANISMS
from tallytree.privacy.neighbours import Sensitivity

RELEASABLE = {name for name, row in MECHANISMS.items() if not row.refused}
SETTINGS = border.border_settings()
# In CI: each mechanism under each unit at the border; what the default does in other ways, by whole releases.
SAMPLE = {(one.mechanism, one.unit): one for one in SETTINGS if one.kind in (BY_GROUP, SEVERAL_ROWS)}
WHOLE = [
    Setting("tallytree", "one_entity", own_shares=True),
    Setting("tallytree", "one_entity", kind=SEVERAL_ROWS, own_shares=True),
    Setting("tallytree", "one_group", "public", kind=BY_GROUP, own_shares=True),
    Setting("tallytree", "one_group", kind=BY_GROUP, own_shares=True),  # rows and groups in two private files
    Setting("tallytree", "one_entity", kind=BY_MEMBERS, own_shares=True),
    Setting("tallytree", "one_entity", "public by region", kind=BY_MEMBERS, own_shares=True),
    Setting("tallytree", "one_entity", options={"lists_below": "2"}, own_shares=True),
]


def about(setting):
    return f"{setting.mechanism} {setting.unit} {setting.words()}"


def test_every_mechanism_unit_and_kind_of_category_is_compared():
    found = {(one.mechanism, one.unit) for one in SETTINGS}
    assert found == {(name, unit) for name in RELEASABLE for unit in UNITS}
    default = [one for one in SETTINGS if one.mechanism == "tallytree"]
    assert {one.totals for one in default} == {"private", "public", "public by region"}
    assert {one.kind.decided_by for one in default} == {None, "group", "members"}
    assert {option for one in default for option in one.options} >= {"lists_below", "entities_share", "bands", "leaves"}


@pytest.mark.parametrize("setting", SAMPLE.values(), ids=about)
def test_neighbours_differ_within_their_sensitivities_and_their_budget(setting):
    row = audit_border(setting, pairs=1, published=0, release=release_in_process)
    assert row.flags == ()
    assert row.queries >= 1
    assert row.change <= 1
    assert row.loss <= 1


@pytest.mark.parametrize("setting", WHOLE, ids=about)
def test_identical_answers_give_identical_releases(setting):
    row = audit_border(setting, pairs=1, published=1, release=release_in_process)
    assert row.flags == ()
    assert row.published == 1


@pytest.mark.parametrize("structure", [BY_POSITION, BY_ATTRIBUTE], ids=["by position", "by attribute"])
@pytest.mark.parametrize("unit", HOUSEHOLD_UNITS)
def test_tables_of_households_differ_within_their_sensitivities(unit, structure):
    row = audit_rounds(unit, structure, pairs=5)
    assert row.flags == ()
    assert row.change == 1  # the sensitivities are reached: the comparison is not blind


def test_the_whole_sensitivity_and_the_whole_budget_are_reached():
    """A comparison that always finds small changes would be blind."""
    row = audit_border(Setting("tallytree", "one_group"), pairs=6, published=0, release=release_in_process)
    assert row.change == 1
    assert row.loss == 1


def test_both_ways_of_an_adaptive_plan_are_compared(tmp_path):
    setting, seen = Setting("tallytree", "one_entity", options={"lists_below": "2"}), set()
    for number in range(8):
        states = random_pair(setting.kind, setting.unit, setting.totals, number).here
        queries = border.observe(setting, states, tmp_path, None, number).queries
        seen.add(any("sorted_sizes" in query.name for query in queries))
    assert seen == {True, False}


# -------------------------------------------------------------------- planted defects


def test_a_refusal_that_depends_on_private_data_is_flagged(monkeypatch):
    own = Setting.decide

    def refuses_some(self, private):
        if private.counts.open_at_the_privacy_border()[:, 0].sum() % 2:
            raise SpecError("refused")
        return own(self, private)

    monkeypatch.setattr(Setting, "decide", refuses_some)
    row = audit_border(Setting("tallytree", "one_entity"), pairs=4, published=0, release=release_in_process)
    assert "whether the data are accepted depends on private data" in row.flags


def test_a_halved_sensitivity_is_flagged():
    setting = Setting("tallytree", "one_group")
    with border.halved_sensitivities():
        row = audit_border(setting, pairs=6, published=0, release=release_in_process)
    assert row.flagged >= 2
    assert any("changes by more than its sensitivity" in flag for flag in row.flags)
    assert "all queries together lose more than the budget" in row.flags


@pytest.mark.parametrize("unit", HOUSEHOLD_UNITS)
def test_a_halved_sensitivity_of_a_table_of_households_is_flagged(unit, monkeypatch):
    own = border.HouseholdNeighbours.sensitivity

    def halved(self, *given):
        found = own(self, *given)
        return Sensitivity(-(-found.l1 // 2), -(-found.l2_squared // 2))

    monkeypatch.setattr(border.HouseholdNeighbours, "sensitivity", halved)
    assert audit_rounds(unit, BY_POSITION, pairs=20).flagged >= 1


def test_shares_that_add_up_to_more_than_the_budget_are_flagged(monkeypatch):
    own = Setting.decide

    def spends_twice(self, private):
        mechanism, plan = own(self, private)
        doubled = tuple(replace(query, share=2 * query.share) for query in plan.queries)
        object.__setattr__(plan, "queries", doubled)  # a plan refuses that, so it is forged
        return mechanism, plan

    monkeypatch.setattr(Setting, "decide", spends_twice)
    row = audit_border(Setting("tallytree", "one_entity"), pairs=4, published=0, release=release_in_process)
    assert row.flags == ("all queries together lose more than the budget",)


@pytest.mark.parametrize(
    ("telling", "where"), [(border.telling_message, "messages"), (border.telling_file, "privacy.json")]
)
def test_a_message_or_file_that_depends_on_private_data_is_flagged(telling, where):
    setting = Setting("tallytree", "one_group")
    row = audit_border(setting, pairs=3, published=3, release=partial(telling, release_in_process))
    assert row.flagged >= 1
    assert set(row.flags) == {f"{where} depends on private data"}


def test_a_question_that_depends_on_private_data_is_flagged():
    same = border.Query("counts of level 0", "discrete_laplace", border.Fraction(1), Sensitivity(1, 1), np.zeros(2))
    longer = same._replace(private=np.zeros(3))
    found = border.compare(
        border.Observed((same,), {}, Budget(epsilon=1)), border.Observed((longer,), {}, Budget(epsilon=1))
    )
    assert found.flags == ("the queries themselves depend on private data",)


def test_a_border_that_does_not_add_to_the_recorders_noise_is_noticed():
    """Such a border could hide private numbers from the recorder, which would find no change at all."""

    def adds_to_a_copy(randomness):
        return randomness.laplace(border.Fraction(1), 3) + 7

    def draws_elsewhere(randomness):
        adds_to_a_copy(border.seeded(1))

    recorder, _ = border.fix_answers(draws_elsewhere, 1)
    assert recorder.draws == []  # then no measurement has a recorded answer, and pairing them fails
    recorder, _ = border.fix_answers(adds_to_a_copy, 1)
    part = _measured(recorder.draws[0].scale, recorder.draws[0].answers + 7)
    with pytest.raises(ReleaseError, match="not the answer that was recorded"):
        list(border._queries(part, recorder))


def _measured(scale, values):
    from types import SimpleNamespace

    part = SimpleNamespace(
        view="counts", scale=scale, noise="discrete_laplace", values=values, sizes=None, summed=False
    )
    return SimpleNamespace(measured=(part,))


@pytest.mark.parametrize("budget", border.WITH_DELTA, ids=str)
def test_a_budget_with_a_delta_is_compared_with_what_it_is_spent_on(budget):
    setting = Setting("tallytree", "one_entity", budget=budget, own_shares=True)
    row = audit_border(setting, pairs=4, published=1, release=release_in_process)
    assert row.flagged == 0
    assert 0 < row.loss <= 1


def test_gaussian_noise_that_is_too_small_for_its_delta_is_flagged():
    setting = Setting("tallytree", "one_entity", budget=border.WITH_DELTA[1], own_shares=True)
    with border.loose_accounting():
        row = audit_border(setting, pairs=4, published=0, release=release_in_process)
    assert row.flagged >= 1
    assert row.flags == ("all queries together lose more than ε with a probability above δ",)
