"""`tallytree init`: look at the columns of private files, ask a few questions, and write a spec.

It reads names and types of columns. With `--counts` it also counts distinct values. Values of private columns are
neither shown nor stored, except the list of regions if the data holder declares it public. Nothing is spent.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Group

from tallytree.command import screen
from tallytree.command.command_options import InitOptions
from tallytree.command.release_spec import ReleaseSpec
from tallytree.command.spec import read_budget
from tallytree.command.spec_schema import schema_content, schema_file
from tallytree.core.csv_files import CsvFormat, guess_encoding
from tallytree.core.disk import is_there
from tallytree.core.errors import SpecError
from tallytree.core.names import did_you_mean, visible
from tallytree.core.public_table import public_table, text_columns
from tallytree.domain.hierarchy import Hierarchy
from tallytree.privacy.budget import Budget
from tallytree.publish.folder import write_new
from tallytree.tables.address import kind_of, paths_of, stem
from tallytree.tables.columns import Column, describe_columns
from tallytree.tables.reading import regions_in_rows
from tallytree.tables.source import refuse_own_list, refuse_private_file

NONE = "none"
INDENT = "     "  # of what follows the number of a question
HOUSEHOLD = ("household", "hous", "home", "dwelling", "haushalt", "menage", "hogar", "family", "hh", "hid", "serial")
PERSON = ("person", "pid", "pers", "individual", "member", "resident", "respondent", "driver")
NOT_AN_ID = ("size", "num", "count", "weight", "wgt", "income", "type", "age", "sex")
LEVELS = (  # words in the names of levels, from the top down
    ("nation", "country"),
    ("state", "province", "canton", "kanton", "region"),
    ("department", "district", "kreis", "bezirk", "prefecture"),
    ("county", "counties"),
    ("municip", "gemeinde", "commune", "city", "town", "place"),
    ("tract", "ward", "zone"),
    ("block",),
)
NESTED = 0.8  # a level has at most this share of the number of regions below it
EXACT = "(Exact counts, for the data holder only.)"


@dataclass(frozen=True)
class PrivateFile:
    """A private file and its columns; nothing else of it is kept."""

    path: Path
    table: str | None
    columns: Mapping[str, Column]
    rows: int | None  # if they were counted

    def repeats(self, column: str, whom: str) -> str | None:
        """Return a sentence if rows share values of a column that was counted."""
        distinct = self.columns[column].distinct
        if distinct is None or self.rows is None or distinct == self.rows:
            return None
        return f"{column!r} repeats: {distinct:,} values in {self.rows:,} rows, so it does not name {whom}"


@dataclass(frozen=True)
class Look:
    """The private files, and how they are written."""

    persons: PrivateFile
    households: PrivateFile | None
    form: CsvFormat

    @property
    def files(self) -> list[PrivateFile]:
        """Return the files."""
        return [self.persons] if self.households is None else [self.persons, self.households]

    @property
    def columns(self) -> Mapping[str, Column]:
        """Return the columns of the file that names the regions, which is the last one."""
        return self.files[-1].columns

    @property
    def shared(self) -> Mapping[str, Column]:
        """Return the columns that every file has."""
        return {name: column for name, column in self.columns.items() if name in self.persons.columns}


@dataclass(frozen=True)
class Regions:
    """The source of the public regions, their levels, and the columns of the data that name them."""

    levels: tuple[str, ...]
    region: tuple[str, ...]
    table: Path | None = None  # a public file; None if the list comes from the data
    encoding: str = "utf-8"
    rows: Mapping[str, Sequence[str]] | None = None  # the regions, if they go into a new file
    declared_public: bool = False


@dataclass(frozen=True)
class Question:
    """One question: the option that answers it, a guess, and a function that checks an answer."""

    option: str
    text: str
    guess: str | None
    check: Callable[[str], Any]


def run_init(options: InitOptions) -> None:
    """Look at the files, ask, and write all files or none."""
    spec = options.out
    _refuse_existing([spec], options)
    look = look_at(options)
    screen.show(_columns_shown(look, options), quiet=options.quiet)
    answers = _answers(options, look)
    files = _files(options, look, answers)
    _refuse_existing([*files], options)
    _write(files, force=options.force)
    _show_next(options, files, answers)


def look_at(options: InitOptions) -> Look:
    """Return the columns of the private files."""
    given = [(options.persons, options.table)]
    given += [] if options.households is None else [(options.households, options.households_table)]
    found = [paths_of(str(path), "the file") or [] for path, _ in given]
    texts = [path for paths in found if kind_of(paths, "the file") == "csv" for path in paths]
    form = CsvFormat(encoding=options.encoding or guess_encoding(texts))
    if options.households is not None:
        refuse_own_list(str(options.persons), options.table, str(options.households), options.households_table)
    files = [_private_file(path, table, form, options) for path, table in given]
    look = Look(files[0], files[1] if len(files) > 1 else None, form)
    if len(files) > 1 and not look.shared:
        raise SpecError(
            f"{files[0].path} and {files[1].path} have no column of the same name; expected the id of a household in "
            "both. Give it the same name in both files"
        )
    if len(look.columns) < 2:
        raise SpecError(
            f"{files[-1].path} has one column; expected at least a column that says which group a row belongs to, and "
            "one with its region. If another character separates its cells, replace it by a comma, semicolon or tab"
        )
    return look


def _private_file(path: Path, table: str | None, form: CsvFormat, options: InitOptions) -> PrivateFile:
    columns, rows = describe_columns(str(path), table=table, form=form, count=options.counts)
    return PrivateFile(path, table, {column.name: column for column in columns}, rows)


def _columns_shown(look: Look, options: InitOptions) -> Any:
    table = screen.plain_table("column", "type", *(["distinct values"] if options.counts else []), right=(2,))
    for file in look.files:
        if look.households is not None:
            table.add_row(screen.words(f"{file.path}:"))
        for column in file.columns.values():
            table.add_row(column.name, column.kind, *([f"{column.distinct:,}"] if column.distinct is not None else []))
    if options.counts:
        rows = " and ".join(f"{file.rows:,}" for file in look.files)
        told = (
            f"{rows} rows. These counts are exact, not private: they are for the data holder's eyes only, and are not "
            "stored."
        )
    else:
        told = "Only names and types of columns were read. --counts also counts distinct values, for you alone."
    return Group(table, screen.words(""), screen.words(told), screen.words(""))


# -------------------------------------------------------------------- questions


def _answers(options: InitOptions, look: Look) -> dict[str, Any]:
    """Return the answers, from options, from guesses or from the terminal: seven at most are asked for."""
    answers: dict[str, Any] = {}
    asks = not options.yes and sys.stdin.isatty() and sys.stderr.isatty()
    given = _given(options)
    lacking = []
    for number, (name, make) in enumerate(QUESTIONS.items(), start=1):
        question = make(options, look, answers)
        if (answer := given[name]) is not None:
            answers[name] = question.check(answer)
        elif asks:
            answers[name] = _ask(question, f"{number}/{len(QUESTIONS)}")
        elif options.yes and question.guess is not None:
            answers[name] = question.check(question.guess)
        else:
            lacking.append((question.option, question.guess))
            answers[name] = None
    if lacking:
        raise SpecError(_lacking(lacking, yes=options.yes))
    return answers


def _given(options: InitOptions) -> dict[str, str | None]:
    """Return the answers that options give, as they would be typed."""
    regions = None if options.regions is None else str(options.regions)
    if options.regions_are_public:
        if regions is not None:
            raise SpecError("give --regions FILE or --regions-are-public, not both")
        regions = ",".join(options.region or ()) or None
    return {
        "group": options.group,
        "entity": options.entity,
        "regions": regions,
        "max_size": None if options.max_size is None else str(options.max_size),
        "unit": options.unit,
        "epsilon": options.epsilon,
        "publisher": options.publisher,
    }


def _lacking(lacking: Sequence[tuple[str, str | None]], *, yes: bool) -> str:
    listed = "\n".join(f"  {option}" + (f"   guess: {guess}" if guess else "") for option, guess in lacking)
    if yes:
        return f"--yes takes guesses. Answer the rest with options:\n{listed}"
    return f"there is no terminal to ask on. Answer with options, or take the guesses with --yes:\n{listed}"


def _ask(question: Question, number: str) -> Any:
    """Ask until the answer can be used."""
    while True:
        typer.echo("\n" + _folded(f"{number}  {question.text}"), err=True)
        guess = "" if question.guess is None else f"[{visible(question.guess)}]"
        answer = typer.prompt(INDENT + guess, default=question.guess, show_default=False, prompt_suffix="> ", err=True)
        try:
            return question.check(str(answer).strip())
        except SpecError as error:
            typer.echo(_folded(f"{INDENT}{error}"), err=True)


def _folded(text: str) -> str:
    """Return a text in lines that fit the terminal."""
    width = min(shutil.get_terminal_size().columns, 100) - 1
    return "\n".join(textwrap.wrap(visible(text), width, subsequent_indent=INDENT))


def _group(options: InitOptions, look: Look, answers: Mapping[str, Any]) -> Question:
    def check(given: str) -> str:
        column = _column(given, look.shared, "" if look.households is None else " in both files")
        if look.households is not None and (found := look.households.repeats(column, "a household")):
            raise SpecError(f"{found}. Give another column, or leave one row for each household. {EXACT}")
        return column

    text = "Which column says which household (or other group) a row belongs to?"
    only = next(iter(look.shared)) if len(look.shared) == 1 else None
    return Question("--group COLUMN", text, _best(look.shared, HOUSEHOLD, ()) or only, check)


def _entity(options: InitOptions, look: Look, answers: Mapping[str, Any]) -> Question:
    def check(given: str) -> str | None:
        column = None if given == NONE else _column(given, look.persons.columns)
        if column is not None and column == answers["group"]:
            raise SpecError(f"{column!r} names the group already; give another column, or {NONE}")
        if column is not None and (found := look.persons.repeats(column, "a person")):
            raise SpecError(f"{found}. Give another column, or {NONE}: then each row is a person. {EXACT}")
        return column

    text = f"Which column says which person a row is? {NONE}: each row is another person."
    guess = _best(look.persons.columns, PERSON, (answers["group"],), unique=look.persons.rows) or NONE
    return Question("--entity COLUMN", text, guess, check)


def _regions(options: InitOptions, look: Look, answers: Mapping[str, Any]) -> Question:
    taken = (answers["group"], answers["entity"])
    columns = ",".join(each for each in _level_columns([*look.columns]) if each not in taken)
    text = (
        "Where is the public list of regions? Give a file. Or type columns of the data from the top down"
        f"{f', such as {columns}' if columns else ''}: you declare that everyone may know which regions occur in them, "
        "and the list is written to regions.csv."
    )
    beside = options.out.parent / "regions.csv"
    # That a list is public is for the data holder to say, so columns are a guess only once that is said.
    guess = (columns or None) if options.regions_are_public else str(beside) if beside.is_file() else None
    option = "--region COLUMN" if options.regions_are_public else "--regions FILE, or --regions-are-public"
    return Question(option, text, guess, lambda given: _regions_of(given, options, look, taken))


def _max_size(options: InitOptions, look: Look, answers: Mapping[str, Any]) -> Question:
    def check(given: str) -> int:
        if not re.fullmatch(r"[1-9][0-9]{0,5}", given):
            raise SpecError(f"{given!r} is not a size; expected an integer such as 10")
        return int(given)

    text = "What is the largest size to count separately? Larger groups count as this size."
    return Question("--max-size NUMBER", text, "10", check)


def _unit(options: InitOptions, look: Look, answers: Mapping[str, Any]) -> Question:
    def check(given: str) -> str:
        if given not in ("one_entity", "one_group"):
            raise SpecError(f"unknown unit {given!r}; choose one_entity or one_group")
        return given

    text = "Who is protected? one_entity: each person. one_group: each whole household, which takes more noise."
    return Question("--unit UNIT", text, "one_entity", check)


def _epsilon(options: InitOptions, look: Look, answers: Mapping[str, Any]) -> Question:
    def check(given: str) -> str:
        if given != "help":
            read_budget("the budget:", epsilon=given)
        return given

    text = "How large is the privacy budget ε? Less protects more and adds more noise. help: take 1, and compare."
    return Question("--epsilon EPSILON", text, "1", check)


def _publisher(options: InitOptions, look: Look, answers: Mapping[str, Any]) -> Question:
    text = f"Who publishes the tables? {NONE}: leave it out."
    return Question("--publisher NAME", text, NONE, lambda given: None if given == NONE else given)


QUESTIONS: dict[str, Callable[[InitOptions, Look, Mapping[str, Any]], Question]] = {
    "group": _group,
    "entity": _entity,
    "regions": _regions,
    "max_size": _max_size,
    "unit": _unit,
    "epsilon": _epsilon,
    "publisher": _publisher,
}


# -------------------------------------------------------------------- guesses


def _column(given: str, columns: Mapping[str, Column], where: str = "") -> str:
    if given not in columns:
        raise SpecError(f"there is no column {given!r}{where}; {did_you_mean(given, columns, 'there are')}")
    return given


def _best(
    columns: Mapping[str, Column], words: Sequence[str], taken: Sequence[str | None], *, unique: int | None = 0
) -> str | None:
    """Return the column whose name is most like that of an id; `unique` is the number of rows, which share no id."""
    fits = [
        name
        for name in columns
        if name not in taken
        and any(word in name.casefold() for word in words)
        and not any(word in name.casefold() for word in NOT_AN_ID)
    ]
    if unique != 0:
        fits = [name for name in fits if (_is_id(name) if unique is None else columns[name].distinct == unique)]
    return min(fits, key=lambda name: not _is_id(name), default=None)


def _is_id(name: str) -> bool:
    return "id" in name.casefold() or "key" in name.casefold()


def _level_columns(names: Sequence[str]) -> list[str]:
    """Return the columns that are named like levels of regions, from the top down; one for each level."""
    found = (next((name for name in names if any(word in name.casefold() for word in words)), None) for words in LEVELS)
    return list(dict.fromkeys(name for name in found if name is not None))


# -------------------------------------------------------------------- regions


def _regions_of(given: str, options: InitOptions, look: Look, taken: Sequence[str | None]) -> Regions:
    """Return the regions of a public file, or those that occur in columns of the data."""
    path = Path(given)
    if path.is_file() or options.regions is not None:
        return _regions_in_file(path, options, look)
    columns = [name.strip() for name in given.split(",")]
    if path.suffix and not set(columns) & set(look.columns):
        raise SpecError(f"there is no file {given}, and no such column")
    for name in columns:
        if _column(name, look.columns) in taken:
            raise SpecError(f"{name!r} names a group or a person, so it cannot be a region")
    rows = regions_in_rows(str(look.files[-1].path), columns, table=look.files[-1].table, form=look.form)
    Hierarchy.from_levels(rows, columns)
    return Regions(tuple(columns), tuple(columns), rows=rows, declared_public=True)


def _regions_in_file(path: Path, options: InitOptions, look: Look) -> Regions:
    """Return the levels of a public file: those given, or those whose names and rows make a tree."""
    _refuse_private(path, look)
    encoding = guess_encoding([str(path)]) if path.is_file() and path.suffix.lower() in (".csv", ".tsv") else "utf-8"
    table = public_table(path, "region table", CsvFormat(encoding=encoding))
    names = [*table.column_names]
    if missing := [name for name in options.level or () if name not in names]:
        raise SpecError(f"{path} has no column {missing[0]!r}; {did_you_mean(missing[0], names, 'it has')}")
    for name in options.region or ():
        _column(name, look.columns)
    shared = [name for name in names if name in look.columns]
    if not shared and not (options.level and options.region):
        raise SpecError(
            f"no column of {path} has the name of a column of the data, so it is unknown which names the regions. Give "
            "the column of the data with --region, and the columns of the file from the top down with --level"
        )
    cells = dict(zip(names, text_columns(table, names), strict=True))
    levels = list(options.level or _nested(cells, shared))
    Hierarchy.from_levels({name: cells[name] for name in levels}, levels)
    return Regions(tuple(levels), tuple(options.region or _named_in_data(levels, cells, shared)), path, encoding)


def _refuse_private(regions: Path, look: Look) -> None:
    for file in look.files:
        refuse_private_file(regions, str(file.path), "the list of regions")


def _named_in_data(levels: Sequence[str], cells: Mapping[str, Sequence[str]], shared: Sequence[str]) -> list[str]:
    """Return the columns of the data that name a leaf: the last level alone if that is enough."""
    leaf = levels[-1]
    if leaf in shared and len(set(cells[leaf])) == len(cells[leaf]):
        return [leaf]
    return [level for level in levels if level in shared]


def _nested(cells: Mapping[str, Sequence[str]], shared: Sequence[str]) -> list[str]:
    """Return the levels of a table of regions: from the column of the data with the most values, upwards.

    A column is the next level if each value of the level below has one value of it, and it has clearly fewer values.
    """
    number = {name: len(set(column)) for name, column in cells.items()}
    leaf = max(shared, key=lambda name: number[name])
    levels, rest = [leaf], sorted(set(cells) - {leaf}, key=lambda name: -number[name])
    for name in rest:
        below = levels[0]
        single = number[name] == 1 and not _level_columns([name])
        if single or number[name] > NESTED * number[below] or "" in cells[name]:
            continue
        if len(set(zip(cells[below], cells[name], strict=True))) == number[below] or (
            below == leaf and number[leaf] < len(cells[leaf]) and name in shared
        ):
            levels.insert(0, name)
    return levels


# -------------------------------------------------------------------- files


def _files(options: InitOptions, look: Look, answers: Mapping[str, Any]) -> dict[Path, bytes]:
    """Return the content of every new file; the spec is the last one."""
    regions: Regions = answers["regions"]
    files, table = {}, regions.table
    if regions.rows is not None:
        table = options.out.parent / "regions.csv"
        _refuse_private(table, look)
        written = io.StringIO()
        writer = csv.writer(written, lineterminator="\n")
        writer.writerow(regions.levels)
        writer.writerows(zip(*(regions.rows[level] for level in regions.levels), strict=True))
        files[table] = written.getvalue().encode()
    assert table is not None
    text = spec_text(options, look, answers, table)
    ReleaseSpec.of_text(text.encode(), options.out)  # so that a file that is written can be read
    schema, content = options.out.with_name(schema_file(ReleaseSpec)), schema_content(ReleaseSpec)
    if not schema.is_file() or schema.read_bytes() != content:
        files[schema] = content
    return files | {options.out: text.encode()}


def spec_text(options: InitOptions, look: Look, answers: Mapping[str, Any], table: Path) -> str:
    """Return the spec with a comment for each choice."""
    regions: Regions = answers["regions"]
    epsilon = "1" if answers["epsilon"] == "help" else answers["epsilon"]
    persons = _relative(options.persons, options.out)
    households = None if options.households is None else _relative(options.households, options.out)
    public = "the data holder declares this list public" if regions.declared_public else "public: made without the data"
    is_household = households is not None or any(word in answers["group"].casefold() for word in HOUSEHOLD)
    groups = "households" if is_household else "groups"
    title = f"{groups.capitalize()} by size"
    sections: dict[str, dict[str, tuple[Any, str]]] = {
        "data": {
            "source" if households is None else "persons": (persons, "private"),
            "table": (look.persons.table, "the table or sheet in this file"),
            "households": (households, "private: one row for each household"),
            "groups_table": (options.households_table, "the table or sheet in this file"),
            "name": (stem(persons), "the name of these data in the ledger"),
            "group" if households is None else "id": (
                answers["group"],
                "the column that says which group a row belongs to",
            ),
            "entity": (answers["entity"], "the column that says which person a row is"),
            "region": (regions.region[0] if len(regions.region) == 1 else [*regions.region], "names a leaf region"),
            "max_size": (answers["max_size"], "larger groups count as this size"),
            "encoding": (None if look.form.is_utf_8 else look.form.encoding, "a guess: look for odd letters"),
            "regions_are_public": (regions.declared_public or None, "the list of regions is that of the data"),
        },
        "regions": {
            "table": (_relative(table, options.out), public),
            "levels": ([*regions.levels], "from the top down"),
            "encoding": (None if regions.encoding == "utf-8" else regions.encoding, "a guess: look for odd letters"),
        },
        "privacy": {
            "unit": (answers["unit"], "one_entity protects a person, one_group a whole group"),
            "epsilon": (_Literal(epsilon), "less protects more and adds more noise"),
            "ledger": ("ledger.db", "what all releases of these data may cost together"),
        },
        "about": {"title": (title, ""), "publisher": (answers["publisher"], "")},
        "report": {"groups": (groups, ""), "entities": ("persons" if is_household else "entities", "")},
    }
    lines = [
        f"#:schema ./{schema_file(ReleaseSpec)}",
        "# The spec of a release, written by `tallytree init`. Editors complete and check it by the schema beside it.",
    ]
    for name, keys in sections.items():
        lines += ["", f"[{name}]"]
        for key, (value, comment) in keys.items():
            if value is not None:
                given = f"{key} = {_toml(value)}"
                lines.append(f"{given:<40} # {comment}" if comment else given)
    return "\n".join(lines) + "\n"


class _Literal(str):
    """A number as it was typed."""


def _toml(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, _Literal):
        return str(value) if re.fullmatch(r"(0|[1-9][0-9]*)(\.[0-9]+)?", value) else _toml(str(value))
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _relative(path: Path, spec: Path) -> str:
    """Return a path as the spec names it: from its own folder."""
    return Path(os.path.relpath(path, spec.parent)).as_posix()


def _refuse_existing(paths: Sequence[Path], options: InitOptions) -> None:
    taken = [str(path) for path in paths if is_there(path)]
    if taken and not options.force:
        raise SpecError(
            f"{' and '.join(taken)} exists already; nothing was written. Give another --out, or replace it with --force"
        )


def _write(files: Mapping[Path, bytes], *, force: bool) -> None:
    """Write all files, each whole or not at all; the ones before a failure are removed again."""
    written: list[Path] = []
    try:
        for path, content in files.items():
            was_there = is_there(path)
            write_new(path, content, replace=force)
            written += [] if was_there else [path]
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise SpecError(f"{path} cannot be written: {error.strerror}. Nothing was written") from None


def _show_next(options: InitOptions, files: Mapping[Path, bytes], answers: Mapping[str, Any]) -> None:
    spec, out = str(options.out), str(options.out.with_name("release"))
    epsilon = "1" if answers["epsilon"] == "help" else answers["epsilon"]
    commands = {}
    if answers["epsilon"] == "help":
        compared = [word for each in ("0.25", "0.5", "1", "2") for word in ("--epsilon", each)]
        prior = ["--prior", "households", "--groups", "10000"]
        commands["Compare budgets, with about as many groups as you expect in place of 10000:"] = [
            *("tallytree", "plan", spec),
            *prior,
            *compared,
        ]
    commands |= {
        "Check the data:": ["tallytree", "validate", spec],
        "Set what all releases of these data may cost together, once:": [
            *("tallytree", "ledger", "open", spec, "--epsilon", str(2 * Budget(epsilon=epsilon).amount))
        ],
        "Publish:": ["tallytree", "release", spec, "--out", out],
        "Verify:": ["tallytree", "verify", out],
    }
    screen.show(f"\nWrote {' and '.join(map(str, files))}. Nothing was spent.", quiet=options.quiet)
    screen.show_commands(commands, quiet=options.quiet)
