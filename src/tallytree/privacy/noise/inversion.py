"""A random outcome by inversion: how many thresholds a uniform U reaches, decided from U's first word if it can be.

U is never rounded. Its first word w says that it lies in [w, w + 1) · 2^−word_bits, and where that cell may hold a
threshold more words are drawn, as many as it takes. So draws have exactly the distribution of the thresholds; the
argument is in docs/noise.md. Words may be shorter than 64 bits, which tests use to make the rare path common.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers, Words
from tallytree.core.kernels import kernel
from tallytree.privacy.noise.keystream import Source
from tallytree.privacy.noise.thresholds import Thresholds

WORD_BITS = 64
MOST_LEADING_BITS = 14


class Uniform:
    """A uniform number in [0, 1) whose first binary digits are known; more are drawn when they matter."""

    def __init__(self, digits: int, word_bits: int, source: Source, known: int | None = None) -> None:
        self._digits, self._known = digits, word_bits if known is None else known
        self._word_bits, self._source = word_bits, source

    def reaches(self, thresholds: Thresholds, index: int) -> bool:
        """Whether U ≥ c_index."""
        while True:
            low, high = thresholds.enclosed(index, self._known)
            if high <= self._digits:
                return True
            if low > self._digits:
                return False
            self._digits = (self._digits << self._word_bits) | int(self._source.words(1)[0])
            self._known += self._word_bits

    def outcome(self, thresholds: Thresholds, reached: int) -> int:
        """How many thresholds U reaches, when it is known to reach the first `reached`."""
        step = 1
        while self.reaches(thresholds, reached + step):
            reached, step = reached + step, 2 * step
        missed = reached + step
        while missed - reached > 1:
            middle = (reached + missed) // 2
            if self.reaches(thresholds, middle):
                reached = middle
            else:
                missed = middle
        return reached


@dataclass(frozen=True, eq=False)
class Table:
    """Thresholds cut to one word each, and a guide from a word's leading bits to the place to look for it.

    cells[i] = t where t ≤ c_{i+1} · 2^word_bits ≤ t + 1. The last entry, all ones, stands for all later thresholds.
    """

    thresholds: Thresholds
    limit: int  # an outcome of this or more is an error
    word_bits: int = WORD_BITS
    most_leading_bits: int = MOST_LEADING_BITS
    cells: Words = field(init=False)
    guide: NDArray[np.int32] = field(init=False)  # how many cells lie before each value of the leading bits
    leading_bits: int = field(init=False)

    def __post_init__(self) -> None:
        last = (1 << self.word_bits) - 1
        cells = np.array([*self.thresholds.cells(self.word_bits), last], np.uint64)
        leading_bits = min(self.most_leading_bits, self.word_bits, len(cells).bit_length() + 3)
        starts = np.arange(1 << leading_bits, dtype=np.uint64) << np.uint64(self.word_bits - leading_bits)
        guide = np.append(np.searchsorted(cells, starts), len(cells))
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "guide", guide.astype(np.int32))
        object.__setattr__(self, "leading_bits", leading_bits)

    def draw(self, source: Source, count: int) -> Integers:
        """`count` independent outcomes."""
        return self.outcomes(source.words(count), source)[0]

    def outcomes(self, words: Words, source: Source) -> tuple[Integers, Integers]:
        """The outcome of each word (and of what follows it, where the word cannot tell), and which words were read.

        Of all other words only the leading bits were looked at. So, whatever the outcomes are, the other bits of those
        words are uniform and independent.
        """
        outcomes, read = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
        shift = np.uint64(self.word_bits - self.leading_bits)
        read = read[: _look_up(words, self.cells, self.guide, shift, outcomes, read)]
        for place in read[outcomes[read] < 0]:
            uniform = Uniform(int(words[place]), self.word_bits, source)
            outcome = uniform.outcome(self.thresholds, reached=~int(outcomes[place]))
            if outcome >= self.limit:
                raise OverflowError("a draw of noise is 2^62 or more")
            outcomes[place] = outcome
        return outcomes, read


@kernel
def _look_up(
    words: Words, cells: Words, guide: NDArray[np.int32], shift: np.uint64, outcomes: Integers, read: Integers
) -> int:
    """outcomes[i] = n, the number of cells before words[i], or −1 − n if that word is a cell.

    The places of words that share their leading bits with a cell, and so are compared, go to `read`. How many are they?
    """
    compared = 0
    for i in range(words.size):
        word = words[i]
        leading = word >> shift
        low, high = guide[leading], guide[leading + np.uint64(1)]
        if low < high:
            read[compared] = i
            compared += 1
            while low < high:
                middle = (low + high) >> 1
                if cells[middle] < word:
                    low = middle + 1
                else:
                    high = middle
            if cells[low] == word:
                low = -1 - low
        outcomes[i] = low
    return compared
