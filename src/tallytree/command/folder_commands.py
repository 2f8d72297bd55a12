"""`tallytree report` and `export`: a directory that is complete, for people and for other software."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

from tallytree.command.progress_bar import shown
from tallytree.command.screen import show
from tallytree.core.errors import ReleaseError, SpecError, TallytreeError
from tallytree.core.names import did_you_mean
from tallytree.core.progress import Progress, Stage, silent
from tallytree.publish.folder import REPORT, put_report, write_whole
from tallytree.publish.microdata.synthesis import is_microdata
from tallytree.publish.release.value import Release
from tallytree.publish.report import Page, Words


class NoReport(UserWarning):
    """A release is complete, and its page could not be written."""


def run_report(directory: Path, *, map: Path | None, out: Path | None, words: Words, quiet: bool) -> None:  # noqa: A002
    """Write the page of a directory, into it or elsewhere."""
    if not directory.is_dir():
        raise ReleaseError(f"there is no release directory at {directory}")
    with shown(quiet) as progress:
        progress(Stage("reading the release"))
        page = page_of(directory, words=words, map=map, progress=progress)
        written = put_report(directory, page.encode()) if out is None else page.save(out)
    show(f"{written} ({len(page.encode()) / 1000:,.0f} kB): open it in a browser; it needs no network.", quiet=quiet)


def page_of(directory: Path, *, words: Words, map: Path | None, progress: Progress = silent) -> Page:  # noqa: A002
    """The page of what a directory holds."""
    if is_microdata(directory):
        from tallytree.publish.report.synthesis_page import make_synthesis_page

        if map is not None:
            raise SpecError("synthetic households have no map; --map is for releases")
        return make_synthesis_page(directory)
    from tallytree.publish.report.release_page import read_release_page

    progress(Stage("making the page"))
    return read_release_page(directory, words=words, map=map)


def report_after(directory: Path, made: Callable[[], Page], progress: Progress) -> Path | None:
    """Write the page of what is complete already: whatever fails here is a warning, and nothing is lost."""
    progress(Stage("making the page"))
    try:
        return put_report(directory, made().encode())
    except Exception as error:  # of public values alone
        why = str(error) if isinstance(error, TallytreeError) else getattr(error, "strerror", None)
        why = (why or type(error).__name__).rstrip(".")
        warnings.warn(
            f"{directory} is complete, but its page {REPORT} could not be written: {why}. "
            f"tallytree report {directory} writes it.",
            NoReport,
            stacklevel=2,
        )
        return None


def run_export(directory: Path, *, to: str, out: Path | None, quiet: bool) -> None:
    """Write the files, into a directory that is there as a whole or not at all."""
    from tallytree.publish.formats import FORMATS
    from tallytree.publish.microdata.population import FORMS, population_files

    if to not in (*FORMATS, *FORMS):
        raise SpecError(f"--to: unknown export format {to!r}; {did_you_mean(to, (*FORMATS, *FORMS))}")
    if to in FORMATS and is_microdata(directory):
        raise SpecError(f"{directory} holds synthetic households: --to {' or '.join(FORMS)}")
    target = out or directory.resolve().with_name(f"{directory.resolve().name}-{to}")
    names: tuple[str, ...] = ()

    def fill(folder: Path) -> tuple[str, ...]:
        nonlocal names
        names = tuple(path.name for path in population_files(directory, folder, form=to, progress=progress))
        return names

    with shown(quiet) as progress:
        if to in FORMS:
            write_whole(target, fill)
        else:
            progress(Stage("reading the release"))
            names = Release.load(directory).export(target, to=to, progress=progress)  # type: ignore[arg-type]
    show(f"{target}: {', '.join(names)}", quiet=quiet)
