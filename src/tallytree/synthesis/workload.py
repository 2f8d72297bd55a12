"""The workload: which tables the synthetic households should get right (HQR, Section 3 and Appendix A.1.2).

For a set of attributes there are two tables: one counts households, one persons. A query of the paper is one cell.
All attribute sets of three in the paper's ACS-SMALL domain have 820 cells; both tables together are its 1,640 queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

from tallytree.core.arguments import expect, instance, several
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.domain.schema import SIZE, Marginal, Schema, check_all
from tallytree.synthesis.public_stream import PublicStream
from tallytree.tables.contingency import check_size

MOST_TABLES = 1000  # of the default workload


@dataclass(frozen=True)
class Workload:
    """The tables over a schema's attributes that a synthesis should answer well.

    Parameters
    ----------
    schema : Schema
        The schema.
    marginals : tuple of Marginal
        The tables, each named once.
    measured : tuple of Marginal, optional
        The tables that are measured in any case.
    """

    schema: Schema
    marginals: tuple[Marginal, ...]
    measured: tuple[Marginal, ...] = ()

    __repr__ = briefly

    def __post_init__(self) -> None:
        expect(self.schema, instance(Schema), "schema")
        expect(self.marginals, several(instance(Marginal)), "marginals")
        object.__setattr__(self, "marginals", tuple(self.marginals))
        if not self.marginals:
            raise SpecError("a workload needs at least one table")
        check_all(self.marginals, self.schema)
        if len(set(self.marginals)) != len(self.marginals):
            raise SpecError("the workload names a table twice")
        expect(self.measured, several(instance(Marginal)), "measured")
        object.__setattr__(self, "measured", tuple(dict.fromkeys(self.measured)))
        if other := [table for table in self.measured if table not in self.marginals]:
            raise SpecError(f"to be measured, a table must be in the workload: {other[0].describe()} is not")

    def __len__(self) -> int:
        return len(self.marginals)

    def __iter__(self) -> Iterator[Marginal]:
        return iter(self.marginals)

    @property
    def queries(self) -> int:
        """Return how many counts all tables have together."""
        return sum(marginal.cells(self.schema) for marginal in self.marginals)

    def check(self, schema: Schema) -> None:
        """Refuse another schema than the workload's own, and tables that are too large to be counted.

        Parameters
        ----------
        schema : Schema
            The schema of the data.

        Raises
        ------
        SpecError
            If the schema or a table is refused.
        """
        if self.schema != schema:
            raise SpecError("the workload is for another schema than the households")
        for marginal in self.marginals:
            check_size(marginal, schema)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` reads them back."""
        named = {"schema": self.schema.to_json(), "marginals": [marginal.to_json() for marginal in self.marginals]}
        return {**named, "measured": [table.to_json() for table in self.measured]} if self.measured else named

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Workload:
        """Read what `to_json` returned.

        Parameters
        ----------
        values : dict
            What `to_json` returned.

        Returns
        -------
        Workload
            The workload.
        """
        marginals, measured = (
            tuple(Marginal.from_json(marginal) for marginal in values.get(name, ()))
            for name in ("marginals", "measured")
        )
        return cls(Schema.from_json(values["schema"]), marginals, measured)


def all_sets(schema: Schema, k: int = 3, *, smaller: bool = False, size: bool = False) -> Workload:
    """Return both tables of every set of `k` attributes; with `smaller` of every set of at most `k`.

    With `size` the number of persons is one more attribute of households. The table of households over no attribute
    at all is left out, because their number is public.
    """
    _check_k(schema, k, size)
    sets = [
        chosen
        for number in range(0 if smaller else k, k + 1)
        for of_households in range(number + 1)
        for chosen in _sets(schema, of_households, number - of_households, size)
    ]
    return Workload(schema, tuple(_both(schema, sets)))


def sampled_sets(schema: Schema, k: int, per_count: int, seed_text: str, *, size: bool = False) -> Workload:
    """Return both tables of `per_count` sets of `k` attributes for each number 0 … k of household attributes among
    them.

    Where fewer sets exist all are taken. The sample depends on the schema and the seed text alone, which are public.
    """
    _check_k(schema, k, size)
    if per_count < 1:
        raise SpecError(f"per_count must be at least 1, not {per_count}")
    household, person = len(schema.household) + size, len(schema.person)
    sets = []
    for of_households in range(k + 1):
        there_are = comb(household, of_households) * comb(person, k - of_households)
        order = PublicStream(f"attribute sets, {of_households} of {k}: {seed_text}").order(there_are)
        taken = set(order[:per_count].tolist())
        every = enumerate(_sets(schema, of_households, k - of_households, size))
        sets += [chosen for place, chosen in every if place in taken]
    return Workload(schema, tuple(_both(schema, sets)))


def named(schema: Schema, sets: Iterable[Sequence[str]]) -> Workload:
    """Return both tables of each set of attribute names; 'persons' names the number of persons in the household.

    `role.attribute` names an attribute of the person in a role: 'head.age'. A set of such names and household
    attributes has one table, of households; with attributes of persons, those of the others, it has two.
    """
    household = [SIZE, *(attribute.name for attribute in schema.household)]
    known = {attribute.name for attribute in (*schema.household, *schema.person)}
    roles = {role.name for role in schema.structure.roles} if schema.structure is not None else set()
    found: list[Marginal] = []
    seen: set[frozenset[str]] = set()
    for names in sets:
        if isinstance(names, str):
            raise SpecError(f"a set of attributes is a list of names, not the text {names!r}")
        if frozenset(names) in seen:
            raise SpecError(f"the set {', '.join(names)} is named twice")
        seen.add(frozenset(names))
        if len(set(names)) != len(names):
            raise SpecError(f"the set {', '.join(names)} names an attribute twice")
        pairs = {}
        for name in names:
            role, _, attribute = name.partition(".")
            if name not in known and name != SIZE and attribute and role in roles:
                pairs[name] = role, attribute
            elif name != SIZE:
                schema.attribute(name)
        homes = tuple(name for name in names if name in household)
        people = tuple(name for name in names if name not in household and name not in pairs)
        if not pairs:
            found += _both(schema, [(homes, people)])
            continue
        rest, by = tuple(name for name in homes if name != SIZE), tuple(pairs.values())
        for of in ("households", "persons") if people else ("households",):
            found.append(Marginal("persons" if of == "persons" else "households", rest, people, SIZE in homes, by))
    return Workload(schema, tuple(dict.fromkeys(found)))


def default_workload(schema: Schema) -> Workload:
    """Return all sets of up to three attributes, or as many as make about a thousand tables, and the sizes of
    households.

    Sets of the larger numbers are sampled once there are too many; which ones depends on the schema alone.
    """
    most = min(3, len(schema.household) + len(schema.person))
    chosen = dict.fromkeys([Marginal("households", size=True)])
    for k in range(1, most + 1):
        every = all_sets(schema, k)
        room = MOST_TABLES - len(chosen)
        if len(every) > room:
            per_count = max(1, room // (2 * (k + 1)))
            every = sampled_sets(schema, k, per_count, "default workload")
        chosen.update(dict.fromkeys(every))
    return Workload(schema, tuple(chosen))


def is_sum_of(coarse: Marginal, fine: Marginal) -> bool:
    """Is each count of `coarse` a sum of counts of `fine`?

    Values of attributes exclude each other, so a table of persons may be summed over any attribute, and a table of
    households over those of households and over size. But a household can contain persons of several values: over the
    attributes of persons, tables of households do not add up. Tables by role are about the households that have such
    persons, so both need the same roles. An attribute that both have must have the same groups in both: a table in
    groups is never taken for the one with all values.
    """
    if coarse.of != fine.of or set(coarse.role_names) != set(fine.role_names) or not {*coarse.axes} <= {*fine.axes}:
        return False
    return coarse.of == "persons" or len(coarse.person) == len(fine.person)


def _check_k(schema: Schema, k: int, size: bool) -> None:
    attributes = len(schema.household) + len(schema.person) + size
    if not 1 <= k <= attributes:
        raise SpecError(f"k must lie between 1 and {attributes}, the number of attributes, not be {k}")


def _sets(
    schema: Schema, of_households: int, of_persons: int, size: bool
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    household = [*([SIZE] if size else []), *(attribute.name for attribute in schema.household)]
    for homes in combinations(household, of_households):
        for people in combinations([attribute.name for attribute in schema.person], of_persons):
            yield homes, people


def _both(schema: Schema, sets: Iterable[tuple[tuple[str, ...], tuple[str, ...]]]) -> Iterator[Marginal]:
    for homes, people in sets:
        rest = tuple(name for name in homes if name != SIZE)
        if homes or people:
            yield Marginal("households", rest, people, SIZE in homes)
        yield Marginal("persons", rest, people, SIZE in homes)
