"""A synthesis' spec: a TOML file, checked strictly. Paths in it are relative to the file itself.

`[households]`, `[persons]` and `[schema]` are arguments of `read_households`; `[workload]` of the functions that make
one; `[privacy]`, `[agreement]` and `[synthesis]` of `synthesize`.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tallytree.command.toml_spec import Number, Section, load_spec, read_toml
from tallytree.errors import SpecError
from tallytree.privacy.budget import Budget
from tallytree.privacy.households.neighbours import HouseholdNeighbours, HouseholdUnit, HouseholdUnitKind
from tallytree.schema import Attribute, Marginal, Schema
from tallytree.synthesis.workload import Workload, all_sets, named, sampled_sets
from tallytree.tables.codebook import schema_from_codebook
from tallytree.tables.households import Households, Oversize, read_households
from tallytree.tables.source import stem

Texts = list[str | int]


class HouseholdsSection(Section):
    """The table of households."""

    source: str | list[str]
    id: str
    name: str | None = None
    memory_limit: str | None = None


class PersonsSection(Section):
    """The table of persons; `order` is the column that says which are a household's first."""

    source: str | list[str]
    order: str | None = None


class AttributeSection(Section):
    """Values, or cuts of a number (with names for the bins, if they shall have other than their own)."""

    values: Texts | None = None
    cuts: list[int | Decimal] | None = None
    missing: str | None = None


def _as_table(given: Any) -> Any:
    return {"values": given} if isinstance(given, list) else given


Attributes = dict[str, Annotated[AttributeSection, BeforeValidator(_as_table)]]


class SchemaSection(Section):
    """The public shape of the data: attributes here, or in a codebook."""

    max_persons: int
    oversize: Oversize = "error"
    codebook: str | None = None
    household: Attributes | None = None
    person: Attributes | None = None


class PrivacySection(Section):
    """Unit and budget."""

    unit: HouseholdUnitKind = "one_group"
    epsilon: Number | None = None
    rho: Number | None = None
    delta: Number | None = None
    ledger: str | None = None


class WorkloadSection(Section):
    """Which tables to get right: all sets of up to k attributes, a sample of those of k, or sets by name."""

    k: int | None = None
    sample: int | None = None
    sets: list[list[str]] | None = None
    size: bool = False


class AgreementSection(Section):
    """A release of group sizes that the synthetic households shall agree with."""

    release: str
    region: str


class SynthesisSection(Section):
    """How the synthesis is made and called, and how many households are drawn."""

    method: str | None = None
    options: dict[str, Any] | None = None  # the method's own
    households: int | None = None
    title: str | None = None


class _Spec(Section):
    households: HouseholdsSection
    persons: PersonsSection
    schema_: SchemaSection = Field(alias="schema")
    privacy: PrivacySection
    workload: WorkloadSection = Field(default_factory=WorkloadSection)
    agreement: AgreementSection | None = None
    synthesis: SynthesisSection = Field(default_factory=SynthesisSection)


@dataclass(frozen=True)
class SynthSpec:
    """A spec that was read from a file."""

    folder: Path
    sections: _Spec

    @classmethod
    def load(cls, path: str | Path) -> SynthSpec:
        """Read a TOML file; all its mistakes are named at once."""
        file = Path(path)
        return cls(file.absolute().parent, load_spec(file, _Spec))

    @property
    def budget(self) -> Budget:
        """The budget of this synthesis."""
        privacy = self.sections.privacy
        return Budget(epsilon=privacy.epsilon, rho=privacy.rho, delta=privacy.delta)

    @property
    def unit(self) -> HouseholdUnit:
        """The privacy unit."""
        return HouseholdUnit(self.sections.privacy.unit)

    @property
    def ledger(self) -> Path | None:
        """The ledger's path."""
        ledger = self.sections.privacy.ledger
        return None if ledger is None else self.folder / ledger

    @property
    def release(self) -> Path | None:
        """The directory of the release to agree with."""
        agreement = self.sections.agreement
        return None if agreement is None else self.folder / agreement.release

    @property
    def region(self) -> str | None:
        """The attribute that has the release's leaf regions."""
        return None if self.sections.agreement is None else self.sections.agreement.region

    @property
    def options(self) -> dict[str, Any] | None:
        """The method's options; numbers with a point are floating point again."""
        given = self.sections.synthesis.options
        if given is None:
            return None
        return {name: float(value) if isinstance(value, Decimal) else value for name, value in given.items()}

    @property
    def name(self) -> str | None:
        """The data set's name in the ledger."""
        households = self.sections.households
        source = households.source
        if households.name is not None or not isinstance(source, str) or set(source) & set("*?["):
            return households.name
        return stem(source)

    def schema(self) -> Schema:
        """The public schema, from the spec or from its codebook."""
        section = self.sections.schema_
        given = section.household is not None or section.person is not None
        if (section.codebook is not None) == given:
            raise SpecError(
                '[schema] needs either codebook = "…" or attributes in [schema.household] and [schema.person]'
            )
        if section.codebook is not None:
            path = self.folder / section.codebook
            if not path.exists():
                raise SpecError(f"there is no codebook at {path}")
            return schema_from_codebook(str(path), max_persons=section.max_persons)
        household, person = (
            tuple(_attribute(name, each) for name, each in (side or {}).items())
            for side in (section.household, section.person)
        )
        return Schema(household, person, section.max_persons)

    def workload(self, schema: Schema) -> Workload | None:
        """The tables that the spec names; None if it names none, which means the default."""
        section = self.sections.workload
        chosen: dict[Marginal, None] = {}
        if section.sample is not None:
            chosen.update(dict.fromkeys(sampled_sets(schema, section.k or 3, section.sample, "", size=section.size)))
        elif section.k is not None:
            chosen.update(dict.fromkeys(all_sets(schema, section.k, smaller=True, size=section.size)))
        elif section.size:
            raise SpecError("[workload] size = true goes with k or sample")
        if section.sets is not None:
            chosen.update(dict.fromkeys(named(schema, section.sets)))
        return Workload(schema, tuple(chosen)) if chosen or section.sets is not None else None

    def read(self) -> Households:
        """Read and check the microdata."""
        sections = self.sections
        return read_households(
            self._places(sections.households.source),
            self._places(sections.persons.source),
            schema=self.schema(),
            household_id=sections.households.id,
            person_order=sections.persons.order,
            oversize=sections.schema_.oversize,
            name=self.name,
            memory_limit=sections.households.memory_limit,
        )

    def neighbours(self) -> HouseholdNeighbours:
        """The neighbour relation, without opening the private data."""
        return HouseholdNeighbours(self.unit, self.sections.schema_.max_persons)

    def _places(self, source: str | list[str]) -> str | list[str]:
        if isinstance(source, str):
            return str(self.folder / source)
        return [str(self.folder / place) for place in source]


def is_synth_spec(path: str | Path) -> bool:
    """Is this a spec of a synthesis, rather than of a release? A file that cannot be read is not."""
    try:
        values = read_toml(Path(path))
    except SpecError:
        return False
    return "data" not in values and bool({"households", "persons", "schema"} & set(values))


def _attribute(name: str, section: AttributeSection) -> Attribute:
    """An attribute; bins that have no names are called after their cuts."""
    values = None if section.values is None else tuple(map(str, section.values))
    cuts = None if section.cuts is None else tuple(map(float, section.cuts))
    if values is None:
        if not section.cuts:
            raise SpecError(f"[schema] attribute {name!r} needs values, or cuts that make bins")
        edges = [str(cut) for cut in section.cuts]
        between = [f"{low} to {high}" for low, high in pairwise(edges)]
        values = (f"below {edges[0]}", *between, f"{edges[-1]} or more")
    if section.missing is not None and section.missing not in values:
        values = (*values, section.missing)
    return Attribute(name, values, cuts, section.missing)
