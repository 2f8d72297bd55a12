"""The ledger's file: entries that are added and never changed, each with the digest of the one before it.

An entry is a number, a kind and a body (canonical JSON). Its digest is SHA-256 over these and the previous digest, so
that an entry which was edited, moved or left out does not fit the next one. A chain alone cannot notice a lost end. For
that an *anchor* stands beside the file (`<ledger>.anchor`): number and digest of the last entry, written after each
commit. The chain may be ahead of its anchor (the program was killed between the two writes) but has to hold the
anchor's entry. The whole chain and the anchor are checked before anything of it is used.

Digests are not signatures: anyone who may write both files can make a new chain, or put older copies of both back. They
notice damage, mistakes and half of a restored backup.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import shutil
import sqlite3
import stat
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallytree.core.disk import sync
from tallytree.core.errors import BudgetError

Values = dict[str, Any]

START = "0" * 64  # the digest before the first entry
WAIT = 60  # seconds for another process to be done

_TABLES = (
    "CREATE TABLE entry (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL, previous TEXT NOT NULL, "
    "digest TEXT NOT NULL)",
    "CREATE TRIGGER no_change BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END",
    "CREATE TRIGGER no_removal BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END",
)


class ReadableLedger(UserWarning):
    """Users other than the owner have access to the ledger."""


class AnchorBehind(UserWarning):
    """The ledger was written, but its anchor could not be written."""


@dataclass(frozen=True)
class Entry:
    """One entry; `digest` fixes it and all before it."""

    number: int
    kind: str
    body: Values
    digest: str


class Chain:
    """The entries in one file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(path))
        self.anchor_path = self.path.with_name(f"{self.path.name}.anchor")

    def entries(self, *, anchored: bool = True) -> tuple[Entry, ...]:
        """Return all entries, checked. Nothing on disk is changed: neither content nor permissions nor times."""
        self._require_ledger()
        with self._clear_errors():
            try:
                return self._read(f"{self.path.as_uri()}?mode=ro", anchored)
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_READONLY_ROLLBACK:
                    raise
            # A write was cut off, and undoing it would change the file: it is undone in a private copy.
            with tempfile.TemporaryDirectory() as folder:
                for ending in ("", "-journal"):
                    with contextlib.suppress(FileNotFoundError):
                        shutil.copyfile(f"{self.path}{ending}", Path(folder, f"ledger{ending}"))
                return self._read(f"{Path(folder, 'ledger').as_uri()}?mode=rw", anchored)

    @contextmanager
    def writing(self, *, make: bool = False) -> Iterator[Writing]:
        """Check the chain, let entries be added, and commit them all at the end; on an error none of them.

        One process at a time. The entries are on disk when this returns, and the anchor then follows.
        """
        if make:
            self._make()
        self._require_ledger()
        if os.name == "posix" and (mode := stat.S_IMODE(self.path.stat().st_mode)) & 0o077:
            warnings.warn(
                f"the ledger {self.path} can be used by others than its owner (mode {mode:o}). It is confidential: "
                f"unless they are meant to, run chmod 600 {self.path}",
                ReadableLedger,
                stacklevel=4,
            )
        with self._clear_errors(), closing(self._connect(f"{self.path.as_uri()}?mode=rw")) as database:
            database.execute("PRAGMA synchronous = EXTRA")
            database.execute("BEGIN IMMEDIATE")
            try:
                writing = self._opened(database)
                yield writing
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise
            self._commit(database, writing)
            self._follow(database)

    def _commit(self, database: sqlite3.Connection, writing: Writing) -> None:
        """Commit, or fail and leave the file as it was. Where the system reports an error after the fact, look again.

        The commit counts from the moment at which its journal is removed, and an error may be that of a later step.
        """
        try:
            database.execute("COMMIT")
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):
                database.execute("ROLLBACK")
            try:
                found = self._entries(database)
            except (sqlite3.Error, OSError, BudgetError):
                raise BudgetError(
                    f"the ledger {self.path} could not be written, and cannot be read now: whether this was spent is "
                    f"not known. Look with `tallytree ledger show {self.path}`."
                ) from None
            if not writing.entries or found[-1:] != writing.entries[-1:]:
                raise

    def accept(self, digest: str) -> Entry:
        """Make a missing anchor, for a chain whose last entry has this digest (or its beginning)."""
        if os.path.exists(self.anchor_path):
            raise BudgetError(f"{self.anchor_path} is there already; nothing was changed")
        entries = self.entries(anchored=False)
        if not entries or len(digest) < 8 or not entries[-1].digest.startswith(digest):
            raise BudgetError(f"{digest!r} is not how the digest of the last entry begins; nothing was changed")
        self._write_anchor(entries[-1].number, entries[-1].digest)
        return entries[-1]

    # ---------------------------------------------------------------- the file

    def _make(self) -> None:
        """Make an empty file for its owner alone, with an anchor that says so. An existing file stays as it is."""
        if os.path.exists(self.path):
            return
        if self._anchor() not in (None, (0, START)):
            raise BudgetError(
                f"there is no ledger at {self.path}, and its anchor {self.anchor_path} says that there was one: "
                "restore it. Nothing was changed."
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._write_anchor(0, START)
            with contextlib.suppress(FileExistsError):  # made by another process, just now
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            raise BudgetError(f"the ledger {self.path} cannot be made: {error.strerror}") from None

    def _require_ledger(self) -> None:
        """Refuse a file that is not a ledger before SQLite opens it. An empty file is one while it is being made."""
        try:
            start = None
            if stat.S_ISREG(self.path.stat().st_mode):
                with self.path.open("rb") as file:
                    start = file.read(100)
        except FileNotFoundError:
            raise BudgetError(f"there is no ledger at {self.path}; open one with `tallytree ledger open`") from None
        except OSError as error:
            raise BudgetError(f"the ledger {self.path} cannot be read: {error.strerror}") from None
        if start == b"" and self._anchor() == (0, START):
            return
        if start is None or not start.startswith(b"SQLite format 3\0"):
            raise BudgetError(f"{self.path} is no ledger; nothing was changed")
        if start[18:20] != b"\1\1":
            raise BudgetError(self._damaged("its header is not one that tallytree writes"))

    def _connect(self, uri: str) -> sqlite3.Connection:
        database = sqlite3.connect(uri, uri=True, timeout=WAIT, isolation_level=None)
        database.text_factory = bytes  # damaged text is then told apart below, and not by SQLite
        return database

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise BudgetError(
                    f"the ledger {self.path} was in use by another program for {WAIT} seconds; nothing was changed. "
                    "Try again."
                ) from None
            raise BudgetError(f"the ledger {self.path} cannot be used: {error}. Nothing was changed.") from None
        except OSError as error:
            why = error.strerror
            raise BudgetError(f"the ledger {self.path} cannot be used: {why}. Nothing was changed.") from None
        except (sqlite3.Error, ValueError, MemoryError, OverflowError, RecursionError) as error:
            raise BudgetError(self._damaged(str(error))) from None

    def _damaged(self, what: str) -> str:
        return (
            f"the ledger {self.path} is damaged or was changed by something else than tallytree: {what}. Nothing was "
            "changed. Restore the newest copy of it, with its anchor."
        )

    # ---------------------------------------------------------------- the chain

    def _read(self, uri: str, anchored: bool) -> tuple[Entry, ...]:
        with closing(self._connect(uri)) as database:
            database.execute("BEGIN")
            anchor = self._anchor() if anchored else None  # first: the chain may grow meanwhile, the anchor follows it
            entries = self._entries(database)
            if anchored:
                self._check_anchor(entries, anchor)
            return entries

    def _opened(self, database: sqlite3.Connection) -> Writing:
        """Return a chain to add to: checked, or made in an empty file."""
        anchor, entries = self._anchor(), self._entries(database)
        self._check_anchor(entries, anchor)
        if not _tables(database):
            for statement in _TABLES:
                database.execute(statement)
        return Writing(database, entries)

    def _entries(self, database: sqlite3.Connection) -> tuple[Entry, ...]:
        """Return the entries, each checked with the one before it; none while the file is being made."""
        tables = _tables(database)
        if not tables and self.path.stat().st_size == 0:
            return ()
        if tables != {"entry"}:
            raise BudgetError(f"{self.path} is a database, and no ledger or a damaged one; nothing was changed")
        found: list[Entry] = []
        previous = START
        rows = database.execute("SELECT number, kind, body, previous, digest FROM entry ORDER BY number")
        for expected, (number, *texts) in enumerate(rows, start=1):
            try:
                kind, body, before, digest = (text.decode() for text in texts)
                fits = number == expected and before == previous and digest == _digest(number, kind, body, previous)
                entry = Entry(number, kind, json.loads(body), digest) if fits else None
            except (AttributeError, ValueError):
                entry = None
            if entry is None or not isinstance(entry.body, dict):
                raise BudgetError(self._damaged(f"entry {expected} does not follow from those before it"))
            found.append(entry)
            previous = entry.digest
        return tuple(found)

    # ---------------------------------------------------------------- the anchor

    def _anchor(self) -> tuple[int, str] | None:
        try:
            values = json.loads(self.anchor_path.read_bytes())
            return int(values["number"]), str(values["digest"])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BudgetError(f"the anchor {self.anchor_path} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, LookupError, RecursionError):
            raise BudgetError(
                f"the anchor {self.anchor_path} is damaged. Nothing was changed. Restore it, or remove it and see "
                f"`tallytree ledger anchor {self.path}`."
            ) from None

    def _check_anchor(self, entries: Sequence[Entry], anchor: tuple[int, str] | None) -> None:
        if anchor is None:
            if entries:
                raise BudgetError(
                    f"the ledger {self.path} has no anchor beside it ({self.anchor_path.name}), which would tell "
                    "whether entries are missing at its end. Nothing was changed. Restore the anchor; or compare the "
                    f"last entries with what you know was released, as `tallytree ledger anchor {self.path}` shows."
                )
            return
        number, digest = anchor
        if number > len(entries):
            raise BudgetError(
                f"the ledger {self.path} is older than its anchor: it has {len(entries)} entries, and {number} were "
                "written. It was cut off, or an older copy was put back. Nothing was changed. Restore the newest copy: "
                "what the missing entries reserved is spent."
            )
        if number < 0 or digest != (entries[number - 1].digest if number else START):
            raise BudgetError(
                f"the ledger {self.path} and its anchor contradict each other at entry {number}: one of them belongs "
                "to another ledger, or was changed. Nothing was changed. Restore the newest copies of both."
            )

    def _follow(self, database: sqlite3.Connection) -> None:
        """Write the chain's current end to the anchor. What was committed stays so if that fails."""
        try:
            database.execute("BEGIN IMMEDIATE")  # so that no other process writes an anchor that goes further
            number, digest = database.execute("SELECT number, digest FROM entry ORDER BY number DESC").fetchone()
            self._write_anchor(number, digest.decode())
            for left in self.path.parent.glob(f"{glob.escape(self.anchor_path.name)}.*[0-9]"):
                left.unlink(missing_ok=True)  # which a process that was killed did not put in place
            database.execute("ROLLBACK")
        except (OSError, sqlite3.Error) as error:
            warnings.warn(
                f"the ledger {self.path} was written, but not its anchor ({error}); the next write to it does both",
                AnchorBehind,
                stacklevel=5,
            )

    def _write_anchor(self, number: int, digest: str) -> None:
        """Put a new anchor in the place of the old one, whole, for its owner alone."""
        fresh = self.anchor_path.with_name(f"{self.anchor_path.name}.{os.getpid()}")
        try:
            with open(os.open(fresh, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
                json.dump({"number": number, "digest": digest}, file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.anchor_path)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        sync(self.anchor_path.parent)


class Writing:
    """A chain under one exclusive transaction: the entries there are, and `append`."""

    def __init__(self, database: sqlite3.Connection, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self._database = database

    def append(self, kind: str, body: Values) -> Entry:
        """Add an entry; it counts once the transaction is committed."""
        number, previous = len(self.entries) + 1, self.entries[-1].digest if self.entries else START
        text = json.dumps(body, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        entry = Entry(number, kind, json.loads(text), _digest(number, kind, text, previous))
        row = (number, kind, text, previous, entry.digest)
        self._database.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?)", row)
        self.entries = (*self.entries, entry)
        return entry


def _digest(number: int, kind: str, body: str, previous: str) -> str:
    return hashlib.sha256(json.dumps([number, kind, body, previous]).encode()).hexdigest()


def _tables(database: sqlite3.Connection) -> set[str]:
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {bytes(name).decode(errors="replace") for (name,) in rows}
