"""`Release`: released counts as people use them, to save, load, show and ask questions about."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallytree.arguments import FLAG, PATH, expecting
from tallytree.errors import SpecError
from tallytree.progress import Progress, silent
from tallytree.publish.folder import MANIFEST, digest, place_of
from tallytree.publish.recording import mark_of, warned_if_not_recorded
from tallytree.publish.release import shown
from tallytree.publish.release.answer import Answer
from tallytree.publish.release.answers import answers, bands
from tallytree.publish.release.areas import read_areas
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.files import read_release, write_release
from tallytree.publish.release.questions import Asked, Sizes
from tallytree.publish.release.scope import By, Regions, regions_of_level
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
        release = cls(**vars(read_release(Path(directory))))
        if (manifest := Path(directory, MANIFEST)).is_file():
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

    def plot(self, region: str | None = None) -> Any:
        """A chart (Altair) of the groups by size in a region, by id or name; of the whole if left out.

        It shows guaranteed intervals where the release has them. `tallytree.charts.save(chart, "counts.png")` keeps it.
        """
        return shown.chart(self, region)

    def __repr__(self) -> str:
        return shown.line(self, self.release_id)

    def _repr_html_(self) -> str:
        return shown.html(self, self.release_id)

    def estimate(self, regions: Regions, sizes: Sizes = None, **how: Any) -> Answer:
        """How many groups of the given sizes there are in the union of regions, with both intervals.

        Regions are ids or names; sizes are numbers or a text such as ">=6", "3-5" or "1,2,7+", and all sizes if left
        out. `confidence` is the release's own unless given; `typical=False` spares the 25 estimates that a typical
        interval takes; `progress` is told of them. Where groups are told apart by categories, `by={"tenure": "rented"}`
        asks about one value, and a category that is not named is summed over. All questions take these.
        """
        return self._ask("sum", [(regions, sizes)], **how)[0]

    def estimates(
        self,
        level: str | None = None,
        sizes: Sizes = None,
        *,
        areas: Any = None,
        kind: str = "sum",
        to: Regions = None,
        within: Regions = None,
        **how: Any,
    ) -> list[Answer]:
        """An answer for every region of a level by itself, or for those `within` some regions; or for every area.

        `areas` are lists of regions by the areas' names, or a CSV or Parquet file or a table with the columns `area`
        and `region`. A region that is no leaf stands for all its leaves; a leaf may lie in several areas.

        `kind` is "sum", "share", "mean", "ratio" or "difference", the last two against the regions `to`. All typical
        intervals come from one run of replicates.
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
        second = (to, sizes) if kind in ("ratio", "difference") else None
        return self._ask(kind, [(region, sizes) for region in wanted], second, **how)

    def share(self, regions: Regions, sizes: Sizes = None, *, of: By = None, **how: Any) -> Answer:
        """What part of all groups in the union of regions has the given sizes.

        With `of={"tenure": "rented"}` it is the part with that value, among all groups of the sizes.
        """
        return self._ask("share", [(regions, sizes)], of=of, **how)[0]

    def mean_size(self, regions: Regions, **how: Any) -> Answer:
        """Entities per group in the union of regions.

        The last size counts as itself, so the mean is truncated: a lower bound where there are larger groups.
        """
        return self._ask("mean", [(regions, None)], **how)[0]

    def ratio(
        self, regions: Regions, to: Regions, sizes: Sizes = None, *, to_sizes: Sizes = None, **how: Any
    ) -> Answer:
        """One sum divided by another; `to_sizes` are the same sizes unless given, `to_by` is `by` of the other."""
        return self._ask("ratio", [(regions, sizes)], (to, sizes if to_sizes is None else to_sizes), **how)[0]

    def difference(
        self, regions: Regions, to: Regions, sizes: Sizes = None, *, to_sizes: Sizes = None, **how: Any
    ) -> Answer:
        """One sum minus another; `to_sizes` are the same sizes unless given, `to_by` is `by` of the other."""
        return self._ask("difference", [(regions, sizes)], (to, sizes if to_sizes is None else to_sizes), **how)[0]

    def bands(self, regions: Regions, sizes: Sizes = None, *, by: By = None, confidence: float | None = None) -> Any:
        """Guaranteed intervals that hold for all sizes of one region together: a pyarrow Table like `table`.

        Of several regions each has a band of its own. Refused with a ReleaseError where there is no guarantee.
        """
        return bands(self, regions, sizes, by=by, confidence=confidence)

    def _ask(
        self,
        kind: str,
        asked: Iterable[tuple[Any, Any]],
        to: tuple[Any, Any] | None = None,
        *,
        by: By = None,
        to_by: By = None,
        of: By = None,
        **how: Any,
    ) -> list[Answer]:
        questions = [Asked.of(self, kind, *each, *(to or ()), by=by, to_by=to_by, of=of) for each in asked]
        return answers(self, questions, **how)
