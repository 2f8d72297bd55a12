"""The options of commands as values. Each field of such a class is a parameter of its command."""
# ruff: noqa: RUF009 - `argument`, `option` and `flag` return fields

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_type_hints

import typer

from tallytree.core.errors import SpecError

T = TypeVar("T")
Names = list[str] | None

SPEC, SYNTHESIS = (f"A TOML file. `tallytree schema {kind}` describes its keys." for kind in ("release", "synthesis"))
RELEASE, DIRECTORY = "A release directory.", "A directory that release or synthesize wrote."
LEDGER = "The ledger file."
QUIET, AS_JSON = "Print only errors, warnings and ids.", "Print JSON."
NO_REPORT = "Do not write a report (report.html)."
JOBS = "Use this many parallel processes; by default one per processor."


def argument(metavar: str, help: str, default: Any = MISSING) -> Any:  # noqa: A002
    """Return a field that is a positional argument of the command."""
    return field(default=default, metadata={"positional": True, "metavar": metavar, "help": help})


def option(help: str, default: Any = None, *, name: str = "", **about: Any) -> Any:  # noqa: A002
    """Return a field that is an option of the command; by default the option has the field's name."""
    return field(default=default, metadata={"positional": False, "name": name, "help": help, **about})


def flag(help: str, name: str = "") -> Any:  # noqa: A002
    """Return a field that is an option without a value."""
    return option(help, False, name=name)


def option_name(one: Field[Any]) -> str:
    """Return the name of a field's option: "--json" for the field `as_json`."""
    return one.metadata["name"] or f"--{one.name.removeprefix('as_').replace('_', '-')}"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options that `release` and `synthesize` share."""

    COMMAND: ClassVar[str]

    spec: Path = argument("SPEC", SPEC)
    out: Path = option("Write to this new directory.", MISSING)
    ledger: Path | None = option("Charge this ledger instead of the one in the spec.")
    no_ledger: bool = flag("Run without a ledger: other releases about these data are not checked.")
    same_data: bool = flag(
        "Accept files that another account was charged for; budgets add up, and the privacy statement names it.",
        "--same-data-other-name",
    )
    changed_files: bool = flag(
        "Accept changed files for the same account: the same data, corrected or in another format."
    )
    resume: bool = flag("Finish an interrupted run; nothing is spent twice.")
    no_report: bool = flag(NO_REPORT)
    quiet: bool = flag(QUIET)


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions(RunOptions):
    """The options of `release`."""

    COMMAND: ClassVar[str] = "release"

    as_json: bool = flag(AS_JSON)


@dataclass(frozen=True, kw_only=True)
class SynthesisOptions(RunOptions):
    """The options of `synthesize`."""

    COMMAND: ClassVar[str] = "synthesize"

    spec: Path = argument("SPEC", SYNTHESIS)


@dataclass(frozen=True, kw_only=True)
class InitOptions:
    """The options of `init`."""

    persons: Path = argument("PERSONS", "A file with one row per person.")
    households: Path | None = argument(
        "HOUSEHOLDS", "A second private file, with one row per household and its region.", None
    )
    out: Path = option("Write the spec to this new file.", Path("release.toml"))
    group: str | None = option("Take this column for the group, such as the household's id.", metavar="COLUMN")
    entity: str | None = option("Take this column for the person, or none: each row is one.", metavar="COLUMN")
    regions: Path | None = option("Take the regions from this public file.", metavar="FILE")
    regions_are_public: bool = flag(
        "Declare that everyone may know which regions occur in the data, and write them to regions.csv."
    )
    region: Names = option(
        "Take this column of the data for the region; repeat it from the top down.", metavar="COLUMN"
    )
    level: Names = option("Take this column of --regions for a level; repeat it from the top down.", metavar="COLUMN")
    max_size: int | None = option("Count larger groups as this size.", metavar="NUMBER")
    unit: str | None = option("Protect each person (one_entity) or each group (one_group).")
    epsilon: str | None = option("Spend this budget; less protects more.")
    publisher: str | None = option("Name the publisher, or none.", metavar="NAME")
    encoding: str | None = option("Read CSV files in this encoding, such as windows-1252, instead of a guess.")
    table: str | None = option("Read this table of a DuckDB file, or this sheet of a workbook.", metavar="NAME")
    households_table: str | None = option("Read this table or sheet of HOUSEHOLDS.", metavar="NAME")
    counts: bool = flag("Count distinct values too, for better guesses: exact numbers, for you alone.")
    yes: bool = flag("Take the guesses instead of asking.")
    force: bool = flag("Replace files that exist.")
    quiet: bool = flag(QUIET)


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The options of `plan`."""

    spec: Path = argument("SPEC", SPEC)
    suggest: Names = option('Find shares for a goal: "county within 20 at 95%". May be repeated.', metavar="GOAL")
    epsilon: Names = option("Plan for this epsilon instead of the spec's. May be repeated.", metavar="EPSILON")
    prior: str | None = option("Use this prior instead of [plan] prior: a shape, a table or a release.")
    groups: int | None = option("Expect this many groups, instead of [plan] groups.")
    mechanism: Names = option('Plan this mechanism, or "all". May be repeated.', metavar="NAME")
    plot: Path | None = option("Write a chart: .png, .svg or .html.")
    report: Path | None = option("Write a report: .html.")
    as_json: bool = flag(AS_JSON)
    quiet: bool = flag(QUIET)


@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """The options of `query`."""

    directory: Path = argument("RELEASE", RELEASE)
    region: Names = option(
        "Select a region by id or name; repeat it for a sum. All regions by default.", metavar="REGION"
    )
    size: str | None = option('Select sizes: ">=6", "3-5", "0" or "1,2,7+"; all of them by default.')
    share: bool = flag("Compute the sizes' share of all groups there.")
    mean: bool = flag("Compute entities per group; groups of the last size or more count as that size.")
    median: bool = flag("Compute the median size of the groups.")
    quantile: str | None = option("Compute the size that this part of the groups do not exceed: 0.9.", metavar="NUMBER")
    gini: bool = flag("Compute the Gini coefficient of the sizes.")
    ratio_to: Names = option("Divide by the same sizes there.", metavar="REGION")
    difference_to: Names = option("Subtract the same sizes there.", metavar="REGION")
    level: str | None = option("Answer for every region of a level (within --region).")
    regions: Path | None = option(
        "Answer for every area of a CSV or Parquet file: columns area and region.", metavar="FILE"
    )
    by: Names = option(
        "Select a category's value: tenure=rented. With tenure alone, each of its values.", metavar="NAME=VALUE"
    )
    share_of: Names = option("Compute the share of a category's value among all groups there.", metavar="NAME=VALUE")
    confidence: float | None = option("Set the confidence of the intervals; by default the release's own.")
    simultaneous: bool = flag("List every size, with intervals that hold for all sizes jointly.")
    no_typical: bool = flag("Leave out typical intervals, which is faster.")
    whole: bool = flag("Read all of a large release: slower, with narrower and typical intervals.")
    as_json: bool = flag(AS_JSON)
    as_csv: bool = flag("Print CSV, one row per answer.")
    quiet: bool = flag(QUIET)


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The options of `compare`."""

    old: Path = argument("OLD", "The earlier release's directory.")
    new: Path = argument("NEW", "The later release's directory.")
    level: str | None = option("Compare the regions of this level only.")
    size: Names = option('Compare a band of sizes, such as ">=3", alone. May be repeated.', metavar="SIZES")
    by: Names = option(
        "Select a category's value: tenure=rented. With tenure alone, each of its values.", metavar="NAME=VALUE"
    )
    family_wise: bool = flag("Limit the chance of any false flag to 5 %, not their share.")
    more_than: str | None = option("Flag only changes of more than this: 5%.", metavar="PERCENT")
    concordance: Path | None = option(
        "Follow changed boundaries by this table: columns old_leaf and new_leaf.", metavar="FILE"
    )
    ledger: Path | None = option("Name the joint total that this ledger has for both data sets.")
    out: Path | None = option("Write tables, facts and a page to this new directory.")
    report: Path | None = option("Write the page to this file: .html.")
    map: Path | None = option("Draw a map on the page from this GeoJSON.")
    as_json: bool = flag(AS_JSON)
    quiet: bool = flag(QUIET)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """The options of `evaluate`."""

    COMMAND: ClassVar[str] = "evaluate"

    data: str = argument(
        "DATASET|PATH", "census, taxi, race, people, or a CSV or Parquet file of public counts by region and size."
    )
    level: Names = option("Take this column of the file for a level; repeat it from the top down.", metavar="COLUMN")
    size_columns: str | None = option(
        "Take columns with this prefix for sizes: hh for hh1, hh2 and so on.", metavar="PREFIX"
    )
    mechanism: Names = option("Run this mechanism; repeat it for several. All of them by default.", metavar="NAME")
    epsilon: Names = option("Run with this epsilon; repeat it for several. 1 by default.", metavar="EPSILON")
    runs: int = option("Run each mechanism this many times with each epsilon.", 5)
    scale: float = option("Scale made-up data to this size; 1 is full size.", 1.0)
    seed: int = option("Draw data and noise from this seed.", 0)
    unit: str = option("Protect each entity (one_entity) or each group (one_group).", "one_entity")
    jobs: int | None = option(JOBS)
    limit: float | None = option("Stop a run after this many seconds; no limit by default.")
    as_json: bool = flag("Print the summary as JSON.")
    as_csv: bool = flag("Print the summary as CSV.")
    out: Path | None = option("Write results and plots to this folder; a second call runs only what is missing.")
    quiet: bool = flag(QUIET)


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """The options of `audit`."""

    mechanism: Names = option("Audit this mechanism; repeat it for several. All of them by default.", metavar="NAME")
    runs: int | None = option("Draw this many outputs per neighbour; 10,000 by default.")
    quick: bool = flag("Use fewer runs and settings.")
    planted: bool = flag("Audit planted defects: each must be caught.")
    confidence: float = option("Set the joint confidence of all bounds from outputs.", 0.999)
    jobs: int | None = option(JOBS)
    as_json: bool = flag(AS_JSON)
    out: Path | None = option("Write the table and the plot to this folder.")
    quiet: bool = flag(QUIET)


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The options of `demo`."""

    out: Path = option("Write the release to this directory; an older release there is replaced.", Path("demo-release"))
    data: Path = option("Write the made-up country's files to this directory.", Path("demo-data"))
    households: int = option("Make up this many households.", 100_000, min=1000)
    no_report: bool = flag(NO_REPORT)
    quiet: bool = flag(QUIET)


@dataclass(frozen=True, kw_only=True)
class ValidateOptions:
    """The options of `validate`."""

    spec: Path = argument("SPEC", SPEC)
    problems: Path | None = option("Write the lines of bad rows to this new CSV file, for you alone.", metavar="FILE")
    as_json: bool = flag(AS_JSON)
    quiet: bool = flag(QUIET)


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """The options of `verify`."""

    directory: Path = argument("RELEASE", DIRECTORY)
    id: str | None = option("Check the id printed at release, or its first 8 or more digits.")
    no_typical: bool = flag("Leave out typical intervals, which take 25 estimates.")
    ledger: Path | None = option("Record the id of a sound release in the ledger that paid for it.")
    as_json: bool = flag(AS_JSON)
    quiet: bool = flag(QUIET)


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The options of `report`."""

    directory: Path = argument("RELEASE", DIRECTORY)
    map: Path | None = option(
        "Draw a map from this GeoJSON: an area for each region, with a property for its id or name."
    )
    out: Path | None = option("Write the report to this file; by default report.html in the directory.")
    groups: str | None = option("Call groups by this plural word, such as households; by default as the spec said.")
    entities: str | None = option("Call entities by this plural word, such as persons; by default as the spec said.")
    quiet: bool = flag(QUIET)


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The options of `export`."""

    directory: Path = argument("RELEASE", DIRECTORY)
    to: str = option(
        "Choose xlsx, sdmx-csv, json-stat or csvw for a release, activitysim or populationsim for a synthesis.",
        MISSING,
        metavar="FORMAT",
    )
    out: Path | None = option("Write to this new directory; by default RELEASE-FORMAT.")
    quiet: bool = flag(QUIET)


@dataclass(frozen=True, kw_only=True)
class SchemaOptions:
    """The options of `schema`."""

    kind: str = argument("KIND", "The kind of spec: release or synthesis.")


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """The options of `mechanisms`."""

    as_json: bool = flag(AS_JSON)
    quiet: bool = flag(QUIET)


@dataclass(frozen=True, kw_only=True)
class LedgerOptions(ListOptions):
    """The options of `ledger show`."""

    path: Path = argument("LEDGER", LEDGER)


@dataclass(frozen=True, kw_only=True)
class TotalOptions:
    """The options that set a total budget."""

    epsilon: str | None = option("Set the total in pure epsilon.")
    rho: str | None = option("Set the total in rho (zCDP).")
    delta: str | None = option("With --epsilon, set the total to the largest rho for (epsilon, delta).")
    quiet: bool = flag(QUIET)


@dataclass(frozen=True, kw_only=True)
class OpenOptions(TotalOptions):
    """The options of `ledger open`."""

    spec: Path = argument("SPEC", SPEC)


@dataclass(frozen=True, kw_only=True)
class LinkOptions(TotalOptions):
    """The options of `ledger link`."""

    path: Path = argument("LEDGER", LEDGER)
    names: list[str] = argument("NAME NAME...", "Accounts that concern the same people.")


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """The options of `ledger record`."""

    directory: Path = argument("RELEASE", DIRECTORY)
    ledger: Path = option("The ledger that paid for it.", MISSING, metavar="LEDGER")
    receipt: int | None = option(
        "Name the reservation that paid; by default it is found from the measurements.", metavar="NUMBER"
    )


@dataclass(frozen=True, kw_only=True)
class AnchorOptions:
    """The options of `ledger anchor`."""

    path: Path = argument("LEDGER", LEDGER)
    accept: str | None = option("Accept the entry whose digest begins with these 8 or more digits.", metavar="DIGEST")
    quiet: bool = flag(QUIET)


def with_options(function: Callable[[Any], T]) -> Callable[..., T]:
    """Return a function of one value as a function of that value's fields, as Typer expects it."""
    [kind] = (hint for name, hint in get_type_hints(function).items() if name != "return")
    hints, parameters = get_type_hints(kind), inspect.signature(kind).parameters
    for one in fields(kind):
        about = {key: value for key, value in one.metadata.items() if key not in ("positional", "name")}
        about.setdefault("metavar", _metavar(one.name, hints[one.name]))
        described = typer.Argument(**about) if one.metadata["positional"] else typer.Option(option_name(one), **about)
        hints[one.name] = Annotated[hints[one.name], described]

    @wraps(function)
    def run(**given: Any) -> T:
        return function(kind(**given))

    listed = [parameter.replace(annotation=hints[name]) for name, parameter in parameters.items()]
    run.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    run.__annotations__ = hints
    return run


def _metavar(name: str, hint: Any) -> str | None:
    """Return the word for an option's value in help; None if it has no value."""
    words = {Path: "PATH", int: "NUMBER", float: "NUMBER", str: name.upper()}
    return next((word for kind, word in words.items() if kind in (hint, *get_args(hint))), None)


def command_line(options: Any) -> str:
    """Return the command with these options for pasting into a shell, without options at their default."""
    words: list[str] = []
    for one in fields(options):
        value = getattr(options, one.name)
        if one.metadata["positional"]:
            words.insert(0, str(value))
        elif value != one.default:
            for each in value if isinstance(value, list | tuple) else [value]:
                words += [option_name(one)] if each is True else [option_name(one), str(each)]
    return shlex.join(["tallytree", options.COMMAND, *words])


def output_form(*, as_json: bool, as_csv: bool) -> str:
    """Return which of text, json and csv two options request."""
    if as_json and as_csv:
        raise SpecError("give --json or --csv, not both")
    return "json" if as_json else "csv" if as_csv else "text"
