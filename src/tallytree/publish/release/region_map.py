"""`RegionMap`: regions coloured by the answer to a query; hatched if the answer is too uncertain for its colour.

Colours are five classes of equal width between the least and the greatest value. A region is hatched if its guaranteed
interval reaches beyond the classes next to its own, or if it has no guaranteed interval: its colour then means little.
Every area has its name, value and interval as a title. A table gives the same information to readers who do not see
colours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

from tallytree.core.display import page, paragraph, table
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly, visible
from tallytree.publish.release.answer import Answer
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.report.maps import WIDTH, Map

COLOURS = ("#e3eef6", "#b3d1e6", "#78aed2", "#3f86b8", "#0b559f")  # light to dark: also readable in grey
NO_COLOUR = "#f2f2f2"
# White beside black, so that it is visible on light and dark colours.
HATCH = (
    '<pattern id="tallytree-hatch" width="14" height="14" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="3" height="14" fill="#fff"/><rect x="3" width="2" height="14" fill="#222"/></pattern>'
)
ROW = 44  # of the legend, in the drawing's units


@dataclass(frozen=True)
class RegionMap:
    """A map that a notebook displays; `svg` is the drawing, and `save` writes it to a file."""

    title: str
    places: Map
    names: tuple[str, ...]  # of the regions drawn, in the map's order
    answers: tuple[Answer, ...]

    __repr__ = briefly

    @property
    def svg(self) -> str:
        """Return the drawing with its legend as a self-contained SVG."""
        ends = _classes([answer.released for answer in self.answers])
        areas = "".join(
            self._area(outline.path, name, answer, ends)
            for outline, name, answer in zip(self.places.outlines, self.names, self.answers, strict=True)
        )
        below = self.places.height + 20
        height = below + ROW * (len(ends) + 1)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 {WIDTH + 20} {height + 20}" role="img" '
            f'style="max-width: 40em; width: 100%; background: #fff" font-family="sans-serif" font-size="26">'
            f"<title>{_text(self.title)}</title>"
            f"<defs>{HATCH}</defs>{areas}{self._legend(ends, below)}</svg>"
        )

    def save(self, path: str | Path) -> Path:
        """Write the drawing to an .svg file."""
        target = Path(path)
        if target.suffix != ".svg":
            raise SpecError(f"a map is saved to a .svg file, not to {target.name}")
        target.write_text(self.svg, encoding="utf-8")
        return target

    def _repr_html_(self) -> str:
        percent = in_percent(self.answers[0].confidence)
        rows = [
            [name, answer.shown(answer.released), answer.between(answer.guaranteed)]
            for name, answer in zip(self.names, self.answers, strict=True)
        ]
        found = table(["region", "released", f"guaranteed at {percent}"], rows, right=(1, 2), rest="`answers` has all")
        return page(self.title, {}, f"<div>{self.svg}</div>", found, paragraph(self._left_out()))

    def _left_out(self) -> str:
        told = []
        if self.places.unmatched:
            told.append(f"{self.places.unmatched:,} areas of the file are not regions of the release.")
        if self.places.without:
            told.append(f"{self.places.without:,} regions have no area in the file.")
        return " ".join(told)

    def _area(self, path: str, name: str, answer: Answer, ends: Sequence[float]) -> str:
        ends_in_words = "no guaranteed interval" if answer.guaranteed is None else answer.between(answer.guaranteed)
        title = f"<title>{_text(f'{name}: {answer.shown(answer.released)} ({ends_in_words})')}</title>"
        line = 'stroke="#555" stroke-width="1.5" fill-rule="evenodd"'
        drawn = f'<path d="{path}" fill="{_colour(answer.released, ends)}" {line}>{title}</path>'
        if uncertain(answer, ends):
            drawn += f'<path d="{path}" fill="url(#tallytree-hatch)" fill-rule="evenodd" pointer-events="none"/>'
        return drawn

    def _legend(self, ends: Sequence[float], top: int) -> str:
        said = self.answers[0]
        rows = []
        for place, (low, high) in enumerate(pairwise(ends)):
            y = top + ROW * place
            rows.append(
                f'<rect x="0" y="{y}" width="40" height="30" fill="{COLOURS[place]}" stroke="#555"/>'
                f'<text x="54" y="{y + 25}">{_text(f"{said.shown(low)} to {said.shown(high)}")}</text>'
            )
        y = top + ROW * (len(ends) - 1)
        rows.append(
            f'<rect x="0" y="{y}" width="40" height="30" fill="{COLOURS[2]}" stroke="#555"/>'
            f'<rect x="0" y="{y}" width="40" height="30" fill="url(#tallytree-hatch)"/>'
            f'<text x="54" y="{y + 25}">hatched: uncertain by more than one colour</text>'
        )
        return "".join(rows)


def uncertain(answer: Answer, ends: Sequence[float]) -> bool:
    """Return whether the guaranteed interval is missing or reaches beyond the neighbouring classes."""
    if answer.released is None or answer.guaranteed is None:
        return True
    step = (ends[-1] - ends[0]) / len(COLOURS)
    low, high = ends[_class(answer.released, ends)] - step, ends[_class(answer.released, ends) + 1] + step
    return answer.guaranteed[0] < low or answer.guaranteed[1] > high


def _classes(values: Sequence[float | None]) -> tuple[float, ...]:
    """Return the ends of the classes, from the least to the greatest value."""
    found = [value for value in values if value is not None and math.isfinite(value)] or [0.0]
    low, high = min(found), max(found)
    if high == low:
        high = low + (abs(low) or 1.0)
    return tuple(low + (high - low) * place / len(COLOURS) for place in range(len(COLOURS) + 1))


def _class(value: float, ends: Sequence[float]) -> int:
    step = (ends[-1] - ends[0]) / len(COLOURS)
    return min(max(int((value - ends[0]) / step), 0), len(COLOURS) - 1)


def _colour(value: float | None, ends: Sequence[float]) -> str:
    return NO_COLOUR if value is None or not math.isfinite(value) else COLOURS[_class(value, ends)]


def _text(text: str) -> str:
    return escape(visible(text))
