"""`Settings`: the options of `tallytree`, and their possible values.

`bands` are bands of sizes, each with its own allocation of the budget to the levels. The shares have to add up at each
size (`privacy.plan.Plan`), so each band allocates the entire budget. A band may also say how its leaves are measured.
"""

from __future__ import annotations

import math
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
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.plan import Band

Leaves = Literal["at_least", "beliefs", "lists", "counts", "counts_total"]
FORM = "a list such as [{to = 3, shares = [1, 1, 3]}, {shares = [4, 4, 1]}]"
LISTS: Leaves = "lists"
BELIEFS: Leaves = "beliefs"
AT_LEAST: Leaves = "at_least"
COUNTS: Leaves = "counts"
COUNTS_TOTAL: Leaves = "counts_total"  # what counts are where totals are private
SIZES_PER_GROUP = 4  # with fewer groups in a leaf than a largest size divided by this, lists are measured
FEWEST_SIZES = 40  # with a smaller largest size lists hardly pay, even with few groups
MOST_COUNTED = 64  # with a larger largest size, tables of counts take long, and nothing is shrunk
MOST_STATES = 1 << 26  # the most sizes × groups of a leaf that a posterior of counts may have


class DividedBand(NamedTuple):
    """The sizes after those of the band before, up to `to` (None: all larger ones), and the levels' shares there."""

    to: int | None
    shares: Mapping[str, Fraction] | Sequence[Fraction]  # by name, or from the top level down
    leaves: Leaves | None = None  # how leaves are measured here; None: as in all bands

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `read_bands` takes them."""
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
    bands: tuple[DividedBand, ...] | None = None  # bands of sizes, each with its own shares of the levels
    borrow: bool = True  # whether leaves are shrunk towards their parent's shape
    totals_share: Fraction | None = None  # of the budget, for private totals; lists need them
    entities_share: Fraction | None = None  # of the budget, for the number of entities of each region
    lists_below: Fraction | None = None  # lists if the average leaf has fewer measured groups; else at_least
    all_share: Fraction | None = None  # of the budget, for sums over categories; members' categories need them


def choose_leaves(groups: float, most_groups: int, sizes: int) -> Leaves:
    """Return how leaves are measured, by how many groups they have on average and at most."""
    if SIZES_PER_GROUP * groups < sizes:
        return LISTS
    many = sizes >= FEWEST_SIZES and groups <= SIZES_PER_GROUP * sizes and most_groups * sizes <= MOST_STATES
    return BELIEFS if many else AT_LEAST


def estimates_counts(neighbours: Neighbours) -> bool:
    """Return whether `tallytree` measures counts by default: they have less noise, and it can estimate them."""
    possible = neighbours.max_size <= MOST_COUNTED and not neighbours.categories.members_decide
    return possible and not leans_to_at_least(neighbours)


def leans_to_at_least(neighbours: Neighbours) -> bool:
    """Return whether noisy `at_least` counts are more precise than noisy counts, as estimates of `at_least` counts."""
    survival = neighbours.sensitivity("at_least", summed=True).l1
    return survival < neighbours.sensitivity("counts").l1 or noise_ratio(neighbours) > 1


def noise_ratio(neighbours: Neighbours) -> float:
    """Return how many times the noise of measured `at_least` counts those have that are derived from noisy counts.

    Let one entity change `at_least` counts by a and counts by c in all (L1), so that numbers have noise of variance a²
    v and c² v. An `at_least` count derived from counts is the sum of those from its size up, about K/2 of them on
    average: c² v K/2. If the total is public, it can also be the total less those below. The best combination has about
    c² v K/6 on average, like a bridge tied at both ends. So counts are better from a² = c² K/2, or c² K/6, on. That is
    the case if an entity may add much to its group, and for entire groups, which change all K `at_least` counts.
    """
    survival = neighbours.sensitivity("at_least", summed=True).l1
    counts = neighbours.sensitivity("counts").l1
    added = 6 if neighbours.public_totals else 2
    return math.sqrt(neighbours.max_size * counts**2 / (added * survival**2))


def read_option(option: str, value: Any) -> Any:
    """Return an option's value as `Settings` holds it; refuse a wrong one with a SpecError."""
    if option in ("totals_share", "entities_share", "all_share"):
        return read_share(option, value)
    if option == "lists_below":
        groups = exact(value, option)
        if groups <= 0:
            raise SpecError(f"lists_below must be a number of groups above 0, not {value!r}")
        return groups
    if option == "borrow":
        if not isinstance(value, bool):
            raise SpecError(f"`borrow` must be true or false, not {value!r}")
        return value
    if option == "bands":
        return read_bands(value)
    return read_leaves(value)


def read_bands(value: Any) -> tuple[DividedBand, ...]:
    """Return the option's value, checked as far as possible without a hierarchy and a largest size."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise SpecError(f"bands is {'empty' if value == [] else told(value)}; expected {FORM}")
    bands = tuple(_read(one) for one in value)
    if any(band.to is None for band in bands[:-1]):
        raise SpecError("every band but the last needs its largest size: to = 3, for example")
    ends = [band.to for band in bands if band.to is not None]
    if any(before >= after for before, after in pairwise(ends)):
        raise SpecError(f"each band must end at a larger size than the band before it, and these end at {ends}")
    return bands


def _read(one: Any) -> DividedBand:
    if not isinstance(one, Mapping):
        raise SpecError(f"bands contains {told(one)}; expected {FORM}")
    if "shares" not in one:
        raise SpecError(f"a band of sizes has no shares; expected {FORM}")
    if unknown := [name for name in one if name not in DividedBand._fields]:
        raise SpecError(f"unknown key {unknown[0]!r} of a band of sizes; choose from {', '.join(DividedBand._fields)}")
    to, shares = one.get("to"), one["shares"]
    leaves = None if one.get("leaves") is None else read_leaves(one["leaves"])
    if to is not None and (isinstance(to, bool) or not isinstance(to, int) or to < 1):
        raise SpecError(f"the largest size of a band is {told(to)}; expected an integer, 1 or more")
    if isinstance(shares, Mapping):
        named = {level: exact(share, f"the share of {level}") for level, share in shares.items()}
        return DividedBand(to, named, leaves)
    if isinstance(shares, str) or not isinstance(shares, Sequence):
        raise SpecError(f"the shares of a band are {told(shares)}; expected a number for each level")
    return DividedBand(to, tuple(exact(share, "a band's share") for share in shares), leaves)


def read_leaves(value: Any) -> Leaves:
    """Return how leaves are measured; refuse anything else."""
    if value not in get_args(Leaves):
        raise SpecError(f"leaves must be {' or '.join(get_args(Leaves))}, not {value!r}")
    chosen: Leaves = value
    return chosen


def up_to(bands: tuple[DividedBand, ...], max_size: int) -> tuple[DividedBand, ...]:
    """Return the bands up to the largest size; refuse bands that do not fit."""
    before = bands[-2].to if len(bands) > 1 else None
    if before is not None and before >= max_size:
        raise SpecError(f"a band ends at size {before}, so the next has no sizes: the largest size is {max_size}")
    if bands[-1].to not in (None, max_size):
        raise SpecError(
            f"the last band ends at size {bands[-1].to}, but the largest size is {max_size}: leave out its `to`"
        )
    return (*bands[:-1], bands[-1]._replace(to=max_size))


def divisions(bands: tuple[DividedBand, ...], hierarchy: Hierarchy) -> list[Division]:
    """Return each band with exact shares that add up to 1. A single band covers all sizes."""
    parts = [level_shares(hierarchy, band.shares, some_without=True) for band in bands]
    if len(bands) == 1:
        return [Division(None, parts[0])]
    found, first = [], 1
    for band, shares in zip(bands, parts, strict=True):
        if band.to is None:
            raise SpecError("the last band ends at the largest size, which is not known here: give it as `to`")
        found.append(Division(Band(first, band.to), shares))
        first = band.to + 1
    return found
