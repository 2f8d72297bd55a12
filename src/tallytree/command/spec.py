"""Read specs: TOML files, checked strictly. Every mistake is reported, an unknown key with the nearest valid one.

Specs of releases and of syntheses share the budget, the ledger, the data set's name, and paths relative to the file.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo

from tallytree.command.command_options import TotalOptions
from tallytree.core.arguments import PATH
from tallytree.core.errors import BudgetError, ReleaseError, SpecError
from tallytree.core.names import did_you_mean, may_hold_secret
from tallytree.core.numbers import exact_number, short
from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import Charge
from tallytree.privacy.neighbours import PrivacyUnit
from tallytree.publish.about import REFERENCE_DATE, About, reference_text
from tallytree.publish.folder import SPEC
from tallytree.publish.run_folder import RunFolder
from tallytree.publish.untrusted import read_json
from tallytree.tables.address import KINDS, NO_MOTHERDUCK, SCHEMES, WHERE, Source, is_motherduck, stem

Number = int | Decimal | str
LARGEST = 1 << 20  # bytes of a spec


def _path(text: str) -> str:
    if not PATH.holds(text):
        raise ValueError("input should be a path")
    if "://" in text:
        raise ValueError('a URL goes into a table of its own: { url = "…", table = "…" }')
    if is_motherduck(text):
        raise ValueError(f"it is a URL of MotherDuck. {NO_MOTHERDUCK}")
    return text


PathText = Annotated[
    str, AfterValidator(_path), WithJsonSchema({"type": "string", "minLength": 1, "not": {"pattern": "://"}})
]


def _false(value: bool) -> bool:
    if value:
        raise ValueError("input should be a path, or false for none")
    return value


No = Annotated[bool, AfterValidator(_false), WithJsonSchema({"enum": [False]})]  # `Literal[False]` would accept 0


class Section(BaseModel):
    """A table of a spec. Its fields are the valid keys, with their types and meanings: nothing else describes them.

    Meanings are Markdown. Messages, the JSON Schema and the tables of the documentation are made from these fields.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class EngineTable(Section):
    """A table of an engine: see `tallytree.Source`."""

    url: str = Field(
        description='the address, without a password: `"postgresql://steward@census.example/census"`',
        json_schema_extra={"pattern": f"^({'|'.join(SCHEMES)})://"},
    )
    table: str | None = Field(
        default=None, description="the name of the table; a DuckDB file with one table needs none"
    )

    @model_validator(mode="after")
    def _sound(self) -> Self:
        try:
            Source(self.url, self.table)
        except SpecError as error:
            raise ValueError(str(error)) from None
        return self


# Which form of a table's source was meant, so that errors are about that form alone.
WAYS = ("a path", "paths", "a table of an engine")


def _one(value: Any) -> str:
    return WAYS[2] if isinstance(value, dict | EngineTable) else WAYS[0]


def _some(value: Any) -> str:
    return WAYS[1] if isinstance(value, list) else _one(value)


PathOrTable = Annotated[Annotated[PathText, Tag(WAYS[0])] | Annotated[EngineTable, Tag(WAYS[2])], Discriminator(_one)]
PathsOrTable = Annotated[
    Annotated[PathText, Tag(WAYS[0])] | Annotated[list[PathText], Tag(WAYS[1])] | Annotated[EngineTable, Tag(WAYS[2])],
    Discriminator(_some),
]


class Microdata(Section):
    """The source of private rows, and their name in the ledger."""

    source: Any  # each kind of spec says what it takes
    name: str | None = Field(
        default=None, description="the name of these data in the ledger; by default that of their file"
    )
    memory_limit: str | None = Field(
        default=None, description='the memory to use, such as `"2GB"`; by default most of the memory of the machine'
    )


class Privacy(Section):
    """The budget, and the ledger that it is charged to."""

    unit: Any  # each kind of spec says which
    epsilon: Number | None = Field(default=None, description="the budget ε: alone, or together with `delta`")
    rho: Number | None = Field(
        default=None, description="instead of `epsilon`: the budget ρ of zero-concentrated differential privacy"
    )
    delta: Number | None = Field(
        default=None, description="the δ of the budget; with `rho`, the δ at which to report it"
    )
    ledger: PathText | No | None = Field(
        default=None, description="the ledger file, or `false` for none, which the privacy statement then says"
    )
    same_unit_as: list[str] = Field(
        default=[],
        description=(
            "columns of the ledger's account that mean the same unit as this spec's, such as `[\"household_id\"]`; see "
            "[the ledger](ledger.md)"
        ),
    )


class ReportSection(Section):
    """Words for groups and entities, which all files repeat, and the map of the report."""

    groups: str = Field(default="groups", description='your word for groups in the plural, such as `"households"`')
    entities: str = Field(default="entities", description='your word for entities in the plural, such as `"persons"`')
    map: PathText | None = Field(default=None, description="a GeoJSON file with an area for each region")


class AboutSection(Section):
    """Who publishes the files, and what they are about; see `tallytree.publish.about`."""

    title: str | None = Field(
        default=None, description="the title; it may stand in the section of the kind of spec instead"
    )
    publisher: str | None = Field(default=None, description="your office, as readers should cite it")
    contact: str | None = Field(default=None, description="an email address, or any other way to reach you")
    licence: str | None = Field(default=None, description='a name such as `"CC-BY-4.0"`, or a URL')
    reference_date: Annotated[str | None, BeforeValidator(reference_text, json_schema_input_type=str | int)] = Field(
        default=None,
        description=(
            'the time that the data are about: `2025-03-31`, `"2025-03"`, `"2025-Q1"` or `"2025"`; in SDMX it is '
            "`TIME_PERIOD`"
        ),
        json_schema_extra={"pattern": f"^({REFERENCE_DATE})?$"},
    )
    description: str | None = Field(default=None, description="what the numbers are, in your words")
    source: str | None = Field(default=None, description="where the data come from")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        try:
            self.value()
        except SpecError as error:
            raise ValueError(str(error)) from None
        return self

    def value(self) -> About:
        """Return what is stated besides the title."""
        return About(**self.model_dump(exclude={"title"}, exclude_none=True))


class Spec(Section):
    """A complete file; its fields are the valid sections.

    Each kind of spec has the steps of a run, in this order: `check_public`, `read`, `check` and `make`. It has
    `neighbours`, the relation that `read` would give; `fingerprint`, a digest of the input files; and `left_out`, what
    reading leaves out.
    """

    KIND: ClassVar[str]  # release or synthesis
    MICRODATA: ClassVar[str]  # the section of the private rows

    privacy: Privacy
    about: AboutSection = Field(
        default=AboutSection(),
        description=(
            "Who publishes the files, and what they are about. All keys are optional. They are in `privacy.json`, "
            "`datapackage.json`, the exports and the report. In Python, `release` and `synthesize` take the same keys "
            "as `about={…}`, and the title as `title`."
        ),
    )
    _folder: Path = PrivateAttr()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a TOML file; one error lists all mistakes."""
        return cls.of_text(_content(Path(path)), Path(path))

    @classmethod
    def of_text(cls, content: bytes, file: Path) -> Self:
        """Return the spec that a file has, or will have."""
        values = _values(content, file)
        try:
            spec = cls.model_validate(values)
        except ValidationError as error:
            mistakes = "\n".join(dict.fromkeys(f"  - {_mistake(dict(item), cls)}" for item in error.errors()))
            raise SpecError(f"{file} has mistakes:\n{mistakes}") from None
        if places := list(_secret_places(values)):
            raise SpecError(
                f"{file}: {', '.join(places)} looks like a password or a token (not repeated here).  {WHERE}"
            )
        spec._folder = file.absolute().parent
        if spec.about.title is not None and spec.section.title is not None:
            raise SpecError(f"{file}: the title is in [about] and in [{cls.KIND}]; give only one of them")
        return spec

    # ---------------------------------------------------------------- what both kinds of specs say

    @property
    def section(self) -> Any:
        """Return the section of the kind of spec: [release] or [synthesis]."""
        return getattr(self, self.KIND)

    @property
    def title(self) -> str | None:
        """Return the title, which stands in [about] or in the section of the kind of spec."""
        return self.section.title if self.about.title is None else self.about.title

    @property
    def folder(self) -> Path:
        """Return the file's folder; relative paths start there."""
        return self._folder

    @property
    def budget(self) -> Budget:
        """Return the budget of this release or synthesis."""
        privacy = self.privacy
        return read_budget("[privacy]", epsilon=privacy.epsilon, rho=privacy.rho, delta=privacy.delta)

    def charged_budget(self, charge: Charge) -> Budget:
        """Return the budget as the ledger's account is charged for it."""
        return self.budget

    @property
    def unit(self) -> PrivacyUnit:
        """Return the privacy unit."""
        return PrivacyUnit(self.privacy.unit, tuple(self.privacy.same_unit_as))

    @property
    def ledger(self) -> Path | None:
        """Return the ledger's path."""
        return self.folder / self.privacy.ledger if isinstance(self.privacy.ledger, str) else None

    def ledger_to_charge(self, given: Path | None = None, *, without: bool = False) -> Path | None:
        """Return the ledger that `--ledger` or the spec names; None only if `--no-ledger` or the spec says so."""
        if given is not None and without:
            raise SpecError("--ledger and --no-ledger cannot be combined; give one of them")
        if given is not None:
            return given.absolute()
        if without or self.privacy.ledger is False:
            return None
        if self.ledger is None:
            raise BudgetError(
                "no ledger was named. All that is ever released about the same data adds up, and a ledger keeps that "
                'sum: name one with --ledger PATH or [privacy] ledger = "…" (`tallytree ledger open` makes it). To go '
                "without, say so: --no-ledger, or ledger = false."
            )
        return self.ledger

    def ledger_in_words(self) -> str:
        """Return which ledger the spec names, or the option that the command will need."""
        if self.privacy.ledger is False:
            return "none, by the spec"
        return "none: give --ledger PATH or --no-ledger" if self.ledger is None else str(self.ledger)

    @property
    def name(self) -> str | None:
        """Return the data set's name in the ledger: the given name, or that of its only file."""
        microdata: Microdata = getattr(self, self.MICRODATA)
        source = microdata.source
        if isinstance(source, EngineTable) and microdata.name is None:
            return Source(source.url, source.table).name
        if microdata.name is not None or not isinstance(source, str) or set(source) & set("*?["):
            return microdata.name
        return stem(source)

    def account(self) -> tuple[Path, str]:
        """Return the ledger, and the data set's name in it."""
        if self.ledger is None or self.name is None:
            raise BudgetError(
                f'the spec needs [privacy] ledger = "…" and [{self.MICRODATA}] name = "…" to open an account'
            )
        return self.ledger, self.name

    def placed(self, source: str | list[str] | EngineTable) -> Any:
        """Return the path or paths of a source, or its table of an engine."""
        if isinstance(source, EngineTable):
            found = Source(source.url, source.table)
            return found if found.path is None else Source(f"duckdb://{self.folder / found.path}", source.table)
        if isinstance(source, str):
            return str(self.folder / source)
        return [str(self.folder / path) for path in source]


def read_budget(where: str, **amounts: Any) -> Budget:
    """Return a budget from text; an invalid one is a mistake in the input, not a ledger error."""
    try:
        return Budget(**amounts)
    except BudgetError as error:
        raise SpecError(f"{where} {error}") from None


def read_total(options: TotalOptions) -> Budget:
    """Return the total budget of accounts from the options of a command."""
    return read_budget("the total:", epsilon=options.epsilon, rho=options.rho, delta=options.delta)


def read_budgets(epsilons: list[str] | None, spec: Spec) -> list[Budget]:
    """Return the budgets of `--epsilon`, with the spec's delta and noise; by default the spec's own."""
    own = spec.budget
    return [read_budget("--epsilon:", epsilon=one, delta=own.delta, noise=own.noise) for one in epsilons or ()] or [own]


def is_for_synthesis(path: str | Path) -> bool:
    """Return whether this is the spec of a synthesis; False for a release or an unreadable file."""
    try:
        values = _values(_content(Path(path)), Path(path))
    except SpecError:
        return False
    return "data" not in values and bool({"households", "persons", "schema"} & set(values))


def _content(file: Path) -> bytes:
    """Return what a file holds; a file of data is refused."""
    try:
        if not file.is_file():
            raise SpecError(f"{file} is not a file" if file.exists() else f"there is no spec at {file}")
        if file.name.lower().endswith(tuple(KINDS)):
            raise SpecError(
                f"{file} is a file of data, not a spec. Make a spec for it with:\n  "
                f"{shlex.join(['tallytree', 'init', str(file)])}"
            )
        with file.open("rb") as opened:
            return opened.read(LARGEST + 1)
    except OSError as error:
        raise SpecError(f"{file} cannot be read: {error.strerror}. Nothing was spent.") from None


def _values(content: bytes, file: Path) -> dict[str, Any]:
    """Return the values of a file's content, decimal numbers exactly."""
    try:
        if len(content) > LARGEST:
            raise ValueError(f"it is longer than {LARGEST:,} bytes")
        return tomllib.loads(content.decode("utf-8"), parse_float=_decimal)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise SpecError(f"{file} is not UTF-8: line {line} has a byte that UTF-8 does not have") from None
    except RecursionError:
        raise SpecError(f"{file} is not a valid TOML file: it is nested too deeply") from None
    except ValueError as error:
        raise SpecError(f"{file} is not a valid TOML file: {error}") from None


def _decimal(text: str) -> Decimal:
    """Return a decimal number exactly; refuse extreme exponents."""
    if text.lstrip("+-") not in ("nan", "inf"):
        exact_number(text)
    return Decimal(text)


def _mistake(item: dict[str, Any], whole: type[Section]) -> str:
    *place, last = [str(part) for part in item["loc"] if part not in WAYS]
    place = [short(part) if may_hold_secret(part) else part for part in place]
    section = f"[{'.'.join(place)}] " if place else ""
    fields = _fields_at(place, whole)
    if item["type"] == "extra_forbidden":
        if last in fields:
            return f"{section}{last} is another name of {names_of(last, fields[last])[0]}; give only one of them"
        return f"{section}unknown key {short(last)}; {did_you_mean(last, fields, 'known:')}"
    if item["type"] == "missing":
        what, text = "key" if place else "section", fields[last].description
        return f"{section}the {what} {last!r} is missing{f': {meaning(text)}' if place and text else ''}"
    said = str(item.get("ctx", {}).get("error", item["msg"]))
    return f"{section}{last}: {said[:1].lower()}{said[1:]}{_instead(item['input'])}"


def _secret_places(values: Any, place: str = "") -> Iterator[str]:
    """Return the keys whose values look like secrets; `Source` checks `url`."""
    if may_hold_secret(values):
        yield place
    elif isinstance(values, list):
        for value in values:
            yield from _secret_places(value, place)
    elif isinstance(values, dict):
        for key, value in values.items():
            inner = "a key" if may_hold_secret(key) else f"{place}.{key}".lstrip(".")
            yield from ([inner] if may_hold_secret(key) else () if key == "url" else _secret_places(value, inner))


def _instead(value: Any) -> str:
    """Return the value that a message quotes; tables and URLs are left out, since they may hold a password."""
    if isinstance(value, dict):
        return ""
    return (
        ""
        if "://" in str(value) or may_hold_secret(str(value)) or is_motherduck(str(value))
        else f", not {short(value)}"
    )


def _fields_at(place: list[str], whole: type[Section]) -> dict[str, FieldInfo]:
    """Return the valid keys of the section at a place."""
    fields = fields_of(whole)
    for part in place:
        if part in fields and (inner := section_in(fields[part].annotation)) is not None:
            fields = fields_of(inner)
    return fields


def fields_of(section: type[Section]) -> dict[str, FieldInfo]:
    """Return the valid keys of a section, by each name that they have in a spec."""
    return {each: field for name, field in section.model_fields.items() for each in names_of(name, field)}


def names_of(name: str, field: FieldInfo) -> list[str]:
    """Return the names of a key in a spec, first the one that messages use."""
    other = field.validation_alias
    return [str(each) for each in other.choices] if isinstance(other, AliasChoices) else [field.alias or name]


def only(names: Iterable[str]) -> dict[str, Any]:
    """Return the words of a JSON Schema for a table that has no other keys than these."""
    return {"properties": {name: {} for name in sorted(set(names))}, "additionalProperties": False}


def meaning(text: str) -> str:
    """Return a Markdown text without its links.

    >>> meaning("how: see `read` and [the ledger](ledger.md)")
    'how: see `read` and the ledger'
    """
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)


def section_in(annotation: Any) -> type[Section] | None:
    """Return the section that a field's type is or contains."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for part in get_args(annotation) if (found := section_in(part)) is not None), None)


# -------------------------------------------------------------------- the spec of a run that is resumed
# A record of the spec lies in the folder of the run. It is written before anything is reserved; paths are as the spec
# has them.

# What may change: the ledger is known from the run itself, memory is the machine's affair, a report can be made again.
FREE = {
    ("privacy", "ledger"),
    ("data", "memory_limit"),
    ("households", "memory_limit"),
    *(("report", name) for name in ReportSection.model_fields),
}


def keep_spec(folder: Path, spec: Spec) -> None:
    """Write the record of the spec into the folder of a run, and create the folder if needed."""
    RunFolder(folder).write(SPEC, _record(spec))


def refuse_changed(folder: Path, spec: Spec) -> None:
    """Refuse to resume a run with another spec, and list the differences."""
    if not (folder / SPEC).exists():  # a run that was begun in Python
        return
    before, now = read_json(folder / SPEC), _record(spec)
    keys = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
    if keys:
        listed = "\n".join(
            f"  - {key} was {_value_in_words(before.get(key))} and is {_value_in_words(now.get(key))} now"
            for key in keys
        )
        raise ReleaseError(
            f"the spec differs from the one that this run started with:\n{listed}\nRestore it to resume. Nothing was "
            f"spent now. (To abandon the run and the budget it spent, delete {folder}.)"
        )


def _record(spec: Spec) -> dict[str, Any]:
    """Return the value of every key of every section; deeper levels stay nested."""
    amounts = spec.budget.to_json()
    found: dict[str, Any] = {}
    for section, keys in spec.model_dump(by_alias=True).items():
        if isinstance(keys, Mapping):
            for key, value in keys.items():
                exact = amounts[key] if section == "privacy" and key in amounts and value is not None else value
                found |= {} if (section, key) in FREE else {f"[{section}] {key}": _plain(exact)}
        elif keys is not None:
            found[section] = _plain(keys)
    return found


def _plain(value: Any) -> Any:
    """Return a value as JSON returns it; 1.0 and 1 are the same number."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Decimal) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(Fraction(value))
    return value


def _value_in_words(value: Any) -> str:
    return "not given" if value is None else repr(value)
