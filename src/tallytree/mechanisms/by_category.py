"""What `tallytree` does with categories that members decide: sums by `at_least`, details by counts.

One member can move a whole group from one category to another, so survival counts by category would need noise for 2 K
changes (`Neighbours.sensitivity`). The sums over all categories do not see that. So a share of the budget measures
these by `at_least`, and the rest measures counts by category. The sums are settled first, as without categories; then
counts by category are settled within them, each size by itself, from the root down (`estimate.transport`).

Numbers of groups that are public by region and not by category are kept by the same step: those by category are settled
within them first, and the rest goes by these.

Where the group decides, sums of the categories' `at_least` counts are about as good as measured ones; with many
categories (more than about ten) `all_share` may measure them besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import BudgetError, SpecError
from tallytree.domain.category_trees import over_categories, rows_of
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.allocation import fit_monotone
from tallytree.estimate.least_squares import subtree_estimates, tridiagonal_least_squares
from tallytree.estimate.transport import settled_tables
from tallytree.mechanisms.leaf_totals import noise_of
from tallytree.mechanisms.mechanism import Estimate
from tallytree.mechanisms.settings import BELIEFS, LISTS, Settings
from tallytree.mechanisms.size_bands import Leaves
from tallytree.privacy.budget import Budget
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit, View
from tallytree.privacy.plan import Plan, Question

ALL_SHARE = Fraction(3, 10)  # of the budget, for the sums over categories that members decide


def check_by_category(neighbours: Neighbours, settings: Settings, ways: Sequence[Leaves | None]) -> None:
    """Refuse options that do not go with the data's categories."""
    categories, summed = neighbours.categories, settings.all_share is not None
    if summed and not categories.columns:
        raise SpecError("all_share measures the sums over categories, and here there are none")
    first = settings.totals_share is not None or settings.lists_below is not None
    others = LISTS in ways or first or settings.entities_share is not None
    if (summed or categories.members_decide) and (others or BELIEFS in ways or settings.bands is not None):
        raise SpecError(
            "sums over categories are measured besides the details (all_share; always where members decide a "
            "category): leave out lists, beliefs, bands, totals_share, lists_below and entities_share, which do not go "
            "with that"
        )
    if neighbours.groups_listed and others:
        raise SpecError(
            "numbers of groups are public by region and not by category here: leave out lists, totals_share, "
            "lists_below and entities_share, which do not go with that"
        )


def plan_by_category(
    hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Sequence[Fraction], all_share: Fraction
) -> Plan:
    """Sums and details on every level that has a share, below the root over all categories."""
    if shares[0] != 0:
        raise BudgetError(
            f"level {hierarchy.levels[0]!r} cannot have a share of its own here: the sums of level "
            f"{hierarchy.levels[1]!r} are the same number, and have one"
        )
    if shares[-1] == 0:
        raise BudgetError("the lowest level must have a share: all other levels are sums of it")
    asked = [(level, share) for level, share in enumerate(shares) if share]
    sums = [Question("at_least", level, share * all_share, summed=True) for level, share in asked]
    view: View = "counts" if hierarchy.by.members_decide else "at_least"
    details = [Question(view, level, share * (1 - all_share)) for level, share in asked]
    return Plan(budget, unit, (*sums, *details))


def believed_sums(measurements: Measurements, at_least: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Means and variances of `at_least` counts over all categories, `[regions, sizes]`, from sums and details together.

    `at_least` are those from the sums alone. The details' counts, added up over the categories, tell the differences
    T[s] − T[s + 1]: least squares over both is a tridiagonal system for each region, and the variances are the diagonal
    of its inverse.
    """
    mean, variance = at_least
    counts, spread = (over_categories(each, measurements.hierarchy) for each in _believed_counts(measurements))
    return tridiagonal_least_squares(mean, variance, counts, spread)


def believed_details(
    measurements: Measurements, details: tuple[Floats, Floats], sums: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Means and variances of `at_least` counts by category, where their sums were measured by `at_least` besides.

    `details` and `sums` are values and the noise's variance by level, of the tree and of its regions. The mean over the
    c categories is seen by both (with variances σ²/c and τ²/c²), what categories differ by is seen by the details
    alone. These two parts of least squares do not depend on one another, so each
    goes up the tree by itself.
    """
    tree = measurements.hierarchy
    count, (values, noise), (whole, whole_noise) = len(tree.by), details, sums
    level_of = tree.regions.level_of
    mean = over_categories(values, tree) / count
    by_details, by_sums = count / noise[1:][level_of], count**2 / whole_noise[level_of]
    both = by_details + by_sums
    together = np.where(both > 0, (by_details * mean + by_sums * whole / count) / np.where(both > 0, both, 1.0), 0.0)
    level_noise = 1.0 / np.maximum(count / noise[1:] + count**2 / whole_noise, 1e-300)
    level_noise[level_noise > 1e299] = np.inf
    middle, spread = subtree_estimates(together, level_noise, tree.regions)
    rows = rows_of(tree)
    apart = values.copy()
    apart[rows] -= mean[:, np.newaxis]
    apart, left = subtree_estimates(apart, noise, tree)
    found, variance = apart, (1 - 1 / count) * left
    found[rows] += middle[:, np.newaxis]
    variance[rows] += spread[:, np.newaxis]
    found[0], variance[0] = count * middle[0], count**2 * spread[0]
    return found, variance


def settled_by_category(measurements: Measurements, over: Estimate) -> Estimate:
    """Counts by category within settled sums `over` all categories."""
    counts = settled_tables(*_believed_counts(measurements), measurements.hierarchy, over.counts)
    told = "; within these each size by category, the nearest whole numbers with both sums"
    return Estimate(counts, f"over all categories {over.certificate}{told}")


def _believed_counts(measurements: Measurements) -> tuple[Floats, Floats]:
    """Means and variances of counts by category, `[rows of the tree, sizes]`, from the details."""
    return subtree_estimates(*_measured_counts(measurements), measurements.hierarchy)


def _measured_counts(measurements: Measurements) -> tuple[Floats, Floats]:
    tree = measurements.hierarchy
    columns = measurements.columns("counts")
    values, noise = np.zeros((len(tree), columns)), np.full((tree.depth, columns), np.inf)
    for part in measurements.measured:
        if part.view == "counts" and not part.summed:
            values[tree.level_slice(part.level)] = part.values
            noise[part.level] = noise_of(part)
    return values, noise


def listed_by_category(mean: Floats, variance: Floats, tree: Hierarchy, listed: Integers) -> Integers:
    """Numbers of groups by region and category within public ones by region: each group has size 1 at least.

    They are settled before all else. A row that falls with the size tells more of its first number than that number by
    itself: where all groups of a category are large, the first few of its numbers are the same.
    """
    rows = fit_monotone(mean, np.sqrt(variance), None)
    return settled_tables(rows[:, :1], variance[:, :1], tree, listed[:, np.newaxis])[:, 0]


def root_over_all(mean: Floats, deviation: Floats, tree: Hierarchy, totals: Integers | None) -> Floats:
    """What the root over all categories is settled near, where it was not measured itself.

    The sum of its categories' rows, each made to fall with the size and to stay above 0, has less noise than the sum of
    the rows as they are, and more bias: each row that is cut off at 0 adds to it, so the more the more categories there
    are. Their sum, made to fall, has the least bias. Of it goes ½ − 1/c into the mean of the two. (On three sets of
    microdata with 2, 5 and 10 categories that was the better of the two or better than both.)
    """
    top, whole = slice(1, 1 + len(tree.by)), slice(0, 1)
    parts, sums = (
        fit_monotone(mean[rows], deviation[rows], None if totals is None else totals[rows]) for rows in (top, whole)
    )
    part = 0.5 - 1 / len(tree.by)
    found: Floats = part * sums[0] + (1 - part) * parts.sum(axis=0)
    return found
