"""Small worlds in which the command is run and disturbed, and the judge who looks at them from outside.

A world is a folder with a spec, private rows, an open ledger and a file of the user's own. All runs are forks of one
process in which everything is imported and compiled, so that they take a fraction of a second.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.faults.supervisor import Ended, Operation, let_through, plain, supervised

OUT, KEPT, LEDGER, NOTES = "mine", "mine.partial", "ledger.db", "notes.txt"
OWN = "what the user wrote, and nobody else may touch\n"
First = Callable[[tuple[str, ...]], Ended]
NOTHING_SPENT = re.compile(r"nothing was spent|spent nothing", re.IGNORECASE)

RELEASE = """
[regions]
table = "regions.csv"
levels = ["state", "county"]

[data]
source = "people.csv"
name = "people"
group = "household"
region = "county"
max_size = 4

[privacy]
unit = "one_entity"
epsilon = 0.1
ledger = "ledger.db"

[release]
intervals = "guaranteed"
"""
SYNTHESIS = """
[households]
source = "households.csv"
id = "home"
name = "homes"

[persons]
source = "persons.csv"
order = "line"

[schema]
max_persons = 3
oversize = "drop"

[schema.household]
tenure = ["owned", "rented"]

[schema.person]
sex = { values = ["f", "m"], missing = "unknown" }

[privacy]
unit = "one_group"
rho = 0.5
delta = 1e-6
ledger = "ledger.db"

[synthesis]
method = "mwem"
options = { rounds = 2, totals_share = 0.1, empty = true }
households = 20
"""

COUNTIES = ("A1", "A2", "B1", "B2")
TABLE = """
[regions]
table = "regions.csv"
levels = ["nation", "state", "county"]

[data]
source = "people.csv"
group = "home"
region = "county"
max_size = 3

[privacy]
unit = "one_group"
rho = 0.1
ledger = false

[release]
intervals = "none"
"""
COUNTRY = """
[households]
source = "households.csv"
id = "home"
name = "homes"

[persons]
source = "persons.csv"

[schema]
max_persons = 3

[schema.household]
tenure = ["owned", "rented"]
county = ["A1", "A2", "B1", "B2"]

[schema.person]
sex = ["f", "m"]

[privacy]
unit = "one_group"
rho = 0.5
delta = 1e-6
ledger = "ledger.db"

[agreement]
release = "table"
region = "county"

[regional]
share = 0.25
tables = [["tenure"]]

[synthesis]
options = { rounds = 2, components = 4, steps = 5 }
"""


@dataclass(frozen=True)
class World:
    """How a directory is made: the command's word, its spec and data, and what the account may spend."""

    verb: str
    spec: str
    files: tuple[tuple[str, str], ...]
    total: tuple[str, ...]  # enough for five of them
    before: tuple[tuple[str, ...], ...] = ()  # commands that make what the run needs
    made: tuple[str, ...] = ()  # what they leave
    warm: bool = True  # may a process that has run it be forked? Not with JAX in it: its threads do not go along
    cells: int | None = None  # from how many on a release is partitioned, where that is to be lowered

    def words(self, *more: str, out: str = OUT) -> tuple[str, ...]:
        return self.verb, "spec.toml", "--out", out, *more


WORLDS = {
    "release": World(
        "release",
        RELEASE,
        (
            ("regions.csv", "state,county\nA,01\nA,02\nB,03\n"),
            ("people.csv", "household,county\n1,01\n1,01\n2,02\n3,03\n"),
        ),
        ("--epsilon", "0.5"),
    ),
    "synthesis": World(
        "synthesize",
        SYNTHESIS,
        (
            ("households.csv", "home,tenure\n" + "".join(f"{at},{('owned', 'rented')[at % 2]}\n" for at in range(30))),
            (
                "persons.csv",
                "home,line,sex\n"
                + "".join(
                    f"{at},{line},{('f', 'm', '')[(at + line) % 3]}\n" for at in range(30) for line in range(at % 4)
                ),
            ),
        ),
        ("--rho", "2.5"),
    ),
    "large release": World(
        "release",
        RELEASE.replace('["state", "county"]', '["state", "county", "block"]').replace(
            '"county"\nmax', '"block"\ngroups = "homes.csv"\nmax'
        ),
        (
            (
                "regions.csv",
                "state,county,block\n" + "".join(f"{at[0]},{at},{at}{block}\n" for at in COUNTIES for block in "xyz"),
            ),
            ("people.csv", "household\n" + "".join(f"{at % 40}\n" for at in range(90))),
            (
                "homes.csv",
                "household,block\n" + "".join(f"{at},{COUNTIES[at % 4]}{'xyz'[at % 3]}\n" for at in range(50)),
            ),
        ),
        ("--epsilon", "0.5"),
        cells=20,
    ),
    "country": World(
        "synthesize",
        COUNTRY,
        (
            ("regions.csv", "nation,state,county\n" + "".join(f"T,{at[0]},{at}\n" for at in COUNTIES)),
            ("table.toml", TABLE),
            ("people.csv", "home,county\n" + "".join(f"{at},{COUNTIES[at % 4]}\n" * (at % 3 + 1) for at in range(60))),
            (
                "households.csv",
                "home,tenure,county\n"
                + "".join(f"{at},{('owned', 'rented')[at % 2]},{COUNTIES[at % 4]}\n" for at in range(60)),
            ),
            (
                "persons.csv",
                "home,sex\n"
                + "".join(f"{at},{'fm'[(at + line) % 2]}\n" for at in range(60) for line in range(at % 3 + 1)),
            ),
        ),
        ("--rho", "20"),
        before=(("release", "table.toml", "--out", "table", "--no-report"),),
        made=("table",),
        warm=False,
    ),
}
SMALL = ("release", "synthesis")  # of which the quick tests take a few points


def typed(*words: str) -> Callable[[], None]:
    """The command, as if these words were typed."""

    def run() -> None:
        from tallytree.command.main import main

        sys.argv = ["tallytree", *words]
        main()

    return run


@cache
def template(world: World) -> Path:
    """A folder to copy, made once in this process; what runs need is loaded and compiled on the way."""
    folder = Path(tempfile.mkdtemp(prefix=f"tallytree-{world.verb}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # forks end without it
    for name, text in (("spec.toml", world.spec), *world.files, (NOTES, OWN)):
        (folder / name).write_text(text)
    (folder / "tmp").mkdir()
    for words in world.before:
        made = plain(typed(*words), folder)
        assert made.code == 0, made.shown
    opened = plain(typed("ledger", "open", "spec.toml", *world.total), folder)
    assert opened.code == 0, opened.shown
    if not world.warm:
        return folder
    with tempfile.TemporaryDirectory() as warm:
        _warmed(world, Path(shutil.copytree(folder, Path(warm) / "world")))
    return folder


def _warmed(world: World, folder: Path) -> None:
    """Run everything once in this very process, so that its forks find it loaded."""
    before, arguments = os.getcwd(), sys.argv
    os.chdir(folder)
    try:
        for words in (world.words(), ("verify", OUT)):
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(SystemExit):
                typed(*words)()
        assert (folder / OUT).exists()
    finally:
        os.chdir(before)
        sys.argv = arguments


@contextmanager
def fresh(world: World) -> Iterator[Path]:
    """A copy of a world to disturb, which is removed afterwards."""
    from tallytree.publish.release import table_layout as partition

    usual = partition.SMALL
    partition.SMALL = usual if world.cells is None else world.cells
    try:
        with tempfile.TemporaryDirectory(prefix="tallytree-faults-", ignore_cleanup_errors=True) as above:
            yield Path(shutil.copytree(template(world), Path(above) / "world")).resolve()
    finally:
        partition.SMALL = usual


@cache
def operations_of(world: World) -> tuple[Operation, ...]:
    """The changes to files that an undisturbed run makes."""
    with fresh(world) as folder:
        ended = supervised(typed(*world.words()), folder, let_through)
    assert ended.code == 0, ended.shown
    return ended.operations


# -------------------------------------------------------------------- the judge


@dataclass(frozen=True)
class State:
    """What a world holds, as a new process finds it."""

    ids: tuple[str | None, ...]  # of what was charged: the release's id, where it is recorded
    out: str  # "", "sound", or what is wrong with it
    out_id: str | None
    paid: tuple[str, ...]  # digests of measurements that are kept, or published
    kept: bool
    trouble: str = ""  # the ledger cannot be read

    @property
    def done(self) -> bool:
        return self.out == "sound" and self.ids == (self.out_id,) and not self.kept

    @property
    def charges(self) -> int:
        return len(self.ids)


def looked_at(folder: Path) -> State:
    """Look at a world from a new process, which changes nothing."""
    values = plainly(lambda: _state(folder), folder)
    return State(
        tuple(values["ids"]), values["out"], values["out_id"], tuple(values["paid"]), values["kept"], values["trouble"]
    )


def plainly(work: Callable[[], Any], folder: Path) -> Any:
    """What `work` gives in a process of its own."""
    ended = plain(lambda: print("\n" + json.dumps(work())), folder)
    if ended.code:
        raise RuntimeError(f"the judge failed: {ended.shown}")
    return json.loads(ended.shown.strip().splitlines()[-1])


def _state(folder: Path) -> dict[str, object]:
    from tallytree import verify
    from tallytree.core.errors import TallytreeError
    from tallytree.privacy.ledger import Ledger

    ids: list[str | None] = []
    trouble, out, out_id = "", "", None
    try:
        charged = [each for account in Ledger(folder / LEDGER).accounts() for each in account.spendings]
        agreed = [each for each in charged if str(each.token).startswith("agreement with ")]
        ids = [each.release_id for each in charged if each not in agreed or each != agreed[0]]
    except TallytreeError as error:
        trouble = str(error)
    target, kept = folder / OUT, folder / KEPT
    if target.is_dir():
        found = verify(target)
        out, out_id = ("sound" if found.ok else f"unsound: {found.faults}"), found.release_id
    elif target.exists():
        out = "own" if target.read_text() == OWN else "changed"
    paid = _paid(kept) if kept.is_dir() else _paid(target) if out == "sound" else []
    return {"ids": ids, "out": out, "out_id": out_id, "paid": paid, "kept": kept.exists(), "trouble": trouble}


def _paid(folder: Path) -> list[str]:
    """Digests of what was measured with noise, in order: of a release, or of a synthesis' rounds."""
    import pyarrow.parquet as pq

    from tallytree.publish.release.measurements_file import load_measurements

    rounds, file = folder / "journal.jsonl", folder / "measurements.parquet"
    if rounds.exists() and b'"rows"' in rounds.read_bytes():
        lines = [json.loads(line) for line in rounds.read_bytes().split(b"\n")[:-1]]
        asked = {line["reserved"]: line["request"] for line in lines if "reserved" in line}
        # The total number of persons is measured too, and is in no file but the privacy statement.
        return [
            _digest(line["result"]["values"])
            for line in lines
            if "recorded" in line and asked[line["recorded"]].get("cells") is not None
        ]
    if not file.exists():
        return []
    if (folder / "persons.parquet").exists():
        table = pq.read_table(file)
        values: dict[int, list[int]] = {}
        for place, value in zip(table["measurement"].to_pylist(), table["value"].to_pylist(), strict=True):
            values.setdefault(place, []).append(value)
        return [_digest(values[place]) for place in sorted(values)]
    return [_digest(each.values.ravel().tolist()) for each in load_measurements(file).measured]


def _digest(values: list[int]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


# -------------------------------------------------------------------- going on


def printed_commands(shown: str) -> list[tuple[str, ...]]:
    """The commands with which a message says one can go on."""
    found = []
    for line in re.findall(r"tallytree ((?:release|synthesize|ledger record)\b[^\n`]*)", shown):
        try:
            words = tuple(shlex.split(line.strip().rstrip(".")))
        except ValueError:
            continue
        if "--resume" in words or "record" in words:
            found.append(words)
    return found


def way_on(world: World, state: State, shown: str, folder: Path) -> list[tuple[str, ...]]:
    """What a user would type next: what the last message says, or what the manual does."""
    ways = printed_commands(shown)
    if state.kept:
        ways.append(world.words("--resume"))
    if state.out == "sound":
        ways.append(("ledger", "record", OUT, "--ledger", LEDGER))
    if not state.charges and not state.out:
        ways.append(world.words())
    return ways


def gone_on(world: World, folder: Path, shown: str, first: First | None = None) -> list[Ended]:
    """Go on as a user would until the release is there, or nothing is left to try; `first` runs the first command."""
    tried: set[tuple[State, tuple[str, ...]]] = set()
    ends: list[Ended] = []
    while not (state := looked_at(folder)).done and len(ends) < 8:
        ways = [way for way in way_on(world, state, shown, folder) if (state, way) not in tried]
        if not ways:
            break
        ended = first(ways[0]) if first is not None and not ends else plain(typed(*ways[0]), folder)
        if ends:  # the first was disturbed, perhaps: who was stopped tries the same again
            tried.add((state, ways[0]))
        ends.append(ended)
        shown = ended.shown
    return ends


def extra(world: World, folder: Path) -> list[str]:
    """What is ours in a world, and belongs nowhere.

    A directory for an engine that nothing was written to may stay, and so may the empty file of a claim that nobody
    holds: nothing can remove it after a kill at the very last change.
    """
    named = {
        "spec.toml",
        NOTES,
        "tmp",
        OUT,
        LEDGER,
        f"{LEDGER}.anchor",
        *(name for name, _ in world.files),
        *world.made,
    }
    spilt = [path for path in (folder / "tmp").glob("tallytree*") if not path.is_dir() or _names(path) - {"new"}]
    claim = folder / f".{OUT}.claim"
    if claim.is_file() and claim.stat().st_size == 0:
        named.add(claim.name)
    return sorted(_names(folder) - named) + [f"tmp/{path.name}" for path in spilt]


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
