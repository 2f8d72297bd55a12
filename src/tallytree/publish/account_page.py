"""HTML display of a ledger's account in notebooks. The border package itself has no display code."""

from __future__ import annotations

from tallytree.core.display import inline, page, paragraph, stacked_bar, table
from tallytree.privacy.ledger import Account, amount
from tallytree.privacy.relations import describe_relation


def show_account(account: Account) -> str:
    """Return the account as HTML: totals, what it protects, and its reservations, the newest first."""
    currency = account.currency
    facts = {
        "may spend": amount(account.total, currency, up=False),
        "has spent": amount(account.spent, currency),
        "left": amount(account.left, currency, up=False),
        **{
            f"with {' and '.join(link.names)}": f"{link.left_in_words} left of the joint total"
            for link in account.links
        },
        "protects": describe_relation(account.neighbours),
    }
    rows = [
        (str(each.number), amount(each.cost, currency), each.reserved, (each.release_id or "none recorded")[:16])
        for each in reversed(account.spendings)
    ]
    headers = ("", "cost", "reserved", "release id")
    listed = table(headers, rows, right=(0,), rest="spendings has all of them")
    parts = {f"reservation {each.number}": float(each.cost) for each in account.spendings}
    chart = inline(lambda: stacked_bar(parts | {"left": float(account.left)}, rest="left"))
    return page(account.name, facts, listed, chart, paragraph("Confidential: for the data holder."))


Account._repr_html_ = show_account  # type: ignore[attr-defined]
