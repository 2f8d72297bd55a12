"""Questions to a release as people put them: regions by name, sizes as in ">=6" or "1,2,7+", and what of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

import numpy as np

from tallytree.arguments import told
from tallytree.arrays import Integers
from tallytree.errors import SpecError
from tallytree.hierarchy import Hierarchy
from tallytree.histogram import size_label
from tallytree.names import did_you_mean
from tallytree.numbers import short
from tallytree.publish.release.areas import Area
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.region_names import RegionNames

Regions = str | Iterable[str] | Area | None
Sizes = str | int | Iterable[int] | None
Ends = tuple[float, float]
QuestionKind = Literal["sum", "share", "mean", "ratio", "difference"]

MOST_NAMES = 3  # of regions in a sentence
_COMPARED = re.compile(r"(>=|<=|>|<|=)?\s*(\d+)")
_SPANNED = re.compile(r"(\d+)\s*(?:-|–|\.\.|…|to)\s*(\d+)")
_OPEN = re.compile(r"(\d+)\s*(?:\+|or more)")
MOST_DIGITS = 18  # of a size in a question
HOW = 'write ">=6", "<=2", "3-5", "7+", "0", or several of them as in "1,2,7+"'


@dataclass(frozen=True)
class Sum:
    """Groups (or, with `entities`, their sizes) of some sizes in the union of regions, none within another."""

    regions: tuple[int, ...]
    sizes: tuple[int, ...]
    entities: bool = False

    def of(self, counts: Integers, first_size: int) -> int:
        """Its value for counts `[regions, sizes]`."""
        regions, columns = np.array(self.regions), np.array(self.sizes) - first_size
        by_size = counts[regions[:, None], columns].sum(axis=0)
        return int(by_size @ np.array(self.sizes)) if self.entities else int(by_size.sum())


@dataclass(frozen=True)
class Asked:
    """One sum, or two of them and what is to be made of them."""

    kind: QuestionKind
    one: Sum
    other: Sum | None
    words: str
    area: str = ""  # the name of the area that is asked about, if it is one

    @classmethod
    def of(
        cls,
        release: ReleaseContents,
        kind: str,
        regions: Regions,
        sizes: Sizes,
        to: Regions = None,
        to_sizes: Sizes = None,
    ) -> Asked:
        """A question in terms of a release's regions and sizes; unknown ones and empty sums are a SpecError."""
        known, tree = release.sizes, release.hierarchy
        (union, place), wanted = _union_and_place(regions, tree), sizes_in(sizes, known)
        one, area = Sum(union, wanted), regions.name if isinstance(regions, Area) else ""
        what = _groups(wanted, known, place)
        if kind == "sum":
            return cls("sum", one, None, what, area)
        if kind == "share":
            if len(wanted) == len(known):
                raise SpecError("the share of all sizes is 1 by definition; name the sizes whose share is wanted")
            text = f"share of {sizes_in_words(wanted, known)} among the groups in {place}"
            return cls("share", one, Sum(union, tuple(known)), text, area)
        if kind == "mean":
            if len(wanted) != len(known):
                raise SpecError("a mean size is over all sizes; leave the sizes out")
            return cls("mean", Sum(union, wanted, entities=True), one, f"mean size of the groups in {place}", area)
        if kind not in ("ratio", "difference"):
            raise SpecError(f"unknown question {kind!r}; there are sum, share, mean, ratio and difference")
        second_union, second_place = _union_and_place(to, tree)
        other = Sum(second_union, sizes_in(to_sizes, known))
        second = _groups(other.sizes, known, second_place)
        if kind == "ratio":
            return cls("ratio", one, other, f"ratio of {what} to {second}", area)
        return cls("difference", one, other, f"{what}, minus {second}", area)

    @property
    def cell(self) -> tuple[int, int] | None:
        """Region and size where a single cell of the table is asked for."""
        alone = self.kind == "sum" and len(self.one.regions) == len(self.one.sizes) == 1
        return (self.one.regions[0], self.one.sizes[0]) if alone else None

    def value(self, counts: Integers, first_size: int) -> float | None:
        """What counts `[regions, sizes]` answer; None where the denominator is zero."""
        one = self.one.of(counts, first_size)
        if self.other is None:
            return one
        other = self.other.of(counts, first_size)
        if self.kind == "difference":
            return one - other
        return one / other if other else None

    def bounds(self, totals: Integers | None, sizes: range) -> Ends:
        """The least and the greatest value that is possible at all; `totals` are public numbers of groups."""
        if self.kind == "share":
            return 0.0, 1.0
        if self.kind == "mean":
            return float(sizes[0]), float(sizes[-1])
        if self.kind == "ratio":
            return 0.0, math.inf
        one, other = (
            0 if each is None else math.inf if totals is None else int(totals[list(each.regions)].sum())
            for each in (self.one, self.other)
        )
        return -other, one


def _groups(sizes: Sequence[int], known: range, place: str) -> str:
    words = sizes_in_words(sizes, known)
    return f"groups of {words} in {place}" if words else f"groups in {place}"


# -------------------------------------------------------------------- regions


def _union_and_place(regions: Regions, hierarchy: Hierarchy) -> tuple[tuple[int, ...], str]:
    """The union that regions or an area stand for, and what to call it in a sentence."""
    if isinstance(regions, Area):
        return regions.regions, f"the area {regions.name}"
    union = union_of(named_regions(regions, hierarchy), hierarchy)
    return union, places(union, hierarchy)


def named_regions(regions: Regions, hierarchy: Hierarchy) -> list[int]:
    """Indices of regions by id or, where that is unique, by name; the root for None.

    A branch that was carried down bears its name on several levels and is the same place on all of them.
    """
    if regions is None:
        return [0]
    if isinstance(regions, Area):
        return list(regions.regions)
    if not isinstance(regions, Iterable):
        raise SpecError(f"{told(regions)} is not a region; expected an id or a name, as text, or several of them")
    texts = [regions] if isinstance(regions, str) else list(regions)
    if not texts:
        raise SpecError("the sum is empty: no region was given; name at least one")
    names = RegionNames(hierarchy)
    return [names.find(text) for text in texts]


def regions_of_level(hierarchy: Hierarchy, level: str, within: Regions = None) -> list[str]:
    """The ids of all regions of a level, or of those within some regions."""
    if level not in hierarchy.levels:
        raise SpecError(f"there is no level {told(level)}; {did_you_mean(level, hierarchy.levels)}")
    inside = np.zeros(len(hierarchy), dtype=np.bool_)
    inside[named_regions(within, hierarchy)] = True
    for below in range(1, hierarchy.depth):
        rows = hierarchy.level_slice(below)
        inside[rows] |= inside[hierarchy.parents[rows]]
    rows = hierarchy.level_slice(hierarchy.levels.index(level))
    found = np.flatnonzero(inside[rows]) + rows.start
    if not len(found):
        raise SpecError(f"none of the regions of level {level!r} lies within those that were named")
    return [hierarchy.ids[region] for region in found]


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


# -------------------------------------------------------------------- sizes


def sizes_in(text: Sizes, known: range) -> tuple[int, ...]:
    """The sizes that a text or a list of numbers names, ascending; None names all.

    `known` are the sizes that a release counts, the last of which stands for all larger ones too: so sizes beyond it
    cannot be distinguished, and a range that reaches beyond it is refused. An empty choice is refused too.

    >>> sizes_in("1,3-4,6+", range(1, 8)), sizes_in("< 3", range(0, 8)), sizes_in(7, range(1, 8))
    ((1, 3, 4, 6, 7), (0, 1, 2), (7,))
    """
    if text is None:
        return tuple(known)
    if isinstance(text, str):
        if any(len(digits) > MOST_DIGITS for digits in re.findall(r"\d+", text)):
            raise SpecError(f"a size has more than {MOST_DIGITS} digits; this release counts the sizes {_known(known)}")
        parts = [part.strip() for part in text.replace("≥", ">=").replace("≤", "<=").split(",")]
        found = {size for part in parts for size in _part(part, text, known)}
    else:
        given = [text] if isinstance(text, Integral) and not isinstance(text, bool) else text
        if not isinstance(given, Iterable):
            raise SpecError(f"{told(text)} is not a size; {HOW}")
        found = set()
        for size in given:
            if isinstance(size, bool) or not isinstance(size, Integral):
                raise SpecError(f"{told(size)} is not a size; expected a whole number")
            found.add(int(size))
    if not found:
        raise SpecError(f"the sum is empty: {_quoted(text)} holds none of the sizes {_known(known)}")
    for size in sorted(found):
        _check(size, known)
    return tuple(sorted(found))


def sizes_in_words(sizes: Sequence[int], known: range) -> str:
    """Sizes for a sentence; nothing where they are all.

    >>> sizes_in_words([1, 2, 3, 6], range(0, 7)), sizes_in_words([4], range(1, 7))
    ('sizes 1 to 3 and 6 or more', 'size 4')
    """
    if len(sizes) == len(known):
        return ""
    last = known[-1]
    runs: list[list[int]] = []
    for size in sizes:
        if runs and size == runs[-1][-1] + 1:
            runs[-1].append(size)
        else:
            runs.append([size])
    texts = []
    for run in runs:
        if run[-1] == last:
            texts.append(f"{run[0]} or more")
        elif len(run) == 1:
            texts.append(size_label(run[0], last))
        else:
            texts.append(f"{run[0]} to {run[-1]}")
    alone = len(runs) == 1 and (len(runs[0]) == 1 or runs[0][-1] == last)
    return f"{'size' if alone else 'sizes'} {listed(texts)}"


def listed(texts: Sequence[str]) -> str:
    """a, b and c.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def _part(part: str, text: str, known: range) -> range:
    """One part of a list of sizes."""
    if found := _OPEN.fullmatch(part):
        return _from(int(found[1]), known)
    if found := _SPANNED.fullmatch(part):
        for size in (int(found[1]), int(found[2])):
            _check(size, known)
        return range(int(found[1]), int(found[2]) + 1)
    if not (found := _COMPARED.fullmatch(part)):
        raise SpecError(f"{short(text)} does not name sizes that can be read; {HOW}")
    sign, size = found[1], int(found[2])
    if sign == ">=":
        return _from(size, known)
    if sign == ">":
        return _from(size + 1, known)
    if sign in ("<", "<="):
        stop = size + (sign == "<=")
        if stop > known.start:
            _check(stop - 1, known)
        return range(known.start, stop)
    _check(size, known)
    return range(size, size + 1)


def _from(size: int, known: range) -> range:
    if size > known[-1]:
        _check(size, known)
    return range(max(size, known.start), known.stop)


def _check(size: int, known: range) -> None:
    if size in known:
        return
    if size == 0:
        raise SpecError("there is no size 0: the list of groups is private, so empty groups are not counted")
    raise SpecError(f"there is no size {short(size)}; this release counts the sizes {_known(known)}")


def _known(known: range) -> str:
    return f"{known[0]} to {known[-1]}, where {known[-1]} stands for {size_label(known[-1], known[-1])}"


def _quoted(text: object) -> str:
    return short(text) if isinstance(text, str) else "the list of sizes"
