"""The options of commands as values. Each field of such a class is a parameter of its command."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

import typer

from tallytree.core.errors import SpecError

T = TypeVar("T")
Names = list[str] | None

SpecPath = Annotated[Path, typer.Argument(metavar="SPEC", help="A TOML file; see docs/release.md.")]
SynthesisPath = Annotated[Path, typer.Argument(metavar="SPEC", help="A TOML file; see docs/synthesis.md.")]
ReleasePath = Annotated[Path, typer.Argument(metavar="RELEASE", help="A release directory.")]
AnyDirectory = Annotated[Path, typer.Argument(metavar="RELEASE", help="A directory that release or synthesize wrote.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only errors, warnings and ids.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Do not write a report (report.html).")]
Jobs = Annotated[int | None, typer.Option(help="Number of parallel processes; by default one per processor.")]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options that `release` and `synthesize` share."""

    COMMAND: ClassVar[str]

    spec: SpecPath
    out: Annotated[Path, typer.Option("--out", help="Write to this new directory.")]
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="Charge this ledger instead of the one in the spec.")
    ] = None
    no_ledger: Annotated[
        bool, typer.Option("--no-ledger", help="Run without a ledger: other releases about these data are not checked.")
    ] = False
    same_data: Annotated[
        bool,
        typer.Option(
            "--same-data-other-name",
            help=(
                "Accept files that another account was charged for; budgets add up, and the privacy statement names it."
            ),
        ),
    ] = False
    changed_files: Annotated[
        bool,
        typer.Option(
            "--changed-files",
            help="Accept changed files for the same account: the same data, corrected or in another format.",
        ),
    ] = False
    resume: Annotated[bool, typer.Option("--resume", help="Finish an interrupted run; nothing is spent twice.")] = False
    no_report: NoReport = False
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions(RunOptions):
    """The options of `release`."""

    COMMAND: ClassVar[str] = "release"

    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class SynthesisOptions(RunOptions):
    """The options of `synthesize`."""

    COMMAND: ClassVar[str] = "synthesize"

    spec: SynthesisPath


@dataclass(frozen=True, kw_only=True)
class InitOptions:
    """The options of `init`."""

    persons: Annotated[Path, typer.Argument(metavar="PERSONS", help="A file with one row per person.")]
    households: Annotated[
        Path | None,
        typer.Argument(metavar="HOUSEHOLDS", help="A second private file, with one row per household and its region."),
    ] = None
    out: Annotated[Path, typer.Option("--out", help="Write the spec to this new file.")] = Path("release.toml")
    group: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Take this column for the group, such as the household's id.")
    ] = None
    entity: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Take this column for the person, or none: each row is one.")
    ] = None
    regions: Annotated[Path | None, typer.Option(metavar="FILE", help="Take the regions from this public file.")] = None
    regions_are_public: Annotated[
        bool,
        typer.Option(
            "--regions-are-public",
            help="Declare that everyone may know which regions occur in the data, and write them to regions.csv.",
        ),
    ] = False
    region: Annotated[
        Names,
        typer.Option(
            metavar="COLUMN", help="Take this column of the data for the region; repeat it from the top down."
        ),
    ] = None
    level: Annotated[
        Names,
        typer.Option(metavar="COLUMN", help="Take this column of --regions for a level; repeat it from the top down."),
    ] = None
    max_size: Annotated[int | None, typer.Option(metavar="NUMBER", help="Count larger groups as this size.")] = None
    unit: Annotated[str | None, typer.Option(help="Protect each person (one_entity) or each group (one_group).")] = None
    epsilon: Annotated[str | None, typer.Option(help="Spend this budget; less protects more.")] = None
    publisher: Annotated[str | None, typer.Option(metavar="NAME", help="Name the publisher, or none.")] = None
    encoding: Annotated[
        str | None, typer.Option(help="Read CSV files in this encoding, such as windows-1252, instead of a guess.")
    ] = None
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="Read this table of a DuckDB file, or this sheet of a workbook.")
    ] = None
    households_table: Annotated[
        str | None, typer.Option(metavar="NAME", help="Read this table or sheet of HOUSEHOLDS.")
    ] = None
    counts: Annotated[
        bool,
        typer.Option("--counts", help="Count distinct values too, for better guesses: exact numbers, for you alone."),
    ] = False
    yes: Annotated[bool, typer.Option("--yes", help="Take the guesses instead of asking.")] = False
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The options of `plan`."""

    spec: SpecPath
    suggest: Annotated[
        Names, typer.Option(metavar="GOAL", help='Find shares for a goal: "county within 20 at 95%". May be repeated.')
    ] = None
    epsilon: Annotated[
        Names, typer.Option(metavar="EPSILON", help="Plan for this epsilon instead of the spec's. May be repeated.")
    ] = None
    prior: Annotated[
        str | None, typer.Option(help="Use this prior instead of [plan] prior: a shape, a table or a release.")
    ] = None
    groups: Annotated[int | None, typer.Option(help="Expect this many groups, instead of [plan] groups.")] = None
    mechanism: Annotated[
        Names, typer.Option(metavar="NAME", help='Plan this mechanism, or "all". May be repeated.')
    ] = None
    plot: Annotated[Path | None, typer.Option(help="Write a chart: .png, .svg or .html.")] = None
    report: Annotated[Path | None, typer.Option(help="Write a report: .html.")] = None
    as_json: AsJson = False
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """The options of `query`."""

    directory: ReleasePath
    region: Annotated[
        Names,
        typer.Option(
            metavar="REGION", help="Select a region by id or name; repeat it for a sum. All regions by default."
        ),
    ] = None
    size: Annotated[str | None, typer.Option(help='">=6", "3-5", "0" or "1,2,7+". All sizes if left out.')] = None
    share: Annotated[bool, typer.Option("--share", help="Compute the sizes' share of all groups there.")] = False
    mean: Annotated[
        bool,
        typer.Option(
            "--mean", help=("Compute entities per group; groups of the last size or more count as that size.")
        ),
    ] = False
    median: Annotated[bool, typer.Option("--median", help="Compute the median size of the groups.")] = False
    quantile: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="Compute the size that this part of the groups do not exceed: 0.9."),
    ] = None
    gini: Annotated[bool, typer.Option("--gini", help="Compute the Gini coefficient of the sizes.")] = False
    ratio_to: Annotated[Names, typer.Option(metavar="REGION", help="Divide by the same sizes there.")] = None
    difference_to: Annotated[Names, typer.Option(metavar="REGION", help="Subtract the same sizes there.")] = None
    level: Annotated[str | None, typer.Option(help="Answer for every region of a level (within --region).")] = None
    regions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Answer for every area of a CSV or Parquet file: columns area and region."),
    ] = None
    by: Annotated[
        Names,
        typer.Option(
            metavar="NAME=VALUE", help="A category's value: tenure=rented. With tenure alone, each of its values."
        ),
    ] = None
    share_of: Annotated[
        Names,
        typer.Option(metavar="NAME=VALUE", help=("Compute the share of a category's value among all groups there.")),
    ] = None
    confidence: Annotated[
        float | None, typer.Option(help=("Set the confidence of the intervals; by default the release's own."))
    ] = None
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="List every size, with intervals that hold for all sizes jointly.")
    ] = False
    no_typical: Annotated[
        bool, typer.Option("--no-typical", help=("Leave out typical intervals, which is faster."))
    ] = False
    whole: Annotated[
        bool, typer.Option("--whole", help="Read all of a large release: slower, with narrower and typical intervals.")
    ] = False
    as_json: AsJson = False
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one row per answer.")] = False
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The options of `compare`."""

    old: Annotated[Path, typer.Argument(metavar="OLD", help="The earlier release's directory.")]
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The later release's directory.")]
    level: Annotated[str | None, typer.Option(help="Compare the regions of this level only.")] = None
    size: Annotated[
        Names, typer.Option(metavar="SIZES", help='Compare a band of sizes, such as ">=3", alone. May be repeated.')
    ] = None
    by: Annotated[
        Names,
        typer.Option(
            metavar="NAME=VALUE", help="A category's value: tenure=rented. With tenure alone, each of its values."
        ),
    ] = None
    family_wise: Annotated[
        bool, typer.Option("--family-wise", help="Limit the chance of any false flag to 5 %, not their share.")
    ] = False
    more_than: Annotated[
        str | None, typer.Option(metavar="PERCENT", help="Flag only changes of more than this: 5%.")
    ] = None
    concordance: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For changed boundaries: columns old_leaf and new_leaf.")
    ] = None
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="Name the joint total that this ledger has for both data sets.")
    ] = None
    out: Annotated[Path | None, typer.Option(help="Write tables, facts and a page to this new directory.")] = None
    report: Annotated[Path | None, typer.Option(help="Write the page to this file: .html.")] = None
    map: Annotated[Path | None, typer.Option(help="Draw a map on the page from this GeoJSON.")] = None
    as_json: AsJson = False
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """The options of `evaluate`."""

    COMMAND: ClassVar[str] = "evaluate"

    data: Annotated[
        str,
        typer.Argument(
            metavar="DATASET|PATH",
            help="census, taxi, race, people, or a CSV or Parquet file of public counts by region and size.",
        ),
    ]
    level: Annotated[
        Names,
        typer.Option(metavar="COLUMN", help="A column of the file with region names; repeat, from the top down."),
    ] = None
    size_columns: Annotated[
        str | None,
        typer.Option(metavar="PREFIX", help="Prefix of the file's size columns: hh for hh1, hh2 and so on"),
    ] = None
    mechanism: Annotated[Names, typer.Option(metavar="NAME", help="Repeat for several; all of them if not given.")] = (
        None
    )
    epsilon: Annotated[Names, typer.Option(metavar="EPSILON", help="Repeat for several; 1 if not given.")] = None
    runs: Annotated[int, typer.Option(help="Runs of each mechanism with each epsilon.")] = 5
    scale: Annotated[float, typer.Option(help="Size of a made-up data set; 1 is full size.")] = 1.0
    seed: Annotated[int, typer.Option(help="The same seed gives the same data and noise.")] = 0
    unit: Annotated[str, typer.Option(help="one_entity or one_group.")] = "one_entity"
    jobs: Jobs = None
    limit: Annotated[float | None, typer.Option(help="Stop a run after this many seconds; no limit by default.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the summary as CSV.")] = False
    out: Annotated[
        Path | None,
        typer.Option(help=("Write results and plots to this folder; a second call runs only what is missing.")),
    ] = None
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """The options of `audit`."""

    mechanism: Annotated[Names, typer.Option(metavar="NAME", help="Repeat for several; all if not given.")] = None
    runs: Annotated[int | None, typer.Option(help="Number of outputs per neighbour; 10,000 by default.")] = None
    quick: Annotated[bool, typer.Option("--quick", help="Use fewer runs and settings.")] = False
    planted: Annotated[bool, typer.Option("--planted", help="Audit planted defects: each must be caught.")] = False
    confidence: Annotated[float, typer.Option(help="Set the joint confidence of all bounds from outputs.")] = 0.999
    jobs: Jobs = None
    as_json: AsJson = False
    out: Annotated[Path | None, typer.Option(help="Write the table and the plot to this folder.")] = None
    quiet: Quiet = False


def with_options(function: Callable[[Any], T]) -> Callable[..., T]:
    """Return a function of one value as a function of that value's fields, as Typer expects it."""
    [kind] = (hint for name, hint in get_type_hints(function).items() if name != "return")
    hints = get_type_hints(kind, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints[name]) for name, parameter in inspect.signature(kind).parameters.items()
    ]

    @wraps(function)
    def run(**given: Any) -> T:
        return function(kind(**given))

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = hints
    return run


def command_line(options: Any) -> str:
    """Return the command with these options for pasting into a shell, without options at their default."""
    hints = get_type_hints(type(options), include_extras=True)
    words: list[str] = []
    for field in fields(options):
        value, about = getattr(options, field.name), hints[field.name].__metadata__[0]
        if isinstance(about, typer.models.ArgumentInfo):
            words.insert(0, str(value))
        elif value != field.default:
            option = about.default if isinstance(about.default, str) else f"--{field.name.replace('_', '-')}"
            for each in value if isinstance(value, list | tuple) else [value]:
                words += [option] if each is True else [option, str(each)]
    return shlex.join(["tallytree", options.COMMAND, *words])


def output_form(*, as_json: bool, as_csv: bool) -> str:
    """Return which of text, json and csv two options request."""
    if as_json and as_csv:
        raise SpecError("give --json or --csv, not both")
    return "json" if as_json else "csv" if as_csv else "text"
