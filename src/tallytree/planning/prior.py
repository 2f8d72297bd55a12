"""`Prior`: expected counts before any data are read, from public facts alone.

A named shape, an older public table or an earlier release gives the distribution of sizes. Public totals, the older
table or a stated number of groups give the number of groups. `fitted` combines the two for a hierarchy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arguments import told
from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.core.public_table import numbers, public_table, text_columns
from tallytree.domain.hierarchy import Hierarchy
from tallytree.privacy.noise.keystream import Keystream

Shape = Callable[[int, int], Floats]  # (first size, largest size) to shares that add up to 1

NO_PRIOR = (
    "no prior given; set [plan] prior in the spec or pass --prior: "
    '"households", "heavy-tail" or "uniform", an older public table, or an earlier release'
)
HOUSEHOLDS = (26.7, 32.8, 16.1, 13.4, 6.5, 2.6)  # % of U.S. households of 1 … 6 persons in 2010; the rest is a tail
TAIL = 0.45  # households of 7 or more: the ratio for each further person
LONG_TAIL = (1.5, 10.0)  # of heavy-tail: P(size ≥ s) = (1 + (s − 1)/10)^−1.5 among groups that are not empty
COUNTS, ALL = ("counts.parquet", "counts"), "all"  # the table in a release's folder, and the name of all categories
MEASURED = ("level", "region", "name", "size", "count", "lower", "upper", "typical_lower", "typical_upper")
MOST_OLDER_CELLS = 100_000_000  # limit for an older table, regions × sizes
NORMAL_FROM = 64.0  # expected groups in a cell; from there on numbers are drawn by the normal approximation


@runtime_checkable
class ReleasedCounts(Protocol):
    """The parts of an earlier release that a prior uses: `counts` is `[regions, sizes]`, `sizes` are its columns."""

    @property
    def counts(self) -> Integers: ...
    @property
    def hierarchy(self) -> Hierarchy: ...
    @property
    def sizes(self) -> range: ...
    @property
    def title(self) -> str: ...


@dataclass(frozen=True, eq=False)
class OlderTable:
    """Public counts of an earlier time, by region and size."""

    texts: tuple[str, ...]  # ids or names of its regions; empty if it has one shape for all
    region: Integers  # each row's index in `texts`; empty without regions
    size: Integers
    count: Floats

    __repr__ = briefly

    @classmethod
    def of_release(cls, release: ReleasedCounts) -> OlderTable:
        """Return the counts of a release, without zeros."""
        region, cell = np.nonzero(release.counts)
        count = release.counts[region, cell].astype(np.float64)
        return cls(release.hierarchy.ids, region, cell + release.sizes.start, count)

    @classmethod
    def of(cls, source: Any) -> OlderTable:
        """Return the rows of a table or of a release's folder: those over all categories, if it has categories."""
        given, folder = source, isinstance(source, str | PathLike) and Path(source).is_dir()
        if folder and not (source := next(filter(Path.exists, (Path(source, name) for name in COUNTS)), None)):
            raise SpecError(f"the prior {fspath(given)!r} is a folder without {COUNTS[0]}, so it holds no release")
        table = public_table(source, "older table")
        if missing := [name for name in ("size", "count") if name not in table.column_names]:
            raise SpecError(
                f"the older table has no column {' nor '.join(missing)}; expected size, count and, where counts are by "
                f"region, region; it has {', '.join(table.column_names)}"
            )
        if table.num_rows > MOST_OLDER_CELLS:
            raise SpecError(f"the older table has over {MOST_OLDER_CELLS:,} rows, too many to plan with")
        for category in [name for name in table.column_names if folder and name not in MEASURED]:
            table = table.filter([one == ALL for one in table[category].to_pylist()])
        size, count = numbers(table["size"], "size", whole=True), numbers(table["count"], "count")
        if not np.any(count > 0):
            raise SpecError("the older table counts no groups, so no prior can be taken from it")
        texts = text_columns(table, ["region"])[0] if "region" in table.column_names else []
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        region = np.array([places[text] for text in texts], dtype=np.int64)
        return cls(tuple(places), region, size.astype(np.int64), count)


@dataclass(frozen=True, eq=False)
class Prior:
    """Public expectations about group sizes, for `plan`; make one with `of`.

    `groups` is how many groups to expect in all, for where neither public totals nor a table says; they are spread over
    the leaves evenly or by `weights`, one public number for each leaf.

    Parameters
    ----------
    source : str
        Where the expectations come from, in words.
    shape : Shape, optional
        A size distribution for all regions.
    older : OlderTable, optional
        An older public table.
    groups : int, optional
        How many groups to expect in all.
    weights : array of float, optional
        A public number for each leaf, to spread the groups by.
    """

    source: str  # in words
    shape: Shape | None = None
    older: OlderTable | None = None
    groups: int | None = None
    weights: Floats | None = None

    __repr__ = briefly

    def __post_init__(self) -> None:
        groups = self.groups
        if groups is not None and (isinstance(groups, bool) or not isinstance(groups, int) or not 0 < groups < 2**53):
            raise SpecError(f"groups is the expected number of groups, an integer above 0, not {told(groups)}")
        if self.weights is not None:
            try:
                weights = np.asarray(self.weights, dtype=np.float64)
            except (TypeError, ValueError, OverflowError):
                raise SpecError(f"weights is {told(self.weights)}; expected a number for each leaf") from None
            object.__setattr__(self, "weights", weights)
            if not np.all(np.isfinite(weights)) or np.any(weights < 0) or not np.any(weights > 0):
                raise SpecError(
                    "the weights that groups are spread by must be numbers of at least 0, not all of them 0"
                )
            if groups is None:
                raise SpecError("weights spread groups over the leaves; give their number with groups, too")

    @classmethod
    def of(cls, value: Any, *, groups: int | None = None, weights: Floats | None = None) -> Prior:
        """Make a prior from a shape's name, a table or an earlier release.

        Parameters
        ----------
        value
            One of `SHAPES`, the same in every region; an earlier release or its folder; or an older public table (CSV,
            Parquet, Arrow or columns) with the columns size, count and usually region. A region is an id or a name of
            the hierarchy, on any level. Without that column there is one shape for all regions.
        groups, weights
            The expected number of groups, and public numbers that spread them over the leaves.
        """
        if isinstance(value, Prior):
            stated = {"groups": groups, "weights": weights}
            return replace(value, **{name: new for name, new in stated.items() if new is not None})  # type: ignore[arg-type]
        if isinstance(value, str) and value in SHAPES:
            return cls(f"the shape {value!r}", SHAPES[value], None, groups, weights)
        if isinstance(value, ReleasedCounts):
            return cls(f"the release {value.title!r}", None, OlderTable.of_release(value), groups, weights)
        source = "an older table"
        if isinstance(value, str | PathLike):
            source = f"the {'release' if Path(value).is_dir() else 'table'} {Path(value).name}"
            if not Path(value).exists():
                raise SpecError(f"the prior {fspath(value)!r} is neither a shape ({', '.join(SHAPES)}) nor a path")
        elif not isinstance(value, Mapping) and not hasattr(value, "__arrow_c_stream__"):
            raise SpecError(
                f"the prior is of type {type(value).__name__}; expected a shape's name, a path, a table or a release"
            )
        return cls(source, None, OlderTable.of(value), groups, weights)

    def fitted(
        self, hierarchy: Hierarchy, *, first_size: int, max_size: int, leaf_totals: Integers | None = None
    ) -> ExpectedCounts:
        """Return the expected counts of every leaf. Public `leaf_totals` override every other number.

        A leaf that the table does not have takes the shape of the nearest region above it that the table knows of,
        and, where totals are private, the mean total of the leaves there.

        Parameters
        ----------
        hierarchy : Hierarchy
            The regions.
        first_size : int
            The smallest size that is counted.
        max_size : int
            The largest size that is counted separately.
        leaf_totals : array of int, optional
            The public number of groups in each leaf.

        Returns
        -------
        ExpectedCounts
            The expected counts.
        """
        if self.weights is not None and len(self.weights) != hierarchy.leaf_count:
            raise SpecError(f"expected {hierarchy.leaf_count} weights, one for each leaf, not {len(self.weights)}")
        notes: list[str] = []
        if self.older is None:
            assert self.shape is not None
            shapes = self.shape(first_size, max_size)[None, :]
            shape_of = np.zeros(hierarchy.leaf_count, dtype=np.int64)
            totals = None
        else:
            shapes, shape_of, totals, notes = _from_older(self.older, hierarchy, first_size, max_size)
        if leaf_totals is not None:
            if self.groups is not None:
                notes.append("the number of groups is public here, so the stated one is not used")
            totals = leaf_totals.astype(np.float64)
        elif self.groups is not None:
            even = np.ones(hierarchy.leaf_count)
            spread = self.weights if self.weights is not None else even if totals is None else totals
            totals = self.groups * spread / spread.sum()
        if totals is None:
            why = "a shape does not say" if self.older is None else "no region of the older table is in the hierarchy"
            raise SpecError(
                f"how many groups are to be expected? Totals are private here, and {why}: say it with groups = N (or "
                "use an older table or release with these regions as the prior)"
            )
        return ExpectedCounts(hierarchy, first_size, max_size, totals, shapes, shape_of, tuple(notes))


@dataclass(frozen=True, eq=False)
class ExpectedCounts:
    """A prior for one hierarchy: the expected groups of each leaf, and the shares of their sizes."""

    hierarchy: Hierarchy
    first_size: int
    max_size: int
    totals: Floats  # [leaves]
    shapes: Floats  # [shapes, sizes], each adding up to 1
    shape_of: Integers  # [leaves]
    notes: tuple[str, ...] = ()  # filled gaps, for the report

    __repr__ = briefly

    def expected(self, leaves: Integers) -> Floats:
        """Return expected counts `[leaves, sizes]` of some leaves."""
        rows: Floats = self.totals[leaves, None] * self.shapes[self.shape_of[leaves]]
        return rows

    def sample(self, leaves: Integers) -> Integers:
        """Return simulated counts of some leaves: each cell is a Poisson number of its expectation, from an unseeded
        generator.

        So totals vary slightly, as those of an older year do; a leaf whose public total is 0 stays empty.
        """
        return poisson(self.expected(leaves))


# -------------------------------------------------------------------- named shapes


def _households(first_size: int, max_size: int) -> Floats:
    shares = np.zeros(max(max_size, len(HOUSEHOLDS)) + 60)
    shares[1 : len(HOUSEHOLDS) + 1] = HOUSEHOLDS
    tail = TAIL ** np.arange(len(shares) - len(HOUSEHOLDS) - 1)
    shares[len(HOUSEHOLDS) + 1 :] = (100 - sum(HOUSEHOLDS)) * tail / tail.sum()
    return _closed(shares, first_size, max_size)


def _heavy_tail(first_size: int, max_size: int) -> Floats:
    power, scale = LONG_TAIL
    survivors = (1 + np.arange(max_size) / scale) ** -power  # P(size ≥ 1), …, P(size ≥ K)
    shares = np.concatenate([[1.0], survivors - np.append(survivors[1:], 0.0)])
    return _closed(shares, first_size, max_size)


def _uniform(first_size: int, max_size: int) -> Floats:
    return _closed(np.concatenate([[0.0], np.ones(max_size)]), first_size, max_size)


SHAPES: dict[str, Shape] = {"households": _households, "heavy-tail": _heavy_tail, "uniform": _uniform}


def _closed(shares: Floats, first_size: int, max_size: int) -> Floats:
    """Convert shares of sizes 0, 1, … into those of first_size … max_size; the last takes all larger ones."""
    kept = shares[first_size : max_size + 1].copy()
    kept[-1] += shares[max_size + 1 :].sum()
    closed: Floats = kept / kept.sum()
    return closed


# -------------------------------------------------------------------- an older table on a hierarchy


def _from_older(
    older: OlderTable, hierarchy: Hierarchy, first_size: int, max_size: int
) -> tuple[Floats, Integers, Floats | None, list[str]]:
    """Return (shapes, the shape of each leaf, expected totals of the leaves or None, notes)."""
    used = older.size >= first_size
    size = np.minimum(older.size[used], max_size) - first_size
    count, width = older.count[used], max_size - first_size + 1
    overall = np.bincount(size, count, width)
    if not overall.any():
        raise SpecError(f"the older table counts no group of size {first_size} or more, so it gives no prior for them")
    notes = []
    largest = int(older.size[older.count > 0].max())
    if largest < max_size:
        notes.append(f"sizes above {largest} are expected to be empty: {largest} is the largest of the older table")
    at = _places(older.texts, hierarchy)
    found = at >= 0
    if not found.any():
        if len(older.texts):
            notes.append("no region of the older table is in the hierarchy: its overall shape is used everywhere")
        return (overall / overall.sum())[None, :], np.zeros(hierarchy.leaf_count, dtype=np.int64), None, notes
    if missed := int(np.count_nonzero(~found)):
        notes.append(f"{missed:,} of {len(at):,} regions of the older table are not in the hierarchy and were left out")
    rows, row_of = _known_regions(at[found], hierarchy)
    if len(rows) * width > MOST_OLDER_CELLS:
        most = f"{MOST_OLDER_CELLS:,} cells"
        raise SpecError(f"the older table has too many regions and sizes to plan with (over {most})")
    direct = np.zeros(len(rows), dtype=np.bool_)
    direct[row_of[at[found]]] = True
    here = found[older.region[used]]
    counts = np.zeros((len(rows), width))
    np.add.at(counts, (row_of[at[older.region[used][here]]], size[here]), count[here])
    # Regions are in breadth-first order, so going backwards every child comes before its parent.
    for row in range(len(rows) - 1, 0, -1):
        above = row_of[hierarchy.parents[rows[row]]]
        if not direct[above]:
            counts[above] += counts[row]
    sums = counts.sum(axis=1)
    filled = sums > 0
    shapes = np.where(filled[:, None], counts / np.where(filled, sums, 1)[:, None], overall / overall.sum())
    shape_of = np.zeros(len(hierarchy), dtype=np.int64)
    has_own = np.zeros(len(hierarchy), dtype=np.bool_)
    has_own[rows[filled]] = True
    shape_of[rows[filled]] = np.flatnonzero(filled)
    for level in range(1, hierarchy.depth):
        regions = hierarchy.level_slice(level)
        above = shape_of[hierarchy.parents[regions]]
        shape_of[regions] = np.where(has_own[regions], shape_of[regions], above)
    totals = _totals(hierarchy, rows, direct, sums)
    first = int(hierarchy.level_starts[-2])
    known = np.count_nonzero(direct & (rows >= first))
    if lacking := hierarchy.leaf_count - known:
        notes.append(
            f"{lacking:,} of {hierarchy.leaf_count:,} leaves are not in the older table: filled from those above"
        )
    return shapes, shape_of[first:], totals, notes


def _places(texts: tuple[str, ...], hierarchy: Hierarchy) -> Integers:
    """Return the region of each id or name; -1 if it is unknown or several regions have the name."""
    by_name: dict[str, int] = {}
    for region, name in enumerate(hierarchy.names):
        if not hierarchy.carried[region]:
            by_name[name] = -1 if name in by_name else region
    return np.array([hierarchy.index.get(text, by_name.get(text, -1)) for text in texts], dtype=np.int64)


def _known_regions(found: Integers, hierarchy: Hierarchy) -> tuple[Integers, Integers]:
    """Return the found regions and all above them, in order, and the index of each tree region among them (or -1)."""
    known = np.zeros(len(hierarchy), dtype=np.bool_)
    known[found] = True
    for level in range(hierarchy.depth - 1, 0, -1):
        regions = hierarchy.level_slice(level)
        known[hierarchy.parents[regions][known[regions]]] = True
    rows = np.flatnonzero(known)
    place = np.full(len(hierarchy), -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    return rows, place


def _totals(hierarchy: Hierarchy, rows: Integers, direct: NDArray[np.bool_], sums: Floats) -> Floats:
    """Return expected totals of all leaves, from the regions in the table.

    A missing leaf gets its part of the nearest listed ancestor's total beyond the listed leaves there, or the mean of
    the listed leaves under the nearest ancestor that has any, depending on which ancestor is nearer. Without either, it
    gets the mean of all other leaves.
    """
    first = int(hierarchy.level_starts[-2])
    own = np.full(len(hierarchy), np.nan)
    own[rows[direct]] = sums[direct]
    of_leaves = own[first:]
    leaves = sum_up(hierarchy, np.ones(hierarchy.leaf_count))
    listed = sum_up(hierarchy, ~np.isnan(of_leaves))
    total = sum_up(hierarchy, np.nan_to_num(of_leaves))
    each = np.full(len(hierarchy), np.nan)  # the total of an unlisted leaf below
    for level in range(hierarchy.depth):
        regions = hierarchy.level_slice(level)
        lacking = leaves[regions] - listed[regions]
        rest = np.maximum(own[regions] - total[regions], 0) / np.maximum(lacking, 1)
        mean = total[regions] / np.maximum(listed[regions], 1)
        above = each[hierarchy.parents[regions]] if level else np.full(1, np.nan)
        each[regions] = np.where(
            ~np.isnan(own[regions]) & (level < hierarchy.depth - 1),
            rest,
            np.where(listed[regions] > 0, mean, above),
        )
    found = np.where(listed[first:] > 0, total[first:], each[first:])
    return np.where(np.isnan(found), np.nanmean(found), found)


def sum_up(hierarchy: Hierarchy, of_leaves: NDArray[Any]) -> Floats:
    """Sum numbers of the leaves, integers or not, up the tree to one for every region."""
    sums = np.zeros(len(hierarchy))
    sums[int(hierarchy.level_starts[-2]) :] = of_leaves
    for level in range(hierarchy.depth - 1, 0, -1):
        regions = hierarchy.level_slice(level)
        np.add.at(sums, hierarchy.parents[regions], sums[regions])
    return sums


# -------------------------------------------------------------------- simulated counts


def poisson(expected: Floats) -> Integers:
    """Return independent Poisson numbers from the cryptographic generator.

    Below `NORMAL_FROM` it uses inversion: the number of partial sums of the probabilities below one uniform number.
    Above, it uses the normal approximation, which is accurate enough for simulated data (no private data depend on it).
    """
    flat = expected.ravel()
    drawn = np.zeros(flat.shape, dtype=np.int64)
    few = (flat > 0) & (flat < NORMAL_FROM)
    mean = flat[few]
    uniform = _uniform_numbers(len(mean))
    term, reached = np.exp(-mean), np.zeros(len(mean), dtype=np.int64)
    below = term.copy()
    going = uniform >= below
    # 10 √NORMAL_FROM + 20 beyond the mean lies less than one draw in 10¹⁵.
    for number in range(1, int(NORMAL_FROM + 10 * np.sqrt(NORMAL_FROM)) + 20):
        if not going.any():
            break
        reached[going] = number
        term *= mean / number
        below += term
        going &= uniform >= below
    drawn[few] = reached
    many = flat >= NORMAL_FROM
    mean = flat[many]
    radius = np.sqrt(-2 * np.log1p(-_uniform_numbers(len(mean))))
    normal = radius * np.cos(2 * np.pi * _uniform_numbers(len(mean)))
    drawn[many] = np.maximum(np.rint(mean + np.sqrt(mean) * normal), 0).astype(np.int64)
    return drawn.reshape(expected.shape)


def _uniform_numbers(count: int) -> Floats:
    words = Keystream().words(count)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
