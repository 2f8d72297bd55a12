"""The spec of a release.

Every key is an argument of the Python function of the same name: `[regions]` of `Hierarchy`, `[data]` of `read`,
`[by.NAME]` of `Category`, `[privacy]`, `[release]` and `[areas]` of `release`, `[plan]` of `Prior`, `[report]` of
`Release.report`.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import AliasChoices, Field, PrivateAttr

from tallytree.command.spec import (
    Microdata,
    Number,
    PathOrTable,
    PathsOrTable,
    PathText,
    Privacy,
    ReportSection,
    Section,
    Spec,
    read_budget,
)
from tallytree.core.arrays import Floats, Integers
from tallytree.core.csv_files import CsvFormat
from tallytree.core.disk import digest_of_files
from tallytree.core.errors import SpecError
from tallytree.core.names import did_you_mean
from tallytree.core.progress import Progress, Stage, silent
from tallytree.core.public_table import public_table
from tallytree.domain.categories import Categories
from tallytree.domain.hierarchy import ROOT, Hierarchy
from tallytree.domain.histogram import size_label
from tallytree.estimate.intervals.interval import checked_level
from tallytree.mechanisms.budget_allocation import Priority
from tallytree.privacy.budget import Budget, Spending
from tallytree.privacy.ledger import Charge
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import Neighbours, UnitKind
from tallytree.privacy.noise import NoiseSource
from tallytree.publish.about import About
from tallytree.publish.release.error_bars import Publication
from tallytree.publish.release.release_run import (
    CheckedRelease,
    Design,
    check_release,
    finish_release,
    make_release,
)
from tallytree.publish.release.value import Release
from tallytree.publish.run_folder import RunFolder
from tallytree.tables import GroupSizes, read
from tallytree.tables.address import Source, files_of
from tallytree.tables.codebook import values_from_codebook
from tallytree.tables.count import leaves_by_text
from tallytree.tables.group_sizes import ROWS, Options, region_columns
from tallytree.tables.reading import (
    BadRows,
    find_bad_rows,
    groups_at_largest,
    lists_categories,
    public_rows,
    read_groups,
    rows_by_rule,
    rows_left_out,
)
from tallytree.tables.source import refuse_own_list, refuse_private_file
from tallytree.tables.spark import keep_sessions

if TYPE_CHECKING:
    from tallytree.planning.prior import Prior


class RegionsSection(Section):
    """The source of the public hierarchy: `levels`, or `leaf` with `levels` above it, or `edges`."""

    table: PathOrTable
    levels: list[str] | None = None
    leaf: str | None = None
    name: str | None = None
    edges: bool = False
    root: str = ROOT
    encoding: str = "utf-8"


class DataSection(Microdata):
    """The microdata: rows, and the groups that they belong to if these have a table of their own.

    Of persons and households, the keys may be called `persons`, `households` and `id`.
    """

    source: PathsOrTable = Field(validation_alias=AliasChoices("source", "persons"))
    group: str = Field(validation_alias=AliasChoices("group", "id"))
    max_size: int
    region: str | list[str] | None = None
    quantity: str | None = None
    quantity_bound: int | None = None
    entity: str | None = None
    rows_per_entity: int | None = None
    groups: PathsOrTable | None = Field(None, validation_alias=AliasChoices("groups", "households"))
    groups_are_public: bool = False
    on_spanning_group: Literal["error", "split"] = "error"
    on_unknown_region: str = "refuse"
    on_missing: Literal["refuse", "drop"] = "refuse"
    regions_are_public: bool = False
    table: str | None = None
    groups_table: str | None = None
    delimiter: str | None = None
    decimal: Literal[".", ","] = "."
    encoding: str = "utf-8"

    @property
    def form(self) -> CsvFormat:
        """Return how CSV files are written."""
        return CsvFormat(self.delimiter, self.decimal, self.encoding)


class BySection(Section):
    """A category: its public values, or a codebook that lists them, and who decides a group's value."""

    values: list[str | int] | None = None
    codebook: PathText | None = None  # a public table with the columns attribute and value
    decided_by: Literal["group", "members"] | None = None  # no default: an error explains its absence
    other: str | None = None


class PrivacySection(Privacy):
    """Unit and budget."""

    unit: UnitKind
    noise: Spending | None = None  # which noise an epsilon with a delta is spent on
    noise_source: NoiseSource = "tallytree"  # the library that draws it


class ReleaseSection(Section):
    """The mechanism, the intervals and the title of the release."""

    mechanism: str = "auto"
    options: dict[str, Any] | None = None  # the mechanism's own
    shares: dict[str, Number] | list[Number] | None = None
    priority: Priority | None = None
    title: str | None = None
    intervals: Literal["all", "guaranteed", "none"] = "all"
    confidence: int | Decimal = Decimal("0.95")  # of the intervals


class AreasSection(Section):
    """Areas of one kind, whose totals are published beside the counts."""

    file: PathText  # CSV or Parquet with the columns area and region


class PlanSection(Section):
    """The prior from public facts alone: for `plan` and for the mechanism `auto`."""

    prior: PathText  # a shape's name, an older public table or an earlier release's directory
    groups: int | None = None  # how many to expect in all
    spread: str | None = None  # a column of the regions table with the weights of the leaves


class ReleaseSpec(Spec):
    """The spec of a release of group sizes."""

    KIND: ClassVar[str] = "release"
    MICRODATA: ClassVar[str] = "data"

    data: DataSection
    privacy: PrivacySection
    regions: RegionsSection | None = None
    by: dict[str, BySection] = Field(default_factory=dict)
    release: ReleaseSection = Field(default_factory=ReleaseSection)
    plan: PlanSection | None = None
    areas: dict[str, AreasSection] = Field(default_factory=dict)
    report: ReportSection = Field(default_factory=ReportSection)
    _hierarchy: Hierarchy | None = PrivateAttr(None)

    @classmethod
    def of_text(cls, content: bytes, file: Path) -> Self:
        """Return the spec that a file has, or will have."""
        spec = super().of_text(content, file)
        if spec.release.shares is not None and spec.release.priority is not None:
            raise SpecError(f"{file}: [release] has both shares and priority; give only one of them")
        checked_level(float(spec.release.confidence))
        spec.stated()
        return spec

    def stated(self) -> About:
        """Return what all files state about the release, with its words for groups and entities."""
        return self.about.value().called(self.report.groups, self.report.entities)

    @property
    def mechanism_options(self) -> dict[str, dict[str, Any]]:
        """Return the options of the mechanism that the spec names, or that `auto` stands for, by its name."""
        release = self.release
        if release.options is None:
            return {}
        from tallytree.mechanisms import choose

        return {choose(release.mechanism, self.neighbours()).name: release.options}

    def _placed_groups(self) -> Any:
        """Return the path of the groups table, or its table of an engine, if there is one."""
        return None if self.data.groups is None else self.placed(self.data.groups)

    @property
    def _private_tables(self) -> list[Any]:
        """Return the rows, and the groups if their list is private."""
        data = self.data
        private = [data.source] if data.groups is None or data.groups_are_public else [data.source, data.groups]
        return [self.placed(each) for each in private]

    def _refuse_private(self, public: Any, what: str) -> None:
        """Refuse a public input that is one of the private tables."""
        for private in self._private_tables:
            refuse_private_file(public, private, what)

    def hierarchy(self) -> Hierarchy | None:
        """Return the public hierarchy if the spec names a table for it; it is read once."""
        if self._hierarchy is None:
            self._hierarchy = self._read_hierarchy()
        return self._hierarchy

    def _read_hierarchy(self) -> Hierarchy | None:
        regions = self.regions
        if regions is None:
            return None
        table = self._regions_table(regions)
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
            raise SpecError("[regions] name needs leaf")
        return Hierarchy.from_levels(table, regions.levels, root=regions.root)

    def _regions_table(self, regions: RegionsSection) -> Any:
        """Return the public table of regions: a path, or an engine's table of that name."""
        table = self.placed(regions.table)
        self._refuse_private(table, "[regions] table")
        if isinstance(table, Source):
            return public_rows(table)
        return public_table(table, "region table", CsvFormat(encoding=regions.encoding))

    def categories(self) -> Categories:
        """Return the categories of groups."""
        given = {}
        for name, section in self.by.items():
            if (section.values is None) == (section.codebook is None):
                raise SpecError(f"[by.{name}] needs values = [...], or a codebook that lists them; one of the two")
            values: Any = section.values
            if section.codebook is not None:
                path = self.folder / section.codebook
                self._refuse_private(path, f"[by.{name}] codebook")
                values = values_from_codebook(path, name)
            given[name] = {"values": values, "decided_by": section.decided_by, "other": section.other}
        return Categories.of(given or None)

    def area_files(self) -> dict[str, Path]:
        """Return the files of areas by kind."""
        found = {kind: self.folder / section.file for kind, section in self.areas.items()}
        for kind, path in found.items():
            self._refuse_private(path, f"[areas.{kind}] file")
        return found

    def options(self) -> Options:
        """Return what is counted, and how, as `read` decides it from the same public facts."""
        data, categories = self.data, self.categories()
        public = data.groups is not None and data.groups_are_public
        listed = True
        if public and self.by:
            listed = lists_categories(self._placed_groups(), data.groups_table, categories, data.form)
        named = {"group", "max_size", "quantity", "quantity_bound", "entity", "rows_per_entity"}
        return Options(
            region=region_columns(data.region),
            hierarchy=self.hierarchy(),
            on_spanning_group=data.on_spanning_group,
            on_unknown_region=data.on_unknown_region,
            on_missing=data.on_missing,
            groups_are_public=public,
            regions_are_public=data.regions_are_public,
            categories=categories,
            categories_listed=listed,
            **data.model_dump(include=named),
        )

    @keep_sessions()
    def public_regions(self) -> tuple[Hierarchy, Integers | None]:
        """Return the hierarchy and each leaf's number of groups if public; microdata are not opened."""
        data = self.data
        if data.groups is not None and data.groups_are_public:
            groups, options = self._placed_groups(), self.options()
            refuse_own_list(self.placed(data.source), data.table, groups, data.groups_table)
            how: dict[str, Any] = {"table": data.groups_table, "memory_limit": data.memory_limit, "form": data.form}
            tree, totals = read_groups(groups, options, **how)
            return (tree, totals) if options.public_totals else (tree.by_category(options.categories), None)
        hierarchy = self.hierarchy()
        if hierarchy is None:
            raise SpecError(
                "a plan does not open the microdata; give [regions] a public table, or [data] a public groups table"
            )
        return hierarchy.by_category(self.categories()), None

    def prior(self, hierarchy: Hierarchy, *, source: str | None = None, groups: int | None = None) -> Prior | None:
        """Return the prior of [plan]; `source` and `groups` replace its prior and groups."""
        from tallytree.planning.prior import SHAPES, Prior

        section = self.plan
        named = source if source is not None else None if section is None else section.prior
        if named is None:
            return None
        stated = groups if groups is not None or section is None else section.groups
        spread = None if section is None or section.spread is None else self._spread(hierarchy, section.spread)
        place: Any = named if named in SHAPES else self.folder / named
        if named not in SHAPES and place.is_dir():
            place = Release.load(place)
        elif named not in SHAPES:
            self._refuse_private(place, "the prior")
        return Prior.of(place, groups=stated, weights=spread)

    def _spread(self, hierarchy: Hierarchy, column: str) -> Floats:
        """Return the numbers of a column of the regions table, leaf by leaf."""
        from tallytree.core.public_table import numbers

        regions = self.regions
        if regions is None or regions.edges:
            raise SpecError("[plan] spread names a column of a [regions] table with one row for each leaf")
        columns = [regions.leaf] if regions.leaf is not None else list(regions.levels or [])
        table = self._regions_table(regions)
        if column not in table.column_names:
            hint = did_you_mean(column, table.column_names, "it has")
            raise SpecError(f"[plan] spread = {column!r} is not a column of the [regions] table; {hint}")
        keys = leaves_by_text(hierarchy, columns)
        cells = [[str(cell or "").strip() for cell in table[name].to_pylist()] for name in columns]
        found = [keys[row] for row in zip(*cells, strict=True)]
        weights = np.zeros(hierarchy.leaf_count)
        np.add.at(weights, found, numbers(table[column], column))
        return weights

    @keep_sessions()
    def read(self, progress: Progress = silent) -> GroupSizes:
        """Read and check the microdata."""
        progress(Stage("reading the regions"))
        hierarchy = self.hierarchy()
        progress(Stage("reading the data"))
        return read(
            self.placed(self.data.source),
            groups=self._placed_groups(),
            hierarchy=hierarchy,
            name=self.name,
            by=self.categories(),
            progress=progress,
            **self.data.model_dump(exclude={"source", "groups", "name"}),
        )

    def check_public(self) -> None:
        """Refuse files of areas that are private."""
        self.area_files()

    @property
    def budget(self) -> Budget:
        """Return the budget, with the noise that the spec asks for."""
        privacy = self.privacy
        amounts = {"epsilon": privacy.epsilon, "rho": privacy.rho, "delta": privacy.delta}
        return read_budget("[privacy]", **amounts, noise=privacy.noise)

    def charged_budget(self, charge: Charge) -> Budget:
        """Return the budget as the ledger's account is charged for it: the account decides an open choice of noise."""
        return charge.held(self.name, self.budget)

    def check(self, data: GroupSizes, public: None, budget: Budget, progress: Progress = silent) -> CheckedRelease:
        """Return what the release would do, as `release` checks it."""
        wanted = self.release
        prior = self.prior(data.hierarchy) if wanted.mechanism == "auto" else None
        how = wanted.mechanism, wanted.options, wanted.shares, wanted.priority, prior
        return check_release(data, Design(budget, self.unit, *how), self._publication(data), progress)

    def make(
        self, checked: CheckedRelease, charge: Charge, run: RunFolder, *, resume: bool, progress: Progress
    ) -> Release:
        """Measure and estimate; a run that was killed before its measurements were stored measures again."""
        return make_release(checked, charge, run, noise_source=self.privacy.noise_source, progress=progress)

    def resume(self, run: RunFolder, progress: Progress) -> Release:
        """Estimate from the measurements that a run stored."""
        measurements, wanted = run.measurements(), self.release
        publication = self._publication(measurements)
        return finish_release(run, measurements, wanted.mechanism, wanted.options, publication, progress)

    def _publication(self, data: GroupSizes | Measurements) -> Publication:
        wanted, about = self.release, self.stated()
        confidence = float(wanted.confidence)
        return Publication.of(data, self.title, wanted.intervals, confidence, self.area_files(), about)

    def fingerprint(self) -> str | None:
        """Return a digest of the input files; None without files."""
        return digest_of_files(files_of(*self._private_tables), ROWS)

    @keep_sessions()
    def left_out(self) -> dict[str, str]:
        """Return what reading leaves out, in words for the data holder alone: exact numbers, NOT PRIVATE."""
        data, options = self.data, self.options()
        source: Any = self.placed(data.source)
        how: dict[str, Any] = {"table": data.table, "memory_limit": data.memory_limit, "form": data.form}
        largest = groups_at_largest(source, options, **how)
        label = size_label(data.max_size, data.max_size)
        words = self.stated()
        parts = {"max_size": f"{largest.for_the_data_holder(f'{words.groups} with rows')} have {label}"}
        if found := rows_left_out(source, options, **how):
            rows, entities = (
                part.for_the_data_holder(what) for part, what in zip(found, ("rows", words.entities), strict=True)
            )
            parts["rows_per_entity"] = f"{rows} are dropped; {entities} lose some"
        if options.row_rules:
            tables = {"groups": self._placed_groups(), "tables": (how.pop("table"), data.groups_table)}
            for (rule, of), part in rows_by_rule(source, options, **tables, **how).items():
                moved = getattr(data, rule)
                done = "are dropped" if moved == "drop" else f"count in {moved}"
                told = f"{part.for_the_data_holder('rows' if of == 'rows' else f'rows of {words.groups}')} {done}"
                parts[rule] = f"{parts[rule]}; {told}" if rule in parts else told
        return parts

    def bad_rows(self) -> BadRows:
        """Return each bad row of the data, for the data holder alone. NOT PRIVATE."""
        data = self.data
        return find_bad_rows(
            self.placed(data.source),
            self.options(),
            groups=self._placed_groups(),
            tables=(data.table, data.groups_table),
            memory_limit=data.memory_limit,
            form=data.form,
        )

    @keep_sessions()
    def neighbours(self) -> Neighbours:
        """Return the neighbour relation that `read` would give, without opening the private data."""
        return Neighbours.of(self.options(), self.unit)
