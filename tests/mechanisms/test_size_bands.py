"""What bands of sizes are for: regions with a crowded front and a long sparse tail."""

import numpy as np

from tallytree import Budget, Hierarchy, one_entity
from tallytree.lab import Truth
from tallytree.lab.truth import seeded_measurements
from tallytree.mechanisms import prepare
from tallytree.privacy import Neighbours

LARGEST = 60
SHARES = [1, 1, 3]
TREE = Hierarchy.from_levels({"state": list("AAABBB"), "county": list("123456")}, ["state", "county"])


def dormitories():
    """Some hundred households of up to 6 persons in each county, and a few dormitories."""
    draw = np.random.default_rng(5)
    counts = np.zeros((6, LARGEST + 1), np.int64)
    for county in counts:
        county[1:7] = draw.poisson([300, 350, 160, 130, 60, 25])
        np.add.at(county, draw.integers(7, LARGEST, 4), 1)
    return Truth("dormitories", TREE, counts, public_totals=True)


def leaf_error(truth, options, shares, runs=4):
    """The mean earth mover's distance of a county."""
    private = truth.group_sizes()
    mechanism, plan = prepare(
        "tallytree",
        options,
        neighbours=Neighbours.of(private, one_entity()),
        hierarchy=TREE,
        totals=private.region_totals,
        budget=Budget(epsilon=1),
        shares=shares,
    )
    leaves = TREE.level_slice(2)
    found = [mechanism.estimate(seeded_measurements(truth, plan, seed)).counts[leaves] for seed in range(runs)]
    return float(np.mean([np.abs(np.cumsum(one - truth.counts, axis=1)).sum(axis=1).mean() for one in found]))


def test_counts_in_front_and_a_list_of_the_tail_are_better_than_either_alone():
    truth = dormitories()
    bands = [{"to": 6, "shares": SHARES, "leaves": "at_least"}, {"shares": SHARES, "leaves": "lists"}]
    both = leaf_error(truth, {"bands": bands}, None)
    assert both < 0.75 * leaf_error(truth, {"leaves": "at_least"}, SHARES)
    assert both < 0.75 * leaf_error(truth, {"leaves": "lists"}, SHARES)


def test_what_upper_levels_leave_out_makes_leaves_better_at_those_sizes():
    """Upper levels ask for sizes up to 6; above, the leaves have the whole budget."""
    truth = dormitories()
    staircase = [{"to": 6, "shares": SHARES}, {"shares": [0, 0, 1]}]
    assert leaf_error(truth, {"leaves": "lists", "bands": staircase}, None) < leaf_error(
        truth, {"leaves": "lists"}, SHARES
    )
