"""The table of mechanisms: what may be released, what is refused and why, and what comes out of each."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tallytree import Budget, SpecError, one_entity, one_group, release, verify
from tallytree.lab import Truth
from tallytree.lab.rivals.cost_tables import MOST_ENTRIES
from tallytree.lab.rivals.estimators import MOST_PROGRAMS, domain_reach
from tallytree.lab.rivals.solvers import MOST_CELLS
from tallytree.lab.truth import seeded_measurements
from tallytree.mechanisms import (
    ALIASES,
    AUTO,
    MECHANISMS,
    Estimate,
    Mechanism,
    aliases_of,
    choose,
    leans_to_at_least,
    mechanism_named,
    prepare,
)
from tallytree.mechanisms.settings import MOST_COUNTED
from tallytree.privacy import Neighbours
from tests.oracles.example import made_up
from tests.oracles.trees import cost, even_tree, random_tree

UNITS = [one_entity(), one_group()]
RELAXED = {"pgsr-hierarchical-relaxed", "pgsr-cumulative-relaxed"}
NAMES = {
    "tallytree",
    "pgsr-hierarchical-dp",
    "pgsr-hierarchical-exact",
    "pgsr-hierarchical-relaxed",
    "pgsr-hierarchical-tables",
    "pgsr-cumulative-dp",
    "pgsr-cumulative-exact",
    "pgsr-cumulative-relaxed",
    "pgsr-chain",
    "topdown",
    "bluedown",
    "inftda",
    "joint-cumulative",
    "joint-counts",
}
PROGRAMS = "pgsr-hierarchical-programs"  # too slow for all but the tiniest data
COUNT_OF_COUNTS = {"coc-matching", "bottom-up", "naive"}  # tests/mechanisms/test_count_of_counts.py has more of these


def truth(seed, *, public, levels=3, **bounds):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, most_children=3)
    counts = rng.poisson(4, (tree.leaf_count, 4 + public))
    return Truth("made up", tree, counts, public, **bounds)


def test_every_mechanism_of_the_papers_is_there_by_name():
    assert set(MECHANISMS) == NAMES | COUNT_OF_COUNTS | {PROGRAMS}
    for name in MECHANISMS:
        assert mechanism_named(name).name == name
        json.dumps(mechanism_named(name).described())
    with pytest.raises(SpecError, match="unknown mechanism"):
        mechanism_named("pgsr-chain-as-printed")  # lives in tallytree.lab only


def test_the_papers_symbols_are_names_of_mechanisms_that_display_them():
    for alias, (name, options) in ALIASES.items():
        assert alias not in MECHANISMS
        row = mechanism_named(alias)
        assert row.name == name
        assert row.options == {**MECHANISMS[name].options, **options}
        assert alias in aliases_of(row)
        if alias != "H_g":  # the symbol of its row is that of the other method
            assert row.symbol.startswith(alias)
    papers = {row.name for row in MECHANISMS.values() if row.symbol.startswith("M_") and "any size" not in row.symbol}
    assert papers - {name for name, _ in ALIASES.values()} == {"pgsr-hierarchical-tables"}  # M_H^dp with tables
    with pytest.raises(SpecError, match=r"unknown mechanism 'M_C\^dp'; did you mean 'M_c\^dp'"):
        mechanism_named("M_C^dp")
    data = truth(1, public=True)
    how = {"budget": Budget(epsilon=1), "unit": one_entity(), "intervals": "none"}
    made = release(data.group_sizes(), mechanism="H_g", **how)
    assert (made.mechanism, made.options["methods"]) == ("coc-matching", ["sorted-sizes"] * 3)
    assert release(data.group_sizes(), mechanism="M_c^dp", **how).mechanism == "pgsr-cumulative-dp"


@pytest.mark.parametrize("name", sorted(NAMES))
def test_what_comes_out_is_whole_and_keeps_what_is_promised(name):
    mechanism = MECHANISMS[name]
    for seed, public, unit in product(range(4), (False, True), UNITS):
        if mechanism.needs_public_totals and not public:
            continue
        data = truth(seed, public=public, quantity_bound=1 + seed % 3, levels=1 + seed)
        shares = [1 + level for level in range(data.hierarchy.depth)] if seed % 2 else None
        budget = Budget(epsilon=1) if seed < 3 else Budget(rho="0.5")
        plan = mechanism.plan(data.hierarchy, budget, unit, shares)
        counts = mechanism.estimate(seeded_measurements(data, plan, seed)).counts
        assert counts.dtype == np.int64
        assert counts.shape == data.all_levels().shape
        assert counts.min() >= 0
        if name in RELAXED:
            continue
        tree = data.hierarchy
        assert np.array_equal(tree.aggregate(counts[tree.level_slice(tree.depth - 1)]), counts)
        if public:
            assert counts[0].sum() == data.counts.sum()
        if public and mechanism.keeps_totals:
            assert np.array_equal(counts.sum(axis=1), data.all_levels().sum(axis=1))


@pytest.mark.parametrize("name", sorted(NAMES))
def test_almost_no_noise_gives_back_the_truth(name):
    for public in (False, True):
        if MECHANISMS[name].needs_public_totals and not public:
            continue
        data = truth(11, public=public)
        plan = MECHANISMS[name].plan(data.hierarchy, Budget(epsilon=5000), one_entity())
        estimate = MECHANISMS[name].estimate(seeded_measurements(data, plan, 1))
        assert np.array_equal(estimate.counts, data.all_levels())


def test_mechanisms_with_the_same_objective_reach_the_same_optimum_with_uneven_shares_too():
    for seed, public in product(range(8), (False, True)):
        data = truth(seed, public=public)
        plan = MECHANISMS["pgsr-hierarchical-dp"].plan(data.hierarchy, Budget(epsilon=3), one_entity(), [1] * 3)
        measurements = seeded_measurements(data, plan, seed)
        noisy = measurements.stacked("counts")
        costs = {
            name: cost(noisy, MECHANISMS[name].estimate(measurements).counts, data.hierarchy)
            for name in ("pgsr-hierarchical-dp", "pgsr-hierarchical-exact", "pgsr-hierarchical-tables", "topdown")
        }
        assert costs["pgsr-hierarchical-exact"] == costs["pgsr-hierarchical-dp"] == costs["pgsr-hierarchical-tables"]
        assert costs["topdown"] >= costs["pgsr-hierarchical-dp"]
        uneven = MECHANISMS["pgsr-hierarchical-dp"].plan(data.hierarchy, Budget(epsilon=3), one_entity(), [4, 2, 1])
        measurements = seeded_measurements(data, uneven, seed)
        weights = [1 / variance for variance in measurements.variances("counts")]
        noisy = measurements.stacked("counts")
        exact, fast = (
            cost(noisy, MECHANISMS[name].estimate(measurements).counts, data.hierarchy, weights)
            for name in ("pgsr-hierarchical-exact", "pgsr-hierarchical-dp")
        )
        assert exact == pytest.approx(fast, rel=1e-5)


def test_the_joint_estimate_is_never_nearer_than_the_proven_optimum():
    for seed, public in product(range(8), (False, True)):
        data = truth(seed, public=public)
        plan = MECHANISMS["joint-cumulative"].plan(data.hierarchy, Budget(epsilon=1), one_entity())
        measurements = seeded_measurements(data, plan, seed)
        proven, joint = (
            MECHANISMS[name].estimate(measurements).counts for name in ("pgsr-cumulative-exact", "joint-cumulative")
        )
        first = 1 if public else 0
        costs = [
            int(
                ((np.cumsum(counts[:, ::-1], axis=1)[:, ::-1][:, first:] - measurements.stacked("at_least")) ** 2).sum()
            )
            for counts in (proven, joint)
        ]
        assert costs[0] <= costs[1] <= 1.2 * costs[0]


@pytest.mark.parametrize("name", sorted(COUNT_OF_COUNTS))
def test_methods_for_counts_of_counts_need_no_options_with_public_totals(name):
    """Like every other mechanism: out of the table, with a plan of its own, integers that keep their promises."""
    mechanism = MECHANISMS[name]
    for seed, unit in product(range(4), UNITS):
        data = truth(seed, public=True, levels=1 if name == "naive" else 1 + seed)
        plan = mechanism.plan(data.hierarchy, Budget(epsilon=1), unit)
        counts = mechanism.estimate(seeded_measurements(data, plan, seed)).counts
        assert counts.min() >= 0
        assert np.array_equal(counts.sum(axis=1), data.all_levels().sum(axis=1))
        leaves = counts[data.hierarchy.level_slice(data.hierarchy.depth - 1)]
        assert np.array_equal(data.hierarchy.aggregate(leaves), counts)


def test_what_a_mechanism_measures_and_takes_is_said_in_words():
    assert MECHANISMS["topdown"].measures == "counts, on every level"
    matching, leaves = MECHANISMS["coc-matching"], MECHANISMS["bottom-up"]
    assert "on every level" in matching.measures
    assert "sorted_sizes (sorted-sizes, sorted-sizes-l1)" in matching.measures
    assert "naive" not in matching.measures
    assert "on the lowest level" in leaves.measures
    assert "counts (naive)" in leaves.measures
    assert "at_least" not in MECHANISMS["naive"].measures
    assert matching.described()["takes"] == ("methods", "merge", "totals_share", "largest_share")
    assert "settings" not in matching.described()


def test_one_constraint_program_per_entry_estimates_the_same():
    data = Truth("tiny", even_tree(2), np.array([[2, 0], [1, 1]]), public_totals=False)
    plan = MECHANISMS["pgsr-hierarchical-tables"].plan(data.hierarchy, Budget(epsilon=8), one_entity())
    measurements = seeded_measurements(data, plan, 3)
    noisy = measurements.stacked("counts")
    merged, solved = (MECHANISMS[name].estimate(measurements).counts for name in ("pgsr-hierarchical-tables", PROGRAMS))
    neighbours = Neighbours.of(data.group_sizes(), one_entity())
    MECHANISMS[PROGRAMS].fits(neighbours, data.hierarchy, plan)
    many = MECHANISMS[PROGRAMS].plan(data.hierarchy, Budget(epsilon="0.01"), one_entity())
    with pytest.raises(SpecError, match=f"would solve .* constraint programs, more than {MOST_PROGRAMS:,}"):
        MECHANISMS[PROGRAMS].fits(neighbours, data.hierarchy, many)
    assert cost(noisy, merged, data.hierarchy) == cost(noisy, solved, data.hierarchy)


@pytest.mark.parametrize("name", sorted(RELAXED))
def test_a_release_refuses_relaxed_mechanisms_by_name_and_says_why(name):
    with pytest.raises(SpecError, match=f"{name} cannot be released: .* need not add up"):
        release(made_up(1, public_totals=True), budget=Budget(epsilon=1), unit=one_entity(), mechanism=name)
    data = Truth("even", even_tree(4, 12), np.random.default_rng(1).poisson(9, (12, 5)), public_totals=False)
    plan = MECHANISMS[name].plan(data.hierarchy, Budget(epsilon=1), one_entity())
    counts = MECHANISMS[name].estimate(seeded_measurements(data, plan, 1)).counts
    leaves = counts[data.hierarchy.level_slice(2)]
    assert not np.array_equal(data.hierarchy.aggregate(leaves), counts), "this is why"


def test_what_does_not_fit_the_data_is_refused_before_anything_is_spent(tmp_path):
    private = made_up(1, public_totals=False)
    options = {"budget": Budget(epsilon=1), "unit": one_group()}
    with pytest.raises(SpecError, match="joint-counts needs the public number of groups"):
        release(private, mechanism="joint-counts", keep=tmp_path / "kept", **options)
    large = replace_size(private, MOST_CELLS)
    for name in ("pgsr-hierarchical-exact", "pgsr-cumulative-exact"):
        with pytest.raises(SpecError, match=f"{name} is for at most {MOST_CELLS:,} cells"):
            release(large, mechanism=name, keep=tmp_path / "kept", **options)
    with pytest.raises(SpecError, match=rf"more than {MOST_ENTRIES:,}; pgsr-hierarchical-dp"):
        release(private, budget=Budget(epsilon="0.001"), unit=one_group(), mechanism="pgsr-hierarchical-tables")
    assert not (tmp_path / "kept").exists()


def replace_size(data, max_size):
    from tallytree.tables import GroupSizes, Sealed

    return GroupSizes(data.hierarchy, max_size, Sealed(np.zeros((data.hierarchy.leaf_count, max_size), dtype=np.int64)))


def test_auto_decides_by_unit_totals_and_quantity_bound():
    tree = even_tree(3, 6)

    def chosen(unit, public, max_size=10, **bounds):
        relation = Neighbours(unit, max_size, public, **bounds)
        totals = tree.aggregate(np.full(6, 1000)) if public else None
        row = choose("auto", relation).suited_to(relation, tree, totals)
        return row.options["leaves"] if row.name == "tallytree" else row.name

    for public in (False, True):
        assert chosen(one_entity(), public) == "at_least"
        assert chosen(one_entity(), public, rows_per_entity=3) == "at_least"
        assert chosen(one_entity(), public, quantity_bound=2, rows_per_entity=3) == "at_least"
    assert chosen(one_entity(), False, quantity_bound=4) == "at_least"
    for unit, bounds in ((one_entity(), {"quantity_bound": 5}), (one_group(), {})):
        assert chosen(unit, True, **bounds) == "counts"
        assert chosen(unit, False, **bounds) == "counts_total"
    assert chosen(one_entity(), True, quantity_bound=3) == "counts"
    assert chosen(one_group(), False, MOST_COUNTED) == "counts_total"
    assert chosen(one_group(), False, MOST_COUNTED + 1) == "pgsr-hierarchical-dp"
    assert chosen(one_group(), True, MOST_COUNTED + 1) == "joint-counts"


@pytest.mark.parametrize("public", [False, True])
def test_survival_counts_are_measured_where_they_come_out_better_than_sums_of_noisy_counts(public):
    for max_size in (12, 60, 200):
        # Sums from each size up of numbers with variance 4; with a public total, their best estimate given their sum.
        noise = 4 * np.eye(max_size + public)
        noise -= 4 / len(noise) if public else 0
        upward = np.triu(np.ones_like(noise))[int(public) :]
        from_counts = np.diag(upward @ noise @ upward.T).mean()
        for bound in range(1, max_size + 1):
            at_least = bound**2
            if not 0.9 < at_least / from_counts < 1.1:
                relation = Neighbours(one_entity(), max_size, public, quantity_bound=bound)
                assert leans_to_at_least(relation) == (at_least < from_counts)


def add_up_the_leaves(measurements):
    tree = measurements.hierarchy
    leaves = measurements.stacked("counts")[tree.level_slice(tree.depth - 1)]
    return Estimate(tree.aggregate(np.maximum(leaves, 0)), "the leaves as measured, none negative, added up")


def test_a_mechanism_is_an_estimator_and_one_row():
    row = Mechanism(
        name="my-way", symbol="M", paper="none", view="counts", estimate=add_up_the_leaves, cost="none", use="tests"
    )  # fmt: skip
    data = truth(3, public=False)
    facts = {"neighbours": Neighbours.of(data.group_sizes(), one_entity()), "hierarchy": data.hierarchy, "totals": None}
    chosen, plan = prepare(row, **facts, budget=Budget(epsilon=5000))
    assert chosen is row
    assert np.array_equal(chosen.estimate(seeded_measurements(data, plan, 1)).counts, data.all_levels())
    with pytest.raises(SpecError, match="my-way takes no options"):
        prepare(row, {"merge": "plain"}, **facts, budget=Budget(epsilon=1))


def test_a_mechanism_is_passed_on_as_itself_with_the_options_it_has():
    neighbours = Neighbours(one_entity(), 10, True)
    plain = choose("coc-matching", neighbours, {"merge": "plain"})
    assert choose(plain, neighbours) is plain
    assert choose(plain, neighbours, {"methods": ["cumulative"]}).options == {
        "merge": "plain",
        "methods": ["cumulative"],
    }
    with pytest.raises(SpecError, match="needs the public number of groups"):
        choose(MECHANISMS["joint-counts"], Neighbours(one_group(), 10, False))


def test_the_papers_domain_follows_from_the_noise():
    assert domain_reach("discrete_laplace", Fraction(6)) == 3 * 72
    assert domain_reach("discrete_laplace", Fraction(3, 5)) == 3
    assert domain_reach("discrete_gaussian", Fraction(7, 2)) == 12


def test_a_release_that_keeps_every_total_is_held_to_it(tmp_path):
    made = release(made_up(4, public_totals=True), budget=Budget(epsilon=1), unit=one_entity())
    assert MECHANISMS[made.mechanism].keeps_totals
    made.save(tmp_path / "release")
    assert verify(tmp_path / "release").ok
    counts = made.counts.copy()
    rows = made.hierarchy.level_slice(2)
    counts[rows.start, 0] += 1
    counts[rows.start + 1, counts[rows.start + 1].argmax()] -= 1
    replace(made, counts=counts).save(tmp_path / "moved")
    assert any("does not add up" in fault for fault in verify(tmp_path / "moved").faults)


def test_auto_is_the_one_default_and_says_what_it_takes():
    cases = product(UNITS, (12, 100), (True, False), (1, 50))
    chosen = {choose("auto", Neighbours(*facts, quantity_bound=most)).name for *facts, most in cases}
    assert {row.name for row in MECHANISMS.values() if re.search(rf"(?<![\w-]){row.name}(?![\w-])", AUTO)} == chosen
    assert not [row.name for row in MECHANISMS.values() if "default" in f"{row.use} {row.cost}"]


def test_without_shares_the_default_chooses_them_and_every_other_mechanism_divides_equally():
    tree, budget = even_tree(3, 60), Budget(epsilon=1)
    for name in ("tallytree", "joint-cumulative", "pgsr-cumulative-dp", "bluedown"):
        how = {"neighbours": Neighbours(one_entity(), 5, public_totals=False), "hierarchy": tree, "totals": None}
        _, plan = prepare(name, **how, budget=budget)
        assert ({query.share for query in plan.queries} == {Fraction(1, 3)}) == (name != "tallytree")
