"""`PlanReport`: what each mechanism would make of a budget, level by level, with how it shows itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tallytree.core.arrays import Floats
from tallytree.core.charts import inline, styled
from tallytree.core.errors import SpecError
from tallytree.core.names import visible
from tallytree.core.notebook import page, paragraph, shortened, table
from tallytree.domain.hierarchy import Hierarchy
from tallytree.mechanisms import choose
from tallytree.planning.goals import Suggestion, suggest
from tallytree.planning.pictures import against_budget
from tallytree.planning.prior import ExpectedCounts, summed_up
from tallytree.planning.simulation import Prediction, PublicFacts
from tallytree.privacy.budget import Budget

USELESS = 0.5  # of the number of groups of a region: an interval that reaches further says next to nothing
MOST_EMPTY = 0.1  # of the regions with groups may be published as 0


@dataclass(frozen=True, eq=False)
class PlanReport:
    """Predictions for every mechanism, split, budget and level. Everything in it is public."""

    facts: PublicFacts
    prior: str  # in words
    confidence: float  # of the intervals
    replicates: int
    predictions: tuple[Prediction, ...]
    skipped: Mapping[str, str]  # mechanisms that were left out, and why
    notes: tuple[str, ...]
    expected: ExpectedCounts | None = None  # what the prior expects of this hierarchy

    @property
    def hierarchy(self) -> Hierarchy:
        """The regions."""
        return self.facts.hierarchy

    @cached_property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets that were tried."""
        return tuple(dict.fromkeys(one.budget for one in self.predictions))

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """The ways to divide the budget over the levels, by name."""
        return tuple(dict.fromkeys(one.split for one in self.predictions))

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of the predictions; with categories also those of the regions over all categories."""
        return tuple(dict.fromkeys(one.level for one in self.predictions))

    def of(self, *, budget: Budget | None = None, split: str | None = None) -> tuple[Prediction, ...]:
        """The predictions for a budget (the first if not given) and a split (all if not given)."""
        wanted = self.budgets[0] if budget is None else budget
        return tuple(one for one in self.predictions if one.budget == wanted and split in (None, one.split))

    def in_tree(self) -> tuple[Prediction, ...]:
        """The predictions for the hierarchy's own levels, those over all categories left out."""
        return tuple(one for one in self.predictions if one.depth < self.hierarchy.depth)

    def best(self, level: str, *, budget: Budget | None = None, split: str | None = None) -> Prediction:
        """The least earth mover's error that is predicted on a level."""
        if level not in self.levels:
            raise SpecError(f"there is no level {level!r}; there are {', '.join(self.levels)}")
        return min((one for one in self.of(budget=budget, split=split) if one.level == level), key=lambda one: one.emd)

    def suggest(
        self, goals: str | Sequence[str], *, budget: Budget | None = None, mechanism: str = "auto"
    ) -> Suggestion:
        """Shares that meet a goal such as "county within 20 at 95%", or the budget that it would take."""
        wanted = self.budgets[0] if budget is None else budget
        return suggest(self.facts, wanted, goals, mechanism=mechanism, expected=self.expected)

    @property
    def warnings(self) -> tuple[str, ...]:
        """For each budget and level whose counts will be useless, why, in a sentence; by what the prior expects."""
        if self.expected is None:
            return ()
        usual = choose("auto", self.facts.neighbours).name
        names = {one.mechanism for one in self.predictions}
        of_one = [one for one in self.predictions if one.mechanism == (usual if usual in names else min(names))]
        split = "balanced" if any(one.split == "balanced" for one in of_one) else of_one[0].split
        totals = summed_up(self.hierarchy, self.expected.totals)
        found = []
        for one in of_one:
            if one.split == split and one.depth < self.hierarchy.depth:
                rows = totals[self.hierarchy.level_slice(one.depth)]
                found.append(useless(one.level, one.budget, one.reach, one.published_as_none, rows))
        return tuple(text for text in found if text)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "levels": list(self.levels),
            "prior": self.prior,
            "confidence": self.confidence,
            "replicates": self.replicates,
            "notes": list(self.notes),
            "skipped": dict(self.skipped),
            "warnings": list(self.warnings),
            "predictions": [{**one.plain(), "budget": one.budget.to_json()} for one in self.predictions],
        }

    def table(self) -> Any:
        """The predictions as a pyarrow Table, one row for each mechanism, split, budget and level."""
        import pyarrow as pa

        return pa.Table.from_pylist([one.plain() for one in self.predictions])

    def __repr__(self) -> str:
        mechanisms = len({one.mechanism for one in self.predictions})
        tree = repr(self.hierarchy).removeprefix("Hierarchy(").removesuffix(")")
        budgets = " | ".join(map(str, self.budgets))
        tried = (
            f"{mechanisms} mechanisms × {len(self.splits)} splits × {len(self.budgets)} budgets ({shortened(budgets)})"
        )
        return f"PlanReport({tree}, expecting {visible(shortened(self.prior))}, {tried})"

    def _repr_html_(self) -> str:
        best = [self.best(level, budget=budget) for budget in self.budgets for level in self.levels]
        rows = [
            (
                str(one.budget),
                one.level,
                one.mechanism,
                one.split,
                f"{one.emd:,.1f} ± {one.emd_standard_error:,.1f}",
                "none" if one.reach is None else f"± {one.reach:,.0f}",
                "none" if one.half_width is None else f"± {one.half_width:,.1f}",
            )
            for one in best
        ]
        percent = f"{100 * self.confidence:g} %"
        widths = f"reach at {percent}, for data like the prior", f"guaranteed half-width at {percent}, for any data"
        headers = ("budget", "level", "best mechanism", "split", "entities to move per region", *widths)
        facts = {
            "expecting": self.prior,
            "protects": self.facts.neighbours.describe(),
            "simulated": f"{self.replicates} times; ± in the table of errors is the standard error of that",
        }
        title = "What a budget buys: predicted from public facts, nothing was spent"
        found = table(headers, rows, right=(4, 5, 6), rest="table() has all of them")
        notes = (paragraph(note) for note in (*self.warnings, *self.notes))
        return page(title, facts, found, inline(self._chart), *notes)

    def _chart(self) -> Any:
        """Predicted errors with one split; mechanisms that have no split are there too."""
        split = "balanced" if "balanced" in self.splits else self.splits[0]
        splits: dict[str, set[str]] = {}
        for one in self.predictions:
            splits.setdefault(one.mechanism, set()).add(one.split)
        shown = [one for one in self.predictions if one.split == split or len(splits[one.mechanism]) < len(self.splits)]
        return styled(against_budget(shown), subtitle_color="#5b6770", legend_columns=3)


def useless(level: str, budget: Budget, reach: float | None, as_none: float, groups: Floats) -> str:
    """Why the counts of a level will be useless, if they will be; `groups` are those expected in its regions.

    `as_none` is the part of the regions with groups whose published counts are all 0.
    """
    there, mean = int(np.count_nonzero(groups > 0)), float(groups.mean())
    why = []
    if reach is not None and reach >= USELESS * mean:
        why.append(f"a region has about {mean:,.0f} groups, and intervals of single counts reach ± {reach:,.0f}")
    if as_none >= MOST_EMPTY and (empty := round(as_none * there)):
        why.append(f"{empty:,} of {there:,} regions that have groups will be published as 0")
    if not why:
        return ""
    told = f"the counts of level {visible(level)!r} will be useless with {budget}: {'; '.join(why)}"
    return f"{told}. Take a larger budget, larger regions or fewer levels"
