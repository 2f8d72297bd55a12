"""`tallytree query`: sums, shares, means, ratios and differences of a release, with their error bars."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tallytree.command.progress_bar import shown
from tallytree.command.screen import plain_table, show, show_json, words
from tallytree.core.errors import SpecError
from tallytree.core.names import for_a_spreadsheet
from tallytree.core.progress import Stage
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import size_label
from tallytree.publish.release.answer import Answer
from tallytree.publish.release.answers import Options
from tallytree.publish.release.areas import region_texts
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.release.excerpt import EXCERPT, read_for
from tallytree.publish.release.queries import Query, QueryKind
from tallytree.publish.release.scope import places, regions_of_level, values_in_words
from tallytree.publish.release.truncation import AS_TRUNCATED, truncation
from tallytree.publish.release.value import Release


@dataclass(frozen=True)
class Each:
    """What a query is answered for, one by one: regions of a level, areas of a file, values of a category."""

    level: str | None = None
    areas: Path | None = None
    category: str | None = None
    whole: bool = False  # read all of the release?

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `Release.ask_each`."""
        return {"level": self.level, "areas": self.areas, "category": self.category}

    @property
    def name(self) -> str | None:
        """The heading of the column with what each answer is about; None where there is one answer."""
        return self.level or self.category or (None if self.areas is None else "area")


def run_query(directory: Path, query: Query, each: Each, how: Options, form: str, *, quiet: bool) -> None:
    """Show the answer to a query, or to the same one for each region, area or value; `form` is text, json or csv."""
    with shown(quiet) as progress:
        progress(Stage("reading the release"))
        release = Release.load(directory) if each.whole else _read(directory, query, each)
        how = {**how, "progress": progress}
        found = [release.ask(query, **how)] if each.name is None else release.ask_each(query, **each.arguments, **how)
    listed = [one.to_json() for one in found]
    notes = [words(f"· {EXCERPT}")] if release.partial else []
    if form == "json":
        show_json(listed[0] if each.name is None else listed)
    elif form == "csv":
        show_csv([as_row(one, release.hierarchy.regions) for one in found])
    else:
        text = answer(found[0]) if each.name is None else answer_table(release, found, each)
        show(text, *notes, quiet=quiet)


def _read(directory: Path, query: Query, each: Each) -> Release:
    """What a query takes of a release: the regions that it names, or all regions of a level within these."""
    named = [] if each.areas is None else region_texts(each.areas)
    for given in (query.regions, query.to):
        named += given if isinstance(given, list) else []
    return Release.of(read_for(directory, named or None, each.level), directory)


def run_bands(directory: Path, query: Query, each: Each, confidence: float | None, form: str, *, quiet: bool) -> None:
    """Show intervals that hold for all sizes of a region or an area together."""
    with shown(quiet) as progress:
        progress(Stage("reading the release"))
        release = Release.load(directory) if each.whole else _read(directory, query, each)
        progress(Stage("guaranteed intervals"))
        regions = query.regions
        if each.level is not None:
            regions = regions_of_level(release.hierarchy.regions, each.level, regions)
        found = release.bands(regions, query.sizes, areas=each.areas, by=query.by, confidence=confidence)
    rows = found.to_pylist()
    if form == "json":
        show_json(rows)
    elif form == "csv":
        show_csv(rows)
    else:
        show(bands(release, rows, confidence), quiet=quiet)


def read_query(
    kind: QueryKind,
    regions: list[str] | None,
    sizes: str | None,
    to: list[str] | None,
    by: list[str] | None,
    share_of: list[str] | None,
) -> tuple[Query, str | None]:
    """A query from the options of the command, and the category that is named without a value, if one is."""
    named = [text for text in by or () if "=" not in text]
    if len(named) > 1:
        raise SpecError(f"--by {named[0]} asks for each value of one category; write {named[1]}=VALUE for the other")
    chosen = read_values([text for text in by or () if "=" in text], "--by")
    of = read_values(share_of, "--share-of")
    return Query(kind, regions or None, sizes, chosen, of, to, to_by=chosen), next(iter(named), None)


def read_values(given: list[str] | None, option: str) -> dict[str, str] | None:
    """Values of categories, each written as NAME=VALUE.

    >>> read_values(["tenure=rented"], "--by")
    {'tenure': 'rented'}
    """
    found: dict[str, str] = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise SpecError(f"{option} {text!r} is not read; write the category and its value, as in tenure=rented")
        if found.setdefault(name, value) != value:
            raise SpecError(f"{option} names {name!r} twice; ask about one of its values, or leave it out for all")
    return found or None


# -------------------------------------------------------------------- for programs


def as_row(found: Answer, tree: Hierarchy) -> dict[str, Any]:
    """An answer as a row of a table; what is missing or infinite is empty. Several regions are joined by semicolons.

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
    """One answer: the released value, the unbiased one and both intervals, the recommended one first."""
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(style="bold")
    table.add_column(justify="right", style="cyan")
    table.add_column(style="dim", overflow="fold")
    percent = in_percent(found.confidence)
    table.add_row("released", found.shown(found.released), "from the published counts")
    if found.unbiased is not None:
        sums = found.kind in ("sum", "difference")
        source = "straight from the measurements" if sums else "of two unbiased estimates"
        table.add_row("unbiased" if sums else "measured", found.shown(found.unbiased), source)
    kinds = {
        "guaranteed": (found.guaranteed, f"at least {percent}, whatever {found.truth} is"),
        "typical": (found.typical, f"about {percent}, for data like the released"),
    }
    for kind, (ends, text) in sorted(kinds.items(), key=lambda one: one[0] != found.recommended):
        if ends is not None:
            what = "unbounded" if np.isinf(ends).any() else "known exactly" if ends[0] == ends[1] else text
            chosen = kind == found.recommended and what == text and None not in (found.guaranteed, found.typical)
            table.add_row(kind, found.between(ends), f"recommended: {what}" if chosen else what)
    notes = [words(f"· {note}") for note in found.notes]
    title = words(f"{found.question[0].upper()}{found.question[1:]}", style="bold green")
    return Group(title, Padding(table, (1, 0, 1 if notes else 0, 2)), *notes)


def answer_table(release: Release, found: Sequence[Answer], each: Each) -> RenderableType:
    """The same question for every region of a level, every area, or every value of a category, a row each."""
    linear = found[0].kind in ("sum", "difference")
    level, values = each.name or "", each.category is not None
    headers = [level, "released", "unbiased" if linear else "measured", "interval", "kind"]
    table = plain_table(*headers, right=range(1, 4))
    tree = release.hierarchy.regions
    for one in found:
        name = dict(one.by)[level] if values else one.area or tree.names[tree.index[one.regions[0]]]
        unbiased = "none" if one.unbiased is None else one.shown(one.unbiased)
        table.add_row(name, one.shown(one.released), unbiased, one.between(one.interval), one.recommended or "none")
    place = f"the area {found[0].area}" if found[0].area else places([tree.index[found[0].regions[0]]], tree)
    asked = found[-1].question if values else found[0].question.replace(f" in {place}", "", 1)
    notes = list(dict.fromkeys(note for one in found for note in one.notes if not note.startswith("The public number")))
    return Group(
        words(f"{asked[0].upper()}{asked[1:]}, by {level}", style="bold green"),
        Padding(table, (1, 0, 1, 2)),
        *(words(f"· {note}") for note in notes),
        Text(
            f"Intervals are the recommended ones at {in_percent(found[0].confidence)}, each row by itself; --json and "
            "--csv have both kinds.",
            style="dim",
        ),
    )


def bands(release: Release, rows: list[dict[str, Any]], confidence: float | None) -> RenderableType:
    """Intervals for all sizes of a region or an area together."""
    tree, last = release.hierarchy.regions, release.sizes[-1]
    level = in_percent(release.error_bars.confidence if confidence is None else confidence)
    parts: list[RenderableType] = []
    what, by = "area" if "area" in rows[0] else "region", release.hierarchy.by
    told_by = values_in_words([rows[0][name] for name in release.rows.categories], by)
    for place in dict.fromkeys(row[what] for row in rows):
        table = plain_table("size", "groups", "guaranteed", right=(1, 2))
        for row in rows:
            if row[what] == place:
                ends = f"{row['lower']:,} … {row['upper']:,}"
                table.add_row(size_label(row["size"], last), f"{row['count']:,}", ends)
        parts += [
            words(
                f"Groups in {f'the area {place}' if what == 'area' else places([tree.index[place]], tree)}{told_by}",
                style="bold green",
            ),
            Padding(table, (1, 0, 1, 2)),
        ]
    told = truncation(release.measurements.neighbours)
    article = "an" if what == "area" else "a"
    truth = f"the truth {AS_TRUNCATED}" if told else "the truth"
    parts.append(
        Text(
            f"With at least {level} the intervals of all sizes of {article} {what} hold together, whatever {truth} is."
        )
    )
    if told:
        parts.append(Text(told))
    return Group(*parts)
