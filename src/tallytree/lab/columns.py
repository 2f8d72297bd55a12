"""Which columns of a file of counts are levels and which hold sizes, where nobody said; and a refusal where it is not
certain: a level that was invented from a column of totals makes every number of a comparison wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from tallytree.core.errors import SpecError

SIZE_COLUMN = re.compile(r"(?P<prefix>.*?)(?P<size>[0-9]+)(?P<open>plus|\+)?", re.IGNORECASE)
NUMBER = r"^[-+]?[0-9][0-9,. ]*([eE][-+]?[0-9]+)?%?$"
CODE = r"^0[0-9]"  # a number does not begin like this, a code such as 01001 does
LARGEST_FIRST_SIZE = 2  # of columns that are taken for sizes unasked: hh2, hh3 … are sizes, pop2019, pop2020 … are not
JOINT = "\x1f"  # joins the names of a path; no name holds it


class UnclearLevels(SpecError):
    """The columns that are levels have to be said. `likely` are those that may be, from the top down."""

    def __init__(self, told: str, likely: Sequence[str]) -> None:
        self.told, self.likely = told, tuple(likely)
        ask = f"Say which columns are levels, from the top down; if they are {' and '.join(self.likely)}"
        super().__init__(f"{told}. {ask}: levels={list(self.likely)!r}")


class UnclearSizes(SpecError):
    """Which columns hold sizes has to be said. `prefixes` are the texts before the numbers, the likeliest first."""

    def __init__(self, told: str, prefixes: Sequence[str]) -> None:
        self.told, self.prefixes = told, tuple(prefixes)
        super().__init__(f"{told}. Say what stands before the number; for the first of them: size={self.prefixes[0]!r}")


def checked_levels(levels: Sequence[str], numbers: Sequence[str]) -> list[str]:
    """The levels that were stated, or an error."""
    if isinstance(levels, str):
        raise SpecError("levels must be a list of column names from the top down, at least one")
    if both := [level for level in levels if level in numbers]:
        raise SpecError(f"a column cannot be a level and hold numbers: {', '.join(both)}")
    if twice := [level for place, level in enumerate(levels) if level in levels[:place]]:
        raise SpecError(f"a column can be one level only; {', '.join(twice)} is named twice")
    return list(levels)


def certain_levels(path: str | PathLike[str], columns: Mapping[str, Any], numbers: Sequence[str]) -> list[str]:
    """All columns but those of `numbers`, if it is certain that each is a level; else an error that says why not.

    It is not where a column holds numbers that are no codes (a total), divides no region (a description, or a level
    that stands above), has the same names in most regions (another attribute), or stands after the numbers.
    """
    names = list(columns)
    first = min(names.index(column) for column in numbers)
    others = [name for name in names if name not in numbers]
    doubts: dict[str, str] = {}
    levels: list[str] = []
    for name in others:
        above = [columns[level] for level in levels]
        doubt = "stands after the sizes" if names.index(name) > first else _doubt(columns[name], above)
        if doubt:
            doubts[name] = doubt
        else:
            levels.append(name)
    if doubts:
        told = "; ".join(f"column {name!r} {doubt}" for name, doubt in doubts.items())
        listed = ", ".join(names)
        raise UnclearLevels(
            f"the levels of {Path(path).name} are unclear: {told}; it has the columns {listed}", levels or others
        )
    return levels


def _doubt(column: Any, above: Sequence[Any]) -> str:
    """Why a column may be no level below those above it; nothing if it is certain."""
    from pyarrow import compute

    named = column.filter(compute.not_equal(column, ""))
    numeric = compute.all(compute.match_substring_regex(named, NUMBER), min_count=1).as_py()
    if numeric and not compute.any(compute.match_substring_regex(named, CODE)).as_py():
        return "holds numbers, which may be totals or codes"
    if not above:
        return ""
    regions = _distinct(above)
    if 1 < regions == _distinct([*above, column]):
        return "divides no region of the columns before it, so it may describe them"
    alone = max(1, compute.count_distinct(named).as_py())
    present = compute.not_equal(column, "")
    if _distinct([each.filter(present) for each in (*above, column)]) >= 2 * alone > 2:
        return "has the same names in several regions, so it may be another attribute"
    return ""


def _distinct(columns: Sequence[Any]) -> int:
    from pyarrow import compute

    return int(compute.count_distinct(compute.binary_join_element_wise(*columns, JOINT)).as_py())


def size_columns(path: str | PathLike[str], names: Sequence[str], prefix: str | None) -> list[str]:
    """One column per size in the order of sizes: the family with that prefix, or the only one there is."""
    families: dict[str, list[str]] = {}
    for name in names:
        if match := SIZE_COLUMN.fullmatch(name):
            families.setdefault(match["prefix"], []).append(name)
    found = {key: family for key, family in families.items() if len(family) > 1}
    several = ", ".join(f"{family[0]} …" for family in found.values())
    file = Path(path).name
    if prefix is not None:
        if prefix not in families:
            listed = several or ", ".join(names)
            raise SpecError(f"{file} has no size columns {prefix}1, {prefix}2 …; it has {listed}")
        return _checked(file, families[prefix])
    if not found:
        raise SpecError(
            f"{file} has neither the columns 'size' and 'count' nor one column per size "
            f"(such as hh1, hh2, hh3plus); it has {', '.join(names)}"
        )
    likeliest = sorted(found, key=lambda key: -len(found[key]))
    if len(found) > 1:
        raise UnclearSizes(f"{file} has several families of size columns ({several})", likeliest)
    (columns,) = (_checked(file, family) for family in found.values())
    if (first := size_in(columns[0])) > LARGEST_FIRST_SIZE:
        raise UnclearSizes(
            f"the columns {', '.join(columns)} of {file} begin with {first:,}, so they may hold no sizes", likeliest
        )
    return columns


def _checked(file: str, family: Sequence[str]) -> list[str]:
    columns = sorted(family, key=size_in)
    sizes = [size_in(column) for column in columns]
    if sizes != list(range(sizes[0], sizes[0] + len(sizes))):
        raise SpecError(f"the sizes of {file} have gaps or appear twice: {', '.join(columns)}")
    if early := [column for column in columns[:-1] if not column[-1].isdigit()]:
        raise SpecError(f"only the largest size may be open, not {', '.join(early)}")
    return columns


def size_in(column: str) -> int:
    """The size that a column's name ends in."""
    match = SIZE_COLUMN.fullmatch(column)
    assert match
    return int(match["size"])
