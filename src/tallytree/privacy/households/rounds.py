"""The border for synthesis: tables of private households are selected and measured in rounds, each paid for first.

In this order: a request is checked against public facts and the budget, its cost is written into the journal, the round
is begun in the ledger if there is one (`reservation` says why in this order), then noise is drawn and private counts
are read (for a choice, counts are made into scores and then words are drawn). What leaves is counts with noise, or the
place of a choice.

A run that was killed is resumed by running it again with the same journal. Each call is compared with the next round of
the journal (its kind, its tables and its cost) and answered from there, without touching private data; new rounds are
drawn once the journal is used up. A round that was lost, because it was reserved and its result was not recorded,
answers None: it is paid for, and the caller goes on with its next round.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import BudgetError, ReleaseError, SpecError, TallytreeError
from tallytree.core.notebook import briefly
from tallytree.domain.schema import Marginal, Schema
from tallytree.privacy.accounting import NoiseKind, scale_for
from tallytree.privacy.budget import Budget, Number, as_decimal, exact
from tallytree.privacy.households.journal import Round, RoundJournal, Values
from tallytree.privacy.households.neighbours import HouseholdNeighbours, roles_by_attribute
from tallytree.privacy.households.reservation import Reservation, is_made
from tallytree.privacy.households.same_rows import digest_of_rows
from tallytree.privacy.ledger import Ledger, Receipt
from tallytree.privacy.neighbours import Sensitivity
from tallytree.privacy.noise.randomness import Randomness, cryptographic
from tallytree.tables.contingency import check_size, marginal_counts
from tallytree.tables.guard import from_outside
from tallytree.tables.households import Households
from tallytree.tables.sealed import Sealed, Unsharable, check_unaltered

GAUSSIAN: NoiseKind = "discrete_gaussian"
KEPT_CELLS = 1 << 25  # of true tables, kept behind the seal for the next round
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


class PrivateTables(Unsharable):
    """Private households, a neighbour relation and a budget in ρ: all that synthesis may ask of them.

    With a `ledger` the whole budget is reserved there at the start, once. With a `journal` (a folder) a killed run can
    be resumed; a journal of another data set, schema, relation, budget or reservation is refused, and so is one that
    was begun on other rows. With both, a copy of the journal cannot draw a round again. With `resume` a run goes on
    from its journal or is refused, and is not begun anew. `room` is how many bytes the journal may come to: they are
    taken on the disk before anything is reserved, and a round is not begun unless there is room for its result.
    Threads may share one object: rounds are drawn one at a time. A forked process is refused. `tallytree.lab`
    gives a `randomness` with a seed, for public data; otherwise it is cryptographic.
    """

    def __init__(
        self,
        households: Households,
        neighbours: HouseholdNeighbours,
        budget: Budget,
        *,
        ledger: Ledger | None = None,
        same_data: bool = False,
        changed_files: bool = False,
        journal: str | os.PathLike[str] | None = None,
        resume: bool = False,
        room: int = 0,
        randomness: Randomness | None = None,
    ) -> None:
        check_unaltered(households, Households)
        if budget.rho is None:
            raise BudgetError(
                "synthesis draws Gaussian noise, which no pure epsilon can pay for: delta is missing. Give a budget "
                "as epsilon=… with delta=… (far less than one over the number of persons), or as rho=…"
            )
        if neighbours.max_persons != households.schema.max_persons:
            raise SpecError(
                f"the schema has max_persons={households.schema.max_persons}, the neighbour relation "
                f"{neighbours.max_persons}; they must agree"
            )
        if households.truncated_by_rule and not self_contained(neighbours, households.schema):
            raise SpecError(
                "households were cut to max_persons so that those in a role stay, and an attribute tells roles: under "
                "one_person_attributes one person's attribute could change who else is kept. Raise max_persons, tell "
                "roles by position, or protect one_group"
            )
        self.schema, self.neighbours, self.budget = households.schema, neighbours, budget
        self.published_exactly: list[Marginal] = []
        self._total = budget.rho
        self._households = households
        self._randomness = cryptographic("tallytree") if randomness is None else randomness
        self._kept: dict[Marginal, Sealed[Integers]] = {}
        self._kept_cells = 0
        self._played = 0
        self._process, self._lock = os.getpid(), threading.RLock()
        self._reservation: Reservation | None = None
        self._journal = RoundJournal(journal, resume=resume)
        try:
            self._journal.keep_room(room)
            self.receipt = self._begin(ledger, {"same_data": same_data, "changed_files": changed_files})
        except BaseException:
            self._journal.close()
            raise

    # ---------------------------------------------------------------- what is public

    @property
    @from_outside("Counting the households")
    def number(self) -> int:
        """How many households there are, if the unit makes that public."""
        if not self.neighbours.number_is_public:
            raise SpecError(
                "the number of households is private under this unit; measure it: measure(Marginal('households'), rho)"
            )
        return self._households.codes.open_at_the_privacy_border().number

    @property
    def spent(self) -> Fraction:
        """What the rounds up to here have cost, in ρ, lost ones included."""
        return sum((past.cost for past in self.rounds), Fraction(0))

    @property
    def left(self) -> Fraction:
        """What is left for rounds to come, in ρ."""
        return self._total - self.spent

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The rounds up to here: requests, costs and results, for the privacy statement."""
        return tuple(self._journal.rounds[: self._played])

    @property
    def resuming(self) -> bool:
        """Are there rounds in the journal that were not asked for again yet?"""
        return self._played < len(self._journal.rounds)

    def sensitivity(self, marginal: Marginal, cells: int | None = None) -> Sensitivity:
        """How far one neighbour can move the whole table, or any `cells` of its cells."""
        check_size(marginal, self.schema)
        if cells is None:
            return self.neighbours.sensitivity(marginal, self.schema)
        return self.neighbours.cells_sensitivity(marginal, cells, self.schema)

    @from_outside("Counting a public table")
    def public_counts(self, marginal: Marginal) -> Integers:
        """The exact counts of a table that is the same for all neighbours, at no cost; any other is refused.

        Under `one_person_attributes` these are all tables of household attributes and sizes, which that unit does not
        protect; the privacy statement must list what was taken (`published_exactly`).
        """
        if self.sensitivity(marginal).l1 > 0:
            raise BudgetError(f"the table of {marginal.describe()} is private under this unit: measure it")
        self._require_own_process()
        with self._lock:
            if marginal not in self.published_exactly:
                self.published_exactly.append(marginal)
            return self._true(marginal).copy()

    # ---------------------------------------------------------------- measuring

    def measure(self, marginal: Marginal, rho: Number) -> NoisyTable | None:
        """The whole table with exact discrete Gaussian noise, σ² = L2²/(2ρ); None if the round was lost.

        A table that cannot differ between neighbours is refused: `public_counts` gives it, exactly.
        """
        return self._measured(marginal, None, rho)

    def measure_cells(self, marginal: Marginal, cells: Sequence[int], rho: Number) -> NoisyTable | None:
        """Some cells of a table, by their places in the flat table; noise is scaled to what that many can change by."""
        places = tuple(int(cell) for cell in cells)
        marginal.check(self.schema)
        if not places or len(set(places)) < len(places) or min(places) < 0:
            raise SpecError("name at least one cell, and each once")
        if max(places) >= marginal.cells(self.schema):
            raise SpecError(
                f"the table of {marginal.describe()} has {marginal.cells(self.schema):,} cells, numbered from 0; "
                f"cell {max(places)} is not there"
            )
        return self._measured(marginal, places, rho)

    def _measured(self, marginal: Marginal, cells: tuple[int, ...] | None, rho: Number) -> NoisyTable | None:
        from tallytree.privacy.noise.draws import gaussian_variance

        cost = _positive(rho, "rho")
        sensitivity = self.sensitivity(marginal, None if cells is None else len(cells))
        if sensitivity.l1 == 0:
            raise BudgetError(
                f"the table of {marginal.describe()} cannot differ between neighbours: it is public under this unit "
                "and needs no measurement; public_counts gives it"
            )
        scale = self._randomness.usable(GAUSSIAN, scale_for(GAUSSIAN, sensitivity, cost))
        shape = marginal.shape(self.schema) if cells is None else (len(cells),)
        number = int(np.prod(shape, dtype=np.int64))

        def draw() -> Values:
            noisy = self._randomness.draw(GAUSSIAN, scale, number)
            true = self._true(marginal).ravel()
            noisy += true if cells is None else true[list(cells)]
            return {"values": noisy.tolist()}

        request = {"kind": "measure", "table": marginal.to_json(), "cells": None if cells is None else list(cells)}
        result = self._round(request, cost, draw, values=number)
        if result is None:
            return None
        values = np.array(result.get("values"), dtype=np.int64)
        if values.shape != (number,):
            raise ReleaseError("the journal's values do not fit the table that they were recorded for")
        variance = gaussian_variance(scale)
        return NoisyTable(marginal, values.reshape(shape), variance, scale, cost, sensitivity, cells)

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
        """The place of a table that the whole-number estimates miss by much, in L1, minus a public penalty.

        Each score is divided by its own table's sensitivity: between neighbours Σ|count − estimate| changes by at most
        the L1 by which the counts do. Costs ε²/8 in ρ. None if the round was lost.
        """
        bounds = [self.sensitivity(candidate).l1 for candidate in candidates]
        whole = self._checked(candidates, estimates, bounds)
        fines = None if penalties is None else np.array(list(penalties), dtype=np.int64)

        def scores() -> Integers:
            return np.array(
                [
                    int(np.abs(self._true(candidate) - estimate).sum())
                    for candidate, estimate in zip(candidates, whole, strict=True)
                ],
                dtype=np.int64,
            )

        return self._choice("select", candidates, epsilon, scores, np.array(bounds, np.int64), fines, weights)

    def select_cell(
        self, candidates: Sequence[Marginal], estimates: Sequence[NDArray[Any]], epsilon: Number
    ) -> tuple[int, int] | None:
        """The place of a table and of a cell in it (flat) whose count the estimate misses by much.

        A cell's score |count − estimate| changes between neighbours by at most what the cell does. Costs ε²/8 in ρ.
        None if the round was lost.
        """
        bounds = [self.sensitivity(candidate, 1).l1 for candidate in candidates]
        whole = self._checked(candidates, estimates, bounds)
        sizes = [estimate.size for estimate in whole]

        def scores() -> Integers:
            return np.concatenate(
                [
                    np.abs(self._true(candidate) - estimate).ravel()
                    for candidate, estimate in zip(candidates, whole, strict=True)
                ]
            )

        place = self._choice("select_cell", candidates, epsilon, scores, np.repeat(bounds, sizes), None, None)
        if place is None:
            return None
        ends = np.cumsum(sizes)
        table = int(np.searchsorted(ends, place, side="right"))
        return table, place - int(ends[table]) + sizes[table]

    def _choice(
        self,
        kind: str,
        tables: Sequence[Marginal],
        epsilon: Number,
        scores: Callable[[], Integers],
        bounds: Integers,
        penalties: Integers | None,
        weights: Sequence[Fraction] | None,
    ) -> int | None:
        from tallytree.privacy.households.selection import candidates, choose, cost_of_selection

        factor = _positive(epsilon, "epsilon")
        # What is public is checked with scores of zero, before anything is spent.
        candidates(np.zeros(len(bounds), np.int64), bounds, factor, penalties, weights)

        def draw() -> Values:
            offered = candidates(scores(), bounds, factor, penalties, weights)
            return {"place": choose(offered, self._randomness.words())}

        request = {"kind": kind, "candidates": len(tables), "digest": _digest(tables)}
        result = self._round(request, cost_of_selection(factor), draw)
        if result is None:
            return None
        place = result.get("place")
        if not isinstance(place, int) or not 0 <= place < len(bounds):
            raise ReleaseError("the journal's choice is not among the candidates that it was recorded for")
        return place

    def _checked(
        self, candidates: Sequence[Marginal], estimates: Sequence[NDArray[Any]], bounds: Sequence[int]
    ) -> list[Integers]:
        """The public estimates as whole numbers in the tables' shapes."""
        if not candidates or len(candidates) != len(estimates):
            raise SpecError("selection needs at least one table, and an estimate for each")
        whole = []
        for candidate, given, bound in zip(candidates, estimates, bounds, strict=True):
            estimate = np.asarray(given)
            if bound == 0:
                raise SpecError(
                    f"the table of {candidate.describe()} cannot differ between neighbours: it is public under this "
                    "unit, so leave it out of the candidates"
                )
            if estimate.dtype.kind not in "ui" or estimate.shape != candidate.shape(self.schema):
                raise SpecError(
                    f"the estimate of {candidate.describe()} must be whole numbers (round them) of shape "
                    f"{candidate.shape(self.schema)}"
                )
            if float(np.abs(estimate.astype(np.float64)).sum()) > LARGEST_SUM:
                raise SpecError(f"the estimate of {candidate.describe()} is out of range: its sizes sum to over 2^51")
            whole.append(estimate.astype(np.int64))
        return whole

    # ---------------------------------------------------------------- rounds

    def _round(self, request: Values, cost: Fraction, draw: Callable[[], Values], *, values: int = 1) -> Values | None:
        """The next round's result: from the journal if it is there, otherwise reserved, drawn and recorded.

        One round at a time, whichever threads ask, so that each sees what those before it have spent.
        """
        self._require_own_process()
        with self._lock:
            if self.resuming:
                past = self._journal.rounds[self._played]
                if past.request != request or past.cost != cost:
                    raise ReleaseError(
                        f"the journal's round {self._played + 1} was another one ({past.request['kind']}, "
                        f"ρ = {as_decimal(past.cost)}) than is asked for now ({request['kind']}, "
                        f"ρ = {as_decimal(cost)}): resume with the same program and options, or start anew in another "
                        "folder with its own budget"
                    )
                self._played += 1
                return past.result
            if cost > self.left:
                raise BudgetError(
                    f"this round would cost ρ = {as_decimal(cost)}, and ρ = {as_decimal(self.left, up=False)} is left "
                    f"of ρ = {as_decimal(self._total, up=False)}. Nothing was spent on it."
                )
            self._journal.reserve(request, cost, values)
            self._played += 1
            if self._reservation is not None:
                self._reservation.begin(self._played, self._journal.rounds[-1])
            result = from_outside("Drawing a round")(draw)()
            self._journal.record(result)
            return result

    def _require_own_process(self) -> None:
        """A forked process has a copy of what is left to spend, so only the one that opened it may go on."""
        if os.getpid() != self._process:
            raise BudgetError(
                "private tables belong to the process that opened them, and this is another one (a fork of it): the "
                "budget would be spent in both. Ask in the first process; nothing was spent."
            )

    def _true(self, marginal: Marginal) -> Integers:
        """The private counts of a table: for a sum with noise, a score, or `public_counts`, which checks them first."""
        if marginal in self._kept:
            return self._kept[marginal].open_at_the_privacy_border()
        counts = marginal_counts(self._households.codes.open_at_the_privacy_border(), marginal)
        if self._kept_cells + counts.size <= KEPT_CELLS:
            self._kept[marginal] = Sealed(counts)
            self._kept_cells += counts.size
        return counts

    def _begin(self, ledger: Ledger | None, flags: Mapping[str, Any]) -> Receipt | None:
        """Begin the journal and reserve the whole budget, or check that the journal there is this run's."""
        households, past = self._households, self._journal.facts
        fresh = past is None
        if past is not None and ledger is not None and self._journal.receipt is not None:
            Reservation(ledger, past["name"] or "", past["token"], self._journal).check()
        facts: Values = {
            "name": households.name,
            "schema": self.schema.to_json(),
            "neighbours": self.neighbours.to_json(),
            "budget": self.budget.to_json(),
            "households": self.number if self.neighbours.number_is_public else None,
            "truncation": households.truncation(),
            "noise": self._randomness.name,
            "ledger": ledger is not None,
        }
        wanted = self.budget, self.neighbours, None if ledger is None else households.fingerprint()
        if past is None:
            if ledger is not None:
                ledger.check(households.name, *wanted, **flags)
            key = secrets.token_hex(32)
            past = {**facts, "token": secrets.token_hex(16), "key": key, "rows": self._digest_of_rows(key)}
            self._journal.begin(past)
        elif past.get("ledger") != facts["ledger"]:
            which = "with a ledger" if past.get("ledger") else "without a ledger"
            raise ReleaseError(f"the journal belongs to a run {which}; resume it in the same way")
        elif other := [name for name in facts if past.get(name) != facts[name]]:
            raise ReleaseError(
                f"the journal belongs to another run: its {', '.join(other)} differ. Use another folder, which needs "
                "a budget of its own, or resume with the same data and options."
            )
        elif past["rows"] != self._digest_of_rows(past["key"]):
            raise ReleaseError(
                "the private rows are not those that this run began with, though they have the same name. Resume with "
                "the same rows, or start anew in another folder, which needs a budget of its own."
            )
        if ledger is None:
            return None
        # The token is on disk: killed from here on, the run finds its reservation again instead of making another.
        try:
            receipt = ledger.reserve(households.name, *wanted, token=past["token"], **flags)
        except TallytreeError:
            if fresh and not is_made(ledger, households.name, past["token"]):
                self._journal.forget()
            raise
        if self._journal.receipt is None:
            self._journal.keep_receipt(receipt.number)
        self._reservation = Reservation(ledger, households.name or "", past["token"], self._journal)
        self._reservation.check()
        self._reservation.catch_up()
        return receipt

    def _digest_of_rows(self, key: str) -> str | None:
        """Tells other private rows from these; a run that cannot be resumed needs none."""
        if not self._journal.on_disk:
            return None
        codes = self._households.codes.open_at_the_privacy_border()
        return digest_of_rows(codes, bytes.fromhex(key))

    def close(self) -> None:
        """End the run here; the journal can then be resumed by another."""
        self._journal.close()

    def __repr__(self) -> str:
        return (
            f"PrivateTables({self.neighbours.unit.kind}, {len(self.rounds)} rounds, "
            f"ρ = {as_decimal(self.spent)} spent of {as_decimal(self._total, up=False)})"
        )


def self_contained(neighbours: HouseholdNeighbours, schema: Schema) -> bool:
    """Does who is kept of a household that is too large not depend on what the unit protects?"""
    return neighbours.unit.kind != "one_person_attributes" or not roles_by_attribute(schema)


def _positive(value: Number, what: str) -> Fraction:
    number = exact(value, what)
    if number <= 0:
        raise BudgetError(f"{what} must be positive, not {value}")
    return number


def _digest(tables: Sequence[Marginal]) -> str:
    """Distinguishes one list of public candidates from another."""
    text = json.dumps([table.to_json() for table in tables], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
