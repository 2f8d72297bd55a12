"""How values show themselves: one short line at a prompt, and a little HTML in a notebook.

Names and titles come from somebody's files. Here they become text: in a line what cannot be printed is escaped as
Python does it, in HTML nothing is markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from html import escape
from typing import Any

from tallytree.core.names import visible

LONGEST = 60  # characters of a text within a line
MOST_ITEMS = 3  # of a list within a line
MOST_ROWS = 12  # of a table in a notebook


def shortened(text: str, longest: int = LONGEST) -> str:
    """The beginning of a text that is too long for a line."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def quoted(text: str) -> str:
    """A text in quotes, in its beginning if it is long."""
    return repr(shortened(text))


def briefly(value: Any) -> str:
    """The `repr` of a dataclass without what is in its arrays and long lists: their shapes instead."""
    parts = (f"{field.name}={_in_short(getattr(value, field.name))}" for field in fields(value) if field.repr)
    return f"{type(value).__name__}({', '.join(parts)})"


def _in_short(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Fraction):
        return shortened(str(value))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"[{' × '.join(f'{length:,}' for length in value.shape) or 'one'} {value.dtype}]"
    if hasattr(value, "num_rows"):
        return f"[{value.num_rows:,} rows]"
    if isinstance(value, Mapping):
        return f"{{{len(value):,} …}}" if value else "{}"
    if isinstance(value, tuple | list | frozenset | set):
        if len(value) > MOST_ITEMS:
            return f"({len(value):,} …)"
        return f"({', '.join(_in_short(item) for item in value)})"
    if is_dataclass(value) and len(repr(value)) > LONGEST:
        return f"{type(value).__name__}(…)"
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return shortened(repr(value))


# -------------------------------------------------------------------- in a notebook


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
