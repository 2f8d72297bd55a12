"""Truths and mechanisms for the tests of experiments; worker processes import this, so it must be a module."""

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from tallytree.core.kernels import kernel
from tallytree.domain.hierarchy import Hierarchy
from tallytree.lab.truth import Truth
from tallytree.mechanisms import MECHANISMS

TIMED = []
PGSR = MECHANISMS["pgsr-hierarchical-dp"]


def small_truth(*, public_totals=False, name="small"):
    regions = {"state": ["A", "A", "B"], "county": ["1", "2", "3"]}
    hierarchy = Hierarchy.from_levels(regions, ["state", "county"])
    counts = np.array([[20, 9, 4, 0, 1], [7, 0, 2, 0, 0], [30, 12, 0, 3, 0]])
    return Truth(name, hierarchy, counts, public_totals)


def _tiny(measurements):
    """Is this the warming up, on next to nothing?"""
    return len(measurements.hierarchy) < 5


def fail(measurements):
    raise ZeroDivisionError("on purpose")


def hang(measurements):
    if not _tiny(measurements):
        time.sleep(600)
    return PGSR.estimate(measurements)


def die(measurements):
    if not _tiny(measurements):
        os._exit(7)
    return PGSR.estimate(measurements)


def misshapen(measurements):
    estimate = PGSR.estimate(measurements)
    return replace(estimate, counts=estimate.counts[:, :-1])


def slow_and_counted(measurements):
    """Leaves a mark for every run in the folder that TALLYTREE_TEST_MARKS names."""
    if not _tiny(measurements):
        folder = Path(os.environ["TALLYTREE_TEST_MARKS"])
        (folder / f"{os.getpid()}-{time.monotonic_ns()}").touch()
        time.sleep(0.4)
    return PGSR.estimate(measurements)


@kernel
def doubled(number):
    return 2 * number


def with_a_kernel_of_its_own(measurements):
    """Compiles or loads something that the warming up does not need."""
    if not _tiny(measurements):
        TIMED.append(doubled(1.5))
    return PGSR.estimate(measurements)


def mechanism(function):
    """A mechanism called like the function that estimates for it."""
    return replace(PGSR, name=function.__name__, estimate=function)
