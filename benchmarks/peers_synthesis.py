"""Peers: MST and AIM of smartnoise-synth on flattened households, in an environment of their own. NOT PRIVATE.

    python benchmarks/peers_synthesis.py [--environment peers-synthesis] [--synthesizer mst|aim] [--epsilon 1]

The script makes a virtual environment in the given folder (it says so), installs smartnoise-synth there and runs it as
another program. A flat row is a household with the attributes of up to M persons side by side, a code of its own
standing for "no such person"; so one row is one household, which is the default unit here too. Drawn rows are folded
back and compared by the same errors as in `tallytree.evaluate.microdata`. If the package cannot be installed the
script reports that and ends; nothing is made up in its place.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import venv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallytree.evaluate.microdata import HouseholdTruth, made_up
from tallytree.schema import Schema
from tallytree.synthesis.workload import all_sets
from tallytree.tables.contingency import grouped

PROGRAM = """
import sys
import pandas as pd
from snsynth import Synthesizer
name, epsilon, delta, source, target = sys.argv[1:]
rows = pd.read_csv(source, dtype=str)
synthesizer = Synthesizer.create(name, epsilon=float(epsilon), delta=float(delta))
synthesizer.fit(rows, categorical_columns=list(rows.columns), preprocessor_eps=0.0)
synthesizer.sample(len(rows)).to_csv(target, index=False)
"""


def flattened(truth: HouseholdTruth) -> tuple[list[str], NDArray[np.int64]]:
    """Household attributes, then each person's; a code after the last stands for nobody."""
    codes, schema = truth.codes, truth.schema
    names = [attribute.name for attribute in schema.household]
    columns = [np.asarray(codes.household[name], np.int64) for name in names]
    sizes = np.diff(codes.starts)
    for place in range(schema.max_persons):
        there = sizes > place
        for attribute in schema.person:
            column = np.full(codes.number, attribute.codes)
            column[there] = codes.person[attribute.name][codes.starts[:-1][there] + place]
            names.append(f"{attribute.name} of {place + 1}")
            columns.append(column)
    return names, np.stack(columns, axis=1)


def folded(schema: Schema, rows: NDArray[np.int64]) -> HouseholdTruth:
    """Households from flat rows; a person is there if none of its codes stands for nobody."""
    start = len(schema.household)
    width = len(schema.person)
    people = rows[:, start:].reshape(len(rows), schema.max_persons, width)
    there = (people < np.array([attribute.codes for attribute in schema.person])).all(axis=2)
    home, place = np.nonzero(there)
    household = {attribute.name: rows[:, at] for at, attribute in enumerate(schema.household)}
    person = {attribute.name: people[home, place, at] for at, attribute in enumerate(schema.person)}
    return HouseholdTruth("peer", grouped(schema, household, person, home, len(rows)))


def environment(folder: Path) -> Path:
    """The Python of an environment that has the peer, or an end with the installer's own words."""
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not python.exists():
        print(f"making a virtual environment in {folder} and installing smartnoise-synth there", file=sys.stderr)
        venv.create(folder, with_pip=True)
    if subprocess.run([python, "-c", "import snsynth"], capture_output=True, check=False).returncode:
        installed = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "smartnoise-synth"], capture_output=True, text=True, check=False
        )
        if installed.returncode:
            why = installed.stderr.strip().splitlines()[-1:] or ["no reason was given"]
            print(json.dumps({"benchmark": "peers_synthesis", "installed": False, "why": why[0]}))
            raise SystemExit(0)
    return python


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--environment", type=Path, default=Path("peers-synthesis"))
    parser.add_argument("--synthesizer", choices=("mst", "aim"), default="mst")
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--scale", type=float, default=0.8)
    given = parser.parse_args()
    python = environment(given.environment)
    truth = made_up("acs-small", scale=given.scale, seed=2022)
    workload = all_sets(truth.schema)
    names, rows = flattened(truth)
    source, target = given.environment / "flat.csv", given.environment / "drawn.csv"
    np.savetxt(source, rows, fmt="%d", delimiter=",", header=",".join(names), comments="")
    delta = 1 / truth.codes.number**2
    started = time.perf_counter()
    command = [python, "-c", PROGRAM, given.synthesizer, given.epsilon, str(delta), source, target]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        print(ran.stderr, file=sys.stderr)
        raise SystemExit(f"{given.synthesizer} did not run to its end")
    drawn = folded(truth.schema, np.loadtxt(target, delimiter=",", skiprows=1, dtype=np.int64))
    apart = np.concatenate(
        [np.abs(one - other).ravel() for one, other in zip(drawn.shares(workload), truth.shares(workload), strict=True)]
    )
    print(
        json.dumps(
            {
                "benchmark": "peers_synthesis",
                "installed": True,
                "synthesizer": given.synthesizer,
                "epsilon": float(given.epsilon),
                "delta": delta,
                "max_error": float(apart.max()),
                "mean_error": float(apart.mean()),
                "seconds": round(time.perf_counter() - started, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
