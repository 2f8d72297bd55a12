"""NOT PRIVATE: one vector of noise for all regions of all levels, as the code behind the CoC paper's figures had it.

The code that Kuo and others published seeds its generator anew for every region, always with the same number. Their
proof needs independent noise (levels compose in sequence, regions in parallel): with shared noise the difference of two
regions' measurements is exact, and nothing is protected. It also changes the errors. Noise that is the same in all
leaves adds up on the way to the root in proportion to their number, not to its square root; and noise that is the same
above and below makes a parent agree with its children's mistakes. The paper's table comes out with shared noise and
not with independent noise, so the former is here to compare with. It takes a `Truth`, which is public or made up.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.lab.truth import Truth, seeded
from tallytree.mechanisms import Estimate, Mechanism
from tallytree.privacy.budget import Budget
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import PrivacyUnit, one_entity
from tallytree.privacy.plan import Plan
from tallytree.privacy.run import measure_with

NOT_PRIVATE = "NOT PRIVATE: every region of every level was measured with the same noise"


def shared_noise_measurements(truth: Truth, plan: Plan, *seed: object) -> Measurements:
    """NOT PRIVATE: the plan's `at_least` questions, answered with one and the same noise in every region.

    Levels with equal shares of the budget have the same vector; with unequal ones, vectors from the same random words.
    """
    if any(question.view != "at_least" for question in plan.questions):
        raise SpecError("only `at_least` measurements have as many numbers in every region, so only they share noise")

    def laplace(scale: Fraction, count: int) -> Integers:
        return np.resize(seeded(*seed).laplace(scale, truth.max_size), count)

    def gaussian(variance: Fraction, count: int) -> Integers:
        return np.resize(seeded(*seed).gaussian(variance, truth.max_size), count)

    shared = replace(
        seeded(*seed), name="shared by regions and levels: NOT PRIVATE", laplace=laplace, gaussian=gaussian
    )
    return measure_with(shared, truth.group_sizes(), plan)


def estimate_with_shared_noise(
    truth: Truth, mechanism: Mechanism, budget: Budget, *seed: object, unit: PrivacyUnit | None = None
) -> Estimate:
    """NOT PRIVATE, and its certificate says so: what a mechanism makes of measurements that share their noise."""
    plan = mechanism.plan(truth.hierarchy, budget, one_entity() if unit is None else unit)
    found = mechanism.estimate(shared_noise_measurements(truth, plan, *seed))
    return replace(found, certificate=f"{NOT_PRIVATE}; {found.certificate}")
