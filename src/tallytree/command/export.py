"""`tallytree export`: a release, or synthetic households, in a form that other software reads."""

from __future__ import annotations

from pathlib import Path

from tallytree.command import screen
from tallytree.command.progress_bar import shown
from tallytree.core.errors import SpecError
from tallytree.core.names import did_you_mean
from tallytree.core.progress import Stage
from tallytree.publish.export.writing import FORMATS
from tallytree.publish.folder import write_whole
from tallytree.publish.microdata.files import is_microdata
from tallytree.publish.microdata.population import FORMS, population_files
from tallytree.publish.release.value import Release


def run_export(directory: Path, *, to: str, out: Path | None, quiet: bool) -> None:
    """Write the files, into a directory that is there as a whole or not at all."""
    if to not in (*FORMATS, *FORMS):
        raise SpecError(f"--to {to!r} is no format of exports; {did_you_mean(to, (*FORMATS, *FORMS))}")
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
    screen.show(f"{target}: {', '.join(names)}", quiet=quiet)
