"""The mechanisms of the count-of-counts paper: what comes out of each choice, and what is refused before it costs."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallytree import Budget, Hierarchy, Ledger, ReleaseError, SpecError, one_entity, one_group, release, resume
from tallytree.estimate.matching import match_groups
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import MECHANISMS, prepare
from tallytree.mechanisms.count_of_counts import DEVIATIONS_ABOVE_LARGEST, MATCHED, METHODS, Settings, by_matching
from tallytree.privacy import Neighbours
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.privacy.neighbours import Sensitivity
from tallytree.privacy.noise.samplers import laplace_variance
from tallytree.publish.release.release_run import choose_for, estimate_release
from tests.oracles.example import made_up
from tests.oracles.trees import even_tree, random_tree

UNITS = [one_entity(), one_group()]


def truth(seed, *, public, levels, sizes=4, mean=4.0, **bounds):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, most_children=3)
    return Truth("made up", tree, rng.poisson(mean, (tree.leaf_count, sizes + public)), public, **bounds)


def ready(data, name, options, unit, budget, shares=None):
    group_sizes = data.group_sizes()
    return prepare(
        name,
        options,
        neighbours=Neighbours.of(group_sizes, unit),
        hierarchy=data.hierarchy,
        totals=group_sizes.region_totals,
        budget=budget,
        shares=shares,
    )


def made(data, name, options, unit, budget, *seed, shares=None):
    """The measurements and the counts."""
    mechanism, plan = ready(data, name, options, unit, budget, shares)
    measurements = seeded_measurements(data, plan, *seed, derive_facts=mechanism.derive_facts)
    return measurements, mechanism.estimate(measurements).counts


def choices(levels, seed):
    """Options of every mechanism for a tree of that many levels."""
    rng = np.random.default_rng(seed)
    mixed = [str(name) for name in rng.choice(MATCHED, levels)]
    yield "coc-matching", {"methods": mixed, "merge": "plain" if seed % 2 else "weighted"}
    yield "coc-matching", {"methods": [MATCHED[seed % len(MATCHED)]] * levels}
    yield "coc-matching", {"methods": "auto"}
    for method in METHODS:
        yield "bottom-up", {"method": method}
    if levels == 1:
        yield "naive", {}


CASES = list(product(range(8), (False, True), UNITS))


@pytest.mark.parametrize(("seed", "public", "unit"), CASES, ids=str)
def test_what_comes_out_is_whole_consistent_and_keeps_all_known_totals(seed, public, unit):
    data = truth(seed, public=public, levels=1 + seed % 4, quantity_bound=1 + seed % 3)
    tree = data.hierarchy
    budget = Budget(epsilon="0.8") if seed % 3 else Budget(rho="0.3")
    aside = {} if public else {"totals_share": "1/8"}
    if unit == one_entity() and seed % 2:
        aside["largest_share"] = "1/9"
    for name, options in choices(tree.depth, seed):
        shares = [1 + level for level in range(tree.depth)] if name == "coc-matching" and seed > 3 else None
        measurements, counts = made(data, name, {**options, **aside}, unit, budget, seed, shares=shares)
        assert counts.dtype == np.int64
        assert counts.shape == (len(tree), measurements.max_size + 1 - measurements.first_size)
        assert counts.min() >= 0
        assert np.array_equal(tree.aggregate(counts[tree.level_slice(tree.depth - 1)]), counts)
        known = data.all_levels().sum(axis=1) if public else measurements.first_stage.totals
        assert np.array_equal(counts.sum(axis=1), known)
        assert sum(part.cost for part in measurements.measured) == budget.amount
        assert sum(part.share for part in measurements.measured) == 1


@pytest.mark.parametrize(("seed", "public", "unit"), CASES, ids=str)
def test_almost_no_noise_gives_back_the_truth(seed, public, unit):
    data = truth(seed, public=public, levels=1 + seed % 4, mean=1.5)
    budget = Budget(epsilon=40_000) if seed % 2 else Budget(rho=10**6)
    aside = {} if public else {"totals_share": "1/8"}
    if unit == one_entity() and seed % 3:
        aside["largest_share"] = "1/9"
    for name, options in choices(data.hierarchy.depth, seed):
        _, counts = made(data, name, {**options, **aside}, unit, budget, seed)
        width = counts.shape[1]
        assert np.array_equal(counts, data.all_levels()[:, :width])
        assert not data.all_levels()[:, width:].any()


def test_carried_regions_and_empty_ones_are_like_any_others():
    tree = Hierarchy.from_levels({"state": ["A", "A", "B", "DC"], "county": ["a", "b", "c", None]}, ["state", "county"])
    for public in (False, True):
        leaves = np.array([[3, 1, 0, 1], [0, 0, 0, 0], [0, 2, 0, 4], [1, 0, 5, 0]])
        data = Truth("few", tree, leaves, public)
        aside = {} if public else {"totals_share": "1/8"}
        for name, options in choices(tree.depth, 5):
            measurements, counts = made(data, name, {**options, **aside}, one_entity(), Budget(epsilon=1), 3)
            assert np.array_equal(tree.aggregate(counts[tree.level_slice(2)]), counts)
            assert np.array_equal(counts.sum(axis=1), measurements.known_totals)
            assert np.array_equal(counts[tree.ids.index("DC")], counts[-1])
            empty = made(
                Truth("none", tree, np.zeros_like(leaves), public),
                name,
                {**options, **aside},
                one_entity(),
                Budget(epsilon=1),
                3,
            )[1]
            assert not public or not empty.any()


def test_one_size_alone_is_estimated_too():
    """With a largest size of 1 and settled totals nothing is left to estimate; all is known from the totals."""
    for public in (False, True):
        data = truth(2, public=public, levels=3, sizes=1)
        aside = {} if public else {"totals_share": "1/2", "largest_share": "1/4"}
        for name, options in choices(3, 1):
            measurements, counts = made(data, name, {**options, **aside}, one_entity(), Budget(epsilon=1), 3)
            assert np.array_equal(counts.sum(axis=1), measurements.known_totals)


def test_the_same_measurements_give_the_same_counts_and_other_seeds_give_others():
    data = truth(3, public=True, levels=3, mean=20)
    for name, options in choices(data.hierarchy.depth, 2):
        one, same, other = (made(data, name, options, one_entity(), Budget(epsilon=1), seed)[1] for seed in (1, 1, 2))
        assert np.array_equal(one, same)
        assert not np.array_equal(one, other)


def test_methods_work_on_what_their_level_measured():
    data = truth(3, public=True, levels=3)
    methods = ["sorted-sizes", "cumulative", "sorted-sizes-l1"][: data.hierarchy.depth]
    measurements, _ = made(data, "coc-matching", {"methods": methods}, one_entity(), Budget(epsilon=1), 1)
    assert [part.view for part in measurements.measured] == ["sorted_sizes", "at_least", "sorted_sizes"]
    other = MECHANISMS["coc-matching"].configured({"methods": ["cumulative"] * 3})
    with pytest.raises(SpecError, match="'cumulative' works on at_least, but level 0 measured sorted_sizes"):
        other.estimate(measurements)
    with pytest.raises(SpecError, match="2 methods for 3 levels"):
        by_matching(Settings(methods=("sorted-sizes", "cumulative")), measurements)
    leaves, _ = made(data, "bottom-up", {}, one_entity(), Budget(epsilon=1), 1)
    with pytest.raises(ReleaseError, match="expected one measurement of sizes on level 0"):
        other.estimate(leaves)


def test_settled_totals_are_consistent_whole_and_near_the_measured_ones():
    for seed in range(6):
        data = truth(seed, public=False, levels=3, mean=0.4)
        measurements, _ = made(data, "coc-matching", {"totals_share": "1/3"}, one_entity(), Budget(epsilon=1), seed)
        totals, tree = measurements.first_stage.totals, data.hierarchy
        assert totals.min() >= 0
        assert np.array_equal(tree.aggregate(totals[tree.level_slice(tree.depth - 1)]), totals)
        leaves, _ = made(data, "bottom-up", {"totals_share": "1/3"}, one_entity(), Budget(epsilon=1), seed)
        noisy = next(part.values for part in leaves.measured if part.view == "totals")
        assert np.array_equal(leaves.first_stage.totals, tree.aggregate(np.maximum(noisy[:, 0], 0)))


@given(st.integers(-50, 50), st.fractions(Fraction(1, 10), 40), st.integers(1, 30))
def test_a_settled_largest_size_is_raised_by_the_noise_it_may_lack_and_stays_in_range(noisy, scale, most):
    tree = Hierarchy.from_edges([("all", "")])
    variance = laplace_variance(scale)
    part = Measurement(
        "largest", 0, Fraction(1), Sensitivity(1, 1), "discrete_laplace", scale, variance, np.array([[noisy]])
    )
    measurements = Measurements(
        tree, Neighbours(one_entity(), most, True), Budget(epsilon=1), (part,), np.array([9]), "seeded", False
    )
    found = MECHANISMS["naive"].derive_facts(measurements).max_size
    raised = noisy + DEVIATIONS_ABOVE_LARGEST * variance**0.5
    assert 1 <= found <= most
    assert found >= min(raised, most)
    assert found < raised + 1 or found == 1


def test_the_bound_on_the_largest_size_fails_less_than_once_in_two_thousand():
    """P(noise ≤ −n) = α^n / (1 + α) for discrete Laplace noise with α = exp(−1/scale)."""
    for scale in np.geomspace(0.05, 1e6, 400):
        alpha, reach = np.exp(-1 / scale), np.ceil(DEVIATIONS_ABOVE_LARGEST * laplace_variance(Fraction(scale)) ** 0.5)
        assert alpha ** (reach + 1) / (1 + alpha) < 1 / 2000


# -------------------------------------------------------------------- refused before anything is spent

REFUSED = {
    "too many methods": ("coc-matching", {"methods": ["cumulative"] * 4}, True, "one method for each level .* not 4"),
    "too few methods": ("coc-matching", {"methods": ["cumulative"]}, True, "one method for each level .* not 1"),
    "no methods": ("coc-matching", {"methods": []}, True, "one method for each level .* not 0"),
    "an unknown method": (
        "coc-matching",
        {"methods": ["cumulatve"] * 3},
        True,
        "unknown method 'cumulatve'; there are",
    ),
    "naive on a level": ("coc-matching", {"methods": ["naive"] * 3}, True, "unknown method 'naive'"),
    "methods in one number": ("coc-matching", {"methods": 3}, True, "methods must be one for all levels, a list"),
    "an unknown method for all": ("coc-matching", {"methods": "cumulatve"}, True, "unknown method 'cumulatve'"),
    "levels apart": ("coc-matching", {"merge": "none"}, True, "coc-matching cannot be released: .* need not add up"),
    "an unknown method of leaves": ("bottom-up", {"method": "sorted"}, True, "unknown method 'sorted'; there are"),
    "an unknown merge": ("coc-matching", {"merge": "best"}, True, "merge must be weighted or plain"),
    "an unknown option": ("coc-matching", {"method": "cumulative"}, True, "has no option 'method'; it has methods"),
    "another's option": ("bottom-up", {"methods": ["cumulative"]}, True, "has no option 'methods'"),
    "naive has no method": ("naive", {"method": "cumulative"}, True, "has no option 'method'"),
    "an option for none": ("joint-cumulative", {"merge": "plain"}, True, "takes no options, but was given merge"),
    "options with auto": ("auto", {"methods": ["cumulative"] * 3}, True, "tallytree has no option 'methods'"),
    "naive on three levels": ("naive", {}, True, "naive is for data with a single region, and these have 3 levels"),
    "totals that are public": ("coc-matching", {"totals_share": "0.1"}, True, "would buy nothing"),
    "public totals, bottom-up": ("bottom-up", {"totals_share": "0.1"}, True, "would buy nothing"),
    "totals that are private": ("coc-matching", {}, False, r"set aside a share .*totals_share"),
    "lists on private totals": ("bottom-up", {"method": "sorted-sizes"}, False, r"set aside a share .*totals_share"),
    "counts on private totals": ("bottom-up", {"method": "naive"}, False, r"set aside a share .*totals_share"),
    "nothing left": ("coc-matching", {"totals_share": "0.5", "largest_share": "1/2"}, False, "leave nothing"),
    "a whole share": ("coc-matching", {"totals_share": 1}, False, "totals_share must lie between 0 and 1, not 1"),
    "no share": ("coc-matching", {"largest_share": 0}, True, "largest_share must lie between 0 and 1, not 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_options_are_refused_before_anything_is_spent(case, tmp_path):
    name, options, public, message = REFUSED[case]
    data = made_up(3, public_totals=public, name="people")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=1), Neighbours.of(data, one_entity()))
    with pytest.raises(SpecError, match=message):
        release(
            data,
            budget=Budget(epsilon=1),
            unit=one_entity(),
            mechanism=name,
            options=options,
            ledger=ledger,
            keep=tmp_path / "kept",
        )
    assert ledger.account("people").spent == 0
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("name", ["coc-matching", "bottom-up"])
def test_a_largest_size_is_not_measured_where_groups_are_protected(name, tmp_path):
    data = made_up(3, public_totals=True, name="people")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=1), Neighbours.of(data, one_group()))
    with pytest.raises(SpecError, match="cannot be measured with one_group"):
        release(
            data,
            budget=Budget(epsilon=1),
            unit=one_group(),
            mechanism=name,
            options={"largest_share": "0.1"},
            ledger=ledger,
        )
    with pytest.raises(SpecError, match="cannot be measured with one_group"):  # without data, as `validate` asks
        MECHANISMS[name].configured({"largest_share": "0.1"}).check(Neighbours(one_group(), 6, True))
    with pytest.raises(SpecError, match=r"expected 3 shares|takes no shares"):
        release(data, budget=Budget(epsilon=1), unit=one_group(), mechanism=name, shares=[1, 2], ledger=ledger)
    assert ledger.account("people").spent == 0


# -------------------------------------------------------------------- options on their way


def test_options_are_plain_values_that_configure_the_same_mechanism_again():
    options = {"methods": ["cumulative", "sorted-sizes"], "merge": "plain", "totals_share": 0.1, "largest_share": "1/3"}
    mechanism = MECHANISMS["coc-matching"].configured(options)
    assert mechanism.options == {**options, "totals_share": "1/10"}
    assert mechanism.variant == "Hc×Hg"
    again = MECHANISMS["coc-matching"].configured(mechanism.options)
    assert again.settings == mechanism.settings
    assert MECHANISMS["bottom-up"].options == {"method": "cumulative"}
    assert MECHANISMS["naive"].options == {}
    assert MECHANISMS["naive"].settings.method == "naive"
    assert MECHANISMS["coc-matching"].configured({"methods": "auto"}).settings.methods is None
    assert MECHANISMS["coc-matching"].settings == Settings(), "the table itself is never changed"


def test_what_was_left_open_is_decided_the_same_again_from_the_measurements_alone(tmp_path):
    for public, shares in product((False, True), (None, [1, 2, 3])):
        data = made_up(3, public_totals=public)
        options = {} if public else {"totals_share": "0.2"}
        kept = tmp_path / f"{public}-{shares is None}"
        whole = release(
            data,
            budget=Budget(epsilon=1),
            unit=one_entity(),
            mechanism="coc-matching",
            options=options,
            shares=shares,
            keep=kept,
        )
        assert len(whole.options["methods"]) == 3
        for again in (
            estimate_release(whole.measurements, choose_for(whole.measurements, "coc-matching", options)),
            resume(kept, mechanism="coc-matching", options=options),
        ):
            assert again.options == whole.options
            assert np.array_equal(again.counts, whole.counts)


def test_a_method_for_each_level_is_chosen_from_public_facts_alone():
    """Two truths with the same public facts and nothing else in common get the same methods."""
    rng = np.random.default_rng(5)
    for max_size in (3, 1000):
        tree = random_tree(rng, 3, 3)
        leaves = np.zeros((tree.leaf_count, max_size + 1), np.int64)
        leaves[:, 0] = 20
        moved = np.roll(leaves, max_size, axis=1)
        chosen = [
            ready(Truth("x", tree, counts, True), "coc-matching", {}, one_entity(), Budget(epsilon=1))[0].settings
            for counts in (leaves, moved)
        ]
        assert chosen[0] == chosen[1]
        assert set(chosen[0].methods) <= set(MATCHED)


def test_one_word_is_a_method_for_all_levels():
    data = truth(2, public=True, levels=3)
    for name in MATCHED:
        one, each = (
            ready(data, "coc-matching", {"methods": methods}, one_entity(), Budget(epsilon=1))
            for methods in (name, [name] * 3)
        )
        assert one[0].settings == each[0].settings
        assert one[1] == each[1]


def test_levels_by_themselves_are_what_is_matched_and_the_leaves_are_those_of_bottom_up():
    """With `merge` none the levels' own estimates come out: in experiments only, since they need not add up."""
    tree = even_tree(3, 6)
    data = Truth("x", tree, np.random.default_rng(3).poisson(5, (tree.leaf_count, 6)), True)
    apart = MECHANISMS["coc-matching"].configured({"methods": "cumulative", "merge": "none"})
    plan = apart.plan(tree, Budget(epsilon=1), one_entity())
    measurements = seeded_measurements(data, plan, 1)
    counts = apart.estimate(measurements).counts
    leaves = tree.level_slice(tree.depth - 1)
    assert not np.array_equal(tree.aggregate(counts[leaves]), counts)
    assert np.array_equal(counts.sum(axis=1), data.all_levels().sum(axis=1))
    assert np.array_equal(MECHANISMS["bottom-up"].estimate(measurements).counts[leaves], counts[leaves])
    spreads = [2 * part.variance for part in measurements.measured]
    assert np.array_equal(
        match_groups(counts, tree, spreads=spreads, weighted=True),
        MECHANISMS["coc-matching"].configured({"methods": "cumulative"}).estimate(measurements).counts,
    )


# -------------------------------------------------------------------- the paper's small examples


def test_the_four_groups_of_the_papers_introduction_come_out_of_every_mechanism():
    """Groups of sizes 4 and 1 in a, 2 and 1 in b: H is [2, 1, 0, 1], [1, 0, 0, 1] and [1, 1, 0, 0]."""
    tree = Hierarchy.from_edges([("a", "top"), ("b", "top")])
    leaves = np.array([[0, 1, 0, 0, 1], [0, 1, 1, 0, 0]])
    for public in (False, True):
        data = Truth("four groups", tree, leaves if public else leaves[:, 1:].copy(), public)
        aside = {} if public else {"totals_share": "0.1"}
        for name, options in choices(2, 3):
            measurements, counts = made(data, name, {**options, **aside}, one_entity(), Budget(epsilon=10**4), 1)
            assert counts[:, -4:].tolist() == [[2, 1, 0, 1], [1, 0, 0, 1], [1, 1, 0, 0]]
            for part in measurements.measured:
                if part.view == "sorted_sizes":
                    assert part.values.tolist() == ([1, 1, 2, 4] if part.level == 0 else [1, 4, 1, 2])
