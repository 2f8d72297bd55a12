"""BlueDown and InfTDA as mechanisms: released and verified, and what each is said to be good for."""

from __future__ import annotations

import numpy as np
import pytest

from tallytree import Budget, one_entity, one_group, release, verify
from tallytree.lab import Truth
from tallytree.lab.truth import seeded_measurements
from tallytree.mechanisms import MECHANISMS
from tests.oracles.example import made_up
from tests.oracles.trees import even_tree


@pytest.mark.parametrize("name", ["bluedown", "inftda"])
@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("unit", [one_entity(), one_group()], ids=["entity", "group"])
def test_it_is_released_and_verified(tmp_path, name, public, unit):
    made = release(made_up(1, public_totals=public), budget=Budget(epsilon=1), unit=unit, mechanism=name)
    made.save(tmp_path / "release")
    assert verify(tmp_path / "release").ok
    assert made.mechanism == name


def errors(data, name, shares, runs):
    """The root's L1 error, and how many of the leaves' empty cells are given groups, run by run."""
    mechanism, true = MECHANISMS[name], data.all_levels()
    plan = mechanism.plan(data.hierarchy, Budget(epsilon=1), one_entity(), shares)
    leaves = data.hierarchy.level_slice(data.hierarchy.depth - 1)
    found = [mechanism.estimate(seeded_measurements(data, plan, run)).counts for run in range(runs)]
    root = [np.abs(counts[0] - true[0]).sum() for counts in found]
    invented = [((counts > 0) & (true == 0))[leaves].sum() for counts in found]
    return np.mean(root), np.mean(invented)


def test_bluedown_knows_the_root_from_all_levels_below_and_topdown_from_one():
    data = Truth("crowded", even_tree(5, 40), np.random.default_rng(1).poisson(300, (40, 6)), public_totals=False)
    ours, theirs = (errors(data, name, [1, 1, 8], runs=40)[0] for name in ("bluedown", "topdown"))
    assert ours < 0.85 * theirs


def test_inftda_invents_fewer_groups_than_topdown_where_most_cells_are_empty():
    rng = np.random.default_rng(2)
    counts = np.where(rng.random((40, 30)) < 0.1, rng.poisson(60, (40, 30)), 0)
    data = Truth("sparse", even_tree(5, 40), counts, public_totals=False)
    ours, theirs = (errors(data, name, None, runs=5)[1] for name in ("inftda", "topdown"))
    assert ours < 0.8 * theirs
