"""Estimators that fail once the budget is spent: another one takes over, and the release says so."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

import tallytree as tt
from tallytree.mechanisms import MECHANISMS, instead_of, prepare
from tallytree.publish.folder import write_json
from tallytree.publish.release.error_bars import Publication
from tallytree.publish.release.fallback import MechanismReplaced, NotEstimated, estimate_surely
from tallytree.publish.release.measurements_file import save_measurements
from tallytree.publish.release.release_run import estimate_release, resume
from tests.publish.forging import sign_again

TREE = tt.Hierarchy.from_levels(pa.table({"state": ["A", "A", "B"], "county": ["1", "2", "3"]}), ["state", "county"])
ROWS = pa.table(
    {
        "group": [n // 2 for n in range(300)],
        "county": ["123"[n // 2 % 3] for n in range(300)],
        "sort": ["ab"[n // 6 % 2] for n in range(300)],
    }
)
GROUPS = pa.table({"group": list(range(150)), "county": ["123"[n % 3] for n in range(150)]})


def private(**more):
    return tt.read(ROWS, **{"group": "group", "region": "county", "hierarchy": TREE, "max_size": 5, **more})


def released(mechanism, epsilon, data=None, **how):
    how = {"intervals": "guaranteed", **how}
    budget = tt.Budget(epsilon=epsilon)
    return tt.release(data or private(), budget=budget, mechanism=mechanism, **{"unit": tt.one_entity(), **how})


def with_values(release, change):
    """The measurements of a release with other noisy numbers, as unlucky noise would make them."""
    parts = tuple(replace(part, values=change(part)) for part in release.measurements.measured)
    return replace(release.measurements, measured=parts)


def very_noisy(release):
    """Fixed numbers as with ε = 0.000001: the solvers' tolerances are relative, and nothing adds up for them."""
    dice = np.random.default_rng(1)
    return with_values(release, lambda part: np.round(dice.laplace(0, 6e6, part.values.shape)).astype(np.int64))


@pytest.mark.parametrize(
    ("asked", "used"),
    [("pgsr-hierarchical-exact", "pgsr-hierarchical-dp"), ("pgsr-cumulative-exact", "pgsr-cumulative-dp")],
)
def test_where_a_solver_gives_up_another_mechanism_of_the_same_view_takes_over(asked, used, tmp_path):
    pytest.importorskip("pyscipopt")
    noisy = very_noisy(released(used, "1/1000000"))
    with pytest.raises(tt.ReleaseError, match=r"Clarabel|SCIP"):
        MECHANISMS[asked].estimate(noisy)
    with pytest.warns(MechanismReplaced, match=f"{asked} was requested and failed"):
        release = estimate_release(noisy, MECHANISMS[asked], Publication(intervals="guaranteed"))
    assert release.mechanism == used
    assert release.fallback.asked.name == asked
    assert np.array_equal(release.counts, MECHANISMS[used].estimate(release.measurements).counts)
    assert f"so {used} estimated from them instead" in release.certificate
    release.save(tmp_path / "release")
    outcome = tt.verify(tmp_path / "release")
    assert outcome.ok, outcome
    stated = json.loads((tmp_path / "release" / "privacy.json").read_text())["mechanism"]
    assert (stated["name"], stated["asked_for"]) == (used, {"name": asked, "options": {}})
    assert "Clarabel" in stated["failed_because"] or "SCIP" in stated["failed_because"]
    assert tt.Release.load(tmp_path / "release").fallback == release.fallback


CATEGORY = {"by": {"sort": ["a", "b"]}}
KINDS = {
    "private totals": {},
    "public totals": {"groups": GROUPS, "groups_are_public": True},
    "the group decides": {**CATEGORY, "decided_by": "group"},
    "members decide": {**CATEGORY, "decided_by": "members"},
    "the group decides, totals by region": {
        **CATEGORY,
        "decided_by": "group",
        "groups": GROUPS,
        "groups_are_public": True,
    },
    "members decide, totals by region": {
        **CATEGORY,
        "decided_by": "members",
        "groups": GROUPS,
        "groups_are_public": True,
    },
}
BANDS = [{"to": 2, "shares": [1, 1, 2]}, {"shares": [1, 2, 1]}]


def negative(counts):
    counts[:, 0] -= counts.max() + 1


def not_adding_up(counts):
    counts[0, 0] += 1


def total_lost(counts):
    counts[:] = 0


def damaging(damage):
    """An estimator whose counts are damaged."""

    def estimate(settings, measurements, tell=None):
        sound = MECHANISMS["tallytree"].estimate.func(settings, measurements)
        damage(sound.counts)
        return sound

    return estimate


def failing(settings, measurements, tell=None):
    raise ZeroDivisionError("division by zero")


def register(monkeypatch, estimator):
    """Add a mechanism with this estimator to the table, for as long as a test lasts."""
    row = MECHANISMS["tallytree"]
    row = replace(row, name="unsound", estimate=partial(estimator, row.settings))
    monkeypatch.setitem(MECHANISMS._own, "unsound", row)


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        *((damage, kind) for damage in (negative, not_adding_up) for kind in [*KINDS, "bands", "bands of lists"]),
        *((total_lost, kind) for kind in KINDS if "groups" in KINDS[kind]),
    ],
)
def test_an_estimate_that_may_not_be_released_is_replaced_before_it_is_saved(damage, kind, tmp_path, monkeypatch):
    register(monkeypatch, damaging(damage))
    options = {"bands": BANDS} if kind.startswith("bands") else {}
    if kind == "bands of lists":
        options |= {"leaves": "lists", "totals_share": "0.1"}
    data = private(**KINDS.get(kind, {}))
    with pytest.warns(MechanismReplaced, match="unsound was requested and failed"):
        release = released("unsound", 1, data, options=options)
    assert release.fallback.asked.name == "unsound"
    assert "the estimate" in release.fallback.why
    release.save(tmp_path / "release")
    outcome = tt.verify(tmp_path / "release")
    assert outcome.ok, outcome
    stated = json.loads((tmp_path / "release" / "privacy.json").read_text())
    assert stated["mechanism"]["asked_for"]["name"] == "unsound"
    assert "unsound was requested and failed on these measurements" in stated["certificate"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_whose_estimator_fails_finishes_and_so_does_its_resumption(kind, tmp_path, monkeypatch):
    register(monkeypatch, failing)
    with pytest.warns(MechanismReplaced, match="division by zero"):
        first = released("unsound", 1, private(**KINDS[kind]), keep=tmp_path / "kept", intervals="all")
    with pytest.warns(MechanismReplaced, match="division by zero"):
        again = resume(tmp_path / "kept", intervals="all")
    assert np.array_equal(first.counts, again.counts)
    assert again.error_bars.typical is not None


def test_a_release_that_goes_as_asked_says_nothing_of_it(tmp_path):
    release = released("pgsr-cumulative-dp", 1)
    assert release.fallback is None
    release.save(tmp_path / "release")
    assert "asked_for" not in (tmp_path / "release" / "privacy.json").read_text()


def test_tables_without_a_solution_fall_back():
    release = released("pgsr-hierarchical-tables", 20)
    unlucky = with_values(release, lambda part: part.values - 10**6 if part.level == 2 else part.values)
    with pytest.raises(tt.SpecError, match="domains are empty"):
        MECHANISMS["pgsr-hierarchical-tables"].estimate(unlucky)
    with pytest.warns(MechanismReplaced):
        again = estimate_release(unlucky, MECHANISMS["pgsr-hierarchical-tables"], Publication(intervals="all"))
    assert again.mechanism == "pgsr-hierarchical-dp"
    assert again.error_bars.typical is not None  # they are those of the mechanism that was used
    assert "domains are empty" in again.certificate


def test_matching_that_fails_falls_back_to_the_leaves_it_measured(tmp_path):
    release = released("coc-matching", 1, private(groups=GROUPS, groups_are_public=True))
    asked = release.made_by
    assert [one.name for one in instead_of(asked, release.measurements)] == ["pgsr-cumulative-dp", "bottom-up"]
    assert [one.name for one in instead_of(MECHANISMS["pgsr-cumulative-dp"], release.measurements)] == ["bottom-up"]
    private_totals = released("coc-matching", 1, options={"totals_share": "0.1"})
    (only,) = instead_of(private_totals.made_by, private_totals.measurements)
    counts = only.estimate(private_totals.measurements).counts
    assert np.array_equal(counts.sum(axis=1)[3:], private_totals.measurements.first_stage.totals[3:])


def test_a_chain_is_released_and_nothing_else_can_read_it():
    release = released("pgsr-chain", 1)
    assert release.fallback is None
    assert list(instead_of(release.made_by, release.measurements)) == []


def test_joint_mechanisms_refuse_shares_that_they_cannot_weigh_before_anything_is_spent(tmp_path):
    ledger = tt.Ledger(tmp_path / "ledger.db")
    data = private(name="people")
    ledger.open("people", tt.Budget(epsilon=1), tt.Neighbours.of(data, tt.one_entity()))
    shares = {"total": "1/1000000", "state": 1, "county": 1}
    with pytest.raises(tt.SpecError, match="Nothing was spent"):
        released("joint-cumulative", 1, data, shares=shares, ledger=ledger)
    with pytest.raises(tt.SpecError, match="pgsr-hierarchical-dp"):
        released("joint-counts", 1, private(groups=GROUPS, groups_are_public=True), shares=shares)
    assert ledger.account("people").spent == 0
    assert released("auto", 1, data, shares=shares, ledger=ledger).mechanism == "tallytree"
    many_sizes = private(groups=GROUPS, groups_are_public=True, max_size=70)
    assert released("auto", 1, many_sizes, unit=tt.one_group(), shares=shares).mechanism == "pgsr-hierarchical-dp"


@pytest.mark.parametrize("ratio", [20_000, 40_000])
def test_the_refusal_stands_exactly_where_the_estimate_would_fail(ratio):
    neighbours = tt.Neighbours.of(private(), tt.one_entity())
    known = {"neighbours": neighbours, "hierarchy": TREE, "totals": None, "budget": tt.Budget(epsilon="1/10")}
    shares = [1, ratio, ratio]
    release = released("pgsr-cumulative-dp", "1/10", shares=shares)
    if ratio == 20_000:
        assert prepare("joint-cumulative", **known, shares=shares)[0].name == "joint-cumulative"
        MECHANISMS["joint-cumulative"].estimate(release.measurements)
    else:
        with pytest.raises(tt.SpecError, match="10⁹"):
            prepare("joint-cumulative", **known, shares=shares)
        with pytest.raises(tt.SpecError, match="10⁹"):
            MECHANISMS["joint-cumulative"].estimate(release.measurements)


def test_where_nothing_can_estimate_the_measurements_are_not_lost(tmp_path):
    release = released("pgsr-hierarchical-dp", 1)
    absurd = with_values(release, lambda part: part.values + (1 << 60))
    with pytest.raises(NotEstimated, match="--resume") as stop:
        estimate_surely(absurd, MECHANISMS["pgsr-hierarchical-dp"])
    assert stop.value.measurements is absurd
    (tmp_path / "kept").mkdir()
    save_measurements(release.measurements, tmp_path / "kept" / "measurements.parquet")
    assert resume(tmp_path / "kept", mechanism="topdown", intervals="none").mechanism == "topdown"


@pytest.mark.parametrize("change", ["used", "certificate"])
def test_verify_finds_a_false_word_about_what_was_used(change, tmp_path):
    release = released("pgsr-hierarchical-tables", 20, intervals="none")
    unlucky = with_values(release, lambda part: part.values - 10**6 if part.level == 2 else part.values)
    with pytest.warns(MechanismReplaced):
        again = estimate_release(unlucky, MECHANISMS["pgsr-hierarchical-tables"], Publication(intervals="none"))
    again.save(tmp_path / "release")
    assert tt.verify(tmp_path / "release").ok
    path = tmp_path / "release" / "privacy.json"
    statement = json.loads(path.read_text())
    if change == "used":
        statement["mechanism"]["name"] = "topdown"
    else:
        statement["certificate"] = statement["certificate"].split(";")[0]
    write_json(path, statement)
    sign_again(tmp_path / "release")
    assert not tt.verify(tmp_path / "release").ok


def test_a_solver_that_is_not_installed_is_missed_before_anything_is_spent():
    row = replace(MECHANISMS["pgsr-cumulative-exact"], needs=("no_such_solver",))
    with pytest.raises(tt.SpecError, match="no_such_solver"):
        row.check(tt.Neighbours.of(private(), tt.one_entity()))
