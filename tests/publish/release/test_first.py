"""Releases that measured the number of groups first: made both ways, verified, gone on from; forged ones are found."""

import importlib
import json
import shutil
from fractions import Fraction

import numpy as np
import pytest

from tallytree import (
    Budget,
    Hierarchy,
    Ledger,
    Release,
    SpecError,
    load_measurements,
    one_entity,
    plan,
    release,
    resume,
    save_measurements,
    verify,
)
from tallytree.domain.histogram import earth_movers_distance
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import MECHANISMS, instead_of, prepare
from tallytree.mechanisms.budget_allocation import balanced_shares
from tallytree.mechanisms.measured_leaves import measured_totals, places_for, with_totals
from tallytree.mechanisms.tallytree import FIRST_SHARE
from tallytree.planning.goals import suggest
from tallytree.planning.prior import Prior
from tallytree.planning.report import AUTO_CANDIDATES, choose_by_prediction
from tallytree.planning.simulation import PublicFacts
from tallytree.privacy import Neighbours
from tallytree.publish.release.measurements_file import room_for
from tests.faults.mutations import mend
from tests.publish.release.test_measurements_file import rewritten, same

border = importlib.import_module("tallytree.privacy.run")
TALLYTREE = MECHANISMS["tallytree"]
SIZES = 60
TREE = Hierarchy.from_levels(
    {"state": [f"S{n // 10}" for n in range(40)], "county": [f"C{n}" for n in range(40)]}, ["state", "county"]
)


def made_up(groups, name="people"):
    """About so many groups in each of forty leaves, of sizes that are the rarer the larger."""
    draw = np.random.default_rng(groups)
    shape = 1 / np.arange(1, SIZES + 1) ** 1.5
    counts = [draw.multinomial(draw.poisson(groups), shape / shape.sum()) for _ in range(TREE.leaf_count)]
    return Truth(name, TREE, np.array(counts), public_totals=False)


SPARSE, CROWDED = made_up(4), made_up(400)
TRUTHS = {"few": SPARSE, "many": CROWDED}
HOW = {"budget": Budget(epsilon=8), "unit": one_entity()}


def suited(truth, options=None, **by):
    facts = {"neighbours": Neighbours.of(truth.group_sizes(), one_entity()), "hierarchy": truth.hierarchy}
    return prepare("auto", options, **facts, totals=truth.group_sizes().region_totals, budget=HOW["budget"], **by)


def lots(asked):
    return asked.branch_rule.below, asked.branch_rule.otherwise


# -------------------------------------------------------------------- what is asked


def test_totals_are_asked_first_where_they_are_private_and_sizes_are_many():
    mechanism, asked = suited(SPARSE)
    assert mechanism.options == {"borrow": True, "totals_share": str(FIRST_SHARE), "lists_below": str(SIZES // 4)}
    assert [(one.view, one.level, one.share) for one in asked.queries] == [("totals", 2, FIRST_SHARE)]
    assert asked.branch_rule.fewer_than == Fraction(SIZES, 4)
    few, many = ([(one.view, one.level, one.share / (1 - FIRST_SHARE)) for one in lot] for lot in lots(asked))
    assert few == [("sorted_sizes", 2, 1)]  # at ε = 8 there is hardly any noise
    shares = balanced_shares(TREE, HOW["budget"])
    assert many == [("at_least", level, Fraction(share, 100)) for level, share in enumerate(shares) if share]


def test_nothing_is_set_aside_where_a_public_fact_tells():
    small = Truth("small", TREE, np.ones((40, 39), np.int64), public_totals=False)
    public = Truth("public", TREE, np.ones((40, 61), np.int64), public_totals=True)
    told = [
        suited(small),
        suited(public),
        suited(SPARSE, {"leaves": "at_least"}),
        suited(SPARSE, {"leaves": "lists", "totals_share": "1/10"}),
        suited(SPARSE, {"bands": [{"to": 3, "shares": [1, 1, 1]}, {"shares": [1, 1, 2]}]}),
    ]
    assert all(asked.branch_rule is None for _, asked in told)
    views = [{one.view for one in asked.queries} for _, asked in told]
    assert views == [{"at_least"}, {"at_least"}, {"at_least"}, {"totals", "sorted_sizes"}, {"at_least"}]


def test_shares_that_are_given_are_those_of_both_ways_and_a_priority_is_divided_as_suits_each():
    _, asked = suited(SPARSE, shares=[1, 0, 3])
    assert [[one.share / (1 - FIRST_SHARE) for one in lot] for lot in lots(asked)] == [
        [Fraction(1, 4), Fraction(3, 4)]
    ] * 2
    _, asked = suited(SPARSE, priority="upper")
    few, many = ([one.share / (1 - FIRST_SHARE) for one in lot] for lot in lots(asked))
    assert few == [Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)]
    assert many == [Fraction(4, 7), Fraction(2, 7), Fraction(1, 7)]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"lists_below": "0"}, "lists_below must be a number of groups above 0"),
        ({"lists_below": "20", "leaves": "lists", "totals_share": "1/10"}, "leave out leaves and bands"),
        ({"lists_below": "20", "bands": [{"shares": [1, 1, 1]}]}, "leave out leaves and bands"),
    ],
)
def test_a_bound_that_decides_nothing_is_refused(options, why):
    with pytest.raises(SpecError, match=why):
        suited(SPARSE, options)


def test_a_bound_is_refused_where_totals_are_public():
    public = Truth("public", TREE, np.ones((40, 61), np.int64), public_totals=True)
    with pytest.raises(SpecError, match="totals are public, so lists_below would buy nothing"):
        suited(public, {"lists_below": "20"})


# -------------------------------------------------------------------- estimates


def measured(truth, seed=0, options=None, budget=HOW["budget"]):
    facts = {"neighbours": Neighbours.of(truth.group_sizes(), one_entity()), "hierarchy": truth.hierarchy}
    mechanism, asked = prepare("tallytree", options, **facts, totals=None, budget=budget)
    return mechanism, seeded_measurements(truth, asked, "first", seed, derive_facts=mechanism.derive_facts)


def leaf_error(truth, options=None, runs=4):
    errors = []
    for seed in range(runs):
        mechanism, found = measured(truth, seed, options, Budget(epsilon=3))
        off = earth_movers_distance(mechanism.estimate(found).counts, truth.all_levels(), 1)
        errors.append(off[TREE.level_slice(2)].sum())
    return np.mean(errors)


def test_few_groups_are_measured_by_lists_with_far_less_error_and_many_by_at_least_with_hardly_more():
    assert leaf_error(SPARSE) < 0.6 * leaf_error(SPARSE, {"leaves": "at_least"})
    assert leaf_error(CROWDED) < 1.06 * leaf_error(CROWDED, {"leaves": "at_least"})


def test_measured_totals_count_by_their_precision_in_both_ways():
    """T[1] of the leaves: the weighted mean of both measurements, and its variance is smaller than either's."""
    _, found = measured(CROWDED)
    totals, leaves = measured_totals(found), TREE.level_slice(2)
    counted = next(part for part in found.measured if (part.view, part.level) == ("at_least", 2))
    values, noise = np.zeros((len(TREE), SIZES)), np.ones((3, SIZES))
    values[leaves], noise[-1] = counted.values, counted.variance
    mean, variance = with_totals(found, values, noise)
    expected = np.average(
        [counted.values[:, 0], totals.values[:, 0]], axis=0, weights=[1 / counted.variance, 1 / totals.variance]
    )
    assert np.allclose(mean[leaves, 0], expected)
    assert np.allclose(variance[-1, 0], 1 / (1 / counted.variance + 1 / totals.variance))
    assert np.array_equal(mean[:, 1:], values[:, 1:])
    assert np.array_equal(variance[:, 1:], noise[:, 1:])
    # And with lists: estimates of T[1] at the leaves are nearer to the truth than what was measured of them.
    mechanism, found = measured(SPARSE)
    true = SPARSE.counts.sum(axis=1)
    estimated = mechanism.estimate(found).counts[leaves].sum(axis=1)
    assert np.abs(estimated - true).sum() < np.abs(measured_totals(found).values[:, 0] - true).sum() / 2


@pytest.mark.parametrize("epsilon", ["0.01", "0.3", "4", "100"])
def test_lists_have_places_for_nearly_all_groups_and_no_more_spare_ones_than_sizes(epsilon):
    lost, groups = 0, 0
    for seed in range(10):
        _, found = measured(SPARSE, seed, {"leaves": "lists", "totals_share": "1/20"}, Budget(epsilon=epsilon))
        places, true = found.lengths(2), SPARSE.counts.sum(axis=1)
        lost, groups = lost + np.maximum(true - places, 0).sum(), groups + true.sum()
        totals = measured_totals(found)
        assert np.array_equal(places, places_for(totals, SIZES))
        assert places.min() >= 1
        assert places.max() <= max(0, totals.values.sum()) + SIZES + 2
        assert (places <= np.maximum(totals.values[:, 0], max(0, totals.values.mean())) + SIZES + 2).all()
    if Budget(epsilon=epsilon).amount >= Fraction(3, 10):
        assert lost <= groups / 50


def test_with_as_good_as_no_noise_lists_give_the_truth():
    mechanism, found = measured(SPARSE, budget=Budget(epsilon=10**6))
    assert found.branch.below
    assert np.array_equal(mechanism.estimate(found).counts, SPARSE.all_levels())


def test_one_that_stands_in_does_not_take_spare_places_for_groups():
    mechanism, found = measured(SPARSE, budget=Budget(epsilon=1000))
    standing_in = list(instead_of(mechanism, found))
    assert [one.name for one in standing_in] == ["bottom-up"]
    assert np.array_equal(standing_in[0].estimate(found).counts, SPARSE.all_levels())


# -------------------------------------------------------------------- releases


@pytest.fixture(scope="module", params=TRUTHS)
def stored(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "release"
    release(TRUTHS[request.param].group_sizes(), **HOW).save(folder)
    return folder


@pytest.fixture
def copied(stored, tmp_path):
    return shutil.copytree(stored, tmp_path / "release")


def test_a_release_says_what_was_asked_first_by_which_rule_it_went_on_and_how(stored):
    assert verify(stored).faults == ()
    made, statement = Release.load(stored), json.loads((stored / "privacy.json").read_text(encoding="utf-8"))
    few = made.measurements.branch.below
    told = " ".join(statement["measured_first"])
    assert "the number of groups in every region of level 'county' was measured with 0.16 of the budget" in told
    assert "with fewer than 15 groups in a region of level 'county' on average, sorted lists" in told
    assert ("so it was sorted lists" if few else "so it was how many groups have each size or more") in told
    assert ("follows the length of the lists of sizes" in told) == few
    assert ("lists were measured, as" if few else "at_least was measured, as") in statement["certificate"]
    charged = sum(Fraction(row["charged"]) for row in statement["measurements"])
    assert charged == HOW["budget"].amount


def test_measurements_with_a_fork_come_back_as_they_were(stored, tmp_path):
    made = Release.load(stored).measurements
    save_measurements(made, tmp_path / "file")
    again = load_measurements(tmp_path / "file")
    same(again, made)
    assert again.branch == made.branch
    assert np.array_equal(again.first_stage.places, made.first_stage.places)


def change_facts(folder, change):
    rewritten(folder / "measurements.parquet", change).replace(folder / "measurements.parquet")
    mend(folder)


def change_options(folder, **options):
    value = json.loads((folder / "privacy.json").read_text(encoding="utf-8"))
    value["mechanism"]["options"].update(options)
    (folder / "privacy.json").write_text(json.dumps(value), encoding="utf-8")
    mend(folder)


BY_RULE = "which queries were measured after the totals does not follow from these by the rule of tallytree"
FORGED = {
    "the other way": (lambda passed: passed.update(few=not passed["few"]), BY_RULE),
    "another bound": (lambda passed: passed.update(fewer_than="16"), BY_RULE),
    "another level": (lambda passed: passed.update(level=1), BY_RULE),
    "no level": (lambda passed: passed.update(level=9), "the branch after the totals is not stated in a known form"),
    "a word": (lambda passed: passed.update(few="yes"), "the branch after the totals is not stated in a known form"),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_way_is_found(copied, forged):
    change, fault = FORGED[forged]
    change_facts(copied, lambda facts: change(facts["passed"]))
    assert any(fault in one for one in verify(copied).faults)


def test_a_fork_that_is_kept_back_is_found(copied):
    change_facts(copied, lambda facts: facts.pop("passed"))
    assert any(BY_RULE in one for one in verify(copied).faults)


@pytest.mark.parametrize("bound", ["1/1000000", "1000000"])
def test_a_rule_by_which_the_other_way_would_have_been_taken_is_found(copied, bound):
    few = Release.load(copied).measurements.branch.below
    change_facts(copied, lambda facts: facts["passed"].update(fewer_than=bound))
    change_options(copied, lists_below=bound)
    faults = verify(copied).faults
    assert faults
    if few == (bound == "1/1000000"):  # the rule says otherwise than what was done
        assert any(BY_RULE in one for one in faults)
        assert any("does not plan these measurements" in one for one in faults)


def test_totals_by_which_the_other_way_would_have_been_taken_are_found(copied):
    made = Release.load(copied).measurements
    totals = measured_totals(made)
    totals.values[:] = 400 if made.branch.below else 1
    save_measurements(made, copied / "measurements.parquet")
    mend(copied)
    assert any(BY_RULE in one for one in verify(copied).faults)


def test_lengths_of_lists_that_do_not_follow_from_the_totals_are_found(copied):
    """A place is moved from one leaf to another of the same state."""
    made = Release.load(copied).measurements
    made.first_stage.places[-1] += 1
    made.first_stage.places[-2] -= 1
    save_measurements(made, copied / "measurements.parquet")
    mend(copied)
    assert any("lengths of lists" in one for one in verify(copied).faults)


# -------------------------------------------------------------------- a run that is interrupted


class Killed(BaseException):
    """As if the process ended here."""


def test_a_kill_between_the_two_parts_loses_nothing_and_is_paid_for_once(tmp_path, monkeypatch):
    people = SPARSE.group_sizes()
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=8), Neighbours.of(people, one_entity()))
    how = {**HOW, "ledger": ledger, "keep": tmp_path / "kept", "intervals": "none"}
    answered, calls = border._answered, []

    def killed(*arguments):
        calls.append(len(arguments[2]))
        if len(calls) == 2:
            raise Killed
        return answered(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(border, "_answered", killed)
        with pytest.raises(Killed):
            release(people, **how)
    assert calls == [1, 1]  # questions: totals, then lists
    assert len(ledger.account("people").spendings) == 1
    made = release(people, **how)
    assert len(ledger.account("people").spendings) == 1
    again = resume(tmp_path / "kept", intervals="none")
    assert np.array_equal(again.counts, made.counts)
    assert again.made_by.options == made.made_by.options


@pytest.mark.parametrize("epsilon", ["0.001", "100"])
def test_room_is_taken_for_the_way_that_needs_more(tmp_path, epsilon):
    budget = Budget(epsilon=epsilon)
    _, found = measured(CROWDED, budget=budget)
    neighbours = Neighbours.of(CROWDED.group_sizes(), one_entity())
    facts = {"neighbours": neighbours, "hierarchy": TREE, "totals": None, "budget": budget}
    room = room_for(TREE, neighbours, prepare("tallytree", **facts)[1], None)
    save_measurements(found, tmp_path / "file")
    assert (tmp_path / "file").stat().st_size <= room


# -------------------------------------------------------------------- before anything is spent


@pytest.mark.parametrize(("groups", "view"), [(160, "lists of sizes"), (40_000, "at_least counts")])
def test_a_plan_predicts_the_way_that_the_prior_says(groups, view):
    facts = {"max_size": SIZES, "prior": "households", "groups": groups, "mechanisms": ["tallytree"]}
    found = plan(TREE, budget=Budget(epsilon=1), unit=one_entity(), replicates=2, **facts)
    assert any(f"then most likely {view}" in note for note in found.notes)
    widths = {row.half_width is None for row in found.predictions}
    assert widths == {view == "lists of sizes"}
    assert {sum(row.shares) for row in found.predictions} == {1}


@pytest.mark.parametrize("groups", [12, 4000])
def test_auto_takes_what_a_prior_predicts_to_be_best_and_such_a_release_is_verified(groups, tmp_path):
    tree = Hierarchy.from_levels({"county": ["A", "B", "C"]}, ["county"])
    counts = np.zeros((3, 40), np.int64)
    counts[:, :4] = groups // 12
    people = Truth("people", tree, counts, public_totals=False).group_sizes()
    prior = Prior.of("households", groups=groups)
    best = choose_by_prediction(PublicFacts(tree, Neighbours.of(people, one_entity())), prior, HOW["budget"])
    assert best.name in AUTO_CANDIDATES
    release(people, prior=prior, intervals="none", **HOW).save(tmp_path / "made")
    assert verify(tmp_path / "made").faults == ()


def test_shares_for_goals_are_promised_for_what_is_measured_whatever_the_data_are():
    neighbours = Neighbours(one_entity(), SIZES, False)
    found = suggest(PublicFacts(TREE, neighbours), Budget(epsilon=1), "county half-width 60 at 95%")
    assert found.options == {"leaves": "at_least"}
    assert 'options = { leaves = "at_least" }' in found.toml
    small = suggest(
        PublicFacts(TREE, Neighbours(one_entity(), 39, False)), Budget(epsilon=1), "county half-width 60 at 95%"
    )
    assert small.options == {}
    assert "options" not in small.toml
