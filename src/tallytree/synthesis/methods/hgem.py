"""H-GEM (HQR, Algorithms 3 and 4): cells of the workload, one a round, and a network that makes a mixture of products.

`cells` says what is different from the paper for privacy's sake. The output is the network with its weights averaged
over the later half of the rounds, asked with one fixed batch of noise.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallytree.errors import SpecError
from tallytree.progress import Progress
from tallytree.synthesis.methods.asking import Fitted, facts_of
from tallytree.synthesis.methods.cells import Cells, check_rounds
from tallytree.synthesis.methods.checkpoints import Models
from tallytree.synthesis.models.model import MeasuredCell
from tallytree.synthesis.workload import Workload

if TYPE_CHECKING:
    from tallytree.privacy.households.rounds import PrivateTables
    from tallytree.synthesis.models.network import Generator


@dataclass(frozen=True)
class Options:
    """`rounds` is T; `selecting` is α, the part of ε₀ that selects; `batch` is B; `steps` (T_max), `rate`, `stop_share`
    and `averaging` are those of `network.Training`; `totals_share` is the part of the budget for the numbers of persons
    and, if private, households; `empty` allows households without persons; `seed_text` names the first weights.
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

    def __post_init__(self) -> None:
        check_rounds(self.rounds, self.selecting, self.totals_share)
        if self.batch < 1 or self.steps < 1 or self.rate <= 0 or self.stop_share < 0 or not 0 <= self.averaging <= 1:
            raise SpecError(
                "h-gem needs batch and steps of at least 1, a rate above 0, a stop_share of at least 0 and averaging "
                "from 0 to 1"
            )


def run(
    tables: PrivateTables,
    workload: Workload,
    options: Options,
    progress: Progress,
    checkpoint: str | os.PathLike[str] | None,
) -> Fitted:
    """Algorithm 3."""
    from tallytree.synthesis.models.network import Generator, Training

    training = Training(
        steps=options.steps, rate=options.rate, stop_share=options.stop_share, averaging=options.averaging
    )
    models = Models(
        checkpoint,
        facts_of("h-gem", options, tables, workload),
        lambda: Generator.start(tables.schema, batch=options.batch, seed_text=options.seed_text, empty=options.empty),
        lambda arrays: Generator.from_arrays(tables.schema, arrays),
    )
    cells = Cells(
        tables,
        workload,
        progress,
        rounds=options.rounds,
        selecting=options.selecting,
        totals_share=options.totals_share,
    )

    def fit(model: Generator, measured: tuple[MeasuredCell, ...], late: bool) -> Generator:
        return model.fit(measured, cells.number, cells.persons, training, late=late)

    last = cells.run(models, fit)
    averaged = last.averaged()
    return Fitted(
        averaged, cells.number, cells.measured, tuple(cells.asking.steps), {"averaged": averaged, "last": last}
    )
