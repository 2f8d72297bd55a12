"""Specs whose tables are on an engine, through the command."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import duckdb
import pyarrow as pa
import pytest

from tallytree import SpecError
from tallytree.command.release_spec import ReleaseSpec
from tests.command.test_main import run as run_here
from tests.engines import PASSWORD
from tests.tables.conftest import ON_POSTGRES, ON_SPARK

PEOPLE = pa.table(
    {"person": range(60), "home": [n // 3 for n in range(60)], "county": [f"0{n // 30}" for n in range(60)]}
)
HOMES = pa.table({"home": range(25), "county": [f"0{n // 10 % 2}" for n in range(25)]})
REGIONS = pa.table({"state": ["A", "B"], "county": ["00", "01"]})
SECRET = "SECRET4711"


def spec(people, homes, regions, ledger="false"):
    return f"""
[regions]
table = {regions}
levels = ["state", "county"]

[data]
source = {people}
groups = {homes}
groups_are_public = true
group = "home"
region = "county"
max_size = 4

[privacy]
unit = "one_entity"
epsilon = 1
ledger = {ledger}
"""


def table(url, name):
    return f"{{ url = {json.dumps(url)}, table = {json.dumps(name)} }}"


@pytest.fixture
def typed(tmp_path):
    """The command in this process."""

    def typed(*words, code=0):
        written = run_here(*words, folder=tmp_path, code=code)
        assert PASSWORD not in written
        return written

    return typed


@pytest.fixture
def tallytree(tmp_path):
    """The command in a process of its own, which has no Spark session yet."""

    def run(*words, code=0):
        done = subprocess.run([sys.executable, "-m", "tallytree", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        assert PASSWORD not in done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_a_spec_of_a_duckdb_file_by_url(tmp_path):
    with duckdb.connect(str(tmp_path / "census.duckdb")) as connection:
        for name, rows in {"people": PEOPLE, "homes": HOMES, "regions": REGIONS}.items():
            connection.register("given", rows)
            connection.execute(f"create table {name} as from given")
    url = "duckdb://census.duckdb"
    path = tmp_path / "release.toml"
    path.write_text(spec(table(url, "people"), table(url, "homes"), table(url, "regions")))
    found = ReleaseSpec.load(path)
    assert found.name == "people"
    assert found.hierarchy().names == ("total", "A", "B", "00", "01")
    sizes = found.read()
    assert sizes.counts.open_at_the_privacy_border().tolist() == [[5, 0, 0, 10, 0], [0, 0, 0, 10, 0]]
    assert sizes.fingerprint() is not None
    assert found.public_regions()[1].tolist() == [15, 10]
    for regions, homes in (("people", "homes"), ("regions", "people")):
        path.write_text(spec(table(url, "people"), table(url, homes), table(url, regions)))
        with pytest.raises(SpecError, match=r"is the table of the microdata|groups is the microdata themselves"):
            ReleaseSpec.load(path).public_regions()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (f'"postgresql://me:{SECRET}@host/census"', "a URL goes into a table of its own"),
        (f'["postgresql://me:{SECRET}@host/census"]', "a URL goes into a table of its own"),
        (f'{{ url = "postgresql://me:{SECRET}@host/census", table = "people" }}', "has a password in it"),
        (f'{{ url = "postgresql://me:{SECRET}@host/census" }}', "has a password in it"),
        (f'{{ url = ["postgresql://me:{SECRET}@host/census"], table = "people" }}', "valid string"),
        (
            f'{{ url = "postgresql://me@host/census", table = "people", password = "{SECRET}" }}',
            "unknown key 'password'",
        ),
        (f'{{ ulr = "postgresql://me:{SECRET}@host/census", table = "people" }}', "did you mean 'url'"),
        ('{ url = "postgresql://me@host/census" }', "needs a table"),
        (f'"md:census?motherduck_token={SECRET}"', "it is a URL of MotherDuck"),
        (f'{{ url = "md:census?motherduck_token={SECRET}", table = "people" }}', "one of MotherDuck"),
        (f'{{ url = "sc://host:1/;token={SECRET}", table = "people" }}', "more than a host and a port"),
    ],
)
def test_a_secret_in_a_spec_is_refused_and_not_repeated(tmp_path, source, words):
    path = tmp_path / "release.toml"
    for written in (spec(source, '"homes.csv"', '"regions.csv"'), spec('"people.csv"', source, '"regions.csv"')):
        path.write_text(written)
        with pytest.raises(SpecError) as caught:
            ReleaseSpec.load(path)
        assert SECRET not in str(caught.value)
        assert words in str(caught.value) or "groups: input should be a valid string" in str(caught.value)


@pytest.mark.parametrize("_", [pytest.param("", marks=ON_POSTGRES)])
def test_a_release_from_postgres_leaves_no_password_and_no_address_anywhere(postgres, typed, tmp_path, _):
    there = [table(postgres.url, postgres.load(rows).table) for rows in (PEOPLE, HOMES, REGIONS)]
    written = spec(*there, ledger='"ledger.db"').replace("group =", 'name = "people"\ngroup =')
    (tmp_path / "release.toml").write_text(written)
    typed("validate", "release.toml")
    typed("ledger", "open", "release.toml", "--epsilon", "2")
    typed("release", "release.toml", "--out", "out")
    typed("verify", "out")
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name != "release.toml":
            content = path.read_bytes()
            assert PASSWORD.encode() not in content
            assert b"postgresql://" not in content, path


@pytest.mark.parametrize("engine", [pytest.param(name, marks=ON_SPARK) for name in ("spark", "connect")])
def test_a_release_from_spark_shows_nothing_of_sparks_and_leaves_no_address(engine, request, tallytree, tmp_path):
    there = request.getfixturevalue(engine)
    tables = [table(there.url, there.load(rows).table) for rows in (PEOPLE, HOMES, REGIONS)]
    written = spec(*tables, ledger='"ledger.db"').replace("group =", 'name = "people"\ngroup =')
    (tmp_path / "release.toml").write_text(written)
    tallytree("ledger", "open", "release.toml", "--epsilon", "2")
    commands = [["release", "release.toml", "--out", "out"]]
    if engine == "connect":  # sessions on a cluster take their time
        commands.append(["validate", "release.toml"])
    for words in commands:
        told = tallytree(*words)
        assert not any(word in told for word in ("WARN", "log4j", "org.apache", "jdk."))
    tallytree("verify", "out")
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name != "release.toml":
            content = path.read_bytes()
            assert PASSWORD.encode() not in content
            assert there.url.encode() not in content, path


@pytest.mark.parametrize("scheme", ["spark", "sc", "postgresql"])
def test_if_the_engine_has_ended_since_it_is_said_and_nothing_is_spent(scheme, typed, tmp_path):
    (tmp_path / "regions.csv").write_text("state,county\nA,00\nB,01\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody else listens there, and neither does this
        url = f"{scheme}://127.0.0.1:{taken.getsockname()[1]}"
        written = spec(table(url, "people"), table(url, "homes"), '"regions.csv"', ledger='"ledger.db"')
        (tmp_path / "release.toml").write_text(written.replace("group =", 'name = "people"\ngroup ='))
        typed("ledger", "open", "release.toml", "--epsilon", "2")
        assert "no server is listening at that address" in typed("release", "release.toml", "--out", "out", code=2)
    assert not (tmp_path / "out").exists()
    assert json.loads(typed("ledger", "show", "ledger.db", "--json"))[0]["spendings"] == []
