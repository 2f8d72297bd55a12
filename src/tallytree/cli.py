"""The `tallytree` command: parse, call, show progress. Exit codes: 0 done, 2 bad input, 3 budget, 1 our own defect."""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import tallytree
from tallytree.errors import BudgetError, TallytreeError
from tallytree.evaluate.command import evaluate

if TYPE_CHECKING:
    from tallytree.privacy.ledger import Account
    from tallytree.publish.release import Progress, Release
    from tallytree.spec import Spec

app = typer.Typer(
    name="tallytree",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
ledger_app = typer.Typer(
    help="What each data set may spend and has spent.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(ledger_app, name="ledger")

SpecPath = Annotated[Path, typer.Argument(metavar="SPEC", help="A TOML file; see docs/release.md.", show_default=False)]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors only.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tallytree {tallytree.__version__}")
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
    quiet: Quiet = False,
) -> None:
    """Make up a country, release it with ε = 1, and verify the release."""
    from tallytree.evaluate.country import make_country
    from tallytree.publish.package import refuse_existing
    from tallytree.spec import Spec

    refuse_existing(out, replace=True)
    with _steps(quiet) as step:
        step("making up a country")
        country = make_country(data, households=households)
        released = _make(Spec.load(country.spec), out, step, resume=False, replace=True)
    _say(f"{country.people}: {country.households:,} households, {country.persons:,} persons, made up", quiet)
    _say(f"{country.regions}: their states and counties", quiet)
    _say(f"{country.spec}: what was released; point it at files of your own", quiet)
    _show_release(*released, quiet)
    _say("", quiet)
    _verify(out, None, quiet)


@app.command()
def validate(spec: SpecPath, quiet: Quiet = False) -> None:
    """Check spec and data: every problem at once, with counts and how to mend it. Nothing is spent.

    The counts of problems are computed from private data without noise: they are for the data holder's eyes only.
    """
    from tallytree.mechanisms import choose
    from tallytree.privacy.unit import Neighbours
    from tallytree.spec import Spec

    loaded = Spec.load(spec)
    with _steps(quiet) as step:
        step("checking the spec")
        _ = loaded.budget
        step("reading the data")
        group_sizes = loaded.read()
        neighbours = Neighbours.of(group_sizes, loaded.unit)
        mechanism = choose(loaded.release.mechanism, neighbours)
        plan = mechanism.plan(group_sizes.hierarchy, loaded.budget, loaded.unit, loaded.shares)
        mechanism.check(neighbours, group_sizes.hierarchy, plan)
    _say(f"{spec} and its data can be released. Nothing was spent.", quiet)
    from tallytree import screen

    screen.console(quiet=quiet).print(screen.readiness(group_sizes, neighbours, loaded.budget, mechanism))


@app.command()
def release(
    spec: SpecPath,
    out: Annotated[Path, typer.Option(help="The release directory to write; must not exist yet.", show_default=False)],
    resume: Annotated[
        bool, typer.Option("--resume", help="Finish an interrupted release; spends nothing more.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Read, measure, estimate and write a release. The budget is spent once the noise is drawn."""
    from tallytree.publish.package import refuse_existing
    from tallytree.spec import Spec

    refuse_existing(out)
    loaded = Spec.load(spec)
    with _steps(quiet) as step:
        released = _make(loaded, out, step, resume=resume, replace=False)
    _show_release(*released, quiet)


@app.command()
def verify(
    directory: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release directory.", show_default=False)],
    id: Annotated[  # noqa: A002
        str | None, typer.Option(help="The id printed at release, or its first 8 or more digits.", show_default=False)
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Recompute everything a release promises from its files alone. Exit code 2 if anything is wrong."""
    if not _verify(directory, id, quiet):
        raise typer.Exit(2)


@app.command()
def mechanisms(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the mechanisms: paper, what they measure and keep, when to use them."""
    from tallytree.mechanisms import MECHANISMS

    if as_json:
        rows = [{k: v for k, v in vars(row).items() if k != "estimate"} for row in MECHANISMS.values()]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        from tallytree import screen

        screen.console().print(screen.mechanism_list())


app.command()(evaluate)


@ledger_app.command("open")
def ledger_open(
    spec: SpecPath,
    epsilon: Annotated[str | None, typer.Option(help="Total budget in pure ε.", show_default=False)] = None,
    rho: Annotated[str | None, typer.Option(help="Total budget in ρ (zCDP).", show_default=False)] = None,
    delta: Annotated[
        str | None, typer.Option(help="With --epsilon: the largest ρ for (ε, δ).", show_default=False)
    ] = None,
) -> None:
    """Give the data set of a spec its total budget, once. Its name and neighbour relation come from the spec."""
    from tallytree.privacy.budget import Budget
    from tallytree.privacy.ledger import Ledger
    from tallytree.spec import Spec

    loaded = Spec.load(spec)
    if loaded.ledger is None or loaded.name is None:
        raise BudgetError('the spec needs [privacy] ledger = "…" and [data] name = "…" to open an account')
    account = Ledger(loaded.ledger).open(
        loaded.name, Budget(epsilon=epsilon, rho=rho, delta=delta), loaded.neighbours()
    )
    _say(f"Opened {account.name!r} in {loaded.ledger}.", quiet=False)
    _show_accounts([account])


@ledger_app.command("show")
def ledger_show(
    path: Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger file.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what each data set may spend and has spent. Confidential: for the data holder."""
    from tallytree.privacy.ledger import Ledger

    accounts = Ledger(path).accounts()
    if as_json:
        typer.echo(json.dumps([asdict(account) for account in accounts], indent=2, default=str, ensure_ascii=False))
    else:
        _show_accounts(accounts)


def _make(spec: Spec, out: Path, step: Progress, *, resume: bool, replace: bool) -> tuple[Release, Path, str]:
    """The whole way from a spec to a release directory; measurements are kept beside it until it is written."""
    import shutil

    from tallytree import publish

    kept = out.absolute().with_name(f"{out.name}.partial")
    if resume:
        made = publish.resume(kept, mechanism=spec.release.mechanism, title=spec.release.title, progress=step)
    else:
        if kept.exists():
            raise TallytreeError(
                f"{kept} holds the measurements of an interrupted release, whose budget is spent. Finish it with "
                "--resume, or delete that folder to give it up."
            )
        step("reading the data")
        group_sizes = spec.read()
        made = publish.release(
            group_sizes,
            budget=spec.budget,
            unit=spec.unit,
            mechanism=spec.release.mechanism,
            shares=spec.shares,
            ledger=spec.ledger,
            noise=spec.privacy.noise,
            title=spec.release.title,
            keep=kept,
            progress=step,
        )
    step("writing")
    release_id = made.save(out, replace=replace)
    shutil.rmtree(kept)
    return made, out, release_id


def _show_release(made: Release, out: Path, release_id: str, quiet: bool) -> None:
    from tallytree import screen

    screen.console(quiet=quiet).print(screen.summary(made, out, release_id))


def _show_accounts(accounts: Sequence[Account]) -> None:
    from tallytree import screen

    screen.console().print(screen.accounts(accounts))


def _verify(directory: Path, release_id: str | None, quiet: bool) -> bool:
    from tallytree import publish, screen

    with _steps(quiet) as step:
        step("verifying")
        verification = publish.verify(directory, id=release_id)
    screen.console(quiet=quiet and verification.ok).print(screen.outcome(verification))
    return verification.ok


def _say(text: str, quiet: bool) -> None:
    from tallytree import screen

    screen.console(quiet=quiet).print(text, markup=False)


def _complain(text: str) -> None:
    from rich.console import Console

    Console(stderr=True, highlight=False).print(text, markup=False)


@contextmanager
def _steps(quiet: bool) -> Iterator[Progress]:
    """Show on the error stream which step is under way, and for how long."""
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, quiet=quiet)
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Bars(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bars:
        running: list[int] = []

        def step(name: str) -> None:
            for task in running:
                bars.update(task, total=1, completed=1)  # type: ignore[arg-type]
            running.append(bars.add_task(name, total=None))

        yield step


def main() -> None:
    """Run the command; our own errors become messages and exit codes, never tracebacks."""
    warnings.showwarning = lambda message, *_, **__: _complain(f"warning: {message}")
    try:
        app()
    except BudgetError as error:
        _complain(f"budget: {error}")
        sys.exit(3)
    except TallytreeError as error:
        _complain(f"error: {error}")
        sys.exit(2)
    except Exception as error:
        # An unforeseen error's own text might quote private values, so only its kind and place are shown.
        frames = "".join(traceback.format_tb(error.__traceback__)[-4:])
        typer.echo(
            f"This is a defect of tallytree ({type(error).__name__}); please report it with:\n{frames}", err=True
        )
        sys.exit(1)
