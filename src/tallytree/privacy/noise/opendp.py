"""The two noise functions of `tallytree.privacy.noise.draws`, drawn by OpenDP: slower, and written by other people.

Choose it with `noise = "opendp"`; the tests use it as the independent reference. OpenDP takes a float as its scale and
draws exactly for that float, so a scale that is no float is rounded up to the next one: never less noise than asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.errors import SpecError
from tallytree.core.kernels import blocks, in_threads
from tallytree.privacy.noise.draws import checked_scale, checked_size, checked_variance

BLOCK = 1 << 14


def usable_scale(scale: Fraction | int | str) -> Fraction:
    """The smallest float at or above `scale`: what `discrete_laplace` here really uses.

    >>> usable_scale(30), usable_scale("1/3") - Fraction(1, 3)
    (Fraction(30, 1), Fraction(1, 27021597764222976))
    """
    exact = checked_scale(scale)
    nearest = float(exact)
    return Fraction(nearest if nearest >= exact else math.nextafter(nearest, math.inf))


def usable_variance(variance: Fraction | int | str) -> Fraction:
    """The square of the smallest float whose square is at least `variance`: what `discrete_gaussian` really uses.

    >>> usable_variance(900), float(usable_variance(2))
    (Fraction(900, 1), 2.0000000000000004)
    """
    exact = checked_variance(variance)
    deviation = math.sqrt(exact)
    while Fraction(deviation) ** 2 >= exact:
        deviation = math.nextafter(deviation, 0)
    while Fraction(deviation) ** 2 < exact:
        deviation = math.nextafter(deviation, math.inf)
    return Fraction(deviation) ** 2


def discrete_laplace(scale: Fraction | int | str, size: int) -> NDArray[np.int64]:
    """`size` draws with P(x) ∝ exp(−|x| / usable_scale(scale))."""
    usable, count = float(usable_scale(scale)), checked_size(size)
    dp = library()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    return _draw(dp.m.make_laplace(*space, scale=usable), count)


def discrete_gaussian(variance: Fraction | int | str, size: int) -> NDArray[np.int64]:
    """`size` draws with P(x) ∝ exp(−x² / (2 usable_variance(variance)))."""
    usable, count = math.sqrt(usable_variance(variance)), checked_size(size)
    dp = library()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return _draw(dp.m.make_gaussian(*space, scale=usable), count)


def library() -> Any:
    """OpenDP, imported when first needed; its samplers are among the features it asks to have enabled."""
    try:
        import opendp.prelude as dp
    except ModuleNotFoundError:
        raise SpecError(
            "noise = 'opendp' needs OpenDP, which is not installed: pip install 'tallytree[opendp]', or leave noise "
            "out. Nothing was spent."
        ) from None
    dp.enable_features("contrib")
    return dp


def _draw(measurement: Callable[[list[int]], list[int]], count: int) -> NDArray[np.int64]:
    """OpenDP's measurement of `count` zeros."""
    noise = np.empty(count, np.int64)

    def fill(start: int, stop: int) -> None:
        noise[start:stop] = measurement([0] * (stop - start))

    in_threads(fill, blocks(count, BLOCK))
    return noise
