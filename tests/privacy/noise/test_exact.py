"""The code of the samplers, run on every possible short word: each probability is the exact one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.privacy.noise.inversion import Gaussian, Laplace, Rejection, Table, Thresholds
from tallytree.privacy.noise.samplers import NarrowSampler, WideSampler, _judge, gaussian_sampler, laplace_sampler
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
    assert isinstance(sampler, NarrowSampler)
    tried = try_all_words(lambda script: int(sampler.draw(script, 1)[0]), word_bits, words)
    assert_every_outcome_is_exact(tried, lambda x: laplace_probability(scale, x), word_bits * words)


@pytest.mark.parametrize(("word_bits", "words"), [(6, 1), (6, 2), (6, 3), (8, 2), (3, 4)])
@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_all_words_give_exactly_the_gaussian(variance: Fraction, word_bits: int, words: int) -> None:
    sampler = gaussian_sampler(variance, word_bits)
    assert isinstance(sampler, NarrowSampler)
    tried = try_all_words(lambda script: int(sampler.draw(script, 1)[0]), word_bits, words)
    assert_every_outcome_is_exact(tried, lambda x: gaussian_probability(variance, x), word_bits * words)


def test_short_words_take_the_slow_path_often() -> None:
    sampler = laplace_sampler(Fraction(7, 3), 6)
    tried = try_all_words(lambda script: int(sampler.draw(script, 1)[0]), 6, 3)
    assert tried.by_words[2] > Fraction(1, 5)
    assert 0 < tried.by_words[3] < Fraction(1, 10)
    assert 0 < tried.undecided < Fraction(1, 1000)


# ---------------------------------------------------------------- wide noise

ONE = Interval(Fraction(1), Fraction(1))


def laplace_weight(scale: Fraction, x: int) -> Interval:
    return exp_minus(abs(x) / scale)


def gaussian_weight(variance: Fraction, x: int) -> Interval:
    return exp_minus(x**2 / (2 * variance))


def laplace_blocks(scale: Fraction, block: int) -> Interval:
    """What all blocks weigh: 2 (1 + r + r² + …) with r = exp(−block/scale)."""
    r = exp_minus(block / scale)
    return Interval(2 / (1 - r.low), 2 / (1 - r.high))


def gaussian_blocks(variance: Fraction, block: int) -> Interval:
    """What all blocks weigh: each k ≥ 0 twice, so the sum over all integers and once more the middle one."""
    return gaussian_sum(variance / block**2) + ONE


LAWS = {
    "laplace": (laplace_sampler, laplace_weight, laplace_blocks),
    "gaussian": (gaussian_sampler, gaussian_weight, gaussian_blocks),
}


def wide_sampler(law: str, *arguments) -> WideSampler:
    sampler = LAWS[law][0](*arguments)
    assert isinstance(sampler, WideSampler)
    return sampler


def proposed(law: str, number: Fraction, sampler: WideSampler, x: int) -> Interval:
    """How likely one proposal is x and accepted: what x weighs, over what all places of all blocks weigh."""
    _, weight, whole = LAWS[law]
    block = 1 << sampler.bits
    return weight(number, x) / (whole(number, block) * Interval(Fraction(block), Fraction(block)))


@pytest.mark.parametrize(
    ("law", "number", "widest", "word_bits", "leading_bits", "words"),
    [
        ("laplace", Fraction(7, 3), 1, 9, 5, 2),
        pytest.param("laplace", Fraction(2, 3), Fraction(1, 3), 5, 4, 4, marks=pytest.mark.slow),
        ("gaussian", Fraction(7, 3), 1, 9, 5, 2),
        pytest.param("gaussian", Fraction(7, 3), 1, 5, 2, 4, marks=pytest.mark.slow),
        pytest.param("gaussian", Fraction(30), 3, 9, 7, 2, marks=pytest.mark.slow),
    ],
)
def test_all_words_give_the_wide_noise(
    law: str, number: Fraction, widest: Fraction, word_bits: int, leading_bits: int, words: int
) -> None:
    """One round: every sequence of words proposes x and accepts it, or rejects, exactly as often as it should."""
    sampler = wide_sampler(law, number, word_bits, widest)
    sampler = replace(sampler, block=replace(sampler.block, most_leading_bits=leading_bits))

    def round_of(script: Script) -> int | None:
        proposals, rejected = sampler._proposals(script, 1)
        assert rejected.tolist() in ([], [0])
        return None if len(rejected) else int(proposals[0])

    tried = try_all_words(round_of, word_bits, words)
    assert sum(tried.decided.values()) + tried.undecided == 1
    assert tried.undecided < Fraction(1, 12)
    assert tried.by_words[1] > 0, "some words decide all by themselves"
    assert tried.by_words[words] > 0, "and some do not"
    rejected = tried.decided.pop(None)
    assert {-2, -1, 0, 1, 2} <= set(tried.decided)
    accepted = Interval(Fraction(0), Fraction(0))
    for x in range(-60, 60):
        chance, decided = proposed(law, number, sampler, x), tried.decided.get(x, Fraction(0))
        assert decided <= chance.high
        assert chance.low <= decided + tried.undecided
        accepted = accepted + chance
    assert rejected <= 1 - accepted.low
    assert 1 - accepted.high <= rejected + tried.undecided


def chance(thresholds: Thresholds, outcome: int, bits: int = 130) -> Interval:
    """The probability of an outcome as the difference of two enclosed thresholds."""
    low, high = thresholds.enclosed(outcome, bits) if outcome else (0, 0)
    next_low, next_high = thresholds.enclosed(outcome + 1, bits)
    return Interval(Fraction(next_low - high, 1 << bits), Fraction(next_high - low, 1 << bits))


WIDE = [
    ("laplace", Fraction(7, 3), 1),
    ("laplace", Fraction(1000, 7), 128),
    ("laplace", Fraction(5_000_000), 128),
    ("laplace", Fraction(1 << 40), 128),
    ("gaussian", Fraction(7, 3), 1),
    ("gaussian", Fraction(10**5, 3), 128),
    ("gaussian", Fraction(10**10), 128),
    ("gaussian", Fraction(1 << 80), 128),
]


def some_places(sampler: WideSampler) -> list[int]:
    """All places of small blocks; of large ones the first, the last and some between."""
    block = 1 << sampler.bits
    return list(range(block)) if block <= 16 else [0, 1, 2, block // 3, block // 2, block - 2, block - 1]


@pytest.mark.parametrize(("law", "number", "widest"), WIDE)
def test_block_place_and_acceptance_give_each_integer_its_weight_once(law: str, number: Fraction, widest: int) -> None:
    """P(block, sign) · P(place) · P(accepted) is proportional to what the integer weighs, near zero and far out."""
    sampler = wide_sampler(law, number, 64, widest)
    seen = set()
    for outcome in (*range(8), 101, 256, 257):
        for place in some_places(sampler):
            words = np.array([place << sampler.digits], np.uint64)
            x, _ = _verdict(sampler, words, outcome)
            excess = sampler.excess(outcome, place)
            assert excess >= 0
            part = Fraction(1, 1 << sampler.bits)
            together = chance(sampler.block.thresholds, outcome) * Interval(part, part) * exp_minus(excess)
            exact = proposed(law, number, sampler, x)
            assert together.low <= exact.high
            assert exact.low <= together.high
            assert together.high - together.low < Fraction(1, 1 << 100)
            assert x not in seen
            seen.add(x)
    if len(some_places(sampler)) == 1 << sampler.bits:
        assert set(range(-4 << sampler.bits, 4 << sampler.bits)) <= seen


def _verdict(sampler: WideSampler, words: np.ndarray, outcome: int) -> tuple[int, dict[int, str]]:
    """The proposal that all these words make with an outcome, and what the kernel says of each word."""
    outcomes, proposals, unsure = (np.full(len(words), outcome) for _ in range(3))
    rates = float(sampler.slope), float(sampler.curve)
    found = _judge(words, outcomes, sampler.bits, sampler.digits, *rates, proposals, unsure)
    assert len(set(proposals.tolist())) == 1
    said = dict.fromkeys(range(len(words)), "accepted")
    for place in unsure[:found].tolist():
        said[place if place >= 0 else ~place] = "in doubt" if place >= 0 else "rejected"
    return int(proposals[0]), said


@pytest.mark.parametrize(("law", "number", "widest"), [*WIDE, ("gaussian", Fraction(30), 3)])
def test_what_is_sure_never_contradicts_the_exact_threshold(law: str, number: Fraction, widest: int) -> None:
    """Digits of all zeros, of all ones and around every bound; what is in doubt lies within e³ of the threshold."""
    sampler = wide_sampler(law, number, 64, widest)
    said_of_all = set()
    for outcome in (0, 1, 2, 3, 60, 257, 1000, 1 << 20):
        for place in some_places(sampler):
            excess = sampler.excess(outcome, place)
            unit = 1 << sampler.digits
            low, high = Rejection(excess).enclosed(1, sampler.digits)
            bounds = [low, high, *(int(bound * unit) for bound in (excess, excess - excess**2 / 2, excess**3 / 6))]
            near = {bound + step for bound in bounds for step in (-(unit >> 20), -2, -1, 0, 1, 2, unit >> 20)}
            digits = sorted({0, 1, unit - 2, unit - 1} | {digit for digit in near if 0 <= digit < unit})
            words = np.array([(place << sampler.digits) | digit for digit in digits], np.uint64)
            _, said = _verdict(sampler, words, outcome)
            for digit, verdict in zip(digits, said.values(), strict=True):
                if verdict == "accepted":
                    assert digit >= high
                elif verdict == "rejected":
                    assert digit + 1 <= low
                else:
                    assert excess >= Fraction(1, 2) or abs(digit - low) <= 2 + (excess**3 + Fraction(1, 1 << 38)) * unit
            said_of_all |= set(said.values())
    assert said_of_all == {"accepted", "rejected", "in doubt"}


@pytest.mark.parametrize("number", [Fraction(30), Fraction(1, 5)])
def test_short_digits_are_decided_as_far_as_they_can_be(number: Fraction) -> None:
    """All words of ten bits, all blocks near zero, all places: sure if and only if the bounds of the series say so."""
    sampler = wide_sampler("gaussian", number, 10, Fraction(1, 4))
    unit = 1 << sampler.digits
    for outcome in range(12):
        for place in range(1 << sampler.bits):
            words = np.array([(place << sampler.digits) | digit for digit in range(unit)], np.uint64)
            _, said = _verdict(sampler, words, outcome)
            low, high = Rejection(sampler.excess(outcome, place)).enclosed(1, sampler.digits)
            for digit, verdict in said.items():
                assert verdict != "accepted" or digit >= high
                assert verdict != "rejected" or digit + 1 <= low


@pytest.mark.parametrize("law", LAWS)
def test_words_of_zeros_and_ones_are_drawn_from(law: str) -> None:
    """At the ends of the table, of the places and of the digits, and in the tail behind the table's end."""
    sampler, ones = wide_sampler(law, Fraction(10**10)), (1 << 64) - 1
    lasting = (1 << sampler.digits) - 1  # digits of ones: a number close to 1, which accepts
    assert sampler.draw(Script(lasting), 1).tolist() == [0]
    assert sampler.draw(Script(0), 1).tolist() == [0], "an excess of 0 is accepted at once"
    last_place = ((1 << sampler.bits) - 1) << sampler.digits
    assert sampler.draw(Script(last_place | lasting), 1).tolist() == [(1 << sampler.bits) - 1]
    assert _round(sampler, last_place) == "rejected", "digits of zeros are rejected where there is an excess"
    for more in (0, ones - (1 << 30)):  # 1 − U is 2^−64, or about 2^−98
        tail = Script(ones, more, ones)
        x = int(sampler.draw(tail, 1)[0])
        assert tail.script == []
        below, _ = sampler.block.thresholds.enclosed(2 * (abs(x) >> sampler.bits), 200)
        assert (1 << 200) - below < 1 << (138 if more == 0 else 104)


def test_draws_stay_at_their_places_whatever_is_rejected() -> None:
    """The second of three proposals is rejected: it alone is drawn again, from words of its own."""
    sampler = wide_sampler("gaussian", Fraction(7, 3), 8, 1)
    one_by_one = {word: _round(sampler, word) for word in range(256)}
    sure = [word for word, said in one_by_one.items() if isinstance(said, int)]
    rejecting = next(word for word, said in one_by_one.items() if said == "rejected")
    first, second, third = sure[0], sure[len(sure) // 2], sure[-1]
    script = Script(first, rejecting, third, second)
    assert sampler.draw(script, 3).tolist() == [one_by_one[word] for word in (first, second, third)]
    assert script.script == []


def _round(sampler: WideSampler, word: int) -> int | str:
    try:
        proposals, rejected = sampler._proposals(Script(word), 1)
    except WordsRanOut:
        return "goes on"
    return "rejected" if len(rejected) else int(proposals[0])


@pytest.mark.parametrize("thresholds", [Laplace(Fraction(3), True), Gaussian(Fraction(9), True)], ids=repr)
@pytest.mark.parametrize("leading_bits", [3, 5, 14])
def test_bits_that_are_left_over_have_decided_nothing(thresholds: Thresholds, leading_bits: int) -> None:
    """A word that is not said to be read has the outcome of every word with the same leading bits, also not read."""
    table = Table(thresholds, 1 << 30, 10, leading_bits)
    assert table.leading_bits <= leading_bits
    alike: dict[int, set[object]] = {}
    for word in range(1024):
        try:
            outcomes, read = table.outcomes(np.array([word], np.uint64), Script())
            said: object = int(outcomes[0]) if not len(read) else "read"
        except WordsRanOut:
            said = "read"
        alike.setdefault(word >> (10 - table.leading_bits), set()).add(said)
    assert all(len(said) == 1 for said in alike.values())
    kinds = {said for (said,) in alike.values()}
    assert "read" in kinds
    assert leading_bits == 3 or len(kinds) > 5


fractions = st.fractions(min_value=Fraction(1, 8), max_value=200, max_denominator=50)


@settings(deadline=None, max_examples=60)
@given(scale=fractions, index=st.integers(1, 40), bits=st.integers(1, 100))
def test_enclosures_agree_with_sums_of_fractions(scale: Fraction, index: int, bits: int) -> None:
    for thresholds, probability in (
        (Laplace(scale), laplace_probability),
        (Gaussian(scale), gaussian_probability),
    ):
        total = sum((probability(scale, folded(i)) for i in range(index)), Interval(Fraction(0), Fraction(0)))
        low, high = thresholds.enclosed(index, bits)
        assert Fraction(low, 1 << bits) <= total.high
        assert total.low <= Fraction(high, 1 << bits)
        assert high - low <= 2


@settings(deadline=None, max_examples=30)
@given(number=fractions, index=st.integers(1, 40), bits=st.integers(1, 90))
def test_thresholds_of_blocks_agree_with_sums_of_fractions(number: Fraction, index: int, bits: int) -> None:
    for thresholds, weight, whole in (
        (Laplace(number, doubled=True), laplace_weight, laplace_blocks),
        (Gaussian(number, doubled=True), gaussian_weight, gaussian_blocks),
    ):
        weights = (weight(number, outcome // 2) for outcome in range(index))
        total = sum(weights, Interval(Fraction(0), Fraction(0))) / whole(number, 1)
        low, high = thresholds.enclosed(index, bits)
        assert Fraction(low, 1 << bits) <= total.high
        assert total.low <= Fraction(high, 1 << bits)
        assert high - low <= 2


@pytest.mark.parametrize(
    "thresholds", [Laplace(Fraction(3)), Gaussian(Fraction(9)), Laplace(Fraction(9), doubled=True)], ids=repr
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
    table = Table(Laplace(Fraction(1)), 1 << 30, word_bits=8)
    for cell in table.cells.tolist():
        with pytest.raises(WordsRanOut):
            table.draw(Script(cell), 1)


def test_a_draw_that_is_too_large_is_an_error_and_no_wrap() -> None:
    table = Table(Laplace(Fraction(1)), limit=40, word_bits=8)
    assert table.draw(Script(255, 255, 0), 1)[0] < 40
    with pytest.raises(OverflowError):
        table.draw(Script(*[255] * 6, 0), 1)


@pytest.mark.parametrize(("law", "largest"), [("laplace", Fraction(1 << 40)), ("gaussian", Fraction(1 << 80))])
def test_the_largest_scale_leaves_room_in_63_bits(law: str, largest: Fraction) -> None:
    sampler = wide_sampler(law, largest)
    assert ((sampler.block.limit - 1) >> 1 << sampler.bits) + (1 << sampler.bits) <= 1 << 62
    assert sampler.digits == 17
