"""NOT PRIVATE: compare methods of household synthesis with the truth, on public or made-up households.

Errors are HQR's: a cell of a households table is a share of all households, one of a persons table a share of all
persons; the error is how far the share is from the true one, and its largest and its mean are taken over all cells of
the workload. They are given for what the model answers and for households drawn from it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats
from tallytree.core.errors import SpecError
from tallytree.domain.schema import Attribute, Marginal, Schema
from tallytree.lab.datasets import DOMAINS, make_households
from tallytree.lab.truth import SeededWords, seeded
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import HouseholdNeighbours, PrivacyUnit
from tallytree.privacy.private_tables import PrivateTables
from tallytree.synthesis.marginals import method
from tallytree.synthesis.methods import Fitted
from tallytree.synthesis.model import Model
from tallytree.synthesis.sampling import draw
from tallytree.synthesis.workload import Workload
from tallytree.tables.contingency import HouseholdCodes, code_type, grouped, marginal_counts
from tallytree.tables.group_sizes import Sealed
from tallytree.tables.households import Households

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class HouseholdTruth:
    """Households and persons that may be seen."""

    name: str
    codes: HouseholdCodes

    @property
    def schema(self) -> Schema:
        """Return the attributes."""
        return self.codes.schema

    @property
    def persons(self) -> int:
        """Return how many persons there are."""
        return int(self.codes.starts[-1])

    def households(self) -> Households:
        """Return the same households as a data holder would pass them to a method."""
        return Households(schema=self.schema, codes=Sealed(self.codes), name=self.name)

    def shares(self, workload: Workload) -> list[Floats]:
        """Return the true tables, as shares of households or of persons."""
        return _shares(self.codes, workload)


def made_up(variant: str, *, scale: float = 1.0, seed: int = 0) -> HouseholdTruth:
    """Return the made-up households of `make_households`, "acs" or "acs-small"."""
    tables = make_households(scale=scale, seed=seed, variant=variant)
    domain = DOMAINS[variant]

    def attributes(codes: Mapping[str, int]) -> tuple[Attribute, ...]:
        return tuple(Attribute(name, tuple(map(str, range(number)))) for name, number in codes.items())

    def columns(table: Any, codes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
        return {name: table[name].to_numpy().astype(code_type(number)) for name, number in codes.items()}

    schema = Schema(attributes(domain.household), attributes(domain.person), domain.max_persons)
    home = tables.persons["household_id"].to_numpy()
    codes = grouped(
        schema,
        columns(tables.households, domain.household),
        columns(tables.persons, domain.person),
        home,
        tables.households.num_rows,
    )
    return HouseholdTruth(variant, codes)


class Errors(NamedTuple):
    """The errors over all cells of a workload."""

    largest: float
    mean: float


def model_errors(model: Model, workload: Workload, truth: Sequence[Floats]) -> Row:
    """Return errors of a model's answers: over all queries, over those that count households (HQR's Q_G), and over
    those that count persons (Q_I).

    Persons tables are shares of the persons that the model itself expects.
    """
    persons = float(model.answers(Marginal("persons")).sum())
    found = [
        table / (persons or 1.0) if marginal.of == "persons" else table
        for marginal, table in zip(workload, model.answers_all(workload), strict=True)
    ]
    row: Row = {}
    for prefix, of in (("", ("households", "persons")), ("household_", ("households",)), ("person_", ("persons",))):
        places = [place for place, marginal in enumerate(workload) if marginal.of in of]
        if places:
            errors = _errors([found[place] for place in places], [truth[place] for place in places])
            row |= {f"{prefix}max_error": errors.largest, f"{prefix}mean_error": errors.mean}
    return row


def drawn_errors(model: Model, number: int, workload: Workload, truth: Sequence[Floats], *seed: object) -> Errors:
    """Return errors of `number` households drawn from a model."""
    chunks = list(draw(model, number, source=SeededWords("drawing", *seed)))
    household = np.concatenate([chunk.household for chunk in chunks])
    person = np.concatenate([chunk.person for chunk in chunks])
    starts = np.concatenate([[0], np.cumsum(np.concatenate([chunk.sizes for chunk in chunks]), dtype=np.int64)])
    schema = workload.schema
    codes = HouseholdCodes(
        schema,
        {attribute.name: household[:, at] for at, attribute in enumerate(schema.household)},
        {attribute.name: person[:, at] for at, attribute in enumerate(schema.person)},
        starts,
    )
    return _errors(_shares(codes, workload), truth)


def compare_synthesis(
    truth: HouseholdTruth,
    workload: Workload,
    methods: Mapping[str, Mapping[str, Any] | None] | Sequence[str],
    budgets: Iterable[Budget],
    *,
    unit: PrivacyUnit | None = None,
    runs: int | Sequence[int] = 1,
    seed: object = 0,
    drawn: bool = True,
) -> Iterator[Row]:
    """Run every method with every budget, each run with different random numbers, and yield a row for each of its
    models.

    `methods` are names, or names with options. `runs` is how many, or which ones. A row has plain values: what was run,
    errors of answers (`max_error`, `mean_error`; also by class, see `model_errors`) and of drawn
    households (`drawn_max_error`, `drawn_mean_error`), the number of rounds and the seconds they took. `residual` is
    how far a model's answers are from the measurements that it was fitted to, in standard deviations of the noise, as a
    root mean square: near 1 the noise explains it, far above 1 the fit did not reach its own measurements, and other
    settings may do better.
    """
    if workload.schema != truth.schema:
        raise SpecError("the workload is for another schema than the households")
    neighbours = HouseholdNeighbours(unit or PrivacyUnit("one_group"), truth.schema.max_persons)
    chosen = methods if isinstance(methods, Mapping) else dict.fromkeys(methods)
    shares = truth.shares(workload)
    for budget in budgets:
        for name, options in chosen.items():
            found = method(name)
            settings = found.options(options)
            for run in range(runs) if isinstance(runs, int) else runs:
                chance = seeded("synthesis", seed, truth.name, name, str(budget), run)
                tables = PrivateTables(truth.households(), neighbours, budget, randomness=chance)
                started, processor = time.perf_counter(), time.process_time()
                fitted = found.run(tables, workload, options=settings)
                seconds, processor = time.perf_counter() - started, time.process_time() - processor
                if tables.spent != budget.rho:
                    raise AssertionError(f"{name} did not spend exactly its budget")
                for which, model in (fitted.others or {"": fitted.model}).items():
                    row: Row = {
                        "data": truth.name,
                        "households": truth.codes.number,
                        "queries": workload.queries,
                        "unit": neighbours.unit.kind,
                        "method": name,
                        "model": which,
                        "epsilon": None if budget.epsilon is None else float(budget.epsilon),
                        "delta": None if budget.delta is None else float(budget.delta),
                        "rho": float(budget.amount),
                        "run": run,
                        "seed": str(seed),
                        **model_errors(model, workload, shares),
                        "drawn_max_error": None,
                        "drawn_mean_error": None,
                        "rounds": len(fitted.rounds),
                        "seconds": round(seconds, 2),
                        "processor_seconds": round(processor, 2),
                        "residual": residual(model, fitted),
                    }
                    if drawn:
                        sample = drawn_errors(model, fitted.number, workload, shares, seed, name, str(budget), run)
                        row["drawn_max_error"], row["drawn_mean_error"] = sample
                    yield row


def residual(model: Model, fitted: Fitted) -> float:
    """Return how far answers are from the run's own measurements, in deviations of noise.

    Models are fitted to shares, and the number of persons was measured separately. So answers about persons are
    multiplied by the single factor that brings them nearest.
    """
    apart = []
    for of in ("households", "persons"):
        parts = [part.counts(model.schema) for part in fitted.measured if part.marginal.of == of]
        if not parts:
            continue
        answers = np.concatenate(
            [
                fitted.number * model.answers(part.marginal).ravel()[found[0]]
                for part, found in zip((one for one in fitted.measured if one.marginal.of == of), parts, strict=True)
            ]
        )
        values, variance = (np.concatenate([part[place] for part in parts]) for place in (1, 2))
        if of == "persons" and (answers**2 / variance).sum() > 0:
            answers *= (answers * values / variance).sum() / (answers**2 / variance).sum()
        apart.append((answers - values) ** 2 / variance)
    return float(np.sqrt(np.concatenate(apart).mean())) if apart else 0.0


def _shares(codes: HouseholdCodes, workload: Workload) -> list[Floats]:
    persons, homes = max(1, int(codes.starts[-1])), max(1, codes.number)
    return [
        marginal_counts(codes, marginal) / (persons if marginal.of == "persons" else homes) for marginal in workload
    ]


def _errors(found: Sequence[Floats], truth: Sequence[Floats]) -> Errors:
    apart = np.concatenate([np.abs(one - other).ravel() for one, other in zip(found, truth, strict=True)])
    return Errors(float(apart.max()), float(apart.mean()))
