"""NOT PRIVATE: the audit of docs/audit.md, run and written into the page: python -m experiments.audit [--from FOLDER]

It runs all of `tallytree audit` and `tallytree audit --planted`. With `--from` the rows are read from the `audit.json`
that an earlier run kept in that folder.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from tallytree.command.lab_commands import release_in_process
from tallytree.command.progress_bar import show_progress
from tallytree.lab.audit.schedule import audit
from tallytree.lab.audit.verdicts import Audit, BorderRow, Row
from tallytree.lab.plots import save_with_plots
from tallytree.mechanisms import MECHANISMS
from tallytree.version import VERSION

DOCS = Path(__file__).parents[1] / "docs"
PAGE, FIGURES = DOCS / "audit.md", DOCS / "figures"
KEPT = ("audit.csv", "audit-border.csv", "audit.png")


def main() -> None:
    """Audit, then write the tables and the plot in `docs/figures` and the tables of `docs/audit.md`."""
    parser = argparse.ArgumentParser(prog="python -m experiments.audit", description=__doc__)
    parser.add_argument("--from", dest="folder", type=Path, help="read the rows of an earlier run from this folder")
    parser.add_argument(
        "--out", type=Path, default=Path("audit-results"), help="folder for all rows (default: audit-results)"
    )
    parser.add_argument("--jobs", type=int, help="processes at a time; one per processor if not given")
    given = parser.parse_args()
    found = run(given.jobs, given.out) if given.folder is None else load(given.folder)
    for path in save_with_plots(found, given.out):
        if path.name in KEPT:
            (FIGURES / path.name).write_bytes(path.read_bytes())
    text = PAGE.read_text(encoding="utf-8")
    tables = {"summary": summary, "results": results_table, "border": border_table, "planted": planted_table}
    for name, table in tables.items():
        text = place(text, name, table(found))
    PAGE.write_text(text, encoding="utf-8")
    if not found.ok:
        raise SystemExit(f"{len(found.failures)} claims are violated, or planted defects missed: see {PAGE}")


def run(jobs: int | None, keep: Path) -> Audit:
    """Run the whole audit; its rows are kept before the planted defects begin."""
    with show_progress(quiet=False) as progress:
        claims = audit(jobs=jobs, progress=progress, release=release_in_process)
        save_with_plots(claims, keep)
        planted = audit(planted=True, jobs=jobs, progress=progress, release=release_in_process)
    return Audit((*claims.rows, *planted.rows), claims.confidence, (*claims.border, *planted.border))


def load(folder: Path) -> Audit:
    """What an earlier run of this version kept."""
    content = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    if content["version"] != VERSION:
        raise SystemExit(f"{folder} is of version {content['version']}, and this is {VERSION}: run the audit anew")

    def made(kind: Any, row: dict[str, Any]) -> Any:
        if "flags" in row:
            row = {**row, "flags": tuple(filter(None, row["flags"].split("; ")))}
        return kind(**{field.name: row[field.name] for field in fields(kind)})

    rows, border = ([made(kind, row) for row in content[name]] for kind, name in ((Row, "rows"), (BorderRow, "border")))
    return Audit(tuple(rows), content["confidence"], tuple(border))


# -------------------------------------------------------------------- tables


def summary(found: Audit) -> str:
    """What was run, in numbers."""
    claims = [row for row in found.rows if row.part != "planted"]
    border = [row for row in found.border if row.part != "planted"]
    every: list[Row | BorderRow] = [*found.rows, *found.border]
    planted = [row for row in every if row.part == "planted"]
    failed = len([row for row in found.failures if row.part != "planted"])
    missed = len([row for row in found.failures if row.part == "planted"])
    drawn = sum(2 * row.runs for row in claims)
    return "\n".join(
        [
            f"Version {VERSION}.",
            "",
            f"- From outputs: {len(claims)} settings, {drawn:,} outputs, {len(claims) + len(border) - failed} of "
            f"{len(claims) + len(border)} settings (the border's included) consistent with their claims. All bounds "
            f"together hold with {100 * found.confidence:g} %.",
            f"- At the border: {len(border)} settings, {sum(row.pairs for row in border):,} pairs of neighbours, "
            f"{sum(row.queries for row in border):,} queries, {sum(row.published for row in border):,} pairs of whole "
            f"releases compared byte by byte, {sum(row.flagged for row in border)} pairs flagged.",
            f"- Planted defects: {len(planted) - missed} of {len(planted)} caught.",
        ]
    )


def results_table(found: Audit) -> str:
    """For the default, the other mechanisms and each step of a synthesis: the largest bounds over all settings."""
    lines = [
        "| audited | claimed ε | exact | measurements | counts | command | settings | verdict |",
        "|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for (name, claimed), rows in _alike(found.rows, "claimed").items():
        cells = (largest(rows, column) for column in ("exact", "measurements", "counts", "command"))
        lines.append(f"| {name} | {claimed:.2f} | {' | '.join(cells)} | {len(rows)} | {verdict(rows)} |")
    return "\n".join(lines)


def border_table(found: Audit) -> str:
    """For the default, the other mechanisms and the rounds of a synthesis: all pairs, over both units."""
    lines = [
        "| compared | settings | pairs | whole releases | queries | largest change | largest loss | flagged |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for (name,), rows in _alike(found.border).items():
        sums = (sum(getattr(row, column) for row in rows) for column in ("pairs", "published", "queries"))
        numbers = " | ".join(f"{number:,}" for number in (len(rows), *sums))
        flagged = sum(row.flagged for row in rows)
        lines.append(f"| {name} | {numbers} | {largest(rows, 'change')} | {largest(rows, 'loss')} | {flagged} |")
    return "\n".join(lines)


def planted_table(found: Audit) -> str:
    """Each defect, its claim, the bound, and how often it is caught."""
    lines = ["| planted | seen by | claimed ε | median bound on ε | caught |", "|---|---|---|---|---|"]
    for row in found.rows:
        if row.part == "planted":
            claimed = f"{row.claimed:.2f}" + ("" if row.delta == 0 else f" (δ = {row.delta:g})")
            caught = f"{100 * (row.power or 0):.0f} % of tries"
            lines.append(f"| {row.name} | outputs | {claimed} | {row.sampled:.2f} | {caught} |")
    for one in found.border:
        if one.part == "planted":
            lines.append(f"| {one.name} | the border | | | in {one.flagged} of {one.pairs} pairs |")
    return "\n".join(lines)


def _alike(rows: Sequence[Any], *names: str) -> dict[tuple[Any, ...], list[Any]]:
    found: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        if row.part != "planted":
            found.setdefault((_shown(row.name), *(getattr(row, name) for name in names)), []).append(row)
    return found


def _shown(name: str) -> str:
    """The default by name, all other mechanisms together, and each step of a synthesis: the CSV files have all rows."""
    return f"`{name}`" if name == "tallytree" else "the other mechanisms" if name in MECHANISMS else name


def verdict(rows: Sequence[Any]) -> str:
    """The worst of all."""
    return "VIOLATION" if any(row.verdict == "VIOLATION" for row in rows) else "consistent"


def largest(rows: Sequence[Any], column: str) -> str:
    """The largest value, or nothing."""
    values = [value for row in rows if (value := getattr(row, column)) is not None]
    return f"{max(values):.2f}" if values else ""


def place(text: str, name: str, table: str) -> str:
    """The page with a table between its two marks."""
    begin, end = f"<!-- {name}: written by experiments.audit -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{PAGE} has no place for {name}")
    return pattern.sub(lambda _: f"{begin}\n\n{table}\n\n{end}", text)


if __name__ == "__main__":
    main()
