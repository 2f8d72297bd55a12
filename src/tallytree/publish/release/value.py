"""`Release`: released counts as users work with them: save, load, display and query."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace as replace_fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from tallytree.core.arguments import FLAG, PATH, expecting
from tallytree.core.display import COLORS, altair, inline, page, panel_title, paragraph, styled, table
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.names import quoted, shortened, visible
from tallytree.core.progress import Progress, silent
from tallytree.core.registry import import_extra
from tallytree.domain.histogram import size_label
from tallytree.estimate.intervals.interval import Kind
from tallytree.privacy.ledger import Receipt
from tallytree.privacy.relations import describe_relation
from tallytree.publish.folder import MANIFEST, digest
from tallytree.publish.formats import Format, export
from tallytree.publish.release.answer import Answer
from tallytree.publish.release.answers import Options, answer_queries, simultaneous_bands
from tallytree.publish.release.areas import read_areas
from tallytree.publish.release.contents import RELEASE_ID, ReleaseContents, Tables
from tallytree.publish.release.descriptions import MOST_SIZES, capped_sizes, cut_off, size_classes, truncation
from tallytree.publish.release.error_bars import ENDS, in_percent
from tallytree.publish.release.files import read_release, write_files
from tallytree.publish.release.queries import By, Query, Regions, Scope, Sizes, named_regions, split_query
from tallytree.publish.release.region_map import RegionMap
from tallytree.publish.release.release_statement import public_totals
from tallytree.publish.report.maps import read_map
from tallytree.publish.run_folder import Published, save_published
from tallytree.publish.statement import guarantee

if TYPE_CHECKING:
    from tallytree.publish.report import Page
    from tallytree.publish.report.release_page import GeoJson


class Release(ReleaseContents, Published):
    """Query, show and save released counts of groups by region and size.

    Make one with `release`, or read one with `Release.load`. Everything in it is public.

    Attributes
    ----------
    counts : array of int
        The counts, `[regions, sizes]` in the order of `hierarchy`. The last of the `sizes` stands for all larger ones
        too.
    measurements : Measurements
        The noisy measurements that the counts were estimated from.
    made_by : Mechanism
        The mechanism that estimated the counts.
    certificate : str
        What the mechanism proved of the counts.
    title : str
        The title.
    error_bars : ErrorBars
        The intervals of the counts.
    fallback : Fallback or None
        Why another mechanism than the one that was asked for estimated the counts, if it did.
    areas : tuple
        The published custom areas.
    partial : bool
        Whether only a part of a saved release was read. Such a part cannot be saved.
    folder : path or None
        The folder of the run, until the release is saved.

    Examples
    --------
    >>> import pyarrow as pa
    >>> rows = {"home": [1, 1, 2, 3, 4], "county": ["X", "X", "X", "Y", "Y"]}
    >>> counties = tt.Hierarchy.from_levels({"county": ["X", "Y"]}, ["county"])
    >>> sizes = tt.read(pa.table(rows), group="home", region="county", hierarchy=counties, max_size=3)
    >>> release = tt.release(sizes, budget={"epsilon": 1}, unit="one_entity")
    >>> release.hierarchy, release.sizes
    (Hierarchy(total 1 → county 2), range(1, 4))
    """

    @expecting(directory=PATH, replace=FLAG)
    def save(self, directory: str | PathLike[str], *, replace: bool = False, progress: Progress = silent) -> str:
        """Write the release directory, completely or not at all.

        If a ledger paid for the release, the id is recorded there. If recording fails, there is a warning, and
        `tallytree ledger record` does it later. A folder of the run that `keep` did not name is then removed.

        Parameters
        ----------
        directory : path
            The directory to write.
        replace : bool, default False
            Replace a release that is there.
        progress : callable, optional
            A function that is called with each step of the work.

        Returns
        -------
        str
            The release's id: the digest of the manifest, which holds the digests of all other files. Keep it for
            ``verify(directory, id=…)``.

        Raises
        ------
        ReleaseError
            If the directory cannot be written, or the release is only a part of one.
        """
        release_id = save_published(self, directory, replace=replace, progress=progress)
        self.__dict__[RELEASE_ID] = release_id
        return release_id

    @property
    def receipt(self) -> Receipt | None:
        """Return the reservation that paid, for the data holder; it is in no file."""
        return self.measurements.receipt

    @property
    def mark(self) -> str:
        """Return the mark of the measurements."""
        return self.measurements.mark

    def _write_files(self, folder: Path, progress: Progress) -> list[str]:
        """Write all files except the manifest, and return their names."""
        if self.partial:
            raise ReleaseError("a part of a release cannot be saved; load all of it with Release.load")
        return write_files(self, folder, progress)

    @classmethod
    @expecting(directory=PATH)
    def load(cls, directory: str | PathLike[str]) -> Release:
        """Read a saved release; `verify` checks whether it is sound.

        Parameters
        ----------
        directory : path
            The release directory.

        Returns
        -------
        Release
            The release, with its id.

        Raises
        ------
        ReleaseError
            If the directory cannot be read as a release.
        """
        return cls.of(read_release(Path(directory)), Path(directory))

    @classmethod
    def of(cls, contents: ReleaseContents, directory: Path) -> Release:
        """Return the release of what was read from a directory, with the release's id.

        Parameters
        ----------
        contents : ReleaseContents
            What was read.
        directory : Path
            The directory it was read from.

        Returns
        -------
        Release
            The release.
        """
        release = cls(**vars(contents))
        if (manifest := directory / MANIFEST).is_file():
            release.__dict__[RELEASE_ID] = digest(manifest)
        return release

    @expecting(directory=PATH)
    def report(
        self,
        *,
        map: GeoJson | None = None,  # noqa: A002
        groups: str | None = None,
        entities: str | None = None,
        directory: str | PathLike[str] = "release/",
    ) -> Page:
        """Write a report for people, as one HTML page that loads nothing.

        Parameters
        ----------
        map : path or mapping, optional
            A GeoJSON file, or its content, with an area for each region of a level. A property of its features holds
            the regions' ids or names.
        groups, entities : str, optional
            What groups and entities are called, in the plural. By default what the release states in its `about`.
        directory : path, default "release/"
            Where the page says that the files are.

        Returns
        -------
        Page
            The page: ``release.report().save("report.html")``.
        """
        from tallytree.publish.report.release_page import make_release_page

        how: Any = {"groups": groups, "entities": entities, "directory": os.fspath(directory)}
        return make_release_page(self, self.release_id, map=map, **how)

    @expecting(directory=PATH)
    def export(self, directory: str | PathLike[str], *, to: Format, progress: Progress = silent) -> tuple[str, ...]:
        """Write counts and numbers of entities for other software.

        Parameters
        ----------
        directory : path
            The directory to write. It must not exist yet.
        to : {"sdmx-csv", "json-stat", "csvw", "xlsx"}
            The format: SDMX-CSV 2.0 with its structure, JSON-stat 2.0, CSV on the Web, or a workbook of Excel.
        progress : callable, optional
            A function that is called with each step of the work.

        Returns
        -------
        tuple of str
            The names of the files.

        Raises
        ------
        ReleaseError
            If the release is too large for the format, or the directory cannot be written.
        """
        return export(self, Path(directory), to=to, progress=progress)

    def to_arrow(self, level: str | None = None, by: By = None, *, of: Tables = "counts") -> Any:
        """Return a published table, or some of its rows, as a pyarrow Table; the same as `table`.

        Parameters
        ----------
        level, by, of
            The rows and the table, as in `table`.

        Returns
        -------
        pyarrow.Table
            The rows.

        Raises
        ------
        SpecError
            If the level, a category or the table is unknown.

        Examples
        --------
        >>> release.to_arrow("county").num_rows
        6
        """
        return self.table(level, by, of=of)

    def to_pandas(self, level: str | None = None, by: By = None, *, of: Tables = "counts") -> Any:
        """Return a published table, or some of its rows, as a pandas DataFrame.

        The descriptions of the columns are in its `attrs`.

        Parameters
        ----------
        level, by, of
            The rows and the table, as in `table`.

        Returns
        -------
        pandas.DataFrame
            The rows. A column that the release cannot fill has missing values.

        Raises
        ------
        SpecError
            If the level, a category or the table is unknown, or pandas is not installed.

        Examples
        --------
        >>> frame = release.to_pandas(level="county")
        >>> int(frame["count"].sum()) == release.total
        True
        """
        rows = self.table(level, by, of=of)
        import_extra("pandas", "to_pandas", "pandas")
        frame = rows.to_pandas()
        frame.attrs = {"title": self.title, "columns": self._described(of).descriptions}
        return frame

    def to_polars(self, level: str | None = None, by: By = None, *, of: Tables = "counts") -> Any:
        """Return a published table, or some of its rows, as a polars DataFrame.

        Parameters
        ----------
        level, by, of
            The rows and the table, as in `table`.

        Returns
        -------
        polars.DataFrame
            The rows. A column that the release cannot fill has missing values.

        Raises
        ------
        SpecError
            If the level, a category or the table is unknown, or polars is not installed.

        Examples
        --------
        >>> release.to_polars(level="county", of="entities").columns[:4]
        ['level', 'region', 'name', 'entities']
        """
        rows = self.table(level, by, of=of)
        return import_extra("polars", "to_polars", "polars").from_arrow(rows)

    def plot(self, region: str | None = None) -> Any:
        """Draw a chart of the groups of a region by size, with recommended intervals if the release has them.

        Parameters
        ----------
        region : str, optional
            The id or name of a region. The default is the whole.

        Returns
        -------
        altair.Chart
            The chart. `tallytree.core.display.save(chart, "c.png")` saves it.

        Raises
        ------
        SpecError
            If the region is unknown, or Altair is not installed.
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
        """Draw a map of the regions, coloured by an answer about each and hatched where it is too uncertain.

        Parameters
        ----------
        geojson : path or mapping
            A GeoJSON file or its content. Its areas are matched with the regions of one level by the property that
            holds their ids or names.
        sizes : int, str or list of int, optional
            The sizes that the map is about. All sizes by default.
        kind : {"share", "mean", "sum"}, optional
            What to show. The default is the mean size without `sizes` and `of`, and with one of them the share of all
            groups.
        by : mapping, optional
            Values of categories, such as ``{"tenure": "rented"}``.
        of : mapping, optional
            For a share: the values of categories whose share is shown.
        confidence : float, optional
            The level of the intervals. The default is the release's own.
        progress : callable, optional
            A function that is called with each step of the work.

        Returns
        -------
        RegionMap
            The map. It shows itself in a notebook, and ``save("map.svg")`` saves it.

        Raises
        ------
        SpecError
            If the areas do not match the regions of a level, or a size or category is unknown.
        """
        wanted = kind or ("mean" if sizes is None and of is None else "share")
        places = read_map(geojson, self.hierarchy.regions)
        regions = self.hierarchy.regions
        query = Query(wanted, None, None if wanted == "mean" else sizes, by, of)
        queries = [replace_fields(query, regions=regions.ids[outline.region]) for outline in places.outlines]
        found = answer_queries(self, queries, confidence=confidence, typical=False, progress=progress)
        what = {"mean": "mean size", "share": "share", "sum": self.about.groups}[wanted]
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
        query : Query
            What is asked: a kind, regions, sizes and values of categories.
        confidence : float, optional
            The level of the intervals. The default is the release's own.
        typical : bool, default True
            Compute typical intervals. They take 25 estimates.
        progress : callable, optional
            A function that is called with each step of the estimates.

        Returns
        -------
        Answer
            The released value, the unbiased estimate and both intervals.

        Raises
        ------
        SpecError
            If the query names an unknown region, size or category.

        Examples
        --------
        >>> release.ask(tt.Query("share", "X", ">=2"), typical=False).question
        'share of size 2 or more among the groups in X'
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
        query : Query
            What is asked of each. With `level`, its regions say within which regions.
        level : str, optional
            The name of a level.
        areas : mapping, path or table, optional
            Lists of regions by the areas' names; or a CSV file, a Parquet file or a table with the columns `area` and
            `region`. A region that is not a leaf stands for its leaves; a leaf may lie in several areas.
        category : str, optional
            The name of a category. The last answer is the sum over its values.
        confidence, typical, progress
            As in `ask`. All typical intervals come from one run of replicates.

        Returns
        -------
        list of Answer
            In the order of the hierarchy, of the areas or of the values.

        Raises
        ------
        SpecError
            If the query, the level, an area or the category is unknown.

        Examples
        --------
        >>> answers = release.ask_each(tt.Query("sum", sizes=">=2"), level="county", typical=False)
        >>> [answer.regions for answer in answers]
        [('X',), ('Y',)]
        """
        return answer_queries(self, split_query(query, self.hierarchy, level, areas, category), **options)

    def estimate(self, regions: Regions, sizes: Sizes = None, *, by: By = None, **options: Unpack[Options]) -> Answer:
        """Estimate the number of groups; short for ``ask(Query("sum", …))``.

        Parameters
        ----------
        regions : str or list of str, optional
            Ids or names of regions; several are summed. None is the whole.
        sizes : int, str or list of int, optional
            Sizes, such as 3, [1, 2], ">=6", "3-5" or "1,2,7+". All sizes by default.
        by : mapping, optional
            Values of categories, such as ``{"tenure": "rented"}``.
        confidence, typical, progress
            As in `ask`.

        Returns
        -------
        Answer
            The number of groups, with its intervals.

        Raises
        ------
        SpecError
            If a region, size or category is unknown.

        Examples
        --------
        >>> answer = release.estimate("X", ">=2", typical=False)
        >>> answer.kind, answer.regions, answer.confidence
        ('sum', ('X',), 0.95)
        """
        return self.ask(Query("sum", regions, sizes, by), **options)

    def share(
        self, regions: Regions, sizes: Sizes = None, *, of: By = None, by: By = None, **options: Unpack[Options]
    ) -> Answer:
        """Estimate the share of sizes, or of values of categories; short for ``ask(Query("share", …))``.

        Parameters
        ----------
        regions : str or list of str, optional
            Ids or names of regions; several are summed. None is the whole.
        sizes : int, str or list of int, optional
            Sizes, as in `estimate`.
        of : mapping, optional
            The values of categories whose share among all groups of these sizes is wanted.
        by : mapping, optional
            Values of categories, such as ``{"tenure": "rented"}``.
        confidence, typical, progress
            As in `ask`.

        Returns
        -------
        Answer
            The share, from 0 to 1, with its intervals.

        Raises
        ------
        SpecError
            If a region, size or category is unknown.

        Examples
        --------
        >>> release.share("X", "1", typical=False).kind
        'share'
        """
        return self.ask(Query("share", regions, sizes, by, of), **options)

    def mean_size(self, regions: Regions, *, by: By = None, **options: Unpack[Options]) -> Answer:
        """Estimate the number of entities per group; short for ``ask(Query("mean", …))``.

        Sizes larger than the last one count as the last one.

        Parameters
        ----------
        regions : str or list of str, optional
            Ids or names of regions; several are summed. None is the whole.
        by : mapping, optional
            Values of categories, such as ``{"tenure": "rented"}``.
        confidence, typical, progress
            As in `ask`.

        Returns
        -------
        Answer
            The mean size, with its intervals.

        Raises
        ------
        SpecError
            If a region or category is unknown.

        Examples
        --------
        >>> release.mean_size("X", typical=False).kind
        'mean'
        """
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
        """Divide the number of groups by that of other regions; short for ``ask(Query("ratio", …))``.

        Parameters
        ----------
        regions : str or list of str
            Ids or names of the regions in the numerator.
        to : str or list of str
            Ids or names of the regions in the denominator.
        sizes : int, str or list of int, optional
            Sizes in the numerator, as in `estimate`.
        to_sizes : int, str or list of int, optional
            Sizes in the denominator. The default is the same sizes.
        by : mapping, optional
            Values of categories in the numerator.
        to_by : mapping, optional
            Values of categories in the denominator.
        confidence, typical, progress
            As in `ask`.

        Returns
        -------
        Answer
            The ratio, with its intervals. It is unbounded if the denominator may be zero.

        Raises
        ------
        SpecError
            If a region, size or category is unknown.

        Examples
        --------
        >>> release.ratio("X", "Y", typical=False).kind
        'ratio'
        """
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
        """Subtract the number of groups of other regions; short for ``ask(Query("difference", …))``.

        Parameters
        ----------
        regions : str or list of str
            Ids or names of the regions to subtract from.
        to : str or list of str
            Ids or names of the regions that are subtracted.
        sizes : int, str or list of int, optional
            Sizes, as in `estimate`.
        to_sizes : int, str or list of int, optional
            Sizes of what is subtracted. The default is the same sizes.
        by : mapping, optional
            Values of categories.
        to_by : mapping, optional
            Values of categories of what is subtracted.
        confidence, typical, progress
            As in `ask`.

        Returns
        -------
        Answer
            The difference, with its intervals.

        Raises
        ------
        SpecError
            If a region, size or category is unknown.

        Examples
        --------
        >>> release.difference("X", "Y", "1", typical=False).kind
        'difference'
        """
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
        """Compute guaranteed intervals that hold for all sizes together.

        Each region or area has a band of its own.

        Parameters
        ----------
        regions : str or list of str, optional
            Ids or names of regions. None is the whole.
        sizes : int, str or list of int, optional
            Sizes, as in `estimate`.
        areas : mapping, path or table, optional
            Areas instead of regions, as in `ask_each`.
        by : mapping, optional
            Values of categories, such as ``{"tenure": "rented"}``.
        confidence : float, optional
            The level of the intervals. The default is the release's own.

        Returns
        -------
        pyarrow.Table
            A table like `table`.

        Raises
        ------
        ReleaseError
            If nothing is guaranteed for these measurements.
        SpecError
            If a region, size or category is unknown.

        Examples
        --------
        >>> release.bands("X").num_rows
        3
        """
        tree = self.hierarchy.regions
        each = [tree.ids[one] for one in named_regions(regions, tree)] if areas is None else read_areas(areas, tree)
        return simultaneous_bands(self, each, sizes, by=by, confidence=confidence)


# -------------------------------------------------------------------- how a release shows itself


def _as_line(release: ReleaseContents, release_id: str | None) -> str:
    """Return title, levels, sizes, groups and entities, mechanism, budget and id in one line."""
    saved = "not saved" if release_id is None else f"id {release_id[:16]}"
    facts, about = _facts(release), release.about
    capped = capped_sizes(release.sizes[-1])
    counted = f"{release.total:,} {about.groups} with {release.entities[0]:,} {about.entities} ({capped})"
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
    """Return the notebook display: the facts, the counts of the root, and a chart of them."""
    measurements, about, top = release.measurements, release.about, release.hierarchy.names[0]
    known = "an estimate" if public_totals(measurements) is None else "public"
    facts = {
        **_facts(release),
        about.groups: f"{release.total:,} in {top} ({known})",
        about.entities: f"{release.entities[0]:,} in {top} (from the sizes). {cut_off(release.sizes[-1])}",
        "privacy": guarantee(measurements.budget),
        "protects": describe_relation(measurements.neighbours),
        "truncated": truncation(measurements.neighbours),
        "id": release_id or "none yet: save(…) assigns one",
    }
    ends = [(kind, ENDS[kind]) for kind in release.error_bars.of.get("counts", {})]
    percent = in_percent(release.error_bars.confidence)
    headers = ["size", f"{about.groups} in {shortened(top)}", *(f"{kind} at {percent}" for kind, _ in ends)]
    rows = [
        [size_label(size, release.sizes[-1]), f"{release.counts[0, cell]:,}"]
        + [_between(release, 0, cell, names) for _, names in ends]
        for cell, size in enumerate(release.sizes)
    ]
    counts = table(headers, rows, right=range(1, len(headers)), rest="table() has all regions and sizes")
    return page(release.title, facts, counts, inline(lambda: plot_counts(release, None)), paragraph(_of_bars(release)))


def plot_counts(release: ReleaseContents, region: str | None) -> Any:
    """Chart the counts of a region (the root if None) by size, with the recommended intervals if any (Altair)."""
    if region is not None and not isinstance(region, str):
        raise SpecError(f"region is the id or the name of one region, or None for the whole, not {region!r}")
    alt = altair()
    scope = Scope.of(region, None, release.hierarchy)
    place = scope.table_row(release.hierarchy)
    assert place is not None  # one region is one row
    rows = _bars(release, place)
    title = "size" if len(rows) == len(release.sizes) else "size, in classes that double"
    base = alt.Chart(alt.Data(values=rows))
    tilted = len(rows) > 16 or max(len(row["size"]) for row in rows) > 5
    axis = alt.Axis(labelAngle=-50 if tilted else 0, labelOverlap=False)
    x = alt.X("size:N", sort=None, title=title, axis=axis)
    tips = [alt.Tooltip(name, type=kind) for name, kind in (("size", "nominal"), ("groups", "quantitative"))]
    bars = base.mark_bar(color=COLORS[0], opacity=0.75).encode(
        x=x, y=alt.Y("groups:Q", title=release.about.groups, axis=alt.Axis(format=",d", tickMinStep=1)), tooltip=tips
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
    """Return the caption of the chart's intervals."""
    kind = _recommended(release, 0)
    if kind is None or len(release.sizes) > MOST_SIZES:
        return ""
    return (
        f"Lines: {kind} intervals (recommended) at {in_percent(release.error_bars.confidence)}, separately for each "
        "size."
    )


def _bars(release: ReleaseContents, region: int) -> list[dict[str, Any]]:
    """Return a bar for each size or class of sizes; intervals of single sizes do not apply to sums."""
    classes, kind = size_classes(release.sizes), _recommended(release, region)
    starts = [one.first - release.sizes.start for one in classes]
    counts = np.add.reduceat(release.all_counts[region], starts)
    rows: list[dict[str, Any]] = [
        {"size": one.label, "groups": int(groups)} for one, groups in zip(classes, counts, strict=True)
    ]
    if kind is not None and len(classes) == len(release.sizes):
        given = release.error_bars.of["counts"][kind]
        for row, lower, upper in zip(rows, given.lower[region], given.upper[region], strict=True):
            row |= {"lower": int(lower), "upper": int(upper)}
    return rows
