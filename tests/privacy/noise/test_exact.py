"""The code of the samplers, run on every possible short word: each probability is the exact one."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.privacy.noise.inversion import Table
from tallytree.privacy.noise.samplers import (
    GaussianSampler,
    LaplaceSampler,
    WideGaussianSampler,
    gaussian_sampler,
    laplace_sampler,
)
from tallytree.privacy.noise.thresholds import Gaussian, GeometricDigit, LaplaceQuotient, Rejection, Thresholds
from tests.oracles.noise import (
    Interval,
    Script,
    Tried,
    WordsRanOut,
    exp_minus,
    gaussian_probability,
    gaussian_sum,
    laplace_probability,
    try_all_words,
)

SCALES = [Fraction(1, 5), Fraction(2, 3), Fraction(1), Fraction(7, 3), Fraction(30)]
VARIANCES = [Fraction(1, 10), Fraction(1), Fraction(7, 3), Fraction(50), Fraction(900)]


@pytest.fixture(autouse=True)
def _enclosures_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Thresholds, "enclosed", cache(Thresholds.enclosed))


def folded(outcome: int) -> int:
    return -1 - outcome // 2 if outcome % 2 else outcome // 2


def whole_cells(below: Interval, chance: Interval, bits: int) -> int:
    """How many intervals [w, w + 1) · 2^−bits lie wholly between the thresholds of an outcome."""
    low, high = below, below + chance
    first = {-(-end.numerator * (1 << bits) // end.denominator) for end in (low.low, low.high)}
    last = {end.numerator * (1 << bits) // end.denominator for end in (high.low, high.high)}
    assert len(first) == len(last) == 1, "the oracle is not accurate enough"
    return max(0, last.pop() - first.pop())


def assert_every_outcome_is_exact(tried: Tried, probability, bits: int) -> None:
    """What `bits` bits decide is exactly what they can decide: the cells wholly inside an outcome's interval."""
    below, expected = Interval(Fraction(0), Fraction(0)), {}
    for outcome in range(4000):
        chance = probability(folded(outcome))
        if cells := whole_cells(below, chance, bits) if outcome else _first_cells(chance, bits):
            expected[folded(outcome)] = Fraction(cells, 1 << bits)
        below = below + chance
        if 1 - below.high < Fraction(1, 1 << (bits + 3)):
            break
    assert dict(tried.decided) == expected
    assert sum(tried.decided.values()) + tried.undecided == 1


def _first_cells(chance: Interval, bits: int) -> int:
    return chance.low.numerator * (1 << bits) // chance.low.denominator


@pytest.mark.parametrize(("word_bits", "words"), [(6, 1), (6, 2), (6, 3), (8, 2), (3, 4)])
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_all_words_give_exactly_the_laplace(scale: Fraction, word_bits: int, words: int) -> None:
    sampler = laplace_sampler(scale, word_bits)
    assert not sampler.digits
    tried = try_all_words(lambda script: int(sampler.draw(script, 1)[0]), word_bits, words)
    assert_every_outcome_is_exact(tried, lambda x: laplace_probability(scale, x), word_bits * words)


@pytest.mark.parametrize(("word_bits", "words"), [(6, 1), (6, 2), (6, 3), (8, 2), (3, 4)])
@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_all_words_give_exactly_the_gaussian(variance: Fraction, word_bits: int, words: int) -> None:
    sampler = gaussian_sampler(variance, word_bits)
    assert isinstance(sampler, GaussianSampler)
    tried = try_all_words(lambda script: int(sampler.draw(script, 1)[0]), word_bits, words)
    assert_every_outcome_is_exact(tried, lambda x: gaussian_probability(variance, x), word_bits * words)


def test_short_words_take_the_slow_path_often() -> None:
    sampler = laplace_sampler(Fraction(7, 3), 6)
    tried = try_all_words(lambda script: int(sampler.draw(script, 1)[0]), 6, 3)
    assert tried.by_words[2] > Fraction(1, 5)
    assert 0 < tried.by_words[3] < Fraction(1, 10)
    assert 0 < tried.undecided < Fraction(1, 1000)


def assert_intervals_meet(tried: Tried, expected) -> None:
    """decided ≤ P ≤ decided + undecided for every result."""
    assert sum(tried.decided.values()) + tried.undecided == 1
    for result, decided in tried.decided.items():
        chance = expected(result)
        assert decided <= chance.high
        assert chance.low <= decided + tried.undecided


@pytest.mark.parametrize(
    ("scale", "widest", "digit_bits", "word_bits", "words"),
    [
        (Fraction(7, 3), 1, 1, 3, 6),
        (Fraction(7, 3), 1, 2, 4, 4),
        (Fraction(5), 2, 9, 5, 3),
        (Fraction(2, 3), Fraction(1, 3), 1, 6, 3),
    ],
)
def test_all_words_give_the_laplace_digit_by_digit(
    scale: Fraction, widest: Fraction, digit_bits: int, word_bits: int, words: int
) -> None:
    sampler = laplace_sampler(scale, word_bits, widest, digit_bits)
    assert sampler.digits
    tried = try_all_words(lambda script: int(sampler.draw(script, 1)[0]), word_bits, words)
    assert tried.undecided < Fraction(1, 20)
    assert_intervals_meet(tried, lambda x: laplace_probability(scale, x))
    assert {-2, -1, 0, 1, 2} <= set(tried.decided)


@dataclass(frozen=True)
class AlwaysDraws:
    """A table that always draws the same."""

    outcome: int

    def draw(self, source: Script, count: int) -> np.ndarray:
        return np.full(count, self.outcome, np.int64)


def chance(thresholds: Thresholds, outcome: int, bits: int = 130) -> Interval:
    """The probability of an outcome as the difference of two enclosed thresholds."""
    low, high = thresholds.enclosed(outcome, bits) if outcome else (0, 0)
    next_low, next_high = thresholds.enclosed(outcome + 1, bits)
    return Interval(Fraction(next_low - high, 1 << bits), Fraction(next_high - low, 1 << bits))


@pytest.mark.parametrize(
    ("scale", "widest", "digit_bits"),
    [(Fraction(7, 3), 1, 1), (Fraction(20), 3, 2), (Fraction(1000, 7), Fraction(64), 9)],
)
def test_digits_are_put_together_to_each_integer_once(scale: Fraction, widest: int, digit_bits: int) -> None:
    sampler = laplace_sampler(scale, 64, widest, digit_bits)
    assert sampler.digits
    seen = set()
    for outcome in range(8):
        for digits in product(*(range(table.limit) for _, table in sampler.digits)):
            fixed = tuple((shift, AlwaysDraws(digit)) for (shift, _), digit in zip(sampler.digits, digits, strict=True))
            x = int(LaplaceSampler(AlwaysDraws(outcome), fixed, sampler.bits).draw(Script(), 1)[0])
            together = chance(sampler.quotient.thresholds, outcome)
            for (_, table), digit in zip(sampler.digits, digits, strict=True):
                together = together * chance(table.thresholds, digit)
            exact = laplace_probability(scale, x)
            assert together.low <= exact.high
            assert exact.low <= together.high
            assert together.high - together.low < Fraction(1, 1 << 100)
            seen.add(x)
    assert seen == set(range(-4 << sampler.bits, 4 << sampler.bits))


@pytest.mark.parametrize(
    ("variance", "widest", "word_bits", "words"), [(Fraction(7, 3), 1, 3, 5), (Fraction(30), 3, 4, 4)]
)
def test_all_words_give_the_wide_gaussian(variance: Fraction, widest: int, word_bits: int, words: int) -> None:
    """One round: x is proposed and accepted with probability exp(−x²/(2v)) / (2^bits · (θ + 1)), the same for all x."""
    sampler = gaussian_sampler(variance, word_bits, widest)
    assert isinstance(sampler, WideGaussianSampler)
    tried = try_all_words(lambda script: tuple(sampler._accepted(script, 1).tolist()), word_bits, words)
    assert tried.undecided < Fraction(1, 10)
    block = 1 << sampler.bits
    one = Interval(Fraction(1), Fraction(1))
    whole = (gaussian_sum(variance / block**2) + one) * Interval(Fraction(block), Fraction(block))
    rejected = tried.decided.pop(())
    accepted = gaussian_sum(variance) / whole
    assert rejected <= 1 - accepted.low
    assert rejected + tried.undecided >= 1 - accepted.high
    assert sum(tried.decided.values()) + rejected + tried.undecided == 1
    for (x,), decided in tried.decided.items():
        chance = exp_minus(x**2 / (2 * variance)) / whole
        assert decided <= chance.high
        assert chance.low <= decided + tried.undecided
    assert {(-2,), (-1,), (0,), (1,), (2,)} <= set(tried.decided)


def test_a_rejected_proposal_is_followed_by_another() -> None:
    sampler = gaussian_sampler(Fraction(7, 3), 8, 1)
    rejected_then_accepted = Script(40, 255, 0, 40, 0, 255)  # block, place, and the word that rejects or accepts
    assert len(sampler.draw(rejected_then_accepted, 1)) == 1
    assert rejected_then_accepted.script == []


fractions = st.fractions(min_value=Fraction(1, 8), max_value=200, max_denominator=50)


@settings(deadline=None, max_examples=60)
@given(scale=fractions, index=st.integers(1, 40), bits=st.integers(1, 100))
def test_enclosures_agree_with_sums_of_fractions(scale: Fraction, index: int, bits: int) -> None:
    for thresholds, probability in (
        (LaplaceQuotient(scale), laplace_probability),
        (Gaussian(scale), gaussian_probability),
    ):
        total = sum((probability(scale, folded(i)) for i in range(index)), Interval(Fraction(0), Fraction(0)))
        low, high = thresholds.enclosed(index, bits)
        assert Fraction(low, 1 << bits) <= total.high
        assert total.low <= Fraction(high, 1 << bits)
        assert high - low <= 2


@settings(deadline=None, max_examples=30)
@given(scale=fractions, place=st.sampled_from([1, 2, 64]), base=st.sampled_from([2, 4, 16]), bits=st.integers(1, 90))
def test_digits_agree_with_sums_of_fractions(scale: Fraction, place: int, base: int, bits: int) -> None:
    weights = [exp_minus(digit * place / scale) for digit in range(base)]
    nothing = Interval(Fraction(0), Fraction(0))
    for digit in range(1, base):
        share = sum(weights[:digit], nothing) / sum(weights, nothing)
        low, high = GeometricDigit(scale, place, base).enclosed(digit, bits)
        assert Fraction(low, 1 << bits) <= share.high
        assert share.low <= Fraction(high, 1 << bits)
    assert GeometricDigit(scale, place, base).enclosed(base, bits) == (1 << bits, 1 << bits)


@pytest.mark.parametrize(
    "thresholds", [LaplaceQuotient(Fraction(3)), Gaussian(Fraction(9)), GeometricDigit(Fraction(9), 1, 8)], ids=repr
)
def test_every_word_is_looked_up_like_a_plain_search(thresholds: Thresholds) -> None:
    table = Table(thresholds, 1 << 30, word_bits=12)
    cells = table.cells.tolist()
    assert cells == sorted(cells)
    assert cells[-1] == 4095
    for word in range(4096):
        if word in cells:
            continue
        assert table.draw(Script(word), 1)[0] == sum(cell < word for cell in cells)


def test_a_word_that_cannot_decide_asks_for_more() -> None:
    table = Table(LaplaceQuotient(Fraction(1)), 1 << 30, word_bits=8)
    for cell in table.cells.tolist():
        with pytest.raises(WordsRanOut):
            table.draw(Script(cell), 1)


def test_a_draw_that_is_too_large_is_an_error_and_no_wrap() -> None:
    table = Table(LaplaceQuotient(Fraction(1)), limit=40, word_bits=8)
    assert table.draw(Script(255, 255, 0), 1)[0] < 40
    with pytest.raises(OverflowError):
        table.draw(Script(*[255] * 6, 0), 1)


def test_the_largest_scale_leaves_room_in_63_bits() -> None:
    sampler = laplace_sampler(Fraction(1 << 40))
    assert isinstance(sampler, LaplaceSampler)
    largest = ((sampler.quotient.limit - 1) >> 1 << sampler.bits) + (1 << sampler.bits) - 1
    assert largest < 1 << 62
    assert sum(table.limit.bit_length() - 1 for _, table in sampler.digits) == sampler.bits
    wide = gaussian_sampler(Fraction(1 << 80))
    assert isinstance(wide, WideGaussianSampler)
    assert ((wide.block.limit - 1) >> 1 << wide.bits) + (1 << wide.bits) <= 1 << 62


def test_certain_acceptance_never_contradicts_the_exact_threshold() -> None:
    sampler = gaussian_sampler(Fraction(30), 8, 3)
    assert isinstance(sampler, WideGaussianSampler)
    for start in range(0, 64, 1 << sampler.bits):
        for proposal in range(start, start + (1 << sampler.bits)):
            words = np.arange(256, dtype=np.uint64)
            sure = sampler._surely_accepted(np.full(256, proposal), np.full(256, start), words)
            excess = Fraction(proposal**2 - start**2) / (2 * sampler.variance)
            _, high = Rejection(excess).enclosed(1, 8)
            assert not sure[: min(high, 256)].any() or high == 0
