"""What a release of truncated data says, in the same words wherever it speaks of the truth.

With `rows_per_entity` rows are dropped before anything is counted. No promise about counts reaches back beyond that:
intervals hold the counts of what was kept. How much was dropped is private, and `tallytree validate` tells the data
holder.
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
