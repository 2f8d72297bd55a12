"""`tallytree evaluate` and `audit`: NOT PRIVATE, as everything they print and write says."""

from __future__ import annotations

import io
import os
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import csv
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tallytree.command import progress_bar
from tallytree.command.command_options import AuditOptions, EvaluateOptions, ReleaseOptions, command_line, output_form
from tallytree.command.make import run_and_ask
from tallytree.command.progress_bar import show_progress
from tallytree.command.screen import below, plain_table, show, show_json
from tallytree.command.spec import read_budget
from tallytree.core.display import available
from tallytree.core.errors import SpecError
from tallytree.lab.audit.border import PUBLISHED
from tallytree.lab.audit.schedule import audit
from tallytree.lab.audit.verdicts import WARNING as AUDIT_WARNING
from tallytree.lab.audit.verdicts import Audit, BorderRow, Row
from tallytree.lab.counts_files import UnclearLevels, UnclearSizes, read_counts
from tallytree.lab.datasets import DATASETS, make
from tallytree.lab.plots import save_with_plots
from tallytree.lab.results import WARNING, Results
from tallytree.lab.runner import compare
from tallytree.lab.truth import Truth
from tallytree.mechanisms import mechanism_named
from tallytree.privacy.neighbours import PrivacyUnit

Rows = list[dict[str, Any]]


def run_evaluate(options: EvaluateOptions) -> None:
    """Compare mechanisms with the truth, show the results, and store them in a folder."""
    form = output_form(as_json=options.as_json, as_csv=options.as_csv)
    chosen = [name for name in options.mechanism or () if mechanism_named(name)]
    budgets = [read_budget(f"--epsilon {text}:", epsilon=text) for text in options.epsilon or ["1"]]
    try:
        truth = _truth(options)
    except (UnclearLevels, UnclearSizes) as unclear:
        raise _how_to_say(unclear, options) from None
    with show_progress(options.quiet) as progress:
        results = compare(
            truth,
            chosen or None,
            budgets,
            runs=options.runs,
            unit=PrivacyUnit(options.unit),  # type: ignore[arg-type]  # which says what there is
            seed=options.seed,
            jobs=options.jobs,
            limit=options.limit,
            out=options.out,
            progress=lambda stage: progress(replace(stage, doing=f"NOT PRIVATE: {stage.doing}")),
        )
    written = [] if options.out is None else save_with_plots(results, options.out)
    if options.quiet:
        return
    if form == "json":
        show_json(_content(truth, results))
    elif form == "csv":
        print(_csv(results), end="")
    else:
        show(_report(truth, results))
        if written:
            show(_files(written, with_plots=available()))


def _truth(options: EvaluateOptions) -> Truth:
    """Return made-up data by name, or public counts from a file."""
    data, named = options.data, options.data in DATASETS
    if not named and Path(data).exists():
        if options.scale != 1:
            raise SpecError(f"--scale is for made-up data sets; {data} is a file")
        return read_counts(data, options.level or None, options.size_columns)
    if not named and (os.sep in data or Path(data).suffix):
        raise SpecError(f"unknown data {data}: neither a file nor a made-up data set")
    if options.level or options.size_columns is not None:
        raise SpecError(f"--level and --size-columns are for files; {data} is a made-up data set, which has its own")
    return make(data, scale=options.scale, seed=options.seed)  # which says what there is, and the nearest name


def _how_to_say(unclear: UnclearLevels | UnclearSizes, options: EvaluateOptions) -> SpecError:
    """Return what is ambiguous about the columns, and the same command with options that resolve it."""
    if isinstance(unclear, UnclearLevels):
        options = replace(options, level=list(unclear.likely))
        ask = f"Say which columns are levels, from the top down. If they are {' and '.join(unclear.likely)}"
    else:
        options = replace(options, size_columns=unclear.prefixes[0])
        ask = f"Say what stands before the number. If it is {unclear.prefixes[0]!r}"
    return SpecError(f"{unclear.told}. {ask}:\n  {command_line(options)}")


# -------------------------------------------------------------------- for programs


def _content(truth: Truth, results: Results) -> dict[str, Any]:
    return {
        "privacy": WARNING,
        "dataset": _about(truth),
        "summary": results.summary().to_pylist(),
        "failures": results.failures(),
    }


def _csv(results: Results) -> str:
    text = io.BytesIO()
    csv.write_csv(results.summary(), text)
    return text.getvalue().decode()


def _about(truth: Truth) -> dict[str, Any]:
    regions = np.diff(truth.hierarchy.level_starts).tolist()
    return {
        "name": truth.name,
        "levels": dict(zip(truth.hierarchy.levels, regions, strict=True)),
        "groups": int(truth.counts.sum()),
        "max_size": truth.max_size,
        "totals": "public" if truth.public_totals else "private",
    }


# -------------------------------------------------------------------- for people


def _report(truth: Truth, results: Results) -> RenderableType:
    """Yield what was compared on which data, errors by level, costs, and failures."""
    about = _about(truth)
    levels = " → ".join(f"{level} {regions:,}" for level, regions in about["levels"].items())
    rows = results.summary().to_pylist()
    parts: list[RenderableType] = [
        Text(WARNING, style="bold red"),
        Text(f"\n{about['name']}: {about['groups']:,} groups of sizes {truth.first_size} to {about['max_size']:,};"),
        Text(f"{levels}"),
    ]
    unit = str(results.rows["unit"][0]).replace("_", " ")
    for budget in dict.fromkeys(row["budget"] for row in rows):
        here = [row for row in rows if row["budget"] == budget]
        parts.append(Text(f"\n{budget}, protecting {unit}", style="bold"))
        parts.append(below(_errors(here)))
    if rows:
        parts.append(Text("\ncost of one run", style="bold"))
        parts.append(below(_costs(rows)))
        parts.append(
            Text(
                "\nMeans over runs ± one standard error; per level the least error is bold. "
                "EMD: earth mover's distance, entities to add or remove. Memory: the peak. "
                "Violations: regions and sizes whose children do not add up to them.",
                style="dim",
            )
        )
    if failures := results.failures():
        parts.append(Text("\nwithout a result", style="bold red"))
        parts.append(below(_lost(failures)))
    return Group(*parts)


def _errors(rows: Rows) -> Table:
    """Return one row per level and mechanism."""
    found = {(row["level"], row["mechanism"], row["metric"]): row for row in rows if row["size"] is None}
    levels = sorted({(row["depth"], row["level"]) for row in rows if row["depth"] is not None})
    mechanisms = list(dict.fromkeys(row["mechanism"] for row in rows))
    table = plain_table("level", "mechanism", "L1", "EMD a region", "exact cells", right=(2, 3, 4), gap=2)
    for _, level in levels:
        for place, mechanism in enumerate(mechanisms):
            cells = []
            for metric in ("l1", "emd_per_region"):
                means = [found[level, other, metric]["mean"] for other in mechanisms]
                row = found[level, mechanism, metric]
                best = len(mechanisms) > 1 and row["mean"] == min(means)
                cells.append(Text(_mean(row), style="bold" if best else ""))
            exact = f"{100 * found[level, mechanism, 'exact_cells']['mean']:.1f} %"
            table.add_row("" if place else level, mechanism, *cells, exact)
    return table


def _costs(rows: Rows) -> Table:
    """Return one row per mechanism and budget."""
    found = {(row["mechanism"], row["budget"], row["metric"]): row for row in rows if row["depth"] is None}
    table = plain_table(
        "mechanism", "budget", "runs", "measure", "estimate", "memory", "violations", right=range(2, 7), gap=1
    )
    since = False
    for mechanism, budget in dict.fromkeys((mechanism, budget) for mechanism, budget, _ in found):
        peak = found.get((mechanism, budget, "peak_megabytes"))
        if peak is None:
            peak, since = found.get((mechanism, budget, "peak_megabytes_since_start")), True
        table.add_row(
            mechanism,
            budget,
            str(found[mechanism, budget, "l1"]["runs"]),
            _duration(found[mechanism, budget, "seconds_measuring"]["mean"]),
            _duration(found[mechanism, budget, "seconds_estimating"]["mean"]),
            "unknown" if peak is None else f"{peak['mean']:,.0f} MB",
            _number(found[mechanism, budget, "violations"]["mean"]),
        )
    if since:
        table.caption = "memory: the most since the process started"
        table.caption_justify = "left"
    return table


def _lost(failures: Rows) -> Table:
    """Return failures, with one row for cells that failed the same way."""
    alike: dict[tuple[str, str, str], Rows] = {}
    for row in failures:
        alike.setdefault((row["mechanism"], row["status"], row["message"] or ""), []).append(row)
    table = plain_table("mechanism", "budget", "runs", "why", gap=2)
    for (mechanism, status, message), rows in alike.items():
        budgets = "\n".join(dict.fromkeys(row["budget"] for row in rows))
        table.add_row(mechanism, budgets, str(len(rows)), f"{status}: {message}")
    return table


def _files(written: list[Path], *, with_plots: bool) -> RenderableType:
    names = ", ".join(path.name for path in written)
    hint = "" if with_plots else '\nFor plots: pip install "tallytree[plots]"'
    return Text(f"\nWritten to {written[0].parent}{os.sep} (not private): {names}{hint}")


def _mean(row: dict[str, Any]) -> str:
    """Mean and standard error in the same unit.

    >>> _mean({"mean": 1234567.0, "standard_error": 26531.0}), _mean({"mean": 12.34, "standard_error": None})
    ('1.23M ± 0.03M', '12.3')
    """
    mean, error = row["mean"], row["standard_error"]
    if error is None:
        return _number(mean)
    shown = _number(error, like=mean)
    return f"{_number(mean)} ± {shown if error == 0 or shown.strip('0.kMG') else _number(error)}"


def _number(value: float, like: float | None = None) -> str:
    """At most about six characters; in the unit and with the decimals of another number, if one is given.

    >>> [_number(value) for value in (0, 0.1234, 12.34, 1234.5, 1234567.0)]
    ['0', '0.12', '12.3', '1,234', '1.23M']
    """
    model = abs(value if like is None else like)
    units = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e5, 1e3, "k"))
    size, unit = next(((size, unit) for least, size, unit in units if model >= least), (1.0, ""))
    shown = model / size
    decimals = 0 if shown >= 100 or value == 0 else 1 if shown >= 10 else 2
    return f"{value / size:,.{decimals}f}{unit}"


def _duration(seconds: float) -> str:
    """
    >>> [_duration(seconds) for seconds in (0.0123, 3.21, 75, 4000)]
    ['12 ms', '3.2 s', '75 s', '67 min']
    """
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def run_audit(options: AuditOptions) -> bool:
    """Audit, show and store the result: whether every claim is consistent, and every planted defect is caught."""
    quiet, out = options.quiet, options.out
    with show_progress(quiet) as progress:
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
        show(_audit_report(found), quiet=quiet and found.ok)
        if written:
            show(f"\nWritten to {out} (not private): {', '.join(path.name for path in written)}", quiet=quiet)
    return found.ok


def release_in_process(folder: Path) -> str:
    """Run `tallytree release` with a folder's release.toml in this process, and return everything it prints.

    Progress lines depend on the clock, so they are left out. Python shows a warning once; here it is shown each time.
    """
    printed, own = io.StringIO(), progress_bar.BETWEEN_LINES
    progress_bar.BETWEEN_LINES = float("inf")
    try:
        with redirect_stdout(printed), redirect_stderr(printed), warnings.catch_warnings():
            warnings.simplefilter("always")
            run_and_ask(ReleaseOptions(spec=folder / "release.toml", out=folder / PUBLISHED, no_ledger=True))
    finally:
        progress_bar.BETWEEN_LINES = own
    return printed.getvalue()


def _audit_report(found: Audit) -> RenderableType:
    parts: list[RenderableType] = [Text(AUDIT_WARNING, style="bold red"), Text()]
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
