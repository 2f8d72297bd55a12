"""Releases and ledgers that were changed: one field, cell, row or byte at a time, and `verify` must notice.

A *forger* mends all digests afterwards, so that only the meaning can betray the change. It is found, or it is in a
place that `verify` lists as one that no reader can check. *Damage* changes bytes and mends digests too, so that
everything is read: whatever comes of it, there is an end and no error but our own.
"""

from __future__ import annotations

import copy
import csv
import hashlib
import json
import random
import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import tallytree.publish.release.table_layout as partition
from tallytree import Budget, Ledger, Release, one_entity, one_group, release, verify
from tallytree.core.errors import TallytreeError
from tallytree.privacy.ledger import Expense
from tallytree.privacy.neighbours import Neighbours
from tallytree.publish.verify import Verification
from tests.faults.tally import Tally
from tests.oracles.example import made_up

SECONDS = 60  # until something that runs counts as hung
MOST_EXAMPLES = 12
SETTLED = {"methods": ["sorted-sizes", "cumulative", "sorted-sizes"], "totals_share": "1/4", "largest_share": "1/8"}
BANDED = {"leaves": "lists", "bands": [{"to": 2, "shares": [1, 1, 3]}, {"shares": [4, 0, 1], "leaves": "at_least"}]}


class Hung(BaseException):
    """Raised by the alarm; nothing that catches errors catches it."""


class Changed(Exception):
    """The change that was drawn changes nothing here; draw another."""


@contextmanager
def alarm(seconds: int = SECONDS) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# -------------------------------------------------------------------- what is changed


@cache
def originals() -> dict[str, Path]:
    """Small releases that differ in mechanism, unit, totals, currency and intervals, one of each kind."""
    home = Path(tempfile.mkdtemp(prefix="tallytree-mutations-"))
    private, public = made_up(11, public_totals=False), made_up(11, public_totals=True)
    truncated = made_up(11, public_totals=False, rows_per_entity=2, entity_column=True, rows_were_bounded=True)
    made: dict[str, dict[str, Any]] = {
        "private": {"group_sizes": private, "budget": Budget(epsilon=1), "unit": one_entity()},
        "public": {"group_sizes": public, "budget": Budget(rho="0.5", delta="1e-6"), "unit": one_group()},
        "settled": {
            "group_sizes": private,
            "budget": Budget(epsilon=8),
            "unit": one_entity(),
            "mechanism": "coc-matching",
            "options": SETTLED,
        },
        "sparse": {"group_sizes": public, "budget": Budget(epsilon=1, delta="1e-6"), "unit": one_entity()},
        "bands": {
            "group_sizes": public,
            "budget": Budget(epsilon=1),
            "unit": one_entity(),
            "mechanism": "tallytree",
            "options": BANDED,
            "intervals": "none",
        },
        "truncated": {
            "group_sizes": truncated,
            "budget": Budget(epsilon=2),
            "unit": one_entity(),
            "intervals": "guaranteed",
            "mechanism": "pgsr-hierarchical-dp",
        },
    }
    for name, how in made.items():
        with zeros_of(name):
            release(**how, title=f"Made up: {name}").save(home / name)
    return {name: home / name for name in made}


@contextmanager
def zeros_of(name: str) -> Iterator[None]:
    """The release `sparse` is taken for a large one, with several parts and without zero cells."""
    cells = partition.SMALL
    partition.SMALL = 10 if name == "sparse" else cells
    try:
        yield
    finally:
        partition.SMALL = cells


def checked(name: str, folder: Path) -> Verification:
    """The outcome of `verify` for a copy of the original of this name."""
    with zeros_of(name):
        return verify(folder)


def mend(folder: Path) -> None:
    """What a forger does last: bring the manifest up to date."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    for name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    path.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# -------------------------------------------------------------------- one change of a value


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


def other(value: Any, draw: random.Random) -> Any:
    """Another value than this one, near or far."""
    near: list[Any]
    if isinstance(value, bool):
        near = [not value, None]
    elif isinstance(value, int):
        near = [value + 1, value - 1, -value - 1, value * 2 + 1, 10**10, str(value), float(value) + 0.5, None]
    elif isinstance(value, float):
        near = [value * 1.01 + 1e-9, -value - 1, value + 1, 1e300, str(value), None]
    elif isinstance(value, str):
        cut = draw.randrange(len(value) + 1)
        near = [
            value[:cut] + draw.choice("x1 /.") + value[cut:],
            value[1:],
            value + ".",
            "1/0",
            "1e999999999",
            "",
            None,
        ]
        if value.isascii() and value.isdigit():
            near += [str(int(value) + 1)] * 3
    elif isinstance(value, list):
        near = [[*value, copy.deepcopy(draw.choice(value)) if value else "more"], value[1:], value[::-1], [], None]
    elif isinstance(value, dict):
        near = [{**value, "more": 1}, dict(list(value.items())[1:]), {}, None]
    else:
        near = [0, 1, "none", "1", [], {}]
    return draw.choice(near)


def changed(value: Any, draw: random.Random, *, below: tuple[Any, ...] = ()) -> tuple[Any, str]:
    """The value with one thing in it changed, added or left out, and the path of that thing."""
    value = copy.deepcopy(value)
    path = draw.choice([each for each in places(value) if each[: len(below)] == below])
    inside = value
    for key in path[:-1]:
        inside = inside[key]
    before = inside[path[-1]] if path else value
    after = other(before, draw)
    if json.dumps(before) == json.dumps(after):
        raise Changed
    if not path:
        return after, ""
    if draw.random() < 0.15:
        del inside[path[-1]]
    else:
        inside[path[-1]] = after
    return value, ".".join(map(str, path))


# -------------------------------------------------------------------- one change of a folder


def _json(name: str) -> Callable[[Path, random.Random], str]:
    def change(folder: Path, draw: random.Random) -> str:
        value, path = changed(json.loads((folder / name).read_text(encoding="utf-8")), draw)
        (folder / name).write_text(json.dumps(value, indent=2, ensure_ascii=False), encoding="utf-8")
        return f"{name}: {path}"

    return change


def _manifest(folder: Path, draw: random.Random) -> str:
    """Other keys of the manifest: what it lists is mended anyway."""
    path = folder / "manifest.json"
    value = json.loads(path.read_text(encoding="utf-8"))
    kind = draw.choice(["key", "added", "left out"])
    if kind == "key":
        value["more"] = 1
    elif kind == "added":
        (folder / "more.txt").write_text("more")
        value["files"]["more.txt"] = ""
    else:
        value["files"].pop(draw.choice(list(value["files"])))
    path.write_text(json.dumps(value), encoding="utf-8")
    return f"manifest.json: {kind}"


def _facts(folder: Path, draw: random.Random) -> str:
    """What measurements.parquet says of itself."""
    path = folder / "measurements.parquet"
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        groups = [file.read_row_group(group) for group in range(file.num_row_groups)]
    value, where = changed(json.loads(schema.metadata[b"tallytree"]), draw)
    schema = schema.with_metadata({"tallytree": json.dumps(value)})
    with pq.ParquetWriter(path, schema) as writer:
        for rows in groups:
            writer.write_table(rows.cast(schema), row_group_size=rows.num_rows)
    return f"measurements.parquet: {where}"


def _noisy_value(folder: Path, draw: random.Random) -> str:
    path = folder / "measurements.parquet"
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        groups = [file.read_row_group(group) for group in range(file.num_row_groups)]
    group = draw.randrange(len(groups))
    groups[group], where = _other_cell(groups[group], draw)
    with pq.ParquetWriter(path, schema) as writer:
        for rows in groups:
            writer.write_table(rows, row_group_size=rows.num_rows)
    return f"measurements.parquet: rows.{where}"


def _other_cell(table: Any, draw: random.Random) -> tuple[Any, str]:
    rows, row = table.to_pylist(), draw.randrange(table.num_rows)
    column = draw.choice(table.column_names)
    before = rows[row][column]
    if isinstance(before, list):
        place = draw.randrange(len(before))
        after = [*before[:place], before[place] + draw.choice([1, -1, 1000]), *before[place + 1 :]]
    elif isinstance(before, int):
        after = draw.choice([before + 1, before - 1, before + 1000, -before, None, 2**31 - 1])
    elif before is None:
        after = "more" if table.schema.field(column).type == pa.string() else 3
    else:
        after = draw.choice([before + "x", "", None, rows[draw.randrange(len(rows))][column]])
    if after == before:
        raise Changed
    rows[row][column] = after
    return pa.Table.from_pylist(rows, schema=table.schema), column


def _counts(folder: Path, draw: random.Random) -> str:
    """One cell, or the rows, of the table of counts: in one of its files or in both."""
    path = draw.choice(sorted([*folder.glob("counts.parquet"), *folder.glob("counts/**/*.parquet")]))
    schema = pq.read_schema(path)
    table = pq.read_table(path, partitioning=None)
    kind = draw.choice(["cell", "cell", "cell", "swapped", "dropped", "doubled", "shuffled", "description"])
    order = list(range(table.num_rows))
    row, second = draw.randrange(len(order)), draw.randrange(len(order))
    where = kind
    if kind == "cell":
        table, where = _other_cell(table, draw)
    elif kind == "description":
        field = draw.randrange(len(schema))
        told = dict(schema.field(field).metadata or {b"description": b"none"})
        name = draw.choice(list(told))
        told[name] += b"x"
        schema = schema.set(field, schema.field(field).with_metadata(told))
    else:
        if kind == "swapped":
            order[row], order[second] = order[second], order[row]
        elif kind == "dropped":
            del order[row]
        elif kind == "doubled":
            order.insert(second, order[row])
        else:
            draw.shuffle(order)
        if order == list(range(table.num_rows)):
            raise Changed
        table = table.take(order)
    beside = (folder / "counts.csv").exists() and kind != "description"
    written = draw.choice(["both", "both", "csv", "parquet"]) if beside else "parquet"
    if written != "csv":
        pq.write_table(table.cast(schema), path)
    if written != "parquet":
        pa.csv.write_csv(table, folder / "counts.csv")
    return f"counts ({written}): {where}"


def _csv_cell(name: str) -> Callable[[Path, random.Random], str]:
    def change(folder: Path, draw: random.Random) -> str:
        if not (folder / name).exists():
            raise Changed
        with (folder / name).open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        kind = draw.choice(["cell", "cell", "cell", "swapped", "dropped", "doubled"])
        row, second = draw.randrange(1, len(rows)), draw.randrange(1, len(rows))
        where = kind
        if kind == "cell":
            column = draw.randrange(len(rows[0]))
            where, before = rows[0][column], rows[row][column]
            rows[row][column] = other(before, draw) or ""
            if rows[row][column] == before:
                raise Changed
        elif kind == "swapped":
            if rows[row] == rows[second]:
                raise Changed
            rows[row], rows[second] = rows[second], rows[row]
        elif kind == "dropped":
            del rows[row]
        else:
            rows.insert(second, rows[row])
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
        return f"{name}: {where}"

    return change


FORGERIES: tuple[Callable[[Path, random.Random], str], ...] = (
    *[_json("privacy.json")] * 6,
    *[_json("datapackage.json")] * 4,
    *[_facts] * 4,
    _manifest,
    _noisy_value,
    *[_counts] * 4,
    *[_csv_cell("regions.csv")] * 2,
    _csv_cell("counts.csv"),
)


# -------------------------------------------------------------------- runs


def forgeries(count: int, seed: int) -> Tally:
    """One change with mended digests each; `accepted` are those that pass and are not listed as uncheckable."""
    found = _Found()
    for number, name, folder, draw in _copies(count, seed):
        while True:
            try:
                where = draw.choice(FORGERIES)(folder, draw)
                break
            except (Changed, pa.ArrowException):
                shutil.rmtree(folder)
                shutil.copytree(originals()[name], folder)
        mend_if_possible(folder)
        outcome = found.judge(f"{name} {number}, {where}", lambda name=name, folder=folder: checked(name, folder))
        if outcome is not None and outcome.ok and not any(where == each.place for each in outcome.assumptions):
            found.accepted.append(f"{name} {number}, {where}")
        found.judge(f"{name} {number}, load after {where}", lambda folder=folder: Release.load(folder))
    return found.tally("forged releases", count)


def damages(count: int, seed: int) -> Tally:
    """Bytes changed, cut out or put in, digests mended: an outcome or one of our errors, and soon."""
    found = _Found()
    for number, name, folder, draw in _copies(count, seed):
        path = draw.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
        path.write_bytes(damaged(path.read_bytes(), draw))
        if path.name != "manifest.json":
            mend_if_possible(folder)
        what = f"{name} {number}, bytes of {path.name}"
        found.judge(what, lambda name=name, folder=folder: checked(name, folder))
        found.judge(f"{what}, load", lambda folder=folder: Release.load(folder))
    return found.tally("damaged releases", count)


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Bytes with a few of them changed, cut out or put in."""
    start = draw.randrange(max(1, len(content)))
    length = draw.choice([1, 1, 1, 2, 8, 64, 1000])
    kind = draw.choice(["flip", "flip", "random", "cut", "end", "insert", "repeat"])
    if kind == "flip":
        return content[:start] + bytes([content[start] ^ 1 << draw.randrange(8)]) + content[start + 1 :]
    if kind == "random":
        return content[:start] + draw.randbytes(length) + content[start + length :]
    if kind == "cut":
        return content[:start] + content[start + length :]
    if kind == "end":
        return content[:start]
    if kind == "insert":
        return content[:start] + draw.randbytes(length) + content[start:]
    return content[:start] + content[max(0, start - length) :]


def ledgers(count: int, seed: int) -> Tally:
    """Ledgers and anchors with bytes changed: what is read is what was written, or it is refused."""
    found, original = _Found(), _ledger()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = _entries(original)
        for number in range(count):
            draw = random.Random(f"ledger {seed} {number}")
            with tempfile.TemporaryDirectory() as home:
                for path in original.parent.iterdir():
                    shutil.copyfile(path, Path(home, path.name))
                path = Path(home, draw.choice(["ledger", "ledger", "ledger", "ledger.anchor"]))
                path.write_bytes(damaged(path.read_bytes(), draw))
                what = f"ledger {number}, bytes of {path.name}"
                seen = found.judge(what, lambda home=home: _entries(Path(home, "ledger")))
                if seen is not None and seen != before:
                    found.accepted.append(what)
                found.judge(f"{what}, accounts", lambda home=home: Ledger(Path(home, "ledger")).accounts())
    return found.tally("damaged ledgers", count)


def run(count: int, seed: int) -> Tally:
    """All three, in proportion: half of the runs are forgeries."""
    parts = (
        forgeries(count - count // 4 - count // 4, seed),
        damages(count // 4, seed),
        ledgers(count // 4, seed),
    )
    return Tally(
        "mutations",
        sum(part.runs for part in parts),
        accepted=sum(part.accepted for part in parts),
        tracebacks=sum(part.tracebacks for part in parts),
        hung=sum(part.hung for part in parts),
        examples=tuple(example for part in parts for example in part.examples)[:MOST_EXAMPLES],
    )


# -------------------------------------------------------------------- how runs are judged


class _Found:
    def __init__(self) -> None:
        self.accepted: list[str] = []
        self.tracebacks: list[str] = []
        self.hung: list[str] = []

    def judge(self, what: str, call: Callable[[], Any]) -> Any:
        """What the call gave; None where it was refused with an error of ours, or something is wrong with it."""
        try:
            with alarm():
                return call()
        except TallytreeError:
            return None
        except Hung:
            self.hung.append(what)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            self.tracebacks.append(f"{what}: {type(error).__name__}: {error} ({last.filename}:{last.lineno})")
        return None

    def tally(self, name: str, runs: int) -> Tally:
        examples = (
            *(f"accepted: {each}" for each in self.accepted),
            *(f"traceback: {each}" for each in self.tracebacks),
            *(f"hung: {each}" for each in self.hung),
        )
        return Tally(
            name,
            runs,
            accepted=len(self.accepted),
            tracebacks=len(self.tracebacks),
            hung=len(self.hung),
            examples=examples,
        )


def _copies(count: int, seed: int) -> Iterator[tuple[int, str, Path, random.Random]]:
    names = list(originals())
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        name = draw.choice(names)
        with tempfile.TemporaryDirectory() as home:
            folder = Path(home, "release")
            shutil.copytree(originals()[name], folder)
            yield number, name, folder, draw


def mend_if_possible(folder: Path) -> None:
    try:
        mend(folder)
    except (ValueError, LookupError, TypeError, OSError):
        return  # the manifest itself was changed beyond use


@cache
def _ledger() -> Path:
    path = Path(tempfile.mkdtemp(prefix="tallytree-ledgers-"), "ledger")
    book = Ledger(path)
    relation = Neighbours.of(made_up(1, public_totals=True), one_entity())
    for name in ("one", "two"):
        book.open(name, Budget(rho=10), relation)
        for _ in range(3):
            book.record(book.reserve(Expense(name, Budget(epsilon=1), relation, f"files of {name}")).number, "0" * 64)
    book.link(["one", "two"], Budget(rho=15))
    return path


def _entries(path: Path) -> Any:
    return Ledger(path).entries()
