"""How a release shows itself: in a line, in a notebook, and as a chart of one region's counts."""

from __future__ import annotations

from typing import Any

from tallytree.core.display import COLORS, altair, inline, page, panel_title, paragraph, styled, table
from tallytree.core.errors import SpecError
from tallytree.core.names import quoted, shortened, visible
from tallytree.domain.histogram import size_label
from tallytree.estimate.intervals.interval import Kind
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.entities import capped_sizes, cut_off
from tallytree.publish.release.error_bars import ENDS, in_percent
from tallytree.publish.release.scope import Scope
from tallytree.publish.release.statement import public_totals
from tallytree.publish.release.truncation import truncation
from tallytree.publish.statement import guarantee

MOST_BARS = 40  # of a chart; more sizes are put into classes


def line(release: ReleaseContents, release_id: str | None) -> str:
    """Title, levels, sizes, groups and entities, mechanism, budget and id, in one line."""
    saved = "not saved" if release_id is None else f"id {release_id[:16]}"
    facts = _facts(release)
    capped = capped_sizes(release.sizes[-1])
    counted = f"{release.total:,} groups with {release.entities[0]:,} entities ({capped})"
    parts = (
        facts["regions"],
        f"sizes {facts['sizes']}",
        counted,
        facts["mechanism"],
        str(release.measurements.budget),
        saved,
    )
    return f"Release({', '.join([quoted(release.title), *parts])})"


def html(release: ReleaseContents, release_id: str | None) -> str:
    """What a notebook shows: the facts, the counts of the whole, and a chart of them."""
    measurements, top = release.measurements, release.hierarchy.names[0]
    known = "an estimate" if public_totals(measurements) is None else "public"
    facts = {
        **_facts(release),
        "groups": f"{release.total:,} in {top} ({known})",
        "entities": f"{release.entities[0]:,} in {top} (from the sizes). {cut_off(release.sizes[-1])}",
        "privacy": guarantee(measurements.budget),
        "protects": measurements.neighbours.describe(),
        "truncated": truncation(measurements.neighbours),
        "id": release_id or "none yet: save(…) gives it one",
    }
    ends = [(kind, ENDS[kind]) for kind in release.error_bars.of.get("counts", {})]
    percent = in_percent(release.error_bars.confidence)
    headers = ["size", f"groups in {shortened(top)}", *(f"{kind} at {percent}" for kind, _ in ends)]
    rows = [
        [size_label(size, release.sizes[-1]), f"{release.counts[0, cell]:,}"]
        + [_between(release, 0, cell, names) for _, names in ends]
        for cell, size in enumerate(release.sizes)
    ]
    counts = table(headers, rows, right=range(1, len(headers)), rest="table() has all regions and sizes")
    return page(release.title, facts, counts, inline(lambda: chart(release, None)), paragraph(_of_bars(release)))


def chart(release: ReleaseContents, region: str | None) -> Any:
    """The counts of a region (the whole if None) by size, with the recommended intervals if there are any: Altair."""
    if region is not None and not isinstance(region, str):
        raise SpecError(f"region is the id or the name of one region, or None for the whole, not {region!r}")
    alt = altair()
    scope = Scope.of(region, None, release.hierarchy)
    place = scope.table_row(release.hierarchy)
    assert place is not None  # one region is one row
    rows, title = (_bars if len(release.sizes) <= MOST_BARS else _classes)(release, place)
    base = alt.Chart(alt.Data(values=rows))
    tilted = len(rows) > 16 or max(len(row["size"]) for row in rows) > 5
    axis = alt.Axis(labelAngle=-50 if tilted else 0, labelOverlap=False)
    x = alt.X("size:N", sort=None, title=title, axis=axis)
    tips = [alt.Tooltip(name, type=kind) for name, kind in (("size", "nominal"), ("groups", "quantitative"))]
    bars = base.mark_bar(color=COLORS[0], opacity=0.75).encode(
        x=x, y=alt.Y("groups:Q", title="groups", axis=alt.Axis(format=",d", tickMinStep=1)), tooltip=tips
    )
    if "lower" in rows[0]:
        bars += base.mark_rule(strokeWidth=1.5, color="#22303c").encode(x=x, y="lower:Q", y2="upper:Q")
    name = visible(shortened(release.hierarchy.regions.names[scope.regions[0]]))
    page_of = bars.properties(title=panel_title(name), width=max(160, min(560, 34 * len(rows))), height=180)
    return styled(page_of, subtitle_color="#5b6770", legend_columns=1)


# -------------------------------------------------------------------- the parts


def _facts(release: ReleaseContents) -> dict[str, str]:
    sizes = release.sizes
    return {
        "regions": release.hierarchy.in_words(),
        "sizes": f"{sizes[0]} to {size_label(sizes[-1], sizes[-1])}",
        "mechanism": release.mechanism,
    }


def _recommended(release: ReleaseContents, row: int) -> Kind | None:
    return release.error_bars.recommended("counts", release.rows.level_of(row))


def _between(release: ReleaseContents, region: int, cell: int, names: tuple[str, str]) -> str:
    lower, upper = (release.error_bars.columns[name] for name in names)
    assert lower is not None
    assert upper is not None
    return f"{lower[region, cell]:,} … {upper[region, cell]:,}"


def _of_bars(release: ReleaseContents) -> str:
    """What the lines of the chart are."""
    kind = _recommended(release, 0)
    if kind is None or len(release.sizes) > MOST_BARS:
        return ""
    return f"Lines: {kind} intervals (recommended) at {in_percent(release.error_bars.confidence)}, each size by itself."


def _bars(release: ReleaseContents, region: int) -> tuple[list[dict[str, Any]], str]:
    """A bar for each size."""
    kind = _recommended(release, region)
    given = None if kind is None else release.error_bars.of["counts"][kind]
    rows: list[dict[str, Any]] = []
    for cell, size in enumerate(release.sizes):
        label = f"{size}+" if size == release.sizes[-1] else str(size)
        row: dict[str, Any] = {"size": label, "groups": int(release.all_counts[region, cell])}
        if given is not None:
            row |= {"lower": int(given.lower[region, cell]), "upper": int(given.upper[region, cell])}
        rows.append(row)
    return rows, "size"


def _classes(release: ReleaseContents, region: int) -> tuple[list[dict[str, Any]], str]:
    """A bar for each class of sizes: 0, 1, 2, 3–4, 5–8 …; intervals of single sizes say nothing of their sums."""
    rows, first, sizes = [], release.sizes[0], release.sizes
    while first <= sizes[-1]:
        end = first if first <= 2 else min(2 * (first - 1), sizes[-1])
        groups = release.all_counts[region, first - sizes[0] : end - sizes[0] + 1].sum()
        label = f"{first}–{end}" if end > first else str(first)
        rows.append({"size": f"{first}+" if end == sizes[-1] else label, "groups": int(groups)})
        first = end + 1
    return rows, "size, in classes that double"
