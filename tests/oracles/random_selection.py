"""The obvious twin of the random selection: rows of an entity in the order of a keyed hash, the first few kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any


def kept_rows(rows: Sequence[tuple[Any, ...]], bound: int, key: str) -> Counter[tuple[Any, ...]]:
    """The kept rows with their multiplicities; the first cell of a row is its entity."""

    def rank(row: tuple[Any, ...]) -> str:
        cells = ["-" if cell is None else f"{len(str(cell))}:{cell}" for cell in row]
        return sha256((key + "".join(cells)).encode()).hexdigest()

    kept: Counter[tuple[Any, ...]] = Counter()
    for entity in {row[0] for row in rows}:
        kept.update(sorted((row for row in rows if row[0] == entity), key=rank)[:bound])
    return kept
