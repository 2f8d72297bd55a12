"""The file of measurements: one self-contained Parquet file, a row for every noisy number, and its strict reader."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arguments import PATH, expecting, instance
from tallytree.core.arrays import Integers
from tallytree.core.disk import sync
from tallytree.core.errors import ReleaseError, TallytreeError
from tallytree.core.numbers import exact_number
from tallytree.core.progress import Progress, Tell, in_percent, nobody, silent
from tallytree.domain.category_trees import tree_from_json
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.long_table import key_columns, list_columns, region_blocks
from tallytree.privacy.accounting import NOISE_FOR
from tallytree.privacy.budget import Budget
from tallytree.privacy.measurements import Measurement, Measurements, Passed, Settled
from tallytree.privacy.neighbours import Neighbours, Sensitivity
from tallytree.privacy.plan import FIRST, Band, Plan, Question
from tallytree.privacy.views import list_starts
from tallytree.publish.reading import ParquetRows, check_room, parsed
from tallytree.publish.release.large.layout import REGIONS as LARGE_REGIONS
from tallytree.publish.release.large.layout import is_large
from tallytree.publish.release.large.measurements import FORMAT as BY_REGION
from tallytree.publish.release.large.measurements import (
    PLACES,
    PUBLIC,
    TOTALS,
    described,
    read_by_region,
    room_by_region,
    write_by_region,
)
from tallytree.publish.release.large.regions import write_regions as write_large_regions

FORMAT = 1
FACTS, SLACK = 1 << 16, 1.05  # bytes for facts that are not known before measuring, and how far an estimate is trusted
MOST_ROWS = 1 << 40
# What bad files lead to:
UNREADABLE = (
    TallytreeError,
    OSError,
    LookupError,
    ArithmeticError,
    AttributeError,
    TypeError,
    ValueError,
    RecursionError,
    MemoryError,
)


@expecting(measurements=instance(Measurements), path=PATH)
def save_measurements(measurements: Measurements, path: str | PathLike[str], *, progress: Progress = silent) -> None:
    """Write one self-contained Parquet file: view, level, region, size, value.

    Measurements of more cells than one table of a release has are written region by region, with the regions in a file
    `regions.parquet` beside it.
    """
    if are_large(measurements):
        write_large_regions(measurements.hierarchy, measurements.region_totals, Path(path).with_name(LARGE_REGIONS))
    write_measurements(measurements, path, in_percent("writing the measurements", progress))


def write_measurements(measurements: Measurements, where: Any, tell: Tell = nobody) -> None:
    """`save_measurements` to a path or an open file; the file of regions of a large tree is another matter."""
    import pyarrow.parquet as pq

    if are_large(measurements):
        write_by_region(measurements, facts_of(measurements), where, tell)
        return
    schema = _schema().with_metadata({"tallytree": json.dumps(facts_of(measurements))})
    done, every = 0, sum(part.values.size for part in measurements.measured)
    with pq.ParquetWriter(where, schema) as writer:
        for part, block in _pieces(measurements):
            rows = _rows(measurements, part, block)
            writer.write_table(rows, row_group_size=rows.num_rows)
            done += rows.num_rows
            tell(min(1.0, done / max(1, every)))


def are_large(measurements: Measurements) -> bool:
    """Are there so many cells that a release of them is partitioned?"""
    return is_large(measurements.hierarchy, measurements.max_size + 1 - measurements.first_size)


def described_as(measurements: Measurements) -> dict[str, Any]:
    """What the file says of itself."""
    facts = facts_of(measurements)
    return described(facts, measurements.hierarchy) if are_large(measurements) else facts


def facts_of(measurements: Measurements) -> dict[str, Any]:
    """Everything but the values; of a large tree not the regions either."""
    settled = measurements.settled
    return {
        "format": FORMAT,
        "hierarchy": None if are_large(measurements) else measurements.hierarchy.to_json(),
        "neighbours": measurements.neighbours.to_json(),
        "budget": measurements.budget.to_json(),
        "measured": [part.to_json() for part in measurements.measured],
        "region_totals": _listed(measurements, measurements.region_totals),
        **({} if measurements.listed_totals is None else {"listed_totals": measurements.listed_totals.tolist()}),
        "noise_source": measurements.noise_source,
        "ledgered": measurements.ledgered,
        "same_data_as": list(measurements.same_data_as),
        "regions_declared_public": measurements.regions_declared_public,
        "settled": {
            "totals": _listed(measurements, settled.totals),
            "max_size": settled.max_size,
            **({} if settled.places is None else {"places": _listed(measurements, settled.places)}),
        },
        **({} if measurements.passed is None else {"passed": measurements.passed.to_json()}),
    }


def regions_beside(tree: Hierarchy, neighbours: Neighbours, totals: Integers | None, path: Path) -> None:
    """Write the file of regions that measurements of a large tree need beside them; of a small one nothing."""
    if is_large(tree, neighbours.max_size + neighbours.public_totals):
        write_large_regions(tree, totals, path)
        sync(path)


def _listed(measurements: Measurements, array: Integers | None) -> Any:
    """As JSON has it; of a large tree it is in the rows, and that it is there is all to be said."""
    return None if array is None else True if are_large(measurements) else array.tolist()


def room_for(
    hierarchy: Hierarchy,
    neighbours: Neighbours,
    plan: Plan,
    totals: Integers | None,
    known: Measurements | None = None,
) -> int:
    """How many bytes a plan's measurements will take at most, but for lists of sizes whose lengths are not known yet.

    They are written once, to nowhere, with values in the place of the noisy ones that cannot be made smaller: each way
    that the plan may go. With the answers of the first stage, `known`, the way and all lengths are known.
    """
    shell = Measurements(hierarchy, neighbours, plan.budget, (), totals, "tallytree", ledgered=True)
    if known is not None:
        shell = replace(known, measured=())
        plan = plan if known.passed is None else plan.branches[0 if known.passed.few else 1]
    if is_large(hierarchy, neighbours.max_size + neighbours.public_totals):
        every = [question for branch in plan.branches for question in branch.questions]
        arrays = (totals is not None) + 2 * any(question.view in FIRST for question in every)
        return max(
            room_by_region(hierarchy, [(one.level, prod(_shape(shell, one))) for one in branch.questions], arrays)
            for branch in plan.branches
        )
    return max(_room_for(shell, branch.questions) for branch in plan.branches)


def room_for_first(hierarchy: Hierarchy, neighbours: Neighbours, plan: Plan, totals: Integers | None) -> int:
    """How many bytes the answers of the first stage will take at most; 0 where a plan has no such stage."""
    first = [question for question in plan.questions if question.view in FIRST]
    if not first:
        return 0
    shell = Measurements(hierarchy, neighbours, plan.budget, (), totals, "tallytree", ledgered=True)
    if is_large(hierarchy, neighbours.max_size + neighbours.public_totals):
        sizes = [(one.level, prod(_shape(shell, one))) for one in first]
        return room_by_region(hierarchy, sizes, int(totals is not None))
    return _room_for(shell, first)


def _shape(shell: Measurements, question: Question) -> tuple[int, ...]:
    """How many values a question gives; of lists whose lengths are not known yet, none."""
    _, regions = shell.regions_of(question.level, question.summed)
    if question.view != "sorted_sizes":
        return regions.stop - regions.start, shell.columns(question.view, question.sizes)
    unknown = shell.known_totals is None and shell.settled.places is None
    return (0,) if unknown else (int(shell.lengths(question.level).sum()),)


def _room_for(shell: Measurements, questions: Sequence[Question]) -> int:
    import pyarrow as pa

    measured = []
    for question in questions:
        shape = _shape(shell, question)
        if shape == (0,):
            continue
        values = (np.arange(prod(shape), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
        facts = question.view, question.level, question.share, Sensitivity(1, 1), NOISE_FOR[shell.budget.currency]
        measured.append(Measurement(*facts, Fraction(1), 1.0, values.reshape(shape), question.sizes, question.summed))
    nowhere = pa.MockOutputStream()
    write_measurements(replace(shell, measured=tuple(measured)), nowhere)
    return int(nowhere.size() * SLACK) + 32 * len(shell.hierarchy) + FACTS


@expecting(path=PATH)
def load_measurements(path: str | PathLike[str]) -> Measurements:
    """Read what `save_measurements` wrote; a file whose rows are not exactly the announced ones is refused."""
    return read_measurements(Path(path))


def read_measurements(path: Path, tree: Hierarchy | None = None) -> Measurements:
    """The same; where the regions of a large tree are beside it, `tree` may give them as they were read before."""
    try:
        with ParquetRows(path, most=MOST_ROWS) as file:
            check_room(file.rows, file.name)
            facts = stored_facts(file.schema)
            if facts["format"] == BY_REGION:
                return read_by_region(path, file, facts, large_without_values, tree)
            if not file.schema.equals(_schema()):
                raise ReleaseError(f"its columns are not {', '.join(_schema().names)}, or of other types")
            if facts["format"] != FORMAT:
                raise ReleaseError(f"it has format {facts['format']}; this version reads format {FORMAT}")
            measurements = _without_values(facts, tree_from_json(facts["hierarchy"]), most=file.rows)
            pieces = list(_pieces(measurements))
            if len(file.groups) != len(pieces):
                raise ReleaseError("it does not hold the rows that its own description announces")
            for group, (part, block) in enumerate(pieces):
                rows = file.group(group)
                if rows["value"].null_count:
                    raise ReleaseError("some of its values are missing")
                values = _values(measurements, part, block)
                values[...] = rows["value"].to_numpy().reshape(values.shape)
                if not rows.equals(_rows(measurements, part, block)):
                    raise ReleaseError("its rows are not where its own description puts them")
            return measurements
    except UNREADABLE as error:
        raise ReleaseError(f"{path} does not hold measurements that can be read: {error}") from None


def stored_facts(schema: Any) -> dict[str, Any]:
    """What `facts_of` gave, from a file's schema."""
    facts: dict[str, Any] = parsed(schema.metadata[b"tallytree"], "the description of the measurements")
    return facts


def large_without_values(facts: dict[str, Any], tree: Hierarchy, known: dict[str, Integers]) -> Measurements:
    """The same for a large tree; `known` are the arrays that its rows begin with."""
    settled = {**facts["settled"], "totals": known.get(TOTALS), "places": known.get(PLACES)}
    return _without_values({**facts, "region_totals": known.get(PUBLIC), "settled": settled}, tree, most=MOST_ROWS)


def _without_values(facts: dict[str, Any], hierarchy: Hierarchy, *, most: int) -> Measurements:
    """Measurements as a file describes them, with room for at most `most` values, which are still to be read."""
    if not all(isinstance(facts[name], bool) for name in ("ledgered", "regions_declared_public")):
        raise ReleaseError("it does not say yes or no to ledgered and regions_declared_public")
    settled = facts.get("settled", {"totals": None, "max_size": None})
    shell = Measurements(
        hierarchy=hierarchy,
        neighbours=Neighbours.from_json(facts["neighbours"]),
        budget=Budget.from_json(facts["budget"]),
        measured=(),
        region_totals=_totals(facts["region_totals"], hierarchy),
        listed_totals=_totals(facts.get("listed_totals"), hierarchy.regions),
        noise_source=facts["noise_source"],
        ledgered=facts["ledgered"],
        same_data_as=tuple(facts.get("same_data_as", ())),
        regions_declared_public=facts["regions_declared_public"],
        settled=Settled(
            _totals(settled["totals"], hierarchy), settled["max_size"], _totals(settled.get("places"), hierarchy)
        ),
        passed=_passed(facts.get("passed"), hierarchy),
    )
    _check_categories(shell)
    measured = []
    for part in facts["measured"]:
        summed = part.get("summed", False)
        if summed is not False and (summed is not True or hierarchy.by is None or part["level"] < 1):
            raise ReleaseError("it has a sum over categories where there are none")
        (_, regions), band = shell.regions_of(part["level"], summed), _band(part, shell.max_size)
        shape: tuple[int, ...] = (regions.stop - regions.start, shell.columns(part["view"], band))
        if part["view"] == "sorted_sizes":
            shape = (int(shell.lengths(part["level"]).sum()),)
        most -= prod(shape)
        if most < 0:
            raise ReleaseError("it does not hold the rows that its own description announces")
        exact = {name: exact_number(part[name]) for name in ("share", "scale")}
        sensitivity = Sensitivity(**part["sensitivity"])
        values = np.empty(shape, dtype=np.int64)
        measured.append(Measurement(**{**part, **exact, "sensitivity": sensitivity, "values": values, "sizes": band}))
    return replace(shell, measured=tuple(measured))


def _check_categories(shell: Measurements) -> None:
    """Refuse facts about categories that contradict one another: estimators take them as they are."""
    neighbours, tree, listed = shell.neighbours, shell.hierarchy, shell.listed_totals
    if neighbours.categories != tree.by:
        raise ReleaseError("its regions have other categories than its neighbour relation")
    if neighbours.groups_listed != (listed is not None):
        raise ReleaseError("it does not have the public totals over categories that its neighbour relation speaks of")
    if listed is not None:
        regions = tree.regions
        if not np.array_equal(regions.aggregate(listed[regions.level_slice(regions.depth - 1)]), listed):
            raise ReleaseError("its public totals over categories do not add up")


def _band(part: dict[str, Any], max_size: int) -> Band | None:
    """The band of sizes that a measurement is about; None for all sizes."""
    if "sizes" not in part:
        return None
    band = Question(part["view"], part["level"], Fraction(1), Band(*part["sizes"])).sizes  # refuses what is no band
    if band is not None and band.last > max_size:
        raise ReleaseError(f"it has a band of sizes up to {band.last}, beyond the largest one, {max_size}")
    return band


def _passed(stated: dict[str, Any] | None, hierarchy: Hierarchy) -> Passed | None:
    """Which way the plan took at its fork; None where it had none."""
    if stated is None:
        return None
    level, few = stated["level"], stated["few"]
    if not isinstance(few, bool) or isinstance(level, bool) or level not in range(hierarchy.depth):
        raise ReleaseError("it does not say in a way that is known what was asked after the totals")
    return Passed(level, exact_number(stated["fewer_than"]), few)


def _totals(values: list[int] | Integers | None, hierarchy: Hierarchy) -> Integers | None:
    if values is None:
        return None
    totals = np.array(values, dtype=np.int64)
    if totals.shape != (len(hierarchy),) or totals.min() < 0:
        raise ReleaseError("its totals are not one number of groups for each region")
    return totals


def _pieces(measurements: Measurements) -> Iterator[tuple[Measurement, range]]:
    """The file's row groups: each a block of regions of one measurement, or of places in its lists."""
    for part in measurements.measured:
        if part.view == "sorted_sizes":
            blocks = region_blocks(range(len(part.values)), 1)
        else:
            _, level = measurements.regions_of(part.level, part.summed)
            blocks = region_blocks(range(level.start, level.stop), part.values.shape[1])
        for block in blocks:
            yield part, block


def _values(measurements: Measurements, part: Measurement, block: range) -> NDArray[Any]:
    first = 0 if part.view == "sorted_sizes" else measurements.regions_of(part.level, part.summed)[1].start
    return part.values[block.start - first : block.stop - first]


def _rows(measurements: Measurements, part: Measurement, block: range) -> Any:
    import pyarrow as pa

    hierarchy = measurements.hierarchy
    if part.view == "sorted_sizes":
        columns = list_columns(hierarchy, part.level, list_starts(measurements.lengths(part.level)), block)
    else:
        tree, _ = measurements.regions_of(part.level, part.summed)
        columns = key_columns(tree, block, measurements.sizes_of(part.view, part.sizes))
    values = _values(measurements, part, block)
    view = pa.repeat(pa.scalar(part.view), values.size)
    return pa.table({"view": view, **columns, "value": values.ravel().astype(np.int64)}, schema=_schema())


def _schema() -> Any:
    import pyarrow as pa

    text = pa.string()
    return pa.schema([("view", text), ("level", text), ("region", text), ("size", pa.int32()), ("value", pa.int64())])
