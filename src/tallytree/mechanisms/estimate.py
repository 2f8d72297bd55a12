"""What every estimator returns: counts, and what is known about how good they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Estimate:
    """`counts` is `[regions, sizes]` in hierarchy order; `certificate` says in words what was proved about them."""

    counts: NDArray[np.int64]
    certificate: str
