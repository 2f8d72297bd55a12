"""`PlanReport`: what each mechanism would make of a budget, level by level, with how it shows itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.charts import altair, colors, inline, panel_title, round_numbers, shapes, styled
from tallytree.core.errors import SpecError
from tallytree.core.names import visible
from tallytree.core.notebook import page, paragraph, shortened, table
from tallytree.domain.hierarchy import Hierarchy
from tallytree.mechanisms import MECHANISMS, choose
from tallytree.planning.goals import Suggestion, suggest
from tallytree.planning.prior import ExpectedCounts, summed_up
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import Neighbours

USELESS = 0.5  # of the number of groups of a region: an interval that reaches further says next to nothing
MOST_EMPTY = 0.1  # of the regions with groups may be published as 0
LEAST_SHOWN = 0.01  # entities to move, on a logarithmic axis


@dataclass(frozen=True)
class Prediction:
    """What is to be expected on one level: errors are means per region, with standard errors from the simulation."""

    mechanism: str
    split: str
    shares: tuple[Fraction, ...]  # of the levels, from the top down; 0 where a level is not measured
    budget: Budget
    level: str
    depth: int
    l1: float
    l1_standard_error: float
    emd: float
    emd_standard_error: float
    half_width: float | None  # of the widest guaranteed interval for one count, around an unbiased estimate; or None
    reach: float | None  # most recommended intervals of the level are within count ± reach; depends on the prior
    published_as_none: float  # of the regions with groups, the part whose published counts are all 0; likewise


@dataclass(frozen=True, eq=False)
class PlanReport:
    """Predictions for every mechanism, split, budget and level. Everything in it is public."""

    hierarchy: Hierarchy
    neighbours: Neighbours
    prior: str  # in words
    confidence: float  # of the intervals
    replicates: int
    predictions: tuple[Prediction, ...]
    skipped: Mapping[str, str]  # mechanisms that were left out, and why
    notes: tuple[str, ...]
    totals: Integers | None = None  # the public numbers of groups of all regions
    expected: ExpectedCounts | None = None  # what the prior expects of this hierarchy

    @cached_property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets that were tried."""
        return tuple(dict.fromkeys(one.budget for one in self.predictions))

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """The ways to divide the budget over the levels, by name."""
        return tuple(dict.fromkeys(one.split for one in self.predictions))

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of the predictions; with categories also those of the regions over all categories."""
        return tuple(dict.fromkeys(one.level for one in self.predictions))

    def of(self, *, budget: Budget | None = None, split: str | None = None) -> tuple[Prediction, ...]:
        """The predictions for a budget (the first if not given) and a split (all if not given)."""
        wanted = self.budgets[0] if budget is None else budget
        return tuple(one for one in self.predictions if one.budget == wanted and split in (None, one.split))

    def best(self, level: str, *, budget: Budget | None = None, split: str | None = None) -> Prediction:
        """The least earth mover's error that is predicted on a level."""
        if level not in self.levels:
            raise SpecError(f"there is no level {level!r}; there are {', '.join(self.levels)}")
        return min((one for one in self.of(budget=budget, split=split) if one.level == level), key=lambda one: one.emd)

    def suggest(
        self, goals: str | Sequence[str], *, budget: Budget | None = None, mechanism: str = "auto"
    ) -> Suggestion:
        """Shares that meet a goal such as "county within 20 at 95%", or the budget that it would take."""
        wanted = self.budgets[0] if budget is None else budget
        known: dict[str, Any] = {"mechanism": mechanism, "totals": self.totals, "expected": self.expected}
        return suggest(self.hierarchy, self.neighbours, wanted, goals, **known)

    @property
    def warnings(self) -> tuple[str, ...]:
        """For each budget and level whose counts will be useless, why, in a sentence; by what the prior expects."""
        if self.expected is None:
            return ()
        usual = choose("auto", self.neighbours).name
        names = {one.mechanism for one in self.predictions}
        of_one = [one for one in self.predictions if one.mechanism == (usual if usual in names else min(names))]
        split = "balanced" if any(one.split == "balanced" for one in of_one) else of_one[0].split
        totals = summed_up(self.hierarchy, self.expected.totals)
        found = []
        for one in of_one:
            if one.split == split and one.depth < self.hierarchy.depth:
                rows = totals[self.hierarchy.level_slice(one.depth)]
                found.append(useless(one.level, one.budget, one.reach, one.published_as_none, rows))
        return tuple(text for text in found if text)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "levels": list(self.levels),
            "prior": self.prior,
            "confidence": self.confidence,
            "replicates": self.replicates,
            "notes": list(self.notes),
            "skipped": dict(self.skipped),
            "warnings": list(self.warnings),
            "predictions": [
                {
                    **vars(one),
                    "shares": [str(share) for share in one.shares],
                    "budget": one.budget.to_json(),
                }
                for one in self.predictions
            ],
        }

    def table(self) -> Any:
        """The predictions as a pyarrow Table, one row for each mechanism, split, budget and level."""
        import pyarrow as pa

        rows = [
            {**vars(one), "shares": [str(s) for s in one.shares], "budget": str(one.budget)} for one in self.predictions
        ]
        return pa.Table.from_pylist(rows)

    def __repr__(self) -> str:
        mechanisms = len({one.mechanism for one in self.predictions})
        tree = repr(self.hierarchy).removeprefix("Hierarchy(").removesuffix(")")
        budgets = " | ".join(map(str, self.budgets))
        tried = (
            f"{mechanisms} mechanisms × {len(self.splits)} splits × {len(self.budgets)} budgets ({shortened(budgets)})"
        )
        return f"PlanReport({tree}, expecting {visible(shortened(self.prior))}, {tried})"

    def _repr_html_(self) -> str:
        best = [self.best(level, budget=budget) for budget in self.budgets for level in self.levels]
        rows = [
            (
                str(one.budget),
                one.level,
                one.mechanism,
                one.split,
                f"{one.emd:,.1f} ± {one.emd_standard_error:,.1f}",
                "none" if one.reach is None else f"± {one.reach:,.0f}",
                "none" if one.half_width is None else f"± {one.half_width:,.1f}",
            )
            for one in best
        ]
        percent = f"{100 * self.confidence:g} %"
        widths = f"reach at {percent}, for data like the prior", f"guaranteed half-width at {percent}, for any data"
        headers = ("budget", "level", "best mechanism", "split", "entities to move per region", *widths)
        facts = {
            "expecting": self.prior,
            "protects": self.neighbours.describe(),
            "simulated": f"{self.replicates} times; ± in the table of errors is the standard error of that",
        }
        title = "What a budget buys: predicted from public facts, nothing was spent"
        found = table(headers, rows, right=(4, 5, 6), rest="table() has all of them")
        notes = (paragraph(note) for note in (*self.warnings, *self.notes))
        return page(title, facts, found, inline(lambda: _chart(self)), *notes)


def useless(level: str, budget: Budget, reach: float | None, as_none: float, groups: Floats) -> str:
    """Why the counts of a level will be useless, if they will be; `groups` are those expected in its regions.

    `as_none` is the part of the regions with groups whose published counts are all 0.
    """
    there, mean = int(np.count_nonzero(groups > 0)), float(groups.mean())
    why = []
    if reach is not None and reach >= USELESS * mean:
        why.append(f"a region has about {mean:,.0f} groups, and intervals of single counts reach ± {reach:,.0f}")
    if as_none >= MOST_EMPTY and (empty := round(as_none * there)):
        why.append(f"{empty:,} of {there:,} regions that have groups will be published as 0")
    if not why:
        return ""
    told = f"the counts of level {visible(level)!r} will be useless with {budget}: {'; '.join(why)}"
    return f"{told}. Take a larger budget, larger regions or fewer levels"


def places_of(mechanisms: Iterable[str]) -> dict[str, int]:
    """The mechanisms shown, each with its place among those that are planned by default: a colour for each."""
    known = [name for name, mechanism in MECHANISMS.items() if not mechanism.refused and not mechanism.unplanned]
    return {name: known.index(name) if name in known else len(known) for name in mechanisms}


def _chart(report: PlanReport) -> Any:
    """Predicted errors by level with the first budget and one split; mechanisms that have no split are there too."""
    alt = altair()
    split = "balanced" if "balanced" in report.splits else report.splits[0]
    ways = {
        one.mechanism: {other.split for other in report.of() if other.mechanism == one.mechanism} for one in report.of()
    }
    shown = [one for one in report.of() if one.split == split or len(ways[one.mechanism]) < len(report.splits)]
    rows: list[dict[str, Any]] = [
        {"level": visible(one.level), "mechanism": one.mechanism, "emd": max(one.emd, LEAST_SHOWN)} for one in shown
    ]
    least, most = min(row["emd"] for row in rows), max(row["emd"] for row in rows)
    x = alt.X(
        "emd:Q",
        title="entities to move per region",
        scale=alt.Scale(type="log", nice=False, padding=14),
        axis=alt.Axis(values=round_numbers(least / 1.5, most * 1.5), format="~s" if least >= 1 else "~g"),
    )
    places = places_of(row["mechanism"] for row in rows)
    points = (
        alt.Chart(alt.Data(values=rows))
        .mark_point(filled=True, size=60, opacity=1)
        .encode(x=x, y=alt.Y("level:N", sort=None, title=None), color=colors(places), shape=shapes(places))
    )
    title = panel_title(f"{report.budgets[0]}, split {visible(split)!r}")
    chart = points.properties(title=title, width=360, height=max(60, 34 * report.hierarchy.depth))
    return styled(chart, subtitle_color="#5b6770", legend_columns=3)
