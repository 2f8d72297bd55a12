"""A release's spec: a TOML file, checked strictly. Paths in it are relative to the file itself.

Every key is an argument of the Python function of the same name: `[regions]` of `Hierarchy`, `[data]` of `read`,
`[privacy]` and `[release]` of `release`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tallytree.errors import SpecError
from tallytree.hierarchy import ROOT, Hierarchy
from tallytree.privacy.budget import Budget
from tallytree.privacy.unit import Neighbours, PrivacyUnit, UnitKind
from tallytree.tables import GroupSizes, read
from tallytree.tables.source import stem

Number = int | Decimal | str


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RegionsSection(_Section):
    """Where the public hierarchy comes from: `levels`, or `leaf` with `levels` above it, or `edges`."""

    table: str
    levels: list[str] | None = None
    leaf: str | None = None
    name: str | None = None
    edges: bool = False
    root: str = ROOT


class DataSection(_Section):
    """The microdata."""

    source: str | list[str]
    group: str
    max_size: int
    region: str | list[str] | None = None
    name: str | None = None
    quantity: str | None = None
    quantity_bound: int | None = None
    entity: str | None = None
    rows_per_entity: int | None = None
    groups: str | None = None
    on_spanning_group: Literal["error", "split"] = "error"
    regions_are_public: bool = False
    table: str | None = None
    groups_table: str | None = None
    memory_limit: str | None = None


class PrivacySection(_Section):
    """Unit and budget."""

    unit: UnitKind
    epsilon: Number | None = None
    rho: Number | None = None
    delta: Number | None = None
    ledger: str | None = None
    noise: Literal["tallytree", "opendp"] = "tallytree"


class ReleaseSection(_Section):
    """How the release is made and called."""

    mechanism: str = "auto"
    shares: dict[str, Number] | list[Number] | None = None
    title: str | None = None


class _Spec(_Section):
    data: DataSection
    privacy: PrivacySection
    regions: RegionsSection | None = None
    release: ReleaseSection = Field(default_factory=ReleaseSection)


@dataclass(frozen=True)
class Spec:
    """A spec that was read from a file."""

    folder: Path
    regions: RegionsSection | None
    data: DataSection
    privacy: PrivacySection
    release: ReleaseSection

    @classmethod
    def load(cls, path: str | Path) -> Spec:
        """Read a TOML file; all its mistakes are named at once."""
        file = Path(path)
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"), parse_float=Decimal)
        except FileNotFoundError:
            raise SpecError(f"there is no spec at {file}") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SpecError(f"{file} is not a TOML file that can be read: {error}") from None
        try:
            checked = _Spec.model_validate(values)
        except ValidationError as error:
            mistakes = "\n".join(f"  - {_mistake(dict(item))}" for item in error.errors())
            raise SpecError(f"{file} has mistakes:\n{mistakes}") from None
        return cls(file.absolute().parent, checked.regions, checked.data, checked.privacy, checked.release)

    @property
    def budget(self) -> Budget:
        """The budget of this release."""
        return Budget(epsilon=self.privacy.epsilon, rho=self.privacy.rho, delta=self.privacy.delta)

    @property
    def unit(self) -> PrivacyUnit:
        """The privacy unit."""
        return PrivacyUnit(self.privacy.unit)

    @property
    def ledger(self) -> Path | None:
        """The ledger's path."""
        return None if self.privacy.ledger is None else self.folder / self.privacy.ledger

    @property
    def shares(self) -> dict[str, Number] | list[Number] | None:
        """How the budget is divided over the levels."""
        return self.release.shares

    @property
    def name(self) -> str | None:
        """The data set's name in the ledger."""
        source = self.data.source
        if self.data.name is not None or not isinstance(source, str) or set(source) & set("*?["):
            return self.data.name
        return stem(source)

    def hierarchy(self) -> Hierarchy | None:
        """The public hierarchy, if the spec names a table for it."""
        regions = self.regions
        if regions is None:
            return None
        table = self.folder / regions.table
        if regions.edges:
            if regions.leaf or regions.name:
                raise SpecError("[regions] has edges = true, so it takes no leaf and no name")
            return Hierarchy.from_edges(table, levels=regions.levels)
        if regions.levels is None:
            raise SpecError("[regions] needs levels = [...] (the columns from the top down), or edges = true")
        if regions.leaf is not None:
            return Hierarchy.from_regions(
                table, leaf=regions.leaf, levels=regions.levels, name=regions.name, root=regions.root
            )
        if regions.name is not None:
            raise SpecError("[regions] takes a name only together with leaf")
        return Hierarchy.from_levels(table, regions.levels, root=regions.root)

    def read(self) -> GroupSizes:
        """Read and check the microdata."""
        options = self.data.model_dump(exclude={"source", "groups", "name"})
        source = self.data.source
        places = [source] if isinstance(source, str) else source
        found = [str(self.folder / place) for place in places]
        groups = None if self.data.groups is None else str(self.folder / self.data.groups)
        return read(
            found[0] if isinstance(source, str) else found,
            groups=groups,
            hierarchy=self.hierarchy(),
            name=self.name,
            **options,
        )

    def neighbours(self) -> Neighbours:
        """The neighbour relation that `read` would give, without opening the private data."""
        entity = self.privacy.unit == "one_entity"
        return Neighbours(
            unit=self.unit,
            max_size=self.data.max_size,
            public_totals=self.data.groups is not None,
            quantity_bound=self.data.quantity_bound or 1,
            rows_per_entity=(self.data.rows_per_entity or 1) if entity else 1,
            entity_column=self.data.entity is not None and entity,
            groups_were_split=self.data.on_spanning_group == "split",
        )


def _mistake(item: dict[str, Any]) -> str:
    """One mistake in words, with the nearest right key for an unknown one."""
    *place, last = [str(part) for part in item["loc"]]
    section = f"[{'.'.join(place)}] " if place else ""
    if item["type"] == "extra_forbidden":
        model: Any = _Spec
        for part in place:
            model = {"regions": RegionsSection, "data": DataSection, "privacy": PrivacySection}.get(
                part, ReleaseSection
            )
        keys = list(model.model_fields)
        near = get_close_matches(last, keys, n=1, cutoff=0.5)
        return f"{section}unknown key {last!r}; " + (
            f"did you mean {near[0]!r}?" if near else f"known: {', '.join(keys)}"
        )
    if item["type"] == "missing":
        what = "section" if not place else "key"
        return f"{section}the {what} {last!r} is missing"
    return f"{section}{last}: {item['msg'].lower()}, not {item['input']!r}"
