"""The ledger: what each data set may spend and has spent, in one file that notices when it was changed.

A data set is known by its name. Its neighbour relation, currency and total are fixed when it is opened; a cost is
reserved in a transaction before any noise is drawn, so that a crash afterwards leaves it spent and two processes that
race cannot both take the last of it. A reservation is good for one set of noise: where noise is drawn in rounds, each
round is begun here before it is drawn, once (`Ledger.begin_round`).

`chain` keeps the file. Accounts follow from its entries alone (`books_of`): nothing is kept that could disagree with
them.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from tallytree.core.arguments import PATH, expect
from tallytree.core.errors import BudgetError, ReleaseError, SpecError
from tallytree.core.names import quoted
from tallytree.privacy.budget import Budget, Currency, as_decimal
from tallytree.privacy.chain import Chain, Entry, Values
from tallytree.privacy.neighbours import Relation
from tallytree.privacy.relations import (
    ABSENT,
    GROUP_SIZES,
    describe_relation,
    differing_columns,
    relation_from_json,
    relation_to_json,
    unknown_columns,
)


class ChangedInput(SpecError):
    """The input files are none of those that were charged under this name before; nothing was spent."""


class OtherMeasurements(BudgetError):
    """A reservation paid for other measurements."""


@dataclass(frozen=True)
class Expense:
    """What one run is to cost a data set's account, and what the data holder states of its files."""

    name: str | None
    budget: Budget
    neighbours: Relation
    fingerprint: str | None = None  # of the input files
    same_data: bool = False
    changed_files: bool = False


class Charge(NamedTuple):
    """Which ledger pays for a run, if one does, and what the data holder states of its files."""

    ledger: Ledger | None = None
    same_data: bool = False  # take files that another account was charged for
    changed_files: bool = False  # take other files than this account was charged for before

    def of(self, name: str | None, budget: Budget, neighbours: Relation, fingerprint: str | None = None) -> Expense:
        """Return what the ledger is asked for."""
        return Expense(name, budget, neighbours, fingerprint, self.same_data, self.changed_files)

    def held(self, name: str | None, budget: Budget) -> Budget:
        """Return the budget as the account is charged for it: the account decides an open choice of noise."""
        if self.ledger is None or name is None or budget.delta is None or budget.epsilon is None:
            return budget
        return budget.held_in(self.ledger.account(name).currency)


UNPAID = Charge()


@dataclass(frozen=True)
class Receipt:
    """What a reservation leaves in the data holder's hands; never part of a release."""

    ledger: str
    number: int
    same_data_as: tuple[str, ...] = ()  # other accounts that the same files were charged to

    def __post_init__(self) -> None:
        object.__setattr__(self, "same_data_as", tuple(self.same_data_as))

    def record(self, release_id: str) -> None:
        """Record in the ledger which release the reservation paid for."""
        Ledger(self.ledger).record(self.number, release_id)

    def commit(self, mark: str) -> None:
        """Commit the reservation to the digest of its measurements; the ledger then refuses others."""
        Ledger(self.ledger).commit(self.number, mark)


# -------------------------------------------------------------------- accounts


@dataclass(frozen=True)
class BegunRound:
    """A round that a reservation paid for: its cost in ρ, and the mark that tells which run began it."""

    cost: Fraction
    mark: str


@dataclass(frozen=True)
class Spending:
    """One reserved cost, in the data set's currency; spent from the moment it is written."""

    number: int
    cost: Fraction
    budget: Budget
    reserved: str
    release_id: str | None = None
    token: str | None = None  # whoever reserves with it again gets this one
    fingerprint: str | None = None  # of the input files
    rounds: tuple[BegunRound, ...] = ()


@dataclass(frozen=True)
class Link:
    """Accounts that concern the same people, and what they may spend together (see `Ledger.link`)."""

    names: tuple[str, ...]
    budget: Budget
    spent: Fraction  # by all of them, in the budget's currency

    @property
    def left(self) -> Fraction:
        """Return the amount that the accounts may still spend together."""
        return self.budget.amount - self.spent

    @property
    def left_in_words(self) -> str:
        """With its sign, rounded down."""
        return amount(self.left, self.budget.currency, up=False)


@dataclass(frozen=True)
class Account:
    """A data set's account."""

    name: str
    neighbours: Relation
    budget: Budget  # as it was opened
    spendings: tuple[Spending, ...] = ()
    links: tuple[Link, ...] = ()

    @property
    def currency(self) -> Currency:
        """Return the currency of the account: pure ε, or ρ."""
        return self.budget.currency

    @property
    def total(self) -> Fraction:
        """Return the total amount that may be spent."""
        return self.budget.amount

    @property
    def spent(self) -> Fraction:
        """Return the sum of all reservations."""
        return sum((spending.cost for spending in self.spendings), Fraction(0))

    @property
    def left(self) -> Fraction:
        """Return what may still be reserved, as far as this account alone goes."""
        return self.total - self.spent

    def __repr__(self) -> str:
        spent, left = amount(self.spent, self.currency), as_decimal(self.left, up=False)
        return f"Account({quoted(self.name)}, {spent} spent in {len(self.spendings)} reservations, {left} left)"

    def refuse_beyond(self, costs: Sequence[Budget], what: str = "this release") -> None:
        """Raise unless all these costs together fit into the rest of the budget, here and in every joint total."""
        cost = sum((each.charge_in(self.currency) for each in costs), Fraction(0))
        if cost > self.left:
            raise BudgetError(
                f"{self.name!r} has {amount(self.left, self.currency, up=False)} left of "
                f"{amount(self.total, self.currency, up=False)}; {what} would cost {amount(cost, self.currency)}. "
                "Nothing was changed."
            )
        for link in self.links:
            currency = link.budget.currency
            joint = sum((each.charge_in(currency) for each in costs), Fraction(0))
            if joint > link.left:
                raise BudgetError(
                    f"{' and '.join(map(repr, link.names))} may spend {amount(link.left, currency, up=False)} "
                    f"more together, of {amount(link.budget.amount, currency, up=False)}; {what} would cost "
                    f"{amount(joint, currency)}. Nothing was changed."
                )


@dataclass
class Books:
    """All accounts, by name, and the joint totals."""

    accounts: dict[str, Account] = field(default_factory=dict)
    joint: list[tuple[tuple[str, ...], Budget]] = field(default_factory=list)

    @property
    def next_number(self) -> int:
        """Return the number of the next reservation."""
        return 1 + max((each.number for account in self.accounts.values() for each in account.spendings), default=0)

    def links(self) -> list[Link]:
        """Return the joint totals, with what was spent of each."""
        return [Link(names, budget, self.joint_cost(names, budget.currency)) for names, budget in self.joint]

    def joint_cost(self, names: Iterable[str], currency: Currency) -> Fraction:
        """Return what accounts have spent together: each reservation in that currency, added up."""
        spendings = [spending for name in names for spending in self.accounts[name].spendings]
        return sum((spending.budget.charge_in(currency) for spending in spendings), Fraction(0))

    def account(self, name: str) -> Account:
        """Return one account, with the joint totals that it is part of."""
        if name not in self.accounts:
            raise BudgetError(
                f"the ledger has no data set {name!r}; give it a total budget first with `tallytree ledger open`"
            )
        return replace(self.accounts[name], links=tuple(link for link in self.links() if name in link.names))

    def same_data(self, name: str, fingerprint: str | None) -> list[str]:
        """Return the other accounts that these very files were charged to."""
        return [
            other.name
            for other in self.accounts.values()
            if other.name != name
            and fingerprint is not None
            and any(spending.fingerprint == fingerprint for spending in other.spendings)
        ]


def books_of(entries: Iterable[Entry]) -> Books:
    """Return the accounts that entries describe, in their order."""
    books = Books()
    try:
        for entry in entries:
            _take(books, entry.kind, entry.body)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        raise BudgetError(f"entry {entry.number} of the ledger cannot be understood; nothing was changed") from None
    return books


def _take(books: Books, kind: str, body: Values) -> None:
    if kind == "opened":
        budget = _budget(json.dumps(body["budget"]))
        relation = relation_from_json(body["neighbours"])
        books.accounts[body["name"]] = Account(body["name"], relation, budget)
    elif kind == "linked":
        books.joint.append((tuple(body["names"]), _budget(json.dumps(body["budget"]))))
    elif kind == "reserved":
        spending = Spending(
            number=body["receipt"],
            cost=Fraction(body["cost"]),
            budget=_budget(json.dumps(body["budget"])),
            reserved=body["time"],
            token=body["token"],
            fingerprint=body["fingerprint"],
        )
        account = books.accounts[body["name"]]
        books.accounts[account.name] = replace(account, spendings=(*account.spendings, spending))
    elif kind == "round":
        begun = BegunRound(Fraction(body["cost"]), body["mark"])
        _change(books, body["receipt"], lambda spending: replace(spending, rounds=(*spending.rounds, begun)))
    elif kind == "recorded":
        _change(books, body["receipt"], lambda spending: replace(spending, release_id=body["release_id"]))
    else:
        raise BudgetError(f"the ledger holds entries of kind {kind!r}, which this version does not know")


def _change(books: Books, number: int, change: Callable[[Spending], Spending]) -> None:
    account, spending = reservation(books, number)
    spendings = tuple(change(each) if each is spending else each for each in account.spendings)
    books.accounts[account.name] = replace(account, spendings=spendings)


def reservation(books: Books, number: int) -> tuple[Account, Spending]:
    """Return a reservation by its number, and the account that paid."""
    for account in books.accounts.values():
        for spending in account.spendings:
            if spending.number == number:
                return account, spending
    raise BudgetError(f"the ledger has no reservation {number}: is it the ledger that this was charged to?")


@lru_cache(maxsize=1024)
def _budget(text: str) -> Budget:
    return Budget.from_json(json.loads(text))


def amount(value: Fraction, currency: Currency, *, up: bool = True) -> str:
    """Return an amount with its sign, rounded up, or down for what may still be spent."""
    return f"{'ε' if currency == 'epsilon' else 'ρ'} = {as_decimal(value, up=up)}"


# -------------------------------------------------------------------- the ledger


class Ledger:
    """Record what data sets may cost in all and what they have cost, in one file.

    The file and the anchor file beside it belong to the data holder and are confidential.

    Parameters
    ----------
    path : path
        The file. `open` makes it if it is not there.

    Examples
    --------
    >>> import tempfile
    >>> ledger = tt.Ledger(tempfile.mkdtemp() + "/ledger.db")
    >>> persons = tt.Neighbours(tt.one_entity(), max_size=5, public_totals=False)
    >>> account = ledger.open("people-2020", tt.Budget(epsilon=2), persons)
    >>> ledger.account("people-2020").left
    Fraction(2, 1)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        expect(path, PATH, "the ledger's path")
        self._chain = Chain(path)
        self.path, self.anchor_path = self._chain.path, self._chain.anchor_path

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    # ---------------------------------------------------------------- looking

    def account(self, name: str) -> Account:
        """Return one data set's account.

        Parameters
        ----------
        name : str
            The name of the data set.

        Returns
        -------
        Account
            The account with its `total`, `spent`, `left` and reservations.

        Raises
        ------
        BudgetError
            If the ledger has no such account.
        """
        return self._books().account(name)

    def accounts(self) -> list[Account]:
        """Return all accounts, by name."""
        books = self._books()
        return [books.account(name) for name in sorted(books.accounts)]

    def links(self) -> list[Link]:
        """Return the joint totals of accounts that concern the same people."""
        return self._books().links()

    def entries(self, *, anchored: bool = True) -> tuple[Entry, ...]:
        """Return all entries that were ever written, after checking the chain.

        Parameters
        ----------
        anchored : bool, default True
            Check the anchor too. Set it to False if the anchor is to be made anew (see `anchor`).

        Returns
        -------
        tuple of Entry
            The entries, oldest first.
        """
        return self._chain.entries(anchored=anchored)

    def _books(self) -> Books:
        return books_of(self._chain.entries())

    # ---------------------------------------------------------------- opening and linking

    def open(self, name: str, budget: Budget, neighbours: Relation) -> Account:
        """Open an account: give a data set its total budget, which cannot be set again.

        Parameters
        ----------
        name : str
            The name of the data set.
        budget : Budget
            What all releases of the data set may cost together.
        neighbours : Neighbours or HouseholdNeighbours
            The neighbour relation that all costs are about. `Neighbours.of` gives that of data that were read.

        Returns
        -------
        Account
            The new account.

        Raises
        ------
        BudgetError
            If the ledger has such an account already.
        """
        if not name or not isinstance(name, str):
            raise BudgetError("a data set needs a name in the ledger")
        with self._chain.writing(make=True) as writing:
            if name in books_of(writing.entries).accounts:
                raise BudgetError(f"the ledger has a data set {name!r} already; its budget cannot be set again")
            relation = {
                "neighbours": {"kind": GROUP_SIZES, **relation_to_json(neighbours)},
                "protects": describe_relation(neighbours),
            }
            writing.append("opened", {"name": name, **relation, "budget": budget.to_json(), "time": _now()})
            return books_of(writing.entries).account(name)

    def link(self, names: Sequence[str], budget: Budget) -> Link:
        """Say that accounts concern the same people, and give them one joint total; it cannot be set again.

        From then on a reservation is charged to its own account and has to fit into the joint total as well, together
        with all that the linked accounts spent before and after. A joint total is kept in its own currency: in ρ a pure
        ε enters as ε²/2, in pure ε all the accounts must be.

        What the sum promises. Let each account i be about data D_i that are made from the same people (persons, and
        the households of these persons). Take any change of these people that changes each D_i by at most one step of
        account i's own relation, or leaves it as it is. For such a pair all that account i releases is ρ_i-zCDP: by
        that account's promise, or because nothing changed. Releases of several accounts compose, whichever depended on
        which answers, so that all of them together are Σ ρ_i-zCDP (with pure ε: Σ ε_i-DP) for this change.

        One person who is added, removed or changed is such a change for persons (unit one_entity) linked with their
        households (unit one_group): a step of the first relation, and of the second, where a household may be replaced
        by any other of at most so many persons. A household that is replaced is *not*: for the account of persons it
        is as many steps as it has persons. The sum says nothing of such changes.

        Parameters
        ----------
        names : list of str
            The names of the accounts.
        budget : Budget
            The joint total.

        Returns
        -------
        Link
            The joint total with what the accounts have spent.

        Raises
        ------
        BudgetError
            If the accounts are linked already, are fewer than two, or have spent more than the joint total.
        """
        wanted = tuple(dict.fromkeys(names))
        if len(wanted) < 2:
            raise BudgetError("link at least two accounts, by different names")
        with self._chain.writing() as writing:
            books = books_of(writing.entries)
            if any(set(wanted) == set(linked) for linked, _ in books.joint):
                raise BudgetError("these accounts are linked already; their joint total cannot be set again")
            if budget.currency == "epsilon" and any(books.account(name).currency != "epsilon" for name in wanted):
                raise BudgetError(
                    "an account in rho cannot be linked under a total in pure epsilon: give the total as rho=…, or as "
                    "epsilon=… with delta=…"
                )
            for name in wanted:
                books.account(name)
            spent = books.joint_cost(wanted, budget.currency)
            if spent > budget.amount:
                raise BudgetError(
                    f"these accounts have spent {amount(spent, budget.currency)} together, more than the joint total "
                    f"{amount(budget.amount, budget.currency, up=False)}. Nothing was changed."
                )
            writing.append("linked", {"names": list(wanted), "budget": budget.to_json(), "time": _now()})
        return Link(wanted, budget, spent)

    # ---------------------------------------------------------------- spending

    def check(self, expense: Expense) -> None:
        """Raise what `reserve` would raise now; nothing is written or spent.

        Parameters
        ----------
        expense : Expense
            The cost, and what the data holder states of the files.

        Raises
        ------
        BudgetError
            If `reserve` would refuse.
        """
        _find_payer(self._books(), expense)

    def reserve(self, expense: Expense, token: str | None = None) -> Receipt:
        """Take a cost out of a data set's account, or refuse; spent once this returns, even if the run fails.

        With a `token` that the caller made by chance and keeps first, a reservation that may or may not have been made
        before a kill can be made again: the same token gives the same receipt and costs nothing more. Files that
        another account was charged for are refused, unless the two accounts are linked, or with `same_data`. Files
        that are none of those that this account was charged for are refused, or taken with `changed_files`.

        Parameters
        ----------
        expense : Expense
            The cost, and what the data holder states of the files.
        token : str, optional
            A random text that the caller saved before.

        Returns
        -------
        Receipt
            The number of the reservation.

        Raises
        ------
        BudgetError
            If the account cannot pay, or the files are refused.
        """
        name, budget = expense.name or "", expense.budget
        with self._chain.writing() as writing:
            books = books_of(writing.entries)
            if token is not None and (made := holding(books.accounts.get(name), token)) is not None:
                if made.budget != budget or books.accounts[name].neighbours != expense.neighbours:
                    raise BudgetError("the token was used for another reservation; nothing was changed")
                return Receipt(str(self.path), made.number, tuple(books.same_data(name, made.fingerprint)))
            account, same = _find_payer(books, expense)
            number = books.next_number
            body = {
                "name": account.name,
                "receipt": number,
                "cost": str(budget.charge_in(account.currency)),
                "budget": budget.to_json(),
                "token": secrets.token_hex(16) if token is None else token,
                "fingerprint": expense.fingerprint,
            }
            writing.append("reserved", {**body, "time": _now()})
        return Receipt(str(self.path), number, tuple(same))

    def begin_round(self, receipt: Receipt, *, number: int, cost: Fraction, mark: str) -> None:
        """Record a round of a reservation as drawn, or refuse. Its noise may be drawn once this returns, not before.

        In one transaction it is checked that `number` is the next one of the reservation and that its rounds together,
        this one included, cost no more than was reserved. So over all copies of a journal, each number is begun at most
        once, and what is drawn costs no more than the reservation: the noise of a round is drawn after its own call
        returned, and a call for a number that was begun refuses.

        Parameters
        ----------
        receipt : Receipt
            The reservation.
        number : int
            The number of the round, from 1.
        cost : Fraction
            The cost of the round, in ρ.
        mark : str
            The mark that the round's results are known by.

        Raises
        ------
        BudgetError
            If the round is not the next one, or the rounds would cost more than was reserved.
        """
        with self._chain.writing() as writing:
            _, spending = reservation(books_of(writing.entries), receipt.number)
            if number != len(spending.rounds) + 1:
                raise BudgetError(
                    f"round {number} was drawn by another run, or is not the next one: {len(spending.rounds)} rounds "
                    "of this reservation were begun. This journal is a copy, or was restored. Nothing was drawn now."
                )
            begun = sum((each.cost for each in spending.rounds), Fraction(0))
            if cost <= 0 or begun + cost > spending.budget.charge_in("rho"):
                raise BudgetError("the rounds together would cost more than was reserved. Nothing was drawn.")
            writing.append(
                "round", {"receipt": receipt.number, "round": number, "cost": str(cost), "mark": mark, "time": _now()}
            )

    def commit(self, number: int, mark: str) -> None:
        """Commit a reservation to the digest of its measurements, or refuse another digest.

        For noise that is drawn all at once and kept: it is the reservation's only round, and costs all of it. A run
        that was killed before its measurements were kept may draw again under the same reservation, since nobody saw
        what it drew. So each run has to come here before it shows anything: of several that drew, one can go on.

        Parameters
        ----------
        number : int
            The number of the reservation.
        mark : str
            The digest of the measurements.

        Raises
        ------
        BudgetError
            If the reservation is committed to other measurements.
        """
        with self._chain.writing() as writing:
            _, spending = reservation(books_of(writing.entries), number)
            if [each.mark for each in spending.rounds] == [mark]:
                return
            if spending.rounds:
                raise OtherMeasurements(
                    "the ledger holds other measurements for this reservation: this folder is a copy, and another run "
                    "went on from it; or the measurements were deleted and drawn again. These cannot be used. Go on "
                    "with that run's folder."
                )
            cost = str(spending.budget.charge_in("rho"))
            writing.append("round", {"receipt": number, "round": 1, "cost": cost, "mark": mark, "time": _now()})

    def paid_for(self, mark: str) -> int | None:
        """Return the number of the reservation whose measurements are known by a mark, or None.

        Parameters
        ----------
        mark : str
            The mark of the measurements.

        Returns
        -------
        int or None
            The number of the reservation.
        """
        for account in self._books().accounts.values():
            for spending in account.spendings:
                if mark in [each.mark for each in spending.rounds]:
                    return spending.number
        return None

    def only_unrecorded(self, what: str, budget: Budget, neighbours: Relation, costs: Sequence[Fraction]) -> int:
        """Return the number of the only reservation that can have paid for a release.

        It has the same budget, relation and columns, its rounds cost the same, and no release is recorded for it.

        Parameters
        ----------
        what : str
            What the reservation paid for, in words, for messages.
        budget : Budget
            The budget of the release.
        neighbours : Neighbours or HouseholdNeighbours
            Its neighbour relation.
        costs : list of Fraction
            The costs of its rounds.

        Returns
        -------
        int
            The number of the reservation.

        Raises
        ------
        BudgetError
            If no reservation fits.
        ReleaseError
            If several fit; the message lists them.
        """
        fit = {
            spending.number: f"reservation {spending.number} of {account.name!r}, {spending.reserved}"
            for account in self._books().accounts.values()
            if account.neighbours == neighbours and not differing_columns(account.neighbours, neighbours)
            for spending in account.spendings
            if spending.release_id is None
            and spending.budget == budget
            and [each.cost for each in spending.rounds] == list(costs)
        }
        if not fit:
            raise BudgetError(f"the ledger {self.path} holds no reservation that fits {what}: is it the right one?")
        if len(fit) > 1:
            listed = "\n".join(f"  {each}" for each in fit.values())
            raise ReleaseError(f"several reservations fit {what}; name the one that paid with --receipt:\n{listed}")
        return next(iter(fit))

    def record(self, number: int, release_id: str) -> None:
        """Record the id of the release that a reservation paid for.

        Parameters
        ----------
        number : int
            The number of the reservation.
        release_id : str
            The id of the release.
        """
        with self._chain.writing() as writing:
            _, spending = reservation(books_of(writing.entries), number)
            if spending.release_id != release_id:
                writing.append("recorded", {"receipt": number, "release_id": release_id, "time": _now()})

    def anchor(self, digest: str) -> Entry:
        """Accept a chain that lost its anchor.

        Parameters
        ----------
        digest : str
            The digest of the chain's last entry, as the owner compared it.

        Returns
        -------
        Entry
            The last entry.
        """
        return self._chain.accept(digest)


def holding(account: Account | None, token: str) -> Spending | None:
    """Return the reservation that an account made with a token, if it did."""
    return next((each for each in ([] if account is None else account.spendings) if each.token == token), None)


def _find_payer(books: Books, expense: Expense) -> tuple[Account, list[str]]:
    """Return the account that can pay, and other accounts of the same data; or an error that says why it cannot."""
    name, fingerprint = expense.name, expense.fingerprint
    if name is None:
        raise BudgetError("a release that uses a ledger needs the data set's name: read(…, name=…)")
    account = books.account(name)
    if account.neighbours != expense.neighbours:
        raise BudgetError(
            f"the ledger opened {name!r} for another neighbour relation, and costs under different relations "
            f"do not add up.\n  opened with: {describe_relation(account.neighbours)}\n"
            f"  asked for:   {describe_relation(expense.neighbours)}"
        )
    _refuse_other_columns(account, expense.neighbours)
    account.refuse_beyond([expense.budget])
    same = books.same_data(name, fingerprint)
    linked = {other for link in account.links for other in link.names}
    if not expense.same_data and (unlinked := [other for other in same if other not in linked]):
        raise BudgetError(
            f"these very files were charged to {' and '.join(map(repr, unlinked))} before; under the name {name!r} "
            "they would have a second budget. Nothing was spent. Use the first name; or give both accounts a joint "
            "total with `tallytree ledger link`; or say --same-data-other-name (same_data=True in Python): the privacy "
            "statement then names the accounts and says that their budgets add up."
        )
    known = {each.fingerprint for each in account.spendings} - {None}
    if fingerprint is not None and known and fingerprint not in known and not expense.changed_files:
        raise ChangedInput(
            f"the input files are none of those that {name!r} was charged for before. Nothing was spent. If they are "
            "new data (another year, other people), give them a name and an account of their own. If they are the same "
            "data, corrected or in another format, say so with --changed-files (changed_files=True in Python)."
        )
    return account, same


def _refuse_other_columns(account: Account, asked: Relation) -> None:
    """Refuse a charge for another unit: other columns than the account's, unless the data holder states they mean it.

    A statement about columns that the account does not have is refused too: the privacy statement would repeat it.
    """
    if unknown := unknown_columns(account.neighbours, asked):
        raise BudgetError(
            f"same_unit_as names {', '.join(map(repr, unknown))}, which the account {account.name!r} does not have. "
            "Name columns that it was opened with. Nothing was spent."
        )
    other = differing_columns(account.neighbours, asked)
    if not other:
        return
    differences = "\n".join(
        f"  {role}: opened with {_columns(before)}, asked for {_columns(now)}" for role, (before, now) in other.items()
    )
    needed = [*asked.unit.same_unit_as, *(name for before, _ in other.values() for name in before or (ABSENT,))]
    raise BudgetError(
        f"the ledger opened {account.name!r} for other columns, and costs for different units do not add up. Nothing "
        f"was spent.\n{differences}\nIf these columns mean the same unit, state it in [privacy] of a spec or in "
        f"Python as argument of the unit: same_unit_as = {json.dumps([*dict.fromkeys(needed)], ensure_ascii=False)}; "
        "the privacy statement repeats it. If they do not, open an account under another name with "
        "`tallytree ledger open`."
    )


def _columns(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names)) or "no column"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
