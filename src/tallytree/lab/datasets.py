"""The made-up data sets by name, and tables of households. Each is a function of a seed and a scale.

Nothing is bundled. `make_households` is for work on synthetic microdata: attributes are codes. The domains have the
shape of HQR's (Appendix A.1): its ACS data set with 10 household and 11 person attributes and at most 5 persons, and
its ACS-SMALL one, whose 60 household cells and 16 person cells, with 1 to 3 persons in order, give the 60 · (16 + 16² +
16³) = 262,080 that the paper states.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.demo.country import SHARES
from tallytree.lab.blocks import blocks, people, write_people
from tallytree.lab.nation import census, checked_scale, race, taxi
from tallytree.lab.truth import Truth

__all__ = ["DATASETS", "DOMAINS", "Dataset", "Domain", "Tables", "make", "make_households", "write_people"]


@dataclass(frozen=True)
class Dataset:
    """A made-up data set; its recipe is the docstring of its function."""

    name: str
    about: str
    make: Callable[..., Truth]

    @property
    def options(self) -> dict[str, Any]:
        """Return the options besides scale and seed, with their defaults."""
        parameters = inspect.signature(self.make).parameters
        return {name: each.default for name, each in parameters.items() if name not in ("scale", "seed")}

    @property
    def recipe(self) -> str:
        """Return how it is made."""
        return inspect.getdoc(self.make) or ""


DATASETS: dict[str, Dataset] = {
    each.name: each
    for each in (
        Dataset("census", "household sizes, 1 → 52 → 3,144 regions, 118 million groups, 1,000 sizes", census),
        Dataset("taxi", "pick-ups by taxi and zone, 1 → 6 → 263 or 1 → 2 → 28 regions, 13,282 sizes", taxi),
        Dataset("race", "blocks by persons of a small population, 1 → 52 → 3,144 regions, 11 million groups", race),
        Dataset("people", "the households of 300 million rows of persons, 1 → 52 → 3,144 regions, 20 sizes", people),
        Dataset("blocks", "households on 6 levels down to 8.1 million blocks, 28 % of them empty, 10 sizes", blocks),
    )
}


def make(name: str, *, scale: float = 1.0, seed: int = 0, **options: Any) -> Truth:
    """Make the data set of that name: the same for the same scale, seed and options.

    >>> make("census", scale=0.01).hierarchy
    Hierarchy(nation 1 → state 12 → county 31)
    """
    if name == "households":
        raise SpecError("the data set 'households' is a pair of tables, not counts; make it with `make_households`")
    if name not in DATASETS:
        near = get_close_matches(name, DATASETS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise SpecError(f"unknown data set {name!r}; {hint}choose from {', '.join(DATASETS)}")
    dataset = DATASETS[name]
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise SpecError(f"seed must be an integer from 0 on, not {seed!r}")
    for option in options:
        if option not in dataset.options:
            near = get_close_matches(option, dataset.options, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            known = ", ".join(dataset.options)
            raise SpecError(f"the data set {name!r} has no option {option!r}; {hint}it has {known}")
    return dataset.make(scale=checked_scale(scale), seed=seed, **options)


# -------------------------------------------------------------------- households


HOUSEHOLDS = 75_000
CLASSES = 8  # kinds of household


class Tables(NamedTuple):
    """Households and persons as Arrow tables, joined by household_id."""

    households: Any
    persons: Any


@dataclass(frozen=True)
class Domain:
    """How many codes (0, 1, …) each attribute has, and how many persons a household can have at most."""

    household: Mapping[str, int]
    person: Mapping[str, int]
    max_persons: int

    @property
    def size(self) -> int:
        """Return how many different households are possible, persons in order."""
        persons = sum(prod(self.person.values()) ** number for number in range(1, self.max_persons + 1))
        return int(prod(self.household.values()) * persons)


# The names and numbers of attributes are HQR's; the numbers of codes are near those of the survey's code lists for
# "acs", and the ones that its stated domain size implies for "acs-small".
DOMAINS = {
    "acs": Domain(
        {
            "COUNTYFIP": 39,
            "METRO": 5,
            "FARM": 2,
            "OWNERSHP": 3,
            "FARMPROD": 9,
            "ACREHOUS": 4,
            "ROOMS": 20,
            "BUILTYR2": 23,
            "FOODSTMP": 2,
            "MULTGEN": 4,
        },
        {
            "SFRELATE": 4,
            "SEX": 2,
            "MARST": 6,
            "RACE": 9,
            "HISPAN": 5,
            "CITIZEN": 4,
            "EDUC": 12,
            "SCHOOL": 3,
            "EMPSTAT": 4,
            "LOOKING": 4,
            "AGE": 20,
        },
        5,
    ),
    "acs-small": Domain(
        {"METRO": 5, "OWNERSHP": 3, "FARM": 2, "FOODSTMP": 2}, {"SEX": 2, "AGE": 2, "EMPSTAT": 2, "MARST": 2}, 3
    ),
}
# How often a person has the household's own value: what families share, and what they do not.
SHARED = {"RACE": 0.9, "HISPAN": 0.9, "CITIZEN": 0.7, "EDUC": 0.4, "AGE": 0.3, "MARST": 0.3, "SEX": 0.0}
SHARED_OTHERWISE = 0.2


def make_households(*, scale: float = 1.0, seed: int = 0, variant: str = "acs") -> Tables:
    """Make 75,000 households at scale 1, and their persons; every attribute is a code from 0 on.

    Recipe. A household is of one of 8 hidden kinds. The kind decides the distribution of its size (the 2010 shares up
    to the domain's largest, tilted) and of each household attribute. For each person attribute the household has a
    value of its own, drawn by kind; a person takes it with the probability in `SHARED`, and otherwise draws by kind
    and place in the household (first, second, later). So attributes depend on each other through the kind, persons of
    a household resemble each other, and first persons differ from children.
    """
    if variant not in DOMAINS:
        raise SpecError(f"variant must be one of {', '.join(DOMAINS)}, not {variant!r}")
    domain = DOMAINS[variant]
    rng = np.random.default_rng([seed, 2019])
    number = max(1, round(HOUSEHOLDS * checked_scale(scale)))

    kind = rng.choice(CLASSES, number, p=rng.dirichlet(np.full(CLASSES, 5.0)))
    sizes = np.arange(domain.max_persons)
    chances = SHARES[: domain.max_persons] * np.exp(rng.normal(0, 0.4, CLASSES)[:, None] * sizes)
    persons = 1 + _draw(chances, kind, rng)
    household: dict[str, NDArray[Any]] = {"household_id": np.arange(number)}
    for name, codes in domain.household.items():
        household[name] = _draw(_likely(CLASSES, codes, rng), kind, rng).astype(np.int16)

    home = np.repeat(np.arange(number), persons)
    place = np.arange(len(home)) - np.repeat(np.cumsum(persons) - persons, persons)
    role = kind[home] * 3 + np.minimum(place, 2)
    person: dict[str, NDArray[Any]] = {"household_id": home, "person": (place + 1).astype(np.int16)}
    for name, codes in domain.person.items():
        own = _draw(_likely(CLASSES, codes, rng), kind, rng)[home]
        alone = _draw(_likely(CLASSES * 3, codes, rng), role, rng)
        shares = rng.random(len(home)) < SHARED.get(name, SHARED_OTHERWISE)
        person[name] = np.where(shares, own, alone).astype(np.int16)
    import pyarrow as pa

    return Tables(pa.table(household), pa.table(person))


def _likely(kinds: int, codes: int, rng: np.random.Generator) -> Floats:
    """Return a distribution over codes for each kind, around a common one."""
    common = rng.dirichlet(np.full(codes, 1.0))
    return rng.dirichlet(6.0 * common + 0.1, kinds)


def _draw(chances: Floats, row: Integers, rng: np.random.Generator) -> Integers:
    """Return one draw for each entry of `row`, from that row's chances."""
    ladder = np.cumsum(chances, axis=1)
    ladder /= ladder[:, -1:]  # ends in 1 exactly, and no draw reaches 1
    drawn = np.empty(len(row), dtype=np.int64)
    point = rng.random(len(row))
    for kind, steps in enumerate(ladder):
        chosen = row == kind
        drawn[chosen] = np.searchsorted(steps, point[chosen], side="right")
    return drawn
