"""`tallytree ledger`: open accounts, show them, link those of the same people, record what they paid for.

And accept a ledger without an anchor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ledger_app = typer.Typer(
    help="What each data set may spend and has spent.", no_args_is_help=True, rich_markup_mode=None
)

LedgerPath = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger file.")]
Epsilon = Annotated[str | None, typer.Option(help="Total budget in pure epsilon.")]
Rho = Annotated[str | None, typer.Option(help="Total budget in rho (zCDP).")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors and warnings only.")]
Delta = Annotated[str | None, typer.Option(help="With --epsilon: the largest rho for (epsilon, delta).")]


@ledger_app.command("open")
def ledger_open(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A TOML file; see docs/release.md.")],
    epsilon: Epsilon = None,
    rho: Rho = None,
    delta: Delta = None,
    quiet: Quiet = False,
) -> None:
    """Give the data set of a spec its total budget, once. Its name and neighbour relation come from the spec."""
    from tallytree.command import screen
    from tallytree.command.release_spec import ReleaseSpec
    from tallytree.command.spec import is_for_synthesis, wanted_budget
    from tallytree.command.synthesis_spec import SynthesisSpec
    from tallytree.privacy.ledger import Ledger

    loaded = SynthesisSpec.load(spec) if is_for_synthesis(spec) else ReleaseSpec.load(spec)
    path, name = loaded.account()
    account = Ledger(path).open(
        name, wanted_budget("the total:", epsilon=epsilon, rho=rho, delta=delta), loaded.neighbours()
    )
    screen.show(f"Opened {name!r} in {path}.", screen.accounts([account]), quiet=quiet)


@ledger_app.command("show")
def ledger_show(
    path: LedgerPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Show what each data set may spend and has spent. Confidential: for the data holder. Nothing is changed."""
    from dataclasses import asdict

    from tallytree.command import screen
    from tallytree.privacy.ledger import Ledger

    ledger = Ledger(path)
    accounts = ledger.accounts()
    if as_json:
        amounts = ("currency", "total", "spent", "left")
        screen.show_json([asdict(account) | {name: getattr(account, name) for name in amounts} for account in accounts])
    else:
        screen.show(screen.accounts(accounts, ledger.links()), quiet=quiet)


@ledger_app.command("link")
def ledger_link(
    path: LedgerPath,
    names: Annotated[list[str], typer.Argument(metavar="NAME NAME...", help="Accounts that concern the same people.")],
    epsilon: Epsilon = None,
    rho: Rho = None,
    delta: Delta = None,
    quiet: Quiet = False,
) -> None:
    """Give accounts that concern the same people one joint total, once.

    Each release is then charged to its own account and has to fit into the joint total too. See docs/ledger.md for what
    the sum promises.
    """
    from tallytree.command import screen
    from tallytree.command.spec import wanted_budget
    from tallytree.privacy.ledger import Ledger

    link = Ledger(path).link(names, wanted_budget("the total:", epsilon=epsilon, rho=rho, delta=delta))
    screen.show(f"Linked {' and '.join(map(repr, link.names))}.", screen.accounts([], [link]), quiet=quiet)


@ledger_app.command("record")
def ledger_record(
    directory: Annotated[Path, typer.Argument(metavar="RELEASE", help="A directory of release or synthesize.")],
    path: Annotated[Path, typer.Option("--ledger", metavar="LEDGER", help="The ledger that paid for it.")],
    receipt: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="The reservation that paid; found by what was measured if left out."),
    ] = None,
) -> None:
    """Tell a ledger which release it paid for, if it could not be told when the release was saved. Nothing is spent."""
    from tallytree.command import screen
    from tallytree.privacy.ledger import Ledger
    from tallytree.publish.run_folder import record

    number, identity = record(directory, Ledger(path), receipt)
    screen.show(f"{path}: reservation {number} paid for the release with id {identity}.")


@ledger_app.command("anchor")
def ledger_anchor(
    path: LedgerPath,
    accept: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="How the last entry's digest begins: 8 digits or more.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Show the last entries of a ledger that lost its anchor and, with --accept, make a new one.

    Without an anchor nobody can tell whether entries are missing at the end. Compare the last entries with what you
    know was released before you accept them: what a missing entry reserved is spent, and would be spent again.
    """
    from tallytree.command import screen
    from tallytree.privacy.ledger import Ledger

    ledger = Ledger(path)
    entries = ledger.entries(anchored=False)
    if accept is not None:
        last = ledger.anchor(accept)
        screen.show(f"The anchor of {path} is entry {last.number} now.", quiet=quiet)
        return
    screen.show(screen.last_entries(entries), "", quiet=quiet)
    if entries:
        when = "If nothing was reserved after the last of these entries, and only then, make an anchor with:"
        accepting = ["tallytree", "ledger", "anchor", str(path), "--accept", entries[-1].digest[:16]]
        screen.show_commands({when: accepting}, quiet=quiet)
