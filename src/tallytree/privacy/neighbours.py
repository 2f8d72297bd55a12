"""What is protected: the privacy unit, the full neighbour relation, and how far one neighbour can move a view.

The table of `Neighbours.sensitivity` is the whole privacy argument of a measurement; each entry has its proof there
and a brute-force test over all small neighbouring data sets. Household microdata have a relation of their own, in
`household_neighbours`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from tallytree.core.arguments import FLAG, TEXT, expect, instance, told
from tallytree.core.errors import SpecError
from tallytree.domain.categories import NO_CATEGORIES, Categories
from tallytree.tables.group_sizes import Columns, GroupSizes, check_unaltered

UnitKind = Literal["one_entity", "one_group"]
AS_READ = instance(GroupSizes, "as tallytree.read makes it")
View = Literal["counts", "at_least", "sorted_sizes", "totals", "entities", "largest", "chain"]
# Refused by category where members decide it.
MOVED_BY_MEMBERS: tuple[View, ...] = ("at_least", "sorted_sizes", "entities", "chain")


@dataclass(frozen=True)
class PrivacyUnit:
    """Whose presence or contents the release hides: `one_entity()` or `one_group()`.

    `same_unit_as` is a statement of the data holder: the columns of these data mean the same unit as these columns of
    the ledger's account. The privacy statement repeats it.
    """

    kind: UnitKind
    same_unit_as: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "same_unit_as", checked_same_unit_as(self.same_unit_as))
        expect(self.kind, TEXT, "the privacy unit")
        if self.kind not in get_args(UnitKind):
            raise SpecError(f"unknown privacy unit {self.kind!r}; expected one_entity or one_group")

    @classmethod
    def of(cls, value: PrivacyUnit | str) -> PrivacyUnit:
        """A unit, or the unit that a word of a spec names."""
        if isinstance(value, PrivacyUnit):
            return value
        if not isinstance(value, str):
            raise SpecError(f"unit is {told(value)}; expected one_entity(), one_group(), or either word as a text")
        return cls(value)  # type: ignore[arg-type]


def one_entity(same_unit_as: Sequence[str] = ()) -> PrivacyUnit:
    """Protect one entity (a person, a trip): it is added or removed."""
    return PrivacyUnit("one_entity", same_unit_as)  # type: ignore[arg-type]  # which makes a tuple of it


def one_group(same_unit_as: Sequence[str] = ()) -> PrivacyUnit:
    """Protect a whole group (a household, a driver): replaced, or (with private totals) it comes or goes."""
    return PrivacyUnit("one_group", same_unit_as)  # type: ignore[arg-type]  # which makes a tuple of it


def checked_same_unit_as(names: Any) -> tuple[str, ...]:
    """The names of columns that a data holder states to mean the same unit, or an error that says what was expected."""
    listed = isinstance(names, Sequence) and not isinstance(names, str)
    if not listed or not all(isinstance(name, str) and name for name in names):
        raise SpecError(f"same_unit_as is {told(names)}; expected a list of column names, such as ['household_id']")
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Sensitivity:
    """The most a view of one whole level can change between neighbours: L1 norm, and squared L2 norm (both exact)."""

    l1: int
    l2_squared: int


@dataclass(frozen=True)
class Neighbours:
    """The full neighbour relation: the unit and every public bound that its sensitivities rest on."""

    unit: PrivacyUnit
    max_size: int
    public_totals: bool
    quantity_bound: int = 1
    rows_per_entity: int = 1
    entity_column: bool = False
    groups_were_split: bool = False
    rows_were_bounded: bool = field(default=False, compare=False)  # how the data came to fit, not what a neighbour is
    categories: Categories = NO_CATEGORIES  # what tells groups apart besides their region, and who decides it
    groups_listed: bool = False  # is there a public list of groups with their regions, without their categories?
    # What a group, region and entity is. The ledger compares it by itself: see `differing_columns`.
    columns: Columns | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit", PrivacyUnit.of(self.unit))
        object.__setattr__(self, "columns", _columns_that_matter(self.unit, Columns.of(self.columns)))
        for flag in ("public_totals", "entity_column", "groups_were_split", "rows_were_bounded", "groups_listed"):
            expect(getattr(self, flag), FLAG, flag)
        expect(self.categories, instance(Categories), "categories")
        for bound in ("max_size", "quantity_bound", "rows_per_entity"):
            value = getattr(self, bound)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SpecError(f"{bound} must be a whole number of at least 1, not {told(value)}")

    @classmethod
    def of(cls, group_sizes: GroupSizes, unit: PrivacyUnit | str) -> Neighbours:
        """The relation under which `group_sizes` may be measured, or an error if this unit cannot protect them.

        Its bounds are those that the counts were made under: a value that was altered since is refused.
        """
        expect(group_sizes, AS_READ, "group_sizes")
        unit = PrivacyUnit.of(unit)
        check_unaltered(group_sizes, GroupSizes)
        if unit.kind == "one_group" and group_sizes.groups_were_split:
            raise SpecError(
                "groups that span leaves were split, which one_group cannot protect: replacing a group's contents "
                "would change several of the pairs it was split into. Use one_entity, or give each group one leaf."
            )
        if unit.kind == "one_group" and group_sizes.rows_were_bounded:
            raise SpecError(
                "rows beyond rows_per_entity were dropped, which one_group cannot protect: what is kept in one group "
                "would depend on another group's rows. Use one_entity, or read without rows_per_entity."
            )
        categories = group_sizes.hierarchy.by
        if categories.members_decide and (group_sizes.public_totals or group_sizes.rows_were_bounded):
            raise SpecError(
                "members decide a category, so neither a public list of groups that has it nor a bound on rows that "
                "are dropped goes with it: both would have to stay as they are when the category changes"
            )
        return cls(
            unit=unit,
            max_size=group_sizes.max_size,
            public_totals=group_sizes.public_totals,
            quantity_bound=group_sizes.quantity_bound,
            rows_per_entity=group_sizes.rows_per_entity if unit.kind == "one_entity" else 1,
            entity_column=group_sizes.entity_column and unit.kind == "one_entity",
            groups_were_split=group_sizes.groups_were_split,
            rows_were_bounded=group_sizes.rows_were_bounded,
            categories=categories,
            groups_listed=group_sizes.listed_totals is not None,
            columns=group_sizes.columns,
        )

    @property
    def truncated(self) -> bool:
        """May rows have been dropped to keep to rows_per_entity? (Older files have only the bound to tell it.)"""
        return self.rows_were_bounded or self.rows_per_entity > 1

    def sensitivity(self, view: View, regions: int | None = None, *, summed: bool = False) -> Sensitivity:
        """The most that `view`, over all regions of one level together, changes between neighbours.

        `regions` is how many regions the level has; only `chain` depends on it. With `summed` it is the view of the
        level's regions over all categories.

        `one_entity`, one row. The row adds z ≤ z_max to one group of one region of the level, so the group goes from
        size a to size b with 0 ≤ b − a ≤ m, where m = min(z_max, K) because sizes are capped at K.
          counts: cell a loses one and cell b gains one: 2 / 2. (With private totals there is no cell 0, so one of the
          two may be missing; that is less.)
          at_least: T[a + 1] … T[b] each gain one, nothing else moves: m / m. A group that appears or vanishes is the
          case a = 0 and needs no exception.
          sorted_sizes: changing one entry of a list by d changes the sorted list, entry by entry, by d in all: at most
          m in L1, so at most m² in L2². A list is read from its large end and has a length that is public before it
          is measured; where groups are fewer, sizes of 0 fill the small end. A group that appears or vanishes is then
          one such entry that leaves or reaches 0, and what is cut off or padded only leaves changes out.
          totals: with private totals a group is counted once its size is positive: 1 / 1. With public totals the
          number of groups is fixed: 0.
          entities: the sum of a region's sizes, each at most K, moves by what the one size moves, in one region of the
          level: m / m².
          largest: the size of the largest group moves no further than the one size that moves: m / m².
        `one_entity`, up to b rows. The change is the sum of b changes of the kind above (in any regions): by the
        triangle inequality L1 is at most b times and L2 at most b times, so L2² at most b² times.
        `one_group`. The group stays in its leaf, so in one region of the level, and goes from size a to size b, both
        in 0 … K (a or b is 0 where it appears or vanishes).
          counts: 2 / 2 as above. at_least: |b − a| ≤ K cells change by one: K / K.
          sorted_sizes: one entry changes by |b − a| ≤ K: K / K², as above.
          totals: 1 / 1 with private totals, 0 with public ones. entities: one sum changes by |b − a| ≤ K: K / K².
          largest: refused. One group can move it over the whole range 0 … K, so noise would drown it.
        `chain`, either unit. The level's cells are put into one row, size by size and region by region within a size;
        each then counts the groups in its own cell or any later one. With R regions a group of size s in the level's
        region r stands at place s·R + r, and its going from size a to size b changes by one exactly the cells after its
        old place up to its new one: |b − a|·R cells, or fewer where it appears or vanishes, because with private totals
        the row has no size 0. So it is R times as sensitive as at_least: regions do not compose in parallel here.

        *Categories*. A level's regions are then regions by category (`Hierarchy.by_category`).
          decided by the group: the group's category stays as it is, as its region does, so the proofs above hold word
          for word with "a region and a category" for "a region". Under `one_group` a group that changes its category
          is removed and added, two steps, as one that changes its region.
          decided by members: one row takes its group from size a in one category to size b in the same or another one.
          counts: still one cell loses one and one gains one: 2 / 2. totals: one category may lose the group and
          another one gain it: 2 / 2. at_least: a cells change in the one and b in the other, up to 2 K in all; lists,
          numbers of entities and the chain likewise. These are refused. largest: does not see categories, and is as
          above.
          a public list of groups and regions without their categories (`groups_listed`): neighbours are fewer, for no
          group comes or goes; so each bound for private totals holds, and more may be charged than is needed.
          such a list and `rows_per_entity`: the domain is about all rows, before any are dropped. Each listed group has
          an entity, and all its rows agree on its region and category. So whether a table is in the domain, and the
          category of each group, do not depend on the random selection; `tables.count.Counting.query` computes both
          on all rows. A listed group may still keep no row. It is then counted as size 1: its size is
          min(K, max(1, s)), with s the sum over its kept rows. Fix the key. By `tables.truncate.truncated` the kept
          rows of two neighbours differ in at most b rows of one entity, each of which moves one s by at most z_max. The
          clamp is monotone and moves no two sizes further apart, so each of the b steps takes one group from
          size a to size b' within 1 … K, with |b' − a| ≤ m, in the same region and category: the case of one row above.
          Members cannot decide a category here (`Options` refuses it).
          summed, whoever decides: the sums over all categories do not see which one a group is in, so they are the
          view of the same data without categories, and change as it does: as above.
        """
        groups_change = 0 if self.public_totals else 1
        if self.unit.kind == "one_group":
            moved, times = self.max_size, 1
        else:
            moved, times = min(self.quantity_bound, self.max_size), self.rows_per_entity
        # What one row (or the group) can do: how many numbers change, and by how much each at the most.
        once = {
            "counts": (2, 1),
            "at_least": (moved, 1),
            "sorted_sizes": (1, moved),
            "totals": (groups_change, 1),
            "entities": (1, moved),
            "largest": (1, moved),
            "chain": (moved * (regions or 0), 1),
        }
        if view not in once:
            raise SpecError(f"unknown view {view!r}; expected one of {', '.join(once)}")
        if view == "chain" and (regions is None or regions < 1):
            raise SpecError("the sensitivity of a chain depends on the number of regions of its level; give it")
        if view == "largest" and self.unit.kind == "one_group":
            raise SpecError(
                "the largest size cannot be measured with one_group as the privacy unit: one group can change it "
                "altogether. State a public max_size, or protect one_entity."
            )
        if self.categories.members_decide and not summed:
            if view in MOVED_BY_MEMBERS:
                raise SpecError(
                    f"{view} cannot be measured by category where members decide it: one of them can move a group of "
                    f"any size from one category to another, which changes up to {2 * self.max_size} numbers. Measure "
                    "counts by category, and at_least over all categories (mechanism tallytree does)"
                )
            if view == "totals":
                once["totals"] = (2 * groups_change, 1)
        numbers, by = once[view]
        return Sensitivity(l1=numbers * by * times, l2_squared=numbers * (by * times) ** 2)

    def describe(self) -> str:
        """The relation in words, for the privacy statement."""
        totals = (
            "The list of groups with their regions is public, so the number of groups in every region is known exactly."
            if self.public_totals and not self.categories.columns
            else "The list of groups with their regions and categories is public, so the number of groups in every "
            "region and category is known exactly."
            if self.public_totals
            else "The list of groups with their regions is public, and each group on it has at least one entity in "
            "both data sets; so the number of groups in every region is known exactly, and not that of any category."
            + (" A group on it counts as size 1 if all its rows were dropped." if self.truncated else "")
            if self.groups_listed
            else "The number of groups is private; no total is taken as known."
        )
        largest = f"Groups larger than {self.max_size} count as {self.max_size} ('{self.max_size} or more')."
        told = f" {self.categories.in_words()}" if self.categories.columns else ""
        if self.unit.kind == "one_group":
            within = " and ".join(["its region", *self.categories.fixed])
            change = (
                f"Neighbouring data sets differ in the contents of one group, replaced within {within}."
                if self.public_totals
                else f"Neighbouring data sets differ in one group: added, removed, or replaced within {within}."
            )
            return f"{change} {totals} {largest}{told}{same_unit_in_words(self)}"
        rows = "one row" if self.rows_per_entity == 1 else f"at most {self.rows_per_entity} rows"
        who = (
            f"one entity with all its rows ({rows}; more were dropped blindly)"
            if self.truncated
            else "one entity (one row each, checked)"
            if self.entity_column
            else "one row (no entity column was given, so a row is what is protected, not a person with several rows)"
        )
        adds = (
            "" if self.quantity_bound == 1 else f" A row adds between 0 and {self.quantity_bound} to its group's size."
        )
        pairs = " A group that spans leaves counts as one group in each of them." if self.groups_were_split else ""
        change = f"Neighbouring data sets differ in {who}, added or removed.{adds}{pairs}"
        return f"{change} {totals} {largest}{told}{same_unit_in_words(self)}"

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        values = {**asdict(self), "unit": self.unit.kind}
        del values["categories"], values["columns"]
        values |= columns_to_json(self)
        if not self.groups_listed:
            del values["groups_listed"]
        return {**values, "categories": self.categories.to_json()} if self.categories.columns else values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Neighbours:
        """What `to_json` wrote."""
        facts = dict(values)
        categories = Categories.from_json(facts.get("categories", ()))
        unit = PrivacyUnit(facts["unit"], facts.pop("same_unit_as", ()))
        return cls(**{**facts, "unit": unit, "categories": categories})


# -------------------------------------------------------------------- the columns of a relation, of either kind

ABSENT = "none"  # stands in same_unit_as for a column that the account does not have


def columns_to_json(relation: Any) -> dict[str, Any]:
    """The columns of a relation, and what the data holder stated of them; nothing where none are known."""
    stated = {"same_unit_as": list(relation.unit.same_unit_as)} if relation.unit.same_unit_as else {}
    return ({} if relation.columns is None else {"columns": relation.columns.to_json()}) | stated


def same_unit_in_words(relation: Any) -> str:
    """What the data holder stated, for the privacy statement; nothing for most releases."""
    stated = relation.unit.same_unit_as
    if not stated:
        return ""
    own = [name for names in _by_role(relation.columns).values() for name in names]
    return (
        f" The data holder states that the columns {_listed(own)} of these data mean the same unit as the columns "
        f"{_listed(stated)} of the account that pays. tallytree cannot check this, and costs of the account add up "
        "only if it is true."
    )


def columns_in_words(relation: Any) -> str:
    """The columns of a relation, for the data holder; "not recorded" where none are known."""
    named = {role: names for role, names in _by_role(relation.columns).items() if names}
    return "; ".join(f"{role} {_listed(names)}" for role, names in named.items()) or "not recorded"


def differing_columns(opened: Any, asked: Any) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Where the columns of an account and of a new charge differ, by role, and the data holder stated nothing.

    *Why it matters.* Costs of an account add up for one pair of data sets that are neighbours in every release. A
    relation with the same unit and bounds but another column is about other changes: a household that is replaced is
    one step by household, and may be as many steps by employer as it has workers. So columns have to be the same, or
    the data holder has to state that they mean the same. Columns that are not known equal no columns that are.
    """
    before, now = _by_role(opened.columns), _by_role(asked.columns)
    stated = set(asked.unit.same_unit_as)
    return {
        role: (before[role], now[role])
        for role in before
        if before[role] != now[role] and not set(before[role] or (ABSENT,)) <= stated
    }


def unknown_columns(opened: Any, asked: Any) -> list[str]:
    """Columns that the data holder speaks of in same_unit_as and that the account does not have."""
    roles = _by_role(opened.columns).values()
    known = {name for names in roles for name in names} | ({ABSENT} if not all(roles) else set())
    return [name for name in asked.unit.same_unit_as if name not in known]


def _by_role(columns: Columns | None) -> dict[str, tuple[str, ...]]:
    if columns is None:
        return {"group": (), "region": (), "entity": ()}
    return {
        "group": (columns.group,),
        "region": columns.region,
        "entity": () if columns.entity is None else (columns.entity,),
    }


def _columns_that_matter(unit: PrivacyUnit, columns: Columns | None) -> Columns | None:
    """The columns that the unit depends on: one_group protects a group whatever entities are in it."""
    if columns is None or unit.kind == "one_entity":
        return columns
    return Columns(columns.group, columns.region)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) if names else repr(ABSENT)
