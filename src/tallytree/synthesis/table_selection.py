"""Which tables a budget affords, from public facts: what is measured in any case, what is measured besides, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from math import pi, sqrt
from typing import NamedTuple

from tallytree.domain.schema import Marginal, Schema
from tallytree.privacy.neighbours import HouseholdNeighbours, Sensitivity, roles_by_attribute
from tallytree.synthesis.methods import NUMBER, PERSONS
from tallytree.synthesis.roles import role_tables, structural_tables
from tallytree.synthesis.workload import Workload, is_sum_of

MEAN_SIZE = sqrt(2 / pi)  # of normal noise, in standard deviations
SIZES = Marginal("households", size=True)
FEW_CELLS, MANY_CELLS = 16, 64  # below and above, the part of a structural table no longer depends on them


class Shares(NamedTuple):
    """The parts of the budget for kinds of tables; those by role and structural ones take theirs from the sweep."""

    first: float
    sweep: float
    by_role: float
    structural: float
    asked: float


class Parts(NamedTuple):
    """What of the budget goes where: for all first tables together, for each one that is measured besides in any case,
    and for the sweep.
    """

    first: Fraction
    by_role: dict[Marginal, Fraction]
    structural: dict[Marginal, Fraction]
    asked: dict[Marginal, Fraction]
    sweep: Fraction

    @property
    def required(self) -> dict[Marginal, Fraction]:
        """Return all tables that are measured in any case, besides the first."""
        return {**self.by_role, **self.structural, **self.asked}

    def limited(self, enough: Callable[[Marginal], float]) -> Parts:
        """Return the same with no more than is `enough` for each one-way table by role; the sweep gets the rest."""
        by_role = {table: min(part, Fraction(enough(table))) for table, part in self.by_role.items()}
        return self._replace(by_role=by_role, sweep=self.sweep + sum(self.by_role.values()) - sum(by_role.values()))


def parts_of_the_budget(schema: Schema, workload: Workload, neighbours: HouseholdNeighbours, shares: Shares) -> Parts:
    """From public facts alone. Tables of a kind share in proportion to the fourth root of their squared sensitivity:
    between alike, and what would make the noise of all together least. Structural ones also share by
    `structural_weight`, and one-way tables by role by the square root of their cells. Where structural tables are
    measured the first tables need only half of what they get otherwise, since sizes and ages are sums of them; the
    sweep has the other half.
    """
    always = set(first_tables(schema))
    asked = [table for table in workload.measured if table not in always and neighbours.sensitivity(table, schema).l1]
    allowed = neighbours.unit.kind != "one_person_attributes" or not roles_by_attribute(schema)
    by_role, structural = (
        [table for table in tables if table not in asked and neighbours.sensitivity(table, schema).l1]
        for tables in ((role_tables(schema), structural_tables(schema)) if allowed else ((), ()))
    )

    def divided(weights: dict[Marginal, float], whole: float) -> dict[Marginal, Fraction]:
        roots = {
            table: weight * neighbours.sensitivity(table, schema).l2_squared ** 0.25
            for table, weight in weights.items()
        }
        return {table: Fraction(whole * root / sum(roots.values())) for table, root in roots.items()}

    parts = (
        divided({table: sqrt(table.cells(schema)) for table in by_role}, shares.by_role),
        divided({table: structural_weight(schema, table) for table in structural}, shares.structural),
        divided(dict.fromkeys(asked, 1.0), shares.asked),
    )
    taken = sum((sum(part.values(), Fraction(0)) for part in parts), Fraction(0))
    first = Fraction(shares.first) / (2 if structural else 1)
    return Parts(first, *parts, max(Fraction(shares.sweep) + Fraction(shares.first) - first - taken, Fraction(0)))


def structural_weight(schema: Schema, table: Marginal) -> float:
    """Return the square root of the cells, taken as neither few nor many: two sexes by two need less than ages
    by ages.
    """
    return sqrt(min(max(table.cells(schema), FEW_CELLS), MANY_CELLS))


@dataclass(frozen=True)
class TableSelection:
    """What is known when tables are chosen to be measured at once: about how many households and persons there are, how
    much noise a table may have, and what was measured before.
    """

    schema: Schema
    sensitivity: Callable[[Marginal], Sensitivity]
    number: float
    per_household: float  # persons
    worth: float
    measured: frozenset[Marginal] = frozenset()

    def tables(self, candidates: Iterable[Marginal], budget: float) -> list[Marginal]:
        """Return the tables to measure for `budget` together: all candidates, if each is then measured well enough.

        Otherwise costly persons tables are left to the rounds: one household can change them by far more than it
        changes the households tables of the same attributes, and the fit learns most of what they say from those and
        from the `helping_tables`. As many of these are taken as can all be measured well enough.
        """
        every = list(candidates)
        chosen, all_of_them = self.measured_well(every, budget)
        if not all_of_them:
            cheaper = dict.fromkeys([*map(self._cheaper, every), *helping_tables(self.schema)])
            chosen, _ = self.measured_well([one for one in cheaper if self.sensitivity(one).l1], budget)
        return [one for one in chosen if not any(one != other and is_sum_of(one, other) for other in chosen)]

    def _cheaper(self, marginal: Marginal) -> Marginal:
        """For a persons table, the households table of the same attributes, if that is less sensitive."""
        homes = replace(marginal, of="households")
        less = 0 < self.sensitivity(homes).l2_squared < self.sensitivity(marginal).l2_squared
        return homes if less else marginal

    def measured_well(self, marginals: Sequence[Marginal], budget: float) -> tuple[list[Marginal], bool]:
        """As many tables as can all be measured well enough, those with the least noise first; and are these all?

        The first n tables get a share of 1/n each; n is the largest for which each one's noise is expected to sum to
        no more than `worth` of what the table counts in all.
        """
        ranked = sorted((marginal for marginal in marginals if marginal not in self.measured), key=self.noise)
        number = 0
        for place, marginal in enumerate(ranked, start=1):
            if self.noise(marginal) * sqrt(place / budget) <= self.worth:
                number = place
        return ranked[:number], number == len(ranked)

    def noise(self, marginal: Marginal) -> float:
        """Return what noise sums to, as a part of the whole, for a budget of 1; a household is in a cell for some
        persons of it, here taken as half of them and at least one.
        """
        spread = sqrt(self.sensitivity(marginal).l2_squared / 2)
        persons = self.per_household
        counted = persons if marginal.of == "persons" else max(1, persons / 2) if marginal.person else 1
        return MEAN_SIZE * spread * marginal.cells(self.schema) / (self.number * max(counted, 0.1))


def first_tables(schema: Schema) -> list[Marginal]:
    """Return households by their number of persons and by each attribute of theirs, persons by each of theirs."""
    return [
        SIZES,
        *(Marginal("households", (attribute.name,)) for attribute in schema.household if attribute.codes > 1),
        *(Marginal("persons", (), (attribute.name,)) for attribute in schema.person if attribute.codes > 1),
    ]


def helping_tables(schema: Schema) -> list[Marginal]:
    """Return households by their number of persons and one attribute of theirs: cheap, and they say how many persons
    live where.
    """
    return [
        Marginal("households", (attribute.name,), size=True) for attribute in schema.household if attribute.codes > 1
    ]


def parts_of(marginals: Iterable[Marginal]) -> list[Marginal]:
    """Return the tables over at least two, and fewer than all, of each table's attributes."""
    found: dict[Marginal, None] = {}
    for marginal in marginals:
        if marginal.roles or marginal.groups:
            continue
        names = [*marginal.household, *marginal.person]
        for number in range(2, len(names)):
            for chosen in combinations(names, number):
                household = tuple(name for name in marginal.household if name in chosen)
                person = tuple(name for name in marginal.person if name in chosen)
                found[Marginal(marginal.of, household, person, marginal.size)] = None
    return list(found)


# -------------------------------------------------------------------- why a table was measured


SIMPLE, BY_ROLE, STRUCTURAL, FURTHER = "sizes and attributes", "attributes of roles", "for the roles", "further tables"
KINDS = (SIMPLE, BY_ROLE, STRUCTURAL, FURTHER)


def kind_of(table: Marginal, schema: Schema) -> str:
    """Return one of `KINDS`, by which a plan and a synthesis report their tables."""
    kinds = zip(KINDS, ((NUMBER, *first_tables(schema)), role_tables(schema), structural_tables(schema)), strict=False)
    return next((kind for kind, tables in kinds if replace(table, groups=()) in tables), FURTHER)


def noise_by_kind(rows: Iterable[tuple[Marginal, float]], schema: Schema) -> dict[str, float]:
    """Return the root mean square, over all counts of a kind's tables, of each table's noise or error on one count."""
    sums: dict[str, tuple[float, int]] = dict.fromkeys(KINDS, (0.0, 0))
    for table, error in rows:
        kind, cells = kind_of(table, schema), table.cells(schema)
        squares, number = sums[kind]
        sums[kind] = squares + cells * error**2, number + cells
    return {kind: sqrt(squares / number) for kind, (squares, number) in sums.items() if number}


ASKED = "in the workload"
TOTAL = "a total, as the base of shares"
FIRST = "sizes or one attribute, on which all else builds"
ROLES = "for the roles, so that households look like households"
PART = "a part of a table of the workload, with less noise"
CHEAPER = "households in place of persons, which takes less noise"
HELPING = "sizes by an attribute, which say how many persons live where"
OTHER = "chosen by the method"
REASONS = (ASKED, TOTAL, FIRST, ROLES, PART, CHEAPER, HELPING, OTHER)


class MeasurementReasons:
    """The reasons for tables of one workload."""

    def __init__(self, workload: Workload) -> None:
        schema, asked = workload.schema, set(workload)
        parts = set(parts_of(workload))
        self._reasons = (
            (asked, ASKED),
            ({NUMBER, PERSONS}, TOTAL),
            (set(first_tables(schema)), FIRST),
            ({*role_tables(schema), *structural_tables(schema)}, ROLES),
            (parts, PART),
            ({replace(table, of="households") for table in (*asked, *parts)}, CHEAPER),
            (set(helping_tables(schema)), HELPING),
        )

    def why(self, table: Marginal) -> str:
        """Return one of `REASONS`: the first that holds."""
        whole = replace(table, groups=())
        return next((reason for tables, reason in self._reasons if table in tables or whole in tables), OTHER)
