"""The `tallytree` command: its words, each handed to a module that does it. Modules load when their command runs.

Exit codes: 0 done, 2 bad input, 3 budget, 130 interrupted, 1 our own defect.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tallytree.command.ledger import ledger_app
from tallytree.command.startup import skip_unused
from tallytree.command.streams import make_streams_safe
from tallytree.core.errors import BudgetError, SpecError, TallytreeError
from tallytree.version import VERSION

if TYPE_CHECKING:
    from tallytree.publish.release.queries import QueryKind


class Interrupted(Exception):
    """Ctrl-C, out of Typer's reach, which would say "Aborted" and no more."""


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Run a command; its notes on what was spent come along if it is interrupted."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            interrupted = Interrupted()
            for note in getattr(interrupt, "__notes__", ()):
                interrupted.add_note(note)
            raise interrupted from None


app = typer.Typer(
    name="tallytree",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(ledger_app, name="ledger")

SpecPath = Annotated[Path, typer.Argument(metavar="SPEC", help="A TOML file; see docs/release.md.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors, warnings and ids only.")]
NewDirectory = Annotated[Path, typer.Option("--out", help="The directory to write; must not exist yet.")]
Resume = Annotated[bool, typer.Option("--resume", help="Finish an interrupted run; nothing is spent twice.")]
SameData = Annotated[
    bool,
    typer.Option(
        "--same-data-other-name",
        help="Charge files that another account was charged for; the privacy statement names it: budgets add up.",
    ),
]
ChangedFiles = Annotated[
    bool,
    typer.Option(
        "--changed-files",
        help="Charge the same account for other files than before: the same data, corrected or in another format.",
    ),
]
LedgerPath = Annotated[
    Path | None, typer.Option("--ledger", help="The ledger to charge, instead of the one in the spec.")
]
NoLedger = Annotated[
    bool, typer.Option("--no-ledger", help="Charge none: what else is released about these data is not checked.")
]
NoReport = Annotated[bool, typer.Option("--no-report", help="Write no page (report.html).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tallytree {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Differentially private counts that add up: how many groups of each size in every region."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the release goes; an older release there is replaced.")] = Path(
        "demo-release"
    ),
    data: Annotated[Path, typer.Option(help="Where the made-up country's files go.")] = Path("demo-data"),
    households: Annotated[int, typer.Option(min=1000, help="How many households the country has.")] = 100_000,
    no_report: NoReport = False,
    quiet: Quiet = False,
) -> None:
    """Make up a country, release it with epsilon = 1, and verify the release.

    Its ledger is made anew beside its data, with epsilon = 2 in all, each time that the country is made up.
    """
    from tallytree.command.make import run_demo

    try:
        run_demo(out, data, households=households, report=not no_report, quiet=quiet)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note("The country is made up, so nothing was spent that matters. Run it again.")
        raise


@app.command()
def validate(spec: SpecPath, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Check spec and data: every problem at once, with counts and how to fix it. Nothing is spent.

    The counts of problems, and the shares of what is left out, are computed from private data without noise: they are
    for the data holder's eyes only.
    """
    from tallytree.command.make import run_validate

    run_validate(spec, as_json=as_json, quiet=quiet)


@app.command()
def plan(
    spec: SpecPath,
    suggest: Annotated[
        list[str] | None, typer.Option(help='Find shares for a goal: "county within 20 at 95%". May be repeated.')
    ] = None,
    epsilon: Annotated[list[str] | None, typer.Option(help="Another epsilon than the spec's. May be repeated.")] = None,
    prior: Annotated[
        str | None, typer.Option(help="What to expect, for [plan] prior: a shape, a table or a release.")
    ] = None,
    groups: Annotated[int | None, typer.Option(help="How many groups to expect, for [plan] groups.")] = None,
    mechanism: Annotated[list[str] | None, typer.Option(help="Only this mechanism. May be repeated.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw a picture: .png, .svg or .html.")] = None,
    report: Annotated[Path | None, typer.Option(help="Also write a page for people: .html.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say what the budget will buy, level by level, from public facts alone.

    Nothing is spent, and the microdata are not opened.
    """
    from tallytree.command.plan import run_plan

    run_plan(
        spec,
        suggest,
        epsilon=epsilon,
        prior=prior,
        groups=groups,
        mechanisms=mechanism,
        plot=plot,
        report=report,
        as_json=as_json,
        quiet=quiet,
    )


@app.command()
def release(
    spec: SpecPath,
    out: NewDirectory,
    ledger: LedgerPath = None,
    no_ledger: NoLedger = False,
    same_data: SameData = False,
    changed_files: ChangedFiles = False,
    resume: Resume = False,
    no_report: NoReport = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Read, measure, estimate and write a release. The budget is spent once the noise is drawn.

    It is taken from a ledger, by the spec or --ledger; without one the command stops with exit code 3, unless it is
    told --no-ledger.
    """
    from tallytree.command.make import Order, run_order

    run_order(
        Order(
            "release",
            spec,
            out,
            ledger=ledger,
            no_ledger=no_ledger,
            same_data=same_data,
            changed_files=changed_files,
            resumed=resume,
            report=not no_report,
            as_json=as_json,
            quiet=quiet,
        )
    )


@app.command()
def synthesize(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A TOML file; see docs/synthesis.md.")],
    out: NewDirectory,
    ledger: LedgerPath = None,
    no_ledger: NoLedger = False,
    resume: Resume = False,
    same_data: SameData = False,
    changed_files: ChangedFiles = False,
    no_report: NoReport = False,
    quiet: Quiet = False,
) -> None:
    """Make synthetic households and persons from private ones. The budget is spent, round by round.

    It is taken from a ledger, by the spec or --ledger; without one the command stops with exit code 3, unless it is
    told --no-ledger. Rounds are kept in the folder OUT.partial until OUT is complete. It is confidential. Without a
    ledger nothing guards against copies of it: if two copies are resumed, rounds are drawn twice and cost twice.
    """
    from tallytree.command.make import Order, run_order

    run_order(
        Order(
            "synthesize",
            spec,
            out,
            ledger=ledger,
            no_ledger=no_ledger,
            same_data=same_data,
            changed_files=changed_files,
            resumed=resume,
            report=not no_report,
            quiet=quiet,
        )
    )


@app.command()
def verify(
    directory: Annotated[Path, typer.Argument(metavar="RELEASE", help="A directory of release or synthesize.")],
    id: Annotated[  # noqa: A002
        str | None, typer.Option(help="The id printed at release, or its first 8 or more digits.")
    ] = None,
    no_typical: Annotated[
        bool, typer.Option("--no-typical", help="Leave out typical intervals, which take 25 estimates.")
    ] = False,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="Of a release that is sound, tell its id to the ledger that paid.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make a release again from its measurements and settings, and compare every file. Exit code 2 if one differs.

    What the files alone cannot prove is listed at the end.
    """
    if not _passes_all_checks(directory, id, typical=not no_typical, as_json=as_json, quiet=quiet):
        raise typer.Exit(2)
    if ledger is not None:
        from tallytree.command import screen
        from tallytree.privacy.ledger import Ledger
        from tallytree.publish.run_folder import record

        number, _ = record(directory, Ledger(ledger))
        screen.show(f"{ledger}: reservation {number} paid for it.", quiet=quiet)


def _passes_all_checks(
    directory: Path, release_id: str | None = None, *, typical: bool = True, as_json: bool = False, quiet: bool
) -> bool:
    from dataclasses import asdict

    from tallytree.command import screen
    from tallytree.command.progress_bar import shown
    from tallytree.core.progress import Stage
    from tallytree.publish.verify import verify as verified

    with shown(quiet) as progress:
        progress(Stage("verifying"))
        verification = verified(directory, id=release_id, typical=typical, progress=progress)
    if as_json:
        screen.show_json({"ok": verification.ok, **asdict(verification)})
    else:
        screen.show(screen.outcome(verification), quiet=quiet and verification.ok)
    return verification.ok


@app.command()
def query(
    directory: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release directory.")],
    region: Annotated[
        list[str] | None, typer.Option(help="Its id or name; may be repeated for a sum. All regions if left out.")
    ] = None,
    size: Annotated[str | None, typer.Option(help='">=6", "3-5", "0" or "1,2,7+". All sizes if left out.')] = None,
    share: Annotated[bool, typer.Option("--share", help="The sizes' share of all groups there.")] = False,
    mean: Annotated[
        bool, typer.Option("--mean", help="Entities per group; those of the last size or more count as that size.")
    ] = False,
    ratio_to: Annotated[
        list[str] | None, typer.Option(metavar="REGION", help="Divide by the same sizes there.")
    ] = None,
    difference_to: Annotated[
        list[str] | None, typer.Option(metavar="REGION", help="Subtract the same sizes there.")
    ] = None,
    level: Annotated[str | None, typer.Option(help="Answer for every region of a level (within --region).")] = None,
    regions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Answer for every area of a CSV or Parquet file: columns area and region."),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="A category's value: tenure=rented. With tenure alone, each of its values."
        ),
    ] = None,
    share_of: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="The share of a category's value among all groups there."),
    ] = None,
    confidence: Annotated[float | None, typer.Option(help="Of the intervals; the release's own if left out.")] = None,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="Size by size, with intervals that hold for all sizes together.")
    ] = False,
    no_typical: Annotated[bool, typer.Option("--no-typical", help="Leave the typical intervals out: quicker.")] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="Read all of a large release: slower, with narrower and typical intervals.")
    ] = False,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a row for each answer.")] = False,
    quiet: Quiet = False,
) -> None:
    """Answer questions about a release: sums, shares, means, ratios and differences, with error bars."""
    from tallytree.command.query import Each, read_query, run_bands, run_query

    kinds: dict[str, tuple[object, QueryKind]] = {
        "--share": (share, "share"),
        "--share-of": (share_of, "share"),
        "--mean": (mean, "mean"),
        "--ratio-to": (ratio_to, "ratio"),
        "--difference-to": (difference_to, "difference"),
        "--simultaneous": (simultaneous, "sum"),
    }
    wanted = [kind for given, kind in kinds.values() if given]
    if len(wanted) > 1:
        raise SpecError(f"ask one thing at a time: one of {', '.join(kinds)}")
    if as_json and as_csv:
        raise SpecError("give --json or --csv, not both")
    if regions is not None and (level is not None or region):
        raise SpecError("--regions names a file of areas; it goes without --level and --region")
    kind = wanted[0] if wanted else "sum"
    asked, category = read_query(kind, region, size, ratio_to or difference_to, by, share_of)
    if category is not None and (level is not None or regions is not None or simultaneous):
        raise SpecError(
            f"--by {category} asks for each value of a category, which goes without --level, --regions and "
            f"--simultaneous; name the value that is meant, as in {category}=VALUE"
        )
    each, form = Each(level, regions, category, whole), "json" if as_json else "csv" if as_csv else "text"
    if simultaneous:
        run_bands(directory, asked, each, confidence, form, quiet=quiet)
    else:
        run_query(directory, asked, each, {"confidence": confidence, "typical": not no_typical}, form, quiet=quiet)


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(metavar="RELEASE", help="A directory of release or synthesize.")],
    map: Annotated[  # noqa: A002
        Path | None, typer.Option(help="GeoJSON with an area for each region: a property has their ids or names.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The page; report.html in the directory if left out.")] = None,
    groups: Annotated[str, typer.Option(help="What groups are called, in the plural: households.")] = "groups",
    entities: Annotated[str, typer.Option(help="What entities are called, in the plural: persons.")] = "entities",
    quiet: Quiet = False,
) -> None:
    """Write a page for people: what was published, how good it is, how it is protected. Nothing is spent.

    It is one HTML file that opens from disk and loads nothing.
    """
    from tallytree.command.report import run_report
    from tallytree.publish.report.words import Words

    run_report(directory, map=map, out=out, words=Words(groups, entities), quiet=quiet)


@app.command()
def export(
    directory: Annotated[Path, typer.Argument(metavar="RELEASE", help="A directory of release or synthesize.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="sdmx-csv, json-stat or csvw for a release, activitysim or populationsim for synthetic households.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The directory to write, which must not exist yet; RELEASE-FORMAT if left out."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write a release, or synthetic households, for other software. Nothing is spent.

    A release as SDMX-CSV, JSON-stat or CSV on the Web: counts and numbers of entities, with labels, units and both
    kinds of intervals. Synthetic households and persons as CSV files under the names that ActivitySim reads or
    PopulationSim writes.
    """
    from tallytree.command.export import run_export

    run_export(directory, to=to, out=out, quiet=quiet)


@app.command()
def mechanisms(as_json: AsJson = False, quiet: Quiet = False) -> None:
    """List the mechanisms: paper, what they measure and keep, when to use them."""
    from tallytree.command import screen
    from tallytree.mechanisms import MECHANISMS

    if as_json:
        screen.show_json([row.described() for row in MECHANISMS.values()])
    else:
        screen.show(screen.mechanism_list(), quiet=quiet)


@app.command()
def evaluate(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATASET|PATH",
            help="census, taxi, race, people, or a CSV or Parquet file of public counts by region and size.",
        ),
    ],
    level: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column of the file with region names; repeat, from the top down."),
    ] = None,
    size_columns: Annotated[
        str | None,
        typer.Option(
            metavar="PREFIX", help="What stands before the size in the file's columns: hh for hh1, hh2 and so on"
        ),
    ] = None,
    mechanism: Annotated[list[str] | None, typer.Option(help="Repeat for several; all of them if not given.")] = None,
    epsilon: Annotated[list[str] | None, typer.Option(help="Repeat for several; 1 if not given.")] = None,
    runs: Annotated[int, typer.Option(help="Runs of each mechanism with each epsilon.")] = 5,
    scale: Annotated[float, typer.Option(help="Size of a made-up data set; 1 is full size.")] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same data and noise.")] = 0,
    unit: Annotated[str, typer.Option(help="one_entity or one_group.")] = "one_entity",
    jobs: Annotated[int | None, typer.Option(help="Processes at a time; one per processor if not given.")] = None,
    limit: Annotated[float | None, typer.Option(help="Seconds that one run may take; none if not given.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the summary as CSV.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results and plots. Given again, only what is missing is run.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """NOT PRIVATE: compare mechanisms with the truth, on made-up or public data."""
    from tallytree.command.evaluate import run_evaluate

    run_evaluate(
        data,
        mechanism,
        epsilon,
        levels=level,
        size_columns=size_columns,
        runs=runs,
        scale=scale,
        seed=seed,
        unit=unit,
        jobs=jobs,
        limit=limit,
        as_json=as_json,
        as_csv=as_csv,
        out=out,
        quiet=quiet,
    )


@app.command()
def audit(
    mechanism: Annotated[list[str] | None, typer.Option(help="Repeat for several; all if not given.")] = None,
    runs: Annotated[int | None, typer.Option(help="Outputs of each of two neighbours; 10,000 if not given.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer runs and settings.")] = False,
    planted: Annotated[bool, typer.Option("--planted", help="Audit planted defects: each must be caught.")] = False,
    confidence: Annotated[float, typer.Option(help="Of all bounds from outputs together.")] = 0.999,
    jobs: Annotated[int | None, typer.Option(help="Processes at a time; one per processor if not given.")] = None,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the table and the plot.")] = None,
    quiet: Quiet = False,
) -> None:
    """NOT PRIVATE: bound the real epsilon of every mechanism, and record what passes the privacy border.

    Exit code 1 if a claim is violated, or a planted defect is not caught.
    """
    from tallytree.command.audit import run_audit

    consistent = run_audit(
        mechanism,
        runs=runs,
        quick=quick,
        planted=planted,
        confidence=confidence,
        jobs=jobs,
        as_json=as_json,
        out=out,
        quiet=quiet,
    )
    if not consistent:
        raise typer.Exit(1)


def _complain(text: str) -> None:
    from tallytree.command.progress_bar import error_console
    from tallytree.core.names import visible

    console = error_console()
    for line in visible(text, lines=True).split("\n"):  # a command that is to be pasted stays on one line
        console.print(line, markup=False, soft_wrap=line.startswith("  "))


def _with_notes(text: str, error: BaseException) -> str:
    """What went wrong, and what was spent and how to go on where that was noted."""
    return "\n".join([text, *getattr(error, "__notes__", ())])


@contextmanager
def showing_warnings() -> Iterator[None]:
    """Show warnings in one line each, where no progress bar draws over them."""
    before = warnings.showwarning
    warnings.showwarning = lambda message, *_, **__: _complain(f"warning: {message}")
    try:
        yield
    finally:
        warnings.showwarning = before


def main() -> None:
    """Run the command; our own errors become messages and exit codes, never tracebacks."""
    make_streams_safe()
    if getattr(sys.modules["__main__"], "main", None) is main:  # the process is the command's own
        skip_unused()
    try:
        with showing_warnings():
            app()
    except (Interrupted, KeyboardInterrupt) as error:
        told = getattr(error, "__notes__", None) or ["Nothing was spent."]
        _complain("\n".join(["interrupted.", *told]))
        sys.exit(130)
    except TallytreeError as error:
        from tallytree.command.spec import in_spec_words

        what, code = ("budget", 3) if isinstance(error, BudgetError) else ("error", 2)
        _complain(_with_notes(f"{what}: {in_spec_words(str(error))}", error))
        sys.exit(code)
    except Exception as error:
        # An unforeseen error's own text might quote private values, so only its kind and place are shown.
        frames = "".join(traceback.format_tb(error.__traceback__)[-4:])
        defect = f"This is a defect of tallytree ({type(error).__name__}); please report it with:\n{frames}"
        typer.echo(_with_notes(defect, error), err=True)
        sys.exit(1)
