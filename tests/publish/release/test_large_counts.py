"""Counts up to 10¹³ are estimated by the mechanism that was asked for, or refused before anything is spent."""

import numpy as np
import pytest

from tallytree import Budget, Hierarchy, ReleaseError, SpecError, release
from tallytree.tables import GroupSizes, Sealed

TREE = Hierarchy.from_levels({"state": ["A", "A", "B"], "county": ["1", "2", "3"]}, ["state", "county"])


def made_up(most: int, tree: Hierarchy = TREE, *, public_totals: bool) -> GroupSizes:
    counts = np.random.default_rng(1).integers(0, most, (tree.leaf_count, 4))
    totals = counts.sum(axis=1) if public_totals else None
    return GroupSizes(tree, 3 if public_totals else 4, Sealed(counts), leaf_totals=totals)


@pytest.mark.parametrize(
    ("mechanism", "unit", "public_totals"),
    [
        ("pgsr-hierarchical-dp", "one_group", False),
        ("pgsr-hierarchical-dp", "one_group", True),
        ("pgsr-cumulative-dp", "one_entity", False),
        ("joint-counts", "one_group", True),
        ("joint-cumulative", "one_entity", True),
        ("tallytree", "one_entity", True),
    ],
)
def test_counts_of_trillions_are_estimated_as_asked(mechanism, unit, public_totals):
    private = made_up(10**13, public_totals=public_totals)
    made = release(
        private,
        budget=Budget(epsilon=1),
        unit=unit,
        mechanism=mechanism,
        shares=["0.123457", "0.2", "0.676543"],
        intervals="none",
    )
    assert made.fallback is None
    true = TREE.aggregate(private.counts.open_at_the_privacy_border())
    assert np.abs(made.counts - true).max() < 1000


def test_more_groups_than_floats_can_tell_apart_are_refused_before_anything_is_spent():
    private = made_up(2**51, public_totals=True)
    with pytest.raises(SpecError, match=r"less than 2⁵²\. Nothing was spent"):
        release(private, budget=Budget(epsilon=1), unit="one_group", mechanism="joint-counts")


def test_noise_that_sums_cannot_hold_is_refused_before_anything_is_spent():
    wide = Hierarchy.from_levels({"county": [str(number) for number in range(3000)]}, ["county"])
    private = made_up(5, wide, public_totals=False)
    with pytest.raises(SpecError, match=r"use a larger budget\. Nothing was spent"):
        release(private, budget=Budget(epsilon="4e-12"), unit="one_group", mechanism="pgsr-hierarchical-dp")


def test_lists_that_no_memory_holds_are_refused_before_anything_is_spent():
    private = made_up(10**13, public_totals=True)
    with pytest.raises(ReleaseError, match=r"groups in lists of sizes.*Nothing was spent"):
        release(
            private, budget=Budget(epsilon=1), unit="one_entity", mechanism="tallytree", options={"leaves": "lists"}
        )
