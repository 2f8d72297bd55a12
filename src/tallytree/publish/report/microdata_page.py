"""The page of synthetic households: which questions can be trusted, margins beside what was measured, and examples."""

from __future__ import annotations

import csv
from math import exp
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.errors import ReleaseError
from tallytree.core.numbers import exact_number
from tallytree.domain.schema import SIZE, Schema
from tallytree.privacy.budget import Budget, as_decimal
from tallytree.publish.folder import MANIFEST, PRIVACY, UNUSABLE, digest, reason
from tallytree.publish.microdata.synthesis import ANSWERS, HOUSEHOLDS, ID, PERSON, PERSONS, QUESTIONS, SCHEMA
from tallytree.publish.reading import MOST_ROWS, ParquetRows, all_rows, opened, read_json
from tallytree.publish.report.bars import bar
from tallytree.publish.report.page import Page, rendered
from tallytree.publish.report.words import about, percent
from tallytree.publish.statement import guarantee

TRUST = {  # from the best known on
    "published exactly": "the real numbers, which the chosen unit does not protect",
    "measured": "measured with noise: the error is known",
    "sum of measured": "sums of what was measured: the error is known",
    "partly measured": "a part was measured: errors can be larger than it shows",
    "not measured": "nothing was measured: the synthetic answer follows from the model alone",
}
MOST_TABLES = 100
MOST_MARGINS, MOST_CELLS = 8, 24
EXAMPLES = 6
REACH = 1.96  # standard deviations of the noise


def microdata_page(directory: Path) -> Page:
    """The page of a directory of synthetic households; a ReleaseError says what is wrong with its files."""
    try:
        statement, schema = read_json(directory / PRIVACY), Schema.from_json(read_json(directory / SCHEMA))
        with opened(directory / QUESTIONS) as file:
            asked = list(csv.DictReader(file.read().decode("utf-8").splitlines()))
        values = {
            "title": statement["title"],
            "stated": statement,
            "budget": guarantee(Budget.from_json(statement["budget"])),
            "plain": _plain(statement, schema),
            "kinds": _kinds(asked),
            "tables": _tables(asked),
            "left_out": max(0, len(asked) - MOST_TABLES),
            "margins": _margins(directory, asked),
            "examples": _examples(directory, schema),
            "spent": _spent(statement),
            "release_id": digest(directory / MANIFEST),
            "directory": str(directory),
        }
    except UNUSABLE as error:
        raise ReleaseError(f"the page of {directory} cannot be made: {reason(error)}") from None
    return rendered("microdata.html", values)


def _plain(statement: dict[str, Any], schema: Schema) -> dict[str, str]:
    real, drawn = statement["real_households"], statement["synthetic_households"]
    what = ", ".join(each.name for each in schema.household) or "nothing more"
    whose = ", ".join(each.name for each in schema.person) or "nothing more"
    budget = Budget.from_json(statement["budget"])
    but = " but for tables that the chosen unit does not protect" if statement["published_exactly"] else ""
    text = (
        "Whatever was asked of the real households was answered with random noise, which limits what anybody can find "
        f"out about any one of those protected{but}: the answers are {guarantee(budget)}."
    )
    epsilon = budget.epsilon
    if epsilon is not None and budget.delta is None and float(epsilon) < 7:
        text += (
            f" With ε = {float(epsilon):g} no outcome became more than {about(exp(float(epsilon)))} times as "
            "likely, or as unlikely, by any one of those protected being in the data."
        )
    return {
        "counted": (
            f"{drawn:,} made-up households with their persons, in place of {real['number']:,} real ones (a number that "
            f"is {real['known']}). Of a household there are: {what}, and how many persons live in it; of a person: "
            f"{whose}."
        ),
        "real": (
            "None was copied from the data. All were drawn by chance from a model that was fitted to noisy tables; one "
            "that looks like a household you know does so by chance."
        ),
        "protected": text,
    }


def _kinds(asked: list[dict[str, str]]) -> list[dict[str, Any]]:
    """How many tables are known how well."""
    most, rows = max(1, len(asked)), []
    for how, words in TRUST.items():
        found = [row for row in asked if row["how"] == how]
        if found:
            rows.append(
                {
                    "how": how,
                    "words": words,
                    "tables": f"{len(found):,}",
                    "share": percent(len(found) / most),
                    "error": _middle(found, "error"),
                    "at_most": _middle(found, "at_most"),
                    "bar": bar(len(found), most),
                }
            )
    return rows


def _tables(asked: list[dict[str, str]]) -> list[dict[str, str]]:
    """The tables of the workload, best known first, then by their errors."""
    order = {how: place for place, how in enumerate(TRUST)}
    ranked = sorted(asked, key=lambda row: (order.get(row["how"], len(order)), float(row["error"] or 0)))
    return [
        {
            "table": row["table"],
            "how": row["how"],
            "cells": f"{int(row['cells']):,}",
            "error": _plus_minus(row["error"]),
            "at_most": _plus_minus(row["at_most"]),
        }
        for row in ranked[:MOST_TABLES]
    ]


def _margins(directory: Path, asked: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Small tables that were measured: each cell's synthetic answer beside the measurement with its noise."""
    known = [*TRUST][:-1]  # the better known come first
    small = [row for row in asked if row["how"] in known and int(row["cells"]) <= MOST_CELLS]
    small = sorted(small, key=lambda row: (known.index(row["how"]), int(row["cells"])))[:MOST_MARGINS]
    if not small:
        return []
    answers = all_rows(directory / ANSWERS)
    which = answers["question"].to_numpy()
    found = []
    for row in small:
        part = slice(*np.searchsorted(which, [int(row["question"]), int(row["question"]) + 1]))
        cells = answers.slice(part.start, part.stop - part.start).to_pylist()
        if cells:
            found.append({"table": row["table"], "how": row["how"], "rows": _margin_rows(cells)})
    return found


def _margin_rows(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def ends(cell: dict[str, Any]) -> tuple[float, float] | None:
        if cell["measured"] is None or cell["noise"] is None:
            return None
        half = REACH * cell["noise"]
        return max(0.0, cell["measured"] - half), cell["measured"] + half

    most = max(1.0, *(max(cell["answer"], (ends(cell) or (0, 0))[1]) for cell in cells))
    return [
        {
            "label": cell["values"] or "all",
            "answer": f"{cell['answer']:,.0f}",
            "measured": "–" if cell["measured"] is None else f"{cell['measured']:,.0f}",
            "ends": "–" if (found := ends(cell)) is None else f"{found[0]:,.0f} to {found[1]:,.0f}",
            "bar": bar(cell["answer"], most, ends(cell)),
        }
        for cell in cells
    ]


def _examples(directory: Path, schema: Schema) -> list[dict[str, Any]]:
    """The first few households that hold somebody, with their persons."""
    most = MOST_ROWS
    with ParquetRows(directory / HOUSEHOLDS, most=most) as homes, ParquetRows(directory / PERSONS, most=most) as people:
        if not homes.groups or not homes.rows:
            return []
        some = [home for home in homes.group(homes.groups[0]).slice(0, 50).to_pylist() if home[SIZE]][:EXAMPLES]
        wanted = {home[ID] for home in some}
        first = 50 * (schema.max_persons + 1)
        persons = [one for one in people.group(people.groups[0]).slice(0, first).to_pylist() if one[ID] in wanted]
    return [
        {
            "id": home[ID],
            "size": home[SIZE],
            "facts": [(each.name, home[each.name]) for each in schema.household],
            "persons": [
                {"number": one[PERSON], "values": [one[each.name] for each in schema.person]}
                for one in persons
                if one[ID] == home[ID]
            ],
            "columns": [each.name for each in schema.person],
        }
        for home in some
    ]


def _spent(statement: dict[str, Any]) -> dict[str, str]:
    spent, left = (exact_number(statement[key]) for key in ("spent", "unspent"))
    return {"rounds": f"{len(statement['rounds']):,}", "spent": as_decimal(spent), "left": as_decimal(left, up=False)}


def _middle(rows: list[dict[str, str]], column: str) -> str:
    found = sorted(float(row[column]) for row in rows if row[column])
    return _plus_minus(str(found[len(found) // 2])) if found else "–"


def _plus_minus(text: str) -> str:
    return f"± {about(float(text))}" if text else "–"
