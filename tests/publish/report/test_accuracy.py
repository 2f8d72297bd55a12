"""Significant differences are larger than noise: checked on data without differences, and with one."""

import numpy as np

import tallytree as tt
from tallytree.lab import Truth
from tallytree.lab.truth import seeded_measurements
from tallytree.mechanisms import choose
from tallytree.publish.release.error_bars import Publication
from tallytree.publish.release.release_run import estimate_release
from tallytree.publish.report import accuracy
from tallytree.publish.report.accuracy import CONFIDENCE, MOST_OF_A_REGION, find_differences
from tallytree.publish.report.cells import Cells

LEAVES = 12


def compared(counts, seed, *, public_totals):
    counts = np.pad(counts, ((0, 0), (1, 0))) if public_totals else counts
    tree = tt.Hierarchy.from_levels({"county": [f"c{number}" for number in range(len(counts))]}, ["county"])
    truth = Truth("made up", tree, counts, public_totals=public_totals)
    budget, unit = tt.Budget(epsilon=1), tt.one_entity()
    chosen = choose("auto", tt.Neighbours(unit, counts.shape[1] - public_totals, public_totals))
    measurements = seeded_measurements(truth, chosen.plan(tree, budget, unit), seed)
    return find_differences(Cells.of(estimate_release(measurements, chosen, Publication(intervals="guaranteed"))))


def test_regions_that_are_all_alike_are_not_listed():
    """Noise lists at most 2 in 10,000 comparisons: 20 runs of 12 × 7 have 0.34 on average, and 6 almost never."""
    alike = np.tile(np.array([400, 300, 200, 100, 50, 25]), (LEAVES, 1))
    for public in (True, False):
        found = [compared(alike, seed, public_totals=public) for seed in range(20)]
        assert sum(len(one.found) for one in found) <= 5
        assert found[0].compared == LEAVES * (8 if public else 7)
        assert found[0].by_noise == 2 * (1 - CONFIDENCE) * found[0].compared


def test_a_region_that_differs_is_listed_first_and_in_the_right_direction():
    counts = np.tile(np.array([400, 300, 200, 100, 50, 25]), (LEAVES, 1))
    counts[4, 5] = 900
    for public in (True, False):
        found = compared(counts, 5, public_totals=public).found
        assert found
        assert found[0].region == 5  # the root is 0
        assert found[0].larger
        assert found[0].own.guaranteed[0] > found[0].above.guaranteed[1]
        assert sum(one.region == 5 for one in found) <= MOST_OF_A_REGION


def test_where_lists_were_measured_all_shares_are_compared():
    release = tt.release(
        _private(), budget=tt.Budget(epsilon=1), unit=tt.one_entity(), options={"leaves": "lists"}, intervals="none"
    )
    comparison = find_differences(Cells.of(release))
    regions = len(release.hierarchy) - 1 - int(release.hierarchy.carried.sum())
    assert comparison.compared == regions * (len(release.sizes) + 1)
    assert comparison.why_not == ""


def _private():
    from tests.oracles.example import made_up

    return made_up(1, public_totals=True)


def test_on_a_large_tree_fewer_comparisons_are_tried_and_as_many_are_counted(monkeypatch):
    counts = np.tile(np.array([400, 300, 200, 100, 50, 25]), (LEAVES, 1))
    counts[4, 5] = 900
    before, tried = accuracy.answer_queries, []

    def count(release, queries, **how):
        tried.append(len(queries))
        return before(release, queries, **how)

    monkeypatch.setattr(accuracy, "MOST_WORK", 0)
    monkeypatch.setattr(accuracy, "answer_queries", count)
    found = compared(counts, 5, public_totals=False)
    assert tried[0] <= 2 * accuracy.FEWEST_TRIED  # with the parents
    assert found.compared == LEAVES * 7
    assert found.found[0].region == 5
