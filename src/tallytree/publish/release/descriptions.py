"""Descriptions of the columns of counts and of entities, the same wherever they appear.

With `rows_per_entity` rows are dropped before anything is counted. No statement about counts covers the dropped rows:
intervals hold the counts of the remaining rows. How many rows were dropped is private; `tallytree validate` reports it
to the data holder.

The number of entities of a region is derived from the released counts, Σ size · count, so the two always agree. Groups
of the last size or more count with that size. If there are larger groups, the number is therefore a lower bound:
entities beyond the last size are cut off when data are read, and are not measured. `open_groups` is the released number
of such groups.
"""

from __future__ import annotations

from typing import NamedTuple

from tallytree.privacy.neighbours import Neighbours

AS_TRUNCATED = "of the data as truncated"
MOST_SIZES = 40  # that get a row or a bar each


class SizeClass(NamedTuple):
    """Sizes that are shown in one row; usually a single size."""

    label: str
    first: int
    last: int


def truncation(neighbours: Neighbours) -> str:
    """Return one sentence on what was left out before counting; empty if nothing can have been."""
    if not neighbours.truncated:
        return ""
    most = neighbours.rows_per_entity
    rows = "one row of each entity was" if most == 1 else f"{most} rows of each entity were"
    return (
        f"All counts and intervals describe the data as truncated: at most {rows} kept and any others "
        "dropped, so a group may have lost rows or be missing, and the counts of all rows may lie outside the "
        "intervals."
    )


def count_description(neighbours: Neighbours) -> str:
    """Return the description of the column `count`."""
    text = "number of groups of that size in that region, with noise for privacy"
    told = truncation(neighbours)
    return f"{text}. {told}" if told else text


def entity_description(neighbours: Neighbours, max_size: int) -> str:
    """Return the description of the column `entities`."""
    row = (
        "each row of the data counts as one"
        if neighbours.quantity_bound == 1
        else f"each row of the data counts with its quantity, at most {neighbours.quantity_bound}"
    )
    told = truncation(neighbours)
    return (
        f"number of entities in the groups of that region, with noise for privacy: the sum of size times count; {row}. "
        f"{cut_off(max_size)}" + (f" {told}" if told else "")
    )


def capped_sizes(max_size: int) -> str:
    """Return the note on the size cap that stands next to every number of entities and every mean size."""
    return f"sizes above {max_size} counted as {max_size}"


def cut_off(max_size: int) -> str:
    """Return one sentence on why the number of entities can be too low."""
    return (
        f"Groups of {max_size} or more count as {max_size}, so the number leaves out what larger groups have beyond "
        f"{max_size}."
    )


def open_description(max_size: int) -> str:
    """Return the description of the column `open_groups`."""
    return f"released number of groups of size {max_size} or more; each counts as {max_size} entities"


def size_classes(sizes: range) -> tuple[SizeClass, ...]:
    """Return each size or, if there are many, the classes 0, 1, 2, 3–4, 5–8 and so on.

    >>> [one.label for one in size_classes(range(1, 4))], [one.label for one in size_classes(range(0, 101))][3:]
    (['1', '2', '3+'], ['3–4', '5–8', '9–16', '17–32', '33–64', '65+'])
    """
    found, first = [], sizes[0]
    while first <= sizes[-1]:
        end = first if len(sizes) <= MOST_SIZES or first <= 2 else min(2 * (first - 1), sizes[-1])
        label = f"{first}+" if end == sizes[-1] else str(first) if end == first else f"{first}–{end}"
        found.append(SizeClass(label, first, end))
        first = end + 1
    return tuple(found)
