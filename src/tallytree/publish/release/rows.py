"""`TableRows`: the rows of a release's table, and where the numbers of each of them are.

Without categories a row is a region. With categories it is a region and a value of each category, or "all" for the sum
over a category's values. Arrays of such rows are *laid out* as the tree's rows first, then the sums, margin by margin;
the file has them region by region, the sums first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.names import briefly
from tallytree.domain.categories import ALL, margins
from tallytree.domain.hierarchy import Hierarchy

Keys = tuple[str, ...]


def category_description(name: str) -> str:
    """What a category's column means."""
    return f"value of {name}; {ALL} stands for the sum over its values"


@dataclass(frozen=True, eq=False)
class TableRows:
    """The rows that a hierarchy, by category or not, has in tables."""

    tree: Hierarchy

    __repr__ = briefly

    @property
    def categories(self) -> Keys:
        """The columns of categories; none without."""
        return self.tree.by.names

    def __len__(self) -> int:
        """How many rows the table has for each size."""
        return len(self.tree.regions) * len(self.values)

    @property
    def laid_out(self) -> int:
        """How many rows an array that is laid out has."""
        return len(self.tree) + len(margins(self.tree.by)) * len(self.tree.regions)

    def lay_out(self, values: NDArray[Any], sums: NDArray[Any] | None = None) -> NDArray[Any]:
        """Values of the tree's rows with those of the sums after them, which are their sums if they are not given.

        The tree's root is the sum over all categories of the root region: where both are given, the sum's counts.
        """
        if self.tree.first_level == 0:
            return values
        below = self.tree.margin_sums(values) if sums is None else sums
        found = np.concatenate([values, below])
        found[0] = below[0]
        return found

    @cached_property
    def order(self) -> Integers:
        """The table's rows, as rows of arrays that are laid out."""
        regions, count = len(self.tree.regions), len(margins(self.tree.by))
        sums = len(self.tree) + np.arange(count * regions).reshape(count, regions).T
        return np.hstack([sums, self.tree.cell_rows]).ravel()

    @cached_property
    def levels(self) -> dict[str, NDArray[np.int64]]:
        """The laid-out rows of every level: those by category, and with categories the sums on their own."""
        tree = self.tree
        found = {name: np.arange(len(tree))[tree.level_slice(level)] for level, name in enumerate(tree.levels)}
        regions = tree.regions
        for level, name in enumerate(regions.levels if tree.by.columns else ()):
            starts = len(tree) + len(regions) * np.arange(len(margins(tree.by)))
            rows = np.arange(len(regions))[regions.level_slice(level)]
            found[f"{name}, {tree.levels[0]}"] = (starts[:, np.newaxis] + rows).ravel()
        return found

    @cached_property
    def values(self) -> list[Keys]:
        """What stands in the columns of categories in the rows of one region, in the table's order."""
        return [*(margin.values for margin in margins(self.tree.by)), *self.tree.by.cells]

    def level_of(self, row: int) -> str:
        """The name in `levels` of the level of a laid-out row."""
        return next(name for name, rows in self.levels.items() if rows[0] <= row <= rows[-1] and row in rows)

    def keys(self, places: Integers) -> dict[str, Any]:
        """Arrow columns level, region, name and the categories, for rows of the table in ascending order."""
        import pyarrow as pa

        regions = self.tree.regions
        region, slot = np.divmod(places, len(self.values))
        first, last = (int(region[0]), int(region[-1]) + 1) if len(region) else (0, 0)

        def named(texts: Any, found: Integers) -> Any:
            return pa.array(texts, pa.string()).take(pa.array(found))

        ids = pa.array(regions.ids[first:last], pa.string()).take(pa.array(region - first))
        return {
            "level": named(regions.levels, regions.level_of[region]),
            "region": ids,
            "name": ids if regions.names is regions.ids else named(regions.names[first:last], region - first),
            **{name: named([cell[at] for cell in self.values], slot) for at, name in enumerate(self.categories)},
        }

    @cached_property
    def codes(self) -> list[Keys]:
        """The codes of each category in tables: "all" and its values."""
        return [tuple(dict.fromkeys(texts)) for texts in zip(*self.values, strict=True)]

    @cached_property
    def by_code(self) -> Integers:
        """The laid-out rows of regions by code of each category, the last category moving fastest."""
        numbers = [0] * len(self.values)
        for at, codes in enumerate(self.codes):
            numbers = [
                number * len(codes) + codes.index(cell[at]) for number, cell in zip(numbers, self.values, strict=True)
            ]
        return self.order.reshape(-1, len(self.values))[:, np.argsort(numbers)].ravel()

    def where(self, row: int) -> str:
        """A laid-out row in words."""
        tree = self.tree
        if row < len(tree):
            return f"region {tree.ids[row]!r}"
        margin, region = divmod(row - len(tree), len(tree.regions))
        values = ", ".join(margins(tree.by)[margin].values)
        return f"region {tree.regions.ids[region]!r} [{values}]"
