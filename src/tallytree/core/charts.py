"""What all charts share: Altair when it is needed, colours, titles, and how to save them.

Needs the extra `plots`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tallytree.core.errors import SpecError
from tallytree.core.names import visible

# Okabe and Ito's colours, which people with any colour vision can distinguish, and two more.
COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#22303c", "#8a6d3b", "#7a8896"]
MOST_PARTS = 60  # of one bar, drawn each
STAND_IN = "\ue03c"  # for "<" until a page is made: its script would end at a name that holds </script>
ENDINGS = (".png", ".svg", ".html")


def available() -> bool:
    """Is the extra `plots` installed?"""
    return find_spec("altair") is not None and find_spec("vl_convert") is not None


def altair() -> Any:
    """The module Altair, or an error that says how to install it."""
    if not available():
        raise SpecError('charts need Altair: install it with pip install "tallytree[plots]"')
    import altair

    return altair


def check(path: str | Path) -> Path:
    """The path, if a chart can be written there; before anything is computed for it."""
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
    """A chart as SVG within HTML, as notebooks show it without a network; nothing without the extra `plots`."""
    if not available():
        return ""
    import vl_convert

    return f"<div>{vl_convert.vegalite_to_svg(_seen(draw().to_dict()))}</div>"


def _seen(value: Any, less_than: str = "<") -> Any:
    """A chart's values with every text as it is to be seen: a control character makes the drawing crash."""
    if isinstance(value, dict):
        return {name: _seen(inner, less_than) for name, inner in value.items()}
    if isinstance(value, list):
        return [_seen(inner, less_than) for inner in value]
    return visible(value).replace("<", less_than) if isinstance(value, str) else value


def stacked_bar(parts: Mapping[str, float], *, rest: str) -> Any:
    """One bar of parts in their order; the one called `rest` is grey, the others are of two colours by turns.

    Of more than `MOST_PARTS` those in the middle are one part.
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
    """The title of one panel, smaller than the page's."""
    return altair().TitleParams(title, fontSize=12, fontWeight="normal", anchor="middle", offset=6)


def page_title(title: str, subtitle: str) -> Any:
    """The title of a page."""
    return altair().TitleParams(title, subtitle=subtitle, anchor="start", offset=14)


def styled(chart: Any, *, subtitle_color: str, legend_columns: int) -> Any:
    """A whole page in the colours and sizes that all have; its legend is at the bottom."""
    ink = "#22303c"
    legend = {"orient": "bottom", "title": None, "labelFontSize": 12, "labelLimit": 300, "symbolStrokeWidth": 2}
    return (
        chart.configure_view(stroke="#d5dbe0")
        .configure_axis(labelColor=ink, titleColor=ink, gridColor="#eceff1", labelFontSize=11)
        .configure_title(fontSize=15, subtitleFontSize=12, subtitleColor=subtitle_color, color=ink)
        .configure_legend(columns=legend_columns, **legend)
    )
