"""NOT PRIVATE: synthetic households of other methods, judged as `experiments.plausible` judges those of the default.

    python -m experiments.rivals --data DIRECTORY --out rows.jsonl [--sets oregon atlanta cps] [--methods h-gem]
        [--epsilon 0.25 1 4] [--runs 1] [--python PYTHON] [--sources FOLDER]
    python -m experiments.rivals --out rows.jsonl --table     errors of the runs so far, and ratios to the best rival
                                                              (lines of experiments.plausible may be added to the file)

H-GEM and MWEM are this project's own, after their paper, without roles and rules: MWEM with 400 passes over its cells
at the end (`converged`), for the sets called small alone, since it holds a number for every possible household. `mst`
is that of dpsynth on flattened households, `mst-persons` on persons as rows (see `experiments.flattened`): PYTHON is an
interpreter that has dpsynth's dependencies, FOLDER a copy of its sources if it is not installed. The project's default
is `tallytree-marginals`, as in `experiments.plausible` with roles and rules where a set has some.

A line of JSON for each run, added at once; a run that is in the file is not done again. Errors are of drawn households
over all tables of three attributes. `residual` is how far a model is from its own measurements, in deviations of noise.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.flattened import Dpsynth, flat_sizes, flattened, folded, persons_alone, persons_back
from experiments.hqr import SMALL, truth_of
from experiments.plausible import CASES, Case, joined, looks, person_tables
from experiments.plausible import run as run_ours
from tallytree.domain.edit_rules import Structure
from tallytree.lab.microdata import HouseholdTruth, residual
from tallytree.lab.truth import SeededWords, seeded
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import HouseholdNeighbours, PrivacyUnit
from tallytree.privacy.private_tables import PrivateTables
from tallytree.synthesis.marginals import method
from tallytree.synthesis.sampling import draw
from tallytree.synthesis.workload import all_sets
from tallytree.tables.contingency import HouseholdCodes

OURS = "tallytree-marginals"
METHODS = ("mst", "mst-persons", "mwem", "h-gem", OURS)
OPTIONS: dict[str, dict[str, Any]] = {"mwem": {"iterate": "converged"}}
MADE_UP = "acs-small"
Row = dict[str, Any]


def case_of(name: str, directory: Path) -> Case:
    """A set with what is known of its households, or a small or made-up one, of which nothing is."""
    if name in CASES:
        return CASES[name](directory)
    return Case(truth_of(name, directory)[0], Structure(), ("", ""))


def budget_of(case: Case, epsilon: str) -> Budget:
    return Budget(epsilon=epsilon, delta=f"1/{case.truth.codes.number**2}")


def judged(name: str, case: Case, drawn: HouseholdCodes) -> Row:
    """What `experiments.plausible` says of households."""
    workload = all_sets(case.truth.schema)
    pairs = zip(HouseholdTruth("", drawn).shares(workload), case.truth.shares(workload), strict=True)
    apart = np.concatenate([np.abs(one - other).ravel() for one, other in pairs])
    found: Row = {
        "max_error": float(apart.max()),
        "mean_error": float(apart.mean()),
        "persons_apart": person_tables(drawn, case, case.truth.codes),
    }
    if name in CASES:
        made, real = looks(drawn, case), looks(case.truth.codes, case)
        children, wanted = (np.array(each.pop("children_by_head")) for each in (made, real))
        found["children_apart"] = float(np.abs(children - wanted).sum() / wanted.sum())
        found |= made | {f"true_{key}": value for key, value in real.items()}
    return found


def run_method(name: str, case: Case, which: str, epsilon: str, number: int) -> Row:
    """A method of the project, without roles and rules."""
    codes = case.truth.codes
    neighbours = HouseholdNeighbours(PrivacyUnit("one_group"), codes.schema.max_persons)
    chance = seeded("rivals", name, which, epsilon, number)
    tables = PrivateTables(case.truth.households(), neighbours, budget_of(case, epsilon), randomness=chance)
    started = time.perf_counter()
    fitted = method(which).run(tables, all_sets(codes.schema), options=OPTIONS.get(which, {}))
    seconds = time.perf_counter() - started
    drawn = joined(
        list(draw(fitted.model, codes.number, source=SeededWords("rivals", name, epsilon, number))), case.truth
    )
    return {"seconds": round(seconds, 1), "residual": residual(fitted.model, fitted), **judged(name, case, drawn)}


def run_mst(name: str, case: Case, which: str, epsilon: str, number: int, program: Dpsynth) -> Row:
    """MST on flattened households, or on persons alone."""
    codes, schema = case.truth.codes, case.truth.schema
    rho = float(budget_of(case, epsilon).amount)
    started = time.perf_counter()
    if which == "mst-persons":
        sizes = [attribute.codes for attribute in schema.person]
        rows = program.mst(persons_alone(codes), sizes, rho, records=schema.max_persons, seed=number)
        found: Row = {"persons_apart": person_tables(persons_back(schema, rows), case, codes)}
    else:
        rows = program.mst(flattened(codes), flat_sizes(schema), rho, seed=number)
        found = judged(name, case, folded(schema, rows))
    return {"seconds": round(time.perf_counter() - started, 1), **found}


def run(name: str, case: Case, which: str, epsilon: str, number: int, program: Dpsynth | None) -> Row:
    """One run of a method on a set."""
    if which.startswith("mst"):
        if program is None:
            raise SystemExit("mst is another program: --python names an interpreter that has it")
        found = run_mst(name, case, which, epsilon, number, program)
    elif which == OURS and name in CASES:
        found = run_ours(name, case, epsilon, number, True, {})
    else:
        found = run_method(name, case, which, epsilon, number)
    return {"data": name, "method": which, "epsilon": epsilon, "run": number, **found}


def table(rows: list[Row]) -> Iterator[str]:
    """Lines of a table: means over runs of largest and mean errors, and the default's as parts of the best other's.

    Rows of `experiments.plausible` with roles and rules are the default's too.
    """
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        which = row.get("method", OURS if row.get("structure") else None)
        if "max_error" in row and which is not None:
            found.setdefault((row["data"], row["epsilon"], which), []).append(row)
    means = {
        key: [float(np.mean([row[error] for row in runs])) for error in ("max_error", "mean_error")]
        for key, runs in found.items()
    }
    others = [which for which in METHODS if any(key[2] == which for key in found) and which != OURS]
    yield f"| | ε | {' | '.join((OURS, *others))} | of the best |"
    yield f"|---|--:|{'--:|' * (len(others) + 2)}"
    for name, epsilon in sorted({key[:2] for key in found}, key=lambda key: (key[0], float(key[1]))):
        here = {which: means.get((name, epsilon, which)) for which in (OURS, *others)}
        cells = [
            "–" if errors is None else f"{errors[0]:.4f}, {errors[1]:.5f} ({len(found[name, epsilon, which])})"
            for which, errors in here.items()
        ]
        rivals = [errors for which, errors in here.items() if which != OURS and errors is not None]
        ours = here[OURS]
        best = "–" if ours is None or not rivals else ", ".join(
            f"{ours[place] / min(errors[place] for errors in rivals):.2f}" for place in range(2)
        )  # fmt: skip
        yield f"| {name} | {epsilon} | {' | '.join(cells)} | {best} |"


def main() -> None:
    """Run what is asked for and not there yet, and append lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=[*CASES, *SMALL], choices=[*CASES, *SMALL, MADE_UP])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--epsilon", nargs="+", default=["0.25", "1", "4"])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--python", type=Path, help="an interpreter that has dpsynth")
    parser.add_argument("--sources", default="", help="a folder that holds dpsynth, if it is not installed")
    parser.add_argument("--table", action="store_true", help="show the rows of --out, and run nothing")
    given = parser.parse_args()
    program = None if given.python is None else Dpsynth(given.python, given.sources)
    lines = given.out.read_text(encoding="utf-8").splitlines() if given.out.exists() else []
    if given.table:
        print(*table([json.loads(line) for line in lines]), sep="\n")
        return
    if given.data is None:
        raise SystemExit("--data DIRECTORY: where the sets are")
    done = {tuple(json.loads(line)[key] for key in ("data", "method", "epsilon", "run")) for line in lines}
    for number in range(given.runs):
        for name in given.sets:
            case = case_of(name, given.data)
            for which in given.methods:
                for epsilon in given.epsilon:
                    if (name, which, epsilon, number) in done or (which == "mwem" and name in CASES):
                        continue
                    row = run(name, case, which, epsilon, number, program)
                    with given.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
