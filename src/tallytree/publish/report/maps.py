"""Read a map from the user's GeoJSON: outlines of regions, simplified and scaled to a drawing.

Features are matched with regions by the property (or the feature's id) whose values include the most ids or names of
one level. Longitudes and latitudes are drawn directly, with degrees of longitude shortened as in the middle of the map.
Other coordinates are drawn as a plane.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import visible
from tallytree.core.numbers import short
from tallytree.domain.hierarchy import Hierarchy

WIDTH = 1000  # of the drawing
TALLEST = 1400
THINNING = 0.8  # a point that is nearer than this to the line between its neighbours is left out
LARGEST = 256 << 20  # bytes of a file
MOST_POINTS = 20_000_000


@dataclass(frozen=True)
class Outline:
    """A region and the path of its outline, in the drawing's coordinates."""

    region: int
    path: str


@dataclass(frozen=True)
class Map:
    """Outlines of regions of one level."""

    level: int
    height: int
    outlines: tuple[Outline, ...]
    unmatched: int  # areas of the file that match no region
    without: int  # regions of the level that the file has no area for


def read_map(source: str | PathLike[str] | Mapping[str, Any], tree: Hierarchy) -> Map:
    """Read the map from a GeoJSON file, or from its content in Python; a SpecError says what is wrong with it."""
    features = _features(source)
    level, regions = _matched(features, tree)
    rings: dict[int, list[Floats]] = {}
    for feature, region in zip(features, regions, strict=True):
        if region is not None:
            rings.setdefault(region, []).extend(_rings(feature.get("geometry")))
    rings = {region: found for region, found in rings.items() if found}
    if not rings:
        raise SpecError("the map's areas have no outlines: expected geometries that are Polygon or MultiPolygon")
    if sum(len(ring) for found in rings.values() for ring in found) > MOST_POINTS:
        raise SpecError(f"the map has more than {MOST_POINTS:,} points: simplify it first")
    height, placed = _scaled(rings)
    outlines = tuple(Outline(region, path) for region in sorted(placed) if (path := _path(placed[region])))
    rows = tree.level_slice(level)
    return Map(level, height, outlines, regions.count(None), rows.stop - rows.start - len(outlines))


# -------------------------------------------------------------------- reading


def _features(source: str | PathLike[str] | Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content: Any = source
    if isinstance(source, str | PathLike):
        path = Path(source)
        if not path.is_file():
            raise SpecError(f"there is no map at {path}")
        if path.stat().st_size > LARGEST:
            raise SpecError(f"the map {path} is larger than {LARGEST >> 20} MB: simplify it first")
        try:
            content = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            raise SpecError(f"the map {path} is not valid JSON; expected a GeoJSON file") from None
    if not isinstance(content, Mapping) or content.get("type") != "FeatureCollection":
        raise SpecError(
            "the map is not a GeoJSON FeatureCollection; expected one whose features are the regions' areas"
        )
    features = content.get("features")
    if not isinstance(features, list) or not features or not all(isinstance(each, Mapping) for each in features):
        raise SpecError("the map has no features; expected one for each region")
    return features


def _matched(features: Sequence[Mapping[str, Any]], tree: Hierarchy) -> tuple[int, list[int | None]]:
    """Return the level of the map, and each feature's region."""
    known: dict[str, list[tuple[int, int, int]]] = {}  # level, 0 for ids and -1 for names, and region, by text
    for level in range(tree.depth):
        rows = range(*tree.level_slice(level).indices(len(tree)))
        for kind, names in ((0, tree.ids), (-1, tree.names)):
            for text, row in _unique({}, ((names[row], row) for row in rows)).items():
                known.setdefault(text, []).append((level, kind, row))
    columns: list[str | None] = [None, *_property_names(features)]  # None is a feature's id
    places = {name: place for place, name in enumerate(columns)}
    found: dict[tuple[int, int, int], set[int]] = {}
    for feature in features:  # once: there may be thousands of properties
        for name, value in chain([(None, feature.get("id"))], _properties(feature).items()):
            for level, kind, row in known.get(_text(value) or "", ()):
                if name in places:
                    found.setdefault((level, kind, -places[name]), set()).add(row)
    number, (level, kind, place) = max(((len(rows), key) for key, rows in found.items()), default=(0, (0, 0, 0)))
    if not number:
        one = next((name for name in _property_names(features)), None)
        seen = "" if one is None else f"; its property {visible(one)} is {_example(features, one)}, for example"
        raise SpecError(
            "no area of the map matches a region: a property of its features (or their id) should hold the ids or "
            f"names in regions.csv, such as {tree.ids[-1]!r}{seen}"
        )
    of_text = {text: row for text, all_of in known.items() for at, of, row in all_of if (at, of) == (level, kind)}
    column = columns[-place]
    values = (each.get("id") if column is None else _properties(each).get(column) for each in features)
    return level, [of_text.get(_text(value) or "") for value in values]


def _unique(known: dict[str, int], pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the names that belong to only one region."""
    twice = set()
    for name, row in pairs:
        if name in known:
            twice.add(name)
        known[name] = row
    return {name: row for name, row in known.items() if name not in twice}


def _property_names(features: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for each in features[:50] for name in _properties(each)))


def _properties(feature: Mapping[str, Any]) -> Mapping[str, Any]:
    found = feature.get("properties")
    return found if isinstance(found, Mapping) else {}


def _example(features: Sequence[Mapping[str, Any]], name: str) -> str:
    return short(next((value for each in features if (value := _properties(each).get(name)) is not None), None))


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _rings(geometry: Any) -> Iterator[Floats]:
    """Return the rings of a geometry; empty if it is not an area."""
    if not isinstance(geometry, Mapping):
        return
    kind = geometry.get("type")
    found: Any = geometry.get("coordinates")
    polygons = [found] if kind == "Polygon" else found if kind == "MultiPolygon" else []
    try:
        for polygon in polygons:
            for ring in polygon:
                points = np.array([(float(point[0]), float(point[1])) for point in ring], np.float64)
                if not np.isfinite(points).all():
                    raise ValueError
                if len(points) >= 3:
                    yield points
    except (TypeError, ValueError, LookupError):
        raise SpecError("an area of the map has coordinates that are not pairs of numbers") from None


# -------------------------------------------------------------------- drawing


def _scaled(rings: dict[int, list[Floats]]) -> tuple[int, dict[int, list[Floats]]]:
    """Return the drawing's height, and all rings in its coordinates, north at the top."""
    points = np.concatenate([ring for found in rings.values() for ring in found])
    (left, bottom), (right, top) = points.min(axis=0), points.max(axis=0)
    on_a_globe = abs(points[:, 0]).max() <= 180 and abs(points[:, 1]).max() <= 90
    narrower = math.cos(math.radians((bottom + top) / 2)) if on_a_globe else 1.0
    across, up = max((right - left) * narrower, 1e-9), max(top - bottom, 1e-9)
    scale = min(WIDTH / across, TALLEST / up)

    def place(ring: Floats) -> Floats:
        found: Floats = np.column_stack([(ring[:, 0] - left) * narrower * scale, (top - ring[:, 1]) * scale])
        return found

    height = max(1, math.ceil(up * scale))
    return height, {region: [place(ring) for ring in found] for region, found in rings.items()}


def _path(rings: list[Floats]) -> str:
    """Return rings as an SVG path with integer coordinates; invisibly small rings are left out unless all are small."""
    thinned = [np.rint(_thinned(ring)).astype(np.int64) for ring in rings]
    drawn = [ring for ring in thinned if len(np.unique(ring, axis=0)) >= 3]
    if not drawn:  # an area smaller than a point becomes a small square
        x, y = thinned[0][0].tolist()
        return f"M{x} {y}h2v2h-2z"
    return "".join(_ring_path(ring) for ring in drawn)


def _ring_path(ring: Integers) -> str:
    steps = np.diff(ring, axis=0)
    steps = steps[(steps != 0).any(axis=1)]
    return f"M{ring[0, 0]} {ring[0, 1]}l{' '.join(f'{x} {y}' for x, y in steps.tolist())}z"


def _thinned(ring: Floats) -> Floats:
    """Simplify a line with the algorithm of Ramer, Douglas and Peucker: keep the points needed to stay close to it."""
    kept = np.zeros(len(ring), bool)
    middle = int(np.argmax(((ring - ring[0]) ** 2).sum(axis=1)))  # a ring has no ends, so it is cut in two
    kept[[0, middle, len(ring) - 1]] = True
    open_parts = [(0, middle), (middle, len(ring) - 1)]
    while open_parts:
        start, end = open_parts.pop()
        if end - start < 2:
            continue
        between, line = ring[start + 1 : end] - ring[start], ring[end] - ring[start]
        length = float(line @ line)
        part = np.clip(between @ line / length, 0, 1) if length else np.zeros(len(between))
        away = np.hypot(*(between - part[:, None] * line).T)
        far = int(np.argmax(away))
        if away[far] > THINNING:
            kept[start + 1 + far] = True
            open_parts += [(start, start + 1 + far), (start + 1 + far, end)]
    found: Floats = ring[kept]
    return found
