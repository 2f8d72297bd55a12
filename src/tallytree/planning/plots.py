"""Pictures of a plan: error against the budget, level by level, and the trade between root and leaves.

Both are predictions from public facts, as in `planning`. Needs the extra `plots`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.charts import (
    altair,
    budget_axis,
    colors,
    page_title,
    panel_title,
    round_numbers,
    shapes,
    styled,
    tooltip,
)
from tallytree.core.progress import Progress, silent
from tallytree.domain.hierarchy import Hierarchy
from tallytree.planning.prior import Prior
from tallytree.planning.report import planned
from tallytree.planning.value import PlanReport, places_of
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.plan import Shares, level_shares

TIMES = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))  # the budgets shown, by the stated one
RATIOS = (4, 2, 1, 0.5, 0.25)  # of a level's share to the next one's
MOST_CELLS = 100_000  # regions × sizes that are simulated: pictures show many budgets and splits
PANEL = 235
IN_A_ROW = 4


def page(
    hierarchy: Hierarchy,
    neighbours: Neighbours,
    *,
    budget: Budget,
    prior: Prior,
    leaf_totals: NDArray[np.int64] | None = None,
    mechanisms: Sequence[str] | None = None,
    progress: Progress = silent,
) -> Any:
    """Both pictures on one page, as an Altair chart; it simulates what it shows."""
    alt = altair()
    known: dict[str, Any] = {"prior": prior, "leaf_totals": leaf_totals, "mechanisms": mechanisms}
    known |= {"most_cells": MOST_CELLS, "progress": progress}
    even: dict[str, Shares] = {"balanced": level_shares(hierarchy, None)}
    budgets = planned(hierarchy, neighbours, budgets=budgets_around(budget), splits=even, **known)
    pictures = [against_budget(budgets)]
    if hierarchy.depth > 1:
        splits: dict[str, Shares] = {
            _ratio(ratio): level_shares(hierarchy, [Fraction(1 / ratio) ** level for level in range(hierarchy.depth)])
            for ratio in RATIOS
        }
        pictures.append(trade(planned(hierarchy, neighbours, budgets=[budget], splits=splits, **known)))
    title = page_title(
        f"What a budget buys, expecting {prior.source}",
        "Predicted by simulation from public facts: no private data were opened",
    )
    both = alt.vconcat(*pictures, title=title, spacing=36).resolve_scale(color="shared", shape="shared")
    return styled(both, subtitle_color="#5b6770", legend_columns=5)


def against_budget(report: PlanReport) -> Any:
    """Predicted earth mover's error per region against the budget, one panel for each level; both axes logarithmic."""
    alt = altair()
    rows = _rows(report)
    budgets = sorted({row["amount"] for row in rows})
    x = budget_axis("amount", rows[0]["currency"], budgets)
    panels = []
    for place, level in enumerate(report.hierarchy.levels):
        here = [row for row in rows if row["level"] == level]
        base = alt.Chart(alt.Data(values=here)).encode(
            x=x, color=colors(_places(rows)), tooltip=tooltip(("mechanism", "budget"), ("emd",))
        )
        y = _axis("emd", here, "entities to move per region" if place % IN_A_ROW == 0 else None)
        lines = base.mark_line(strokeWidth=1.6).encode(y=y)
        points = base.mark_point(filled=True, size=45, opacity=1).encode(y=y, shape=shapes(_places(rows)))
        panels.append((lines + points).properties(title=panel_title(level), width=PANEL, height=PANEL * 0.8))
    return alt.concat(*panels, columns=IN_A_ROW, spacing=40)


def trade(report: PlanReport) -> Any:
    """The error of the top level against that of the last as the split of the budget moves from one to the other."""
    alt = altair()
    last = report.hierarchy.depth - 1
    by_way: dict[tuple[str, str], dict[int, Any]] = {}
    for row in _rows(report):
        by_way.setdefault((row["mechanism"], row["split"]), {})[row["depth"]] = row
    order = {split: place for place, split in enumerate(report.splits)}
    rows = [
        {**found[0], "top": found[0]["emd"], "leaves": found[last]["emd"], "order": order[split]}
        for (_, split), found in by_way.items()
        # One that measures leaves only has a single point, far off: the line of the others would be squeezed by it.
        if sum(way == found[0]["mechanism"] for way, _ in by_way) > 1
    ]
    levels = report.hierarchy.levels
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=_axis("top", rows, f"entities to move, {levels[0]}", horizontal=True),
        y=_axis("leaves", rows, f"entities to move per {levels[-1]}"),
        color=colors(_places(rows)),
        order="order:Q",
        tooltip=tooltip(("mechanism", "split"), ("emd", "leaves")),
    )
    points = base.mark_point(filled=True, size=45, opacity=1).encode(shape=shapes(_places(rows)))
    best = min(rows, key=lambda row: row["top"] * row["leaves"])["mechanism"]
    ends = [row for row in rows if row["mechanism"] == best]
    labels = (
        alt.Chart(alt.Data(values=ends))
        .mark_text(align="right", dx=-6, dy=9, fontSize=10, color="#5b6770")
        .encode(x="top:Q", y="leaves:Q", text="split:N")
    )
    title = panel_title(
        f"{levels[0]} against {levels[-1]} at {report.budgets[0]}; 2:1 = each level twice the next one's share"
    )
    return (base.mark_line(strokeWidth=1.6) + points + labels).properties(
        title=title, width=2.4 * PANEL, height=1.2 * PANEL
    )


def budgets_around(budget: Budget) -> list[Budget]:
    """The budget, and some that are smaller and larger."""
    return [budget, *(_times(budget, by) for by in TIMES if by != 1)]


def _times(budget: Budget, by: Fraction) -> Budget:
    """A multiple of the budget, in the terms that it was stated in."""
    if budget.epsilon is not None:
        return Budget(epsilon=budget.epsilon * by, delta=budget.delta)
    return Budget(rho=budget.amount * by, delta=budget.delta)


def _ratio(ratio: float) -> str:
    return f"{ratio:g}:1" if ratio >= 1 else f"1:{1 / ratio:g}"


def _rows(report: PlanReport) -> list[dict[str, Any]]:
    """Predictions as plain rows, errors of 0 raised to where a logarithm can show them."""
    rows = []
    for one in report.predictions:
        in_epsilon = one.budget.epsilon is not None
        amount = one.budget.epsilon if in_epsilon else one.budget.amount
        rows.append(
            {
                "mechanism": one.mechanism,
                "split": one.split,
                "budget": str(one.budget),
                "currency": "ε" if in_epsilon else "ρ",
                "amount": float(amount or 0),
                "level": one.level,
                "depth": one.depth,
                "emd": max(one.emd, 0.01),
            }
        )
    return rows


def _axis(field: str, rows: list[dict[str, Any]], title: str | None, *, horizontal: bool = False) -> Any:
    alt = altair()
    low, high = min(row[field] for row in rows), max(row[field] for row in rows)
    scale = alt.Scale(type="log", nice=False, padding=36 if horizontal else 16)
    axis = alt.Axis(values=round_numbers(low / 1.5, high * 1.5), format="~s" if low >= 1 else "~g", grid=True)
    return (alt.X if horizontal else alt.Y)(f"{field}:Q", title=title, scale=scale, axis=axis)


def _places(rows: list[dict[str, Any]]) -> dict[str, int]:
    return places_of(row["mechanism"] for row in rows)
