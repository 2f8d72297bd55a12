"""NOT PRIVATE: from the lines of `experiments.plausible` to the tables of docs/synthesis-accuracy.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, stdev
from typing import Any

Row = dict[str, Any]
ARROW = " → "


def markdown(rows: Sequence[Row]) -> str:
    """A table in Markdown for each data set: a column for each ε, means over runs, before → with roles and rules."""
    sets = list(dict.fromkeys(row["data"] for row in rows))
    return "\n\n".join(table([row for row in rows if row["data"] == name], name) for name in sets)


def table(rows: Sequence[Row], name: str) -> str:
    """The table of one data set."""
    epsilons = sorted({row["epsilon"] for row in rows}, key=float)
    columns = [Column([row for row in rows if row["epsilon"] == epsilon]) for epsilon in epsilons]
    runs = ", ".join(str(column.runs) for column in dict.fromkeys(columns))
    lines = [
        f"| {name} (runs: {runs}) | " + " | ".join(f"ε = {float(epsilon):g}" for epsilon in epsilons) + " |",
        "|---|" + "--:|" * len(epsilons),
    ]
    for label, key, digits, percent in MEASURES:
        cells = [column.shown(key, digits, percent) for column in columns]
        if any(cells):
            truth = next((row[f"true_{key}"] for row in rows if f"true_{key}" in row), None)
            words = f" (truth {number(truth, digits, percent)})" if truth is not None else ""
            lines.append(f"| {label}{words} | " + " | ".join(cells) + " |")
    for label, key in (("largest", "max_error"), ("mean", "mean_error")):
        lines.append(f"| {label}: with / before | " + " | ".join(column.ratio(key) for column in columns) + " |")
    return "\n".join(lines)


MEASURES = (
    ("households that break a rule", "breaking_rules", 0, False),
    ("kept all rules when drawn first", "accepted", 3, False),
    ("largest error", "max_error", 4, False),
    ("mean error", "mean_error", 5, False),
    ("age correlation of the pair", "correlation", 2, False),
    ("couples of one sex", "one_sex", 1, True),
    ("heads below 12 years", "heads_under_16", 1, True),
    ("children by age of head, relative error", "children_apart", 3, False),
    ("persons tables, total variation", "persons_apart", 3, False),
    ("three generations", "three_generations", 1, True),
)


class Column:
    """The runs of one data set and ε."""

    def __init__(self, rows: Iterable[Row]) -> None:
        every = list(rows)
        self.before = [row for row in every if not row["structure"]]
        self.with_roles = [row for row in every if row["structure"]]

    @property
    def runs(self) -> str:
        """How many there are of each kind."""
        return f"{len(self.before)} and {len(self.with_roles)}"

    def shown(self, key: str, digits: int, percent: bool) -> str:
        """Means, before → with; acceptance is of what has rules alone."""
        sides = [self.with_roles] if key == "accepted" else [self.before, self.with_roles]
        values = [[row[key] for row in side if row.get(key) is not None] for side in sides]
        return ARROW.join(number(mean(side), digits, percent) for side in values if side)

    def ratio(self, key: str) -> str:
        """The mean with roles as a part of that before, and its standard error where there are runs enough."""
        one, other = ([row[key] for row in side] for side in (self.with_roles, self.before))
        if not one or not other:
            return ""
        ratio = mean(one) / mean(other)
        if min(len(one), len(other)) < 2:
            return f"{ratio:.2f}"
        spread = sum((stdev(side) / mean(side)) ** 2 / len(side) for side in (one, other)) ** 0.5
        return f"{ratio:.2f} ± {ratio * spread:.2f}"


def number(value: float, digits: int, percent: bool) -> str:
    """Without a leading zero, as the other tables have it."""
    text = f"{100 * value:.{digits}f} %" if percent else f"{value:,.{digits}f}"
    return text[1:] if text.startswith("0.") and not percent else text
