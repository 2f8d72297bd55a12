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
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import pi, sqrt
from typing import Any, NamedTuple

import numpy as np

from tallytree.arrays import Integers
from tallytree.errors import SpecError
from tallytree.privacy.households.neighbours import HouseholdNeighbours, roles_by_attribute
from tallytree.schema import Marginal, Schema
from tallytree.synthesis.methods.asking import Asking, Fitted, epsilon_for, estimates_while_resuming, share, whole
from tallytree.synthesis.models.mixture import Mixture
from tallytree.synthesis.models.model import Measured
from tallytree.synthesis.models.slots import slots
from tallytree.synthesis.structural import structural_tables, zero_tables
from tallytree.synthesis.workload import Workload, is_sum_of

MEAN_SIZE = sqrt(2 / pi)  # of normal noise, in standard deviations
SIZES = Marginal("households", size=True)
import os

POWER = float(os.environ.get("POWER", ".25"))
PUBLIC_VARIANCE = 0.25  # a public table weighs in the fit as if it had this part of the least noise's variance


@dataclass(frozen=True)
class MarginalsOptions:
    """How to spend and how to fit.

    `first_share` and `sweep_share` are the parts of the budget for the first two stages. A table is swept if its noise
    is expected to sum to at most `worth_sweeping` of all that it counts. A round costs one of `rounds` equal parts of
    the whole budget at first, of which `select_share` selects; `sharpen` is by how much that grows when a round
    brought nothing. The start has `components` that differ by about `spread`. A fit takes `steps`, or `last_steps` at
    the end of a stage, at `rate`, and stops where noise explains what is left: at `noise_explains` (see `fitting.fit`),
    raised by `slack` of its standard deviations. `empty` allows households without persons; `seed_text`
    names the start.
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
    structure_share: float = 0.15
    asked_share: float = 0.25
    zero_weight: float = 1.0

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
        if not (0 < self.structure_share < 0.5 and 0 < self.asked_share < 0.5) or self.zero_weight < 0:
            raise SpecError("structure_share and asked_share must lie between 0 and 0.5, and zero_weight be at least 0")

    def check(self, schema: Schema) -> None:
        """Refuse fewer components than there are kinds of household."""
        if schema.structure is not None:
            slots(schema, self.components)

    def run(self, asking: Asking) -> Fitted:
        """All stages."""
        return _Run(asking, self).result()


class Parts(NamedTuple):
    """What of the budget goes where: a part for each table that is measured whatever the selection says, and a sweep's."""

    structural: dict[Marginal, Fraction]
    asked: dict[Marginal, Fraction]
    sweep: Fraction

    @property
    def required(self) -> dict[Marginal, Fraction]:
        """All tables that are measured in any case."""
        return {**self.structural, **self.asked}


def parts_of_the_budget(
    schema: Schema, workload: Workload, neighbours: HouseholdNeighbours, options: MarginalsOptions
) -> Parts:
    """From public facts alone. Tables share in proportion to the square root of their squared sensitivity: where noise
    of all of them together is to be least, that is how.
    """
    first = set(first_tables(schema))
    asked = [table for table in workload.measured if table not in first and neighbours.sensitivity(table, schema).l1]
    allowed = neighbours.unit.kind != "one_person_attributes" or not roles_by_attribute(schema)
    structural = [
        table
        for table in (structural_tables(schema) if allowed else ())
        if table not in asked and neighbours.sensitivity(table, schema).l1
    ]

    def divided(tables: list[Marginal], whole: float) -> dict[Marginal, Fraction]:
        roots = [neighbours.sensitivity(table, schema).l2_squared ** POWER for table in tables]
        return {table: Fraction(whole * root / sum(roots)) for table, root in zip(tables, roots, strict=True)}

    parts = divided(structural, options.structure_share), divided(asked, options.asked_share)
    taken = sum((sum(part.values(), Fraction(0)) for part in parts), Fraction(0))
    return Parts(*parts, max(Fraction(options.sweep_share) - taken, Fraction(0)))


class _Run:
    """One run: what was asked so far, the models, and the stages that go on from there."""

    def __init__(self, asking: Asking, options: MarginalsOptions) -> None:
        self.asking, self.options, self.schema = asking, options, asking.tables.schema
        wanted = asking.private_tables()
        self.public = [marginal for marginal in asking.workload if asking.is_public(marginal)]
        smaller = [part for part in parts_of(wanted) if not asking.is_public(part)]
        self.candidates = Workload(self.schema, tuple(dict.fromkeys([*wanted, *smaller])))
        self.parts = parts_of_the_budget(self.schema, asking.workload, asking.tables.neighbours, options)
        self.zeros = zero_tables(self.schema)
        self.models = asking.models("tallytree-marginals", options, self._start, Mixture.from_arrays)
        self.number = 0
        self.measured: list[Measured] = []
        self.exact: list[tuple[Marginal, Integers]] = []

    def result(self) -> Fitted:
        self._first()
        self._sweep()
        self._rounds()
        return Fitted(self.models.model, self.number, tuple(self.measured), tuple(self.asking.record))

    def _start(self) -> Mixture:
        options = self.options
        return Mixture.start(
            self.schema,
            components=options.components,
            spread=options.spread,
            seed_text=options.seed_text,
            empty=options.empty,
        )

    # ---------------------------------------------------------------- the three stages

    def _first(self) -> None:
        """The number of households, their sizes and all attributes, with equal budgets."""
        asking = self.asking
        private = [marginal for marginal in first_tables(self.schema) if not asking.is_public(marginal)]
        each = share(asking.total, Fraction(self.options.first_share) / (len(private) + 1))
        self.number = asking.number(each)
        for marginal in dict.fromkeys([*first_tables(self.schema), *self.public]):
            if asking.is_public(marginal):
                self.exact.append((marginal, asking.public(marginal)))
            else:
                self._measure(marginal, each)
        for marginal, part in self.parts.required.items():
            self._measure(marginal, share(asking.total, part))
        self._advance([*self.measured], self.options.last_steps)
        asking.tell(1, self.options.rounds + 3, "sizes and attributes")

    def _sweep(self) -> None:
        """The tables that are worth it, with equal budgets."""
        asking, budget = self.asking, share(self.asking.total, self.parts.sweep or Fraction(1, 2))
        chosen = self._worth_sweeping(float(budget)) if self.parts.sweep else []
        if chosen:
            before = len(self.measured)
            each = share(budget, Fraction(1, len(chosen)))
            for marginal in chosen:
                self._measure(marginal, each)
            self._advance(self.measured[before:], self.options.last_steps)
        asking.tell(2, self.options.rounds + 3, f"{len(chosen)} tables at once")

    def _worth_sweeping(self, budget: float) -> list[Marginal]:
        """The tables to measure for `budget` together: all candidates, if each is then measured well enough.

        Otherwise costly persons tables are left to the rounds: one household can change them by far more than it
        changes the households tables of the same attributes, and the fit learns most of what they say from those and
        from the `helping_tables`. As many of these are taken as can all be measured well enough.
        """
        chosen, all_of_them = self._measured_well(self.candidates, budget)
        if not all_of_them:
            cheaper = [self._cheaper(marginal) for marginal in self.candidates]
            tables = dict.fromkeys([*cheaper, *helping_tables(self.schema)])
            chosen, _ = self._measured_well([one for one in tables if not self.asking.is_public(one)], budget)
        return [one for one in chosen if not any(one != other and is_sum_of(one, other) for other in chosen)]

    def _cheaper(self, marginal: Marginal) -> Marginal:
        """For a persons table, the households table of the same attributes, if that is less sensitive."""
        homes = Marginal("households", marginal.household, marginal.person, marginal.size, marginal.roles)
        sensitivity = self.asking.tables.sensitivity
        public = self.asking.is_public(homes)
        return homes if not public and sensitivity(homes).l2_squared < sensitivity(marginal).l2_squared else marginal

    def _measured_well(self, marginals: Iterable[Marginal], budget: float) -> tuple[list[Marginal], bool]:
        """As many tables as can all be measured well enough, those with the least noise first; and are these all?

        The first n tables get a share of 1/n each; n is the largest for which each one's noise is expected to sum to
        no more than `worth_sweeping` of what the table counts in all.
        """
        per_household = self._persons_per_household()

        def noise(marginal: Marginal) -> float:
            """What noise sums to, as a part of the whole, for a budget of 1; a household is in a cell for some persons
            of it, here taken as half of them and at least one.
            """
            spread = sqrt(self.asking.tables.sensitivity(marginal).l2_squared / 2)
            counted = per_household if marginal.of == "persons" else max(1, per_household / 2) if marginal.person else 1
            return MEAN_SIZE * spread * marginal.cells(self.schema) / (self.number * max(counted, 0.1))

        measured = {table.marginal for table in self.measured}
        ranked = sorted((marginal for marginal in marginals if marginal not in measured), key=noise)
        number = 0
        for place, marginal in enumerate(ranked, start=1):
            if noise(marginal) * sqrt(place / budget) <= self.options.worth_sweeping:
                number = place
        return ranked[:number], number == len(ranked)

    def _persons_per_household(self) -> float:
        """About how many persons a household has, by the table of sizes; half the most if that table was lost."""
        known = [*((table.marginal, table.values) for table in self.measured), *self.exact]
        for counts in (np.maximum(counts, 0.0) for marginal, counts in known if marginal == SIZES):
            if counts.sum() > 0:
                return float(counts @ np.arange(len(counts)) / counts.sum())
        return self.schema.max_persons / 2

    def _rounds(self) -> None:
        """What is left, in rounds of one table each."""
        asking, options = self.asking, self.options
        rho, done = share(asking.total, Fraction(1, options.rounds)), 0
        while asking.left > 0:
            last = asking.left < 2 * rho
            table = self._round(asking.left if last else rho)
            done += 1
            if table is not None:
                steps = options.last_steps if asking.left == 0 else options.steps
                if self._advance([table], steps):
                    rho = share(rho, options.sharpen)
            words = "lost" if table is None else table.marginal.describe()
            asking.tell(done + 2, max(done, options.rounds) + 3 if asking.left else done + 2, words)

    def _round(self, rho: Fraction) -> Measured | None:
        """Select a table and measure it; None if either was lost."""
        epsilon = epsilon_for(rho * Fraction(self.options.select_share))
        rest = rho - epsilon**2 / 8
        tables = self.asking.tables
        if tables.resuming:
            estimates = estimates_while_resuming(self.candidates)
        else:
            estimates = [whole(table, self.number) for table in self.models.model.answers_all(self.candidates)]
        bounds = [tables.sensitivity(marginal) for marginal in self.candidates]
        penalties = [
            int(MEAN_SIZE * sqrt(bound.l2_squared / (2 * float(rest))) * marginal.cells(self.schema))
            for marginal, bound in zip(self.candidates, bounds, strict=True)
        ]
        chosen = self.asking.select(
            self.candidates.marginals, estimates, epsilon, penalties, [Fraction(1)] * len(self.candidates)
        )
        return None if chosen is None else self._measure(chosen, rest)

    def _measure(self, marginal: Marginal, rho: Fraction) -> Measured | None:
        table = self.asking.measure(marginal, rho)
        if table is not None:
            self.measured.append(table)
        return table

    # ---------------------------------------------------------------- fitting

    def _advance(self, newest: Sequence[Measured], steps: int) -> bool:
        """Fit to everything so far. Did the newest table, if it is one, move the model by less than its own noise?"""
        measured, number = [*self._exact_tables(), *self.measured], self.number
        options, zeros = self.options, self._zero_tables()

        def fit(model: Mixture) -> tuple[Mixture, bool]:
            from tallytree.synthesis.models import fitting

            # What noise alone leaves varies by about this much from run to run; to fit below it is to fit noise.
            cells = max(1, sum(table.cells for table in measured))
            explained = options.noise_explains * (1 + options.slack * sqrt(2 / cells))
            if not measured:
                return model, False
            found = fitting.fit(
                model, measured, number, steps=steps, rate=options.rate, noise_explains=explained, zeros=zeros
            )
            moved = found.model
            if len(newest) != 1:
                return moved, False
            table = newest[0]
            change = number * np.abs(moved.answers(table.marginal) - model.answers(table.marginal)).sum()
            return moved, bool(change <= MEAN_SIZE * np.sqrt(table.variance).sum())

        seen: list[Any] = [number, steps, [[name.to_json(), counts.tolist()] for name, counts in self.exact]]
        seen += [[table.marginal.to_json(), table.values.tolist(), table.variance.flat[0].item()] for table in newest]
        return bool(self.models.advance(seen, fit))

    def _exact_tables(self) -> list[Measured]:
        """Public tables as if measured, with little noise: more weight would only slow the fit down."""
        least = min((float(table.variance.min()) for table in self.measured), default=1.0)
        variance = np.array(PUBLIC_VARIANCE * least)
        return [Measured(marginal, counts.astype(np.float64), variance) for marginal, counts in self.exact]

    def _zero_tables(self) -> list[Measured]:
        """What rules keep empty, as if it had been measured with the least noise."""
        if not self.options.zero_weight:
            return []
        least = min((float(table.variance.min()) for table in self.measured), default=1.0) / self.options.zero_weight
        return [
            Measured(zero.marginal, np.zeros(zero.impossible.shape), np.where(zero.impossible, least, np.inf))
            for zero in self.zeros
        ]


def first_tables(schema: Schema) -> list[Marginal]:
    """Households by their number of persons and by each attribute of theirs, persons by each of theirs."""
    return [
        SIZES,
        *(Marginal("households", (attribute.name,)) for attribute in schema.household if attribute.codes > 1),
        *(Marginal("persons", (), (attribute.name,)) for attribute in schema.person if attribute.codes > 1),
    ]


def helping_tables(schema: Schema) -> list[Marginal]:
    """Households by their number of persons and one attribute of theirs: cheap, and they say how many persons live
    where.
    """
    return [
        Marginal("households", (attribute.name,), size=True) for attribute in schema.household if attribute.codes > 1
    ]


def parts_of(marginals: Iterable[Marginal]) -> list[Marginal]:
    """The tables over at least two, and fewer than all, of each table's attributes."""
    found: dict[Marginal, None] = {}
    for marginal in marginals:
        if marginal.roles:
            continue
        names = [*marginal.household, *marginal.person]
        for number in range(2, len(names)):
            for chosen in combinations(names, number):
                household = tuple(name for name in marginal.household if name in chosen)
                person = tuple(name for name in marginal.person if name in chosen)
                found[Marginal(marginal.of, household, person, marginal.size)] = None
    return list(found)
