"""`tallytree audit`: NOT PRIVATE, as everything it prints and writes says."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from tallytree.command import progress_bar
from tallytree.command.make import run_order
from tallytree.command.options import AuditOptions, ReleaseOptions
from tallytree.command.progress_bar import shown
from tallytree.command.screen import below, plain_table, show, show_json
from tallytree.lab.audit.border import PUBLISHED
from tallytree.lab.audit.running import audit
from tallytree.lab.audit.verdicts import WARNING, Audit, BorderRow, Row
from tallytree.lab.plots import save_with_plots


def run_audit(options: AuditOptions) -> bool:
    """Audit, show and keep the result: is every claim consistent, and every planted defect caught?"""
    quiet, out = options.quiet, options.out
    with shown(quiet) as progress:
        found = audit(
            mechanisms=options.mechanism or None,
            runs=options.runs,
            quick=options.quick,
            planted=options.planted,
            confidence=options.confidence,
            jobs=options.jobs,
            progress=progress,
            release=release_in_process,
        )
    written = [] if out is None else save_with_plots(found, out)
    if options.as_json and not quiet:
        show_json(found.to_json())
    else:
        show(_report(found), quiet=quiet and found.ok)
        if written:
            show(f"\nWritten to {out} (not private): {', '.join(path.name for path in written)}", quiet=quiet)
    return found.ok


def release_in_process(folder: Path) -> str:
    """Do what `tallytree release` does with a folder's release.toml, in this process, and return all that it prints.

    Progress lines depend on the clock, so they are left out. Python shows a warning once; here it is shown each time.
    """
    printed, own = io.StringIO(), progress_bar.BETWEEN_LINES
    progress_bar.BETWEEN_LINES = float("inf")
    try:
        with redirect_stdout(printed), redirect_stderr(printed), warnings.catch_warnings():
            warnings.simplefilter("always")
            run_order(ReleaseOptions(spec=folder / "release.toml", out=folder / PUBLISHED, no_ledger=True))
    finally:
        progress_bar.BETWEEN_LINES = own
    return printed.getvalue()


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
            "Outputs: from measurements; counts: from final counts alone; command: from a folder that `tallytree "
            f"release` wrote. The last three hold together, over all rows, with {100 * found.confidence:g} %.\n",
            style="dim",
        ),
    ]
    at_border = plain_table(
        "compared at the border",
        "unit",
        "pairs",
        "releases",
        "queries",
        "change",
        "loss",
        "verdict",
        right=range(2, 7),
        gap=1,
    )
    for one in found.border:
        about = f"{one.name}\n  {one.budget}{'; ' if one.setting else ''}{one.setting}"
        at_border.add_row(
            about,
            one.unit,
            *(f"{number:,}" for number in (one.pairs, one.published, one.queries)),
            f"{one.change:.3f}",
            f"{one.loss:.3f}",
            _verdict(one),
        )
    parts += [
        below(at_border),
        Text(
            "\nNeighbouring tables with identical answers. Change: the largest of a query, as a part of its "
            "sensitivity; loss: the largest of all queries together, as a part of the budget. Both may be at most 1, "
            "and all files and messages of releases must be identical.",
            style="dim",
        ),
        *(Text(f"{one.name}, {one.unit}: {flag}", style="red") for one in found.border for flag in one.flags),
        Text(_conclusion(found), style="bold" if found.ok else "bold red"),
    ]
    return Group(*parts)


def _verdict(row: Row | BorderRow) -> Text:
    if row.part != "planted":
        return Text(row.verdict, style="" if row.verdict == "consistent" else "bold red")
    caught = row.power or 0.0 if isinstance(row, Row) else row.flagged / row.pairs
    return Text(f"caught {100 * caught:.0f} %" if caught else "MISSED", style="" if caught else "bold red")


def _conclusion(found: Audit) -> str:
    rows: list[Row | BorderRow] = [*found.rows, *found.border]
    good = len(rows) - len(found.failures)
    if any(row.part == "planted" for row in rows):
        return f"\n{good} of {len(rows)} planted defects are caught."
    return f"\n{good} of {len(rows)} claims are consistent with what was found."
