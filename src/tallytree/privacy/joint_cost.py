"""What a release of group sizes and a synthesis of households cost together, and the release's charge for it.

Each was made under a relation of its own. A statement about both needs one relation, and the cost of each under it:

- Public totals (the list of groups with their regions is public). The relation is: one household's contents (size,
  attributes but for the region, persons) replaced, its region kept. For the release this is its own relation, so it
  costs what it cost. For the synthesis it is a part of its own relation, in which a household may be replaced by *any*
  other, and a bound for all pairs of neighbours holds for some of them. The two costs add up, in ρ. Nothing is promised
  about a household's region, which is public.
- Private totals, households replaced. The relation is the synthesis': a household is replaced by any other, in
  any region. For the release this is a household removed from one region and one added in another: two steps of
  its relation ("added, removed, or replaced within its region"), through the data set without the household. By the
  triangle inequality a table moves at most twice as far: its L1 doubles and its squared L2 is four times what it was,
  so the release costs 2ε, or 4ρ (and since ε-DP is ε²/2-zCDP, (2ε)²/2 is four times as much too). Within one region,
  or with an empty household, it is less.
- Private totals, households added or removed. That is a step of the release's own relation, and costs what it cost.

*Categories* of the release (a household's tenure) are attributes of the synthesis like any other, so nothing changes
for it. For the release:

- Public totals by region and category, which the group then decides: as above, with "its region and category kept".
  Neither is protected.
- Private totals: as above. Whether the group or members decide a category, a household removed from one region and
  category is one step,
  and one added to another is one step.
- The list of groups is public with their regions and without their categories, and each has somebody in it. The
  relation is: one household replaced by any other that has a person, in the same region, in any category. Where
  members decide all categories this is one step of the release's relation, "replaced within its region". Where the
  group decides one, it is two steps: the household is removed, and another is added in its region. The data set in
  between lacks a household that is on the list; but the bounds of `Neighbours.sensitivity` are those of private totals
  and hold for it, and the list goes into the release in the same way for all three data sets, as a public fact. So the
  triangle inequality gives 2ε, or 4ρ.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tallytree.core.errors import BudgetError, SpecError
from tallytree.privacy.budget import Budget, as_decimal, epsilon_of
from tallytree.privacy.ledger import Account, Expense, Ledger, holding
from tallytree.privacy.neighbours import HouseholdNeighbours, Neighbours


@dataclass(frozen=True)
class Together:
    """What a release and a synthesis promise together: one relation, and the cost under it."""

    times: int  # how many steps of the release's relation one step of this one is
    release: Fraction  # the release's cost under this relation, in ρ
    synthesis: Fraction
    relation: str
    regions_are_public: bool
    categories: tuple[str, ...] = ()  # of the release
    categories_are_public: bool = False
    none_is_empty: bool = False  # is it public that each household has a person?

    @property
    def rho(self) -> Fraction:
        """Return the whole cost."""
        return self.release + self.synthesis

    def in_words(self, delta: Fraction | None) -> str:
        """Return the promise of both together, with amounts rounded up."""
        text = (
            f"The released table of sizes and these synthetic households together are zero-concentrated "
            f"differentially private with ρ = {as_decimal(self.rho)}"
        )
        if delta is not None:
            text += (
                f", hence (ε, δ)-differentially private with ε = {as_decimal(epsilon_of(self.rho, delta))} at "
                f"δ = {as_decimal(delta)}"
            )
        moved = [*([] if self.regions_are_public else ["region"]), *self.categories]
        counted = f" (twice the ε, four times the ρ: a household may change its {' and '.join(moved)})"
        counted = "" if self.times == 1 else counted
        return (
            f"{text}: ρ = {as_decimal(self.release)} for the table{counted} and ρ = {as_decimal(self.synthesis)} for "
            f"the synthesis. {self.relation}"
        )


def together(table: Neighbours, spent: Budget, households: HouseholdNeighbours, budget: Budget) -> Together:
    """Return the one relation for both, or raise an error if no relation fits; the module says why."""
    unit = households.unit.kind
    if table.unit.kind != "one_group":
        raise SpecError(
            f"the release protects {table.unit.kind} and the synthesis whole households: no relation holds for both. "
            "Release the table with unit one_group."
        )
    if unit == "one_person_attributes":
        raise SpecError(
            "the release protects whole households and the synthesis one person's attributes only, with households "
            "and sizes known exactly: no relation holds for both. Use the unit one_group for the synthesis."
        )
    if table.quantity_bound != 1:
        raise SpecError("the release's sizes are sums of a quantity, not numbers of persons; they cannot agree")
    listed = table.public_totals or table.groups_listed
    if listed and unit != "one_group":
        raise SpecError(
            "the release takes the list of households with their regions as public, and the synthesis their number as "
            "private: no relation holds for both. Use the unit one_group for the synthesis."
        )
    names, fixed = table.categories.names, table.categories.fixed
    one_step = table.public_totals or (table.groups_listed and not fixed) or unit != "one_group"
    times = 1 if one_step else 2
    if table.public_totals and names:
        kept = " and ".join(names)
        relation = (
            f"Neighbouring data sets differ in one household, replaced by any other of the same region and {kept}. NOT "
            f"protected: the region and {kept} of households, which are public, and so the number of households of "
            "every region and category."
        )
    elif table.public_totals:
        relation = (
            "Neighbouring data sets differ in one household, replaced by any other in the same region. NOT protected: "
            "the regions of households, which are public, and so the number of households in every region."
        )
    elif table.groups_listed:
        relation = (
            "Neighbouring data sets differ in one household, replaced by any other in the same region that has a "
            f"person, of any {' and '.join(names)}. NOT protected: the regions of households, which are public, and so "
            "the number of households in every region, and that each has at least one person."
        )
    elif unit == "one_group":
        relation = (
            "Neighbouring data sets differ in one household, replaced by any other with all its persons and "
            f"attributes, in any region{''.join(f' and of any {name}' for name in names)}. The number of households "
            "in all is public."
        )
    else:
        relation = "Neighbouring data sets differ in one household, added or removed with all its persons."
    assert budget.rho is not None
    relation += f" A household counts at most {households.max_persons} persons."
    return Together(
        times,
        times**2 * spent.charge_in("rho"),
        budget.rho,
        relation,
        regions_are_public=listed,
        categories=names,
        categories_are_public=table.public_totals and bool(names),
        none_is_empty=table.groups_listed,
    )


# -------------------------------------------------------------------- charging the release to the households' account


def check_account(ledger: Ledger, name: str | None, both: Together, release_id: str | None, *, begun: bool) -> None:
    """Refuse unless the account can pay for the release, if it has not yet, and for the synthesis, unless it began."""
    account = ledger.account(name or "")
    paid = _is_charged(account, release_id) or holding(account, _token(release_id)) is not None
    if account.currency != "rho":
        raise BudgetError("synthesis is charged in ρ: the ledger must have opened the data set in rho")
    costs = [] if paid else [both.release]
    costs += [] if begun else [both.synthesis]
    account.refuse_beyond([Budget(rho=cost) for cost in costs], "the released table and the synthesis together")


def charge_release(
    ledger: Ledger, name: str | None, neighbours: HouseholdNeighbours, both: Together, release_id: str | None
) -> None:
    """Charge the release, once, to the account of the households that are to agree with it.

    Its id is the token, so that a run that is killed here and resumed does not charge it again.
    """
    if not _is_charged(ledger.account(name or ""), release_id):
        receipt = ledger.reserve(Expense(name, Budget(rho=both.release), neighbours), _token(release_id))
        receipt.record(release_id or "")


def _is_charged(account: Account, release_id: str | None) -> bool:
    if release_id is None:
        raise SpecError("with a ledger, give the release as its directory: its id tells whether it was charged before")
    return any(spending.release_id == release_id for spending in account.spendings)


def _token(release_id: str | None) -> str:
    return f"agreement with {release_id}"
