"""The grid of a plan: every setting is predicted once, and what interpolation costs is what brute force finds."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tallytree import Budget, Hierarchy, Prior, SpecError, one_entity
from tallytree.planning import grid as module
from tallytree.planning.grid import MEASURES, PREDICTED, predict_grid
from tallytree.planning.report import Alternatives, predict_errors, vary_budget
from tallytree.planning.simulation import Effort, PublicFacts, within_5_percent
from tallytree.privacy import Neighbours

TREE = Hierarchy.from_levels({"state": ["A"] * 3 + ["B"] * 2, "county": list("abcde")}, ["state", "county"])
FACTS = PublicFacts(TREE, Neighbours(one_entity(), 4, False))
PRIOR = Prior.of("households", groups=3000)
BY_COUNTS = Alternatives(["joint-cumulative"])


@pytest.fixture(scope="module")
def small():
    return predict_grid(FACTS, PRIOR, [Budget(epsilon=1)], BY_COUNTS, effort=Effort(2))


def test_a_grid_has_every_setting_and_those_of_the_spec(small):
    assert list(small.reports) == [2, 4, 6]
    assert [float(one.epsilon) for one in small.budgets] == sorted([1, *map(float, module.TIMES)])
    assert small.budgets[6] == small.asked == Budget(epsilon=1)
    for measure in MEASURES:
        values = small.values(measure)
        assert values.shape == (3, 3, 13, 3)
        for at, report in enumerate(small.reports.values()):
            found = report.of(budget=small.budgets[4], split="leaves")
            assert values[at, report.splits.index("leaves"), 4].tolist() == [getattr(one, measure) for one in found]


def test_other_budgets_of_the_command_are_in_the_grid_too():
    budgets = [Budget(rho="0.1"), Budget(rho="0.33")]
    found = predict_grid(FACTS, PRIOR, budgets, BY_COUNTS, effort=Effort(2))
    assert set(budgets) < set(found.budgets)
    assert len(found.budgets) == 14
    assert list(found.budgets) == sorted(found.budgets, key=lambda one: one.amount)


def test_large_budgets_are_tried_only_if_they_are_asked_for():
    found = predict_grid(FACTS, PRIOR, [Budget(epsilon=5), Budget(epsilon=30)], BY_COUNTS, effort=Effort(2))
    assert [float(one.amount) for one in found.budgets[-4:]] == [10, 14, 20, 30]
    assert float(found.budgets[0].amount) == 0.625


def test_a_size_that_the_mechanism_refuses_is_left_out_unless_it_is_the_own():
    bands = {"tallytree": {"bands": [{"to": 3, "shares": [1, 1, 1]}, {"shares": [1, 0, 1]}]}}
    ways = Alternatives(["tallytree"], bands)
    assert list(predict_grid(FACTS, PRIOR, [Budget(epsilon=1)], ways, effort=Effort(2)).reports) == [4, 6]
    two = PublicFacts(TREE, replace(FACTS.neighbours, max_size=2))
    with pytest.raises(SpecError, match="a band ends at size 3"):
        predict_grid(two, PRIOR, [Budget(epsilon=1)], ways, effort=Effort(2))


@pytest.mark.parametrize("measure", PREDICTED)
def test_misses_are_those_that_brute_force_finds(small, measure):
    values = small.values(measure)
    amounts = [float(one.epsilon) for one in small.budgets]
    for place, split in enumerate(small.own.splits):
        for level in range(3):
            found = []
            for size in range(3):
                row = [float(values[size, place, at, level]) for at in range(13)]
                for at in range(1, 12):
                    part = math.log(amounts[at] / amounts[at - 1]) / math.log(amounts[at + 1] / amounts[at - 1])
                    low, high = row[at - 1], row[at + 1]
                    if measure == "within_5_percent":
                        found.append(abs(low + part * (high - low) - row[at]))
                        continue
                    low, high = max(low, module.LEAST), max(high, module.LEAST)
                    between = low ** (1 - part) * high**part
                    off = abs(between - row[at]) - (1 if measure == "reach" else 0)
                    found.append(max(off, 0) / max(row[at], 1))
            assert small.misses(measure)[split][level] == pytest.approx(np.quantile(found, 0.95), abs=1e-9)


def test_the_progress_of_a_grid_never_goes_back():
    parts = []
    predict_grid(FACTS, PRIOR, [Budget(epsilon=1)], BY_COUNTS, effort=Effort(3), progress=parts.append)
    done = [stage.done for stage in parts]
    assert done == sorted(done)
    assert {(stage.doing, stage.of) for stage in parts} == {("simulating the page", 1000)}
    assert done[-1] > 700


def test_budgets_vary_by_multiples_of_the_same_kind():
    found = vary_budget(Budget(epsilon=1, delta="1e-9", noise="laplace"), [Fraction(1, 2)])
    assert found == [
        Budget(epsilon=1, delta="1e-9", noise="laplace"),
        Budget(epsilon="1/2", delta="1e-9", noise="laplace"),
    ]


def test_the_part_within_5_percent_is_counted_among_counts_above_0():
    rng = np.random.default_rng(1)
    truth, noise = rng.integers(0, 60, (9, 5)), rng.integers(-3, 4, (9, 5))
    published = np.maximum(truth + noise, 0)
    pairs = [(int(a), int(b)) for a, b in zip(published.ravel(), truth.ravel(), strict=True) if b > 0]
    expected = sum(20 * abs(a - b) <= b for a, b in pairs) / len(pairs)
    assert within_5_percent(published, truth) == pytest.approx(expected)
    assert within_5_percent(published, np.zeros_like(truth)) == 1


def test_without_noise_every_count_is_within_5_percent():
    report = predict_errors(FACTS, PRIOR, [Budget(epsilon=400)], Alternatives(["bottom-up"]), effort=Effort(2))
    assert {one.within_5_percent for one in report.predictions} == {1.0}
    some = predict_errors(FACTS, PRIOR, [Budget(epsilon="0.05")], BY_COUNTS, effort=Effort(2))
    assert max(one.within_5_percent for one in some.predictions if one.level == "county") < 0.5
