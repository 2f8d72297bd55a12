"""The `tallytree` command: each subcommand calls a module. Modules load when their command runs.

Exit codes: 0 done, 2 bad input, 3 budget, 130 interrupted, 1 a bug in tallytree.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tallytree.command import command_options as given
from tallytree.command.command_options import with_options
from tallytree.command.streams import make_streams_safe
from tallytree.core.errors import BudgetError, SpecError, TallytreeError
from tallytree.version import VERSION


class Interrupted(Exception):
    """Ctrl-C as an error that Typer does not catch: Typer would print only "Aborted"."""


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Run a command; if it is interrupted, keep the notes on what was spent."""
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
ledger_app = typer.Typer(
    help="Set and show what each data set may spend, and has spent.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(ledger_app, name="ledger")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tallytree {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Release differentially private counts that add up: the number of groups of each size in every region."""


@app.command()
@with_options
def demo(options: given.DemoOptions) -> None:
    """Release a made-up country with epsilon = 1, and verify it.

    The data are created first. Their ledger is created beside the data, with epsilon = 2 in total, each time the
    command runs.
    """
    from tallytree.command.make import run_demo

    try:
        run_demo(options)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note("The data are made up, so no real budget was spent. Run it again.")
        raise


@app.command()
@with_options
def init(options: given.InitOptions) -> None:
    """Write a spec for one or two private files. Nothing is spent.

    A file of persons is enough. If the households have a file of their own, name it too.

    It reads the names and types of columns, asks at most seven questions with a guess for each, and writes a spec with
    comments. Values of private columns are neither shown nor stored, except the list of regions if you declare it
    public.
    """
    from tallytree.command.init import run_init

    run_init(options)


@app.command()
@with_options
def validate(options: given.ValidateOptions) -> None:
    """Check spec and data, and list every problem. Nothing is spent.

    Each problem has a count and a way to fix it. The counts of problems, and the shares of rows left out, are computed
    from private data without noise: they are for the data holder's eyes only.
    """
    from tallytree.command.make import run_validate

    run_validate(options)


@app.command()
@with_options
def plan(options: given.PlanOptions) -> None:
    """Predict what the budget will buy on each level.

    The prediction uses public facts alone. Nothing is spent, and the microdata are not opened.
    """
    from tallytree.command.plan_command import run_plan

    run_plan(options)


@app.command()
@with_options
def release(options: given.ReleaseOptions) -> None:
    """Read, measure, estimate and write a release. The budget is spent once the noise is drawn.

    The ledger that the spec or --ledger names is charged. Without a ledger the command stops with exit code 3, unless
    you give --no-ledger.
    """
    from tallytree.command.make import run_and_ask

    run_and_ask(options)


@app.command()
@with_options
def synthesize(options: given.SynthesisOptions) -> None:
    """Draw synthetic households and persons like private ones. The budget is spent round by round.

    The ledger that the spec or --ledger names is charged. Without a ledger the command stops with exit code 3, unless
    you give --no-ledger. Rounds are stored in the folder OUT.partial until OUT is complete. It is confidential. Without
    a ledger nothing guards against copies of it: if two copies are resumed, rounds are drawn twice and cost twice.
    """
    from tallytree.command.make import run_and_ask

    run_and_ask(options)


@app.command()
@with_options
def verify(options: given.VerifyOptions) -> None:
    """Make a release again from its files, and compare them.

    Measurements and settings give every other file. The exit code is 2 if one differs. The end of the output lists what
    the files alone cannot prove.
    """
    from dataclasses import asdict

    from tallytree.command import screen
    from tallytree.command.progress_bar import show_progress
    from tallytree.core.progress import Stage
    from tallytree.publish.verify import verify as make_again

    with show_progress(options.quiet) as progress:
        progress(Stage("verifying"))
        verification = make_again(options.directory, id=options.id, typical=not options.no_typical, progress=progress)
    if options.as_json:
        screen.show_json({"ok": verification.ok, **asdict(verification)})
    else:
        screen.show(screen.outcome(verification), quiet=options.quiet and verification.ok)
    if not verification.ok:
        raise typer.Exit(2)
    if options.ledger is not None:
        from tallytree.privacy.ledger import Ledger
        from tallytree.publish.run_folder import record

        number, _ = record(options.directory, Ledger(options.ledger))
        screen.show(f"{options.ledger}: reservation {number} paid for it.", quiet=options.quiet)


@app.command()
@with_options
def query(options: given.QueryOptions) -> None:
    """Ask a release for sums, shares, means and ratios.

    Every answer has error bars. Nothing is spent.
    """
    from tallytree.command.query import run_query

    run_query(options)


@app.command()
@with_options
def compare(options: given.CompareOptions) -> None:
    """Find out which regions changed between two releases. Nothing is spent.

    On average at most 5 % of the flags of a level and question are false. A region without a flag may have changed too.
    """
    from tallytree.command.compare_command import run_compare

    run_compare(options)


@app.command()
@with_options
def report(options: given.ReportOptions) -> None:
    """Write a report on a release, for its readers. Nothing is spent.

    It says what was published, how accurate it is, and how people are protected. It is one HTML file that opens from
    disk and loads nothing.
    """
    from tallytree.command.make import run_report

    run_report(options)


@app.command()
@with_options
def export(options: given.ExportOptions) -> None:
    """Export a release or a synthesis for other software. Nothing is spent.

    Counts and numbers of entities of a release become a workbook of Excel (xlsx), with notes and recommended intervals.
    As SDMX-CSV, JSON-stat or CSV on the Web they have labels, units and both kinds of intervals. Synthetic households
    and persons are exported as CSV files with the column names of ActivitySim or PopulationSim.
    """
    from tallytree.command.make import run_export

    run_export(options)


@app.command()
@with_options
def schema(options: given.SchemaOptions) -> None:
    """Print the JSON Schema of a spec. An editor completes and checks specs with it.

    Write it to a file beside the spec, such as release.schema.json, and begin the spec with the line
    #:schema ./release.schema.json. `tallytree init` does both.
    """
    from tallytree.command import screen
    from tallytree.command.release_spec import ReleaseSpec
    from tallytree.command.spec import Spec
    from tallytree.command.spec_schema import schema_of
    from tallytree.command.synthesis_spec import SynthesisSpec
    from tallytree.core.names import did_you_mean

    specs: dict[str, type[Spec]] = {spec.KIND: spec for spec in (ReleaseSpec, SynthesisSpec)}
    if options.kind not in specs:
        raise SpecError(f"there is no spec of a {options.kind!r}; {did_you_mean(options.kind, specs)}")
    screen.show_json(schema_of(specs[options.kind]))


@app.command()
@with_options
def mechanisms(options: given.ListOptions) -> None:
    """List the mechanisms, and what each is for."""
    from tallytree.command import screen
    from tallytree.mechanisms import MECHANISMS, aliases_of

    if options.as_json:
        screen.show_json([{**row.described(), "aliases": aliases_of(row)} for row in MECHANISMS.values()])
    else:
        screen.show(screen.mechanism_list(), quiet=options.quiet)


@app.command()
@with_options
def evaluate(options: given.EvaluateOptions) -> None:
    """NOT PRIVATE: compare mechanisms with the truth.

    The data are made up or public.
    """
    from tallytree.command.lab_commands import run_evaluate

    run_evaluate(options)


@app.command()
@with_options
def audit(options: given.AuditOptions) -> None:
    """NOT PRIVATE: bound the real epsilon of every mechanism.

    Everything that crosses the privacy border is recorded too. Exit code 1 if a claim is violated, or a planted defect
    is not caught.
    """
    from tallytree.command.lab_commands import run_audit

    if not run_audit(options):
        raise typer.Exit(1)


# -------------------------------------------------------------------- ledgers


@ledger_app.command("open")
@with_options
def ledger_open(options: given.OpenOptions) -> None:
    """Set the total budget of the data set of a spec, once. Its name and neighbour relation come from the spec."""
    from tallytree.command import screen
    from tallytree.command.make import kind_of
    from tallytree.command.spec import read_total
    from tallytree.privacy.ledger import Ledger

    loaded = kind_of(options.spec).load(options.spec)
    path, name = loaded.account()
    account = Ledger(path).open(name, read_total(options), loaded.neighbours())
    screen.show(f"Opened {name!r} in {path}.", screen.accounts([account]), quiet=options.quiet)


@ledger_app.command("show")
@with_options
def ledger_show(options: given.LedgerOptions) -> None:
    """Show what each data set may spend and has spent.

    Confidential: for the data holder. Nothing is changed.
    """
    from dataclasses import asdict

    from tallytree.command import screen
    from tallytree.privacy.ledger import Ledger

    ledger = Ledger(options.path)
    accounts = ledger.accounts()
    if options.as_json:
        amounts = ("currency", "total", "spent", "left")
        screen.show_json([asdict(account) | {name: getattr(account, name) for name in amounts} for account in accounts])
    else:
        screen.show(screen.accounts(accounts, ledger.links()), quiet=options.quiet)


@ledger_app.command("link")
@with_options
def ledger_link(options: given.LinkOptions) -> None:
    """Set one joint total for accounts on the same people, once.

    Each release is then charged to its own account and must fit into the joint total too. See docs/ledger.md for what
    the sum guarantees.
    """
    from tallytree.command import screen
    from tallytree.command.spec import read_total
    from tallytree.privacy.ledger import Ledger

    link = Ledger(options.path).link(options.names, read_total(options))
    screen.show(f"Linked {' and '.join(map(repr, link.names))}.", screen.accounts([], [link]), quiet=options.quiet)


@ledger_app.command("record")
@with_options
def ledger_record(options: given.RecordOptions) -> None:
    """Record which release a reservation paid for.

    This is needed only if it failed when the release was saved. Nothing is spent.
    """
    from tallytree.command import screen
    from tallytree.privacy.ledger import Ledger
    from tallytree.publish.run_folder import record

    number, identity = record(options.directory, Ledger(options.ledger), options.receipt)
    screen.show(f"{options.ledger}: reservation {number} paid for the release with id {identity}.")


@ledger_app.command("anchor")
@with_options
def ledger_anchor(options: given.AnchorOptions) -> None:
    """Show a ledger that lost its anchor, or write a new anchor.

    It shows the last entries. With --accept it writes the anchor. Without an anchor, missing entries at the end cannot
    be detected. Before you accept the last entries, compare them with the releases that you know of: the budget that a
    missing entry reserved is spent, and would be spent again.
    """
    from tallytree.command import screen
    from tallytree.privacy.ledger import Ledger

    ledger = Ledger(options.path)
    entries = ledger.entries(anchored=False)
    if options.accept is not None:
        last = ledger.anchor(options.accept)
        screen.show(f"The anchor of {options.path} is entry {last.number} now.", quiet=options.quiet)
        return
    screen.show(screen.last_entries(entries), "", quiet=options.quiet)
    if entries:
        when = "If, and only if, nothing was reserved after the last of these entries, write a new anchor with:"
        accepting = ["tallytree", "ledger", "anchor", str(options.path), "--accept", entries[-1].digest[:16]]
        screen.show_commands({when: accepting}, quiet=options.quiet)


# -------------------------------------------------------------------- errors, and the process


def _complain(text: str) -> None:
    from tallytree.command.progress_bar import error_console
    from tallytree.core.names import visible

    console = error_console()
    for line in visible(text, lines=True).split("\n"):  # a command for pasting stays on one line
        console.print(line, markup=False, soft_wrap=line.startswith("  "))


def _with_notes(text: str, error: BaseException) -> str:
    """Return the error's text, with its notes on what was spent and how to resume."""
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


# Packages that pyarrow and Numba load only because they are installed, and packages that use or look for them. Loading
# them takes longer than releasing a small table.
UNUSED, USERS = ("pandas", "scipy"), ("ibis", "jax", "pyspark")


class SkipUnused:
    """An import finder that hides these packages until a package that uses them is loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Refuse the import, or leave it to the next finders."""
        if name in UNUSED and not any(user in sys.modules for user in USERS):
            raise ModuleNotFoundError(f"{name} is not loaded by the command", name=name)


def main() -> None:
    """Run the command; expected errors become messages and exit codes, never tracebacks."""
    make_streams_safe()
    if getattr(sys.modules["__main__"], "main", None) is main:  # the process is the command's own
        sys.meta_path.insert(0, SkipUnused())
    try:
        with showing_warnings():
            app()
    except (Interrupted, KeyboardInterrupt) as error:
        notes = getattr(error, "__notes__", None) or ["Nothing was spent."]
        _complain("\n".join(["interrupted.", *notes]))
        sys.exit(130)
    except TallytreeError as error:
        what, code = ("budget", 3) if isinstance(error, BudgetError) else ("error", 2)
        _complain(_with_notes(f"{what}: {error}", error))
        sys.exit(code)
    except Exception as error:
        # The text of an unexpected error might quote private values, so only its type and place are shown.
        frames = "".join(traceback.format_tb(error.__traceback__)[-4:])
        defect = f"This is a bug in tallytree ({type(error).__name__}); please report it with:\n{frames}"
        typer.echo(_with_notes(defect, error), err=True)
        sys.exit(1)
