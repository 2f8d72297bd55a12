"""Truncation to a contribution bound: a random selection of each entity's rows, those with the smallest lots.

A row's lot is a keyed hash of its content, under a key that the operating system makes for each reading. The engine's
own `random()` is not used: it can be seeded by whoever opened the connection, and it goes by a row's position.
"""

from __future__ import annotations

import secrets
from typing import Any

from tallytree.core.errors import SpecError

KEY_BYTES = 32
ENGINES = ("duckdb", "pyspark", "postgres")  # that have SHA-256, by the names that Ibis gives them


def fresh_key() -> str:
    """A key from the operating system's randomness, as hexadecimal digits; one for each reading, never kept."""
    return secrets.token_hex(KEY_BYTES)


def check_engine(engine: str) -> None:
    """Refuse an engine that has no SHA-256, before anything is read."""
    if engine not in ENGINES:
        raise SpecError(
            f"rows_per_entity draws lots with SHA-256, which is known here for {', '.join(ENGINES)}; the rows are on "
            f"{engine}. Read them from a file or an Arrow table instead, or leave one row for each entity and "
            "rows_per_entity out"
        )


def truncated(sql: Any, rows: Any, rows_per_entity: int, *, entity: str, key: str) -> Any:
    """All rows, with `kept` true for at most `rows_per_entity` of each entity: those that come first by their lots.

    A row's content is its entity and every other column of `rows`, which must be what counting uses and nothing else.
    Its lot is SHA-256 of the key (of fixed length) followed by the content, written so that different contents give
    different texts. An entity's rows are put in the order of (lot, content), and the first b are kept.

    *Only the entity's own rows matter.* The key is drawn before any row is read and independent of them all. Given
    the key, the order of two rows is a function of their contents. Rows that stand level in it have the same content,
    so whichever of them is kept, the same rows are counted, as often. So the kept rows of an entity, with their
    multiplicities, are a function of the key and of that entity's rows: not of other entities, not of the place of a
    row in the table, its engine's threads or its seed.

    *An entity added or removed* (the relation of `one_entity`). Couple the two data sets by the same key. All other
    entities then keep the same rows, and the one in question has at most b: the kept rows differ in at most b rows of
    one entity. That holds for every key, so it holds for the mixture over keys: the counts of the two data sets with
    a random key, coupled so, are always within the sensitivities for b rows, and measuring with noise costs what it
    does for each key (joint convexity: a mixture of pairs of outputs is no easier to tell apart than the worst pair).

    *One row of an entity added or removed.* A row of content c goes. If fewer than b rows come before the last row
    of content c, one row of content c is kept less, and the next in order, if there is one, moves up; otherwise
    nothing changes. So at most two kept rows differ: one goes and one comes. (It is a change within an entity: under
    `one_entity` two steps, the entity removed and added.)

    Nothing above needs a property of SHA-256. That lots are also fair, each row of an entity as likely to be kept as
    any other of different content, is that a keyed SHA-256 looks random to whom does not have the key. Copies of one
    row share a lot: they are kept or dropped side by side.
    """
    content = [column for column in rows.columns if column != entity]
    # The key is a row of data and no literal: so it is in no query text that an engine logs or quotes.
    drawn = rows.cross_join(sql.memtable({"lot_key": [key]}))
    text = drawn["lot_key"]
    for column in [entity, *content]:
        text = text.concat(_unambiguous(drawn[column]))
    lots = drawn.mutate(lot=sql.sha256(text))
    turns = lots.mutate(turn=sql.row_number().over(group_by=entity, order_by=["lot", *content]))
    return turns.mutate(kept=turns.turn < rows_per_entity).select(*rows.columns, "kept")


def _unambiguous(column: Any) -> Any:
    """A cell as text with its length before it, or a mark for null: where it ends can be told whatever follows."""
    text = column.cast("string")
    return text.length().cast("string").concat(":").concat(text).fill_null("-")
