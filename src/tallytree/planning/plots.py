"""Pictures of a plan: error against the budget, level by level, and the trade between root and leaves.

Both are predictions from public facts, as in `planning`. Needs the extra `plots`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.errors import SpecError
from tallytree.hierarchy import Hierarchy
from tallytree.planning.prior import Prior
from tallytree.planning.report import PlanReport, planned, planned_by_default
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.plan import Shares, level_shares
from tallytree.progress import Progress, silent

# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#22303c"]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right"]
TIMES = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))  # the budgets shown, by the stated one
RATIOS = (4, 2, 1, 0.5, 0.25)  # of a level's share to the next one's
MOST_CELLS = 100_000  # regions × sizes that are simulated: pictures show many budgets and splits
PANEL = 235
IN_A_ROW = 4
ENDINGS = (".png", ".svg", ".html")


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
    _altair()
    known: dict[str, Any] = {"prior": prior, "leaf_totals": leaf_totals, "mechanisms": mechanisms}
    known |= {"most_cells": MOST_CELLS, "progress": progress}
    even: dict[str, Shares] = {"balanced": level_shares(hierarchy, None)}
    budgets = planned(hierarchy, neighbours, budgets=[_times(budget, by) for by in TIMES], splits=even, **known)
    pictures = [against_budget(budgets)]
    if hierarchy.depth > 1:
        splits: dict[str, Shares] = {
            _ratio(ratio): level_shares(hierarchy, [Fraction(1 / ratio) ** level for level in range(hierarchy.depth)])
            for ratio in RATIOS
        }
        pictures.append(trade(planned(hierarchy, neighbours, budgets=[budget], splits=splits, **known)))
    return _page(pictures, f"What a budget buys, expecting {prior.source}")


def against_budget(report: PlanReport) -> Any:
    """Predicted earth mover's error per region against the budget, one panel for each level; both axes logarithmic."""
    alt = _altair()
    rows = _rows(report)
    budgets = sorted({row["amount"] for row in rows})
    x = alt.X(
        "amount:Q",
        title=rows[0]["currency"],
        scale=alt.Scale(type="log", nice=False, padding=14),
        axis=alt.Axis(values=budgets, format="~g", grid=False),
    )
    panels = []
    for place, level in enumerate(report.hierarchy.levels):
        here = [row for row in rows if row["level"] == level]
        base = alt.Chart(alt.Data(values=here)).encode(x=x, color=_color(rows), tooltip=_tooltip("budget"))
        y = _axis("emd", here, "entities to move per region" if place % IN_A_ROW == 0 else None)
        lines = base.mark_line(strokeWidth=1.6).encode(y=y)
        points = base.mark_point(filled=True, size=45, opacity=1).encode(y=y, shape=_shape(rows))
        panels.append((lines + points).properties(title=_small(level), width=PANEL, height=PANEL * 0.8))
    return alt.concat(*panels, columns=IN_A_ROW, spacing=40)


def trade(report: PlanReport) -> Any:
    """The error of the top level against that of the last as the split of the budget moves from one to the other."""
    alt = _altair()
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
        color=_color(rows),
        order="order:Q",
        tooltip=[*_tooltip("split"), alt.Tooltip("leaves:Q", format=",.4~g")],
    )
    points = base.mark_point(filled=True, size=45, opacity=1).encode(shape=_shape(rows))
    best = min(rows, key=lambda row: row["top"] * row["leaves"])["mechanism"]
    ends = [row for row in rows if row["mechanism"] == best]
    labels = (
        alt.Chart(alt.Data(values=ends))
        .mark_text(align="right", dx=-6, dy=9, fontSize=10, color="#5b6770")
        .encode(x="top:Q", y="leaves:Q", text="split:N")
    )
    title = _small(
        f"{levels[0]} against {levels[-1]} at {report.budgets[0]}; 2:1 = each level twice the next one's share"
    )
    return (base.mark_line(strokeWidth=1.6) + points + labels).properties(
        title=title, width=2.4 * PANEL, height=1.2 * PANEL
    )


def save(chart: Any, path: str | Path) -> Path:
    """Write a chart as .png, .svg or a self-contained .html, by the name's ending."""
    target = check(path)
    import vl_convert

    values = chart.to_json()
    if target.suffix == ".png":
        target.write_bytes(vl_convert.vegalite_to_png(values, scale=1.5))
    elif target.suffix == ".svg":
        target.write_text(vl_convert.vegalite_to_svg(values), encoding="utf-8")
    else:
        target.write_text(vl_convert.vegalite_to_html(values, bundle=True), encoding="utf-8")
    return target


def check(path: str | Path) -> Path:
    """The path, if a picture can be written there; before anything is simulated for it."""
    target = Path(path)
    if target.suffix not in ENDINGS:
        raise SpecError(f"a picture is saved as {', '.join(ENDINGS)}, not as {target.name}")
    if not target.absolute().parent.is_dir():
        raise SpecError(f"there is no folder {target.absolute().parent} to save the picture in")
    _altair()
    return target


def _altair() -> Any:
    from importlib.util import find_spec

    if find_spec("altair") is None or find_spec("vl_convert") is None:
        raise SpecError('pictures need Altair: install it with pip install "tallytree[plots]"')
    import altair

    return altair


def _times(budget: Budget, by: Fraction) -> Budget:
    """The budget so many times over, in the terms that it was stated in."""
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
    alt = _altair()
    low, high = min(row[field] for row in rows), max(row[field] for row in rows)
    scale = alt.Scale(type="log", nice=False, padding=36 if horizontal else 16)
    axis = alt.Axis(values=_round_numbers(low / 1.5, high * 1.5), format="~s" if low >= 1 else "~g", grid=True)
    return (alt.X if horizontal else alt.Y)(f"{field}:Q", title=title, scale=scale, axis=axis)


def _round_numbers(low: float, high: float) -> list[float]:
    """1, 2, 5, 10 … between two positive numbers, or only powers of ten where that would be many."""
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if math.log10(high / low) <= 3.5 else (1,)
    return [mark for ten in tens for digit in digits if low <= (mark := float(f"{digit}e{ten}")) <= high]


def _names(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["mechanism"] for row in rows))


def _color(rows: list[dict[str, Any]]) -> Any:
    alt, names = _altair(), _names(rows)
    colors = [COLORS[_place(name) % len(COLORS)] for name in names]
    return alt.Color("mechanism:N", scale=alt.Scale(domain=names, range=colors))


def _shape(rows: list[dict[str, Any]]) -> Any:
    alt, names = _altair(), _names(rows)
    shapes = [SHAPES[_place(name) % len(SHAPES)] for name in names]
    return alt.Shape("mechanism:N", scale=alt.Scale(domain=names, range=shapes))


def _place(name: str) -> int:
    """The same colour and shape for a mechanism in every picture."""
    names = planned_by_default()
    return names.index(name) if name in names else len(names)


def _tooltip(*names: str) -> list[Any]:
    alt = _altair()
    return [
        *(alt.Tooltip(name, type="nominal") for name in ("mechanism", *names)),
        alt.Tooltip("emd:Q", format=",.4~g"),
    ]


def _small(title: str) -> Any:
    return _altair().TitleParams(title, fontSize=12, fontWeight="normal", anchor="middle", offset=6)


def _page(pictures: list[Any], title: str) -> Any:
    alt = _altair()
    heading = alt.TitleParams(
        title,
        subtitle="Predicted by simulation from public facts: no private data were opened",
        anchor="start",
        offset=14,
    )
    return (
        alt.vconcat(*pictures, title=heading, spacing=36)
        .resolve_scale(color="shared", shape="shared")
        .configure_view(stroke="#d5dbe0")
        .configure_axis(labelColor="#22303c", titleColor="#22303c", gridColor="#eceff1", labelFontSize=11)
        .configure_title(fontSize=15, subtitleFontSize=12, subtitleColor="#5b6770", color="#22303c")
        .configure_legend(orient="bottom", title=None, labelFontSize=12, labelLimit=300, columns=5, symbolStrokeWidth=2)
    )
