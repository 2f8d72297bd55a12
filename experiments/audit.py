"""NOT PRIVATE: the audit's table and plot in the docs, remade: python -m experiments.audit [--from FOLDER]

With `--from` the rows are those of an `audit.json` that `tallytree audit --out FOLDER` wrote; planted defects are run
here.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

from tallytree.evaluate.audit.plot import save_all
from tallytree.evaluate.audit.results import Audit, Row
from tallytree.evaluate.audit.running import audit
from tallytree.version import VERSION

DOCS = Path(__file__).parents[1] / "docs"
PAGE, FIGURES = DOCS / "audit.md", DOCS / "figures"


def main() -> None:
    """Audit, then write `docs/figures/audit.csv`, `docs/figures/audit.png` and the tables of `docs/audit.md`."""
    parser = argparse.ArgumentParser(prog="python -m experiments.audit", description=__doc__)
    parser.add_argument("--from", dest="folder", type=Path, help="where tallytree audit --out has kept its rows")
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder for table and plot (default: docs/figures)")
    given = parser.parse_args()
    folder = given.folder
    claims = audit() if folder is None else kept(folder)
    defects = audit(planted=True)
    both = Audit((*claims.rows, *defects.rows), claims.confidence)
    with TemporaryDirectory() as place:
        for path in save_all(both, Path(place)):
            if path.suffix in (".csv", ".png"):
                (given.out / path.name).write_bytes(path.read_bytes())
    text = PAGE.read_text(encoding="utf-8")
    text = placed(text, "results", results_table(claims))
    PAGE.write_text(placed(text, "planted", planted_table(defects)), encoding="utf-8")


def kept(folder: Path) -> Audit:
    """What an earlier run kept."""
    content = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    if content["version"] != VERSION:
        raise SystemExit(f"{folder} is of version {content['version']}, and this is {VERSION}: run the audit anew")
    names = [field.name for field in fields(Row)]
    return Audit(tuple(Row(**{name: row[name] for name in names}) for row in content["rows"]), content["confidence"])


def results_table(found: Audit) -> str:
    """For each mechanism, unit and budget the largest bounds over all settings."""
    lines = [
        f"Version {VERSION}; {len(found.rows)} rows, {len(found.rows) - len(found.failures)} consistent. Of each "
        "mechanism, unit and budget the largest bound over all settings:",
        "",
        "| audited | unit | claimed ε | exact | measurements | counts | command | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    alike: dict[tuple[str, str, float, float], list[Row]] = {}
    for row in found.rows:
        alike.setdefault((row.name, row.unit, row.claimed, row.delta), []).append(row)
    for (name, unit, claimed, delta), rows in alike.items():
        shown = f"{claimed:.2f}" + ("" if delta == 0 else f" (δ = {delta:g})")
        cells = (largest(rows, column) for column in ("exact", "measurements", "counts", "command"))
        verdict = "VIOLATION" if any(row.verdict == "VIOLATION" for row in rows) else "consistent"
        name = f"`{name}`" if rows[0].part == "release" else name
        lines.append(f"| {name} | `{unit}` | {shown} | {' | '.join(cells)} | {verdict} |")
    return "\n".join(lines)


def planted_table(found: Audit) -> str:
    """Each defect, its claim and the bound."""
    lines = ["| planted | claimed ε | bound from outputs | |", "|---|---|---|---|"]
    for row in found.rows:
        claimed = f"{row.claimed:.2f}" + ("" if row.delta == 0 else f" (δ = {row.delta:g})")
        lines.append(
            f"| {row.name} | {claimed} | {row.sampled:.2f} | {'caught' if row.sampled > row.claimed else 'MISSED'} |"
        )
    return "\n".join(lines)


def largest(rows: list[Row], column: str) -> str:
    values = [value for row in rows if (value := getattr(row, column)) is not None]
    return f"{max(values):.2f}" if values else ""


def placed(text: str, name: str, table: str) -> str:
    """The page with a table between its two marks."""
    begin, end = f"<!-- {name}: written by experiments.audit -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{PAGE} has no place for {name}")
    return pattern.sub(lambda _: f"{begin}\n\n{table}\n\n{end}", text)


if __name__ == "__main__":
    main()
