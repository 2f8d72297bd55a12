"""Counting the tables of a workload over synthetic households, a chunk at a time. They are public, so is the result."""

from __future__ import annotations

import numpy as np

from tallytree.arrays import Integers
from tallytree.schema import Marginal, Schema
from tallytree.synthesis.models.sampling import SyntheticHouseholds
from tallytree.synthesis.workload import Workload
from tallytree.tables.contingency import table_counts


class Tally:
    """The tables of a workload, counted over the chunks that were added so far."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.counts: list[Integers] = [np.zeros(marginal.shape(workload.schema), np.int64) for marginal in workload]

    def add(self, chunk: SyntheticHouseholds) -> None:
        """Count some more households."""
        for marginal, counts in zip(self.workload, self.counts, strict=True):
            counts += counted(chunk, marginal, self.workload.schema)


def counted(chunk: SyntheticHouseholds, marginal: Marginal, schema: Schema) -> Integers:
    """One table over some households, in its shape; `Marginal` says what it counts."""
    household = {each.name: chunk.household[:, column] for column, each in enumerate(schema.household)}
    person = {each.name: chunk.person[:, column] for column, each in enumerate(schema.person)}
    return table_counts(marginal, schema, chunk.offsets, household, person)
