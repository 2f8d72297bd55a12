"""A release and a synthesis together: one relation, and what both cost under it."""

from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from tallytree import Budget, BudgetError, Ledger, SpecError
from tallytree.domain.categories import Categories
from tallytree.domain.histogram import at_least
from tallytree.privacy.budget import as_decimal, epsilon_of
from tallytree.privacy.joint_cost import charge_release, check_account, together
from tallytree.privacy.ledger import Expense
from tallytree.privacy.neighbours import HouseholdNeighbours, Neighbours, PrivacyUnit, one_entity, one_group

RHO = Budget(rho="0.5", delta="1e-6")


def relation(public, unit=None, **more):
    return Neighbours(unit or one_group(), max_size=3, public_totals=public, **more)


def households(kind="one_group"):
    return HouseholdNeighbours(PrivacyUnit(kind), 3)


@pytest.mark.parametrize(
    ("public", "unit", "spent", "times", "cost"),
    [
        (True, "one_group", Budget(rho="0.1"), 1, Fraction(1, 10)),
        (True, "one_group", Budget(epsilon="0.2"), 1, Fraction(2, 100)),
        (False, "one_group", Budget(rho="0.1"), 2, Fraction(4, 10)),
        (False, "one_group", Budget(epsilon="0.2"), 2, Fraction(8, 100)),  # (2 · 0.2)² / 2
        (False, "one_group_added_or_removed", Budget(rho="0.1"), 1, Fraction(1, 10)),
    ],
)
def test_the_release_is_charged_for_as_many_steps_as_the_relation_takes(public, unit, spent, times, cost):
    both = together(relation(public), spent, households(unit), RHO)
    assert (both.times, both.release, both.synthesis) == (times, cost, Fraction(1, 2))
    assert both.rho == cost + Fraction(1, 2)
    text = both.in_words(RHO.delta)
    assert f"ε = {as_decimal(epsilon_of(both.rho, RHO.delta))}" in text
    assert ("four times" in text) == (times == 2)
    assert ("NOT protected: the regions" in text) == public


@pytest.mark.parametrize(
    ("table", "unit", "message"),
    [
        (relation(False, one_entity()), "one_group", "protects one_entity"),
        (relation(False), "one_person_attributes", "one person's attributes only"),
        (relation(True), "one_group_added_or_removed", "as public"),
        (relation(False, quantity_bound=2), "one_group", "sums of a quantity"),
    ],
)
def test_two_relations_that_are_not_one_are_refused(table, unit, message):
    with pytest.raises(SpecError, match=message):
        together(table, Budget(epsilon=1), households(unit), RHO)


def view_of(data, view, regions, largest, first):
    """A view of all regions from its definition. A household is (region, size)."""
    counts = np.zeros((regions, largest + 1 - first), np.int64)
    for region, size in data:
        if size >= first:
            counts[region, size - first] += 1
    if view == "counts":
        return counts
    if view == "counts_total":
        return np.hstack([counts, counts.sum(axis=1, keepdims=True)])
    if view == "totals":
        return counts.sum(axis=1)
    if view == "at_least":
        return at_least(counts, first)
    lists = np.zeros((regions, len(data) + 1), np.int64)  # sorted from the large end, padded with sizes of 0
    for region in range(regions):
        sizes = sorted((size for place, size in data if place == region), reverse=True)
        lists[region, : len(sizes)] = sizes
    return lists


VIEWS = ("counts", "counts_total", "at_least", "sorted_sizes", "totals")


def moves(regions, largest):
    """All pairs of small data sets that differ in one household, replaced by any other in any region."""
    every = list(product(range(regions), range(largest + 1)))
    for rest in [(), *((one,) for one in every), *combinations_with_replacement(every[:4], 2)]:
        for old, new in product(every, repeat=2):
            yield (*rest, old), (*rest, new)


@pytest.mark.parametrize("view", VIEWS)
def test_a_household_that_changes_region_moves_a_private_table_at_most_twice_as_far(view):
    largest = 3
    own = Neighbours(one_group(), max_size=largest, public_totals=False).sensitivity(view)
    apart = [
        np.abs(view_of(new, view, 2, largest, 1) - view_of(old, view, 2, largest, 1)) for old, new in moves(2, largest)
    ]
    assert max(int(change.sum()) for change in apart) <= 2 * own.l1
    assert max(int((change**2).sum()) for change in apart) <= 4 * own.l2_squared
    if view != "counts":  # of counts a removal and an addition change one cell each, as a replacement does
        assert max(int(change.sum()) for change in apart) == 2 * own.l1


@pytest.mark.parametrize("view", ["counts", "at_least", "sorted_sizes"])
def test_within_its_region_a_household_moves_a_public_table_as_far_as_the_release_says(view):
    largest = 3
    own = Neighbours(one_group(), max_size=largest, public_totals=True).sensitivity(view)
    kept, moved = [0], [0]
    for old, new in moves(2, largest):
        change = np.abs(view_of(new, view, 2, largest, 0) - view_of(old, view, 2, largest, 0))
        (kept if old[-1][0] == new[-1][0] else moved).append(int(change.sum()))
        if old[-1][0] == new[-1][0]:
            assert (change**2).sum() <= own.l2_squared
    assert max(kept) == own.l1
    totals = Neighbours(one_group(), max_size=largest, public_totals=True).sensitivity("totals")
    assert totals.l1 == 0  # and so a changed region, which changes totals, cannot be in the relation
    assert max(moved) >= own.l1


# -------------------------------------------------------------------- categories


def by(**who):
    return Categories.of({name: ["a", "b"] for name in who}, who)


@pytest.mark.parametrize(
    ("table", "unit", "times", "words"),
    [
        (relation(False, categories=by(tenure="group")), "one_group", 2, "in any region and of any tenure"),
        (relation(False, categories=by(children="members")), "one_group", 2, "may change its region and children"),
        (relation(False, categories=by(tenure="group")), "one_group_added_or_removed", 1, "added or removed"),
        (relation(True, categories=by(tenure="group")), "one_group", 1, "NOT protected: the region and tenure"),
        (relation(False, categories=by(tenure="group"), groups_listed=True), "one_group", 2, "may change its tenure)"),
        (relation(False, categories=by(children="members"), groups_listed=True), "one_group", 1, "of any children"),
        (
            relation(False, categories=by(tenure="group", children="members"), groups_listed=True),
            "one_group",
            2,
            "of any tenure and children. NOT protected: the regions",
        ),
    ],
)
def test_a_release_by_category_is_charged_for_as_many_steps_as_the_relation_takes(table, unit, times, words):
    both = together(table, Budget(rho="0.1"), households(unit), RHO)
    assert (both.times, both.release) == (times, Fraction(times**2, 10))
    assert words in both.in_words(RHO.delta)
    assert both.regions_are_public == (table.public_totals or table.groups_listed)
    assert both.categories_are_public == table.public_totals
    assert both.none_is_empty == table.groups_listed


def test_a_list_of_regions_does_not_go_with_households_that_come_and_go():
    table = relation(False, categories=by(children="members"), groups_listed=True)
    with pytest.raises(SpecError, match="as public"):
        together(table, Budget(rho=1), households("one_group_added_or_removed"), RHO)


PLACES = list(product(range(2), range(2)))  # region, category


def changes_of(view, largest, keep, *, summed=False, first=1, least=0):
    """How far a view moves when one household is replaced by any other with the same `keep(region, category)`."""
    every = list(product(PLACES, range(least, largest + 1)))

    def table(data):
        flat = [(place[0] if summed else PLACES.index(place), size) for place, size in data]
        return view_of(flat, view, 2 if summed else 4, largest, first)

    for rest in [(), *((one,) for one in every)]:
        for old, new in product(every, repeat=2):
            if keep(*old[0]) == keep(*new[0]):
                yield np.abs(table((*rest, new)) - table((*rest, old)))


ANY, REGION, BOTH_KEPT = (lambda *_: 0), (lambda region, _: region), (lambda *place: place)
RELATIONS = {  # which releases: what a replaced household keeps, whether lists of regions are public, who decides
    "private, group": (ANY, {"public_totals": False}, "group"),
    "private, members": (ANY, {"public_totals": False}, "members"),
    "listed, group": (REGION, {"public_totals": False, "groups_listed": True}, "group"),
    "listed, members": (REGION, {"public_totals": False, "groups_listed": True}, "members"),
    "public, group": (BOTH_KEPT, {"public_totals": True}, "group"),
}


@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("kind", RELATIONS)
@pytest.mark.parametrize("view", VIEWS)
def test_no_replaced_household_moves_a_view_by_category_further_than_its_steps(view, kind, summed):
    largest, (keep, how, decided) = 2, RELATIONS[kind]
    table = Neighbours(one_group(), max_size=largest, categories=by(tenure=decided), **how)
    times = together(table, Budget(rho="0.1"), HouseholdNeighbours(PrivacyUnit("one_group"), largest), RHO).times
    try:
        own = table.sensitivity(view, summed=summed)
    except SpecError:  # refused by category where members decide it, and where totals are known
        assert (decided == "members" and not summed) or (view == "counts_total" and table.public_totals)
        return
    first, least = (0, 0) if table.public_totals else (1, 1 if table.groups_listed else 0)
    moved = list(changes_of(view, largest, keep, summed=summed, first=first, least=least))
    assert max(int(change.sum()) for change in moved) <= times * own.l1
    assert max(int((change**2).sum()) for change in moved) <= times**2 * own.l2_squared
    if view == "at_least" and not summed:  # so one step less would be too few, in L1
        assert max(int(change.sum()) for change in moved) == times * own.l1


# -------------------------------------------------------------------- charging the release


@pytest.fixture
def account(tmp_path):
    def opened(budget):
        ledger = Ledger(tmp_path / "ledger.db")
        ledger.open("homes", budget, households())
        return ledger

    return opened


BOTH = together(relation(False), Budget(rho="0.1"), households(), RHO)  # 0.4 for the release, 0.5 for the synthesis


def test_a_release_is_charged_once_whatever_else_the_account_paid_for(account):
    ledger = account(Budget(rho=2))
    ledger.reserve(Expense("homes", RHO, households()))  # has no id yet, as a synthesis under way
    for _ in range(2):
        charge_release(ledger, "homes", households(), BOTH, "one")
    assert [(spending.cost, spending.release_id) for spending in ledger.account("homes").spendings] == [
        (Fraction(1, 2), None),
        (Fraction(2, 5), "one"),
    ]
    charge_release(ledger, "homes", households(), BOTH, "two")
    assert ledger.account("homes").spent == Fraction(13, 10)


def test_an_account_must_hold_what_is_still_to_be_paid(account):
    ledger = account(Budget(rho="0.9"))
    check_account(ledger, "homes", BOTH, "one", begun=False)
    ledger.reserve(Expense("homes", Budget(rho="0.1"), households()))
    with pytest.raises(BudgetError, match=r"ρ = 0.8 left.*cost ρ = 0.9. Nothing was changed"):
        check_account(ledger, "homes", BOTH, "one", begun=False)
    check_account(ledger, "homes", BOTH, "one", begun=True)
    charge_release(ledger, "homes", households(), BOTH, "one")
    check_account(ledger, "homes", BOTH, "one", begun=True)
    with pytest.raises(BudgetError, match=r"ρ = 0.4 left.*cost ρ = 0.5"):
        check_account(ledger, "homes", BOTH, "one", begun=False)


def test_a_release_without_an_id_or_an_account_in_epsilon_is_refused(account):
    ledger = account(Budget(epsilon=9))
    with pytest.raises(BudgetError, match="opened the data set in rho"):
        check_account(ledger, "homes", BOTH, "one", begun=False)
    for act in (
        lambda: check_account(ledger, "homes", BOTH, None, begun=False),
        lambda: charge_release(ledger, "homes", households(), BOTH, None),
    ):
        with pytest.raises(SpecError, match="as its directory"):
            act()
    assert ledger.account("homes").spent == 0
