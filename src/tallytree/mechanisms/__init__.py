"""The table of mechanisms. A mechanism is what to measure plus how to estimate from it; `MECHANISMS` holds them all.

To add a mechanism, write its estimator in the file of its family and add a row to `ROWS` there:

    def my_way(measurements: Measurements) -> Estimate:
        counts = nearest_consistent(measurements.stacked("counts"), measurements.hierarchy)
        return Estimate(counts, "what is proved about these counts, in words")

    Mechanism(
        name="my-way", symbol="M", paper="where it is described", view="counts", estimate=my_way,
        cost="what it takes", use="when to use it",
    )

A row measures its view on every level and promises that regions add up, with the grand total where that is public; the
other fields of `Mechanism` say what else holds. The command, plans, experiments and verification read the table. A
mechanism that measures something else, or takes options, is a subclass: see `count_of_counts`. A new family is a module
with `ROWS`, to be added to the list below. `ALIASES` has the papers' symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tallytree.core.arguments import told
from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import did_you_mean
from tallytree.core.registry import Registry
from tallytree.domain.hierarchy import Hierarchy
from tallytree.mechanisms import count_of_counts, pgsr, tallytree
from tallytree.mechanisms.budget_allocation import Shares
from tallytree.mechanisms.count_of_counts import LEAVES_METHOD
from tallytree.mechanisms.mechanism import Estimate, Mechanism, check_range
from tallytree.mechanisms.noise_choice import choose_noise
from tallytree.mechanisms.settings import estimates_counts, leans_to_at_least, noise_ratio
from tallytree.privacy.budget import Budget
from tallytree.privacy.measurements import BESIDE_SIZES, Measurements
from tallytree.privacy.neighbours import Neighbours, View
from tallytree.privacy.plan import Plan

__all__ = [
    "ALIASES",
    "AUTO",
    "MECHANISMS",
    "Estimate",
    "Mechanism",
    "aliases_of",
    "choose",
    "instead_of",
    "leans_to_at_least",
    "mechanism_named",
    "noise_ratio",
    "prepare",
]

MECHANISMS: Registry[Mechanism] = Registry(
    {row.name: row for family in (tallytree, pgsr, count_of_counts) for row in family.ROWS}, "rivals.estimators"
)

# The papers' symbols are names too. A method of single regions (H_g, H_c) stands for matching with it on every level.
ALIASES: dict[str, tuple[str, dict[str, Any]]] = {
    "M_H": ("pgsr-hierarchical-exact", {}),
    "M_H^r": ("pgsr-hierarchical-relaxed", {}),
    "M_H^dp": ("pgsr-hierarchical-dp", {}),
    "M_dp^OP": ("pgsr-hierarchical-programs", {}),
    "M_c": ("pgsr-cumulative-exact", {}),
    "M_c^r": ("pgsr-cumulative-relaxed", {}),
    "M_c^dp": ("pgsr-cumulative-dp", {}),
    "M_c^ch": ("pgsr-chain", {}),
    "TopDown": ("topdown", {}),
    "H_g": ("coc-matching", {"methods": "sorted-sizes"}),
    "H_c": ("coc-matching", {"methods": "cumulative"}),
    "BU": ("bottom-up", {}),
}
AUTO = (
    "tallytree; for groups, or entities with large quantities, with more than 64 sizes or a category that members "
    "decide, joint-counts with public totals and pgsr-hierarchical-dp with private ones; with a public prior, the "
    "mechanism with the smallest predicted error"
)
NEAREST: dict[View, str] = {
    "counts": "pgsr-hierarchical-dp",
    "counts_total": "pgsr-hierarchical-dp",
    "at_least": "pgsr-cumulative-dp",
}


def mechanism_named(name: str) -> Mechanism:
    """Return the mechanism of that name or alias."""
    own, options = ALIASES.get(name, (name, {})) if isinstance(name, str) else ("", {})
    if own not in MECHANISMS:
        can_be_released = [row.name for row in MECHANISMS.values() if not row.refused]
        symbols = [alias for alias, (row, _) in ALIASES.items() if row in can_be_released]
        raise SpecError(f"unknown mechanism {told(name)}; {did_you_mean(name, ['auto', *can_be_released, *symbols])}")
    return MECHANISMS[own].configured(options) if options else MECHANISMS[own]


def aliases_of(mechanism: Mechanism) -> list[str]:
    """Return the papers' symbols that name the mechanism."""
    return [alias for alias, (name, _) in ALIASES.items() if name == mechanism.name]


def choose(mechanism: str | Mechanism, neighbours: Neighbours, options: Mapping[str, Any] | None = None) -> Mechanism:
    """Return a mechanism to release with, by name or as given; refuse one that these data or this unit rule out.

    `auto` decides from public facts alone: `tallytree`, unless counts of single sizes have less noise and `tallytree`
    cannot estimate them. Then it is counts, jointly with every region's total where totals are public. (Where there is
    a public prior, predicted errors decide instead: `planning.report.choose_by_prediction`.)
    """
    if mechanism == "auto":
        counts = "joint-counts" if neighbours.public_totals else "pgsr-hierarchical-dp"
        mechanism = "tallytree" if leans_to_at_least(neighbours) or estimates_counts(neighbours) else counts
    chosen = mechanism if isinstance(mechanism, Mechanism) else mechanism_named(mechanism)
    if options:
        chosen = chosen.configured(options)
    chosen.check(neighbours)
    return chosen


def prepare(
    mechanism: str | Mechanism,
    options: Mapping[str, Any] | None = None,
    *,
    neighbours: Neighbours,
    hierarchy: Hierarchy,
    totals: Integers | None,
    budget: Budget,
    shares: Shares | None = None,
    priority: str | None = None,
) -> tuple[Mechanism, Plan]:
    """Return a mechanism with all decisions made, and its plan, from public facts alone, or raise an error before
    spending.

    `priority` takes the place of shares. A mechanism that measures only leaves takes no shares, and acts as `leaves`
    asks. An ε with a δ is spent on the noise that `choose_noise` finds.
    """
    chosen = choose(mechanism, neighbours, options)
    chosen = chosen.suited_to(neighbours, hierarchy, totals)
    priority = None if chosen.leaves_only and priority == "leaves" else priority

    def plan_for(spent: Budget) -> Plan:
        return chosen.plan(hierarchy, spent, neighbours.unit, chosen.divided(hierarchy, shares, priority, spent))

    plan = choose_noise(plan_for, budget, neighbours, hierarchy)
    try:
        chosen.check(neighbours, hierarchy, plan)
    except SpecError:
        if mechanism != "auto" or options or chosen.view not in NEAREST:
            raise
        chosen = MECHANISMS[NEAREST[chosen.view]]  # measures the same and can use it
        chosen.check(neighbours, hierarchy, plan)
    check_range(neighbours, hierarchy, totals, plan)
    return chosen, plan


def instead_of(mechanism: Mechanism, measurements: Measurements) -> Iterator[Mechanism]:
    """Return the mechanisms that can estimate from another one's measurements if that one fails, the more accurate
    first.

    First come the nearest consistent counts, if one view was measured on every level, for all sizes at once. Then come
    the leaves added up, which estimates each leaf separately from any measurements of the leaves. Only the latter keeps
    totals that were measured first and public totals over all categories. A chain goes through all regions, so only its
    own mechanism can read it.
    """
    parts = [part for part in measurements.measured if part.view not in BESIDE_SIZES and not part.summed]
    views, first_stage = {part.view for part in parts}, measurements.first_stage
    found = []
    free = first_stage.totals is None and first_stage.max_size is None and measurements.listed_totals is None
    whole = all(part.sizes is None for part in parts)
    if len(views) == 1 and len(parts) == measurements.hierarchy.depth and free and whole:
        found += [MECHANISMS[name] for view, name in NEAREST.items() if view in views]
    last = [part.view for part in parts if part.level == measurements.hierarchy.depth - 1]
    if last and last[0] in LEAVES_METHOD:
        found.append(MECHANISMS["bottom-up"].configured({"method": LEAVES_METHOD[last[0]]}))
    return (one for one in found if (one.name, one.options) != (mechanism.name, mechanism.options))
