"""NOT PRIVATE: an audit kept in a folder, and its picture: what was found against what is claimed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tallytree.charts import altair, available, page_title, save, styled
from tallytree.evaluate.audit.results import Audit, Row

KINDS = {"release": "mechanisms", "synthesis": "rounds of synthesis", "planted": "planted defects"}
COLORS = ["#0072b2", "#009e73", "#d55e00"]
MARKS = {"sampled": "bound from outputs", "exact": "exact, this pair of neighbours"}


def save_all(audit: Audit, folder: Path) -> list[Path]:
    """`audit.json`, `audit.csv` and, with the extra `plots`, `audit.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "audit.json", folder / "audit.csv"]
    written[0].write_text(json.dumps(audit.to_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    written[1].write_text(audit.to_csv(), encoding="utf-8")
    if available() and audit.rows:
        written.append(save(claimed_against_found(audit), folder / "audit.png"))
    return written


def claimed_against_found(audit: Audit) -> Any:
    """One line for each mechanism, kind of round and planted defect: bounds as shares of the claimed ε, and 1."""
    alt = altair()
    rows = [found for row in audit.rows for found in _points(row)]
    names = list(dict.fromkeys(row["line"] for row in rows))
    there = [kind for kind in KINDS.values() if any(row["kind"] == kind for row in rows)]
    y = alt.Y("line:N", sort=names, title=None, axis=alt.Axis(labelLimit=320, grid=True))
    x = alt.X("ratio:Q", title="lower bound on ε ÷ claimed ε", scale=alt.Scale(zero=True, nice=True))
    colors = alt.Color("kind:N", scale=alt.Scale(domain=list(KINDS.values()), range=COLORS), title=None)
    shapes = alt.Shape("mark:N", scale=alt.Scale(domain=list(MARKS.values()), range=["circle", "stroke"]), title=None)
    base = alt.Chart(alt.Data(values=rows))
    points = base.mark_point(size=60, filled=False, strokeWidth=1.6).encode(x=x, y=y, color=colors, shape=shapes)
    line = alt.Chart(alt.Data(values=[{"ratio": 1}])).mark_rule(color="#22303c", strokeDash=[5, 3]).encode(x="ratio:Q")
    subtitle = f"NOT PRIVATE, on made-up data; each bound from outputs holds with {100 * audit.confidence:g} %"
    title = page_title("What outputs prove of ε, against what is claimed (dashed: the claim)", subtitle)
    chart = (line + points).properties(title=title, width=560, height=18 * len(names))
    return styled(chart, subtitle_color="#b00020", legend_columns=len(there) + len(MARKS))


def _points(row: Row) -> list[dict[str, Any]]:
    budget = "pure ε" if row.delta == 0 else "ρ"
    place = {"line": f"{row.name}, {budget}", "kind": KINDS[row.part]}
    found = [{**place, "ratio": row.sampled / row.claimed, "mark": MARKS["sampled"]}]
    if row.exact is not None:
        found.append({**place, "ratio": row.exact / row.claimed, "mark": MARKS["exact"]})
    return found
