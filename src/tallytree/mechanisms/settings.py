"""`Settings`: the options of `tallytree`, and what may be given for each.

`bands` are bands of sizes, each with its own allocation of the budget to the levels. What has to add up is the shares
at each size (`privacy.plan.Plan`), so each band allocates the whole of it. A band may also say how its leaves are
measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

from tallytree.core.arguments import told
from tallytree.core.errors import SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.mechanisms.budget_allocation import level_shares
from tallytree.mechanisms.mechanism import read_share
from tallytree.privacy.budget import exact
from tallytree.privacy.plan import Band

Leaves = Literal["at_least", "beliefs", "lists"]
FORM = "a list such as [{to = 3, shares = [1, 1, 3]}, {shares = [4, 4, 1]}]"
LISTS: Leaves = "lists"
BELIEFS: Leaves = "beliefs"
AT_LEAST: Leaves = "at_least"
SIZES_PER_GROUP = 4  # with fewer groups in a leaf than a largest size divided by this, lists are measured
FEWEST_SIZES = 40  # with a smaller largest size lists hardly pay, however few groups there are
MOST_STATES = 1 << 26  # sizes × groups of a leaf that beliefs may have to go through


class DividedBand(NamedTuple):
    """The sizes after those of the band before, up to `to` (None: all larger ones), and the levels' shares there."""

    to: int | None
    shares: Mapping[str, Fraction] | Sequence[Fraction]  # by name, or from the top level down
    leaves: Leaves | None = None  # how leaves are measured here; None: as everywhere

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `read_bands` takes them."""
        plain = (
            {level: str(share) for level, share in self.shares.items()}
            if isinstance(self.shares, Mapping)
            else [str(share) for share in self.shares]
        )
        given = {"to": self.to, "shares": plain, "leaves": self.leaves}
        return {name: value for name, value in given.items() if value is not None}


class Division(NamedTuple):
    """A band of sizes, None for all, with the exact share of each level from the top down."""

    band: Band | None
    shares: tuple[Fraction, ...]


class Settings(NamedTuple):
    """The options of `tallytree`."""

    leaves: Leaves | None = None  # how leaves are measured; None: decided from public facts
    bands: tuple[DividedBand, ...] | None = None  # bands of sizes, each divided over the levels in its own way
    borrow: bool = True  # may a leaf learn from its parent's shape?
    totals_share: Fraction | None = None  # of the budget, for private totals; lists need them
    entities_share: Fraction | None = None  # of the budget, for the number of entities of each region
    lists_below: Fraction | None = None  # with fewer measured groups in a leaf on average, lists; else at_least
    all_share: Fraction | None = None  # of the budget, for sums over categories; members' categories need them


def choose_leaves(groups: float, most_groups: int, sizes: int) -> Leaves:
    """How leaves are measured, by how many groups they have on average and at most."""
    if SIZES_PER_GROUP * groups < sizes:
        return LISTS
    many = sizes >= FEWEST_SIZES and groups <= SIZES_PER_GROUP * sizes and most_groups * sizes <= MOST_STATES
    return BELIEFS if many else AT_LEAST


def read_option(option: str, value: Any) -> Any:
    """An option's value as `Settings` has it, or a SpecError."""
    if option in ("totals_share", "entities_share", "all_share"):
        return read_share(option, value)
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


def read_bands(value: Any) -> tuple[DividedBand, ...]:
    """The option's value, checked as far as it can be without a hierarchy and a largest size."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise SpecError(f"bands is {'empty' if value == [] else told(value)}; expected {FORM}")
    bands = tuple(_read(one) for one in value)
    if any(band.to is None for band in bands[:-1]):
        raise SpecError("every band but the last must say up to which size it goes: to = 3, say")
    ends = [band.to for band in bands if band.to is not None]
    if any(before >= after for before, after in pairwise(ends)):
        raise SpecError(f"each band goes on to a larger size than the one before it, and these go to {ends}")
    return bands


def _read(one: Any) -> DividedBand:
    if not isinstance(one, Mapping):
        raise SpecError(f"bands has an entry {told(one)}; expected {FORM}")
    if "shares" not in one:
        raise SpecError(f"a band of sizes has no shares; expected {FORM}")
    if unknown := [name for name in one if name not in DividedBand._fields]:
        raise SpecError(f"a band of sizes has no {unknown[0]!r}; it has {', '.join(DividedBand._fields)}")
    to, shares = one.get("to"), one["shares"]
    leaves = None if one.get("leaves") is None else read_leaves(one["leaves"])
    if to is not None and (isinstance(to, bool) or not isinstance(to, int) or to < 1):
        raise SpecError(f"the size that a band goes to is {told(to)}; expected an integer, 1 or more")
    if isinstance(shares, Mapping):
        named = {level: exact(share, f"the share of {level}") for level, share in shares.items()}
        return DividedBand(to, named, leaves)
    if isinstance(shares, str) or not isinstance(shares, Sequence):
        raise SpecError(f"shares of a band is {told(shares)}; expected a number for each level")
    return DividedBand(to, tuple(exact(share, "a band's share") for share in shares), leaves)


def read_leaves(value: Any) -> Leaves:
    """How leaves are measured; anything else is refused."""
    if value not in get_args(Leaves):
        raise SpecError(f"leaves must be {' or '.join(get_args(Leaves))}, not {value!r}")
    chosen: Leaves = value
    return chosen


def up_to(bands: tuple[DividedBand, ...], max_size: int) -> tuple[DividedBand, ...]:
    """The bands, the last of which goes to the largest size; those that cannot are refused."""
    before = bands[-2].to if len(bands) > 1 else None
    if before is not None and before >= max_size:
        raise SpecError(f"a band goes to size {before}, which leaves none for the next: the largest size is {max_size}")
    if bands[-1].to not in (None, max_size):
        raise SpecError(
            f"the last band goes to size {bands[-1].to}, and the largest size is {max_size}: leave out its `to`"
        )
    return (*bands[:-1], bands[-1]._replace(to=max_size))


def divisions(bands: tuple[DividedBand, ...], hierarchy: Hierarchy) -> list[Division]:
    """Each band with exact shares that add up to 1. One band alone is all sizes."""
    parts = [level_shares(hierarchy, band.shares, some_without=True) for band in bands]
    if len(bands) == 1:
        return [Division(None, parts[0])]
    found, first = [], 1
    for band, shares in zip(bands, parts, strict=True):
        if band.to is None:
            raise SpecError("the last band goes to the largest size, which is not known here: give it as `to`")
        found.append(Division(Band(first, band.to), shares))
        first = band.to + 1
    return found
