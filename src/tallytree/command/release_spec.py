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
    only,
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

    table: PathOrTable = Field(
        description='CSV or Parquet file of regions, or a public table of an engine: `{ url = "…", table = "…" }`'
    )
    levels: list[str] | None = Field(
        default=None, description="its columns from the top down; empty cells at the end of a row make a short branch"
    )
    leaf: str | None = Field(default=None, description="a column of leaf codes below `levels`")
    name: str | None = Field(default=None, description="with `leaf`: a column of the names of leaves")
    edges: bool = Field(
        default=False,
        description="`true`: the table's first two columns are child and parent; `levels` then names the levels",
    )
    root: str = Field(
        default=ROOT, description="the name of the root that is added if the first column holds several names"
    )
    encoding: str = Field(default="utf-8", description='the encoding of a CSV file, such as `"windows-1252"`')


class DataSection(Microdata):
    """The microdata: rows, and the groups that they belong to if these have a table of their own."""

    source: PathsOrTable = Field(
        validation_alias=AliasChoices("source", "persons"),
        description=(
            "the file with the rows, a list or glob of files, a folder of Parquet files, or a table of an "
            '[engine](reading.md#in-a-spec): `{ url = "postgresql://…", table = "people" }`'
        ),
    )
    group: str = Field(
        validation_alias=AliasChoices("group", "id"), description="the column that says which group a row belongs to"
    )
    max_size: int = Field(description="the largest size to count separately; larger groups count as this size")
    region: str | list[str] | None = Field(
        default=None, description="the column that names a row's leaf region, or one column for each level"
    )
    quantity: str | None = Field(
        default=None, description="a column of integers; the size is then its sum, not the rows"
    )
    quantity_bound: int | None = Field(default=None, description="with `quantity`: its largest value in a row")
    entity: str | None = Field(
        default=None,
        description="the column that says which entity, such as a person, a row belongs to; by default each row",
    )
    rows_per_entity: int | None = Field(
        default=None, description="with `entity`: the most rows that count of an entity; others are left out at random"
    )
    groups: PathsOrTable | None = Field(
        default=None,
        validation_alias=AliasChoices("groups", "households"),
        description="a table with a row for each group, if there is one; private, unless `groups_are_public`",
    )
    groups_are_public: bool = Field(
        default=False, description="`true` declares that everyone may know which groups there are, and where"
    )
    on_spanning_group: Literal["error", "split"] = Field(
        default="error", description="groups with rows in two leaf regions: refuse them, or count them once in each"
    )
    on_unknown_region: str = Field(
        default="refuse",
        description=(
            'rows whose region is missing or not a leaf: `"refuse"` the data, `"drop"` these rows, or the id or name '
            "of a leaf that they count in"
        ),
    )
    on_missing: Literal["refuse", "drop"] = Field(
        default="refuse", description="rows without a group, entity or quantity: refuse the data, or drop these rows"
    )
    regions_are_public: bool = Field(
        default=False, description="`true` declares that everyone may know which regions occur in the data"
    )
    table: str | None = Field(default=None, description="the table of a DuckDB file, or the sheet of a workbook")
    groups_table: str | None = Field(default=None, description="the same for the file of `groups`")
    delimiter: str | None = Field(
        default=None, description="the character between the cells of a CSV file; by default the first line shows it"
    )
    decimal: Literal[".", ","] = Field(default=".", description="the decimal sign of a CSV file")
    encoding: str = Field(default="utf-8", description='the encoding of a CSV file, such as `"windows-1252"`')

    @property
    def form(self) -> CsvFormat:
        """Return how CSV files are written."""
        return CsvFormat(self.delimiter, self.decimal, self.encoding)


class BySection(Section):
    """A category: its public values, or a codebook that lists them, and who decides a group's value."""

    values: list[str | int] | None = Field(default=None, description="its public values, in the order of the tables")
    codebook: PathText | None = Field(
        default=None, description="instead: a public file with the columns `attribute` and `value`"
    )
    decided_by: Literal["group", "members"] | None = Field(
        default=None,
        description="who decides a group's value; there is no default, because the privacy guarantee depends on it",
    )
    other: str | None = Field(
        default=None, description="the value that any other value counts as; without it, other values are errors"
    )


class PrivacySection(Privacy):
    """The privacy unit, the budget, and what the budget is charged to."""

    unit: UnitKind = Field(description="what is protected: each entity, such as a person, or each whole group")
    noise: Spending | None = Field(
        default=None,
        description=(
            "which noise an `epsilon` with a `delta` is spent on; by default the "
            "[better one](noise.md#laplace-or-gaussian-noise)"
        ),
    )
    noise_source: NoiseSource = Field(
        default="tallytree",
        description=(
            "the library that draws the [exact noise](noise.md); `\"opendp\"` needs `pip install 'tallytree[opendp]'`"
        ),
    )


def _mechanisms(schema: dict[str, Any]) -> None:
    """Add the names of the mechanisms that can be released."""
    from tallytree.mechanisms import MECHANISMS

    schema["enum"] = ["auto", *(row.name for row in MECHANISMS.values() if not row.refused)]


def _mechanism_options(schema: dict[str, Any]) -> None:
    """Add the names of the options of all mechanisms."""
    from tallytree.mechanisms import MECHANISMS

    schema |= only(name for row in MECHANISMS.values() for name in getattr(row, "takes", ()))


class ReleaseSection(Section):
    """The mechanism, the intervals and the title of the release."""

    mechanism: str = Field(
        default="auto",
        description=(
            'a name from `tallytree mechanisms`, or `"auto"`, which chooses from public facts: see '
            "[mechanisms](mechanisms.md)"
        ),
        json_schema_extra=_mechanisms,
    )
    options: dict[str, Any] | None = Field(
        default=None,
        description=(
            "the mechanism's options; the [count-of-counts mechanisms](papers.md) and `tallytree` (for example "
            "[bands of sizes](mechanisms.md#bands-of-sizes)) have some"
        ),
        json_schema_extra=_mechanism_options,
    )
    shares: dict[str, Number] | list[Number] | None = Field(
        default=None,
        description=(
            "how the budget is divided over the levels, by name or from the top down. By default "
            "[`tallytree`](mechanisms.md#tallytree) chooses them from the budget and the number of regions; other "
            "mechanisms use equal shares"
        ),
    )
    priority: Priority | None = Field(
        default=None,
        description=(
            'instead of `shares`: `"upper"` gives each level twice the share of the next, `"leaves"` half of it, '
            '`"balanced"` equal shares; [`tallytree`](mechanisms.md#tallytree) uses its own split for each'
        ),
    )
    title: str | None = Field(default=None, description="the title of the release, if it is not in `[about]`")
    intervals: Literal["all", "guaranteed", "none"] = Field(
        default="all", description="which [error bars](intervals.md) to publish"
    )
    confidence: int | Decimal = Field(default=Decimal("0.95"), description="the confidence level of the error bars")


class AreasSection(Section):
    """Areas of one kind, whose totals are published beside the counts."""

    file: PathText = Field(description="a CSV or Parquet file with the columns `area` and `region`")


class PlanSection(Section):
    """The prior from public facts alone: for `plan` and for the mechanism `auto`."""

    prior: PathText = Field(
        description="what you expect: the name of a shape, an older public table, or an earlier release's directory"
    )
    groups: int | None = Field(default=None, description="how many groups to expect in all")
    spread: str | None = Field(default=None, description="a column of the regions table with the weights of the leaves")


class ReleaseSpec(Spec):
    """The spec of a release of group sizes."""

    KIND: ClassVar[str] = "release"
    MICRODATA: ClassVar[str] = "data"

    data: DataSection = Field(
        description="The private microdata: the arguments of `read`, see [Read microdata](reading.md)."
    )
    privacy: PrivacySection
    regions: RegionsSection | None = Field(
        default=None, description="The public hierarchy. Leave it out if the hierarchy comes from a `groups` table."
    )
    by: dict[str, BySection] = Field(
        default_factory=dict,
        description=(
            "Divides groups into [categories](release-contents.md#categories). NAME is a column. At most two."
        ),
    )
    release: ReleaseSection = Field(default_factory=ReleaseSection)
    plan: PlanSection | None = Field(
        default=None, description="What is expected, for [`tallytree plan`](plan.md) and for the mechanism `auto`."
    )
    areas: dict[str, AreasSection] = Field(
        default_factory=dict,
        description=(
            "Once for each kind of [custom areas](release-contents.md#custom-areas) to publish. NAME is the kind."
        ),
    )
    report: ReportSection = Field(
        default_factory=ReportSection,
        description=(
            "Words for groups and entities, and the map of the [report](report.md). The release states the words, so "
            "`query`, `compare` and `report` use them too."
        ),
    )
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
