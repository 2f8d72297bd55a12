"""Households as rows of one table, for methods that know nothing else, and MST as another program runs it. NOT PRIVATE.

A flat row has a household's attributes and those of up to M persons side by side, in the order of the data; a code of
its own stands for "no such person". One row is one household, which is what the default unit protects.

MST (McKenna, Miklau and Sheldon, 2021) is that of dpsynth, an installed program in an environment of its own. It counts
privacy by rows added or removed, where a table has an L2 sensitivity of 1 and the score of a pair moves by 1. Here a
household is *replaced*: tables move by the root of 2, which doubles what noise costs in ρ, and scores by 2, which makes
choosing cost four times as much. So it is given a part of ρ, divided such that all of it, counted for replacement, is
ρ, with the shares that it has itself: a tenth for single attributes, and for choosing and measuring pairs half of the
rest each.

Where rows are persons, all M of a household are replaced at once: dpsynth's `max_records_per_user` is then M, which
multiplies noise and scores by M.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.domain.schema import Schema
from tallytree.tables.contingency import HouseholdCodes, grouped

PROGRAM = """
import json, sys
sys.path[:0] = [folder for folder in sys.argv[2:] if folder]
import jax
jax.config.update("jax_enable_x64", True)
import mbi
import numpy as np
from dpsynth.discrete_mechanisms import DiscreteConfig, MSTConfig
asked = json.load(open(sys.argv[1]))
rows = np.load(asked["source"])
singles, rest = asked["rho"] / 10 / 2, asked["rho"] * 9 / 10
choosing, measuring = rest / 2 / 4, rest / 2 / 2
whole = singles + choosing + measuring
config = DiscreteConfig(
    MSTConfig(select_budget_fraction=choosing / (choosing + measuring)), one_way_budget_fraction=singles / whole
)
names = [f"c{place}" for place in range(rows.shape[1])]
data = mbi.Dataset({name: rows[:, place] for place, name in enumerate(names)}, mbi.Domain(names, asked["sizes"]))
mechanism = config.configure(zcdp_rho=whole, max_records_per_user=asked["records"])
made = mechanism(np.random.default_rng(asked["seed"]), data)
drawn = made.model.synthetic_data(rows=len(rows)).to_dict()
np.save(asked["target"], np.stack([drawn[name] for name in names], axis=1))
"""


@dataclass(frozen=True)
class Dpsynth:
    """A Python that can import dpsynth, from its own packages or from a folder of sources."""

    python: Path
    sources: str = ""

    def mst(
        self, rows: NDArray[np.int64], sizes: list[int], rho: float, *, records: int = 1, seed: int = 0
    ) -> NDArray[np.int64]:
        """As many rows drawn as there were; `records` is how many rows a household has at most."""
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "rows.npy", Path(folder) / "drawn.npy"
            np.save(source, rows)
            asked: dict[str, Any] = {"source": str(source), "target": str(target), "sizes": sizes, "rho": rho}
            (Path(folder) / "asked.json").write_text(json.dumps(asked | {"records": records, "seed": seed}))
            command: list[str | Path] = [
                self.python,
                "-W",
                "ignore",
                "-c",
                PROGRAM,
                Path(folder) / "asked.json",
                self.sources,
            ]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                raise SystemExit(f"{ran.stderr}\ndpsynth did not run to its end")
            return np.asarray(np.load(target), np.int64)


def flattened(codes: HouseholdCodes) -> NDArray[np.int64]:
    """Household attributes, then each person's; a code after the last stands for nobody."""
    schema = codes.schema
    columns = [np.asarray(codes.household[attribute.name], np.int64) for attribute in schema.household]
    sizes = np.diff(codes.starts)
    for place in range(schema.max_persons):
        there = sizes > place
        for attribute in schema.person:
            column = np.full(codes.number, attribute.codes)
            column[there] = codes.person[attribute.name][codes.starts[:-1][there] + place]
            columns.append(column)
    return np.stack(columns, axis=1)


def flat_sizes(schema: Schema) -> list[int]:
    """How many codes each column of `flattened` has."""
    people = [attribute.codes + 1 for attribute in schema.person] * schema.max_persons
    return [*(attribute.codes for attribute in schema.household), *people]


def folded(schema: Schema, rows: NDArray[np.int64]) -> HouseholdCodes:
    """Households from flat rows; a person is there if none of its codes stands for nobody."""
    people = rows[:, len(schema.household) :].reshape(len(rows), schema.max_persons, len(schema.person))
    there = (people < np.array([attribute.codes for attribute in schema.person])).all(axis=2)
    home, place = np.nonzero(there)
    household = {attribute.name: rows[:, at] for at, attribute in enumerate(schema.household)}
    person = {attribute.name: people[home, place, at] for at, attribute in enumerate(schema.person)}
    return grouped(schema, household, person, home, len(rows))


def persons_alone(codes: HouseholdCodes) -> NDArray[np.int64]:
    """A row for each person."""
    return np.stack([np.asarray(codes.person[each.name], np.int64) for each in codes.schema.person], axis=1)


def persons_back(schema: Schema, rows: NDArray[np.int64]) -> HouseholdCodes:
    """Persons as households of one, for tables without household attributes."""
    household = {attribute.name: np.zeros(len(rows), np.int64) for attribute in schema.household}
    person = {attribute.name: rows[:, at] for at, attribute in enumerate(schema.person)}
    return grouped(schema, household, person, np.arange(len(rows)), len(rows))
