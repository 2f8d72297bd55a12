"""NOT PRIVATE: are synthetic households plausible? Roles and rules against the same method without them.

    python -m experiments.plausible --data DIRECTORY --out rows.jsonl [--sets oregon atlanta cps] [--epsilon 0.25 1 4]
        [--runs 3] [--with yes|no|both]
    python -m experiments.plausible --out rows.jsonl --tables

A line of JSON for each run that is not in the file yet, one of everything first: rules broken, how many households were
drawn again, errors of drawn households over all sets of three attributes (as in `tallytree.lab.microdata`), and
what no such table shows: how the ages of the first two persons go together, couples of one sex, children by the age of
the head. Three generations under one roof are named by no rule and no table. With `--tables` nothing is run, and the
lines that are there are shown as tables in Markdown.
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

from experiments.hqr import assemble, atlanta, bins, kinds, oregon, read
from experiments.plausible_tables import markdown
from tallytree.domain.edit_rules import Below, Has, Implies, Role, SizeClass, Structure
from tallytree.domain.schema import Marginal
from tallytree.lab.microdata import HouseholdTruth
from tallytree.lab.truth import SeededWords, seeded
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import HouseholdNeighbours, PrivacyUnit
from tallytree.privacy.private_tables import PrivateTables
from tallytree.synthesis.marginals import method
from tallytree.synthesis.sampling import draw
from tallytree.synthesis.workload import all_sets
from tallytree.tables.contingency import HouseholdCodes, Rows, any_broken, holders, marginal_counts

AGES = (6, 12, 18, 25, 35, 45, 55, 65, 75)
MIDDLES = np.array([3, 9, 15, 21.5, 30, 40, 50, 60, 70, 80])
GROWN = tuple(f"from {cut}" for cut in AGES[1:])
ADULT = tuple(f"from {cut}" for cut in AGES[2:])
SMALL = ("below 6", "from 6")


class Case(NamedTuple):
    """A data set, what is known of its households, and who make a couple."""

    truth: HouseholdTruth
    structure: Structure
    pair: tuple[str, str]
    sex: str | None = None


def oregon_case(directory: Path) -> Case:
    """Roles by the order of persons: the householder comes first, a spouse second."""
    rules = (
        Implies(when={"age": SMALL}, then={"worked": "too young"}),
        Implies(when={"age": ADULT}, then={"worked": ("yes", "no")}),
        Implies(when={"age": SMALL}, then={"own income": "below 1"}),
    )
    roles = (Role("head", position=1, may={"age": GROWN}), Role("second", position=2))
    return Case(oregon(directory, small=False), Structure(roles, rules, empty=False), ("head", "second"))


def atlanta_case(directory: Path) -> Case:
    """Roles by order; in a married couple's household the second person is the spouse."""
    roles = (
        Role("head", position=1, may={"age": GROWN}),
        Role("spouse", position=2, household={"type": "1"}, may={"age": GROWN}),
    )
    rules = (
        Implies(when={"age": SMALL}, then={"work": "too young"}),
        Implies(when={"age": ADULT}, then={"work": ("employed", "seeking", "outside")}),
        Implies(when={"work": "too young"}, then={"hours": "below 1", "occupation": "0"}),
        Has("spouse", {"type": "1"}),
        SizeClass("type", {"4": 1, "6": 1, "2": (2, 5), "3": (2, 5), "5": (2, 5), "7": (2, 5)}),
    )
    return Case(atlanta(directory, small=False), Structure(roles, rules, empty=False), ("head", "spouse"), "sex")


def cps_case(directory: Path) -> Case:
    """Persons made of the tax units of 2014: the first unit's head and spouse, dependents, heads of other units."""
    homes, units = read(directory, "us_cps_2012_2014_households"), read(directory, "us_cps_2012_2014_taxunits")
    late = np.char.startswith(homes["household_id"].astype(str), "2014")
    homes = {name: column[late] for name, column in homes.items()}
    here = np.char.startswith(units["household_id"].astype(str), "2014")
    units = {name: column[here] for name, column in units.items()}
    people = persons_of(units)
    household = [
        kinds(
            "region", homes["region"].astype(str), {each: (each,) for each in ("Northeast", "Midwest", "South", "West")}
        ),
        bins("wages", homes["wages"], (1, 20_000, 40_000, 60_000, 100_000)),
    ]
    relations = {each: (each,) for each in ("head", "spouse", "child", "adult", "adult's spouse")}
    person = [
        kinds("relation", people["relation"], relations),
        bins("age", people["age"], AGES),
        bins("own wages", people["wages"], (1, 10_000, 25_000, 50_000, 100_000)),
    ]
    roles = (
        Role("head", "exactly one", attribute="relation", values=("head",)),
        Role("spouse", "at most one", attribute="relation", values=("spouse",)),
        Role("child", attribute="relation", values=("child",), may={"own wages": "below 1"}),
    )
    rules = (
        Implies(role="child", then={"age": ("below 6", "from 6", "from 12")}),
        Below("child", "head", "age"),
    )
    ids = homes["household_id"].astype(str)
    truth = assemble("cps", 6, ids, people["household_id"], household, person)
    return Case(truth, Structure(roles, rules, empty=False), ("head", "spouse"))


def persons_of(units: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """A row for each head, spouse and dependent child of tax units, those of a household together."""
    order = np.argsort(units["household_id"].astype(str), kind="stable")
    ids = units["household_id"].astype(str)[order]
    first = np.concatenate([[True], ids[1:] != ids[:-1]])
    heads, spouses = units["age_head"][order], units["age_spouse"][order]
    rows: list[tuple[str, str, float, float]] = []
    columns = [units[name][order] for name in ("nu06", "nu13", "nu18", "e00200", "MARS")]
    for place, (home, is_first) in enumerate(zip(ids.tolist(), first.tolist(), strict=True)):
        six, thirteen, eighteen, wages, filing = (column[place] for column in columns)
        rows.append((home, "head" if is_first else "adult", heads[place], wages))
        if filing == 2:
            rows.append((home, "spouse" if is_first else "adult's spouse", spouses[place], 0))
        for age, number in ((3, six), (9, thirteen - six), (15, eighteen - thirteen)):
            rows += [(home, "child", age, 0)] * int(max(number, 0))
    names = ("household_id", "relation", "age", "wages")
    return {name: np.array([row[at] for row in rows]) for at, name in enumerate(names)}


CASES = {"oregon": oregon_case, "atlanta": atlanta_case, "cps": cps_case}


# -------------------------------------------------------------------- what households look like


def looks(codes: HouseholdCodes, case: Case) -> dict[str, Any]:
    """What makes households plausible, of real ones or drawn ones."""
    schema = replace(codes.schema, structure=case.structure)
    rows = Rows(schema, codes.starts, codes.household, codes.person)
    one, other = (holders(rows, case.structure.role(name)) for name in case.pair)
    both = (one >= 0) & (other >= 0)
    age = codes.person["age"].astype(int)
    ages = MIDDLES[age]
    found: dict[str, Any] = {
        "breaking_rules": int(any_broken(rows).sum()),
        "pairs": float(both.mean()),
        "correlation": float(np.corrcoef(ages[one[both]], ages[other[both]])[0, 1]) if both.sum() > 2 else None,
        "heads_under_16": float((age[one[one >= 0]] < 2).mean()),
    }
    if case.sex is not None:
        sex = codes.person[case.sex]
        found["one_sex"] = float((sex[one[both]] == sex[other[both]]).mean())
    young = np.bincount(rows.homes[age < 3], minlength=len(rows.starts) - 1)
    old = np.bincount(rows.homes[age >= 7], minlength=len(rows.starts) - 1)
    middle = np.bincount(rows.homes[(age >= 4) & (age < 7)], minlength=len(rows.starts) - 1)
    by_head = np.zeros(len(MIDDLES))
    there = one >= 0
    np.add.at(by_head, age[one[there]], young[there] - (age[one[there]] < 3))
    found["children_by_head"] = (by_head / len(young)).tolist()
    found["three_generations"] = float(((young > 0) & (middle > 0) & (old > 0)).mean())
    return found


def person_tables(codes: HouseholdCodes, case: Case, truth: HouseholdCodes) -> float:
    """The mean total variation of persons tables without household attributes."""
    tables = [table for table in all_sets(codes.schema, 2).marginals if table.of == "persons" and not table.household]
    apart = []
    for table in tables:
        one, other = (marginal_counts(each, table) / max(1, int(each.starts[-1])) for each in (codes, truth))
        apart.append(float(np.abs(one - other).sum()) / 2)
    return float(np.mean(apart))


def role_tables(codes: HouseholdCodes, case: Case, truth: HouseholdCodes) -> list[float]:
    """For each of the pair the mean total variation of the one-way tables of whoever is in the role."""
    schema = replace(codes.schema, structure=case.structure)
    known = [attribute.name for attribute in schema.person if attribute.name != case.structure.attribute]
    found = []
    for role in case.pair:
        apart = []
        for name in known:
            table = Marginal("households", roles=((role, name),))
            one, other = (marginal_counts(replace(each, schema=schema), table) / each.number for each in (codes, truth))
            apart.append(float(np.abs(one - other).sum()) / 2)
        found.append(float(np.mean(apart)))
    return found


def run(
    name: str, case: Case, epsilon: str, number: int, with_structure: bool, options: dict[str, Any]
) -> dict[str, Any]:
    """One run with roles and rules, or without."""
    truth = case.truth
    codes = truth.codes
    if with_structure:
        schema = replace(codes.schema, structure=case.structure)
        codes = HouseholdCodes(schema, codes.household, codes.person, codes.starts)
        truth = HouseholdTruth(truth.name, codes)
    workload, plain = all_sets(codes.schema), all_sets(case.truth.schema)
    budget = Budget(epsilon=epsilon, delta=f"1/{codes.number**2}")
    neighbours = HouseholdNeighbours(PrivacyUnit("one_group"), codes.schema.max_persons)
    chance = seeded("plausible", name, epsilon, number, with_structure)
    tables = PrivateTables(truth.households(), neighbours, budget, randomness=chance)
    started = time.perf_counter()
    fitted = method().run(tables, workload, options=options)
    seconds = time.perf_counter() - started
    source = SeededWords("plausible", name, epsilon, number)
    chunks = list(draw(fitted.model, codes.number, source=source))
    drawn = joined(chunks, case.truth)
    apart = np.concatenate(
        [
            np.abs(share - other).ravel()
            for share, other in zip(HouseholdTruth("", drawn).shares(plain), case.truth.shares(plain), strict=True)
        ]
    )
    redrawn = sum(chunk.redrawn for chunk in chunks)
    real, made = looks(case.truth.codes, case), looks(drawn, case)
    first, second = role_tables(drawn, case, case.truth.codes)
    children, wanted = np.array(made.pop("children_by_head")), np.array(real.pop("children_by_head"))
    return {
        "data": name,
        "epsilon": epsilon,
        "run": number,
        "structure": with_structure,
        "seconds": round(seconds, 1),
        "max_error": float(apart.max()),
        "mean_error": float(apart.mean()),
        "accepted": 1 - redrawn / codes.number,
        "first_role_apart": first,
        "second_role_apart": second,
        "correlation_apart": abs(made["correlation"] - real["correlation"]),
        "persons_apart": person_tables(drawn, case, case.truth.codes),
        "children_apart": float(np.abs(children - wanted).sum() / wanted.sum()),
        **{key: made[key] for key in made},
        **{f"true_{key}": real[key] for key in real},
    }


def joined(chunks: list[Any], truth: HouseholdTruth) -> HouseholdCodes:
    """Drawn chunks as one value."""
    schema = truth.schema
    household, person = (np.concatenate([getattr(chunk, side) for chunk in chunks]) for side in ("household", "person"))
    starts = np.concatenate([[0], np.cumsum(np.concatenate([chunk.sizes for chunk in chunks]), dtype=np.int64)])
    return HouseholdCodes(
        schema,
        {each.name: household[:, at] for at, each in enumerate(schema.household)},
        {each.name: person[:, at] for at, each in enumerate(schema.person)},
        starts,
    )


def read_rows(file: Path) -> list[dict[str, Any]]:
    """The lines of a file, if there is one."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def main() -> None:
    """Run what is asked for and append lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the public data; needed for runs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tables", action="store_true", help="show the lines of the file as tables")
    parser.add_argument("--sets", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--epsilon", nargs="+", default=["0.25", "1", "4"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--with", dest="with_structure", choices=["yes", "no", "both"], default="both")
    parser.add_argument("--options", type=json.loads, default={})
    given = parser.parse_args()
    if given.tables:
        print(markdown(read_rows(given.out)))
        return
    if given.data is None:
        parser.error("--data is needed for runs")
    chosen = {"yes": [True], "no": [False], "both": [False, True]}[given.with_structure]
    there = {(row["data"], row["epsilon"], row["run"], row["structure"]) for row in read_rows(given.out)}
    for number in range(given.runs):
        for name in given.sets:
            case = CASES[name](given.data)
            for epsilon in given.epsilon:
                for with_structure in chosen:
                    if (name, epsilon, number, with_structure) in there:
                        continue
                    row = run(name, case, epsilon, number, with_structure, given.options if with_structure else {})
                    with given.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row | ({"options": given.options} if with_structure else {})) + "\n")
                    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
