"""The ledger: what each data set may spend and has spent, in one SQLite file that only its owner may read.

A data set is known by its name alone. Its neighbour relation, currency and total are fixed when it is opened; a cost is
reserved in a transaction before any noise is drawn, so that a crash afterwards leaves it spent and two processes that
race cannot both take the last of it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from tallytree.errors import BudgetError
from tallytree.privacy.budget import Budget, Currency, as_decimal
from tallytree.privacy.households.neighbours import HOUSEHOLDS, HouseholdNeighbours
from tallytree.privacy.neighbours import Neighbours

Relation = Neighbours | HouseholdNeighbours

_TABLES = """
CREATE TABLE IF NOT EXISTS data_set (
    name TEXT PRIMARY KEY, neighbours TEXT NOT NULL, currency TEXT NOT NULL, total TEXT NOT NULL,
    fingerprint TEXT, opened TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS spending (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL REFERENCES data_set (name), cost TEXT NOT NULL,
    budget TEXT NOT NULL, reserved TEXT NOT NULL, release_id TEXT
);
"""

GROUP_SIZES = "group_sizes"  # the kind of relation that `Neighbours` is; `HouseholdNeighbours` names its own


class ChangedInput(UserWarning):
    """The input file is not the one that was used under this name before."""


@dataclass(frozen=True)
class Spending:
    """One reserved cost, in the data set's currency; spent from the moment it is written."""

    number: int
    cost: Fraction
    budget: Budget
    reserved: str
    release_id: str | None


@dataclass(frozen=True)
class Account:
    """A data set's account."""

    name: str
    neighbours: Relation
    currency: Currency
    total: Fraction
    spendings: tuple[Spending, ...]

    @property
    def spent(self) -> Fraction:
        """What all reservations add up to."""
        return sum((spending.cost for spending in self.spendings), Fraction(0))

    @property
    def left(self) -> Fraction:
        """What may still be reserved."""
        return self.total - self.spent


@dataclass(frozen=True)
class Receipt:
    """What a reservation leaves in the data holder's hands; never part of a release."""

    ledger: str
    number: int

    def record(self, release_id: str) -> None:
        """Tell the ledger which release it paid for."""
        Ledger(self.ledger).record(self.number, release_id)


class Ledger:
    """The accounts in one file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def open(self, name: str, budget: Budget, neighbours: Relation) -> Account:
        """Give a data set its total budget, once and for all. The file is made if it is not there."""
        if not name or not isinstance(name, str):
            raise BudgetError("a data set needs a name in the ledger")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        with self._transaction() as database:
            for statement in _TABLES.split(";"):
                database.execute(statement)
            if database.execute("SELECT 1 FROM data_set WHERE name = ?", (name,)).fetchone():
                raise BudgetError(f"the ledger has a data set {name!r} already; its budget cannot be set again")
            database.execute(
                "INSERT INTO data_set VALUES (?, ?, ?, ?, NULL, ?)",
                (name, _text(neighbours), budget.currency, str(budget.amount), _now()),
            )
        return self.account(name)

    def reserve(
        self, name: str | None, budget: Budget, neighbours: Relation, fingerprint: str | None = None
    ) -> Receipt:
        """Take a cost out of a data set's account, or refuse; spent once this returns, whatever happens then."""
        if name is None:
            raise BudgetError("a release that uses a ledger needs the data set's name: read(…, name=…)")
        self._require_file()
        with self._transaction() as database:
            account = self._account(database, name)
            if account.neighbours != neighbours:
                raise BudgetError(
                    f"the ledger opened {name!r} for another neighbour relation, and costs under different relations "
                    f"do not add up.\n  opened with: {account.neighbours.describe()}\n"
                    f"  asked for:   {neighbours.describe()}"
                )
            cost = budget.charge_in(account.currency)
            if cost > account.left:
                raise BudgetError(
                    f"{name!r} has {_amount(account.left, account.currency)} left of "
                    f"{_amount(account.total, account.currency)}; this release would cost "
                    f"{_amount(cost, account.currency)}. Nothing was spent."
                )
            known = database.execute("SELECT fingerprint FROM data_set WHERE name = ?", (name,)).fetchone()[0]
            if fingerprint is not None and known is None:
                database.execute("UPDATE data_set SET fingerprint = ? WHERE name = ?", (fingerprint, name))
            entry = database.execute(
                "INSERT INTO spending (name, cost, budget, reserved) VALUES (?, ?, ?, ?)",
                (name, str(cost), json.dumps(budget.to_json()), _now()),
            )
            number = int(entry.lastrowid or 0)
        if fingerprint is not None and known not in (None, fingerprint):
            warnings.warn(
                f"the input file is not the one first used under the name {name!r}; the same budget is spent",
                ChangedInput,
                stacklevel=2,
            )
        return Receipt(str(self.path), number)

    def record(self, number: int, release_id: str) -> None:
        """Keep the id of the release that a reservation paid for."""
        with self._transaction() as database:
            database.execute("UPDATE spending SET release_id = ? WHERE number = ?", (release_id, number))

    def account(self, name: str) -> Account:
        """One data set's account."""
        self._require_file()
        with self._transaction() as database:
            return self._account(database, name)

    def accounts(self) -> list[Account]:
        """All accounts, by name."""
        self._require_file()
        with self._transaction() as database:
            names = [row[0] for row in database.execute("SELECT name FROM data_set ORDER BY name")]
            return [self._account(database, name) for name in names]

    def _require_file(self) -> None:
        if not self.path.exists():
            raise BudgetError(f"there is no ledger at {self.path}; open one with `tallytree ledger open`")

    def _account(self, database: sqlite3.Connection, name: str) -> Account:
        row = database.execute("SELECT neighbours, currency, total FROM data_set WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise BudgetError(
                f"the ledger has no data set {name!r}; give it a total budget first with `tallytree ledger open`"
            )
        spendings = database.execute(
            "SELECT number, cost, budget, reserved, release_id FROM spending WHERE name = ? ORDER BY number", (name,)
        )
        return Account(
            name=name,
            neighbours=_relation(row[0]),
            currency=row[1],
            total=Fraction(row[2]),
            spendings=tuple(
                Spending(number, Fraction(cost), Budget.from_json(json.loads(budget)), reserved, release_id)
                for number, cost, budget, reserved, release_id in spendings
            ),
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One exclusive transaction: committed at the end, undone on an error."""
        if stat.S_IMODE(self.path.stat().st_mode) != 0o600:
            self.path.chmod(0o600)
        try:
            with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as database:
                database.execute("BEGIN IMMEDIATE")
                try:
                    yield database
                except BaseException:
                    database.execute("ROLLBACK")
                    raise
                database.execute("COMMIT")
        except sqlite3.Error as error:
            raise BudgetError(f"the ledger {self.path} cannot be used: {error}") from None


def _text(neighbours: Relation) -> str:
    return json.dumps({"kind": GROUP_SIZES, **neighbours.to_json()}, sort_keys=True)


def _relation(text: str) -> Relation:
    """What `_text` wrote. Before there were two kinds of relation none was named: those are of group sizes."""
    values = json.loads(text)
    kind = values.pop("kind", GROUP_SIZES)
    if kind not in (GROUP_SIZES, HOUSEHOLDS):
        raise BudgetError(f"the ledger holds a neighbour relation of kind {kind!r}, which this version does not know")
    return Neighbours.from_json(values) if kind == GROUP_SIZES else HouseholdNeighbours.from_json(values)


def _amount(value: Fraction, currency: Currency) -> str:
    return f"{'ε' if currency == 'epsilon' else 'ρ'} = {as_decimal(value)}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
