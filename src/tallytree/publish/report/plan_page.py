"""The page of a plan: what each budget would buy, level by level, and how levels trade against each other."""

from __future__ import annotations

from typing import Any

from tallytree.estimate.intervals.interval import REACH_SHARE
from tallytree.planning.simulation import Prediction
from tallytree.planning.value import PlanReport
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.report.bars import bar
from tallytree.publish.report.page import Page, rendered
from tallytree.publish.report.words import Words, about, percent

BALANCED = "balanced"


def plan_page(report: PlanReport, *, title: str, words: Words | None = None) -> Page:
    """The page of a plan, of the mechanism with the least predicted error of the last level at the first budget."""
    called = words or Words()
    mechanism = report.best(report.levels[-1]).mechanism
    found = [one for one in report.predictions if one.mechanism == mechanism]
    splits = list(dict.fromkeys(one.split for one in found))
    usual = BALANCED if BALANCED in splits else splits[0]
    first = report.budgets[0]
    return rendered(
        "plan.html",
        {
            "title": title,
            "words": called,
            "prior": report.prior,
            "mechanism": mechanism,
            "confidence": in_percent(report.confidence),
            "protects": report.facts.neighbours.describe(),
            "levels": [_level(report, found, level, usual) for level in report.levels],
            "usual": usual,
            "first": str(first),
            "splits": [_shares(report, found, split) for split in splits],
            "divided": report.hierarchy.levels,
            "traded": [_traded(report, found, level) for level in report.levels],
            "by_category": bool(report.hierarchy.by.columns),
            "replicates": f"{report.replicates:,}",
            "warnings": report.warnings,
            "reach_share": percent(REACH_SHARE).replace(".0", ""),
            "notes": report.notes,
        },
    )


def _amount(one: Prediction) -> float:
    return float(one.budget.epsilon if one.budget.epsilon is not None else one.budget.amount)


def _level(report: PlanReport, found: list[Prediction], level: str, split: str) -> dict[str, Any]:
    """A level's errors against the budget."""
    rows = sorted((one for one in found if one.level == level and one.split == split), key=_amount)
    most = max([1e-9, *(one.emd + 2 * one.emd_standard_error for one in rows)])
    return {
        "name": level,
        "rows": [
            {
                "budget": str(one.budget),
                "first": one.budget == report.budgets[0],
                "error": about(one.emd),
                "reach": "–" if one.reach is None else f"± {one.reach:,.0f}",
                "width": "–" if one.half_width is None else f"± {one.half_width:,.1f}",
                "bar": bar(one.emd, most, (one.emd - 2 * one.emd_standard_error, one.emd + 2 * one.emd_standard_error)),
            }
            for one in rows
        ],
    }


def _traded(report: PlanReport, found: list[Prediction], level: str) -> dict[str, Any]:
    """A level's errors with each division of the first budget."""
    rows = [one for one in found if one.level == level and one.budget == report.budgets[0]]
    most = max([1e-9, *(one.emd for one in rows)])
    return {
        "name": level,
        "rows": [{"split": one.split, "error": about(one.emd), "bar": bar(one.emd, most)} for one in rows],
    }


def _shares(report: PlanReport, found: list[Prediction], split: str) -> dict[str, Any]:
    """What a division gives to each level."""
    one = next(one for one in found if one.split == split and one.budget == report.budgets[0])
    return {"name": split, "shares": [percent(float(share)) for share in one.shares]}
