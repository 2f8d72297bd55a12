"""What `tallytree synthesize` and `tallytree validate` do with a synthesis' spec: read, check, spend, write, show."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tallytree.command.progress_bar import shown
from tallytree.command.synthesis_screen import synthesis_readiness, synthesis_summary
from tallytree.command.synthesis_spec import SynthSpec
from tallytree.errors import ReleaseError, SpecError
from tallytree.progress import Progress, Stage
from tallytree.publish.folder import refuse_existing
from tallytree.publish.microdata.making import Synthesis, check, check_workload, default_workload, prepared, synthesize
from tallytree.synthesis.methods.table import DEFAULT
from tallytree.tables.households import Households


def validate_synthesis(path: Path, *, quiet: bool) -> None:
    """Check spec and data; nothing is spent."""
    from tallytree.command import screen

    spec = SynthSpec.load(path)
    with shown(quiet) as progress:
        progress(Stage("checking the spec"))
        arguments = _arguments(spec)
        progress(Stage("reading the data"))
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
    with shown(quiet) as progress:
        progress(Stage("checking the spec"))
        arguments = _arguments(spec)
        progress(Stage("reading the data"))
        households = spec.read()
        made = _synthesized(spec, households, arguments, kept, progress)
        progress(Stage("drawing households"))
        saved = made.save(out, progress=progress)
    shutil.rmtree(kept)
    screen.console(quiet=quiet).print(synthesis_summary(made, out, saved))


def _synthesized(
    spec: SynthSpec,
    households: Households,
    arguments: dict[str, Any],
    kept: Path,
    progress: Progress,
) -> Synthesis:
    """The synthesis. What was refused before anything was reserved leaves no folder behind."""
    progress(Stage("fitting"))
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
