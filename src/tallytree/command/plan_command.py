"""`tallytree plan`: predict what a budget will buy, from public facts alone; nothing is spent.

For a release: the errors of mechanisms on each level. For a synthesis: the measured tables, and their noise.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from tallytree.command.command_options import PlanOptions
from tallytree.command.progress_bar import show_progress
from tallytree.command.release_spec import ReleaseSpec
from tallytree.command.screen import below, plain_table, show, show_json, words
from tallytree.command.spec import is_for_synthesis, read_budgets
from tallytree.command.synthesis_spec import SynthesisSpec
from tallytree.core import display
from tallytree.core.errors import TallytreeError
from tallytree.core.names import visible
from tallytree.core.progress import Progress, Stage
from tallytree.estimate.intervals.interval import REACH_SHARE
from tallytree.mechanisms import choose, mechanism_named
from tallytree.planning.goals import Suggestion, in_words, suggest
from tallytree.planning.grid import predict_grid
from tallytree.planning.households import SWEPT, SynthesisPlan, plan_synthesis
from tallytree.planning.prior import NO_PRIOR, Prior
from tallytree.planning.report import (
    AS_GIVEN,
    USUAL_SPLIT,
    Alternatives,
    PlanReport,
    choose_by_prediction,
    draw_plan,
    list_splits,
    predict_errors,
)
from tallytree.planning.simulation import Prediction, PublicFacts
from tallytree.privacy.budget import as_decimal
from tallytree.publish.microdata.synthesis_run import choose_method
from tallytree.publish.release.descriptions import truncation
from tallytree.publish.report import Page
from tallytree.publish.report.plan_page import make_plan_page
from tallytree.synthesis.marginals import DEFAULT, MarginalsOptions

WIDTH = 80  # characters of a line
BY_CATEGORY = "levels are by category, with each region once per category; levels over all categories say so"
NOTHING_SPENT = "Nothing was spent, and no private data were opened."


def run_plan(options: PlanOptions) -> None:
    """Show the predictions of mechanisms for each budget or, with goals, the shares that reach them."""
    if is_for_synthesis(options.spec):
        _run_synthesis_plan(options)
        return
    spec = ReleaseSpec.load(options.spec)
    budgets = read_budgets(options.epsilon, spec)
    content: Any
    if options.report is not None and options.suggest:
        raise TallytreeError("--report shows what budgets buy; leave out --suggest")
    with show_progress(options.quiet) as progress:
        progress(Stage("reading the public tables"))
        hierarchy, totals = spec.public_regions()
        facts = PublicFacts(hierarchy, spec.neighbours(), totals)
        expecting = spec.prior(hierarchy, source=options.prior, groups=options.groups)
        if options.suggest:
            by: dict[str, Any] = {"mechanism": spec.release.mechanism, "options": spec.release.options}
            by["expected"] = None if expecting is None else facts.expect(expecting)
            found = [suggest(facts, budget, options.suggest, **by) for budget in budgets]
            content, parts = [one.to_json() for one in found], [suggestion(one) for one in found]
        elif expecting is None:
            raise TallytreeError(NO_PRIOR)
        else:
            if options.plot is not None:
                display.check(options.plot)
            for name, given in spec.mechanism_options.items():
                configured = mechanism_named(name).configured(given)
                configured.divided(hierarchy, spec.release.shares, spec.release.priority, budgets[0])
            named = None if spec.release.mechanism == "auto" else [spec.release.mechanism]
            splits = list_splits(hierarchy, spec.release.shares)
            alternatives = Alternatives(options.mechanism or named, spec.mechanism_options, splits)
            found_plan = predict_errors(facts, expecting, budgets, alternatives, progress=progress)
            content, parts = found_plan.to_json(), [plan_table(found_plan)]
            if options.report is not None:
                page = _make_page(options, spec, facts, expecting, alternatives, progress)
                parts.append(f"page: {page.save(options.report)}")
            if options.plot is not None:
                page = draw_plan(facts, expecting, budgets[0], mechanisms=options.mechanism, progress=progress)
                display.save(page, options.plot)
                parts.append(f"picture: {options.plot}")
    if note := truncation(facts.neighbours):
        parts.append(Text(f"· {note}"))
    if options.as_json:
        show_json(content)
    else:
        show(*parts, quiet=options.quiet)


def _make_page(
    options: PlanOptions, spec: ReleaseSpec, facts: PublicFacts, prior: Prior, ways: Alternatives, progress: Progress
) -> Page:
    """Return the page of a plan for the mechanism that the release would take, or the first that was asked for."""
    release, budgets = spec.release, read_budgets(options.epsilon, spec)
    divided: dict[str, Any] = {"shares": release.shares, "priority": release.priority}
    if ways.named:
        name = ways.named[0]
    elif release.options:
        name = choose("auto", facts.neighbours).name
    else:
        name = choose_by_prediction(facts, prior, budgets[0], **divided, progress=progress).name
    grid = predict_grid(facts, prior, budgets, replace(ways, mechanisms=[name]), progress=progress)
    values = spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    given = {key: value for key in ("prior", "groups") if (value := getattr(options, key)) is not None}
    values["plan"] = {**values.get("plan", {}), **given}
    if options.epsilon:
        values["privacy"] = {**values["privacy"], "epsilon": options.epsilon[0]}
    title = f"Choose a budget: {spec.title or options.spec.stem}"
    split = AS_GIVEN if release.shares is not None else release.priority or USUAL_SPLIT
    return make_plan_page(grid, split=split, spec=values, title=title, words=spec.stated())


# -------------------------------------------------------------------- on the screen


def plan_table(report: PlanReport) -> RenderableType:
    """Return what budgets buy: for every split a block of mechanisms by levels, the best of each level marked."""
    parts: list[RenderableType] = []
    for budget in report.budgets:
        parts.append(Text(f"\nWhat {budget} buys", style="bold green") + words(f", expecting {report.prior}"))
        parts.append(Text(f"{_legend(report)}\n", style="dim"))
        for split in report.splits:
            parts.append(_split_block(report, report.of(budget=budget, split=split), split))
    parts += [Text(f"! {warning}", style="bold yellow") for warning in report.warnings]
    by_category = [BY_CATEGORY] if report.hierarchy.by.columns else []
    for note in (*by_category, *_simulation_errors(report), *report.notes):
        parts.append(Text(f"· {note}"))
    if report.skipped:
        parts.append(Text(f"· {len(report.skipped)} other mechanisms: --mechanism all shows more; --json says why"))
    parts.append(Text(NOTHING_SPENT))
    return Group(*parts)


def _legend(report: PlanReport) -> str:
    percent = f"{100 * report.confidence:g} %"
    return (
        "moved, L1: mean errors per region. moved is the earth mover's distance, the entities to add or remove to fix "
        "it; * marks the least of a split. L1 is summed over sizes.\n"
        f"reach: {100 * REACH_SHARE:g} % of a level's published counts will have their recommended {percent} interval "
        "within count ± reach, if the data are like the prior.\n"
        f"half-width: no guaranteed {percent} interval is wider than this to either side of an unbiased estimate, for "
        "any data. It reaches further from the published count where that was smoothed away from the estimate."
    )


def _split_block(report: PlanReport, rows: tuple[Prediction, ...], split: str) -> RenderableType:
    """Return one split: a line for each mechanism, then the half-widths of guaranteed intervals by measured view."""
    levels, divided = [visible(level) for level in report.levels], [*map(visible, report.hierarchy.levels)]
    by_name: dict[str, list[Prediction]] = {}
    for row in rows:
        by_name.setdefault(row.mechanism, []).append(row)
    usual, others = _divisions(by_name)
    lines = [Text(split, style="bold") + Text(f"  {_in_percent(divided, usual)}", style="dim")]
    lines += [Text(f"{name} uses its own split:  {_in_percent(divided, own)}", style="dim") for name, own in others]
    widths = [max(21, len(level) + 1) for level in levels]
    halves = _half_widths(by_name)
    first = max(21, *(len(name) + 1 for name in (*by_name, *halves)))
    for some in _chunks(widths, WIDTH - first):
        head, below = Text(" " * first), Text(" " * first)
        for at in some:
            head.append(levels[at].rjust(widths[at]), style="bold")
            below.append("moved".rjust(widths[at] - 14) + "L1".rjust(7) + "reach".rjust(7), style="dim")
        lines += [head, below]
        for name, found in by_name.items():
            line = Text(name.ljust(first))
            for at in some:
                least = min(rows_of[at].emd for rows_of in by_name.values())
                best = found[at].emd == least
                cell = f"{short(found[at].emd)}{'*' if best else ' '}".rjust(widths[at] - 13)
                line.append(cell, style="bold green" if best else "")
                line.append(short(found[at].l1).rjust(6))
                line.append(_plus_minus(found[at].reach).rjust(7), style="cyan")
            lines.append(line)
        for label, found_widths in halves.items():
            if any(found_widths[at] is not None for at in some):
                lines.append(Text(label.ljust(first), style="dim"))
                for at in some:
                    lines[-1].append(_plus_minus(found_widths[at]).rjust(widths[at]))
    return Group(*lines, Text(""))


Parts = tuple[Fraction, ...]


def _divisions(by_name: dict[str, list[Prediction]]) -> tuple[Parts, list[tuple[str, Parts]]]:
    """Return how most mechanisms of a split divide the budget over the levels, and which ones use their own split.

    Mechanisms that measure only leaves have just one split.
    """
    found = {name: rows[0].shares for name, rows in by_name.items()}
    divide = {name: parts for name, parts in found.items() if not mechanism_named(name).leaves_only} or found
    usual = max(divide.values(), key=list(divide.values()).count)
    return usual, [(name, parts) for name, parts in divide.items() if parts != usual]


def _in_percent(levels: list[str], parts: Parts) -> str:
    return ", ".join(f"{level} {as_percent(share)}" for level, share in zip(levels, parts, strict=True))


def _half_widths(by_name: dict[str, list[Prediction]]) -> dict[str, tuple[float | None, ...]]:
    """Return half-widths by label, one for all mechanisms that share them: they follow from the measurements alone."""
    named: dict[tuple[float | None, ...], list[str]] = {}
    for name, found in by_name.items():
        named.setdefault(tuple(row.half_width for row in found), []).append(name)
    return {
        f"half-width, {f'by {mechanism_named(names[0]).view}' if len(names) > 1 else names[0]}": half_widths
        for half_widths, names in named.items()
    }


def _plus_minus(value: float | None) -> str:
    return "" if value is None else f"±{short(value)}" if value % 1 else f"±{short(value).removesuffix('.0')}"


def _simulation_errors(report: PlanReport) -> list[str]:
    """Return the standard errors of the predicted errors, level by level."""
    parts = []
    for level in report.levels:
        rows = [row for row in report.predictions if row.level == level and row.emd > 0]
        if rows:
            middle = float(np.median([row.emd_standard_error / row.emd for row in rows]))
            parts.append(f"{visible(level)} ± {100 * middle:.2g} %")
    return [f"{report.replicates} simulations; standard errors of the errors: {', '.join(parts)}"] if parts else []


def suggestion(found: Suggestion) -> RenderableType:
    """Return shares for a goal, their predicted errors, and the line for the spec."""
    reach = found.reach or (None,) * len(found.levels)
    table = plain_table("level", "share", "reach", "half-width", right=(1, 2, 3))
    for (level, share), half_width, reached in zip(found.by_level.items(), found.half_widths, reach, strict=True):
        table.add_row(level, as_percent(share), "–" if reached is None else f"± {reached:,.0f}", f"± {half_width:,.1f}")
    sentences = [words(line, style="bold green" if found.enough else "bold yellow") for line in in_words(found)]
    confidence = f"{100 * found.goals[0].confidence:g} %"
    return Group(
        *sentences,
        Padding(table, (1, 0, 1, 2)),
        Text(
            f"reach: with {found.mechanism}, {100 * REACH_SHARE:g} % of a level's published counts will have their "
            f"recommended {confidence} interval within count ± reach, if the data are like the prior."
            if found.reach is not None
            else "reach: not predicted without a prior."
        ),
        Text(
            f"half-width: no guaranteed {confidence} interval is wider than this to either side of an unbiased "
            "estimate, for any data."
        ),
        Text("In the spec's [release]:"),
        below(Text(found.toml, style="cyan")),
        Text(NOTHING_SPENT),
    )


def _chunks(widths: list[int], room: int) -> list[list[int]]:
    """Return columns in groups that fit into a line."""
    groups: list[list[int]] = [[]]
    for at, width in enumerate(widths):
        if groups[-1] and sum(widths[one] for one in groups[-1]) + width > room:
            groups.append([])
        groups[-1].append(at)
    return groups


def as_percent(share: Fraction) -> str:
    """Format a share as a percentage.

    >>> as_percent(Fraction(1, 7))
    '14.3 %'
    """
    return f"{float(100 * share):.3g} %"


def short(value: float) -> str:
    """Format a number with at most six characters.

    >>> short(5.53), short(2723.2), short(15_300), short(2_040_000)
    ('5.5', '2,723', '15.3k', '2.0M')
    """
    if value < 9.95:
        return f"{value:.1f}"
    if value < 9_999.5:
        return f"{value:,.0f}"
    return f"{value / 1000:.1f}k" if value < 999_500 else f"{value / 1_000_000:.1f}M"


MOST_TABLES = 40  # of tables on the screen; --json has all


def _run_synthesis_plan(options: PlanOptions) -> None:
    """Show which tables each budget affords. Nothing is spent, and no microdata are opened."""
    for_releases = ("suggest", "prior", "mechanism", "plot", "report")
    if refused := [f"--{name}" for name in for_releases if getattr(options, name)]:
        raise TallytreeError(
            f"{', '.join(refused)} is for releases: a synthesis is planned with --epsilon and --groups"
        )
    spec = SynthesisSpec.load(options.spec)
    schema = spec.public_schema()
    chosen = choose_method(schema, replace(spec.settings(schema), regional=None))
    if not isinstance(chosen.options, MarginalsOptions):
        raise TallytreeError(
            f"{chosen.method.name} chooses single counts as it goes, so there is no table to plan: use {DEFAULT}"
        )
    plans = [
        plan_synthesis(chosen.workload, spec.neighbours(), budget, chosen.options, households=options.groups)
        for budget in read_budgets(options.epsilon, spec)
    ]
    if options.as_json:
        show_json([plan.to_json() for plan in plans])
    else:
        show(*map(synthesis_table, plans), quiet=options.quiet)


def synthesis_table(plan: SynthesisPlan) -> RenderableType:
    """Return the measured tables, those measured in any case first, and a line on the other tables."""
    parts: list[Any] = [Text(f"\nWhat {plan.budget} buys", style="bold green")]
    parts.append(Text("noise: standard deviation on one count. of all: what noise sums to.\n", style="dim"))
    table = plain_table("table", "why", "ρ", "noise", "of all", right=(2, 3, 4), gap=2)
    for one in plan.tables[:MOST_TABLES]:
        part = "?" if one.part is None else f"{one.part:.0%}" if one.part < 10 else ">1000%"
        table.add_row(one.table.describe(), one.why, as_decimal(one.rho, 2), f"{one.noise:,.0f}", part)
    parts.append(table)
    if (more := len(plan.tables) - MOST_TABLES) > 0:
        parts.append(Text(f"… and {more:,} more tables, with about the noise of the last (--json has all)"))
    expected = plain_table("expected error of one count, by kind of table", "error", right=(1,))
    for kind, error in plan.expected.items():
        expected.add_row(kind, f"± {error:,.0f}")
    parts += [Text(), expected, Text()]
    for note in _notes(plan):
        parts.append(words(f"· {note}"))
    return Group(*parts)


def _notes(plan: SynthesisPlan) -> list[str]:
    """Return notes on what the table does not show."""
    lines = [
        "for the roles: measured so that households look like households, in any case. Where noise would sum to more "
        "than 30 % of what a table counts, values are grouped",
        f"rounds: ρ = {as_decimal(plan.for_rounds, 2)} remains to choose further tables where the model is worst",
    ]
    if plan.households is None:
        lines.append("--groups N (about how many households) plans the tables that are worth their noise, too")
    else:
        swept = sum(one.why == SWEPT for one in plan.tables)
        lines.append(f"{swept:,} tables of the workload, or smaller ones within them, are worth their noise at once")
    lines.append(f"{len(plan.left):,} tables of the workload follow from the model, or from later rounds")
    if plan.exact:
        lines.append(f"{len(plan.exact):,} tables are not protected by the unit and are published exactly")
    lines.append("to have a table measured in any case: [[workload.tables]] with measure = true")
    lines.append("Nothing was spent, and no private data were opened.")
    return lines
