"""How much is left out before anything is counted: rows beyond rows_per_entity, persons beyond max_persons.

NOT PRIVATE. These are exact numbers of the private data, for the data holder's own eyes: `tallytree validate` shows
them to whoever holds the data, and nothing that is published or kept has them in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tallytree.tables.count import ENTITY, QUANTITY, Counting, number
from tallytree.tables.options import Options
from tallytree.tables.sealed import Unsharable
from tallytree.tables.source import Opened, open_in_order, open_source, workspace


@dataclass(frozen=True, eq=False, repr=False)
class Part(Unsharable):
    """So many of so many, exactly: private."""

    part: int
    whole: int

    def for_the_data_holder(self, what: str) -> str:
        """The share in words. Not private: show it to the data holder, marked as such, and to nobody else."""
        share = 100 * self.part / self.whole if self.whole else 0.0
        return f"{share:.3g} % of {self.whole:,} {what} ({self.part:,})"

    def __repr__(self) -> str:
        return "Part(private)"


def rows_left_out(
    source: Any, options: Options, *, table: str | None = None, memory_limit: str | None = None
) -> tuple[Part, Part] | None:
    """Rows that `read` drops, and entities that lose some; None without a bound on an entity's rows. NOT PRIVATE."""
    if options.entity is None or options.rows_per_entity is None:
        return None
    with workspace(memory_limit) as connect:
        return _beyond(open_source(source, table, connect), options.entity, options.rows_per_entity)


def persons_left_out(
    persons: Any, household_id: str, max_persons: int, *, memory_limit: str | None = None
) -> tuple[Part, Part]:
    """Persons that `read_households` leaves out, and households that it cuts, of those with any. NOT PRIVATE."""
    with workspace(memory_limit) as connect:
        return _beyond(open_in_order(persons, "persons", connect), household_id, max_persons)


def groups_at_largest(
    source: Any, options: Options, *, table: str | None = None, memory_limit: str | None = None
) -> Part:
    """Groups of max_size or more, of all that have rows, before any rows are dropped. NOT PRIVATE."""
    with workspace(memory_limit) as connect:
        rows = open_source(source, table, connect)

        def query() -> Any:
            wanted = Counting(rows.sql, rows.table, None, options, None).needed(rows.table, region=options.split)
            keys = [name for name in wanted.columns if name not in (QUANTITY, ENTITY)]
            size = wanted.count() if options.quantity is None else number(rows.sql, wanted[QUANTITY]).sum()
            found = wanted.group_by(*keys).agg(size=size)
            found = found.filter(found["size"] > 0)
            return found.agg(groups=found.count(), largest=(found["size"] >= options.max_size).ifelse(1, 0).sum())

        row = rows.fetch("Counting the largest groups", query).to_pylist()[0]
    return Part(int(row["largest"] or 0), int(row["groups"]))


def _beyond(rows: Opened, column: str, most: int) -> tuple[Part, Part]:
    """Rows beyond `most` with the same value, of all rows; and values with more rows than that, of all values."""

    def query() -> Any:
        each = rows.table.select(**{ENTITY: rows.table[column]})
        found = each.group_by(ENTITY).agg(number=each.count())
        return found.agg(
            rows=found.number.sum(),
            dropped=rows.sql.greatest(found.number - most, 0).sum(),
            entities=found.count(),
            cut=(found.number > most).ifelse(1, 0).sum(),
        )

    row = rows.fetch("Counting what is left out", query).to_pylist()[0]
    dropped, whole, cut, entities = (int(row[name] or 0) for name in ("dropped", "rows", "cut", "entities"))
    return Part(dropped, whole), Part(cut, entities)
