"""`Measurements`: what crossed the privacy border. Public noisy integers, with all it takes to use and audit them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.errors import ReleaseError, TallytreeError
from tallytree.hierarchy import Hierarchy
from tallytree.long_table import key_columns, region_blocks
from tallytree.privacy.accounting import NoiseKind, cost_of
from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import Receipt
from tallytree.privacy.unit import Neighbours, Sensitivity, View

Integers = NDArray[np.int64]

FORMAT = 1


@dataclass(frozen=True, eq=False)
class Measurement:
    """One view of one level with noise: `values` is `[regions of the level, columns]`."""

    view: View
    level: int
    share: Fraction
    sensitivity: Sensitivity
    noise: NoiseKind
    scale: Fraction  # of Laplace noise, or the parameter σ² of Gaussian noise
    variance: float  # of the noise on one value
    values: Integers

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
    receipt: Receipt | None = None  # stays with the data holder; in no file of a release

    @property
    def max_size(self) -> int:
        """The largest size; it stands for all larger ones too."""
        return self.neighbours.max_size

    @property
    def first_size(self) -> int:
        """0 with public totals, 1 with private ones."""
        return 0 if self.neighbours.public_totals else 1

    def sizes_of(self, view: View) -> range | None:
        """What a view's columns stand for; None for totals, which have one column and no size."""
        if view == "totals":
            return None
        return range(1 if view == "at_least" else self.first_size, self.max_size + 1)

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
        }
        schema = _schema().with_metadata({"tallytree": json.dumps(facts)})
        with pq.ParquetWriter(path, schema) as writer:
            for part, block in self._pieces():
                first = int(self.hierarchy.level_starts[part.level])
                values = part.values[block.start - first : block.stop - first]
                writer.write_table(self._rows(part, block, values), row_group_size=values.size)

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
                measurements = cls._empty(facts)
                pieces = list(measurements._pieces())
                if file.num_row_groups != len(pieces):
                    raise ReleaseError("it does not hold the rows that its own description announces")
                for group, (part, block) in enumerate(pieces):
                    first = int(measurements.hierarchy.level_starts[part.level])
                    rows = file.read_row_group(group)
                    values = part.values[block.start - first : block.stop - first]
                    values[...] = rows["value"].to_numpy().reshape(values.shape)
                    if not rows.equals(measurements._rows(part, block, values)):
                        raise ReleaseError("its rows do not stand where its own description puts them")
                return measurements
        except (OSError, KeyError, TypeError, ValueError, pa.ArrowException, TallytreeError) as error:
            raise ReleaseError(f"{path} does not hold measurements that can be read: {error}") from None

    @classmethod
    def _empty(cls, facts: dict[str, Any]) -> Measurements:
        """Measurements as a file describes them, their values still to be read."""
        hierarchy = Hierarchy.from_layout(**facts["hierarchy"])
        neighbours = Neighbours.from_json(facts["neighbours"])
        totals = facts["region_totals"]
        shell = cls(
            hierarchy=hierarchy,
            neighbours=neighbours,
            budget=Budget.from_json(facts["budget"]),
            measured=(),
            region_totals=None if totals is None else np.array(totals, dtype=np.int64),
            noise_source=facts["noise_source"],
            ledgered=facts["ledgered"],
            regions_declared_public=facts["regions_declared_public"],
        )
        measured = []
        for part in facts["measured"]:
            regions = hierarchy.level_slice(part["level"])
            sizes = shell.sizes_of(part["view"])
            shape = (regions.stop - regions.start, 1 if sizes is None else len(sizes))
            exact = {name: Fraction(part[name]) for name in ("share", "scale")}
            sensitivity = Sensitivity(**part["sensitivity"])
            values = np.empty(shape, dtype=np.int64)
            measured.append(Measurement(**{**part, **exact, "sensitivity": sensitivity, "values": values}))
        return replace(shell, measured=tuple(measured))

    def _pieces(self) -> Iterator[tuple[Measurement, range]]:
        """The file's row groups: each a block of regions of one measurement."""
        for part in self.measured:
            level = self.hierarchy.level_slice(part.level)
            for block in region_blocks(range(level.start, level.stop), part.values.shape[1]):
                yield part, block

    def _rows(self, part: Measurement, block: range, values: Integers) -> Any:
        import pyarrow as pa

        columns = key_columns(self.hierarchy, block, self.sizes_of(part.view))
        view = pa.repeat(pa.scalar(part.view), values.size)
        return pa.table({"view": view, **columns, "value": values.ravel()}, schema=_schema())


def _schema() -> Any:
    import pyarrow as pa

    text = pa.string()
    return pa.schema([("view", text), ("level", text), ("region", text), ("size", pa.int32()), ("value", pa.int64())])
