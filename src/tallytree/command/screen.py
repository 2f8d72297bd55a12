"""Terminal output of releases, syntheses, verifications, accounts and mechanisms.

All of it is public except `for_the_data_holder`, which says so. Other commands use the same building blocks.
"""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tallytree.command.spec import Spec
from tallytree.command.streams import fits
from tallytree.core.names import UNSEEN, visible
from tallytree.domain.categories import ALL
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import size_label
from tallytree.domain.schema import Marginal
from tallytree.estimate.intervals.interval import REACH_SHARE
from tallytree.mechanisms import AUTO, MECHANISMS, aliases_of, mechanism_named
from tallytree.privacy.budget import Budget, as_decimal
from tallytree.privacy.chain import Entry
from tallytree.privacy.ledger import Account, Link
from tallytree.privacy.neighbours import Relation
from tallytree.privacy.relations import columns_in_words, describe_relation
from tallytree.publish.folder import MEASUREMENTS, PACKAGE, PRIVACY
from tallytree.publish.microdata.synthesis import (
    ANSWERS,
    HOUSEHOLDS,
    PERSONS,
    QUESTIONS,
    Row,
    Synthesis,
    accuracy_by_kind,
    describe_workload,
    read_questions,
)
from tallytree.publish.microdata.synthesis_run import CheckedSynthesis
from tallytree.publish.microdata.synthesis_statement import describe_guarantee
from tallytree.publish.release.areas import AREA_FILES
from tallytree.publish.release.descriptions import capped_sizes, truncation
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.release.queries import Scope
from tallytree.publish.release.release_run import CheckedRelease
from tallytree.publish.release.release_statement import public_totals, totals_in_words
from tallytree.publish.release.table_layout import COUNTS, ENTITIES, REGIONS, file_names
from tallytree.publish.release.value import Release
from tallytree.publish.statement import guarantee
from tallytree.publish.untrusted import read_json
from tallytree.publish.verify import Verification
from tallytree.synthesis.table_selection import ASKED, REASONS, MeasurementReasons

LONGEST_BAR = 26  # characters
MOST_SIZES = 16  # rows of the histogram; the last one sums up the rest
MOST_ENTRIES = 10  # of a ledger, the last ones
WORST_TABLES = 5  # shown by name

# -------------------------------------------------------------------- pieces


def share_text(spent: Fraction) -> str:
    """Format a level's part of the budget: exact if that is short, so that parts visibly add up; else rounded up.

    >>> share_text(Fraction(1, 4)), share_text(Fraction(1, 3)), share_text(Fraction(1000, 2999))
    ('0.25', '1/3', '0.334')
    """
    short = as_decimal(spent, 3) == as_decimal(spent, 3, up=False)
    return as_decimal(spent, 3) if short or spent.denominator >= 100 else str(spent)


class Screen(Console):
    """The terminal. Printed text is never read as markup, and never reaches the terminal as a control sequence."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as Rich does, but escape invisible characters; line ends stay."""
        if isinstance(renderable, str):
            renderable = Text(visible(renderable, lines=True))
        elif isinstance(renderable, Text) and visible(renderable.plain, lines=True) != renderable.plain:
            characters = [renderable[place] for place in range(len(renderable))]
            seen = (Text(visible(each.plain, lines=True), style=each.style, spans=each.spans) for each in characters)
            renderable = Text("", justify=renderable.justify, overflow=renderable.overflow).join(seen)
        return super().render(renderable, options)


def show(*parts: RenderableType, quiet: bool = False) -> None:
    """Print results; print texts unchanged, and nothing with `quiet`."""
    console = Screen(quiet=quiet, highlight=False)
    for part in parts:
        console.print(visible(part, lines=True) if isinstance(part, str) else part, markup=False)


def show_commands(commands: dict[str, list[str]], *, quiet: bool = False) -> None:
    """Print commands for pasting, each on one line and quoted for a shell."""
    console = Screen(quiet=quiet, highlight=False)
    for what, words in commands.items():
        console.print(Text(f"\n{what}", style="bold"))
        console.print(Text(f"  {visible(shlex.join(words))}"), soft_wrap=True)


def show_json(content: Any) -> None:
    """Print a value as JSON; control characters are written as JSON escapes."""
    text = json.dumps(content, indent=2, default=str, ensure_ascii=False)
    if not fits(text):
        text = json.dumps(content, indent=2, default=str)
    print(UNSEEN.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text))


def words(text: object, style: str = "") -> Text:
    """Return a line of text; line ends and control characters in names are escaped."""
    return Text(visible(text), style=style)


class PlainTable(Table):
    """A table whose cells are printed without markup and control characters."""

    def add_row(self, *cells: RenderableType | None, **how: Any) -> None:
        """Add a row as Rich does, with texts as `words`."""
        super().add_row(*(words(cell) if isinstance(cell, str) else cell for cell in cells), **how)


def plain_table(*headers: str, right: Iterable[int] = (), gap: int = 3) -> PlainTable:
    """Return a table without frames."""
    table = PlainTable(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    numeric = set(right)
    for number, header in enumerate(headers):
        table.add_column(words(header), justify="right" if number in numeric else "left", overflow="fold")
    return table


def facts(rows: dict[str, str]) -> PlainTable:
    """Return names on the left and wrapped texts on the right."""
    table = PlainTable(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def below(part: RenderableType, *, space: int = 0) -> Padding:
    """Return a part that belongs to the line above it, with empty lines after it."""
    return Padding(part, (0, 0, space, 2))


def _of_ledger(charged: bool) -> str:
    return "charged" if charged else "none was used, and the privacy statement says so"


# -------------------------------------------------------------------- releases


def release_summary(release: Release, directory: Path, release_id: str) -> RenderableType:
    """Return a summary of a release: levels, budget, guarantees, files."""
    measurements, hierarchy = release.measurements, release.hierarchy
    both_ways = "categories add up to all of them; " if hierarchy.by.columns else ""
    mechanism = mechanism_named(release.mechanism)
    known = "an estimate" if public_totals(measurements) is None else "public"
    tables = file_names(hierarchy, len(release.sizes)) if release.is_small else [f"{COUNTS}{os.sep}", ENTITIES + os.sep]
    files = (*tables, REGIONS, MEASUREMENTS, PRIVACY, PACKAGE)
    return Group(
        Text(),
        words(release.title, style="bold green"),
        words(
            f"{release.total:,} {release.about.groups} in {hierarchy.names[0]} ({known}), {release.entities[0]:,} "
            f"{release.about.entities} ({capped_sizes(release.sizes[-1])}), by size:"
        ),
        Text(),
        below(_histogram(release), space=1),
        *(below(_by_value(release, name), space=1) for name in release.rows.categories),
        below(_levels(release), space=1),
        facts(
            {
                "privacy": f"{guarantee(measurements.budget)}. {describe_relation(measurements.neighbours)}",
                **({"truncated": note} if (note := truncation(measurements.neighbours)) else {}),
                "ledger": _of_ledger(measurements.ledgered),
                "promised": (
                    "non-negative integers; for every size, regions add up to the region above them; "
                    f"{both_ways}{totals_in_words(measurements, mechanism)}"
                ),
                "error bars": _error_bars(release),
                "made by": f"{mechanism.name} ({' in '.join(filter(None, (mechanism.symbol, mechanism.paper)))})"
                + (f": {release.fallback.in_words(mechanism)}" if release.fallback else ""),
                **({"areas": _areas(release)} if release.areas else {}),
                "files": f"{directory}{os.sep} ({', '.join((*files, *(AREA_FILES if release.areas else ())))})",
                "release id": release_id,
            }
        ),
    )


def _levels(release: Release) -> Table:
    """Return each level's part of the budget and its noise; with categories also the level over all of them."""
    measurements, tree = release.measurements, release.hierarchy
    table = plain_table("level", "regions", "budget", "noise (st. dev.)", right=(1, 2, 3))
    currency, first = "ε" if measurements.budget.currency == "epsilon" else "ρ", tree.first_level
    for level, name in enumerate(tree.regions.levels):
        rows = tree.regions.level_slice(level)
        here = [part for part in measurements.measured if part.level == level + first]
        if level == 0 and first:
            here += [part for part in measurements.measured if part.level == 0]
        for band, summed in dict.fromkeys((part.sizes, part.summed) for part in here) or [(None, False)]:
            parts = [part for part in here if (part.sizes, part.summed) == (band, summed)]  # bands add up size by size
            spent = sum((part.share for part in parts), Fraction(0)) * measurements.budget.amount
            charge = f"{currency} = {share_text(spent)}" if parts else "none"
            noise = f"± {parts[-1].variance ** 0.5:,.1f}" if parts else "added up"
            words_of = [name, *([] if band is None else [band.in_words()]), *(["over all"] if summed else [])]
            table.add_row(", ".join(words_of), f"{rows.stop - rows.start:,}", charge, noise)
    return table


def _by_value(release: Release, name: str) -> Table:
    """Return the root's groups and entities by the values of a category."""
    tree, rows, at = release.hierarchy, release.rows, release.rows.categories.index(name)
    table = plain_table(visible(name), release.about.groups, release.about.entities, right=(1, 2))
    for values in rows.values:
        if values[at] != ALL and all(value == ALL for place, value in enumerate(values) if place != at):
            counts = release.all_counts[Scope((0,), values, "").table_row(tree)]
            held = int(counts @ np.array(release.sizes))
            table.add_row(visible(values[at]), f"{int(counts.sum()):,}", f"{held:,}")
    return table


def _areas(release: Release) -> str:
    """Return how many areas of each kind have published totals."""
    kinds = Counter(area.kind for area in release.areas)
    return f"{', '.join(f'{number:,} {kind}' for kind, number in kinds.items())}: sums of the counts, with error bars"


def _error_bars(release: Release) -> str:
    """Return which intervals a release's counts have, in one sentence."""
    bars = release.error_bars
    if bars.which == "none":
        return "none; tallytree query computes those of any sum"
    kinds = {"guaranteed": bars.guaranteed, "typical": bars.typical}
    given = " and ".join(kind for kind, found in kinds.items() if found is not None)
    text = f"{given} intervals at {in_percent(bars.confidence)} for every count" if given else "none are possible"
    text = f"{text}. {next(iter(bars.missing.values()), '')}".rstrip(" .")
    levels = bars.reach.get("counts", {}) if given else {}
    if levels:
        by_level = []
        for level, reach in levels.items():
            kind = bars.recommended("counts", level)
            by_level.append(f"{level} {kind}, ± {reach[kind]:,}" if kind else f"{level} none")
        text += (
            f". Recommended, with their reach ({100 * REACH_SHARE:g} % of a level's counts have an interval within the "
            f"count ± reach): {'; '.join(by_level)}"
        )
    return f"{text}."


def _histogram(release: Release) -> Table:
    """Return the root's counts as bars."""
    counts, sizes = release.counts[0], list(release.sizes)
    labels = [size_label(size, sizes[-1]) for size in sizes]
    if len(sizes) > MOST_SIZES:
        counts = np.append(counts[: MOST_SIZES - 1], counts[MOST_SIZES - 1 :].sum())
        labels = [*labels[: MOST_SIZES - 1], f"{sizes[MOST_SIZES - 1]} or more"]
    longest = max(1, int(counts.max()))
    table = plain_table("size", release.about.groups, "", right=(1,))
    for label, count in zip(labels, counts, strict=True):
        eighths = round(8 * LONGEST_BAR * int(count) / longest)
        bar = "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
        table.add_row(label, f"{int(count):,}", Text(bar, style="cyan"))
    return table


def release_readiness(checked: CheckedRelease, spec: Spec) -> tuple[dict[str, Any], RenderableType]:
    """Return what a valid spec would release, for programs and for people; public facts only."""
    data = checked.group_sizes
    content = {
        "regions": regions_of(data.hierarchy.regions),
        "sizes": [data.first_size, data.max_size],
        **_terms(spec, checked.neighbours),
        "mechanism": checked.mechanism.name,
        "areas": len(checked.publication.areas),
    }
    text = {
        "regions": data.hierarchy.in_words(),
        "sizes": f"{data.first_size} to {size_label(data.max_size, data.max_size)}",
        **_terms_in_words(spec, content),
        "mechanism": checked.mechanism.name,
    }
    return content, facts(text)


def _terms(spec: Spec, neighbours: Relation) -> dict[str, Any]:
    """Return what a run of a spec would spend, and whom it would protect."""
    return {
        "budget": spec.budget.to_json(),
        "unit": neighbours.unit.kind,
        "protects": describe_relation(neighbours),
        "ledger": spec.ledger_in_words(),
    }


def _terms_in_words(spec: Spec, terms: dict[str, Any]) -> dict[str, str]:
    return {"budget": str(spec.budget), "promise": guarantee(spec.budget)} | {
        name: terms[name] for name in ("protects", "ledger")
    }


def for_the_data_holder(numbers: dict[str, str]) -> RenderableType:
    """Return exact numbers of the private data, marked as such; empty if there are no such numbers."""
    if not numbers:
        return Group()
    return Group(
        Text("\nFor your eyes only: not private. Exact numbers of your data, not to be published:"), facts(numbers)
    )


# -------------------------------------------------------------------- syntheses


def synthesis_summary(synthesis: Synthesis, directory: Path, saved: str) -> RenderableType:
    """Return a summary of a synthesis: measurements, trustworthy queries, guarantees."""
    asked, table = read_questions(directory), synthesis.table
    known = "public" if synthesis.neighbours.number_is_public else "with noise"
    rows = {
        "asked": _rounds_in_words(synthesis),
        **_unasked(synthesis),
        "privacy": describe_guarantee(synthesis, notes=False),
        "ledger": _of_ledger(synthesis.ledgered),
        "oversize": synthesis.truncation_note or synthesis.truncation,
    }
    if table is not None:
        rows["agrees"] = f"with the released table: as many households for every {', '.join(table.attributes)} and size"
    rows |= {
        **_rules_kept(synthesis, directory),
        "made by": synthesis.method,
        "files": f"{directory}{os.sep} ({HOUSEHOLDS}, {PERSONS}, {QUESTIONS}, {ANSWERS}, {PRIVACY}, …)",
        "id": saved,
    }
    return Group(
        Text(),
        words(synthesis.title, style="bold green"),
        Text(f"{synthesis.number:,} synthetic households for {synthesis.fitted.number:,} real ones ({known}).\n"),
        Text("Reliability of the workload's tables, by kind of measurement:"),
        below(_trust_table(asked), space=1),
        *_worst_tables(asked),
        facts(rows),
        *_quality(read_json(directory / PRIVACY)),
    )


def _quality(statement: dict[str, Any]) -> list[RenderableType]:
    """Return how near the households come to the measured tables, by kind, and which tables are in groups."""
    table = plain_table("How good it is", "tables", "counts", "noise", "expected error", right=(1, 2, 3, 4))
    for row in statement["quality"]:
        errors = (_plus_minus(row[name]) for name in ("noise", "expected_error"))
        table.add_row(row["kind"], f"{row['tables']:,}", f"{row['counts']:,}", *errors)
    lines = [f"measured in groups of values: {words}" for row in statement["quality"] for words in row["in_groups"]]
    if "structure" in statement:
        lines.append(
            f"{statement['structure']['accepted']:.1%} of households kept all rules when they were drawn first"
        )
    return [Text(), below(table), *(Text(f"· {line}") for line in lines)] if statement["quality"] else []


def _trust_table(asked: Sequence[Row]) -> Table:
    """Return how many tables were measured, and the errors of their counts."""
    table = plain_table("", "tables", "counts", "typical error", "at most", right=(1, 2, 3, 4))
    for one in accuracy_by_kind(asked):
        errors = (_plus_minus(one[name]) for name in ("error", "at_most"))
        table.add_row(one["how"], f"{one['tables']:,}", f"{one['cells']:,}", *errors)
    return table


def _worst_tables(asked: Sequence[Row]) -> list[RenderableType]:
    """Return a note on errors, and the measured tables with the largest errors."""
    rows = sorted((row for row in asked if row["error"] is not None), key=lambda row: -row["error"])
    about = (
        "Errors are those of one count, estimated from the noisy measurements (at most: with a chance of 95 %). "
        f"Little is known about tables that were not measured: see {QUESTIONS}."
    )
    if not rows:
        return [Text(f"{about}\n")]
    table = plain_table("", "error", "at most", right=(1, 2))
    for row in rows[:WORST_TABLES]:
        table.add_row(row["table"], _plus_minus(row["error"]), _plus_minus(row["at_most"]))
    return [Text(f"{about} The largest errors:"), below(table, space=1)]


def _rules_kept(synthesis: Synthesis, directory: Path) -> dict[str, str]:
    if synthesis.schema.structure is None:
        return {}
    about = read_json(directory / PRIVACY)["structure"]
    number = len(about["rules"])
    return {"rules": f"{number} kept by every household; {about['accepted']:.1%} of them when they were drawn first"}


def _rounds_in_words(synthesis: Synthesis) -> str:
    """Return the numbers of measurements and selections on the private tables."""
    kinds = [past.request["kind"] for past in synthesis.rounds]
    measured = kinds.count("measure")
    lost = sum(past.result is None for past in synthesis.rounds)
    selected = len(kinds) - measured
    chosen = f"{selected:,} selection{'' if selected == 1 else 's'}"
    text = f"{measured:,} measurement{'' if measured == 1 else 's'} and {chosen} for ρ = {as_decimal(synthesis.spent)}"
    if lost:
        text += f"; {lost} of them were lost when the run was killed but are paid for"
    if synthesis.exact:
        text += f"; {len(synthesis.exact):,} tables that the unit does not protect were published exactly"
    return text


def _unasked(synthesis: Synthesis) -> dict[str, str]:
    """Return how many measured tables the workload does not name, by reason."""
    reasons = MeasurementReasons(synthesis.workload)
    tables = [past.request["table"] for past in synthesis.rounds if past.request["kind"] == "measure"]
    found = Counter(reasons.why(Marginal.from_json(table)) for table in tables)
    counted = [f"{found[reason]:,} × {reason}" for reason in REASONS if found[reason] and reason != ASKED]
    return {"unasked": f"tables that the workload does not name: {'; '.join(counted)}"} if counted else {}


def synthesis_readiness(checked: CheckedSynthesis, spec: Spec) -> tuple[dict[str, Any], RenderableType]:
    """Return what a valid spec would synthesize, for programs and for people; public facts only."""
    workload, table = checked.chosen.workload, checked.table
    content = {
        "tables": len(workload),
        "counts": workload.queries,
        **_terms(spec, checked.neighbours),
        "method": checked.chosen.method.name,
    }
    rows = {
        **describe_workload(workload),
        **_terms_in_words(spec, content),
        "oversize": checked.households.truncation(),
        "method": content["method"],
    }
    if table is not None:
        rows["agrees"] = f"with {table.number:,} released households by {', '.join(table.attributes)} and size"
    if checked.country is not None:
        asked = "; ".join(one.by_region.describe() for one in checked.country.wanted)
        rows["by region"] = asked or (
            "nothing: the budget allows no table, so all regions have the distributions of the root"
        )
    return content, facts(rows)


def _plus_minus(value: float | None) -> str:
    return "–" if value is None else f"± {value:,.1f}" if value < 1000 else f"± {value:,.0f}"


# -------------------------------------------------------------------- verifications, accounts, mechanisms


def outcome(verification: Verification) -> RenderableType:
    """Return every check with a tick or its faults, and the assumptions that the files cannot prove."""
    lines: list[RenderableType] = []
    for check in verification.checks:
        sign = Text("✗ ", style="bold red") if check.faults else Text("✓ ", style="bold green")
        lines.append(sign + words(check.what))
        lines.extend(below(below(words(fault, style="red"))) for fault in check.faults)
    verdict = Text(f"\n{verification.verdict}", style="bold green" if verification.ok else "bold red")
    if verification.assumptions:
        lines.append(Text("\nThe files alone cannot prove:"))
        lines.extend(below(Text(f"· {each.what}", style="dim")) for each in verification.assumptions)
    return Group(*lines, verdict, Text(f"release id {verification.release_id}", style="dim"))


def accounts(listed: Iterable[Account], joint: Iterable[Link] = ()) -> RenderableType:
    """Return what each data set may spend and has spent, and joint totals of linked ones."""
    parts: list[RenderableType] = []
    for account in listed:
        sign = "ε" if account.currency == "epsilon" else "ρ"
        line = f"  {sign}: {_balance(account.spent, account.total, account.left)}"
        parts.append(words(account.name, style="bold") + Text(line, style="default"))
        parts.append(below(Text(f"opened with {_as_given(account.budget)}", style="dim")))
        parts.append(below(Text(describe_relation(account.neighbours), style="dim")))
        parts.append(below(Text(f"columns: {columns_in_words(account.neighbours)}", style="dim")))
        if account.spendings:
            table = plain_table("", "cost", "reserved", "release id", right=(0,))
            for spending in account.spendings:
                release_id = (spending.release_id or "none recorded")[:16]
                table.add_row(
                    str(spending.number), f"{sign} = {as_decimal(spending.cost)}", spending.reserved, release_id
                )
            parts.append(below(table, space=1))
    for link in joint:
        sign = "ε" if link.budget.currency == "epsilon" else "ρ"
        line = f"  together, {sign}: {_balance(link.spent, link.budget.amount, link.left)}"
        parts.append(words(" + ".join(link.names), style="bold") + Text(line, style="default"))
        parts.append(below(Text(f"linked with {_as_given(link.budget)}", style="dim")))
    return Group(*parts) if parts else Text("The ledger has no data sets yet.")


def _as_given(budget: Budget) -> str:
    """Return a total as the user gave it: for ε and δ, with the ρ that follows from them."""
    if budget.epsilon is None or budget.delta is None:
        return str(budget)
    return f"ε = {as_decimal(budget.epsilon)}, δ = {as_decimal(budget.delta)}"


def _balance(spent: Fraction, total: Fraction, left: Fraction) -> str:
    """Return the spent budget, rounded up, and the total and remaining budget, rounded down."""
    return f"{as_decimal(spent)} spent of {as_decimal(total, up=False)}, {as_decimal(left, up=False)} left"


def last_entries(entries: Sequence[Entry]) -> RenderableType:
    """Return the last entries of a ledger for its owner to compare."""
    table = plain_table("entry", "kind", "time", "about", right=(0,))
    for entry in entries[-MOST_ENTRIES:]:
        about = {name: entry.body[name] for name in ("name", "names", "receipt", "round", "cost") if name in entry.body}
        described = ", ".join(f"{name} {value}" for name, value in about.items())
        table.add_row(str(entry.number), entry.kind, str(entry.body.get("time", "")), described)
    return table


def mechanism_list() -> RenderableType:
    """Return the registry, one paragraph per mechanism, after the default."""
    parts: list[RenderableType] = [Text("auto  ", style="bold") + Text("the default", style="dim")]
    parts.append(below(facts({"takes": AUTO}), space=1))
    for mechanism in MECHANISMS.values():
        parts.append(Text(f"{mechanism.name}  ", style="bold") + Text(mechanism.symbol, style="dim"))
        aliases = ", ".join(aliases_of(mechanism))
        rows = {
            **({"aliases": aliases} if aliases else {}),
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
        parts.append(below(facts(rows), space=1))
    return Group(*parts)


def release_content(release: Release, directory: Path, release_id: str, page: Path | None = None) -> dict[str, Any]:
    """Return a release in public values: the output of `release --json` (docs/release.md)."""
    measurements, bars = release.measurements, release.error_bars
    return {
        "release_id": release_id,
        "directory": str(directory),
        "report": None if page is None else str(page),
        "title": release.title,
        "mechanism": release.mechanism,
        "fallback": release.fallback is not None,
        "privacy": guarantee(measurements.budget),
        "budget": measurements.budget.to_json(),
        "unit": measurements.neighbours.unit.kind,
        "ledger": measurements.ledgered,
        "regions": regions_of(release.hierarchy.regions),
        **({"by": {one.name: list(one.values) for one in by.columns}} if (by := release.hierarchy.by).columns else {}),
        "sizes": [release.sizes[0], release.sizes[-1]],
        "groups": release.total,
        "groups_are_public": measurements.neighbours.public_totals,
        "areas": len(release.areas),
        "intervals": bars.which,
        "confidence": bars.confidence,
    }


def regions_of(hierarchy: Hierarchy) -> dict[str, int]:
    """Return how many regions each level has."""
    return dict(zip(hierarchy.levels, np.diff(hierarchy.level_starts).tolist(), strict=True))
