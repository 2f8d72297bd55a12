"""Inputs as a careless or hostile person writes them: each is taken, or refused with an error that is for people.

Specs, regions, tables and questions, made by changing good ones. Every input has a number, and the same seed and
number make the same input: `python -m tests.faults.fuzz COUNT SEED` prints what went wrong.
"""

from __future__ import annotations

import math
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import tallytree as tt
from tallytree.command.release_spec import ReleaseSpec
from tallytree.command.spec import is_for_synthesis
from tallytree.command.synthesis_spec import SynthesisSpec
from tallytree.mechanisms import prepare
from tallytree.publish.microdata.synthesis_run import choose_method
from tallytree.tables import GroupSizes, Sealed
from tests.faults.tally import Tally

SECONDS = 60  # after which an input counts as hung
MOST_EXAMPLES = 20

RELEASE_SPEC = """
[regions]
table = "regions.csv"
levels = ["state", "county"]

[data]
source = "people.csv"
group = "household"
region = "county"
max_size = 4
quantity = "n"
quantity_bound = 3

[privacy]
unit = "one_entity"
epsilon = 0.1
ledger = "ledger.db"

[release]
mechanism = "auto"
shares = { total = 1, state = 2, county = "1/3" }
title = "Homes"
intervals = "none"
confidence = 0.9

[plan]
prior = "households"
groups = 100
"""
SYNTHESIS_SPEC = """
[households]
source = "households.csv"
id = "home"

[persons]
source = "persons.csv"
order = "line"

[schema]
max_persons = 3
oversize = "drop"

[schema.household]
tenure = ["owned", "rented"]
county = { values = ["01", "02", "03"] }

[schema.person]
age = { cuts = [18, 65.5] }
sex = { values = ["f", "m"], missing = "unknown" }

[privacy]
unit = "one_group"
rho = 0.5
delta = 1e-6

[workload]
k = 2
sets = [["tenure", "age"]]

[synthesis]
method = "mwem"
options = { rounds = 3, totals_share = 0.1 }
households = 40
"""
REGIONS = "state,county\nA,01\nA,02\nB,03\n"
PEOPLE = "household,county,n\n1,01,1\n1,01,2\n2,02,1\n3,03,0\n"

TOML_VALUES = (
    "0", "-1", "1", "2.5", "nan", "inf", "-inf", "1e999999999", "1e-999999999", "9223372036854775808", "true", "false",
    "[]", "{}", "[[]]", "1979-05-27", "07:32:00", '""', '"x"', '"1/0"', '"1/3"', '"nan"', '"1e999999999"', '"."', '"/"',
    '"\\u0000"', '"\\u001b[31m"', '"[bold]"', '"one_group"', '"auto"', '"regions.csv"', '"people.csv"', "[1,2,3]",
    '["a",1]', "{a=1}", "[{a=[{}]}]", "[nan,nan]", '["state","state"]', '["county"]', "0x10", "1_000", '"*"', '"../x"',
)  # fmt: skip
CELLS: tuple[Any, ...] = (
    "", " ", "a", "b", "01", "1", "a/b", "a@county", "%2F", "=1+1", "\n", "\x00", "\x1b[31m", "\u202e", "[bold]",
    "ä" * 300, None, 1, -1, 1.5, math.nan, math.inf, 10**30, True, b"x", (), ("a",), "total", "state", "A", "\ud800",
    np.int64(7), object(),
)  # fmt: skip
SIZE_PARTS = (
    "1", "0", "2", "3", ">=2", "<=1", "<2", ">9", "1-2", "2-1", "3+", "7 or more", "-", "+", "≥2", "≤1", " ", "x",
    "1e9", "-1", "1.5", "٣", "²", "9" * 30, "9" * 5000, "1--2", ">=", "0x1", "all", "\x00", "=1", "1,", "!",
)  # fmt: skip


class Hung(BaseException):
    """An input took too long."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Stop what takes longer."""

    def stop(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -------------------------------------------------------------------- specs


def spec(random: Random, folder: Path) -> None:
    """A spec with some lines, values or characters changed; then everything that a command takes from it first."""
    text = _changed_spec(random)
    path = folder / "spec.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass") if random.random() < 0.95 else _noise(random, text))
    if is_for_synthesis(path):
        _use_synthesis_spec(SynthesisSpec.load(path))
    else:
        _use_release_spec(ReleaseSpec.load(path))


def _use_release_spec(loaded: ReleaseSpec) -> None:
    neighbours, budget = loaded.neighbours(), loaded.budget
    loaded.ledger_to_charge()
    assert loaded.ledger_in_words()
    regions = loaded.hierarchy()
    if regions is None:
        return
    loaded.prior(regions)
    wanted = loaded.release
    prepare(
        wanted.mechanism,
        wanted.options,
        neighbours=neighbours,
        hierarchy=regions,
        totals=None,
        budget=budget,
        shares=wanted.shares,
        priority=wanted.priority,
    )


def _use_synthesis_spec(loaded: SynthesisSpec) -> None:
    loaded.neighbours()
    assert loaded.budget
    loaded.ledger_to_charge()
    schema = loaded.public_schema()
    choose_method(schema, replace(loaded.settings(schema), regional=None))


def _changed_spec(random: Random) -> str:
    lines = random.choice((RELEASE_SPEC, RELEASE_SPEC, SYNTHESIS_SPEC)).splitlines()
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(lines))
        key, equals, _value = lines[place].partition("=")
        kind = random.random()
        if kind < 0.6 and equals:
            lines[place] = f"{key}= {_toml_value(random)}"
        elif kind < 0.7:
            del lines[place]
        elif kind < 0.75:
            lines.insert(place, random.choice(lines))
        elif kind < 0.85 and equals:
            lines[place] = lines[place].replace(key, _mangled(random, key), 1)
        elif kind < 0.9:
            lines.insert(
                place, random.choice(("[release]", "[[data]]", "[data.x]", "x", "= 1", "[", '"', "'''", "a.b.c = 1"))
            )
        else:
            lines[place] = _mangled(random, lines[place])
        if not lines:
            break
    return "\n".join(lines)


def _toml_value(random: Random) -> str:
    kind = random.random()
    if kind < 0.03:
        return "[" * (deep := random.choice((5, 50, 5000))) + "]" * deep
    if kind < 0.05:
        return "{a=" * (deep := random.choice((5, 50, 5000))) + "1" + "}" * deep
    if kind < 0.08:
        return random.choice(("9" * 5000, "0." + "1" * 5000, '"' + "x" * 100_000 + '"', "1e" + "9" * 50))
    return random.choice(TOML_VALUES)


def _mangled(random: Random, text: str) -> str:
    characters = list(text) or [" "]
    for _ in range(random.randint(1, 3)):
        characters[random.randrange(len(characters))] = random.choice("\x00\n\"'[]{}=#\\,.ax0é\ud800")
    return "".join(characters)


def _noise(random: Random, text: str) -> bytes:
    content = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(random.randint(1, 20)):
        content[random.randrange(len(content))] = random.randrange(256)
    return bytes(content)


# -------------------------------------------------------------------- regions


def regions(random: Random, folder: Path) -> None:
    """A table of regions with odd cells and columns, in one of the three forms."""
    rows = random.choice((0, 1, 2, 3, 8))
    if random.random() < 0.4:
        edges: Any = [tuple(_cell(random) for _ in range(random.choice((1, 2, 2, 2, 2, 2, 3)))) for _ in range(rows)]
        tt.Hierarchy.from_edges(edges, levels=random.choice((None, ["top", "leaf"], _some(random), "x")))
        return
    names = [random.choice(("state", "county", "town", _cell(random))) for _ in range(random.randint(0, 3))]
    table: Any = {}
    for name in names:
        try:
            table[name] = [_cell(random) for _ in range(rows if random.random() < 0.9 else random.randint(0, 5))]
        except TypeError:  # no key of a dict
            table = _cell(random)
            break
    levels = random.choice((names, ["state", "county"], ["state"], _some(random), _cell(random)))
    root = random.choice(("total", "total", _cell(random)))
    if random.random() < 0.5:
        made = tt.Hierarchy.from_levels(table, levels, root=root)
    else:
        how = {"leaf": random.choice(("county", _cell(random))), "name": random.choice((None, "town", _cell(random)))}
        made = tt.Hierarchy.from_regions(table, levels=levels, root=root, **how)
    assert tt.Hierarchy.from_layout(**made.to_json()).to_json() == made.to_json()


def _cell(random: Random) -> Any:
    return random.choice(CELLS)


def _some(random: Random) -> list[Any]:
    return [_cell(random) for _ in range(random.randint(0, 4))]


# -------------------------------------------------------------------- questions


@cache
def _released() -> tt.Release:
    tree = tt.Hierarchy.from_levels({"state": ["A", "A", "B"], "county": ["1", "2", "3"]}, ["state", "county"])
    counts = np.array([[3, 4, 0], [1, 0, 2], [9, 9, 9]])
    return tt.release(
        GroupSizes(tree, 3, Sealed(counts)), budget=tt.Budget(epsilon=1), unit="one_entity", intervals="none"
    )


def question(random: Random, folder: Path) -> None:
    """A question to a release: odd sizes, regions and levels."""
    made = _released()
    sizes: Any = ",".join(random.choice(SIZE_PARTS) for _ in range(random.choice((1, 1, 1, 2, 3))))
    if random.random() < 0.3:
        sizes = random.choice((None, _cell(random), _some(random), [1, 2], range(1, 3), 10**400))
    region: Any = random.choice((None, "A", "B", "1", "total", ["A", "3"], _cell(random), _some(random)))
    how = {"typical": False, "confidence": random.choice((None, 0.9, 0.9, 0.9, _cell(random)))}
    kind = random.choice(("estimate", "share", "mean_size", "ratio", "difference", "bands", "estimates"))
    if kind == "mean_size":
        made.mean_size(region, **how)
    elif kind in ("ratio", "difference"):
        getattr(made, kind)(region, random.choice(("B", _cell(random))), sizes, **how)
    elif kind == "bands":
        made.bands(region, sizes, confidence=how["confidence"])
    elif kind == "estimates":
        level = random.choice(("county", "state", _cell(random)))
        kind, q = random.choice(("sum", "share", "median", "quantile", "gini", "x", _cell(random))), None
        if kind in ("median", "quantile", "gini"):
            sizes, q = random.choice((None, sizes)), random.choice((None, 0.5, "1/3", _cell(random)))
        asked = tt.Query(kind, region, sizes, q=q)
        made.ask_each(asked, level=level, **how)
    else:
        getattr(made, kind)(region, sizes, **how)


# -------------------------------------------------------------------- tables


def table(random: Random, folder: Path) -> None:
    """Microdata, a codebook or an older table: odd bytes, columns, types and options."""
    kind = random.random()
    source = _csv_file(random, folder) if kind < 0.6 else _arrow(random)
    if kind < 0.1 or kind > 0.95:
        tt.schema_from_codebook(source, max_persons=random.choice((1, 3, _cell(random))))
        return
    if kind < 0.3:
        tt.Prior.of(source, groups=random.choice((None, 10, _cell(random))))
        return
    options: dict[str, Any] = {"group": "household", "region": "county", "max_size": 3, "hierarchy": _counties()}
    for _ in range(random.choice((0, 0, 1, 2))):
        name = random.choice(
            ("group", "region", "max_size", "hierarchy", "quantity", "quantity_bound", "entity", "name")
        )
        options[name] = random.choice(("n", "county", 3, 2**53, _cell(random), ["county"]))
    tt.read(source, **options)


@cache
def _counties() -> tt.Hierarchy:
    return tt.Hierarchy.from_levels({"county": ["01", "02", "03"]}, ["county"])


def _csv_file(random: Random, folder: Path) -> Path:
    path = folder / f"table{random.choice(('.csv', '.csv', '.csv', '.tsv', '.csv.gz', '.parquet', '.db', '.txt'))}"
    content = random.choice(
        (PEOPLE, PEOPLE, PEOPLE, "region,size,count\n01,1,3\n02,2,2\n", "attribute,level,value\na,person,x\n", "")
    )
    encoded = content.encode(random.choice(("utf-8", "utf-8", "utf-8", "utf-16", "utf-16-le", "utf-8-sig")))
    if random.random() < 0.6 and encoded:
        changed = bytearray(encoded)
        for _ in range(random.randint(1, 4)):
            changed[random.randrange(len(changed))] = random.choice(b'\x00\n\r",\xff\xe9;\t 1a')
        encoded = bytes(changed)
    path.write_bytes(encoded)
    return path


def _arrow(random: Random) -> Any:
    import pyarrow as pa

    rows = random.choice((0, 1, 3))
    types: tuple[Any, ...] = (
        pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.null(), pa.date32(), pa.list_(pa.int8()), pa.binary(),
        pa.decimal128(38, 3), pa.uint64(), pa.struct([("a", pa.int8())]), pa.dictionary(pa.int8(), pa.string()),
    )  # fmt: skip
    values: dict[Any, Any] = {
        pa.int64(): [1, None, -(2**63)],
        pa.string(): ["01", None, ""],
        pa.float64(): [1.0, math.nan, 1e300],
        pa.uint64(): [0, 2**64 - 1, None],
        pa.binary(): [b"\xff", b"", None],
    }
    names = [
        random.choice(("household", "household", "county", "county", "n", "size", "count", "", "\n")) for _ in range(3)
    ]
    kinds = [random.choice(types) for _ in names]
    columns = [pa.array(values.get(kind, [None] * 3)[:rows], kind) for kind in kinds]
    return pa.Table.from_arrays(columns, names=names)


# -------------------------------------------------------------------- all of them

KINDS: dict[str, tuple[Callable[[Random, Path], None], int]] = {  # of a hundred inputs, so many
    "spec": (spec, 40),
    "regions": (regions, 29),
    "question": (question, 29),
    "table": (table, 2),
}


def one(kind: str, number: int, seed: int, folder: Path) -> str | None:
    """What is wrong with how an input was met; None if nothing is."""
    random = Random(f"{kind} {number} {seed}")
    try:
        with limited(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            KINDS[kind][0](random, folder)
    except tt.TallytreeError:
        return None
    except Hung:
        return "hung"
    except Exception as error:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = "" if place is None else f" at {Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
        return f"{type(error).__name__}: {str(error)[:100]!r}{where}"
    return None


def run(count: int, seed: int) -> Tally:
    """So many inputs of all kinds."""
    kinds = [kind for kind, (_, share) in KINDS.items() for _ in range(share)]
    Random(seed).shuffle(kinds)
    wrong: list[str] = []
    hung = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "regions.csv").write_text(REGIONS, encoding="utf-8")
        (folder / "people.csv").write_text(PEOPLE, encoding="utf-8")
        for number in range(count):
            kind = kinds[number % len(kinds)]
            found = one(kind, number, seed, folder)
            if found is not None:
                hung += found == "hung"
                wrong.append(f"{kind} {number} of seed {seed}: {found}")
    return Tally("fuzzed inputs", count, tracebacks=len(wrong) - hung, hung=hung, examples=tuple(wrong[:MOST_EXAMPLES]))


if __name__ == "__main__":
    tally = run(int(sys.argv[1]), int(sys.argv[2]))
    print(tally)
