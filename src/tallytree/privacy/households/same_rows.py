"""Are these the rows that a run began with? A keyed digest of households tells, without keeping them.

The digest stands in the journal, beside its key: both are the data holder's, and whoever has them can test a guess of
*all* the rows. So the journal is confidential, is readable by its owner alone, and is deleted when the run is complete.
"""

from __future__ import annotations

import hmac

import numpy as np

from tallytree.tables.contingency import HouseholdCodes

BITS = 256


def digest_of_rows(codes: HouseholdCodes, key: bytes) -> str:
    """HMAC-SHA256 over the households as a multiset: neither their order nor that of persons in one matters.

    Each household is hashed by itself (attributes, size, its persons sorted) and the numbers are added up modulo 2^256,
    which is the same in any order; the sum is hashed once more. A household has all persons that were read, those
    beyond `max_persons` included: so the digest is the same whichever of them a reading draws.
    """
    homes = _rows(list(codes.household.values()), codes.number)
    person = list(codes.person.values())
    living = np.repeat(np.arange(codes.number), np.diff(codes.starts))
    if codes.left_out is not None:
        of_household, columns = codes.left_out
        living = np.concatenate([living, of_household])
        person = [np.concatenate([column, columns[name]]) for name, column in codes.person.items()]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(living, minlength=codes.number))])
    order = np.lexsort([*reversed(person), living])
    people = _rows([column[order] for column in person], len(order))
    home_bytes, person_bytes = homes.tobytes(), people.tobytes()
    home_width, person_width = homes.shape[1] * homes.itemsize, people.shape[1] * people.itemsize
    total = 0
    for home, (start, stop) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        row = home_bytes[home * home_width : (home + 1) * home_width] + (stop - start).to_bytes(8, "big")
        row += person_bytes[start * person_width : stop * person_width]
        total += int.from_bytes(hmac.digest(key, row, "sha256"), "big")
    whole = f"{codes.number} {total % (1 << BITS)}"
    return hmac.digest(key, whole.encode(), "sha256").hex()


def _rows(columns: list[np.ndarray], number: int) -> np.ndarray:
    """Columns of codes side by side, of one width whatever type each has."""
    return np.ascontiguousarray(np.array(columns, dtype="<i8").T.reshape(number, len(columns)))
