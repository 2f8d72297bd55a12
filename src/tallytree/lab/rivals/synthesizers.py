"""MWEM and H-GEM (HQR, Algorithms 1 to 4): rounds that select a cell with a large error of the model, and measure it.

MWEM fits an explicit histogram, H-GEM a network that makes a mixture of products. The rounds are the same (HQR, A.2).
Different from the paper, for privacy: counts are measured as integers and divided by a measured number of persons; a
score is divided by its own cell's sensitivity (the most persons for a persons table), and the selection costs ε²/8,
less than printed, which the measurement gains from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeVar

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.domain.schema import Schema
from tallytree.lab.rivals.mwem import Histogram
from tallytree.synthesis.methods import (
    PERSONS,
    Fitted,
    Method,
    MethodSession,
    epsilon_for,
    round_to_counts,
    share,
)
from tallytree.synthesis.model import MeasuredCell, Model, refuse_roles
from tallytree.synthesis.roles import slots
from tallytree.synthesis.workload import Workload

M = TypeVar("M", bound=Model)
PASSES = 400  # over all measured cells, for the iterate `converged`


@dataclass(frozen=True)
class MwemOptions:
    """`rounds` is T; `selecting` is α, the part of ε₀ that selects; `most_updates` is T_max; `totals_share` is the part
    of the budget for the numbers of persons and, if private, households; `empty` allows households without persons.
    `iterate` is the output: the paper's is the average of all iterates; the last one is nearer to the truth, and
    `converged` is nearer still, after up to 400 more passes over all measured cells.
    """

    rounds: int = 200
    selecting: float = 0.5
    most_updates: int = 100
    totals_share: float = 0.02
    iterate: Literal["last", "average", "converged"] = "last"
    empty: bool = False

    def __post_init__(self) -> None:
        _check_rounds(self.rounds, self.selecting, self.totals_share)
        if self.most_updates < 1:
            raise SpecError(f"most_updates must be at least 1, not {self.most_updates}")
        if self.iterate not in ("last", "average", "converged"):
            raise SpecError(f"iterate is 'last', 'average' or 'converged', not {self.iterate!r}")

    def check(self, schema: Schema) -> None:
        """Refuse a schema with more possible households than an explicit histogram holds."""
        Histogram.start(schema, empty=self.empty)

    def run(self, session: MethodSession) -> Fitted:
        """Run Algorithm 1."""
        start = Histogram.start(session.tables.schema, empty=self.empty)  # or refuses the schema: nothing is spent yet
        rounds = _Rounds(session, self.rounds, self.selecting, self.totals_share)

        def fit(model: Histogram, measured: tuple[MeasuredCell, ...], late: bool) -> Histogram:
            return model.fit(measured, rounds.number, rounds.persons, most_updates=self.most_updates)

        last = rounds.run(start, fit)
        models: dict[str, Model] = {"last": last, "average": last.average()}
        if self.iterate == "converged":
            models["converged"] = last.converge(rounds.measured, rounds.number, rounds.persons, passes=PASSES)
        return rounds.fitted(self.iterate, models)


@dataclass(frozen=True)
class HgemOptions:
    """`rounds` is T; `selecting` is α, the part of ε₀ that selects; `batch` is B; `steps` (T_max), `rate`, `stop_share`
    and `averaging` are those of `Generator.fit`; `totals_share` is the part of the budget for the numbers of persons
    and, if private, households; `empty` allows households without persons; `seed_text` names the first weights.

    The output is the network with its weights averaged over the later half of the rounds, asked with one fixed batch
    of noise. With `converge_batch` the output is the network after further training on all measured cells with batches
    of that size, until its residual stops falling (`Generator.converge`). The paper does not have that.
    """

    rounds: int = 100
    selecting: float = 0.5
    batch: int = 500
    steps: int = 100
    rate: float = 1e-4
    stop_share: float = 0.5
    averaging: float = 0.9
    totals_share: float = 0.02
    empty: bool = False
    seed_text: str = ""
    converge_batch: int = 0

    def __post_init__(self) -> None:
        _check_rounds(self.rounds, self.selecting, self.totals_share)
        if self.batch < 1 or self.steps < 1 or self.rate <= 0 or self.stop_share < 0 or not 0 <= self.averaging <= 1:
            raise SpecError(
                "h-gem needs batch and steps of at least 1, a rate above 0, a stop_share of at least 0 and averaging "
                "from 0 to 1"
            )

    def check(self, schema: Schema) -> None:
        """Refuse a batch smaller than there are kinds of household."""
        if schema.structure is not None:
            slots(schema, self.batch)

    def run(self, session: MethodSession) -> Fitted:
        """Run Algorithm 3."""
        from tallytree.lab.rivals.hgem import Generator

        schema = session.tables.schema
        rounds = _Rounds(session, self.rounds, self.selecting, self.totals_share)

        start = Generator.start(schema, batch=self.batch, seed_text=self.seed_text, empty=self.empty)

        def fit(model: Generator, measured: tuple[MeasuredCell, ...], late: bool) -> Generator:
            return model.fit(
                measured,
                rounds.number,
                rounds.persons,
                steps=self.steps,
                rate=self.rate,
                stop_share=self.stop_share,
                averaging=self.averaging,
                late=late,
            )

        last = rounds.run(start, fit)
        models: dict[str, Model] = {"averaged": last.averaged(), "last": last}
        if self.converge_batch:
            models["converged"] = last.averaged().converge(
                rounds.measured, rounds.number, rounds.persons, batch=self.converge_batch
            )
        return rounds.fitted("converged" if self.converge_batch else "averaged", models)


def _check_rounds(rounds: int, selecting: float, totals_share: float) -> None:
    """Refuse options with which no run is possible."""
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise SpecError(f"rounds must be an integer of at least 1, not {rounds!r}")
    if not 0 < selecting < 1 or not 0 < totals_share < 1:
        raise SpecError("selecting and totals_share must lie between 0 and 1")


class _Rounds:
    """T rounds, each a selection and a measurement, that use up the budget.

    ε₀ is split as printed: α ε₀ selects at a cost of (α ε₀)²/8, and noise of scale 1/((1 − α) ε₀) costs ((1 − α)
    ε₀)²/2. So selection has the part α² / (α² + 4 (1 − α)²) of a round's ρ. A round whose selection was lost starts
    again with the remaining budget.
    """

    def __init__(self, session: MethodSession, rounds: int, selecting: float, totals_share: float) -> None:
        refuse_roles(session.workload)
        self._session, self._rounds, self._done = session, rounds, 0
        self._candidates = Workload(session.tables.schema, tuple(session.private_tables()))
        squared = Fraction(selecting) ** 2
        self._selecting = squared / (squared + 4 * (1 - Fraction(selecting)) ** 2)
        for_totals = share(session.total, Fraction(totals_share) / 2)
        self.number = session.number(for_totals)
        self.persons = session.persons(for_totals)
        self.measured: tuple[MeasuredCell, ...] = ()

    def run(self, model: M, fit: Callable[[M, tuple[MeasuredCell, ...], bool], M]) -> M:
        """All rounds. `fit` makes the next model from the last one and all cells; its flag says: in the later half."""
        while self._session.left > 0:
            newest = self._round(model)
            if newest is not None:
                self.measured = (*self.measured, newest)
                model = fit(model, self.measured, 2 * self._done > self._rounds)
            words = "lost" if newest is None else newest.marginal.describe()
            self._session.tell(self._done, max(self._done, self._rounds), words)
        return model

    def fitted(self, chosen: str, models: dict[str, Model]) -> Fitted:
        """Return the result, once all rounds are done."""
        return Fitted(models[chosen], self.number, self.measured, tuple(self._session.record), models)

    def _round(self, model: Model) -> MeasuredCell | None:
        """Run one round; return None if its selection or its measurement was lost."""
        rounds_left, left = self._rounds - self._done, self._session.left
        rho = left if rounds_left <= 1 else share(left, Fraction(1, rounds_left))
        epsilon = epsilon_for(rho * self._selecting)
        chosen = self._session.select_cell(self._candidates.marginals, self._estimates(model), epsilon)
        if chosen is None:
            return None
        self._done += 1
        return self._session.measure_cell(*chosen, rho - epsilon**2 / 8)

    def _estimates(self, model: Model) -> list[Integers]:
        """Return the model's tables as counts: shares times the numbers of households or of persons."""
        per_household = float(model.answers(PERSONS).sum())
        of_persons = self.persons / per_household if per_household > 0 else 0.0
        return [
            round_to_counts(table, of_persons if marginal.of == "persons" else self.number)
            for marginal, table in zip(self._candidates, model.answers_all(self._candidates), strict=True)
        ]


ROWS = {
    "mwem": Method(
        "mwem",
        "HQR, Algorithms 1 and 2",
        "single cells of the workload's tables, chosen where the model is worst",
        "for comparison, on domains of at most a few million possible households",
        MwemOptions,
    ),
    "h-gem": Method(
        "h-gem",
        "HQR, Algorithms 3 and 4",
        "single cells of the workload's tables, chosen where the model is worst",
        "for comparison",
        HgemOptions,
        ("jax", "optax"),
    ),
}
