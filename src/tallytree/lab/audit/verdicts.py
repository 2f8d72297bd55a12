"""NOT PRIVATE: the rows of an audit, each with its verdict, and how they are kept."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tallytree.privacy.budget import Budget, epsilon_of
from tallytree.version import VERSION

WARNING = "NOT PRIVATE: an audit runs on made-up data and compares outputs with the truth. It is no part of a release."
ROUNDING = 1e-9  # floating point, in a bound that is exactly the claim
Verdict = Literal["consistent", "VIOLATION"]


@dataclass(frozen=True)
class Row:
    """One claim, and what was found: bounds on the real ε at the same δ. A bound that was not computed is None."""

    part: Literal["release", "synthesis", "planted"]
    name: str  # the mechanism, the kind of round or the planted defect
    unit: str
    setting: str  # totals, rows and options
    budget: str
    neighbours: str  # what differs
    delta: float
    claimed: float
    exact: float | None = None  # worst over all neighbours of the small data set
    measurements: float | None = None  # from the published noisy measurements, by their likelihood ratio
    counts: float | None = None  # from the final counts alone
    command: float | None = None  # from the published measurements of a folder that the command wrote
    runs: int = 0  # outputs of each of the two data sets, the choice of thresholds included
    power: float | None = None  # of a planted defect: in which part of all tries it is caught

    @property
    def bound(self) -> float:
        """The largest of the lower bounds on the real ε."""
        found = (self.exact, self.measurements, self.counts, self.command)
        return max((value for value in found if value is not None), default=0.0)

    @property
    def verdict(self) -> Verdict:
        """Is what was found consistent with the claim?"""
        return "consistent" if self.bound <= self.claimed * (1 + ROUNDING) else "VIOLATION"

    @property
    def sampled(self) -> float:
        """The largest bound that was found from outputs."""
        return max((v for v in (self.measurements, self.counts, self.command) if v is not None), default=0.0)

    def plain(self) -> dict[str, Any]:
        """Plain values, the verdict included."""
        return {**asdict(self), "bound": self.bound, "verdict": self.verdict}


@dataclass(frozen=True)
class BorderRow:
    """Pairs of neighbouring tables that were compared at the border, and what was found."""

    name: str  # the mechanism, the rounds of synthesis or the planted defect
    unit: str
    setting: str
    budget: str
    pairs: int
    published: int  # pairs whose releases were compared too, byte by byte
    queries: int  # compared, over all pairs
    change: float  # the largest change of a query, as a part of its sensitivity
    loss: float  # the largest loss of all queries of a pair, as a part of the budget
    flagged: int  # pairs
    flags: tuple[str, ...] = ()
    part: Literal["border", "planted"] = "border"

    @property
    def verdict(self) -> Verdict:
        """Was nothing flagged?"""
        return "VIOLATION" if self.flags else "consistent"

    def plain(self) -> dict[str, Any]:
        """Plain values, the verdict included."""
        return {**asdict(self), "flags": "; ".join(self.flags), "verdict": self.verdict}


@dataclass(frozen=True)
class Audit:
    """All rows of an audit. All bounds from outputs hold together with the confidence."""

    rows: tuple[Row, ...]
    confidence: float
    border: tuple[BorderRow, ...] = ()

    @property
    def ok(self) -> bool:
        """Is every claim consistent, and every planted defect caught from outputs?"""
        return not self.failures

    @property
    def failures(self) -> list[Row | BorderRow]:
        """Claims that are violated, and planted defects that were not shown."""
        every: list[Row | BorderRow] = [*self.rows, *self.border]
        return [row for row in every if _failed(row)]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "privacy": WARNING,
            "version": VERSION,
            "confidence": self.confidence,
            "ok": self.ok,
            "rows": [row.plain() for row in self.rows],
            "border": [row.plain() for row in self.border],
        }

    def save(self, folder: Path) -> list[Path]:
        """Write `audit.json` and, for spreadsheets, `audit.csv` (bounds) and `audit-border.csv`; return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        contents = {
            "audit.json": json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n",
            "audit.csv": _table(self.rows),
            "audit-border.csv": _table(self.border),
        }
        for name, content in contents.items():
            (folder / name).write_text(content, encoding="utf-8")
        return [folder / name for name in contents]


def _table(rows: Sequence[Row | BorderRow]) -> str:
    """Rows as CSV, numbers in four decimals."""
    text = io.StringIO()
    plain = [{"version": VERSION, **row.plain()} for row in rows]
    writer = csv.DictWriter(text, list(plain[0]) if plain else ["version"], lineterminator="\n")
    writer.writeheader()
    for row in plain:
        writer.writerow({key: f"{v:.4f}" if isinstance(v, float) and key != "delta" else v for key, v in row.items()})
    return text.getvalue()


def stated(budget: Budget) -> tuple[float, float]:
    """The ε that a budget is stated as, and at which δ."""
    if budget.rho is None or budget.delta is None:
        return float(budget.amount), 0.0
    return float(epsilon_of(budget.rho, budget.delta)), float(budget.delta)


def _failed(row: Row | BorderRow) -> bool:
    if row.part != "planted":
        return row.verdict != "consistent"
    return row.power != 1 if isinstance(row, Row) else not row.flagged
