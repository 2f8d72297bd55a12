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
        """Return the pairs of a level."""
        if self.concordance and level == self.new.levels[-1]:
            return self._areas(level)
        rows = [_ids(tree, level) for tree in (self.old, self.new)]
        where = _places(rows[1][1], rows[0][1])
        there = np.flatnonzero(where >= 0)
        old, new = rows[0][0] + where[there], rows[1][0] + there
        regions = tuple(rows[1][1][place] for place in there.tolist())
        lost = np.setdiff1d(np.arange(len(rows[0][1])), where[there]).tolist()
        unmatched = (
            tuple(rows[0][1][place] for place in lost),
            tuple(rows[1][1][place] for place in np.flatnonzero(where < 0).tolist()),
        )
        names = tuple(self.new.names[region] for region in new.tolist())
        each = np.arange(len(old))
        other = self._other_leaves(level, old, new) if self.whole else None
        return RegionPairs(
            level, Unions(old, each, each[:0]), Unions(new, each, each[:0]), regions, regions, names, other, unmatched
        )

    @cached_property
    def components(self) -> tuple[Integers, Integers]:
        """Return the component of each old and of each new leaf; a leaf without a partner has one of its own."""
        starts = [_first_leaf(tree) for tree in (self.old, self.new)]
        ids = [tree.ids[start:] for tree, start in zip((self.old, self.new), starts, strict=True)]
        linked = {old for old, _ in self.concordance}, {new for _, new in self.concordance}
        partners = _places(ids[1], ids[0]).tolist()
        same = [
            (old, new) for new, old in enumerate(partners) if old >= 0 and old not in linked[0] and new not in linked[1]
        ]
        above = list(range(len(ids[0]) + len(ids[1])))

        def top(one: int) -> int:
            while above[one] != one:
                above[one] = above[above[one]]
                one = above[one]
            return one

        for old, new in (*self.concordance, *same):
            one, other = sorted((top(old), top(len(ids[0]) + new)))
            above[other] = one
        found = np.array([top(leaf) for leaf in range(len(above))], np.int64)
        return found[: len(ids[0])], found[len(ids[0]) :]

    def _areas(self, level: str) -> RegionPairs:
        """Return the components with leaves on both sides, in the order of their first new leaf."""
        starts, found = [_first_leaf(tree) for tree in (self.old, self.new)], self.components
        both, first = np.unique(found[1], return_index=True)
        both = both[np.argsort(first)]
        both = both[np.isin(both, found[0])]
        unions, texts, names = list[Unions](), list[tuple[str, ...]](), tuple[str, ...]()
        for tree, start, own in zip((self.old, self.new), starts, found, strict=True):
            order = np.argsort(own, kind="stable")
            begin, end = (np.searchsorted(own[order], both, side) for side in ("left", "right"))
            groups = [(start + order[low:high]).tolist() for low, high in zip(begin, end, strict=True)]
            unions.append(Unions.of_regions(groups))
            texts.append(tuple(";".join(tree.ids[leaf] for leaf in group) for group in groups))
            if tree is self.new:
                names = tuple(_joined([tree.names[leaf] for leaf in group]) for group in groups)
        alone = tuple(
            tuple(tree.ids[start + leaf] for leaf in np.flatnonzero(~np.isin(own, both)).tolist())
            for tree, start, own in zip((self.old, self.new), starts, found, strict=True)
        )
        (old, new), (old_ids, new_ids), same = unions, texts, np.zeros(len(both), np.bool_)
        return RegionPairs(level, old, new, new_ids, old_ids, names, same, (alone[0], alone[1]))

    def _other_leaves(self, level: str, old: Integers, new: Integers) -> NDArray[np.bool_]:
        """Return which pairs of regions do not consist of the same whole components."""
        owners = []
        for tree, regions in ((self.old, old), (self.new, new)):
            owner = np.full(len(tree), -1)
            owner[regions] = np.arange(len(regions))
            above = np.arange(_first_leaf(tree), len(tree))
            for _ in range(tree.depth - 1 - tree.levels.index(level)):
                above = tree.parents[above]
            owners.append(owner[above])
        component, owner = np.concatenate(self.components), np.concatenate(owners)
        least, most = np.full(len(component), len(old)), np.full(len(component), -1)
        np.minimum.at(least, component, owner)
        np.maximum.at(most, component, owner)
        sides = [np.bincount(own, minlength=len(component)) for own in self.components]
        mixed = (least != most) | (sides[0] == 0) | (sides[1] == 0)
        found = np.zeros(len(old) + 1, np.bool_)  # the last is for leaves whose region has no partner
        found[owner[mixed[component]]] = True
        return found[:-1]


def _first_leaf(tree: Hierarchy) -> int:
    return int(tree.level_starts[-2])


def _ids(tree: Hierarchy, level: str) -> tuple[int, tuple[str, ...]]:
    """Return the first region of a level, and the ids of its regions."""
    rows = tree.level_slice(tree.levels.index(level))
    return rows.start, tuple(tree.ids[rows])


def _places(ids: Sequence[str], among: Sequence[str]) -> Integers:
    """Return the place of each id among others, −1 for none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.index_in(pa.array(ids, pa.string()), pa.array(among, pa.string()))
    places: Integers = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return places


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
        start, found = _first_leaf(tree), []
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
