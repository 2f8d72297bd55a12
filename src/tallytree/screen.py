"""What a person sees in the terminal: a release's summary, a verification, accounts, mechanisms. Public values only."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tallytree.histogram import size_label
from tallytree.mechanisms import MECHANISMS, Mechanism, mechanism_named
from tallytree.privacy.budget import Budget, as_decimal
from tallytree.privacy.ledger import Account
from tallytree.privacy.unit import Neighbours
from tallytree.publish.release import Release
from tallytree.publish.statement import guarantee, totals_in_words
from tallytree.publish.stored import FILES
from tallytree.publish.verification import Verification
from tallytree.tables.group_sizes import GroupSizes

BAR = 26  # characters of the longest bar
MOST_SIZES = 16  # rows of the histogram; the rest is summed up in the last one


def plain_table(*headers: str, right: Iterable[int] = ()) -> Table:
    """A table without frames."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    numeric = set(right)
    for number, header in enumerate(headers):
        table.add_column(header, justify="right" if number in numeric else "left", overflow="fold")
    return table


def facts(rows: dict[str, str]) -> Table:
    """Names on the left, wrapped texts on the right."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def summary(release: Release, directory: Path, release_id: str) -> RenderableType:
    """A release at a glance: levels, budget, promises, files."""
    measurements, hierarchy = release.measurements, release.hierarchy
    noise = {part.level: part for part in measurements.measured}
    levels = plain_table("level", "regions", "budget", "noise per number", right=(1, 2, 3))
    currency = "ε" if measurements.budget.currency == "epsilon" else "ρ"
    for level, name in enumerate(hierarchy.levels):
        part = noise[level]
        regions = int(hierarchy.level_starts[level + 1] - hierarchy.level_starts[level])
        charge = f"{currency} = {as_decimal(part.share * measurements.budget.amount, 3)}"
        levels.add_row(name, f"{regions:,}", charge, f"± {part.variance**0.5:,.1f}")
    mechanism = mechanism_named(release.mechanism)
    known = "public" if measurements.neighbours.public_totals else "an estimate"
    return Group(
        Text(f"\n{release.title}", style="bold green"),
        Text(f"{release.total:,} groups in {hierarchy.names[0]} ({known}), by size:\n"),
        Padding(histogram(release), (0, 0, 1, 2)),
        Padding(levels, (0, 0, 1, 2)),
        facts(
            {
                "privacy": f"{guarantee(measurements.budget)}. {measurements.neighbours.describe()}",
                "ledger": "charged" if measurements.ledgered else "none was used, and the privacy statement says so",
                "promised": "whole numbers, none negative; regions add up to the region above them, for every size; "
                f"{totals_in_words(measurements, mechanism)}",
                "made by": f"{mechanism.name} ({mechanism.symbol} of the paper)",
                "files": f"{directory}{os.sep} ({', '.join(FILES)})",
                "release id": release_id,
                "check it": f"tallytree verify {directory} --id {release_id[:16]}",
            }
        ),
    )


def readiness(group_sizes: GroupSizes, neighbours: Neighbours, budget: Budget, mechanism: Mechanism) -> RenderableType:
    """What a valid spec would release; public facts only."""
    hierarchy = group_sizes.hierarchy
    counts = np.diff(hierarchy.level_starts)
    return facts(
        {
            "regions": " → ".join(f"{name} {count:,}" for name, count in zip(hierarchy.levels, counts, strict=True)),
            "sizes": f"{group_sizes.first_size} to {size_label(group_sizes.max_size, group_sizes.max_size)}",
            "budget": str(budget),
            "protects": neighbours.describe(),
            "mechanism": mechanism.name,
        }
    )


def histogram(release: Release) -> Table:
    """The root's counts as bars."""
    counts, sizes = release.counts[0], list(release.sizes)
    labels = [size_label(size, sizes[-1]) for size in sizes]
    if len(sizes) > MOST_SIZES:
        counts = np.append(counts[: MOST_SIZES - 1], counts[MOST_SIZES - 1 :].sum())
        labels = [*labels[: MOST_SIZES - 1], f"{sizes[MOST_SIZES - 1]} or more"]
    longest = max(1, int(counts.max()))
    table = plain_table("size", "groups", "", right=(1,))
    for label, count in zip(labels, counts, strict=True):
        eighths = round(8 * BAR * int(count) / longest)
        bar = "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
        table.add_row(label, f"{int(count):,}", Text(bar, style="cyan"))
    return table


def outcome(verification: Verification) -> RenderableType:
    """Every promise with a tick or what was found against it."""
    lines: list[RenderableType] = []
    for check in verification.checks:
        sign = Text("✗ ", style="bold red") if check.faults else Text("✓ ", style="bold green")
        lines.append(sign + Text(check.promise))
        lines.extend(Padding(Text(fault, style="red"), (0, 0, 0, 4)) for fault in check.faults)
    verdict = (
        Text("\nThe release keeps all its promises.", style="bold green")
        if verification.ok
        else Text(f"\n{len(verification.faults)} faults were found: do not use this release.", style="bold red")
    )
    return Group(*lines, verdict, Text(f"release id {verification.release_id}", style="dim"))


def accounts(listed: Iterable[Account]) -> RenderableType:
    """What each data set may spend and has spent."""
    parts: list[RenderableType] = []
    for account in listed:
        sign = "ε" if account.currency == "epsilon" else "ρ"
        line = (
            f"{sign}: {as_decimal(account.spent)} spent of {as_decimal(account.total)}, {as_decimal(account.left)} left"
        )
        parts.append(Text(account.name, style="bold") + Text(f"  {line}", style="default"))
        parts.append(Padding(Text(account.neighbours.describe(), style="dim"), (0, 0, 0, 2)))
        if account.spendings:
            table = plain_table("", "cost", "reserved", "release id", right=(0,))
            for spending in account.spendings:
                release_id = (spending.release_id or "none recorded")[:16]
                table.add_row(
                    str(spending.number), f"{sign} = {as_decimal(spending.cost)}", spending.reserved, release_id
                )
            parts.append(Padding(table, (0, 0, 1, 2)))
    return Group(*parts) if parts else Text("The ledger has no data sets yet.")


def mechanism_list() -> RenderableType:
    """The registry, one paragraph each."""
    parts: list[RenderableType] = []
    for mechanism in MECHANISMS.values():
        parts.append(Text(f"{mechanism.name}  ", style="bold") + Text(mechanism.symbol, style="dim"))
        rows = {
            "use for": mechanism.use,
            "measures": f"{mechanism.view}, on every level",
            "keeps": mechanism.keeps,
            "cost": mechanism.cost,
            "paper": mechanism.paper,
        }
        if mechanism.needs_public_totals:
            rows["needs"] = "the public number of groups in every region"
        if mechanism.most_cells is not None:
            rows["limit"] = f"{mechanism.most_cells:,} cells (regions × sizes)"
        if mechanism.refused:
            rows["refused"] = f"never released: {mechanism.refused}"
        parts.append(Padding(facts(rows), (0, 0, 1, 2)))
    return Group(*parts)


def console(*, quiet: bool = False) -> Console:
    """Where results go; nothing appears with `quiet`."""
    return Console(quiet=quiet, highlight=False)
