"""A random outcome by inversion: how many thresholds a uniform U reaches, decided from U's first word if it can be.

U is never rounded. Its first word w says that it lies in [w, w + 1) · 2^−word_bits, and where that cell may hold a
threshold more words are drawn, as many as it takes. So draws have exactly the distribution of the thresholds; the
argument is in docs/noise.md. Words may be shorter than 64 bits, which tests use to make the rare path common.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Integers, Words
from tallytree.kernels import kernel
from tallytree.privacy.noise.keystream import Source
from tallytree.privacy.noise.thresholds import Thresholds

WORD_BITS = 64
MOST_GUIDE_BITS = 14


class Uniform:
    """A uniform number in [0, 1) whose first binary digits are known; more are drawn when they matter."""

    def __init__(self, word: int, word_bits: int, source: Source) -> None:
        self._digits, self._known = word, word_bits
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
    cells: Words = field(init=False)
    guide: NDArray[np.int32] = field(init=False)  # how many cells lie before each value of the leading bits
    shift: np.uint64 = field(init=False)

    def __post_init__(self) -> None:
        last = (1 << self.word_bits) - 1
        cells = np.array([*self.thresholds.cells(self.word_bits), last], np.uint64)
        guide_bits = min(MOST_GUIDE_BITS, self.word_bits, len(cells).bit_length() + 3)
        shift = np.uint64(self.word_bits - guide_bits)
        starts = np.arange(1 << guide_bits, dtype=np.uint64) << shift
        guide = np.append(np.searchsorted(cells, starts), len(cells) - 1)
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "guide", guide.astype(np.int32))
        object.__setattr__(self, "shift", shift)

    def draw(self, source: Source, count: int) -> Integers:
        """`count` independent outcomes."""
        words = source.words(count)
        outcomes = np.empty(count, np.int64)
        if _look_up(words, self.cells, self.guide, self.shift, outcomes):
            for place in np.flatnonzero(outcomes < 0):
                uniform = Uniform(int(words[place]), self.word_bits, source)
                outcome = uniform.outcome(self.thresholds, reached=~int(outcomes[place]))
                if outcome >= self.limit:
                    raise OverflowError("a draw of noise is 2^62 or more")
                outcomes[place] = outcome
        return outcomes


@kernel
def _look_up(words: Words, cells: Words, guide: NDArray[np.int32], shift: np.uint64, outcomes: Integers) -> int:
    """outcomes[i] = n, the number of cells before words[i], or −1 − n if that word is a cell. How many are?"""
    undecided = 0
    for i in range(words.size):
        word = words[i]
        leading = np.int64(word >> shift)
        low, high = guide[leading], guide[leading + 1]
        while low < high:
            middle = (low + high) >> 1
            if cells[middle] < word:
                low = middle + 1
            else:
                high = middle
        if cells[low] == word:
            outcomes[i] = -1 - low
            undecided += 1
        else:
            outcomes[i] = low
    return undecided
