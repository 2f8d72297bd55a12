"""The checks of `verify` for a release: reproduce it from its measurements and declared settings.

The other checks do not use tallytree's estimators: privacy costs from the neighbour relation, the variance of the
noise, and non-negative counts that add up and keep the known totals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from time import perf_counter

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import BudgetError, ReleaseError
from tallytree.core.progress import Progress, in_percent
from tallytree.estimate.checks import check_adding_up, magnitude
from tallytree.estimate.intervals.interval import most_groups
from tallytree.mechanisms import Mechanism, instead_of
from tallytree.privacy.budget import NOISE_FOR
from tallytree.privacy.exact_accounting import check_accounted
from tallytree.privacy.measurements import FirstStageFacts
from tallytree.privacy.noise import variance_of
from tallytree.privacy.plan import FIRST
from tallytree.publish.about import DECLARED, About
from tallytree.publish.folder import MEASUREMENTS, MOST_FAULTS, PRIVACY
from tallytree.publish.release.areas import LEAVES
from tallytree.publish.release.error_bars import CONFIDENCE, ErrorBars, Publication, checked_which
from tallytree.publish.release.fallback import Made, check_counts
from tallytree.publish.release.files import read_areas_of, stated_fallback, stated_mechanism
from tallytree.publish.release.measurements_file import load_measurements
from tallytree.publish.release.release_run import with_error_bars
from tallytree.publish.release.release_statement import shares_by_size
from tallytree.publish.release.value import Release
from tallytree.publish.statement import Assumption, StoredFiles
from tallytree.publish.untrusted import check_room

LARGEST_VALUE = 1 << 53  # largest absolute value of a measurement: estimators compute with such numbers exactly
TYPICAL = "typical intervals, which were not computed again (typical=False)"


class ReleaseChecks(StoredFiles):
    """A release in a folder, and the same release reproduced."""

    content = "counts are non-negative integers that add up and keep the known totals"

    def __init__(self, folder: Path, progress: Progress, *, typical: bool) -> None:
        super().__init__(folder, progress)
        self.typical = typical
        self.measurements = load_measurements(folder / MEASUREMENTS)
        check_room(len(self.measurements.hierarchy) * self.measurements.columns("counts"), MEASUREMENTS)
        if any(magnitude(part.values) > LARGEST_VALUE for part in self.measurements.measured):
            raise ReleaseError(f"{MEASUREMENTS} holds numbers that are too large for noisy counts")

    @cached_property
    def mechanism(self) -> Mechanism:
        """Return the stated mechanism that estimated the counts."""
        return stated_mechanism(self.statement)

    @cached_property
    def stored(self) -> Release:
        """Return the release in the files, or the reproduced one if the files are identical."""
        return Release.load(self.folder)

    @cached_property
    def remade(self) -> Release:
        """Return the release that follows from the measurements and the declared settings."""
        statement, measurements, mechanism = self.statement, self.measurements, self.mechanism
        start = perf_counter()
        estimate = mechanism.estimated(measurements, in_percent("estimating again", self.progress))
        made = Made(measurements, estimate, mechanism, perf_counter() - start, stated_fallback(statement))
        if not self.same_software and self._is_another_optimum(estimate.counts):
            made = replace(made, estimate=replace(estimate, counts=self.stored.counts))
        intervals = statement.get("intervals", {"which": "none", "confidence": CONFIDENCE})
        which = checked_which(intervals["which"])
        known = which == "all" and not self.typical
        if not isinstance(statement["title"], str):
            raise ReleaseError(f"{PRIVACY}: the title is not a text")
        publication = Publication(
            statement["title"],
            "guaranteed" if known else which,
            intervals["confidence"],
            read_areas_of(self.folder, statement, measurements.hierarchy, measurements.columns("counts")),
            About.of(statement.get("about")),
        )
        release = with_error_bars(made, publication, self.progress)
        return replace(release, error_bars=self._with_stated_typical(release.error_bars)) if known else release

    def _is_another_optimum(self, counts: Integers) -> bool:
        """Return whether the stated counts are as close as these: there may be several optima."""
        certified = self.mechanism.certified
        if certified is None or np.array_equal(self.stored.counts, counts):
            return False
        return certified(self.measurements, self.stored.counts)

    def _with_stated_typical(self, bars: ErrorBars) -> ErrorBars:
        """Return the error bars with typical intervals as the files have them."""
        found = self.stored.error_bars
        reach = {
            what: {level: {**found.reach[what][level], **kinds} for level, kinds in levels.items()}
            for what, levels in bars.reach.items()
        }
        of = {
            what: {kind: (bars if kind == "guaranteed" else found).of[what][kind] for kind in kinds}
            for what, kinds in found.of.items()
        }
        return replace(bars, which="all", of=of, missing={**found.missing, **bars.missing}, reach=reach)

    # ---------------------------------------------------------------- independent checks

    @property
    def checks(self) -> dict[str, Callable[[], Iterator[str]]]:
        """Return the checks that do not reproduce the release, by description."""
        return {
            "the privacy costs follow from the neighbour relation and add up to the budget": self._cost_faults,
            "the noise has the stated variance": self._noise_faults,
            "the measurements are those that the mechanism plans": self._plan_faults,
        }

    def count_faults(self, *, same: bool) -> Iterator[str]:
        """Yield faults of the counts in the files; with `same` files these are the reproduced counts."""
        measurements, tree = self.measurements, self.measurements.hierarchy
        release = self.remade if same else self.stored
        check_counts(release.counts, measurements, self.mechanism)
        if measurements.region_totals is not None:
            check_adding_up(measurements.region_totals, tree)
        bars, rows = release.error_bars, release.rows
        if bars.typical is None or self.typical:
            return
        counts, limits = rows.lay_out(release.counts), most_groups(measurements)
        limits = rows.lay_out(limits) if measurements.region_totals is not None else limits[:1]
        lower, upper = bars.typical.lower, bars.typical.upper
        wrong = (lower < 0) | (lower > counts) | (upper < counts) | (upper > np.maximum(limits[:, None], counts))
        for row, size in np.argwhere(wrong)[:MOST_FAULTS]:
            yield f"{rows.where(int(row))}, size {release.sizes[size]}: the typical interval does not hold its count"

    def _cost_faults(self) -> Iterator[str]:
        measurements = self.measurements
        budget, neighbours = measurements.budget, measurements.neighbours
        for part in measurements.measured:
            name = f"the measurement of {part.view} on level {measurements.hierarchy.levels[part.level]!r}"
            _, regions = measurements.regions_of(part.level, part.summed)
            if part.sensitivity != neighbours.sensitivity(part.view, regions.stop - regions.start, summed=part.summed):
                yield f"{name} states another sensitivity than its neighbour relation gives"
            if part.noise != NOISE_FOR[budget.currency]:
                yield f"{name} has noise that does not fit a budget in {budget.currency}"
            if part.cost > part.share * budget.amount:
                yield f"{name} costs {part.cost}, more than its share of the budget, {part.share * budget.amount}"
        at_each = shares_by_size(measurements)
        if (charged := max(at_each.values(), default=0) * budget.amount) != budget.amount:
            yield f"the charges add up to {charged}, not to the budget {budget.amount}"
        try:
            check_accounted(budget, measurements.measured)
        except BudgetError as error:
            yield str(error)

    def _noise_faults(self) -> Iterator[str]:
        for part in self.measurements.measured:
            if part.variance != variance_of(part.noise, part.scale):
                yield f"the noise of {part.view} on level {part.level} does not have the stated variance"

    def _plan_faults(self) -> Iterator[str]:
        """Yield faults of the requested mechanism's plan, and of what follows from its first stage."""
        known, fallback = self.measurements, stated_fallback(self.statement)
        asked = self.mechanism if fallback is None else fallback.asked
        asked.check(known.neighbours, known.hierarchy)
        shares = None if asked.leaves_only else known.level_shares
        plan = asked.plan(known.hierarchy, known.budget, known.neighbours.unit, shares)
        branch = None if plan.branch_rule is None else known.choose_branch(plan.branch_rule)
        if branch != known.branch:
            yield f"which queries were measured after the totals does not follow from these by the rule of {asked.name}"
        if branch is not None:
            plan = plan.branch(below=branch.below)
        wanted = {(one.view, one.level, one.share, one.sizes, one.summed) for one in plan.queries}
        if wanted != {(part.view, part.level, part.share, part.sizes, part.summed) for part in known.measured}:
            yield f"{asked.name} with the options in {PRIVACY} does not plan these measurements"
        first = tuple(part for part in known.measured if part.view in FIRST)
        facts = asked.derive_facts(replace(known, measured=first, first_stage=FirstStageFacts()))
        if facts.max_size != known.first_stage.max_size or not _same(facts.totals, known.first_stage.totals):
            yield f"the totals or the largest size in {MEASUREMENTS} do not follow from what was measured of them"
        if not _same(facts.places, known.first_stage.places):
            yield f"the lengths of lists in {MEASUREMENTS} do not follow from the totals that were measured"
        instead = [(one.name, one.options) for one in instead_of(asked, known)]
        if fallback is not None and (self.mechanism.name, self.mechanism.options) not in instead:
            yield f"{PRIVACY}: {self.mechanism.name} is not a fallback for {asked.name}"

    # ---------------------------------------------------------------- assumptions

    def assumptions(self) -> Iterator[Assumption]:
        """Yield the statements that the files cannot prove."""
        yield Assumption(f"{PRIVACY}: title", "the title (the same in all files)")
        if "about" in self.statement:
            yield Assumption(f"{PRIVACY}: about", DECLARED)
        if "failed_because" in self.statement["mechanism"]:
            place = f"{PRIVACY}: mechanism.failed_because"
            yield Assumption(place, "why another mechanism than the requested one was used")
        values = "the noisy measurements are those that were drawn; all other numbers are checked to follow from them"
        yield Assumption(f"{MEASUREMENTS}: rows.value", values)
        holder = (
            "what the data holder states about the data and the run: the data fit the neighbour relation; names of "
            "regions, public totals and public facts; the source of the noise; what was charged to a ledger"
        )
        yield Assumption(f"{MEASUREMENTS}: statements of the data holder", holder)
        if "areas" in self.statement:
            yield Assumption(f"{LEAVES}: rows", "which leaves belong to which area, as the data holder states")
        if not self.typical and self.statement.get("intervals", {}).get("which") == "all":
            yield Assumption("typical_lower, typical_upper", TYPICAL)


def _same(one: Integers | None, other: Integers | None) -> bool:
    return one is other is None or (one is not None and other is not None and np.array_equal(one, other))
