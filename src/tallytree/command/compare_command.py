"""`tallytree compare`: what changed between two releases, by region."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding

from tallytree.command.command_options import CompareOptions
from tallytree.command.progress_bar import show_progress
from tallytree.command.query import read_values
from tallytree.command.screen import plain_table, show, show_json, words
from tallytree.core.errors import SpecError
from tallytree.core.progress import Stage
from tallytree.estimate.intervals.changes import Rule
from tallytree.privacy.ledger import Ledger, amount
from tallytree.publish.folder import refuse_existing
from tallytree.publish.release.comparability import QUESTIONS
from tallytree.publish.release.comparison import Comparison, compare_releases, open_release
from tallytree.publish.release.queries import Query

MOST_ROWS = 12  # flagged regions on the screen


def run_compare(options: CompareOptions) -> None:
    """Compare two releases; write and show what changed."""
    if options.out is not None:
        refuse_existing(options.out)
    chosen = options.by if options.by and "=" not in options.by[0] else None
    if chosen is not None and len(chosen) > 1:
        raise SpecError("--by takes either one category, or values such as tenure=rented")
    by = chosen[0] if chosen else read_values(options.by, "--by")
    questions = [Query("sum", sizes=size) for size in options.size] if options.size else QUESTIONS
    rule = Rule(options.family_wise, _part(options.more_than))
    level, concordance = options.level, options.concordance
    with show_progress(options.quiet) as progress:
        progress(Stage("reading the releases"))
        old, new = (open_release(one, level if concordance is None else None) for one in (options.old, options.new))
        found = compare_releases(
            old, new, questions, level=level, by=by, rule=rule, concordance=concordance, progress=progress
        )
    if options.ledger is not None:
        found = replace(found, protection=f"{found.protection} {_joint_total(found, options.ledger)}")
    page = None if options.report is None else found.report(map=options.map)
    if options.out is not None:
        found.export(options.out, map=options.map)
    if page is not None and options.report is not None:
        page.save(options.report)
    if options.as_json:
        show_json(found.to_json())
    else:
        show(*_texts(found), quiet=options.quiet)


def _part(text: str | None) -> float:
    """Return a percentage as a part.

    >>> _part("5%"), _part("2.5 %"), _part(None)
    (0.05, 0.025, 0.0)
    """
    if text is None:
        return 0.0
    try:
        value = float(text.removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not text.endswith("%") or not 0 <= value < 1:
        raise SpecError(f"--more-than {text!r} is invalid; write a percentage from 0 to 100, such as 5%")
    return value


def _joint_total(found: Comparison, path: Path) -> str:
    """Return the joint total of the two data sets in words."""
    ledger = Ledger(path)
    names = {
        account.name
        for account in ledger.accounts()
        for each in account.spendings
        if each.release_id is not None and each.release_id in (found.old["release_id"], found.new["release_id"])
    }
    for link in ledger.links():
        if names and names <= set(link.names):
            total = amount(link.budget.amount, link.budget.currency, up=False)
            return f"The ledger's joint total for {' and '.join(link.names)} is {total}; {link.left_in_words} is left."
    return "The ledger has no joint total for both; `tallytree ledger link` sets one."


def _texts(found: Comparison) -> list[RenderableType]:
    """Return families, the clearest changes and notes for the screen."""
    table = plain_table("level", "question", "regions", "increased", "decreased", right=(2, 3, 4))
    for one in found.families:
        table.add_row(one.level, one.label, f"{one.regions:,}", f"{one.increased:,}", f"{one.decreased:,}")
    flagged = found.table(flagged=True).to_pylist()
    flagged.sort(key=lambda row: row["p_value"] or 0.0)
    parts: list[RenderableType] = [
        words(f"{found.old['title']} → {found.new['title']}", style="bold green"),
        Padding(table, (1, 0, 1, 2)),
    ]
    if flagged:
        parts.append(Padding(_changes(flagged[:MOST_ROWS]), (0, 0, 1, 2)))
    if len(flagged) > MOST_ROWS:
        parts.append(words(f"… and {len(flagged) - MOST_ROWS:,} more; --json and --out have all of them"))
    promises = [found.error_rate, "A region without a flag may have changed too.", found.protection]
    return [Group(*parts), *(words(f"· {text}") for text in (*promises, *found.warnings))]


def _changes(rows: list[dict[str, Any]]) -> RenderableType:
    table = plain_table("level", "region", "question", "change", "interval", "flag", right=(3, 4))
    for row in rows:
        known = row["selected_lower"] is not None
        low, high = (row["selected_lower"], row["selected_upper"]) if known else (row["lower"], row["upper"])
        ends = f"{low:+,} … {high:+,}"
        table.add_row(row["level"], row["name"], row["question"], f"{row['change']:+,}", ends, row["flag"])
    return table
