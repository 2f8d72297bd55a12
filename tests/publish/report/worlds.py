"""Small releases that the tests of pages share."""

from __future__ import annotations

import numpy as np

import tallytree as tt
from tallytree.tables import GroupSizes, Sealed

ATTACK = '<img src=x onerror="document.title=1">'
SCRIPT = '</script><script>document.title="2"</script>'
NAMES = ["Nord", ATTACK, "Süd \u202egnp.exe", SCRIPT, '=1+1"quoted"', "Ω & Sons"]


def released(
    names: list[str] | None = None, *, public_totals: bool = False, sizes: int = 6, scale: int = 200, by=None, **how
) -> tt.Release:
    """Two states with three counties each, and sizes that differ between them."""
    names = names or [f"county {number}" for number in range(6)]
    tree = tt.Hierarchy.from_levels({"state": ["West"] * 3 + ["East"] * 3, "county": names}, ["state", "county"])
    rng = np.random.default_rng(3)
    shape = 0.7 ** np.arange(sizes)
    counts = rng.poisson(scale * shape, (6, sizes))
    counts[5, 0] = 3 * scale
    if public_totals:
        counts = np.pad(counts, ((0, 0), (1, 0)))
    totals = counts.sum(axis=1) if public_totals else None
    if by is not None:
        tree, counts = tree.by_category(by), np.concatenate([counts, *[counts // 2] * (len(by) - 1)])
    private = GroupSizes(tree, sizes, Sealed(counts), leaf_totals=totals)
    how = {"title": "Homes by size", **how}
    return tt.release(private, budget=tt.Budget(epsilon=2), unit=tt.one_entity(), **how)


def squares(release: tt.Release) -> dict:
    """GeoJSON with a square for each county."""
    tree = release.hierarchy.regions
    rows = tree.level_slice(tree.depth - 1)
    return {
        "type": "FeatureCollection",
        "features": [
            {
                "type": "Feature",
                "properties": {"what": "square", "code": tree.ids[row]},
                "geometry": {
                    "type": "Polygon",
                    "coordinates": [[[x, 0], [x + 1, 0], [x + 1, 1], [x, 1], [x, 0]]],
                },
            }
            for x, row in enumerate(range(rows.start, rows.stop))
        ],
    }
