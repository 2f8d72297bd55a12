"""The spec of a synthesis.

`[households]`, `[persons]` and `[schema]` are arguments of `read_households`; `[workload]` of the functions that make
one; `[privacy]`, `[agreement]` and `[synthesis]` of `synthesize`; `[roles]` and `[rules]` of `Structure`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BeforeValidator, Field

from tallytree.command.spec import Microdata, PathText, Privacy, Section, Spec, only
from tallytree.core.disk import digest_of_files
from tallytree.core.errors import SpecError
from tallytree.core.progress import Progress, Stage, silent
from tallytree.domain.edit_rules import Below, Has, Implies, Number, Role, Rule, SizeClass, Structure, missing_together
from tallytree.domain.schema import Attribute, Counted, Marginal, Schema
from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import Charge
from tallytree.privacy.neighbours import HouseholdNeighbours, HouseholdUnitKind
from tallytree.publish.microdata.synthesis import Synthesis
from tallytree.publish.microdata.synthesis_run import (
    CheckedSynthesis,
    ChosenMethod,
    SynthesisSettings,
    check_synthesis,
    choose_method,
    make_synthesis,
)
from tallytree.publish.run_folder import RunFolder
from tallytree.synthesis.marginals import DEFAULT, METHODS
from tallytree.synthesis.workload import Workload, all_sets, default_workload, named, sampled_sets
from tallytree.tables.address import paths_of
from tallytree.tables.codebook import bin_names, schema_from_codebook
from tallytree.tables.group_sizes import Columns
from tallytree.tables.households import TABLES, Households, OnBrokenRules, Oversize, read_households
from tallytree.tables.problems import InputProblems
from tallytree.tables.reading import persons_left_out
from tallytree.tables.source import refuse_private_file

T = TypeVar("T")


class HouseholdsSection(Microdata):
    """The private table of households."""

    source: PathText | list[PathText] = Field(description="the file, or a list or glob of files")
    id: str = Field(description="the column that identifies a household, in both tables")


class PersonsSection(Section):
    """The private table of persons."""

    source: PathText | list[PathText] = Field(description="the file, or a list or glob of files")
    order: str | None = Field(
        default=None,
        description="a column that is not an attribute: it defines which persons come first in a household",
    )


class AttributeSection(Section):
    """Values, or cuts of a number; with cuts, optional `values` name the bins."""

    values: list[str | int] | None = Field(default=None, description="its values; with `cuts`, the names of the bins")
    cuts: list[int | Decimal] | None = Field(
        default=None, description="the numbers where its bins begin, in increasing order"
    )
    missing: str | None = Field(default=None, description="the value that an empty cell means")


def _as_table(given: Any) -> Any:
    return {"values": given} if isinstance(given, list) else given


Attributes = dict[
    str,
    Annotated[AttributeSection, BeforeValidator(_as_table, json_schema_input_type=list[str | int] | AttributeSection)],
]


class SchemaSection(Section):
    """The public shape of the data: attributes here, or in a codebook."""

    max_persons: int = Field(description="the largest number of persons that a household counts")
    oversize: Oversize = Field(
        default="error",
        description=(
            'what to do with larger households. `"drop"` leaves out their last persons, `"subsample"` persons at '
            "random: the files then describe the data after truncation, and `validate` shows the data holder how much "
            "is cut"
        ),
    )
    codebook: PathText | None = Field(
        default=None, description="a public table with the columns attribute, level, value and optionally cut"
    )
    household: Attributes | None = Field(
        default=None,
        description=(
            "Instead of a codebook: an attribute of households, and in `[schema.person.NAME]` one of persons. It is a "
            "list of its values, or a table."
        ),
    )
    person: Attributes | None = Field(
        default=None, description="An attribute of persons as a list of its values, or as a table."
    )


class PrivacySection(Privacy):
    """The privacy unit, the budget, and what the budget is charged to."""

    unit: HouseholdUnitKind = Field(default="one_group", description="[what is protected](#what-is-protected)")


class TableSection(Section):
    """A set of attributes by name, including `role.attribute`; both of its tables, or the one in `of`."""

    attributes: list[str] = Field(description="their names, also as [`role.attribute`](edit-rules.md#tables-by-role)")
    of: Counted | None = Field(default=None, description="what the table counts; by default there is one table of each")
    measure: bool = Field(default=False, description="`true`: these tables are measured in any case")


class WorkloadSection(Section):
    """The tables to answer well: all sets of up to k attributes, a sample of those of k, or sets by name."""

    k: int | None = Field(default=None, description="all sets of up to this number of attributes")
    sample: int | None = Field(
        default=None, description="this number of random sets of `k` attributes for each number of household attributes"
    )
    sets: list[list[str]] | None = Field(
        default=None, description="lists of names of attributes; `persons` is a household's number of persons"
    )
    tables: list[TableSection] | None = None
    measure: bool = Field(default=False, description="`true`: the tables of `sets` are measured in any case")
    size: bool = Field(default=False, description="`true` adds the number of persons to all sets of `k` and `sample`")


class AgreedCategory(Section):
    """The household attribute that has a category's values, and their names there."""

    attribute: str = Field(description="the household attribute")
    values: dict[str, str | int] | None = Field(
        default=None, description="for each value of the category, the value of the attribute; by default the same"
    )


class AgreementSection(Section):
    """A release of group sizes that the synthetic households [agree with](#agree-with-a-release)."""

    release: PathText = Field(description="the directory of the release")
    region: str = Field(description="the household attribute whose values are the leaf regions of the release")
    by: dict[str, str | AgreedCategory] | None = Field(
        default=None,
        description=(
            "For each category of the release, the household attribute with its values, or a table; by default the one "
            "of the same name."
        ),
    )

    def by_attribute(self) -> dict[str, Any] | None:
        """Return the attributes that have the release's categories, if given."""
        if self.by is None:
            return None
        return {name: each if isinstance(each, str) else each.model_dump() for name, each in self.by.items()}


class RegionalSection(Section):
    """Tables by the regions of the release that the households agree with: [households by
    region](#households-by-region).
    """

    share: int | Decimal | None = Field(
        default=None, description="the part of the budget for tables by region; by default 1/4"
    )
    tables: list[list[str]] | None = Field(
        default=None, description="lists of names of attributes; by default each attribute alone"
    )
    worth: int | Decimal | None = Field(
        default=None,
        description=(
            "a table is measured if its noise is expected to sum to at most this part of all it counts; by default 1"
        ),
    )


def _methods(schema: dict[str, Any]) -> None:
    """Add the names of the methods."""
    schema["enum"] = [*METHODS]


def _method_options(schema: dict[str, Any]) -> None:
    """Add the names of the options of all methods."""
    schema |= only(option.name for row in METHODS.values() for option in fields(row.kind))


class SynthesisSection(Section):
    """The method, the number of households and the title."""

    method: str | None = Field(
        default=None, description=f'the method; by default `"{DEFAULT}"`', json_schema_extra=_methods
    )
    options: dict[str, Any] | None = Field(
        default=None, description="the method's options", json_schema_extra=_method_options
    )
    households: int | None = Field(default=None, description="how many to draw; by default as many as there are")
    title: str | None = Field(default=None, description="the title, if it is not in `[about]`")


Values = dict[str, str | int | list[str | int]]


class RoleSection(Section):
    """A role of persons, by `attribute` and `values`, or by `position`. NAME is the role."""

    number: Number = Field(
        default="any",
        description="how many persons of a household have the role; exactly one means: in each household with persons",
    )
    attribute: str | None = Field(
        default=None, description="a person attribute whose `values` mean the role; all roles use the same attribute"
    )
    values: list[str | int] | None = Field(
        default=None, description="the values that mean the role; no value means two roles"
    )
    position: int | None = Field(
        default=None,
        description=(
            "instead of `attribute`: the place in the order of persons, 1 for the first, in the order of `[persons] "
            "order` if it is set"
        ),
    )
    household: Values | None = Field(
        default=None,
        description="with `position`: the household has these values; in other households nobody has the role",
    )
    may: Values | None = Field(default=None, description="the values that persons in the role may have")


class ImpliesSection(Section):
    """A person with the values of `when` has those of `then`; both may name household attributes."""

    then: Values = Field(description="the values that follow")
    when: Values | None = Field(default=None, description="the values that they follow from; by default always")
    role: str | None = Field(default=None, description="only persons in this role")


class BelowSection(Section):
    """An attribute of the persons in one role is below that of the person in another.

    For bins, the rule is broken if no two numbers in them could satisfy it.
    """

    role: str = Field(description="the role of the persons with the lower value")
    than: str = Field(description="the role of the person with the higher value")
    attribute: str = Field(description="the attribute that is compared")
    by: int | Decimal = Field(default=0, description="the least difference; 0: not above")


class HasSection(Section):
    """Households with these values have a person in the role."""

    role: str = Field(description="the role")
    household: Values = Field(description="the values of household attributes")
    only: bool = Field(default=False, description="`true`: no other households have such a person")


class SizeClassSection(Section):
    """A household attribute that follows from the number of persons."""

    attribute: str = Field(description="the household attribute")
    sizes: dict[str, int | list[int]] = Field(
        description="for each of its values, the number of persons, or the least and the most"
    )


class RulesSection(Section):
    """Edit rules for all households, and what to do with those of the data that break them."""

    empty: bool = Field(default=True, description="`false`: no household is without persons")
    on_broken_rules: Literal["refuse", "keep"] | None = Field(
        default=None, description='what to do with data that break a rule; by default `"refuse"`'
    )
    implies: list[ImpliesSection] | None = None
    below: list[BelowSection] | None = None
    has: list[HasSection] | None = None
    size_class: list[SizeClassSection] | None = None
    missing_together: list[list[str]] | None = Field(
        default=None, description='lists of attributes, `[["a", "b"]]`: all of a list are missing, or none'
    )


class SynthesisSpec(Spec):
    """The spec of a synthesis of households and persons."""

    KIND: ClassVar[str] = "synthesis"
    MICRODATA: ClassVar[str] = "households"

    households: HouseholdsSection
    persons: PersonsSection
    schema_: SchemaSection = Field(alias="schema")
    privacy: PrivacySection
    workload: WorkloadSection = Field(default_factory=WorkloadSection)
    roles: dict[str, RoleSection] | None = None
    rules: RulesSection | None = None
    agreement: AgreementSection | None = None
    regional: RegionalSection | None = None
    synthesis: SynthesisSection = Field(default_factory=SynthesisSection)

    @property
    def options(self) -> dict[str, Any] | None:
        """Return the method's options, decimal numbers as floats."""
        given = self.synthesis.options
        if given is None:
            return None
        return {name: float(value) if isinstance(value, Decimal) else value for name, value in given.items()}

    def public_schema(self) -> Schema:
        """Return the public schema, from the spec or from its codebook."""
        section = self.schema_
        given = section.household is not None or section.person is not None
        if (section.codebook is not None) == given:
            raise SpecError(
                '[schema] needs either codebook = "…" or attributes in [schema.household] and [schema.person]'
            )
        if section.codebook is not None:
            path = self.folder / section.codebook
            if not path.exists():
                raise SpecError(f"there is no codebook at {path}")
            for table in (self.households, self.persons):
                refuse_private_file(path, self.placed(table.source), "[schema] codebook")
            return self._with_structure(schema_from_codebook(str(path), max_persons=section.max_persons))
        household, person = (
            tuple(_attribute(name, each) for name, each in (side or {}).items())
            for side in (section.household, section.person)
        )
        return self._with_structure(Schema(household, person, section.max_persons))

    def _with_structure(self, schema: Schema) -> Schema:
        structure = structure_of(self.roles, self.rules, (*schema.household, *schema.person))
        return schema if structure is None else replace(schema, structure=structure)

    def chosen_workload(self, schema: Schema) -> Workload | None:
        """Return the tables that the spec names; None for the default."""
        section = self.workload
        chosen: dict[Marginal, None] = {}
        if section.sample is not None:
            chosen.update(dict.fromkeys(sampled_sets(schema, section.k or 3, section.sample, "", size=section.size)))
        elif section.k is not None:
            chosen.update(dict.fromkeys(all_sets(schema, section.k, smaller=True, size=section.size)))
        elif section.size:
            raise SpecError("[workload] size = true needs k or sample")
        by_name = named(schema, section.sets).marginals if section.sets is not None else ()
        measured = list(by_name) if section.measure else []
        if section.measure and section.sets is None:
            raise SpecError("[workload] measure = true needs sets; or set it in [[workload.tables]]")
        for one in section.tables or ():
            both = [table for table in named(schema, [one.attributes]) if one.of in (None, table.of)]
            by_name = (*by_name, *both)
            measured += both if one.measure else []
        if not chosen and section.sets is None and section.tables is not None:
            chosen.update(dict.fromkeys(default_workload(schema)))
        chosen.update(dict.fromkeys(by_name))
        return Workload(schema, tuple(chosen), tuple(measured)) if chosen or section.sets is not None else None

    def read(self, progress: Progress = silent) -> Households:
        """Read and check the microdata."""
        return self._read(None if self.rules is None else self.rules.on_broken_rules, progress)

    def _read(self, on_broken_rules: OnBrokenRules | None, progress: Progress = silent) -> Households:
        return read_households(
            self.placed(self.households.source),
            self.placed(self.persons.source),
            schema=self.public_schema(),
            household_id=self.households.id,
            person_order=self.persons.order,
            oversize=self.schema_.oversize,
            on_broken_rules=on_broken_rules,
            name=self.name,
            memory_limit=self.households.memory_limit,
            progress=progress,
        )

    def settings(self, schema: Schema) -> SynthesisSettings:
        """Return the arguments of `synthesize`."""
        agreed, wanted = self.agreement, self.synthesis
        if self.regional is not None and agreed is None:
            raise SpecError(
                "[regional] needs [agreement] with release and region: it uses the release's tree of regions"
            )
        settings = SynthesisSettings(
            self.budget,
            self.unit,
            self.chosen_workload(schema),
            wanted.method or DEFAULT,
            self.options,
            wanted.households,
            regional=None if self.regional is None else self.regional.model_dump(exclude_none=True),
            title=self.title,
            about=self.about.value(),
        )
        if agreed is None:
            return settings
        return replace(settings, release=self.folder / agreed.release, region=agreed.region, by=agreed.by_attribute())

    def check_public(self) -> tuple[SynthesisSettings, ChosenMethod]:
        """Return the settings, and the method and workload that follow from them."""
        schema = self.public_schema()
        settings = self.settings(schema)
        chosen = choose_method(schema, settings)
        if isinstance(settings.release, Path) and not settings.release.is_dir():
            raise SpecError(f"[agreement] there is no release at {settings.release}")
        return settings, chosen

    def check(
        self,
        data: Households,
        public: tuple[SynthesisSettings, ChosenMethod],
        budget: Budget,
        progress: Progress = silent,
    ) -> CheckedSynthesis:
        """Return what the synthesis would do, as `synthesize` checks it."""
        return check_synthesis(data, *public)

    def make(
        self, checked: CheckedSynthesis, charge: Charge, run: RunFolder, *, resume: bool, progress: Progress
    ) -> Synthesis:
        """Spend the budget round by round, and fit a model."""
        progress(Stage("measuring"))
        return make_synthesis(checked, charge, run, resume=resume, progress=progress)

    def fingerprint(self) -> str | None:
        """A digest of the input files."""
        sources = {"households": self.households.source, "persons": self.persons.source}
        files = [paths_of(self.placed(source), name) or [] for name, source in sources.items()]
        return digest_of_files([path for paths in files for path in paths], TABLES)

    def left_out(self) -> dict[str, str]:
        """Return what reading leaves out, and broken edit rules: exact numbers for the data holder, NOT PRIVATE."""
        broken = self._broken_rules()
        if self.schema_.oversize == "error":
            return broken
        persons, households = persons_left_out(
            self.placed(self.persons.source),
            self.households.id,
            self.schema_.max_persons,
            memory_limit=self.households.memory_limit,
        )
        dropped = persons.for_the_data_holder("persons")
        cut = households.for_the_data_holder("households with persons")
        return {"max_persons": f"{dropped} are left out; {cut} lose some", **broken}

    def _broken_rules(self) -> dict[str, str]:
        """Return how many households break each rule if they are kept; this reads the data once more."""
        if self.rules is None or self.rules.on_broken_rules != "keep":
            return {}
        try:
            self._read("refuse")
        except InputProblems as found:
            return {f"rule {place}": problem.text for place, problem in enumerate(found.problems, start=1)}
        return {"rules": "no household breaks a rule"}

    def neighbours(self) -> HouseholdNeighbours:
        """The neighbour relation, without opening the private data."""
        return HouseholdNeighbours(self.unit, self.schema_.max_persons, Columns(self.households.id))


def _attribute(name: str, section: AttributeSection) -> Attribute:
    """Return an attribute; bins without names are named after their cuts."""
    values = None if section.values is None else tuple(map(str, section.values))
    cuts = None if section.cuts is None else tuple(map(float, section.cuts))
    if values is None:
        if not section.cuts:
            raise SpecError(f"[schema] attribute {name!r} needs values, or cuts that make bins")
        values = bin_names([str(cut) for cut in section.cuts])
    if section.missing is not None and section.missing not in values:
        values = (*values, section.missing)
    return Attribute(name, values, cuts, section.missing)


def structure_of(
    roles: dict[str, RoleSection] | None, rules: RulesSection | None, attributes: tuple[Attribute, ...]
) -> Structure | None:
    """Return the structure in the two sections; None without them."""
    if roles is None and rules is None:
        return None
    named = tuple(_build(Role, section, name) for name, section in (roles or {}).items())
    given = rules or RulesSection()
    found: list[Rule] = [_build(Implies, one) for one in given.implies or ()]
    found += [_build(Below, one) for one in given.below or ()]
    found += [_build(Has, one) for one in given.has or ()]
    found += [SizeClass(one.attribute, one.sizes) for one in given.size_class or ()]
    known = {attribute.name: attribute for attribute in attributes}
    for names in given.missing_together or ():
        found += missing_together(known, tuple(names))
    return Structure(named, tuple(found), given.empty)


def _build(kind: Callable[..., T], section: Section, *name: str) -> T:
    """Return a role or a rule; its arguments are the keys of its section."""
    return kind(*name, **{key: _texts(value) for key, value in section.model_dump(exclude_none=True).items()})


def _texts(value: Any) -> Any:
    """Return a value of a section as roles and rules take it: the values of attributes as texts."""
    if isinstance(value, dict):
        return {name: _texts(given if isinstance(given, list) else [given]) for name, given in value.items()}
    if isinstance(value, list):
        return tuple(map(str, value))
    return float(value) if isinstance(value, Decimal) else value
