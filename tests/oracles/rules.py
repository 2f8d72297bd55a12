"""Rules straight from their definitions, household by household; and small schemas with random structures.

No function of `tallytree.tables.contingency` and none of the search is used.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tallytree.core.errors import SpecError
from tallytree.domain.edit_rules import Attribute, Below, Has, Implies, Role, SizeClass, Structure
from tallytree.domain.schema import Schema
from tests.oracles.households import in_role

AREA = Attribute("area", ("town", "country"))
KIND = Attribute("kind", ("couple", "single", "more"))
RELATION = Attribute("relation", ("head", "spouse", "child", "guest"))
AGE = Attribute("age", ("below 10", "10 to 20", "20 or more"), cuts=(10, 20))
SCHOOL = Attribute("school", ("yes", "no", "none"), missing="none")
HOUSEHOLD, PERSON, MOST = (AREA, KIND), (RELATION, AGE, SCHOOL), 3


def keeps(structure: Structure, schema: Schema, household) -> bool:
    """Does a household (codes, persons in order) keep every rule?"""
    home, persons = household
    values = {each.name: each.values[code] for each, code in zip(schema.household, home, strict=True)}
    people = [
        {each.name: each.values[code] for each, code in zip(schema.person, person, strict=True)} for person in persons
    ]
    if not people and not structure.empty:
        return False
    for role in structure.roles:
        if role.position is None and role.single and people:
            number = sum(person[role.attribute] in role.values for person in people)
            if number > 1 or (number == 0 and role.number == "exactly one"):
                return False

    def has(role, place):
        if role.single:
            return in_role(role.name, home, persons, schema) == place
        return people[place][role.attribute] in role.values

    def holds(condition, known):
        return all(known[name] in allowed for name, allowed in condition)

    named = {role.name: role for role in structure.roles}
    for rule in structure.all_rules:
        if isinstance(rule, SizeClass):
            listed = {value: (least, most) for value, least, most in rule.sizes}
            if values[rule.attribute] in listed:
                least, most = listed[values[rule.attribute]]
                if not least <= len(people) <= most:
                    return False
        elif isinstance(rule, Has):
            there = any(has(named[rule.role], place) for place in range(len(people)))
            wanted = holds(rule.household, values)
            if (wanted and not there) or (rule.only and there and not wanted):
                return False
        elif isinstance(rule, Below):
            for one in range(len(people)):
                for other in range(len(people)):
                    if has(named[rule.role], one) and has(named[rule.than], other):
                        low = {"below 10": -1e9, "10 to 20": 10, "20 or more": 20}[people[one]["age"]]
                        high = {"below 10": 10, "10 to 20": 20, "20 or more": 1e9}[people[other]["age"]]
                        if low + rule.by >= high:
                            return False
        elif rule.role is None and not {name for name, _ in (*rule.when, *rule.then)} & {"relation", "age", "school"}:
            if holds(rule.when, values) and not holds(rule.then, values):
                return False
        else:
            for place, person in enumerate(people):
                known = {**values, **person}
                meant = rule.role is None or has(named[rule.role], place)
                if meant and holds(rule.when, known) and not holds(rule.then, known):
                    return False
    return True


def some(attribute):
    """A condition on one attribute: some of its values."""
    return st.lists(st.sampled_from(attribute.values), min_size=1, max_size=attribute.codes - 1, unique=True).map(
        lambda values: {attribute.name: tuple(values)}
    )


@st.composite
def structures(draw):
    """Random roles and rules over the small schema; they may contradict each other."""
    by_value = draw(st.booleans())
    if by_value:
        roles = [
            Role("head", draw(st.sampled_from(["exactly one", "at most one"])), attribute="relation", values=("head",)),
            Role("spouse", draw(st.sampled_from(["at most one", "any"])), attribute="relation", values=("spouse",)),
            Role("child", attribute="relation", values=("child",), may=draw(some(AGE) | st.just({}))),
        ]
    else:
        where = draw(st.just({}) | some(KIND) | st.just({"kind": "couple", "area": "town"}))
        roles = [
            Role("head", position=1, may=draw(some(AGE) | st.just({}))),
            Role("spouse", position=2, household=where),
        ]
    names = [role.name for role in roles]
    name = st.sampled_from(names)
    condition = st.sampled_from([AREA, KIND, RELATION, AGE, SCHOOL]).flatmap(some)
    rule = st.one_of(
        st.builds(Implies, then=condition, when=condition, role=st.none() | name),
        st.builds(
            Below,
            role=st.sampled_from(names[1:]),
            than=st.just("head"),
            attribute=st.just("age"),
            by=st.sampled_from([0, 5, 10]),
        ),
        st.builds(Has, role=name, household=some(KIND) | some(AREA), only=st.booleans()),
        st.just(SizeClass("kind", {"couple": 2, "single": (0, 1), "more": (2, 3)})),
    )
    rules = draw(st.lists(rule, max_size=3))
    return Structure(tuple(roles), tuple(rules), draw(st.booleans()))


def schema_with(structure: Structure) -> Schema | None:
    """The small schema with this structure; None where the rules contradict each other."""
    try:
        return Schema(HOUSEHOLD, PERSON, MOST, structure)
    except SpecError as error:
        if "contradict" not in str(error):
            raise
        return None
