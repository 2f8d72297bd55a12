"""The base install does without the extras: nothing but its own requirements and theirs can be imported here."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

REFUSE_THE_REST = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

REFUSED = set(REFUSED_HERE)
sys.meta_path.insert(0, Refuse())
"""


def plain(requirement: str) -> str:
    """The name of a distribution in a requirement, as registries compare it."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def closure(wanted: set[str]) -> set[str]:
    """Distributions with what they require, extras left out."""
    found: set[str] = set()
    while wanted:
        name = wanted.pop()
        found.add(name)
        try:
            lines = requires(name) or []
        except PackageNotFoundError:  # for another system or version of Python
            continue
        wanted |= {plain(line) for line in lines if "extra ==" not in line} - found
    return found


BASE = closure({plain(line) for line in PROJECT["dependencies"]})
REFUSED = sorted(
    module
    for module, owners in packages_distributions().items()
    if not {plain(owner) for owner in owners} & (BASE | {"tallytree"}) and not module.startswith("_")
)


def run(script: str, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess:
    whole = REFUSE_THE_REST.replace("REFUSED_HERE", repr(REFUSED)) + script
    return subprocess.run([sys.executable, "-c", whole, *arguments], capture_output=True, text=True, cwd=tmp_path)


def test_the_extras_are_refused_here_and_the_base_is_not():
    assert {"ibis", "opendp", "pandas", "sqlglot", "psycopg", "pyspark", "altair", "jax"} <= set(REFUSED)
    assert not {"duckdb", "numba", "numpy", "pyarrow", "pydantic", "typer"} & set(REFUSED)


def test_every_extra_is_part_of_dev():
    (line,) = (line for line in PROJECT["optional-dependencies"]["dev"] if line.startswith("tallytree["))
    assert line == f"tallytree[{','.join(sorted(set(PROJECT['optional-dependencies']) - {'dev'}))}]"


def test_read_release_and_verify_need_the_base_alone(tmp_path):
    script = """
import duckdb, pyarrow as pa
import tallytree as tt
from pyarrow import csv, parquet

regions = tt.Hierarchy.from_levels({"county": ["1", "2"]}, ["county"])
people = pa.table({"person": [1, 2, 3], "home": [1, 1, 2], "county": ["1", "1", "2"], "tenure": ["a", "a", "b"]})
csv.write_csv(people, "people.csv")
parquet.write_table(people, "people.parquet")
duckdb.connect("people.duckdb").execute("create table people as from 'people.parquet'").close()
options = {"group": "home", "region": "county", "hierarchy": regions, "max_size": 3}
for source in ("people.csv", "people.parquet", "people.duckdb", people):
    by = {"by": {"tenure": ["a", "b"]}, "decided_by": "group"}
    tt.read(source, **options, **by, entity="person", rows_per_entity=2)
made = tt.release(tt.read("people.csv", **options), budget={"epsilon": 1}, unit="one_entity")
made.save("out")
assert tt.verify("out").ok
try:
    tt.read(pa.table({"home": [1, None], "county": ["3", "1"]}), **options)
except tt.DataError as error:
    assert len(error.problems) == 2
else:
    raise AssertionError
"""
    done = run(script, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_synthesis_and_its_verification_need_the_base_alone(tmp_path):
    script = """
import pyarrow as pa
import tallytree as tt
from threadpoolctl import threadpool_info, threadpool_limits

def threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

homes = pa.table({"home": list(range(40)), "tenure": ["a", "b"] * 20})
people = pa.table({"home": [home // 2 for home in range(80)], "who": ["h", "o"] * 40, "age": ["x", "x", "y", "z"] * 20})
structure = tt.Structure((tt.Role("head", "exactly one", attribute="who", values=("h",)),), empty=False)
person = (tt.Attribute("who", ("h", "o")), tt.Attribute("age", ("x", "y", "z")))
schema = tt.Schema((tt.Attribute("tenure", ("a", "b")),), person, 3, structure)
read = tt.read_households(homes, people, schema=schema, household_id="home", name="homes")
threadpool_limits(limits=2, user_api="blas")
during = set()
options = {"rounds": 2, "components": 8, "steps": 5}
made = tt.synthesize(read, budget={"rho": 1}, options=options, progress=lambda stage: during.update(threads()))
assert (during, threads()) == ({1}, {2})
made.save("out")
assert tt.verify("out").ok
"""
    done = run(script, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        ("tt.release(sizes, budget={'epsilon': 1}, unit='one_entity', noise_source='opendp')", "opendp"),
        ("tt.read(tt.Source('postgresql://host/census', 'people'), **options)", "engines"),
        ("tt.read(tt.Source('spark://host:7077', 'people'), **options)", "engines"),
        *((f"open('x.{end}', 'w').close(); tt.read('x.{end}', **options)", "files") for end in ("xlsx", "dta", "sav")),
    ],
)
def test_an_extra_that_is_missing_is_named(tmp_path, call, extra):
    script = f"""
import tallytree as tt
import pyarrow as pa

options = {{"group": "home", "region": "county", "max_size": 3}}
options["hierarchy"] = tt.Hierarchy.from_levels({{"county": ["1", "2"]}}, ["county"])
sizes = tt.read(pa.table({{"home": [1], "county": ["1"]}}), **options)
try:
    {call}
except tt.SpecError as error:
    print(error)
"""
    done = run(script, tmp_path)
    assert f"pip install 'tallytree[{extra}]'" in done.stdout, done.stderr
