"""Panels of lines, one for each mechanism, on logarithmic axes. Needs the extra `plots`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tallytree.core.charts import COLORS, altair, panel_title

SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"]
MOST_DECADES = 3.5  # of an axis whose marks are 1, 2 and 5 times the powers of ten; beyond, only those
PANEL, IN_A_ROW = 250, 3


def line_panels(
    parts: Mapping[str, list[dict[str, Any]]],
    x: Any,
    field: str,
    *,
    title: str,
    places: Mapping[str, int],
    facts: tuple[str, ...],
) -> Any:
    """A panel for each part of the rows, three side by side: a line with points for each mechanism.

    Rows with the ends `low` and `high` have error bars. `facts` are names that a point tells of itself.
    """
    alt = altair()
    panels = []
    width = PANEL if len(parts) > 1 else 2 * PANEL
    for place, (name, rows) in enumerate(parts.items()):
        named = title if place % IN_A_ROW == 0 else None  # the others of a row have the same
        y = log_axis(field, rows, named)
        base = alt.Chart(alt.Data(values=rows)).encode(
            x=x, color=colors(places), tooltip=tooltip(facts, tuple({field, "standard_error"} & set(rows[0])))
        )
        layers = base.mark_line(strokeWidth=1.6).encode(y=y)
        if "low" in rows[0]:
            layers += base.mark_rule(strokeWidth=1.5).encode(y=log_axis("low", rows, named), y2="high:Q")
        layers += base.mark_point(filled=True, size=50, opacity=1).encode(y=y, shape=shapes(places))
        panels.append(layers.properties(title=panel_title(name), width=width, height=PANEL * 0.8))
    return side_by_side(panels)


def side_by_side(panels: list[Any], **more: Any) -> Any:
    """Panels, three in a row."""
    return altair().concat(*panels, columns=IN_A_ROW, spacing=62, align="all", bounds="flush", **more)


def log_axis(field: str, rows: list[dict[str, Any]], title: str | None, *, horizontal: bool = False) -> Any:
    """A logarithmic axis for a field of the rows, or for their ends `low` and `high`; zeros are shown too."""
    alt = altair()
    low = min(row.get("low", row[field]) for row in rows)
    high = max(row.get("high", row[field]) for row in rows)
    scale = alt.Scale(type="log" if low > 0 else "symlog", nice=False, padding=36 if horizontal else 16)
    marks = round_numbers(low / 1.5, high * 1.5) if low > 0 else [0.0, *round_numbers(1, high)]
    axis = alt.Axis(values=marks, format="~g" if 0 < low < 1 else "~s", grid=True)
    return (alt.X if horizontal else alt.Y)(f"{field}:Q", title=title, scale=scale, axis=axis)


def budget_axis(field: str, title: str, budgets: list[float]) -> Any:
    """A logarithmic axis with a mark for each budget."""
    alt = altair()
    scale = alt.Scale(type="log", nice=False, padding=14)
    return alt.X(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(values=budgets, format="~g", grid=False))


def round_numbers(low: float, high: float) -> list[float]:
    """1, 2, 5, 10 … between two positive numbers, or only powers of ten where that would be many; [] if none is."""
    if high < low:
        return []
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if math.log10(high / low) <= MOST_DECADES else (1,)
    return [mark for ten in tens for digit in digits if low <= (mark := float(f"{digit}e{ten}")) <= high]


def colors(places: Mapping[str, int]) -> Any:
    """A colour for each mechanism, by its place among all that could be shown: the same in every chart."""
    return _by_place(altair().Color, places, COLORS)


def shapes(places: Mapping[str, int]) -> Any:
    """A shape for each mechanism, as `colors`."""
    return _by_place(altair().Shape, places, SHAPES)


def _by_place(encoding: Any, places: Mapping[str, int], looks: list[str]) -> Any:
    chosen = [looks[place % len(looks)] for place in places.values()]
    return encoding("mechanism:N", scale=altair().Scale(domain=list(places), range=chosen))


def tooltip(names: tuple[str, ...], numbers: tuple[str, ...]) -> list[Any]:
    """What a point says of itself: names, and numbers in four digits."""
    alt = altair()
    return [
        *(alt.Tooltip(name, type="nominal") for name in names),
        *(alt.Tooltip(f"{name}:Q", format=",.4~g") for name in numbers),
    ]
