"""What a person sees in the terminal: a release's summary, a verification, accounts, mechanisms. Public values only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tallytree.histogram import size_label
from tallytree.mechanisms import MECHANISMS, Mechanism, mechanism_named
from tallytree.planning.goals import Suggestion, in_words
from tallytree.planning.report import PlanReport, Prediction
from tallytree.privacy.budget import Budget, as_decimal
from tallytree.privacy.ledger import Account
from tallytree.privacy.neighbours import Neighbours
from tallytree.publish.release.answers import Answer
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.release.files import FILES
from tallytree.publish.release.questions import places
from tallytree.publish.release.statement import totals_in_words
from tallytree.publish.release.value import Release
from tallytree.publish.statement import guarantee
from tallytree.publish.verify import Verification
from tallytree.tables.group_sizes import GroupSizes

WIDTH = 80  # characters of a line
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
    levels = plain_table("level", "regions", "budget", "noise per number", right=(1, 2, 3))
    currency = "ε" if measurements.budget.currency == "epsilon" else "ρ"
    for level, name in enumerate(hierarchy.levels):
        parts = [part for part in measurements.measured if part.level == level]
        spent = sum((part.share for part in parts), Fraction(0)) * measurements.budget.amount
        charge = f"{currency} = {as_decimal(spent, 3)}" if parts else "none"
        noise = f"± {parts[-1].variance ** 0.5:,.1f}" if parts else "added up"
        regions = int(hierarchy.level_starts[level + 1] - hierarchy.level_starts[level])
        levels.add_row(name, f"{regions:,}", charge, noise)
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
                "error bars": error_bars(release),
                "made by": f"{mechanism.name} ({mechanism.symbol} of the paper)",
                "files": f"{directory}{os.sep} ({', '.join(FILES)})",
                "release id": release_id,
                "check it": f"tallytree verify {directory} --id {release_id[:16]}",
                "ask it": f'tallytree query {directory} --level {hierarchy.levels[-1]} --size ">=3"',
            }
        ),
    )


def error_bars(release: Release) -> str:
    """Which intervals the counts of a release have, in one sentence."""
    bars = release.error_bars
    if bars.which == "none":
        return "none were asked for; tallytree query computes those of any sum"
    kinds = {"guaranteed": bars.guaranteed, "typical": bars.typical}
    given = " and ".join(kind for kind, found in kinds.items() if found is not None)
    text = f"{given} intervals at {in_percent(bars.confidence)} for every count" if given else "none are possible"
    return f"{text}. {bars.no_guaranteed or bars.no_typical}".rstrip(" .") + "."


def answer(found: Answer) -> RenderableType:
    """One answer: the released value, the unbiased one and both intervals, with what they are."""
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(style="bold")
    table.add_column(justify="right", style="cyan")
    table.add_column(style="dim", overflow="fold")
    percent = in_percent(found.confidence)
    table.add_row("released", found.shown(found.released), "from the published counts")
    if found.unbiased is not None:
        sums = found.kind in ("sum", "difference")
        source = "straight from the measurements" if sums else "of two unbiased estimates"
        table.add_row("unbiased" if sums else "measured", found.shown(found.unbiased), source)
    kinds = {
        "guaranteed": (found.guaranteed, f"at least {percent}, whatever the truth is"),
        "typical": (found.typical, f"about {percent}, for data like the released"),
    }
    for kind, (ends, text) in kinds.items():
        if ends is not None:
            told = "unbounded" if np.isinf(ends).any() else "known exactly" if ends[0] == ends[1] else text
            table.add_row(kind, found.between(ends), told)
    notes = [Text(f"· {note}") for note in found.notes]
    title = Text(f"{found.question[0].upper()}{found.question[1:]}", style="bold green")
    return Group(title, Padding(table, (1, 0, 1 if notes else 0, 2)), *notes)


def answer_table(release: Release, found: Sequence[Answer], level: str) -> RenderableType:
    """The same question for every region of a level, a row each."""
    linear = found[0].kind in ("sum", "difference")
    headers = [level, "released", "unbiased" if linear else "measured", "guaranteed"]
    typical = any(one.typical is not None for one in found)
    table = plain_table(*headers, *(["typical"] if typical else []), right=range(1, 5))
    tree = release.hierarchy
    for one in found:
        region = tree.index[one.regions[0]]
        unbiased = "none" if one.unbiased is None else one.shown(one.unbiased)
        row = [tree.names[region], one.shown(one.released), unbiased, one.between(one.guaranteed)]
        table.add_row(*row, *([one.between(one.typical)] if typical else []))
    asked = found[0].question.replace(f" in {places([tree.index[found[0].regions[0]]], tree)}", "", 1)
    notes = list(dict.fromkeys(note for one in found for note in one.notes if not note.startswith("The public number")))
    return Group(
        Text(f"{asked[0].upper()}{asked[1:]}, by {level}", style="bold green"),
        Padding(table, (1, 0, 1, 2)),
        *(Text(f"· {note}") for note in notes),
        Text(f"Intervals are at {in_percent(found[0].confidence)}, each row by itself.", style="dim"),
    )


def bands(release: Release, rows: Any, confidence: float | None) -> RenderableType:
    """Intervals for all sizes of a region together."""
    tree, last = release.hierarchy, release.sizes[-1]
    level = in_percent(release.error_bars.confidence if confidence is None else confidence)
    parts: list[RenderableType] = []
    listed = rows.to_pylist()
    for region in dict.fromkeys(row["region"] for row in listed):
        table = plain_table("size", "groups", "guaranteed", right=(1, 2))
        for row in listed:
            if row["region"] == region:
                ends = f"{row['lower']:,} … {row['upper']:,}"
                table.add_row(size_label(row["size"], last), f"{row['count']:,}", ends)
        parts += [
            Text(f"Groups in {places([tree.index[region]], tree)}", style="bold green"),
            Padding(table, (1, 0, 1, 2)),
        ]
    parts.append(
        Text(f"With at least {level} the intervals of all sizes of a region hold together, whatever the truth is.")
    )
    return Group(*parts)


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


def plan_table(report: PlanReport) -> RenderableType:
    """What budgets buy: for every split a block of mechanisms by levels, the best of each level marked."""
    parts: list[RenderableType] = []
    for budget in report.budgets:
        parts.append(Text(f"\nWhat {budget} buys", style="bold green") + Text(f", expecting {report.prior}"))
        parts.append(Text("Errors are means per region. moved: earth mover's distance, the entities", style="dim"))
        parts.append(Text("to add or remove to mend it. L1: sum over sizes. *: least moved of a split.\n", style="dim"))
        for split in report.splits:
            parts.append(_split_block(report, report.of(budget=budget, split=split), split))
    for note in (*_simulation_errors(report), *report.notes):
        parts.append(Text(f"· {note}"))
    if report.skipped:
        parts.append(Text(f"· not shown: {', '.join(report.skipped)} (--json says why)"))
    parts.append(Text("Nothing was spent, and no private data were opened."))
    return Group(*parts)


def _split_block(report: PlanReport, rows: tuple[Prediction, ...], split: str) -> RenderableType:
    """One split: a line for each mechanism, then the widths of guaranteed intervals for what they measure."""
    levels = report.hierarchy.levels
    by_name: dict[str, list[Prediction]] = {}
    for row in rows:
        by_name.setdefault(row.mechanism, []).append(row)
    most = max(by_name.values(), key=lambda found: sum(share > 0 for share in found[0].shares))[0].shares
    shares = ", ".join(f"{level} {as_percent(share)}" for level, share in zip(levels, most, strict=True))
    lines = [Text(split, style="bold") + Text(f"  {shares}", style="dim")]
    widths = [max(14, len(level) + 1) for level in levels]
    first = max(21, *(len(name) + 1 for name in by_name))
    for some in _chunks(widths, WIDTH - first):
        head, below = Text(" " * first), Text(" " * first)
        for at in some:
            head.append(levels[at].rjust(widths[at]), style="bold")
            below.append("moved".rjust(widths[at] - 7) + "L1".rjust(7), style="dim")
        lines += [head, below]
        for name, found in by_name.items():
            line = Text(name.ljust(first))
            for at in some:
                least = min(rows_of[at].emd for rows_of in by_name.values())
                best = found[at].emd == least
                cell = f"{short(found[at].emd)}{'*' if best else ' '}".rjust(widths[at] - 6)
                line.append(cell, style="bold green" if best else "")
                line.append(short(found[at].l1).rjust(6))
            lines.append(line)
        lines += _interval_lines(report, by_name, some, widths, first)
    return Group(*lines, Text(""))


def _interval_lines(
    report: PlanReport, by_name: dict[str, list[Prediction]], some: list[int], widths: list[int], first: int
) -> list[Text]:
    """Half-widths, one line for all mechanisms that share them: they follow from what is measured alone."""
    named: dict[tuple[float | None, ...], list[str]] = {}
    for name, found in by_name.items():
        named.setdefault(tuple(row.half_width for row in found), []).append(name)
    lines = []
    for half_widths, names in named.items():
        if half_widths[0] is None:
            continue
        view = mechanism_named(names[0]).view
        whose = f"by {view}" if len(names) > 1 else names[0]
        line = Text(f"± {100 * report.confidence:g} %, {whose}".ljust(first), style="cyan")
        for at in some:
            line.append(f"± {short(half_widths[at] or 0.0)}".rjust(widths[at] - 7) + " " * 7)
        lines.append(line)
    return lines


def _simulation_errors(report: PlanReport) -> list[str]:
    """How well the errors themselves are known, level by level."""
    parts = []
    for level in report.hierarchy.levels:
        rows = [row for row in report.predictions if row.level == level and row.emd > 0]
        if rows:
            middle = float(np.median([row.emd_standard_error / row.emd for row in rows]))
            parts.append(f"{level} ± {100 * middle:.2g} %")
    return [f"{report.replicates} simulations; standard errors of the errors: {', '.join(parts)}"] if parts else []


def suggestion(found: Suggestion) -> RenderableType:
    """Shares for a goal, what they give, and the line for the spec."""
    table = plain_table("level", "share", "± per count", right=(1, 2))
    for (level, share), half_width in zip(found.by_level.items(), found.half_widths, strict=True):
        table.add_row(level, as_percent(share), f"{half_width:,.1f}")
    sentences = [Text(line, style="bold green" if found.enough else "bold yellow") for line in in_words(found)]
    confidence = f"{100 * found.goals[0].confidence:g} %"
    return Group(
        *sentences,
        Padding(table, (1, 0, 1, 2)),
        Text(
            f"± is the half-width of the widest guaranteed interval of a level at {confidence}, with {found.mechanism}."
        ),
        Text("In the spec's [release]:"),
        Padding(Text(found.toml, style="cyan"), (0, 0, 0, 2)),
        Text("Nothing was spent, and no private data were opened."),
    )


def _chunks(widths: list[int], room: int) -> list[list[int]]:
    """Columns in groups that fit into a line."""
    groups: list[list[int]] = [[]]
    for at, width in enumerate(widths):
        if groups[-1] and sum(widths[one] for one in groups[-1]) + width > room:
            groups.append([])
        groups[-1].append(at)
    return groups


def as_percent(share: Fraction) -> str:
    """A share for people.

    >>> as_percent(Fraction(1, 7))
    '14.3 %'
    """
    return f"{float(100 * share):.3g} %"


def short(value: float) -> str:
    """A number in at most six characters.

    >>> short(5.53), short(2723.2), short(15_300), short(2_040_000)
    ('5.5', '2,723', '15.3k', '2.0M')
    """
    if value < 9.95:
        return f"{value:.1f}"
    if value < 9_999.5:
        return f"{value:,.0f}"
    return f"{value / 1000:.1f}k" if value < 999_500 else f"{value / 1_000_000:.1f}M"


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
            "measures": mechanism.measures,
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
