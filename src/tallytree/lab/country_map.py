"""A map of the made-up country: GeoJSON with an area for each county, counties of a state side by side.

An oval is cut in two by a slanted line, each part again, and so on, so that every area has about the size that is due
to its number of counties. Convex areas stay convex, and there is no gap between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tallytree.core.arrays import Floats

CENTRE, REACH = (8.0, 47.0), (3.0, 1.6)  # in degrees; the place is made up
SLANT = 0.35  # of a cut, in radians


def country_map(counties: Sequence[str], *, seed: int = 2010) -> dict[str, Any]:
    """GeoJSON of the counties, whose codes are the property `county`; neighbours in the list are neighbours."""
    rng = np.random.default_rng(seed)
    around = np.linspace(0, 2 * math.pi, 40, endpoint=False)
    coast = 1 + 0.06 * np.sin(3 * around + 1) + 0.03 * np.sin(2 * around)  # small enough to leave it convex
    oval = np.column_stack(
        [CENTRE[0] + REACH[0] * coast * np.cos(around), CENTRE[1] + REACH[1] * coast * np.sin(around)]
    )
    areas: list[tuple[str, Floats]] = []
    _cut(oval, list(counties), rng, areas)
    return {
        "type": "FeatureCollection",
        "features": [
            {
                "type": "Feature",
                "properties": {"county": code},
                "geometry": {"type": "Polygon", "coordinates": [np.round([*ring, ring[0]], 4).tolist()]},
            }
            for code, ring in areas
        ],
    }


def _cut(ring: Floats, codes: list[str], rng: np.random.Generator, areas: list[tuple[str, Floats]]) -> None:
    """Give each code its part of an area, in their order."""
    if len(codes) == 1:
        areas.append((codes[0], ring))
        return
    first = len(codes) // 2
    spread = (ring - ring.mean(axis=0)) * [math.cos(math.radians(CENTRE[1])), 1]
    axis = np.linalg.svd(spread, full_matrices=False)[2][0]  # the long way
    angle = math.atan2(axis[1], axis[0]) + rng.uniform(-SLANT, SLANT)
    normal = np.array([math.cos(angle), math.sin(angle)])
    normal = normal if normal[0] + 0.3 * normal[1] > 0 else -normal
    reach = ring @ normal
    low, high, whole = float(reach.min()), float(reach.max()), _area(ring)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _area(_half(ring, normal, middle)) < whole * first / len(codes) else (low, middle)
    _cut(_half(ring, normal, low), codes[:first], rng, areas)
    _cut(_half(ring, -normal, -low), codes[first:], rng, areas)


def _half(ring: Floats, normal: Floats, limit: float) -> Floats:
    """The part of a convex ring where normal · point ≤ limit."""
    kept: list[Floats] = []
    reach = ring @ normal - limit
    for place, point in enumerate(ring):
        after = (place + 1) % len(ring)
        if reach[place] <= 0:
            kept.append(point)
        if (reach[place] < 0 < reach[after]) or (reach[after] < 0 < reach[place]):
            part = reach[place] / (reach[place] - reach[after])
            kept.append(point + part * (ring[after] - point))
    return np.array(kept) if kept else np.zeros((0, 2))


def _area(ring: Floats) -> float:
    if len(ring) < 3:
        return 0.0
    x, y = ring.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2
