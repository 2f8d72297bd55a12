"""`verify`: reproduce a folder from its measurements and declared settings, and compare every file.

Files are compared by their bytes or by their content. Parquet files are compared with everything that a reader may use
instead of the rows: types, descriptions, the statistics of each row group, and whether the file holds anything besides
rows and footer, such as an index.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from math import isclose
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tallytree.core.arguments import FLAG, PATH, TEXT, either, expect, expecting, instance, optional
from tallytree.core.display import page, table
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.names import quoted
from tallytree.core.numbers import short
from tallytree.core.progress import Progress, Stage, silent
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
    listed_files,
    manifest_faults,
    plain_name,
    reason,
)
from tallytree.publish.run_folder import write_published
from tallytree.publish.statement import Assumption, software
from tallytree.publish.table import differing_cells
from tallytree.publish.untrusted import MOST_ROWS, ParquetRows, check_regular, read_json, strange_files

if TYPE_CHECKING:
    from tallytree.publish.microdata.synthesis_checks import SynthesisChecks
    from tallytree.publish.release.release_checks import ReleaseChecks
    from tallytree.publish.release.value import Release

FEWEST_DIGITS = 8  # of an id
REGULAR = "all files are regular files of a plausible size"
LISTED = "the files are those that the manifest lists, unchanged"
KNOWN = "this version of tallytree can verify the files"
REMADE = "all files can be reproduced from the measurements and the declared settings"
PAGE = "the report: it is for people and not part of the release; `tallytree report` writes it again"

LAST_DIGIT = 1e-9  # largest relative difference of floats from another platform or version
LAST_OF_SIX = 2e-5  # the same for floats that a CSV file has with six digits
LONGEST_VERSION = 100
MAGIC, LENGTHS = 4, 8  # bytes at the beginning of a Parquet file, and after its footer
STATISTICS = (
    ("min", "has_min_max"),
    ("max", "has_min_max"),
    ("null_count", "has_null_count"),
    ("distinct_count", "has_distinct_count"),
)
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
    assumptions: tuple[Assumption, ...] = ()  # statements that the files alone cannot prove

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
            return "Not verified: another version of tallytree wrote it."
        found = len(self.faults)
        return f"{found} fault{'' if found == 1 else 's'} found: do not use this release."

    @property
    def faults(self) -> tuple[str, ...]:
        """All faults that were found."""
        return tuple(fault for check in self.checks for fault in check.faults)

    def __repr__(self) -> str:
        broken = sum(bool(check.faults) for check in self.checks)
        state = f"{broken} of {len(self.checks)} checks failed" if broken else f"all {len(self.checks)} checks passed"
        first = "".join(f", first: {quoted(fault)}" for fault in self.faults[:1])
        return f"Verification({state}{first}, {'no id' if self.release_id is None else f'id {self.release_id[:16]}'})"

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


@expecting(id=optional(TEXT), typical=FLAG)
def verify(
    directory: str | PathLike[str] | Release,
    *,
    id: str | None = None,  # noqa: A002
    typical: bool = True,
    progress: Progress = silent,
) -> Verification:
    """Verify the directory of a release or of synthetic households.

    A release is made again from its measurements and declared settings, and every file is compared: by its bytes, if it
    was made by the same versions on the same platform, and by its content otherwise. Of synthetic households,
    everything is made again except the fit of the model.

    Parameters
    ----------
    directory : path or Release
        The directory, or a release in memory. A release is written to a temporary directory first, which is verified.
    id : str, optional
        The id printed at release, or its first 8 or more digits. With it, `verify` also checks that this is that very
        release.
    typical : bool, default True
        Compute typical intervals again, which takes 25 estimates. With False they are listed as an assumption.
    progress : callable, optional
        A function that is called with each step of the work.

    Returns
    -------
    Verification
        The outcome: `ok`, the `checks` with their faults, and the `assumptions` that the files alone cannot prove.

    Raises
    ------
    ReleaseError
        If there is no such directory.
    SpecError
        If `id` is not an id.

    Examples
    --------
    >>> import pyarrow as pa
    >>> rows = pa.table({"home": [1, 1, 2, 3], "county": ["X", "X", "X", "Y"]})
    >>> counties = tt.Hierarchy.from_levels({"county": ["X", "Y"]}, ["county"])
    >>> sizes = tt.read(rows, group="home", region="county", hierarchy=counties, max_size=3)
    >>> tt.verify(tt.release(sizes, budget={"epsilon": 1}, unit="one_entity")).ok
    True
    """
    if not PATH.holds(directory):
        from tallytree.publish.release.value import Release

        expect(directory, either(PATH, instance(Release)), "directory")
        assert isinstance(directory, Release)
        with TemporaryDirectory(prefix="tallytree-verify-") as home:
            write_published(replace(directory, folder=None), Path(home, "release"), progress=progress)
            return verify(Path(home, "release"), id=id, typical=typical, progress=progress)
    folder = Path(directory)  # type: ignore[arg-type]
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
    """Return the beginning of an id, long enough that no other release matches it by chance."""
    wanted = text.strip().lower()
    if not FEWEST_DIGITS <= len(wanted) <= 64 or set(wanted) - set("0123456789abcdef"):
        raise SpecError(
            f"the id {short(text, 80)} is not valid: give the first {FEWEST_DIGITS} or more digits (0–9, a–f) of the "
            "id that was printed at release"
        )
    return wanted


def _opened(folder: Path, progress: Progress, *, typical: bool) -> ReleaseChecks | SynthesisChecks:
    from tallytree.publish.microdata.synthesis import is_microdata

    if is_microdata(folder):
        from tallytree.publish.microdata.synthesis_checks import SynthesisChecks

        return SynthesisChecks(folder, progress)
    from tallytree.publish.release.release_checks import ReleaseChecks

    return ReleaseChecks(folder, progress, typical=typical)


def _checks(subject: ReleaseChecks | SynthesisChecks, progress: Progress) -> Iterator[Check]:
    """Yield the checks that reproduce nothing, then one per file, then those of the contents."""
    for what, check in subject.checks.items():
        progress(Stage("checking", about=what))
        yield Check(what, _found(check))
    with TemporaryDirectory(prefix="tallytree-verify-") as home:
        try:
            write_published(subject.remade, Path(home, "remade"), progress=subject.progress)
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
    """Return the faults that a check finds; a file that cannot be read is a fault too."""
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


# -------------------------------------------------------------------- comparing


def compare_folders(stated: Path, made: Path, *, exact: bool) -> dict[str, tuple[str, ...]]:
    """Return the faults of each file by name; with `exact` the bytes must be the same."""
    files, expected = listed_files(stated), listed_files(made)
    found: dict[str, tuple[str, ...]] = {}
    for name in [*expected, *(name for name in files if name not in expected)]:
        if name not in files:
            faults: tuple[str, ...] = (f"{name} is missing",)
        elif name not in expected:
            faults = (f"{plain_name(name)} does not belong here: tallytree does not write it",)
        elif files[name] == expected[name]:
            faults = ()
        else:
            faults = tuple(islice(_differences(stated / name, made / name), 2 * MOST_FAULTS))
            if not faults and exact:
                faults = ("its content is right, but its bytes differ from those that the same software writes",)
            faults = tuple(f"{name}: {fault}" for fault in faults)
        found[name] = faults
    return found


def _differences(stated: Path, made: Path) -> Iterator[str]:
    compare = {".json": _json_differences, ".csv": _csv_differences, ".parquet": _parquet_differences}[made.suffix]
    try:
        yield from compare(stated, made)
    except UNUSABLE as error:
        yield reason(error)


def _alike(one: Any, other: Any) -> bool:
    """Return whether two plain values are equal, apart from the last digits of floats."""
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=LAST_DIGIT, abs_tol=LAST_DIGIT)
    return type(one) is type(other) and one == other


# -------------------------------------------------------------------- JSON and CSV


def _json_differences(stated: Path, made: Path) -> Iterator[str]:
    found = read_json(stated)
    for place, fault in differences(found, read_json(made)):
        if not (place.startswith("software.") and _is_version(found["software"].get(place.partition(".")[2]))):
            yield f"{place} {fault}"


def _is_version(value: Any) -> bool:
    """Return whether a text can be a version; which version it is, is an assumption."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_VERSION


def differences(stated: Any, expected: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the places where a JSON value differs from the expected one, and how."""
    if isinstance(stated, dict) and isinstance(expected, dict):
        for key in [*expected, *(key for key in stated if key not in expected)]:
            inner = f"{place}.{key}" if place else str(key)
            if key not in stated:
                yield inner, "is missing"
            elif key not in expected:
                yield short(inner), "is not a field that tallytree writes"
            else:
                yield from differences(stated[key], expected[key], inner)
    elif isinstance(stated, list) and isinstance(expected, list) and len(stated) == len(expected):
        for number, (one, other) in enumerate(zip(stated, expected, strict=True)):
            yield from differences(one, other, f"{place}.{number}")
    elif not _alike(stated, expected):
        yield place, f"is {short(stated, 200)}; what follows from the other files is {short(expected, 200)}"


def _csv_differences(stated: Path, made: Path) -> Iterator[str]:
    check_regular(stated)
    with stated.open(encoding="utf-8", newline="") as one, made.open(encoding="utf-8", newline="") as other:
        for number, (row, expected) in enumerate(zip_longest(csv.reader(one), csv.reader(other))):
            if row is None or expected is None:
                yield f"row {number} is {'missing' if row is None else 'added'}: {short(row or expected, 200)}"
                return
            if row != expected and (len(row) != len(expected) or not all(map(_alike_in_csv, row, expected))):
                yield f"row {number} is {short(row, 200)}; what follows from the other files is {short(expected, 200)}"


def _alike_in_csv(one: str, other: str) -> bool:
    try:
        return one == other or ("." in other and isclose(float(one), float(other), rel_tol=LAST_OF_SIX))
    except ValueError:
        return False


# -------------------------------------------------------------------- Parquet


def _parquet_differences(stated: Path, made: Path) -> Iterator[str]:
    with ParquetRows(made, most=MOST_ROWS) as right, ParquetRows(stated, most=2 * right.rows + 1000) as file:
        if not file.schema.equals(right.schema, check_metadata=True) or not file.columns.equals(right.columns):
            yield "its columns have other names, types or descriptions than tallytree writes"
        if not file.schema.equals(right.schema):
            return
        if file.rows != right.rows:
            yield f"it has {file.rows:,} rows; expected {right.rows:,}"
        else:
            yield from _row_differences(file, right)


def _row_differences(file: ParquetRows, right: ParquetRows) -> Iterator[str]:
    """Yield differences between rows in order, regardless of row groups, and between rows and the footer's
    statistics.
    """
    import pyarrow as pa

    groups, rest = iter(right.groups), right.schema.empty_table()
    length = MAGIC + LENGTHS + file.metadata.serialized_size
    for group in file.groups:
        rows = file.group(group)  # first: a damaged footer's column data make Arrow end the process
        while len(rest) < len(rows) and (more := next(groups, None)) is not None:
            rest = pa.concat_tables([rest, right.group(more)])
        yield from differing_cells(rows, rest.slice(0, len(rows)), _alike)
        yield from _footer_differences(file.metadata.row_group(group), rows)
        length += sum(_columns(file.metadata.row_group(group), "total_compressed_size"))
        rest = rest.slice(len(rows))
    if length != file.bytes:
        yield "it holds more than its rows and their description, such as an index or a filter"


def _footer_differences(group: Any, rows: Any) -> Iterator[str]:
    """Yield differences between the footer of a row group and the footer that these rows would get now."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if group.sorting_columns or any(_columns(group, "has_column_index")) or any(_columns(group, "has_offset_index")):
        yield "it states an order of its rows, or has an index"
    if not len(rows):
        return
    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer, row_group_size=max(1, len(rows)))
    right = pq.ParquetFile(pa.BufferReader(buffer.getvalue())).metadata.row_group(0)
    for number in range(group.num_columns):
        stated, expected = _statistics(group.column(number)), _statistics(right.column(number))
        if any(expected.get(name) != value for name, value in stated.items()):
            yield f"the statistics of column {group.column(number).path_in_schema} do not fit its rows"


def _statistics(column: Any) -> dict[str, Any]:
    """Return the statistics that a column of a row group has."""
    found = column.statistics
    return {} if found is None else {name: getattr(found, name) for name, there in STATISTICS if getattr(found, there)}


def _columns(group: Any, name: str) -> list[Any]:
    return [getattr(group.column(number), name) for number in range(group.num_columns)]
