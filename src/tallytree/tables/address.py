"""`Source`: a table of an engine, addressed by a URL without a secret.

Passwords come from the place where the engine's own programs look for them. A URL with a password is refused in words
that do not repeat it, before it can reach a message, a record of the run or a connection.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tallytree.core.arguments import TEXT, expect, optional
from tallytree.core.errors import SpecError
from tallytree.core.names import may_hold_secret
from tallytree.core.office_files import ENDINGS
from tallytree.tables.guard import from_outside

POSTGRES = ("postgresql", "postgres")
SPARK = {"spark": "spark://HOST:PORT", "sc": "sc://HOST[:PORT][/;use_ssl=true]"}  # a cluster, and Spark Connect
SCHEMES = (*POSTGRES, *SPARK, "duckdb")
EXPECTED = f"postgresql://[USER@]HOST[:PORT]/DATABASE, {SPARK['spark']}, {SPARK['sc']} or duckdb://PATH"

# The settings that a PostgreSQL URL may have after its question mark: those of libpq that are not secret.
SETTINGS = (
    *("host", "hostaddr", "port", "dbname", "user", "service", "passfile", "options", "connect_timeout"),
    *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "gssencmode", "krbsrvname", "channel_binding"),
    *("require_auth", "target_session_attrs", "keepalives", "application_name"),
)
NO_MOTHERDUCK = (
    "It is not opened here: give a file that was exported from it (COPY people TO 'people.parquet'), or, in Python, a "
    "table of an Ibis connection of yours"
)
KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
    ".duckdb": "duckdb",
    ".db": "duckdb",
    **dict.fromkeys(ENDINGS, "office"),
}
TOKEN = "A token for Spark Connect is taken from the variable SPARK_CONNECT_AUTHENTICATE_TOKEN"
WHERE = (
    "Put the password where PostgreSQL's programs look for it: in the variable PGPASSWORD, in the file ~/.pgpass, or "
    "in a service file that the URL names with ?service=NAME"
)


@dataclass(frozen=True)
class Source:
    """Name a table of an engine, for `read`.

    Parameters
    ----------
    url : str
        The address of PostgreSQL, of a Spark cluster (`spark://HOST:PORT`), of Spark Connect (`sc://HOST:PORT`) or of a
        DuckDB file (`duckdb://PATH`: the path is behind the two slashes, and is absolute if it begins with a third).
    table : str, optional
        The name of the table, with or without its schema. On Spark it may also be files, named as Spark's SQL does.

    Examples
    --------
    >>> Source("postgresql://steward@census.example/census", "people").scheme
    'postgresql'
    """

    url: str
    table: str | None = None

    def __post_init__(self) -> None:
        expect(self.url, TEXT, "url")
        expect(self.table, optional(TEXT), "table")
        _check(self.url)
        if self.table is None and self.path is None:
            raise SpecError("a source on an engine needs a table: Source(url, 'people')")

    @property
    def scheme(self) -> str:
        """Return the kind of engine that the URL names."""
        return self.url.partition("://")[0]

    @property
    def path(self) -> str | None:
        """Return the path of a DuckDB file; None for other engines."""
        return self.url.partition("://")[2] if self.scheme == "duckdb" else None

    @property
    def name(self) -> str | None:
        """Return the table's name without its schema, or a file's name without folder and ending."""
        if self.table is None:
            return None
        kind, files, path = self.table.partition(".`")
        if files and kind.isidentifier() and "/" in path:
            parts = [part for part in path.rstrip("`").split("/") if part and "*" not in part]
            return parts[-1].removesuffix(f".{kind}") if parts else None
        return self.table.rpartition(".")[2].strip('"`')


# Wrapped, so that no frame of a traceback holds a refused URL.
Source.__init__ = from_outside("Creating a source")(Source.__init__)  # type: ignore[method-assign]


def is_motherduck(text: str) -> bool:
    """Return whether the text is a URL of MotherDuck, which may contain a token."""
    return text.strip().lower().startswith(("md:", "motherduck:"))


def refuse_url(text: Any, option: str) -> None:
    """Refuse a URL where a path is expected. The message does not repeat it, because it may contain a password."""
    if isinstance(text, str) and is_motherduck(text):
        raise SpecError(f"{option} is a URL of MotherDuck. {NO_MOTHERDUCK}")
    if isinstance(text, str) and "://" in text:
        raise SpecError(
            f"{option} is a URL, where a path is expected; a table of an engine is Source(url, table) in Python, and "
            '{ url = "…", table = "…" } in a spec'
        )
    if may_hold_secret(text):
        raise SpecError(f"{option} is a path that may contain a secret, so it is not repeated here. {WHERE}")


def _check(url: str) -> None:
    scheme = url.partition("://")[0]
    if is_motherduck(url):
        raise SpecError(f"the source's URL is one of MotherDuck. {NO_MOTHERDUCK}")
    if "://" not in url or scheme not in SCHEMES:
        raise SpecError(f"the source's URL is of an unknown kind; expected {EXPECTED}")
    if scheme == "duckdb":
        if not url.partition("://")[2]:
            raise SpecError("the source's URL has no path; expected duckdb://PATH")
        return
    try:
        parts = urlsplit(url)
        asked = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        user, at, _ = parts.netloc.rpartition("@")
        _ = parts.port
    except ValueError:
        raise SpecError(
            "the source's URL cannot be read (it is not repeated here, because it may contain a secret); expected "
            f"{EXPECTED}"
        ) from None
    if scheme in SPARK:
        path, _, settings = parts.path.partition(";") if scheme == "sc" else (parts.path, "", "")
        known = all(setting in ("use_ssl=true", "use_ssl=false") for setting in settings.split(";") if setting)
        if at or asked or parts.fragment or path not in ("", "/") or not known:
            also = f". {TOKEN}" if scheme == "sc" else ""
            raise SpecError(f"the source's URL has more than a host and a port; expected {SPARK[scheme]}{also}")
        if not parts.hostname or (parts.port is None and scheme == "spark"):
            raise SpecError(f"the source's URL lacks its host or port; expected {SPARK[scheme]}")
        return
    if ":" in unquote(user) or "@" in unquote(user) or any("password" in name for name, _ in asked):
        raise SpecError(f"the source's URL has a password in it, which is not repeated here. {WHERE}")
    if parts.fragment or not {name for name, _ in asked} <= set(SETTINGS):
        raise SpecError(
            f"the source's URL has unknown settings; expected {EXPECTED}, and behind a question mark "
            f"some of {', '.join(SETTINGS)}. {WHERE}"
        )


# -------------------------------------------------------------------- files


def paths_of(source: Any, option: str) -> list[str] | None:
    """Return the files of a path, a folder of Parquet files, a glob or a list of paths; None for any other source."""
    if isinstance(source, Source) and source.path is not None:
        source = source.path
    if isinstance(source, str | PathLike):
        source = [source]
    elif not isinstance(source, Sequence) or not all(isinstance(path, str | PathLike) for path in source):
        return None
    elif not source:
        raise SpecError(f"{option} is an empty list; expected at least one path")
    paths: list[str] = []
    for path in map(fspath, source):
        refuse_url(path, option)
        pattern = os.path.join(glob.escape(path), "**", "*.parquet") if Path(path).is_dir() else path
        found = [path] if Path(path).is_file() else sorted(glob.glob(pattern, recursive=True))
        if not found:
            raise SpecError(f"{option}: no file matches {pattern}")
        if directories := [each for each in found if not Path(each).is_file()]:
            raise SpecError(f"{option}: {directories[0]} is not a file")
        paths.extend(found)
    return paths


def files_of(source: Any, groups: Any = None) -> tuple[str, ...]:
    """Return the files of the private tables; none if one of them is not in files."""
    given = {"source": source} if groups is None else {"source": source, "groups": groups}
    found = [paths_of(each, option) for option, each in given.items()]
    return tuple(path for paths in found for path in paths or ()) if None not in found else ()


def stem(path: str) -> str:
    """Return a file's name without the ending that names its kind."""
    name = Path(path).name
    endings = [ending for ending in KINDS if name.lower().endswith(ending)]
    return name[: -len(max(endings, key=len))] if endings else name


def kind_of(paths: Sequence[str], option: str) -> str:
    """Return the kind of the files by their endings: parquet, csv, duckdb or office."""
    kinds = set()
    for path in paths:
        endings = [ending for ending in KINDS if path.lower().endswith(ending)]
        if not endings:
            raise SpecError(f"{option}: {path} is of an unknown kind; expected one of {', '.join(KINDS)}")
        kinds.add(KINDS[endings[0]])
    if len(kinds) > 1:
        raise SpecError(f"{option}: files of several kinds ({', '.join(sorted(kinds))}); expected one kind")
    return kinds.pop()
