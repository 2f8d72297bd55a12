"""Check the input and output of estimators in one place: tables of integers, totals, weights of levels.

Every refusal is a SpecError that says what was found and what was expected. Integer arrays come back contiguous, 64
bits wide and read-only, so that kernels are compiled for one kind of array.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm
from numbers import Rational
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.domain.hierarchy import Hierarchy

Weights: TypeAlias = Sequence[Any] | None  # a positive number per level, from the root down; None if all are equal

SUM_LIMIT = 1 << 61  # sums and costs stay below this, so that the sum of any two fits int64
WEIGHT_BITS = 20


def integer_table(given: Any, rows: int | None = None, sizes: int | None = None, *, name: str = "noisy") -> Integers:
    """Return a table `[regions, sizes]`, with the given numbers of rows and sizes if they are known."""
    table = np.asarray(given)
    fits = table.ndim == 2 and rows in (None, table.shape[0]) and sizes in (None, table.shape[1])
    shape = f"({'regions' if rows is None else rows}, {'sizes' if sizes is None else sizes})"
    return _integers(table, name, fits, f"{shape}, one row per region")


def row_totals(given: Any, rows: int, *, name: str = "totals") -> Integers:
    """Return a non-negative integer for each row."""
    totals = np.asarray(given)
    checked = _integers(totals, name, totals.shape == (rows,), f"({rows},), one per region")
    if checked.min(initial=0) < 0:
        raise SpecError(f"{name} holds {checked.min()}; expected 0 or more")
    return checked


def check_adding_up(totals: Integers, hierarchy: Hierarchy) -> None:
    """Refuse totals of regions that are not the sums of their children's."""
    sums = np.zeros_like(totals)
    np.add.at(sums, hierarchy.parents[1:], totals[1:])
    inner = slice(0, hierarchy.level_starts[-2])
    if (wrong := np.flatnonzero(sums[inner] != totals[inner])).size:
        region = int(wrong[0])
        raise SpecError(
            f"the total of {hierarchy.ids[region]!r} is {totals[region]:,} but its children's add up to "
            f"{sums[region]:,} ({wrong.size} regions do not add up); give totals that do"
        )


def check_estimate(given: Any, hierarchy: Hierarchy, sizes: int, totals: Integers | None = None) -> None:
    """Refuse counts that may not be released: not integers, negative, not adding up, or with other totals.

    `totals` holds the known numbers of groups of the first rows: of all regions, or of the root.
    """
    counts = integer_table(given, len(hierarchy), sizes, name="the estimate")
    if counts.min(initial=0) < 0:
        raise SpecError("the estimate has negative counts")
    check_sums(counts, max(sizes, int(np.diff(hierarchy.child_starts).max(initial=0))))
    parents = hierarchy.level_starts[-2]
    if parents and not np.array_equal(np.add.reduceat(counts, hierarchy.child_starts[:parents]), counts[:parents]):
        raise SpecError("the estimate does not add up over the regions")
    if totals is not None and not np.array_equal(counts[: len(totals)].sum(axis=1), totals):
        raise SpecError("the estimate does not keep the known totals")


def fixed_total(total: Any, sizes: int) -> int | None:
    """Return the root's total, if given: a non-negative integer that some size can hold."""
    if total is None:
        return None
    if isinstance(total, bool | np.bool_) or not isinstance(total, int | np.integer):
        raise SpecError(f"total is {total!r}; expected an integer or None")
    if total < 0:
        raise SpecError(f"total is {total}; no non-negative counts add up to less than zero")
    if sizes == 0:
        raise SpecError("a total was given but there are no sizes to hold it; expected at least one column")
    return int(total)


def magnitude(values: NDArray[Any]) -> int:
    """Return the largest |value|, or 0 for an empty array."""
    return max(int(values.max(initial=0)), -int(values.min(initial=0)))


def check_sums(values: NDArray[Any], terms: int, more: int = 0) -> None:
    """Refuse values if the sum of `terms` of them, with `more`, could reach SUM_LIMIT."""
    if terms * magnitude(values) + more >= SUM_LIMIT:
        raise SpecError(f"sums of {terms:,} values this large would overflow 64-bit integers; use smaller values")


def level_weights(weights: Weights, levels: int) -> list[Fraction]:
    """Return one positive number per level, exactly as given."""
    given = [1] * levels if weights is None else list(weights)
    if len(given) != levels:
        raise SpecError(f"{len(given)} weights for {levels} levels; expected one per level, from the root down")
    return [_exact(weight) for weight in given]


def integer_weights(weights: Weights, levels: int, bits: int = WEIGHT_BITS) -> list[int]:
    """Return weights as integers of at most `bits` bits in the same ratios, or in the nearest ones."""
    exact = level_weights(weights, levels)
    shared = lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * shared) for weight in exact]
    divisor = gcd(*whole)
    whole = [weight // divisor for weight in whole]
    if max(whole) <= 1 << bits:
        return whole
    unit = Fraction(max(whole), (1 << bits) - 1)
    return [max(1, round(weight / unit)) for weight in whole]


def _exact(weight: Any) -> Fraction:
    numbers = Rational | float | np.integer | np.floating
    if isinstance(weight, bool | np.bool_) or not isinstance(weight, numbers) or not 0 < float(weight) < float("inf"):
        raise SpecError(f"one of the weights is {weight!r}; expected positive, finite numbers")
    if isinstance(weight, np.integer):
        return Fraction(int(weight))
    return Fraction(weight) if isinstance(weight, Rational) else Fraction(float(weight))


def _integers(given: NDArray[Any], name: str, fits: bool, expected: str) -> Integers:
    if not fits or not np.issubdtype(given.dtype, np.integer):
        raise SpecError(f"{name} is {given.dtype} of shape {given.shape}; expected integers of shape {expected}")
    if given.dtype == np.uint64 and given.max(initial=0) > np.iinfo(np.int64).max:
        raise SpecError(f"{name} holds values above 2⁶³ − 1; make them smaller")
    checked = np.ascontiguousarray(given, dtype=np.int64).view()
    checked.flags.writeable = False
    return checked
