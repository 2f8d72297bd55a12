"""`GroupSizes`: the private counts, sealed, together with the public facts about how they were counted.

`tallytree.privacy.run` opens the seal. Everything else sees shapes and public facts.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallytree.core.arrays import Integers
from tallytree.core.disk import digest_of_files
from tallytree.domain.hierarchy import Hierarchy
from tallytree.tables.options import Columns
from tallytree.tables.sealed import Bound, Sealed

ROWS = "rows"  # the kind of files that private rows are in


@dataclass(frozen=True, eq=False, repr=False)
class GroupSizes(Bound):
    """How many groups of each size every leaf region has: private, behind public facts.

    `counts` is `[leaves, sizes]` in hierarchy order. With public totals (a `groups` table) the sizes are 0 … max_size
    and `leaf_totals` holds the public number of groups in each leaf; with private totals they are 1 … max_size.
    The last size means "that many or more". Counts and facts cannot be parted: see `Bound`.
    """

    hierarchy: Hierarchy
    max_size: int
    counts: Sealed[Integers]
    leaf_totals: Integers | None = None
    name: str | None = None  # the ledger's key
    quantity_bound: int = 1  # an entity's row adds 0 … quantity_bound to its group
    rows_per_entity: int = 1  # public bound on the rows of one entity
    entity_column: bool = False  # without one, a row is what is protected
    rows_were_bounded: bool = False  # rows beyond the bound were dropped
    groups_were_split: bool = False  # a (group, leaf) pair counts as a group
    regions_declared_public: bool = False  # the hierarchy was taken from the microdata, declared public
    listed_totals: Integers | None = None  # by leaf region over all categories, where these are not on the public list
    columns: Columns | None = None  # which say what group, region and entity a row belongs to
    files: tuple[str, ...] = ()  # where the rows were read from; never part of a release

    @property
    def public_totals(self) -> bool:
        """Is the number of groups in every region public?"""
        return self.leaf_totals is not None

    @property
    def region_totals(self) -> Integers | None:
        """The public number of groups in every region of every level, where there is one."""
        return None if self.leaf_totals is None else self.hierarchy.aggregate(self.leaf_totals)

    @property
    def first_size(self) -> int:
        """The smallest size that is counted: 0 with public totals, 1 with private ones."""
        return 0 if self.public_totals else 1

    def fingerprint(self) -> str | None:
        """A digest of the input files, if there are any: it tells the confidential ledger that an input changed."""
        return digest_of_files(self.files, ROWS)

    def __repr__(self) -> str:
        return (
            f"GroupSizes({self.hierarchy!r}, sizes {self.first_size}–{self.max_size}, "
            f"{'public' if self.public_totals else 'private'} totals)"
        )
