"""Random numbers that are public: a ChaCha20 stream under the hash of a text that anyone may know.

Starting points and orders must be random enough to break ties and the same whenever the same measurements are fitted
again, so that an estimate is a function of its measurements. Nothing here may ever be used as noise for privacy.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.privacy.noise.keystream import KeyedWords


class PublicStream(KeyedWords):
    """The stream that a seed text names; two texts name independent streams."""

    def __init__(self, seed_text: str) -> None:
        super().__init__(hashlib.sha256(f"tallytree public stream: {seed_text}".encode()).digest())

    def uniform(self, count: int) -> Floats:
        """Return the next `count` numbers, uniform on [0, 1)."""
        return uniform(self, count)

    def normal(self, *shape: int) -> Floats:
        """Standard normal numbers, two from each pair of uniform ones (Box and Muller)."""
        count = int(np.prod(shape))
        pairs = self.uniform(2 * ((count + 1) // 2)).reshape(2, -1)
        radius = np.sqrt(-2 * np.log1p(-pairs[0]))
        turn = 2 * np.pi * pairs[1]
        return np.concatenate([radius * np.cos(turn), radius * np.sin(turn)])[:count].reshape(shape)

    def order(self, count: int) -> Integers:
        """Return a random order of 0 … count − 1."""
        return np.argsort(self.words(count), kind="stable").astype(np.int64)


def uniform(source: Any, count: int) -> Floats:
    """Return numbers on [0, 1) from the top 53 bits of a source's words."""
    words: NDArray[np.uint64] = source.words(count)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
