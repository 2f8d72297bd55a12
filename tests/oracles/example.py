"""The 11-person example of Fioretto, Van Hentenryck and Zhu (their Table 2), and small made-up inputs."""

from __future__ import annotations

import numpy as np

from tallytree import Hierarchy, read
from tallytree.tables import GroupSizes, Sealed

PERSONS = {
    "user": [f"{number:02d}" for number in range(1, 12)],
    "unit": list("ABAACDEDDFF"),
    "region": ["GA"] * 5 + ["NY"] * 6,
    "quantity": [1] * 11,
}
UNITS = {"unit": list("ABCDEF"), "region": ["GA"] * 3 + ["NY"] * 3}
TABLE_4 = {"GA": [2, 0, 1, 0, 0], "NY": [1, 1, 1, 0, 0], "US": [3, 1, 2, 0, 0]}


def eleven_persons(*, public_totals: bool = True, **options) -> GroupSizes:
    """The example through `read`."""
    import pyarrow as pa

    return read(
        pa.table(PERSONS),
        group="unit",
        region="region",
        entity="user",
        quantity="quantity",
        quantity_bound=1,
        hierarchy=Hierarchy.from_edges([("GA", "US"), ("NY", "US")], levels=["nation", "state"]),
        groups=pa.table(UNITS) if public_totals else None,
        groups_are_public=public_totals,
        max_size=5,
        **options,
    )


def made_up(seed: int, *, public_totals: bool, max_size: int = 6, **facts) -> GroupSizes:
    """A small uneven hierarchy with random counts."""
    rng = np.random.default_rng(seed)
    tree = Hierarchy.from_levels(
        {"state": ["A", "A", "B", "C", "C", "C", "DC"], "county": ["1", "2", "3", "4", "5", "6", ""]},
        ["state", "county"],
    )
    counts = rng.integers(0, 40, (tree.leaf_count, max_size + (1 if public_totals else 0)))
    totals = counts.sum(axis=1) if public_totals else None
    return GroupSizes(tree, max_size, Sealed(counts), leaf_totals=totals, **facts)
