"""Neighbour relations in words and in files, and whether an account and a charge are about the same unit.

What a relation is, and how far neighbours are apart, is in `neighbours`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tallytree.domain.categories import Categories
from tallytree.privacy.neighbours import HouseholdNeighbours, Neighbours, PrivacyUnit, Relation
from tallytree.tables.group_sizes import Columns

GROUP_SIZES, HOUSEHOLDS = "group_sizes", "households"  # the kinds of relations, in files
ABSENT = "none"  # stands in same_unit_as for a column that the account does not have


def describe_relation(relation: Relation) -> str:
    """Return the relation in words, for the privacy statement."""
    words = _describe_sizes(relation) if isinstance(relation, Neighbours) else _describe_households(relation)
    return f"{words}{_same_unit_in_words(relation)}"


def _describe_sizes(relation: Neighbours) -> str:
    totals = (
        "The list of groups with their regions is public, so the number of groups in every region is known exactly."
        if relation.public_totals and not relation.categories.columns
        else "The list of groups with their regions and categories is public, so the number of groups in every "
        "region and category is known exactly."
        if relation.public_totals
        else "The list of groups with their regions is public, and each group on it has at least one entity in "
        "both data sets; so the number of groups in every region is known exactly, and not that of any category."
        + (" A group on it counts as size 1 if all its rows were dropped." if relation.truncated else "")
        if relation.groups_listed
        else "The number of groups is private; no total is taken as known."
    )
    largest = f"Groups larger than {relation.max_size} count as {relation.max_size} ('{relation.max_size} or more')."
    told = f" {relation.categories.in_words()}" if relation.categories.columns else ""
    if relation.unit.kind == "one_group":
        within = " and ".join(["its region", *relation.categories.fixed])
        change = (
            f"Neighbouring data sets differ in the contents of one group, replaced within {within}."
            if relation.public_totals
            else f"Neighbouring data sets differ in one group: added, removed, or replaced within {within}."
        )
        return f"{change} {totals} {largest}{told}"
    rows = "one row" if relation.rows_per_entity == 1 else f"at most {relation.rows_per_entity} rows"
    who = (
        f"one entity with all its rows ({rows}; more were dropped blindly)"
        if relation.truncated
        else "one entity (one row each, checked)"
        if relation.entity_column
        else "one row (no entity column was given, so a row is what is protected, not a person with several rows)"
    )
    adds = (
        ""
        if relation.quantity_bound == 1
        else f" A row adds between 0 and {relation.quantity_bound} to its group's size."
    )
    pairs = " A group that spans leaves counts as one group in each of them." if relation.groups_were_split else ""
    change = f"Neighbouring data sets differ in {who}, added or removed.{adds}{pairs}"
    return f"{change} {totals} {largest}{told}"


def _describe_households(relation: HouseholdNeighbours) -> str:
    largest = f"A household counts at most {relation.max_persons} persons."
    if relation.unit.kind == "one_group":
        return (
            "Neighbouring data sets differ in one household, replaced by any other with all its persons and "
            "attributes, empty ones included; so a person who joins, leaves or changes within a household is "
            f"protected too. The number of households is public and known exactly. {largest}"
        )
    if relation.unit.kind == "one_group_added_or_removed":
        return (
            "Neighbouring data sets differ in one household, added or removed with all its persons. The number of "
            "households is private. A household that stays and changes, by as little as one person, counts as one "
            f"removed and one added: twice the epsilon, four times the rho. {largest}"
        )
    return (
        "Neighbouring data sets differ in the attributes of one person. NOT protected: which households there "
        "are, their attributes, the number of persons in each, and so whether a person is in the data at all; "
        f"tables of these may be published exactly. {largest}"
    )


# -------------------------------------------------------------------- in files


def relation_to_json(relation: Relation) -> dict[str, Any]:
    """Plain values; `relation_from_json` reads them back."""
    columns = {} if relation.columns is None else {"columns": relation.columns.to_json()}
    stated = {"same_unit_as": list(relation.unit.same_unit_as)} if relation.unit.same_unit_as else {}
    unit = {"unit": relation.unit.kind}
    if isinstance(relation, HouseholdNeighbours):
        return {"kind": HOUSEHOLDS, **unit, "max_persons": relation.max_persons, **columns, **stated}
    values = asdict(relation) | unit
    del values["categories"], values["columns"]
    if not relation.groups_listed:
        del values["groups_listed"]
    categories = {"categories": relation.categories.to_json()} if relation.categories.columns else {}
    return values | columns | stated | categories


def sizes_from_json(values: dict[str, Any]) -> Neighbours:
    """Return the relation of a release that `relation_to_json` wrote."""
    facts = {name: value for name, value in values.items() if name not in ("kind", "same_unit_as")}
    unit = PrivacyUnit(values["unit"], values.get("same_unit_as", ()))
    return Neighbours(**{**facts, "unit": unit, "categories": Categories.from_json(values.get("categories", ()))})


def households_from_json(values: dict[str, Any]) -> HouseholdNeighbours:
    """Return the relation of a synthesis that `relation_to_json` wrote."""
    unit = PrivacyUnit(values["unit"], values.get("same_unit_as", ()))
    return HouseholdNeighbours(unit, values["max_persons"], values.get("columns"))


def relation_from_json(values: dict[str, Any]) -> Relation:
    """Return the relation of either kind that `relation_to_json` wrote."""
    return households_from_json(values) if values.get("kind") == HOUSEHOLDS else sizes_from_json(values)


# -------------------------------------------------------------------- columns


def _same_unit_in_words(relation: Relation) -> str:
    """Return what the data holder stated, for the privacy statement; nothing for most releases."""
    stated = relation.unit.same_unit_as
    if not stated:
        return ""
    own = [name for names in _by_role(relation.columns).values() for name in names]
    return (
        f" The data holder states that the columns {_listed(own)} of these data mean the same unit as the columns "
        f"{_listed(stated)} of the account that pays. tallytree cannot check this, and costs of the account add up "
        "only if it is true."
    )


def columns_in_words(relation: Relation) -> str:
    """Return the columns of a relation, for the data holder; "not recorded" where none are known."""
    named = {role: names for role, names in _by_role(relation.columns).items() if names}
    return "; ".join(f"{role} {_listed(names)}" for role, names in named.items()) or "not recorded"


def differing_columns(opened: Relation, asked: Relation) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
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


def unknown_columns(opened: Relation, asked: Relation) -> list[str]:
    """Return columns that the data holder speaks of in same_unit_as and that the account does not have."""
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


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) if names else repr(ABSENT)
