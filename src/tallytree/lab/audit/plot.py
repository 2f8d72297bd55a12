"""NOT PRIVATE: an audit kept in a folder, and its picture: what was found against what is claimed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tallytree.core.charts import altair, available, page_title, save, styled
from tallytree.lab.audit.results import Audit, Row

KINDS = {"release": "mechanisms", "synthesis": "rounds of synthesis", "planted": "planted defects"}
COLORS = ["#0072b2", "#009e73", "#d55e00"]
MARKS = {"sampled": "shown by outputs", "exact": "exact, worst neighbours"}


def save_all(audit: Audit, folder: Path) -> list[Path]:
    """`audit.json`, `audit.csv`, `audit-border.csv` and, with the extra `plots`, `audit.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "audit.json": json.dumps(audit.to_json(), indent=2, ensure_ascii=False) + "\n",
        "audit.csv": audit.to_csv(),
        "audit-border.csv": audit.border_to_csv(),
    }
    written = [folder / name for name in contents]
    for path, content in zip(written, contents.values(), strict=True):
        path.write_text(content, encoding="utf-8")
    if available() and audit.rows:
        written.append(save(claimed_against_found(audit), folder / "audit.png"))
    return written


def claimed_against_found(audit: Audit) -> Any:
    """One line for each mechanism, kind of round and planted defect: the largest bounds as parts of the claimed ε.

    Bars of planted defects reach beyond the claim, all others stay within it.
    """
    alt = altair()
    rows = [found for rows in _alike(audit.rows).values() for found in _points(rows)]
    names = list(dict.fromkeys(row["line"] for row in rows))
    there = [kind for kind in KINDS.values() if any(row["kind"] == kind for row in rows)]
    y = alt.Y("line:N", sort=names, title=None, axis=alt.Axis(labelLimit=340, labelFontSize=12, grid=False))
    x = alt.X("ratio:Q", title="lower bound on ε ÷ claimed ε", scale=alt.Scale(zero=True, nice=True))
    colors = alt.Color("kind:N", scale=alt.Scale(domain=list(KINDS.values()), range=COLORS), title=None)
    base = alt.Chart(alt.Data(values=rows))
    bars = base.transform_filter(f"datum.mark == '{MARKS['sampled']}'").mark_bar(height=9, opacity=0.85)
    ticks = base.transform_filter(f"datum.mark == '{MARKS['exact']}'").mark_tick(thickness=2, size=14, color="#22303c")
    line = alt.Chart(alt.Data(values=[{"ratio": 1}])).mark_rule(color="#22303c", strokeDash=[5, 3]).encode(x="ratio:Q")
    subtitle = (
        "NOT PRIVATE, on made-up data. Bars: what outputs prove; black ticks: exact loss of the worst neighbours. "
        f"All bars hold together with {100 * audit.confidence:g} %."
    )
    title = page_title("How much outputs tell, against what is claimed (dashed line)", subtitle)
    layers = bars.encode(x=x, y=y, color=colors) + ticks.encode(x=x, y=y) + line
    chart = layers.properties(title=title, width=560, height=17 * len(names))
    return styled(chart, subtitle_color="#b00020", legend_columns=len(there))


def _alike(rows: Sequence[Row]) -> dict[tuple[str, str, bool], list[Row]]:
    """The rows of each line: over all units and settings."""
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
