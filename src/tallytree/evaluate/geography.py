"""A made-up nation → states → counties for the data sets made in code, and the weights of its counties.

Recipe: 52 states share 3,144 counties in uneven numbers; a county's weight is log-normal (1.2 within its state, 0.6
for the state as a whole, together about the spread of housing units over real counties).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.errors import SpecError
from tallytree.hierarchy import Hierarchy

STATES, COUNTIES = 52, 3144
FEWEST_COUNTIES = 24


@dataclass(frozen=True, eq=False)
class Geography:
    """The tree, the state (from 0) of each county, and each county's share of the whole."""

    hierarchy: Hierarchy
    state_of: Integers
    weights: Floats


def checked_scale(scale: float) -> float:
    """A scale is a positive, finite number; 1 is the size of the data set described."""
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < float("inf"):
        raise SpecError(f"scale must be a positive number, not {scale!r}; 1 is full size, 0.01 a hundredth")
    return float(scale)


def checked_size(max_size: int, least: int = 1) -> int:
    """A largest size is a whole number from `least` on."""
    if isinstance(max_size, bool) or not isinstance(max_size, int | np.integer) or max_size < least:
        raise SpecError(f"max_size must be a whole number from {least} on, not {max_size!r}")
    return int(max_size)


def region_counts(scale: float) -> tuple[int, int]:
    """How many states and counties at a scale: counties shrink with it, states with its cube root.

    So counties keep their true sizes, and noise its true weight against them, in a quick experiment. Below 24 counties
    (scale 0.0075) the counties themselves become smaller; above scale 1 they become larger.
    """
    counties = min(COUNTIES, max(FEWEST_COUNTIES, round(COUNTIES * scale)))
    return min(STATES, max(10, ceil(STATES * scale ** (1 / 3)))), counties


def geography(scale: float, rng: np.random.Generator) -> Geography:
    """A nation of `region_counts(scale)`; region codes are text such as 07 and 07013."""
    states, counties = region_counts(checked_scale(scale))
    extra = rng.multinomial(counties - states, rng.dirichlet(np.full(states, 2.0)))
    state_of = np.repeat(np.arange(states), 1 + extra)
    number = 1 + np.arange(counties) - np.searchsorted(state_of, state_of)
    weights = np.exp(rng.normal(0, 0.6, states)[state_of] + rng.normal(0, 1.2, counties))
    state = [f"{code + 1:02d}" for code in state_of]
    county = [f"{above}{below:03d}" for above, below in zip(state, number, strict=True)]
    columns = {"nation": ["nation"] * counties, "state": state, "county": county}
    hierarchy = Hierarchy.from_levels(columns, ["nation", "state", "county"])
    return Geography(hierarchy, state_of, weights / weights.sum())


def with_size_zero(counts: Integers, public_totals: bool) -> Integers:
    """Counts of sizes 1 … K with an empty cell for size 0 in front where totals are public."""
    return np.pad(counts, ((0, 0), (1, 0))) if public_totals else counts
