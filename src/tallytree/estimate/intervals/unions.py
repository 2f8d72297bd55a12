"""Write sums over regions (custom areas, sums over categories) with the fewest nodes of the tree.

*Cover.* A set of leaves is written with signed nodes of the tree: a node adds all its leaves or takes them away, and a
leaf is inside if the signs of the nodes above and at it add up to 1, and outside if to 0. 49 of 50 states are the
nation minus one. Let f(v, s) be the fewest nodes below v that give its leaves the right sums if the signs down to v add
up to s:

    f(leaf, s) = 0 if the leaf is inside and s = 1 or outside and s = 0, else ∞
    f(v, s)    = Σ over children c of min(f(c, s), 1 + f(c, 1 − s))

and min(f(root, 0), 1 + f(root, 1)) is the least of all. Sums other than 0 and 1 gain nothing. Cut every sum on the way
down off at 0 and 1: signs then stand at the same nodes as before or fewer, each of them again −1, 0 or +1, and the
leaves' sums, 0 or 1, do not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.names import briefly
from tallytree.domain.categories import margins
from tallytree.domain.hierarchy import Hierarchy

Signed = tuple[tuple[int, ...], tuple[int, ...]]  # nodes that are added, nodes that are taken away
UNREACHABLE = 1 << 40  # more nodes than any tree has
NO_BOUND = 2.0**62  # stands for the absence of a limit


@dataclass(frozen=True, eq=False)
class Unions:
    """Sums over regions (rows of a tree); no region of a sum lies within another one of it.

    If the tree is by category, `whole` holds the sums over all categories among them, as regions without categories,
    and `places` says which sums these are.
    """

    rows: Integers  # the regions of all sums, one after another
    starts: Integers  # where the rows of each begin
    places: Integers
    whole: Unions | None = None

    __repr__ = briefly

    @classmethod
    def of_regions(cls, regions: Sequence[Iterable[int]], whole: Sequence[Iterable[int] | None] = ()) -> Unions:
        """Build sums from lists of regions, none empty; `whole` are those without categories, None for other sums."""
        each = [np.array(sorted(some), dtype=np.int64) for some in regions]
        places = [place for place, some in enumerate(whole) if some is not None]
        return cls(
            np.concatenate([np.zeros(0, np.int64), *each]),
            np.cumsum([0, *map(len, each)])[: len(each)],
            np.array(places, dtype=np.int64),
            cls.of_regions([some for some in whole if some is not None]) if places else None,
        )

    @classmethod
    def of_margins(cls, tree: Hierarchy) -> Unions:
        """Return the sums over categories that a table has beside the tree's rows, margin by margin; none without."""
        if not tree.by.columns:
            return cls.of_regions([])
        regions, rows = np.arange(len(tree.regions)), tree.cell_rows
        each = [rows[:, list(margin.cells)] for margin in margins(tree.by)]
        sizes = np.repeat([some.shape[1] for some in each], len(regions))
        nodes = np.concatenate([some.ravel() for some in each])
        return cls(nodes, np.cumsum(sizes) - sizes, regions, cls(regions, regions, regions[:0]))

    def __len__(self) -> int:
        """Return how many sums there are."""
        return len(self.starts)

    @property
    def sizes(self) -> Integers:
        """Return how many regions each sum has."""
        return np.diff(self.starts, append=len(self.rows))

    def of(self, place: int) -> Integers:
        """Return the regions of one sum."""
        return self.rows[self.starts[place] :][: self.sizes[place]]

    def add_up(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return sums `[unions, …]` of values `[regions, …]`."""
        if not len(self):
            return values[:0]
        found: NDArray[Any] = np.add.reduceat(values[self.rows], self.starts, axis=0)
        return found

    def limits(self, most: Integers) -> Integers:
        """Return the sums of upper limits, or 2⁶² for a sum without a limit."""
        found: Integers = np.minimum(self.add_up(most.astype(np.float64)), NO_BOUND).astype(np.int64)
        return found

    def share_a_branch(self, tree: Hierarchy) -> NDArray[np.bool_]:
        """Return which sums have two regions below (or at) the same child of the root."""
        branch = np.arange(len(tree))
        for level in range(2, tree.depth):
            rows = tree.level_slice(level)
            branch[rows] = branch[tree.parents[rows]]
        return self._repeat(branch[self.rows])

    def covers(self, tree: Hierarchy) -> dict[int, Signed]:
        """Return the fewest signed nodes of sums that may need fewer nodes than they have regions.

        A sum of regions with different parents is not among them if each parent has other children: each parent has a
        child inside and one outside, so a node is needed at it or below it.
        """
        families = np.diff(tree.child_starts)
        if tree.by.columns:
            families[0] = 0  # the sum over all categories is not a region, and is known less precisely than its parts
        parents = tree.parents[self.rows]
        alike = self._repeat(np.where(families[parents] > 0, parents, -1 - np.arange(len(parents))))
        possible = alike | (self.add_up((families == 1)[tree.parents]) > 0)
        return {place: fewest_nodes(self.of(place).tolist(), tree) for place in np.flatnonzero(possible).tolist()}

    def _repeat(self, keys: Integers) -> NDArray[np.bool_]:
        """Return which sums contain the same key twice."""
        owner = np.repeat(np.arange(len(self)), self.sizes)
        order = np.lexsort([keys, owner])
        again = (np.diff(owner[order]) == 0) & (np.diff(keys[order]) == 0)
        found = np.zeros(len(self), np.bool_)
        found[owner[order][1:][again]] = True
        return found


# -------------------------------------------------------------------- covers


def leaf_range(region: int, hierarchy: Hierarchy) -> range:
    """Return the leaves of a region, by their indices among all regions: they are consecutive."""
    start, stop = region, region + 1
    for _ in range(int(hierarchy.level_of[region]), hierarchy.depth - 1):
        start, stop = int(hierarchy.child_starts[start]), int(hierarchy.child_starts[stop])
    return range(start, stop)


def leaves_of(regions: Sequence[int], hierarchy: Hierarchy) -> Integers:
    """Return the leaves of several regions, as often as they are named."""
    return np.concatenate([np.asarray(leaf_range(region, hierarchy), dtype=np.int64) for region in regions])


def largest_regions(leaves: Integers, hierarchy: Hierarchy) -> tuple[int, ...]:
    """Return the fewest regions, none within another, that hold exactly these leaves (each given once).

    >>> tree = Hierarchy.from_levels({"state": ["GA", "GA", "NY"], "county": ["1", "2", "3"]}, ["state", "county"])
    >>> [tree.ids[region] for region in largest_regions(np.array([3, 4]), tree)]
    ['GA']
    """
    nodes, found = np.sort(leaves), []
    while len(nodes) and hierarchy.parents[nodes[0]] >= 0:  # one level after the other, from the leaves up
        above = hierarchy.parents[nodes]
        parents, known = np.unique(above, return_counts=True)
        whole = parents[known == hierarchy.child_starts[parents + 1] - hierarchy.child_starts[parents]]
        found.append(nodes[~np.isin(above, whole)])
        nodes = whole
    return tuple(np.sort(np.concatenate([nodes, *found])).tolist())


def fewest_nodes(regions: Sequence[int], hierarchy: Hierarchy) -> Signed:
    """Return the fewest signed nodes that make up a union of regions; in a tie, no node is subtracted.

    The search visits nodes with a leaf inside, and their children: elsewhere f is 0 for a sum of 0, and the node itself
    has to be subtracted for a sum of 1.

    >>> tree = Hierarchy.from_levels({"state": ["GA"] * 4, "county": ["1", "2", "3", "4"]}, ["state", "county"])
    >>> fewest_nodes([1, 2, 3], tree), fewest_nodes([1, 2], tree)
    (((0,), (4,)), ((1, 2), ()))
    """
    nodes = np.unique(leaves_of(regions, hierarchy))
    union = largest_regions(nodes, hierarchy)
    below = np.stack([np.full(len(nodes), UNREACHABLE), np.zeros(len(nodes), np.int64)])  # f(v, 0) and f(v, 1)
    levels = [(nodes, below)]
    while hierarchy.parents[nodes[0]] >= 0:
        best = np.minimum(below, 1 + below[::-1])
        nodes, place, known = np.unique(hierarchy.parents[nodes], return_inverse=True, return_counts=True)
        below = np.stack([np.bincount(place, side, len(nodes)).astype(np.int64) for side in best])
        below[1] += hierarchy.child_starts[nodes + 1] - hierarchy.child_starts[nodes] - known  # all others
        levels.append((nodes, below))
    state, signs = {-1: 0}, {}
    for nodes, below in reversed(levels):
        for node, ends in zip(nodes.tolist(), below.T.tolist(), strict=True):
            before = state[int(hierarchy.parents[node])]
            state[node] = 1 - before if 1 + ends[1 - before] < ends[before] else before
            if state[node] != before:
                signs[node] = state[node] - before
    for nodes, _ in levels[1:]:
        for node in nodes.tolist():
            if state[node]:
                children = range(int(hierarchy.child_starts[node]), int(hierarchy.child_starts[node + 1]))
                signs |= {child: -1 for child in children if child not in state}
    plus, minus = (tuple(sorted(node for node in signs if signs[node] == sign)) for sign in (1, -1))
    return (union, ()) if len(union) <= len(signs) else (plus, minus)
