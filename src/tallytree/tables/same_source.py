"""Microdata are not their own public list: a public input that is the private one, by whatever name, is noticed.

What is compared is where the rows come from, never a row: objects, files by device and number (so links count), tables
of a DuckDB file, and the tables that an Ibis expression is made of. A copy cannot be noticed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tallytree.core.errors import SpecError
from tallytree.tables.address import Source
from tallytree.tables.engines import is_ibis, tables_of
from tallytree.tables.source import OWN_LIST, kind_of, named, paths_of


def refuse_own_list(source: Any, table: str | None, groups: Any, groups_table: str | None) -> None:
    """Refuse a groups table that is the microdata."""
    if _same(source, table, groups, groups_table):
        raise SpecError(OWN_LIST)


def refuse_private_file(public: Any, private: Any, what: str) -> None:
    """Refuse a public input, such as a prior, that is one of the files of the microdata, or their table."""
    if isinstance(public, Source):
        if _same(private, None, public, None):
            raise SpecError(f"{what} is the table of the microdata; expected something public, made without them")
        return
    if files := _shared_files(public, private):
        raise SpecError(
            f"{what} is a file of the microdata ({files[0]}); expected something public, made without them: what "
            "is taken from it is published or decides what is, and no budget pays for that"
        )


def _same(source: Any, table: str | None, groups: Any, groups_table: str | None) -> bool:
    if source is groups and table == groups_table:
        return True
    if isinstance(source, Source) and source == groups:
        return True  # under another URL, whoever opens it notices, if its engine tells tables apart
    (source, table), (groups, groups_table) = named(source, table, "table"), named(groups, groups_table, "groups_table")
    if is_ibis(source) and is_ibis(groups):
        # All tables of the microdata are in the list, too. (Microdata that were joined with a public list are not.)
        return source.equals(groups) or (bool(tables_of(source)) and tables_of(source) <= tables_of(groups))
    shared = _shared_files(groups, source)
    if not shared or kind_of(shared, "groups") != "duckdb":
        return bool(shared)
    # Two tables of one DuckDB file are two sources; a name that is left out stands for the only table.
    return table == groups_table or None in (table, groups_table)


def _shared_files(one: Any, other: Any) -> list[str]:
    """The files of `one` that are also among those of `other`, by whatever path."""
    private = {_identity(path) for path in _files(other)}
    return [path for path in _files(one) if _identity(path) in private]


def _files(source: Any) -> list[str]:
    """The files of a source that are there; whoever opens it will say what is missing."""
    try:
        return paths_of(source, "source") or []
    except SpecError:
        return []


def _identity(path: str) -> tuple[int, int]:
    """What os.path.samefile compares."""
    found = Path(path).stat()
    return found.st_dev, found.st_ino
