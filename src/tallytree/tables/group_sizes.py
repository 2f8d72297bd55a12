"""`GroupSizes`: the private counts, sealed, together with the public facts about how they were counted.

`Sealed` holds private data, and only `tallytree.privacy` opens it. All other code sees shapes and public facts: the
options of `read`, which are checked together before any row is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from operator import is_
from typing import Any, Generic, NoReturn, TypeVar

from tallytree.core.arrays import Integers
from tallytree.core.disk import digest_of_files
from tallytree.core.errors import SpecError
from tallytree.domain.categories import NO_CATEGORIES, Categories
from tallytree.domain.hierarchy import Hierarchy
from tallytree.tables.sql import WHOLE_FLOATS

Content = TypeVar("Content")


class Unsharable:
    """Cannot be pickled or copied, so that private data stay in place."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} may hold private data: it cannot be pickled, copied, compared or converted"
        )

    __reduce_ex__ = __reduce__ = __getstate__ = __copy__ = __deepcopy__ = _refuse


class Sealed(Unsharable, Generic[Content]):
    """Hold private content that cannot be printed, pickled, copied, compared or turned into an array.

    `tallytree.privacy.run` opens it; a test searches for any other caller.
    """

    __slots__ = ("__content", "__facts")

    def __init__(self, content: Content) -> None:
        self.__content = content
        self.__facts: tuple[Any, ...] | None = None

    def bind(self, facts: tuple[Any, ...]) -> None:
        """Bind the content's public facts to it, once: a seal with facts accepts no others."""
        if self.__facts is not None:
            raise TypeError(
                "this seal belongs to another value already: private data keep the bounds that they were read with. "
                "To use other bounds, read them again"
            )
        self.__facts = facts

    def is_bound_to(self, facts: tuple[Any, ...]) -> bool:
        """Return whether these very facts are bound to the content."""
        mine = self.__facts
        return mine is not None and len(mine) == len(facts) and all(map(is_, mine, facts))

    def open_at_the_privacy_border(self) -> Content:
        """Return the private content."""
        return self.__content

    def __repr__(self) -> str:
        return "Sealed(private)"

    __array__ = __iter__ = __len__ = __getitem__ = __bool__ = Unsharable._refuse
    __eq__ = __format__ = Unsharable._refuse
    __hash__ = None  # type: ignore[assignment]


class Bound(Unsharable):
    """A dataclass of one seal and the public facts of the sealed content, which cannot be separated.

    The seal takes its facts when the value is created and cannot be put into a second value by `dataclasses.replace`,
    `copy.replace` or the constructor. `check_unaltered` finds ways around this (`object.__setattr__`, an object that
    only looks alike). The privacy border calls it before it takes a bound from a value.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        seal, facts = _parts(self)
        seal.bind(facts)


def check_unaltered(value: Any, kind: type[Bound]) -> None:
    """Refuse a value that is not of this very class, or whose facts differ from those bound to its seal."""
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__} as read, not {type(value).__name__}")
    seal, facts = _parts(value)
    if not seal.is_bound_to(facts):
        raise TypeError(f"this {kind.__name__} was altered after it was read: its bounds are not those of its data")


def _parts(value: Any) -> tuple[Sealed[Any], tuple[Any, ...]]:
    """Return the one seal of a value, and all its other fields."""
    held = [getattr(value, each.name) for each in fields(value)]
    (seal,) = [each for each in held if isinstance(each, Sealed)]
    return seal, tuple(each for each in held if each is not seal)


# -------------------------------------------------------------------- the options of `read`


@dataclass(frozen=True)
class Columns:
    """Name the columns that say which group, region and entity a row belongs to."""

    group: str
    region: tuple[str, ...] = ()
    entity: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "region", region_columns(self.region or None))
        names = [self.group, *self.region, *([] if self.entity is None else [self.entity])]
        _check_columns({f"column {number}": name for number, name in enumerate(names, start=1)})

    @classmethod
    def of(cls, value: Columns | Mapping[str, Any] | None) -> Columns | None:
        """Return columns, or those named by a mapping with the keys group, region and entity."""
        if value is None or isinstance(value, Columns):
            return value
        if not isinstance(value, Mapping) or not {"group"} <= set(value) <= {"group", "region", "entity"}:
            raise SpecError("columns needs the name of the group column; region and entity are optional")
        return cls(**value)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, which `of` reads."""
        return {**asdict(self), "region": list(self.region)}


@dataclass(frozen=True)
class Options:
    """Public options: what is counted, and how. Options that contradict each other raise `SpecError`."""

    group: str
    region: tuple[str, ...]  # one column: a leaf's id or name; several: one per level, top down; none: one leaf
    hierarchy: Hierarchy | None
    on_spanning_group: str
    groups_are_public: bool  # whether a public groups table lists every group; a private one is part of the data
    max_size: int = 1
    quantity: str | None = None
    quantity_bound: int | None = None
    entity: str | None = None
    rows_per_entity: int | None = None
    regions_are_public: bool = False
    on_unknown_region: str = "refuse"  # or "drop", or the leaf that such rows count in
    on_missing: str = "refuse"  # or "drop"
    categories: Categories = NO_CATEGORIES  # of groups, besides their region
    categories_listed: bool = True  # whether a groups table has them; otherwise the rows do
    name: str | None = None  # the data set's name in the ledger
    files: tuple[str, ...] = ()  # the files of the rows, if any

    @property
    def columns(self) -> Columns:
        """Return the columns that name a row's group, region and entity."""
        return Columns(self.group, self.region, self.entity)

    # What follows is called as in `GroupSizes` and in the neighbour relation (`Neighbours.of`).

    @property
    def public_totals(self) -> bool:
        """Return whether a public list has every group and its categories; otherwise the rows state the categories."""
        return self.groups_are_public and self.categories_listed

    @property
    def groups_listed(self) -> bool:
        """Return whether a public list has every group without its categories."""
        return self.groups_are_public and not self.categories_listed

    @property
    def first_size(self) -> int:
        """Return the smallest size that is counted: 0 if a public list has every group and category."""
        return 0 if self.public_totals else 1

    @property
    def entity_column(self) -> bool:
        """Return whether a column says whose row it is."""
        return self.entity is not None

    @property
    def rows_were_bounded(self) -> bool:
        """Return whether rows beyond a bound are dropped."""
        return self.rows_per_entity is not None

    @property
    def groups_were_split(self) -> bool:
        """Return whether each (group, region) pair counts as a group."""
        return self.on_spanning_group == "split"

    @property
    def of_groups(self) -> Options:
        """Return the options of a groups table, whose rows have no entity and no quantity."""
        return replace(self, entity=None, rows_per_entity=None, quantity=None, quantity_bound=None)

    @property
    def row_rules(self) -> tuple[str, ...]:
        """Return in words what happens to rows without a known region, and to rows with missing cells."""
        rules = []
        if self.on_unknown_region != "refuse":
            dropped = "dropped" if self.on_unknown_region == "drop" else f"counted in {self.on_unknown_region!r}"
            rules.append(f"rows without a known region are {dropped}")
        if self.on_missing != "refuse":
            needed = [name for name in ("group", "entity", "quantity") if getattr(self, name) is not None]
            rules.append(f"rows without a {' or '.join(needed)} are dropped")
        return tuple(rules)

    def __post_init__(self) -> None:
        if self.on_spanning_group not in ("error", "split"):
            raise SpecError(f"on_spanning_group is {self.on_spanning_group!r}; choose from error, split")
        if self.on_missing not in ("refuse", "drop"):
            raise SpecError(f"on_missing is {self.on_missing!r}; choose from refuse, drop")
        if not isinstance(self.on_unknown_region, str) or not self.on_unknown_region:
            raise SpecError(f"on_unknown_region is {self.on_unknown_region!r}; expected refuse, drop or a region")
        if (self.quantity is None) != (self.quantity_bound is None):
            raise SpecError(
                "quantity and quantity_bound need each other: give a column, and the public bound of one row's value"
            )
        if self.rows_per_entity is not None and self.entity is None:
            raise SpecError("rows_per_entity needs entity, the column that names a row's entity")
        for option in ("max_size", "quantity_bound", "rows_per_entity"):
            value = getattr(self, option)
            if value is not None or option == "max_size":
                _check_integer(value, option)
        columns: dict[str, Any] = {"group": self.group}
        columns |= {f"region[{number}]": column for number, column in enumerate(self.region)}
        optional = {"quantity": self.quantity, "entity": self.entity}
        columns |= {f"by[{number}]": name for number, name in enumerate(self.categories.names)}
        _check_columns(columns | {option: column for option, column in optional.items() if column is not None})
        self._check_regions()
        if self.categories.members_decide and self.rows_per_entity is not None:
            raise SpecError(
                "rows_per_entity selects rows by a hash that includes a row's category, and a category that members "
                "decide changes with another entity: which rows are kept would too. Leave one of the two out"
            )

    def _check_regions(self) -> None:
        hierarchy, public = self.hierarchy, self.regions_are_public
        if hierarchy is not None and not isinstance(hierarchy, Hierarchy):
            raise SpecError(f"hierarchy is of type {type(hierarchy).__name__}; expected a tallytree.Hierarchy")
        if not self.region and (hierarchy is None or hierarchy.leaf_count > 1):
            raise SpecError("region is missing; it can be left out only for a hierarchy with a single leaf")
        if hierarchy is None and not self.groups_are_public and not public:
            raise SpecError(
                "hierarchy is missing. It must come from a public table of regions (or from a public groups table): "
                "taken from the microdata, a county would vanish with its only resident, which no noise can hide. If "
                "the list of regions in the microdata is public knowledge anyway, set regions_are_public; the "
                "privacy statement will repeat it"
            )
        if self.groups_were_split and not self.region:
            raise SpecError('on_spanning_group = "split" needs region: the column that says where a row is')


def shared_fields(value: Any, kind: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that a value has under the same name, without those that are None."""
    found = {each.name: getattr(value, each.name, None) for each in fields(kind)}
    return {name: fact for name, fact in found.items() if fact is not None}


def region_columns(region: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the region columns as a tuple, for one column or several."""
    if region is None:
        return ()
    if isinstance(region, str):
        return (region,)
    if not isinstance(region, Sequence):
        raise SpecError(f"region is {region!r}; expected a column, or a list of columns from the top down")
    if not region:
        raise SpecError("region is an empty list; expected a column, or one column per level from the top down")
    return tuple(region)


def _check_integer(value: Any, option: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < WHOLE_FLOATS:
        raise SpecError(f"{option}={value!r}; expected an integer from 1 to below 2**53")


def _check_columns(columns: dict[str, Any]) -> None:
    seen: dict[str, str] = {}
    for option, column in columns.items():
        if not isinstance(column, str) or not column:
            raise SpecError(f"{option} is {column!r}; expected the name of a column")
        if column in seen:
            raise SpecError(f"{seen[column]} and {option} both name column {column!r}; expected different columns")
        seen[column] = option


# -------------------------------------------------------------------- the counts


ROWS = "rows"  # the kind of files that private rows are in


@dataclass(frozen=True, eq=False, repr=False)
class GroupSizes(Bound):
    """The number of groups of each size in every leaf region: private, with public facts.

    `counts` is `[leaves, sizes]` in hierarchy order. With public totals (a `groups` table) the sizes are 0 … max_size,
    and `leaf_totals` holds the public number of groups in each leaf. With private totals the sizes are 1 … max_size.
    The last size means "that many or more". Counts and facts cannot be separated: see `Bound`.
    """

    hierarchy: Hierarchy
    max_size: int
    counts: Sealed[Integers]
    leaf_totals: Integers | None = None
    name: str | None = None  # the ledger's key
    quantity_bound: int = 1  # an entity's row adds 0 … quantity_bound to its group
    rows_per_entity: int = 1  # public bound on the rows of one entity
    entity_column: bool = False  # without one, the privacy unit is a row
    rows_were_bounded: bool = False  # whether rows beyond the bound were dropped
    groups_were_split: bool = False  # whether a (group, leaf) pair counts as a group
    regions_declared_public: bool = False  # taken from the microdata and declared public
    listed_totals: Integers | None = None  # by leaf over all categories, if the public list lacks these
    columns: Columns | None = None  # the columns of group, region and entity
    row_rules: tuple[str, ...] = ()  # what happened to rows without a known region, or with missing cells
    files: tuple[str, ...] = ()  # the files of the rows; never part of a release

    @property
    def categories(self) -> Categories:
        """Return the categories of groups, besides their region."""
        return self.hierarchy.by

    @property
    def public_totals(self) -> bool:
        """Return whether the number of groups in every region is public."""
        return self.leaf_totals is not None

    @property
    def groups_listed(self) -> bool:
        """Return whether a public list has every group without its categories."""
        return self.listed_totals is not None

    @property
    def region_totals(self) -> Integers | None:
        """Return the public number of groups in every region of every level, or None."""
        return None if self.leaf_totals is None else self.hierarchy.aggregate(self.leaf_totals)

    @property
    def first_size(self) -> int:
        """Return the smallest size that is counted: 0 with public totals, 1 with private ones."""
        return 0 if self.public_totals else 1

    def fingerprint(self) -> str | None:
        """Return a digest of the input files, if any; the confidential ledger uses it to notice a changed input."""
        return digest_of_files(self.files, ROWS)

    def __repr__(self) -> str:
        return (
            f"GroupSizes({self.hierarchy!r}, sizes {self.first_size}–{self.max_size}, "
            f"{'public' if self.public_totals else 'private'} totals)"
        )
