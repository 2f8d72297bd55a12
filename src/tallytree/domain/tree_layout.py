"""Where the regions of a large public table go in a tree, found with whole columns and without a path for each leaf.

A table of 8 million leaves takes seconds so, and its texts are kept once. Whatever is out of the ordinary (an empty
cell, a leaf that is there twice, texts with blanks around them) is left to who reads row by row and says what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tallytree.core.arrays import Integers

BLANK_ENDS = r"^$|^[\s\p{Z}\x1c-\x1f\x{85}]|[\s\p{Z}\x1c-\x1f\x{85}]$"


class Layout(NamedTuple):
    """Regions in breadth-first order."""

    names: list[Any]  # of each level, as Arrow arrays of texts
    parents: Integers  # the parent's index; -1 at the root


def laid_out(columns: Sequence[Any], root: str) -> Layout | None:
    """The regions of a table's columns of levels, from the top down; None where somebody has to look closer.

    `root` is put above them where the first column has several names. Siblings keep the order of the rows.
    """
    import pyarrow as pa

    rows = len(columns[0])
    encoded = [each for each in map(_encoded, columns) if each is not None]
    if rows == 0 or len(encoded) < len(columns):
        return None
    names: list[Any] = []
    parents = [np.array([-1])]
    above = np.zeros(rows, np.int64)  # each row's region on the level above
    if len(encoded[0][1]) > 1:
        names.append(pa.array([root], pa.large_string()))
    for codes, texts in encoded:
        places, above_of, code_of = _regions(above, codes, len(texts))
        if names:
            parents.append(above_of + sum(map(len, names)) - len(names[-1]))
        names.append(texts.take(pa.array(code_of)))
        above = places
    if len(names[-1]) < rows:
        return None
    return Layout(names, np.concatenate(parents))


def _encoded(column: Any) -> tuple[Integers, Any] | None:
    """A number for each cell, and the texts that these stand for; None where a text is not as it should be."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if column.null_count or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return None
    # In one piece before it is encoded: chunks would each bring a dictionary, and all of these would be unified.
    whole = column.cast(pa.large_string())
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    found = whole.dictionary_encode()
    texts = found.dictionary
    if found.null_count or pc.any(pc.match_substring_regex(texts, BLANK_ENDS)).as_py():
        return None
    codes: Integers = found.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, texts


def _regions(above: Integers, codes: Integers, texts: int) -> tuple[Integers, Integers, Integers]:
    """Each row's region on a level, in layout order; and of each region the one above it and the number of its name."""
    keys = above * texts + codes
    begins = np.flatnonzero(np.diff(keys, prepend=-1))  # of runs of rows in the same region
    runs = keys[begins]
    lengths = np.diff(begins, append=len(keys))
    if np.all(np.diff(runs) > 0):  # rows are in the tree's order
        return np.repeat(np.arange(len(runs)), lengths), runs // texts, runs % texts
    known, first, run_of = np.unique(runs, return_index=True, return_inverse=True)
    order = np.lexsort((first, known // texts))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return np.repeat(place[run_of.ravel()], lengths), known[order] // texts, known[order] % texts
