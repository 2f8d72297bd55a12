"""`PlanReport`: what each mechanism would make of a budget, level by level, with how it shows itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from tallytree.arrays import Integers
from tallytree.charts import altair, colors, inline, panel_title, round_numbers, shapes, styled
from tallytree.errors import SpecError
from tallytree.hierarchy import Hierarchy
from tallytree.mechanisms import MECHANISMS
from tallytree.names import visible
from tallytree.notebook import page, paragraph, shortened, table
from tallytree.planning.goals import Suggestion, suggest
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import Neighbours

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
    half_width: float | None  # of the widest guaranteed interval for one count of the level; None where there is none


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
        return suggest(self.hierarchy, self.neighbours, wanted, goals, mechanism=mechanism, totals=self.totals)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "levels": list(self.levels),
            "prior": self.prior,
            "confidence": self.confidence,
            "replicates": self.replicates,
            "notes": list(self.notes),
            "skipped": dict(self.skipped),
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
                "none" if one.half_width is None else f"± {one.half_width:,.0f}",
            )
            for one in best
        ]
        width = f"widest guaranteed interval at {100 * self.confidence:g} %"
        headers = ("budget", "level", "best mechanism", "split", "entities to move per region", width)
        facts = {
            "expecting": self.prior,
            "protects": self.neighbours.describe(),
            "simulated": f"{self.replicates} times; ± in the table of errors is the standard error of that",
        }
        title = "What a budget buys: predicted from public facts, nothing was spent"
        found = table(headers, rows, right=(4, 5), rest="table() has all of them")
        notes = (paragraph(note) for note in self.notes)
        return page(title, facts, found, inline(lambda: _chart(self)), *notes)


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
