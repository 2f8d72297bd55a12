"""`Measurements`: what crossed the privacy border. Public noisy integers, with all it takes to use and audit them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Integers
from tallytree.errors import ReleaseError, TallytreeError
from tallytree.hierarchy import Hierarchy
from tallytree.long_table import key_columns, list_columns, region_blocks
from tallytree.privacy.accounting import NoiseKind, cost_of
from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import Receipt
from tallytree.privacy.neighbours import Neighbours, Sensitivity, View
from tallytree.privacy.size_lists import list_starts

FORMAT = 1
UNREADABLE = (OSError, LookupError, ArithmeticError, TypeError, ValueError, TallytreeError)  # what bad files lead to


@dataclass(frozen=True, eq=False)
class Measurement:
    """One view of one level with noise.

    `values` is `[regions of the level, columns]`; for `sorted_sizes` it is flat, the regions' lists one after another.
    """

    view: View
    level: int
    share: Fraction
    sensitivity: Sensitivity
    noise: NoiseKind
    scale: Fraction  # of Laplace noise, or the parameter σ² of Gaussian noise
    variance: float  # of the noise on one value
    values: NDArray[Any]

    @property
    def cost(self) -> Fraction:
        """The exact privacy loss of this measurement, in the budget's currency."""
        return cost_of(self.noise, self.sensitivity, self.scale)

    def to_json(self) -> dict[str, Any]:
        """Everything but the values."""
        return {
            "view": self.view,
            "level": self.level,
            "share": str(self.share),
            "sensitivity": {"l1": self.sensitivity.l1, "l2_squared": self.sensitivity.l2_squared},
            "noise": self.noise,
            "scale": str(self.scale),
            "variance": self.variance,
        }


@dataclass(frozen=True, eq=False)
class Settled:
    """What measured totals and a measured largest size were taken to be, before the other questions were asked."""

    totals: Integers | None = None  # consistent over all regions
    max_size: int | None = None


@dataclass(frozen=True, eq=False)
class Measurements:
    """All measurements of one release, with the public facts they rest on. Post-processing needs nothing else."""

    hierarchy: Hierarchy
    neighbours: Neighbours
    budget: Budget
    measured: tuple[Measurement, ...]
    region_totals: Integers | None  # the public number of groups in every region, where a public list exists
    noise_source: str
    ledgered: bool
    regions_declared_public: bool = False
    settled: Settled = Settled()
    receipt: Receipt | None = None  # stays with the data holder; in no file of a release

    @property
    def max_size(self) -> int:
        """The largest size; it stands for all larger ones too."""
        return self.neighbours.max_size if self.settled.max_size is None else self.settled.max_size

    @property
    def first_size(self) -> int:
        """0 with public totals, 1 with private ones."""
        return 0 if self.neighbours.public_totals else 1

    @property
    def known_totals(self) -> Integers | None:
        """The number of groups in every region, public or settled; None where neither is."""
        return self.settled.totals if self.region_totals is None else self.region_totals

    def lengths(self, level: int) -> Integers:
        """How many places each region of a level has in its list of sizes."""
        if self.known_totals is None:
            raise ReleaseError("lists of sizes need public totals, or totals that were measured first")
        return self.known_totals[self.hierarchy.level_slice(level)]

    def sizes_of(self, view: View) -> range | None:
        """What a view's columns stand for; None for views whose values have no size to stand under."""
        if view in ("totals", "largest", "sorted_sizes"):
            return None
        return range(1 if view == "at_least" else self.first_size, self.max_size + 1)

    def columns(self, view: View) -> int:
        """How many values each region has in a view."""
        sizes = self.sizes_of(view)
        return 1 if sizes is None else len(sizes)

    @property
    def level_shares(self) -> list[Fraction] | None:
        """How what was spent on sizes was divided over the levels; None where not all of them were measured."""
        shares = {part.level: part.share for part in self.measured if part.view not in ("totals", "largest")}
        levels = range(self.hierarchy.depth)
        return [shares[level] for level in levels] if len(shares) == len(levels) > 1 else None

    def on_level(self, level: int) -> Measurement:
        """What was measured of the sizes on a level."""
        found = [part for part in self.measured if part.level == level and part.view not in ("totals", "largest")]
        if len(found) != 1:
            raise ReleaseError(f"expected one measurement of sizes on level {level}, found {len(found)}")
        return found[0]

    def stacked(self, view: View) -> Integers:
        """A view of all levels as one array `[regions, columns]` in hierarchy order."""
        by_level = {part.level: part.values for part in self.measured if part.view == view}
        if sorted(by_level) != list(range(self.hierarchy.depth)):
            raise ReleaseError(f"the view {view!r} was not measured on every level")
        return np.concatenate([by_level[level] for level in range(self.hierarchy.depth)])

    def variances(self, view: View) -> list[float]:
        """The noise variance of a view on each level, from the top down."""
        return [part.variance for part in sorted(self.measured, key=lambda part: part.level) if part.view == view]

    # ---------------------------------------------------------------- files

    def save(self, path: str | PathLike[str]) -> None:
        """Write one self-contained Parquet file: view, level, region, size, value."""
        import pyarrow.parquet as pq

        facts = {
            "format": FORMAT,
            "hierarchy": self.hierarchy.to_json(),
            "neighbours": self.neighbours.to_json(),
            "budget": self.budget.to_json(),
            "measured": [part.to_json() for part in self.measured],
            "region_totals": None if self.region_totals is None else self.region_totals.tolist(),
            "noise_source": self.noise_source,
            "ledgered": self.ledgered,
            "regions_declared_public": self.regions_declared_public,
            "settled": {
                "totals": None if self.settled.totals is None else self.settled.totals.tolist(),
                "max_size": self.settled.max_size,
            },
        }
        schema = _schema().with_metadata({"tallytree": json.dumps(facts)})
        with pq.ParquetWriter(path, schema) as writer:
            for part, block in self._pieces():
                writer.write_table(self._rows(part, block), row_group_size=self._values(part, block).size)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Measurements:
        """Read what `save` wrote; a file whose rows are not exactly the announced ones is refused."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(path) as file:
                facts = json.loads(file.schema_arrow.metadata[b"tallytree"])
                if facts["format"] != FORMAT:
                    raise ReleaseError(f"it has format {facts['format']}; this version reads format {FORMAT}")
                measurements = cls._empty(facts, most=file.metadata.num_rows)
                pieces = list(measurements._pieces())
                if file.num_row_groups != len(pieces):
                    raise ReleaseError("it does not hold the rows that its own description announces")
                for group, (part, block) in enumerate(pieces):
                    rows = file.read_row_group(group)
                    values = measurements._values(part, block)
                    values[...] = rows["value"].to_numpy().reshape(values.shape)
                    if not rows.equals(measurements._rows(part, block)):
                        raise ReleaseError("its rows do not stand where its own description puts them")
                return measurements
        except (*UNREADABLE, pa.ArrowException) as error:
            raise ReleaseError(f"{path} does not hold measurements that can be read: {error}") from None

    @classmethod
    def _empty(cls, facts: dict[str, Any], *, most: int) -> Measurements:
        """Measurements as a file describes them, `most` values at the most, which are still to be read."""
        hierarchy = Hierarchy.from_layout(**facts["hierarchy"])
        neighbours = Neighbours.from_json(facts["neighbours"])
        settled = facts.get("settled", {"totals": None, "max_size": None})
        shell = cls(
            hierarchy=hierarchy,
            neighbours=neighbours,
            budget=Budget.from_json(facts["budget"]),
            measured=(),
            region_totals=_totals(facts["region_totals"], hierarchy),
            noise_source=facts["noise_source"],
            ledgered=facts["ledgered"],
            regions_declared_public=facts["regions_declared_public"],
            settled=Settled(_totals(settled["totals"], hierarchy), settled["max_size"]),
        )
        measured = []
        for part in facts["measured"]:
            regions = hierarchy.level_slice(part["level"])
            shape: tuple[int, ...] = (regions.stop - regions.start, shell.columns(part["view"]))
            if part["view"] == "sorted_sizes":
                shape = (int(shell.lengths(part["level"]).sum()),)
            most -= prod(shape)
            if most < 0:
                raise ReleaseError("it does not hold the rows that its own description announces")
            exact = {name: Fraction(part[name]) for name in ("share", "scale")}
            sensitivity = Sensitivity(**part["sensitivity"])
            values = np.empty(shape, dtype=np.int64)
            measured.append(Measurement(**{**part, **exact, "sensitivity": sensitivity, "values": values}))
        return replace(shell, measured=tuple(measured))

    def _pieces(self) -> Iterator[tuple[Measurement, range]]:
        """The file's row groups: each a block of regions of one measurement, or of places in its lists."""
        for part in self.measured:
            if part.view == "sorted_sizes":
                blocks = region_blocks(range(len(part.values)), 1)
            else:
                level = self.hierarchy.level_slice(part.level)
                blocks = region_blocks(range(level.start, level.stop), part.values.shape[1])
            for block in blocks:
                yield part, block

    def _values(self, part: Measurement, block: range) -> NDArray[Any]:
        first = 0 if part.view == "sorted_sizes" else int(self.hierarchy.level_starts[part.level])
        return part.values[block.start - first : block.stop - first]

    def _rows(self, part: Measurement, block: range) -> Any:
        import pyarrow as pa

        if part.view == "sorted_sizes":
            columns = list_columns(self.hierarchy, part.level, list_starts(self.lengths(part.level)), block)
        else:
            columns = key_columns(self.hierarchy, block, self.sizes_of(part.view))
        values = self._values(part, block)
        view = pa.repeat(pa.scalar(part.view), values.size)
        return pa.table({"view": view, **columns, "value": values.ravel().astype(np.int64)}, schema=_schema())


Settle = Callable[[Measurements], Settled]


def _totals(values: list[int] | None, hierarchy: Hierarchy) -> Integers | None:
    if values is None:
        return None
    totals = np.array(values, dtype=np.int64)
    if totals.shape != (len(hierarchy),) or totals.min() < 0:
        raise ReleaseError("its totals are not one number of groups for each region")
    return totals


def _schema() -> Any:
    import pyarrow as pa

    text = pa.string()
    return pa.schema([("view", text), ("level", text), ("region", text), ("size", pa.int32()), ("value", pa.int64())])
