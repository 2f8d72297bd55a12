"""`Comparison`: what changed between two releases, by region, with a controlled share of false flags.

Everything here is computed from two public folders, so it costs no budget. The statistics are in
`estimate.intervals.changes`, the pairs of regions in `region_pairs`, and what both releases have in `comparability`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallytree.core.arguments import (
    FLAG,
    MAPPING,
    NUMBER,
    PATH,
    TEXT,
    either,
    expect,
    expecting,
    instance,
    optional,
    several,
    told,
)
from tallytree.core.arrays import Floats
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.names import did_you_mean
from tallytree.core.progress import Progress, Stage, silent
from tallytree.core.registry import import_extra
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.changes import FLAGS, RATE, Changes, Family, Rule, percent_changes
from tallytree.estimate.intervals.tails import LEAST_P_VALUE
from tallytree.publish.about import NOT_STATED, About
from tallytree.publish.folder import UNUSABLE, manifest_faults, reason, write_json, write_whole
from tallytree.publish.release.comparability import (
    QUESTIONS,
    Numbers,
    Question,
    Side,
    check_comparable,
    compare_pairs,
    describe_protection,
    read_questions,
    rule_name,
    shared_sizes,
)
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.release.files import read_for, read_release
from tallytree.publish.release.queries import Query
from tallytree.publish.release.region_pairs import Pairing, RegionPairs
from tallytree.publish.release.value import Release
from tallytree.publish.table import for_spreadsheets

if TYPE_CHECKING:
    from tallytree.publish.report import Page
    from tallytree.publish.report.release_page import GeoJson

MOST_LISTED = 5  # unmatched regions in a sentence
CHANGES, FACTS = "changes", "comparison.json"
PLAIN, QUESTION = Rule(), either(TEXT, instance(Query))
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
        rule = {"rate": RATE, "method": rule_name(self.rule), **self.rule._asdict()}
        return {**plain, **rule, "warnings": list(self.warnings), "unmatched": unmatched, "families": families}

    def __repr__(self) -> str:
        flagged, rows = sum(family.flagged for family in self.families), self.rows.num_rows
        return f"Comparison({self.old['title']!r} → {self.new['title']!r}, {rows:,} changes, {flagged:,} flagged)"


@expecting(
    questions=either(QUESTION, several(QUESTION)),
    level=optional(TEXT),
    by=optional(either(TEXT, MAPPING)),
    family_wise=FLAG,
    more_than=NUMBER,
)
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
    import pyarrow as pa

    warnings = check_comparable(old, new)
    whole = not (old.partial or new.partial)
    pairing = Pairing.of(old.hierarchy.regions, new.hierarchy.regions, concordance, whole=whole)
    levels, sizes = _chosen_levels(pairing, level), shared_sizes(old, new)
    sides, asked = (Side(old, sizes), Side(new, sizes)), read_questions(questions, by, old, new)
    tables, families, unmatched = [], [], {}
    for number, name in enumerate(levels):
        progress(Stage("comparing", number, len(levels)))
        pairs = pairing.pairs(name)
        if any(pairs.unmatched):
            unmatched[name] = pairs.unmatched
        for question in asked:
            numbers, changes, method = compare_pairs(sides, pairs, question, rule)
            up, down = (int(np.count_nonzero(changes.direction == sign)) for sign in (1, -1))
            about = name, question.name, question.values, len(pairs), changes.tested, up, down, method
            families.append(Family(*about))
            keys = _keys(pairs, question, new.rows.categories, with_old=concordance is not None)
            tables.append(pa.table({**keys, **_measures(numbers, changes, pairs.other_leaves)}))
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
        protection=describe_protection(old.measurements.budget, new.measurements.budget),
        about=new.about,
    )


def _described(release: Release) -> Row:
    budget = release.measurements.budget.to_json()
    return {"title": release.title, "release_id": release.release_id, "budget": budget}


# -------------------------------------------------------------------- rows


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


def _keys(pairs: RegionPairs, question: Question, categories: Sequence[str], *, with_old: bool) -> dict[str, Any]:
    """Return the columns that identify the rows of a family, as Arrow arrays."""
    import pyarrow as pa

    by = dict(zip(categories, question.values, strict=True)) if question.values else {}
    found = {
        "level": [pairs.level] * len(pairs),
        "region": pairs.regions,
        **({"old_region": pairs.old_regions} if with_old else {}),
        "name": pairs.names,
        **{name: [value] * len(pairs) for name, value in by.items()},
        "question": [question.name] * len(pairs),
    }
    return {name: pa.array(texts, pa.string()) for name, texts in found.items()}


def _measures(numbers: tuple[Numbers, Numbers], changes: Changes, other_leaves: Any) -> dict[str, Any]:
    """Return the columns of numbers and flags of a family."""
    import pyarrow as pa

    old, new = numbers
    before, after, ends = old.published, new.published, np.full((2, len(old.published)), math.nan)
    percent = np.where(before > 0, 100 * (after / np.maximum(before, 1) - 1), math.nan)
    if old.estimates is not None and new.estimates is not None:
        ends = np.stack(percent_changes(old.estimates, new.estimates, percent))

    def whole(values: Floats) -> Any:
        return pa.array(np.nan_to_num(values).astype(np.int64), pa.int64(), mask=np.isnan(values))

    def part(values: Floats) -> Any:
        return pa.array(values, pa.float64(), mask=~np.isfinite(values))

    return {
        "before": before,
        "after": after,
        "change": after - before,
        "lower": whole(changes.lower),
        "upper": whole(changes.upper),
        "p_value": part(changes.p_value),
        "flag": pa.array([FLAGS[one] for one in changes.direction.tolist()], pa.string()),
        "selected_lower": whole(changes.selected_lower),
        "selected_upper": whole(changes.selected_upper),
        "percent": part(percent),
        "percent_lower": part(ends[0]),
        "percent_upper": part(ends[1]),
        "other_leaves": pa.array([None] * len(before) if other_leaves is None else other_leaves, pa.bool_()),
    }
