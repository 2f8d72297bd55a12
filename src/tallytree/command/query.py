"""`tallytree query`: sums, shares, means, quantiles and other statistics of a release, with their error bars."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tallytree.command.command_options import QueryOptions, output_form
from tallytree.command.progress_bar import show_progress
from tallytree.command.screen import plain_table, show, show_json, words
from tallytree.core.errors import SpecError
from tallytree.core.names import for_a_spreadsheet
from tallytree.core.progress import Progress, Stage
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import size_label
from tallytree.publish.release.answer import Answer
from tallytree.publish.release.answers import Options
from tallytree.publish.release.areas import region_texts
from tallytree.publish.release.descriptions import AS_TRUNCATED, truncation
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.release.files import EXCERPT, read_for
from tallytree.publish.release.queries import LINEAR_KINDS, Query, QueryKind, places, regions_of_level, values_in_words
from tallytree.publish.release.value import Release

KINDS: dict[str, QueryKind] = {  # mutually exclusive options
    "share": "share",
    "share_of": "share",
    "mean": "mean",
    "median": "median",
    "quantile": "quantile",
    "gini": "gini",
    "ratio_to": "ratio",
    "difference_to": "difference",
    "simultaneous": "sum",
}


class Output(NamedTuple):
    """The answers of a query in each output format."""

    content: Any  # for JSON
    rows: list[dict[str, Any]]  # for CSV
    text: tuple[RenderableType, ...]


def run_query(options: QueryOptions) -> None:
    """Show the answer to a query, or one answer for each region of a level, area or value of a category."""
    form = output_form(as_json=options.as_json, as_csv=options.as_csv)
    query, category = read_query(options)
    with show_progress(options.quiet) as progress:
        progress(Stage("reading the release"))
        release = Release.load(options.directory) if options.whole else _read(options, query)
        if options.simultaneous:
            progress(Stage("guaranteed intervals"))
            output = _bands(release, query, options)
        else:
            output = _answers(release, query, category, options, progress)
    if form == "json":
        show_json(output.content)
    elif form == "csv":
        show_csv(output.rows)
    else:
        show(*output.text, quiet=options.quiet)


def _read(options: QueryOptions, query: Query) -> Release:
    """Read the part of a release that a query needs: the regions it names, or all regions of a level within these."""
    named = [] if options.regions is None else region_texts(options.regions)
    for given in (query.regions, query.to):
        named += given if isinstance(given, list) else []
    return Release.of(read_for(options.directory, named or None, options.level), options.directory)


def _answers(release: Release, query: Query, category: str | None, options: QueryOptions, progress: Progress) -> Output:
    """Return the answer to a query, or one for each region of a level, area or value of a category."""
    how: Options = {"confidence": options.confidence, "typical": not options.no_typical, "progress": progress}
    notes = [words(f"· {EXCERPT}")] if release.partial else []
    name = options.level or category or (None if options.regions is None else "area")
    if name is None:
        found = [release.ask(query, **how)]
        text = answer(found[0])
    else:
        found = release.ask_each(query, level=options.level, areas=options.regions, category=category, **how)
        text = answer_table(release, found, name, values=category is not None)
    listed = [one.to_json() for one in found]
    rows = [as_row(one, release.hierarchy.regions) for one in found]
    return Output(listed[0] if name is None else listed, rows, (text, *notes))


def _bands(release: Release, query: Query, options: QueryOptions) -> Output:
    """Return intervals that hold jointly for all sizes of a region or an area."""
    regions = query.regions
    if options.level is not None:
        regions = regions_of_level(release.hierarchy.regions, options.level, regions)
    found = release.bands(regions, query.sizes, areas=options.regions, by=query.by, confidence=options.confidence)
    rows = found.to_pylist()
    return Output(rows, rows, (bands(release, rows, options.confidence),))


def read_query(options: QueryOptions) -> tuple[Query, str | None]:
    """Return the query from the command's options, and the category that is named without a value, if any."""
    kinds = [kind for name, kind in KINDS.items() if getattr(options, name) not in (None, False, [])]
    if len(kinds) > 1:
        listed = ", ".join(f"--{name.replace('_', '-')}" for name in KINDS)
        raise SpecError(f"give only one of {listed}")
    if options.regions is not None and (options.level is not None or options.region):
        raise SpecError("--regions names a file of areas; leave out --level and --region")
    named = [text for text in options.by or () if "=" not in text]
    if len(named) > 1:
        raise SpecError(f"--by {named[0]} asks for each value of one category; write {named[1]}=VALUE for the other")
    category = next(iter(named), None)
    if category is not None and (options.level is not None or options.regions is not None or options.simultaneous):
        raise SpecError(
            f"--by {category} asks for each value of a category and cannot be combined with --level, --regions and "
            f"--simultaneous; give one value, as in {category}=VALUE"
        )
    by = read_values([text for text in options.by or () if "=" in text], "--by")
    of, to = read_values(options.share_of, "--share-of"), options.ratio_to or options.difference_to
    query = Query(
        next(iter(kinds), "sum"), options.region or None, options.size, by, of, to, to_by=by, q=options.quantile
    )
    return query, category


def read_values(given: list[str] | None, option: str) -> dict[str, str] | None:
    """Return values of categories, each written as NAME=VALUE.

    >>> read_values(["tenure=rented"], "--by")
    {'tenure': 'rented'}
    """
    found: dict[str, str] = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise SpecError(f"{option} {text!r} is invalid; write a category and its value, as in tenure=rented")
        if found.setdefault(name, value) != value:
            raise SpecError(f"{option} names {name!r} twice; give one of its values, or leave it out for all")
    return found or None


# -------------------------------------------------------------------- for programs


def as_row(found: Answer, tree: Hierarchy) -> dict[str, Any]:
    """Return an answer as a row of a table; missing or infinite values are empty. Regions are joined by semicolons.

    An area has its name in place of regions.
    """
    values = found.to_json()
    guaranteed, typical = (values[kind] or [None, None] for kind in ("guaranteed", "typical"))
    joined = {
        "region": ";".join(found.regions),
        "name": ";".join(tree.names[tree.index[region]] for region in found.regions),
    }
    return {
        **({"area": found.area} if found.area else joined),
        **dict(found.by),
        "kind": found.kind,
        "released": found.released,
        "unbiased": found.unbiased,
        "lower": guaranteed[0],
        "upper": guaranteed[1],
        "typical_lower": typical[0],
        "typical_upper": typical[1],
        "recommended": found.recommended,
        "confidence": found.confidence,
        "question": found.question,
    }


def show_csv(rows: list[dict[str, Any]]) -> None:
    """Print rows with their header; names that a spreadsheet would take for formulas are marked as text."""
    writer = csv.DictWriter(sys.stdout, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: for_a_spreadsheet(cell) if isinstance(cell, str) else cell for key, cell in row.items()})


# -------------------------------------------------------------------- on the screen


def answer(found: Answer) -> RenderableType:
    """Show one answer: the released value, the unbiased estimate and both intervals, the recommended one first."""
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(style="bold")
    table.add_column(justify="right", style="cyan")
    table.add_column(style="dim", overflow="fold")
    percent = in_percent(found.confidence)
    table.add_row("released", found.shown(found.released), "from the published counts")
    if found.unbiased is not None:
        sums = found.kind in LINEAR_KINDS
        source = "straight from the measurements" if sums else "of two unbiased estimates"
        table.add_row("unbiased" if sums else "measured", found.shown(found.unbiased), source)
    kinds = {
        "guaranteed": (found.guaranteed, f"at least {percent}, for any value of {found.truth}"),
        "typical": (found.typical, f"about {percent}, for data like the released"),
    }
    for kind, (ends, text) in sorted(kinds.items(), key=lambda one: one[0] != found.recommended):
        if ends is not None:
            what = "unbounded" if np.isinf(ends).any() else "known exactly" if found.is_exact(ends) else text
            chosen = kind == found.recommended and what == text and None not in (found.guaranteed, found.typical)
            table.add_row(kind, found.between(ends), f"recommended: {what}" if chosen else what)
    notes = [words(f"· {note}") for note in found.notes]
    title = words(f"{found.question[0].upper()}{found.question[1:]}", style="bold green")
    return Group(title, Padding(table, (1, 0, 1 if notes else 0, 2)), *notes)


def answer_table(release: Release, found: Sequence[Answer], level: str, *, values: bool) -> RenderableType:
    """Show the same query for every region of a level, every area, or every value of a category, a row each."""
    source = "unbiased" if found[0].kind in LINEAR_KINDS else "measured"
    estimated = [source] if any(one.unbiased is not None for one in found) else []
    table = plain_table(level, "released", *estimated, "interval", "kind", right=range(1, 3 + len(estimated)))
    tree = release.hierarchy.regions
    for one in found:
        name = dict(one.by)[level] if values else one.area or tree.names[tree.index[one.regions[0]]]
        unbiased = ["none" if one.unbiased is None else one.shown(one.unbiased)] if estimated else []
        table.add_row(name, one.shown(one.released), *unbiased, one.between(one.interval), one.recommended or "none")
    place = f"the area {found[0].area}" if found[0].area else places([tree.index[found[0].regions[0]]], tree)
    question = found[-1].question if values else found[0].question.replace(f" in {place}", "", 1)
    notes = list(dict.fromkeys(note for one in found for note in one.notes if not note.startswith("The public number")))
    return Group(
        words(f"{question[0].upper()}{question[1:]}, by {level}", style="bold green"),
        Padding(table, (1, 0, 1, 2)),
        *(words(f"· {note}") for note in notes),
        Text(
            f"Intervals are the recommended ones at {in_percent(found[0].confidence)}, separately for each row; "
            "--json and --csv have both kinds.",
            style="dim",
        ),
    )


def bands(release: Release, rows: list[dict[str, Any]], confidence: float | None) -> RenderableType:
    """Show intervals for all sizes of a region or an area jointly."""
    tree, last = release.hierarchy.regions, release.sizes[-1]
    level = in_percent(release.error_bars.confidence if confidence is None else confidence)
    parts: list[RenderableType] = []
    what, by = "area" if "area" in rows[0] else "region", release.hierarchy.by
    with_values = values_in_words([rows[0][name] for name in release.rows.categories], by)
    for place in dict.fromkeys(row[what] for row in rows):
        table = plain_table("size", release.about.groups, "guaranteed", right=(1, 2))
        for row in rows:
            if row[what] == place:
                ends = f"{row['lower']:,} … {row['upper']:,}"
                table.add_row(size_label(row["size"], last), f"{row['count']:,}", ends)
        where = f"the area {place}" if what == "area" else places([tree.index[place]], tree)
        parts += [
            words(f"{release.about.groups.capitalize()} in {where}{with_values}", style="bold green"),
            Padding(table, (1, 0, 1, 2)),
        ]
    truncated = truncation(release.measurements.neighbours)
    article = "an" if what == "area" else "a"
    truth = f"the truth {AS_TRUNCATED}" if truncated else "the truth"
    parts.append(
        Text(
            f"With at least {level} the intervals of all sizes of {article} {what} hold jointly for any value of "
            f"{truth}."
        )
    )
    if truncated:
        parts.append(Text(truncated))
    return Group(*parts)
