"""Reports: one self-contained HTML file for a release, for synthetic households, or for a plan.

A page is built from public values alone. It opens from disk without a network and loads nothing. Its policy lets the
browser run the page's one script and one style sheet, which it names by their digests. Values go into templates
unformatted: templates format numbers and hold the sentences. Names of regions are data and never markup: Jinja escapes
text where it is written, invisible characters are written out (`names.visible`), and the data embedded for the script
stay JSON.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from html import escape
from math import ceil, floor
from os import PathLike
from pathlib import Path
from typing import Any

from tallytree.core.arguments import PATH, expecting
from tallytree.core.errors import ReleaseError
from tallytree.core.names import visible
from tallytree.publish.about import NOT_STATED
from tallytree.publish.folder import PAGE_MARK, write_new
from tallytree.version import VERSION

TEMPLATES = Path(__file__).parent / "templates"
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
BAR_WIDTH = 1000  # of the drawing of a bar, on any screen
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
NOTHING = "–"  # stands for a number that does not exist


@dataclass(frozen=True)
class Page:
    """A self-contained HTML page."""

    html: str

    @expecting(path=PATH)
    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page in one step and replace an older file. Raises a ReleaseError if that fails."""
        try:
            write_new(Path(path), self.encode(), replace=True)
        except OSError as error:
            raise ReleaseError(f"the page {path} cannot be written: {error.strerror}") from None
        return Path(path)

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        return self.html.encode("utf-8", "backslashreplace")

    def __repr__(self) -> str:
        return f"Page({len(self.encode()):,} bytes: save(…) writes it)"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html)}" width="100%" height="600" title="report"></iframe>'


def render_page(template: str, values: Mapping[str, Any], *, data: Any = None, scripts: Sequence[str] = ()) -> Page:
    """Render a page from a template; `data` are the plain values for its scripts, which run as one."""
    from markupsafe import Markup

    style, script = _read("page.css"), "\n".join(['"use strict";', "(() => {", *map(_read, scripts), "})();"])
    runs = "none" if data is None else _digest(script)
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{runs}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    text = {"style": Markup(style), "script": Markup(script), "data": None if data is None else Markup(embed(data))}
    facts = {"policy": policy, "version": VERSION, "made": format_date(date.today()), **text}
    body = _environment().get_template(template).render({"about": NOT_STATED, **values, **facts})
    return Page(f"{PAGE_MARK.decode()}\n{body}\n")


def embed(value: Any) -> str:
    """Return JSON that is safe within a page's script: nothing in it ends the script or begins markup.

    >>> embed({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character, escaped in UNSAFE.items():
        text = text.replace(character, escaped)
    return text


# -------------------------------------------------------------------- numbers in templates


def format_percent(share: float) -> str:
    """Format a share as a percentage.

    >>> format_percent(0.2551), format_percent(0.0123), format_percent(0.0004), format_percent(0)
    ('25.5 %', '1.2 %', '0.04 %', '0 %')
    """
    value = 100 * share
    if value == 0:
        return "0 %"
    return f"{value:.1f} %" if value >= 0.95 else f"{value:.1g} %"


def format_date(day: date) -> str:
    """Format a date for people.

    >>> format_date(date(2026, 11, 9))
    '9 November 2026'
    """
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def format_about(value: float) -> str:
    """Format a number with three significant digits, or as an integer if it is large.

    >>> format_about(2.345), format_about(23.45), format_about(2345.6)
    ('2.35', '23.5', '2,346')
    """
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def join_words(words: Sequence[str]) -> str:
    """Join words with commas and an "and".

    >>> join_words(["a"]), join_words(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def place_on_bar(value: float, most: float) -> int:
    """Return the position of a value on a bar whose axis goes from 0 to `most`."""
    return 0 if most <= 0 else round(BAR_WIDTH * min(max(value / most, 0.0), 1.0))


def axis_end(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return the end of the axis of a table's bars: the largest number or end of an interval."""
    numbers: list[float] = [1, *(row[name] for row in rows), *(row["ends"][1] for row in rows if row.get("ends"))]
    return max(numbers)


FILTERS = {
    "decimal": lambda value: f"{float(value):g}",
    "number": lambda value, digits=0: NOTHING if value is None else f"{value:,.{digits}f}",
    "percent": format_percent,
    "about": lambda value: NOTHING if value is None else format_about(value),
    "axis_end": axis_end,
    "between": lambda ends, digits=0: NOTHING if ends is None else f"{ends[0]:,.{digits}f} to {ends[1]:,.{digits}f}",
    "join_words": join_words,
    "period": lambda text: format_date(date.fromisoformat(text)) if text.count("-") == 2 else text,
    "place": place_on_bar,
    "signed": lambda value: NOTHING if value is None else f"{value:+,.0f}".replace("-", "−"),
    "percent_up": lambda value: NOTHING if value is None else f"{ceil(100 * value - 1e-9)} %",
    "percent_whole": lambda share: f"{floor(100 * share + 1e-9)} %",
    "plus_minus": lambda text: NOTHING if text in (None, NOTHING) else f"± {text}",
}


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    made.filters.update(FILTERS)
    return made


@cache
def _read(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode()}"
