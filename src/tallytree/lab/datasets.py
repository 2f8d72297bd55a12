"""The data sets that are made in code, by name. Each is a function of a seed and a scale; nothing is bundled."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from tallytree.core.errors import SpecError
from tallytree.lab.blocks import blocks
from tallytree.lab.households import DOMAINS, Domain, Tables, make_households
from tallytree.lab.nation import census, checked_scale, race
from tallytree.lab.people import people, write_people
from tallytree.lab.taxi import taxi
from tallytree.lab.truth import Truth

__all__ = ["DATASETS", "DOMAINS", "Dataset", "Domain", "Tables", "make", "make_households", "write_people"]


@dataclass(frozen=True)
class Dataset:
    """A data set made in code; its recipe is the docstring of its function."""

    name: str
    about: str
    make: Callable[..., Truth]

    @property
    def options(self) -> dict[str, Any]:
        """The options besides scale and seed, with their defaults."""
        parameters = inspect.signature(self.make).parameters
        return {name: each.default for name, each in parameters.items() if name not in ("scale", "seed")}

    @property
    def recipe(self) -> str:
        """How it is made."""
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
    """The made-up data set of that name: the same for the same scale, seed and options.

    >>> make("census", scale=0.01).hierarchy
    Hierarchy(nation 1 → state 12 → county 31)
    """
    if name == "households":
        raise SpecError("'households' is a pair of tables, not counts; make it with `make_households`")
    if name not in DATASETS:
        near = get_close_matches(name, DATASETS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise SpecError(f"there is no data set {name!r}; {hint}known are {', '.join(DATASETS)}")
    dataset = DATASETS[name]
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise SpecError(f"seed must be a whole number from 0 on, not {seed!r}")
    for option in options:
        if option not in dataset.options:
            near = get_close_matches(option, dataset.options, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            known = ", ".join(dataset.options)
            raise SpecError(f"the data set {name!r} has no option {option!r}; {hint}it has {known}")
    return dataset.make(scale=checked_scale(scale), seed=seed, **options)
