"""From private households to a model of a country: the whole first, then its regions, within one budget.

*Tables.* Which tables are measured by region, on which levels, is decided from public numbers: a table is measured on a
level if the noise of its share of the budget is expected to sum to no more than `worth` of all that the table counts.
What is not measured on a level is taken from the level above. Rounds that a kill cut off are paid for and lost, and
such a table too is taken from above.

*Rates by leaf region* come from the noisy tables of all levels, from the top down.
A *rate* is what a table counts for each household of a region: the share that rents, the share that contains a child,
the number of persons over 65. The whole has the model's rates p. On each level a region with n households that lies in
one with the rates p has the noisy counts y, with noise of variance σ², and

    x = n p + g (y − n p),    g = V / (V + σ²),    V = n p + n² b

where n p is how much counts of regions with equal rates differ by chance, and b, by cell, is how much more they differ
on this level: fitted by moments from the noisy counts alone, b = Σ w ((y − n p)² − σ² − n p) / Σ w n² with the weights
w = (n / (n p + σ²))², and 0 where that is negative. So a region keeps its own counts where they tell something and has
its parent's rates where they are noise. Then counts near or below zero become a small part of n p, and the regions of a
parent are scaled to add up to it, cell by cell, as their cells are to their number of households.

*Weights.* Each leaf region gets its own weights of the components of one mixture, so that its rates come out.

*What is drawn.* Households of a region r are drawn as many as were released for each class k (a size, or a size and a
category), from the components with the weights π_rc P_c(k). So the components of the region's households have the
shares q_r = Σ_k f_rk π_rc P_c(k) / Σ_c π_rc P_c(k), where f_rk are the released shares of classes.

*What is wanted.* Rates b_r, where those of component c are A_c: Σ_c q_rc A_c = b_r. Weights of the form π_rc ∝
w_c exp(λ_r · A_c) change the whole's weights w by no more than that takes. λ_r is where

    λ · b − Σ_k f_k log Σ_c w_c P_c(k) exp(λ · A_c) − τ |λ|² / 2

is largest: its slope is b − Σ q A − τ λ. It is concave and smooth, and Newton's method with shorter steps where they
overshoot finds it for many regions at a time. τ lets rates that no weights give be missed by a little.

*Persons.* How many households contain a child depends on their sizes, which are released, and a component's rate A_c is
that of its own sizes. So of the wanted rate what the released sizes alone would change is taken off first: the rate of
the whole's components, given the region's classes, with each class's own rates A_c(k), minus the same with A_c.

The result is a mixture with the region as one more attribute: P_c(r) ∝ n_r π_rc / w'_c with w'_c = Σ n_r π_rc / n, so
that given the region a component has the weight π_rc. All else of it, and how it is drawn from, stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from tallytree.synthesis.marginals import MarginalsOptions
from tallytree.synthesis.methods import Fitted, Method, MethodSession, Options, share
from tallytree.synthesis.mixture import Mixture, softmax
from tallytree.synthesis.model import Measured
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
        """The tables, without the region; one of persons counts households that contain such a person, if that is less
        sensitive. Sizes and the `released` categories are agreed with, and are not measured again.
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
    """A table with the region as its first attribute of households."""
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
        """The tables that are measured on some level, without the region."""
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
    """Which tables by region can be afforded, from public numbers; nothing is asked for."""
    if not isinstance(method_options, MarginalsOptions):
        raise SpecError("tables by region go with the method tallytree-marginals: its model has weights for regions")
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
    """The tables for the whole: the default ones, or the given ones, which may not name the region."""
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
    progress(Stage("settling the regions"))
    households = released.counts.reshape(len(released.counts), -1).sum(axis=1)
    answers = [whole.model.answers(table).ravel() for table in plan.tables]
    rates = estimate_all_rates(plan.tables, answers, noisy, households, plan.levels)
    classes = count_released_classes(whole.model, released)
    wishes = [wish(whole.model, table, found, classes) for table, found in zip(plan.tables, rates, strict=True)]
    weights = regional_weights(weights_of(whole.model), classes, wishes)
    model = build_country_model(whole.model, plan.schema, plan.levels, households, weights)
    measured = (*whole.measured, *noisy.values())
    return Fitted(model, whole.number, measured, (*whole.rounds, *session.record))


def workload_of(plan: Country, workload: Workload) -> Workload:
    """The tables of the whole and those by region, over all attributes."""
    tables = dict.fromkeys([*workload, *(one.by_region for one in plan.wanted)])
    return Workload(plan.schema, tuple(tables), workload.measured)


def count_released_classes(model: Mixture, released: SizeTable) -> Classes:
    """The released numbers by category and size as shares of each leaf region; where there are none, of the whole."""
    categories = tuple(attribute for _, attribute in released.by)
    by_size = answer_by_component(model, Marginal("households", categories, (), True))
    kinds = by_size[0, 0].size
    sizes = np.arange(released.first_size, released.last_size + 1)
    chances = np.moveaxis(group_into_classes(by_size, sizes).reshape(model.components, len(sizes), kinds), 1, 2)
    counts = released.counts.reshape(len(released.counts), -1).astype(np.float64)
    counts[counts.sum(axis=1) == 0] = counts.sum(axis=0) + 1.0
    shares = counts / counts.sum(axis=1, keepdims=True)
    return Classes(chances.reshape(model.components, -1), np.tile(sizes, kinds), shares)


# -------------------------------------------------------------------- rates by leaf region


RAKES = 200  # times at most that regions are scaled to their parent, and cells to their region
NEAR_ENOUGH = 1e-6  # of a count, as a part of it
LEAST_OF_EXPECTED = 0.02  # of what the parent's rates expect: noise below zero does not tell that there is nobody
LEAST = 1e-9  # of a rate: what is impossible on paper may still be there


def estimate_rates(
    table: Marginal, whole: Floats, noisy: Mapping[int, Measured], households: Integers, levels: RegionLevels
) -> Floats:
    """The rates `[leaves, cells]` of a table, from its rates in the whole `[cells]`, its noisy counts by level, and the
    numbers of `households` by leaf.
    """
    above = np.maximum(whole.ravel(), LEAST)[None]
    above_number = np.array([float(households.sum())])
    adds_up = not table.person and table.of == "households"  # each household is in one cell
    for level, parents in enumerate(levels.parents):
        number = levels.summed(households, level).astype(np.float64)
        expected = number[:, None] * above[parents]
        measured = noisy.get(level)
        counts = expected
        if measured is not None:
            own = measured.values.reshape(len(number), -1)
            counts = shrink_towards(own, float(measured.variance.flat[0]), expected, number)
            counts = _rake(counts, parents, above_number[:, None] * above, number if adds_up else None)
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(number[:, None] > 0, counts / number[:, None], above[parents])
        above, above_number = np.maximum(rates, LEAST), number
    return above


def shrink_towards(noisy: Floats, variance: float, expected: Floats, number: Floats) -> Floats:
    """Noisy counts `[regions, cells]` drawn to what the parents' rates expect, as far as they are noise."""
    apart, chance = noisy - expected, np.maximum(expected, LEAST)
    weight = (number[:, None] / (chance + variance)) ** 2
    total = (weight * number[:, None] ** 2).sum(axis=0)
    beyond = (weight * (apart**2 - variance - chance)).sum(axis=0) / np.maximum(total, LEAST)
    real = chance + number[:, None] ** 2 * np.maximum(beyond, 0.0)
    counts: Floats = np.maximum(expected + real / (real + variance) * apart, LEAST_OF_EXPECTED * expected)
    return counts


def _rake(counts: Floats, parents: Integers, wanted: Floats, number: Floats | None) -> Floats:
    """Counts scaled in turn to the parents' cells and, where each household is in one cell, to the regions' numbers."""
    counts = counts + LEAST
    for _ in range(RAKES):
        sums = np.zeros_like(wanted)
        np.add.at(sums, parents, counts)
        factors = wanted / np.maximum(sums, LEAST)
        counts *= factors[parents]
        if number is None or np.abs(factors - 1).max() <= NEAR_ENOUGH:
            break
        counts *= (number / np.maximum(counts.sum(axis=1), LEAST))[:, None]
    return counts


def estimate_all_rates(
    tables: Sequence[Marginal],
    wholes: Sequence[Floats],
    noisy: Mapping[tuple[Marginal, int], Measured],
    households: Integers,
    levels: RegionLevels,
) -> list[Floats]:
    """The rates of every table that was measured on some level."""
    return [
        estimate_rates(
            table, whole, {level: found for (one, level), found in noisy.items() if one == table}, households, levels
        )
        for table, whole in zip(tables, wholes, strict=True)
    ]


# -------------------------------------------------------------------- weights by leaf region


STEPS = 40  # of Newton's method, at most
HALVINGS = 30  # of one step
NEAR_ENOUGH = 1e-6  # a slope
LOOSE = 1e-4  # τ: a rate that is missed by 0.01 counts as much as half a relative entropy
NUMBERS = 1 << 21  # that are worked on at a time
TINY = 1e-30


class Classes(NamedTuple):
    """What was released of regions: the chance of each class in each component `[components, classes]`, the classes'
    sizes `[classes]` (the last stands for larger ones too), and the regions' shares `[regions, classes]`.
    """

    chances: Floats
    sizes: Integers
    shares: Floats


class Wish(NamedTuple):
    """A table's rates: of each component `[components, cells]`, and wanted for each leaf region `[regions, cells]`."""

    components: Floats
    wanted: Floats


def answer_by_component(model: Mixture, table: Marginal) -> Floats:
    """A table's rates in each component by itself, `[components, axes of the table]`."""
    arrays = model.to_arrays()
    rows = [
        type(model)
        .from_arrays(model.schema, {name: array[place : place + 1] for name, array in arrays.items()})
        .answers(table)
        for place in range(model.components)
    ]
    return np.stack(rows)


def group_into_classes(by_size: Floats, sizes: Integers) -> Floats:
    """Of values `[components, sizes from 0, …]` those of each class `[components, classes, …]`."""
    last = int(sizes.max())
    tails = by_size.copy()
    tails[:, last] = by_size[:, last:].sum(axis=1)
    found: Floats = tails[:, sizes]
    return found


def wish(model: Mixture, table: Marginal, rates: Floats, classes: Classes) -> Wish:
    """The rates of a table that the components should have, after what the released sizes do by themselves."""
    components, wanted = answer_by_component(model, table).reshape(model.components, -1), rates
    if table.person:
        with_size = answer_by_component(model, Marginal(table.of, table.household, table.person, size=True))
        own = group_into_classes(with_size.reshape(model.components, model.schema.max_persons + 1, -1), classes.sizes)
        alone = answer_by_component(model, Marginal("households", size=True))
        own /= np.maximum(group_into_classes(alone, classes.sizes), TINY)[:, :, None]
        weight = weights_of(model)[:, None] * classes.chances
        weight /= np.maximum(weight.sum(axis=0), TINY)
        apart = np.einsum("ck,ckf->kf", weight, own) - weight.T @ components
        wanted = rates - classes.shares @ apart
    most = model.schema.max_persons if table.of == "persons" else 1
    return Wish(components / most, wanted / most)


def regional_weights(weights: Floats, classes: Classes, wishes: Sequence[Wish]) -> Floats:
    """Weights `[regions, components]` under which the wishes come out, as near to `weights` as they can be."""
    regions = len(classes.shares)
    if not wishes:
        return np.tile(weights, (regions, 1))
    components = np.concatenate([one.components for one in wishes], axis=1)
    wanted = np.concatenate([one.wanted for one in wishes], axis=1)
    first = np.log(np.maximum(weights[:, None] * classes.chances, TINY)).T  # classes by components
    block = max(1, NUMBERS // max(first.size, components.size * components.shape[1]))
    logarithms = np.log(np.maximum(weights, TINY))
    found = np.empty((regions, len(weights)))
    for start in range(0, regions, block):
        part = slice(start, start + block)
        multipliers = _multipliers(first, components, classes.shares[part], wanted[part])
        found[part] = softmax(logarithms + multipliers @ components.T)
    return found


def _multipliers(first: Floats, components: Floats, shares: Floats, wanted: Floats) -> Floats:
    """λ for some regions together."""
    multipliers = np.zeros_like(wanted)
    ridge = LOOSE * np.eye(components.shape[1])
    value, within = _value(multipliers, first, components, shares, wanted)
    for _ in range(STEPS):
        q = np.einsum("rk,rkc->rc", shares, within)
        slope = wanted - q @ components - LOOSE * multipliers
        if np.abs(slope).max(initial=0.0) <= NEAR_ENOUGH:
            break
        means = within @ components
        curve = (components.T[None] * q[:, None, :]) @ components + ridge
        curve -= (means * shares[:, :, None]).transpose(0, 2, 1) @ means
        step = np.linalg.solve(curve, slope[:, :, None])[:, :, 0]
        multipliers, value, within = _moved(multipliers, step, slope, value, (first, components, shares, wanted))
    return multipliers


def _moved(
    multipliers: Floats, step: Floats, slope: Floats, before: Floats, problem: tuple[Floats, Floats, Floats, Floats]
) -> tuple[Floats, Floats, Floats]:
    """The step, halved for each region until its value rises by a part of what the slope says."""
    length, gain = np.ones(len(multipliers)), (step * slope).sum(axis=1)
    for _ in range(HALVINGS):
        moved = multipliers + length[:, None] * step
        value, within = _value(moved, *problem)
        short = value < before + 1e-4 * length * gain - 1e-12
        if not short.any():
            break
        length = np.where(short, length / 2, length)
    return moved, value, within


def _value(
    multipliers: Floats, first: Floats, components: Floats, shares: Floats, wanted: Floats
) -> tuple[Floats, Floats]:
    """What is to be made largest, and each class's weights of components `[regions, classes, components]`."""
    scores = first[None] + (multipliers @ components.T)[:, None, :]
    top = scores.max(axis=2, keepdims=True)
    within = np.exp(scores - top)
    sums = within.sum(axis=2, keepdims=True)
    within /= sums
    logarithms = (top + np.log(sums))[:, :, 0]
    value = (
        (multipliers * wanted).sum(axis=1)
        - (shares * logarithms).sum(axis=1)
        - LOOSE / 2 * (multipliers**2).sum(axis=1)
    )
    return value, within


def build_country_model(
    model: Mixture, schema: Schema, levels: RegionLevels, households: Integers, weights: Floats
) -> Mixture:
    """The mixture over the longer `schema`, with the regions of all levels as attributes of households."""
    joint = np.maximum(households[:, None] * weights, TINY)  # regions by components
    arrays = {**model.to_arrays(), "weights": _logits(joint.sum(axis=0))}
    for level, attribute in enumerate(levels.attributes):
        arrays[f"household {attribute.name}"] = _logits(levels.summed(joint, level).T)
    return Mixture.from_arrays(schema, arrays)


def weights_of(model: Mixture) -> Floats:
    """The chances of the components."""
    return softmax(model.weights)


def _logits(chances: Floats) -> Floats:
    logits: Floats = np.log(np.maximum(chances / chances.sum(axis=-1, keepdims=True), TINY))
    return logits
