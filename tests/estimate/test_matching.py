from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.core.errors import SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import at_least, counts_from_at_least, earth_movers_distance
from tallytree.estimate import non_increasing
from tallytree.estimate.matching import match_groups, pairs, runs_by_size, share
from tests.oracles.matching import group_pairs, listed, slow_matched
from tests.oracles.trees import even_tree, is_feasible, random_tree

# Few different spreads, so that averages often lie exactly on a half.
some_spreads = st.lists(st.sampled_from([1, 2, 3, 8, 40]), min_size=4, max_size=4)
seeds = st.integers(0, 2**32 - 1)


def estimates(rng, tree, sizes, most):
    """Independent histograms of every region with totals that add up; about a third of the leaves have no groups."""
    leaf_totals = rng.integers(0, most + 1, tree.leaf_count) * (rng.random(tree.leaf_count) < 0.7)
    totals = tree.aggregate(leaf_totals)
    shapes = rng.dirichlet(np.full(sizes, 0.5), len(tree))
    return np.array([rng.multinomial(total, shape) for total, shape in zip(totals, shapes, strict=True)])


def family(rng, most=12):
    """A parent's histogram and its children's, independent but with one total."""
    children = rng.integers(0, 4, (rng.integers(1, 5), rng.integers(1, 6))) * rng.integers(0, 2)
    children[rng.integers(0, len(children))] += rng.integers(0, most // 4, children.shape[1])
    parent = rng.multinomial(children.sum(), rng.dirichlet(np.full(children.shape[1], 0.5)))
    return parent, children


# -------------------------------------------------------------------- the matching


def matching(parent, children, first_size=0):
    """Rows (parent's size, child, child's size, groups): so many groups of the parent are those of that child."""
    starts, owners, left, together = runs_by_size(children)
    parts, scratch = np.empty(len(children), np.int64), np.empty((2, len(children)), np.int64)
    rows, turn = [], 0
    for size, child_size, groups in pairs(parent, together):
        here = slice(starts[child_size], starts[child_size + 1])
        turn = share(left[here], owners[here], together[child_size], groups, turn, parts, scratch)
        together[child_size] -= groups
        for child, part in zip(owners[here], parts, strict=False):
            if part > 0:
                rows.append((first_size + size, child, first_size + child_size, part))
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def test_no_matching_costs_less():
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(1)
    dear = 0
    for _ in range(300):
        parent, children = family(rng)
        flows = matching(parent, children)
        above, below = listed(parent), [size for child in children for size in listed(child)]
        costs = np.abs(np.subtract.outer(above, below))
        least = costs[optimize.linear_sum_assignment(costs)].sum()
        assert (flows[:, 3] * np.abs(flows[:, 0] - flows[:, 2])).sum() == least
        dear += least > 0
    assert dear > 100  # the cases are not trivial


@settings(max_examples=200)
@given(seed=seeds)
def test_every_group_is_matched_once(seed):
    parent, children = family(np.random.default_rng(seed))
    flows = matching(parent, children)
    assert (flows[:, 3] > 0).all()
    assert np.array_equal(np.bincount(flows[:, 0], flows[:, 3], len(parent)), parent)
    found = np.zeros_like(children)
    np.add.at(found, (flows[:, 1], flows[:, 2]), flows[:, 3])
    assert np.array_equal(found, children)


@settings(max_examples=200)
@given(seed=seeds)
def test_runs_are_matched_as_listed_groups_are(seed):
    parent, children = family(np.random.default_rng(seed), most=40)
    flows = matching(parent, children)
    found = Counter({(size, child, child_size): groups for size, child, child_size, groups in flows.tolist()})
    assert len(found) == len(flows)
    assert found == Counter(group_pairs(listed(parent), [listed(child) for child in children]))


def test_what_the_children_lack_of_a_size_is_matched_with_their_next():
    flows = matching(np.array([300, 0, 0]), np.array([[120, 60, 0], [80, 0, 40]]), first_size=1)
    assert flows.tolist() == [[1, 0, 1, 120], [1, 1, 1, 80], [1, 0, 2, 60], [1, 1, 3, 40]]


def test_a_short_run_is_split_in_proportion():
    flows = matching(np.array([300, 100]), np.array([[200, 0], [100, 0], [100, 0]]), first_size=1)
    assert flows[:3].tolist() == [[1, 0, 1, 150], [1, 1, 1, 75], [1, 2, 1, 75]]
    assert flows[3:].tolist() == [[2, 0, 1, 50], [2, 1, 1, 25], [2, 2, 1, 25]]


def test_proportions_that_are_no_integers_go_by_largest_remainder():
    # 10 of 17 groups: 10·9/17 = 5.29, 10·5/17 = 2.94, 10·3/17 = 1.76.
    flows = matching(np.array([10, 7]), np.array([[9, 0], [5, 0], [3, 0]]))
    assert flows[:3, 3].tolist() == [5, 3, 2]


def test_equal_remainders_are_served_in_turn():
    flows = matching(np.ones(12, dtype=np.int64), np.array([[4, *[0] * 11]] * 3))
    assert flows[:, 1].tolist() == [0, 1, 2] * 4


def test_the_turn_passes_over_children_without_groups_of_the_size():
    children = np.array([[0, 2, 0, 0], [1, 0, 0, 0], [1, 2, 0, 0]])
    flows = matching(np.array([1, 2, 2, 1]), children)
    assert flows.tolist() == [[0, 1, 0, 1], [1, 2, 0, 1], [1, 2, 1, 1], [2, 0, 1, 1], [2, 2, 1, 1], [3, 0, 1, 1]]


def test_proportions_of_very_many_groups_are_exact():
    rng = np.random.default_rng(5)
    for _ in range(200):
        held = rng.integers(2**45, 2**47, 5)
        total = int(held.sum())
        groups = int(rng.integers(1, total))
        parts = matching(np.array([groups, total - groups]), np.stack([held, 0 * held], axis=1))[:5, 3].tolist()
        exact = [divmod(groups * one, total) for one in held.tolist()]
        missing = groups - sum(whole for whole, _ in exact)
        served = sorted(range(5), key=lambda child: -exact[child][1])[:missing]
        assert parts == [whole + (child in served) for child, (whole, _) in enumerate(exact)]


def test_a_proportion_that_floats_round_up_to_the_next_integer_is_seen_through():
    for total in (2**50, 2**50 - 16, 2**50 - 32):
        # Fifteen of sixteen go: every remainder is 15/16, and the last child is the one that is not served.
        held = np.array([*[1] * 15, total - 15])
        groups = total // 16 * 15
        parts = matching(np.array([groups, total - groups]), np.stack([held, 0 * held], axis=1))[:16, 3]
        assert parts.tolist() == [*[1] * 15, groups - 15]


def test_no_groups_have_no_matching():
    assert matching(np.zeros(3, dtype=np.int64), np.zeros((2, 3), dtype=np.int64)).shape == (0, 4)


# -------------------------------------------------------------------- the whole tree


def four_groups():
    """The four groups of the paper's introduction: sizes 4 and 1 in a, 2 and 1 in b."""
    tree = Hierarchy.from_levels({"location": ["a", "b"]}, ["location"])
    return tree, np.array([[2, 1, 0, 1], [1, 0, 0, 1], [1, 1, 0, 0]])


def test_the_four_groups_of_the_introduction():
    tree, counts = four_groups()
    assert matching(counts[0], counts[1:], first_size=1).tolist() == [
        [1, 0, 1, 1],
        [1, 1, 1, 1],
        [2, 1, 2, 1],
        [4, 0, 4, 1],
    ]
    assert np.array_equal(match_groups(counts, tree, spreads=[1, 1]), counts)
    # One group of b seen too large: 2 above and 3 below, equally precise, is 2.5: up.
    seen = counts.copy()
    seen[2] = [1, 0, 1, 0]
    for weighted in (True, False):
        found = match_groups(seen, tree, spreads=[1, 1], weighted=weighted)
        assert found.tolist() == [[2, 0, 1, 1], [1, 0, 0, 1], [1, 0, 1, 0]]
    assert np.array_equal(match_groups(seen, tree, spreads=[1, 2]), counts)


def test_longer_runs_and_smaller_spreads_weigh_more():
    tree = Hierarchy.from_levels({"location": ["a", "b"]}, ["location"])
    seen = np.zeros((3, 10), dtype=np.int64)
    seen[0, 0], seen[1, 9], seen[2, 9] = 4, 1, 3
    # a: precisions 4 and 1, 9/5 = 1.8; b: 4 and 3, 27/7 = 3.86.
    found = match_groups(seen, tree, spreads=[1, 1])
    assert (found[1].argmax(), found[2].argmax()) == (2, 4)
    # With spreads 1 and ½ the children are twice as precise: 18/6 = 3 and 54/10 = 5.4.
    found = match_groups(seen, tree, spreads=[1, 0.5])
    assert (found[1].argmax(), found[2].argmax()) == (3, 5)


def test_a_half_that_floats_miss_is_rounded_up():
    tree = Hierarchy.from_levels({"location": ["a", "b"]}, ["location"])
    seen = np.array([[5, 0, 0, 0, 0], [0, 0, 0, 0, 1], [4, 0, 0, 0, 0]])
    # Precisions 5/3 and 1: 4 / (8/3) = 1½.
    assert match_groups(seen, tree, spreads=[3, 1])[1].argmax() == 2


def test_merged_groups_of_one_size_go_on_with_their_mean_precision():
    tree = even_tree(1, 1, 1)
    seen = np.zeros((3, 40), dtype=np.int64)
    seen[0, [0, 10]] = [1, 3]
    seen[1, [2, 12]] = 2
    # 0 with 2 (1, 2): 4/3 → 1. 10 with 2 (3, 2): 34/5 → 7. 10 with 12 (3, 2): 54/5 → 11. Precisions 3, 5, 5.
    seen[2, 30] = 4
    # 1 with 30 (3, 4): 123/7 → 18. 7 and 11 with 30 (5, 4): 155/9 → 17, 175/9 → 19.
    found = match_groups(seen, tree, spreads=[1, 1, 1])
    assert np.array_equal(np.repeat(np.arange(40), found[2]), [17, 18, 19, 19])
    seen[:2] = 0
    seen[0, [2, 3]] = [1, 3]
    seen[1, [2, 4]] = [3, 1]
    # 2 with 2 (1, 3): 2. 3 with 2 (3, 3): 5/2 → 3. 3 with 4 (3, 1): 13/4 → 3. Size 3 has precisions 6, 6, 4: 16/3.
    found = match_groups(seen, tree, spreads=[1, 1, 1])
    # 2 with 30 (4, 4): 16. 3 with 30 (16/3, 4): 136/(28/3) → 15, where 6 alone gives 14 and 4 alone 17.
    assert np.array_equal(np.repeat(np.arange(40), found[2]), [15, 15, 15, 16])


@settings(max_examples=300)
@given(seed=seeds, levels=st.integers(1, 4), sizes=st.integers(1, 7), spreads=some_spreads, weighted=st.booleans())
def test_runs_give_what_listed_groups_give(seed, levels, sizes, spreads, weighted):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, 3)
    seen = estimates(rng, tree, sizes, 9)
    found = match_groups(seen, tree, spreads=spreads[: tree.depth], weighted=weighted)
    assert np.array_equal(found, slow_matched(seen, tree, spreads[: tree.depth], weighted))


@settings(max_examples=150)
@given(seed=seeds, levels=st.integers(1, 4), sizes=st.integers(1, 40), weighted=st.booleans())
def test_the_result_is_consistent_and_every_region_keeps_its_total(seed, levels, sizes, weighted):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, 4, short=0.3)
    seen = estimates(rng, tree, sizes, 500)
    spreads = rng.gamma(0.5, 100, tree.depth) + 1e-6
    before = seen.copy()
    found = match_groups(seen, tree, spreads=spreads, weighted=weighted)
    assert found.dtype == np.int64
    assert is_feasible(found, tree, None)
    assert np.array_equal(found.sum(axis=1), seen.sum(axis=1))
    assert np.array_equal(seen, before)
    assert np.array_equal(found, match_groups(seen, tree, spreads=spreads, weighted=weighted))


@settings(max_examples=60)
@given(seed=seeds, levels=st.integers(1, 4), weighted=st.booleans())
def test_estimates_that_agree_are_returned_unchanged(seed, levels, weighted):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, 4)
    counts = tree.aggregate(rng.integers(0, 5, (tree.leaf_count, 12)) * rng.integers(0, 2, (tree.leaf_count, 12)))
    spreads = rng.gamma(0.5, 100, tree.depth) + 1e-6
    assert np.array_equal(match_groups(counts, tree, spreads=spreads, weighted=weighted), counts)


@settings(max_examples=60)
@given(seed=seeds, levels=st.integers(2, 4), sharp=st.integers(0, 3))
def test_a_level_with_a_tiny_spread_decides(seed, levels, sharp):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, 3)
    sharp = min(sharp, tree.depth - 1)
    seen = estimates(rng, tree, 9, 20)
    spreads = np.ones(tree.depth)
    spreads[sharp] = 1e-12
    found = match_groups(seen, tree, spreads=spreads)
    assert np.array_equal(found[tree.level_slice(sharp)], seen[tree.level_slice(sharp)])


def test_the_scale_of_the_spreads_does_not_matter():
    rng = np.random.default_rng(3)
    tree = random_tree(rng, 4, 4)
    seen = estimates(rng, tree, 30, 200)
    spreads = np.array([1.0, 5.0, 2.0, 7.0])[: tree.depth]
    found = match_groups(seen, tree, spreads=spreads)
    for scale in (1e-90, 2.0**-30, 1e90):
        assert np.array_equal(match_groups(seen, tree, spreads=spreads * scale), found)


def test_many_parents_in_many_blocks_are_as_each_by_itself():
    tree = even_tree(40, 400)
    rng = np.random.default_rng(7)
    seen = estimates(rng, tree, 3000, 300)
    found = match_groups(seen, tree, spreads=[1, 1e-12, 4])  # the second level is not touched by the first
    for state in (1, 17, 40):
        counties = list(tree.children_of(state))
        part = match_groups(seen[[state, *counties]], even_tree(len(counties)), spreads=[1e-12, 4])
        assert np.array_equal(part[1:], found[counties])


def test_merging_by_precision_pays_at_the_root():
    """Household-like data, cumulative counts measured on three levels: against bottom-up and against plain averages."""
    tree = even_tree(6, 120)
    rng = np.random.default_rng(11)
    truth = tree.aggregate(rng.poisson(rng.gamma(0.5, 300, (120, 1)) * 0.6 ** np.arange(15)))
    survivors, totals = at_least(truth, 0), truth.sum(axis=1)
    bottom_up, plain, weighted = 0, 0, 0
    for _ in range(10):
        noisy = survivors + rng.geometric(0.25, survivors.shape) - rng.geometric(0.25, survivors.shape)
        seen = counts_from_at_least(non_increasing(noisy, totals), totals)
        distance = [
            earth_movers_distance(found[0], truth[0], 0)
            for found in (
                tree.aggregate(seen[-120:]),
                match_groups(seen, tree, spreads=[1, 1, 1], weighted=False),
                match_groups(seen, tree, spreads=[1, 1, 1]),
            )
        ]
        bottom_up, plain, weighted = bottom_up + distance[0], plain + distance[1], weighted + distance[2]
    assert weighted < plain / 2
    assert weighted < bottom_up / 2


# -------------------------------------------------------------------- wrong input


def test_totals_that_do_not_add_up_are_refused_by_name():
    tree, counts = four_groups()
    counts[2, 0] += 1
    with pytest.raises(SpecError, match="'total' is 4 but its children's add up to 5"):
        match_groups(counts, tree, spreads=[1, 1])
    tree = even_tree(2, 4)
    counts = tree.aggregate(np.ones((4, 2), dtype=np.int64))
    counts[-1, 0] -= 1
    with pytest.raises(SpecError, match=r"'0\.1' is 4 but its children's add up to 3"):
        match_groups(counts, tree, spreads=[1, 1, 1])


@pytest.mark.parametrize("spreads", [[1], [1, 1, 1], [1, 0], [1, -1], [1, np.nan], [np.inf, 1], [1, 1e-200]])
def test_wrong_spreads_are_refused(spreads):
    tree, counts = four_groups()
    with pytest.raises(SpecError, match="spreads"):
        match_groups(counts, tree, spreads=spreads)


def test_wrong_counts_are_refused():
    tree, counts = four_groups()
    for wrong in (counts[:2], counts[0], counts.astype(float), counts - 1):
        with pytest.raises(SpecError, match="counts"):
            match_groups(wrong, tree, spreads=[1, 1])
    with pytest.raises(SpecError, match="at most"):
        match_groups(counts * 2**50, tree, spreads=[1, 1])
    with pytest.raises(SpecError, match="overflow"):
        match_groups(counts * 2**61, tree, spreads=[1, 1])


def test_wrong_values_are_refused_in_every_region_though_all_totals_add_up():
    for tree in (even_tree(4), even_tree(2, 4), even_tree(2, 4, 12)):
        for region in range(len(tree)):
            counts = tree.aggregate(np.full((tree.leaf_count, 3), 2))
            counts[region] = [counts[region].sum() + 1, 0, -1]
            with pytest.raises(SpecError, match="negative"):
                match_groups(counts, tree, spreads=[1] * tree.depth)
            counts[region] = [2**62, 0, 0]
            with pytest.raises(SpecError, match="overflow"):
                match_groups(counts, tree, spreads=[1] * tree.depth)
