"""The page of a comparison: which regions changed between two releases, by how much, and how sure that is."""

from __future__ import annotations

from typing import Any

from tallytree.estimate.intervals.changes import FLAGS, RATE, Family
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.report import BAR_WIDTH, Page, render_page
from tallytree.publish.report.maps import read_map
from tallytree.publish.report.release_page import GeoJson

MOST_ROWS = 200  # of one table: the clearest changes
Row = dict[str, Any]


def make_comparison_page(comparison: Any, *, map: GeoJson | None = None) -> Page:  # noqa: A002
    """Return the page of a `Comparison`; with a map, its regions are coloured by the flag of the first question."""
    tables = [_table(comparison, family) for family in comparison.families if family.flagged]
    tables.sort(key=lambda table: -table["family"].flagged)
    flagged = sum(family.flagged for family in comparison.families if family.tested)
    values = {
        "title": f"What changed: {comparison.new['title']}",
        "comparison": comparison,
        "words": comparison.about,
        "tables": tables,
        "flagged": flagged,
        "expected": RATE * flagged,
        "rate": in_percent(RATE),
        "map": None if map is None else _place_map(comparison, map),
        "other_leaves": any(row["other_leaves"] for table in tables for row in table["rows"]),
    }
    return render_page("comparison.html", values, data={}, scripts=["sort.js"])


def _rows_of(comparison: Any, family: Family) -> list[Row]:
    """Return all rows of a family."""
    names = comparison.rows.column_names
    by = names[names.index("name") + 1 : names.index("question")]
    rows = comparison.table(family.level, family.question).to_pylist()
    return [row for row in rows if tuple(row[name] for name in by) == family.values[: len(by)]]


def _table(comparison: Any, family: Family) -> Row:
    """Return the flagged rows of a family, the clearest first, with their places on a common axis."""
    rows = [row for row in _rows_of(comparison, family) if row["flag"] != FLAGS[0]]
    rows.sort(key=lambda row: (row["p_value"] or 0.0, -abs(row["change"])))
    shown = rows[:MOST_ROWS]
    for row in shown:
        known = row["selected_lower"] is not None
        row["ends"] = (row["selected_lower"], row["selected_upper"]) if known else (row["lower"], row["upper"])
    most = max(abs(end) for row in shown for end in row["ends"]) or 1

    def place(value: float) -> int:
        return round(BAR_WIDTH * (1 + value / most) / 2)

    drawn = [{**row, "dot": place(row["change"]), "line": tuple(place(end) for end in row["ends"])} for row in shown]
    return {"family": family, "rows": drawn, "left_out": len(rows) - len(shown), "most": most}


def _place_map(comparison: Any, source: GeoJson) -> Row:
    """Return the outlines of a map with the change and flag of each region, for the first question of its level."""
    drawn, tree = read_map(source, comparison.regions), comparison.regions
    level = tree.levels[drawn.level]
    families = [family for family in comparison.families if family.level == level]
    found = {row["region"]: row for row in _rows_of(comparison, families[0])} if families else {}
    areas = [(one.path, found.get(tree.ids[one.region]), tree.names[one.region]) for one in drawn.outlines]
    question = families[0].label if families else ""
    return {"level": level, "height": drawn.height, "areas": areas, "question": question}
