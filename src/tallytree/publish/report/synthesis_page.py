"""The report of synthetic households: reliable queries, tables compared with their measurements, and examples."""

from __future__ import annotations

from math import exp
from pathlib import Path

import numpy as np

from tallytree.core.errors import ReleaseError
from tallytree.core.numbers import exact_number
from tallytree.domain.schema import SIZE, Schema
from tallytree.privacy.budget import Budget, as_decimal
from tallytree.publish.about import About
from tallytree.publish.folder import MANIFEST, PRIVACY, UNUSABLE, digest, reason
from tallytree.publish.microdata.synthesis import (
    ANSWERS,
    HOUSEHOLDS,
    ID,
    PERSONS,
    SCHEMA,
    Row,
    accuracy_by_kind,
    read_questions,
)
from tallytree.publish.report import Page, render_page
from tallytree.publish.statement import guarantee
from tallytree.publish.untrusted import MOST_ROWS, ParquetRows, all_rows, read_json

TRUST: dict[str, str] = {  # the most accurate first
    "published exactly": "the real numbers, which the chosen unit does not protect",
    "measured": "measured with noise: the error is known",
    "sum of measured": "sums of measured counts: the error is known",
    "partly measured": "a part was measured: errors can be larger than shown",
    "not measured": "nothing was measured: the synthetic answer follows from the model alone",
}
MOST_ODDS = 7  # of ε: a larger e^ε says little
MOST_TABLES = 100
MOST_MARGINS, MOST_COUNTS = 8, 24
EXAMPLES = 6
REACH = 1.96  # standard deviations of the noise


def make_synthesis_page(directory: Path) -> Page:
    """Return the report of a directory of synthetic households; a ReleaseError says what is wrong with its files."""
    try:
        stated, schema = read_json(directory / PRIVACY), Schema.from_json(read_json(directory / SCHEMA))
        tables, budget = read_questions(directory), Budget.from_json(stated["budget"])
        pure = budget.epsilon is not None and budget.delta is None and budget.epsilon < MOST_ODDS
        values = {
            "title": stated["title"],
            "about": (about := About.of(stated.get("about"))),
            "citation": about.cite(
                "Synthetic households", stated["title"], digest(directory / MANIFEST), stated["software"]["tallytree"]
            ),
            "stated": stated,
            "schema": schema,
            "budget": budget,
            "guarantee": guarantee(budget),
            "odds": exp(float(budget.epsilon or 0)) if pure else None,
            "kinds": [{**one, "words": TRUST[one["how"]]} for one in accuracy_by_kind(tables)],
            "tables": tables,
            "most_tables": MOST_TABLES,
            "margins": _read_margins(directory, tables),
            "examples": _read_examples(directory, schema),
            "spent": as_decimal(exact_number(stated["spent"])),
            "left": as_decimal(exact_number(stated["unspent"]), up=False),
            "release_id": digest(directory / MANIFEST),
            "directory": str(directory),
        }
    except UNUSABLE as error:
        raise ReleaseError(f"cannot write the report of {directory}: {reason(error)}") from None
    return render_page("synthesis.html", values)


def _read_margins(directory: Path, tables: list[Row]) -> list[Row]:
    """Return small measured tables: each cell's synthetic answer beside the measurement with its noise."""
    known = [*TRUST][:-1]
    small = [one for one in tables if one["how"] in known and one["cells"] <= MOST_COUNTS]
    small = sorted(small, key=lambda one: (known.index(one["how"]), one["cells"]))[:MOST_MARGINS]
    if not small:
        return []
    answers = all_rows(directory / ANSWERS)
    which = answers["question"].to_numpy()
    found = []
    for one in small:
        start, stop = np.searchsorted(which, [one["question"], one["question"] + 1]).tolist()
        cells = answers.slice(start, stop - start).to_pylist()
        found.append({**one, "rows": [{**cell, "ends": _noise_ends(cell)} for cell in cells]})
    return [one for one in found if one["rows"]]


def _noise_ends(cell: Row) -> tuple[float, float] | None:
    """Return the interval of a measured count, from its noise."""
    if cell["measured"] is None or cell["noise"] is None:
        return None
    half = REACH * cell["noise"]
    return max(0.0, cell["measured"] - half), cell["measured"] + half


def _read_examples(directory: Path, schema: Schema) -> list[Row]:
    """Return the first few non-empty households with their persons."""
    most = MOST_ROWS
    with ParquetRows(directory / HOUSEHOLDS, most=most) as homes, ParquetRows(directory / PERSONS, most=most) as people:
        if not homes.groups or not homes.rows:
            return []
        some = [home for home in homes.group(homes.groups[0]).slice(0, 50).to_pylist() if home[SIZE]][:EXAMPLES]
        first = people.group(people.groups[0]).slice(0, 50 * (schema.max_persons + 1)).to_pylist()
    return [{**home, "members": [one for one in first if one[ID] == home[ID]]} for home in some]
