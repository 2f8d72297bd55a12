"""`verify`: make again what a folder holds, from its measurements and declared settings, and compare every file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tallytree.core.arguments import FLAG, PATH, TEXT, expecting, optional
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.notebook import page, quoted, table
from tallytree.core.numbers import short
from tallytree.core.progress import Progress, Stage, silent
from tallytree.publish.comparison import compare_folders
from tallytree.publish.folder import (
    MANIFEST,
    MOST_FAULTS,
    PARTITIONED,
    PRIVACY,
    REPORT,
    UNUSABLE,
    check_form,
    digest,
    is_report,
    manifest_faults,
    plain_name,
    reason,
)
from tallytree.publish.reading import strange_files
from tallytree.publish.statement import Assumption, software

if TYPE_CHECKING:
    from tallytree.publish.microdata.synthesis_checks import SynthesisChecks
    from tallytree.publish.release.release_checks import ReleaseChecks

FEWEST_DIGITS = 8  # of an id
REGULAR = "all files are regular files of a plausible size"
LISTED = "the files are those that the manifest lists, unchanged"
KNOWN = "this version of tallytree can verify the files"
REMADE = "all files can be made again from the measurements and the declared settings"
PAGE = "the report: it is for people, and no part of the release; `tallytree report` makes it again"

MOST_FAULTS_LISTED = 100  # of one check
MOST_FAULTS_SHOWN = 3  # of one check, in a notebook


@dataclass(frozen=True)
class Check:
    """What was checked, and the faults that were found."""

    what: str
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Verification:
    """The outcome of `verify`."""

    checks: tuple[Check, ...]
    release_id: str | None
    assumptions: tuple[Assumption, ...] = ()  # what the files state and alone cannot prove

    @property
    def ok(self) -> bool:
        """Did all checks pass?"""
        return all(not check.faults for check in self.checks)

    @property
    def verdict(self) -> str:
        """The outcome in a sentence."""
        if self.ok:
            return "All checks passed."
        if any(check.what == KNOWN and check.faults for check in self.checks):
            return "Not verified: another version of tallytree made it."
        found = len(self.faults)
        return f"{found} fault{'' if found == 1 else 's'} found: do not use this release."

    @property
    def faults(self) -> tuple[str, ...]:
        """All faults that were found."""
        return tuple(fault for check in self.checks for fault in check.faults)

    def __repr__(self) -> str:
        broken = sum(bool(check.faults) for check in self.checks)
        told = f"{broken} of {len(self.checks)} checks failed" if broken else f"all {len(self.checks)} checks passed"
        first = "".join(f", first: {quoted(fault)}" for fault in self.faults[:1])
        return f"Verification({told}{first}, {'no id' if self.release_id is None else f'id {self.release_id[:16]}'})"

    def _repr_html_(self) -> str:
        rows = [
            ("✗" if check.faults else "✓", check.what, "; ".join(check.faults[:MOST_FAULTS_SHOWN]))
            for check in sorted(self.checks, key=lambda check: not check.faults)
        ]
        facts = {"id": self.release_id or "none"}
        checks = table(("", "check", "faults"), rows, rest="checks has all of them")
        beyond = [(one.place, one.what) for one in self.assumptions]
        assumptions = table(("where", "the files alone cannot prove"), beyond, rest="assumptions has all of it")
        return page(self.verdict, facts, checks + assumptions if beyond else checks)


@expecting(directory=PATH, id=optional(TEXT), typical=FLAG)
def verify(
    directory: str | PathLike[str],
    *,
    id: str | None = None,  # noqa: A002
    typical: bool = True,
    progress: Progress = silent,
) -> Verification:
    """Check the directory of a release or of synthetic households; with `id`, also that it is that very one.

    A release is made again from its measurements and declared settings, and every file is compared: by its bytes, if
    it was made by the same versions on the same platform, and by its content otherwise. Of synthetic households all is
    made again but the fit of the model.

    `id` is the id printed at release or its first 8 or more digits. `typical=False` leaves out typical intervals, which
    take 25 estimates to compute again; they are then listed as an assumption.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise ReleaseError(f"there is no release directory at {folder}")
    wanted = None if id is None else _checked_id(id)
    if strange := tuple(islice(strange_files(folder, PARTITIONED), MOST_FAULTS)):
        return Verification((Check(REGULAR, strange),), None)
    checks, assumptions = [Check(REGULAR, ())], list[Assumption]()
    what = KNOWN
    try:
        check_form(folder)
        what = LISTED
        checks.append(Check(LISTED, _found(lambda: manifest_faults(folder))))
        what = REMADE
        subject = _opened(folder, progress, typical=typical)
        assumptions += _assumptions(subject)
        checks += _checks(subject, progress)
    except UNUSABLE as error:
        checks.append(Check(what, (reason(error),)))
    manifest = folder / MANIFEST
    release_id = digest(manifest) if manifest.is_file() else None
    if wanted is not None:
        same = release_id is not None and release_id.startswith(wanted)
        fault = f"the release's id is {release_id}, not {wanted}"
        checks.insert(0, Check("the release is the one with the given id", () if same else (fault,)))
    return Verification(tuple(checks), release_id, tuple(assumptions))


def _checked_id(text: str) -> str:
    """The beginning of an id, long enough that no other release is taken for this one by chance."""
    wanted = text.strip().lower()
    if not FEWEST_DIGITS <= len(wanted) <= 64 or set(wanted) - set("0123456789abcdef"):
        raise SpecError(
            f"the id {short(text, 80)} is not enough of one, or none: give the first {FEWEST_DIGITS} or more digits "
            "(0–9, a–f) of the id that was printed at release"
        )
    return wanted


def _opened(folder: Path, progress: Progress, *, typical: bool) -> ReleaseChecks | SynthesisChecks:
    from tallytree.publish.microdata.files import is_microdata

    if is_microdata(folder):
        from tallytree.publish.microdata.synthesis_checks import SynthesisChecks

        return SynthesisChecks(folder, progress)
    from tallytree.publish.release.release_checks import ReleaseChecks

    return ReleaseChecks(folder, progress, typical=typical)


def _checks(subject: ReleaseChecks | SynthesisChecks, progress: Progress) -> Iterator[Check]:
    """The checks that follow from no other; then every file, by its first name; then what the files hold."""
    for what, check in subject.checks.items():
        progress(Stage("checking", about=what))
        yield Check(what, _found(check))
    with TemporaryDirectory(prefix="tallytree-verify-") as home:
        try:
            subject.write(Path(home, "remade"))
        except UNUSABLE as error:
            yield Check(REMADE, (reason(error),))
            faults: dict[str, tuple[str, ...]] = {"": ("",)}
        else:
            progress(Stage("comparing files"))
            faults = compare_folders(subject.folder, Path(home, "remade"), exact=subject.same_software)
    for name in dict.fromkeys(name.partition("/")[0] for name in faults if name):
        wrong = [fault for one, each in faults.items() if one.partition("/")[0] == name for fault in each]
        yield Check(f"{plain_name(name)} can be reproduced", tuple(wrong[: 2 * MOST_FAULTS]))
    same = not any(faults.values())
    yield Check(subject.content, _found(lambda: subject.count_faults(same=same)))


def _found(check: Callable[[], Iterable[str]]) -> tuple[str, ...]:
    """The faults that a check finds; a file that cannot even be read is one too."""
    faults: list[str] = []
    try:
        faults.extend(islice(check(), MOST_FAULTS_LISTED))
    except UNUSABLE as error:
        faults.append(reason(error))
    return tuple(faults)


def _assumptions(subject: ReleaseChecks | SynthesisChecks) -> Iterator[Assumption]:
    if is_report(subject.folder / REPORT, subject.folder):
        yield Assumption(REPORT, PAGE)
    yield from subject.assumptions()
    stated, ours = subject.statement["software"], software()
    for name in ours:
        if stated.get(name) != ours[name]:
            what = f"made with {name} {short(stated.get(name))} and checked with {ours[name]}: compared by content"
            yield Assumption(f"{PRIVACY}: software.{name}", what)
