"""The report of a plan: what each budget would buy on each level, and how levels trade off."""

from __future__ import annotations

from typing import Any

from tallytree.estimate.intervals.interval import REACH_SHARE
from tallytree.planning.report import PlanReport
from tallytree.planning.simulation import Prediction
from tallytree.privacy.relations import describe_relation
from tallytree.publish.about import NOT_STATED, About
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.report import Page, render_page

BALANCED = "balanced"


def make_plan_page(report: PlanReport, *, title: str, words: About = NOT_STATED) -> Page:
    """Return the report of a plan, for the mechanism with the least predicted error on the last level."""
    mechanism, first = report.best(report.levels[-1]).mechanism, report.budgets[0]
    found = [one for one in report.predictions if one.mechanism == mechanism]
    splits = list(dict.fromkeys(one.split for one in found))
    usual = BALANCED if BALANCED in splits else splits[0]
    by_budget = sorted((one for one in found if one.split == usual), key=lambda one: one.budget.amount)
    by_split = [one for one in found if one.budget == first]
    values = {
        "title": title,
        "words": words,
        "report": report,
        "protects": describe_relation(report.facts.neighbours),
        "mechanism": mechanism,
        "confidence": in_percent(report.confidence),
        "usual": usual,
        "splits": {one.split: [float(share) for share in one.shares] for one in by_split},
        "bought": {level: _rows(by_budget, level) for level in report.levels},
        "traded": {level: _rows(by_split, level) for level in report.levels},
        "reach_share": f"{100 * REACH_SHARE:g} %",
    }
    return render_page("plan.html", values)


def _rows(found: list[Prediction], level: str) -> list[dict[str, Any]]:
    """Return the predictions of a level; their errors have twice the standard error of the simulation."""
    return [
        {**vars(one), "ends": (one.emd - 2 * one.emd_standard_error, one.emd + 2 * one.emd_standard_error)}
        for one in found
        if one.level == level
    ]
