"""`SynthesisContents`: everything that the files of synthetic households are written from, and their statements.

All of it is public. The statements are `privacy.json` and the data package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isqrt
from pathlib import Path
from typing import Any

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.domain.schema import SIZE, Attribute, Marginal, Schema
from tallytree.privacy.budget import Budget, cost_of, scale_for
from tallytree.privacy.joint_cost import Together, together
from tallytree.privacy.journal import Round
from tallytree.privacy.ledger import Receipt
from tallytree.privacy.neighbours import HouseholdNeighbours
from tallytree.privacy.private_tables import GAUSSIAN
from tallytree.privacy.relations import describe_relation, relation_to_json
from tallytree.publish.about import NOT_STATED, About
from tallytree.publish.statement import LEDGER, NO_LEDGER, SOURCES, guarantee, resource, same_data_in_words, software
from tallytree.synthesis.agreement import SizeTable, draw_agreeing
from tallytree.synthesis.methods import Fitted, Method
from tallytree.synthesis.model import SyntheticHouseholds
from tallytree.synthesis.sampling import CHUNK, draw
from tallytree.synthesis.table_accuracy import CONFIDENCE, Evidence
from tallytree.synthesis.table_selection import MeasurementReasons
from tallytree.synthesis.workload import Workload
from tallytree.tables.households import OnBrokenRules

KIND = "synthetic households"
OF_A_SELECTION = "each score is divided by the largest change of its counts between neighbouring data sets"
COPIES = (
    "Nothing guarded against copies of the run's folder: a resumed copy would have drawn rounds again, and each adds "
    "to the cost."
)
BROKEN = {"refuse": "refused: the data have none", "keep": "kept, and measured as they are"}


@dataclass(frozen=True, eq=False)
class SynthesisContents:
    """A model of private households with everything it was fitted to.

    `number` is the default number of households that `draw` returns.
    """

    workload: Workload
    fitted: Fitted
    made_by: Method
    options: Mapping[str, Any]  # of the method
    neighbours: HouseholdNeighbours
    budget: Budget
    rounds: tuple[Round, ...]
    exact: Mapping[Marginal, Integers]  # tables that the unit does not protect, published exactly
    truncation: str
    number: int
    title: str
    about: About = NOT_STATED
    table: SizeTable | None = None  # that the households agree with
    truncated: bool = False  # persons may have been left out, by the rule in `truncation`
    on_broken_rules: OnBrokenRules = "keep"  # what was done with households of the data that break an edit rule
    receipt: Receipt | None = field(default=None, repr=False)  # for the data holder; in no file
    folder: Path | None = field(default=None, repr=False)  # with the journal of its rounds; likewise

    __repr__ = briefly

    @property
    def method(self) -> str:
        """Return the method's name."""
        return self.made_by.name

    @property
    def schema(self) -> Schema:
        """Return the schema of the attributes."""
        return self.workload.schema

    @property
    def spent(self) -> Fraction:
        """Return the cost of all rounds."""
        return sum((past.cost for past in self.rounds), Fraction(0))

    @property
    def ledgered(self) -> bool:
        """Return whether the budget was charged to a ledger."""
        return self.receipt is not None

    @property
    def same_data_as(self) -> tuple[str, ...]:
        """Return other accounts of the ledger that the same data are charged to."""
        return () if self.receipt is None else self.receipt.same_data_as

    @property
    def evidence(self) -> Evidence:
        """Return the measurements in the form that the error report takes."""
        return Evidence(self.schema, self.fitted.measured, self.exact)

    @property
    def together(self) -> Together | None:
        """Return the joint privacy cost of this synthesis and the released table, if any."""
        if self.table is None:
            return None
        return together(self.table.neighbours, self.table.budget, self.neighbours, self.budget)

    @property
    def truncation_note(self) -> str:
        """Return the note about truncated households for every description of the counts; empty without truncation."""
        return f"All counts and errors describe the data as truncated. {self.truncation}" if self.truncated else ""

    def draw(self, number: int | None = None, *, chunk: int = CHUNK) -> Iterator[SyntheticHouseholds]:
        """Draw synthetic households as codes, in chunks.

        Parameters
        ----------
        number : int, optional
            How many households to draw. The default is the synthesis's own `number`; with a released table, as many as
            it says.
        chunk : int, default 100000
            How many households a chunk has.

        Returns
        -------
        iterator of SyntheticHouseholds
            The chunks.
        """
        number = self.number if number is None else number
        if self.table is None:
            return draw(self.fitted.model, number, chunk=chunk)
        if number != self.table.number:
            raise SpecError(f"the released table has {self.table.number:,} households, so {number:,} cannot be drawn")
        return draw_agreeing(self.fitted.model, self.table, chunk=chunk)


# -------------------------------------------------------------------- the privacy statement


def privacy_statement(
    synthesis: SynthesisContents,
    *,
    number: int,
    left_out: int,
    drawn_again: int = 0,
    quality: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return everything that a privacy reviewer needs, in plain values.

    `left_out` cells of answers were not written, and `drawn_again` households at first broke an edit rule. `quality` is
    how near the households come to the measured tables.
    """
    neighbours, budget, made_by = synthesis.neighbours, synthesis.budget, synthesis.made_by
    structure = {}
    if synthesis.schema.structure is not None:
        structure["structure"] = {
            "rules": synthesis.schema.structure.in_words(),
            "broken_in_the_data": BROKEN[synthesis.on_broken_rules],
            "drawn_again": drawn_again,
            "accepted": round(1 - drawn_again / number, 6) if number else 1.0,
        }
    return {
        "kind": KIND,
        "title": synthesis.title,
        **synthesis.about.in_statement(),
        "statement": describe_guarantee(synthesis),
        "unit": neighbours.unit.kind,
        "neighbours": relation_to_json(neighbours),
        "neighbours_in_words": describe_relation(neighbours),
        "not_protected": list_unprotected_facts(synthesis),
        "budget": budget.to_json(),
        "spent": str(synthesis.spent),
        "unspent": str(budget.amount - synthesis.spent),
        "rounds": list_rounds(synthesis),
        "published_exactly": [{"table": table.to_json(), "words": table.describe()} for table in synthesis.exact],
        "measured": [part.marginal.to_json() for part in synthesis.fitted.measured],
        "truncation": synthesis.truncation,
        "truncated": synthesis.truncated,
        "noise": SOURCES["tallytree"],
        "public": list_public_facts(synthesis),
        "ledger": LEDGER if synthesis.ledgered else NO_LEDGER,
        "same_data_as": list(synthesis.same_data_as),
        "method": {
            "name": made_by.name,
            "paper": made_by.paper,
            "measures": made_by.measures,
            "options": {
                name: value if isinstance(value, str | int | float | bool | None) else str(value)
                for name, value in synthesis.options.items()
            },
        },
        "real_households": {
            "number": synthesis.fitted.number,
            "known": "public" if neighbours.number_is_public else "measured with noise",
        },
        "synthetic_households": number,
        "agreement": describe_agreement(synthesis),
        "workload": [marginal.to_json() for marginal in synthesis.workload],
        "confidence": CONFIDENCE,
        "answers_left_out": left_out,
        "quality": [dict(row) for row in quality],
        **structure,
        "software": software(),
    }


def describe_guarantee(synthesis: SynthesisContents, *, notes: bool = True) -> str:
    """Return the guarantee in a few sentences; with `notes` also about truncated data and a run without a ledger.

    Households that agree with a released table depend on that release too. So the guarantee is the joint guarantee of
    both.
    """
    budget, both = synthesis.budget, synthesis.together
    text = f"These synthetic households are {guarantee(budget)}. {describe_relation(synthesis.neighbours)}"
    if both is not None:
        text = f"These synthetic households depend on a released table. {both.in_words(budget.delta)}"
    if notes and synthesis.truncation_note:
        text += f" {synthesis.truncation_note}"
    if notes and not synthesis.ledgered:
        text += f" They were made without a ledger: other releases about the same data add to their cost. {COPIES}"
    return text + same_data_in_words(synthesis.same_data_as)


def list_public_facts(synthesis: SynthesisContents) -> list[str]:
    """Return the facts that everybody is assumed to know."""
    neighbours, both = synthesis.neighbours, synthesis.together
    facts = [
        "the schema: attributes, their values and bins, and the most persons of a household",
        "the workload: the tables that the synthetic households should answer well",
        *(["the number of households"] if neighbours.number_is_public else []),
    ]
    if both is not None:
        facts += ["the regions of households"] if both.regions_are_public else []
        facts += [f"their {' and '.join(both.categories)}"] if both.categories_are_public else []
        facts += ["that each household has a person"] if both.none_is_empty else []
    return facts


def list_unprotected_facts(synthesis: SynthesisContents) -> list[str]:
    """Return the facts that the guarantee does not hide, no matter how small the budget is."""
    unit, both = synthesis.neighbours.unit.kind, synthesis.together
    facts = ["facts about the whole population that would be learned just as well without any one household"]
    if unit == "one_group":
        facts.append("how many households there are")
    if both is not None and both.regions_are_public:
        facts.append("the region of each household, and so the number of households in every region")
    if both is not None and both.categories_are_public:
        facts.append(f"what a household's {' and '.join(both.categories)} is, and so how many of each every region has")
    if both is not None and both.none_is_empty:
        facts.append("that every household has at least one person")
    if unit == "one_person_attributes":
        facts += [
            "the households, their attributes and their numbers of persons",
            "whether a person is in the data",
            "facts about two or more persons of a household jointly: only one person's attributes are hidden at a time",
        ]
    return facts


def list_rounds(synthesis: SynthesisContents) -> list[dict[str, Any]]:
    """Return one row for each round, with everything that its cost follows from."""
    steps = [step for step in synthesis.fitted.rounds if step.kind != "public"]
    words = [step.words for step in steps] if len(steps) == len(synthesis.rounds) else [None] * len(synthesis.rounds)
    rows, reasons = [], MeasurementReasons(synthesis.workload)
    for place, (past, about) in enumerate(zip(synthesis.rounds, words, strict=True), start=1):
        request = past.request
        row: dict[str, Any] = {"round": place, "kind": request["kind"], "words": about, "cost": str(past.cost)}
        row["lost"] = past.result is None
        if request["kind"] == "measure":
            row |= _describe_measurement(request, past.cost, synthesis)
            row["why"] = reasons.why(Marginal.from_json(request["table"]))
        else:
            row |= {
                "candidates": request["candidates"],
                "digest": request["digest"],
                "epsilon": str(_root(8 * past.cost)),
                "sensitivity": OF_A_SELECTION,
            }
        rows.append(row)
    return rows


def _describe_measurement(request: dict[str, Any], cost: Fraction, synthesis: SynthesisContents) -> dict[str, Any]:
    """Return a measurement's sensitivity and noise, from the neighbour relation alone."""
    table, cells, neighbours = Marginal.from_json(request["table"]), request["cells"], synthesis.neighbours
    if cells is None:
        sensitivity = neighbours.sensitivity(table, synthesis.schema)
    else:
        sensitivity = neighbours.cells_sensitivity(table, len(cells), synthesis.schema)
    scale = scale_for(GAUSSIAN, sensitivity, cost)
    assert cost_of(GAUSSIAN, sensitivity, scale) == cost
    return {
        "table": request["table"],
        "cells": cells,
        "sensitivity": {"l1": sensitivity.l1, "l2_squared": sensitivity.l2_squared},
        "noise": GAUSSIAN,
        "scale": str(scale),
    }


def describe_agreement(synthesis: SynthesisContents) -> dict[str, Any] | None:
    """Return the released table that the households agree with, and the joint privacy cost."""
    table, both = synthesis.table, synthesis.together
    if table is None or both is None:
        return None
    empty = "" if table.first_size == 0 else " Households without persons are not in that table, so none were drawn."
    promise = (
        f"for every value of {', '.join(table.attributes)} and every size, {table.first_size} to {table.last_size} or "
        f"more, there are exactly as many synthetic households as were released.{empty}"
    )
    return {
        "release_id": table.release_id,
        "region": table.region,
        "first_size": table.first_size,
        "last_size": table.last_size,
        "households": table.number,
        "release_neighbours": relation_to_json(table.neighbours),
        "release_budget": table.budget.to_json(),
        "steps_of_the_release": both.times,
        "release_rho": str(both.release),
        "synthesis_rho": str(both.synthesis),
        "rho": str(both.rho),
        "relation": both.relation,
        "statement": both.in_words(synthesis.budget.delta),
        "promise": promise,
        **({"by": [list(pair) for pair in table.by]} if table.by else {}),
        **({"levels": [each.name for each in table.levels.attributes]} if table.levels is not None else {}),
    }


def _root(value: Fraction) -> Fraction:
    """Return the square root of a square."""
    root = Fraction(isqrt(value.numerator), isqrt(value.denominator))
    assert root**2 == value
    return root


# -------------------------------------------------------------------- the data package


def data_package(synthesis: SynthesisContents) -> dict[str, Any]:
    """Return the Frictionless data package that describes every table."""
    schema = synthesis.schema
    home = {"name": "household_id", "type": "integer", "description": "numbers the synthetic households from 1"}
    person = {"name": "person", "type": "integer", "description": "numbers a household's persons from 1"}
    size = {
        "name": SIZE,
        "type": "integer",
        "constraints": {"minimum": 0, "maximum": schema.max_persons},
        "description": "how many persons it has",
    }
    owner = {"fields": "household_id", "reference": {"resource": "households", "fields": "household_id"}}
    described: dict[str, dict[str, Any]] = {
        "households.parquet": {
            "description": "synthetic households: drawn from a model, none of them real",
            "schema": {"fields": [home, *_describe_attributes(schema.household), size], "primaryKey": ["household_id"]},
        },
        "persons.parquet": {
            "description": "synthetic persons: drawn from a model, none of them real",
            "schema": {
                "fields": [home, person, *_describe_attributes(schema.person)],
                "primaryKey": ["household_id", "person"],
                "foreignKeys": [owner],
            },
        },
    }
    note = f". {synthesis.truncation_note}" if synthesis.truncated else ""
    described |= {name: {"description": f"{text}{note}"} for name, text in ABOUT_COUNTS.items()}
    return {
        "name": "tallytree-synthetic-households",
        "title": synthesis.title,
        **synthesis.about.in_package(describe_guarantee(synthesis)),
        "resources": [resource(name, about) for name, about in described.items()],
    }


ABOUT_COUNTS = {
    "questions.csv": "every table of the workload, and how far its counts may be from the truth: root mean squares "
    "over its counts, from the noisy measurements; 'at least' and 'at most' hold with 95 % each",
    "answers.parquet": "every count of these tables: in the synthetic files, scaled to the real number of households, "
    "as measured, and how far it may be from the truth with a chance of 95 %",
    "measurements.parquet": "the noisy counts that the model was fitted to; variance 0: published exactly",
}


def _describe_attributes(attributes: tuple[Attribute, ...]) -> list[dict[str, Any]]:
    """Return the columns with labels."""
    return [
        {"name": each.name, "type": "string", "constraints": {"required": True, "enum": list(each.values)}}
        for each in attributes
    ]
