"""The options of `read`, checked together before any row is touched; every message says what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tallytree.errors import SpecError
from tallytree.hierarchy import Hierarchy

WHOLE_FLOATS = 2**53  # quantities below this are exact in every engine's floating point


@dataclass(frozen=True)
class Options:
    """What is counted, and how: all public."""

    group: str
    region: tuple[str, ...]  # one column: a leaf's id or name; several: one per level, top down; none: one leaf
    hierarchy: Hierarchy | None
    max_size: int
    quantity: str | None
    quantity_bound: int | None
    entity: str | None
    rows_per_entity: int | None
    with_groups: bool
    split: bool
    regions_are_public: bool


def checked(
    *,
    group: str,
    region: str | Sequence[str] | None,
    hierarchy: Hierarchy | None,
    max_size: int,
    quantity: str | None,
    quantity_bound: int | None,
    entity: str | None,
    rows_per_entity: int | None,
    groups: Any,
    on_spanning_group: str,
    regions_are_public: bool,
) -> Options:
    """The options in one value, or a `SpecError`."""
    if not (region is None or isinstance(region, str | Sequence)):
        raise SpecError(f"region is {region!r}; expected a column, or a list of columns from the top down")
    columns = () if region is None else (region,) if isinstance(region, str) else tuple(region)
    if region is not None and not columns:
        raise SpecError("region is an empty list; expected a column, or one column per level from the top down")
    if on_spanning_group not in ("error", "split"):
        raise SpecError(f"on_spanning_group={on_spanning_group!r}; expected 'error' or 'split'")
    if (quantity is None) != (quantity_bound is None):
        raise SpecError("quantity and quantity_bound go together: a column, and the public bound of one row's value")
    if rows_per_entity is not None and entity is None:
        raise SpecError("rows_per_entity needs entity: the column that tells whose row it is")
    _whole(max_size, "max_size")
    if quantity_bound is not None:
        _whole(quantity_bound, "quantity_bound")
    if rows_per_entity is not None:
        _whole(rows_per_entity, "rows_per_entity")
    _own_columns(
        {"group": group, **{f"region[{number}]": column for number, column in enumerate(columns)}}
        | ({} if quantity is None else {"quantity": quantity})
        | ({} if entity is None else {"entity": entity})
    )
    if hierarchy is not None and not isinstance(hierarchy, Hierarchy):
        raise SpecError(f"hierarchy is of type {type(hierarchy).__name__}; expected a tallytree.Hierarchy")
    _regions(columns, hierarchy, groups is not None, regions_are_public)
    split = on_spanning_group == "split"
    if split and not columns:
        raise SpecError("on_spanning_group='split' needs region: the column that tells where a row is")
    return Options(
        group=group,
        region=columns,
        hierarchy=hierarchy,
        max_size=max_size,
        quantity=quantity,
        quantity_bound=quantity_bound,
        entity=entity,
        rows_per_entity=rows_per_entity,
        with_groups=groups is not None,
        split=split,
        regions_are_public=regions_are_public,
    )


def _regions(columns: Sequence[str], hierarchy: Hierarchy | None, with_groups: bool, public: bool) -> None:
    if hierarchy is not None and public:
        raise SpecError(
            "regions_are_public takes the hierarchy from the microdata; leave it out, as hierarchy is given"
        )
    if not columns and (hierarchy is None or hierarchy.leaf_count > 1):
        raise SpecError("region is missing; only a hierarchy of a single leaf can do without")
    if hierarchy is None and not with_groups and not public:
        raise SpecError(
            "hierarchy is missing. It must come from a public table of regions (or from a public groups table): taken "
            "from the microdata, a county would vanish with its only resident, which no noise can hide. If the list "
            "of regions in the microdata is public knowledge anyway, say regions_are_public=True; the privacy "
            "statement will repeat it"
        )


def _whole(value: Any, option: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < WHOLE_FLOATS:
        raise SpecError(f"{option}={value!r}; expected a whole number from 1 to below 2**53")


def _own_columns(columns: dict[str, Any]) -> None:
    seen: dict[str, str] = {}
    for option, column in columns.items():
        if not isinstance(column, str) or not column:
            raise SpecError(f"{option} is {column!r}; expected the name of a column")
        if column in seen:
            raise SpecError(f"{seen[column]} and {option} are both column {column!r}; expected a column each")
        seen[column] = option
