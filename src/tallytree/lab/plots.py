"""NOT PRIVATE: pictures of results, as PNG and as HTML files that need no network. Needs the extra `plots`.

`error_against_budget` is PGSR's Figure 9 with error bars, level by level; `runtime_against_sizes` its Figure 7;
`error_against_size` is Figure 1 of Kuo et al.: along the sizes, the error of the number of groups of at least that
size. Summed over sizes that is the earth mover's distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from tallytree.core.charts import (
    altair,
    budget_axis,
    colors,
    page_title,
    panel_title,
    round_numbers,
    save,
    shapes,
    styled,
    tooltip,
)
from tallytree.core.errors import SpecError
from tallytree.lab.metrics import ALL_LEVELS
from tallytree.lab.results import Results

SUBTITLE = "NOT PRIVATE: compared with the true counts"
LABELS = {
    "l1": "L1 error",
    "emd": "earth mover's distance",
    "emd_per_region": "earth mover's distance per region",
    "exact_cells": "share of exact cells",
    "processor_seconds_estimating": "processor seconds for estimating",
    "seconds_estimating": "seconds for estimating",
    "seconds_measuring": "seconds for measuring",
}
NUMBERS = ("mean", "standard_error")
PANEL = 250
IN_A_ROW = 3


def error_against_budget(results: Results, metric: str = "l1") -> Any:
    """Mean error with its standard error against ε (or ρ), one panel per level; both axes logarithmic."""
    alt = altair()
    rows = [row for row in _summary(results) if row["metric"] == metric and row["depth"] is not None]
    rows = _with_bars(_found(rows, metric))
    currency = "epsilon" if all(row["epsilon"] is not None for row in rows) else "rho"
    rows = [row for row in rows if row[currency] is not None]
    budgets = sorted({row[currency] for row in rows})
    x = budget_axis(currency, "ε" if currency == "epsilon" else "ρ", budgets)
    panels = []
    for place, level in enumerate(_levels(rows)):
        here = [row for row in rows if row["level"] == level]
        base = alt.Chart(alt.Data(values=here)).encode(
            x=x, color=colors(_mechanisms(rows)), tooltip=tooltip(("mechanism", "budget"), NUMBERS)
        )
        panels.append(
            _lines(base, here, rows, _first(place, LABELS.get(metric, metric))).properties(title=panel_title(level))
        )
    return _page(panels, f"{LABELS.get(metric, metric).capitalize()} by level: {_datasets(rows)}", rows)


def runtime_against_sizes(results: Results | Sequence[Results], metric: str = "processor_seconds_estimating") -> Any:
    """Mean runtime against the largest size N, over several experiments; one panel per budget.

    Processor time by default: it depends less than `seconds_estimating` on what else the machine does.
    """
    alt = altair()
    joined = results if isinstance(results, Results) else Results.together(list(results))
    rows = _with_bars(_found([row for row in _summary(joined) if row["metric"] == metric], metric))
    sizes = sorted({row["max_size"] for row in rows})
    x = alt.X(
        "max_size:Q",
        title="number of sizes N",
        scale=alt.Scale(type="log", nice=False, padding=14),
        axis=alt.Axis(values=sizes, format="~s", grid=False, labelOverlap=True),
    )
    panels = []
    for place, budget in enumerate(dict.fromkeys(row["budget"] for row in rows)):
        here = [row for row in rows if row["budget"] == budget]
        base = alt.Chart(alt.Data(values=here)).encode(
            x=x, color=colors(_mechanisms(rows)), tooltip=tooltip(("mechanism", "max_size"), NUMBERS)
        )
        panels.append(
            _lines(base, here, rows, _first(place, LABELS.get(metric, metric))).properties(title=panel_title(budget))
        )
    return _page(panels, f"Runtime against the number of sizes: {_datasets(rows)}", rows)


def error_against_size(
    results: Results, *, budget: str | None = None, by: Literal["size", "groups"] = "size", signed: bool = False
) -> Any:
    """Mean error of the "at least this size" counts along the sizes, one panel per level, for one budget.

    `by="groups"` puts on the axis the share of true groups that are smaller, as Figure 1 of Kuo et al. does.
    """
    alt = altair()
    metric = "signed_error_at_size" if signed else "error_at_size"
    summary = [row for row in _summary(results) if row["size"] is not None]
    budget = _chosen_budget(summary, budget)
    below = {
        (row["dataset"], row["level"], row["size"]): row["mean"]
        for row in summary
        if row["metric"] == "groups_below_size"
    }
    rows = [row for row in summary if row["metric"] == metric and row["budget"] == budget]
    rows = _found([{**row, "groups": below[row["dataset"], row["level"], row["size"]]} for row in rows], metric)
    largest = max(row["max_size"] for row in rows)
    many, sizes = largest > 30, round_numbers(1, largest)
    title = f"{'signed error' if signed else 'error'} per region (groups)"
    x = (
        alt.X("size:Q", title="size", scale=alt.Scale(type="log", nice=False), axis=alt.Axis(values=sizes, format="~s"))
        if by == "size" and many
        else alt.X(
            "size:Q", title="size", scale=alt.Scale(nice=False, zero=False, padding=10), axis=alt.Axis(format="d")
        )
        if by == "size"
        else alt.X("groups:Q", title="share of the groups that are smaller", axis=alt.Axis(format="%"))
    )
    panels = []
    for place, level in enumerate(_levels(rows)):
        here = [row for row in rows if row["level"] == level]
        # Less than one group is as good as nothing: linear up to there, logarithmic beyond.
        ends = min(row["mean"] for row in here), max(row["mean"] for row in here)
        marks = sorted({0.0, *round_numbers(1, ends[1]), *(-mark for mark in round_numbers(1, -ends[0]))})
        scale = alt.Scale(type="symlog", constant=1, nice=False, padding=6)
        y = alt.Y("mean:Q", title=_first(place, title), scale=scale, axis=alt.Axis(values=marks, format="~s"))
        base = alt.Chart(alt.Data(values=here)).encode(
            x=x, y=y, color=colors(_mechanisms(rows)), tooltip=tooltip(("mechanism", "size"), NUMBERS)
        )
        line = base.mark_line(strokeWidth=1.6, interpolate="step-after" if many else "linear", point=not many)
        panels.append(line.properties(title=panel_title(level)))
    return _page(panels, f"Error of the number of groups of at least each size: {_datasets(rows)}, {budget}", rows)


def save_all(results: Results, directory: str | Path) -> list[Path]:
    """The plots that one experiment has numbers for, each as PNG and HTML."""
    charts = {
        "error-l1": error_against_budget(results, "l1"),
        "error-emd": error_against_budget(results, "emd_per_region"),
        "error-by-size": error_against_size(results),
    }
    return [
        save(chart, Path(directory, f"{name}{ending}"))
        for name, chart in charts.items()
        for ending in (".png", ".html")
    ]


def _summary(results: Results) -> list[dict[str, Any]]:
    """Means with each mechanism's place in the results, which gives it the same colour and shape in every plot."""
    rows: list[dict[str, Any]] = results.summary().to_pylist()
    shown = {row["mechanism"] for row in rows}
    names = [name for name in dict.fromkeys(results.rows["mechanism"].to_pylist()) if name in shown]
    return [{**row, "place": names.index(row["mechanism"])} for row in rows]


def _found(rows: list[dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    if not rows:
        raise SpecError(f"the results hold no numbers for {metric!r}: nothing to plot")
    return rows


def _with_bars(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the ends of the error bars; on a logarithmic axis the lower end must stay above zero."""
    made = []
    for row in rows:
        error = row["standard_error"] or 0.0
        low = row["mean"] - error
        made.append({**row, "low": low if low > 0 else row["mean"] / 10, "high": row["mean"] + error})
    return made


def _lines(base: Any, rows: list[dict[str, Any]], everything: list[dict[str, Any]], title: str | None) -> Any:
    """Means joined by lines, with error bars, on a logarithmic axis; shapes are those of the whole plot."""
    alt = altair()
    # A mechanism without any error has a mean of 0, which a logarithm cannot show.
    low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
    scale = alt.Scale(type="log" if low > 0 else "symlog", nice=False, padding=10)
    marks = round_numbers(low if low > 0 else 1, high)
    axis = alt.Axis(values=marks if low > 0 else [0.0, *marks], format="~s" if high >= 10 else "~g")
    y = alt.Y("mean:Q", title=title, scale=scale, axis=axis)
    bars = base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title=title, scale=scale, axis=axis), y2="high:Q")
    points = base.mark_point(filled=True, size=55, opacity=1).encode(y=y, shape=shapes(_mechanisms(everything)))
    return base.mark_line(strokeWidth=1.6).encode(y=y) + bars + points


def _page(panels: list[Any], title: str, rows: list[dict[str, Any]]) -> Any:
    """Panels side by side under one title, with one legend."""
    alt = altair()
    width = PANEL if len(panels) > 1 else 2 * PANEL
    shown = [panel.properties(width=width, height=PANEL * 0.8) for panel in panels]
    runs = sorted({row["runs"] for row in rows})
    times = f"mean of {runs[0]} runs" if len(runs) == 1 else f"means of {runs[0]} to {runs[-1]} runs"
    spread = ", bars: ± one standard error" if "low" in rows[0] and runs[-1] > 1 else ""
    heading = page_title(title, f"{SUBTITLE} · {times}{spread}")
    side_by_side = alt.concat(*shown, columns=IN_A_ROW, title=heading, spacing=62, align="all", bounds="flush")
    return styled(side_by_side, subtitle_color="#b3261e", legend_columns=4)


def _first(place: int, title: str) -> str | None:
    """Only the first panel of a row names its axis: the others have the same."""
    return title if place % IN_A_ROW == 0 else None


def _mechanisms(rows: list[dict[str, Any]]) -> dict[str, int]:
    """The mechanisms shown, with their places among all of the results."""
    return dict(sorted({row["mechanism"]: row["place"] for row in rows}.items(), key=lambda item: int(item[1])))


def _levels(rows: list[dict[str, Any]]) -> list[str]:
    order = {row["level"]: row["depth"] for row in rows if row["level"] != ALL_LEVELS}
    return sorted(order, key=lambda level: int(order[level]))


def _datasets(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    return ", ".join(names) if len(names) < 3 else f"{names[0]} to {names[-1]}"


def _chosen_budget(rows: list[dict[str, Any]], budget: str | None) -> str:
    """The one asked for, or the largest."""
    amounts = {row["budget"]: row["epsilon"] if row["epsilon"] is not None else row["rho"] for row in rows}
    if not amounts:
        raise SpecError("the results hold no errors by size: nothing to plot")
    if budget is not None and budget not in amounts:
        raise SpecError(f"no results for budget {budget!r}; there are {', '.join(amounts)}")
    return budget or max(amounts, key=lambda name: float(amounts[name]))
