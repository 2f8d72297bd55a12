"""`RegionNames` and `Area`: find regions by id or name, and define custom areas.

A custom area is a named list of leaves that need not be a region of the tree, such as a school district or a service
area. Its list of leaves is public. Areas may overlap, and they need not cover everything. Their counts are sums of
released counts, so they agree with the release and cost no privacy.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from itertools import groupby
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.arguments import PATH, TEXT, told
from tallytree.core.errors import SpecError
from tallytree.core.names import did_you_mean, for_a_spreadsheet, from_a_spreadsheet
from tallytree.core.numbers import short
from tallytree.core.public_table import public_table, text, text_columns
from tallytree.domain.categories import margins
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.unions import largest_regions, leaves_of
from tallytree.publish.untrusted import MOST_TEXT, check_regular


@dataclass(frozen=True, eq=False)
class RegionNames:
    """The ids and names of a hierarchy's regions.

    A branch that was carried down has its name on several levels and is the same place on all of them.
    """

    hierarchy: Hierarchy

    def find(self, text: object) -> int:
        """Return one region by id or by unique name; otherwise raise a SpecError that lists the nearest names."""
        if not isinstance(text, str):
            raise SpecError(f"{told(text)} is not a region; expected an id or a name, as text")
        if (region := self.where(text)) is not None:
            return region
        ids = self.hierarchy.ids
        if found := self._called(text):
            some = [ids[region] for region in found[:6]]
            more = f" and {len(found) - 6} more" if len(found) > 6 else ""
            raise SpecError(
                f"{len(found)} regions are called {short(text)}; give one of the ids: {', '.join(some)}{more}"
            )
        words = {name.casefold(): name for name in (*ids, *self.hierarchy.names)}
        near = [words[word] for word in get_close_matches(text.casefold(), words, n=3, cutoff=0.6)]
        hint = f"did you mean {' or '.join(near)}?" if near else "regions.csv lists ids and names"
        raise SpecError(f"there is no region {short(text)}; {hint}")

    def where(self, text: str) -> int | None:
        """Return the same, or None if nothing matches."""
        if text in self.hierarchy.index:
            return self.hierarchy.index[text]
        found = self._called(text)
        return found[0] if len(found) == 1 else None

    def _called(self, text: str) -> list[int]:
        return self._places.get(text) or self._folded.get(text.casefold(), [])

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for region, name in enumerate(self.hierarchy.names):
            if not self.hierarchy.carried[region]:
                places.setdefault(name, []).append(region)
        return places

    @cached_property
    def _folded(self) -> dict[str, list[int]]:
        folded: dict[str, list[int]] = {}
        for name, regions in self._places.items():
            folded.setdefault(name.casefold(), []).extend(regions)
        return folded


# -------------------------------------------------------------------- areas


AREAS, LEAVES = "areas.parquet", "area_leaves.csv"
AREA_FILES = (AREAS, "areas.csv", LEAVES)  # either all of them are in the release, or none
LEAF_COLUMNS = ("kind", "area", "region")
COLUMNS = ("area", "region")
KIND = "kind"  # also a column of published lists
LONGEST_NAME = 200  # characters
MOST_CELLS = 5_000_000  # areas × sizes that are published
MOST_WORK = 20_000_000_000  # areas × regions of the tree
MOST_BYTES = 128 << 20  # of the list of leaves that is published
MOST_NAMED = 3  # of one mistake
FEWER = "publish fewer, or ask for them with `query`"

Pairs = list[tuple[str, str]]  # area and region, as texts


class CountedOnce(UserWarning):
    """A leaf is listed more than once in an area; it is counted once."""


@dataclass(frozen=True)
class Area:
    """A custom area: its name, and the fewest disjoint regions that make it up."""

    name: str
    regions: tuple[int, ...]
    kind: str = ""  # the published name of such areas, such as school_districts

    def leaves(self, hierarchy: Hierarchy) -> list[int]:
        """Return its leaves as indices among all regions, ascending."""
        found: list[int] = np.sort(leaves_of(self.regions, hierarchy)).tolist()
        return found


def read_areas(source: Any, hierarchy: Hierarchy, *, kind: str = "") -> tuple[Area, ...]:
    """Read areas from a CSV or Parquet file or a table with the columns `area` and `region`, or from lists of
    regions.

    A region is an id or a name, as in all queries. A region above the leaves stands for all its leaves. A leaf may lie
    in
    several areas. If it appears twice in one area it counts once, with a warning. Unknown or empty entries raise a
    SpecError.
    """
    what = f"list of areas {kind!r}" if kind else "list of areas"
    pairs = _of_lists(source, what) if isinstance(source, Mapping) else _of_table(source, what)
    if not pairs:
        raise SpecError(f"the {what} is empty; expected a row for each area and leaf")
    marked = isinstance(source, str | PathLike) and not fspath(source).lower().endswith((".parquet", ".pq"))
    listed = _found(pairs, hierarchy, what, marked=marked)
    areas, repeated = [], []
    for name, regions in listed.items():
        leaves, times = np.unique(leaves_of(regions, hierarchy), return_counts=True)
        repeated += [(name, int(leaf)) for leaf in leaves[times > 1][:1]]
        areas.append(Area(name, largest_regions(leaves, hierarchy), kind))
    if repeated:
        name, leaf = repeated[0]
        others = f", and so have {len(repeated) - 1:,} other areas" if len(repeated) > 1 else ""
        warnings.warn(
            f"the area {short(name)} has the leaf {short(hierarchy.ids[leaf])} more than once{others}; it counts once",
            CountedOnce,
            stacklevel=2,
        )
    return tuple(areas)


def region_texts(source: Any) -> list[str]:
    """Return the regions that a list of areas names; `read_areas` checks whether they exist."""
    return [from_a_spreadsheet(region) for _, region in _of_table(source, "list of areas") if region]


def areas_to_publish(sources: Mapping[str, Any] | None, tree: Hierarchy, sizes: int) -> tuple[Area, ...]:
    """Read several kinds of areas, each from its own source; refuse more than a release can hold."""
    if sources is None:
        return ()
    if not isinstance(sources, Mapping):
        raise SpecError(f"areas is {told(sources)}; expected lists of areas by what these are called")
    areas: list[Area] = []
    for kind, source in sources.items():
        _check_name(kind, "a kind of areas")
        areas += read_areas(source, tree.regions, kind=kind)
    check_number(len(areas), sizes, tree)
    if (size := sum(_bytes(area, tree.regions) for area in areas)) > MOST_BYTES:
        raise SpecError(f"the lists of areas take {size:,} bytes, more than the {MOST_BYTES:,} of a release; {FEWER}")
    return tuple(areas)


def check_number(areas: int, sizes: int, tree: Hierarchy) -> None:
    """Refuse more areas than can be written, or computed in a reasonable time."""
    slots = len(tree.by) + len(margins(tree.by))
    times = "" if slots == 1 else f" times {slots} for categories"
    if areas * slots * sizes > MOST_CELLS:
        raise SpecError(
            f"{areas:,} areas of {sizes:,} sizes{times} are more than the {MOST_CELLS:,} of a release; {FEWER}"
        )
    if areas * slots * len(tree) > MOST_WORK:
        raise SpecError(f"{areas:,} areas over {len(tree):,} regions{times} are more than a release computes; {FEWER}")


def _bytes(area: Area, hierarchy: Hierarchy) -> int:
    """Return an upper bound on the bytes of an area's rows in a CSV file, where quotes are doubled."""
    beside = 2 * len(f"{area.kind}{area.name}".encode()) + 16
    return sum(2 * len(hierarchy.ids[leaf].encode()) + beside for leaf in area.leaves(hierarchy))


# -------------------------------------------------------------------- what was written


def _of_lists(source: Mapping[Any, Any], what: str) -> Pairs:
    pairs = []
    for name, regions in source.items():
        listed = [regions] if isinstance(regions, str) else regions
        if not isinstance(listed, Iterable):
            raise SpecError(f"the area {told(name)} is {told(regions)}; expected a list of regions")
        listed = list(listed)
        if not listed:
            raise SpecError(f"the area {told(name)} of the {what} is empty; expected at least one region")
        _check_name(name, "the name of an area")
        for region in listed:
            if not TEXT.holds(region):
                raise SpecError(f"{told(region)} in the area {short(name)} is not a region; expected an id or a name")
            pairs.append((text(name), text(region)))
    return pairs


def _of_table(source: Any, what: str) -> Pairs:
    if isinstance(source, str | PathLike) and not PATH.holds(source):
        raise SpecError(f"the {what} is {told(source)}; expected a path, a table or lists of regions by name")
    table = public_table(source, what)
    if missing := [name for name in COLUMNS if name not in table.column_names]:
        hint = did_you_mean(missing[0], table.column_names, "it has")
        raise SpecError(f"the {what} has no column {missing[0]!r}; {hint}. Expected the columns area and region")
    names, regions = text_columns(table, COLUMNS)
    if KIND in table.column_names:
        kinds: dict[str, str] = {}
        for name, kind in zip(names, text_columns(table, [KIND])[0], strict=True):
            if kinds.setdefault(name, kind) != kind:
                raise SpecError(
                    f"the {what} has the area {short(name)} in two kinds, {short(kinds[name])} and {short(kind)}; keep "
                    "the rows of one kind"
                )
    return list(zip(names, regions, strict=True))


def _found(pairs: Pairs, hierarchy: Hierarchy, what: str, *, marked: bool) -> dict[str, list[int]]:
    """Return the regions of every area in the order of the rows; one error lists all rows that cannot be read."""
    names = RegionNames(hierarchy)
    known: dict[str, int | None] = {}
    listed: dict[str, list[int]] = {}
    mistakes: list[str] = []
    nameless, nowhere, unknown = 0, 0, 0
    for row, (name, region) in enumerate(pairs, start=1):
        nameless += not name
        nowhere += not region
        if not name or not region:
            continue
        exact = from_a_spreadsheet(name) if marked else name
        if exact not in listed:
            _check_name(exact, "the name of an area")
        if region not in known:
            plain = from_a_spreadsheet(region) if marked else region
            written = plain if plain in hierarchy.index else region
            try:
                known[region] = names.find(written) if len(mistakes) < MOST_NAMED else names.where(written)
            except SpecError as error:
                known[region] = None
                mistakes.append(f"row {row:,}, area {short(exact)}: {error}")
            unknown += known[region] is None
        if (found := known[region]) is not None:
            listed.setdefault(exact, []).append(found)
    if unknown > len(mistakes):
        mistakes.append(f"{unknown - len(mistakes):,} more unknown regions")
    if nameless:
        mistakes.append(f"{nameless:,} rows have no name in column 'area'")
    if nowhere:
        mistakes.append(f"{nowhere:,} rows have no region; leave out empty areas")
    if mistakes:
        raise SpecError("\n  - ".join([f"the {what} has mistakes:", *mistakes]))
    return listed


def _check_name(name: object, what: str) -> None:
    if not isinstance(name, str) or not TEXT.holds(name) or not name.strip():
        raise SpecError(f"{what} is {told(name)}; expected a text that is not empty")
    if len(name) > LONGEST_NAME:
        raise SpecError(f"{what} has {len(name):,} characters, {short(name)}; expected at most {LONGEST_NAME}")


# -------------------------------------------------------------------- the file of leaves


def write_leaves(areas: Iterable[Area], hierarchy: Hierarchy, path: Path) -> None:
    """Write the leaves of each area to a file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(LEAF_COLUMNS)
        for area in areas:
            for leaf in area.leaves(hierarchy):
                writer.writerow(map(for_a_spreadsheet, (area.kind, area.name, hierarchy.ids[leaf])))


def read_leaves(path: Path, tree: Hierarchy, sizes: int) -> tuple[Area, ...]:
    """Read the areas of a file by `write_leaves`; raise SpecError for any other content."""
    check_regular(path, most=MOST_TEXT)
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        if tuple(next(reader, ())) != LEAF_COLUMNS:
            raise SpecError(f"its columns are not {', '.join(LEAF_COLUMNS)}")
        rows = [[from_a_spreadsheet(cell) for cell in row] for row in reader]
    hierarchy = tree.regions
    first, index = int(hierarchy.level_starts[-2]), hierarchy.index
    if any(len(row) != len(LEAF_COLUMNS) for row in rows):
        raise SpecError("a row has too many or too few cells")
    if any(index.get(leaf, -1) < first for _, _, leaf in rows):
        raise SpecError("an area has a leaf that the release does not have")
    check_number(len({(kind, name) for kind, name, _ in rows}), sizes, tree)
    return tuple(
        Area(name, largest_regions(np.unique([index[leaf] for _, _, leaf in listed]), hierarchy), kind)
        for (kind, name), listed in groupby(rows, key=lambda row: (row[0], row[1]))
    )
