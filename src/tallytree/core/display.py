"""Display code: values in a notebook, as a little HTML in which names are text and never markup, and charts.

Charts need the extra `plots`. Altair is imported only when it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tallytree.core.errors import SpecError
from tallytree.core.names import visible

MOST_ROWS = 12  # the limit for a table in a notebook
# Okabe and Ito's colours, which people with any colour vision can distinguish, and two more.
COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#22303c", "#8a6d3b", "#7a8896"]
MOST_PARTS = 60  # the limit for one bar
STAND_IN = "\ue03c"  # replaces "<" until a page is written: a name with </script> would end its script
ENDINGS = (".png", ".svg", ".html")
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"]
MOST_DECADES = 3.5  # an axis of more decades has marks at powers of ten only, not at 1, 2 and 5 times these
PANEL, IN_A_ROW = 250, 3


# -------------------------------------------------------------------- notebooks


def page(title: str, facts: Mapping[str, str], *parts: str) -> str:
    """Return a heading, facts by name, and parts that are already HTML."""
    listed = "".join(f"<tr>{_cell(name, 'th')}{_cell(text)}</tr>" for name, text in facts.items() if text)
    return (
        f'<div style="max-width: 60em"><strong>{_text(title)}</strong>'
        f'<table style="margin: 0.4em 0">{listed}</table>{"".join(parts)}</div>'
    )


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = (), rest: str = "") -> str:
    """Return rows of text as a table; the columns in `right` are numbers. Beyond `MOST_ROWS`, `rest` says where to find
    the others.
    """
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
    """Return a sentence below the rest."""
    return f'<p style="margin: 0.4em 0">{_text(text)}</p>' if text else ""


def _text(text: str) -> str:
    return escape(visible(text))


def _cell(text: str, kind: str = "td", *, right: bool = False) -> str:
    return f'<{kind} style="text-align: {"right" if right else "left"}; vertical-align: top">{_text(text)}</{kind}>'


# -------------------------------------------------------------------- charts


def available() -> bool:
    """Return whether the extra `plots` is installed."""
    return find_spec("altair") is not None and find_spec("vl_convert") is not None


def altair() -> Any:
    """Return the module Altair, or raise an error that says how to install it."""
    if not available():
        raise SpecError('charts need Altair: install it with pip install "tallytree[plots]"')
    import altair

    return altair


def check(path: str | Path) -> Path:
    """Return the path if a chart can be written there; called before anything is computed for it."""
    target = Path(path)
    if target.suffix not in ENDINGS:
        raise SpecError(f"a chart is saved as .png, .svg or .html, not as {target.name}")
    if not target.absolute().parent.is_dir():
        raise SpecError(f"there is no folder {target.absolute().parent} to save the chart in")
    altair()
    return target


def save(chart: Any, path: str | Path) -> Path:
    """Write a chart as .png, .svg or a self-contained .html, by the name's ending."""
    target = check(path)
    import vl_convert

    values = _seen(chart.to_dict())
    if target.suffix == ".png":
        target.write_bytes(vl_convert.vegalite_to_png(values, scale=1.5))
    elif target.suffix == ".svg":
        target.write_text(vl_convert.vegalite_to_svg(values), encoding="utf-8")
    else:
        page = vl_convert.vegalite_to_html(_seen(values, STAND_IN), bundle=True)
        target.write_text(page.replace(STAND_IN, "\\u003c"), encoding="utf-8")
    return target


def inline(draw: Callable[[], Any]) -> str:
    """Return a chart as SVG within HTML, which notebooks display without a network; empty without the extra `plots`."""
    if not available():
        return ""
    import vl_convert

    return f"<div>{vl_convert.vegalite_to_svg(_seen(draw().to_dict()))}</div>"


def _seen(value: Any, less_than: str = "<") -> Any:
    """Return a chart's values with visible text only: a control character makes the drawing crash."""
    if isinstance(value, dict):
        return {name: _seen(inner, less_than) for name, inner in value.items()}
    if isinstance(value, list):
        return [_seen(inner, less_than) for inner in value]
    return visible(value).replace("<", less_than) if isinstance(value, str) else value


def stacked_bar(parts: Mapping[str, float], *, rest: str) -> Any:
    """Return one bar of parts in their order; `rest` is grey, and the others alternate between two colours.

    If there are more than `MOST_PARTS`, those in the middle become one part.
    """
    alt = altair()
    rows, start = [], 0.0
    found = list(parts.items())
    if (many := found[MOST_PARTS:-1]) and len(many) > 1:
        found[MOST_PARTS:-1] = [(f"{len(many):,} more", sum(size for _, size in many))]
    for place, (name, size) in enumerate(found):
        color = "#d5dbe0" if name == rest else COLORS[place % 2]
        rows.append({"name": name, "from": start, "to": start + size, "color": color})
        start += size
    axis = alt.Axis(grid=False, tickCount=5, format="~g")
    bar = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(height=18, stroke="white", strokeWidth=1)
        .encode(
            x=alt.X("from:Q", title=None, scale=alt.Scale(domain=[0, start], nice=False), axis=axis),
            x2="to:Q",
            color=alt.Color("color:N", scale=None),
            tooltip=[alt.Tooltip("name", type="nominal")],
        )
    )
    return styled(bar.properties(width=400, height=26), subtitle_color="#5b6770", legend_columns=1)


def panel_title(title: str) -> Any:
    """Return the title of one panel, smaller than the page's."""
    return altair().TitleParams(title, fontSize=12, fontWeight="normal", anchor="middle", offset=6)


def page_title(title: str, subtitle: str) -> Any:
    """Return the title of a page."""
    return altair().TitleParams(title, subtitle=subtitle, anchor="start", offset=14)


def styled(chart: Any, *, subtitle_color: str, legend_columns: int) -> Any:
    """Return a whole page in the common colours and sizes, with its legend at the bottom."""
    ink = "#22303c"
    legend = {"orient": "bottom", "title": None, "labelFontSize": 12, "labelLimit": 300, "symbolStrokeWidth": 2}
    return (
        chart.configure_view(stroke="#d5dbe0")
        .configure_axis(labelColor=ink, titleColor=ink, gridColor="#eceff1", labelFontSize=11)
        .configure_title(fontSize=15, subtitleFontSize=12, subtitleColor=subtitle_color, color=ink)
        .configure_legend(columns=legend_columns, **legend)
    )


# -------------------------------------------------------------------- panels of lines


def line_panels(
    parts: Mapping[str, list[dict[str, Any]]],
    x: Any,
    field: str,
    *,
    title: str,
    places: Mapping[str, int],
    facts: tuple[str, ...],
) -> Any:
    """Return a panel for each part of the rows, three side by side: a line with points for each mechanism.

    Rows with the ends `low` and `high` have error bars. `facts` are the names in a point's tooltip.
    """
    alt = altair()
    panels = []
    width = PANEL if len(parts) > 1 else 2 * PANEL
    for place, (name, rows) in enumerate(parts.items()):
        named = title if place % IN_A_ROW == 0 else None  # the other panels of a row have the same
        y = log_axis(field, rows, named)
        base = alt.Chart(alt.Data(values=rows)).encode(
            x=x, color=colors(places), tooltip=tooltip(facts, tuple({field, "standard_error"} & set(rows[0])))
        )
        layers = base.mark_line(strokeWidth=1.6).encode(y=y)
        if "low" in rows[0]:
            layers += base.mark_rule(strokeWidth=1.5).encode(y=log_axis("low", rows, named), y2="high:Q")
        layers += base.mark_point(filled=True, size=50, opacity=1).encode(y=y, shape=shapes(places))
        panels.append(layers.properties(title=panel_title(name), width=width, height=PANEL * 0.8))
    return side_by_side(panels)


def side_by_side(panels: list[Any], **more: Any) -> Any:
    """Return panels, three in a row."""
    return altair().concat(*panels, columns=IN_A_ROW, spacing=62, align="all", bounds="flush", **more)


def log_axis(field: str, rows: list[dict[str, Any]], title: str | None, *, horizontal: bool = False) -> Any:
    """Return a logarithmic axis for a field of the rows, or for their ends `low` and `high`; it also shows zeros."""
    alt = altair()
    low = min(row.get("low", row[field]) for row in rows)
    high = max(row.get("high", row[field]) for row in rows)
    scale = alt.Scale(type="log" if low > 0 else "symlog", nice=False, padding=36 if horizontal else 16)
    marks = round_numbers(low / 1.5, high * 1.5) if low > 0 else [0.0, *round_numbers(1, high)]
    axis = alt.Axis(values=marks, format="~g" if 0 < low < 1 else "~s", grid=True)
    return (alt.X if horizontal else alt.Y)(f"{field}:Q", title=title, scale=scale, axis=axis)


def budget_axis(field: str, title: str, budgets: list[float]) -> Any:
    """Return a logarithmic axis with a mark for each budget."""
    alt = altair()
    scale = alt.Scale(type="log", nice=False, padding=14)
    return alt.X(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(values=budgets, format="~g", grid=False))


def round_numbers(low: float, high: float) -> list[float]:
    """Return 1, 2, 5, 10 … between two positive numbers, or only powers of ten if there are many; possibly []."""
    if high < low:
        return []
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if math.log10(high / low) <= MOST_DECADES else (1,)
    return [mark for ten in tens for digit in digits if low <= (mark := float(f"{digit}e{ten}")) <= high]


def colors(places: Mapping[str, int]) -> Any:
    """Return a colour for each mechanism, by its index among all possible ones: the same in every chart."""
    return _by_place(altair().Color, places, COLORS)


def shapes(places: Mapping[str, int]) -> Any:
    """Return a shape for each mechanism, as `colors` does."""
    return _by_place(altair().Shape, places, SHAPES)


def _by_place(encoding: Any, places: Mapping[str, int], looks: list[str]) -> Any:
    chosen = [looks[place % len(looks)] for place in places.values()]
    return encoding("mechanism:N", scale=altair().Scale(domain=list(places), range=chosen))


def tooltip(names: tuple[str, ...], numbers: tuple[str, ...]) -> list[Any]:
    """Return a point's tooltip: names, and numbers with four digits."""
    alt = altair()
    return [
        *(alt.Tooltip(name, type="nominal") for name in names),
        *(alt.Tooltip(f"{name}:Q", format=",.4~g") for name in numbers),
    ]
