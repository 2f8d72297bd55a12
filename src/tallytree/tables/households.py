"""`read_households`: from a table of households and a table of persons to private codes, or to a list of every problem.

Categories are compared as text, and numbers are put into the schema's bins, while the rows stream by, so that only
codes are kept. The choice of persons in an overlong household depends on an attribute in one case: if an attribute
gives roles, persons in a role of one person are kept first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from tallytree.core.arguments import TEXT, expect, instance, optional, told
from tallytree.core.arrays import Floats, Integers
from tallytree.core.disk import digest_of_files
from tallytree.core.errors import SpecError
from tallytree.core.progress import Progress, silent
from tallytree.domain.schema import Attribute, Schema
from tallytree.tables.address import KINDS, paths_of, stem
from tallytree.tables.contingency import (
    NOBODY,
    Codes,
    HouseholdCodes,
    Rows,
    attributes_text,
    broken,
    code_type,
    grouped,
    holders,
)
from tallytree.tables.group_sizes import Bound, Columns, Sealed
from tallytree.tables.guard import from_outside, guarded
from tallytree.tables.problems import Problem, columns_text, missing_columns, problem, problems_in, raise_any
from tallytree.tables.source import Opened, open_in_order, workspace
from tallytree.tables.sql import WHOLE, Cell, Table, comparable, select

Oversize = Literal["error", "drop", "subsample"]
OnBrokenRules = Literal["refuse", "keep"]

NOT_CUT = "Households with more than {most} persons were refused, not truncated."

TABLES = "households and persons"  # the kind of files that private rows are in
UNKNOWN, EMPTY = -1, -2


@dataclass(frozen=True, eq=False, repr=False)
class Households(Bound):
    """Household microdata: private, with public facts. The number of households is sealed with the rest."""

    schema: Schema
    codes: Sealed[HouseholdCodes]
    oversize: Oversize = "error"  # the rule for households of more than max_persons
    person_order: str | None = None  # the column that orders persons, if not the file's order
    on_broken_rules: OnBrokenRules = "keep"  # the rule for households that break an edit rule
    name: str | None = None  # the ledger's key
    columns: Columns | None = None  # the columns that name a row's household
    files: tuple[str, ...] = ()  # the files of the rows; never part of a release

    @property
    def truncated_by_rule(self) -> bool:
        """Return whether persons beyond max_persons were left out by rule. Whether there were any is private."""
        return self.oversize != "error"

    def truncation(self) -> str:
        """Return the rule in words, for the privacy statement."""
        most = self.schema.max_persons
        if self.oversize == "error":
            return NOT_CUT.format(most=most)
        who = f"{most} persons chosen at random"
        if self.oversize == "drop":
            order = "the file" if self.person_order is None else f"column {self.person_order!r}"
            who = f"the first {most} persons in the order of {order}"
        first = [] if self.schema.structure is None else [role.name for role in self.schema.structure.single]
        if self.schema.structure is not None and self.schema.structure.attribute is not None and first:
            roles = " and ".join(first)
            return (
                f"Of a household with more than {most} persons, {roles} were kept, as the schema defines them, and for "
                f"the rest of {who}, regardless of their attributes."
            )
        return f"Of a household with more than {most} persons, {who} were kept, regardless of their attributes."

    def fingerprint(self) -> str | None:
        """Return a digest of the input files, if any; the confidential ledger uses it to notice a changed input."""
        return digest_of_files(self.files, TABLES)

    def __repr__(self) -> str:
        return f"Households({attributes_text(self.schema)}; private)"


@from_outside("Reading the households")
def read_households(
    households: Any,
    persons: Any,
    *,
    schema: Schema,
    household_id: str,
    person_order: str | None = None,
    oversize: Oversize = "error",
    on_broken_rules: OnBrokenRules | None = None,
    name: str | None = None,
    memory_limit: str | None = None,
    progress: Progress = silent,
) -> Households:
    """Read private households and persons as codes of a public schema.

    Attributes are columns of the same name. A category is the text of a cell (an integer in a floating-point column is
    written without a point), a column with cuts is a number, and an empty cell is the attribute's `missing` value.

    Parameters
    ----------
    households : path, list of paths or table
        One row per household: Parquet, CSV or Arrow data.
    persons : path, list of paths or table
        One row per person.
    schema : Schema
        The public attributes, and the largest number of persons that a household can have.
    household_id : str
        The column of both tables that says which household a row is of.
    person_order : str, optional
        A column of numbers that orders the persons of a household. It cannot be an attribute. With roles, it is also
        the order by which roles are decided.
    oversize : {"error", "drop", "subsample"}, default "error"
        What to do with households of more than `schema.max_persons` persons: refuse them, keep the first persons (in
        the file's order or by `person_order`), or keep some at random, drawn with the operating system's randomness.
        Persons whom an attribute puts into a role of one person are kept first.
    on_broken_rules : {"refuse", "keep"}, optional
        What to do with households that break a rule of the schema: refuse them, with their number (the default), or
        measure them as they are. Synthetic households follow the rules in either case. Rules are checked on all persons
        of a household, before any are left out, so chance does not decide what is refused.
    name : str, optional
        The name of the data set in the ledger. The default is the name of the households' file without its ending.
    memory_limit : str, optional
        How much memory DuckDB may use, such as "2GB". The default is most of the memory.
    progress : callable, optional
        A function that is called with how far DuckDB is.

    Returns
    -------
    Households
        The private households, behind public facts.

    Raises
    ------
    SpecError
        If an option is wrong.
    DataError
        If the data have problems. `InputProblems` lists all of them with exact counts, for the data holder only.

    Examples
    --------
    >>> import pyarrow as pa
    >>> tenure, sex = tt.Attribute("tenure", ("owned", "rented")), tt.Attribute("sex", ("f", "m"))
    >>> schema = tt.Schema(household=(tenure,), person=(sex,), max_persons=3)
    >>> homes = pa.table({"home": [1, 2], "tenure": ["owned", "rented"]})
    >>> people = pa.table({"home": [1, 1, 2], "sex": ["f", "m", "f"]})
    >>> private = tt.read_households(homes, people, schema=schema, household_id="home")
    >>> private.schema == schema
    True
    """
    _check_options(schema, household_id, person_order, oversize, on_broken_rules)
    expect(name, optional(TEXT), "name")
    files = [paths_of(households, "households"), paths_of(persons, "persons")]
    with workspace(memory_limit) as connect:
        homes = _Table(
            "households", _opened(households, "households", connect, progress), schema.household, household_id
        )
        people = _Table(
            "persons", _opened(persons, "persons", connect, progress), schema.person, household_id, person_order
        )
        raise_any([*homes.column_problems(), *people.column_problems()])
        own, listed = comparable(people.id, homes.id)
        home_rows = homes.read(listed)
        ids = {"id": home_rows.ids, "row": np.arange(home_rows.number)}
        person_rows = people.read(own, guarded("Matching persons with households", lambda: connect().put(ids)))
    home, found = person_rows.home, _id_problems(home_rows, person_rows, household_id)
    sizes = np.bincount(home[home >= 0], minlength=home_rows.number)
    overlong = int(np.count_nonzero(sizes > schema.max_persons))
    if overlong and oversize == "error":
        found.append(problem("too_many_persons", overlong, bound=schema.max_persons))
    raise_any([*home_rows.problems, *person_rows.problems, *found])
    columns, order = person_rows.columns, person_rows.order
    by_order = schema.structure is not None and person_order is not None
    if by_order or np.any(home[1:] < home[:-1]):
        in_order = np.lexsort((order, home)) if by_order else np.argsort(home, kind="stable")
        home, columns = home[in_order], _only(columns, in_order)
        order = order[in_order] if len(order) else order
    whole = Rows(schema, np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]), home_rows.columns, columns)
    if on_broken_rules != "keep":
        raise_any(_broken_rules(whole))
    left_out = None
    if overlong:
        kept = _select_persons(home, whole, oversize, order)
        left_out = home[~kept], _only(columns, ~kept)
        home, columns = home[kept], _only(columns, kept)
    codes = replace(grouped(schema, home_rows.columns, columns, home, home_rows.number), left_out=left_out)
    if name is None and files[0] is not None and len(files[0]) == 1:
        name = stem(files[0][0])
    return Households(
        schema=schema,
        codes=Sealed(codes),
        oversize=oversize,
        person_order=person_order,
        on_broken_rules=on_broken_rules or "refuse",
        name=name,
        columns=Columns(household_id),
        files=() if files[0] is None or files[1] is None else (*files[0], *files[1]),
    )


@from_outside("Importing the households")
def households_from_codes(
    schema: Schema,
    household: Mapping[str, Any],
    person: Mapping[str, Any],
    home: Any,
    number: int,
    *,
    name: str | None = None,
) -> Households:
    """Return households whose attributes are already codes; `home` is each person's household among the `number`
    households.
    """

    def columns(attributes: Iterable[Attribute], given: Mapping[str, Any]) -> dict[str, Codes]:
        return {each.name: np.asarray(given[each.name]) for each in attributes if each.name in given}

    codes = grouped(
        schema, columns(schema.household, household), columns(schema.person, person), np.asarray(home), number
    )
    return Households(schema=schema, codes=Sealed(codes), name=name)


# -------------------------------------------------------------------- options and columns


def _check_options(
    schema: Schema, household_id: str, person_order: str | None, oversize: str, on_broken_rules: str | None
) -> None:
    expect(schema, instance(Schema), "schema")
    expect(household_id, TEXT, "household_id")
    expect(person_order, optional(TEXT), "person_order")
    if not isinstance(oversize, str) or oversize not in get_args(Oversize):
        raise SpecError(f"oversize is {told(oversize)}; choose from error, drop, subsample")
    if on_broken_rules not in (None, *get_args(OnBrokenRules)):
        raise SpecError(f"on_broken_rules is {told(on_broken_rules)}; choose from refuse, keep")
    attributes = [attribute.name for attribute in (*schema.household, *schema.person)]
    if household_id in attributes:
        raise SpecError(f"the household id {household_id!r} is an attribute of the schema; it cannot be both")
    if person_order is None:
        return
    if oversize != "drop" and not (schema.structure is not None and schema.structure.roles):
        raise SpecError('the order of persons says which persons oversize = "drop" keeps; leave it out otherwise')
    if person_order in attributes or person_order == household_id:
        raise SpecError(
            f"the order of persons, {person_order!r}, must be a column that is neither an attribute nor the household "
            "id: which persons are kept may not depend on attributes, or one person could change which others are kept"
        )


def _opened(source: Any, option: str, connect: Any, progress: Progress) -> Opened:
    duckdb_endings = tuple(ending for ending, kind in KINDS.items() if kind == "duckdb")
    if any(path.lower().endswith(duckdb_endings) for path in paths_of(source, option) or ()):
        raise SpecError(
            f"{option}: households and persons cannot be read from a DuckDB file; expected Parquet, CSV or an Arrow "
            "table"
        )
    return open_in_order(source, option, connect, progress)


# -------------------------------------------------------------------- rows to codes
# Each table is read by one query in the engine: a cell becomes a code by a join with the attribute's public values, and
# a person's household is found by a join with the ids of the households. Only codes and ids reach Python.


@dataclass
class _Rows:
    """The rows of one table, in its order: ids as Arrow data, attributes as codes, and the problems found in them."""

    ids: Any
    columns: dict[str, Codes]
    home: Integers  # of persons: the household's row, or NOBODY
    order: Floats
    problems: list[Problem]

    @property
    def number(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class _Table:
    """One of the two tables, and the columns to read from it."""

    which: str  # "households" or "persons"
    opened: Opened
    attributes: tuple[Attribute, ...]
    household_id: str
    order: str | None = None  # the column that orders the persons

    def named(self, column: str) -> str:
        """Return how messages name a column of this table."""
        return f"{columns_text([column])} of the {self.which} table"

    @property
    def id(self) -> Cell:
        """Return the column of ids."""
        return self.opened.table[self.household_id]

    def column_problems(self) -> list[Problem]:
        """Return missing columns, and number columns of another type."""
        table, order = self.opened.table, [] if self.order is None else [self.order]
        wanted = [self.household_id, *(attribute.name for attribute in self.attributes), *order]
        found = missing_columns(f"the {self.which} table", [*table.kinds], wanted)
        for column in [*(attribute.name for attribute in self.attributes if attribute.cuts is not None), *order]:
            if column in table.kinds and not table[column].may_be_number:
                found.append(problem("number_type", 1, column=self.named(column), type=table.kinds[column].lower()))
        return found

    def read(self, own: Cell, households: Table | None = None) -> _Rows:
        """Return every row, in the table's order; `own` is its id, as it is compared with those of `households`."""
        rows: _Rows = self.opened.run(f"Reading the {self.which} table", lambda: self._rows(own, households))
        return rows

    def _query(self, own: Cell, households: Table | None) -> str:
        table, joined = self.opened.table, ""
        cells = {"row": "row_number() OVER ()", "id": f"CASE WHEN NOT {own.is_missing} THEN {own.text} END"}
        codes = {}
        for at, attribute in enumerate(self.attributes):
            cell, name = table[attribute.name], f"cell_{at}"
            missing = EMPTY if attribute.missing is None else attribute.values.index(attribute.missing)
            if attribute.cuts is None:
                cells[name] = f"coalesce({cell.label}, '')"
                values = self.opened.engine.put({"label": attribute.values, "code": range(attribute.codes)})
                joined += f" LEFT JOIN {values.name} AS listed_{at} ON listed_{at}.label = given.{name}"
                unlisted = f"CASE WHEN given.{name} = '' THEN {missing} ELSE {UNKNOWN} END"
                code = f"coalesce(listed_{at}.code, {unlisted})"
            else:
                cells |= {name: f"CAST({cell.number.text} AS DOUBLE)", f"empty_{at}": cell.is_missing}
                number = Cell(f"given.{name}", "DOUBLE")
                bins = " ".join(f"WHEN {number.text} < {cut!r} THEN {code}" for code, cut in enumerate(attribute.cuts))
                wrong = f"WHEN given.empty_{at} THEN {missing} WHEN {number.is_missing} THEN {UNKNOWN}"
                code = f"CASE {wrong} {bins} ELSE {len(attribute.cuts)} END"
            kind = next(kind for kind, size in WHOLE.items() if attribute.codes < 1 << (8 * size - 1))
            codes[f"code_{at}"] = f"CAST({code} AS {kind})"
        if self.order is not None:
            cells["turn"] = f"CAST({table[self.order].number.text} AS DOUBLE)"
        if households is not None:
            codes["home"] = f"coalesce(homes.row, {NOBODY})"
            first = f"SELECT id, min(row) AS row FROM {households.name} GROUP BY id"
            joined += f" LEFT JOIN ({first}) AS homes ON homes.id = given.id"
        own_columns = {name: f"given.{name}" for name in ("row", "id", *(() if self.order is None else ("turn",)))}
        return select(own_columns | codes, f"({select(cells, table.source)}) AS given{joined}")

    def _rows(self, own: Cell, households: Table | None) -> _Rows:
        rows = self.opened.engine.batches(self._query(own, households)).read_all()
        if np.any(np.diff(rows["row"].to_numpy()) < 0):  # a join may change the order
            rows = rows.sort_by("row")
        found, columns = [], {}
        for at, attribute in enumerate(self.attributes):
            codes = rows[f"code_{at}"].to_numpy()
            unknown = "unknown_value" if attribute.cuts is None else "not_a_number"
            counts = {unknown: int(np.sum(codes == UNKNOWN)), "empty_cell": int(np.sum(codes == EMPTY))}
            found += problems_in(counts, column=self.named(attribute.name))
            columns[attribute.name] = np.maximum(codes, 0).astype(code_type(attribute.codes))
        turns = np.empty(0) if self.order is None else rows["turn"].to_numpy()
        found += problems_in({"no_order": int(np.sum(~np.isfinite(turns)))}, column=self.named(self.order or ""))
        found += problems_in({"no_household": rows["id"].null_count}, column=self.named(self.household_id))
        home = np.empty(0, np.int64) if households is None else rows["home"].to_numpy()
        return _Rows(rows["id"], columns, home, turns, found)


def _id_problems(households: _Rows, persons: _Rows, household_id: str) -> list[Problem]:
    """Return how many households appear twice, and how many persons live in an unknown one."""
    import pyarrow.compute as pc

    times = pc.struct_field(households.ids.drop_null().value_counts(), "counts")
    counts = {
        "repeated_household": pc.sum(pc.greater(times, 1), min_count=0).as_py(),
        "unknown_household": int(np.sum(persons.home == NOBODY)) - persons.ids.null_count,
    }
    return problems_in(counts, column=columns_text([household_id]))


# -------------------------------------------------------------------- persons of too large households


def _select_persons(home: Integers, whole: Rows, oversize: Oversize, order: Any) -> Any:
    """Return which persons are kept, of persons sorted by household: at most `max_persons` of each household.

    The choice depends on the household's own persons only: first those in a role of one person, then by order or at
    random. It depends on no attribute except the one that gives roles, if any.

    *The kept part of a household satisfies the rules that make cells impossible.* Let the full household satisfy all
    rules. There are at most `max_persons` roles of one person, so everybody in such a role is kept. (By position:
    everybody at a position that defines a role is kept, so that nobody moves up to it.) So each role of one person has
    the same person as before. A rule `implies` is about each single person (or the household). A rule `below` is about
    two persons, and the one compared with is in a role of one person. Both rules hold for all remaining persons.
    `size_class` does not distinguish sizes above `max_persons` from `max_persons`. No household is emptied. A rule
    `has` about a role of any number of persons can be broken if everyone in the role is left out. Such a household is
    measured as it is, and no cell is assumed empty because of `has` (`synthesis.roles`).
    """
    if oversize == "subsample":
        order = np.frombuffer(os.urandom(8 * len(home)), np.uint64)
    elif not len(order):
        order = np.arange(len(home))
    in_turn = np.lexsort((order, ~_in_roles(whole), home))
    kept = np.zeros(len(home), bool)
    kept[in_turn[np.arange(len(home)) - whole.starts[home[in_turn]] < whole.schema.max_persons]] = True
    return kept


def _in_roles(rows: Rows) -> Any:
    """Return which persons have a role of one person, or a position that defines such a role in other households."""
    flags = np.zeros(int(rows.starts[-1]), bool)
    for role in rows.structure.single:
        who = holders(rows, replace(role, household=()))
        flags[who[who >= 0]] = True
    return flags


def _only(columns: Mapping[str, Codes], places: Any) -> dict[str, Codes]:
    return {name: column[places] for name, column in columns.items()}


def _broken_rules(rows: Rows) -> list[Problem]:
    """Return how many households break each rule, for the data holder."""
    found = []
    for rule in broken(rows):
        found += problems_in({"broken_rule": int(np.count_nonzero(rule.households))}, rule=rule.words)
    return found
