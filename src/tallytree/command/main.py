"""The `tallytree` command: parse, call, show progress. Exit codes: 0 done, 2 bad input, 3 budget, 1 our own defect."""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tallytree.command.evaluate import evaluate
from tallytree.command.progress_bar import shown
from tallytree.errors import BudgetError, SpecError, TallytreeError
from tallytree.progress import Stage
from tallytree.version import VERSION

if TYPE_CHECKING:
    from tallytree.command.release_spec import Spec
    from tallytree.privacy.ledger import Account
    from tallytree.progress import Progress
    from tallytree.publish.release.value import Release

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
    quiet: Quiet = False,
) -> None:
    """Make up a country, release it with ε = 1, and verify the release."""
    from tallytree.command.release_spec import Spec
    from tallytree.evaluate.people import make_country
    from tallytree.publish.folder import refuse_existing

    refuse_existing(out, replace=True)
    with shown(quiet) as progress:
        progress(Stage("making up a country"))
        country = make_country(data, households=households)
        released = _make(Spec.load(country.spec), out, progress, resume=False, replace=True)
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
    from tallytree.command.release_spec import Spec
    from tallytree.command.synthesis_spec import is_synth_spec
    from tallytree.privacy.neighbours import Neighbours
    from tallytree.publish.release.making import decided

    if is_synth_spec(spec):
        from tallytree.command.synthesize import validate_synthesis

        validate_synthesis(spec, quiet=quiet)
        return
    loaded = Spec.load(spec)
    with shown(quiet) as progress:
        progress(Stage("checking the spec"))
        _ = loaded.budget
        progress(Stage("reading the data"))
        group_sizes = loaded.read()
        neighbours = Neighbours.of(group_sizes, loaded.unit)
        wanted = loaded.release
        mechanism, _ = decided(
            group_sizes,
            neighbours,
            budget=loaded.budget,
            mechanism=wanted.mechanism,
            options=wanted.options,
            shares=loaded.shares,
            priority=wanted.priority,
            prior=loaded.prior(group_sizes.hierarchy) if wanted.mechanism == "auto" else None,
            progress=progress,
        )
    _say(f"{spec} and its data can be released. Nothing was spent.", quiet)
    from tallytree.command import screen

    screen.console(quiet=quiet).print(screen.readiness(group_sizes, neighbours, loaded.budget, mechanism))


@app.command()
def plan(
    spec: SpecPath,
    suggest: Annotated[
        list[str] | None,
        typer.Option(help='Find shares for a goal: "county within 20 at 95%". May be repeated.', show_default=False),
    ] = None,
    epsilon: Annotated[
        list[str] | None, typer.Option(help="Another ε than the spec's. May be repeated.", show_default=False)
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(help="What to expect, for [plan] prior: a shape, a table or a release.", show_default=False),
    ] = None,
    groups: Annotated[
        int | None, typer.Option(help="How many groups to expect, for [plan] groups.", show_default=False)
    ] = None,
    mechanism: Annotated[
        list[str] | None, typer.Option(help="Only this mechanism. May be repeated.", show_default=False)
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw a picture: .png, .svg or .html.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Say what the budget will buy, level by level, from public facts alone.

    Nothing is spent, and the microdata are not opened.
    """
    from tallytree import charts
    from tallytree.command import screen
    from tallytree.command.release_spec import Spec
    from tallytree.planning import plots as plan_plots
    from tallytree.planning.goals import suggest as suggested
    from tallytree.planning.report import planned, splits_with
    from tallytree.privacy.budget import Budget

    loaded = Spec.load(spec)
    budgets = [Budget(epsilon=one, delta=loaded.privacy.delta) for one in epsilon or ()] or [loaded.budget]
    with shown(quiet) as progress:
        progress(Stage("reading the public tables"))
        hierarchy, totals = loaded.public_regions()
        facts = hierarchy, loaded.neighbours()
        if suggest:
            found = [suggested(*facts, budget, suggest, mechanism=loaded.release.mechanism) for budget in budgets]
        else:
            expected = loaded.prior(hierarchy, source=prior, groups=groups)
            if expected is None:
                raise TallytreeError(
                    "what may be expected? Say it in the spec's [plan] section or with --prior: "
                    '"households", "heavy-tail" or "uniform", an older public table, or an earlier release'
                )
            known: dict[str, Any] = {
                "prior": expected,
                "leaf_totals": totals,
                "mechanisms": mechanism,
                "progress": progress,
            }
            if plot is not None:
                charts.check(plot)
            splits = splits_with(hierarchy, loaded.shares)
            report = planned(*facts, budgets=budgets, splits=splits, options=loaded.mechanism_options, **known)
            if plot is not None:
                charts.save(plan_plots.page(*facts, budget=budgets[0], **known), plot)
    if suggest and as_json:
        typer.echo(json.dumps([one.to_json() for one in found], indent=2, ensure_ascii=False))
    elif suggest:
        for one in found:
            screen.console(quiet=quiet).print(screen.suggestion(one))
    elif as_json:
        typer.echo(json.dumps(report.to_json(), indent=2, ensure_ascii=False))
    else:
        screen.console(quiet=quiet).print(screen.plan_table(report))
        if plot is not None:
            _say(f"picture: {plot}", quiet)


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
    from tallytree.command.release_spec import Spec
    from tallytree.publish.folder import refuse_existing

    refuse_existing(out)
    loaded = Spec.load(spec)
    with shown(quiet) as progress:
        released = _make(loaded, out, progress, resume=resume, replace=False)
    _show_release(*released, quiet)


@app.command()
def synthesize(
    spec: Annotated[
        Path, typer.Argument(metavar="SPEC", help="A TOML file; see docs/synthesis.md.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="The directory to write; must not exist yet.", show_default=False)],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted synthesis; spends nothing twice.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Make synthetic households and persons from private ones. The budget is spent, round by round."""
    from tallytree.command.synthesize import run_synthesis

    run_synthesis(spec, out, resume=resume, quiet=quiet)


@app.command()
def verify(
    directory: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="A directory of release or synthesize.", show_default=False)
    ],
    id: Annotated[  # noqa: A002
        str | None, typer.Option(help="The id printed at release, or its first 8 or more digits.", show_default=False)
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Recompute everything a release promises from its files alone. Exit code 2 if anything is wrong."""
    if not _verify(directory, id, quiet):
        raise typer.Exit(2)


@app.command()
def query(
    directory: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release directory.", show_default=False)],
    region: Annotated[
        list[str] | None,
        typer.Option(help="Its id or name; may be repeated for a sum. All regions if left out.", show_default=False),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(help='">=6", "3-5", "0" or "1,2,7+". All sizes if left out.', show_default=False),
    ] = None,
    share: Annotated[bool, typer.Option("--share", help="The sizes' share of all groups there.")] = False,
    mean: Annotated[bool, typer.Option("--mean", help="The mean size, truncated at the largest one.")] = False,
    ratio_to: Annotated[
        list[str] | None, typer.Option(metavar="REGION", help="Divide by the same sizes there.", show_default=False)
    ] = None,
    difference_to: Annotated[
        list[str] | None, typer.Option(metavar="REGION", help="Subtract the same sizes there.", show_default=False)
    ] = None,
    level: Annotated[
        str | None, typer.Option(help="Answer for every region of a level (within --region).", show_default=False)
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Of the intervals; the release's own if left out.", show_default=False)
    ] = None,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="Size by size, with intervals that hold for all sizes together.")
    ] = False,
    no_typical: Annotated[bool, typer.Option("--no-typical", help="Leave the typical intervals out: quicker.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Answer questions about a release: sums, shares, means, ratios and differences, with error bars."""
    from tallytree.command import screen
    from tallytree.publish.release.answers import answers
    from tallytree.publish.release.questions import Asked, regions_of_level
    from tallytree.publish.release.value import Release

    kinds = {"share": share, "mean": mean, "ratio": bool(ratio_to), "difference": bool(difference_to)}
    asked = [name for name, wanted in kinds.items() if wanted]
    if len(asked) > 1 or (asked and simultaneous):
        raise SpecError("ask one thing at a time: --share, --mean, --ratio-to, --difference-to or --simultaneous")
    with shown(quiet) as progress:
        progress(Stage("reading the release"))
        made = Release.load(directory)
        each = None if level is None else regions_of_level(made.hierarchy, level, region)
        if simultaneous:
            progress(Stage("guaranteed intervals"))
            rows = made.bands(each or region, size, confidence=confidence)
        else:
            kind, to = asked[0] if asked else "sum", ratio_to or difference_to
            second = (to, size) if to else ()
            asked_of = [region] if each is None else [[one] for one in each]
            questions = [Asked.of(made, kind, one, size, *second) for one in asked_of]
            found = answers(made, questions, confidence=confidence, typical=not no_typical, progress=progress)
    console = screen.console(quiet=quiet)
    if simultaneous:
        if as_json:
            typer.echo(json.dumps(rows.to_pylist(), indent=2, ensure_ascii=False))
        else:
            console.print(screen.bands(made, rows, confidence))
    elif as_json:
        listed = [one.to_json() for one in found]
        typer.echo(json.dumps(listed if level is not None else listed[0], indent=2, ensure_ascii=False))
    else:
        console.print(screen.answer(found[0]) if level is None else screen.answer_table(made, found, level))


@app.command()
def mechanisms(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the mechanisms: paper, what they measure and keep, when to use them."""
    from tallytree.mechanisms import MECHANISMS

    if as_json:
        rows = [row.described() for row in MECHANISMS.values()]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        from tallytree.command import screen

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
    from tallytree.command.release_spec import Spec
    from tallytree.command.synthesis_spec import SynthSpec, is_synth_spec
    from tallytree.privacy.budget import Budget
    from tallytree.privacy.ledger import Ledger

    of_households = is_synth_spec(spec)
    loaded: Spec | SynthSpec = SynthSpec.load(spec) if of_households else Spec.load(spec)
    if loaded.ledger is None or loaded.name is None:
        section = "households" if of_households else "data"
        raise BudgetError(f'the spec needs [privacy] ledger = "…" and [{section}] name = "…" to open an account')
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


def _make(spec: Spec, out: Path, progress: Progress, *, resume: bool, replace: bool) -> tuple[Release, Path, str]:
    """The whole way from a spec to a release directory; measurements are kept beside it until it is written."""
    import shutil

    from tallytree.publish.release.making import release
    from tallytree.publish.release.making import resume as resume_release

    kept = out.absolute().with_name(f"{out.name}.partial")
    if resume:
        made = resume_release(
            kept,
            mechanism=spec.release.mechanism,
            options=spec.release.options,
            title=spec.release.title,
            intervals=spec.release.intervals,
            confidence=float(spec.release.confidence),
            progress=progress,
        )
    else:
        if kept.exists():
            raise TallytreeError(
                f"{kept} holds the measurements of an interrupted release, whose budget is spent. Finish it with "
                "--resume, or delete that folder to give it up."
            )
        progress(Stage("reading the data"))
        group_sizes = spec.read()
        made = release(
            group_sizes,
            budget=spec.budget,
            unit=spec.unit,
            mechanism=spec.release.mechanism,
            options=spec.release.options,
            shares=spec.shares,
            priority=spec.release.priority,
            prior=spec.prior(group_sizes.hierarchy) if spec.release.mechanism == "auto" else None,
            ledger=spec.ledger,
            noise=spec.privacy.noise,
            title=spec.release.title,
            intervals=spec.release.intervals,
            confidence=float(spec.release.confidence),
            keep=kept,
            progress=progress,
        )
    progress(Stage("writing"))
    release_id = made.save(out, replace=replace)
    shutil.rmtree(kept)
    return made, out, release_id


def _show_release(made: Release, out: Path, release_id: str, quiet: bool) -> None:
    from tallytree.command import screen

    screen.console(quiet=quiet).print(screen.summary(made, out, release_id))


def _show_accounts(accounts: Sequence[Account]) -> None:
    from tallytree.command import screen

    screen.console().print(screen.accounts(accounts))


def _verify(directory: Path, release_id: str | None, quiet: bool) -> bool:
    from tallytree.command import screen
    from tallytree.publish.verify import verify as verified

    with shown(quiet) as progress:
        progress(Stage("verifying"))
        verification = verified(directory, id=release_id)
    screen.console(quiet=quiet and verification.ok).print(screen.outcome(verification))
    return verification.ok


def _say(text: str, quiet: bool) -> None:
    from tallytree.command import screen

    screen.console(quiet=quiet).print(text, markup=False)


def _complain(text: str) -> None:
    from rich.console import Console

    Console(stderr=True, highlight=False).print(text, markup=False)


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
