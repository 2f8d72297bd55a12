"""Where noise and choices come from: everything that the border draws, it draws from a `Randomness`.

There are two here, both cryptographic, which `cryptographic` gives by name: tallytree's own (`samplers`), and OpenDP's,
which is slower and was written by other people. A release goes through `measure`, which takes such a name, and a
synthesis through `PrivateTables`, which has tallytree's own unless it is handed another. `tallytree.lab`, which works
on data that are public or made up, makes a seeded one; a test holds the list of who makes one and who hands one over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from tallytree.core.arguments import told
from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.privacy.noise.keystream import Keystream, Source

NoiseKind = Literal["discrete_laplace", "discrete_gaussian"]
NoiseSource = Literal["tallytree", "opendp"]


Draw = Callable[[Fraction, int], Integers]  # the scale (Laplace) or σ² (Gaussian), and how many
Usable = Callable[[Fraction], Fraction]  # the scale or σ² to draw at for the one asked for: never a smaller one


@dataclass(frozen=True, eq=False)
class Randomness:
    """Integers of noise, the scales at which they can be drawn, and words for choices."""

    name: str  # in measurements and journals
    laplace: Draw
    gaussian: Draw
    usable_scale: Usable
    usable_variance: Usable
    words: Callable[[], Source]

    def draw(self, kind: NoiseKind, scale: Fraction, count: int) -> Integers:
        """Return `count` integers of noise of a kind."""
        return (self.laplace if kind == "discrete_laplace" else self.gaussian)(scale, count)

    def usable(self, kind: NoiseKind, scale: Fraction) -> Fraction:
        """Return what to draw a kind of noise at, if `scale` is asked for."""
        return (self.usable_scale if kind == "discrete_laplace" else self.usable_variance)(scale)


def cryptographic(source: NoiseSource) -> Randomness:
    """Return the randomness of a release: exact draws by tallytree or by OpenDP, both from keys of the operating
    system.
    """
    from tallytree.privacy.noise import samplers

    if source == "tallytree":
        own = samplers.discrete_laplace, samplers.discrete_gaussian, samplers.checked_scale, samplers.checked_variance
        return Randomness("tallytree", *own, words=Keystream)
    if source == "opendp":
        samplers.opendp_library()  # if it is missing, that is noticed here, before anything is charged
        theirs = samplers.opendp_laplace, samplers.opendp_gaussian, samplers.usable_scale, samplers.usable_variance
        return Randomness("opendp", *theirs, words=Keystream)
    raise SpecError(f"unknown noise source {told(source)}; expected tallytree or opendp")


def variance_of(kind: NoiseKind, scale: Fraction) -> float:
    """Return the variance of noise of that kind and scale."""
    from tallytree.privacy.noise import samplers

    return (samplers.laplace_variance if kind == "discrete_laplace" else samplers.gaussian_variance)(scale)
