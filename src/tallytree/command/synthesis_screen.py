"""What a person sees of a synthesis in the terminal. Public values only."""

from __future__ import annotations

import csv
import os
from fractions import Fraction
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tallytree.command.screen import facts, plain_table
from tallytree.privacy.budget import Budget, as_decimal
from tallytree.publish.folder import PRIVACY
from tallytree.publish.microdata.files import ANSWERS, HOUSEHOLDS, PERSONS, QUESTIONS
from tallytree.publish.microdata.making import Ready
from tallytree.publish.microdata.statement import in_words
from tallytree.publish.microdata.value import Synthesis
from tallytree.publish.statement import guarantee
from tallytree.schema import Schema

WORST = 5  # tables shown by name


def synthesis_summary(synthesis: Synthesis, directory: Path, saved: str) -> RenderableType:
    """A synthesis at a glance: what was asked, which questions can be trusted, what is promised."""
    with (directory / QUESTIONS).open(encoding="utf-8", newline="") as file:
        asked = list(csv.DictReader(file))
    both, table = synthesis.together, synthesis.table
    known = "public" if synthesis.neighbours.number_is_public else "with noise"
    rows = {
        "asked": rounds_in_words(synthesis),
        "privacy": in_words(synthesis.budget, synthesis.neighbours, both, ledgered=True),
        "ledger": "charged" if synthesis.ledgered else "none was used, and the privacy statement says so",
        "oversize": synthesis.truncation,
    }
    if table is not None:
        rows["agrees"] = f"with the released table: as many households for every {table.region} and size"
    rows |= {
        "made by": synthesis.method,
        "files": f"{directory}{os.sep} ({HOUSEHOLDS}, {PERSONS}, {QUESTIONS}, {ANSWERS}, {PRIVACY}, …)",
        "id": saved,
        "check it": f"tallytree verify {directory} --id {saved[:16]}",
    }
    return Group(
        Text(f"\n{synthesis.title}", style="bold green"),
        Text(f"{synthesis.number:,} synthetic households for {synthesis.fitted.number:,} real ones ({known}).\n"),
        Text("Which questions can be trusted, by what is known of their answers:"),
        Padding(trust_table(asked), (0, 0, 1, 2)),
        *worst_tables(asked),
        facts(rows),
    )


def trust_table(asked: list[dict[str, str]]) -> Table:
    """How many tables were measured, and how far their counts may be off."""
    table = plain_table("", "tables", "counts", "typical error", "at most", right=(1, 2, 3, 4))
    for how in ("published exactly", "measured", "sum of measured", "partly measured", "not measured"):
        rows = [row for row in asked if row["how"] == how]
        if rows:
            counts = sum(int(row["cells"]) for row in rows)
            table.add_row(how, f"{len(rows):,}", f"{counts:,}", _middle(rows, "error"), _middle(rows, "at_most"))
    return table


def worst_tables(asked: list[dict[str, str]]) -> list[RenderableType]:
    """What the errors mean, and the measured tables with the largest, by name."""
    rows = sorted((row for row in asked if row["error"]), key=lambda row: -float(row["error"]))
    about = (
        "Errors are those of one count, told from the noisy measurements (at most: with a chance of 95 %). Of tables "
        f"that were not measured little is known: {QUESTIONS} says what."
    )
    if not rows:
        return [Text(f"{about}\n")]
    table = plain_table("", "error", "at most", right=(1, 2))
    for row in rows[:WORST]:
        table.add_row(row["table"], _short(float(row["error"])), _short(float(row["at_most"])))
    return [Text(f"{about} The largest errors:"), Padding(table, (0, 0, 1, 2))]


def rounds_in_words(synthesis: Synthesis) -> str:
    """What was asked of the private tables."""
    kinds = [past.request["kind"] for past in synthesis.rounds]
    measured = kinds.count("measure")
    lost = sum(past.result is None for past in synthesis.rounds)
    spent = sum((past.cost for past in synthesis.rounds), Fraction(0))
    selected = len(kinds) - measured
    chosen = f"{selected:,} selection{'' if selected == 1 else 's'}"
    text = f"{measured:,} measurement{'' if measured == 1 else 's'} and {chosen} for ρ = {as_decimal(spent)}"
    if lost:
        text += f"; {lost} of them were lost when the run was killed, and paid for"
    if synthesis.exact:
        text += f"; {len(synthesis.exact):,} tables that the unit does not protect were taken exactly"
    return text


def synthesis_readiness(schema: Schema, ready: Ready, budget: Budget, truncation: str) -> RenderableType:
    """What a valid spec would do; public facts only."""

    def side(attributes: tuple[object, ...]) -> str:
        return ", ".join(f"{each.name} ({each.codes})" for each in attributes) or "none"  # type: ignore[attr-defined]

    rows = {
        "households": side(schema.household),
        "persons": f"{side(schema.person)}; at most {schema.max_persons} in a household",
        "workload": f"{len(ready.workload):,} tables with {ready.workload.queries:,} counts",
        "budget": str(budget),
        "promise": guarantee(budget),
        "protects": ready.neighbours.describe(),
        "oversize": truncation,
        "method": ready.method.name,
    }
    if ready.table is not None:
        rows["agrees"] = f"with {ready.table.number:,} released households by {ready.table.region} and size"
    return facts(rows)


def _middle(rows: list[dict[str, str]], column: str) -> str:
    """The median of a column, or a dash where nothing is known."""
    found = sorted(float(row[column]) for row in rows if row[column])
    return _short(found[len(found) // 2]) if found else "–"


def _short(value: float) -> str:
    return f"± {value:,.1f}" if value < 1000 else f"± {value:,.0f}"
