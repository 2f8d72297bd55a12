"""MWEM on households (HQR, Algorithms 1 and 2): cells of the workload, one a round, and an explicit histogram.

`cells` says what is different from the paper for privacy's sake. The printed output, the average of all iterates, is
kept beside the last one, which is the default because it is nearer to the truth.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tallytree.errors import SpecError
from tallytree.progress import Progress
from tallytree.synthesis.methods.asking import Fitted, facts_of
from tallytree.synthesis.methods.cells import Cells, check_rounds
from tallytree.synthesis.methods.checkpoints import Models
from tallytree.synthesis.models.histogram import Histogram
from tallytree.synthesis.models.model import MeasuredCell, Model
from tallytree.synthesis.workload import Workload

if TYPE_CHECKING:
    from tallytree.privacy.households.rounds import PrivateTables


@dataclass(frozen=True)
class Options:
    """`rounds` is T; `selecting` is α, the part of ε₀ that selects; `most_updates` is T_max; `totals_share` is the part
    of the budget for the numbers of persons and, if private, households; `empty` allows households without persons.
    """

    rounds: int = 200
    selecting: float = 0.5
    most_updates: int = 100
    totals_share: float = 0.02
    iterate: Literal["last", "average"] = "last"
    empty: bool = False

    def __post_init__(self) -> None:
        check_rounds(self.rounds, self.selecting, self.totals_share)
        if self.most_updates < 1:
            raise SpecError(f"most_updates must be at least 1, not {self.most_updates}")
        if self.iterate not in ("last", "average"):
            raise SpecError(f"iterate is 'last' or 'average', not {self.iterate!r}")


def run(
    tables: PrivateTables,
    workload: Workload,
    options: Options,
    progress: Progress,
    checkpoint: str | os.PathLike[str] | None,
) -> Fitted:
    """Algorithm 1."""
    start = Histogram.start(tables.schema, empty=options.empty)  # or says that the domain is too large: nothing spent
    models = Models(
        checkpoint,
        facts_of("mwem", options, tables, workload),
        lambda: start,
        lambda arrays: Histogram.from_arrays(tables.schema, arrays),
    )
    cells = Cells(
        tables,
        workload,
        progress,
        rounds=options.rounds,
        selecting=options.selecting,
        totals_share=options.totals_share,
    )

    def fit(model: Histogram, measured: tuple[MeasuredCell, ...], late: bool) -> Histogram:
        return model.fit(measured, cells.number, cells.persons, most_updates=options.most_updates)

    last = cells.run(models, fit)
    both: dict[str, Model] = {"last": last, "average": last.average()}
    return Fitted(both[options.iterate], cells.number, cells.measured, tuple(cells.asking.steps), both)
