"""What is protected: the privacy unit, the full neighbour relation, and how far one neighbour can move a view.

The tables of `Neighbours.sensitivity` (group sizes) and `HouseholdNeighbours.sensitivity` (household microdata) are the
whole privacy argument of a measurement; each entry has its proof there and a brute-force test over all small
neighbouring data sets. `relations` has the relations in words and in files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal, get_args

from tallytree.core.arguments import FLAG, TEXT, expect, instance, told
from tallytree.core.errors import SpecError
from tallytree.domain.categories import NO_CATEGORIES, Categories
from tallytree.tables.group_sizes import Columns, GroupSizes, Options, check_unaltered, shared_fields

UnitKind = Literal["one_entity", "one_group"]
HouseholdUnitKind = Literal["one_group", "one_group_added_or_removed", "one_person_attributes"]
GROUP_UNITS, HOUSEHOLD_UNITS = get_args(UnitKind), get_args(HouseholdUnitKind)
AS_READ = instance(GroupSizes, "as tallytree.read makes it")
View = Literal["counts", "counts_total", "at_least", "sorted_sizes", "totals", "entities", "largest", "chain"]
# Refused by category where members decide it.
MOVED_BY_MEMBERS: tuple[View, ...] = ("at_least", "sorted_sizes", "entities", "chain")


@dataclass(frozen=True)
class PrivacyUnit:
    """Whose presence or contents are protected; `one_entity` and `one_group` make units for group sizes.

    Parameters
    ----------
    kind : str
        For group sizes, "one_entity" protects one person or trip, and "one_group" a whole group. For household
        microdata, "one_group" is a whole household, replaced by any other, empty ones included; how many households
        there are is public. "one_group_added_or_removed" is a whole household that is added or removed; their number
        is private. "one_person_attributes" are the attributes of one person; households, their attributes and their
        sizes are *not* protected.
    same_unit_as : tuple of str, optional
        A statement of the data holder: the columns of these data mean the same unit as these columns of the ledger's
        account. The privacy statement repeats it.
    """

    kind: UnitKind | HouseholdUnitKind
    same_unit_as: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        named, listed = self.same_unit_as, isinstance(self.same_unit_as, Sequence)
        if not listed or isinstance(named, str) or not all(isinstance(name, str) and name for name in named):
            expected = "expected a list of column names, such as ['household_id']"
            raise SpecError(f"same_unit_as is {told(named)}; {expected}")
        object.__setattr__(self, "same_unit_as", tuple(dict.fromkeys(named)))
        expect(self.kind, TEXT, "the privacy unit")
        check_kind(self, tuple(dict.fromkeys((*GROUP_UNITS, *HOUSEHOLD_UNITS))))

    @classmethod
    def of(cls, value: PrivacyUnit | str) -> PrivacyUnit:
        """Return a unit, or the unit that a word of a spec names.

        Parameters
        ----------
        value : PrivacyUnit or str
            A unit, or its word, such as "one_entity".

        Returns
        -------
        PrivacyUnit
            The unit.

        Raises
        ------
        SpecError
            If the word names no unit.
        """
        if not isinstance(value, PrivacyUnit | str):
            raise SpecError(f"unit is {told(value)}; expected one_entity(), one_group(), or either word as a text")
        return cls(value) if isinstance(value, str) else value  # type: ignore[arg-type]


def check_kind(unit: PrivacyUnit, kinds: Sequence[str]) -> None:
    """Refuse a unit of any other kind than these."""
    if unit.kind not in kinds:
        raise SpecError(f"unknown privacy unit {unit.kind!r}; expected {' or '.join(kinds)}")


def one_entity(same_unit_as: Sequence[str] = ()) -> PrivacyUnit:
    """Protect one entity (a person, a trip): it is added or removed.

    Parameters
    ----------
    same_unit_as : list of str, optional
        Columns of the ledger's account that mean the same unit as the columns of these data. See `PrivacyUnit`.

    Returns
    -------
    PrivacyUnit
        The unit.
    """
    return PrivacyUnit("one_entity", same_unit_as)  # type: ignore[arg-type]  # which makes a tuple of it


def one_group(same_unit_as: Sequence[str] = ()) -> PrivacyUnit:
    """Protect a whole group (a household, a driver): it is replaced, or (with private totals) added or removed.

    Parameters
    ----------
    same_unit_as : list of str, optional
        Columns of the ledger's account that mean the same unit as the columns of these data. See `PrivacyUnit`.

    Returns
    -------
    PrivacyUnit
        The unit.
    """
    return PrivacyUnit("one_group", same_unit_as)  # type: ignore[arg-type]  # which makes a tuple of it


@dataclass(frozen=True)
class Sensitivity:
    """The most a view of one whole level can change between neighbours: L1 norm, and squared L2 norm (both exact)."""

    l1: int
    l2_squared: int


@dataclass(frozen=True)
class Neighbours:
    """Which tables of groups are neighbours: the unit and every public bound. Sensitivities follow from it.

    Parameters
    ----------
    unit : PrivacyUnit
        Whom the relation protects.
    max_size : int
        The largest size that is counted separately.
    public_totals : bool
        Whether the number of groups in every region is public.
    quantity_bound : int, default 1
        The largest quantity that one row may have.
    rows_per_entity : int, default 1
        The largest number of rows that one entity may have.
    entity_column : bool, default False
        Whether a column says whose row it is.
    groups_were_split : bool, default False
        Whether each pair of group and region counts as one group.
    rows_were_bounded : bool, default False
        Whether rows beyond `rows_per_entity` were dropped.
    categories : Categories, optional
        The categories that divide groups.
    groups_listed : bool, default False
        Whether there is a public list of groups and regions without their categories.
    columns : Columns, optional
        The names of the columns for group, region and entity.

    Examples
    --------
    >>> Neighbours(one_entity(), max_size=5, public_totals=False).sensitivity("counts").l1
    2
    """

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
    # What a group, region and entity is. The ledger compares it by itself: see `relations.differing_columns`.
    columns: Columns | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit", PrivacyUnit.of(self.unit))
        object.__setattr__(self, "columns", Columns.of(self.columns))
        check_kind(self.unit, GROUP_UNITS)
        for flag in ("public_totals", "entity_column", "groups_were_split", "rows_were_bounded", "groups_listed"):
            expect(getattr(self, flag), FLAG, flag)
        expect(self.categories, instance(Categories), "categories")
        for bound in ("max_size", "quantity_bound", "rows_per_entity"):
            value = getattr(self, bound)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SpecError(f"{bound} must be an integer of at least 1, not {told(value)}")
        self._refuse_unprotected()
        if self.unit.kind == "one_group":  # a group is protected whatever entities are in it
            object.__setattr__(self, "rows_per_entity", 1)
            object.__setattr__(self, "entity_column", False)
            if self.columns is not None:
                object.__setattr__(self, "columns", replace(self.columns, entity=None))

    def _refuse_unprotected(self) -> None:
        """Refuse a unit that cannot protect data of these bounds."""
        if self.unit.kind == "one_group" and self.groups_were_split:
            raise SpecError(
                "groups that span leaves were split, which one_group cannot protect: replacing a group's contents "
                "would change several of the pairs it was split into. Use one_entity, or give each group one leaf."
            )
        if self.unit.kind == "one_group" and self.rows_were_bounded:
            raise SpecError(
                "rows beyond rows_per_entity were dropped, which one_group cannot protect: the kept rows of one group "
                "would depend on another group's rows. Use one_entity, or read without rows_per_entity."
            )
        if self.categories.members_decide and (self.public_totals or self.rows_were_bounded):
            raise SpecError(
                "members decide a category, so neither a public list of groups that has it nor a bound on rows that "
                "are dropped can be combined with it: both would have to stay as they are when the category changes"
            )

    @classmethod
    def of(cls, group_sizes: GroupSizes | Options, unit: PrivacyUnit | str) -> Neighbours:
        """Return the relation under which data may be measured; refuse a unit that cannot protect them.

        Each bound is the attribute of the same name, of the counts or of the options. So the relation that options
        state before any row is read is that of the counts which `read` makes under them. Counts that were altered
        since are refused.

        Parameters
        ----------
        group_sizes : GroupSizes or Options
            The private counts, or the public options of reading them.
        unit : PrivacyUnit or str
            Whom to protect.

        Returns
        -------
        Neighbours
            The relation.

        Raises
        ------
        SpecError
            If this unit cannot protect these counts.
        """
        if not isinstance(group_sizes, Options):
            expect(group_sizes, AS_READ, "group_sizes")
            check_unaltered(group_sizes, GroupSizes)
        return cls(**shared_fields(group_sizes, cls) | {"unit": unit})

    @property
    def truncated(self) -> bool:
        """Return whether rows may have been dropped to respect rows_per_entity. (Older files state only the bound.)"""
        return self.rows_were_bounded or self.rows_per_entity > 1

    def sensitivity(self, view: View, regions: int | None = None, *, summed: bool = False) -> Sensitivity:
        """Return the most that `view`, over all regions of one level together, changes between neighbours.

        `regions` is how many regions the level has; only `chain` depends on it. With `summed` it is the view of the
        level's regions over all categories.

        `one_entity`, one row. The row adds z ≤ z_max to one group of one region of the level, so the group goes from
        size a to size b with 0 ≤ b − a ≤ m, where m = min(z_max, K) because sizes are capped at K.
          counts: cell a loses one and cell b gains one: 2 / 2. (With private totals there is no cell 0, so one of the
          two may be missing; that is less.)
          counts_total: the counts and, where totals are private, their total. If a and b are positive, two counts
          change and the total does not. If one of the two is 0, one count and the total change. So the total costs
          nothing: 2 / 2. With public totals it would be the same number for all neighbours, and is refused.
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
          counts and counts_total: 2 / 2 as above. at_least: |b − a| ≤ K cells change by one: K / K.
          sorted_sizes: one entry changes by |b − a| ≤ K: K / K², as above.
          totals: 1 / 1 with private totals, 0 with public ones. entities: one sum changes by |b − a| ≤ K: K / K².
          largest: refused. One group can move it over the whole range 0 … K, so noise would drown it.
        *A private table of groups* (persons and households in two files). Counting joins the two: a group has its
        region and its category from its row in that table, and its size from its rows. The table has one row for each
        group, and each row of the microdata has its group there; other data are refused. A group without rows is not
        counted.
          `one_entity`: the rows of one entity are added or removed. Rows of groups that have no rows left may come or
          go with them, in any number. They are not counted, so the counts are those of the same change in a single
          table of joined rows, and the proofs above hold. A group's region and category are the group's own, so this
          unit does not protect them (`decided by the group`, below).
          `one_group`: the data of a group are its row in the table of groups and all its rows in the microdata. It is
          added, removed, or replaced in its region and category. This changes only the joined rows of the group.
        So the number of groups is private, those without rows included. A public list is another domain: its groups
        stay, and a group without rows has size 0.

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
          another one gain it: 2 / 2. counts_total: both of these at once, each number by one: 4 / 4. at_least: a
          cells change in the one and b in the other, up to 2 K in all; lists, numbers of entities and the chain
          likewise. These are refused. largest: does not see categories, and is as
          above.
          a public list of groups and regions without their categories (`groups_listed`): neighbours are fewer, for no
          group comes or goes; so each bound for private totals holds, and more may be charged than is needed.
          such a list and `rows_per_entity`: the domain is about all rows, before any are dropped. Each listed group has
          an entity, and all its rows agree on its region and category. So whether a table is in the domain, and the
          category of each group, do not depend on the random selection; `tables.count.Counting.query` computes both
          on all rows. A listed group may still keep no row. It is then counted as size 1: its size is
          min(K, max(1, s)), with s the sum over its kept rows. Fix the key. By `tables.count.truncated` the kept
          rows of two neighbours differ in at most b rows of one entity. Each row moves one s by at most z_max. The
          clamp is monotone and moves no two sizes further apart, so each of the b steps takes one group from
          size a to size b' within 1 … K, with |b' − a| ≤ m, in the same region and category: the case of one row above.
          Members cannot decide a category here (`Options` refuses it).
          summed, in both cases: the sums over all categories do not see which one a group is in, so they are the
          view of the same data without categories, and change as it does: as above.

        Parameters
        ----------
        view : str
            The view of the counts, such as "counts" or "at_least".
        regions : int, optional
            The number of regions of the level; needed for "chain".
        summed : bool, default False
            Whether the view is of the level's regions over all categories.

        Returns
        -------
        Sensitivity
            Bounds of the change in L1 and in L2².

        Raises
        ------
        SpecError
            If the view is unknown, or refused for this relation.
        """
        groups_change = 0 if self.public_totals else 1
        if self.unit.kind == "one_group":
            moved, times = self.max_size, 1
        else:
            moved, times = min(self.quantity_bound, self.max_size), self.rows_per_entity
        # What one row (or the group) can do: how many numbers change, and by how much each at the most.
        once = {
            "counts": (2, 1),
            "counts_total": (2, 1),
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
        if view == "counts_total" and self.public_totals:
            raise SpecError("totals are public, so counts_total would measure known numbers; measure counts")
        if self.categories.members_decide and not summed:
            if view in MOVED_BY_MEMBERS:
                raise SpecError(
                    f"{view} cannot be measured by category where members decide it: one of them can move a group of "
                    f"any size from one category to another, which changes up to {2 * self.max_size} numbers. Measure "
                    "counts by category, and at_least over all categories (mechanism tallytree does)"
                )
            once["totals"], once["counts_total"] = (2 * groups_change, 1), (4, 1)
        numbers, by = once[view]
        return Sensitivity(l1=numbers * by * times, l2_squared=numbers * (by * times) ** 2)


# -------------------------------------------------------------------- household microdata


@dataclass(frozen=True)
class HouseholdNeighbours:
    """Which tables of households are neighbours: the unit and the largest number of persons. Sensitivities follow.

    Tables are `Marginal`s of a `Schema` (`tallytree.domain.schema`).

    Parameters
    ----------
    unit : PrivacyUnit
        Whom the relation protects.
    max_persons : int
        The largest number of persons that a household can have.
    columns : Columns, optional
        The names of the columns that say which household a row is of.
    """

    unit: PrivacyUnit
    max_persons: int
    columns: Columns | None = field(default=None, compare=False)  # what a household is; the ledger compares it

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", Columns.of(self.columns))
        object.__setattr__(self, "unit", PrivacyUnit.of(self.unit))
        check_kind(self.unit, HOUSEHOLD_UNITS)
        if isinstance(self.max_persons, bool) or not isinstance(self.max_persons, int) or self.max_persons < 1:
            raise SpecError(f"max_persons must be an integer of at least 1, not {told(self.max_persons)}")

    @property
    def number_is_public(self) -> bool:
        """Return whether all neighbours have the same number of households."""
        return self.unit.kind != "one_group_added_or_removed"

    def check_schema(self, schema: Any) -> None:
        """Refuse a schema with households of another largest size.

        Parameters
        ----------
        schema : Schema
            The schema of the attributes.
        """
        if schema.max_persons != self.max_persons:
            raise SpecError(
                f"the schema has max_persons={schema.max_persons}, the neighbour relation {self.max_persons}; "
                "they must agree"
            )

    def sensitivity(self, marginal: Any, schema: Any) -> Sensitivity:
        """Return the most that all counts of `marginal` together change between neighbours.

        M is the most persons of a household, A the number of cells over the household attributes (not size), C that
        over the person attributes (1 without such attributes).

        A household adds to a table a vector of its own, and the table is the sum of these. A household added or
        removed changes the table by one such vector v, a household replaced by a difference v − w of two.

        Households, no person attributes: v has a single 1, at the household's attributes (and size).
          Added or removed: 1 / 1. Replaced: the 1 moves: 2 / 2; but 0 where the table has one cell only, for then it
          is the number of households.
        Households, with person attributes: v has a 1 in each cell that one of its persons has, so at most
          k = min(M, C) ones, all at one place of size and household attributes.
          Added or removed: k / k. Replaced: the entries of v − w are −1, 0 or 1, so L1 and L2² are both the number of
          cells that only one of the two has: 2k at most, reached where the two differ in household attributes (A > 1).
          With A = 1 and no size both lie among the same C cells: min(2k, C). With A = 1 and size they lie so if they
          have as many persons, otherwise one has at most M − 1: max(min(2k, C), k + min(M − 1, C)).
        Persons: v counts the household's n ≤ M persons by cell, so its L1 is n and its L2² at most n².
          Added or removed: M / M². Replaced, with A·C > 1: L1 of v − w is at most the sum 2M; L2² is at most
          |v|² + |w|² = 2M², for no entry is negative so v·w ≥ 0; reached by two households of M alike persons each, in
          different cells. With A·C = 1 and no size there is one cell, the number of persons, and it changes by at
          most M: M / M². With A·C = 1 and size, sizes n ≠ m have different cells: n + m ≤ 2M − 1 and
          n² + m² ≤ M² + (M − 1)².
        One person's attributes: the person's household keeps its size and attributes, so tables without person
          attributes (or with C = 1) stay as they are: 0. Otherwise the person moves from one cell to another of the
          same household: of persons, 2 / 2. Of households, the first cell loses the household if nobody else there
          has it and the second gains it if nobody had it: 2 / 2.

        By role: each household alone determines who is in a role, so the table is a sum over
          households again. With r different roles named, a household that has somebody in each adds to the table as
          above, but for its at most n = M − r other persons, at the one place that its own attributes and those of
          the r persons have: A is then the number of cells over both. A household without such a person adds nothing.
          So all entries above hold with n for M, as bounds. A table of one cell without persons is 1 / 1 where a
          household is replaced, for either may lack the role.
          One person's attributes: refused where an attribute tells roles, for a person who changes it could make
          somebody else the head. By position, or by attributes of the household, roles stay. With R > 1 cells over the
          roles' attributes somebody in a role can move all that the household adds from one place to another: twice
          what a household added or removed changes. Otherwise as above.

        In groups: who is in a role is decided by the values themselves. After that, the table is that of a data set in
          which each value is replaced by its group, value by value and row by row. Neighbours stay neighbours under
          this replacement, or become equal. So all entries above hold with A, C and R the numbers of cells of the
          grouped table. The groups must not depend on private counts; those of a synthesis follow from noisy ones.

        Parameters
        ----------
        marginal : Marginal
            The table.
        schema : Schema
            The schema of the attributes.

        Returns
        -------
        Sensitivity
            Bounds of the change in L1 and in L2².
        """
        most = self.max_persons - len(marginal.role_names)
        homes, people = self._cells(marginal, schema)
        if self.unit.kind == "one_person_attributes":
            if marginal.roles and self._role_cells(marginal, schema) > 1:
                added = HouseholdNeighbours(PrivacyUnit("one_group_added_or_removed"), self.max_persons)
                one = added.sensitivity(marginal, schema)
                return Sensitivity(2 * one.l1, 2 * one.l2_squared)
            return Sensitivity(2, 2) if people > 1 else Sensitivity(0, 0)
        replaced = self.unit.kind == "one_group"
        if marginal.of == "persons":
            if not replaced or (homes == people == 1 and not marginal.size):
                return Sensitivity(most, most**2)
            other = most if homes * people > 1 else most - 1
            return Sensitivity(most + other, most**2 + other**2)
        if not marginal.person:
            moved = 1 if not replaced else 2 if homes > 1 or marginal.size else 1 if marginal.roles else 0
            return Sensitivity(moved, moved)
        ones = min(most, people)
        if not replaced:
            changed = ones
        elif homes > 1:
            changed = 2 * ones
        else:
            changed = min(2 * ones, people)
            if marginal.size:
                changed = max(changed, ones + min(most - 1, people))
        return Sensitivity(changed, changed)

    def cells_sensitivity(self, marginal: Any, number: int, schema: Any) -> Sensitivity:
        """Return the most that any `number` cells of `marginal` together change between neighbours.

        They are a part of the table, so they change by no more than the whole does, in either norm. And one cell
        changes by at most b: a household is counted in a cell of a households table or not, so b = 1; in a persons
        table it is counted with at most M persons (M − r by role) and at least none, so b = M, or b = 1 where a single
        person moves and takes nobody along, as somebody in a role does.
        So L1 is at most `number` · b and L2² at most `number` · b².

        Parameters
        ----------
        marginal : Marginal
            The table.
        number : int
            The number of cells.
        schema : Schema
            The schema of the attributes.

        Returns
        -------
        Sensitivity
            Bounds of the change in L1 and in L2².
        """
        if number < 1:
            raise SpecError(f"a measurement needs at least one cell, not {number}")
        whole = self.sensitivity(marginal, schema)
        alone = self.unit.kind == "one_person_attributes" and not marginal.roles
        one = self.max_persons - len(marginal.role_names) if marginal.of == "persons" and not alone else 1
        return Sensitivity(min(whole.l1, number * one), min(whole.l2_squared, number * one**2))

    def _cells(self, marginal: Any, schema: Any) -> tuple[int, int]:
        """Return the numbers of cells of household and role attributes (without size), and of person attributes."""
        marginal.check(schema)
        self.check_schema(schema)
        if marginal.roles and self.unit.kind == "one_person_attributes" and roles_by_attribute(schema):
            raise SpecError(
                f"the table of {marginal.describe()} cannot be asked for under one_person_attributes, since an "
                "attribute of persons tells their roles: one person who changes it could change the roles of others. "
                "Tell roles by position, leave such tables out, or protect one_group"
            )
        lengths = marginal.lengths(schema)
        homes = len(lengths) - len(marginal.person)
        return prod(lengths[:homes]), prod(lengths[homes:])

    def _role_cells(self, marginal: Any, schema: Any) -> int:
        first = len(marginal.household)
        return prod(marginal.lengths(schema)[first : first + len(marginal.roles)])


def roles_by_attribute(schema: Any) -> bool:
    """Return whether an attribute of persons determines their roles."""
    return schema.structure is not None and schema.structure.attribute is not None


Relation = Neighbours | HouseholdNeighbours
