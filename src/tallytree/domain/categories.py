"""`Categories`: public values that classify groups besides their region and size, such as tenure.

A group has one value of each category. The privacy guarantee depends on who decides the value, so this is always
stated. If the *group* decides it (a household's building), it does not change when members join or leave. If *members*
decide it (has children), one member can move the whole group to another category.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Literal, NamedTuple, get_args

from tallytree.core.arguments import expect, instance, several, told
from tallytree.core.errors import SpecError

DecidedBy = Literal["group", "members"]
ALL = "all"  # the sum over a category's values, in tables
MOST_COLUMNS = 2
FORM = 'by = {"tenure": {"values": ["owned", "rented"], "decided_by": "group"}}'
RESERVED = (
    *("level", "region", "name", "size", "count", "lower", "upper", "typical_lower", "typical_upper"),
    *("entities", "open_groups", "kind", "area"),
)
WHO = (
    '"group" if it does not change when members join or leave (a tenure, a building), "members" if it can change (has '
    "children, origin of the oldest). There is no default, because privacy rests on it"
)


class AlikeValues(UserWarning):
    """Warn that two values of a category differ only in case or spaces."""


@dataclass(frozen=True)
class Category:
    """A column with public values by which groups are divided, such as tenure, and who decides a group's value.

    Values are compared as text. Anything else in the column is an error, or counts as the value `other`.

    Parameters
    ----------
    name : str
        The column.
    values : tuple of str
        The public values, in the order of the tables.
    decided_by : {"group", "members"}
        Who decides a group's value. With "members", one member can move a group from one value to another. The
        privacy guarantee depends on it.
    other : str, optional
        The value that anything else in the column counts as.

    Examples
    --------
    >>> Category("tenure", ("owned", "rented"), decided_by="group").values
    ('owned', 'rented')
    """

    name: str
    values: tuple[str, ...]
    decided_by: DecidedBy
    other: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SpecError(f"a category is named {told(self.name)}; expected the name of a column")
        if self.name in RESERVED:
            raise SpecError(f"a category cannot be called {self.name!r}: released tables have such a column already")
        if isinstance(self.values, str) or not isinstance(self.values, Sequence):
            raise SpecError(f"the values of {self.name!r} are {told(self.values)}; expected a list of texts")
        values = tuple(self.values)
        if any(isinstance(value, bool) or not isinstance(value, str | int) for value in values):
            raise SpecError(f"the values of {self.name!r} must be texts or integers, as they appear in the column")
        values = tuple(map(str, values))
        object.__setattr__(self, "values", values)
        if len(values) < 2:
            found = "one value" if values else "no values"
            raise SpecError(
                f"the category {self.name!r} has {found}; expected two or more, else there is nothing to tell"
            )
        if any(not value.strip() for value in values):
            raise SpecError(
                f"the category {self.name!r} has an empty value; say with `other` what empty cells count as"
            )
        if twice := sorted({value for value in values if values.count(value) > 1}):
            raise SpecError(f"the category {self.name!r} lists {twice[0]!r} twice")
        if ALL in values:
            raise SpecError(f"the category {self.name!r} has a value {ALL!r}, which stands for the sum over all values")
        if self.decided_by not in get_args(DecidedBy):
            raise SpecError(f"decided_by of {self.name!r} is {told(self.decided_by)}; expected {WHO}")
        if self.other is not None and self.other not in values:
            raise SpecError(f"other = {told(self.other)} is not a value of {self.name!r}; it has {', '.join(values)}")
        plain: dict[str, str] = {}
        for value in values:
            before = plain.setdefault(" ".join(value.casefold().split()), value)
            if before != value:
                warnings.warn(
                    f"the values {before!r} and {value!r} of {self.name!r} differ only in case or spaces",
                    AlikeValues,
                    stacklevel=3,
                )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"name": self.name, "values": list(self.values), "decided_by": self.decided_by, "other": self.other}


@dataclass(frozen=True)
class Categories:
    """Up to two categories together. A group is in one of their `cells`: a value of each.

    Without a category there is one cell, which all groups are in.

    Parameters
    ----------
    columns : tuple of Category, optional
        The categories.

    Examples
    --------
    >>> by = Categories.of({"tenure": {"values": ["owned", "rented"], "decided_by": "group"}})
    >>> by.cells, by.labels, by.members_decide
    ((('owned',), ('rented',)), ('owned', 'rented'), False)
    """

    columns: tuple[Category, ...] = ()

    def __post_init__(self) -> None:
        expect(self.columns, several(instance(Category)), "columns")
        object.__setattr__(self, "columns", tuple(self.columns))
        if len(self.columns) > MOST_COLUMNS:
            raise SpecError(f"by names {len(self.columns)} categories; expected one or two")
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            raise SpecError(f"by names the category {names[0]!r} twice")

    @classmethod
    def of(cls, by: Any, decided_by: Any = None) -> Categories:
        """Return categories from a mapping of columns to values, with or without who decides them.

        Parameters
        ----------
        by : Categories or mapping
            Categories, or values by column, such as ``{"tenure": ["owned", "rented"]}``.
        decided_by : str or mapping, optional
            Who decides a group's value, where `by` does not say it: for all columns, or by column.

        Returns
        -------
        Categories
            The categories.

        Raises
        ------
        SpecError
            If `by` means no categories, or does not say who decides.
        """
        if by is None:
            if decided_by is not None:
                raise SpecError("decided_by says who decides the categories of `by`, but by has none")
            return NO_CATEGORIES
        if isinstance(by, cls):
            return by
        if isinstance(by, Category):
            by = [by]
        if isinstance(by, Mapping):
            by = [_category(name, given, decided_by) for name, given in by.items()]
            if isinstance(decided_by, Mapping) and (
                unknown := [name for name in decided_by if name not in [one.name for one in by]]
            ):
                raise SpecError(f"decided_by names {unknown[0]!r}, which is not a category of `by`")
        if isinstance(by, str) or not isinstance(by, Sequence) or not all(isinstance(one, Category) for one in by):
            raise SpecError(f"by is {told(by)}; expected categories with their public values: {FORM}")
        if not by:
            raise SpecError("by names 0 categories; expected one or two")
        return cls(tuple(by))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """Return all combinations of values; the last column's values change fastest."""
        return tuple(product(*(column.values for column in self.columns)))

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the cells, each as one text."""
        return tuple(", ".join(cell) for cell in self.cells)

    @property
    def members_decide(self) -> bool:
        """Return whether one member can move a group from one cell to another."""
        return any(column.decided_by == "members" for column in self.columns)

    @property
    def fixed(self) -> list[str]:
        """Return the columns that the group decides."""
        return [column.name for column in self.columns if column.decided_by == "group"]

    def __len__(self) -> int:
        """Return the number of cells."""
        return prod(len(column.values) for column in self.columns)

    def places_of(self, values: Sequence[str]) -> tuple[int, ...]:
        """Return the places of the cells with these values.

        Parameters
        ----------
        values : list of str
            A value for each category; "all" stands for any value.

        Returns
        -------
        tuple of int
            The places.
        """
        return tuple(
            place
            for place, cell in enumerate(self.cells)
            if all(value in (ALL, own) for value, own in zip(values, cell, strict=True))
        )

    def in_words(self) -> str:
        """Return what is public of the categories and who decides them, for the privacy statement."""
        told = []
        for column in self.columns:
            mark = "; " if any("," in value for value in column.values) else ", "
            listed = mark.join(column.values[:12]) + (f"{mark}…" if len(column.values) > 12 else "")
            told.append(
                f"Each group has one of {len(column.values)} values of {column.name} ({listed}), "
                + (
                    "which its members decide: it can change for the whole group when a member joins or leaves."
                    if column.decided_by == "members"
                    else "which the group decides: it does not change when members join or leave."
                )
            )
        return " ".join(told)

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain values; `from_json` reads them back."""
        return [column.to_json() for column in self.columns]

    @classmethod
    def from_json(cls, values: Sequence[Mapping[str, Any]]) -> Categories:
        """Read what `to_json` returned.

        Parameters
        ----------
        values : list of dict
            What `to_json` returned.

        Returns
        -------
        Categories
            The categories.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AlikeValues)  # warned about when they were created
            return cls(tuple(Category(**{**one, "values": tuple(one["values"])}) for one in values))


NO_CATEGORIES = Categories()


def _category(name: Any, given: Any, decided_by: Any) -> Category:
    """Return a category from its values, or from a mapping as a spec has it."""
    who = decided_by.get(name) if isinstance(decided_by, Mapping) else decided_by
    if not isinstance(given, Mapping):
        given = {"values": given}
    if unknown := [key for key in given if key not in ("values", "decided_by", "other")]:
        raise SpecError(f"the category {name!r} has no {unknown[0]!r}; it has values, decided_by and other")
    if "values" not in given:
        raise SpecError(f"the category {name!r} has no values; expected the public list of them: {FORM}")
    stated = given.get("decided_by")
    if stated is not None and who is not None and stated != who:
        raise SpecError(f"decided_by of {name!r} is said twice, and not alike: {told(stated)} and {told(who)}")
    decides = stated or who
    if decides is None:
        raise SpecError(f"decided_by of {name!r} is missing; expected {WHO}")
    return Category(name, given["values"], decides, given.get("other"))


class Margin(NamedTuple):
    """A sum over cells: the texts for the columns of a table, and the indices of the cells."""

    values: tuple[str, ...]
    cells: tuple[int, ...]


def margins(categories: Categories) -> tuple[Margin, ...]:
    """Return the sum over all cells and, with two columns, the sums over either one; "all" marks a summed column.

    Without categories there is nothing to sum over, and no margin.

    >>> by = Categories.of({"tenure": ["owned", "rented"], "origin": ["here", "abroad"]}, "group")
    >>> [" ".join(margin.values) for margin in margins(by)]
    ['all all', 'owned all', 'rented all', 'all here', 'all abroad']
    >>> margins(by)[3].cells
    (0, 2)
    """
    wanted: list[tuple[str, ...]] = [(ALL,) * len(categories.columns)] if categories.columns else []
    if len(categories.columns) == 2:
        one, two = categories.columns
        wanted += [(value, ALL) for value in one.values] + [(ALL, value) for value in two.values]
    return tuple(Margin(values, categories.places_of(values)) for values in wanted)
