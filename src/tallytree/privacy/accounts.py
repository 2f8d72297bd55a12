"""Accounts, computed from the ledger's entries: what each data set may spend, has spent, and shares with others.

A pure function of the entries (`books_of`): nothing is kept that could disagree with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol

from tallytree.core.errors import BudgetError
from tallytree.core.names import quoted
from tallytree.privacy.budget import Budget, Currency, as_decimal
from tallytree.privacy.chain import Entry, Values
from tallytree.tables.group_sizes import Columns

GROUP_SIZES = "group_sizes"  # the kind of relation that `Neighbours` is; `HouseholdNeighbours` names its own
NOT_COMPARED = ("columns", "same_unit_as", "rows_were_bounded")  # these do not say what a neighbour is


class Relation(Protocol):
    """A neighbour relation that can be charged: `Neighbours` or `HouseholdNeighbours`."""

    @property
    def unit(self) -> Any:
        """What it protects."""

    @property
    def columns(self) -> Columns | None:
        """Which columns say what that is, where they are known."""

    def to_json(self) -> Values:
        """Plain values."""

    def describe(self) -> str:
        """The relation in words."""


@dataclass(frozen=True)
class OpenedRelation:
    """A neighbour relation as the ledger keeps it: the facts that tell it from others, its columns and its words."""

    facts: Values
    columns: Columns | None
    words: str

    @classmethod
    def from_json(cls, values: Values, words: str) -> OpenedRelation:
        """What `relation_to_json` wrote."""
        facts = {name: value for name, value in values.items() if name not in NOT_COMPARED}
        return cls(facts, Columns.of(values.get("columns")), words)

    def is_same(self, asked: Relation) -> bool:
        """Are these the same neighbours, so that costs under both relations add up? Columns are compared apart."""
        return self.facts == OpenedRelation.from_json(relation_to_json(asked), "").facts

    def describe(self) -> str:
        """The relation in words, as it was opened."""
        return self.words


def relation_to_json(relation: Relation) -> Values:
    """A relation with its kind, as JSON gives it back."""
    found: Values = json.loads(json.dumps({"kind": GROUP_SIZES, **relation.to_json()}))
    return found


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
        """What they may still spend together."""
        return self.budget.amount - self.spent

    @property
    def left_in_words(self) -> str:
        """With its sign, rounded down."""
        return amount(self.left, self.budget.currency, up=False)


@dataclass(frozen=True)
class Account:
    """A data set's account."""

    name: str
    neighbours: OpenedRelation
    budget: Budget  # as it was opened
    spendings: tuple[Spending, ...] = ()
    links: tuple[Link, ...] = ()

    @property
    def currency(self) -> Currency:
        """What it is kept in: pure ε, or ρ."""
        return self.budget.currency

    @property
    def total(self) -> Fraction:
        """What may be spent in all."""
        return self.budget.amount

    @property
    def spent(self) -> Fraction:
        """What all reservations add up to."""
        return sum((spending.cost for spending in self.spendings), Fraction(0))

    @property
    def left(self) -> Fraction:
        """What may still be reserved, as far as this account alone goes."""
        return self.total - self.spent

    def __repr__(self) -> str:
        spent, left = amount(self.spent, self.currency), as_decimal(self.left, up=False)
        return f"Account({quoted(self.name)}, {spent} spent in {len(self.spendings)} reservations, {left} left)"

    def refuse_beyond(self, costs: Sequence[Budget], what: str = "this release") -> None:
        """Raise unless all these costs together fit into what is left, here and in every joint total."""
        cost = sum((each.charge_in(self.currency) for each in costs), Fraction(0))
        if cost > self.left:
            raise BudgetError(
                f"{self.name!r} has {amount(self.left, self.currency, up=False)} left of "
                f"{amount(self.total, self.currency, up=False)}; {what} would cost {amount(cost, self.currency)}. "
                "Nothing was spent."
            )
        for link in self.links:
            currency = link.budget.currency
            joint = sum((each.charge_in(currency) for each in costs), Fraction(0))
            if joint > link.left:
                raise BudgetError(
                    f"{' and '.join(map(repr, link.names))} may spend {amount(link.left, currency, up=False)} "
                    f"more together, of {amount(link.budget.amount, currency, up=False)}; {what} would cost "
                    f"{amount(joint, currency)}. Nothing was spent."
                )


@dataclass
class Books:
    """All accounts, by name, and the joint totals."""

    accounts: dict[str, Account] = field(default_factory=dict)
    joint: list[tuple[tuple[str, ...], Budget]] = field(default_factory=list)

    @property
    def next_number(self) -> int:
        """Of a reservation to come."""
        return 1 + max((each.number for account in self.accounts.values() for each in account.spendings), default=0)

    def links(self) -> list[Link]:
        """The joint totals, with what was spent of each."""
        return [Link(names, budget, self.joint_cost(names, budget.currency)) for names, budget in self.joint]

    def joint_cost(self, names: Iterable[str], currency: Currency) -> Fraction:
        """What accounts have spent together: each reservation in that currency, added up."""
        spendings = [spending for name in names for spending in self.accounts[name].spendings]
        return sum((spending.budget.charge_in(currency) for spending in spendings), Fraction(0))

    def account(self, name: str) -> Account:
        """One account, with the joint totals that it is part of."""
        if name not in self.accounts:
            raise BudgetError(
                f"the ledger has no data set {name!r}; give it a total budget first with `tallytree ledger open`"
            )
        return replace(self.accounts[name], links=tuple(link for link in self.links() if name in link.names))

    def same_data(self, name: str, fingerprint: str | None) -> list[str]:
        """The other accounts that these very files were charged to."""
        return [
            other.name
            for other in self.accounts.values()
            if other.name != name
            and fingerprint is not None
            and any(spending.fingerprint == fingerprint for spending in other.spendings)
        ]


def books_of(entries: Iterable[Entry]) -> Books:
    """The accounts that entries describe, in their order."""
    books = Books()
    try:
        for entry in entries:
            _take(books, entry.kind, entry.body)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        raise BudgetError(f"entry {entry.number} of the ledger cannot be understood; nothing was spent") from None
    return books


def _take(books: Books, kind: str, body: Values) -> None:
    if kind == "opened":
        budget = _budget(json.dumps(body["budget"]))
        relation = OpenedRelation.from_json(body["neighbours"], body["protects"])
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
    """A reservation by its number, and the account that paid."""
    for account in books.accounts.values():
        for spending in account.spendings:
            if spending.number == number:
                return account, spending
    raise BudgetError(f"the ledger has no reservation {number}: is it the ledger that this was charged to?")


@lru_cache(maxsize=1024)
def _budget(text: str) -> Budget:
    return Budget.from_json(json.loads(text))


def amount(value: Fraction, currency: Currency, *, up: bool = True) -> str:
    """An amount with its sign, rounded up, or down for what may still be spent."""
    return f"{'ε' if currency == 'epsilon' else 'ρ'} = {as_decimal(value, up=up)}"
