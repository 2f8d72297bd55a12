"""What estimators read from measurements besides a view."""

from __future__ import annotations

from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import View

LEAST_VARIANCE = 1e-300


def grand_total(measurements: Measurements) -> int | None:
    """The public number of groups in all, where there is one."""
    return None if measurements.region_totals is None else int(measurements.region_totals[0])


def precisions(measurements: Measurements, view: View) -> list[float] | None:
    """The levels' weights: the inverse of the noise's exact variance; None where all are equal."""
    # Next to no noise has a variance that no float can tell from zero.
    variances = [max(variance, LEAST_VARIANCE) for variance in measurements.variances(view)]
    return None if len(set(variances)) == 1 else [1 / variance for variance in variances]
