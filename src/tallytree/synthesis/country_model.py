"""From private households to a model of a country: the whole first, then its regions, within one budget.

*Tables.* Which tables are measured by region, on which levels, is decided from public numbers: a table is measured on a
level if the noise of its share of the budget is expected to sum to no more than `worth` of all that the table counts.
What is not measured on a level is taken from the level above. Rounds that a kill cut off are paid for and lost, and
such a table too is taken from above.

*Small regions.* A *rate* is what a table counts for each household of a region: the share that rents, the share that
contains a child, the number of persons over 65. From the top down, a region with n households that lies in one with the
rates p has the noisy counts y, with noise of variance σ². The fit gets

    x = n p + g (y − n p)  with the variance  g σ²,    g = V / (V + σ²),    V = n p + n² b

where n p is how much counts of regions with equal rates differ by chance, and b, by cell, is how much more they differ
on this level: fitted by moments from the noisy counts alone, b = Σ w ((y − n p)² − σ² − n p) / Σ w n² with the weights
w = (n / (n p + σ²))², and 0 where that is negative. So a region keeps its own counts where they tell something and has
its parent's rates where the noise exceeds the count.

*One fit.* Each component of the whole's mixture gets the leaf region as one more attribute, at first with the released
shares of regions, the same in all components. Then it is fitted once more, to all tables together: those of the whole,
those by region, what rules keep empty, and the released numbers by region, category and size as a public table. A table
by the regions of an upper level is one by leaf regions in groups.

*What is drawn.* Households of a region are drawn as many as were released for each class k (a size, or a size and a
category), from the components with the weights w_c P_c(r) P_c(k). So agreement is exact for any fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import BudgetError, SpecError
from tallytree.core.names import briefly
from tallytree.core.progress import Progress, Stage
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.schema import SIZE, Marginal, Schema
from tallytree.privacy.budget import Budget, exact
from tallytree.privacy.neighbours import HouseholdNeighbours, Sensitivity
from tallytree.privacy.private_tables import PrivateTables, longer_schema
from tallytree.synthesis.agreement import RegionLevels, SizeTable, national_schema, region_levels
from tallytree.synthesis.marginals import KnownTables, MarginalsOptions, fit_to_tables, has_roles, least_variance
from tallytree.synthesis.methods import Fitted, Method, MethodSession, Options, one_blas_thread, share
from tallytree.synthesis.mixture import Mixture, softmax
from tallytree.synthesis.model import Measured
from tallytree.synthesis.roles import masked
from tallytree.synthesis.table_selection import TableSelection
from tallytree.synthesis.workload import Workload, default_workload

Bound = Callable[[Marginal], Sensitivity]


@dataclass(frozen=True)
class RegionalOptions:
    """`share` is the part of the budget for tables by region; `tables` are sets of attribute names, each a table that
    is measured by region; without them every attribute is one. `worth` is how much noise a table may have.
    """

    share: Fraction = Fraction(1, 4)
    tables: tuple[tuple[str, ...], ...] | None = None
    worth: float = 1.0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> RegionalOptions:
        """Options from plain values, checked."""
        if unknown := [name for name in given if name not in ("share", "tables", "worth")]:
            raise SpecError(f"regional has no {unknown[0]!r}; it has share, tables and worth")
        try:
            part = exact(given.get("share", cls.share), "share of regional")
        except BudgetError as error:
            raise SpecError(str(error)) from None
        if not 0 < part < 1:
            raise SpecError(f"share of regional must lie between 0 and 1, not {given['share']}")
        tables = given.get("tables")
        if tables is not None:
            if isinstance(tables, str) or not all(
                isinstance(names, list | tuple) and all(isinstance(name, str) for name in names) for names in tables
            ):
                raise SpecError('tables of regional are lists of attribute names, as in [["tenure"], ["age", "sex"]]')
            tables = tuple(tuple(names) for names in tables)
        worth = given.get("worth", cls.worth)
        try:
            worth = float(worth)
        except (TypeError, ValueError):
            worth = -1.0
        if not 0 < worth < float("inf"):
            raise SpecError(f"worth of regional must be a number above 0, not {given['worth']!r}")
        return cls(part, tables, worth)

    def chosen(self, national: Schema, sensitivity: Bound, released: Sequence[str]) -> tuple[Marginal, ...]:
        """Return the tables, without the region; one of persons counts households that contain such a person, if that
        is less sensitive. Sizes and the `released` categories are agreed with, and are not measured again.
        """
        attributes = [each for each in (*national.household, *national.person) if each.name not in released]
        sets = [(each.name,) for each in attributes if each.codes > 1] if self.tables is None else self.tables
        household = [each.name for each in national.household]
        found: dict[Marginal, None] = {}
        for names in sets:
            if not names or len(set(names)) < len(names):
                raise SpecError(f"tables of regional: {', '.join(names) or 'a list'} is empty, or names one twice")
            if known := [name for name in names if name == SIZE or name in released]:
                raise SpecError(f"tables of regional: {known[0]!r} is in the release, which households agree with")
            homes = tuple(name for name in names if name in household)
            people = tuple(name for name in names if name not in household)
            of_homes, of_people = Marginal("households", homes, people), Marginal("persons", homes, people)
            of_homes.check(national)
            less = not people or sensitivity(of_homes).l2_squared < sensitivity(of_people).l2_squared
            found[of_homes if less else of_people] = None
        return tuple(found)


class RegionalTable(NamedTuple):
    """A table that is measured by the regions of a level, and that table itself."""

    table: Marginal
    level: int
    by_region: Marginal


def by_region(table: Marginal, region: str) -> Marginal:
    """Return a table with the region as its first attribute of households."""
    return Marginal(table.of, (region, *table.household), table.person, table.size)


def select_regional_tables(
    tables: Sequence[Marginal], levels: RegionLevels, selection: TableSelection, rho: Fraction
) -> list[RegionalTable]:
    """As many tables on as many levels as can all be measured well enough with equal parts of `rho`."""
    wanted = {
        by_region(table, attribute.name): (table, level)
        for table in tables
        for level, attribute in enumerate(levels.attributes)
    }
    chosen, _ = selection.measured_well(list(wanted), float(rho))
    return [RegionalTable(*wanted[one], one) for one in chosen]


def measure_by_region(session: MethodSession, wanted: Sequence[RegionalTable]) -> dict[tuple[Marginal, int], Measured]:
    """Measure the tables with equal parts of all that is left, the last with the rest; lost ones are left out."""
    found = {}
    for place, one in enumerate(wanted):
        rho = session.left if place == len(wanted) - 1 else share(session.left, Fraction(1, len(wanted) - place))
        noisy = session.measure(one.by_region, rho)
        if noisy is not None:
            found[one.table, one.level] = noisy
        session.tell(place + 1, len(wanted), one.by_region.describe())
    return found


# -------------------------------------------------------------------- the model of a country


@dataclass(frozen=True, eq=False)
class Country:
    """What is asked about regions: the levels of their tree, the tables on each, and the ρ for them. All public."""

    levels: RegionLevels
    schema: Schema  # with the regions of all levels
    wanted: tuple[RegionalTable, ...]
    rho: Fraction

    __repr__ = briefly

    @property
    def tables(self) -> tuple[Marginal, ...]:
        """Return the tables that are measured on some level, without the region."""
        return tuple(dict.fromkeys(one.table for one in self.wanted))


def plan_country(
    schema: Schema,
    tree: Hierarchy,
    table: SizeTable,
    neighbours: HouseholdNeighbours,
    budget: Budget,
    options: RegionalOptions,
    method_options: Options,
) -> Country:
    """Return which tables by region can be afforded, from public numbers; nothing is asked for."""
    if not isinstance(method_options, MarginalsOptions):
        raise SpecError("tables by region go with the method tallytree-marginals: its model can have regions")
    levels = region_levels(schema, table.region, tree)
    longer, national = longer_schema(schema, levels.added), national_schema(schema, table.region)
    assert budget.rho is not None

    def sensitivity(marginal: Marginal) -> Sensitivity:
        return neighbours.sensitivity(marginal, longer)

    rho = share(budget.rho, options.share)
    sizes = np.arange(table.first_size, table.last_size + 1)
    persons = float((table.counts.reshape(-1, len(sizes)).sum(axis=0) * sizes).sum()) / max(1, table.number)
    tables = options.chosen(national, sensitivity, [attribute for _, attribute in table.by])
    selection = TableSelection(longer, sensitivity, max(1, table.number), persons, options.worth)
    wanted = select_regional_tables(tables, levels, selection, rho)
    return Country(levels, longer, tuple(wanted), rho if wanted else Fraction(0))


def restrict_workload(schema: Schema, region: str, workload: Workload | None) -> Workload:
    """Return the tables for the whole: the default ones, or the given ones, which may not name the region."""
    national = national_schema(schema, region)
    if workload is None:
        return default_workload(national)
    workload.check(schema)
    if by := [one for one in workload if region in one.household]:
        raise SpecError(
            f"the workload has {by[0].describe()}: with regional, tables of the workload are about the whole, and "
            f"tables by {region} are named in regional"
        )
    return Workload(national, workload.marginals, workload.measured)


def fit_country(
    tables: PrivateTables,
    plan: Country,
    released: SizeTable,
    method: Method,
    options: Options,
    workload: Workload,
    *,
    progress: Progress,
) -> Fitted:
    """Spend the whole budget of `tables`, which have the regions of all levels, and make a model of the country."""
    part = tables.part(workload.schema, plan.rho)
    whole = method.run(part, workload, options=options, progress=progress)
    assert isinstance(whole.model, Mixture)
    session = MethodSession(tables, workload_of(plan, workload), progress)
    noisy = measure_by_region(session, plan.wanted)
    progress(Stage("fitting the regions"))

    def tell(taken: int, likely: int) -> None:
        session.tell(taken, likely, "the regions", unit="steps")

    exact = tuple((table, tables.public_counts(table)) for table in tables.published_exactly)
    with one_blas_thread():
        model = fit_regions(whole, plan, released, noisy, exact, options, tell)
    measured = (*whole.measured, *noisy.values())
    return Fitted(model, whole.number, measured, (*whole.rounds, *session.record))


def workload_of(plan: Country, workload: Workload) -> Workload:
    """Return the tables of the whole and those by region, over all attributes."""
    tables = dict.fromkeys([*workload, *(one.by_region for one in plan.wanted)])
    return Workload(plan.schema, tuple(tables), workload.measured)


# -------------------------------------------------------------------- small regions


LEAST_OF_EXPECTED = 0.02  # of what the parent's rates expect: noise below zero does not tell that there is nobody
LEAST_VARIANCE = 1.0  # of a shrunk count: no fit needs to be nearer than a household
LEAST = 1e-9  # of a rate: what is impossible on paper may still be there


def shrink_tables(
    whole: Floats, noisy: Mapping[int, Measured], households: Integers, levels: RegionLevels
) -> dict[int, Measured]:
    """Return the tables of each level `noisy`, shrunk towards the level above; the first towards the rates of the
    `whole`.
    """
    above, found = np.maximum(whole.ravel(), LEAST)[None], {}
    for level, parents in enumerate(levels.parents):
        number = levels.summed(households, level).astype(np.float64)
        rates = above[parents]
        if (measured := noisy.get(level)) is not None:
            shape = measured.values.shape
            counts, variance = shrink_towards(
                measured.values.reshape(len(number), -1), float(measured.variance.flat[0]), rates, number
            )
            found[level] = Measured(measured.marginal, counts.reshape(shape), variance.reshape(shape))
            with np.errstate(divide="ignore", invalid="ignore"):
                rates = np.where(number[:, None] > 0, counts / number[:, None], rates)
        above = np.maximum(rates, LEAST)
    return found


def shrink_towards(noisy: Floats, variance: float, rates: Floats, number: Floats) -> tuple[Floats, Floats]:
    """Noisy counts `[regions, cells]`, drawn to what the parents' `rates` expect as far as they are noise, and the
    variances of their errors.
    """
    expected = number[:, None] * rates
    apart, chance = noisy - expected, np.maximum(expected, LEAST)
    weight = (number[:, None] / (chance + variance)) ** 2
    total = (weight * number[:, None] ** 2).sum(axis=0)
    beyond = (weight * (apart**2 - variance - chance)).sum(axis=0) / np.maximum(total, LEAST)
    real = chance + number[:, None] ** 2 * np.maximum(beyond, 0.0)
    kept = real / (real + variance)
    counts = np.maximum(expected + kept * apart, LEAST_OF_EXPECTED * expected)
    return counts, np.maximum(kept * variance, LEAST_VARIANCE)


# -------------------------------------------------------------------- the joint fit


TINY = 1e-30
NEARER = 0.25  # of its variance, as which a shrunk table weighs: it is to be reached, not just to be near within noise


def fit_regions(
    whole: Fitted,
    plan: Country,
    released: SizeTable,
    noisy: Mapping[tuple[Marginal, int], Measured],
    exact: Sequence[tuple[Marginal, Integers]],
    options: Options,
    tell: Callable[[int, int], None],
) -> Mixture:
    """Return the whole's mixture with the regions of all levels, fitted to all tables together."""
    assert isinstance(whole.model, Mixture)
    assert isinstance(options, MarginalsOptions)
    households = released.counts.reshape(len(released.counts), -1).sum(axis=1)
    start = add_regions(whole.model, plan.levels, households)
    if not noisy:
        return add_upper_levels(start, plan.schema, plan.levels)
    by_leaf = []
    for table in plan.tables:
        own = {level: found for (one, level), found in noisy.items() if one == table}
        shrunk = shrink_tables(whole.model.answers(table), own, households, plan.levels)
        by_leaf += [in_leaves(found, level, plan.levels) for level, found in shrunk.items()]
    measured = tuple(table for table in whole.measured if isinstance(table, Measured))
    least = least_variance([*measured, *noisy.values()])
    known = KnownTables((*measured, *by_leaf), tuple(exact), whole.number, least, not has_roles(plan.schema))
    [public] = known.as_measured([by_class(whole.model, start.schema, released)])
    found, _ = fit_to_tables(
        start,
        known,
        options,
        options.last_steps_for(plan.schema),
        public=[public],
        tell=tell,
    )
    return add_upper_levels(found.model, plan.schema, plan.levels)


def add_regions(model: Mixture, levels: RegionLevels, households: Integers) -> Mixture:
    """Return the mixture with the leaf region as its last attribute of households, at their shares in each
    component.
    """
    leaf = levels.attributes[-1]
    schema = replace(model.schema, household=(*model.schema.household, leaf))
    shares = np.tile(_logits(households.astype(np.float64)), (model.components, 1))
    arrays = {**model.to_arrays(), f"household {leaf.name}": shares.astype(np.float32)}
    return Mixture.from_arrays(schema, masked(schema, arrays))


def in_leaves(table: Measured, level: int, levels: RegionLevels) -> Measured:
    """Return a table by the regions of a level as one by leaf regions, which are in groups on the levels above."""
    marginal = table.marginal
    groups = tuple(levels.of_leaf[level].tolist()) if level < len(levels.attributes) - 1 else ()
    rest = ((),) * (len(marginal.attributes) - 1)
    leaves = replace(marginal, household=(levels.region, *marginal.household[1:]), groups=(groups, *rest))
    return Measured(leaves, table.values, NEARER * table.variance)


def by_class(model: Mixture, schema: Schema, released: SizeTable) -> tuple[Marginal, Floats]:
    """Return the released numbers by size, region and category; the last size is divided as the whole has
    larger ones.
    """
    counts = np.moveaxis(released.counts, -1, 0).astype(np.float64)
    sizes = model.answers(Marginal("households", size=True))
    larger = sizes[released.last_size :] / max(float(sizes[released.last_size :].sum()), TINY)
    found = np.zeros((schema.max_persons + 1, *counts.shape[1:]))
    found[released.first_size : released.last_size] = counts[:-1]
    found[released.last_size :] = np.multiply.outer(larger, counts[-1])
    return Marginal("households", released.attributes, (), True), found


def add_upper_levels(model: Mixture, schema: Schema, levels: RegionLevels) -> Mixture:
    """Return the mixture over the longer `schema`, whose upper levels are sums of leaf regions."""
    arrays = model.to_arrays()
    leaves = softmax(arrays[f"household {levels.region}"])
    for level, attribute in enumerate(levels.attributes[:-1]):
        arrays[f"household {attribute.name}"] = _logits(levels.summed(leaves.T, level).T).astype(np.float32)
    return Mixture.from_arrays(schema, arrays)


def _logits(chances: Floats) -> Floats:
    logits: Floats = np.log(np.maximum(chances / np.maximum(chances.sum(axis=-1, keepdims=True), TINY), TINY))
    return logits
