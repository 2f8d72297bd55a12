"""The picture of README.md: noisy measurements beside the released counts, of made-up data.

    python -m experiments.picture [--out docs/picture.svg]

The noise is drawn anew each time, so the picture is another one each time.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import tallytree as tt
from tallytree.tables import GroupSizes, Sealed

REGIONS = ["Tallia", "Alba", "Borea"]
INK, SOFT, GOOD, BAD = "#22303c", "#7a8896", "#2a7f9e", "#c8553d"
BAR, GAP, UNIT, PANEL, ROW, TOP = 44, 12, 1.7, 350, 108, 66


def text(
    x: float, y: float, words: object, *, size: int = 13, color: str = INK, anchor: str = "middle", bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}" text-anchor="{anchor}"{weight}>{words}</text>'


def bars(x: float, y: float, counts: np.ndarray, color: str) -> list[str]:
    shapes = [f'<line x1="{x}" x2="{x + 5 * (BAR + GAP)}" y1="{y}" y2="{y}" stroke="{SOFT}"/>']
    for place, count in enumerate(counts):
        left, height = x + place * (BAR + GAP), abs(int(count)) * UNIT
        top = y - height if count >= 0 else y
        fill = color if count >= 0 else BAD
        shapes.append(f'<rect x="{left}" y="{top}" width="{BAR}" height="{height}" rx="2" fill="{fill}"/>')
        label = top - 5 if count >= 0 else y + height + 14
        shapes.append(
            text(left + BAR / 2, label, f"−{-count}" if count < 0 else count, color=fill if count < 0 else INK)
        )
    return shapes


def sums(counts: np.ndarray, x: float, y: float) -> list[str]:
    shapes = []
    for place in range(5):
        fits = counts[0, place] == counts[1, place] + counts[2, place]
        sign, color = ("✓", GOOD) if fits else ("✗", BAD)
        shapes.append(text(x + place * (BAR + GAP) + BAR / 2, y, sign, size=16, color=color, bold=True))
    return shapes


def draw(measured: np.ndarray, released: np.ndarray) -> str:
    width, height = 100 + 2 * PANEL, TOP + 3 * ROW + 82
    shapes = [f'<rect width="{width}" height="{height}" rx="10" fill="#fbfaf7"/>']
    for panel, (title, counts, color) in enumerate(
        [("measured, with noise", measured, SOFT), ("released by tallytree", released, GOOD)]
    ):
        x = 100 + panel * PANEL
        shapes.append(text(x + 140, 34, title, size=17, bold=True))
        for row, region in enumerate(REGIONS):
            base = TOP + row * ROW + 86
            shapes += bars(x, base, counts[row], color)
            if panel == 0:
                shapes.append(text(84, base - 4, region, size=15, anchor="end", bold=row == 0))
        last = TOP + 3 * ROW + 22
        for place, label in enumerate(["1", "2", "3", "4", "5+"]):
            shapes.append(text(x + place * (BAR + GAP) + BAR / 2, last, label, color=SOFT))
        shapes += sums(counts, x, last + 30)
    shapes.append(text(84, TOP + 3 * ROW + 22, "size", color=SOFT, anchor="end"))
    shapes.append(text(84, TOP + 3 * ROW + 51, "adds up", color=SOFT, anchor="end"))
    body = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="Helvetica, Arial, sans-serif">\n{body}\n</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "picture.svg")
    options = parser.parse_args()
    tree = tt.Hierarchy.from_edges([("Alba", "Tallia"), ("Borea", "Tallia")], levels=["nation", "state"])
    leaves = np.array([[21, 24, 12, 7, 1], [14, 15, 9, 3, 0]])
    private = GroupSizes(tree, 5, Sealed(leaves))
    while True:  # until one noisy number is negative, as happens all the time in larger tables
        release = tt.release(
            private, budget=tt.Budget(epsilon=1), unit=tt.one_entity(), mechanism="pgsr-hierarchical-dp"
        )
        measured = release.measurements.stacked("counts")
        if measured.min() in (-3, -4, -5, -6) and np.abs(measured - tree.aggregate(leaves)).max() < 12:
            break
    options.out.write_text(draw(measured, release.counts), encoding="utf-8")


if __name__ == "__main__":
    main()
