"""`Query`: a user's query to a release, and its form in terms of the release's rows and sizes (`Scope`, `Sum`)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Integral
from typing import Literal, get_args

import numpy as np

from tallytree.core.arguments import MAPPING, expect, instance, optional, told
from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import did_you_mean
from tallytree.core.numbers import exact_number, short
from tallytree.domain.categories import ALL, Categories, margins
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import size_label
from tallytree.estimate.intervals.size_distribution import Gini, Quantile, Statistic
from tallytree.estimate.intervals.unions import Unions
from tallytree.publish.about import NOT_STATED, About
from tallytree.publish.release.areas import Area, RegionNames, read_areas
from tallytree.publish.release.table_layout import TableRows

# -------------------------------------------------------------------- what a query is about


Regions = str | Iterable[str] | Area | None
By = Mapping[str, str] | None
MOST_NAMES = 3  # of regions in a sentence


@dataclass(frozen=True)
class Scope:
    """Disjoint regions, and a value of each category; "all" is the sum over its values."""

    regions: tuple[int, ...]
    values: tuple[str, ...]  # in the order of the categories; empty without categories
    words: str
    area: str = ""  # the area's name, if the query is about an area

    @classmethod
    def of(cls, regions: Regions, by: By, tree: Hierarchy) -> Scope:
        """Resolve names against a release's tree; unknown regions and values raise a SpecError."""
        values, own = read_by(by, tree.by), tree.regions
        union = regions.regions if isinstance(regions, Area) else union_of(named_regions(regions, own), own)
        place = f"the area {regions.name}" if isinstance(regions, Area) else places(union, own)
        area = regions.name if isinstance(regions, Area) else ""
        return cls(union, values, place + values_in_words(values, tree.by), area)

    @property
    def over_all(self) -> bool:
        """Return whether it is about the sums over all categories."""
        return bool(self.values) and set(self.values) == {ALL}

    def rows(self, tree: Hierarchy) -> tuple[int, ...]:
        """Return the disjoint rows of the tree that add up to it."""
        if self.over_all and self.regions == (0,):
            return (0,)
        found: list[int] = tree.cell_rows[np.ix_(self.regions, tree.by.places_of(self.values))].ravel().tolist()
        return tuple(sorted(found))

    def table_row(self, tree: Hierarchy) -> int | None:
        """Return its row in the released table, as `TableRows` lays them out; None if it has no row of its own."""
        if len(self.regions) > 1:
            return None
        for place, margin in enumerate(margins(tree.by)):
            if margin.values == self.values:
                return len(tree) + place * len(tree.regions) + self.regions[0]
        return self.rows(tree)[0]

    def by(self, tree: Hierarchy) -> dict[str, str]:
        """Return the values by the categories' names."""
        return dict(zip(tree.by.names, self.values, strict=True))


def area_scopes(areas: Sequence[Area], tree: Hierarchy) -> list[Scope]:
    """Return the scopes of the table of areas: for each area the sums over categories first, as for regions."""
    return [Scope(area.regions, values, "", area.name) for area in areas for values in TableRows(tree).values]


def unions_of(scopes: Sequence[Scope], tree: Hierarchy) -> Unions:
    """Return the sums that scopes are about."""
    whole = [scope.regions if scope.over_all else None for scope in scopes]
    return Unions.of_regions([scope.rows(tree) for scope in scopes], whole)


# -------------------------------------------------------------------- categories


def read_by(by: object, categories: Categories) -> tuple[str, ...]:
    """Return a value of each category, "all" for a category that is not named."""
    if by is not None and not isinstance(by, Mapping):
        raise SpecError(f'by is {told(by)}; expected a value for each category that is meant: {{"tenure": "rented"}}')
    if by and not categories.columns:
        raise SpecError("this release has no categories, so by cannot name any")
    given = dict(by or {})
    if unknown := [name for name in given if name not in categories.names]:
        raise SpecError(f"there is no category {told(unknown[0])}; {did_you_mean(str(unknown[0]), categories.names)}")
    values = []
    for column in categories.columns:
        value = given.get(column.name, ALL)
        if value not in (ALL, *column.values):
            hint = did_you_mean(str(value), (*column.values, ALL))
            raise SpecError(f"{column.name} has no value {told(value)}; {hint}")
        values.append(value)
    return tuple(values)


def values_of(category: str, categories: Categories) -> tuple[str, ...]:
    """Return the values of a category, and "all" for their sum."""
    read_by({category: ALL}, categories)
    return next((*column.values, ALL) for column in categories.columns if column.name == category)


def values_in_words(values: Sequence[str], categories: Categories) -> str:
    """Return the words that follow the place in a sentence; empty if all values are meant.

    >>> by = Categories.of({"tenure": ["owned", "rented"]}, "group")
    >>> values_in_words(["rented"], by), values_in_words(["all"], by)
    (' with tenure rented', '')
    """
    told = [f"{name} {value}" for name, value in zip(categories.names, values, strict=True) if value != ALL]
    return f" with {listed(told)}" if told else ""


# -------------------------------------------------------------------- regions


def named_regions(regions: Regions, hierarchy: Hierarchy) -> list[int]:
    """Return indices of regions by id or by unique name; the root for None.

    A branch that was carried down has its name on several levels and is the same place on all of them.
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


def level_named(level: str, hierarchy: Hierarchy) -> slice:
    """Return the rows of a level's regions."""
    if level not in hierarchy.levels:
        raise SpecError(f"there is no level {told(level)}; {did_you_mean(str(level), hierarchy.levels)}")
    return hierarchy.level_slice(hierarchy.levels.index(level))


def regions_of_level(hierarchy: Hierarchy, level: str, within: Regions = None) -> list[str]:
    """Return the ids of all regions of a level, or of those within some regions."""
    own = level_named(level, hierarchy)
    inside = np.zeros(len(hierarchy), dtype=np.bool_)
    inside[named_regions(within, hierarchy)] = True
    for below in range(1, hierarchy.depth):
        rows = hierarchy.level_slice(below)
        inside[rows] |= inside[hierarchy.parents[rows]]
    found = np.flatnonzero(inside[own]) + own.start
    if not len(found):
        raise SpecError(f"none of the regions of level {level!r} lies within those that were named")
    return [hierarchy.ids[region] for region in found]


def union_of(regions: Iterable[int], hierarchy: Hierarchy) -> tuple[int, ...]:
    """Return the regions without those that lie within another of them."""
    named, kept = set(regions), []
    for region in sorted(named):
        above = int(hierarchy.parents[region])
        while above >= 0 and above not in named:
            above = int(hierarchy.parents[above])
        if above < 0:
            kept.append(region)
    return tuple(kept)


def places(regions: Sequence[int], hierarchy: Hierarchy) -> str:
    """Return regions for a sentence: names, with ids where the name is ambiguous."""
    texts = []
    for region in regions[:MOST_NAMES]:
        name, identity = hierarchy.names[region], hierarchy.ids[region]
        texts.append(identity if identity.endswith(name) else f"{name} ({identity})")
    if len(regions) > MOST_NAMES:
        return f"{len(regions):,} regions ({', '.join(texts)}, …)"
    return listed(texts)


def row_in_words(row: int, tree: Hierarchy) -> str:
    """Return a row of the tree for a sentence: its region, and its category if any."""
    if not tree.by.columns or row == 0:
        return places([row], tree)
    level = int(tree.level_of[row])
    regions, rows = tree.regions.level_slice(level - 1), tree.level_slice(level)
    cell, place = divmod(row - rows.start, regions.stop - regions.start)
    values = values_in_words(tree.by.cells[cell], tree.by)
    return places([regions.start + place], tree.regions) + values


def listed(texts: Sequence[str]) -> str:
    """Join texts as in "a, b and c".

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


# -------------------------------------------------------------------- queries


Sizes = str | int | Iterable[int] | None
Ends = tuple[float, float]
QueryKind = Literal["sum", "share", "mean", "ratio", "difference", "median", "quantile", "gini"]
KINDS: tuple[QueryKind, ...] = get_args(QueryKind)
LINEAR_KINDS = ("sum", "difference")
SIZE_KINDS = ("median", "quantile")  # whose answers are sizes
OVER_ALL_SIZES = {
    "mean": "mean size",
    "median": "median size",
    "quantile": "quantile of the sizes",
    "gini": "Gini coefficient of the sizes",
}
MEDIAN = Fraction(1, 2)

_COMPARED = re.compile(r"(>=|<=|>|<|=)?\s*(\d+)")
_SPANNED = re.compile(r"(\d+)\s*(?:-|–|\.\.|…|to)\s*(\d+)")
_OPEN = re.compile(r"(\d+)\s*(?:\+|or more)")
MOST_DIGITS = 18  # of a size in a query
HOW = 'write ">=6", "<=2", "3-5", "7+", "0", or several of them as in "1,2,7+"'


@dataclass(frozen=True)
class Sum:
    """The groups (or, with `entities`, their entities) of some sizes in a union of disjoint regions."""

    regions: tuple[int, ...]  # rows of the release's tree
    sizes: tuple[int, ...]
    entities: bool = False
    over_all: tuple[int, ...] | None = None  # its regions, for a sum over all categories

    def of(self, counts: Integers, first_size: int) -> int:
        """Return its value for counts `[regions, sizes]`."""
        regions, columns = np.array(self.regions), np.array(self.sizes) - first_size
        by_size = counts[regions[:, None], columns].sum(axis=0)
        return int(by_size @ np.array(self.sizes)) if self.entities else int(by_size.sum())

    def at_least(self, counts: Integers) -> Integers:
        """Return how many groups of its regions have each size or more."""
        found: Integers = counts[list(self.regions)].sum(axis=0)[::-1].cumsum()[::-1]
        return found


@dataclass(frozen=True)
class Query:
    """A query to a release, for `Release.ask`.

    Parameters
    ----------
    kind
        `"sum"`: the number of groups. `"share"`: their share of all groups there. `"mean"`: entities per group.
        `"ratio"` and `"difference"`: the number of groups compared with that of the regions `to`. `"median"` and
        `"quantile"`: the size that half, or a part `q`, of the groups do not exceed. `"gini"`: the Gini coefficient
        of the sizes.
    regions
        Ids or names of regions; several are summed. The whole if left out.
    sizes
        Numbers, or a text such as `">=6"`, `"3-5"` or `"1,2,7+"`. All sizes if left out.
    by
        Values of categories, as in `{"tenure": "rented"}`. A category without a value is summed over.
    of
        For a share: the values of categories whose share among all groups of these sizes is wanted.
    to, to_sizes, to_by
        For a ratio or a difference: what is compared with. `to_sizes` are the same sizes if left out.
    q
        For a quantile: a number from 0 to 1, such as 0.9.

    Raises
    ------
    SpecError
        If `q` is not from 0 to 1, or is given for another kind.

    Examples
    --------
    >>> Query("share", "Oregon", ">=6").kind
    'share'
    >>> Query("quantile", "Oregon", q=0.9).q
    0.9
    """

    kind: QueryKind = "sum"
    regions: Regions = None
    sizes: Sizes = None
    by: By = None
    of: By = None
    to: Regions = None
    to_sizes: Sizes = None
    to_by: By = None
    q: float | str | Fraction | None = None

    def __post_init__(self) -> None:
        """Check the kind and `q` together, before anything is read."""
        statistic_of(self.kind, self.q)


def statistic_of(kind: object, q: object = None) -> Statistic | None:
    """Return the statistic of the sizes that a kind of query asks for, if any; refuse a wrong `q` with a SpecError."""
    if kind != "quantile" and q is not None:
        raise SpecError(f"q is for queries of the kind 'quantile'; this one has the kind {told(kind)}")
    if kind == "gini":
        return Gini()
    if kind not in SIZE_KINDS:
        return None
    with suppress(ValueError):
        if 0 <= (found := exact_number(q) if kind == "quantile" else MEDIAN) <= 1:
            return Quantile(found)
    raise SpecError(f"the quantile is {told(q)}; expected a number from 0 to 1, such as 0.9")


@dataclass(frozen=True)
class ResolvedQuery:
    """A query in terms of a release's rows and sizes: one sum and a statistic of it, or two sums to be compared."""

    kind: QueryKind
    one: Sum
    other: Sum | None
    words: str
    scope: Scope
    row: int | None = None  # of the released table (see `TableRows`), if the query is about one row
    statistic: Statistic | None = None

    @property
    def sums(self) -> tuple[Sum, ...]:
        """Return its sums."""
        return (self.one,) if self.other is None else (self.one, self.other)

    @property
    def cell(self) -> tuple[int, int] | None:
        """Return row and size if the query is about a single cell of the table."""
        alone = self.kind == "sum" and self.row is not None and len(self.one.sizes) == 1
        return (self.row, self.one.sizes[0]) if alone and self.row is not None else None

    def value(self, counts: Integers, first_size: int) -> float | None:
        """Return the answer for counts `[regions, sizes]`; None if it is undefined."""
        if self.statistic is not None:
            sizes = range(first_size, first_size + counts.shape[1])
            return self.statistic.value(self.one.at_least(counts), sizes)
        one = self.one.of(counts, first_size)
        if self.other is None:
            return one
        other = self.other.of(counts, first_size)
        if self.kind == "difference":
            return one - other
        return one / other if other else None

    def bounds(self, public: Callable[[Sum], int | None], sizes: range) -> Ends:
        """Return the least and the greatest possible value; `public` returns a public number of groups or None."""
        if self.statistic is not None:
            return self.statistic.possible(sizes)
        if self.kind == "share":
            return 0.0, 1.0
        if self.kind == "mean":
            return float(sizes[0]), float(sizes[-1])
        if self.kind == "ratio":
            return 0.0, math.inf
        totals = [0 if each is None else public(each) for each in (self.one, self.other)]
        one, other = (math.inf if total is None else total for total in totals)
        return -other, one


def resolve(query: Query, tree: Hierarchy, known: range, about: About = NOT_STATED) -> ResolvedQuery:
    """Resolve a query against the rows of a tree and known sizes; unknown names raise SpecError.

    `about` has the words for groups.
    """
    expect(query, instance(Query, 'Query("share", "Oregon", ">=6")'), "query")
    for name in ("by", "to_by", "of"):
        expect(getattr(query, name), optional(MAPPING), name)
    if query.kind not in KINDS:
        raise SpecError(f"unknown kind of query {query.kind!r}; choose from {', '.join(KINDS)}")
    scope = Scope.of(query.regions, {**(query.by or {}), **query.of} if query.of else query.by, tree)
    sizes = sizes_in(query.sizes, known)
    statistic = statistic_of(query.kind, query.q)
    one, what = _sum(scope, sizes, tree), _groups(sizes, known, scope.words, about)
    other, words = None, what
    if query.kind == "share":
        other, words = _share(query, one, tree, known, about)
    elif query.kind in OVER_ALL_SIZES:
        if len(sizes) != len(known):
            raise SpecError(f"a {query.kind} is over all sizes; leave the sizes out")
        words = f"{OVER_ALL_SIZES[query.kind]} of the {about.groups} in {scope.words}"
        if isinstance(statistic, Quantile) and query.kind == "quantile":
            words = f"{float(100 * statistic.q):g} % {words}"
        one, other = (replace(one, entities=True), one) if query.kind == "mean" else (one, None)
    elif query.kind in ("ratio", "difference"):
        second = Scope.of(query.to, query.to_by, tree)
        other = _sum(second, sizes_in(query.sizes if query.to_sizes is None else query.to_sizes, known), tree)
        compared = _groups(other.sizes, known, second.words, about)
        words = f"ratio of {what} to {compared}" if query.kind == "ratio" else f"{what}, minus {compared}"
    return ResolvedQuery(query.kind, one, other, words, scope, scope.table_row(tree), statistic)


def split_query(
    query: Query, tree: Hierarchy, level: str | None = None, areas: object = None, category: str | None = None
) -> list[Query]:
    """Return the same query for each region of a level, each area, or each value of a category and their sum."""
    expect(query, instance(Query), "query")
    if sum(one is not None for one in (level, areas, category)) != 1:
        raise SpecError("give exactly one of level, areas and category")
    if level is not None:
        return [replace(query, regions=region) for region in regions_of_level(tree.regions, level, query.regions)]
    if areas is not None:
        if query.regions is not None:
            raise SpecError("a query for each area cannot name regions; leave them out")
        return [replace(query, regions=area) for area in read_areas(areas, tree.regions)]
    assert category is not None
    values = [{category: value} for value in values_of(category, tree.by)]
    return [replace(query, by={**(query.by or {}), **one}, to_by={**(query.to_by or {}), **one}) for one in values]


def _sum(scope: Scope, sizes: tuple[int, ...], tree: Hierarchy) -> Sum:
    return Sum(scope.rows(tree), sizes, over_all=scope.regions if scope.over_all else None)


def _share(query: Query, one: Sum, tree: Hierarchy, known: range, about: About) -> tuple[Sum, str]:
    """Return the denominator of a share, and the query in words.

    It is a share of sizes or, with `of`, of values of categories.
    """
    by, of = query.by or {}, query.of or {}
    if not of and len(one.sizes) == len(known):
        raise SpecError("the share of all sizes is always 1; give sizes")
    if ALL in of.values():
        raise SpecError(f"the share of {ALL!r} is always 1; give a value of the category")
    if twice := [name for name in of if name in by]:
        raise SpecError(f"both by and of have a value of {twice[0]!r}; leave it out of one of them")
    whole = Scope.of(query.regions, query.by, tree)
    if of:
        part = listed([f"{name} {value}" for name, value in of.items()])
        among, sizes = _groups(one.sizes, known, whole.words, about), one.sizes
    else:
        part, among, sizes = sizes_in_words(one.sizes, known), _groups(known, known, whole.words, about), tuple(known)
    return _sum(whole, sizes, tree), f"share of {part} among the {among}"


def _groups(sizes: Sequence[int], known: range, place: str, about: About) -> str:
    words = sizes_in_words(sizes, known)
    return f"{about.groups} of {words} in {place}" if words else f"{about.groups} in {place}"


# -------------------------------------------------------------------- sizes


def sizes_in(text: Sizes, known: range) -> tuple[int, ...]:
    """Return the sizes in a text or a list of numbers, ascending; None means all.

    `known` are the sizes that a release counts. The last one stands for all larger ones too, so sizes beyond it cannot
    be
    distinguished, and a range that reaches beyond it is refused. An empty choice is refused too.

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
                raise SpecError(f"{told(size)} is not a size; expected an integer")
            found.add(int(size))
    if not found:
        raise SpecError(f"the sum is empty: {_quoted(text)} holds none of the sizes {_known(known)}")
    for size in sorted(found):
        _check(size, known)
    return tuple(sorted(found))


def sizes_in_words(sizes: Sequence[int], known: range) -> str:
    """Return sizes for a sentence; empty if they are all.

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


def _part(part: str, text: str, known: range) -> range:
    """Return one part of a list of sizes."""
    if found := _OPEN.fullmatch(part):
        return _from(int(found[1]), known)
    if found := _SPANNED.fullmatch(part):
        for size in (int(found[1]), int(found[2])):
            _check(size, known)
        return range(int(found[1]), int(found[2]) + 1)
    if not (found := _COMPARED.fullmatch(part)):
        raise SpecError(f"{short(text)} is not a list of sizes; {HOW}")
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
        raise SpecError("this release has no size 0: the list of groups is private, so empty groups are not counted")
    raise SpecError(f"there is no size {short(size)}; this release counts the sizes {_known(known)}")


def _known(known: range) -> str:
    return f"{known[0]} to {known[-1]}, where {known[-1]} stands for {size_label(known[-1], known[-1])}"


def _quoted(text: object) -> str:
    return short(text) if isinstance(text, str) else "the list of sizes"
