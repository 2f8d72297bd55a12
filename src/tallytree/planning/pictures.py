"""Pictures of predictions: error against the budget, level by level, and the trade between root and leaves.

Needs the extra `plots`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tallytree.core.charts import altair, panel_title
from tallytree.core.names import visible
from tallytree.core.panels import PANEL, budget_axis, colors, line_panels, log_axis, shapes, tooltip
from tallytree.mechanisms import MECHANISMS
from tallytree.planning.simulation import Prediction

LEAST_SHOWN = 0.01  # entities to move, on a logarithmic axis


def against_budget(predictions: Sequence[Prediction]) -> Any:
    """Predicted earth mover's error per region against the budget, one panel for each level; both axes logarithmic."""
    rows = _rows(predictions)
    x = budget_axis("amount", rows[0]["currency"], sorted({row["amount"] for row in rows}))
    parts = {level: [row for row in rows if row["level"] == level] for level in dict.fromkeys(r["level"] for r in rows)}
    title = "entities to move per region"
    return line_panels(parts, x, "emd", title=title, places=_places(rows), facts=("mechanism", "budget"))


def trade(predictions: Sequence[Prediction]) -> Any:
    """The error of the top level against that of the last as the split of the budget moves from one to the other."""
    alt = altair()
    by_way: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in _rows(predictions):
        by_way.setdefault((row["mechanism"], row["split"]), []).append(row)
    order = list(dict.fromkeys(split for _, split in by_way))
    rows = [
        {**found[0], "top": found[0]["emd"], "leaves": found[-1]["emd"], "order": order.index(split)}
        for (mechanism, split), found in by_way.items()
        # One that measures leaves only has a single point, far off: the line of the others would be squeezed by it.
        if sum(way == mechanism for way, _ in by_way) > 1
    ]
    levels = list(dict.fromkeys(one.level for one in predictions))
    places = _places(rows)
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=log_axis("top", rows, f"entities to move, {levels[0]}", horizontal=True),
        y=log_axis("leaves", rows, f"entities to move per {levels[-1]}"),
        color=colors(places),
        order="order:Q",
        tooltip=tooltip(("mechanism", "split"), ("emd", "leaves")),
    )
    points = base.mark_point(filled=True, size=45, opacity=1).encode(shape=shapes(places))
    best = min(rows, key=lambda row: row["top"] * row["leaves"])["mechanism"]
    labels = (
        alt.Chart(alt.Data(values=[row for row in rows if row["mechanism"] == best]))
        .mark_text(align="right", dx=-6, dy=9, fontSize=10, color="#5b6770")
        .encode(x="top:Q", y="leaves:Q", text="split:N")
    )
    title = f"{levels[0]} against {levels[-1]} at {rows[0]['budget']}; 2:1 = each level twice the next one's share"
    return (base.mark_line(strokeWidth=1.6) + points + labels).properties(
        title=panel_title(title), width=2.4 * PANEL, height=1.2 * PANEL
    )


def _rows(predictions: Iterable[Prediction]) -> list[dict[str, Any]]:
    """Predictions as plain rows, errors of 0 raised to where a logarithm can show them."""
    return [
        {
            "mechanism": one.mechanism,
            "split": one.split,
            "budget": str(one.budget),
            "currency": "ρ" if one.budget.epsilon is None else "ε",
            "amount": float(one.budget.amount if one.budget.epsilon is None else one.budget.epsilon),
            "level": visible(one.level),
            "emd": max(one.emd, LEAST_SHOWN),
        }
        for one in predictions
    ]


def _places(rows: list[dict[str, Any]]) -> dict[str, int]:
    """The mechanisms shown, each with its place among those that are planned by default: a colour for each."""
    known = [name for name, mechanism in MECHANISMS.items() if not mechanism.refused and not mechanism.unplanned]
    shown = dict.fromkeys(row["mechanism"] for row in rows)
    return {name: known.index(name) if name in known else len(known) for name in shown}
