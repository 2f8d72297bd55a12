"""What `tallytree synthesize` and `tallytree validate` do with a synthesis' spec: read, check, spend, write, show."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from tallytree.command.synthesis_screen import synthesis_readiness, synthesis_summary
from tallytree.command.synthesis_spec import SynthSpec
from tallytree.errors import ReleaseError, SpecError
from tallytree.privacy.budget import as_decimal
from tallytree.publish.folder import refuse_existing
from tallytree.publish.microdata.making import Synthesis, check, check_workload, default_workload, prepared, synthesize
from tallytree.synthesis.methods.fitted import Progress
from tallytree.synthesis.methods.table import DEFAULT
from tallytree.tables.households import Households

SPEED_OVER = 900.0  # seconds over which the speed of rounds is told


def validate_synthesis(path: Path, *, quiet: bool) -> None:
    """Check spec and data; nothing is spent."""
    from tallytree.command import screen

    spec = SynthSpec.load(path)
    with shown(quiet) as (step, _):
        step("checking the spec")
        arguments = _arguments(spec)
        step("reading the data")
        households = spec.read()
        ready = check(households, **arguments)
    console = screen.console(quiet=quiet)
    console.print(f"{path} and its data can be synthesized. Nothing was spent.", markup=False)
    console.print(synthesis_readiness(households.schema, ready, spec.budget, households.truncation()))


def run_synthesis(path: Path, out: Path, *, resume: bool, quiet: bool) -> None:
    """The whole way from a spec to a directory; the journal of rounds is kept beside it until it is written."""
    from tallytree.command import screen

    refuse_existing(out)
    spec = SynthSpec.load(path)
    kept = out.absolute().with_name(f"{out.name}.partial")
    if resume and not kept.exists():
        raise ReleaseError(f"{kept} is not there: there is no interrupted synthesis to go on from. Leave out --resume.")
    if kept.exists() and not resume:
        raise ReleaseError(
            f"{kept} holds the rounds of an interrupted synthesis, whose budget is spent. Finish it with --resume, or "
            "delete that folder to give it up."
        )
    with shown(quiet) as (step, progress):
        step("checking the spec")
        arguments = _arguments(spec)
        step("reading the data")
        households = spec.read()
        made = _synthesized(spec, households, arguments, kept, step, progress)
        step("drawing households")
        saved = made.save(out, progress=progress)
    shutil.rmtree(kept)
    screen.console(quiet=quiet).print(synthesis_summary(made, out, saved))


def _synthesized(
    spec: SynthSpec,
    households: Households,
    arguments: dict[str, Any],
    kept: Path,
    step: Callable[[str], None],
    progress: Progress,
) -> Synthesis:
    """The synthesis. What was refused before anything was reserved leaves no folder behind."""
    step("fitting")
    try:
        return synthesize(
            households,
            **arguments,
            ledger=spec.ledger,
            folder=kept,
            title=spec.sections.synthesis.title,
            progress=progress,
        )
    except BaseException:
        journal = kept / "rounds.jsonl"
        if journal.exists() and journal.stat().st_size == 0:
            shutil.rmtree(kept)
        raise


def _arguments(spec: SynthSpec) -> dict[str, Any]:
    """The arguments of `check` and `synthesize`, with all that is public checked before private rows are read."""
    schema, section = spec.schema(), spec.sections.synthesis
    method = section.method or DEFAULT
    prepared(schema, method, spec.options)
    workload = spec.workload(schema) or default_workload(schema)
    check_workload(workload, schema)
    if spec.release is not None and not spec.release.is_dir():
        raise SpecError(f"[agreement] there is no release at {spec.release}")
    return {
        "budget": spec.budget,
        "unit": spec.unit,
        "workload": workload,
        "method": method,
        "options": spec.options,
        "number": section.households,
        "release": spec.release,
        "region": spec.region,
    }


@contextmanager
def shown(quiet: bool) -> Iterator[tuple[Callable[[str], None], Progress]]:
    """Show on the error stream what is under way: rounds done, budget spent, time gone and time left."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True, quiet=quiet)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[spent]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(
        *columns,
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
        speed_estimate_period=SPEED_OVER,
    ) as bars:
        tasks: list[Any] = []

        def step(name: str) -> None:
            for task in tasks:
                bars.update(task, visible=False)
            tasks.append(bars.add_task(name, total=None, spent=""))

        def progress(done: int, of: int, spent: Fraction, total: Fraction, words: str) -> None:
            if words == "writing households":
                text, what = "", f"{done:,} of {of:,} households"
            else:
                text, what = f"ρ {as_decimal(spent, 3)} of {as_decimal(total, 3)}", f"round {done} of about {of}"
            bars.update(tasks[-1], description=what, completed=done, total=max(of, done), spent=text)

        yield step, progress
