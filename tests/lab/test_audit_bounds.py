"""Bounds on ε from scores, and exact losses: against SciPy, against known mechanisms, and never beyond the truth."""

from __future__ import annotations

from fractions import Fraction
from math import exp, log

import numpy as np
import pytest
from scipy.stats import beta, norm

from tallytree import Budget, SpecError, one_entity
from tallytree.lab.audit.verdicts import (
    bound_of_events,
    exact_epsilon,
    exact_loss,
    least_epsilon,
    log_ratios,
    lower_bound,
    rate_at_least,
    rate_at_most,
)
from tallytree.lab.audit.worlds import PEOPLE, group_sizes, pairs, tree
from tallytree.lab.truth import measured_without_noise, seeded
from tallytree.mechanisms.budget_allocation import every_level
from tallytree.privacy.run import measure_with


@pytest.mark.parametrize("runs", [1, 7, 1000])
@pytest.mark.parametrize("confidence", [0.9, 0.999, 1 - 1e-9])
def test_rates_are_bounded_as_clopper_and_pearson_do(runs, confidence):
    for hits in {0, 1, runs // 3, runs - 1, runs}:
        upper = 1.0 if hits == runs else beta.ppf(confidence, hits + 1, runs - hits)
        lower = 0.0 if hits == 0 else beta.ppf(1 - confidence, hits, runs - hits + 1)
        assert rate_at_most(hits, runs, confidence) == pytest.approx(upper, abs=1e-9)
        assert rate_at_least(hits, runs, confidence) == pytest.approx(lower, abs=1e-9)


def test_scores_that_say_everything_give_a_large_bound_and_those_that_say_nothing_give_none():
    zeros, ones = np.zeros(2000), np.ones(2000)
    found = lower_bound(zeros, ones)
    assert found.epsilon == pytest.approx(log(rate_at_least(1000, 1000, 0.9995) / rate_at_most(0, 1000, 0.9995)))
    assert (found.likely, found.unlikely, found.runs) == (1000, 0, 1000)
    assert lower_bound(zeros, zeros).epsilon == 0
    assert lower_bound(ones, zeros).epsilon == found.epsilon  # either side may be the likely one
    assert lower_bound(zeros, np.full(2000, np.inf)).epsilon == found.epsilon


def test_a_bound_comes_close_to_the_truth_of_randomized_response_and_stays_below_it():
    random, epsilon = np.random.default_rng(1), 1.0
    truthful = exp(epsilon) / (1 + exp(epsilon))
    here = (random.random(200_000) > truthful).astype(float)
    there = (random.random(200_000) < truthful).astype(float)
    assert 0.95 < lower_bound(here, there, confidence=1 - 1e-7).epsilon <= epsilon


def test_a_delta_lowers_the_bound():
    random = np.random.default_rng(2)
    here, there = random.normal(0, 1, 20_000), random.normal(2, 1, 20_000)
    assert lower_bound(here, there, delta=0.05).epsilon < lower_bound(here, there).epsilon


def noisy_pairs(random, runs):
    """Two true numbers (5 and 5, or 5 and 6 on the neighbour) with noise of their own."""
    here, there = (random.laplace(0, 2, (runs, 2)).round().astype(np.int64) + 5 for _ in range(2))
    there[:, 1] += 1
    return here, there


def test_events_show_a_number_without_noise_and_noise_that_two_numbers_share():
    random = np.random.default_rng(3)
    here, there = noisy_pairs(random, 4000)
    honest = bound_of_events(here, there, confidence=1 - 1e-8)
    assert honest.epsilon <= 0.5  # noise of scale 2 and a change of 1
    bare = [np.column_stack([one[:, 0], np.full(len(one), true)]) for one, true in ((here, 5), (there, 6))]
    assert bound_of_events(*bare, confidence=1 - 1e-8).epsilon > 3
    shared = [np.column_stack([one[:, 0], one[:, 0] + more]) for one, more in ((here, 0), (there, 1))]
    assert bound_of_events(*shared, confidence=1 - 1e-8).epsilon > 3
    scaled = [np.column_stack([one[:, 0], 3 * one[:, 0] + more]) for one, more in ((here, 0), (there, 1))]
    assert bound_of_events(*scaled, confidence=1 - 1e-8).epsilon > 2


def test_events_bound_a_known_mechanism_from_below():
    """Randomized response tells ε = 1: a bound may not be larger, and comes close."""
    random, epsilon = np.random.default_rng(4), 1.0
    truthful = exp(epsilon) / (1 + exp(epsilon))
    here = (random.random((200_000, 1)) > truthful).astype(np.int64)
    there = (random.random((200_000, 1)) < truthful).astype(np.int64)
    assert 0.9 < bound_of_events(here, there, confidence=1 - 1e-7).epsilon <= epsilon


def test_too_few_runs_are_refused():
    with pytest.raises(SpecError, match="at least 4"):
        lower_bound(np.zeros(3), np.zeros(100))


def worlds(budget, pair):
    both = [group_sizes(states, PEOPLE, public_totals=False) for states in (pair.here, pair.there)]
    plan = every_level("at_least", tree(1), budget, one_entity())
    return both, plan, [measured_without_noise(world, plan) for world in both]


def test_the_exact_loss_of_laplace_noise_is_the_whole_budget():
    alone = next(pairs(PEOPLE, "one_entity"))
    _, _, views = worlds(Budget(epsilon="0.7"), alone)
    assert exact_loss(*(view.measured for view in views)) == Fraction(7, 10)
    assert exact_epsilon(*(view.measured for view in views), delta=0.0) == pytest.approx(0.7)


def test_the_exact_epsilon_of_wide_gaussian_noise_is_that_of_the_normal_distribution():
    """With σ much larger than 1 the lattice does not matter: δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), μ = √(2ρ)."""
    alone = next(pairs(PEOPLE, "one_entity"))
    _, _, views = worlds(Budget(rho="0.001", delta="0.001"), alone)
    found = exact_epsilon(*(view.measured for view in views), delta=0.001)
    mu = 0.002**0.5
    delta = norm.cdf(mu / 2 - found / mu) - exp(found) * norm.cdf(-mu / 2 - found / mu)
    assert delta == pytest.approx(0.001, rel=1e-3)


def test_the_least_epsilon_of_two_outcomes_is_as_defined():
    one, two = np.array([0.8, 0.2]), np.array([0.3, 0.7])
    for delta in (0.0, 0.1, 0.3):
        epsilon = least_epsilon(np.log(one / two), one, delta)
        assert np.maximum(0, one - exp(epsilon) * two).sum() == pytest.approx(delta, abs=1e-9)
    assert least_epsilon(np.log(one / two), one, 0.6) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("budget", [Budget(epsilon=1), Budget(rho="1/2")])
def test_scores_are_log_ratios_of_the_noises_probabilities(budget):
    pair = next(pairs(PEOPLE, "one_entity"))
    both, plan, views = worlds(budget, pair)
    output = measure_with(seeded(3), both[1], plan)
    for part, here, there in zip(output.measured, *(view.measured for view in views), strict=True):
        noise = np.arange(-2000, 2001)
        scale = float(part.scale)
        shape = np.abs(noise) / scale if budget.currency == "epsilon" else noise**2 / (2 * scale)
        log_chance = dict(zip(noise.tolist(), (-shape - np.logaddexp.reduce(-shape)).tolist(), strict=True))
        expected = [
            log_chance[int(x - t)] - log_chance[int(x - h)]
            for x, h, t in zip(part.values.ravel(), here.values.ravel(), there.values.ravel(), strict=True)
        ]
        assert log_ratios(part, here, there).ravel() == pytest.approx(expected)
