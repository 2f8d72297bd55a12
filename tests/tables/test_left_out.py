"""What is left out of the data, as the data holder is told: exact, and the same as counting by hand."""

import copy
import pickle
import random
from collections import Counter

import pyarrow as pa
import pytest

from tallytree.tables.group_sizes import Options
from tallytree.tables.reading import groups_at_largest, persons_left_out, rows_left_out

DICE = random.Random(5)
ROWS = [(DICE.randrange(30), DICE.choice("ab"), DICE.randrange(12), DICE.randrange(4)) for _ in range(300)]
TABLE = pa.table(dict(zip(("group", "region", "entity", "quantity"), map(list, zip(*ROWS, strict=True)), strict=True)))


def options(**more):
    return Options("group", ("region",), None, more.pop("spanning", "error"), groups_are_public=True, **more)


@pytest.mark.parametrize("most", [1, 7, 25, 1000])
def test_dropped_rows_and_the_entities_that_lose_some(most):
    rows, entities = rows_left_out(TABLE, options(entity="entity", rows_per_entity=most))
    having = Counter(row[2] for row in ROWS).values()
    assert (rows.part, rows.whole) == (sum(max(0, number - most) for number in having), 300)
    assert (entities.part, entities.whole) == (sum(number > most for number in having), len(having))


def test_nothing_is_counted_where_nothing_is_dropped():
    assert rows_left_out(TABLE, options()) is None
    assert rows_left_out(TABLE, options(entity="entity")) is None


@pytest.mark.parametrize("most", [1, 9, 11, 40])
def test_groups_that_reach_the_largest_size(most):
    found = groups_at_largest(TABLE, options(max_size=most))
    sizes = Counter(row[0] for row in ROWS).values()
    assert (found.part, found.whole) == (sum(size >= most for size in sizes), len(sizes))
    found = groups_at_largest(TABLE, options(max_size=most, spanning="split"))
    sizes = Counter(row[:2] for row in ROWS).values()
    assert (found.part, found.whole) == (sum(size >= most for size in sizes), len(sizes))
    found = groups_at_largest(TABLE, options(max_size=most, quantity="quantity", quantity_bound=3))
    sums = Counter()
    for group, _, _, quantity in ROWS:
        sums[group] += quantity
    assert found.part == sum(size >= most for size in sums.values())


def test_persons_beyond_the_largest_household():
    persons, households = persons_left_out(TABLE, "group", 9)
    sizes = Counter(row[0] for row in ROWS).values()
    assert (persons.part, persons.whole) == (sum(max(0, size - 9) for size in sizes), 300)
    assert (households.part, households.whole) == (sum(size > 9 for size in sizes), len(sizes))


def test_the_numbers_are_shown_on_demand_only():
    found = groups_at_largest(TABLE, options(max_size=9))
    assert repr(found) == str(found) == "Part(private)"
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="private"):
            way(found)
