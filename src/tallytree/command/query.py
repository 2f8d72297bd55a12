"""`tallytree query`: sums, shares, means, ratios and differences of a release, with their error bars."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
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
from tallytree.domain.categories import ALL
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import size_label
from tallytree.publish.release.answer import Answer
from tallytree.publish.release.answers import answers, area_bands
from tallytree.publish.release.areas import read_areas, region_texts
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.release.excerpt import EXCERPT, read_for
from tallytree.publish.release.questions import Asked
from tallytree.publish.release.scope import places, read_by, regions_of_level, values_in_words
from tallytree.publish.release.truncation import AS_TRUNCATED, truncation
from tallytree.publish.release.value import Release


def run_query(
    directory: Path,
    kind: str,
    regions: list[str] | None,
    sizes: str | None,
    other: list[str] | None,
    *,
    level: str | None,
    areas: Path | None = None,
    by: list[str] | None = None,
    share_of: list[str] | None = None,
    confidence: float | None,
    typical: bool,
    as_json: bool,
    as_csv: bool,
    quiet: bool,
) -> None:
    """Show the answer to a question, or to the same one for every region of a level or every area of a file.

    "simultaneous" is of all sizes.
    """
    if as_json and as_csv:
        raise SpecError("give --json or --csv, not both")
    if areas is not None and (level is not None or regions):
        raise SpecError("--regions names a file of areas; it goes without --level and --region")
    content: Any
    with shown(quiet) as progress:
        progress(Stage("reading the release"))
        named_in = regions if areas is None else region_texts(areas)
        release = Release.of(read_for(directory, [*(named_in or []), *(other or [])] or None, level), directory)
        every, given = _every_value(release, by, alone=level is None and areas is None and kind != "simultaneous")
        asked_of, chosen = _asked_of(release, level, regions, areas), read_values(given, "--by")
        if kind == "simultaneous":
            progress(Stage("guaranteed intervals"))
            if areas is not None:
                rows = area_bands(release, asked_of, sizes, by=chosen, confidence=confidence).to_pylist()
            else:
                named = regions if level is None else [one for (one,) in asked_of]
                rows = release.bands(named, sizes, by=chosen, confidence=confidence).to_pylist()
            content, text, table = rows, bands(release, rows, confidence), rows
        else:
            second = (other, sizes) if other else ()
            of = read_values(share_of, "--share-of")
            values = [chosen] if every is None else [{**(chosen or {}), **value} for value in every]
            questions = [
                Asked.of(release, kind, one, sizes, *second, by=value, to_by=value, of=of)
                for one in asked_of
                for value in values
            ]
            found = answers(release, questions, confidence=confidence, typical=typical, progress=progress)
            listed = [one.to_json() for one in found]
            many = "area" if areas is not None else level if every is None else next(iter(every[0]))
            content = listed[0] if many is None else listed
            table = [as_row(one, release.hierarchy.regions) for one in found]
            text = answer(found[0]) if many is None else answer_table(release, found, many, values=every is not None)
    if as_json:
        show_json(content)
    elif as_csv:
        show_csv(table)
    else:
        show(text, *([words(f"· {EXCERPT}")] if release.partial else []), quiet=quiet)


def _asked_of(release: Release, level: str | None, regions: list[str] | None, areas: Path | None) -> Sequence[Any]:
    """What is asked about: some regions, every region of a level, or every area of a file."""
    if areas is not None:
        return read_areas(areas, release.hierarchy.regions)
    if level is None:
        return [regions]
    return [[one] for one in regions_of_level(release.hierarchy.regions, level, regions)]


def _every_value(
    release: Release, by: list[str] | None, *, alone: bool
) -> tuple[list[dict[str, str]] | None, list[str] | None]:
    """For a category that is named without a value all its values and their sum, and the rest of `by`."""
    named = [text for text in by or () if "=" not in text]
    if not named:
        return None, by
    known = release.hierarchy.by
    if known is None or named[0] not in known.names:
        read_by({named[0]: ALL}, known)
    if len(named) > 1 or not alone:
        raise SpecError(
            f"--by {named[0]} asks for every value of one category, which goes without --level, --regions and "
            f"--simultaneous; name the value that is meant, as in {named[0]}=VALUE"
        )
    values = next(column.values for column in known.columns if column.name == named[0]) if known is not None else ()
    return [{named[0]: value} for value in (*values, ALL)], [text for text in by or () if "=" in text]


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


def answer_table(release: Release, found: Sequence[Answer], level: str, *, values: bool = False) -> RenderableType:
    """The same question for every region of a level, every area, or every value of a category, a row each."""
    linear = found[0].kind in ("sum", "difference")
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
