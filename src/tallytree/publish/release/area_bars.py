"""Intervals of published areas: of each by itself, and with categories of each value and of the sums over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tallytree.core.arrays import Floats, Integers
from tallytree.domain.category_trees import over_categories
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.measured_view import no_guarantee
from tallytree.estimate.intervals.value import Intervals
from tallytree.privacy.measurements import Measurements
from tallytree.publish.release.areas import Area
from tallytree.publish.release.rows import TableRows
from tallytree.publish.release.scope import Scope

if TYPE_CHECKING:
    from tallytree.estimate.intervals.typical import Typical


def area_scopes(areas: Sequence[Area], tree: Hierarchy) -> list[Scope]:
    """The rows of the table of areas: of each area the sums over categories first, as regions have them."""
    return [Scope(area.regions, values, "", area.name) for area in areas for values in TableRows(tree).values]


def measured_over(measurements: Measurements, counts: Integers) -> tuple[Measurements, Integers] | None:
    """What was measured of sums over all categories and bounds them, with their released counts; None if nothing was.

    Rows of both are the regions without categories.
    """
    if measurements.hierarchy.by is None:
        return None
    over = measurements.over_categories
    if not over.measured or no_guarantee(over) is not None:
        return None
    return over, over_categories(counts, measurements.hierarchy)


def guaranteed_scopes(
    measurements: Measurements, counts: Integers, scopes: Sequence[Scope], cells: Intervals
) -> Intervals:
    """Guaranteed intervals `[scopes, sizes]`, given those of the table's single rows (the tree's first), `cells`.

    Sums over all categories are bounded by what was measured of them, if anything was.
    """
    from tallytree.estimate.intervals.guaranteed import guaranteed
    from tallytree.estimate.intervals.unions import guaranteed_unions

    tree = measurements.hierarchy
    found = guaranteed_unions(measurements, counts, [scope.rows(tree) for scope in scopes], cells)
    places = [place for place, scope in enumerate(scopes) if scope.over_all]
    if places and (known := measured_over(measurements, counts)) is not None:
        whole = guaranteed(*known, level=cells.level, simultaneous=cells.simultaneous)
        assert whole is not None  # as there is a guarantee
        sums = guaranteed_unions(*known, [scopes[place].regions for place in places], whole)
        found.lower[places], found.upper[places] = sums.lower, sums.upper
    return found


def typical_scopes(
    measurements: Measurements, scopes: Sequence[Scope], likely: Typical, deviations: Floats
) -> Intervals:
    """Typical intervals `[scopes, sizes]`, from how far their counts deviate in the replicates."""
    from tallytree.estimate.intervals.unions import typical_unions

    rows = [scope.rows(measurements.hierarchy) for scope in scopes]
    return typical_unions(measurements, rows, likely, deviations)


def as_in_the_table(found: Intervals, scopes: Sequence[Scope], rows: Intervals, tree: Hierarchy) -> Intervals:
    """The same, where an area that is one region has the intervals of the region's row (`rows`, laid out)."""
    for place, scope in enumerate(scopes):
        if (row := scope.table_row(tree)) is not None:
            found.lower[place], found.upper[place] = rows.lower[row], rows.upper[row]
    return found
