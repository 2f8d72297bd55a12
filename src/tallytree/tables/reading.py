"""`read`: from microdata to `GroupSizes`, or to a list of every problem of the input.

`read_groups` reads the public list of groups alone, without opening the microdata.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tallytree.core.arguments import FLAG, TEXT, expecting, optional
from tallytree.core.arrays import Integers
from tallytree.core.csv_files import UTF_8, CsvFormat
from tallytree.core.errors import SpecError
from tallytree.core.progress import Progress, silent
from tallytree.domain.categories import NO_CATEGORIES, Categories
from tallytree.domain.hierarchy import Hierarchy
from tallytree.tables.address import Source, files_of, kind_of, paths_of, stem
from tallytree.tables.count import (
    DROPPED,
    NOWHERE,
    Counting,
    as_counts,
    check_engine,
    drop_missing,
    group_sizes,
    place,
    region_keys,
    unknown_leaf,
)
from tallytree.tables.group_sizes import (
    GroupSizes,
    Options,
    Unsharable,
    region_columns,
)
from tallytree.tables.guard import from_outside
from tallytree.tables.problems import (
    InputProblems,
    bad_rows,
    category_problems,
    column_problems,
    groups_problems,
    missing_columns,
    number_rows,
    one_row,
    problem,
    problems_of,
    raise_any,
)
from tallytree.tables.source import (
    Opened,
    open_groups,
    open_in_order,
    open_public_groups,
    open_source,
    refuse_own_list,
    workspace,
)
from tallytree.tables.sql import Table, count_if, select

BYTES_PER_CELL = 24  # counts of the leaves, of all regions, and a view of them


@from_outside("Reading the microdata")
@expecting(
    name=optional(TEXT),
    regions_are_public=FLAG,
    groups_are_public=FLAG,
    table=optional(TEXT),
    groups_table=optional(TEXT),
    delimiter=optional(TEXT),
    decimal=TEXT,
    encoding=TEXT,
)
def read(
    source: Any,
    *,
    group: str,
    region: str | Sequence[str] | None = None,
    hierarchy: Hierarchy | None = None,
    max_size: int,
    name: str | None = None,
    quantity: str | None = None,
    quantity_bound: int | None = None,
    entity: str | None = None,
    rows_per_entity: int | None = None,
    groups: Any = None,
    groups_are_public: bool = False,
    on_spanning_group: str = "error",
    on_unknown_region: str = "refuse",
    on_missing: str = "refuse",
    regions_are_public: bool = False,
    table: str | None = None,
    groups_table: str | None = None,
    by: Any = None,
    decided_by: Any = None,
    delimiter: str | None = None,
    decimal: str = ".",
    encoding: str = "utf-8",
    memory_limit: str | None = None,
    progress: Progress = silent,
) -> GroupSizes:
    """Count the groups of each size in every leaf region of private microdata.

    The engine that holds the rows checks and counts them; only counts leave it. The result is sealed: it shows its
    shape and no count, and only a noisy measurement gets counts out.

    The data are one table of rows, or two: rows, and a table with one row for each group (persons and households).

    Parameters
    ----------
    source : path, list of paths, table or Source
        The microdata, one row per entity: a path, a folder of Parquet files, a glob or a list of paths (Parquet, CSV,
        Excel, Stata, SPSS, a DuckDB file), Arrow data, a table of another engine (`Source`), a Spark data frame, or an
        Ibis table.
    group : str
        The column that says which group a row belongs to. A groups table has it too.
    region : str or list of str, optional
        The column with the leaf's id or name, or one column per level. A hierarchy of a single leaf needs none. A table
        `groups` must have the column, and the rows need not have it then.
    hierarchy : Hierarchy, optional
        The public tree of regions. Without it, the regions come from public `groups`, or from the data if
        `regions_are_public`.
    max_size : int
        The largest size that is counted separately; larger groups count as this size. Public.
    name : str, optional
        The name of the data set in the ledger. The default is the file's name without its ending.
    quantity : str, optional
        A column of non-negative integers. A group's size is then the sum of this column, not its number of rows.
    quantity_bound : int, optional
        The largest quantity that one row may have. Public, and needed with `quantity`.
    entity : str, optional
        The column that says whose row it is. Without it, each row is an entity.
    rows_per_entity : int, optional
        The largest number of rows that one entity may have. Public. Rows beyond it are dropped at random. Without it,
        every entity must have a single row.
    groups : path, table or Source, optional
        A table with one row for each group: its id (`group`), its region and its categories, such as a file of
        households. It is private, as the rows are, and a group without rows is then not counted.
    groups_are_public : bool, default False
        Your declaration that the list `groups` is public and complete. Its exact number of groups in every region is
        then published, and groups without rows count with size 0.
    on_spanning_group : {"error", "split"}, default "error"
        What to do with a group that has rows in two leaves: refuse the data, or count each pair of group and region as
        one group.
    on_unknown_region : str, default "refuse"
        What to do with rows whose region is missing or is not a leaf: "refuse" the data, "drop" these rows, or count
        them in the leaf with this id or name. A row of private `groups` takes its group with it.
    on_missing : {"refuse", "drop"}, default "refuse"
        What to do with rows that lack a group, entity or quantity, and with rows of private `groups` that lack a group.
    regions_are_public : bool, default False
        Your declaration that the list of regions that occur in the rows is public knowledge. With `hierarchy`, it says
        that the hierarchy was made from that list.
    table : str, optional
        The table of a DuckDB file, or the sheet of a workbook, to read `source` from.
    groups_table : str, optional
        The table of a DuckDB file, or the sheet of a workbook, to read `groups` from.
    by : mapping or Categories, optional
        One or two columns that divide groups besides their region, with their public values:
        ``{"tenure": ["owned", "rented"]}``. The columns are in the groups table, or in the rows with the same value in
        all rows of a group. If a public list lacks them, the number of groups is public by region and not by category,
        and each group on the list must have an entity.
    decided_by : str or mapping, optional
        Who decides a group's value: "group" or "members", for all columns or by column. See `Category`.
    delimiter : str, optional
        The delimiter between the cells of CSV files. The default is the one of comma, semicolon, tab and bar that gives
        the first line the most columns.
    decimal : {".", ","}, default "."
        The decimal mark of numbers in CSV files.
    encoding : str, default "utf-8"
        The encoding of CSV files, such as "windows-1252" or "utf-16".
    memory_limit : str, optional
        How much memory DuckDB may use, such as "2GB". The default is most of the memory.
    progress : callable, optional
        A function that is called with how far DuckDB is.

    Returns
    -------
    GroupSizes
        The private counts, behind public facts.

    Raises
    ------
    SpecError
        If an option is wrong.
    DataError
        If the data have problems. `InputProblems` lists all of them with exact counts, for the data holder only.

    Examples
    --------
    >>> import pyarrow as pa
    >>> people = pa.table({"home": ["a", "a", "b", "c"], "county": ["X", "X", "Y", "Y"]})
    >>> counties = tt.Hierarchy.from_levels({"county": ["X", "Y"]}, ["county"])
    >>> tt.read(people, group="home", region="county", hierarchy=counties, max_size=3)
    GroupSizes(Hierarchy(total 1 → county 2), sizes 1–3, private totals)
    """
    categories = Categories.of(by, decided_by)
    options = Options(
        group=group,
        region=region_columns(region),
        hierarchy=hierarchy,
        max_size=max_size,
        quantity=quantity,
        quantity_bound=quantity_bound,
        entity=entity,
        rows_per_entity=rows_per_entity,
        groups_are_public=groups is not None and groups_are_public,
        on_spanning_group=on_spanning_group,
        on_unknown_region=on_unknown_region,
        on_missing=on_missing,
        regions_are_public=regions_are_public,
        categories=categories,
    )
    if hierarchy is not None:
        refuse_too_many(hierarchy, options)
    paths = paths_of(source, "source")
    if name is None:
        name = stem(paths[0]) if paths and len(paths) == 1 else source.name if isinstance(source, Source) else None
    private = (source,) if groups is None or groups_are_public else (source, groups)
    options = replace(options, name=name, files=files_of(*private))
    if groups is not None:
        refuse_own_list(source, table, groups, groups_table)
    with workspace(memory_limit, CsvFormat(delimiter, decimal, encoding)) as connect:
        rows = open_source(source, table, connect, progress)
        listed = open_groups(groups, groups_table, rows, connect, private=len(private) > 1)
        counting, regions, keys = _counting(rows, listed, options)
        return group_sizes(
            counting,
            lambda query: rows.fetch("Counting", query),
            lambda: raise_any(problems_of(rows, counting, keys, regions)),
            regions,
        )


def _counting(rows: Opened, listed: Opened | None, options: Options) -> tuple[Counting, Hierarchy, Any]:
    """Return what is counted, the regions, and the texts that name a leaf."""
    if options.rows_per_entity is not None:
        check_engine(rows.engine.name)
    there = () if listed is None else listed.table.kinds
    options = replace(options, categories_listed=listed is not None and _are_listed(options.categories, there))
    raise_any(column_problems(rows.table, None if listed is None else listed.table, options))
    regions = _hierarchy(rows if listed is None else listed, options)
    refuse_too_many(regions, options)
    keys = region_keys(regions, options.region) if options.region else None
    unknown = unknown_leaf(regions, options.on_unknown_region)
    lists = None if listed is None else _place_groups(listed, options, keys, unknown)
    placed = _add_leaves(rows, drop_missing(rows.table, options), options.region, keys, unknown)
    return Counting(placed, lists, options, rows.put), regions, keys


def _place_groups(listed: Opened, options: Options, keys: Any, unknown: int | None) -> Table:
    """Return the groups table with the leaf of each group. The rules for bad rows hold for a private table only."""
    table = listed.table
    if not options.groups_are_public:
        table = drop_missing(table, options.of_groups)
        return _add_leaves(listed, table, options.region, keys, DROPPED if unknown is None else unknown)
    return _add_leaves(listed, table, options.region, keys)


def _add_leaves(opened: Opened, table: Table, region: Sequence[str], keys: Any, unknown: int | None = NOWHERE) -> Table:
    """Return a table with the leaf of each row; without one, if the rows do not name a region."""
    there = region and set(region) <= set(table.kinds)
    return place(table, region, keys, opened.put, unknown) if there else table


@dataclass(frozen=True)
class BadRows(Unsharable):
    """The files and numbers of bad rows, and the kinds of their problems: private, for the data holder alone."""

    columns: tuple[str, str, str]  # file, line or row, and problem
    rows: tuple[tuple[str, int, str], ...]

    def __repr__(self) -> str:
        return "BadRows(private)"


def find_bad_rows(
    source: Any,
    options: Options,
    *,
    groups: Any = None,
    tables: tuple[str | None, str | None] = (None, None),
    memory_limit: str | None = None,
    form: CsvFormat = UTF_8,
) -> BadRows:
    """Return each bad row of a file and of its groups table, if that is a file too, with the kind of its problem. NOT
    PRIVATE: see `problems.bad_rows`.
    """
    file, beside = _numbered_file(source, "source"), _numbered_file(groups, "groups")
    if file is None:
        raise SpecError("bad rows are listed for a single file: the rows of a database, or of several, have no number")
    with workspace(memory_limit, form) as connect:
        rows = open_in_order(source, "source", connect, table=tables[0])
        rows = replace(rows, table=number_rows(rows.table))
        listed = open_groups(groups, tables[1], rows, connect, private=not options.groups_are_public)
        if listed is not None and beside is not None:
            listed = replace(listed, table=number_rows(listed.table))
        counting, _, _ = _counting(rows, listed, options)
        found = bad_rows(rows, counting).to_pylist()
    files = [each for each in (file, beside) if each is not None]
    lines = [not each.lower().endswith((".parquet", ".pq", ".dta", ".sav")) for each in files]
    names = [Path(each).name for each in files]
    numbered = {(row["file"], row["number"] + lines[row["file"]], row["problem"]) for row in found}
    number = "line" if all(lines) else "line or row" if any(lines) else "row"
    return BadRows(("file", number, "problem"), tuple((names[at], *rest) for at, *rest in sorted(numbered)))


def _numbered_file(source: Any, option: str) -> str | None:
    """Return the path of a source that is a single file with numbered rows."""
    paths = paths_of(source, option) or []
    return paths[0] if len(paths) == 1 and kind_of(paths, option) != "duckdb" else None


@from_outside("Reading the microdata")
def check(source: Any, **options: Any) -> None:
    """Raise the errors that `read` would raise with the same arguments, and store nothing.

    It does all the work of `read`, because the checks are part of the counting query.
    """
    read(source, **options)


def read_groups(
    groups: Any,
    options: Options,
    *,
    table: str | None = None,
    memory_limit: str | None = None,
    form: CsvFormat = UTF_8,
) -> tuple[Hierarchy, Integers]:
    """Return the hierarchy and the public number of groups in each leaf, from a groups table as `read` takes it.

    The numbers are by category if the groups table has the categories of the options, otherwise by region.
    """
    with workspace(memory_limit, form) as connect:
        listed = open_public_groups(groups, table, connect)
        raise_any(missing_columns("the groups table", [*listed.table.kinds], [options.group, *options.region]))
        if not _are_listed(options.categories, listed.table.kinds):
            options = replace(options, categories=NO_CATEGORIES, categories_listed=True)
        regions = _hierarchy(listed, options)
        keys = region_keys(regions, options.region) if options.region else None
        located = _add_leaves(listed, listed.table, options.region, keys)
        counting = Counting(located, located, options, listed.put)
        raise_any(groups_problems(listed, counting) + category_problems(listed, counting, of_groups=True))
        cells = {"leaf": located.leaf, **counting.category(located)}
        by_leaf = f"({select(cells, located.source)}) AS given"
        columns = {name: name for name in cells} | {"size": "0", "groups": "count(*)"}
        query = select(columns, by_leaf, f" GROUP BY {', '.join(cells)}")
        counted = listed.fetch("Counting the groups", query)
    totals = as_counts(counted, replace(options, max_size=1), regions.leaf_count)[:, 0]
    return regions.by_category(options.categories), totals


def public_rows(source: Source) -> Any:
    """Return all rows of a public table of an engine, as Arrow data with every cell a text. Not for microdata."""
    with workspace(None) as connect:
        opened = open_source(source, None, connect)
        cells = {name: opened.table[name].as_text for name in opened.table.kinds}
        return opened.fetch("Reading the public table", select(cells, opened.table.source), "string")


def _are_listed(categories: Categories, columns: Collection[str]) -> bool:
    """Return whether the categories are in the groups table: all of them or none, and none that members decide."""
    there = [name for name in categories.names if name in columns]
    if there and len(there) < len(categories.names):
        raise SpecError(f"the groups table has the category {there[0]!r} and not the other one; expected both, or none")
    if there and categories.members_decide:
        raise SpecError(
            "nobody changes what the groups table says by coming or going, so a category that members decide cannot be "
            "in it. Set decided_by = 'group', or leave the column in the rows alone"
        )
    return len(there) == len(categories.names)


def refuse_too_many(regions: Hierarchy, options: Options) -> None:
    """Refuse more cells than the machine's memory holds, before they are counted."""
    cells = (options.max_size + 1) * len(options.categories) * len(regions)
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return
    if cells * BYTES_PER_CELL > memory:
        raise SpecError(
            f"there are {cells:,} cells (regions × categories × sizes); counting them takes about "
            f"{cells * BYTES_PER_CELL / 1e9:,.0f} GB of memory, and the machine has {memory / 1e9:,.0f} GB. Nothing "
            "was spent. Use a smaller max_size, fewer values of categories or fewer regions"
        )


def lists_categories(groups: Any, table: str | None, categories: Categories, form: CsvFormat = UTF_8) -> bool:
    """Return whether a public groups table has the columns of these categories."""
    with workspace(None, form) as connect:
        return _are_listed(categories, open_public_groups(groups, table, connect).table.kinds)


def _hierarchy(opened: Opened, options: Options) -> Hierarchy:
    """Return the public hierarchy: the given one, that of the groups table, or that of rows whose regions are public.

    Rows with gaps are left to the checks, which count them.
    """
    if options.hierarchy is not None:
        return options.hierarchy
    regions = _regions_that_occur(opened, options.region, with_groups=options.groups_are_public)
    return Hierarchy.from_levels(regions, list(options.region))


def regions_in_rows(
    source: Any, region: Sequence[str], *, table: str | None = None, form: CsvFormat = UTF_8
) -> dict[str, list[str]]:
    """Return the regions that occur in files of microdata, by column. The data holder declared their list public."""
    with workspace(None, form) as connect:
        opened = open_source(source, table, connect)
        raise_any(missing_columns("the microdata", [*opened.table.kinds], region))
        return _regions_that_occur(opened, region)


def _regions_that_occur(opened: Opened, region: Sequence[str], *, with_groups: bool = False) -> dict[str, list[str]]:
    """Return the regions of all rows without gaps, in order, by column."""
    columns = {column: opened.table[column].as_text for column in region}
    cells = opened.fetch(
        "Collecting the regions",
        select(columns, opened.table.source, f" GROUP BY {', '.join(columns.values())}"),
        "string",
    )
    if cells.num_rows == 0:
        raise InputProblems([problem("groups_no_rows" if with_groups else "no_regions", 0)])
    rows = []
    for row in zip(*(cells[column].to_pylist() for column in region), strict=True):
        texts = ["" if cell is None else str(cell) for cell in row]
        while texts and not texts[-1].strip():
            texts.pop()
        if texts and all(text.strip() for text in texts):
            rows.append((*texts, *[""] * (len(region) - len(texts))))
    if not rows:
        raise SpecError("the region columns are empty, so there is no hierarchy to take from them")
    levels = zip(region, zip(*sorted(set(rows)), strict=True), strict=True)
    return {column: [*texts] for column, texts in levels}


# -------------------------------------------------------------------- rows and persons left out
# How much is left out before counting: rows beyond rows_per_entity, persons beyond max_persons. NOT PRIVATE:
# these are exact numbers of the private data, for the data holder's own eyes. `tallytree validate` shows them, and
# nothing that is published or saved contains them.


@dataclass(frozen=True, eq=False, repr=False)
class Part(Unsharable):
    """A part of a total, exact: private."""

    part: int
    whole: int

    def for_the_data_holder(self, what: str) -> str:
        """Return the share in words. Not private: show it to the data holder, marked as such, and to nobody else."""
        share = 100 * self.part / self.whole if self.whole else 0.0
        return f"{share:.3g} % of {self.whole:,} {what} ({self.part:,})"

    def __repr__(self) -> str:
        return "Part(private)"


def rows_left_out(
    source: Any,
    options: Options,
    *,
    table: str | None = None,
    memory_limit: str | None = None,
    form: CsvFormat = UTF_8,
) -> tuple[Part, Part] | None:
    """Return rows that `read` drops, and entities that lose some; None without a bound on an entity's rows. NOT
    PRIVATE.
    """
    if options.entity is None or options.rows_per_entity is None:
        return None
    with workspace(memory_limit, form) as connect:
        return _beyond(open_source(source, table, connect), options.entity, options.rows_per_entity)


def persons_left_out(
    persons: Any, household_id: str, max_persons: int, *, memory_limit: str | None = None
) -> tuple[Part, Part]:
    """Return persons that `read_households` leaves out, and households that lose some. NOT PRIVATE."""
    with workspace(memory_limit) as connect:
        return _beyond(open_in_order(persons, "persons", connect), household_id, max_persons)


def rows_by_rule(
    source: Any,
    options: Options,
    *,
    groups: Any = None,
    tables: tuple[str | None, str | None] = (None, None),
    memory_limit: str | None = None,
    form: CsvFormat = UTF_8,
) -> dict[tuple[str, str], Part]:
    """Return the rows that each rule drops or moves, by rule and table; `on_missing` comes first. NOT PRIVATE."""
    with workspace(memory_limit, form) as connect:
        opened = open_source(source, tables[0], connect)
        listed = None
        if not options.groups_are_public:
            listed = open_groups(groups, tables[1], opened, connect, private=True)
        regions = _hierarchy(opened if listed is None else listed, options)
        found = _by_rule(opened, options, regions, "rows")
        if listed is not None:
            found |= _by_rule(listed, options.of_groups, regions, "groups")
    return found


def _by_rule(opened: Opened, options: Options, regions: Hierarchy, what: str) -> dict[tuple[str, str], Part]:
    found = {}
    rest = drop_missing(opened.table, options)
    counts = [
        one_row(opened, "Counting rows", select({"rows": "count(*)"}, each.source))["rows"]
        for each in (opened.table, rest)
    ]
    if options.on_missing != "refuse":
        found["on_missing", what] = Part(counts[0] - counts[1], counts[0])
    if options.on_unknown_region != "refuse" and set(options.region) <= set(rest.kinds):
        placed = place(rest, options.region, region_keys(regions, options.region), opened.put)
        nowhere = {"rows": count_if(f"{placed.leaf} = {NOWHERE}")}
        unknown = one_row(opened, "Counting rows", select(nowhere, placed.source))["rows"]
        found["on_unknown_region", what] = Part(unknown, counts[1])
    return found


def groups_at_largest(
    source: Any,
    options: Options,
    *,
    table: str | None = None,
    memory_limit: str | None = None,
    form: CsvFormat = UTF_8,
) -> Part:
    """Return groups of max_size or more, of all groups with rows, before any rows are dropped. NOT PRIVATE."""
    with workspace(memory_limit, form) as connect:
        rows = open_source(source, table, connect)
        names = (options.group, *(options.region if options.groups_were_split else ()))
        keys = ", ".join(rows.table[name].text for name in names)
        size = "count(*)" if options.quantity is None else f"sum({rows.table[options.quantity].number.text})"
        found = select({"size": size}, rows.table.source, f" GROUP BY {keys}")
        counts = {"groups": count_if("size > 0"), "largest": count_if(f"size > 0 AND size >= {options.max_size}")}
        row = one_row(rows, "Counting the largest groups", select(counts, f"({found}) AS given"))
    return Part(row["largest"], row["groups"])


def _beyond(rows: Opened, column: str, most: int) -> tuple[Part, Part]:
    """Return the rows beyond `most` with the same value, of all rows; and the values with more rows, of all values."""
    each = select({"number": "count(*)"}, rows.table.source, f" GROUP BY {rows.table[column].text}")
    many = f"number > {most}"
    counts = {"rows": count_if("TRUE", "number"), "dropped": count_if(many, f"number - {most}")}
    counts |= {"entities": count_if("TRUE"), "cut": count_if(many)}
    row = one_row(rows, "Counting dropped rows", select(counts, f"({each}) AS given"))
    return Part(row["dropped"], row["rows"]), Part(row["cut"], row["entities"])
