"""Noise of replicates: of the exact law of a release's noise, and determined by the measurements.

Typical intervals are computed from what is public, by whoever wants to. Their noise is a ChaCha20 stream under keys
that are hashes of the measurements, so that whoever asks twice gets the same, from memory and from files, on any number
of cores. It hides nothing, and no private value is ever added to it.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import blocks, in_threads
from tallytree.privacy.accounting import NoiseKind
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.noise.draws import KEY_BLOCK, THREAD_BLOCK
from tallytree.privacy.noise.keystream import KeyedWords
from tallytree.privacy.noise.samplers import gaussian_sampler, laplace_sampler

HASHED_AT_ONCE = 1 << 20  # values


def digest_of(measurements: Measurements) -> bytes:
    """A digest of what was measured: of the values, how they were asked for, and their noise."""
    found = hashlib.sha256(b"tallytree replicates")
    for part in measurements.measured:
        band = (*(() if part.sizes is None else part.sizes), *(("summed",) if part.summed else ()))
        found.update(repr((part.view, part.level, part.noise, str(part.scale), part.values.shape, *band)).encode())
        flat = part.values.reshape(-1)
        for start, stop in blocks(len(flat), HASHED_AT_ONCE):
            found.update(flat[start:stop].astype("<i8").tobytes())  # kept in 32 or 64 bits, they are the same values
    return found.digest()


def chances(seed: bytes, replicate: int, count: int) -> Floats:
    """Numbers that are uniform from 0 to 1 (and less than 1), for one replicate; independent of its noise."""
    key = hashlib.sha256(seed + b"chances" + replicate.to_bytes(8, "little")).digest()
    uniform: Floats = (KeyedWords(key).words(count) >> np.uint64(11)).astype(np.float64)
    uniform *= 2.0**-53
    return uniform


class ReplicateNoise:
    """The noise of one replicate; two replicates have independent streams."""

    def __init__(self, seed: bytes, replicate: int) -> None:
        self._seed, self._drawn = seed + replicate.to_bytes(8, "little"), 0

    def draw(self, kind: NoiseKind, scale: Fraction, count: int) -> Integers:
        """The next `count` draws; every block has a key of its own, so threads do not change them."""
        sampler = laplace_sampler(scale) if kind == "discrete_laplace" else gaussian_sampler(scale)
        prefix = self._seed + self._drawn.to_bytes(8, "little")
        self._drawn += 1
        noise = np.empty(count, np.int64)

        def fill(first: int, last: int) -> None:
            for start, stop in blocks(last - first, KEY_BLOCK):
                key = hashlib.sha256(prefix + (first + start).to_bytes(8, "little")).digest()
                noise[first + start : first + stop] = sampler.draw(KeyedWords(key), stop - start)

        in_threads(fill, blocks(count, THREAD_BLOCK))
        return noise
