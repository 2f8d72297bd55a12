"""`Structure`: the roles and rules of a schema as one value, checked against its attributes and against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tallytree.core.arguments import FLAG, either, expect, instance, several
from tallytree.core.errors import SpecError
from tallytree.domain.attributes import Attribute
from tallytree.domain.structure.roles import Role
from tallytree.domain.structure.rules import Below, Has, Implies, Rule, SizeClass, rule_from_json

MOST_ROLES = 4  # for at most one person each: every one of them may be there or not


@dataclass(frozen=True)
class Structure:
    """Who is who in a household (`roles`) and what holds for all of them (`rules`); with `empty` false none is empty.

    Exactly one person in a role means: in every household that has persons.
    """

    roles: tuple[Role, ...] = ()
    rules: tuple[Rule, ...] = ()
    empty: bool = True

    def __post_init__(self) -> None:
        expect(self.roles, several(instance(Role)), "roles")
        expect(self.rules, several(either(*map(instance, (Implies, Below, Has, SizeClass)))), "rules")
        expect(self.empty, FLAG, "empty")
        object.__setattr__(self, "roles", tuple(self.roles))
        object.__setattr__(self, "rules", tuple(self.rules))
        names = [role.name for role in self.roles]
        if len(set(names)) != len(names):
            raise SpecError("two roles have the same name")
        columns = {role.attribute for role in self.roles}
        if len(columns) > 1:
            raise SpecError("all roles are told by the values of one attribute, or all by position")
        values = [value for role in self.roles for value in role.values]
        if twice := sorted({value for value in values if values.count(value) > 1}):
            raise SpecError(f"a value tells one role: {', '.join(twice)} is named for two")
        places = sorted(role.position for role in self.roles if role.position is not None)
        if places != [*range(1, len(places) + 1)]:
            raise SpecError("positions of roles are 1, 2, … without a gap, each once")
        if sum(role.number == "at most one" for role in self.roles) > MOST_ROLES:
            raise SpecError(f"there are more than {MOST_ROLES} roles of at most one person")

    @property
    def attribute(self) -> str | None:
        """The attribute that tells all roles; None where positions do, or there are none."""
        return self.roles[0].attribute if self.roles else None

    @property
    def single(self) -> tuple[Role, ...]:
        """The roles of one person at most: those that every household has first, then in the order given."""
        found = [role for role in self.roles if role.single]
        return tuple(sorted(found, key=lambda role: (role.position or 0, role.number != "exactly one")))

    def role(self, name: str) -> Role:
        """A role by name."""
        for role in self.roles:
            if role.name == name:
                return role
        raise SpecError(f"there is no role {name!r}; there are {', '.join(role.name for role in self.roles) or 'none'}")

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """The rules, and what roles say about the values of those in them."""
        return (*(Implies(role=role.name, then=role.may) for role in self.roles if role.may), *self.rules)

    def check(self, household: Mapping[str, Attribute], person: Mapping[str, Attribute], most: int) -> None:
        """Refuse what the attributes do not have."""
        for role in self.roles:
            role.check(household, person)
        named = {role.name: role for role in self.roles}
        for rule in self.rules:
            rule.check(named, household, person)
        if (least := len(self.single)) > most:
            raise SpecError(f"there are {least} roles of one person, and a household has at most {most} persons")

    def in_words(self) -> list[str]:
        """All that must hold, a line each, in the order in which broken ones are counted."""
        lines = [] if self.empty else ["no household is empty"]
        lines += [f"{role.number} {role.name}" for role in self.roles if role.single and role.position is None]
        return [*lines, *(rule.in_words() for rule in self.all_rules)]

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        return {
            "roles": [role.to_json() for role in self.roles],
            "rules": [rule.to_json() for rule in self.rules],
            "empty": self.empty,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Structure:
        """What `to_json` wrote."""
        return cls(
            tuple(Role.from_json(role) for role in values["roles"]),
            tuple(rule_from_json(rule) for rule in values["rules"]),
            values["empty"],
        )
