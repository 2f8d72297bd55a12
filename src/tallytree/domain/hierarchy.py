"""The public tree of regions: levels, regions in breadth-first order, parents and contiguous children.

Every leaf lies on the last level: a branch that ends early is carried down as a chain of single children with its name.
So each level covers everything, and the counts of every level add up to the total.

Categories partition the groups, so a tree whose root has a child for each category is an ordinary hierarchy: sums,
measurements and estimates work on it as on any tree. Below the root each level has the regions of one level of the
region tree once for each category, category by category; so an array of a level is `[categories, regions, …]`. Tables
over all categories are sums of it. Without categories the tree is that of the regions, with one cell for each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise, zip_longest
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arguments import TEXT, expect, optional, several
from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import blocks, in_threads, kernel
from tallytree.core.names import did_you_mean, visible
from tallytree.core.public_table import public_table, text, text_columns
from tallytree.domain.categories import NO_CATEGORIES, Categories, margins

ROOT = "total"
TOP = "all categories"
MOST_ROWS = 1 << 31  # the limit for a tree
BLANKS = "".join(filter(str.isspace, map(chr, range(0x3001))))  # what `str.strip` strips
UNWRITABLE = re.compile("[\ud800-\udfff]")  # unpaired surrogates


@dataclass(frozen=True, eq=False, repr=False)
class Hierarchy:
    """The public tree of regions.

    Regions are in breadth-first order, so that a level and the children of a region are each one slice.

    Create one with `from_levels`, `from_regions` or `from_edges`.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"], "county": ["Fulton", "Kings"]}, ["state", "county"])
    >>> tree
    Hierarchy(total 1 → state 2 → county 2)
    >>> tree.ids
    ('total', 'GA', 'NY', 'Fulton', 'Kings')
    """

    levels: tuple[str, ...]
    names: tuple[str, ...]
    ids: tuple[str, ...]
    parents: Integers  # the parent's index; -1 at the root
    level_starts: Integers  # level l holds the regions level_starts[l] … level_starts[l + 1] - 1
    child_starts: Integers  # region r has the children child_starts[r] … child_starts[r + 1] - 1
    carried: NDArray[np.bool_]  # whether a region is its parent's only child, carried down with the same name
    by: Categories = NO_CATEGORIES  # the categories of the rows, besides regions
    without: Hierarchy | None = None  # the regions without these categories, if any

    # ---------------------------------------------------------------- constructors

    @classmethod
    def from_levels(cls, table: Any, levels: Sequence[str], *, root: str = ROOT) -> Hierarchy:
        """Make a tree from a table with one row per leaf and one column per level.

        Parameters
        ----------
        table : path, table or mapping
            The regions. Empty cells at the end of a row make a short branch.
        levels : list of str
            The columns of the levels, from the top down.
        root : str, default "total"
            The name of the root that is added. If the first column holds a single name, that region is the root.

        Returns
        -------
        Hierarchy
            The tree.

        Raises
        ------
        SpecError
            If the table makes no tree.

        Examples
        --------
        >>> Hierarchy.from_levels({"state": ["GA", "NY"], "county": ["Fulton", "Kings"]}, ["state", "county"])
        Hierarchy(total 1 → state 2 → county 2)
        """
        levels = _checked_levels(levels)
        expect(root, TEXT, "root")
        table = _with_columns(table, levels)
        return cls._from_columns([_encode(table[level]) for level in levels], levels, root)

    @classmethod
    def from_regions(
        cls, table: Any, *, leaf: str, levels: Sequence[str], name: str | None = None, root: str = ROOT
    ) -> Hierarchy:
        """Make a tree from a table with one row per leaf and a unique code for each leaf.

        Parameters
        ----------
        table : path, table or mapping
            The regions.
        leaf : str
            The column of the leaves' codes.
        levels : list of str
            The columns of the levels above the leaves, from the top down.
        name : str, optional
            A column of names to show for the leaves; their codes stay their ids.
        root : str, default "total"
            The name of the root that is added, as in `from_levels`.

        Returns
        -------
        Hierarchy
            The tree.

        Raises
        ------
        SpecError
            If a code is empty or appears twice, or the table makes no tree.

        Examples
        --------
        >>> table = {"state": ["GA", "NY"], "fips": ["13121", "36047"], "county": ["Fulton", "Kings"]}
        >>> Hierarchy.from_regions(table, leaf="fips", levels=["state"], name="county").names
        ('total', 'GA', 'NY', 'Fulton', 'Kings')
        """
        levels = _checked_levels(levels)
        for what, given in {"leaf": leaf, "root": root}.items():
            expect(given, TEXT, what)
        expect(name, optional(TEXT), "name")
        levels = _checked_levels([*levels, leaf])
        table = _with_columns(table, [*levels, *([name] if name else [])])
        columns = [_encode(table[level]) for level in levels]
        codes, texts = columns[-1]
        if empty := int(np.sum(codes == _empty_code(texts))):
            raise SpecError(f"{empty} rows of the region table have an empty leaf code in column {leaf!r}")
        tree = cls._from_columns(columns, levels, root)
        if twice := _repeated(codes.tolist()):
            raise SpecError(
                f"a leaf has two parents: {_some(texts[code] for code in twice)}; expected one row per code in {leaf!r}"
            )
        if not name:
            return tree
        shown = dict(zip(texts.take(codes).to_pylist(), text_columns(table, [name])[0], strict=True))
        first = int(tree.level_starts[-2])
        names = tree.names[:first] + tuple(shown[code] or code for code in tree.names[first:])
        return replace(tree, names=names)

    @classmethod
    def from_edges(cls, edges: Any, *, levels: Sequence[str] | None = None) -> Hierarchy:
        """Make a tree from pairs of child and parent.

        The root is the one region that is not a child (a pair with an empty parent may name it too).

        Parameters
        ----------
        edges : list of pairs, path or table
            (child, parent) pairs, or a table whose first two columns are child and parent.
        levels : list of str, optional
            The names of the levels, from the root down.

        Returns
        -------
        Hierarchy
            The tree.

        Raises
        ------
        SpecError
            If the edges make no tree.

        Examples
        --------
        >>> Hierarchy.from_edges([("GA", "US"), ("NY", "US")], levels=["nation", "state"])
        Hierarchy(nation 1 → state 2)
        """
        if levels is not None:
            levels = _checked_levels(levels)
        pairs = _pairs(edges)
        children = [child for child, _ in pairs]
        if any(not child for child in children):
            raise SpecError("an edge has an empty child; expected (child, parent) pairs of region codes")
        if same := _repeated(pairs):
            raise SpecError(f"edges appear more than once: {_some(' under '.join(pair) for pair in same)}")
        if twice := _repeated(children):
            raise SpecError(f"a child has two parents: {_some(twice)}; every region needs exactly one")
        below: dict[str, list[str]] = {}
        for child, parent in pairs:
            if parent:
                below.setdefault(parent, []).append(child)
        known = set(children)
        roots = [child for child, parent in pairs if not parent] + [top for top in below if top not in known]
        if not roots:
            raise SpecError("the edges form a cycle: every region has a parent, so there is no root")
        if len(roots) > 1:
            raise SpecError(f"two roots or more: {_some(roots)}; expected exactly one region without a parent")
        order: list[tuple[str, ...]] = [(roots[0],)]
        leaves: list[tuple[str, ...]] = []
        while order:
            path = order.pop()
            branches = below.get(path[-1], [])
            order.extend((*path, child) for child in reversed(branches))
            if not branches:
                leaves.append(path)
        reached = {region for path in leaves for region in path}
        if lost := sorted((known | set(below)) - reached):
            raise SpecError(f"the edges form a cycle that the root does not reach: {_some(lost)}")
        depth = max(len(path) for path in leaves)
        if levels is None:
            levels = [f"level {number}" for number in range(depth)]
        if len(levels) != depth:
            raise SpecError(f"the tree has {depth} levels, but {len(levels)} level names are given")
        table = public_table(dict(zip(levels, zip_longest(*leaves, fillvalue=""), strict=True)), "region table")
        return cls._from_columns([_encode(table[level]) for level in levels], levels, ROOT)

    @classmethod
    def _from_columns(cls, columns: Sequence[Encoded], levels: Sequence[str], root: str) -> Hierarchy:
        """Lay out a table with a row for each leaf, level by level; siblings keep the order of the rows.

        No path is built for a leaf, so a table of 8 million leaves takes seconds. An empty cell carries the region
        above down. `root` is put above them if the first column has several names.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        rows, laid_out = len(columns[0][0]), columns
        if rows == 0:
            raise SpecError("the region table has no rows; expected one row per leaf region")
        _refuse_gaps(columns, levels)
        if len(columns[0][1]) > 1:
            if root in levels:
                raise SpecError(f"the added root's level would be called {root!r} like a column; give another `root`")
            laid_out = [(np.zeros(rows, np.int64), pa.array([root], pa.large_string())), *columns]
            levels = [root, *levels]
        names: list[Any] = []
        parents, carried, starts = [np.array([-1])], [np.zeros(1, np.bool_)], [0]
        above = np.zeros(rows, np.int64)  # each row's region on the level above
        for codes, texts in laid_out:
            places, above_of, code_of = _regions(above, codes, len(texts))
            own = texts.take(pa.array(code_of))
            if names:
                copies = code_of == _empty_code(texts)
                if np.any(inner := copies & (np.bincount(above_of)[above_of] > 1)):
                    short = [_path_of_row(columns, int(row)) for row in np.flatnonzero(inner[places])]
                    raise SpecError(f"a region is both a leaf and a parent: {_some(short)}")
                own = pc.if_else(pa.array(copies), names[-1].take(pa.array(above_of)), own)
                parents.append(above_of + starts[-2])
                carried.append(copies)
            names.append(own)
            starts.append(starts[-1] + len(own))
            above = places
        if len(names[-1]) < rows:
            _, first, times = np.unique(above, return_index=True, return_counts=True)
            twice = [_path_of_row(columns, int(row)) for row in first[times > 1]]
            raise SpecError(f"a name appears twice within a parent: {_some(twice)}; expected one row per leaf region")
        whole = tuple(chain.from_iterable(texts.to_pylist() for texts in names))
        over, copied = np.concatenate(parents), np.concatenate(carried).tolist()
        ids = whole
        if len(set(whole)) < len(whole):
            full: list[tuple[str, ...]] = []
            for parent, name, copy in zip(over.tolist(), whole, copied, strict=True):
                full.append(full[parent] if copy else (*(full[parent] if parent >= 0 else ()), name))
            ids = _ids(full, copied, starts, levels)
        return cls.from_layout(levels, whole, ids, over, copied)

    @classmethod
    def from_layout(
        cls,
        levels: Sequence[str],
        names: Sequence[str],
        ids: Sequence[str],
        parents: Sequence[int] | Integers,
        carried: Sequence[bool],
    ) -> Hierarchy:
        """Make a tree from regions that are laid out already, as a file of tallytree holds them; refuse a wrong layout.

        Parameters
        ----------
        levels : list of str
            The names of the levels, from the root down.
        names : list of str
            The regions' names, in breadth-first order.
        ids : list of str
            Their ids, each unique.
        parents : list of int
            The index of each region's parent; −1 for the root.
        carried : list of bool
            Whether the region is its parent's only child, carried down under the same name.

        Returns
        -------
        Hierarchy
            The tree.

        Raises
        ------
        SpecError
            If the layout is wrong.
        """
        above = np.array(parents, dtype=np.int64)
        count = len(above)
        if not (count and count == len(names) == len(ids) == len(carried)):
            raise SpecError("the layout of regions is empty or its columns differ in length")
        breadth_first = above[0] == -1 and np.all(above[1:] < np.arange(1, count)) and np.all(np.diff(above) >= 0)
        if not breadth_first or np.any(above[1:] < 0):
            raise SpecError("the regions are not in breadth-first order with contiguous children under one root")
        starts = [0, 1]
        while starts[-1] < count:
            starts.append(int(np.searchsorted(above, starts[-1], side="left")))
            if starts[-1] == starts[-2]:
                raise SpecError("the regions are not in breadth-first order with contiguous children under one root")
        children = np.bincount(above[1:], minlength=count)
        if np.any(children[: starts[-2]] == 0):
            raise SpecError("a region above the last level has no children")
        if len(starts) - 1 != len(levels):
            raise SpecError(f"the regions lie on {len(starts) - 1} levels but {len(levels)} levels are named")
        if len(set(ids)) < len(ids):
            raise SpecError(f"a region id appears twice: {_some(_repeated(ids))}")
        for texts in (levels, names, ids):
            if not set(map(type, texts)) <= {str} and not all(isinstance(text, str) for text in texts):
                raise SpecError("levels, names and ids of regions must be texts")
            if UNWRITABLE.search("".join(texts)):
                broken = [text for text in texts if UNWRITABLE.search(text)]
                raise SpecError(f"a name cannot be written as UTF-8: {broken[0]!r}; it contains half of a character")
        shown, known = tuple(names), tuple(ids)
        return cls(
            levels=tuple(levels),
            names=shown,
            ids=shown if known == shown else known,  # the same object, so that no text is stored twice
            parents=_frozen(above),
            level_starts=_frozen(np.array(starts, dtype=np.int64)),
            child_starts=_frozen(np.concatenate([[1], 1 + np.cumsum(children)]).astype(np.int64)),
            carried=_frozen(np.array(carried, dtype=np.bool_)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values; two trees are the same if these are."""
        if self.by.columns:
            return {**self.regions.to_json(), "by": self.by.to_json()}
        return {
            "levels": list(self.levels),
            "names": list(self.names),
            "ids": list(self.ids),
            "parents": self.parents.tolist(),
            "carried": self.carried.tolist(),
        }

    # ---------------------------------------------------------------- properties and lookups

    def __len__(self) -> int:
        """Return the number of regions on all levels together."""
        return len(self.names)

    def __repr__(self) -> str:
        return f"Hierarchy({self._counts_in_words()})"

    def _counts_in_words(self) -> str:
        counts = np.diff(self.level_starts)
        return " → ".join(f"{visible(level)} {count:,}" for level, count in zip(self.levels, counts, strict=True))

    def in_words(self) -> str:
        """Return how many regions each level has, and their categories.

        >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
        >>> tree.by_category(Categories.of({"tenure": ["owned", "rented"]}, "group")).in_words()
        'total 1 → state 2, by tenure (2 values)'
        """
        counts = self.regions._counts_in_words()
        by = [f"{visible(column.name)} ({len(column.values)} values)" for column in self.by.columns]
        return f"{counts}, by {' and '.join(by)}" if by else counts

    @property
    def depth(self) -> int:
        """Return the number of levels."""
        return len(self.levels)

    @property
    def leaf_count(self) -> int:
        """Return the number of regions on the last level."""
        return int(self.level_starts[-1] - self.level_starts[-2])

    def level_slice(self, level: int) -> slice:
        """Return the regions of a level, as a slice of any array in hierarchy order.

        Parameters
        ----------
        level : int
            The level, 0 at the root.

        Returns
        -------
        slice
            The slice.
        """
        return slice(int(self.level_starts[level]), int(self.level_starts[level + 1]))

    def above_leaves(self, level: int) -> Integers:
        """Return, for every leaf, the region of a level that it lies in, counted from that level's first region.

        Parameters
        ----------
        level : int
            The level, 0 at the root.

        Returns
        -------
        array of int
            One number for each leaf.

        Examples
        --------
        >>> places = {"state": ["GA", "NY", "NY"], "county": ["a", "b", "c"]}
        >>> Hierarchy.from_levels(places, ["state", "county"]).above_leaves(1)
        array([0, 1, 1])
        """
        above = np.arange(len(self))[self.level_slice(self.depth - 1)]
        for _ in range(self.depth - 1 - level):
            above = self.parents[above]
        found: Integers = above - self.level_slice(level).start
        return found

    def children_of(self, region: int) -> range:
        """Return the indices of a region's children; empty on the last level.

        Parameters
        ----------
        region : int
            The region's index.

        Returns
        -------
        range
            The indices.
        """
        return range(int(self.child_starts[region]), int(self.child_starts[region + 1]))

    @cached_property
    def level_of(self) -> Integers:
        """Return each region's level, 0 at the root."""
        return _frozen(np.repeat(np.arange(self.depth), np.diff(self.level_starts)))

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Return a mapping from a region's id to its index."""
        return {region: number for number, region in enumerate(self.ids)}

    def path_of(self, region: int) -> tuple[str, ...]:
        """Return the names from the root down to a region, without its carried-down copies.

        Parameters
        ----------
        region : int
            The region's index.

        Returns
        -------
        tuple of str
            The names.
        """
        path: list[str] = []
        while region >= 0:
            if not self.carried[region]:
                path.append(self.names[region])
            region = int(self.parents[region])
        return tuple(reversed(path))

    def aggregate(self, leaf_counts: NDArray[Any]) -> Integers:
        """Sum the leaves up the tree.

        Parameters
        ----------
        leaf_counts : array
            `[leaves, …]`.

        Returns
        -------
        array of int
            `[regions, …]` in hierarchy order.
        """
        leaf_counts = np.asarray(leaf_counts)
        if leaf_counts.shape[:1] != (self.leaf_count,):
            raise ValueError(f"expected {self.leaf_count} rows, one per leaf region, not {leaf_counts.shape[:1]}")
        if not np.issubdtype(leaf_counts.dtype, np.integer):
            raise TypeError(f"counts must be integers, not {leaf_counts.dtype}")
        cells = np.ascontiguousarray(leaf_counts.reshape(self.leaf_count, -1), dtype=np.int64)
        sums = np.empty((len(self), cells.shape[1]), dtype=np.int64)
        sums[self.level_slice(self.depth - 1)] = cells
        self.add_up(sums)
        return sums.reshape(len(self), *leaf_counts.shape[1:])

    def add_up(self, sums: Integers, above: int | None = None) -> None:
        """Fill the rows of `[regions, sizes]` above a level (the leaves, if none is said), in place, from its rows.

        Parameters
        ----------
        sums : array of int
            `[regions, sizes]`; changed in place.
        above : int, optional
            The level whose rows are known. The leaves by default.
        """
        for level in range((self.depth - 1 if above is None else above) - 1, -1, -1):
            parents = self.level_slice(level)
            pieces = blocks(parents.stop - parents.start, max(1, (1 << 20) // max(1, sums.shape[1])))
            first = parents.start

            def add(start: int, stop: int, first: int = first) -> None:
                _add_children(sums, self.child_starts, first + start, first + stop)

            in_threads(add, pieces)

    # ---------------------------------------------------------------- by category

    def by_category(self, categories: Categories) -> Hierarchy:
        """Return the tree of these regions by category, with the sum over all categories at its root.

        Parameters
        ----------
        categories : Categories
            The categories.

        Returns
        -------
        Hierarchy
            The tree.

        Examples
        --------
        >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
        >>> by = tree.by_category(Categories.of({"tenure": ["owned", "rented"]}, "group"))
        >>> by
        Hierarchy(all categories 1 → total 2 → state 4)
        >>> by.ids[3:]
        ('GA [owned]', 'NY [owned]', 'GA [rented]', 'NY [rented]')
        """
        if self.by.columns:
            raise SpecError("these regions already have categories")
        if not categories.columns:
            return self
        count, cells = len(categories), np.diff(self.level_starts)
        if count * len(self) >= MOST_ROWS:
            raise SpecError(
                f"there are {count * len(self):,} regions × categories, which is more than tallytree supports"
            )
        top = TOP
        while top in self.levels:
            top += "*"
        names, ids, parents, carried = [self.names[0]], [self.ids[0]], [-1], [False]
        starts = np.concatenate([[1], 1 + count * np.cumsum(cells)])  # starts of the tree's levels below its root
        above_start = 0
        for level in range(self.depth):
            rows = self.level_slice(level)
            above = self.parents[rows] - (0 if level == 0 else self.level_starts[level - 1])
            per_level = 0 if level == 0 else int(cells[level - 1])
            for place, label in enumerate(categories.labels):
                names += [f"{name}, {label}" for name in self.names[rows]]
                ids += [f"{region} [{label}]" for region in self.ids[rows]]
                parents += [0] * len(above) if level == 0 else (above_start + place * per_level + above).tolist()
                carried += self.carried[rows].tolist()
            above_start = int(starts[level])
        tree = Hierarchy.from_layout((top, *self.levels), names, ids, parents, carried)
        return replace(tree, by=categories, without=self)

    @property
    def regions(self) -> Hierarchy:
        """Return the tree of the regions alone, without categories."""
        return self if self.without is None else self.without

    @property
    def first_level(self) -> int:
        """Return the level of the root region: 1, below the sum over all categories, or 0 without categories."""
        return self.depth - self.regions.depth

    @property
    def cell_rows(self) -> Integers:
        """Return the row of every region and category, `[regions, categories]`."""
        regions, count = self.regions, len(self.by)
        found = np.empty((len(regions), count), dtype=np.int64)
        for level in range(regions.depth):
            rows = self.level_slice(level + self.first_level)
            found[regions.level_slice(level)] = np.arange(rows.start, rows.stop).reshape(count, -1).T
        return found

    def on_level(self, values: NDArray[Any], level: int) -> NDArray[Any]:
        """Return the values of a level of regions as `[categories, regions of that level, …]`.

        Parameters
        ----------
        values : array
            `[rows of the tree, …]`.
        level : int
            The level of regions, 0 at the root.

        Returns
        -------
        array
            `[categories, regions of that level, …]`.
        """
        if level < self.first_level:
            raise ValueError("expected a level of regions, below the root over all categories")
        return values[self.level_slice(level)].reshape(len(self.by), -1, *values.shape[1:])

    def over_categories(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return sums `[regions, …]` over all categories, of values `[rows of the tree, …]`.

        Parameters
        ----------
        values : array
            `[rows of the tree, …]`.

        Returns
        -------
        array
            `[regions, …]`.
        """
        if self.regions is self:
            return values
        return np.concatenate([self.on_level(values, level).sum(axis=0) for level in range(1, self.depth)])

    def margin_sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return sums `[margins × regions, …]` over the cells of every margin (`categories.margins`), margin by margin.

        Without categories there is nothing to sum over, and no sum.

        Parameters
        ----------
        values : array
            `[rows of the tree, …]`.

        Returns
        -------
        array
            `[margins × regions, …]`.
        """
        levels = [self.on_level(values, level) for level in range(self.first_level, self.depth)]
        sums = [level[list(margin.cells)].sum(axis=0) for margin in margins(self.by) for level in levels]
        return np.concatenate([values[:0], *sums])


@kernel
def _add_children(sums: Integers, child_starts: Integers, start: int, stop: int) -> None:
    for region in range(start, stop):
        row = sums[region]
        row[:] = 0
        for child in range(child_starts[region], child_starts[region + 1]):
            row += sums[child]


# -------------------------------------------------------------------- reading region tables


def _checked_levels(levels: Sequence[str]) -> list[str]:
    if not several(TEXT).holds(levels) or not levels or not all(levels):
        raise SpecError("levels must be a list of column names from the top down, at least one")
    if twice := _repeated(levels):
        raise SpecError(f"a level is named twice: {_some(twice)}")
    return list(levels)


def _with_columns(table: Any, names: Sequence[str]) -> Any:
    """Return a public table of regions that has the named columns, as a pyarrow Table."""
    found = public_table(table, "region table")
    if missing := [name for name in names if name not in found.column_names]:
        hint = did_you_mean(missing[0], found.column_names, "it has")
        raise SpecError(f"the region table has no column {_some(missing)}; {hint}")
    return found


def _refuse_gaps(columns: Sequence[Encoded], levels: Sequence[str]) -> None:
    """Refuse a row with an empty name before its last one; only the end of a row may be empty."""
    above = np.ones(len(columns[0][0]), np.bool_)
    gap = np.zeros(len(above), np.bool_)
    for place, (codes, texts) in enumerate(columns):
        filled = codes != _empty_code(texts)
        gap |= (filled & ~above) if place else ~filled
        above = filled
    if np.any(gap):
        cells = [texts[int(codes[gap.argmax()])].as_py() for codes, texts in columns]
        under = "/".join(filter(None, cells)) or "an empty row"
        raise SpecError(
            f"an empty name in column {levels[cells.index('')]!r} of the region table (at {under}); only the end of a "
            "row may be empty"
        )


def _path_of_row(columns: Sequence[Encoded], row: int) -> str:
    """Return a row's names from the top down, without an added root."""
    cells = [texts[int(codes[row])].as_py() for codes, texts in columns]
    return "/".join(filter(None, cells))


def _pairs(edges: Any) -> list[tuple[str, str]]:
    if isinstance(edges, str | PathLike) or hasattr(edges, "__arrow_c_stream__"):
        table = public_table(edges, "region table")
        if table.num_columns < 2:
            raise SpecError("the table of edges needs two columns: child and parent")
        edges = zip(*text_columns(table, table.column_names[:2]), strict=True)
    if not isinstance(edges, Iterable):
        raise SpecError(f"edges is of type {type(edges).__name__}; expected (child, parent) pairs, a path or a table")
    pairs = []
    for edge in edges:
        if not isinstance(edge, Sequence) or isinstance(edge, str | bytes) or len(edge) != 2:
            raise SpecError("edges must be (child, parent) pairs")
        pairs.append((text(edge[0]), text(edge[1])))
    if not pairs:
        raise SpecError("there are no edges; expected (child, parent) pairs")
    return pairs


def _ids(
    full: Sequence[tuple[str, ...]], carried: Sequence[bool], starts: Sequence[int], levels: Sequence[str]
) -> tuple[str, ...]:
    """Return each region's name if no other region has it, otherwise its path below the root.

    A carried-down copy has the id of the region it copies, with its level: `DC@county`. In the rare case that such ids
    collide, all ids are paths from the root, which cannot collide.
    """
    paths = [["/".join(_escaped(name) for name in part) for part in (path[1:] or path, path)] for path in full]
    uses = Counter(path[-1] for path, copy in zip(full, carried, strict=True) if not copy)
    by_name, by_path = [], []
    for level, (start, stop) in enumerate(pairwise(starts)):
        unique = all(uses[full[region][-1]] == 1 for region in range(start, stop) if not carried[region])
        for region in range(start, stop):
            suffix = f"@{levels[level]}" if carried[region] else ""
            by_name.append((full[region][-1] if unique else paths[region][0]) + suffix)
            by_path.append("/" + paths[region][1] + suffix)
    return tuple(by_name if len(set(by_name)) == len(by_name) else by_path)


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F").replace("@", "%40")


def _repeated(items: Iterable[Any]) -> list[Any]:
    return [item for item, count in Counter(items).items() if count > 1]


def _some(names: Iterable[Any], most: int = 5) -> str:
    listed = [str(name) for name in names]
    rest = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + rest


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


# -------------------------------------------------------------------- columns of region tables

Encoded = tuple[Integers, Any]  # the number of each cell's text, and the texts as an Arrow array


def _encode(column: Any) -> Encoded:
    """Return the number of each cell's stripped text, and the texts of the numbers; an empty cell is an empty text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # Combined before it is encoded: each chunk would have its own dictionary, and all of these would be unified.
        texts = pc.fill_null(column.cast(pa.large_string()).combine_chunks(), "")
        found = pc.utf8_trim(texts, characters=BLANKS).dictionary_encode()
    else:
        found = pa.array(text_columns(pa.table({"": column}), [""])[0], pa.large_string()).dictionary_encode()
    codes: Integers = found.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, found.dictionary


def _empty_code(texts: Any) -> int:
    """Return the number of the empty text, or -1."""
    import pyarrow.compute as pc

    return int(pc.index(texts, "").as_py())


def _regions(above: Integers, codes: Integers, texts: int) -> tuple[Integers, Integers, Integers]:
    """Return each row's region on a level, in layout order; and each region's parent and the number of its name."""
    keys = above * texts + codes
    begins = np.flatnonzero(np.diff(keys, prepend=-1))  # starts of runs of rows in the same region
    runs = keys[begins]
    lengths = np.diff(begins, append=len(keys))
    if np.all(np.diff(runs) > 0):  # rows are in the tree's order
        return np.repeat(np.arange(len(runs)), lengths), runs // texts, runs % texts
    known, first, run_of = np.unique(runs, return_index=True, return_inverse=True)
    order = np.lexsort((first, known // texts))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return np.repeat(place[run_of.ravel()], lengths), known[order] // texts, known[order] % texts
