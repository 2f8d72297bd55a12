"""NOT PRIVATE: plot results as PNG and as HTML files that need no network. Needs the extra `plots`.

`error_against_budget` is PGSR's Figure 9 with error bars, level by level; `runtime_against_sizes` its Figure 7;
`error_against_size` is Figure 1 of Kuo et al.: along the sizes, the error of the number of groups of at least that
size. Summed over sizes that is the earth mover's distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from tallytree.core.display import (
    IN_A_ROW,
    PANEL,
    altair,
    available,
    budget_axis,
    colors,
    line_panels,
    page_title,
    panel_title,
    round_numbers,
    save,
    side_by_side,
    styled,
    tooltip,
)
from tallytree.core.errors import SpecError
from tallytree.lab.audit.verdicts import Audit, Row
from tallytree.lab.results import ALL_LEVELS, Results

KINDS = {"release": "mechanisms", "synthesis": "rounds of synthesis", "planted": "planted defects"}
KIND_COLORS = ["#0072b2", "#009e73", "#d55e00"]
MARKS = {"sampled": "shown by outputs", "exact": "exact, worst neighbours"}
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
Rows = list[dict[str, Any]]


def error_against_budget(results: Results, metric: str = "l1") -> Any:
    """Plot the mean error with its standard error against ε (or ρ), one panel per level, on logarithmic axes."""
    rows = _with_bars(
        [row for row in _summary(results) if row["metric"] == metric and row["depth"] is not None], metric
    )
    currency = "epsilon" if all(row["epsilon"] is not None for row in rows) else "rho"
    rows = [row for row in rows if row[currency] is not None]
    x = budget_axis(currency, "ε" if currency == "epsilon" else "ρ", sorted({row[currency] for row in rows}))
    label = LABELS.get(metric, metric)
    panels = line_panels(
        _by_level(rows), x, "mean", title=label, places=_mechanisms(rows), facts=("mechanism", "budget")
    )
    return _page(panels, f"{label.capitalize()} by level: {_datasets(rows)}", rows)


def runtime_against_sizes(results: Results | Sequence[Results], metric: str = "processor_seconds_estimating") -> Any:
    """Plot the mean runtime against the largest size N, over several experiments; one panel per budget.

    By default this is processor time, which depends less than `seconds_estimating` on other work of the machine.
    """
    joined = results if isinstance(results, Results) else Results.together(list(results))
    rows = _with_bars([row for row in _summary(joined) if row["metric"] == metric], metric)
    x = budget_axis("max_size", "number of sizes N", sorted({row["max_size"] for row in rows}))
    parts: dict[str, Rows] = {}
    for row in rows:
        parts.setdefault(row["budget"], []).append(row)
    label = LABELS.get(metric, metric)
    panels = line_panels(parts, x, "mean", title=label, places=_mechanisms(rows), facts=("mechanism", "max_size"))
    return _page(panels, f"Runtime against the number of sizes: {_datasets(rows)}", rows)


def error_against_size(
    results: Results, *, budget: str | None = None, by: Literal["size", "groups"] = "size", signed: bool = False
) -> Any:
    """Plot the mean error of the "at least this size" counts along the sizes, one panel per level, for one budget.

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
    for place, (level, here) in enumerate(_by_level(rows).items()):
        # Less than one group is negligible: linear up to there, logarithmic beyond.
        ends = min(row["mean"] for row in here), max(row["mean"] for row in here)
        marks = sorted({0.0, *round_numbers(1, ends[1]), *(-mark for mark in round_numbers(1, -ends[0]))})
        scale = alt.Scale(type="symlog", constant=1, nice=False, padding=6)
        named = title if place % IN_A_ROW == 0 else None
        y = alt.Y("mean:Q", title=named, scale=scale, axis=alt.Axis(values=marks, format="~s"))
        about = tooltip(("mechanism", "size"), ("mean", "standard_error"))
        base = alt.Chart(alt.Data(values=here)).encode(x=x, y=y, color=colors(_mechanisms(rows)), tooltip=about)
        line = base.mark_line(strokeWidth=1.6, interpolate="step-after" if many else "linear", point=not many)
        panels.append(line.properties(title=panel_title(level), width=PANEL, height=PANEL * 0.8))
    title = f"Error of the number of groups of at least each size: {_datasets(rows)}, {budget}"
    return _page(side_by_side(panels), title, rows)


def save_all(results: Results | Audit, directory: str | Path) -> list[Path]:
    """Save the plots that one experiment has numbers for, each as PNG and HTML; of an audit, `audit.png`."""
    if isinstance(results, Audit):
        return [save(claimed_against_found(results), Path(directory, "audit.png"))]
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


def save_with_plots(results: Results | Audit, folder: Path) -> list[Path]:
    """Save the results in a folder and, with the extra `plots`, their plots."""
    written = results.save(folder)
    some = results.rows if isinstance(results, Audit) else results.summary().num_rows
    return [*written, *save_all(results, folder)] if available() and some else written


def _summary(results: Results) -> Rows:
    """Return means with each mechanism's place in the results, which sets its colour and shape in every plot."""
    rows: Rows = results.summary().to_pylist()
    shown = {row["mechanism"] for row in rows}
    names = [name for name in dict.fromkeys(results.rows["mechanism"].to_pylist()) if name in shown]
    return [{**row, "place": names.index(row["mechanism"])} for row in rows]


def _found(rows: Rows, metric: str) -> Rows:
    if not rows:
        raise SpecError(f"the results hold no numbers for {metric!r}: nothing to plot")
    return rows


def _with_bars(rows: Rows, metric: str) -> Rows:
    """Add the ends of the error bars; on a logarithmic axis the lower end must stay above zero."""
    made = []
    for row in _found(rows, metric):
        error = row["standard_error"] or 0.0
        low = row["mean"] - error
        made.append({**row, "low": low if low > 0 else row["mean"] / 10, "high": row["mean"] + error})
    return made


def _page(panels: Any, title: str, rows: Rows) -> Any:
    """Return panels under one title, with one legend."""
    runs = sorted({row["runs"] for row in rows})
    times = f"mean of {runs[0]} runs" if len(runs) == 1 else f"means of {runs[0]} to {runs[-1]} runs"
    spread = ", bars: ± one standard error" if "low" in rows[0] and runs[-1] > 1 else ""
    page = panels.properties(title=page_title(title, f"{SUBTITLE} · {times}{spread}"))
    return styled(page, subtitle_color="#b3261e", legend_columns=4)


def _mechanisms(rows: Rows) -> dict[str, int]:
    """Return the mechanisms in these rows, with their places among all of the results."""
    return dict(sorted({row["mechanism"]: row["place"] for row in rows}.items(), key=lambda item: int(item[1])))


def _by_level(rows: Rows) -> dict[str, Rows]:
    """Return the rows of each level, from the top down."""
    order = {row["level"]: row["depth"] for row in rows if row["level"] != ALL_LEVELS}
    return {level: [row for row in rows if row["level"] == level] for level in sorted(order, key=lambda o: order[o])}


def _datasets(rows: Rows) -> str:
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    return ", ".join(names) if len(names) < 3 else f"{names[0]} to {names[-1]}"


def _chosen_budget(rows: Rows, budget: str | None) -> str:
    """Return the requested budget, or the largest."""
    amounts = {row["budget"]: row["epsilon"] if row["epsilon"] is not None else row["rho"] for row in rows}
    if not amounts:
        raise SpecError("the results hold no errors by size: nothing to plot")
    if budget is not None and budget not in amounts:
        raise SpecError(f"no results for budget {budget!r}; there are {', '.join(amounts)}")
    return budget or max(amounts, key=lambda name: float(amounts[name]))


# -------------------------------------------------------------------- an audit


def claimed_against_found(audit: Audit) -> Any:
    """Plot one line per mechanism, kind of round and planted defect: the largest bounds as parts of the claim.

    Bars of planted defects reach beyond the claim, all others stay within it.
    """
    alt = altair()
    rows = [found for rows in _alike(audit.rows).values() for found in _points(rows)]
    names = list(dict.fromkeys(row["line"] for row in rows))
    there = [kind for kind in KINDS.values() if any(row["kind"] == kind for row in rows)]
    y = alt.Y("line:N", sort=names, title=None, axis=alt.Axis(labelLimit=340, labelFontSize=12, grid=False))
    x = alt.X("ratio:Q", title="lower bound on ε ÷ claimed ε", scale=alt.Scale(zero=True, nice=True))
    by_kind = alt.Color("kind:N", scale=alt.Scale(domain=list(KINDS.values()), range=KIND_COLORS), title=None)
    base = alt.Chart(alt.Data(values=rows))
    bars = base.transform_filter(f"datum.mark == '{MARKS['sampled']}'").mark_bar(height=9, opacity=0.85)
    ticks = base.transform_filter(f"datum.mark == '{MARKS['exact']}'").mark_tick(thickness=2, size=14, color="#22303c")
    line = alt.Chart(alt.Data(values=[{"ratio": 1}])).mark_rule(color="#22303c", strokeDash=[5, 3]).encode(x="ratio:Q")
    subtitle = (
        "NOT PRIVATE, on made-up data. Bars: what outputs prove; black ticks: exact loss of the worst neighbours. "
        f"All bars hold together with {100 * audit.confidence:g} %."
    )
    title = page_title("How much outputs tell, against what is claimed (dashed line)", subtitle)
    layers = bars.encode(x=x, y=y, color=by_kind) + ticks.encode(x=x, y=y) + line
    chart = layers.properties(title=title, width=560, height=17 * len(names))
    return styled(chart, subtitle_color="#b00020", legend_columns=len(there))


def _alike(rows: Sequence[Row]) -> dict[tuple[str, str, bool], list[Row]]:
    """Return the rows of each line: over all units and settings."""
    found: dict[tuple[str, str, bool], list[Row]] = {}
    for row in rows:
        found.setdefault((row.part, row.name, row.delta == 0), []).append(row)
    return found


def _points(rows: Sequence[Row]) -> list[dict[str, Any]]:
    first = rows[0]
    place = {"line": f"{first.name}, {'ε' if first.delta == 0 else 'ρ'}", "kind": KINDS[first.part]}
    found = [{**place, "ratio": max(row.sampled / row.claimed for row in rows), "mark": MARKS["sampled"]}]
    exact = [row.exact / row.claimed for row in rows if row.exact is not None]
    return [*found, {**place, "ratio": max(exact), "mark": MARKS["exact"]}] if exact else found
