"""The experiment on categories runs on files like the real ones, and compares what it says."""

import numpy as np
import pytest
from experiments.categories import FILES, apart, report, together, told_apart

from tallytree.privacy import Budget
from tests.real_data import made_up


@pytest.mark.parametrize("name", FILES)
def test_every_way_is_compared_on_every_level(name, tmp_path):
    made_up(FILES[name][0], tmp_path)
    lines = list(report(tmp_path, [name], [2], ["1"], 1))
    assert [line.split(":")[0].split(" ", 3)[3] for line in lines] == [
        "together / joint",
        "together / alone",
        "listed / together",
        "members / details",
    ]
    levels = told_apart(tmp_path, name, 2).hierarchy.regions.depth
    assert all(len(part.split()) == levels + 2 for line in lines for part in line.split(": ")[1].split("; "))


def test_without_noise_all_ways_find_the_truth(tmp_path):
    made_up(FILES["Atlanta"][0], tmp_path)
    truth, budget = told_apart(tmp_path, "Atlanta", 3), Budget(epsilon=10**6)
    right = truth.all_levels()
    assert np.array_equal(apart(truth, budget, 1, "joint-cumulative"), right)
    listed = together(truth, budget, 1, listed=True)
    assert np.array_equal(
        truth.hierarchy.over_categories(listed).sum(axis=1), truth.hierarchy.over_categories(right).sum(axis=1)
    )
