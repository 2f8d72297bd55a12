"""Private tables of households: what a synthesis may ask of them, in the rounds of a `Run`.

In this order: a request is checked against public facts and the budget, its round is begun, then noise is drawn and
private counts are read (for a choice, counts are made into scores and then words are drawn). What leaves is counts with
noise, or the place of a choice. `run` opens the data; this module says which counts are read, and how far one neighbour
can move them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import BudgetError, ReleaseError, SpecError
from tallytree.core.names import briefly
from tallytree.domain.schema import Attribute, Marginal, Schema
from tallytree.privacy.budget import Budget, Number, as_decimal, exact, scale_for
from tallytree.privacy.journal import Journal, Values
from tallytree.privacy.ledger import UNPAID, Charge
from tallytree.privacy.neighbours import HouseholdNeighbours, Sensitivity, roles_by_attribute
from tallytree.privacy.noise import NoiseKind, Randomness, cryptographic, variance_of
from tallytree.privacy.run import Run, open_sealed
from tallytree.tables.contingency import HouseholdCodes, check_size, code_type, digest_of_rows, marginal_counts
from tallytree.tables.group_sizes import Sealed, check_unaltered
from tallytree.tables.guard import from_outside
from tallytree.tables.households import Households

GAUSSIAN: NoiseKind = "discrete_gaussian"
LARGEST_SUM = 1 << 51  # of an estimate's sizes; so are those of all persons, so that scores stay below 2^52


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """What crossed the border: counts of a table with noise, or of some of its cells. Public."""

    marginal: Marginal
    values: Integers  # in the table's shape; one for each of `cells` where these are given
    variance: float  # of the noise on one value
    scale: Fraction  # the noise's parameter σ²
    rho: Fraction  # what it cost
    sensitivity: Sensitivity
    cells: tuple[int, ...] | None = None  # places in the flat table

    __repr__ = briefly


class PrivateTables(Run):
    """Private households, a neighbour relation and a budget in ρ: all that synthesis may ask of them.

    The journal has the schema too, and in a folder a digest of the rows: a run on others is refused. With a ledger a
    copy of the journal cannot draw a round again. `tallytree.lab` gives a `randomness` with a seed, for public data;
    otherwise it is cryptographic.
    """

    def __init__(
        self,
        households: Households,
        neighbours: HouseholdNeighbours,
        budget: Budget,
        *,
        charge: Charge = UNPAID,
        journal: Journal | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        check_households(households, neighbours, budget)
        self.schema, self.neighbours, self._households = households.schema, neighbours, households
        self.published_exactly: list[Marginal] = []
        journal = Journal(None) if journal is None else journal
        self._randomness = cryptographic("tallytree") if randomness is None else randomness
        facts: Values = {
            "schema": self.schema.to_json(),
            "households": self.number if neighbours.number_is_public else None,
            "truncation": households.truncation(),
            "noise": self._randomness.name,
        }
        rows, codes = digest_of_rows if journal.on_disk else None, households.codes
        super().__init__(
            households, codes, neighbours, budget, charge=charge, journal=journal, facts=facts, digest=rows
        )

    def part(self, schema: Schema, withheld: Fraction) -> PrivateTables:
        """Return the same run for tables of some of the attributes, without the part `withheld` of its budget.

        It is another view of this run: it asks the same tables and spends from the same budget. So it can spend nothing
        that this one could not, and a part of a part withholds what both withhold.
        """
        sides = ((schema.household, self.schema.household), (schema.person, self.schema.person))
        if schema.max_persons != self.schema.max_persons or any(not set(some) <= set(every) for some, every in sides):
            raise SpecError("a part of private tables has some of their attributes, and no others")
        if not 0 <= withheld <= self.left:
            raise BudgetError("the budget kept for later must be a part of the rest")
        part = object.__new__(PrivateTables)
        part.__dict__.update(self.__dict__, schema=schema, _withheld=self._withheld + withheld)
        return part

    # ---------------------------------------------------------------- what is public

    @property
    def number(self) -> int:
        """Return the number of households, if the unit makes that public."""
        return number_of(self._households, self.neighbours)

    def sensitivity(self, marginal: Marginal, cells: int | None = None) -> Sensitivity:
        """Return how far one neighbour can move the whole table, or any `cells` of its cells."""
        check_size(marginal, self.schema)
        if cells is None:
            return self.neighbours.sensitivity(marginal, self.schema)
        return self.neighbours.cells_sensitivity(marginal, cells, self.schema)

    @from_outside("Counting a public table")
    def public_counts(self, marginal: Marginal) -> Integers:
        """Return the exact counts of a table that is the same for all neighbours, at no cost; any other is refused.

        Under `one_person_attributes` these are all tables of household attributes and sizes, which that unit does not
        protect; the privacy statement must list what was taken (`published_exactly`).
        """
        if self.sensitivity(marginal).l1 > 0:
            raise BudgetError(f"the table of {marginal.describe()} is private under this unit: measure it")
        with self._reservation.lock():
            if marginal not in self.published_exactly:
                self.published_exactly.append(marginal)
            return self._true(marginal).copy()

    # ---------------------------------------------------------------- measuring

    def measure(self, marginal: Marginal, rho: Number, cells: Sequence[int] | None = None) -> NoisyTable | None:
        """Return the table, or some of its cells, with exact discrete Gaussian noise of σ² = L2²/(2ρ).

        `cells` are places in the flat table; noise is scaled to what that many can change by. None if the round was
        lost. `scale_for` refuses a table that cannot differ between neighbours: `public_counts` gives it, exactly.
        """
        cost, places = _positive(rho, "rho"), None if cells is None else self._checked_cells(marginal, cells)
        sensitivity = self.sensitivity(marginal, None if places is None else len(places))
        scale = self._randomness.usable(GAUSSIAN, scale_for(GAUSSIAN, sensitivity, cost))
        shape = marginal.shape(self.schema) if places is None else (len(places),)
        number = int(np.prod(shape, dtype=np.int64))

        def draw() -> Values:
            noisy = self._randomness.draw(GAUSSIAN, scale, number)
            true = self._true(marginal).ravel()
            noisy += true if places is None else true[list(places)]
            return {"values": noisy.tolist()}

        request = {"kind": "measure", "table": marginal.to_json(), "cells": None if places is None else list(places)}
        result = self.draw_round(request, cost, draw, number)
        if result is None:
            return None
        values = np.array(result.get("values"), dtype=np.int64)
        if values.shape != (number,):
            raise ReleaseError("the journal's values do not fit the table that they were recorded for")
        return NoisyTable(
            marginal, values.reshape(shape), variance_of(GAUSSIAN, scale), scale, cost, sensitivity, places
        )

    def _checked_cells(self, marginal: Marginal, cells: Sequence[int]) -> tuple[int, ...]:
        places = tuple(int(cell) for cell in cells)
        marginal.check(self.schema)
        if not places or len(set(places)) < len(places) or min(places) < 0:
            raise SpecError("name at least one cell, and each once")
        if max(places) >= marginal.cells(self.schema):
            raise SpecError(
                f"the table of {marginal.describe()} has {marginal.cells(self.schema):,} cells, numbered from 0; "
                f"cell {max(places)} is not there"
            )
        return places

    # ---------------------------------------------------------------- selecting

    def select(
        self,
        candidates: Sequence[Marginal],
        estimates: Sequence[NDArray[Any]],
        epsilon: Number,
        *,
        penalties: Sequence[int] | None = None,
        weights: Sequence[Fraction] | None = None,
    ) -> int | None:
        """Return the place of a table that the whole-number estimates miss by much, in L1, minus a public penalty.

        Each score is divided by its own table's sensitivity: between neighbours Σ|count − estimate| changes by at most
        the L1 by which the counts do. Costs ε²/8 in ρ. None if the round was lost.
        """
        bounds = [self.sensitivity(candidate).l1 for candidate in candidates]
        whole = self._whole_estimates(candidates, estimates)
        fines = None if penalties is None else np.array(list(penalties), dtype=np.int64)

        def scores() -> Integers:
            return np.array([int(misses.sum()) for misses in self._misses(candidates, whole)], dtype=np.int64)

        return self._choose("select", candidates, epsilon, scores, np.array(bounds, np.int64), fines, weights)

    def select_cell(
        self, candidates: Sequence[Marginal], estimates: Sequence[NDArray[Any]], epsilon: Number
    ) -> tuple[int, int] | None:
        """Return the place of a table and of a cell in it (flat) whose count the estimate misses by much.

        A cell's score |count − estimate| changes between neighbours by at most what the cell does. Costs ε²/8 in ρ.
        None if the round was lost.
        """
        bounds = [self.sensitivity(candidate, 1).l1 for candidate in candidates]
        whole = self._whole_estimates(candidates, estimates)
        sizes = [estimate.size for estimate in whole]

        def scores() -> Integers:
            return np.concatenate([misses.ravel() for misses in self._misses(candidates, whole)])

        place = self._choose("select_cell", candidates, epsilon, scores, np.repeat(bounds, sizes))
        if place is None:
            return None
        ends = np.cumsum(sizes)
        table = int(np.searchsorted(ends, place, side="right"))
        return table, place - int(ends[table]) + sizes[table]

    def _misses(self, candidates: Sequence[Marginal], estimates: Sequence[Integers]) -> Iterator[Integers]:
        """Return the errors of the estimates for each count of each table. They are private."""
        for candidate, estimate in zip(candidates, estimates, strict=True):
            yield np.abs(self._true(candidate) - estimate)

    def _choose(
        self,
        kind: str,
        tables: Sequence[Marginal],
        epsilon: Number,
        scores: Callable[[], Integers],
        bounds: Integers,
        penalties: Integers | None = None,
        weights: Sequence[Fraction] | None = None,
    ) -> int | None:
        from tallytree.privacy import selection

        factor = _positive(epsilon, "epsilon")
        # What is public is checked with scores of zero, before anything is spent.
        selection.candidates(np.zeros(len(bounds), np.int64), bounds, factor, penalties, weights)

        def draw() -> Values:
            offered = selection.candidates(scores(), bounds, factor, penalties, weights)
            return {"place": selection.choose(offered, self._randomness.words())}

        names = json.dumps([table.to_json() for table in tables], sort_keys=True)
        digest = hashlib.sha256(names.encode()).hexdigest()  # distinguishes one list of candidates from another
        request = {"kind": kind, "candidates": len(tables), "digest": digest}
        result = self.draw_round(request, selection.cost_of_selection(factor), draw, 1)
        if result is None:
            return None
        place = result.get("place")
        if not isinstance(place, int) or not 0 <= place < len(bounds):
            raise ReleaseError("the journal's choice is not among the candidates that it was recorded for")
        return place

    def _whole_estimates(self, candidates: Sequence[Marginal], estimates: Sequence[NDArray[Any]]) -> list[Integers]:
        """Return the public estimates as integers in the tables' shapes."""
        if not candidates or len(candidates) != len(estimates):
            raise SpecError("selection needs at least one table, and an estimate for each")
        whole = []
        for candidate, given in zip(candidates, estimates, strict=True):
            estimate = np.asarray(given)
            if estimate.dtype.kind not in "ui" or estimate.shape != candidate.shape(self.schema):
                raise SpecError(
                    f"the estimate of {candidate.describe()} must be integers (round them) of shape "
                    f"{candidate.shape(self.schema)}"
                )
            if float(np.abs(estimate.astype(np.float64)).sum()) > LARGEST_SUM:
                raise SpecError(f"the estimate of {candidate.describe()} is out of range: its sizes sum to over 2^51")
            whole.append(estimate.astype(np.int64))
        return whole

    # ---------------------------------------------------------------- private counts

    def _true(self, marginal: Marginal) -> Integers:
        """Return the private counts of a table: for a sum with noise, a score, or `public_counts`, which checks them
        first.
        """
        return self._count_private(partial(marginal_counts, marginal=marginal), marginal)

    def __repr__(self) -> str:
        return (
            f"PrivateTables({self.neighbours.unit.kind}, {len(self.rounds)} rounds, "
            f"ρ = {as_decimal(self.spent)} spent of {as_decimal(self.budget.amount, up=False)})"
        )


def check_households(households: Households, neighbours: HouseholdNeighbours, budget: Budget) -> None:
    """Refuse households that a relation or a budget cannot protect, by public facts alone."""
    check_unaltered(households, Households)
    if budget.rho is None:
        raise BudgetError(
            "synthesis draws Gaussian noise, which no pure epsilon can pay for: delta is missing. Give a budget "
            "as epsilon=… with delta=… (far less than one over the number of persons), or as rho=…"
        )
    neighbours.check_schema(households.schema)
    one_person = neighbours.unit.kind == "one_person_attributes"
    if one_person and households.truncated_by_rule and roles_by_attribute(households.schema):
        raise SpecError(
            "households were cut to max_persons so that those in a role stay, and an attribute tells roles: under "
            "one_person_attributes one person's attribute could change who else is kept. Raise max_persons, tell "
            "roles by position, or protect one_group"
        )


def number_of(households: Households, neighbours: HouseholdNeighbours) -> int:
    """Return the number of households, if the unit makes that public."""
    if not neighbours.number_is_public:
        raise SpecError(
            "the number of households is private under this unit; measure it: measure(Marginal('households'), rho)"
        )
    return open_sealed(households.codes, lambda codes: codes.number)


def _positive(value: Number, what: str) -> Fraction:
    number = exact(value, what)
    if number <= 0:
        raise BudgetError(f"{what} must be positive, not {value}")
    return number


# -------------------------------------------------------------------- regions of all levels as attributes


def longer_schema(schema: Schema, added: Mapping[Attribute, Integers]) -> Schema:
    """Return the schema with further attributes of households at the end."""
    return replace(schema, household=(*schema.household, *added))


def with_levels(households: Households, region: str, added: Mapping[Attribute, Integers]) -> Households:
    """Return households with further attributes: for each, its code by the code of the household's `region`.

    A table by the regions of any level is then a table of the schema and is measured like any other.

    *The added attributes change no promise.* Which region of an upper level a leaf lies in is public and fixed, so the
    added values are a function of the household's own region. Adding them works on each household separately:
    households that are replaced, added or removed stay that, and a household whose persons change keeps all it had. So
    neighbours without the added attributes are neighbours with them, under every unit, and a bound for all pairs of
    neighbours holds for these.
    """
    check_unaltered(households, Households)
    leaves = households.schema.attribute(region).codes
    for attribute, of_leaf in added.items():
        if of_leaf.shape != (leaves,) or of_leaf.min() < 0 or of_leaf.max() >= attribute.codes:
            raise SpecError(f"{attribute.name!r} needs one of its codes for each of the {leaves:,} leaf regions")
    schema = longer_schema(households.schema, added)

    def extended(codes: HouseholdCodes) -> HouseholdCodes:
        columns = {
            attribute.name: of_leaf.astype(code_type(attribute.codes))[codes.household[region]]
            for attribute, of_leaf in added.items()
        }
        return replace(codes, schema=schema, household={**codes.household, **columns})

    return replace(households, schema=schema, codes=Sealed(open_sealed(households.codes, extended)))
