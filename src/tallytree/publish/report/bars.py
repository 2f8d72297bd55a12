"""Rows of a table with a bar in each: the chart and the table behind it are one.

A bar is drawn in an SVG that is 1,000 wide whatever the screen, so places are whole numbers from 0 to 1,000.
"""

from __future__ import annotations

from dataclasses import dataclass

WIDE = 1000

Ends = tuple[float, float]


@dataclass(frozen=True)
class Bar:
    """Where a bar ends, and the error bar on it."""

    to: int
    ends: tuple[int, int] | None = None  # of the recommended interval


def bar(value: float, most: float, ends: Ends | None = None) -> Bar:
    """A bar of a value on an axis from 0 to `most`."""

    def place(number: float) -> int:
        return 0 if most <= 0 else round(WIDE * min(max(number / most, 0.0), 1.0))

    return Bar(place(value), None if ends is None else (place(ends[0]), place(ends[1])))
