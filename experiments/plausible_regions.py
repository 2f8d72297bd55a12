"""NOT PRIVATE: synthetic households by region on public data: how well each region's attributes come out.

    python -m experiments.plausible_regions --data DIRECTORY --out rows.jsonl [--sets oregon cps] [--epsilon 1]
        [--runs 3]

A line of JSON for each run. Households agree with a release of their sizes by region (ρ = 0.02). The regions are PUMAs
in areas of Oregon, and states in divisions and regions of the United States.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import tallytree as tt
from experiments.hqr import read
from experiments.plausible import (
    Case,
    cps_case,
    joined,
    looks,
    oregon_case,
    person_tables,
    persons_of,
    read_rows,
    role_tables,
)
from tallytree.domain.schema import Attribute, Marginal
from tallytree.lab.microdata import HouseholdTruth
from tallytree.tables import GroupSizes, Sealed
from tallytree.tables.contingency import HouseholdCodes, Rows, any_broken, code_type, marginal_counts

Columns = dict[str, NDArray[Any]]


class Regions(NamedTuple):
    """A data set, its leaf regions by household, and the columns of the levels above."""

    case: Case
    instead_of: str
    leaves: NDArray[Any]
    above: Columns


def _kept(homes: Columns, people: Columns, most: int) -> NDArray[np.bool_]:
    """Return which households have 1 to `most` persons."""
    ids, of_persons = homes["household_id"].astype(str), people["household_id"].astype(str)
    order = np.argsort(ids, kind="stable")
    sizes = np.bincount(order[np.searchsorted(ids[order], of_persons)], minlength=len(ids))
    return np.asarray((sizes >= 1) & (sizes <= most))


def oregon_regions(directory: Path) -> Regions:
    """PUMAs in areas, instead of the attribute area."""
    homes, people = (read(directory, f"oregon_2000_pums_{what}") for what in ("households", "persons"))
    homes = {name: column[homes["unittype"] == 0] for name, column in homes.items()}
    here = np.isin(people["household_id"].astype(str), homes["household_id"].astype(str))
    kept = _kept(homes, {"household_id": people["household_id"][here]}, 5)
    columns = {name: homes[name].astype(str)[kept] for name in ("area", "puma")}
    return Regions(oregon_case(directory), "area", columns["puma"], {"region": columns["area"]})


def cps_regions(directory: Path) -> Regions:
    """States in divisions, instead of the attribute region."""
    homes, units = (read(directory, f"us_cps_2012_2014_{what}") for what in ("households", "taxunits"))
    late, here = (np.char.startswith(rows["household_id"].astype(str), "2014") for rows in (homes, units))
    homes, units = (
        {name: column[some] for name, column in rows.items()} for rows, some in ((homes, late), (units, here))
    )
    kept = _kept(homes, persons_of(units), 6)
    columns = {name: homes[name].astype(str)[kept] for name in ("division", "state")}
    return Regions(cps_case(directory), "region", columns["state"], {"division": columns["division"]})


SETS = {"oregon": oregon_regions, "cps": cps_regions}


def by_region(regions: Regions) -> tuple[Case, HouseholdCodes]:
    """Return the case and its codes with the leaf region as the last attribute of households."""
    case, codes = regions.case, regions.case.truth.codes
    values = tuple(sorted(set(regions.leaves.tolist())))
    leaf = Attribute("leaf", values)
    household = tuple(each for each in codes.schema.household if each.name != regions.instead_of)
    schema = replace(codes.schema, household=(*household, leaf))
    columns = {each.name: codes.household[each.name] for each in household}
    columns["leaf"] = np.searchsorted(np.array(values), regions.leaves).astype(code_type(len(values)))
    found = HouseholdCodes(schema, columns, codes.person, codes.starts)
    return replace_truth(case, found), found


def replace_truth(case: Case, codes: HouseholdCodes) -> Case:
    """Return the case about other codes."""
    return case._replace(truth=HouseholdTruth(case.truth.name, codes))


def within_regions(drawn: HouseholdCodes, truth: HouseholdCodes) -> float:
    """The mean total variation of one attribute within a leaf region, weighted by its households."""
    found = []
    for each in (*truth.schema.household, *truth.schema.person):
        if each.name == "leaf":
            continue
        of_person = each.name in truth.person
        table = (
            Marginal("persons", ("leaf",), (each.name,)) if of_person else Marginal("households", ("leaf", each.name))
        )
        real, made = (marginal_counts(codes, table).astype(float) for codes in (truth, drawn))
        apart = np.abs(real / real.sum(axis=1, keepdims=True) - made / np.maximum(made.sum(axis=1, keepdims=True), 1))
        found.append(float((real.sum(axis=1) * apart.sum(axis=1) / 2).sum() / real.sum()))
    return float(np.mean(found))


def run(name: str, regions: Regions, epsilon: str, number: int) -> dict[str, Any]:
    """One run by region."""
    case, codes = by_region(regions)
    schema = replace(codes.schema, structure=case.structure)
    whole = HouseholdCodes(schema, codes.household, codes.person, codes.starts)
    leaves = schema.attribute("leaf").values
    parents = {level: dict(zip(regions.leaves, values, strict=True)) for level, values in regions.above.items()}
    table = {level: [of[leaf] for leaf in leaves] for level, of in parents.items()} | {"leaf": list(leaves)}
    counts = np.zeros((len(leaves), schema.max_persons), np.int64)
    np.add.at(counts, (codes.household["leaf"], np.diff(codes.starts) - 1), 1)
    tree = tt.Hierarchy.from_levels(table, [*parents, "leaf"])
    order = np.argsort([list(tree.names[tree.level_slice(tree.depth - 1)]).index(leaf) for leaf in leaves])
    sizes = GroupSizes(hierarchy=tree, max_size=schema.max_persons, counts=Sealed(counts[order]), name=name)
    released = tt.release(sizes, budget=tt.Budget(rho="0.02"), unit=tt.one_group(), intervals="none")
    started = time.process_time()
    made = tt.synthesize(
        HouseholdTruth(name, whole).households(),
        budget=tt.Budget(epsilon=epsilon, delta=f"1/{codes.number**2}"),
        release=released,
        region="leaf",
        regional={},
    )
    seconds = time.process_time() - started
    chunks = list(made.draw())
    redrawn = sum(chunk.redrawn for chunk in chunks)
    attributes = len(schema.household)
    cut = [chunk._replace(household=chunk.household[:, :attributes]) for chunk in chunks]
    drawn = joined(cut, case.truth)
    found, true = looks(drawn, case), looks(codes, case)
    children, wanted = np.array(found.pop("children_by_head")), np.array(true.pop("children_by_head"))
    first, second = role_tables(drawn, case, codes)
    return {
        "data": name,
        "epsilon": epsilon,
        "run": number,
        "processor_seconds": round(seconds, 1),
        "accepted": 1 - redrawn / drawn.number,
        "within_regions": within_regions(drawn, codes),
        "persons_apart": person_tables(drawn, case, codes),
        "first_role_apart": first,
        "second_role_apart": second,
        "children_apart": float(np.abs(children - wanted).sum() / wanted.sum()),
        "breaking_rules": int(any_broken(Rows(schema, drawn.starts, drawn.household, drawn.person)).sum()),
        "correlation_apart": abs(found["correlation"] - true["correlation"]),
    }


def main() -> None:
    """Run what is asked for and append lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--epsilon", nargs="+", default=["1"])
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    there = {(row["data"], row["epsilon"], row["run"]) for row in read_rows(given.out)}
    for number in range(given.runs):
        for name in given.sets:
            regions = SETS[name](given.data)
            for epsilon in given.epsilon:
                if (name, epsilon, number) not in there:
                    row = run(name, regions, epsilon, number)
                    with given.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
