"""Write a release in a form that other software reads, into a directory that is there as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from tallytree.core.arguments import told
from tallytree.core.errors import SpecError
from tallytree.core.names import did_you_mean
from tallytree.core.progress import Progress, silent
from tallytree.publish.folder import write_whole
from tallytree.publish.release.contents import ReleaseContents

Format = Literal["sdmx-csv", "json-stat", "csvw"]
FORMATS: tuple[str, ...] = get_args(Format)


def export(release: ReleaseContents, directory: Path, *, to: str, progress: Progress = silent) -> tuple[str, ...]:
    """Write the counts and the numbers of entities of a release; the names of the files.

    A directory that is there already is left alone, with a ReleaseError.
    """
    fill = _writer(to)
    written: list[str] = []

    def named(folder: Path) -> tuple[str, ...]:
        written.extend(fill(release, folder, progress))
        return tuple(written)

    write_whole(directory, named)
    return tuple(written)


def _writer(to: str) -> Callable[[ReleaseContents, Path, Progress], tuple[str, ...]]:
    if to == "sdmx-csv":
        from tallytree.publish.export.sdmx_csv import write_sdmx_csv

        return write_sdmx_csv
    if to == "json-stat":
        from tallytree.publish.export.json_stat import write_json_stat

        return write_json_stat
    if to == "csvw":
        from tallytree.publish.export.csvw import write_csvw

        return write_csvw
    hint = did_you_mean(to, FORMATS, "there are") if isinstance(to, str) else f"expected {', '.join(FORMATS)}"
    raise SpecError(f"to is {told(to)}, which is no format of exports; {hint}")
