"""What synthetic households say of themselves: the privacy statement (`privacy.json`) and the data package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import isqrt
from typing import Any

from tallytree.domain.schema import SIZE, Marginal, Schema
from tallytree.privacy.accounting import cost_of, scale_for
from tallytree.privacy.budget import Budget
from tallytree.privacy.household_neighbours import HouseholdNeighbours
from tallytree.privacy.joint_cost import Together
from tallytree.privacy.neighbours import Sensitivity
from tallytree.privacy.private_tables import GAUSSIAN
from tallytree.publish.microdata.contents import SynthesisContents
from tallytree.publish.statement import (
    LEDGER,
    NO_LEDGER,
    SOURCES,
    guarantee,
    resource,
    same_data_in_words,
    software,
)
from tallytree.synthesis.explaining import Explaining
from tallytree.synthesis.methods import Method
from tallytree.synthesis.trust import CONFIDENCE

KIND = "synthetic households"
OF_A_SELECTION = "each score is divided by the most that its own counts change between neighbours"
COPIES = (
    "Nor was there a guard against copies of the folder that the run kept its rounds in: a copy that was resumed too "
    "would have drawn rounds again, and each adds to the cost."
)


BROKEN = {"refuse": "refused: the data have none", "keep": "kept, and measured as they are"}


def privacy_statement(
    synthesis: SynthesisContents, *, number: int, left_out: int, drawn_again: int = 0
) -> dict[str, Any]:
    """Everything a privacy reviewer asks for, in plain values; `left_out` cells of answers were not written, and
    `drawn_again` of the households drawn at first broke a rule.
    """
    neighbours, budget, both = synthesis.neighbours, synthesis.budget, synthesis.together
    spent = sum((past.cost for past in synthesis.rounds), Fraction(0))
    return {
        "kind": KIND,
        "title": synthesis.title,
        "statement": in_words(
            budget,
            neighbours,
            both,
            ledgered=synthesis.ledgered,
            left_out=left_out_before(synthesis),
            same_data_as=synthesis.same_data_as,
        ),
        "unit": neighbours.unit.kind,
        "neighbours": neighbours.to_json(),
        "neighbours_in_words": neighbours.describe(),
        "not_protected": not_protected(neighbours, both),
        "budget": budget.to_json(),
        "spent": str(spent),
        "unspent": str(budget.amount - spent),
        "rounds": rounds(synthesis),
        "published_exactly": [exactly(marginal) for marginal in synthesis.exact],
        "measured": [part.marginal.to_json() for part in synthesis.fitted.measured],
        "truncation": synthesis.truncation,
        "truncated": synthesis.truncated,
        "noise": SOURCES["tallytree"],
        "public": public_facts(neighbours, both),
        "ledger": LEDGER if synthesis.ledgered else NO_LEDGER,
        "same_data_as": list(synthesis.same_data_as),
        "method": method_in_words(synthesis.made_by, synthesis.options),
        "real_households": {"number": synthesis.fitted.number, "known": how_number_is_known(neighbours)},
        "synthetic_households": number,
        "agreement": agreement(synthesis),
        "workload": [marginal.to_json() for marginal in synthesis.workload],
        "confidence": CONFIDENCE,
        "answers_left_out": left_out,
        **structure_in_words(synthesis, number, drawn_again),
        "software": software(),
    }


def structure_in_words(synthesis: SynthesisContents, number: int, drawn_again: int) -> dict[str, Any]:
    """The rules that no household breaks and how often drawing had to be repeated; nothing where there are none."""
    structure = synthesis.schema.structure
    if structure is None:
        return {}
    about = {
        "rules": structure.in_words(),
        "broken_in_the_data": BROKEN[synthesis.on_broken_rules],
        "drawn_again": drawn_again,
        "accepted": accepted(drawn_again, number),
    }
    return {"structure": about}


def accepted(drawn_again: int, number: int) -> float:
    """The share of households that kept all rules when they were drawn first."""
    return round(1 - drawn_again / number, 6) if number else 1.0


def public_facts(neighbours: HouseholdNeighbours, both: Together | None) -> list[str]:
    """What is taken as known to all."""
    return [
        "the schema: attributes, their values and bins, and the most persons of a household",
        "the workload: which tables the synthetic households should get right",
        *(["the number of households"] if neighbours.number_is_public else []),
        *(["the regions of households"] if both is not None and both.regions_are_public else []),
        *([f"their {' and '.join(both.categories)}"] if both is not None and both.categories_are_public else []),
        *(["that each household has a person"] if both is not None and both.none_is_empty else []),
    ]


def exactly(marginal: Marginal) -> dict[str, Any]:
    """A table that was published without noise."""
    return {"table": marginal.to_json(), "words": marginal.describe()}


def method_in_words(method: Method, options: Mapping[str, Any]) -> dict[str, Any]:
    """The method, and all its options."""
    return {
        "name": method.name,
        "paper": method.paper,
        "measures": method.measures,
        "options": {name: _plain(value) for name, value in options.items()},
    }


def how_number_is_known(neighbours: HouseholdNeighbours) -> str:
    """Where the number of real households is from."""
    return "public" if neighbours.number_is_public else "measured with noise"


def left_out_before(synthesis: SynthesisContents) -> str:
    """What was left out of the data before anything was counted, in words; empty where nothing can have been."""
    return as_truncated(synthesis.truncation) if synthesis.truncated else ""


def as_truncated(rule: str) -> str:
    """What is said wherever households that were cut are described."""
    return f"All counts and errors describe the data as truncated. {rule}"


def in_words(
    budget: Budget,
    neighbours: HouseholdNeighbours,
    both: Together | None,
    *,
    ledgered: bool,
    left_out: str = "",
    same_data_as: Sequence[str] = (),
) -> str:
    """The guarantee in a few sentences.

    Households that agree with a released table depend on that release too, so all that can be promised of them is what
    both promise together.
    """
    text = f"These synthetic households are {guarantee(budget)}. {neighbours.describe()}"
    if both is not None:
        text = f"These synthetic households depend on a released table. {both.in_words(budget.delta)}"
    if left_out:
        text += f" {left_out}"
    if not ledgered:
        text += f" They were made without a ledger: other releases about the same data add to their cost. {COPIES}"
    return text + same_data_in_words(same_data_as)


def not_protected(neighbours: HouseholdNeighbours, both: Together | None) -> list[str]:
    """What the guarantee does not hide, however small the budget is."""
    facts = ["what holds for the whole population and would be learned just as well without any one household"]
    if neighbours.unit.kind == "one_group":
        facts.append("how many households there are")
    if both is not None and both.regions_are_public:
        facts.append("in which region a household is, and so how many households every region has")
    if both is not None and both.categories_are_public:
        facts.append(f"what a household's {' and '.join(both.categories)} is, and so how many of each every region has")
    if both is not None and both.none_is_empty:
        facts.append("that every household has at least one person")
    if neighbours.unit.kind == "one_person_attributes":
        facts += [
            "which households there are, their attributes and how many persons each has",
            "whether a person is in the data at all",
            "what two or more persons of a household have in common: only one person's attributes are hidden at a time",
        ]
    return facts


def rounds(synthesis: SynthesisContents) -> list[dict[str, Any]]:
    """One row for each round, with all that its cost follows from."""
    steps = [step for step in synthesis.fitted.rounds if step.kind != "public"]
    words = [step.words for step in steps] if len(steps) == len(synthesis.rounds) else [None] * len(synthesis.rounds)
    rows, reasons = [], Explaining(synthesis.workload)
    for place, (past, about) in enumerate(zip(synthesis.rounds, words, strict=True), start=1):
        row: dict[str, Any] = {"round": place, "kind": past.request["kind"], "words": about, "cost": str(past.cost)}
        row["lost"] = past.result is None
        if past.request["kind"] == "measure":
            row |= measured_row(past.request, past.cost, synthesis.neighbours, synthesis.schema)
            row["why"] = reasons.why(Marginal.from_json(past.request["table"]))
        else:
            row |= {
                "candidates": past.request["candidates"],
                "digest": past.request["digest"],
                "epsilon": str(_root(8 * past.cost)),
                "sensitivity": OF_A_SELECTION,
            }
        rows.append(row)
    return rows


def measured_row(
    request: dict[str, Any], cost: Fraction, neighbours: HouseholdNeighbours, schema: Schema
) -> dict[str, Any]:
    """A measurement's sensitivity and noise, from the neighbour relation alone."""
    sensitivity = sensitivity_of(request["table"], request["cells"], neighbours, schema)
    scale = scale_for(GAUSSIAN, sensitivity, cost)
    assert cost_of(GAUSSIAN, sensitivity, scale) == cost
    return {
        "table": request["table"],
        "cells": request["cells"],
        "sensitivity": {"l1": sensitivity.l1, "l2_squared": sensitivity.l2_squared},
        "noise": GAUSSIAN,
        "scale": str(scale),
    }


def sensitivity_of(
    table: dict[str, Any], cells: list[int] | None, neighbours: HouseholdNeighbours, schema: Schema
) -> Sensitivity:
    """How far a neighbour can move a measured table, or the cells of it that were measured."""
    marginal = Marginal.from_json(table)
    if cells is None:
        return neighbours.sensitivity(marginal, schema)
    return neighbours.cells_sensitivity(marginal, len(cells), schema)


def agreement(synthesis: SynthesisContents) -> dict[str, Any] | None:
    """The released table that the households agree with, and what both promise together."""
    table, both = synthesis.table, synthesis.together
    if table is None or both is None:
        return None
    return {
        "release_id": table.release_id,
        "region": table.region,
        "first_size": table.first_size,
        "last_size": table.last_size,
        "households": table.number,
        "release_neighbours": table.neighbours.to_json(),
        "release_budget": table.budget.to_json(),
        "steps_of_the_release": both.times,
        "release_rho": str(both.release),
        "synthesis_rho": str(both.synthesis),
        "rho": str(both.rho),
        "relation": both.relation,
        "statement": both.in_words(synthesis.budget.delta),
        "promise": promise(table.attributes, table.first_size, table.last_size),
        **({"by": [list(pair) for pair in table.by]} if table.by else {}),
        **({"levels": [each.name for each in table.levels.attributes]} if table.levels is not None else {}),
    }


def promise(attributes: Sequence[str], first_size: int, last_size: int) -> str:
    """In what the households agree with the released table."""
    empty = "" if first_size == 0 else " Households without persons are not in that table, so none were drawn."
    return (
        f"for every value of {', '.join(attributes)} and every size, {first_size} to {last_size} or more, there are "
        f"exactly as many synthetic households as were released.{empty}"
    )


def data_package(synthesis: SynthesisContents) -> dict[str, Any]:
    """The data package of these households."""
    told = in_words(
        synthesis.budget,
        synthesis.neighbours,
        synthesis.together,
        ledgered=synthesis.ledgered,
        same_data_as=synthesis.same_data_as,
        left_out=left_out_before(synthesis),
    )
    return package_of(synthesis.schema, synthesis.title, told, left_out_before(synthesis))


def package_of(schema: Schema, title: str, told: str, left_out: str) -> dict[str, Any]:
    """A Frictionless data package that describes every table; `told` is the statement in words."""
    home = {"name": "household_id", "type": "integer", "description": "numbers the synthetic households from 1"}
    size = {"name": SIZE, "type": "integer", "constraints": {"minimum": 0, "maximum": schema.max_persons}}
    person = {"name": "person", "type": "integer", "description": "numbers a household's persons from 1"}

    def attributes(side: Any) -> list[dict[str, Any]]:
        return [
            {"name": each.name, "type": "string", "constraints": {"required": True, "enum": list(each.values)}}
            for each in side
        ]

    homes = {
        "description": "synthetic households: drawn from a model, none of them real",
        "schema": {
            "fields": [home, *attributes(schema.household), {**size, "description": "how many persons it has"}],
            "primaryKey": ["household_id"],
        },
    }
    people = {
        "description": "synthetic persons: drawn from a model, none of them real",
        "schema": {
            "fields": [home, person, *attributes(schema.person)],
            "primaryKey": ["household_id", "person"],
            "foreignKeys": [
                {"fields": "household_id", "reference": {"resource": "households", "fields": "household_id"}}
            ],
        },
    }
    questions = (
        "every table of the workload, and how far its counts may be from the truth: root mean squares over its counts, "
        "from the noisy measurements; 'at least' and 'at most' hold with 95 % each"
    )
    answers = (
        "every count of these tables: in the synthetic files, scaled to the real number of households, as measured, "
        "and how far it may be from the truth with a chance of 95 %"
    )
    measurements = "the noisy counts that the model was fitted to; variance 0: published exactly"
    if left_out:
        questions, answers, measurements = (f"{text}. {left_out}" for text in (questions, answers, measurements))
    return {
        "name": "tallytree-synthetic-households",
        "title": title,
        "description": told,
        "resources": [
            resource("households.parquet", homes),
            resource("persons.parquet", people),
            resource("questions.csv", {"description": questions}),
            resource("answers.parquet", {"description": answers}),
            resource("measurements.parquet", {"description": measurements}),
        ],
    }


def _root(value: Fraction) -> Fraction:
    """The square root of a square."""
    root = Fraction(isqrt(value.numerator), isqrt(value.denominator))
    assert root**2 == value
    return root


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
