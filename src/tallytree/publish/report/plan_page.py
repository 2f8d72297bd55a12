"""The page of a plan: what each setting would buy on each level, goals, and the spec that follows.

Python simulates a grid of settings (`planning.grid`), and the page's script interpolates between its budgets. Without
scripts the page shows the spec's own plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, exp, floor, isnan, log10
from typing import Any

import numpy as np

from tallytree.core.arrays import Floats
from tallytree.core.names import visible
from tallytree.domain.histogram import size_label
from tallytree.estimate.intervals.interval import REACH_SHARE
from tallytree.planning.grid import LEAST, MEASURES, PREDICTED, PlanGrid, amounts
from tallytree.planning.prior import sum_up
from tallytree.planning.report import AS_GIVEN, BANDS, PlanReport
from tallytree.planning.simulation import split_by_level
from tallytree.privacy.relations import describe_relation
from tallytree.publish.about import NOT_STATED, About
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.report import Page, render_page

Row = dict[str, Any]
LABELS = {  # of splits, in the order of the page
    AS_GIVEN: "the shares of the spec",
    BANDS: "the size bands of the spec",
    "leaves": "the smallest regions (leaves)",
    "balanced": "all levels (balanced)",
    "upper": "the upper levels (upper)",
}
SUSPICIONS = (0.01, 0.1, 0.5)  # examples of what somebody believes before a release
LARGEST_ODDS = 1000
MOST_ROWS = 15  # of the example
FIRST_SIZES = 10  # that the example shows one by one if there are more


def make_plan_page(
    grid: PlanGrid, *, split: str, spec: Mapping[str, Any], title: str, words: About = NOT_STATED
) -> Page:
    """Return the page of a plan; `spec` has the spec's values, `split` names its division of the budget."""
    report, stated = grid.own, amounts(grid.budgets)
    splits = [name for name in LABELS if name in report.splits] + [name for name in report.splits if name not in LABELS]
    split = split if split in splits else splits[0]
    currency, pure = ("ρ" if grid.asked.epsilon is None else "ε"), grid.asked.delta is None
    levels = _levels(report)
    predicted = [
        {**level, **vars(one), "within": one.within_5_percent}
        for level, one in zip(levels, report.of(budget=grid.asked, split=split), strict=True)
    ]
    shapes = {size: _sizes(one) for size, one in grid.reports.items()}
    misses = {measure: grid.misses(measure) for measure in PREDICTED}
    odds = exp(min(float(amounts([grid.asked])[0]), 700.0))
    data = {
        "currency": currency,
        "key": "rho" if currency == "ρ" else "epsilon",
        "amounts": stated.tolist(),
        "splits": {name: LABELS.get(name, name) for name in splits},
        "sizes": list(grid.reports),
        "own": {"amount": float(amounts([grid.asked])[0]), "split": split, "size": grid.max_size},
        "levels": levels,
        "tree": [visible(name) for name in report.hierarchy.levels],
        "shares": {name: [_shares(one, grid, name) for one in grid.reports.values()] for name in splits},
        "values": {
            name: {measure: _plain(grid.values(measure)[:, at].tolist()) for measure in MEASURES}
            for name, at in ((name, report.splits.index(name)) for name in splits)
        },
        "misses": misses,
        "least": LEAST,
        "shapes": list(shapes.values()),
        "spec": spec,
        "mechanism": report.predictions[0].mechanism,
        "words": {"groups": words.groups, "entities": words.entities},
        "suspicions": SUSPICIONS,
        "largest_odds": LARGEST_ODDS,
    }
    values = {
        "title": title,
        "words": words,
        "report": report,
        "currency": currency,
        "pure": pure and currency == "ε",
        "asked": grid.asked,
        "budgets": [f"{amount:g}" for amount in stated],
        "least": stated[0],
        "most": stated[-1],
        "labels": data["splits"],
        "split": split,
        "own_size": grid.max_size,
        "shares": list(zip(data["tree"], _shares(report, grid, split)[grid.budgets.index(grid.asked)], strict=True)),
        "odds": odds if odds <= LARGEST_ODDS else None,
        "beliefs": [(before, before * odds / (1 - before + before * odds)) for before in SUSPICIONS],
        "levels": predicted,
        "example": _example(predicted[-1], shapes[grid.max_size]),
        "misses": [
            {"name": level["name"], **{measure: misses[measure][split][at] for measure in PREDICTED}}
            for at, level in enumerate(levels)
        ],
        "mechanism": data["mechanism"],
        "protects": describe_relation(report.facts.neighbours),
        "confidence": in_percent(report.confidence),
        "reach_share": f"{100 * REACH_SHARE:g} %",
    }
    return render_page("plan.html", values, data=data, scripts=("page.js", "plan.js"))


def _plain(values: Any) -> Any:
    """Return nested lists without NaN, which JSON does not have."""
    return [_plain(one) for one in values] if isinstance(values, list) else None if isnan(values) else values


def _shares(report: PlanReport, grid: PlanGrid, split: str) -> list[list[float]]:
    """Return the shares of the levels for each budget."""
    return [[float(part) for part in report.of(budget=one, split=split)[0].shares] for one in grid.budgets]


def _levels(report: PlanReport) -> list[Row]:
    """Return the levels with their numbers of regions, and of expected groups in a region."""
    expected = report.expected
    assert expected is not None
    groups = split_by_level(sum_up(report.hierarchy, expected.totals)[:, np.newaxis], report.hierarchy)
    return [
        {"name": visible(name), "regions": len(found), "groups": _about(float(np.median(found)))}
        for name, found in zip(report.levels, groups, strict=True)
    ]


def _about(groups: float) -> int:
    """Return a number with two digits, at least 1.

    >>> _about(1384.2), _about(0.3)
    (1400, 1)
    """
    return int(round(groups, 1 - floor(log10(groups)))) if groups >= 1 else 1


def _sizes(report: PlanReport) -> list[Row]:
    """Return sizes of the example with their expected shares; of many sizes, a few."""
    expected = report.expected
    assert expected is not None
    of_shapes = np.bincount(expected.shape_of, expected.totals, len(expected.shapes))
    shares: Floats = of_shapes @ expected.shapes / max(of_shapes.sum(), 1e-9)
    sizes: Sequence[int] = range(expected.first_size, expected.max_size + 1)
    if len(sizes) > MOST_ROWS:
        later = [FIRST_SIZES * 2**step for step in range(1, 40) if FIRST_SIZES * 2**step < expected.max_size]
        sizes = [*sizes[:FIRST_SIZES], *later, expected.max_size]
    return [
        {"label": size_label(size, expected.max_size), "share": float(shares[size - expected.first_size])}
        for size in sizes
    ]


def _example(level: Row, sizes: Sequence[Row]) -> Row:
    """Return the expected sizes of a region with their error bars."""
    reach, rows = ceil(level["reach"]), []
    for one in sizes:
        count = floor(level["groups"] * one["share"] + 0.5)  # as scripts round
        rows.append({"label": one["label"], "count": count, "ends": (max(0, count - reach), count + reach)})
    return {"level": level["name"], "groups": level["groups"], "rows": rows}
