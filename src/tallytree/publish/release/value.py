"""`Release`: released counts as people use them, to save, load, show and query."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace as replace_fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from tallytree.core.arguments import FLAG, PATH, expecting
from tallytree.core.display import COLORS, altair, inline, page, panel_title, paragraph, styled, table
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.names import quoted, shortened, visible
from tallytree.core.progress import Progress, silent
from tallytree.domain.histogram import size_label
from tallytree.estimate.intervals.interval import Kind
from tallytree.privacy.relations import describe_relation
from tallytree.publish.folder import MANIFEST, digest, place_of
from tallytree.publish.formats import Format, export
from tallytree.publish.release.answer import Answer
from tallytree.publish.release.answers import Options, answer_queries, simultaneous_bands
from tallytree.publish.release.areas import read_areas
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.descriptions import capped_sizes, cut_off, truncation
from tallytree.publish.release.error_bars import ENDS, in_percent
from tallytree.publish.release.files import read_release, write_release
from tallytree.publish.release.queries import By, Query, Regions, Scope, Sizes, named_regions, split_query
from tallytree.publish.release.region_map import RegionMap
from tallytree.publish.release.release_statement import public_totals
from tallytree.publish.report import Words
from tallytree.publish.report.maps import read_map
from tallytree.publish.run_folder import RunFolder, warn_if_not_recorded
from tallytree.publish.statement import guarantee

if TYPE_CHECKING:
    from tallytree.publish.report import Page
    from tallytree.publish.report.release_page import GeoJson

_ID = "_release_id"  # beside the fields, so that a copy with other contents does not have it


class Release(ReleaseContents):
    """Counts of groups by region and size, with the measurements they came from. Everything in it is public.

    `counts` is `[regions, sizes]` in the order of `hierarchy`; the last of the `sizes` stands for all larger ones too.
    """

    @property
    def release_id(self) -> str | None:
        """The id that it was loaded or last saved with; None before that."""
        found: str | None = self.__dict__.get(_ID)
        return found

    @expecting(directory=PATH, replace=FLAG)
    def save(self, directory: str | PathLike[str], *, replace: bool = False, progress: Progress = silent) -> str:
        """Write the release directory, whole or not at all, and return the release's id.

        The id is the digest of the manifest, which holds the digests of all other files: `verify(directory, id=…)`. The
        ledger that paid is told it; where that fails there is a warning, and `tallytree ledger record` does it later.
        A folder that the run was kept in is removed then, unless `keep` named it.
        """
        if self.partial:
            raise ReleaseError("this is a part of a release, so it is not saved; load all of it with Release.load")
        target, receipt = place_of(Path(directory)), self.measurements.receipt
        if receipt is not None:
            with warn_if_not_recorded(target, receipt):
                receipt.commit(self.measurements.mark)
        run = None if self.folder is None else RunFolder(self.folder)
        named = (lambda _: None) if run is None else run.keep_id
        release_id = write_release(self, target, replace=replace, named=named, progress=progress)
        if receipt is not None:
            with warn_if_not_recorded(target, receipt):
                receipt.record(release_id)
        if run is not None and run.unnamed:
            run.finish()
        self.__dict__[_ID] = release_id
        return release_id

    @classmethod
    @expecting(directory=PATH)
    def load(cls, directory: str | PathLike[str]) -> Release:
        """Read a saved release; `verify` says whether it is sound."""
        return cls.of(read_release(Path(directory)), Path(directory))

    @classmethod
    def of(cls, contents: ReleaseContents, directory: Path) -> Release:
        """What was read of a directory, with the release's id."""
        release = cls(**vars(contents))
        if (manifest := directory / MANIFEST).is_file():
            release.__dict__[_ID] = digest(manifest)
        return release

    @expecting(directory=PATH)
    def report(
        self,
        *,
        map: GeoJson | None = None,  # noqa: A002
        groups: str = "groups",
        entities: str = "entities",
        directory: str | PathLike[str] = "release/",
    ) -> Page:
        """A page for people, one HTML file that loads nothing: `release.report().save("report.html")`.

        `map` is a GeoJSON file, or its content, with an area for each region of a level: a property of its features
        holds the regions' ids or names. `groups` and `entities` are what these are called, in the plural. `directory`
        is where the page says that the files are.
        """
        from tallytree.publish.report.release_page import make_release_page

        called = Words(groups, entities)
        return make_release_page(self, self.release_id, words=called, map=map, directory=os.fspath(directory))

    @expecting(directory=PATH)
    def export(self, directory: str | PathLike[str], *, to: Format, progress: Progress = silent) -> tuple[str, ...]:
        """Write counts and numbers of entities for other software, and return the names of the files.

        `to` is "sdmx-csv" (SDMX-CSV 2.0 with its structure), "json-stat" (JSON-stat 2.0) or "csvw" (CSV on the Web).
        The directory must not exist yet. A release that is too large for a format is refused with a ReleaseError.
        """
        return export(self, Path(directory), to=to, progress=progress)

    def plot(self, region: str | None = None) -> Any:
        """A chart (Altair) of the groups by size in a region, by id or name; of the whole if left out.

        It shows recommended intervals if the release has them. `tallytree.core.display.save(chart, "c.png")` keeps it.
        """
        return plot_counts(self, region)

    def map(
        self,
        geojson: str | PathLike[str] | Mapping[str, Any],
        sizes: Sizes = None,
        *,
        kind: Literal["share", "mean", "sum"] | None = None,
        by: By = None,
        of: By = None,
        confidence: float | None = None,
        progress: Progress = silent,
    ) -> RegionMap:
        """A map of the regions, coloured by an answer about each and hatched where that is too uncertain.

        `geojson` is a file or its content; its areas are matched with the regions of one level by the property that
        holds their ids or names. Without `sizes` it is the mean size; with them what part of all groups has these
        sizes, unless `kind` says otherwise. The map shows itself in a notebook, and `save("map.svg")` keeps it.
        """
        wanted = kind or ("mean" if sizes is None and of is None else "share")
        places = read_map(geojson, self.hierarchy.regions)
        regions = self.hierarchy.regions
        query = Query(wanted, None, None if wanted == "mean" else sizes, by, of)
        queries = [replace_fields(query, regions=regions.ids[outline.region]) for outline in places.outlines]
        found = answer_queries(self, queries, confidence=confidence, typical=False, progress=progress)
        what = {"mean": "mean size", "share": "share", "sum": "groups"}[wanted]
        title = f"{self.title}: {what}{'' if sizes is None else f', sizes {sizes}'}"
        names = tuple(regions.names[outline.region] for outline in places.outlines)
        return RegionMap(title, places, names, tuple(found))

    def __repr__(self) -> str:
        return _as_line(self, self.release_id)

    def _repr_html_(self) -> str:
        return _as_html(self, self.release_id)

    def ask(
        self, query: Query, *, confidence: float | None = None, typical: bool = True, progress: Progress = silent
    ) -> Answer:
        """Answer a query, with its intervals.

        Parameters
        ----------
        query
            What is asked: a kind, regions, sizes and values of categories.
        confidence
            Level of the intervals; the release's own if left out.
        typical
            With `False`, typical intervals are left out. They take 25 estimates.
        progress
            Is called with each step of the estimates.

        Returns
        -------
        Answer
            The released value, the unbiased estimate and both intervals.

        Raises
        ------
        SpecError
            If the query names an unknown region, size or category.
        """
        return answer_queries(self, [query], confidence=confidence, typical=typical, progress=progress)[0]

    def ask_each(
        self,
        query: Query,
        *,
        level: str | None = None,
        areas: Any = None,
        category: str | None = None,
        **options: Unpack[Options],
    ) -> list[Answer]:
        """Answer a query for each region of a level, each area, or each value of a category.

        Parameters
        ----------
        query
            What is asked of each. With `level`, its regions say within which regions.
        level
            The name of a level.
        areas
            Lists of regions by the areas' names; or a CSV file, a Parquet file or a table with the columns `area` and
            `region`. A region that is no leaf stands for its leaves; a leaf may lie in several areas.
        category
            The name of a category; the last answer is the sum over its values.
        confidence, typical, progress
            As in `ask`. All typical intervals come from one run of replicates.

        Returns
        -------
        list of Answer
            In the order of the hierarchy, of the areas or of the values.

        Examples
        --------
        ``release.ask_each(Query("share", "Oregon", ">=6"), level="county")``
        """
        return answer_queries(self, split_query(query, self.hierarchy, level, areas, category), **options)

    def estimate(self, regions: Regions, sizes: Sizes = None, *, by: By = None, **options: Unpack[Options]) -> Answer:
        """Number of groups: `ask(Query("sum", …))`."""
        return self.ask(Query("sum", regions, sizes, by), **options)

    def share(
        self, regions: Regions, sizes: Sizes = None, *, of: By = None, by: By = None, **options: Unpack[Options]
    ) -> Answer:
        """Share of sizes, or with `of` of values of categories, among all groups: `ask(Query("share", …))`."""
        return self.ask(Query("share", regions, sizes, by, of), **options)

    def mean_size(self, regions: Regions, *, by: By = None, **options: Unpack[Options]) -> Answer:
        """Entities per group, where larger sizes than the last count as the last: `ask(Query("mean", …))`."""
        return self.ask(Query("mean", regions, by=by), **options)

    def ratio(
        self,
        regions: Regions,
        to: Regions,
        sizes: Sizes = None,
        *,
        to_sizes: Sizes = None,
        by: By = None,
        to_by: By = None,
        **options: Unpack[Options],
    ) -> Answer:
        """Number of groups divided by that of other regions: `ask(Query("ratio", …))`."""
        query = Query("ratio", regions, sizes, by, to=to, to_sizes=to_sizes, to_by=to_by)
        return self.ask(query, **options)

    def difference(
        self,
        regions: Regions,
        to: Regions,
        sizes: Sizes = None,
        *,
        to_sizes: Sizes = None,
        by: By = None,
        to_by: By = None,
        **options: Unpack[Options],
    ) -> Answer:
        """Number of groups minus that of other regions: `ask(Query("difference", …))`."""
        query = Query("difference", regions, sizes, by, to=to, to_sizes=to_sizes, to_by=to_by)
        return self.ask(query, **options)

    def bands(
        self,
        regions: Regions = None,
        sizes: Sizes = None,
        *,
        areas: Any = None,
        by: By = None,
        confidence: float | None = None,
    ) -> Any:
        """Guaranteed intervals that hold for all sizes together: a pyarrow Table like `table`.

        Each region or area has a band of its own. Raises ReleaseError where nothing is guaranteed.
        """
        tree = self.hierarchy.regions
        each = [tree.ids[one] for one in named_regions(regions, tree)] if areas is None else read_areas(areas, tree)
        return simultaneous_bands(self, each, sizes, by=by, confidence=confidence)


# -------------------------------------------------------------------- how a release shows itself


MOST_BARS = 40  # of a chart; more sizes are put into classes


def _as_line(release: ReleaseContents, release_id: str | None) -> str:
    """Title, levels, sizes, groups and entities, mechanism, budget and id, in one line."""
    saved = "not saved" if release_id is None else f"id {release_id[:16]}"
    facts = _facts(release)
    capped = capped_sizes(release.sizes[-1])
    counted = f"{release.total:,} groups with {release.entities[0]:,} entities ({capped})"
    parts = (
        facts["regions"],
        f"sizes {facts['sizes']}",
        counted,
        facts["mechanism"],
        str(release.measurements.budget),
        saved,
    )
    return f"Release({', '.join([quoted(release.title), *parts])})"


def _as_html(release: ReleaseContents, release_id: str | None) -> str:
    """What a notebook shows: the facts, the counts of the whole, and a chart of them."""
    measurements, top = release.measurements, release.hierarchy.names[0]
    known = "an estimate" if public_totals(measurements) is None else "public"
    facts = {
        **_facts(release),
        "groups": f"{release.total:,} in {top} ({known})",
        "entities": f"{release.entities[0]:,} in {top} (from the sizes). {cut_off(release.sizes[-1])}",
        "privacy": guarantee(measurements.budget),
        "protects": describe_relation(measurements.neighbours),
        "truncated": truncation(measurements.neighbours),
        "id": release_id or "none yet: save(…) gives it one",
    }
    ends = [(kind, ENDS[kind]) for kind in release.error_bars.of.get("counts", {})]
    percent = in_percent(release.error_bars.confidence)
    headers = ["size", f"groups in {shortened(top)}", *(f"{kind} at {percent}" for kind, _ in ends)]
    rows = [
        [size_label(size, release.sizes[-1]), f"{release.counts[0, cell]:,}"]
        + [_between(release, 0, cell, names) for _, names in ends]
        for cell, size in enumerate(release.sizes)
    ]
    counts = table(headers, rows, right=range(1, len(headers)), rest="table() has all regions and sizes")
    return page(release.title, facts, counts, inline(lambda: plot_counts(release, None)), paragraph(_of_bars(release)))


def plot_counts(release: ReleaseContents, region: str | None) -> Any:
    """The counts of a region (the whole if None) by size, with the recommended intervals if there are any: Altair."""
    if region is not None and not isinstance(region, str):
        raise SpecError(f"region is the id or the name of one region, or None for the whole, not {region!r}")
    alt = altair()
    scope = Scope.of(region, None, release.hierarchy)
    place = scope.table_row(release.hierarchy)
    assert place is not None  # one region is one row
    rows, title = (_bars if len(release.sizes) <= MOST_BARS else _classes)(release, place)
    base = alt.Chart(alt.Data(values=rows))
    tilted = len(rows) > 16 or max(len(row["size"]) for row in rows) > 5
    axis = alt.Axis(labelAngle=-50 if tilted else 0, labelOverlap=False)
    x = alt.X("size:N", sort=None, title=title, axis=axis)
    tips = [alt.Tooltip(name, type=kind) for name, kind in (("size", "nominal"), ("groups", "quantitative"))]
    bars = base.mark_bar(color=COLORS[0], opacity=0.75).encode(
        x=x, y=alt.Y("groups:Q", title="groups", axis=alt.Axis(format=",d", tickMinStep=1)), tooltip=tips
    )
    if "lower" in rows[0]:
        bars += base.mark_rule(strokeWidth=1.5, color="#22303c").encode(x=x, y="lower:Q", y2="upper:Q")
    name = visible(shortened(release.hierarchy.regions.names[scope.regions[0]]))
    page_of = bars.properties(title=panel_title(name), width=max(160, min(560, 34 * len(rows))), height=180)
    return styled(page_of, subtitle_color="#5b6770", legend_columns=1)


# -------------------------------------------------------------------- the parts


def _facts(release: ReleaseContents) -> dict[str, str]:
    sizes = release.sizes
    return {
        "regions": release.hierarchy.in_words(),
        "sizes": f"{sizes[0]} to {size_label(sizes[-1], sizes[-1])}",
        "mechanism": release.mechanism,
    }


def _recommended(release: ReleaseContents, row: int) -> Kind | None:
    return release.error_bars.recommended("counts", release.rows.level_of(row))


def _between(release: ReleaseContents, region: int, cell: int, names: tuple[str, str]) -> str:
    lower, upper = (release.error_bars.columns[name] for name in names)
    assert lower is not None
    assert upper is not None
    return f"{lower[region, cell]:,} … {upper[region, cell]:,}"


def _of_bars(release: ReleaseContents) -> str:
    """What the lines of the chart are."""
    kind = _recommended(release, 0)
    if kind is None or len(release.sizes) > MOST_BARS:
        return ""
    return f"Lines: {kind} intervals (recommended) at {in_percent(release.error_bars.confidence)}, each size by itself."


def _bars(release: ReleaseContents, region: int) -> tuple[list[dict[str, Any]], str]:
    """A bar for each size."""
    kind = _recommended(release, region)
    given = None if kind is None else release.error_bars.of["counts"][kind]
    rows: list[dict[str, Any]] = []
    for cell, size in enumerate(release.sizes):
        label = f"{size}+" if size == release.sizes[-1] else str(size)
        row: dict[str, Any] = {"size": label, "groups": int(release.all_counts[region, cell])}
        if given is not None:
            row |= {"lower": int(given.lower[region, cell]), "upper": int(given.upper[region, cell])}
        rows.append(row)
    return rows, "size"


def _classes(release: ReleaseContents, region: int) -> tuple[list[dict[str, Any]], str]:
    """A bar for each class of sizes: 0, 1, 2, 3–4, 5–8 …; intervals of single sizes say nothing of their sums."""
    rows, first, sizes = [], release.sizes[0], release.sizes
    while first <= sizes[-1]:
        end = first if first <= 2 else min(2 * (first - 1), sizes[-1])
        groups = release.all_counts[region, first - sizes[0] : end - sizes[0] + 1].sum()
        label = f"{first}–{end}" if end > first else str(first)
        rows.append({"size": f"{first}+" if end == sizes[-1] else label, "groups": int(groups)})
        first = end + 1
    return rows, "size, in classes that double"
