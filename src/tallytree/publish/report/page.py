"""`Page`: one HTML file that loads nothing, and how templates become one.

Text is escaped by Jinja, and what cannot be seen in it is written out (`names.visible`). The page's policy lets the
browser run the page's one script and one style sheet, told by their digests, and load nothing from anywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from tallytree.core.arguments import PATH, expecting
from tallytree.core.disk import sync
from tallytree.core.errors import ReleaseError
from tallytree.core.names import visible
from tallytree.publish.folder import PAGE_MARK
from tallytree.version import VERSION

TEMPLATES = Path(__file__).parent / "templates"
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
MOST_CELLS = 10_000_000  # of a release whose page shows all levels: all are looked at, in memory


@dataclass(frozen=True)
class Page:
    """An HTML page that needs no other file."""

    html: str

    @expecting(path=PATH)
    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page, whole or not at all, over what has this name. A ReleaseError says why it could not be."""
        target = Path(path)
        unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}.new")
        try:
            try:
                unfinished.write_bytes(self.encoded())
                sync(unfinished)
                os.replace(unfinished, target)
            except BaseException:
                with contextlib.suppress(OSError):
                    unfinished.unlink()
                raise
        except OSError as error:
            raise ReleaseError(f"the page {target} cannot be written: {error.strerror}") from None
        return target

    def encoded(self) -> bytes:
        """The bytes of the file."""
        return self.html.encode("utf-8", "backslashreplace")

    def __repr__(self) -> str:
        return f"Page({len(self.encoded()):,} bytes: save(…) writes it)"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html)}" width="100%" height="600" title="report"></iframe>'


def rendered(template: str, values: Mapping[str, Any], *, data: Any = None) -> Page:
    """A page from a template; `data` is what its script works on, in plain values."""
    style, script = (_read(name) for name in ("page.css", "page.js"))
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_digest(style)}'",
            f"script-src '{_digest(script)}'" if data is not None else "script-src 'none'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    from markupsafe import Markup

    body = (
        _environment()
        .get_template(template)
        .render(
            **values,
            policy=policy,
            style=Markup(style),
            script=Markup(script),
            data=None if data is None else Markup(embedded(data)),
            version=VERSION,
        )
    )
    return Page(f"{PAGE_MARK.decode()}\n{body}\n")


def embedded(value: Any) -> str:
    """JSON that can stand within a page's script: nothing in it ends the script or begins markup.

    >>> embedded({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character, escaped in UNSAFE.items():
        text = text.replace(character, escaped)
    return text


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
    made.filters["number"] = lambda value: f"{value:,}"
    return made


@cache
def _read(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode()}"
