"""The random selection of an entity's rows depends on that entity's rows and a key alone."""

from __future__ import annotations

import re
from collections import Counter
from hashlib import sha256
from itertools import combinations_with_replacement, product
from types import SimpleNamespace

import duckdb
import ibis
import numpy as np
import pyarrow as pa
import pytest

from tallytree import Hierarchy, SpecError
from tallytree.tables import read
from tallytree.tables.count import ENGINES, Counting, as_counts, fresh_key, region_keys, truncated
from tallytree.tables.count import place as placed
from tallytree.tables.engines import Engine
from tallytree.tables.group_sizes import Options
from tallytree.tables.source import DuckDB
from tests.oracles.random_selection import kept_rows

KEYS = [sha256(bytes([number])).hexdigest() for number in range(3)]
TENS = Hierarchy.from_levels({"leaf": [str(leaf) for leaf in range(10)]}, ["leaf"])


@pytest.fixture(scope="module")
def kept():
    """Counter of the kept rows (entity, group, weight), on a DuckDB with the given number of threads."""
    engine = DuckDB(duckdb.connect())

    def run(rows, bound, key, *, threads=1):
        engine.con.execute(f"set threads = {threads}")
        columns = list(zip(*rows, strict=True)) or [[], [], []]
        kinds = pa.string(), pa.string(), pa.int64()
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        source = engine.put(pa.table(arrays, ["who", "group", "weight"])).source
        key_table = engine.put({"hash_key": [key]}).name
        marked = truncated(f"SELECT * FROM {source}", ["group", "weight"], bound, entity="who", key_table=key_table)
        found = engine.fetch(marked).to_pylist()
        assert len(found) == len(rows)  # none is lost
        return Counter((row["who"], row["group"], row["weight"]) for row in found if row["kept"])

    return run


def of(entity, rows):
    return Counter({row: number for row, number in rows.items() if row[0] == entity})


def apart(one, other):
    return (one - other).total() + (other - one).total()


def test_over_all_small_data_sets_other_entities_and_other_rows_have_no_say(kept):
    own = [rows for length in range(4) for rows in combinations_with_replacement([("a", 1), ("b", 1)], length)]
    for bound, key in zip((1, 2, 2), KEYS, strict=True):
        keeps = {}
        for first, second in product(own, own):
            rows = [("e", *row) for row in first] + [("f", *row) for row in second]
            found = kept(rows, bound, key)
            for entity, mine in (("e", first), ("f", second)):
                # The same whatever the other entity has, nothing included: so an entity that comes or goes changes
                # its own kept rows and no others, and these are as many as the bound allows.
                assert keeps.setdefault((entity, mine), of(entity, found)) == of(entity, found)
                assert of(entity, found).total() == min(len(mine), bound)
                assert not of(entity, found) - Counter((entity, *row) for row in mine)
        for (entity, mine), chosen in keeps.items():
            for place in range(len(mine)):
                fewer = (*mine[:place], *mine[place + 1 :])
                assert apart(chosen, keeps[entity, fewer]) <= 2


def test_order_and_threads_have_no_say(kept):
    made = np.random.default_rng(5)
    rows = [(f"e{made.integers(40)}", f"g{made.integers(9)}", int(made.integers(3))) for _ in range(4000)]
    first = kept(rows, 3, KEYS[0])
    assert first.total() == 120
    for threads in (1, 2, 4):
        shuffled = [rows[place] for place in made.permutation(len(rows))]
        assert kept(shuffled, 3, KEYS[0], threads=threads) == first
    assert kept(rows, 3, KEYS[1]) != first


def test_the_kept_rows_are_those_of_the_obvious_twin(kept):
    made = np.random.default_rng(6)
    texts = ["", "a", "1:a", "-", "a1:", "ß…", "'", None, "0", "00"]
    rows = [(texts[made.integers(7)], texts[made.integers(10)], [None, 0, 1, 12][made.integers(4)]) for _ in range(500)]
    for bound, key in product((1, 4, 9), KEYS):
        assert kept(rows, bound, key) == kept_rows(rows, bound, key)


def test_every_row_is_kept_evenly(kept):
    rows = [(f"e{entity}", group, 1) for entity in range(1000) for group in "abcde"]
    seen = Counter()
    for number in range(10):
        seen += Counter(group for _, group, _ in kept(rows, 2, sha256(f"fair {number}".encode()).hexdigest()))
    # 10,000 entities keep 2 of 5: each row with chance 0.4, deviation √(10,000 · 0.4 · 0.6) = 49.
    assert all(abs(seen[group] - 4000) < 5 * 49 for group in "abcde")


def test_a_row_less_moves_one_row_and_no_more():
    # With the engine's random(), which goes by a row's position, this moved 28 counts.
    rows = [(entity, f"{entity}-{row}", str((entity + row) % 10)) for entity in range(40) for row in range(6)]
    options = Options("group", ("leaf",), TENS, "error", groups_are_public=False, entity="who", rows_per_entity=1)

    def counts(rows, key):
        engine = DuckDB(duckdb.connect())
        engine.con.execute("set threads = 1")
        who, group, leaf = (pa.array(column) for column in zip(*rows, strict=True))
        table = engine.put(pa.table([who, group, leaf], ["who", "group", "leaf"]))
        engine.con.execute("select setseed(0.5)").fetchall()
        rows_placed = placed(table, ["leaf"], region_keys(TENS, ["leaf"]), engine.put)
        return as_counts(engine.fetch(Counting(rows_placed, None, options, engine.put).query(key)), options, 10)

    for key in KEYS:
        whole = counts(rows, key)
        assert whole.sum() == 40
        assert np.abs(whole - counts(rows[1:], key)).sum() <= 2
        assert np.abs(whole - counts(rows[6:], key)).sum() == 1  # the entity has gone


def test_the_seed_of_a_connection_does_not_decide_which_rows_are_kept():
    table = pa.table({"who": ["e"] * 10, "group": range(10), "leaf": [str(leaf) for leaf in range(10)]})
    seen = Counter()
    for _ in range(40):
        connection = ibis.duckdb.connect()
        connection.con.execute("set threads = 1")
        connection.con.register("rows", table)
        connection.con.execute("select setseed(0.5)").fetchall()
        options = {"group": "group", "region": "leaf", "hierarchy": TENS, "max_size": 1}
        sizes = read(connection.table("rows"), **options, entity="who", rows_per_entity=1)
        seen[int(sizes.counts.open_at_the_privacy_border()[:, 0].argmax())] += 1
    assert len(seen) >= 6  # 40 draws of 10: fewer than 6 different ones has a chance below 1e-9


def test_an_engine_without_a_strong_hash_is_refused_before_anything_is_read(tmp_path):
    connection = ibis.sqlite.connect(tmp_path / "people.sqlite")
    connection.raw_sql("create table people (who integer, home integer, leaf text)")
    people = connection.table("people")
    connection.raw_sql("drop table people")  # whoever reads now fails with another error
    options = {"group": "home", "region": "leaf", "hierarchy": TENS, "max_size": 1, "entity": "who"}
    with pytest.raises(
        SpecError, match=r"SHA-256 for its random selection, which is available on .*; the rows are on sqlite"
    ):
        read(people, **options, rows_per_entity=2)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_key_is_no_part_of_a_query(engine):
    rows = "SELECT 'a' AS who, 1 AS weight"
    query = truncated(
        rows, ["weight"], 2, entity="who", key_table=DuckDB(duckdb.connect()).put({"hash_key": [KEYS[0]]}).name
    )
    if engine != "duckdb":
        query, _ = Engine(SimpleNamespace(name=engine, dialect=engine.replace("py", ""))).translated(query)
    assert KEYS[0] not in query
    assert re.search(r"(?i)SHA2(56)?\(", query)


def test_keys_are_new_and_long():
    keys = {fresh_key() for _ in range(100)}
    assert len(keys) == 100
    assert {len(key) for key in keys} == {64}
