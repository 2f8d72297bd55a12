"""`tallytree report`: the page of a release or of synthetic households; and what writes it after either was made."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

from tallytree.command.progress_bar import shown
from tallytree.command.screen import show
from tallytree.core.errors import ReleaseError, SpecError, TallytreeError
from tallytree.core.progress import Progress, Stage, silent
from tallytree.publish.folder import REPORT, put_report
from tallytree.publish.microdata.files import is_microdata
from tallytree.publish.release.excerpt import read_upper
from tallytree.publish.release.value import Release
from tallytree.publish.report.page import MOST_CELLS, Page
from tallytree.publish.report.words import Words


class NoReport(UserWarning):
    """A release is complete, and its page could not be written."""


def run_report(directory: Path, *, map: Path | None, out: Path | None, words: Words, quiet: bool) -> None:  # noqa: A002
    """Write the page of a directory, into it or elsewhere."""
    if not directory.is_dir():
        raise ReleaseError(f"there is no release directory at {directory}")
    with shown(quiet) as progress:
        progress(Stage("reading the release"))
        page = page_of(directory, words=words, map=map, progress=progress)
        written = put_report(directory, page.encoded()) if out is None else page.save(out)
    show(f"{written} ({len(page.encoded()) / 1000:,.0f} kB): open it in a browser; it needs no network.", quiet=quiet)


def page_of(directory: Path, *, words: Words, map: Path | None, progress: Progress = silent) -> Page:  # noqa: A002
    """The page of what a directory holds."""
    if is_microdata(directory):
        from tallytree.publish.report.microdata_page import microdata_page

        if map is not None:
            raise SpecError("synthetic households have no map; --map is for releases")
        return microdata_page(directory)
    release = Release.of(read_upper(directory, MOST_CELLS), directory)
    progress(Stage("making the page"))
    return release.report(map=map, groups=words.groups, entities=words.entities, directory=directory)


def report_after(directory: Path, made: Callable[[], Page], progress: Progress) -> Path | None:
    """Write the page of what is complete already: whatever fails here is a warning, and nothing is lost."""
    progress(Stage("making the page"))
    try:
        return put_report(directory, made().encoded())
    except Exception as error:  # of public values alone
        why = str(error) if isinstance(error, TallytreeError) else _system(error)
        warnings.warn(
            f"{directory} is complete, but its page {REPORT} could not be written: {why.rstrip('.')}. "
            f"tallytree report {directory} writes it.",
            NoReport,
            stacklevel=2,
        )
        return None


def _system(error: Exception) -> str:
    told = error.strerror if isinstance(error, OSError) else None
    return told or type(error).__name__
