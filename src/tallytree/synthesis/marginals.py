"""`tallytree-marginals`, the default: whole tables are measured, and a mixture of products is fitted to all of them.

Three stages share the budget.

1. First: the number of persons of households, and every attribute.
2. Sweep: all tables of the workload (or smaller ones within them) for which the noise of a fair share is a small part
   of the table. Which these are depends on public numbers and first answers only. The fit pools tables that overlap,
   so that on small domains, or with a large budget, nothing is better than to have measured everything once. With less,
   persons tables are left out where households tables of the same attributes are less sensitive: those say most of it.
3. Rounds: a table is chosen by the exponential mechanism, measured, and the mixture is fitted again from where it was.
   A score is by how much the model misses a table in all, minus what noise alone would add if it were measured now: so
   large tables are only chosen once they are worth it. When a round has moved the model by less than its noise, later
   rounds get more budget (the annealing of AIM: McKenna, Mullins, Sheldon and Miklau, 2022).

A whole table costs no more than one cell of it does, up to the factors of the sensitivities: that is why tables are
measured here and not HQR's single queries. Tables that are public under the unit are taken exactly, at no cost.

What no table says a mixture makes up, each start in its own way. So where there are roles, two mixtures are fitted to
the same measurements from two starts, and the model is their mean: it costs time and no privacy.

`METHODS` has the methods by name: what each measures, when to use it, and how to run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import did_you_mean
from tallytree.core.registry import Registry
from tallytree.domain.schema import Marginal, Schema
from tallytree.synthesis.fitting import FitOutcome, Stop, fit
from tallytree.synthesis.grouping import group_values
from tallytree.synthesis.methods import Fitted, Method, MethodSession, epsilon_for, round_to_counts, share
from tallytree.synthesis.mixture import Mixture, joined
from tallytree.synthesis.model import Measured
from tallytree.synthesis.roles import cleared, slots, variants, zero_tables
from tallytree.synthesis.table_selection import (
    MEAN_SIZE,
    SIZES,
    Shares,
    TableSelection,
    first_tables,
    parts_of,
    parts_of_the_budget,
)
from tallytree.synthesis.workload import Workload

DEFAULT = "tallytree-marginals"
CLOSE = 1.3  # times the misfit that noise explains: a second mixture that is further off is not taken
PUBLIC_VARIANCE = 0.25  # a public table weighs in the fit as if it had this part of the least noise's variance
PART_OF_STEPS = 5  # a round's fit usually stops after a fifth to a third of its steps
ZEROS_APART = 0.004  # the most that a cell of zeros is taken to be apart from zero, as a part of all households


@dataclass(frozen=True)
class MarginalsOptions:
    """How to spend and how to fit.

    `first_share` and `sweep_share` are the parts of the budget for the first two stages. A table is swept if its noise
    is expected to sum to at most `worth_sweeping` of all that it counts. A round costs one of `rounds` equal parts of
    the whole budget at first, and `select_share` of it selects; `sharpen` is by how much that grows when a round
    brought nothing. The start has `components` that differ by about `spread`. A fit takes `steps`, or `last_steps` at
    the end of a stage, at `rate`, and stops where noise explains the remaining distance: at `noise_explains` (see
    `fitting.fit`), raised by `slack` of its standard deviations. `empty` allows households without persons; `seed_text`
    names the start. `role_share`, `structure_share` and `asked_share` are the parts for one-way tables by role, for
    structural ones and for those that the workload wants measured. A table by role gets no more once its noise sums to
    `role_noise` of the households. `zero_weight` is that of cells which rules keep empty, as a part of the best
    table's. The model is the mean of `mixtures`; 0 stands for two where there are roles and for one elsewhere.
    """

    first_share: float = 0.1
    sweep_share: float = 0.85
    worth_sweeping: float = 0.25
    rounds: int = 16
    select_share: float = 0.1
    sharpen: float = 2.0
    components: int = 200
    spread: float = 0.2
    steps: int = 100
    last_steps: int = 300
    rate: float = 0.03
    noise_explains: float = 1.0
    slack: float = 1.0
    empty: bool = True
    seed_text: str = ""
    role_share: float = 0.1
    role_noise: float = 0.002
    structure_share: float = 0.1
    asked_share: float = 0.25
    zero_weight: float = 0.1
    mixtures: int = 0

    def __post_init__(self) -> None:
        shares = (self.first_share, self.select_share, self.first_share + self.sweep_share)
        if not all(0 < part < 1 for part in shares) or self.sweep_share < 0:
            raise SpecError("first_share and select_share must lie between 0 and 1, and leave something for the rest")
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 1:
            raise SpecError(f"rounds must be a whole number of at least 1, not {self.rounds!r}")
        if self.components < 1 or self.steps < 1 or self.last_steps < 1 or self.sharpen < 1:
            raise SpecError("components, steps, last_steps and sharpen must be at least 1")
        if self.rate <= 0 or self.spread <= 0 or self.worth_sweeping < 0 or self.noise_explains < 0:
            raise SpecError("rate and spread must be above 0, worth_sweeping and noise_explains at least 0")
        if not all(0 < part < 0.5 for part in (self.role_share, self.structure_share, self.asked_share)):
            raise SpecError("role_share, structure_share and asked_share must lie between 0 and 0.5")
        if self.role_noise <= 0 or self.zero_weight < 0:
            raise SpecError("role_noise must be above 0, and zero_weight at least 0")
        if isinstance(self.mixtures, bool) or not isinstance(self.mixtures, int) or self.mixtures < 0:
            raise SpecError(f"mixtures must be a whole number of at least 0, not {self.mixtures!r}")

    def check(self, schema: Schema) -> None:
        """Refuse fewer components than there are kinds of household."""
        if schema.structure is not None:
            slots(schema, self.components_for(schema))

    def components_for(self, schema: Schema) -> int:
        """Return the number of components: half as many again with roles, and as many for each kind of household by
        roles.
        """
        if not has_roles(schema):
            return self.components
        kinds, wanted = len(variants(schema)), self.components * 3 // 2
        return -(-wanted // kinds) * kinds if wanted >= kinds else wanted

    def last_steps_for(self, schema: Schema) -> int:
        """Half as many steps again where there are roles: there is more to fit."""
        return self.last_steps * 3 // 2 if has_roles(schema) else self.last_steps

    def mixtures_for(self, schema: Schema) -> int:
        """Return how many mixtures are fitted."""
        return self.mixtures or (2 if has_roles(schema) else 1)

    @property
    def shares(self) -> Shares:
        """Return the parts of the budget for kinds of tables."""
        return Shares(self.first_share, self.sweep_share, self.role_share, self.structure_share, self.asked_share)

    def run(self, session: MethodSession) -> Fitted:
        """Return all stages."""
        return _Run(session, self).result()


def has_roles(schema: Schema) -> bool:
    """Are there roles of one person?"""
    return schema.structure is not None and bool(schema.structure.single)


class _Run:
    """One run: what was asked so far, the models, and the stages that go on from there."""

    def __init__(self, session: MethodSession, options: MarginalsOptions) -> None:
        self.session, self.options, self.schema = session, options, session.tables.schema
        wanted = session.private_tables()
        self.public = [marginal for marginal in session.workload if session.is_public(marginal)]
        smaller = [part for part in parts_of(wanted) if not session.is_public(part)]
        self.candidates = Workload(self.schema, tuple(dict.fromkeys([*wanted, *smaller])))
        self.parts = parts_of_the_budget(self.schema, session.workload, session.tables.neighbours, options.shares)
        self.model = self._start()
        self.last_steps = options.last_steps_for(self.schema)
        self.number, self.others = 0, 2 * (options.mixtures_for(self.schema) - 1)  # two fits each
        self.first = 0  # the number of tables in the first fit
        self.steps: list[int] = []  # that each fit took
        self.done, self.words = 0, ""  # the work of all fits after the first: their steps, each times its tables
        self.measured: list[Measured] = []
        self.exact: list[tuple[Marginal, Integers]] = []

    def result(self) -> Fitted:
        self._first()
        self._sweep()
        self._rounds()
        self._other_mixtures()
        self.session.tell(self.done, self.done, self.words, unit="%")
        return Fitted(self.model, self.number, tuple(self.measured), tuple(self.session.record))

    def _start(self, number: int = 0) -> Mixture:
        options = self.options
        return Mixture.start(
            self.schema,
            components=options.components_for(self.schema),
            spread=options.spread,
            seed_text=f"{options.seed_text} {number}" if number else options.seed_text,
            empty=options.empty,
        )

    # ---------------------------------------------------------------- the three stages

    def _first(self) -> None:
        """Measure the number of households, their sizes and all attributes, with equal budgets."""
        session, options = self.session, self.options
        private = [marginal for marginal in first_tables(self.schema) if not session.is_public(marginal)]
        each = share(session.total, self.parts.first / (len(private) + 1))
        self.number = session.number(each)
        for marginal in dict.fromkeys([*first_tables(self.schema), *self.public]):
            if session.is_public(marginal):
                self.exact.append((marginal, session.public(marginal)))
            else:
                self._measure(marginal, each)
        selection, total = self._selection(), float(session.total)
        self.parts = self.parts.limited(lambda table: (selection.noise(table) / options.role_noise) ** 2 / total)
        for marginal, part in self.parts.required.items():
            rho = share(session.total, part)
            self._measure(self._grouped(marginal, rho) if marginal in self.parts.structural else marginal, rho)
        self.first = len(self.measured)
        self._advance([*self.measured], self.last_steps, "sizes and attributes")

    def _sweep(self) -> None:
        """Measure the tables that are worth it, with equal budgets."""
        budget = share(self.session.total, self.parts.sweep or Fraction(1, 2))
        chosen = self._worth_sweeping(float(budget)) if self.parts.sweep else []
        if chosen:
            before = len(self.measured)
            each = share(budget, Fraction(1, len(chosen)))
            for marginal in chosen:
                self._measure(marginal, each)
            self._advance(self.measured[before:], self.last_steps, f"{len(chosen)} tables at once")

    def _grouped(self, marginal: Marginal, rho: Fraction) -> Marginal:
        """Return the table in as many groups as noise at the cost ρ allows, by what was measured before."""

        def deviation(table: Marginal) -> float:
            return sqrt(self.session.tables.sensitivity(table).l2_squared / (2 * float(rho)))

        one_way = {table.marginal: table.values for table in self.measured}
        one_way.update((table, counts.astype(np.float64)) for table, counts in self.exact)
        return group_values(self.schema, marginal, deviation, one_way)

    def _selection(self) -> TableSelection:
        """Return what is known now, for choosing tables."""
        return TableSelection(
            self.schema,
            self.session.tables.sensitivity,
            self.number,
            self._persons_per_household(),
            self.options.worth_sweeping,
            frozenset(table.marginal for table in self.measured),
        )

    def _worth_sweeping(self, budget: float) -> list[Marginal]:
        return self._selection().tables(self.candidates, budget)

    def _persons_per_household(self) -> float:
        """About how many persons a household has, by the table of sizes; half the most if that table was lost."""
        known = [*((table.marginal, table.values) for table in self.measured), *self.exact]
        for counts in (np.maximum(counts, 0.0) for marginal, counts in known if marginal == SIZES):
            if counts.sum() > 0:
                return float(counts @ np.arange(len(counts)) / counts.sum())
        return self.schema.max_persons / 2

    def _rounds(self) -> None:
        """Spend the rest of the budget in rounds of one table each."""
        session, options = self.session, self.options
        rho = share(session.total, Fraction(1, options.rounds))
        while session.left > 0:
            last = session.left < 2 * rho
            table = self._round(session.left if last else rho)
            if table is not None:
                steps = self.last_steps if session.left == 0 else options.steps
                if self._advance([table], steps, table.marginal.describe()):
                    rho = share(rho, options.sharpen)

    def _round(self, rho: Fraction) -> Measured | None:
        """Select a table and measure it; None if either was lost."""
        epsilon = epsilon_for(rho * Fraction(self.options.select_share))
        rest = rho - epsilon**2 / 8
        tables = self.session.tables
        estimates = [round_to_counts(table, self.number) for table in self.model.answers_all(self.candidates)]
        bounds = [tables.sensitivity(marginal) for marginal in self.candidates]
        penalties = [
            int(MEAN_SIZE * sqrt(bound.l2_squared / (2 * float(rest))) * marginal.cells(self.schema))
            for marginal, bound in zip(self.candidates, bounds, strict=True)
        ]
        chosen = self.session.select(
            self.candidates.marginals, estimates, epsilon, penalties, [Fraction(1)] * len(self.candidates)
        )
        return None if chosen is None else self._measure(chosen, rest)

    def _measure(self, marginal: Marginal, rho: Fraction) -> Measured | None:
        table = self.session.measure(marginal, rho)
        if table is not None:
            self.measured.append(table)
        return table

    def _tell(self, tables: int, taken: int, likely: int) -> None:
        """Show progress of a fit that has taken some steps of those that it is likely to take.

        How much work all fits are is foreseen from the second on. The first one is short.
        """
        if not self.steps:
            self.session.tell(0, 0, self.words, doing="fitting the first tables")
            return
        options, done, tables_then = self.options, self.done + tables * taken, len(self.measured)
        of = done + tables * (likely - taken)
        if left := self.session.left:
            rounds = max(int(left / share(self.session.total, Fraction(1, options.rounds))), 1)
            steps = (options.steps * (rounds - 1) + self.last_steps) // PART_OF_STEPS
            of, tables_then = of + steps * (tables_then + rounds // 2), tables_then + rounds
        whole = tables_then * max([*self.steps[1:], likely])
        of += self.others // 2 * (self.first * self.steps[0] + whole) + self.others % 2 * whole
        self.session.tell(done, of, self.words, unit="%")

    # ---------------------------------------------------------------- fitting

    def _advance(self, newest: Sequence[Measured], steps: int, words: str) -> bool:
        """Fit to everything so far. Did the newest table, if it is one, move the model by less than its own noise?"""
        before, self.words = self.model, words
        self.model, _ = self._fitted(before, self.measured, steps)
        if len(newest) != 1:
            return False
        table = newest[0]
        change = self.number * np.abs(self.model.answers(table.marginal) - before.answers(table.marginal)).sum()
        return bool(change <= MEAN_SIZE * np.sqrt(table.variance).sum())

    def _other_mixtures(self) -> None:
        """Mixtures from other starts, fitted to the first tables and then to all, and joined to the one before if they
        came close.
        """
        stages, self.words = [self.measured[: self.first], self.measured], "another mixture"
        for number in range(1, self.others // 2 + 1):
            other, close = self._start(number), False
            for measured in stages:
                self.others -= 1
                other, close = self._fitted(other, measured, self.last_steps)
            kept = self.model.components // other.components
            if close:
                self.model = joined(self.model, other, kept / (kept + 1))

    def _fitted(self, model: Mixture, measured: Sequence[Measured], steps: int) -> tuple[Mixture, bool]:
        """Return the model fitted to these tables, to public ones and to cells that rules keep empty, and whether it
        came close.
        """
        least = least_variance(measured)
        known = KnownTables(tuple(measured), tuple(self.exact), self.number, least, not self.parts.structural)
        if not measured and not self.exact:
            return model, False
        found, close = fit_to_tables(
            model,
            known,
            self.options,
            steps,
            tell=lambda taken, likely: self._tell(len(measured) + len(self.exact), taken, likely),
        )
        self.done += (len(measured) + len(self.exact)) * found.steps if self.steps else 0
        self.steps.append(found.steps)
        return found.model, close


# -------------------------------------------------------------------- one fit


class KnownTables(NamedTuple):
    """What a fit knows: noisy tables, exact ones, the number of households, the least variance of noise, and whether to
    wait for late tables.
    """

    measured: tuple[Measured, ...]
    exact: tuple[tuple[Marginal, Integers], ...]
    number: int
    least_variance: float
    wait: bool

    def as_measured(self, exact: Sequence[tuple[Marginal, NDArray[Any]]]) -> list[Measured]:
        """Public tables as if measured, with little noise: more weight would only slow the fit down."""
        variance = np.array(PUBLIC_VARIANCE * self.least_variance)
        return [Measured(marginal, counts.astype(np.float64), variance) for marginal, counts in exact]


def least_variance(measured: Iterable[Measured]) -> float:
    """Return the least noise of measured tables."""
    return min((float(table.variance.min()) for table in measured), default=1.0)


def fit_to_tables(
    model: Mixture,
    known: KnownTables,
    options: MarginalsOptions,
    steps: int,
    *,
    public: Sequence[Measured] = (),
    tell: Callable[[int, int], None],
) -> tuple[FitOutcome, bool]:
    """Return the model fitted to all that is known and to cells that rules keep empty, and whether it came close.

    `public` are further tables that it is drawn to, which have no part in when to stop.
    """
    tables = [*known.as_measured(known.exact), *(cleared(model.schema, table) for table in known.measured)]
    # What noise alone leaves varies by about this much from run to run; to fit below it is to fit noise.
    cells = max(1, sum(table.cells for table in tables))
    explained = options.noise_explains * (1 + options.slack * sqrt(2 / cells))
    found = fit(
        model,
        tables,
        known.number,
        stop=Stop(steps, explained, wait_for_late_tables=known.wait),
        rate=options.rate,
        zeros=[*_zeros(model.schema, known, options), *public],
        tell=tell,
    )
    return found, found.misfit <= CLOSE * explained


def _zeros(schema: Schema, known: KnownTables, options: MarginalsOptions) -> list[Measured]:
    """Return what rules keep empty, as if it had been measured: with the least noise, and at most `ZEROS_APART`
    of it.
    """
    if not options.zero_weight:
        return []
    least = min(known.least_variance / options.zero_weight, (ZEROS_APART * known.number) ** 2)
    return [
        Measured(zero.marginal, np.zeros(zero.impossible.shape), np.where(zero.impossible, least, np.inf))
        for zero in zero_tables(schema)
    ]


# -------------------------------------------------------------------- the table of methods

METHODS: Registry[Method] = Registry(
    {
        DEFAULT: Method(
            DEFAULT,
            "tallytree; the model is HQR's H-GEM without its network, the choice of tables follows AIM (McKenna and "
            "others, 2022)",
            "sizes and every attribute first; then whole tables of the workload, chosen where the model is worst, with "
            "less noise as the model gets better",
            "by default",
            MarginalsOptions,
        ),
    },
    "rivals.synthesizers",
)


def method(name: str = DEFAULT) -> Method:
    """Return a method by name."""
    if name not in METHODS:
        raise SpecError(f"there is no synthesis method {name!r}; {did_you_mean(name, METHODS)}")
    return METHODS[name]
