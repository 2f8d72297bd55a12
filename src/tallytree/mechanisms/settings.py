"""`Settings`: the options of `tallytree`, and what may be given for each."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from tallytree.core.errors import SpecError
from tallytree.mechanisms.size_bands import DividedBand, Leaves, read_bands, read_leaves
from tallytree.privacy.budget import exact

LISTS: Leaves = "lists"
BELIEFS: Leaves = "beliefs"
AT_LEAST: Leaves = "at_least"
SIZES_PER_GROUP = 4  # with fewer groups in a leaf than a largest size divided by this, lists are measured
FEWEST_SIZES = 40  # with a smaller largest size lists hardly pay, however few groups there are
MOST_STATES = 1 << 26  # sizes × groups of a leaf that beliefs may have to go through


class Settings(NamedTuple):
    """The options of `tallytree`."""

    leaves: Leaves | None = None  # how leaves are measured; None: decided from public facts
    bands: tuple[DividedBand, ...] | None = None  # bands of sizes, each divided over the levels in its own way
    borrow: bool = True  # may a leaf learn from its parent's shape?
    totals_share: Fraction | None = None  # of the budget, for private totals; lists need them
    entities_share: Fraction | None = None  # of the budget, for the number of entities of each region
    lists_below: Fraction | None = None  # with fewer measured groups in a leaf on average, lists; else at_least
    all_share: Fraction | None = None  # of the budget, for sums over categories; members' categories need them


def way_of_leaves(groups: float, most_groups: int, sizes: int) -> Leaves:
    """How leaves are measured, by how many groups they have on average and at most."""
    if SIZES_PER_GROUP * groups < sizes:
        return LISTS
    many = sizes >= FEWEST_SIZES and groups <= SIZES_PER_GROUP * sizes and most_groups * sizes <= MOST_STATES
    return BELIEFS if many else AT_LEAST


def read_option(option: str, value: Any) -> Any:
    """An option's value as `Settings` has it, or a SpecError."""
    if option in ("totals_share", "entities_share", "all_share"):
        share = exact(value, option)
        if not 0 < share < 1:
            raise SpecError(f"{option} must lie between 0 and 1, not {value!r}")
        return share
    if option == "lists_below":
        groups = exact(value, option)
        if groups <= 0:
            raise SpecError(f"lists_below is a number of groups in a leaf, more than 0, not {value!r}")
        return groups
    if option == "borrow":
        if not isinstance(value, bool):
            raise SpecError(f"borrow must be true or false, not {value!r}")
        return value
    if option == "bands":
        return read_bands(value)
    return read_leaves(value)
