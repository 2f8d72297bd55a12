"""`Comparison`: what changed between two releases, by region, with a controlled share of false flags.

Everything here is computed from two public folders, so it costs no budget. The statistics are in
`estimate.intervals.changes`, the pairs of regions in `region_pairs`.

A comparison uses the sizes that both releases have. If `max_size` differs, the smaller one is the last size on both
sides and stands for all larger ones: a number of groups of that size or more does not depend on `max_size`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallytree.core.arguments import (
    FLAG,
    MAPPING,
    NUMBER,
    PATH,
    TEXT,
    either,
    expect,
    instance,
    optional,
    several,
    told,
)
from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.names import did_you_mean
from tallytree.core.progress import Progress, Stage, silent
from tallytree.core.registry import import_extra
from tallytree.domain.categories import ALL
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.changes import (
    FLAGS,
    RATE,
    Changes,
    Family,
    OldAndNew,
    Rule,
    bound_changes,
    find_changes,
    percent_changes,
)
from tallytree.estimate.intervals.guaranteed import SumBounds
from tallytree.estimate.intervals.linear import Estimates, estimate_sums, no_guarantee, no_linear
from tallytree.estimate.intervals.tails import LEAST_P_VALUE, Errors
from tallytree.estimate.intervals.unions import Unions
from tallytree.privacy.budget import Budget, as_decimal
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.publish.about import NOT_STATED, About
from tallytree.publish.folder import UNUSABLE, manifest_faults, reason, write_json, write_whole
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.descriptions import truncation
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.release.files import read_for, read_release
from tallytree.publish.release.queries import Query, read_by, sizes_in, sizes_in_words, values_of
from tallytree.publish.release.region_pairs import Pairing, RegionPairs
from tallytree.publish.release.value import Release
from tallytree.publish.table import for_spreadsheets

if TYPE_CHECKING:
    from tallytree.publish.report import Page
    from tallytree.publish.report.release_page import GeoJson

GROUPS, ENTITIES, SIZES = "groups", "entities", "sizes"
QUESTIONS = (GROUPS, ENTITIES, SIZES)
SHARED_BITS = 40  # noise makes so many values equal with a probability of about 1 in 2⁴⁰
MOST_LISTED = 5  # unmatched regions in a sentence
CHANGES, FACTS = "changes", "comparison.json"
PLAIN = Rule()
BENJAMINI_HOCHBERG, HOLM, BONFERRONI = "Benjamini-Hochberg", "Holm", "Bonferroni"
DESCRIPTIONS = {
    "before": "the old release's published number",
    "after": "the new release's published number",
    "change": "after minus before",
    "lower": "lower end of the 95 % interval of the true change, for a region that was chosen in advance",
    "upper": "upper end of that interval",
    "p_value": f"probability of a change this far from 0 if nothing changed; {LEAST_P_VALUE:g} stands for less",
    "flag": "increased, decreased or not shown to have changed",
    "selected_lower": "lower end of the interval to use for a flagged region",
    "selected_upper": "upper end of that interval",
    "percent": "change in percent of before",
    "percent_lower": "lower end of the 95 % interval of the true change in percent; empty where it is unbounded",
    "percent_upper": "upper end of that interval",
    "other_leaves": "whether the region consists of other leaves than before; empty where leaves were not read",
}


Row = dict[str, Any]


class Question(NamedTuple):
    """Numbers to compare: Σ weight · count over the sizes that both releases have."""

    name: str
    weights: tuple[int, ...]
    values: tuple[str, ...]  # of the categories; empty without


@dataclass(frozen=True, eq=False)
class Comparison:
    """What changed between two releases, region by region. Everything in it is public; see `compare`.

    Attributes
    ----------
    old, new : mapping
        Title, id and budget of each release.
    regions : Hierarchy
        The new release's regions.
    rows : pyarrow.Table
        A row for each level, region and question, as `table` returns them.
    families : tuple of Family
        How many regions of each level were flagged for each question.
    rule : Rule
        How the error rate was controlled, and the least relative change.
    warnings : tuple of str
        Differences between the releases that limit what can be compared.
    unmatched : mapping
        For each level the ids of regions that only the old or only the new release has.
    protection : str
        How people in both data sets are protected.
    about : About
        What the new release states about itself.
    """

    old: Mapping[str, Any]
    new: Mapping[str, Any]
    regions: Hierarchy
    rows: Any
    families: tuple[Family, ...]
    rule: Rule
    warnings: tuple[str, ...]
    unmatched: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
    protection: str
    about: About = NOT_STATED

    def table(self, level: str | None = None, question: str | None = None, *, flagged: bool = False) -> Any:
        """Return the rows as a pyarrow Table.

        Parameters
        ----------
        level : str, optional
            The name of a level; all levels by default.
        question : str, optional
            A question, such as "groups" or "size 3"; all questions by default.
        flagged : bool, default False
            Leave out regions that are not shown to have changed.

        Returns
        -------
        pyarrow.Table
            Columns level, region, name, each category, question, before, after, change, lower, upper, p_value, flag,
            selected_lower, selected_upper, percent with its ends, and other_leaves. Descriptions are in the metadata
            of the columns.

        Raises
        ------
        SpecError
            If the comparison has no such level or question.
        """
        import pyarrow.compute as pc

        found = self.rows
        for name, wanted in (("level", level), ("question", question)):
            if wanted is not None:
                known = pc.unique(self.rows[name]).to_pylist()
                if wanted not in known:
                    raise SpecError(f"the comparison has no {name} {told(wanted)}; {did_you_mean(str(wanted), known)}")
                found = found.filter(pc.equal(found[name], wanted))
        return found.filter(pc.not_equal(found["flag"], FLAGS[0])) if flagged else found

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame; needs pandas."""
        import_extra("pandas", "to_pandas", "pandas")
        return self.rows.to_pandas()

    def to_polars(self) -> Any:
        """Return the rows as a polars DataFrame; needs polars."""
        return import_extra("polars", "to_polars", "polars").from_arrow(self.rows)

    def report(self, *, map: GeoJson | None = None) -> Page:  # noqa: A002
        """Write a page for people: which regions changed, by how much, and how sure that is.

        Parameters
        ----------
        map : path or mapping, optional
            A GeoJSON file, or its content, with an area for each region of a level.

        Returns
        -------
        Page
            The page: ``comparison.report().save("changes.html")``.
        """
        from tallytree.publish.report.comparison_page import make_comparison_page

        return make_comparison_page(self, map=map)

    def export(self, directory: str | PathLike[str], *, map: GeoJson | None = None) -> tuple[str, ...]:  # noqa: A002
        """Write the rows as Parquet and CSV, the facts as JSON, and the page, to a new directory.

        Parameters
        ----------
        directory : path
            The directory to write. It must not exist yet.
        map : path or mapping, optional
            A GeoJSON file or its content, for the page.

        Returns
        -------
        tuple of str
            The names of the files.

        Raises
        ------
        ReleaseError
            If the directory exists or cannot be written.
        """
        import pyarrow.csv
        import pyarrow.parquet as pq

        expect(directory, PATH, "directory")
        names, drawn = (f"{CHANGES}.parquet", f"{CHANGES}.csv", FACTS, "report.html"), self.report(map=map)

        def fill(folder: Path) -> Sequence[str]:
            pq.write_table(self.rows, folder / names[0])
            pyarrow.csv.write_csv(for_spreadsheets(self.rows), folder / names[1])
            write_json(folder / FACTS, self._facts())
            (folder / names[3]).write_bytes(drawn.encode())
            return names

        write_whole(Path(directory), fill)
        return names

    def to_json(self) -> dict[str, Any]:
        """Return the facts and all rows as plain values."""
        return {**self._facts(), "changes": self.rows.to_pylist()}

    @property
    def error_rate(self) -> str:
        """Return what is promised about flags, in words."""
        if self.rule.family_wise:
            return f"With a probability of at least {in_percent(1 - RATE)} no flag of a level and question is false."
        return f"On average at most {in_percent(RATE)} of the flags of a level and question are false."

    def _facts(self) -> dict[str, Any]:
        families = [{**vars(one), "values": list(one.values)} for one in self.families]
        plain = {name: getattr(self, name) for name in ("old", "new", "error_rate", "protection")}
        unmatched = {level: {"old": list(old), "new": list(new)} for level, (old, new) in self.unmatched.items()}
        rule = {"rate": RATE, "method": HOLM if self.rule.family_wise else BENJAMINI_HOCHBERG, **self.rule._asdict()}
        return {**plain, **rule, "warnings": list(self.warnings), "unmatched": unmatched, "families": families}

    def __repr__(self) -> str:
        flagged, rows = sum(family.flagged for family in self.families), self.rows.num_rows
        return f"Comparison({self.old['title']!r} → {self.new['title']!r}, {rows:,} changes, {flagged:,} flagged)"


def compare(
    old: Release | str | PathLike[str],
    new: Release | str | PathLike[str],
    questions: Iterable[str | Query] = QUESTIONS,
    *,
    level: str | None = None,
    by: Mapping[str, str] | str | None = None,
    family_wise: bool = False,
    more_than: float = 0.0,
    concordance: Any = None,
) -> Comparison:
    """Find out which regions changed between two releases. It costs no budget.

    Each region of each level has its change, a 95 % interval, and a flag: increased, decreased, or not shown to have
    changed. A region without a flag may have changed too.

    Parameters
    ----------
    old, new : Release or path
        The two releases, or their directories. Their noise must be independent.
    questions : list of str or Query, optional
        "groups", "entities", "sizes" (each size), or queries of the kind "sum" for bands of sizes and values of
        categories. All three by default.
    level : str, optional
        Compare the regions of this level only. Of a large release only this level and those above it are read.
    by : mapping or str, optional
        Values of categories, such as ``{"tenure": "rented"}``; or the name of a category, for each of its values.
    family_wise : bool, default False
        Control the probability of any false flag at 5 % (Holm), and not the share of false flags
        (Benjamini–Hochberg).
    more_than : float, default 0
        Flag only changes of more than this part of the old number, such as 0.05 for 5 %.
    concordance : path or table, optional
        For changed boundaries: the columns old_leaf and new_leaf, a row for each pair that overlaps.

    Returns
    -------
    Comparison
        The changes, region by region.

    Raises
    ------
    ReleaseError
        If a directory is not a sound release, both are the same release, or they cannot be compared.
    SpecError
        If a question, level, category or the concordance is wrong.
    """
    question = either(TEXT, instance(Query))
    expect(questions, either(question, several(question)), "questions")
    expect(level, optional(TEXT), "level")
    expect(by, optional(either(TEXT, MAPPING)), "by")
    expect(family_wise, FLAG, "family_wise")
    expect(more_than, NUMBER, "more_than")
    if not 0 <= more_than < 1:
        raise SpecError(f"more_than is {told(more_than)}; expected a part from 0 to 1, such as 0.05 for 5 %")
    read = [open_release(one, level if concordance is None else None) for one in (old, new)]
    rule = Rule(family_wise, float(more_than))
    return compare_releases(read[0], read[1], questions, level=level, by=by, rule=rule, concordance=concordance)


def open_release(source: Release | str | PathLike[str], level: str | None = None) -> Release:
    """Return a release, or read it: of a large one only a level and those above it, if one is given."""
    if isinstance(source, Release):
        return source
    expect(source, PATH, "a release")
    folder = Path(source)
    found = read_release(folder) if level is None else read_for(folder, None, level)
    try:
        faults = list(manifest_faults(folder))
    except UNUSABLE as error:
        faults = [reason(error)]
    if faults:
        raise ReleaseError(f"{folder} is not as it was published: {faults[0]}; check it with `tallytree verify`")
    return Release.of(found, folder)


def compare_releases(
    old: Release,
    new: Release,
    questions: Iterable[str | Query] = QUESTIONS,
    *,
    level: str | None = None,
    by: Mapping[str, str] | str | None = None,
    rule: Rule = PLAIN,
    concordance: Any = None,
    progress: Progress = silent,
) -> Comparison:
    """Compare two releases that were read."""
    warnings = check_comparable(old, new)
    pairing = Pairing.of(
        old.hierarchy.regions, new.hierarchy.regions, concordance, whole=not (old.partial or new.partial)
    )
    levels = _chosen_levels(pairing, level)
    sides, asked = (_Side(old), _Side(new)), _questions(questions, by, old, new)
    tables, families, unmatched = [], [], {}
    for number, name in enumerate(levels):
        progress(Stage("comparing", number, len(levels)))
        pairs = pairing.pairs(name)
        if any(pairs.unmatched):
            unmatched[name] = pairs.unmatched
        for question in asked:
            found, family = _compare_pairs(sides, pairs, question, rule)
            families.append(family)
            tables.append(_rows(found, pairs, question, new.rows.categories if question.values else (), concordance))
    import pyarrow as pa

    rows = pa.concat_tables(tables)
    fields = [field.with_metadata({"description": DESCRIPTIONS.get(field.name, field.name)}) for field in rows.schema]
    return Comparison(
        old=_described(old),
        new=_described(new),
        regions=new.hierarchy.regions,
        rows=rows.cast(pa.schema(fields)),
        families=tuple(families),
        rule=rule,
        warnings=(*warnings, *_about_pairs(unmatched)),
        unmatched=unmatched,
        protection=_protection(old.measurements.budget, new.measurements.budget),
        about=new.about,
    )


def _described(release: Release) -> Row:
    budget = release.measurements.budget.to_json()
    return {"title": release.title, "release_id": release.release_id, "budget": budget}


def _protection(old: Budget, new: Budget) -> str:
    """Return how people in both data sets are protected, in words."""
    both = f"both budgets together, {old} and {new}"
    if old.currency == new.currency and old.delta is None and new.delta is None:
        sign = "ε" if old.currency == "epsilon" else "ρ"
        both = f"the sum of both budgets, {sign} = {as_decimal(old.amount + new.amount)}"
    return f"This comparison cost no budget. A person in both data sets is protected by {both}."


# -------------------------------------------------------------------- what can be compared


def check_comparable(old: Release, new: Release) -> list[str]:
    """Return differences that limit a comparison; refuse releases that cannot be compared with a ReleaseError."""
    one, other = old.measurements, new.measurements
    if one is other or (old.release_id is not None and old.release_id == new.release_id):
        raise ReleaseError("both are the same release; name two different ones")
    shared = [part for part in one.measured if any(_is_same(part, again) for again in other.measured)]
    bits = sum(part.values.size * math.log2(1 + math.sqrt(part.variance)) for part in shared)
    if one.mark == other.mark or bits >= SHARED_BITS:
        raise ReleaseError(
            "both releases were made from the same noisy measurements, so their difference says nothing about change; "
            "compare releases of different data"
        )
    for release in (old, new):
        if (reason := no_guarantee(release.measurements)) is not None:
            raise ReleaseError(f"{release.title!r} cannot be compared. {reason}")
    _check_units(one, other)
    return list(_differences(one, other))


def _is_same(one: Measurement, other: Measurement) -> bool:
    alike = (one.view, one.scale, one.values.shape) == (other.view, other.scale, other.values.shape)
    return alike and bool(np.array_equal(one.values, other.values))


def _check_units(one: Measurements, other: Measurements) -> None:
    """Refuse releases that count different things."""
    names = [measurements.neighbours.columns for measurements in (one, other)]
    stated = any(measurements.neighbours.unit.same_unit_as for measurements in (one, other))
    if names[0] is not None and names[1] is not None and not stated:
        for what in ("group", "entity"):
            before, after = (getattr(columns, what) for columns in names)
            if before != after and None not in (before, after):
                raise ReleaseError(
                    f"the releases count different units: the {what} column is {before!r} in the old one and {after!r} "
                    "in the new one. If they mean the same, state it with same_unit_as when you release"
                )
    if one.neighbours.groups_were_split != other.neighbours.groups_were_split:
        raise ReleaseError(
            "the releases count different units: in one of them a group that spans leaves counts once in each leaf"
        )


def _differences(one: Measurements, other: Measurements) -> Iterator[str]:
    """Yield what differs between the releases, and what that means for the comparison."""
    old, new = one.neighbours, other.neighbours
    if old.unit.kind != new.unit.kind:
        yield f"The privacy unit differs: {old.unit.kind} before, {new.unit.kind} now. The numbers mean the same."
    bounds = (
        (old.rows_per_entity, new.rows_per_entity, "rows of an entity"),
        (old.quantity_bound, new.quantity_bound, "a row’s quantity"),
    )
    for before, after, what in bounds:
        if before != after:
            yield f"The bound on {what} differs: {before} before, {after} now. A change may come from that alone."
    if truncation(old) != truncation(new):
        yield "Rows were dropped before counting in different ways. A change may come from that alone."
    if one.max_size != other.max_size:
        least = min(one.max_size, other.max_size)
        yield (
            f"The largest size differs: {one.max_size} before, {other.max_size} now. Sizes above {least} count as "
            f"{least} on both sides."
        )
    if one.first_size != other.first_size:
        yield "Groups are listed publicly in one release only: groups of size 0 are left out on both sides."
    if one.hierarchy.by != other.hierarchy.by:
        yield "The categories differ, so sums over all categories are compared."


def _about_pairs(unmatched: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]) -> Iterator[str]:
    """Yield a sentence for each level with regions that only one release has."""
    for level, sides in unmatched.items():
        for ids, which in zip(sides, ("old", "new"), strict=True):
            if ids:
                some = ", ".join(ids[:MOST_LISTED]) + (" …" if len(ids) > MOST_LISTED else "")
                yield f"{len(ids):,} regions of level {level!r} are in the {which} release only: {some}"


def _chosen_levels(pairing: Pairing, level: str | None) -> tuple[str, ...]:
    levels = pairing.levels
    if not levels:
        raise ReleaseError(
            f"the releases have no common level: {', '.join(pairing.old.levels)}; {', '.join(pairing.new.levels)}"
        )
    if level is not None and level not in levels:
        raise SpecError(f"there is no common level {told(level)}; {did_you_mean(level, levels)}")
    return levels if level is None else (level,)


# -------------------------------------------------------------------- questions


def _questions(
    wanted: Iterable[str | Query], by: Mapping[str, str] | str | None, old: Release, new: Release
) -> list[Question]:
    """Return the questions in terms of the sizes that both releases have."""
    sizes = range(max(old.sizes[0], new.sizes[0]), min(old.sizes[-1], new.sizes[-1]) + 1)
    if isinstance(wanted, str | Query):
        wanted = [wanted]
    alike = old.hierarchy.by == new.hierarchy.by
    categories = new.hierarchy.by
    if by is not None and not alike:
        raise SpecError("the releases have different categories, so by cannot name any")
    each = [{by: value} for value in values_of(by, categories)] if isinstance(by, str) else [dict(by or {})]
    found = []
    for one in wanted:
        for chosen in each:
            for name, weights, own in _weights(one, sizes):
                values = read_by({**chosen, **own}, categories) if alike else ()
                found.append(Question(name, weights, values))
    if not found:
        raise SpecError(f"no question was given; choose from {', '.join(QUESTIONS)}, or give a Query")
    return list(dict.fromkeys(found))


def _weights(one: object, sizes: range) -> Iterator[tuple[str, tuple[int, ...], Mapping[str, str]]]:
    """Yield name, weight of each size and values of categories of what a user asked."""
    if isinstance(one, Query):
        if one.kind != "sum" or one.regions is not None:
            raise SpecError(
                "a comparison takes queries of the kind 'sum' without regions; it is about all regions of a level"
            )
        some = sizes_in(one.sizes, sizes)
        yield sizes_in_words(some, sizes) or GROUPS, tuple(int(size in some) for size in sizes), one.by or {}
        return
    expect(one, instance(str, QUESTIONS[0]), "a question")
    if one == GROUPS:
        yield GROUPS, (1,) * len(sizes), {}
    elif one == ENTITIES:
        yield ENTITIES, tuple(sizes), {}
    elif one == SIZES:
        for size in sizes:
            yield sizes_in_words([size], sizes) or GROUPS, tuple(int(size == each) for each in sizes), {}
    else:
        raise SpecError(f"unknown question {told(one)}; {did_you_mean(str(one), QUESTIONS)}")


# -------------------------------------------------------------------- numbers


class Numbers(NamedTuple):
    """Published numbers of several areas, their unbiased estimates if there are any, and whether they are exact."""

    published: Integers
    estimates: Estimates | None


@dataclass(frozen=True, eq=False)
class _Side:
    """One of the two releases."""

    release: ReleaseContents

    def weights(self, question: Question, first: int) -> Integers:
        """Return the weights of the sizes 0 … K + 1 of this release; those beyond the last common one count as it."""
        last = self.release.sizes[-1]
        found = np.zeros(last + 2, np.int64)
        found[first : first + len(question.weights)] = question.weights
        found[first + len(question.weights) : last + 1] = question.weights[-1]
        return found

    @cached_property
    def over_all(self) -> Measurements | None:
        """Return the measurements of the sums over all categories, if there are unbiased estimates from them."""
        over = self.release.measurements.over_categories
        return over if self.release.rows.categories and over.measured and no_linear(over) is None else None

    def measured(self, question: Question, regions: Unions) -> tuple[Measurements, Unions]:
        """Return the measurements that answer a question, and their rows."""
        tree, measurements = self.release.hierarchy, self.release.measurements
        if not tree.by.columns:
            return measurements, regions
        if set(question.values) <= {ALL} and self.over_all is not None:
            return self.over_all, regions
        return measurements, self._rows(question, regions)

    def _rows(self, question: Question, regions: Unions) -> Unions:
        tree = self.release.hierarchy
        if not tree.by.columns:
            return regions
        cells = list(tree.by.places_of(question.values or (ALL,) * len(tree.by.columns)))
        rows: Integers = tree.cell_rows[regions.rows][:, cells].ravel()
        return Unions(rows, regions.starts * len(cells), rows[:0])

    def numbers(self, question: Question, first: int, regions: Unions) -> Numbers:
        """Return published numbers and unbiased estimates of areas."""
        by_size, rows = self.weights(question, first), self._rows(question, regions)
        sizes, measurements = self.release.sizes, self.release.measurements
        if (by_size[sizes[0] : -1] == 1).all() and (totals := self._totals(question, regions, rows)) is not None:
            return Numbers(totals, Estimates(totals.astype(np.float64), Errors.none(len(totals))))
        published = rows.add_up(self.release.counts @ by_size[sizes[0] : -1])
        measurements, rows = self.measured(question, regions)
        if no_linear(measurements) is not None:
            return Numbers(published, None)
        return Numbers(published, estimate_sums(measurements, by_size.astype(np.float64), rows))

    def _totals(self, question: Question, regions: Unions, rows: Unions) -> Integers | None:
        """Return public numbers of all groups."""
        measurements = self.release.measurements
        if measurements.region_totals is not None:
            return rows.add_up(measurements.region_totals)
        if measurements.listed_totals is not None and set(question.values) <= {ALL}:
            return regions.add_up(measurements.listed_totals)
        return None

    def ends(self, question: Question, first: int, regions: Unions, error: float) -> OldAndNew:
        """Return guaranteed ends of the numbers."""
        measurements, rows = self.measured(question, regions)
        found = SumBounds(measurements).of(self.weights(question, first).astype(np.float64), rows, error)
        if found is None:
            raise ReleaseError(
                f"{self.release.title!r} does not bound the question {question.name!r}; ask for other questions"
            )
        return found


def _compare_pairs(
    sides: tuple[_Side, _Side], pairs: RegionPairs, question: Question, rule: Rule
) -> tuple[tuple[Numbers, Numbers, Changes], Family]:
    """Return the numbers and changes of a family."""
    first = max(side.release.sizes[0] for side in sides)
    areas = pairs.old, pairs.new
    old, new = (side.numbers(question, first, regions) for side, regions in zip(sides, areas, strict=True))
    published = new.published - old.published
    if old.estimates is not None and new.estimates is not None:
        method = HOLM if rule.family_wise else BENJAMINI_HOCHBERG
        found = find_changes(old.estimates, new.estimates, published, rule)
        method = method if found.tested else "public"
    else:
        method = BONFERRONI

        def ends_of(error: float) -> tuple[OldAndNew, OldAndNew]:
            one, other = (
                side.ends(question, first, regions, error) for side, regions in zip(sides, areas, strict=True)
            )
            return one, other

        found = bound_changes(ends_of, published, rule)
    up, down = (int(np.count_nonzero(found.direction == sign)) for sign in (1, -1))
    family = Family(pairs.level, question.name, question.values, len(pairs), found.tested, up, down, method)
    return (old, new, found), family


def _rows(
    found: tuple[Numbers, Numbers, Changes],
    pairs: RegionPairs,
    question: Question,
    categories: Sequence[str],
    concordance: Any,
) -> Any:
    """Return a family's rows as a pyarrow Table."""
    import pyarrow as pa

    (old, new, changes), number = found, len(pairs)
    with np.errstate(divide="ignore", invalid="ignore"):
        percent = np.where(old.published > 0, 100 * (new.published / np.maximum(old.published, 1) - 1), math.nan)
    ends = np.full((2, number), math.nan)
    if old.estimates is not None and new.estimates is not None:
        ends = np.stack(percent_changes(old.estimates, new.estimates, percent))

    def whole(values: Floats) -> Any:
        return pa.array(np.nan_to_num(values).astype(np.int64), pa.int64(), mask=np.isnan(values))

    def part(values: Floats) -> Any:
        return pa.array(values, pa.float64(), mask=~np.isfinite(values))

    return pa.table(
        {
            "level": pa.array([pairs.level] * number, pa.string()),
            "region": pa.array(pairs.regions, pa.string()),
            **({} if concordance is None else {"old_region": pa.array(pairs.old_regions, pa.string())}),
            "name": pa.array(pairs.names, pa.string()),
            **{
                name: pa.array([value] * number, pa.string())
                for name, value in zip(categories, question.values, strict=True)
            },
            "question": pa.array([question.name] * number, pa.string()),
            "before": old.published,
            "after": new.published,
            "change": new.published - old.published,
            "lower": whole(changes.lower),
            "upper": whole(changes.upper),
            "p_value": part(changes.p_value),
            "flag": pa.array([FLAGS[one] for one in changes.direction.tolist()], pa.string()),
            "selected_lower": whole(changes.selected_lower),
            "selected_upper": whole(changes.selected_upper),
            "percent": part(percent),
            "percent_lower": part(ends[0]),
            "percent_upper": part(ends[1]),
            "other_leaves": pa.nulls(number, pa.bool_())
            if pairs.other_leaves is None
            else pa.array(pairs.other_leaves),
        }
    )
