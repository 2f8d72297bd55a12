"""What columns of counts and of entities mean, in the same words wherever they appear.

With `rows_per_entity` rows are dropped before anything is counted. No promise about counts reaches back beyond that:
intervals hold the counts of what is left. How much was dropped is private, and `tallytree validate` tells the data
holder.

The number of entities of a region is derived from the released counts, Σ size · count, so the two agree whatever was
measured. Groups of the last size or more count with that size, so the number is a lower bound where there are larger
ones: what groups have beyond the last size is cut off when data are read, and measured nowhere. `open_groups` says how
many groups that may be.
"""

from __future__ import annotations

from tallytree.privacy.neighbours import Neighbours

AS_TRUNCATED = "of the data as truncated"


def truncation(neighbours: Neighbours) -> str:
    """What was left out before counting, in one sentence; empty where nothing can have been."""
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
    """What the column `count` means, wherever it appears."""
    text = "number of groups of that size in that region, with noise for privacy"
    told = truncation(neighbours)
    return f"{text}. {told}" if told else text


def entity_description(neighbours: Neighbours, max_size: int) -> str:
    """What the column `entities` means, wherever it appears."""
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
    """The cut-off of every number of entities and every mean size, in the words that stand next to it."""
    return f"sizes above {max_size} counted as {max_size}"


def cut_off(max_size: int) -> str:
    """Why the number of entities can be too low, in one sentence."""
    return (
        f"Groups of {max_size} or more count as {max_size}, so the number leaves out what larger groups have beyond "
        f"{max_size}."
    )


def open_description(max_size: int) -> str:
    """What the column `open_groups` means."""
    return f"released number of groups of size {max_size} or more, each of which counts as {max_size} entities"
