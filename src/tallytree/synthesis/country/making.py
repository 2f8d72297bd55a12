"""From private households to a model of a country: the whole first, then its regions, within one budget."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.core.progress import Progress, Stage
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.schema import Marginal, Schema
from tallytree.privacy.budget import Budget
from tallytree.privacy.household_neighbours import HouseholdNeighbours
from tallytree.privacy.neighbours import Sensitivity
from tallytree.privacy.private_tables import PrivateTables, longer_schema
from tallytree.synthesis.agreement import SizeTable
from tallytree.synthesis.country.asking import RegionalOptions, RegionalTable, affordable, measured_by_region
from tallytree.synthesis.country.levels import RegionLevels, national_schema, region_levels
from tallytree.synthesis.country.settling import rates_of_all
from tallytree.synthesis.country.weighting import (
    Classes,
    by_components,
    country,
    in_classes,
    regional_weights,
    weights_of,
    wish,
)
from tallytree.synthesis.methods import Method, Options
from tallytree.synthesis.methods.asking import Asking, Fitted, share
from tallytree.synthesis.methods.marginals import MarginalsOptions
from tallytree.synthesis.models.mixture import Mixture
from tallytree.synthesis.workload import Workload, default_workload


@dataclass(frozen=True, eq=False)
class Country:
    """What is asked about regions: the levels of their tree, the tables on each, and the ρ for them. All public."""

    levels: RegionLevels
    schema: Schema  # with the regions of all levels
    wanted: tuple[RegionalTable, ...]
    kept: Fraction

    __repr__ = briefly

    @property
    def tables(self) -> tuple[Marginal, ...]:
        """The tables that are measured on some level, without the region."""
        return tuple(dict.fromkeys(one.table for one in self.wanted))


def planned(
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

    kept = share(budget.rho, options.share)
    sizes = np.arange(table.first_size, table.last_size + 1)
    persons = float((table.counts.reshape(-1, len(sizes)).sum(axis=0) * sizes).sum()) / max(1, table.number)
    wanted = affordable(
        options.chosen(national, sensitivity, [attribute for _, attribute in table.by]),
        levels,
        longer,
        sensitivity,
        rho=kept,
        number=max(1, table.number),
        persons=persons,
        worth=options.worth,
    )
    return Country(levels, longer, tuple(wanted), kept if wanted else Fraction(0))


def national_workload(schema: Schema, region: str, workload: Workload | None) -> Workload:
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


def run(
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
    part = tables.part(workload.schema, plan.kept)
    whole = method.run(part, workload, options=options, progress=progress)
    assert isinstance(whole.model, Mixture)
    asking = Asking(tables, workload_of(plan, workload), progress)
    noisy = measured_by_region(asking, plan.wanted)
    progress(Stage("settling the regions"))
    households = released.counts.reshape(len(released.counts), -1).sum(axis=1)
    answers = [whole.model.answers(table).ravel() for table in plan.tables]
    rates = rates_of_all(plan.tables, answers, noisy, households, plan.levels)
    classes = released_classes(whole.model, released)
    wishes = [wish(whole.model, table, found, classes) for table, found in zip(plan.tables, rates, strict=True)]
    weights = regional_weights(weights_of(whole.model), classes, wishes)
    model = country(whole.model, plan.schema, plan.levels, households, weights)
    measured = (*whole.measured, *noisy.values())
    return Fitted(model, whole.number, measured, (*whole.rounds, *asking.record))


def workload_of(plan: Country, workload: Workload) -> Workload:
    """The tables of the whole and those by region, over all attributes."""
    tables = dict.fromkeys([*workload, *(one.by_region for one in plan.wanted)])
    return Workload(plan.schema, tuple(tables), workload.measured)


def released_classes(model: Mixture, released: SizeTable) -> Classes:
    """The released numbers by category and size as shares of each leaf region; where there are none, of the whole."""
    categories = tuple(attribute for _, attribute in released.by)
    by_size = by_components(model, Marginal("households", categories, (), True))
    kinds = by_size[0, 0].size
    sizes = np.arange(released.first_size, released.last_size + 1)
    chances = np.moveaxis(in_classes(by_size, sizes).reshape(model.components, len(sizes), kinds), 1, 2)
    counts = released.counts.reshape(len(released.counts), -1).astype(np.float64)
    counts[counts.sum(axis=1) == 0] = counts.sum(axis=0) + 1.0
    shares = counts / counts.sum(axis=1, keepdims=True)
    return Classes(chances.reshape(model.components, -1), np.tile(sizes, kinds), shares)
