"""Random 64-bit words: ChaCha20 keystreams. The one module that uses `cryptography`.

Privacy rests on `Keystream` alone, whose key the operating system made for this stream: there is no generator to seed,
share, copy or fork. Code that needs words makes a `Keystream` and drops it afterwards.
"""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from tallytree.core.arrays import Words

_ZEROS = memoryview(bytes(1 << 18))  # the cipher gives plain text XOR keystream, so zeros give the keystream


class Source(Protocol):
    """Where words come from: independent, uniform on 0 … 2^word_bits − 1."""

    def words(self, count: int) -> Words:
        """Return the next `count` words."""


class KeyedWords:
    """The keystream of one key, the same on every machine. The nonce is zero: a key stands for one stream."""

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def words(self, count: int) -> Words:
        """Return the next `count` words of 64 bits."""
        words = np.empty(count, "<u8")
        room = words.view(np.uint8).data
        for start in range(0, len(room), len(_ZEROS)):
            part = room[start : start + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: len(part)], part)
        return words.astype(np.uint64, copy=False)


class Keystream(KeyedWords):
    """Words for privacy: under a key that the operating system gives and that is never used again."""

    def __init__(self) -> None:
        super().__init__(os.urandom(32))
