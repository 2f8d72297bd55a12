"""Peers: MST and AIM on flattened households, in an environment of their own. NOT PRIVATE.

    python benchmarks/peers_synthesis.py [--environment peers-synthesis] [--synthesizer mst|aim|mst-mbi] [--epsilon 1]

The script makes a virtual environment in the given folder (it says so), installs the peer there and runs it as
another program. `mst` and `aim` are those of smartnoise-synth. `mst-mbi` is MST (McKenna, Miklau and Sheldon, 2021) on
the inference of the current mbi: a third of ρ each for all attributes, for a spanning tree of pairs that is chosen by
how far they are from independent, and for those pairs; a graphical model is fitted to all of it, and as many rows are
drawn as there were. `--data FOLDER --name oregon-small` takes real households, as `experiments.hqr` reads them, in
place of made-up ones. A flat row is a household with the attributes of up to M persons side by side, a code of its own
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
from tallytree.privacy.budget import Budget
from tallytree.schema import Schema
from tallytree.synthesis.workload import Workload, all_sets
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

MBI = """
import sys
from itertools import combinations
import jax
jax.config.update("jax_enable_x64", True)
import mbi
import numpy as np
_, rho, source, target = sys.argv[1:]
rho = float(rho)
with open(source) as file:
    names = file.readline().strip().split(",")
rows = np.loadtxt(source, delimiter=",", skiprows=1, dtype=np.int64)
rng = np.random.default_rng()
sizes = [int(size) for size in open(source + ".sizes").read().split()]
domain = mbi.Domain(names, sizes)
place = {name: at for at, name in enumerate(names)}

def counts(pair):
    found = np.zeros([sizes[place[name]] for name in pair])
    np.add.at(found, tuple(rows[:, place[name]] for name in pair), 1)
    return found

def measured(pairs, rho):
    # One row replaced moves a table by the root of 2; all tables share rho.
    spread = np.sqrt(2 * len(pairs) / (2 * rho))
    return [
        mbi.LinearMeasurement(counts(pair).ravel() + rng.normal(0, spread, counts(pair).size), pair, spread)
        for pair in pairs
    ]

def fitted(tables, steps):
    return mbi.estimation.MirrorDescent().estimate(domain, tables, known_total=float(len(rows)), iters=steps)

first = measured([(name,) for name in names], rho / 3)
alone = fitted(first, 1000)
score = {
    pair: np.abs(counts(pair).ravel() - np.asarray(alone.project(pair).datavector())).sum()
    for pair in combinations(names, 2)
}
tree, group = [], {name: name for name in names}
epsilon = np.sqrt(8 * rho / 3 / (len(names) - 1))
while len(tree) < len(names) - 1:
    open_pairs = [pair for pair in score if group[pair[0]] != group[pair[1]]]
    # One row replaced moves a score by at most 2.
    chances = np.array([epsilon * score[pair] / 4 for pair in open_pairs])
    chances = np.exp(chances - chances.max())
    pair = open_pairs[rng.choice(len(open_pairs), p=chances / chances.sum())]
    tree.append(pair)
    old = group[pair[1]]
    group = {name: group[pair[0]] if which == old else which for name, which in group.items()}
model = fitted([*first, *measured(tree, rho / 3)], 3000)
drawn = model.synthetic_data(rows=len(rows)).to_dict()
columns = np.stack([drawn[name] for name in names], axis=1)
np.savetxt(target, columns, fmt="%d", delimiter=",", header=",".join(names), comments="")
"""
PEERS = {"mst": ("smartnoise-synth", "snsynth"), "aim": ("smartnoise-synth", "snsynth"), "mst-mbi": ("mbi", "mbi")}


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


def flat_sizes(schema: Schema) -> list[int]:
    """How many codes each column of `flattened` has."""
    people = [attribute.codes + 1 for attribute in schema.person] * schema.max_persons
    return [*(attribute.codes for attribute in schema.household), *people]


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


def real(folder: Path, name: str) -> tuple[HouseholdTruth, Workload]:
    """Households and workload of an experiment."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from experiments.hqr import truth_of

    return truth_of(name, folder)


def environment(folder: Path, peer: str) -> Path:
    """The Python of an environment that has the peer, or an end with the installer's own words."""
    package, module = PEERS[peer]
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not python.exists():
        print(f"making a virtual environment in {folder} and installing {package} there", file=sys.stderr)
        venv.create(folder, with_pip=True)
    if subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode:
        installed = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", package], capture_output=True, text=True, check=False
        )
        if installed.returncode:
            why = installed.stderr.strip().splitlines()[-1:] or ["no reason was given"]
            print(json.dumps({"benchmark": "peers_synthesis", "installed": False, "why": why[0]}))
            raise SystemExit(0)
    return python


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--environment", type=Path, default=Path("peers-synthesis"))
    parser.add_argument("--synthesizer", choices=tuple(PEERS), default="mst-mbi")
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--scale", type=float, default=0.8)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--name", default="oregon-small")
    given = parser.parse_args()
    python = environment(given.environment, given.synthesizer)
    truth = made_up("acs-small", scale=given.scale, seed=2022)
    workload = all_sets(truth.schema)
    if given.data is not None:
        truth, workload = real(given.data, given.name)
    names, rows = flattened(truth)
    source, target = given.environment / "flat.csv", given.environment / "drawn.csv"
    np.savetxt(source, rows, fmt="%d", delimiter=",", header=",".join(names), comments="")
    delta = 1 / truth.codes.number**2
    started = time.perf_counter()
    asked = [given.synthesizer, given.epsilon, str(delta)]
    if given.synthesizer == "mst-mbi":
        Path(f"{source}.sizes").write_text(" ".join(str(size) for size in flat_sizes(truth.schema)))
        asked = [given.synthesizer, str(float(Budget(epsilon=given.epsilon, delta=str(delta)).amount))]
    command = [python, "-c", MBI if given.synthesizer == "mst-mbi" else PROGRAM, *asked, source, target]
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
                "data": truth.name,
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
