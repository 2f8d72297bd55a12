"""The counting query: from rows to entities to groups to counts by (leaf, size), in one query in the engine.

This module, `sql` and the options in `group_sizes` decide the private counts. Other modules run queries on engines and
describe problems in the data.

One query decides whether data are accepted, and it reads each row once. So the rows that are checked are the rows that
are counted, even if the rows of a source change from query to query. Only the last, small table reaches Python: at most
(leaves + 2) × (sizes + 1) rows. The query also counts problems, at almost no cost. `check` finds out what they are, and
only if there are any.
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
from tallytree.tables.group_sizes import GroupSizes, Options, Sealed, shared_fields
from tallytree.tables.sql import UNSIGNED, WHOLE, Cell, Table, comparable, literal, quoted, select

KEY_BYTES = 32
ENGINES = ("duckdb", "pyspark", "postgres")  # engines with SHA-256, by their names in Ibis
NOWHERE = -1  # no region, or a region outside the hierarchy
AMBIGUOUS = -2  # a name that stands for several leaves
DROPPED = -3  # of a group whose own row has no known region, if a rule drops it

WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,17})\z"

Keys = dict[tuple[str, ...], int]


def group_sizes(
    counting: Counting, fetch: Callable[[str], Any], explain: Callable[[], None], hierarchy: Hierarchy
) -> GroupSizes:
    """Return the private counts, sealed, with the public facts that they were counted under.

    `fetch` runs a query. If the query meets a problem or has no rows, `explain` raises the reasons.
    """
    options = counting.options
    # The selection of rows is random. The query finds problems in all rows, selected or not, so refusals are not.
    key = None if options.rows_per_entity is None else fresh_key()
    cells = fetch(counting.query(key))
    trouble = int(np.sum(_numbers(cells, "trouble")))
    if trouble or not np.any(_numbers(cells, "size")):
        explain()
    if trouble:
        raise DataError(
            f"{trouble:,} groups cannot be counted, and a second query found no reason: the rows changed meanwhile, or "
            "differ from query to query. Nothing was spent. Read from a table, or a file, that does not change"
        )
    counts = as_counts(cells, options, hierarchy.leaf_count)
    by_category = counts.reshape(-1, hierarchy.leaf_count, counts.shape[1])
    facts = {
        "hierarchy": hierarchy.by_category(options.categories),
        "counts": Sealed(counts),
        "leaf_totals": counts.sum(axis=1) if options.public_totals else None,
        "listed_totals": by_category.sum(axis=(0, 2)) if options.groups_listed else None,
        "regions_declared_public": options.regions_are_public
        and (options.hierarchy is not None or not options.groups_are_public),
    }
    return GroupSizes(**shared_fields(options, GroupSizes) | facts)


def as_counts(cells: Any, options: Options, leaf_count: int) -> Integers:
    """Return the counts `[leaves, sizes]` of the query's result, which must be free of problems; leaves are by
    category.
    """
    first = options.first_size
    leaf, size, groups = (_numbers(cells, name) for name in ("leaf", "size", "groups"))
    counted = (size >= first) & (leaf >= 0)  # without a public list, a group without persons is unknown
    if options.categories.columns:  # the leaves are those of the regions, category by category
        leaf, leaf_count = _numbers(cells, "category") * leaf_count + leaf, len(options.categories) * leaf_count
    counts = np.zeros((leaf_count, options.max_size + 1 - first), dtype=np.int64)
    np.add.at(counts, (leaf[counted], size[counted] - first), groups[counted])
    return counts


def _numbers(cells: Any, name: str) -> Integers:
    numbers: Integers = cells[name].to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


@dataclass(frozen=True, eq=False, repr=False)
class Counting:
    """The tables of an engine, and the options of the count."""

    rows: Table
    groups: Table | None  # the groups table: public, or a private file of the data holder
    options: Options
    put: Callable[[Any], Table]  # copies Arrow data to a table of the engine

    @property
    def region_in_rows(self) -> bool:
        """Return whether the rows name their region; otherwise the list of groups does."""
        return bool(self.options.region) and set(self.options.region) <= set(self.rows.kinds)

    @property
    def categories_in_rows(self) -> bool:
        """Return whether the rows state the categories of their groups; otherwise the list of groups does."""
        return self.groups is None or not self.options.categories_listed

    @property
    def group(self) -> tuple[Cell, Cell]:
        """Return the group columns of the rows and of the list: unchanged if they can be compared, otherwise as text.

        Merging an entity's rows takes the greatest value of a group. Some engines have no greatest value of booleans,
        UUIDs or bytes.
        """
        options, own = self.options, self.rows[self.options.group]
        merged = options.entity is not None and options.rows_per_entity is None
        if merged and not (own.is_text or own.is_numeric):
            own = Cell(own.as_text, "VARCHAR")
        return comparable(own, own if self.groups is None else self.groups[options.group])

    def query(self, key: str | None) -> str:
        """Return the query for counts of groups by (leaf, size), and the number of them with any problem.

        With a bound on an entity's rows, `truncated` marks at most so many rows of each entity as `kept`, by the `key`.
        It sees only the columns that counting uses (group, leaf, category, weight), so rows that agree in them count
        the same.

        *The random selection decides sizes and nothing else.* Rows that are not kept stay in the query with a weight of
        0. So problems, and the leaf and category of a group, are functions of all rows: a table is accepted under every
        key or under none, and each group has the same leaf and category under every key. A group without a kept row has
        size 0. Where sizes start at 1 it is then not counted, with one exception: if the public list has the group, and
        its rows state its category, it is counted as size 1, because in the domain every such group has an entity
        (`Neighbours.sensitivity`).
        """
        options = self.options
        by = ["category"] if options.categories.columns else []
        size = f"least(size, {options.max_size})"
        if options.groups_listed:
            size = f"greatest({size}, {options.first_size})"
        groups, trouble = self._groups(key)
        columns = {name: name for name in ("leaf", *by)}
        cells = {"size": f"CAST({size} AS BIGINT)", "trouble": f"CASE WHEN {' OR '.join(trouble)} THEN 1 ELSE 0 END"}
        counts = {"size": "size", "groups": "count(*)", "trouble": "CAST(sum(trouble) AS BIGINT)"}
        found = select(columns | cells, f"({groups}) AS given")
        return select(columns | counts, f"({found}) AS given", f" GROUP BY {', '.join(['size', *columns])}")

    # ---------------------------------------------------------------- rows

    def _rows(self, key: str | None) -> str:
        """Return a query with a line for each row: its group, its leaf and category if it has them, `weight`
        and `bad`.
        """
        options, table = self.options, self.rows
        cells = {"group_key": self.group[0].text, **self.weight()}
        if self.region_in_rows or self.groups is None:
            cells["own"] = table.leaf
        if self.categories_in_rows:
            cells |= self.category(table)
        if options.entity is None:
            return select(cells, table.source)
        entity = table[options.entity]
        rows = f"({select(cells | {'entity': entity.text}, table.source)}) AS given"
        nobody = Cell("entity", entity.kind).is_missing
        if options.rows_per_entity is None:
            # One row for each entity, which is bad if the entity had several or is missing. So for any rows that
            # the query reads, no entity adds more than one row to what is counted.
            merged = {name: f"max({name})" for name in cells}
            merged["bad"] = f"CASE WHEN {nobody} OR count(*) > 1 THEN 1 ELSE max(bad) END"
            return select(merged, rows, " GROUP BY entity")
        flagged = {name: name for name in ("entity", *cells)} | {"bad": f"CASE WHEN {nobody} THEN 1 ELSE bad END"}
        key_table = self.put({"hash_key": [key]}).name
        return truncated(select(flagged, rows), [*cells], options.rows_per_entity, entity="entity", key_table=key_table)

    def category(self, table: Table) -> dict[str, str]:
        """Return the index of a row's cell among all, or NOWHERE; no column if there is only one cell.

        Values are compared as text. Later queries see indices and no values.
        """
        columns = self.options.categories.columns
        if not columns:
            return {}
        codes = [self.category_code(table, at) for at in range(len(columns))]
        code = codes[0]
        if len(codes) == 2:
            known = f"{codes[0]} >= 0 AND {codes[1]} >= 0"
            code = f"CASE WHEN {known} THEN {codes[0]} * {len(columns[1].values)} + {codes[1]} ELSE {NOWHERE} END"
        return {"category": code}

    def category_code(self, table: Table, at: int) -> str:
        """Return the index of a row's value in one category: the index of `other` if unlisted, or NOWHERE without
        `other`.
        """
        column = self.options.categories.columns[at]
        cell = table[column.name]
        unknown = NOWHERE if column.other is None else column.values.index(column.other)
        cases = " ".join(f"WHEN {literal(text)} THEN {code}" for code, text in enumerate(column.values))
        return f"(CASE {cell.text if cell.is_text else cell.as_text} {cases} ELSE {unknown} END)"

    def weight(self) -> dict[str, str]:
        """Return what a row adds to its group (cut to max_size, so sums stay small), and `bad`: 1 if the value is
        invalid.
        """
        options = self.options
        if options.quantity is None or options.quantity_bound is None:
            return {"weight": "1", "bad": "0"}
        value = self.rows[options.quantity].number
        good = value.within(options.quantity_bound)
        weight = f"CAST(CASE WHEN {good} THEN least({value.text}, {options.max_size}) ELSE 0 END AS BIGINT)"
        return {"weight": weight, "bad": f"CASE WHEN {good} THEN 0 ELSE 1 END"}

    # ---------------------------------------------------------------- groups

    def _groups(self, key: str | None) -> tuple[str, list[str]]:
        """Return the groups with `leaf`, `size` and category, and the conditions that mark a group as a problem."""
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
        if options.groups_listed:
            sums["own_size"] = "sum(own_weight)"  # the size before the random selection
            trouble.append("own_size < 1")
        if options.quantity is not None or options.entity is not None:
            sums["bad"] = "max(bad)"
            trouble.append("bad > 0")
        if options.categories.columns:
            sums |= {"category": f"coalesce(max(category), {NOWHERE})", "first_category": "min(category)"}
            if options.groups_listed:  # each group on a public list has an entity; a private one may have none
                trouble.append("first_category IS NULL")
            trouble += ["first_category < 0", "category <> first_category"]
        if options.groups_were_split:
            sums["leaf"] = "leaf" if listed else "own"
        elif self.region_in_rows:
            sums |= {"first_leaf": "min(own)", "last_leaf": "max(own)"}
            trouble += [f"{own} <> leaf AND leaf <> {DROPPED}" for own in ("first_leaf", "last_leaf")]
        trouble.append(f"coalesce(leaf, {NOWHERE}) IN ({NOWHERE}, {AMBIGUOUS})")
        keys = ["group_key", *([sums["leaf"]] if options.groups_were_split else [])]
        return select(sums, f"({rows}) AS given", f" GROUP BY {', '.join(keys)}"), trouble

    def _stacked(self, rows: str, kept: str) -> str:
        """Return rows and list, one below the other: grouping them once does the work of an outer join."""
        assert self.groups is not None
        options, none = self.options, "CAST(NULL AS INTEGER)"
        pairs = {
            "group_key": ("group_key", self.group[1].text),
            "weight": (kept, "0"),
            "own_weight": ("weight", "0"),
            "listings": ("0", "1"),
            "bad": ("bad", "0"),
            "own": ("own" if self.region_in_rows else none, none),
            "leaf": ("own" if options.groups_were_split else none, self.groups.leaf),
        }
        for name, code in self.category(self.rows if self.categories_in_rows else self.groups).items():
            pairs[name] = (name, none) if self.categories_in_rows else (none, code)
        above, below = ({name: pair[at] for name, pair in pairs.items()} for at in (0, 1))
        return f"{select(above, f'({rows}) AS given')} UNION ALL {select(below, self.groups.source)}"


# -------------------------------------------------------------------- a bound on an entity's rows


def fresh_key() -> str:
    """Return a key from the operating system's randomness, as hexadecimal digits; one for each reading, never stored.

    The engine's own `random()` is not used: the owner of the connection can seed it, and it depends on a row's
    position.
    """
    return secrets.token_hex(KEY_BYTES)


def check_engine(engine: str) -> None:
    """Refuse an engine without SHA-256, before anything is read."""
    if engine not in ENGINES:
        raise SpecError(
            f"rows_per_entity needs SHA-256 for its random selection, which is available on {', '.join(ENGINES)}; the "
            f"rows are on {engine}. Read them from a file or an Arrow table instead, or leave one row for each entity "
            "and rows_per_entity out"
        )


def truncated(rows: str, content: Sequence[str], rows_per_entity: int, *, entity: str, key_table: str) -> str:
    """Return all rows, with `kept` true for at most `rows_per_entity` of each entity: the first ones by random key.

    `rows` is a query for the columns `entity` and `content`, and `key_table` a table with the key in `hash_key`.

    A row's content is its entity and the columns `content`, which must be exactly the columns that counting uses. A
    row's hash is SHA-256 of the key (of fixed length) followed by the content, written so that different contents give
    different texts. An entity's rows are sorted by (hash, content), and the first b are kept.

    *Only the entity's own rows matter.* The key is drawn before any row is read and is independent of all rows. Given
    the key, the order of two rows is a function of their contents. Tied rows have the same content, so the result of
    counting does not depend on which of them is kept. So the kept rows of an entity, with their multiplicities, are a
    function of the key and of that entity's rows. They do not depend on other entities, on a row's position in the
    table, or on the engine's threads or seed.

    *An entity added or removed* (the relation of `one_entity`). Couple the two data sets by the same key. All other
    entities then keep the same rows, and the entity in question has at most b: the kept rows differ in at most b rows
    of one entity. That holds for every key, so it holds for the mixture over keys: the counts of the two data sets with
    a random key, coupled in this way, are always within the sensitivities for b rows. Measuring with noise costs what
    it costs for each key (joint convexity: a mixture of pairs of outputs is at most as distinguishable as the worst
    pair).

    *One row of an entity added or removed.* Remove a row of content c. If fewer than b rows come before the last row of
    content c, one row of content c fewer is kept, and the next row in order, if any, moves up. Otherwise nothing
    changes. So at most two kept rows differ: one goes and one comes. (This is a change within an entity. Under
    `one_entity` it is two steps: the entity removed and added.)

    Nothing above needs a property of SHA-256. The selection is also fair, that is, each row of an entity is as likely
    to be kept as any other of different content, if a keyed SHA-256 looks random to anyone without the key. Copies of
    one row share a hash, so they are adjacent in the order.
    """
    # The key is a row of data, not a literal, so it is in no query text that an engine logs or quotes.
    drawn = f"({rows}) AS given CROSS JOIN {key_table} AS random_key"
    text = " || ".join(["random_key.hash_key", *(_unambiguous(f"given.{quoted(name)}") for name in (entity, *content))])
    columns = {name: f"given.{quoted(name)}" for name in (entity, *content)}
    order = ", ".join(["lot", *map(quoted, content)])
    turn = f"row_number() OVER (PARTITION BY {quoted(entity)} ORDER BY {order})"
    names = {name: quoted(name) for name in columns}
    turns = select(names | {"turn": turn}, f"({select(columns | {'lot': f'sha256({text})'}, drawn)}) AS given")
    return select(names | {"kept": f"turn <= {rows_per_entity}"}, f"({turns}) AS given")


def _unambiguous(cell: str) -> str:
    """Return a cell as text after its length, or a mark for null, so that any text after it can be separated
    from it.
    """
    text = f"CAST({cell} AS VARCHAR)"
    return f"coalesce(CAST(length({text}) AS VARCHAR) || ':' || {text}, '-')"


# -------------------------------------------------------------------- regions
# A leaf is found by its id or name in one column, or by the names on its path in one column per level. Everything is
# compared as text; columns of integers are joined as numbers, with the texts that write such a number.


def region_keys(hierarchy: Hierarchy, columns: Sequence[str]) -> Any:
    """Return the texts that name each leaf, as Arrow data: `key_0`, `key_1` … and `found`, the leaf or AMBIGUOUS."""
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
    """Return the leaf that each text, or each path of texts, names. An id takes precedence over a name."""
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
    """Return (leaf, region, origin): the number among the leaves, the region's index, and the region it was carried
    from.
    """
    first = int(hierarchy.level_starts[-2])
    for leaf in range(hierarchy.leaf_count):
        origin = first + leaf
        while hierarchy.carried[origin]:
            origin = int(hierarchy.parents[origin])
        yield leaf, first + leaf, origin


def _places(hierarchy: Hierarchy, columns: Sequence[str]) -> list[int]:
    """Return the level of each column: by the levels' names if the columns have these names, otherwise by order."""
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


def drop_missing(table: Table, options: Options) -> Table:
    """Return the table without rows that lack a group, entity or quantity, if the options say so.

    *The rules for rows keep every sensitivity.* `on_missing` and `on_unknown_region` map each row to itself, to itself
    with another region, or to nothing. The row alone decides which: its cells for group, region, entity and quantity,
    and public options. So the map commutes with adding and removing rows. Its result names the same group and entity,
    and it ignores the cells with categories. If two tables differ in the rows of one entity or group, then
    their images differ in the images of these rows: rows of the same entity or group, and not more of them. Whether a
    table is accepted, and how its rows are selected and counted, depends on its image alone. So the images are
    neighbours in the domain, or equal, and each bound of `Neighbours.sensitivity` holds for the composed function.

    A rule by which one bad row removed its whole group would not do: one person more could change the size of a group
    by any number. The row of a group in a private groups table is another thing, because it is not a person's row. If
    it has no known region, `on_unknown_region` moves the group, or drops it with all its rows. Under `one_entity` this
    happens in both neighbours alike: both have that row, or one of them lacks it and has nobody in the group
    (`Neighbours.sensitivity`). Under `one_group` the row is part of the group's data, and the image is the group, the
    group in another region, or nothing. A group that is dropped is still checked for other problems.
    """
    if options.on_missing == "refuse":
        return table
    needed = [table[name] for name in (options.group, options.entity) if name is not None]
    missing = [cell.is_missing for cell in needed]
    if options.quantity is not None:
        quantity = table[options.quantity]
        missing.append(quantity.is_missing if quantity.is_text else f"{quantity.text} IS NULL")
    there = " AND ".join(f"NOT {each}" for each in missing)
    return replace(table, name=f"(SELECT * FROM {table.name} AS given WHERE {there})")


def unknown_leaf(hierarchy: Hierarchy, rule: str) -> int | None:
    """Return the leaf of rows without a known region: NOWHERE if they are refused, None if they are dropped."""
    if rule in ("refuse", "drop"):
        return NOWHERE if rule == "refuse" else None
    found = leaves_by_text(hierarchy, [rule]).get((rule,), NOWHERE)
    if found < 0:
        raise SpecError(
            f"on_unknown_region = {rule!r} is not a leaf of the hierarchy, or several have this name; add such a "
            "region to the public table of regions, or choose 'refuse' or 'drop'"
        )
    return found


def place(
    table: Table, region: Sequence[str], keys: Any, put: Callable[[Any], Table], unknown: int | None = NOWHERE
) -> Table:
    """Return the table with the `leaf` of each row; `put` copies Arrow data to its engine.

    Rows without a known region get the leaf `unknown`, or go if it is None: see `drop_missing` for why this is private.
    A group's own row gets `DROPPED` instead of going, so that the query also finds the rows of the group.

    The join comes before any aggregation, because numbers of leaves are much cheaper to compare than texts.
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
    kind = "JOIN" if unknown is None else "LEFT JOIN"
    joined = f" {kind} {put(keys).name} AS leaves ON {' AND '.join(matches)}"
    return replace(table, joined=joined, leaf=f"coalesce(leaves.found, {unknown or 0})")


def lost_zeros(table: Table, region: Sequence[str], keys: Any) -> bool:
    """Return whether codes of the hierarchy begin with a zero while a column has numbers instead."""
    import pyarrow.compute as pc

    zeros = [pc.any(pc.match_substring_regex(keys[f"key_{at}"], "^0(?s:.)")).as_py() for at in range(len(region))]
    return any(zeros) and any(table[column].is_numeric for column in region)
