"""`tallytree plan` for a synthesis: which tables its budget affords, with what noise, and what is left to the model."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tallytree.command.options import PlanOptions
from tallytree.command.screen import plain_table, show, show_json, words
from tallytree.command.spec import wanted_budgets
from tallytree.command.synthesis_spec import SynthesisSpec
from tallytree.core.errors import TallytreeError
from tallytree.planning.households import SWEPT, SynthesisPlan, plan_synthesis
from tallytree.privacy.budget import as_decimal
from tallytree.publish.microdata.making import check_public
from tallytree.synthesis.methods import DEFAULT
from tallytree.synthesis.methods.marginals import MarginalsOptions

MOST_ROWS = 40  # of tables on the screen; --json has all


def run_synthesis_plan(asked: PlanOptions) -> None:
    """Show which tables each budget affords. Nothing is spent, and no microdata are opened."""
    for_releases = {
        "--suggest": asked.suggest,
        "--prior": asked.prior,
        "--mechanism": asked.mechanism,
        "--plot": asked.plot,
    }
    if refused := [name for name, value in for_releases.items() if value]:
        raise TallytreeError(
            f"{', '.join(refused)} is for releases: a synthesis is planned with --epsilon and --groups"
        )
    spec = SynthesisSpec.load(asked.spec)
    schema = spec.public_schema()
    name = spec.synthesis.method or DEFAULT
    _, options, workload = check_public(schema, name, spec.options, spec.chosen_workload(schema))
    if not isinstance(options, MarginalsOptions):
        raise TallytreeError(f"{name} chooses single counts as it goes, so there is no table to plan: use {DEFAULT}")
    plans = [
        plan_synthesis(workload, spec.neighbours(), budget, options, households=asked.groups)
        for budget in wanted_budgets(asked.epsilon, spec)
    ]
    if asked.as_json:
        show_json([plan.to_json() for plan in plans])
    else:
        show(*map(plan_table, plans), quiet=asked.quiet)


def plan_table(plan: SynthesisPlan) -> RenderableType:
    """The tables that are measured, those in any case first, and a line on what is left."""
    parts: list[Any] = [Text(f"\nWhat {plan.budget} buys", style="bold green")]
    parts.append(Text("noise: standard deviation on one count. of all: what noise sums to.\n", style="dim"))
    table = plain_table("table", "why", "ρ", "noise", "of all", right=(2, 3, 4), gap=2)
    for one in plan.tables[:MOST_ROWS]:
        part = "?" if one.part is None else f"{one.part:.0%}" if one.part < 10 else ">1000%"
        table.add_row(one.table.describe(), one.why, as_decimal(one.rho, 2), f"{one.noise:,.0f}", part)
    parts.append(table)
    if (more := len(plan.tables) - MOST_ROWS) > 0:
        parts.append(Text(f"… and {more:,} more tables, with about the noise of the last (--json has all)"))
    for note in notes(plan):
        parts.append(words(f"· {note}"))
    return Group(*parts)


def notes(plan: SynthesisPlan) -> list[str]:
    """What the table does not say."""
    lines = [
        "for the roles: measured so that households look like households, whether asked for or not",
        f"rounds: ρ = {as_decimal(plan.for_rounds, 2)} is left to choose further tables where the model is worst",
    ]
    if plan.households is None:
        lines.append("--groups N (about how many households) plans the tables that are worth their noise, too")
    else:
        swept = sum(one.why == SWEPT for one in plan.tables)
        lines.append(f"{swept:,} tables of the workload, or smaller ones within them, are worth their noise at once")
    lines.append(f"{len(plan.left):,} tables of the workload are left to the model, or to the rounds")
    if plan.exact:
        lines.append(f"{len(plan.exact):,} tables are not protected by the unit, and taken exactly")
    lines.append("to have a table measured in any case: [[workload.tables]] with measure = true")
    lines.append("Nothing was spent, and no private data were opened.")
    return lines
