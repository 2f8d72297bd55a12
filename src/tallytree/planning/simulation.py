"""Expected errors by simulation: made-up data of the prior, measured and estimated as a release would be.

Nothing private is involved, so nothing is charged. Within one replicate all scenarios see the same made-up data, so
that their differences are known better than their errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.hierarchy import Hierarchy
from tallytree.histogram import earth_movers_distance, l1_distance
from tallytree.mechanisms import Mechanism
from tallytree.mechanisms.count_of_counts import Leaves
from tallytree.planning.prior import Fitted
from tallytree.planning.smaller_tree import smaller_tree
from tallytree.privacy.budget import Budget
from tallytree.privacy.measure import measure
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.plan import Shares
from tallytree.progress import Progress, Stage, silent
from tallytree.tables.group_sizes import GroupSizes
from tallytree.tables.sealed import Sealed


@dataclass(frozen=True)
class Scenario:
    """A mechanism with everything decided, a budget and its division over the levels."""

    mechanism: Mechanism
    budget: Budget
    shares: Shares | None


@dataclass(frozen=True, eq=False)
class Simulated:
    """Mean errors per region, `[scenarios, replicates, levels]`."""

    l1: Floats
    emd: Floats
    tree: Hierarchy  # the one that was simulated


def simulated(
    fitted: Fitted,
    neighbours: Neighbours,
    scenarios: Sequence[Scenario],
    *,
    replicates: int,
    most_cells: int,
    progress: Progress = silent,
) -> Simulated:
    """Run every scenario on made-up data, on a smaller tree where the hierarchy has more than `most_cells` cells.

    A mechanism that measures leaves only adds their errors up, and clamping gives most of them one sign; so its errors
    on a smaller tree are multiplied by how many leaves a region really has for each that it has there.
    """
    sizes = fitted.max_size - fitted.first_size + 1
    tree, leaves = smaller_tree(fitted.hierarchy, fitted.totals, max(2 * fitted.hierarchy.depth, most_cells // sizes))
    shape = (len(scenarios), replicates, tree.depth)
    found = Simulated(np.empty(shape), np.empty(shape), tree)
    lost = _leaves_per_region(fitted.hierarchy) / _leaves_per_region(tree)
    for replicate in range(replicates):
        progress(Stage("simulating", replicate, replicates))
        counts = fitted.sample(leaves)
        data, truth = _as_data(counts, tree, neighbours), tree.aggregate(counts)
        for number, scenario in enumerate(scenarios):
            estimate = _estimated(data, neighbours, scenario)
            wide = np.zeros_like(truth)  # a measured largest size may have cut the columns short
            wide[:, : estimate.shape[1]] = estimate
            l1, emd = l1_distance(wide, truth), earth_movers_distance(wide, truth, fitted.first_size)
            factors = lost if isinstance(scenario.mechanism, Leaves) else np.ones(tree.depth)
            for level, factor in enumerate(factors):
                here = tree.level_slice(level)
                found.l1[number, replicate, level] = factor * l1[here].mean()
                found.emd[number, replicate, level] = factor * emd[here].mean()
    return found


def _leaves_per_region(tree: Hierarchy) -> Floats:
    """For each level, how many leaves its regions have on average."""
    return tree.leaf_count / np.diff(tree.level_starts)


def _as_data(counts: Integers, tree: Hierarchy, neighbours: Neighbours) -> GroupSizes:
    """Made-up counts as a data holder would hand them to `measure`, under the same neighbour relation."""
    return GroupSizes(
        hierarchy=tree,
        max_size=neighbours.max_size,
        counts=Sealed(counts),
        leaf_totals=counts.sum(axis=1) if neighbours.public_totals else None,
        quantity_bound=neighbours.quantity_bound,
        rows_per_entity=neighbours.rows_per_entity,
        entity_column=neighbours.entity_column,
        groups_were_split=neighbours.groups_were_split,
    )


def _estimated(data: GroupSizes, neighbours: Neighbours, scenario: Scenario) -> Integers:
    mechanism = scenario.mechanism
    plan = mechanism.plan(data.hierarchy, scenario.budget, neighbours.unit, scenario.shares)
    return mechanism.estimate(measure(data, plan, settle=mechanism.settle)).counts
