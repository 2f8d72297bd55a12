"""What a row counts as: rows to entities to groups to counts by (leaf, size), in one query, in the engine.

This module, `sql` and the options in `group_sizes` decide the private counts. How an engine runs a query is not here,
and neither is the text that says what is wrong with the data.

All that decides whether data are accepted is in the one query, which reads each row once. So what is counted is what
was checked, also where the rows of a source change from query to query. Only the last, small table reaches Python: at
most (leaves + 2) × (sizes + 1) rows. The query counts trouble on its way at next to no cost; what the trouble is,
`check` finds out, and only if there is any.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import DataError, SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.tables.group_sizes import GroupSizes, Options, Sealed
from tallytree.tables.sql import UNSIGNED, WHOLE, Cell, Table, literal, quoted, select

KEY_BYTES = 32
ENGINES = ("duckdb", "pyspark", "postgres")  # that have SHA-256, by the names that Ibis gives them
NOWHERE = -1  # no region, or one that is not in the hierarchy
AMBIGUOUS = -2  # a name that stands for several leaves

WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,17})\z"

Keys = dict[tuple[str, ...], int]


def group_sizes(
    counting: Counting, fetch: Callable[[str], Any], explain: Callable[[], None], hierarchy: Hierarchy
) -> GroupSizes:
    """The private counts, sealed, with the public facts that they were counted under.

    `fetch` runs a query. If the query met any trouble, or no rows, `explain` raises what is wrong.
    """
    options = counting.options
    # Which rows are kept is random. The query finds trouble on all rows, kept or not, so a refusal is not random.
    key = None if options.rows_per_entity is None else fresh_key()
    cells = fetch(counting.query(key))
    trouble = int(np.sum(_numbers(cells, "trouble")))
    if trouble or not np.any(_numbers(cells, "size")):
        explain()
    if trouble:
        raise DataError(
            f"{trouble:,} groups cannot be counted, and a second look found no reason: the rows changed meanwhile, or "
            "differ from query to query. Nothing was spent. Read from a table, or a file, that does not change"
        )
    counts = as_counts(cells, options, hierarchy.leaf_count)
    listed = options.with_groups and options.from_rows
    return GroupSizes(
        hierarchy=hierarchy.by_category(options.by),
        max_size=options.max_size,
        counts=Sealed(counts),
        leaf_totals=counts.sum(axis=1) if options.first_size == 0 else None,
        listed_totals=counts.reshape(-1, hierarchy.leaf_count, counts.shape[1]).sum(axis=(0, 2)) if listed else None,
        name=options.name,
        quantity_bound=options.quantity_bound or 1,
        rows_per_entity=options.rows_per_entity or 1,
        entity_column=options.entity is not None,
        rows_were_bounded=options.rows_per_entity is not None,
        groups_were_split=options.split,
        regions_declared_public=options.hierarchy is None and not options.with_groups,
        columns=options.columns,
        files=options.files,
    )


def as_counts(cells: Any, options: Options, leaf_count: int) -> Integers:
    """The counts `[leaves, sizes]` of the query's result, which must be free of trouble; leaves are by category."""
    first = options.first_size
    leaf, size, groups = (_numbers(cells, name) for name in ("leaf", "size", "groups"))
    if options.by.columns:  # the leaves of a tree by category are those of the regions, category by category
        leaf, leaf_count = _numbers(cells, "category") * leaf_count + leaf, len(options.by) * leaf_count
    counts = np.zeros((leaf_count, options.max_size + 1 - first), dtype=np.int64)
    counted = size >= first  # without a public list a group whose quantities sum to 0 is not known to exist
    np.add.at(counts, (leaf[counted], size[counted] - first), groups[counted])
    return counts


def _numbers(cells: Any, name: str) -> Integers:
    numbers: Integers = cells[name].to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


@dataclass(frozen=True, eq=False, repr=False)
class Counting:
    """The tables of an engine, and what is counted of them."""

    rows: Table
    groups: Table | None  # the public list of groups
    options: Options
    put: Callable[[Any], Table]  # from Arrow data to a table of the engine

    @property
    def region_in_rows(self) -> bool:
        """Do the rows say in which region they are? If not, the list of groups does."""
        return bool(self.options.region) and set(self.options.region) <= set(self.rows.kinds)

    @property
    def group(self) -> tuple[Cell, Cell]:
        """The column that names a row's group, and that of the list: as they are if they can be compared, or as text.

        Where an entity's rows are merged, a group must have a greatest value. Some engines have none of booleans, of
        UUIDs or of bytes.
        """
        options, own = self.options, self.rows[self.options.group]
        listed = own if self.groups is None else self.groups[options.group]
        alike = own.kind == listed.kind or (own.is_text and listed.is_text) or (own.is_whole and listed.is_whole)
        merged = options.entity is not None and options.rows_per_entity is None
        if alike and (own.is_text or own.is_numeric or not merged):
            return own, listed
        return Cell(own.as_text, "VARCHAR"), Cell(listed.as_text, "VARCHAR")

    def query(self, key: str | None) -> str:
        """Counts of groups by (leaf, size), and how many of them are in any trouble.

        With a bound on an entity's rows, `truncated` marks at most so many of each entity as `kept`, by the `key`. It
        is given what counting uses of a row (group, leaf, category, weight) and no more, so that rows which it cannot
        tell apart count the same.

        *The random selection decides sizes and nothing else.* Rows that are not kept stay in the query with a weight
        of 0. So trouble, and the leaf and category of a group, are functions of all rows: a table is accepted under
        every key or under none, and each group has the same leaf and category under every key. A group that keeps no
        row has size 0. Where sizes start at 1 it is then not counted; only if the public list has the group, and its
        rows tell its category, is it counted as size 1, because the domain says that somebody is in it
        (`Neighbours.sensitivity`).
        """
        options = self.options
        by = ["category"] if options.by.columns else []
        size = f"least(size, {options.max_size})"
        if options.with_groups and options.from_rows:
            size = f"greatest({size}, {options.first_size})"
        groups, trouble = self._groups(key)
        columns = {name: name for name in ("leaf", *by)}
        cells = {"size": f"CAST({size} AS BIGINT)", "trouble": f"CASE WHEN {' OR '.join(trouble)} THEN 1 ELSE 0 END"}
        counts = {"size": "size", "groups": "count(*)", "trouble": "CAST(sum(trouble) AS BIGINT)"}
        found = select(columns | cells, f"({groups}) AS given")
        return select(columns | counts, f"({found}) AS given", f" GROUP BY {', '.join(['size', *columns])}")

    # ---------------------------------------------------------------- rows

    def _rows(self, key: str | None) -> str:
        """A line for each row: its group, its leaf and category if it tells them, its `weight`, and is it `bad`?"""
        options, table = self.options, self.rows
        cells = {"group_key": self.group[0].text, **self.weight()}
        if self.region_in_rows or self.groups is None:
            cells["own"] = table.leaf
        if options.from_rows:
            cells |= self.category(table)
        if options.entity is None:
            return select(cells, table.source)
        entity = table[options.entity]
        rows = f"({select(cells | {'entity': entity.text}, table.source)}) AS given"
        nobody = Cell("entity", entity.kind).is_missing
        if options.rows_per_entity is None:
            # One row for each entity, which is bad if the entity had several, or is missing. So whatever the query
            # reads, no entity adds more than one row to what is counted.
            merged = {name: f"max({name})" for name in cells}
            merged["bad"] = f"CASE WHEN {nobody} OR count(*) > 1 THEN 1 ELSE max(bad) END"
            return select(merged, rows, " GROUP BY entity")
        flagged = {name: name for name in ("entity", *cells)} | {"bad": f"CASE WHEN {nobody} THEN 1 ELSE bad END"}
        lots = self.put({"lot_key": [key]}).name
        return truncated(select(flagged, rows), [*cells], options.rows_per_entity, entity="entity", lots=lots)

    def category(self, table: Table) -> dict[str, str]:
        """The place of a row's cell among all, or NOWHERE; no column where there is one cell.

        Values are compared as text. The queries after it see places and no values.
        """
        columns = self.options.by.columns
        if not columns:
            return {}
        codes = [self.category_code(table, at) for at in range(len(columns))]
        code = codes[0]
        if len(codes) == 2:
            known = f"{codes[0]} >= 0 AND {codes[1]} >= 0"
            code = f"CASE WHEN {known} THEN {codes[0]} * {len(columns[1].values)} + {codes[1]} ELSE {NOWHERE} END"
        return {"category": code}

    def category_code(self, table: Table, at: int) -> str:
        """The place of a row's value among those of one category; NOWHERE, or the stated other value, if none."""
        column = self.options.by.columns[at]
        cell = table[column.name]
        unknown = NOWHERE if column.other is None else column.values.index(column.other)
        cases = " ".join(f"WHEN {literal(text)} THEN {code}" for code, text in enumerate(column.values))
        return f"(CASE {cell.text if cell.is_text else cell.as_text} {cases} ELSE {unknown} END)"

    def weight(self) -> dict[str, str]:
        """What a row adds to its group (cut to max_size, so sums stay small), and `bad`: is it 1 where it cannot?"""
        options = self.options
        if options.quantity is None or options.quantity_bound is None:
            return {"weight": "1", "bad": "0"}
        value = self.rows[options.quantity].number
        good = value.within(options.quantity_bound)
        weight = f"CAST(CASE WHEN {good} THEN least({value.text}, {options.max_size}) ELSE 0 END AS BIGINT)"
        return {"weight": weight, "bad": f"CASE WHEN {good} THEN 0 ELSE 1 END"}

    # ---------------------------------------------------------------- groups

    def _groups(self, key: str | None) -> tuple[str, list[str]]:
        """Groups with `leaf`, `size` and category; and conditions, each of which is trouble if it is true of one."""
        options, listed = self.options, self.groups is not None
        kept = "weight" if options.rows_per_entity is None else "CASE WHEN kept THEN weight ELSE 0 END"
        sums = {"group_key": "group_key", "leaf": "max(leaf)" if listed else "min(own)", "size": f"sum({kept})"}
        trouble = [Cell("group_key", self.group[0].kind).is_missing]
        rows = self._rows(key)
        if listed:
            rows, sums["size"], sums["listings"] = self._stacked(rows, kept), "sum(weight)", "sum(listings)"
            trouble.append("listings <> 1")
        elif options.quantity is None and options.rows_per_entity is None:
            sums["size"] = "count(*)"
        if listed and options.from_rows:
            sums["own_size"] = "sum(own_weight)"  # the size before the selection
            trouble.append("own_size < 1")
        if options.quantity is not None or options.entity is not None:
            sums["bad"] = "max(bad)"
            trouble.append("bad > 0")
        if options.by.columns:
            sums |= {"category": "max(category)", "first_category": "min(category)"}
            trouble += [f"coalesce(first_category, {NOWHERE}) < 0", "category <> first_category"]
        if options.split:
            sums["leaf"] = "leaf" if listed else "own"
        elif self.region_in_rows:
            sums |= {"first_leaf": "min(own)", "last_leaf": "max(own)"}
            trouble += ["first_leaf <> leaf", "last_leaf <> leaf"]
        trouble.append(f"coalesce(leaf, {NOWHERE}) < 0")
        keys = ["group_key", *([sums["leaf"]] if options.split else [])]
        return select(sums, f"({rows}) AS given", f" GROUP BY {', '.join(keys)}"), trouble

    def _stacked(self, rows: str, kept: str) -> str:
        """Rows and list, one below the other: grouping them once does the work of an outer join."""
        assert self.groups is not None
        options, none = self.options, "CAST(NULL AS INTEGER)"
        pairs = {
            "group_key": ("group_key", self.group[1].text),
            "weight": (kept, "0"),
            "own_weight": ("weight", "0"),
            "listings": ("0", "1"),
            "bad": ("bad", "0"),
            "own": ("own" if self.region_in_rows else none, none),
            "leaf": ("own" if options.split else none, self.groups.leaf),
        }
        for name, code in self.category(self.groups if not options.from_rows else self.rows).items():
            pairs[name] = (name, none) if options.from_rows else (none, code)
        above, below = ({name: pair[at] for name, pair in pairs.items()} for at in (0, 1))
        return f"{select(above, f'({rows}) AS given')} UNION ALL {select(below, self.groups.source)}"


# -------------------------------------------------------------------- a bound on an entity's rows


def fresh_key() -> str:
    """A key from the operating system's randomness, as hexadecimal digits; one for each reading, never kept.

    The engine's own `random()` is not used: it can be seeded by whoever opened the connection, and it goes by a row's
    position.
    """
    return secrets.token_hex(KEY_BYTES)


def check_engine(engine: str) -> None:
    """Refuse an engine that has no SHA-256, before anything is read."""
    if engine not in ENGINES:
        raise SpecError(
            f"rows_per_entity draws lots with SHA-256, which is known here for {', '.join(ENGINES)}; the rows are on "
            f"{engine}. Read them from a file or an Arrow table instead, or leave one row for each entity and "
            "rows_per_entity out"
        )


def truncated(rows: str, content: Sequence[str], rows_per_entity: int, *, entity: str, lots: str) -> str:
    """All rows, with `kept` true for at most `rows_per_entity` of each entity: those that come first by their lots.

    `rows` is a query for the columns `entity` and `content`, and `lots` a table with the key in `lot_key`.

    A row's content is its entity and the columns `content`, which must be what counting uses and nothing else.
    Its lot is SHA-256 of the key (of fixed length) followed by the content, written so that different contents give
    different texts. An entity's rows are put in the order of (lot, content), and the first b are kept.

    *Only the entity's own rows matter.* The key is drawn before any row is read and independent of them all. Given
    the key, the order of two rows is a function of their contents. Rows that stand level in it have the same content,
    so whichever of them is kept, the same rows are counted, as often. So the kept rows of an entity, with their
    multiplicities, are a function of the key and of that entity's rows: not of other entities, not of the place of a
    row in the table, its engine's threads or its seed.

    *An entity added or removed* (the relation of `one_entity`). Couple the two data sets by the same key. All other
    entities then keep the same rows, and the one in question has at most b: the kept rows differ in at most b rows of
    one entity. That holds for every key, so it holds for the mixture over keys: the counts of the two data sets with
    a random key, coupled so, are always within the sensitivities for b rows, and measuring with noise costs what it
    does for each key (joint convexity: a mixture of pairs of outputs is no easier to tell apart than the worst pair).

    *One row of an entity added or removed.* A row of content c goes. If fewer than b rows come before the last row
    of content c, one row of content c is kept less, and the next in order, if there is one, moves up; otherwise
    nothing changes. So at most two kept rows differ: one goes and one comes. (It is a change within an entity: under
    `one_entity` two steps, the entity removed and added.)

    Nothing above needs a property of SHA-256. That lots are also fair, each row of an entity as likely to be kept as
    any other of different content, is that a keyed SHA-256 looks random to whom does not have the key. Copies of one
    row share a lot: they are kept or dropped side by side.
    """
    # The key is a row of data and no literal: so it is in no query text that an engine logs or quotes.
    drawn = f"({rows}) AS given CROSS JOIN {lots} AS lots"
    text = " || ".join(["lots.lot_key", *(_unambiguous(f"given.{quoted(name)}") for name in (entity, *content))])
    columns = {name: f"given.{quoted(name)}" for name in (entity, *content)}
    order = ", ".join(["lot", *map(quoted, content)])
    turn = f"row_number() OVER (PARTITION BY {quoted(entity)} ORDER BY {order})"
    names = {name: quoted(name) for name in columns}
    turns = select(names | {"turn": turn}, f"({select(columns | {'lot': f'sha256({text})'}, drawn)}) AS given")
    return select(names | {"kept": f"turn <= {rows_per_entity}"}, f"({turns}) AS given")


def _unambiguous(cell: str) -> str:
    """A cell as text with its length before it, or a mark for null: where it ends can be told whatever follows."""
    text = f"CAST({cell} AS VARCHAR)"
    return f"coalesce(CAST(length({text}) AS VARCHAR) || ':' || {text}, '-')"


# -------------------------------------------------------------------- regions
# A leaf is found by its id or name in one column, or by the names on its path in one column per level. Everything is
# compared as text; columns of whole numbers are joined as numbers, with the texts that are such a number's.


def region_keys(hierarchy: Hierarchy, columns: Sequence[str]) -> Any:
    """The texts that stand for each leaf, as Arrow data: `key_0`, `key_1` … and `found`, the leaf or AMBIGUOUS."""
    import pyarrow as pa

    leaves = hierarchy.level_slice(hierarchy.depth - 1)
    names = [*(f"key_{at}" for at in range(len(columns))), "found"]
    if len(columns) == 1 and hierarchy.names is hierarchy.ids and not hierarchy.carried[leaves].any():
        number = np.arange(hierarchy.leaf_count, dtype=np.int32)
        return pa.table([pa.array(hierarchy.ids[leaves], pa.string()), pa.array(number)], names)
    keys = leaves_by_text(hierarchy, columns)
    texts = (pa.array([key[at] for key in keys], pa.string()) for at in range(len(columns)))
    return pa.table([*texts, pa.array(keys.values(), pa.int32())], names)


def leaves_by_text(hierarchy: Hierarchy, columns: Sequence[str]) -> Keys:
    """The leaf that each text, or each path of texts, stands for. An id beats a name."""
    by_id: Keys = {}
    by_name: Keys = {}
    last = hierarchy.depth - 1
    places = None if len(columns) == 1 else _places(hierarchy, columns)
    for leaf, region, origin in _leaves(hierarchy):
        path = hierarchy.path_of(region)
        if places is None:
            by_id |= {(hierarchy.ids[region],): leaf, (hierarchy.ids[origin],): leaf}
            named: set[tuple[str, ...]] = {(hierarchy.names[region],)}
        else:
            lost = hierarchy.depth - len(path)
            named = {tuple(each[place] for place in places) for each in (path + ("",) * lost, path + path[-1:] * lost)}
            if not lost:
                with_id = (*path[:last], hierarchy.ids[origin])
                by_id[tuple(with_id[place] for place in places)] = leaf
        for key in named:
            by_name[key] = AMBIGUOUS if by_name.get(key, leaf) != leaf else leaf
    return by_name | by_id


def _leaves(hierarchy: Hierarchy) -> Iterator[tuple[int, int, int]]:
    """(leaf, region, origin): the number among the leaves, the region's index, and the region it was carried from."""
    first = int(hierarchy.level_starts[-2])
    for leaf in range(hierarchy.leaf_count):
        origin = first + leaf
        while hierarchy.carried[origin]:
            origin = int(hierarchy.parents[origin])
        yield leaf, first + leaf, origin


def _places(hierarchy: Hierarchy, columns: Sequence[str]) -> list[int]:
    """Which level each column holds: by the levels' names where these are the columns' names, otherwise by order."""
    if set(columns) <= set(hierarchy.levels):
        places = [hierarchy.levels.index(column) for column in columns]
        if hierarchy.depth - 1 in places:
            return places
    if len(columns) == hierarchy.depth:
        return list(range(hierarchy.depth))
    if len(columns) == hierarchy.depth - 1:
        return list(range(1, hierarchy.depth))
    raise SpecError(
        f"region names {len(columns)} columns, but the hierarchy has the levels {', '.join(hierarchy.levels)}; "
        "expected one column per level from the top down (the root's may be left out), or one column with leaves"
    )


def place(table: Table, region: Sequence[str], keys: Any, put: Callable[[Any], Table]) -> Table:
    """The table with the `leaf` of each row, NOWHERE where none is found; `put` takes Arrow data to its engine.

    The join comes before any aggregation on purpose: numbers of leaves are much cheaper to compare than texts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    matches = []
    for at, cell in enumerate(map(table.__getitem__, region)):
        key, text = f"key_{at}", cell.text
        may_be_empty = pc.any(pc.equal(keys[key], "")).as_py()  # short branches leave the column empty
        if not may_be_empty and (cell.kind in WHOLE or cell.kind in UNSIGNED[:-1]):
            keys = keys.filter(pc.match_substring_regex(keys[key], WHOLE_NUMBER))
            keys = keys.set_column(at, key, keys[key].cast(pa.int64()))
        elif may_be_empty:
            text = f"coalesce({cell.as_text}, '')"
        elif not cell.is_text:
            text = cell.as_text
        matches.append(f"{text} = leaves.{key}")
    joined = f" LEFT JOIN {put(keys).name} AS leaves ON {' AND '.join(matches)}"
    return replace(table, joined=joined, leaf=f"coalesce(leaves.found, {NOWHERE})")


def lost_zeros(table: Table, region: Sequence[str], keys: Any) -> bool:
    """Do codes of the hierarchy begin with a zero, while a column has numbers in their place?"""
    import pyarrow.compute as pc

    zeros = [pc.any(pc.match_substring_regex(keys[f"key_{at}"], "^0(?s:.)")).as_py() for at in range(len(region))]
    return any(zeros) and any(table[column].is_numeric for column in region)
