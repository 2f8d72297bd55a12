"""The noise as it is used: the right distribution in bulk, nothing shared, and bad requests refused.

A test here fails by chance less than once in ten million runs. TALLYTREE_LONG=1 draws ten times as much from OpenDP.
"""

from __future__ import annotations

import doctest
import math
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tallytree.core.errors import SpecError
from tallytree.privacy.noise import keystream
from tallytree.privacy.noise import samplers as noise
from tallytree.privacy.noise.keystream import Keystream
from tallytree.privacy.noise.samplers import (
    discrete_gaussian,
    discrete_laplace,
    gaussian_sampler,
    gaussian_variance,
    laplace_sampler,
    laplace_variance,
)
from tests.oracles.noise import ShortWords

UNLIKELY = 1e-8
LONG = 10 if os.environ.get("TALLYTREE_LONG") else 1
Draw = Callable[[int], np.ndarray]


def laplace_masses(scale: float, reach: int) -> np.ndarray:
    """P(−reach … reach), and all beyond at either end."""
    x = np.arange(-reach, reach + 1)
    inside = math.tanh(1 / (2 * scale)) * np.exp(-np.abs(x) / scale)
    beyond = math.exp(-(reach + 1) / scale) / (1 + math.exp(-1 / scale))
    return np.array([beyond, *inside, beyond])


def gaussian_masses(variance: float, reach: int) -> np.ndarray:
    span = 40 * math.ceil(math.sqrt(variance))
    x = np.arange(-span, span + 1)
    weights = np.exp(-(x**2) / (2 * variance))
    weights /= math.fsum(weights)
    inside = weights[np.abs(x) <= reach]
    beyond = math.fsum(weights[x > reach])
    return np.array([beyond, *inside, beyond])


def histogram(draw: Draw, draws: int, reach: int) -> np.ndarray:
    """How often each of the integers above was drawn, counted piece by piece."""
    counts = np.zeros(2 * reach + 3, np.int64)
    piece = 10_000_000
    for start in range(0, draws, piece):
        drawn = draw(min(piece, draws - start))
        np.clip(drawn, -reach - 1, reach + 1, out=drawn)
        drawn += reach + 1
        counts += np.bincount(drawn, minlength=len(counts))
    return counts


def assert_fits(counts: np.ndarray, masses: np.ndarray) -> None:
    """Chi-square over all cells, and the far tails by themselves: exact binomial tests."""
    assert abs(masses.sum() - 1) < 1e-9
    draws = int(counts.sum())
    expected = masses * draws
    assert expected.min() > 10
    assert stats.chisquare(counts, expected * (draws / expected.sum())).pvalue > UNLIKELY
    tail = np.cumsum(masses + masses[::-1])[: len(masses) // 2]
    far = np.cumsum(counts + counts[::-1])[: len(masses) // 2]
    for place in np.searchsorted(tail * draws, [0, 30, 300, 3000]):
        chance = float(tail[place])
        assert stats.binomtest(int(far[place]), draws, chance).pvalue > UNLIKELY


# ---------------------------------------------------------------- the distribution


@pytest.mark.slow
def test_a_hundred_million_laplace_draws_fit() -> None:
    counts = histogram(lambda size: discrete_laplace(30, size), 100_000_000, reach=330)
    assert_fits(counts, laplace_masses(30, 330))


@pytest.mark.slow
def test_a_hundred_million_gaussian_draws_fit() -> None:
    counts = histogram(lambda size: discrete_gaussian(900, size), 100_000_000, reach=140)
    assert_fits(counts, gaussian_masses(900, 140))


@pytest.mark.parametrize(("scale", "reach"), [("1/5", 1), (1, 10), ("7/3", 25), ("60.5", 480)])
def test_ten_million_laplace_draws_fit(scale: int | str, reach: int) -> None:
    counts = histogram(lambda size: discrete_laplace(scale, size), 10_000_000, reach)
    assert_fits(counts, laplace_masses(float(Fraction(scale)), reach))


@pytest.mark.parametrize(("variance", "reach"), [("1/10", 0), (1, 4), ("7/3", 6), (10_000, 400)])
def test_ten_million_gaussian_draws_fit(variance: int | str, reach: int) -> None:
    counts = histogram(lambda size: discrete_gaussian(variance, size), 10_000_000, reach)
    assert_fits(counts, gaussian_masses(float(Fraction(variance)), reach))


def test_short_words_from_the_keystream_fit() -> None:
    """The same code with 8-bit words, where one draw in twelve takes the slow path."""
    laplace, gaussian = laplace_sampler(Fraction(7, 3), 8), gaussian_sampler(Fraction(9), 8)
    source = ShortWords(8)
    counts = histogram(lambda size: laplace.draw(source, size), 20_000, reach=10)
    assert_fits(counts, laplace_masses(7 / 3, 10))
    assert source.calls > 1_000
    counts = histogram(lambda size: gaussian.draw(source, size), 20_000, reach=8)
    assert_fits(counts, gaussian_masses(9, 8))


@pytest.mark.parametrize("scale", [10_000, 5_000_000, 1 << 40])
def test_large_laplace_scales_fit_in_equally_likely_bins(scale: int) -> None:
    draws = discrete_laplace(scale, 4_000_000)
    edges = np.rint(stats.laplace.ppf(np.linspace(0.0005, 0.9995, 400), scale=scale)).astype(np.int64)
    p = math.exp(-1 / scale)
    below = np.where(edges <= 0, np.exp(edges / scale) * p / (1 + p), 1 - np.exp(-edges / scale) / (1 + p))
    expected = np.diff(below, prepend=0, append=1) * len(draws)
    counts = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=len(edges) + 1)
    assert stats.chisquare(counts, expected).pvalue > UNLIKELY


@pytest.mark.parametrize(("scale", "modulus"), [(100, 2), (100, 7), (10_000, 256), (10_000, 1000)])
def test_remainders_of_large_laplace_draws_fit(scale: int, modulus: int) -> None:
    """The low digits: P(X mod m = r) = (1 − p)/(1 + p) (p^r + p^(m − r)) / (1 − p^m)."""
    p, r = math.exp(-1 / scale), np.arange(modulus)
    masses = np.tanh(1 / (2 * scale)) * (p**r + p ** (modulus - r)) / (1 - p**modulus)
    draws = discrete_laplace(scale, 4_000_000)
    counts = np.bincount(draws % modulus, minlength=modulus)
    assert stats.chisquare(counts, masses / masses.sum() * len(draws)).pvalue > UNLIKELY


@pytest.mark.parametrize("variance", [1 << 20, (1 << 20) + 1, 10**10, 1 << 80])
def test_wide_gaussians_fit_in_equally_likely_bins(variance: int) -> None:
    """A normal distribution in bins between integers, which at these widths differs by less than 10^−12."""
    draws = discrete_gaussian(variance, 2_000_000)
    deviation = math.sqrt(variance)
    edges = np.rint(stats.norm.ppf(np.linspace(0.001, 0.999, 300), scale=deviation)) - 0.5
    expected = np.diff(stats.norm.cdf(edges, scale=deviation), prepend=0, append=1) * len(draws)
    counts = np.bincount(np.searchsorted(edges, draws), minlength=len(edges) + 1)
    assert stats.chisquare(counts, expected).pvalue > UNLIKELY
    low_bits = np.bincount(draws & 15, minlength=16)
    assert stats.chisquare(low_bits).pvalue > UNLIKELY
    for deviations in (3, 4, 4.5):
        far = int((np.abs(draws) > deviations * deviation).sum())
        assert stats.binomtest(far, len(draws), 2 * float(stats.norm.sf(deviations))).pvalue > UNLIKELY


@pytest.mark.parametrize("variance", [20_000, 100_000])
def test_wide_gaussians_fit_integer_by_integer(variance: int) -> None:
    """Blocks of two and of four integers: the places within a block are not alike, and rejection shows it."""
    reach = 7 * math.isqrt(variance) // 2
    counts = histogram(lambda size: discrete_gaussian(variance, size), 10_000_000, reach)
    assert_fits(counts, gaussian_masses(variance, reach))


def test_wide_noise_has_the_same_law_at_each_place() -> None:
    """At the first and at the last as in between, whichever of the others were rejected, read whole or in doubt."""
    sampler, source = gaussian_sampler(Fraction(9), 8, 1), ShortWords(8)
    drawn = np.array([sampler.draw(source, 3) for _ in range(10_000)])
    for place in range(3):
        counts = np.bincount(np.clip(drawn[:, place], -8, 8) + 8, minlength=17)
        assert_fits(counts, gaussian_masses(9, 7))


def two_samples(ours: np.ndarray, theirs: np.ndarray, cells: int) -> float:
    """Chi-square over cells that end at whole numbers drawn by `theirs`, so that no cell is without a draw.

    (A quantile halfway between two of them would leave the cell below it empty, which chi-square refuses.)
    """
    edges = np.unique(np.quantile(theirs, np.linspace(0, 1, cells)[1:-1], method="inverted_cdf"))
    table = [np.bincount(np.searchsorted(edges, sample), minlength=len(edges) + 1) for sample in (ours, theirs)]
    return float(stats.chi2_contingency(table).pvalue)


@pytest.mark.parametrize("scale", [1, 30, 10_000])
def test_laplace_agrees_with_opendp(scale: int) -> None:
    theirs = noise.opendp_laplace(scale, 100_000 * LONG)
    assert two_samples(discrete_laplace(scale, 1_000_000 * LONG), theirs, 100) > UNLIKELY


@pytest.mark.parametrize("variance", [1, 900, 4_000_000])
def test_gaussian_agrees_with_opendp(variance: int) -> None:
    theirs = noise.opendp_gaussian(variance, 100_000 * LONG)
    assert two_samples(discrete_gaussian(variance, 1_000_000 * LONG), theirs, 100) > UNLIKELY


@pytest.mark.parametrize("scale", ["1/3", 1, 30, 10_000])
def test_laplace_moments_fit(scale: int | str) -> None:
    draws, variance = discrete_laplace(scale, 4_000_000).astype(float), laplace_variance(scale)
    assert abs(draws.mean()) < 6 * math.sqrt(variance / len(draws))
    spread = (draws**2).std() / math.sqrt(len(draws))
    assert abs((draws**2).mean() - variance) < 6 * spread


@pytest.mark.parametrize("variance", ["1/3", 1, 900, 4_000_000])
def test_gaussian_moments_fit(variance: int | str) -> None:
    draws, exact = discrete_gaussian(variance, 4_000_000).astype(float), gaussian_variance(variance)
    assert abs(draws.mean()) < 6 * math.sqrt(exact / len(draws))
    spread = (draws**2).std() / math.sqrt(len(draws))
    assert abs((draws**2).mean() - exact) < 6 * spread


@pytest.mark.parametrize("number", ["1/20", "0.15", "0.17", "1/3", "1", "7/3", "30", "900"])
def test_variances_are_those_of_the_plain_sums(number: str) -> None:
    value = float(Fraction(number))
    x = np.arange(-60_000, 60_001)
    laplace, gaussian = np.exp(-np.abs(x) / value), np.exp(-(x**2) / (2 * value))
    plain = [math.fsum(x**2 * weights) / math.fsum(weights) for weights in (laplace, gaussian)]
    assert [laplace_variance(number), gaussian_variance(number)] == pytest.approx(plain, rel=1e-12)


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(noise).failed == 0


# ---------------------------------------------------------------- nothing is shared


def wide(size: int) -> np.ndarray:
    """Draws of some 42 random bits each: equal ones mean equal keystreams."""
    return discrete_laplace(1 << 40, size)


def test_two_arrays_have_nothing_in_common() -> None:
    assert len(np.intersect1d(wide(1000), wide(1000))) == 0
    first, second = discrete_laplace(30, 1_000_000), discrete_laplace(30, 1_000_000)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.006
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 0.006


def test_every_block_of_every_thread_has_its_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []

    def remembered(count: int) -> bytes:
        keys.append(urandom(count))
        return keys[-1]

    urandom = os.urandom
    monkeypatch.setattr(keystream.os, "urandom", remembered)
    draws = wide(3 * noise.THREAD_BLOCK)
    assert len(set(keys)) == len(keys) == 3 * noise.THREAD_BLOCK // noise.KEY_BLOCK
    starts = draws.reshape(-1, noise.KEY_BLOCK)[:, :4]
    assert len(np.unique(starts, axis=0)) == len(starts)


def test_threads_that_draw_at_once_share_nothing() -> None:
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(wide, [500] * 40))
    assert len(np.unique(np.concatenate(parts))) == 20_000


def _send_noise(pipe: multiprocessing.connection.Connection) -> None:
    pipe.send((wide(1000), Keystream().words(100)))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_draws_other_noise_than_its_parent() -> None:
    wide(10)  # tables and everything else that a child inherits are there
    context = multiprocessing.get_context("fork")
    noises, words = [wide(1000)], [Keystream().words(100)]
    for _ in range(2):
        here, there = context.Pipe()
        child = context.Process(target=_send_noise, args=(there,))
        child.start()
        assert here.poll(60), "the child is stuck"
        drawn, stream = here.recv()
        child.join()
        noises.append(drawn)
        words.append(stream)
    noises.append(wide(1000))
    assert len(np.unique(np.concatenate(noises))) == 4000
    assert len(np.unique(np.concatenate(words))) == 300


def test_the_keystream_is_chacha20_without_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an all-zero key, the words are the published keystream (RFC 8439, appendix A.1, vectors 1 and 2)."""
    monkeypatch.setattr(keystream.os, "urandom", lambda count: bytes(count))
    first = Keystream()
    assert first.words(2).tobytes().hex() == "76b8e0ada0f13d90405d6ae55386bd28"
    first.words(6)
    assert first.words(2).tobytes().hex() == "9f07e7be5551387a98ba977c732d080d"
    whole, parts = Keystream().words(100_000), Keystream()
    assert np.array_equal(whole, np.concatenate([parts.words(40_001), parts.words(59_999)]))


# ---------------------------------------------------------------- bad requests


BAD = [
    0,
    -1,
    Fraction(-1, 2),
    "0",
    "-1",
    "1/0",
    "",
    "one",
    "1e3",
    "nan",
    "inf",
    0.5,
    math.inf,
    math.nan,
    None,
    True,
    1j,
]
SAMPLERS = [discrete_laplace, discrete_gaussian, noise.opendp_laplace, noise.opendp_gaussian]


@pytest.fixture
def nothing_may_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("something was drawn")

    monkeypatch.setattr(noise, "Keystream", refuse)
    monkeypatch.setattr(noise, "_draw_by_opendp", refuse)


@pytest.mark.usefixtures("nothing_may_be_drawn")
@pytest.mark.parametrize("draw", SAMPLERS)
@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_a_bad_scale_is_refused_before_anything_is_drawn(draw: Callable, bad: object) -> None:
    with pytest.raises(SpecError, match="expected"):
        draw(bad, 10)


@pytest.mark.usefixtures("nothing_may_be_drawn")
def test_an_absurdly_large_scale_is_refused() -> None:
    for draw in (discrete_laplace, noise.opendp_laplace):
        with pytest.raises(SpecError, match="2\\^40"):
            draw((1 << 40) + 1, 10)
    for draw in (discrete_gaussian, noise.opendp_gaussian):
        with pytest.raises(SpecError, match="2\\^80"):
            draw((1 << 80) + 1, 10)
    with pytest.raises(SpecError):
        discrete_laplace("9" * 10_000, 10)


@pytest.mark.usefixtures("nothing_may_be_drawn")
@pytest.mark.parametrize("draw", SAMPLERS)
@pytest.mark.parametrize("bad", [-1, 1.0, "3", None, True, (2, 3)], ids=repr)
def test_a_bad_size_is_refused_before_anything_is_drawn(draw: Callable, bad: object) -> None:
    with pytest.raises(SpecError, match="number of draws"):
        draw(1, bad)


@pytest.mark.parametrize("draw", SAMPLERS)
def test_no_draws_are_an_empty_array(draw: Callable) -> None:
    empty = draw(1, 0)
    assert empty.shape == (0,)
    assert empty.dtype == np.int64


@pytest.mark.parametrize("draw", SAMPLERS)
@pytest.mark.parametrize("scale", [Fraction(5, 2), "5/2", "2.5", np.int64(3), 3])
def test_exact_numbers_of_every_kind_are_taken(draw: Callable, scale: Fraction | int | str) -> None:
    drawn = draw(scale, np.int64(50))
    assert drawn.shape == (50,)
    assert drawn.dtype == np.int64


def test_a_tiny_scale_draws_zeros() -> None:
    assert not discrete_laplace(Fraction(1, 10**9), 100_000).any()
    assert not discrete_gaussian(Fraction(1, 10**9), 100_000).any()


def test_opendp_never_gets_less_noise_than_asked_for() -> None:
    for number in (Fraction(1, 3), Fraction(2, 3), Fraction(10**20 + 1, 3**30), Fraction(30)):
        scale, variance = noise.usable_scale(number), noise.usable_variance(number)
        assert number <= scale <= number * (1 + Fraction(1, 1 << 52))
        assert number <= variance <= number * (1 + Fraction(1, 1 << 51))
        assert Fraction(float(scale)) == scale
        assert Fraction(math.sqrt(variance)) ** 2 == variance
