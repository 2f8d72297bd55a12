"""Why a table was measured that nobody asked for, in words: from the workload and the schema, which are public."""

from __future__ import annotations

from tallytree.domain.schema import Marginal
from tallytree.synthesis.methods.affording import first_tables, helping_tables, parts_of
from tallytree.synthesis.methods.asking import NUMBER, PERSONS
from tallytree.synthesis.structural import structural_tables
from tallytree.synthesis.workload import Workload

ASKED = "in the workload"
TOTAL = "a total, of which shares are taken"
FIRST = "sizes or one attribute, on which all else builds"
ROLES = "for the roles, so that households look like households"
PART = "a part of a table of the workload, with less noise"
CHEAPER = "households in place of persons, which takes less noise"
HELPING = "sizes by an attribute, which say how many persons live where"
OTHER = "chosen by the method"
REASONS = (ASKED, TOTAL, FIRST, ROLES, PART, CHEAPER, HELPING, OTHER)


class Explaining:
    """The reasons for tables of one workload."""

    def __init__(self, workload: Workload) -> None:
        schema, asked = workload.schema, set(workload)
        parts = set(parts_of(workload))
        self._reasons = (
            (asked, ASKED),
            ({NUMBER, PERSONS}, TOTAL),
            (set(first_tables(schema)), FIRST),
            (set(structural_tables(schema)), ROLES),
            (parts, PART),
            ({_of_households(table) for table in (*asked, *parts)}, CHEAPER),
            (set(helping_tables(schema)), HELPING),
        )

    def why(self, table: Marginal) -> str:
        """One of `REASONS`: the first that holds."""
        return next((reason for tables, reason in self._reasons if table in tables), OTHER)


def _of_households(table: Marginal) -> Marginal:
    return Marginal("households", table.household, table.person, table.size, table.roles)
