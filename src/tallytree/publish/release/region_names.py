"""Regions as people name them, by id, name or level; and as sentences name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import numpy as np

from tallytree.errors import SpecError
from tallytree.hierarchy import Hierarchy
from tallytree.publish.release.size_range import listed

Regions = str | Iterable[str] | None

MOST_NAMES = 3  # of regions in a sentence


def named_regions(regions: Regions, hierarchy: Hierarchy) -> list[int]:
    """Indices of regions by id or, where that is unique, by name; the root for None.

    A branch that was carried down bears its name on several levels and is the same place on all of them.
    """
    if regions is None:
        return [0]
    texts = [regions] if isinstance(regions, str) else list(regions)
    if not texts:
        raise SpecError("the sum is empty: no region was given; name at least one")
    return [_named(text, hierarchy) for text in texts]


def regions_of_level(hierarchy: Hierarchy, level: str, within: Regions = None) -> list[str]:
    """The ids of all regions of a level, or of those within some regions."""
    tree = hierarchy
    if level not in tree.levels:
        near = get_close_matches(str(level), tree.levels, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(tree.levels)}"
        raise SpecError(f"there is no level {level!r}; {hint}")
    inside = np.zeros(len(tree), dtype=np.bool_)
    inside[named_regions(within, tree)] = True
    for below in range(1, tree.depth):
        rows = tree.level_slice(below)
        inside[rows] |= inside[tree.parents[rows]]
    rows = tree.level_slice(tree.levels.index(level))
    found = np.flatnonzero(inside[rows]) + rows.start
    if not len(found):
        raise SpecError(f"none of the regions of level {level!r} lies within those that were named")
    return [tree.ids[region] for region in found]


def _named(text: object, hierarchy: Hierarchy) -> int:
    """One region by id or name."""
    if not isinstance(text, str):
        raise SpecError(f"{text!r} is no region; expected an id or a name, as text")
    if text in hierarchy.index:
        return hierarchy.index[text]
    places_of: dict[str, list[int]] = {}
    for region, name in enumerate(hierarchy.names):
        if not hierarchy.carried[region]:
            places_of.setdefault(name, []).append(region)
    alike = [region for name, regions in places_of.items() if name.casefold() == text.casefold() for region in regions]
    for found in (places_of.get(text, []), alike):
        if len(found) == 1:
            return found[0]
        if found:
            some = [hierarchy.ids[region] for region in found[:6]]
            more = f" and {len(found) - 6} more" if len(found) > 6 else ""
            raise SpecError(f"{len(found)} regions are called {text!r}; say which by id: {', '.join(some)}{more}")
    words = {name.casefold(): name for name in (*hierarchy.ids, *hierarchy.names)}
    near = [words[word] for word in get_close_matches(text.casefold(), words, n=3, cutoff=0.6)]
    hint = f"did you mean {' or '.join(near)}?" if near else "regions.csv lists ids and names"
    raise SpecError(f"there is no region {text!r}; {hint}")


def union_of(regions: Iterable[int], hierarchy: Hierarchy) -> tuple[int, ...]:
    """The regions without those that lie within another of them."""
    named, kept = set(regions), []
    for region in sorted(named):
        above = int(hierarchy.parents[region])
        while above >= 0 and above not in named:
            above = int(hierarchy.parents[above])
        if above < 0:
            kept.append(region)
    return tuple(kept)


def places(regions: Sequence[int], hierarchy: Hierarchy) -> str:
    """Regions for a sentence: names, with ids where those say more."""
    texts = []
    for region in regions[:MOST_NAMES]:
        name, identity = hierarchy.names[region], hierarchy.ids[region]
        texts.append(identity if identity.endswith(name) else f"{name} ({identity})")
    if len(regions) > MOST_NAMES:
        return f"{len(regions):,} regions ({', '.join(texts)}, …)"
    return listed(texts)
