"""Selection: exactly the exponential mechanism's distribution, at the cost that is stated, from few to many."""

from fractions import Fraction
from itertools import product
from math import exp, log

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.core.errors import SpecError
from tallytree.lab.truth import SeededWords
from tallytree.privacy import selection
from tallytree.privacy.noise.inversion import Uniform
from tallytree.privacy.noise.keystream import Keystream
from tallytree.privacy.selection import (
    INVERSE_FACTORIALS,
    LOWEST,
    CumulativeWeights,
    _weigh,
    candidates,
    choose,
    cost_of_selection,
)
from tests.oracles.noise import Interval, Script, exp_minus, try_all_words


def of(scores, bounds=1, epsilon=Fraction(1), penalties=None, weights=None):
    fines = None if penalties is None else np.array(penalties, np.int64)
    return candidates(np.array(scores, np.int64), np.array(bounds), Fraction(epsilon), fines, weights)


def shares(exponents):
    """The exact probabilities, as intervals: exp of each exponent over their sum, by the oracle's own series."""
    top = max(exponents)
    weights = [exp_minus(top - exponent) for exponent in exponents]
    total = sum(weights[1:], weights[0])
    return [weight / total for weight in weights]


def cells_inside(low, high, bits):
    """How many intervals [w, w + 1) · 2^−bits lie wholly between two enclosed numbers."""
    first = {-(-end.numerator * (1 << bits) // end.denominator) for end in (low.low, low.high)}
    last = {end.numerator * (1 << bits) // end.denominator for end in (high.low, high.high)}
    assert len(first) == len(last) == 1, "the oracle is not accurate enough"
    return max(0, last.pop() - first.pop())


CASES = {
    "two": of([3, 1]),
    "sensitivities of their own": of([10, 7, 30, -2], [1, 2, 6, 1], Fraction(1, 3)),
    "penalties and weights": of([9, 12, 5], [2, 3, 2], 2, [4, -1, 0], [Fraction(1), Fraction(1, 3), Fraction(7, 10)]),
    "one far ahead": of([200, 3, 2, 1], 1, Fraction(1, 2)),
    "first far behind": of([2900, 3000, 2999, 2980], 1, 1),
    "large scores that nearly agree": of([10**9, 10**9 - 1, 10**9 + 1], [1, 1, 1], Fraction(3, 7)),
    "one": of([5]),
}


@pytest.mark.parametrize(("word_bits", "words"), [(6, 1), (6, 2), (3, 4)])
@pytest.mark.parametrize("offered", CASES.values(), ids=CASES.keys())
def test_all_words_give_exactly_the_exponential_mechanism(offered, word_bits, words):
    bits = word_bits * words
    tried = try_all_words(lambda script: choose(offered, script, word_bits), word_bits, words)
    exponents = [offered.exponent(place) for place in range(len(offered.scores))]
    below, expected = Interval(Fraction(0), Fraction(0)), {}
    for place, share in enumerate(shares(exponents)):
        last = place == len(exponents) - 1
        above = Interval(Fraction(1), Fraction(1)) if last else below + share
        if inside := cells_inside(below, above, bits):
            expected[place] = Fraction(inside, 1 << bits)
        below = above
    assert dict(tried.decided) == expected
    assert sum(tried.decided.values()) + tried.undecided == 1


def test_exponents_are_scores_over_their_own_sensitivities():
    offered = CASES["penalties and weights"]
    assert [offered.exponent(place) for place in range(3)] == [
        Fraction(2) * (9 - 4) / (2 * 2),
        Fraction(2) * Fraction(1, 3) * (12 + 1) / (2 * 3),
        Fraction(2) * Fraction(7, 10) * 5 / (2 * 2),
    ]


def test_equal_candidates_are_equally_likely_to_the_last_digit():
    tried = try_all_words(lambda script: choose(of([7] * 8, 3), script, 5), 5, 1)
    assert dict(tried.decided) == dict.fromkeys(range(8), Fraction(1, 8))


def test_even_a_candidate_beyond_floating_point_has_its_exact_chance():
    offered = of([0, 3000, 1000, 2999])  # the first weighs exp(−1500), about 2^−2164
    assert choose(offered, Script(*[0] * 34)) == 0
    assert choose(offered, Script(*[0] * 33, 2**63)) == 1
    assert choose(offered, Script(0, 1)) == 1


def exactly(offered, word, source):
    return Uniform(word, 64, source).outcome(CumulativeWeights(offered, 0), reached=0)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(-(10**6), 10**6), st.integers(1, 9)), min_size=1, max_size=30),
    st.fractions(Fraction(1, 10**4), 50, max_denominator=10**4),
    st.integers(0, 2**64 - 1),
)
def test_floating_point_never_decides_otherwise_than_exact_arithmetic(rows, epsilon, word):
    offered = of([score for score, _ in rows], [bound for _, bound in rows], epsilon)
    assert choose(offered, Script(word, 0, 0, 0)) == exactly(offered, word, Script(0, 0, 0))


@pytest.mark.parametrize("scores", [[3, 1, 4, 1, 5, 9, 2, 6], [10**6, 10**6 + 3, 10**6 - 20]])
def test_words_at_the_thresholds_are_left_to_exact_arithmetic(scores, monkeypatch):
    offered = of(scores, 2, Fraction(1, 7))
    thresholds, asked = CumulativeWeights(offered, 0), []
    monkeypatch.setattr(selection, "CumulativeWeights", lambda *given: asked.append(given) or CumulativeWeights(*given))
    for index in range(1, len(scores)):
        cell, _ = thresholds.enclosed(index, 64)
        for word, expected in ((cell - 1, index - 1), (cell + 1, index)):
            asked.clear()
            assert choose(offered, Script(word)) == expected
            assert asked
        assert choose(offered, Script(cell, 0)) == index - 1
        assert choose(offered, Script(cell, 2**64 - 1)) == index
    asked.clear()
    assert choose(offered, Script(2**63)) == exactly(offered, 2**63, Script())
    assert not asked


def test_thresholds_agree_with_the_oracle_one_by_one_and_in_blocks():
    offered = of([5, 1, 5, 3, 1, 5], [1, 1, 1, 2, 1, 1])
    thresholds = CumulativeWeights(offered, 2)
    below = Interval(Fraction(0), Fraction(0))
    parts = shares([offered.exponent(place) for place in range(6)])
    with ctx.workprec(200):
        one_by_one = [(value.lower(), value.upper()) for value in thresholds.values()]
    for index, share in enumerate(parts[:-1], start=1):
        below = below + share
        low, high = thresholds.enclosed(index, 80)
        assert low <= below.low * 2**80 <= below.high * 2**80 <= high <= low + 1
        with ctx.workprec(200):
            assert one_by_one[index - 1][0] <= arb(high) / 2**80
            assert one_by_one[index - 1][1] >= arb(low) / 2**80
    assert thresholds.enclosed(6, 10) == (1024, 1024)


def test_the_kernels_exponentials_are_within_the_stated_error():
    generator = np.random.default_rng(1)
    numbers = np.concatenate([-generator.uniform(0, -LOWEST, 3000), [0.0, LOWEST, -0.34657, -0.3466, -log(2)]])
    sums = np.empty(1)
    with ctx.workprec(200):
        for number in numbers:
            _weigh(np.array([number]), 0.0, INVERSE_FACTORIALS, sums)
            assert abs(arb(sums[0]) / arb(float(number)).exp() - 1) < arb(2) ** -46
    _weigh(np.array([LOWEST - 1e-9]), 0.0, INVERSE_FACTORIALS, sums)
    assert sums[0] == 0
    assert arb(LOWEST + 2.0**-20).exp() < arb(10) ** -299


def test_many_draws_have_the_right_frequencies():
    offered = of([0, 3, 9, 4, 12, 10], [1, 1, 3, 2, 4, 3], 1)
    words, draws = SeededWords("selection"), 12_000
    counts = np.bincount([choose(offered, words) for _ in range(draws)], minlength=6)
    weights = np.array([exp(float(offered.exponent(place))) for place in range(6)])
    expected = draws * weights / weights.sum()
    assert ((counts - expected) ** 2 / expected).sum() < 35.9  # five degrees of freedom: exceeded once in a million


def test_half_a_million_candidates_are_drawn_from_in_their_places():
    generator = np.random.default_rng(2)
    scores, bounds = generator.integers(0, 400, 500_000), generator.choice([1, 5], 500_000)
    offered = candidates(scores, bounds, Fraction(1, 10), None, None)
    weights = np.exp(scores / bounds / 20)
    cumulative = np.cumsum(weights) / weights.sum()
    words = SeededWords("many")
    for _ in range(20):
        word = int(words.words(1)[0])
        place = choose(offered, Script(word))
        assert cumulative[place] - weights[place] / weights.sum() - 1e-9 <= word / 2**64 <= cumulative[place] + 1e-9


def test_one_selection_costs_no_more_than_is_stated():
    """All ways in which four scores can move by at most one, and the Rényi divergence that follows."""
    epsilon, orders = Fraction(2), [1.01, 1.5, 2, 4, 16, 64]
    rho = float(cost_of_selection(epsilon))
    worst = 0.0
    for scores, moves in product(product([0, 2], repeat=4), product([-1, 0, 1], repeat=4)):
        u, v = np.array(scores, float), np.array(scores, float) + moves
        p, q = np.exp(u), np.exp(v)  # ε = 2: exp(ε u / 2)
        p, q = p / p.sum(), q / q.sum()
        for order in orders:
            divergence = log((p**order * q ** (1 - order)).sum()) / (order - 1)
            assert divergence <= rho * order + 1e-12
            worst = max(worst, divergence / (rho * order))
    assert worst > 0.8  # nor is it much dearer than it need be


def test_a_real_draw_is_one_of_the_likely():
    assert choose(of([0, 20_000, 0]), Keystream()) == 1
    assert choose(of([1, 2, 3]), Keystream()) in {0, 1, 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], 1, Fraction(1)), "at least one candidate"),
        (([1.5], 1, Fraction(1)), "integer score"),
        (([1, 2], [1, 0], Fraction(1)), "is public and needs no selecting"),
        (([1, 2], 1, 1.0), "must be a Fraction above 0"),
        (([1, 2], 1, Fraction(0)), "must be a Fraction above 0"),
        (([2**53, 2], 1, Fraction(1)), "a score is out of range"),
        (([1, 2], 1, Fraction(1), np.array([1])), "one for each candidate"),
        (([1, 2], 1, Fraction(1), np.array([0, 2**60])), "a penalty is out of range"),
        (([1, 2], 1, Fraction(1), None, [Fraction(1), Fraction(3, 2)]), "at most 1"),
    ],
)
def test_bad_requests_are_refused(arguments, message):
    scores, *rest = arguments
    with pytest.raises(SpecError, match=message):
        candidates(np.array(scores), *rest)


def test_nothing_shows_a_score():
    offered = of([4711, 12])
    assert "4711" not in repr(offered) + str(offered) + repr(CumulativeWeights(offered, 0))
