"""How values show themselves in a notebook: a little HTML, in which names and titles are text and never markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from tallytree.core.names import quoted as quoted
from tallytree.core.names import shortened as shortened
from tallytree.core.names import visible

MOST_ROWS = 12  # of a table in a notebook


def page(title: str, facts: Mapping[str, str], *parts: str) -> str:
    """A heading, facts by name, and parts that are HTML already."""
    listed = "".join(f"<tr>{_cell(name, 'th')}{_cell(text)}</tr>" for name, text in facts.items() if text)
    return (
        f'<div style="max-width: 60em"><strong>{_text(title)}</strong>'
        f'<table style="margin: 0.4em 0">{listed}</table>{"".join(parts)}</div>'
    )


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = (), rest: str = "") -> str:
    """Rows of text; the columns in `right` hold numbers. Beyond `MOST_ROWS`, `rest` says where to find the others."""
    found, numeric = list(rows), set(right)
    told = "".join(_cell(header, "th", right=place in numeric) for place, header in enumerate(headers))
    lines = [
        "".join(_cell(text, right=place in numeric) for place, text in enumerate(row)) for row in found[:MOST_ROWS]
    ]
    more = len(found) - MOST_ROWS
    end = paragraph(f"… and {more:,} more: {rest}") if more > 0 else ""
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<table style="margin: 0.4em 0"><thead><tr>{told}</tr></thead><tbody>{body}</tbody></table>{end}'


def paragraph(text: str) -> str:
    """A sentence below the rest."""
    return f'<p style="margin: 0.4em 0">{_text(text)}</p>' if text else ""


def _text(text: str) -> str:
    return escape(visible(text))


def _cell(text: str, kind: str = "td", *, right: bool = False) -> str:
    return f'<{kind} style="text-align: {"right" if right else "left"}; vertical-align: top">{_text(text)}</{kind}>'
