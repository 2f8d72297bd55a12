"""The 11 people of the PGSR paper (its Table 2) must give its Table 4."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tallytree import Hierarchy
from tallytree.tables import read

USERS = [f"{number:02d}" for number in range(1, 12)]
UNITS = list("ABAACDEDDFF")
STATE = dict.fromkeys("ABC", "GA") | dict.fromkeys("DEF", "NY")

PEOPLE = pa.table({"user": USERS, "unit": UNITS, "state": [STATE[unit] for unit in UNITS], "quantity": [1] * 11})
PLACES = pa.table({"unit": list("ABCDEF"), "state": [STATE[unit] for unit in "ABCDEF"]})

TABLE_4 = [[0, 2, 0, 1, 0, 0], [0, 1, 1, 1, 0, 0]]  # sizes 0 … 5 in GA and NY


@pytest.mark.parametrize("people", [PEOPLE, PEOPLE.drop_columns(["state"])])
def test_eleven_people_in_six_listed_units_give_table_4(people):
    sizes = read(people, group="unit", region="state", groups=PLACES, groups_are_public=True, max_size=5, entity="user")
    assert sizes.hierarchy.names == ("total", "GA", "NY")
    assert sizes.counts.open_at_the_privacy_border().tolist() == TABLE_4
    assert sizes.leaf_totals.tolist() == [3, 3]
    assert sizes.entity_column
    assert not sizes.rows_were_bounded


def test_summing_quantities_of_one_gives_the_same():
    sizes = read(
        PEOPLE,
        group="unit",
        region="state",
        groups=PLACES,
        groups_are_public=True,
        max_size=5,
        quantity="quantity",
        quantity_bound=1,
    )
    assert sizes.counts.open_at_the_privacy_border().tolist() == TABLE_4


def test_without_a_list_of_units_the_sizes_begin_at_one():
    states = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    sizes = read(PEOPLE, group="unit", region="state", hierarchy=states, max_size=5)
    assert sizes.leaf_totals is None
    assert sizes.counts.open_at_the_privacy_border().tolist() == [row[1:] for row in TABLE_4]
