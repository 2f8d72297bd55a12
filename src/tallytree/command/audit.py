"""`tallytree audit`: NOT PRIVATE, as everything it prints and writes says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from tallytree.command.progress_bar import shown
from tallytree.command.screen import below, plain_table, show, show_json
from tallytree.evaluate.audit.plot import save_all
from tallytree.evaluate.audit.results import WARNING, Audit, Row
from tallytree.evaluate.audit.running import audit


def run_audit(
    mechanisms: Sequence[str] | None,
    *,
    runs: int | None,
    quick: bool,
    planted: bool,
    confidence: float,
    jobs: int | None,
    as_json: bool,
    out: Path | None,
    quiet: bool,
) -> bool:
    """Audit, show and keep the result: is every claim consistent, and every planted defect caught?"""
    with shown(quiet) as progress:
        found = audit(
            mechanisms=None if not mechanisms else list(mechanisms),
            runs=runs,
            quick=quick,
            planted=planted,
            confidence=confidence,
            jobs=jobs,
            progress=progress,
        )
    written = [] if out is None else save_all(found, out)
    if as_json and not quiet:
        show_json(found.to_json())
    else:
        show(_report(found), quiet=quiet and found.ok)
        if written:
            show(f"\nWritten to {out} (not private): {', '.join(path.name for path in written)}", quiet=quiet)
    return found.ok


def _report(found: Audit) -> RenderableType:
    parts: list[RenderableType] = [Text(WARNING, style="bold red"), Text()]
    table = plain_table(
        "audited", "unit", "claimed ε", "exact", "outputs", "counts", "command", "verdict", right=range(2, 7), gap=1
    )
    for row in found.rows:
        about = f"{row.name}\n  {row.budget}{'; ' if row.setting else ''}{row.setting}"
        numbers = (row.claimed, row.exact, row.measurements, row.counts, row.command)
        table.add_row(about, row.unit, *("" if n is None else f"{n:.3f}" for n in numbers), _verdict(row))
    parts += [
        below(table),
        Text(
            "\nLower bounds on the real ε, at the δ of the claim. Exact: over all neighbours of a tiny data set. "
            "Outputs: from measurements, by their likelihood ratio; counts: from final counts alone; command: from a "
            f"folder that `tallytree release` wrote. Each of the last three holds with {100 * found.confidence:g} %.",
            style="dim",
        ),
        Text(_conclusion(found), style="bold" if found.ok else "bold red"),
    ]
    return Group(*parts)


def _verdict(row: Row) -> Text:
    if row.part == "planted":
        caught = row.sampled > row.claimed
        return Text("caught" if caught else "MISSED", style="" if caught else "bold red")
    return Text(row.verdict, style="" if row.verdict == "consistent" else "bold red")


def _conclusion(found: Audit) -> str:
    planted = [row for row in found.rows if row.part == "planted"]
    if planted:
        caught = len(planted) - len(found.failures)
        return f"\n{caught} of {len(planted)} planted defects are caught."
    return f"\n{len(found.rows) - len(found.failures)} of {len(found.rows)} claims are consistent with what was found."
