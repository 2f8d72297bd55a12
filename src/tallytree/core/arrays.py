"""The kinds of array that functions take and return, under one name each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]  # random, 64 bits each
