"""The accuracy of a release: errors of the numbers on each level, and regions that differ significantly.

Each region's share of every size, and its mean size, is compared with those of its parent. The difference is
*significant* if the two guaranteed intervals at 99.99 % do not overlap. If the true shares were the same, one of the
two
intervals would have missed it, which has a probability of at most 2 in 10,000. So of m comparisons noise alone lists
fewer than 2 m / 10,000 on average. To save time the intervals are computed only for the comparisons with the largest
apparent differences; the argument does not depend on that choice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import numpy as np

from tallytree.core.arrays import Floats
from tallytree.estimate.intervals.interval import REACH_SHARE
from tallytree.publish.release.answer import Answer
from tallytree.publish.release.answers import answer_queries
from tallytree.publish.release.queries import Query
from tallytree.publish.report import place_on_bar
from tallytree.publish.report.cells import Cells

LIMITS = (0.05, 0.10, 0.25, 0.50)  # of the reach of intervals, relative to the count
CLASSES = ("± 5 % or better", "± 5–10 %", "± 10–25 %", "± 25–50 %", "wider than ± 50 %")
CONFIDENCE = 0.9999
MOST_TRIED, FEWEST_TRIED = 80, 10  # comparisons whose intervals are computed
MOST_WORK = 30_000_000  # comparisons × regions: each interval takes a pass over the tree
MOST_LISTED = 20
MOST_OF_A_REGION = 2


@dataclass(frozen=True)
class LevelAccuracy:
    """The accuracy of the counts of a level, over all categories."""

    name: str
    regions: int
    groups: float  # of a region, the median
    reach: int | None  # 95 % of the recommended intervals of the level are within the count ± this
    kind: str  # of the recommended intervals
    parts: tuple[int, ...]  # how many of the counts that are not zero have each of the `CLASSES`

    @property
    def cells(self) -> int:
        """Return how many counts are not zero."""
        return sum(self.parts)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Return the start and width of each part in a bar of all counts."""
        edges = [0, *(place_on_bar(part, max(self.cells, 1)) for part in np.cumsum(self.parts).tolist())]
        return [(start, end - start) for start, end in pairwise(edges)]


def level_accuracy(cells: Cells, level: int) -> LevelAccuracy:
    """Return the accuracy of one level."""
    rows, reach = cells.tree.level_slice(level), cells.reach(level)
    parts, within = (0,) * len(CLASSES), None
    if reach is not None and (known := reach >= 0).any():
        counts = cells.counts[rows, 0]
        within = int(np.sort(reach[known])[ceil(REACH_SHARE * np.count_nonzero(known)) - 1])
        some = known & (counts > 0)
        places = np.searchsorted(np.array(LIMITS), reach[some] / counts[some], side="left")
        parts = tuple(np.bincount(places, minlength=len(CLASSES)).tolist())
    kind = "typical" if cells.prefixes["counts"][level][0] else "guaranteed"
    median = float(np.median(cells.groups[rows, 0]))
    return LevelAccuracy(cells.tree.levels[level], rows.stop - rows.start, median, within, kind, parts)


# -------------------------------------------------------------------- significant differences


@dataclass(frozen=True)
class Difference:
    """A region whose share of a size, or mean size, differs from its parent's."""

    region: int
    parent: int
    label: str  # of the size; empty for the mean size
    own: Answer
    above: Answer  # of the parent

    @property
    def larger(self) -> bool:
        """Return whether the region's value is larger than its parent's."""
        return (self.own.released or 0) > (self.above.released or 0)


@dataclass(frozen=True)
class Differences:
    """The comparisons, and the significant differences among them."""

    found: tuple[Difference, ...]
    compared: int
    why_not: str = ""  # nothing could be compared

    @property
    def by_noise(self) -> float:
        """Return an upper bound on how many differences noise alone would list on average."""
        return 2 * (1 - CONFIDENCE) * self.compared


def find_differences(cells: Cells) -> Differences:
    """Return the significant differences, the clearest first."""
    release, tree = cells.release, cells.tree
    regions = np.flatnonzero((tree.parents >= 0) & ~tree.carried & (cells.groups[:, 0] > 0))
    features = len(cells.classes) + 1  # the last is the mean size
    compared = len(regions) * features
    if not len(regions) or len(cells.classes) < 2:
        return Differences((), 0, "the release has only one region, or only one size.")
    scores = _scores(cells)[regions]
    affordable = max(MOST_WORK // len(release.hierarchy), FEWEST_TRIED)
    order = np.argsort(-scores, axis=None, kind="stable")[: min(MOST_TRIED, compared, affordable)]
    pairs = [(int(regions[place // features]), int(place % features)) for place in order]
    pairs = [pair for pair in pairs if cells.groups[tree.parents[pair[0]], 0] > 0]

    def query(region: int, feature: int) -> Query:
        if feature == len(cells.classes):
            return Query("mean", tree.ids[region])
        one = cells.classes[feature]
        return Query("share", tree.ids[region], range(one.first, one.last + 1))

    wanted = list(dict.fromkeys([*pairs, *((int(tree.parents[region]), feature) for region, feature in pairs)]))
    answers = answer_queries(release, [query(*pair) for pair in wanted], confidence=CONFIDENCE, typical=False)
    if pairs and all(one.guaranteed is None for one in answers):
        return Differences((), compared, answers[0].notes[-1])
    known, found, of_region = dict(zip(wanted, answers, strict=True)), list[Difference](), Counter[int]()
    for region, feature in pairs:
        parent = int(tree.parents[region])
        own, above = known[region, feature], known[parent, feature]
        if _are_apart(own, above) and of_region[region] < MOST_OF_A_REGION and len(found) < MOST_LISTED:
            of_region[region] += 1
            label = "" if feature == len(cells.classes) else cells.classes[feature].label
            found.append(Difference(region, parent, label, own, above))
    return Differences(tuple(found), compared)


def _are_apart(one: Answer, other: Answer) -> bool:
    """Return whether both guaranteed intervals exist and do not overlap."""
    if one.guaranteed is None or other.guaranteed is None or one.released is None or other.released is None:
        return False
    return one.guaranteed[0] > other.guaranteed[1] or one.guaranteed[1] < other.guaranteed[0]


def _scores(cells: Cells) -> Floats:
    """Return the distance of each share and mean from its parent's in half-widths, to order the comparisons."""
    groups = np.maximum(cells.groups[:, 0], 1).astype(np.float64)
    shares, means = cells.counts[:, 0] / groups[:, None], cells.entities[:, 0] / groups
    parents = np.maximum(cells.tree.parents, 0)
    widths = np.ones(shares.shape)
    for level in range(cells.tree.depth):
        rows, half = cells.tree.level_slice(level), cells.reach(level)
        if half is not None:
            widths[rows] = np.where(half < 0, np.sqrt(groups[rows])[:, None], half)
    of_shares = np.abs(shares - shares[parents]) * groups[:, None] / np.maximum(widths, 1)
    around = np.abs(means - means[parents]) * groups / np.maximum(widths.sum(axis=1), 1)
    return np.hstack([of_shares, around[:, None]])
