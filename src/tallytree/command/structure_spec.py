"""`[roles]` and `[rules]` of a synthesis' spec: who is who in a household, and what holds for all of them."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from tallytree.command.spec import Section
from tallytree.core.errors import SpecError
from tallytree.domain.attributes import Attribute
from tallytree.domain.edit_rules import Below, Has, Implies, Number, Role, Rule, SizeClass, Structure, missing_together

Values = dict[str, str | int | list[str | int]]


class RoleSection(Section):
    """A role: by `attribute` and `values`, or by `position`."""

    number: Number = "any"
    attribute: str | None = None
    values: list[str | int] | None = None
    position: int | None = None
    household: Values | None = None
    may: Values | None = None


class ImpliesSection(Section):
    """If `when`, then `then`; of persons in a role, if one is named."""

    then: Values
    when: Values | None = None
    role: str | None = None


class BelowSection(Section):
    """An attribute of those in `role` is below that of the one in `than`, by at least `by`."""

    role: str
    than: str
    attribute: str
    by: int | Decimal = 0


class HasSection(Section):
    """Households with these values have somebody in the role; with `only` no others have."""

    role: str
    household: Values
    only: bool = False


class SizeClassSection(Section):
    """A household attribute that follows from the number of persons."""

    attribute: str
    sizes: dict[str, int | list[int]]


class RulesSection(Section):
    """What holds for all households, and what to do with those of the data that break it."""

    empty: bool = True
    on_broken_rules: Literal["refuse", "keep"] | None = None
    implies: list[ImpliesSection] | None = None
    below: list[BelowSection] | None = None
    has: list[HasSection] | None = None
    size_class: list[SizeClassSection] | None = None
    missing_together: list[list[str]] | None = None


def structure_of(
    roles: dict[str, RoleSection] | None, rules: RulesSection | None, attributes: tuple[Attribute, ...]
) -> Structure | None:
    """The structure that the two sections state; None where there is neither."""
    if roles is None and rules is None:
        return None
    named = tuple(
        Role(
            name,
            section.number,
            attribute=section.attribute,
            values=tuple(map(str, section.values or ())),
            position=section.position,
            household=_condition(section.household),
            may=_condition(section.may),
        )
        for name, section in (roles or {}).items()
    )
    given = rules or RulesSection()
    found: list[Rule] = [Implies(_condition(one.then), _condition(one.when), one.role) for one in given.implies or ()]
    found += [Below(one.role, one.than, one.attribute, float(one.by)) for one in given.below or ()]
    found += [Has(one.role, _condition(one.household), one.only) for one in given.has or ()]
    for one in given.size_class or ():
        rows = []
        for value, sizes in one.sizes.items():
            listed = [sizes, sizes] if isinstance(sizes, int) else sizes
            if len(listed) != 2:
                raise SpecError(
                    f"[rules] size_class of {one.attribute!r}: {value!r} needs a number of persons, or the least and "
                    "the most"
                )
            rows.append((value, listed[0], listed[1]))
        found.append(SizeClass(one.attribute, tuple(rows)))
    known = {attribute.name: attribute for attribute in attributes}
    for names in given.missing_together or ():
        found += missing_together(known, tuple(names))
    return Structure(named, tuple(found), given.empty)


def _condition(values: Values | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(
        (name, tuple(map(str, given if isinstance(given, list) else [given]))) for name, given in (values or {}).items()
    )
