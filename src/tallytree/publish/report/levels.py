"""How good each level is, and what was spent on it: from the published intervals and the statement of measurements."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.estimate.intervals.interval import REACH_SHARE
from tallytree.privacy.budget import as_decimal
from tallytree.privacy.measurements import Measurement
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.report.bars import WIDE, Bar, bar
from tallytree.publish.report.cells import Cells
from tallytree.publish.report.words import Words, percent

LIMITS = (0.05, 0.10, 0.25, 0.50)  # of how far intervals reach, as parts of the count
NOT_ASKED = "nothing: its numbers follow from those of the other levels"
QUALITIES = ("± 5 % or better", "± 5–10 %", "± 10–25 %", "± 25–50 %", "wider than ± 50 %")


@dataclass(frozen=True)
class LevelQuality:
    """How far off the counts of a level may be, over all categories."""

    name: str
    regions: int
    cells: int  # counts that are not zero
    groups: float  # of a region, the median
    reach: int | None  # 95 % of the recommended intervals of the level are within the count ± this
    kind: str  # of the recommended intervals
    parts: tuple[int, ...]  # how many of the cells have each of the QUALITIES

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Where each part begins and how wide it is, in a bar of all cells."""
        edges = [0, *(round(WIDE * part / max(self.cells, 1)) for part in np.cumsum(self.parts).tolist())]
        return [(start, end - start) for start, end in pairwise(edges)]

    @property
    def shares(self) -> list[str]:
        """The parts in percent."""
        return [percent(part / self.cells) if self.cells else "–" for part in self.parts]


def level_qualities(cells: Cells) -> list[LevelQuality]:
    """One row for each level, from the top."""
    tree = cells.release.hierarchy.regions
    used, found = cells.reaches, []
    for level, name in enumerate(tree.levels):
        rows = tree.level_slice(level)
        counts = cells.counts[rows, 0]
        parts = (0,) * len(QUALITIES) if used is None else _parts(counts, used[rows])
        found.append(
            LevelQuality(
                name,
                rows.stop - rows.start,
                sum(parts),
                float(np.median(cells.groups[rows, 0])),
                None if used is None else _reach(used[rows]),
                "typical" if cells.prefixes["counts"][level][0] else "guaranteed",
                parts,
            )
        )
    return found


def _reach(reaches: Integers) -> int | None:
    known = np.sort(reaches[reaches >= 0])
    return int(known[ceil(REACH_SHARE * len(known)) - 1]) if len(known) else None


def _parts(counts: Integers, half: Integers) -> tuple[int, ...]:
    known = (counts > 0) & (half >= 0)
    relative = half[known] / counts[known]
    places = np.searchsorted(np.array(LIMITS), relative, side="left")
    return tuple(np.bincount(places, minlength=len(QUALITIES)).tolist())


# -------------------------------------------------------------------- what was spent


@dataclass(frozen=True)
class Spending:
    """One measurement: what it asked, of which level, for how much of the budget."""

    level: str
    what: str
    share: str
    bar: Bar  # of the whole budget
    charged: str
    noise: str


def spendings(release: ReleaseContents, words: Words) -> list[Spending]:
    """What the budget was spent on, in the order of the measurements; then the levels that nothing was spent on."""
    measurements, tree = release.measurements, release.hierarchy
    amount = measurements.budget.amount
    asked = [
        Spending(
            _level(release, part),
            _asked(part, words),
            percent(float(part.share)),
            bar(float(part.share), 1),
            _amount(part.share * amount, measurements.budget.currency),
            f"± {part.variance**0.5:,.1f}",
        )
        for part in measurements.measured
    ]
    reached = {max(part.level - tree.first_level, 0) for part in measurements.measured}
    without = [name for level, name in enumerate(tree.regions.levels) if level not in reached]
    return [*asked, *(Spending(name, NOT_ASKED, "0 %", bar(0, 1), "–", "–") for name in without)]


def _level(release: ReleaseContents, part: Measurement) -> str:
    tree = release.hierarchy
    if not tree.by.columns:
        return tree.levels[part.level]
    name = tree.regions.levels[max(part.level - 1, 0)]
    over = part.level == 0 or part.summed
    return f"{name}, over all categories" if over else f"{name}, by {' and '.join(tree.by.names)}"


def _asked(part: Measurement, words: Words) -> str:
    asked = {
        "at_least": f"how many {words.groups} have each size or more",
        "counts": f"how many {words.groups} have each size",
        "sorted_sizes": f"the sizes of all {words.groups}, sorted",
        "totals": f"how many {words.groups} there are",
        "entities": f"how many {words.entities} there are",
        "largest": "the largest size",
    }
    text: str = asked.get(part.view, part.view)
    return text if part.sizes is None else f"{text}, {part.sizes.in_words()}"


def _amount(value: Fraction, currency: str) -> str:
    return f"{'ε' if currency == 'epsilon' else 'ρ'} = {as_decimal(value)}"


def reviewer_rows(stated: dict[str, Any]) -> list[dict[str, str]]:
    """The measurements of a privacy statement as a reviewer checks them."""
    return [
        {
            "level": row["level"],
            "view": row["view"],
            "regions": f"{row['regions']:,}",
            "l1": str(row["sensitivity"]["l1"]),
            "l2": str(row["sensitivity"]["l2_squared"]),
            "noise": row["noise"].replace("_", " "),
            "scale": row["scale"],
            "cost": row["cost"],
        }
        for row in stated["measurements"]
    ]
