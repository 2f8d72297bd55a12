"""Plans: predicted against realised errors, widths against real intervals, goals against recomputed widths, `auto`."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from experiments.named_files import load
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree import Budget, Hierarchy, Prior, SpecError, one_entity, one_group, plan, release, resume, verify
from tallytree.domain.histogram import earth_movers_distance, l1_distance
from tallytree.estimate.intervals.guaranteed import guaranteed
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import MECHANISMS, choose, prepare
from tallytree.mechanisms.budget_allocation import choose_shares, priority_shares
from tallytree.planning.goals import Goal, suggest
from tallytree.planning.report import (
    AUTO_CANDIDATES,
    Alternatives,
    choose_by_prediction,
    list_candidates,
    predict_errors,
)
from tallytree.planning.simulation import Effort, PublicFacts, half_widths, shrink_tree
from tallytree.privacy import Neighbours
from tests.oracles.example import made_up

ENTITY = one_entity()
ONE = Budget(epsilon=1)


def grown(families):
    """A tree of three levels with so many counties in each state."""
    states = [f"s{number}" for number, size in enumerate(families) for _ in range(size)]
    counties = [f"c{number}" for number in range(sum(families))]
    return Hierarchy.from_levels({"state": states, "county": counties}, ["state", "county"])


TREE = grown([3, 5, 2, 4])


# -------------------------------------------------------------------- dividing the budget


def test_priorities_are_geometric_shares():
    assert priority_shares(TREE, "upper") == (Fraction(4, 7), Fraction(2, 7), Fraction(1, 7))
    assert priority_shares(TREE, "leaves") == (Fraction(1, 7), Fraction(2, 7), Fraction(4, 7))
    assert priority_shares(TREE, "balanced") == (Fraction(1, 3),) * 3
    assert choose_shares(TREE, [1, 2, 3], None) == [1, 2, 3]
    with pytest.raises(SpecError, match="unknown priority 'lower'; expected upper, balanced, leaves"):
        priority_shares(TREE, "lower")
    with pytest.raises(SpecError, match="give one of them"):
        choose_shares(TREE, [1, 2, 3], "upper")


def test_a_release_spends_by_priority():
    data = made_up(1, public_totals=False)
    made = release(data, budget=ONE, unit=ENTITY, priority="leaves")
    assert [part.share for part in made.measurements.measured] == [Fraction(9, 100), Fraction(1, 100), Fraction(9, 10)]
    joint = release(data, budget=ONE, unit=ENTITY, priority="leaves", mechanism="joint-cumulative")
    assert [part.share for part in joint.measurements.measured] == [Fraction(1, 7), Fraction(2, 7), Fraction(4, 7)]
    alone = release(data, budget=ONE, unit=ENTITY, priority="leaves", mechanism="bottom-up")
    assert [part.share for part in alone.measurements.measured] == [1]
    with pytest.raises(SpecError, match="takes no shares"):
        release(data, budget=ONE, unit=ENTITY, priority="upper", mechanism="bottom-up")
    with pytest.raises(SpecError, match="give one of them"):
        release(data, budget=ONE, unit=ENTITY, priority="upper", shares=[1, 1, 1])


def test_each_mechanism_is_predicted_with_its_own_division_by_priority():
    report = plan(
        TREE,
        max_size=6,
        budget=ONE,
        unit=ENTITY,
        prior="uniform",
        groups=600,
        replicates=2,
        mechanisms=["tallytree", "joint-cumulative"],
    )
    found = {(row.mechanism, row.split): [str(share) for share in row.shares] for row in report.predictions}
    assert found["tallytree", "balanced"] == ["0", "0", "1"]  # so few leaves that their sums are good enough
    assert found["tallytree", "leaves"] == ["9/100", "1/100", "9/10"]
    assert found["joint-cumulative", "balanced"] == ["1/3", "1/3", "1/3"]
    given = plan(
        TREE,
        max_size=6,
        budget=ONE,
        unit=ENTITY,
        prior="uniform",
        groups=600,
        replicates=2,
        splits={"no middle": [1, 0, 3]},
    )
    assert {row.mechanism for row in given.predictions} == {"tallytree", "bottom-up"}
    assert "every level's share must be positive" in given.skipped["joint-cumulative"]


def test_lists_are_predicted_and_promise_no_widths():
    totals = [2] * TREE.leaf_count
    facts = {"max_size": 400, "budget": ONE, "unit": ENTITY, "prior": "heavy-tail", "totals": totals}
    report = plan(TREE, **facts, mechanisms=["tallytree", "joint-cumulative"], replicates=4)
    lists = [row for row in report.of(split="balanced") if row.mechanism == "tallytree"]
    assert [row.half_width for row in lists] == [None] * 3
    assert [float(share) for share in lists[0].shares] == [0.2, 0, 0.8]
    assert lists[2].emd < next(row.emd for row in report.of(split="balanced") if row.mechanism != "tallytree")
    with pytest.raises(SpecError, match="measures no counts of the smallest regions here"):
        report.suggest("county half-width 20 at 95%")
    assert report.suggest("county half-width 20 at 95%", mechanism="joint-cumulative").shares


BANDS = [{"to": 3, "shares": [1, 1, 3]}, {"shares": [4, 0, 1]}]
LISTS_ABOVE = [{"to": 3, "shares": [1, 1, 3], "leaves": "at_least"}, {"shares": [4, 0, 1], "leaves": "lists"}]


def with_bands(bands, *, splits=None, public=False):
    totals = np.full(TREE.leaf_count, 50) if public else None
    ways = Alternatives(["tallytree"], {"tallytree": {"bands": bands}}, splits)
    facts, prior = PublicFacts(TREE, Neighbours(ENTITY, 8, public), totals), Prior.of("households", groups=700)
    return predict_errors(facts, prior, [ONE], ways, effort=Effort(3))


def test_bands_are_predicted_once_with_shares_that_add_up_and_the_widths_of_the_widest():
    report = with_bands(BANDS)
    assert report.splits == ("bands",)
    rows = report.of(split="bands")
    wanted = (Fraction(3, 8) * Fraction(1, 5) + Fraction(5, 8) * Fraction(4, 5), Fraction(3, 40), Fraction(7, 20))
    assert rows[0].shares == wanted
    assert sum(rows[0].shares) == 1
    alone = [with_bands([{"shares": band["shares"]}]).of(split="bands") for band in BANDS]
    assert [row.half_width for row in rows] == [max(one[at].half_width for one in alone) for at in range(3)]


def test_bands_with_lists_promise_no_widths():
    assert [row.half_width for row in with_bands(LISTS_ABOVE, public=True).of(split="bands")] == [None] * 3


def test_shares_beside_bands_are_refused_in_a_plan_as_in_a_release():
    with pytest.raises(SpecError, match="leave out shares and priority"):
        with_bands(BANDS, splits={"as given": [1, 1, 1]})
    with pytest.raises(SpecError, match="size bands already set shares"):
        suggest(
            PublicFacts(TREE, Neighbours(ENTITY, 8, False)),
            ONE,
            "county half-width 20 at 95%",
            options={"bands": BANDS},
        )


# -------------------------------------------------------------------- the smaller tree


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 60), st.integers(0, 99))
def test_a_smaller_tree_keeps_levels_and_as_many_children_of_each_as_fit(families, most, seed):
    tree = grown(families)
    totals = np.random.default_rng(seed).integers(0, 50, tree.leaf_count).astype(float)
    small, leaves = shrink_tree(tree, totals, most)
    assert small.levels == tree.levels
    assert [small.ids[int(small.level_starts[-2]) + at] for at in range(small.leaf_count)] == [
        tree.ids[int(tree.level_starts[-2]) + leaf] for leaf in leaves
    ]
    for region in range(1, len(small)):
        above = tree.parents[tree.index[small.ids[region]]]
        assert small.ids[small.parents[region]] == tree.ids[above]
    if len(tree) <= most:
        assert small is tree
        return
    kept, had = np.diff(small.child_starts), np.diff(tree.child_starts)
    here = [tree.index[region] for region in small.ids]
    children = max(kept)
    assert np.array_equal(kept, np.minimum(had[here], children))
    assert len(small) <= max(most, tree.depth)


# -------------------------------------------------------------------- predictions


def realised(truth, mechanism, budget, runs, *, unit=ENTITY, **division):
    """Mean errors per region `[runs, levels]` of releases with fixed seeds: (L1, earth mover's)."""
    tree, counts = truth.hierarchy, truth.all_levels()
    neighbours = Neighbours.of(truth.group_sizes(), unit)
    totals = tree.aggregate(truth.counts.sum(axis=1)) if truth.public_totals else None
    chosen, asked = prepare(mechanism, neighbours=neighbours, hierarchy=tree, totals=totals, budget=budget, **division)
    found = []
    for run in range(runs):
        estimate = chosen.estimate(
            seeded_measurements(truth, asked, "planning", run, derive_facts=chosen.derive_facts)
        ).counts
        errors = l1_distance(estimate, counts), earth_movers_distance(estimate, counts, truth.first_size)
        found.append([[error[tree.level_slice(level)].mean() for level in range(tree.depth)] for error in errors])
    return np.array(found).transpose(1, 0, 2)


def compare(report, mechanism, found):
    """Predicted within 25 % of realised, beyond what simulation leaves open on levels with few regions."""
    rows = [row for row in report.predictions if row.mechanism == mechanism]
    for which, metric in enumerate(("l1", "emd")):
        for row in rows:
            runs = found[which][:, row.depth]
            mean, predicted = runs.mean(), getattr(row, metric)
            error = np.hypot(runs.std(ddof=1) / np.sqrt(len(runs)), getattr(row, f"{metric}_standard_error"))
            slack = 0 if error < 0.03 * mean else 6 * error
            assert abs(predicted - mean) <= 0.25 * mean + slack, (mechanism, row.level, metric, predicted, mean)


def halves(truth, level):
    """The truth of every other region of a level, and of the rest: like an older table and new data elsewhere."""
    tree = truth.hierarchy
    first = int(tree.level_starts[-2])
    above = np.arange(first, len(tree))
    while tree.level_of[above[0]] > level:
        above = tree.parents[above]
    parts = []
    for side in (0, 1):
        some = np.flatnonzero((above - tree.level_starts[level]) % 2 == side)
        paths = [tree.path_of(first + leaf)[1:] for leaf in some]
        names = {name: [path[at] for path in paths] for at, name in enumerate(tree.levels[1:])}
        part = Hierarchy.from_levels(names, list(names))
        start = int(part.level_starts[-2])
        places = {part.path_of(start + at)[1:]: at for at in range(part.leaf_count)}
        counts = np.empty((len(some), truth.counts.shape[1]), dtype=np.int64)
        counts[[places[path] for path in paths]] = truth.counts[some]
        parts.append(Truth(truth.name, part, counts, truth.public_totals))
    return parts


def as_table(truth):
    leaf, cell = np.nonzero(truth.counts)
    ids = truth.hierarchy.ids[int(truth.hierarchy.level_starts[-2]) :]
    sizes = (cell + truth.first_size).tolist()
    return {"region": [ids[at] for at in leaf], "size": sizes, "count": truth.counts[leaf, cell].tolist()}


@pytest.mark.parametrize(
    ("name", "level"),
    [("switzerland_2003_municipality_household_size.csv", 2), ("us2010_county_household_size_2plus.csv", 3)],
)
def test_errors_are_predicted_from_an_older_table_of_other_regions(public_file, name, level):
    older, newer = halves(load(public_file(name)), level)
    assert not set(older.hierarchy.ids[50:]) & set(newer.hierarchy.ids[50:])
    mechanisms = ["joint-cumulative", "pgsr-hierarchical-dp"]
    report = predict_errors(
        PublicFacts(newer.hierarchy, Neighbours.of(newer.group_sizes(), ENTITY), newer.counts.sum(axis=1)),
        Prior.of(as_table(older)),
        [Budget(epsilon="0.5")],
        Alternatives(mechanisms, splits={"balanced": [1] * newer.hierarchy.depth}),
        effort=Effort(8),
    )
    for mechanism in mechanisms:
        compare(report, mechanism, realised(newer, mechanism, Budget(epsilon="0.5"), 8))


@pytest.mark.parametrize(
    ("unit", "mechanism"), [(one_entity(), "joint-cumulative"), (one_group(), "pgsr-hierarchical-dp")]
)
def test_errors_of_made_up_data_are_predicted_with_private_totals(unit, mechanism):
    tree = grown([20, 9, 14, 30])
    shape = Prior.of("households", groups=30_000).fitted(tree, first_size=1, max_size=9)
    rng = np.random.default_rng(0)
    truth = Truth("made up", tree, rng.poisson(shape.expected(np.arange(tree.leaf_count))), False)
    report = plan(
        tree,
        max_size=9,
        budget=ONE,
        unit=unit,
        prior="households",
        groups=30_000,
        mechanisms=[mechanism],
        splits={"leaves": priority_shares(tree, "leaves")},
        replicates=15,
    )
    compare(report, mechanism, realised(truth, mechanism, ONE, 15, unit=unit, priority="leaves"))


def test_a_plan_names_what_it_tried_and_what_not():
    how = {"max_size": 6, "unit": ENTITY, "prior": "uniform", "groups": 600, "replicates": 2}
    report = plan(
        TREE, budget=[ONE, Budget(epsilon=4)], mechanisms=["all"], **how
    )  # those that can be simulated quickly
    assert report.budgets == (ONE, Budget(epsilon=4))
    assert report.splits == ("upper", "balanced", "leaves")
    assert {row.mechanism for row in report.predictions} == {
        "tallytree", "pgsr-hierarchical-dp", "pgsr-cumulative-dp", "joint-cumulative", "topdown", "bottom-up"
    }  # fmt: skip
    assert set(report.skipped) == set(MECHANISMS) - {row.mechanism for row in report.predictions}
    assert "needs the public number of groups" in report.skipped["joint-counts"]
    assert len(report.of(split="upper")) == 5 * 3
    best = report.best("county", split="leaves")
    assert best.emd == min(row.emd for row in report.of(split="leaves") if row.level == "county")
    bottom_up = [row for row in report.of() if row.mechanism == "bottom-up"]
    assert [row.split for row in bottom_up] == ["leaves"] * 3
    assert [float(share) for share in bottom_up[0].shares] == [0, 0, 1]
    more = [report.best(level, budget=Budget(epsilon=4)).half_width for level in TREE.levels]
    less = [report.best(level).half_width for level in TREE.levels]
    assert all(wide > narrow for wide, narrow in zip(less, more, strict=True))
    assert report.table().num_rows == len(report.predictions)
    assert len(json.loads(json.dumps(report.to_json()))["predictions"]) == len(report.predictions)
    usual = plan(TREE, budget=ONE, **how)
    assert {row.mechanism for row in usual.predictions} == {
        "tallytree", "joint-cumulative", "pgsr-hierarchical-dp", "bottom-up"
    }  # fmt: skip
    assert usual.skipped["topdown"] == "auto does not choose it here; name it to include it"


@pytest.mark.parametrize("max_size", [4, 8, 9, 30])
@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("unit", [ENTITY, one_group()])
def test_a_mechanism_is_left_out_only_if_the_other_view_has_far_less_noise(max_size, public, unit):
    """Against brute force: the noise of `at_least` counts, measured or added up from the best combination of counts."""
    neighbours = Neighbours(unit, max_size, public)
    measured = neighbours.sensitivity("at_least", summed=True).l1 ** 2
    sizes = np.arange(1, max_size + 1)
    above, below = max_size - sizes + 1, sizes if public else np.inf
    derived = neighbours.sensitivity("counts").l1 ** 2 * np.mean(above / (1 + above / below))
    ratio = math.sqrt(derived / measured)
    left_out = {MECHANISMS[name].view for name in set(AUTO_CANDIDATES) - set(list_candidates(neighbours))}
    if "counts" in left_out:
        assert ratio > 3
    if "at_least" in left_out:
        assert ratio < 1 / 3
    if 1 / 3 < ratio < 3:
        assert not left_out
    assert choose("auto", neighbours).name in list_candidates(neighbours)
    assert (max_size, public, unit, left_out) != (30, False, ENTITY, set())  # here something is left out


def test_the_first_simulation_which_compiles_kernels_says_nothing_about_the_time_of_the_others():
    stages = []
    options = {"prior": "households", "groups": 300, "mechanisms": ["bottom-up"], "replicates": 4}
    plan(TREE, max_size=4, budget=ONE, unit=ENTITY, **options, progress=stages.append)
    told = [(stage.doing, stage.done, stage.of) for stage in stages if stage.doing.startswith("simulating")]
    assert told == [("simulating the first release", 0, 0), *(("simulating", done, 3) for done in range(3))]


def test_a_large_tree_is_simulated_in_part_and_says_so():
    tree = grown([40] * 40)
    neighbours = Neighbours(ENTITY, 5, False)
    prior = Prior.of("households", groups=40_000)
    asked = PublicFacts(tree, neighbours), prior, [ONE], Alternatives(["joint-cumulative", "bottom-up"])
    part = predict_errors(*asked, effort=Effort(4, 1500))
    whole = predict_errors(*asked, effort=Effort(4))
    assert "simulated on 273 of 1,641 regions: at most 16 children of each" in part.notes[0]
    assert not whole.notes
    for one, other in zip(part.predictions, whole.predictions, strict=True):
        assert one.half_width == other.half_width  # from the whole tree
        # Six standard deviations of the ratio, of which 12 pairs were made: 0.072 for states, 0.014 for counties.
        if one.mechanism == "joint-cumulative" and one.split == "balanced" and one.depth > 0:
            assert one.emd == pytest.approx(other.emd, rel=0.45 if one.level == "state" else 0.1)
        if one.mechanism == "bottom-up" and one.level == "state":
            # Errors of all leaves add up, however few were simulated: never too small, and at most √2.5 too large.
            assert 1 < one.emd / other.emd < 2.2


def test_public_totals_are_given_in_order_or_by_id():
    leaves = TREE.ids[int(TREE.level_starts[-2]) :]
    options = {"max_size": 4, "budget": ONE, "unit": ENTITY, "prior": "households", "replicates": 2}
    counts = list(range(len(leaves)))
    for totals in (counts, np.array(counts), dict(zip(leaves, counts, strict=True))):
        report = plan(TREE, **options, totals=totals, mechanisms=["joint-counts"])
        assert report.facts.neighbours.public_totals
    for totals, message in (([1, 2], "14 integers"), ({"c1": 1}, "lack 13 of 14"), ([-1] * 14, "at least 0")):
        with pytest.raises(SpecError, match=message):
            plan(TREE, **options, totals=totals)


def test_wrong_plans_are_refused():
    options = {"max_size": 4, "budget": ONE, "unit": ENTITY, "prior": "households", "groups": 100}
    for change, message in (
        ({"mechanisms": ["topdwn"]}, "unknown mechanism 'topdwn'"),
        ({"mechanisms": ["joint-counts"]}, "needs the public number of groups"),
        ({"replicates": 1}, "an integer from 2"),
        ({"budget": []}, "no budget"),
        ({"confidence": 2}, "0.95"),
        ({"groups": None}, "groups = N"),
        ({"splits": {"odd": [1, 2]}}, "expected 3 shares"),
    ):
        with pytest.raises(SpecError, match=message):
            plan(TREE, **{**options, "replicates": 2, **change})
    with pytest.raises(SpecError, match="there is no level 'country'"):
        plan(TREE, **options, replicates=2, mechanisms=["topdown"]).best("country")


# -------------------------------------------------------------------- widths and goals


@pytest.mark.parametrize("name", ["joint-cumulative", "pgsr-hierarchical-dp", "bottom-up"])
@pytest.mark.parametrize("budget", [ONE, Budget(epsilon=1, delta="1e-9"), Budget(epsilon=2)], ids=str)
def test_widths_are_those_of_the_intervals_that_follow(name, budget):
    truth = Truth("large", TREE, np.full((TREE.leaf_count, 6), 5000), False)
    neighbours = Neighbours.of(truth.group_sizes(), ENTITY)
    _, asked = prepare(name, neighbours=neighbours, hierarchy=TREE, totals=None, budget=budget)
    counts = truth.all_levels()
    made = guaranteed(seeded_measurements(truth, asked, "widths"), counts, level=0.9)
    inside = (made.lower < counts) & (counts < made.upper)  # otherwise the count itself is added to the interval
    for level, width in enumerate(half_widths(TREE, neighbours, asked, confidence=0.9)):
        here = TREE.level_slice(level)
        longest = (made.upper - made.lower)[here][inside[here]].max()
        assert 2 * width - 2 <= longest <= 2 * width + 1e-6


def test_views_without_guaranteed_intervals_have_no_width():
    data = made_up(1, public_totals=True)
    neighbours = Neighbours.of(data, ENTITY)
    facts = {"neighbours": neighbours, "hierarchy": data.hierarchy, "totals": data.region_totals, "budget": ONE}
    _, asked = prepare("coc-matching", {"methods": ["sorted-sizes"] * 3}, **facts)
    assert half_widths(data.hierarchy, neighbours, asked) is None


goal_levels = st.lists(
    st.tuples(st.sampled_from(TREE.levels), st.integers(2, 60), st.sampled_from([80, 95, 99])), min_size=1, max_size=3
)


@settings(max_examples=12)
@given(goal_levels, st.sampled_from([ENTITY, one_group()]), st.sampled_from(["epsilon", "rho", "both"]))
def test_a_suggestion_meets_its_goals_when_it_is_recomputed(goals, unit, kind):
    neighbours = Neighbours(unit, 6, False)
    budget = {"epsilon": ONE, "rho": Budget(rho="0.05"), "both": Budget(epsilon=1, delta="1e-9")}[kind]
    found = suggest(
        PublicFacts(TREE, neighbours), budget, [f"{level} half-width {width} at {at}%" for level, width, at in goals]
    )
    assert sum(found.shares) == 1
    assert min(found.shares) > 0
    chosen = choose("auto", neighbours).suited_to(neighbours, TREE, None)
    asked = chosen.plan(TREE, found.budget, unit, found.by_level)
    for level, width, at in goals:
        widths = dict(zip(TREE.levels, half_widths(TREE, neighbours, asked, confidence=at / 100), strict=True))
        assert widths[level] <= width
    assert found.enough == (found.budget == budget)
    if not found.enough:
        assert found.budget.amount > budget.amount
        assert (found.budget.delta, found.budget.currency) == (budget.delta, budget.currency)


def test_a_budget_that_is_too_small_gets_the_least_that_would_do():
    neighbours = Neighbours(ENTITY, 6, False)
    goal = "county half-width 5 at 95%"
    found = suggest(PublicFacts(TREE, neighbours), Budget(epsilon="0.1"), goal)
    assert not found.enough
    assert found.budget.epsilon == Fraction(str(float(found.budget.epsilon)))  # two digits
    assert suggest(PublicFacts(TREE, neighbours), found.budget, goal).enough
    assert not suggest(
        PublicFacts(TREE, neighbours), Budget(epsilon=found.budget.epsilon * Fraction(9, 10)), goal
    ).enough


def test_goals_are_read_or_refused():
    assert Goal.parse("county within ± 20 at 95 %", TREE) == Goal("county", 20.0, 0.95)
    assert Goal.parse(" state within 2.5 at 90", TREE) == Goal("state", 2.5, 0.9)
    for text, message in (
        ("counties within 20 at 95%", "did you mean 'county'"),
        ("county below 20", "<level> within <number> at <percent>%"),
        ("county within 0 at 95%", "no error at all"),
        ("county within 5 at 100%", "from 50 to 99.99"),
        ("tract within 5 at 95%", "there are total, state, county"),
    ):
        with pytest.raises(SpecError, match=message):
            Goal.parse(text, TREE)
    neighbours = Neighbours(ENTITY, 6, False)
    with pytest.raises(SpecError, match="no goal given"):
        suggest(PublicFacts(TREE, neighbours), ONE, " ; ")
    with pytest.raises(SpecError, match="cannot be suggested for bottom-up"):
        suggest(PublicFacts(TREE, neighbours), ONE, "county half-width 5 at 95%", mechanism="bottom-up")
    wide = Neighbours(one_group(), 10**6, False)
    with pytest.raises(SpecError, match="no realistic budget meets"):
        suggest(PublicFacts(TREE, wide), ONE, "county half-width 0.5 at 95%", mechanism="joint-cumulative")


# -------------------------------------------------------------------- auto


def test_auto_without_a_prior_goes_by_sensitivities_and_with_one_by_predictions():
    tree = grown([12] * 6)
    neighbours = Neighbours(ENTITY, 8, False)
    prior = Prior.of("households", groups=7_000)
    assert choose("auto", neighbours).name == "tallytree"
    # Entities of twelve: sensitivities tip it to counts, and errors in entities are smaller by cumulative counts.
    twelves = Neighbours(ENTITY, 70, False, quantity_bound=12)
    assert choose("auto", twelves).name == "pgsr-hierarchical-dp"
    assert choose_by_prediction(PublicFacts(tree, twelves), prior, ONE).view == "at_least"
    groups = Neighbours(one_group(), 8, False)
    best = choose_by_prediction(PublicFacts(tree, groups), prior, ONE)
    assert choose("auto", groups).name == best.name == "tallytree"


def test_a_release_by_predictions_goes_on_with_the_mechanism_that_measured(tmp_path):
    tree, prior = grown([12] * 6), Prior.of("households", groups=7000)
    counts = prior.fitted(tree, first_size=1, max_size=70).sample(np.arange(tree.leaf_count))
    data = Truth("made up", tree, counts, False, quantity_bound=12).group_sizes()
    options = {"budget": ONE, "unit": ENTITY, "prior": prior}

    def interrupt(stage):
        if stage.doing == "estimating":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        release(data, **options, keep=tmp_path / "kept", progress=interrupt)
    assert choose("auto", Neighbours.of(data, ENTITY)).name == "pgsr-hierarchical-dp"
    made = resume(tmp_path / "kept")
    assert made.made_by.view == "at_least"
    assert {part.view for part in made.measurements.measured} == {"at_least"}
    made.save(tmp_path / "release")
    assert verify(tmp_path / "release").ok


def test_options_are_kept_with_the_mechanism(tmp_path):
    data = made_up(5, public_totals=True)
    methods = ["cumulative", "sorted-sizes", "sorted-sizes-l1"]

    def interrupt(stage):
        if stage.doing == "estimating":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        release(
            data, budget=ONE, unit=ENTITY, mechanism="coc-matching", options={"methods": methods},
            keep=tmp_path / "kept", progress=interrupt,
        )  # fmt: skip
    made = resume(tmp_path / "kept")
    assert (made.mechanism, made.options["methods"]) == ("coc-matching", methods)
