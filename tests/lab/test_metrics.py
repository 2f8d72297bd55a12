"""Every metric against the plainest loop that follows its definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.lab.results import ALL_LEVELS, METRICS, MOST_POINTS, scores, size_classes, violations
from tests.oracles.trees import random_tree

CASES = given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 7), st.booleans())


def case(seed, levels, sizes, public):
    """A tree, true counts, an estimate that need be neither consistent nor non-negative, and the first size."""
    rng = np.random.default_rng(seed)
    hierarchy = random_tree(rng, levels, 3)
    truth = hierarchy.aggregate(rng.poisson(1.5, (hierarchy.leaf_count, sizes + public)))
    estimate = truth + rng.integers(-2, 3, truth.shape) * rng.integers(0, 2, truth.shape)
    return hierarchy, truth, estimate, 0 if public else 1


def entities_to_mend(true, guess, first_size):
    """The earth mover's distance as work: a unit for every step of size that a group must make, one by one."""
    debt = cost = 0
    for size in range(first_size + len(true) - 1, 0, -1):
        debt += int(guess[size - first_size]) - int(true[size - first_size])
        cost += abs(debt)
    return cost


def plain(found):
    return {(score.level, score.metric): score.value for score in found if score.size is None}


@settings(max_examples=60)
@CASES
def test_errors_of_every_level_follow_their_definitions(seed, levels, sizes, public):
    hierarchy, truth, estimate, first_size = case(seed, levels, sizes, public)
    found = plain(scores(truth, estimate, hierarchy, first_size))
    total = {"l1": 0, "emd": 0}
    for depth, level in enumerate(hierarchy.levels):
        regions = [region for region in range(len(hierarchy)) if hierarchy.level_of[region] == depth]
        cells = [(int(truth[r, s]), int(estimate[r, s])) for r in regions for s in range(truth.shape[1])]
        l1 = [sum(abs(int(a) - int(b)) for a, b in zip(truth[r], estimate[r], strict=True)) for r in regions]
        emd = [entities_to_mend(truth[r], estimate[r], first_size) for r in regions]
        gaps = [guess - true for true, guess in cells]
        expected = {
            "l1": sum(l1),
            "emd": sum(emd),
            "emd_per_region": sum(emd) / len(regions),
            "worst_region_l1": max(l1),
            "worst_region_emd": max(emd),
            "exact_cells": sum(true == guess for true, guess in cells) / len(cells),
            "bias_groups": sum(gaps) / len(regions),
            "bias_entities": sum(
                (first_size + s) * (int(estimate[r, s]) - int(truth[r, s]))
                for r in regions
                for s in range(truth.shape[1])
            )
            / len(regions),
        }
        empty = [guess for true, guess in cells if true == 0]
        other = [guess - true for true, guess in cells if true]
        expected |= {"bias_empty_cells": sum(empty) / len(empty)} if empty else {}
        expected |= {"bias_other_cells": sum(other) / len(other)} if other else {}
        for metric, value in expected.items():
            assert found[level, metric] == pytest.approx(value), metric
        assert ((level, "bias_empty_cells") in found) == bool(empty)
        total = {"l1": total["l1"] + sum(l1), "emd": total["emd"] + sum(emd)}
    assert {metric: found[ALL_LEVELS, metric] for metric in total} == total


@settings(max_examples=60)
@CASES
def test_a_violation_is_a_region_and_size_whose_children_do_not_add_up(seed, levels, sizes, public):
    hierarchy, truth, estimate, _ = case(seed, levels, sizes, public)
    expected = [0] * (hierarchy.depth - 1)
    for region in range(len(hierarchy)):
        if hierarchy.level_of[region] < hierarchy.depth - 1:
            for size in range(truth.shape[1]):
                children = sum(int(estimate[child, size]) for child in hierarchy.children_of(region))
                expected[hierarchy.level_of[region]] += children != int(estimate[region, size])
    assert violations(estimate, hierarchy) == expected
    assert violations(truth, hierarchy) == [0] * (hierarchy.depth - 1)


@settings(max_examples=40)
@CASES
def test_the_profile_over_sizes_adds_up_to_the_earth_movers_distance(seed, levels, sizes, public):
    hierarchy, truth, estimate, first_size = case(seed, levels, sizes, public)
    found = scores(truth, estimate, hierarchy, first_size)
    for level in hierarchy.levels:
        here = [score for score in found if score.level == level and score.size is not None]
        errors = [score.value for score in here if score.metric == "error_at_size"]
        assert sum(errors) == pytest.approx(plain(found)[level, "emd_per_region"])
        signed = [score.value for score in here if score.metric == "signed_error_at_size"]
        assert sum(signed) == pytest.approx(plain(found)[level, "bias_entities"])
        below = {score.size: score.value for score in here if score.metric == "groups_below_size"}
        groups = int(truth[0].sum())
        for size, share in below.items():
            assert share * max(1, groups) == pytest.approx(int(truth[0, : size - first_size].sum()))


def test_the_worst_region_is_named():
    hierarchy, truth, _, first_size = case(5, 3, 4, False)
    estimate = truth.copy()
    last = len(hierarchy) - 1
    estimate[last, 0] += 50
    worst = {s.metric: s.region for s in scores(truth, estimate, hierarchy, first_size) if s.region and s.value}
    assert set(worst.values()) == {hierarchy.ids[last]}


def test_a_perfect_estimate_has_no_error():
    hierarchy, truth, _, first_size = case(3, 3, 5, True)
    for score in scores(truth, truth, hierarchy, first_size):
        if score.metric == "exact_cells":
            assert score.value == 1
        elif score.metric != "groups_below_size":
            assert score.value == 0
        assert score.metric in METRICS


@pytest.mark.parametrize("max_size", [1, 2, 99, 100, 101, 1000, 13_282, 100_000])
def test_size_classes_cover_all_sizes_and_are_few(max_size):
    starts = size_classes(max_size)
    assert starts[0] == 1
    assert (np.diff(starts) > 0).all()
    assert starts[-1] <= max_size
    assert len(starts) <= MOST_POINTS


def test_long_histograms_are_averaged_over_each_class():
    hierarchy, truth, _, _ = case(8, 2, 1, False)
    rng = np.random.default_rng(2)
    truth = hierarchy.aggregate(rng.poisson(0.2, (hierarchy.leaf_count, 1000)))
    estimate = truth + rng.integers(-1, 2, truth.shape)
    found = scores(truth, estimate, hierarchy, 1)
    starts = [*size_classes(1000), 1001]
    for level in hierarchy.levels:
        errors = [s.value for s in found if s.level == level and s.metric == "error_at_size"]
        total = sum(error * (stop - start) for error, start, stop in zip(errors, starts, starts[1:], strict=False))
        assert total == pytest.approx(plain(found)[level, "emd_per_region"])


def test_counts_of_another_shape_are_refused():
    hierarchy, truth, estimate, _ = case(1, 2, 3, False)
    with pytest.raises(ValueError, match="shape"):
        scores(truth, estimate[:, 1:], hierarchy, 1)
