"""What a method of synthesis is, and one run of it: rounds with exact shares of the budget, and a record of each.

A method asks private tables for noisy counts until its budget is used up and fits a model to them. Any can replace any.
A round that was lost in a kill is paid for and answers None; the loops go on with the rest. The last round takes
the whole rest, so that a run spends its budget to the last digit. The table of methods is in `marginals`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from fractions import Fraction
from importlib.util import find_spec
from math import isqrt
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.core.progress import Progress, Stage, silent
from tallytree.domain.schema import Marginal, Schema
from tallytree.synthesis.model import Measured, MeasuredCell, Model
from tallytree.synthesis.workload import Workload

if TYPE_CHECKING:
    from tallytree.privacy.private_tables import PrivateTables

DIGITS = 40  # binary, that a share of the budget has; what is cut off is left for later rounds
LEAST_VARIANCE = 0.01  # that a fit gets to see: with a huge budget there is no noise, and no weight may be infinite
NUMBER = Marginal("households")
PERSONS = Marginal("persons")


@dataclass(frozen=True)
class RoundRecord:
    """One thing that was asked of the private tables, in public values.

    `kind` is "public" (published exactly, at no cost), "measure" or "select"; `lost` says that it was paid for and its
    result was cut off by a kill. `noise` is the standard deviation of the noise on one count, where there is noise.
    """

    kind: str
    words: str
    rho: Fraction
    lost: bool = False
    noise: float | None = None


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a method gives back: a model of the private households, and everything about them that it was made from.

    `number` is the number of households: exact if that is public under the unit, otherwise measured with noise and
    rounded, and at least 1. `others` has further models by name where a method makes more than one. All of it is
    public.
    """

    model: Model
    number: int
    measured: tuple[Measured | MeasuredCell, ...]
    rounds: tuple[RoundRecord, ...]
    others: Mapping[str, Model] = field(default_factory=dict)

    __repr__ = briefly


class MethodSession:
    """One run of a method: the tables it asks and for which workload. `record` has what was asked, in public values."""

    def __init__(
        self,
        tables: PrivateTables,
        workload: Workload,
        progress: Progress = silent,
    ) -> None:
        self.tables, self.workload, self._progress = tables, workload, progress
        self.total = tables.left
        self.record: list[RoundRecord] = []

    def private_tables(self) -> list[Marginal]:
        """Return the workload's tables that are private under the unit: the candidates of a selection."""
        candidates = [marginal for marginal in self.workload if not self.is_public(marginal)]
        if not candidates:
            raise SpecError("every table of the workload is public under this unit: there is nothing to protect")
        return candidates

    @property
    def left(self) -> Fraction:
        """Return the rest of the budget, in ρ."""
        return self.tables.left

    def tell(self, done: int, of: int, words: str, *, unit: str = "", doing: str = "fitting") -> None:
        """Show progress: rounds, or other pieces of work."""
        self._progress(Stage(doing, done, of, words, unit, spent=self.total - self.left, budget=self.total))

    def is_public(self, marginal: Marginal) -> bool:
        """Is the table the same for all neighbours?"""
        return self.tables.sensitivity(marginal).l1 == 0

    def public(self, marginal: Marginal) -> Integers:
        """Return a table that is public under the unit, exactly."""
        counts = self.tables.public_counts(marginal)
        self.record.append(RoundRecord("public", marginal.describe(), Fraction(0)))
        return counts

    def measure(self, marginal: Marginal, rho: Fraction) -> Measured | None:
        """Return a whole table with noise."""
        noisy = self.tables.measure(marginal, rho)
        if noisy is None:
            self._lost("measure", marginal.describe(), rho)
            return None
        self.record.append(RoundRecord("measure", marginal.describe(), rho, noise=noisy.variance**0.5))
        return Measured(marginal, noisy.values.astype(np.float64), np.array(max(noisy.variance, LEAST_VARIANCE)))

    def measure_cell(self, marginal: Marginal, cell: int, rho: Fraction) -> MeasuredCell | None:
        """Return one cell, by its place in the flat table, with noise."""
        schema = self.tables.schema
        where = tuple(int(index) for index in np.unravel_index(cell, marginal.shape(schema)))
        words = f"{marginal.describe()}, cell {', '.join(map(str, where))}"
        noisy = self.tables.measure(marginal, rho, [cell])
        if noisy is None:
            self._lost("measure", words, rho)
            return None
        self.record.append(RoundRecord("measure", words, rho, noise=noisy.variance**0.5))
        return MeasuredCell(marginal, where, float(noisy.values[0]), max(noisy.variance, LEAST_VARIANCE))

    def select(
        self,
        candidates: Sequence[Marginal],
        estimates: Sequence[Integers],
        epsilon: Fraction,
        penalties: Sequence[int],
        weights: Sequence[Fraction],
    ) -> Marginal | None:
        """Return a table that the estimates miss by more than its penalty."""
        rho = epsilon**2 / 8
        place = self.tables.select(candidates, estimates, epsilon, penalties=penalties, weights=weights)
        if place is None:
            self._lost("select", f"one of {len(candidates):,} tables", rho)
            return None
        self.record.append(RoundRecord("select", candidates[place].describe(), rho))
        return candidates[place]

    def select_cell(
        self, candidates: Sequence[Marginal], estimates: Sequence[Integers], epsilon: Fraction
    ) -> tuple[Marginal, int] | None:
        """Return a cell that the estimates miss by much: its table, and its place in the flat table."""
        rho = epsilon**2 / 8
        found = self.tables.select_cell(candidates, estimates, epsilon)
        if found is None:
            self._lost("select", f"one cell of {len(candidates):,} tables", rho)
            return None
        marginal = candidates[found[0]]
        self.record.append(RoundRecord("select", f"{marginal.describe()}, cell {found[1]}", rho))
        return marginal, found[1]

    def _lost(self, kind: str, words: str, rho: Fraction) -> None:
        self.record.append(RoundRecord(kind, words, rho, lost=True))

    def number(self, rho: Fraction) -> int:
        """Return the number of households: exact where it is public, otherwise measured."""
        if self.tables.neighbours.number_is_public:
            return max(1, self.tables.number)
        return self._total_of(NUMBER, rho)

    def persons(self, rho: Fraction) -> int:
        """Return the number of persons: exact where it is public, otherwise measured."""
        if self.is_public(PERSONS):
            return max(1, int(self.public(PERSONS).sum()))
        return self._total_of(PERSONS, rho)

    def _total_of(self, marginal: Marginal, rho: Fraction) -> int:
        """Return a total with noise. It is necessary, so a lost one is measured again from the rest of the budget."""
        while True:
            noisy = self.measure(marginal, rho)
            if noisy is not None:
                return max(1, int(noisy.values.sum()))


def share(rho: Fraction, part: Fraction | float) -> Fraction:
    """About `part` of ρ, at most that and never zero, with few binary digits: sums of shares then stay short."""
    wanted = rho * Fraction(part)
    exponent = DIGITS - (wanted.numerator.bit_length() - wanted.denominator.bit_length())
    unit = Fraction(1, 1 << exponent) if exponent >= 0 else Fraction(1 << -exponent)
    return int(wanted / unit) * unit


def epsilon_for(rho: Fraction) -> Fraction:
    """Return the ε of a selection that costs ε²/8, at most ρ and nearly so, with few binary digits."""
    bits = DIGITS - (rho.numerator.bit_length() - rho.denominator.bit_length()) // 2
    return Fraction(isqrt(int(8 * rho * (1 << 2 * bits))), 1 << bits)


def round_to_counts(answers: Floats, number: float) -> Integers:
    """Return a table per household as whole counts."""
    counts: Integers = np.rint(answers * number).astype(np.int64)
    return counts


# -------------------------------------------------------------------- methods


def one_blas_thread() -> AbstractContextManager[Any]:
    """Use one thread for matrix products, and as many as before afterwards: those of a fit are small, and on a busy
    machine threads that wait for each other take several times as long.
    """
    return threadpool_limits(limits=1, user_api="blas")  # type: ignore[no-any-return]


class Options(Protocol):
    """The options of a method: a frozen dataclass that knows how to run."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def check(self, schema: Schema) -> None:
        """Refuse a schema that the method cannot work with."""

    def run(self, session: MethodSession) -> Fitted:
        """Spend the whole budget, and fit a model."""
        ...


@dataclass(frozen=True)
class Method:
    """A row of the table of methods: its options know which schemas they can be used with, and how to run."""

    name: str
    paper: str
    measures: str
    use: str
    kind: type[Options]
    needs: tuple[str, ...] = ()  # modules of the extra that has the method's name

    def options(self, given: Mapping[str, Any] | None = None) -> Options:
        """Return the method's options with the given ones set; an unknown name or a bad value is a `SpecError`."""
        known = [field.name for field in fields(self.kind)]
        for name in given or {}:
            if name not in known:
                near = get_close_matches(str(name), known, n=1)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                raise SpecError(f"{self.name} has no option {name!r}{meant} It has {', '.join(known)}")
        return self.kind(**(given or {}))

    def prepared(self, schema: Schema, given: Mapping[str, Any] | None) -> Options:
        """Return the options, if the method can be run here and with this schema; nothing private is needed to tell."""
        if missing := [module for module in self.needs if find_spec(module) is None]:
            needed = " and ".join(missing)
            raise SpecError(f"{self.name} needs {needed}: pip install 'tallytree[{self.name}]'")
        options = self.options(given)
        options.check(schema)
        return options

    def run(
        self,
        tables: PrivateTables,
        workload: Workload,
        *,
        options: Options | Mapping[str, Any] | None = None,
        progress: Progress = silent,
    ) -> Fitted:
        """Spend the whole budget of `tables` and fit a model for the workload.

        `options` is what `self.options` gave, a mapping for it, or None. `progress` is called after every round. A
        killed run whose tables have a journal is resumed by running it again: rounds that were drawn are repeated from
        the journal, and the models are fitted again.
        """
        if options is None or isinstance(options, Mapping):
            options = self.options(options)
        if not isinstance(options, self.kind):
            raise SpecError(f"these are not options of {self.name}")
        if workload.schema != tables.schema:
            raise SpecError("the workload is for another schema than the private tables")
        if tables.rounds:
            raise SpecError("these private tables were asked before; a method needs their whole budget to itself")
        with one_blas_thread():
            return options.run(MethodSession(tables, workload, progress))
