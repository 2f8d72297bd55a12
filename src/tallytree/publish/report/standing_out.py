"""Which regions differ from the region above them by more than noise explains.

Each region's share of every size, and its mean size, is compared with those of its parent. It stands out where the two
guaranteed intervals at 99.99 % have nothing in common. If the true shares were the same, one of the two intervals would
have missed it, which has a probability of at most 2 in 10,000; so of m comparisons noise alone lists fewer than
2 m / 10,000 on average. To save time the intervals are computed for the comparisons that look most different; which
ones these are has no part in the argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tallytree.core.arrays import Floats
from tallytree.estimate.intervals.linear import no_linear
from tallytree.publish.release.answer import Answer
from tallytree.publish.release.answers import answer_queries
from tallytree.publish.release.queries import Ends, Query
from tallytree.publish.report.cells import Cells

CONFIDENCE = 0.9999
MOST_TRIED = 80
MOST_LISTED = 20
MOST_OF_A_REGION = 2


@dataclass(frozen=True)
class StandingOut:
    """A region, what of it stands out, and the same of its parent."""

    region: int
    parent: int
    kind: str  # "share" or "mean"
    label: str  # of the size, for a share
    value: float
    ends: Ends
    parents_value: float
    parents_ends: Ends

    @property
    def above(self) -> bool:
        """Is it more than its parent's?"""
        return self.value > self.parents_value


@dataclass(frozen=True)
class Comparison:
    """What was compared, and what stands out."""

    found: tuple[StandingOut, ...]
    compared: int
    why_not: str = ""  # nothing could be said

    @property
    def by_noise(self) -> float:
        """How many noise alone would list on average, at most."""
        return 2 * (1 - CONFIDENCE) * self.compared


def standing_out(cells: Cells) -> Comparison:
    """The regions that stand out, the clearest first."""
    release, tree = cells.release, cells.release.hierarchy.regions
    regions = np.flatnonzero((tree.parents >= 0) & ~tree.carried & (cells.groups[:, 0] > 0))
    features = len(cells.classes) + 1
    bounded = no_linear(release.measurements) is None  # are shares? Means are wherever there is a guarantee
    compared = len(regions) * (features if bounded else 1)
    if not len(regions) or len(cells.classes) < 2:
        return Comparison((), 0, "there is nothing to compare: the release has one region, or one size")
    scores = _scores(cells)[regions]
    scores[:, :-1] = scores[:, :-1] if bounded else -1
    order = np.argsort(-scores, axis=None, kind="stable")[: min(MOST_TRIED, compared)]
    pairs = [(int(regions[place // features]), int(place % features)) for place in order]
    pairs = [pair for pair in pairs if cells.groups[tree.parents[pair[0]], 0] > 0]

    def asked(region: int, feature: int) -> Query:
        if feature == len(cells.classes):
            return Query("mean", tree.ids[region])
        one = cells.classes[feature]
        return Query("share", tree.ids[region], range(one.first, one.last + 1))

    above = list(dict.fromkeys((int(tree.parents[region]), feature) for region, feature in pairs))
    wanted = [*pairs, *above]
    known = dict(
        zip(
            wanted,
            answer_queries(release, [asked(*pair) for pair in wanted], confidence=CONFIDENCE, typical=False),
            strict=True,
        )
    )
    if pairs and all(one.guaranteed is None for one in known.values()):
        return Comparison((), compared, next(iter(known.values())).notes[-1])
    found: list[StandingOut] = []
    of_region: Counter[int] = Counter()
    for one in _apart(cells, pairs, known):
        if of_region[one.region] < MOST_OF_A_REGION and len(found) < MOST_LISTED:
            of_region[one.region] += 1
            found.append(one)
    return Comparison(tuple(found), compared)


def _apart(cells: Cells, pairs: list[tuple[int, int]], known: dict[tuple[int, int], Answer]) -> Iterator[StandingOut]:
    """Those pairs whose intervals have nothing in common with their parents'."""
    tree = cells.release.hierarchy.regions
    for region, feature in pairs:
        parent = int(tree.parents[region])
        one, other = known[region, feature], known[parent, feature]
        if one.guaranteed is None or other.guaranteed is None or one.released is None or other.released is None:
            continue
        if one.guaranteed[0] > other.guaranteed[1] or one.guaranteed[1] < other.guaranteed[0]:
            mean = feature == len(cells.classes)
            yield StandingOut(
                region,
                parent,
                "mean" if mean else "share",
                "" if mean else cells.classes[feature].label,
                one.released,
                one.guaranteed,
                other.released,
                other.guaranteed,
            )


def _scores(cells: Cells) -> Floats:
    """How many half-widths of its interval each share and mean is from its parent's: what to look at first."""
    tree = cells.release.hierarchy.regions
    groups = np.maximum(cells.groups[:, 0], 1).astype(np.float64)
    shares = cells.counts[:, 0] / groups[:, None]
    means = cells.entities[:, 0] / groups
    parents = np.maximum(tree.parents, 0)
    half = cells.reaches
    widths = np.full(shares.shape, 1.0) if half is None else np.where(half < 0, np.sqrt(groups)[:, None], half)
    of_shares = np.abs(shares - shares[parents]) * groups[:, None] / np.maximum(widths, 1)
    around = np.abs(means - means[parents]) * groups / np.maximum(widths.sum(axis=1), 1)
    return np.hstack([of_shares, around[:, None]])
