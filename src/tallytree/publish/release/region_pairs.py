"""Pair the regions of two releases, so that their numbers can be compared.

Regions of the same level and id are a pair. If boundaries changed, a concordance names for each old leaf the new leaves
that overlap it. The connected components of this graph are the smallest areas that can be compared: each consists of
whole leaves on both sides. A leaf that the concordance does not name is paired with the leaf of the same id.

A region above the leaves keeps its id when its boundary moves. Such regions are marked: some component lies partly
within the old or the new region and partly elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.names import briefly, did_you_mean, from_a_spreadsheet
from tallytree.core.numbers import short
from tallytree.core.public_table import public_table, text_columns
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.unions import Unions
from tallytree.publish.untrusted import MOST_TEXT, check_regular

COLUMNS = ("old_leaf", "new_leaf")
MOST_NAMED = 3  # mistakes in a message, regions in a name


@dataclass(frozen=True, eq=False)
class RegionPairs:
    """Pairs of areas of one level; an area is one region or, in a concordance, several leaves."""

    level: str
    old: Unions  # of the old release's regions
    new: Unions
    regions: tuple[str, ...]  # ids of the new regions, joined by semicolons
    old_regions: tuple[str, ...]
    names: tuple[str, ...]
    other_leaves: NDArray[np.bool_] | None  # None where the leaves were not read
    unmatched: tuple[tuple[str, ...], tuple[str, ...]]  # ids without a partner, old and new

    __repr__ = briefly

    def __len__(self) -> int:
        """Return how many pairs there are."""
        return len(self.regions)


@dataclass(frozen=True, eq=False)
class Pairing:
    """Two trees of regions, and which of their leaves belong together."""

    old: Hierarchy
    new: Hierarchy
    concordance: tuple[tuple[int, int], ...] = ()  # leaves, numbered from the first leaf on
    whole: bool = True  # both trees reach down to the leaves

    __repr__ = briefly

    @classmethod
    def of(cls, old: Hierarchy, new: Hierarchy, concordance: Any = None, *, whole: bool = True) -> Pairing:
        """Read a concordance: a path or a table with the columns old_leaf and new_leaf, which hold ids."""
        if concordance is None:
            return cls(old, new, whole=whole)
        if isinstance(concordance, str | PathLike):
            try:
                check_regular(Path(concordance), most=MOST_TEXT)
            except ReleaseError as error:
                raise SpecError(f"the concordance cannot be read: {error}") from None
        table = public_table(concordance, "concordance")
        if missing := [name for name in COLUMNS if name not in table.column_names]:
            hint = did_you_mean(missing[0], table.column_names, "it has")
            raise SpecError(f"the concordance has no column {missing[0]!r}; {hint}. Expected {' and '.join(COLUMNS)}")
        return cls(old, new, _checked_rows(text_columns(table, COLUMNS), (old, new)), whole=whole)

    @property
    def levels(self) -> tuple[str, ...]:
        """Return the levels that both trees have, from the top down."""
        return tuple(level for level in self.new.levels if level in self.old.levels)

    def pairs(self, level: str) -> RegionPairs:
        """Return the pairs of a level: components with regions on both sides, in the order of their first new region.

        With a concordance the regions of the last level are the leaves of both trees. All other regions are paired by
        their ids alone.
        """
        trees, leaves = (self.old, self.new), bool(self.concordance) and level == self.new.levels[-1]
        sides = [_leaves(tree) if leaves else _ids(tree, level) for tree in trees]
        found = self.components if leaves else _components(sides[0][1], sides[1][1])
        both, first = np.unique(found[1], return_index=True)
        both = both[np.argsort(first)]
        both = both[np.isin(both, found[0])]
        unions, groups = list[Unions](), list[list[list[int]]]()
        for (start, _), own in zip(sides, found, strict=True):
            order = np.argsort(own, kind="stable")
            begin, end = (np.searchsorted(own[order], both, side) for side in ("left", "right"))
            groups.append([(start + order[low:high]).tolist() for low, high in zip(begin, end, strict=True)])
            unions.append(Unions.of_regions(groups[-1]))
        old_ids, new_ids = (
            tuple(";".join(tree.ids[region] for region in group) for group in some)
            for tree, some in zip(trees, groups, strict=True)
        )
        names = tuple(_joined([self.new.names[region] for region in group]) for group in groups[1])
        old_alone, new_alone = (
            tuple(ids[place] for place in np.flatnonzero(~np.isin(own, both)).tolist())
            for (_, ids), own in zip(sides, found, strict=True)
        )
        other = self._other_leaves(unions) if self.whole else None
        return RegionPairs(level, unions[0], unions[1], new_ids, old_ids, names, other, (old_alone, new_alone))

    @cached_property
    def components(self) -> tuple[Integers, Integers]:
        """Return the component of each old and of each new leaf."""
        return _components(_leaves(self.old)[1], _leaves(self.new)[1], self.concordance)

    def _other_leaves(self, areas: Sequence[Unions]) -> NDArray[np.bool_]:
        """Return which pairs of areas do not consist of the same whole components of leaves."""
        number, owners = len(areas[0]), []
        for tree, union in zip((self.old, self.new), areas, strict=True):
            owner = np.full(len(tree), -1)
            owner[union.rows] = np.repeat(np.arange(number), union.sizes)
            for level in range(1, tree.depth):
                rows = tree.level_slice(level)
                owner[rows] = np.maximum(owner[rows], owner[tree.parents[rows]])
            owners.append(owner[_leaves(tree)[0] :])
        component, owner = np.concatenate(self.components), np.concatenate(owners)
        least, most = np.full(len(component), number), np.full(len(component), -1)
        np.minimum.at(least, component, owner)
        np.maximum.at(most, component, owner)
        sides = [np.bincount(own, minlength=len(component)) for own in self.components]
        mixed = (least != most) | (sides[0] == 0) | (sides[1] == 0)
        found = np.zeros(number + 1, np.bool_)  # the last is for leaves whose region has no partner
        found[owner[mixed[component]]] = True
        return found[:-1]


def _components(
    old_ids: Sequence[str], new_ids: Sequence[str], links: Sequence[tuple[int, int]] = ()
) -> tuple[Integers, Integers]:
    """Return the component of each old and of each new region; a region without a partner has one of its own.

    Regions of the same id are linked, unless `links` name one of them.
    """
    linked = {old for old, _ in links}, {new for _, new in links}
    above = list(range(len(old_ids) + len(new_ids)))

    def top(one: int) -> int:
        while above[one] != one:
            above[one] = above[above[one]]
            one = above[one]
        return one

    places = {identity: old for old, identity in enumerate(old_ids) if old not in linked[0]}
    same = [
        (places[identity], new) for new, identity in enumerate(new_ids) if identity in places and new not in linked[1]
    ]
    for old, new in (*links, *same):
        one, other = sorted((top(old), top(len(old_ids) + new)))
        above[other] = one
    found = np.array([top(region) for region in range(len(above))], np.int64)
    return found[: len(old_ids)], found[len(old_ids) :]


def _leaves(tree: Hierarchy) -> tuple[int, tuple[str, ...]]:
    """Return the first leaf, and the ids of the leaves."""
    return _ids(tree, tree.levels[-1])


def _ids(tree: Hierarchy, level: str) -> tuple[int, tuple[str, ...]]:
    """Return the first region of a level, and the ids of its regions."""
    rows = tree.level_slice(tree.levels.index(level))
    return rows.start, tuple(tree.ids[rows])


def _joined(names: Sequence[str]) -> str:
    """Return names for one area.

    >>> _joined(["A", "B"]), _joined(["A", "B", "C", "D"])
    ('A; B', 'A; B; C and 1 more')
    """
    more = len(names) - MOST_NAMED
    return "; ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _checked_rows(columns: Sequence[Sequence[str]], trees: Sequence[Hierarchy]) -> tuple[tuple[int, int], ...]:
    """Return the rows of a concordance as pairs of leaves; one error lists all mistakes."""
    mistakes: list[str] = []
    leaves: list[list[int]] = []
    for which, texts, tree in zip(("old", "new"), columns, trees, strict=True):
        start, found = _leaves(tree)[0], []
        for row, text in enumerate(texts, start=1):
            at = tree.index.get(text, tree.index.get(from_a_spreadsheet(text), -1))
            found.append(at - start)
            if at < start:
                what = "is empty" if not text else f"{short(text)} is not a leaf of the {which} release"
                mistakes.append(f"row {row:,}: {which}_leaf {what}" if not text else f"row {row:,}: {what}")
        leaves.append(found)
    rows = list(zip(*leaves, strict=True))
    seen: set[tuple[int, int]] = set()
    for row, pair in enumerate(rows, start=1):
        if min(pair) >= 0 and pair in seen:
            mistakes.append(f"row {row:,} repeats an earlier row")
        seen.add(pair)
    if not rows:
        mistakes.append("it has no rows; expected one for each old leaf and new leaf that overlap")
    if mistakes:
        more = [f"{len(mistakes) - MOST_NAMED:,} more"] if len(mistakes) > MOST_NAMED else []
        raise SpecError("\n  - ".join(["the concordance has mistakes:", *mistakes[:MOST_NAMED], *more]))
    return tuple(rows)
