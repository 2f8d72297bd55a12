"""`Release`: released counts as people use them, to save, load, show and ask questions about."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tallytree.core.arguments import FLAG, PATH, expecting
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.progress import Progress, silent
from tallytree.publish.export.writing import Format, export
from tallytree.publish.folder import MANIFEST, digest, place_of
from tallytree.publish.recording import mark_of, warned_if_not_recorded
from tallytree.publish.release import shown
from tallytree.publish.release.answer import Answer
from tallytree.publish.release.answers import answers, bands
from tallytree.publish.release.areas import read_areas
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.files import read_release, write_release
from tallytree.publish.release.questions import Asked, QuestionKind, Sizes
from tallytree.publish.release.region_map import RegionMap
from tallytree.publish.release.scope import By, Regions, regions_of_level
from tallytree.publish.report.maps import read_map
from tallytree.publish.report.words import Words

if TYPE_CHECKING:
    from tallytree.publish.report.page import Page
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
        """
        if self.partial:
            raise ReleaseError("this is a part of a release, so it is not saved; load all of it with Release.load")
        target, receipt = place_of(Path(directory)), self.measurements.receipt
        if receipt is not None:
            with warned_if_not_recorded(target, receipt):
                receipt.settle_on(mark_of(self.measurements))
        release_id = write_release(self, target, replace=replace, progress=progress)
        if receipt is not None:
            with warned_if_not_recorded(target, receipt):
                receipt.record(release_id)
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
        from tallytree.publish.report.release_page import release_page

        called = Words(groups, entities)
        return release_page(self, self.release_id, words=called, map=map, directory=os.fspath(directory))

    @expecting(directory=PATH)
    def export(self, directory: str | PathLike[str], *, to: Format, progress: Progress = silent) -> tuple[str, ...]:
        """Write counts and numbers of entities for other software, and return the names of the files.

        `to` is "sdmx-csv" (SDMX-CSV 2.0 with its structure), "json-stat" (JSON-stat 2.0) or "csvw" (CSV on the Web).
        The directory must not exist yet. A release that is too large for a format is refused with a ReleaseError.
        """
        return export(self, Path(directory), to=to, progress=progress)

    def plot(self, region: str | None = None) -> Any:
        """A chart (Altair) of the groups by size in a region, by id or name; of the whole if left out.

        It shows recommended intervals if the release has them. `tallytree.core.charts.save(chart, "c.png")` keeps it.
        """
        return shown.chart(self, region)

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
        asked = [
            Asked.of(self, wanted, regions.ids[outline.region], None if wanted == "mean" else sizes, by=by, of=of)
            for outline in places.outlines
        ]
        found = answers(self, asked, confidence=confidence, typical=False, progress=progress)
        what = {"mean": "mean size", "share": "share", "sum": "groups"}[wanted]
        title = f"{self.title}: {what}{'' if sizes is None else f', sizes {sizes}'}"
        names = tuple(regions.names[outline.region] for outline in places.outlines)
        return RegionMap(title, places, names, tuple(found))

    def __repr__(self) -> str:
        return shown.line(self, self.release_id)

    def _repr_html_(self) -> str:
        return shown.html(self, self.release_id)

    def estimate(
        self,
        regions: Regions,
        sizes: Sizes = None,
        *,
        by: By = None,
        confidence: float | None = None,
        typical: bool = True,
        progress: Progress = silent,
    ) -> Answer:
        """How many groups of the given sizes there are in the union of regions, with both intervals.

        Regions are ids or names; sizes are numbers or a text such as ">=6", "3-5" or "1,2,7+", and all sizes if left
        out. `confidence` is the release's own unless given; `typical=False` spares the 25 estimates that a typical
        interval takes; `progress` is told of them. Where groups are told apart by categories, `by={"tenure": "rented"}`
        asks about one value, and a category that is not named is summed over. All questions take these.
        """
        asked = Asked.of(self, "sum", regions, sizes, by=by)
        return answers(self, [asked], confidence=confidence, typical=typical, progress=progress)[0]

    def estimates(
        self,
        level: str | None = None,
        sizes: Sizes = None,
        *,
        areas: Any = None,
        kind: QuestionKind = "sum",
        to: Regions = None,
        within: Regions = None,
        by: By = None,
        to_by: By = None,
        of: By = None,
        confidence: float | None = None,
        typical: bool = True,
        progress: Progress = silent,
    ) -> list[Answer]:
        """An answer for every region of a level by itself, or for those `within` some regions; or for every area.

        `areas` are lists of regions by the areas' names, or a CSV or Parquet file or a table with the columns `area`
        and `region`. A region that is no leaf stands for all its leaves; a leaf may lie in several areas.

        `kind` is "sum", "share", "mean", "ratio" or "difference", the last two against the regions `to`. All typical
        intervals come from one run of replicates. The rest is as in `estimate`, `share` and `ratio`.
        """
        wanted: Sequence[Regions]
        if areas is not None:
            if level is not None or within is not None:
                raise SpecError("ask for areas, or for the regions of a level (within others), not for both at once")
            wanted = read_areas(areas, self.hierarchy.regions)
        elif level is None:
            raise SpecError("say of what: estimates needs a level, or areas")
        else:
            wanted = regions_of_level(self.hierarchy.regions, level, within)
        second = (to, sizes) if kind in ("ratio", "difference") else ()
        asked = [Asked.of(self, kind, region, sizes, *second, by=by, to_by=to_by, of=of) for region in wanted]
        return answers(self, asked, confidence=confidence, typical=typical, progress=progress)

    def share(
        self,
        regions: Regions,
        sizes: Sizes = None,
        *,
        of: By = None,
        by: By = None,
        confidence: float | None = None,
        typical: bool = True,
        progress: Progress = silent,
    ) -> Answer:
        """What part of all groups in the union of regions has the given sizes.

        With `of={"tenure": "rented"}` it is the part with that value, among all groups of the sizes. The rest is as in
        `estimate`.
        """
        asked = Asked.of(self, "share", regions, sizes, by=by, of=of)
        return answers(self, [asked], confidence=confidence, typical=typical, progress=progress)[0]

    def mean_size(
        self,
        regions: Regions,
        *,
        by: By = None,
        confidence: float | None = None,
        typical: bool = True,
        progress: Progress = silent,
    ) -> Answer:
        """Entities per group in the union of regions; the options are those of `estimate`.

        The last size counts as itself, so the mean is truncated: a lower bound where there are larger groups.
        """
        asked = Asked.of(self, "mean", regions, None, by=by)
        return answers(self, [asked], confidence=confidence, typical=typical, progress=progress)[0]

    def ratio(
        self,
        regions: Regions,
        to: Regions,
        sizes: Sizes = None,
        *,
        to_sizes: Sizes = None,
        by: By = None,
        to_by: By = None,
        confidence: float | None = None,
        typical: bool = True,
        progress: Progress = silent,
    ) -> Answer:
        """One sum divided by another; `to_sizes` are the same sizes unless given, `to_by` is `by` of the other.

        The rest is as in `estimate`.
        """
        second = sizes if to_sizes is None else to_sizes
        asked = Asked.of(self, "ratio", regions, sizes, to, second, by=by, to_by=to_by)
        return answers(self, [asked], confidence=confidence, typical=typical, progress=progress)[0]

    def difference(
        self,
        regions: Regions,
        to: Regions,
        sizes: Sizes = None,
        *,
        to_sizes: Sizes = None,
        by: By = None,
        to_by: By = None,
        confidence: float | None = None,
        typical: bool = True,
        progress: Progress = silent,
    ) -> Answer:
        """One sum minus another; `to_sizes` are the same sizes unless given, `to_by` is `by` of the other.

        The rest is as in `estimate`.
        """
        second = sizes if to_sizes is None else to_sizes
        asked = Asked.of(self, "difference", regions, sizes, to, second, by=by, to_by=to_by)
        return answers(self, [asked], confidence=confidence, typical=typical, progress=progress)[0]

    def bands(self, regions: Regions, sizes: Sizes = None, *, by: By = None, confidence: float | None = None) -> Any:
        """Guaranteed intervals that hold for all sizes of one region together: a pyarrow Table like `table`.

        Of several regions each has a band of its own. Refused with a ReleaseError where there is no guarantee.
        """
        return bands(self, regions, sizes, by=by, confidence=confidence)
