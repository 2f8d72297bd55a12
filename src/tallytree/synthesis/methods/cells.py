"""The rounds that MWEM and H-GEM have in common: select a cell that the model misses, and measure it (HQR, A.2).

Different from the paper, for privacy: counts are measured as integers and divided by a number of persons that was
itself measured; a score is divided by its own cell's sensitivity (the most persons for a persons table), and the
selection costs ε²/8, less than printed, which the measurement gains from.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tallytree.arrays import Integers
from tallytree.errors import SpecError
from tallytree.progress import Progress
from tallytree.synthesis.methods.asking import (
    PERSONS,
    Asking,
    epsilon_for,
    estimates_while_resuming,
    private_tables_of,
    share,
    whole,
)
from tallytree.synthesis.methods.checkpoints import Models
from tallytree.synthesis.models.model import MeasuredCell, Model
from tallytree.synthesis.workload import Workload

if TYPE_CHECKING:
    from tallytree.privacy.households.rounds import PrivateTables

M = TypeVar("M", bound=Model)


def check_rounds(rounds: int, selecting: float, totals_share: float) -> None:
    """Refuse options that no run can have."""
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise SpecError(f"rounds must be a whole number of at least 1, not {rounds!r}")
    if not 0 < selecting < 1 or not 0 < totals_share < 1:
        raise SpecError("selecting and totals_share must lie between 0 and 1")


class Cells:
    """T rounds, each a selection and a measurement, that use up the budget.

    ε₀ is split as printed: α ε₀ selects at a cost of (α ε₀)²/8, and noise of scale 1/((1 − α) ε₀) costs
    ((1 − α) ε₀)²/2. So selection has the part α² / (α² + 4 (1 − α)²) of a round's ρ. A round whose selection was lost
    is begun again with what is left.
    """

    def __init__(
        self,
        tables: PrivateTables,
        workload: Workload,
        progress: Progress,
        *,
        rounds: int,
        selecting: float,
        totals_share: float,
    ) -> None:
        self.asking = Asking(tables, progress)
        self._rounds, self._done = rounds, 0
        self._workload = Workload(workload.schema, tuple(private_tables_of(self.asking, workload)))
        squared = Fraction(selecting) ** 2
        self._selecting = squared / (squared + 4 * (1 - Fraction(selecting)) ** 2)
        for_totals = share(self.asking.total, Fraction(totals_share) / 2)
        self.number = self.asking.number(for_totals)
        self.persons = self.asking.persons(for_totals)

    @property
    def measured(self) -> tuple[MeasuredCell, ...]:
        """All cells so far, the newest last."""
        return tuple(cell for cell in self.asking.measured if isinstance(cell, MeasuredCell))

    def run(self, models: Models[M], fit: Callable[[M, tuple[MeasuredCell, ...], bool], M]) -> M:
        """All rounds. `fit` makes the next model from the last one and all cells; its flag says: in the later half."""
        while self.asking.left > 0:
            newest = self._round(models)
            if newest is not None:
                so_far, late = self.measured, 2 * self._done > self._rounds

                def advance(model: M, so_far: Any = so_far, late: bool = late) -> tuple[M, None]:
                    return fit(model, so_far, late), None

                models.advance([self.number, self.persons, _plain(newest), late], advance)
            words = "lost" if newest is None else newest.marginal.describe()
            self.asking.tell(self._done, max(self._done, self._rounds), words)
        return models.model

    def _round(self, models: Models[M]) -> MeasuredCell | None:
        """One round; None if its selection or its measurement was lost."""
        rounds_left = self._rounds - self._done
        rho = self.asking.left if rounds_left <= 1 else share(self.asking.left, Fraction(1, rounds_left))
        epsilon = epsilon_for(rho * self._selecting)
        chosen = self.asking.select_cell(self._workload.marginals, self._estimates(models), epsilon)
        if chosen is None:
            return None
        self._done += 1
        return self.asking.measure_cell(*chosen, rho - epsilon**2 / 8)

    def _estimates(self, models: Models[M]) -> list[Integers]:
        """The model's tables as counts: shares of households times their number, shares of persons times theirs."""
        if self.asking.tables.resuming:
            return estimates_while_resuming(self._workload)
        model = models.model
        per_household = float(model.answers(PERSONS).sum())
        of_persons = self.persons / per_household if per_household > 0 else 0.0
        return [
            whole(table, of_persons if marginal.of == "persons" else self.number)
            for marginal, table in zip(self._workload, model.answers_all(self._workload), strict=True)
        ]


def _plain(cell: MeasuredCell) -> list[Any]:
    return [cell.marginal.to_json(), list(cell.cell), cell.value, repr(float(np.float64(cell.variance)))]
