"""NOT PRIVATE: from the errors of many experiments to the tables behind docs/accuracy.md.

A *case* is a data set with public or private totals and one ε; a *cell* is a level and a metric of it. A *seed* is a
mechanism of the papers. An error is a mean over runs with its standard error (SE).
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, log
from pathlib import Path
from typing import NamedTuple

METRICS = ("emd", "l1")
TOLERANCE = 1.03  # a seed beats a setting of ours if it is better by more than this and 2 SE
SIGMAS = 2
DEFAULT = "tallytree"
ALL_ON_LEAVES = ("bottom-up", "bottom-up lists")  # the seeds that do not divide the budget over the levels


class Case(NamedTuple):
    """A data set and what it was released under."""

    kind: str
    dataset: str
    totals: str
    epsilon: float

    def __str__(self) -> str:
        return f"{self.dataset}, {self.totals} totals, ε = {self.epsilon:g}"


class Cell(NamedTuple):
    """A level of a case, 0 at the root, and how errors are measured there."""

    case: Case
    depth: int
    level: str
    metric: str


@dataclass(frozen=True)
class Error:
    """A mean over runs and its standard error."""

    mean: float
    deviation: float


Errors = Mapping[str, Mapping[Cell, Error]]  # by mechanism


class Relative(NamedTuple):
    """Ratios of errors: geometric mean, worst, how many are behind by more than 2 SE, of how many."""

    mean: float
    worst: float
    behind: int
    cells: int


@dataclass(frozen=True)
class Stand:
    """How a setting of ours does against one seed in one case."""

    seed: str
    case: Case
    setting: str
    beaten: tuple[
        tuple[Cell, float], ...
    ]  # where the seed is better by more than the tolerance and 2 SE, and the ratio
    better: int  # cells where the seed is behind by more than 2 SE
    gains: tuple[float, ...]  # our error over the seed's, geometric mean over metrics, level by level

    @property
    def holds(self) -> bool:
        """Nowhere beaten, and somewhere better."""
        return not self.beaten and self.better > 0


def best_of(errors: Errors, mechanisms: Sequence[str]) -> dict[Cell, Error]:
    """The least error in each cell that all of these that gave results there have."""
    found: dict[Cell, Error] = {}
    for name in mechanisms:
        for cell, error in errors.get(name, {}).items():
            if cell not in found or error.mean < found[cell].mean:
                found[cell] = error
    return found


def relative(ours: Mapping[Cell, Error], theirs: Mapping[Cell, Error], cells: Iterable[Cell]) -> Relative | None:
    """Our errors over theirs in those cells that both have and where theirs is not zero; None if there is none."""
    ratios, behind = [], 0
    for cell in cells:
        if cell in ours and cell in theirs and theirs[cell].mean > 0:
            ratios.append(ours[cell].mean / theirs[cell].mean)
            behind += _further(ours[cell], theirs[cell])
    return Relative(geometric_mean(ratios), max(ratios), behind, len(ratios)) if ratios else None


def geometric_mean(ratios: Sequence[float]) -> float:
    """Zero if one of them is."""
    return 0.0 if min(ratios) <= 0 else exp(sum(map(log, ratios)) / len(ratios))


def _further(one: Error, other: Error, tolerance: float = 1.0) -> bool:
    """Is one error larger than a multiple of another by more than 2 SE?"""
    return one.mean > tolerance * other.mean + SIGMAS * hypot(one.deviation, tolerance * other.deviation)


def standing(errors: Errors, seed: str, settings: Sequence[str]) -> list[Stand]:
    """For each case in which the seed gave results, the setting that does best against it.

    Of those that are nowhere beaten one that is somewhere better, and of those the one whose errors are the least; if
    all are beaten somewhere, the one that is beaten by the least.
    """
    cases: dict[Case, list[Cell]] = defaultdict(list)
    for cell in errors.get(seed, {}):
        cases[cell.case].append(cell)
    found = []
    for case, cells in cases.items():
        tried = [
            _stand(errors[seed], errors[name], seed, name, case, sorted(cells))
            for name in settings
            if all(cell in errors.get(name, {}) for cell in cells)
        ]
        if tried:
            found.append(min(tried, key=_order))
    return found


def _order(one: Stand) -> tuple[float, bool, float]:
    worst = max((ratio for _, ratio in one.beaten), default=0.0)
    return worst, one.better == 0, geometric_mean(one.gains)


def _stand(
    theirs: Mapping[Cell, Error], ours: Mapping[Cell, Error], seed: str, setting: str, case: Case, cells: Sequence[Cell]
) -> Stand:
    beaten = tuple(
        (cell, ours[cell].mean / theirs[cell].mean if theirs[cell].mean else float("inf"))
        for cell in cells
        if _further(ours[cell], theirs[cell], TOLERANCE)
    )
    better = sum(_further(theirs[cell], ours[cell]) for cell in cells)
    gains = []
    for depth in sorted({cell.depth for cell in cells}):
        found = relative(ours, theirs, [cell for cell in cells if cell.depth == depth])
        gains.append(1.0 if found is None else found.mean)
    return Stand(seed, case, setting, beaten, better, tuple(gains))


# -------------------------------------------------------------------- tables


class Table(NamedTuple):
    """A table as it is printed and written: `accuracy-HALF-NAME.csv`."""

    name: str
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def printed(self) -> str:
        """The table in Markdown, under its title."""
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return f"### {self.title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def write(self, folder: Path, half: str) -> Path:
        """Write the table as CSV."""
        path = folder / f"accuracy-{half}-{self.name}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([self.head, *self.rows])
        return path


def tables(errors: Errors, seeds: Sequence[str], settings: Sequence[str], oracles: Sequence[str] = ()) -> list[Table]:
    """All tables of one half of the data."""
    stands = [one for seed in seeds for one in standing(errors, seed, settings)]
    found = [
        default_table(errors, seeds),
        level_table(errors, seeds),
        mechanism_table(errors, seeds, settings, oracles),
        oracle_table(errors, oracles),
        standing_table(stands),
        case_table(stands),
    ]
    return [table for table in found if table.rows]


def default_table(errors: Errors, seeds: Sequence[str]) -> Table:
    """By kind of data and by data set: against all seeds, and against those that divide the budget over the levels."""
    dividing = [seed for seed in seeds if seed not in ALL_ON_LEAVES]
    best, best_dividing = best_of(errors, seeds), best_of(errors, dividing)
    ours = errors.get(DEFAULT, {})
    rows = []
    for title, cells in _groups(ours):
        against = [relative(ours, theirs, cells) for theirs in (best, best_dividing)]
        rows.append([*title, *(text for one in against for text in _words(one))])
    head = ["data", "totals", "mean", "worst", "behind", "mean, of those that divide", "worst", "behind"]
    return Table("default", "The default against the best seed in each cell", head, rows)


def level_table(errors: Errors, seeds: Sequence[str]) -> Table:
    """The default over the best seed from the root to the leaves, for each ε: EMD, then L1."""
    best, ours = best_of(errors, seeds), errors.get(DEFAULT, {})
    epsilons = sorted({cell.case.epsilon for cell in ours})
    rows = []
    for dataset, totals in dict.fromkeys((cell.case.dataset, cell.case.totals) for cell in sorted(ours)):
        for metric in METRICS:
            row = [dataset, totals, metric.upper()]
            for epsilon in epsilons:
                here = sorted(
                    (cell.depth, cell)
                    for cell in ours
                    if (cell.case.dataset, cell.case.totals, cell.case.epsilon, cell.metric)
                    == (dataset, totals, epsilon, metric)
                )
                found = [relative(ours, best, [cell]) for _, cell in here]
                row.append(" ".join("–" if one is None else _ratio(one.mean) for one in found))
            rows.append(row)
    head = ["data", "totals", "metric", *(f"ε = {epsilon:g}" for epsilon in epsilons)]
    return Table("levels", "Level by level", head, rows)


def mechanism_table(
    errors: Errors, seeds: Sequence[str], settings: Sequence[str], oracles: Sequence[str] = ()
) -> Table:
    """Geometric mean and worst ratio to the best seed, a column for each kind of data."""
    best = best_of(errors, seeds)
    columns = list(dict.fromkeys((cell.case.kind, cell.case.totals) for cell in sorted(best)))
    rows = []
    for name in (*settings, *seeds, *oracles):
        row = [name + (" (NOT PRIVATE)" if name in oracles else "")]
        for kind, totals in columns:
            cells = [cell for cell in best if (cell.case.kind, cell.case.totals) == (kind, totals)]
            found = relative(errors.get(name, {}), best, cells)
            row.append("–" if found is None else f"{_ratio(found.mean)} / {_ratio(found.worst)}")
        rows.append(row)
    head = ["mechanism", *(f"{kind}, {totals}" for kind, totals in columns)]
    return Table("mechanisms", "Every mechanism against the best seed in each cell", head, rows)


def oracle_table(errors: Errors, oracles: Sequence[str]) -> Table:
    """The default over each oracle by kind of data and ε: geometric mean and worst."""
    ours = errors.get(DEFAULT, {})
    epsilons = sorted({cell.case.epsilon for cell in ours})
    rows = []
    for name in oracles:
        for kind, totals in dict.fromkeys((cell.case.kind, cell.case.totals) for cell in sorted(ours)):
            row = [name, kind, totals]
            for epsilon in epsilons:
                cells = [cell for cell in ours if (cell.case.kind, *cell.case[2:]) == (kind, totals, epsilon)]
                found = relative(ours, errors.get(name, {}), cells)
                row.append("–" if found is None else f"{_ratio(found.mean)} / {_ratio(found.worst)}")
            rows.append(row)
    head = ["NOT PRIVATE", "data", "totals", *(f"ε = {epsilon:g}" for epsilon in epsilons)]
    return Table("oracle", "Against the oracle", head, rows)


def standing_table(stands: Sequence[Stand]) -> Table:
    """By seed and kind of data: in how many cases a setting holds, and our error over the seed's at root and leaves."""
    grouped: dict[tuple[str, str, str], list[Stand]] = defaultdict(list)
    for one in stands:
        grouped[one.seed, one.case.kind, one.case.totals].append(one)
    rows = []
    for (seed, kind, totals), found in grouped.items():
        ends = [geometric_mean([one.gains[place] for one in found]) for place in (0, -1)]
        held = sum(one.holds for one in found)
        rows.append([seed, kind, totals, f"{held} of {len(found)}", *map(_ratio, ends)])
    head = ["seed", "data", "totals", "cases in which one is", "root", "leaves"]
    return Table("settings", "Is there a setting that a seed does not beat anywhere?", head, rows)


def case_table(stands: Sequence[Stand]) -> Table:
    """Every case: the setting that does best against a seed, where it is beaten, and what it gains at each level."""
    rows = []
    for one in stands:
        beaten = ", ".join(f"{cell.level} {cell.metric.upper()} {_ratio(ratio)}" for cell, ratio in one.beaten)
        case = [one.case.dataset, one.case.totals, f"{one.case.epsilon:g}"]
        gains = " ".join(map(_ratio, one.gains))
        rows.append([one.seed, *case, one.setting, "yes" if one.holds else "no", beaten, gains])
    head = ["seed", "data", "totals", "ε", "setting", "holds", "beaten at", "ours ÷ seed, root … leaves"]
    return Table("cases", "Case by case", head, rows)


def _groups(ours: Mapping[Cell, Error]) -> list[tuple[tuple[str, str], list[Cell]]]:
    """Cells by kind and totals, each kind followed by its data sets."""
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in sorted(ours):
        kind, dataset, totals, _ = cell.case
        found.setdefault((f"all {kind}", totals), []).append(cell)
        found.setdefault((dataset, totals), []).append(cell)
    order = sorted(found, key=lambda key: (found[key][0].case.kind, key[1], not key[0].startswith("all "), key[0]))
    return [(key, found[key]) for key in order]


def _words(one: Relative | None) -> list[str]:
    return ["–"] * 3 if one is None else [_ratio(one.mean), _ratio(one.worst), f"{one.behind} of {one.cells}"]


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:,.0f}"
