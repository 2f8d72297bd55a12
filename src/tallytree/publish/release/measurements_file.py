"""The file of measurements: one row per measured region with all its noisy values, and a strict reader.

The regions are in another file beside it, the table of regions. Rows are in the order of the measurements and of the
regions, and in groups of neighbouring regions. So the rows of one region are read without the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tallytree.core.arguments import PATH, expecting, instance
from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.numbers import exact_number
from tallytree.core.progress import Progress, Tell, in_percent, nobody, silent
from tallytree.domain.hierarchy import Hierarchy
from tallytree.privacy.budget import Budget
from tallytree.privacy.measurements import Branch, FirstStageFacts, Measurement, Measurements, list_starts
from tallytree.privacy.neighbours import Neighbours, Sensitivity
from tallytree.privacy.plan import FIRST, Band, MeasurementQuery, Plan
from tallytree.privacy.relations import relation_to_json, sizes_from_json
from tallytree.publish.folder import MEASUREMENTS, UNUSABLE
from tallytree.publish.release.release_statement import public_totals
from tallytree.publish.release.table_layout import REGIONS, read_regions, write_regions
from tallytree.publish.table import ROWS_IN_GROUP
from tallytree.publish.untrusted import ParquetRows, check_room, parsed

FORMAT = 3
FACTS, SLACK = 1 << 16, 1.05  # bytes for facts that are unknown before measuring, and a margin for the estimate
MOST_ROWS = 1 << 40
VALUES_AT_A_TIME = 1 << 21
# Arrays of all rows of the tree, or of all regions, that come before the measurements:
PUBLIC, LISTED, TOTALS, PLACES = "region_totals", "listed_totals", "first_stage.totals", "first_stage.places"


@expecting(measurements=instance(Measurements), path=PATH)
def save_measurements(measurements: Measurements, path: str | PathLike[str], *, progress: Progress = silent) -> None:
    """Write measurements to a Parquet file with a row for each measured region.

    The regions are written beside it: those of `measurements.parquet` into `regions.parquet`, as in a release, and
    those of `mine.parquet` into `mine.regions.parquet`.

    Parameters
    ----------
    measurements : Measurements
        The measurements.
    path : path
        The file to write; `load_measurements` reads it back.
    progress : callable, optional
        A function that is called with each step of the work.
    """
    target = Path(path)
    regions = target.with_name(REGIONS if target.name == MEASUREMENTS else f"{target.stem}.{REGIONS}")
    write_regions(measurements.hierarchy, public_totals(measurements), regions)
    tell = in_percent("writing the measurements", progress)
    write_measurements(measurements, path, tell, regions=regions.name)


def write_measurements(measurements: Measurements, where: Any, tell: Tell = nobody, *, regions: str = REGIONS) -> None:
    """Write measurements to a path or an open file; `regions` is the name of the file of regions beside it."""
    import pyarrow.parquet as pq

    facts = json.dumps(facts_of(measurements, regions))
    schema = _schema().with_metadata({"tallytree": facts})
    with pq.ParquetWriter(where, schema, use_dictionary=["measurement", "values.list.element"]) as writer:
        done, every = 0, sum(part.values.size for part in measurements.measured)
        for piece in _pieces(measurements):
            writer.write_table(_rows(piece), row_group_size=ROWS_IN_GROUP)
            done += piece.values.size
            tell(min(1.0, done / max(1, every)))


def facts_of(measurements: Measurements, regions: str = REGIONS) -> dict[str, Any]:
    """Return everything except the arrays with one entry per region, and which of these arrays are in the rows."""
    tree = measurements.hierarchy.regions
    return {
        "format": FORMAT,
        "hierarchy": {"file": regions, "levels": list(tree.levels), "regions": len(tree)},
        "neighbours": relation_to_json(measurements.neighbours),
        "budget": measurements.budget.to_json(),
        "measured": [part.to_json() for part in measurements.measured],
        "noise_source": measurements.noise_source,
        "ledgered": measurements.ledgered,
        "same_data_as": list(measurements.same_data_as),
        "regions_declared_public": measurements.regions_declared_public,
        "first_stage": {"max_size": measurements.first_stage.max_size},
        "in_rows": [name for name, array in _arrays(measurements).items() if array is not None],
        **({"row_rules": list(measurements.row_rules)} if measurements.row_rules else {}),
        **({} if measurements.branch is None else {"passed": measurements.branch.to_json()}),
    }


def room_for(
    hierarchy: Hierarchy,
    neighbours: Neighbours,
    plan: Plan,
    totals: Integers | None,
    known: Measurements | None = None,
    *,
    first: bool = False,
) -> int:
    """Return the most bytes that a plan's measurements take, except for sorted lists of unknown length.

    That is the largest branch of the plan or, with `first`, its first stage: 0 if it has none. With `known`, the
    answers of the first stage, the branch and all lengths are known.
    """
    shell = Measurements(hierarchy, neighbours, plan.budget, (), totals, "tallytree", ledgered=True)
    if known is not None:
        shell = replace(known, measured=())
        plan = plan if known.branch is None else plan.branches[0 if known.branch.below else 1]
    branches = [[query for query in branch.queries if not first or query.view in FIRST] for branch in plan.branches]
    return max(_room_for(shell, queries) for queries in branches)


def _room_for(shell: Measurements, queries: Sequence[MeasurementQuery]) -> int:
    """Return the most bytes that the answers to queries take: 9 for each value, and the id of each region."""
    asked = [(*shell.regions_of(one.level, one.summed), prod(_shape(shell, one))) for one in queries]
    arrays = 4 * (len("".join(shell.hierarchy.ids).encode()) + 14 * len(shell.hierarchy))
    ids = sum(len("".join(tree.ids[rows]).encode()) for tree, rows, _ in asked)
    measured = ids + sum(9 * int(values) + 9 * int(rows.stop - rows.start) for _, rows, values in asked)
    return FACTS + int(SLACK * (arrays + measured)) if asked else 0


def _shape(shell: Measurements, query: MeasurementQuery) -> tuple[int, ...]:
    """Return how many values a measurement query gives; 0 for lists of unknown length."""
    _, regions = shell.regions_of(query.level, query.summed)
    if query.view != "sorted_sizes":
        return regions.stop - regions.start, shell.columns(query.view, query.sizes)
    unknown = shell.known_totals is None and shell.first_stage.places is None
    return (0,) if unknown else (int(shell.lengths(query.level).sum()),)


@expecting(path=PATH)
def load_measurements(path: str | PathLike[str]) -> Measurements:
    """Read what `save_measurements` wrote.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    Measurements
        The measurements.

    Raises
    ------
    ReleaseError
        If the rows of the file are not exactly the announced ones.
    """
    path = Path(path)
    try:
        with ParquetRows(path, most=MOST_ROWS) as file:
            check_room(file.rows, file.name)
            facts = stored_facts(file.schema)
            if not file.schema.equals(_schema()):
                raise ReleaseError(f"its columns are not {', '.join(_schema().names)}, or of other types")
            if facts["format"] != FORMAT:
                raise ReleaseError(f"it has format {facts['format']}; this version reads format {FORMAT}")
            return _read(file, facts, _tree(path, facts))
    except UNUSABLE as error:
        raise ReleaseError(f"{path} is not a readable file of measurements: {error}") from None


def _tree(path: Path, facts: dict[str, Any]) -> Hierarchy:
    """Return the measured tree: the regions in the file beside, by category if there are categories."""
    name = facts["hierarchy"]["file"]
    if not isinstance(name, str) or Path(name).name != name:
        raise ReleaseError("it does not say where its regions are")
    tree, _ = read_regions(path.with_name(name))
    if facts["hierarchy"] != {"file": name, "levels": list(tree.levels), "regions": len(tree)}:
        raise ReleaseError(f"its regions are not those of {name}")
    return tree_by_category(facts, tree)


def tree_by_category(facts: dict[str, Any], regions: Hierarchy) -> Hierarchy:
    """Return the regions, by the categories in the facts, if any."""
    return regions.by_category(sizes_from_json(facts["neighbours"]).categories)


def _read(file: ParquetRows, facts: dict[str, Any], tree: Hierarchy) -> Measurements:
    groups = iter(file.groups)
    known: dict[str, Integers] = {}
    for name, own in arrays_in(facts, tree):
        known[name] = np.empty(len(own), np.int64)
        for piece in _blocks(name, own.ids, known[name], np.arange(len(own) + 1)):
            _fill(file, next(groups, None), piece)
    measurements = without_values(facts, tree, known)
    for piece in _measured(measurements):
        _fill(file, next(groups, None), piece)
    if next(groups, None) is not None:
        raise ReleaseError("it holds more rows than its description announces")
    return measurements


def arrays_in(facts: dict[str, Any], tree: Hierarchy) -> Iterator[tuple[str, Hierarchy]]:
    """Return the names of the arrays that a file's rows begin with, and the tree that each belongs to."""
    if len(set(facts["in_rows"])) != len(facts["in_rows"]) or not {*facts["in_rows"]} <= {
        PUBLIC,
        LISTED,
        TOTALS,
        PLACES,
    }:
        raise ReleaseError(f"its facts have an unknown entry for the contents of its rows: {facts['in_rows']!r}")
    return ((name, tree.regions if name == LISTED else tree) for name in facts["in_rows"])


def stored_facts(schema: Any) -> dict[str, Any]:
    """Return the result of `facts_of` from a file's schema."""
    facts: dict[str, Any] = parsed(schema.metadata[b"tallytree"], "the description of the measurements")
    return facts


def without_values(facts: dict[str, Any], hierarchy: Hierarchy, known: dict[str, Integers]) -> Measurements:
    """Return measurements as a file describes them, with empty arrays for the values that are still to be read.

    `known` are the arrays that the file's rows begin with.
    """
    if not all(isinstance(facts[name], bool) for name in ("ledgered", "regions_declared_public")):
        raise ReleaseError("ledgered and regions_declared_public must be true or false")
    shell = Measurements(
        hierarchy=hierarchy,
        neighbours=sizes_from_json(facts["neighbours"]),
        budget=Budget.from_json(facts["budget"]),
        measured=(),
        region_totals=_totals(known.get(PUBLIC), hierarchy),
        listed_totals=_totals(known.get(LISTED), hierarchy.regions),
        noise_source=facts["noise_source"],
        ledgered=facts["ledgered"],
        same_data_as=tuple(facts["same_data_as"]),
        regions_declared_public=facts["regions_declared_public"],
        row_rules=tuple(facts.get("row_rules", ())),
        first_stage=FirstStageFacts(
            _totals(known.get(TOTALS), hierarchy),
            facts["first_stage"]["max_size"],
            _totals(known.get(PLACES), hierarchy),
        ),
        branch=_branch(facts.get("passed"), hierarchy),
    )
    _check_categories(shell)
    measured = []
    for part in facts["measured"]:
        summed = part.get("summed", False)
        if summed is not False and (summed is not True or not hierarchy.by.columns or part["level"] < 1):
            raise ReleaseError("it has a sum over categories but no categories")
        band = Band(*part["sizes"]) if "sizes" in part else None
        query = MeasurementQuery(part["view"], part["level"], Fraction(1), band, summed)  # refuses other bands
        if query.sizes is not None and query.sizes.last > shell.max_size:
            last = query.sizes.last
            raise ReleaseError(f"it has a band of sizes up to {last}, beyond the largest one, {shell.max_size}")
        shape = _shape(shell, query)
        check_room(prod(shape), "it")
        exact = {name: exact_number(part[name]) for name in ("share", "scale")}
        sensitivity = Sensitivity(**part["sensitivity"])
        values = np.empty(shape, dtype=np.int64)
        measured.append(
            Measurement(**{**part, **exact, "sensitivity": sensitivity, "values": values, "sizes": query.sizes})
        )
    return replace(shell, measured=tuple(measured))


def _check_categories(shell: Measurements) -> None:
    """Refuse facts about categories that contradict each other, since estimators do not check them."""
    neighbours, tree, listed = shell.neighbours, shell.hierarchy, shell.listed_totals
    if neighbours.categories != tree.by:
        raise ReleaseError("its regions have other categories than its neighbour relation")
    if neighbours.groups_listed != (listed is not None):
        raise ReleaseError("it lacks the public totals over categories that its neighbour relation names")
    if listed is not None:
        regions = tree.regions
        if not np.array_equal(regions.aggregate(listed[regions.level_slice(regions.depth - 1)]), listed):
            raise ReleaseError("its public totals over categories do not add up")


def _branch(stated: dict[str, Any] | None, hierarchy: Hierarchy) -> Branch | None:
    """Return the branch that an adaptive plan chose; None for other plans."""
    if stated is None:
        return None
    level, few = stated["level"], stated["few"]
    if not isinstance(few, bool) or isinstance(level, bool) or level not in range(hierarchy.depth):
        raise ReleaseError("the branch after the totals is not stated in a known form")
    return Branch(level, exact_number(stated["fewer_than"]), few)


def _totals(totals: Integers | None, hierarchy: Hierarchy) -> Integers | None:
    if totals is not None and (totals.shape != (len(hierarchy),) or totals.min() < 0):
        raise ReleaseError("its totals are not one number of groups for each region")
    return totals


# -------------------------------------------------------------------- rows


class Piece(NamedTuple):
    """The rows of a block of regions in one array."""

    name: str  # the measurement's number, or which array of all regions it is
    ids: Sequence[str]
    starts: Integers  # of each region's values within the piece
    values: Integers


def _arrays(measurements: Measurements) -> dict[str, Integers | None]:
    first_stage = measurements.first_stage
    return {
        PUBLIC: measurements.region_totals,
        LISTED: measurements.listed_totals,
        TOTALS: first_stage.totals,
        PLACES: first_stage.places,
    }


def _pieces(measurements: Measurements) -> Iterator[Piece]:
    for name, array in _arrays(measurements).items():
        if array is not None:
            tree = measurements.hierarchy.regions if name == LISTED else measurements.hierarchy
            yield from _blocks(name, tree.ids, array, np.arange(len(array) + 1))
    yield from _measured(measurements)


def _measured(measurements: Measurements) -> Iterator[Piece]:
    for number, part in enumerate(measurements.measured):
        tree, level = measurements.regions_of(part.level, part.summed)
        if part.view == "sorted_sizes":
            starts = list_starts(measurements.lengths(part.level))
        else:
            starts = np.arange(len(part.values) + 1) * part.values.shape[1]
        yield from _blocks(str(number), tree.ids[level], part.values.reshape(-1), starts)


def _blocks(name: str, ids: Sequence[str], values: Integers, starts: Integers) -> Iterator[Piece]:
    start = 0
    while start < len(ids):
        stop = int(np.searchsorted(starts, starts[start] + VALUES_AT_A_TIME, side="right")) - 1
        stop = min(max(start + 1, stop), start + ROWS_IN_GROUP, len(ids))
        within = starts[start : stop + 1]
        yield Piece(name, ids[start:stop], within - within[0], values[within[0] : within[-1]])
        start = stop


def _fill(file: ParquetRows, group: int | None, piece: Piece) -> None:
    if group is None:
        raise ReleaseError("it does not hold the rows that its description announces")
    rows = file.group(group)
    values = rows["values"].combine_chunks()
    flat = values.flatten()
    if values.null_count or flat.null_count or len(flat) != piece.values.size:
        raise ReleaseError("some of its values are missing, or there are more than its description announces")
    piece.values[...] = flat.to_numpy()
    if not rows.equals(_rows(piece)):
        raise ReleaseError("its rows are not where its description puts them")


def _rows(piece: Piece) -> Any:
    import pyarrow as pa

    values = pa.ListArray.from_arrays(pa.array(piece.starts.astype(np.int32)), pa.array(piece.values))
    columns = [pa.repeat(pa.scalar(piece.name), len(piece.ids)), pa.array(piece.ids, pa.string()), values]
    return pa.table(columns, schema=_schema())


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([("measurement", pa.string()), ("region", pa.string()), ("values", pa.list_(pa.int64()))])
