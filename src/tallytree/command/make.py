"""`tallytree validate`, `release`, `synthesize` and `demo`: from a spec to a directory, for both kinds of output.

What was measured is kept beside the directory until that is written whole, so that an interrupted run can be finished.
"""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.console import RenderableType

from tallytree.command import screen
from tallytree.command.command_options import ReleaseOptions, RunOptions, command_line
from tallytree.command.folder_commands import page_of, report_after
from tallytree.command.progress_bar import shown
from tallytree.command.release_spec import ReleaseSpec
from tallytree.command.spec import Spec, is_for_synthesis, keep_spec, refuse_changed
from tallytree.command.synthesis_spec import SynthesisSpec
from tallytree.core.errors import ReleaseError, SpecError, TallytreeError
from tallytree.core.progress import Progress, Stage
from tallytree.demo.country import make_country
from tallytree.mechanisms import Mechanism
from tallytree.planning.prior import Prior
from tallytree.privacy.accounts import amount
from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import ChangedInput, Ledger, Receipt
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.plan import Plan
from tallytree.publish.folder import MANIFEST, claimed, place_of, refuse_existing, try_names
from tallytree.publish.microdata.making import check, check_public, synthesize
from tallytree.publish.microdata.synthesis import Synthesis
from tallytree.publish.release.areas import areas_to_publish
from tallytree.publish.release.making import decided, release, resume
from tallytree.publish.release.partition import file_names
from tallytree.publish.release.value import Release
from tallytree.publish.report.microdata_page import microdata_page
from tallytree.publish.report.page import MOST_CELLS, Page
from tallytree.publish.report.words import Words
from tallytree.publish.run_folder import RunFolder, RunState, SpentError, warned_if_not_recorded
from tallytree.publish.strength import UselessCounts, WeakPromise, warn_of_plan, weaknesses
from tallytree.publish.verify import verify
from tallytree.synthesis.methods import DEFAULT
from tallytree.tables.group_sizes import GroupSizes
from tallytree.tables.households import Households
from tallytree.tables.spark import sessions_kept

NOTHING_SPENT = "Nothing was spent."
DEMO_TOTAL = 2  # ε of the demo's account: its release, and one more to try


def run_validate(path: Path, *, as_json: bool, quiet: bool) -> None:
    """Check spec and data; nothing is spent."""
    kind = "synthesis" if is_for_synthesis(path) else "release"
    try:
        with shown(quiet) as progress:
            progress(Stage("checking the spec"))
            if kind == "synthesis":
                facts, told, left_out = _validated_synthesis(SynthesisSpec.load(path), progress)
            else:
                facts, told, left_out = _validated_release(ReleaseSpec.load(path), progress)
    except TallytreeError as error:
        if as_json:
            screen.show_json({"valid": False, "spec": str(path), "kind": kind, "error": str(error)})
        raise
    if as_json:
        alone = {"for_the_data_holder_alone": left_out}
        screen.show_json({"valid": True, "spec": str(path), "kind": kind, **facts, **alone})
        return
    done = "synthesized" if kind == "synthesis" else "released"
    hidden = screen.for_the_data_holder(left_out)
    screen.show(f"{path} and its data can be {done}. Nothing was spent.", told, hidden, quiet=quiet)


@contextmanager
def told_when_interrupted(out: Path) -> Iterator[None]:
    """An interrupt that came when all was done says so; while it is being made, what makes it says what was spent."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if not getattr(interrupt, "__notes__", None) and (out / MANIFEST).exists():
            command = shlex.join(["tallytree", "verify", str(out)])
            interrupt.add_note(f"{out} is complete, and its budget is spent. Check it with:\n  {command}")
        raise


@contextmanager
def _showing_what_is_complete(out: Path, release_id: str) -> Iterator[None]:
    """What the system refuses while a complete directory is shown does not hide that it is complete and paid for."""
    try:
        yield
    except BrokenPipeError:  # nobody reads it, and that is no fault
        raise
    except OSError as error:
        raise ReleaseError(
            f"the system stopped the command ({error.strerror}) after {out} was complete. Its budget is spent. "
            f"Check it with:\n  {shlex.join(_checking(out, release_id))}"
        ) from None


def again(options: RunOptions) -> str:
    """The command of a run as it can be pasted into a shell, but for `--resume`."""
    return command_line(replace(options, resume=False))


def run_order(order: RunOptions) -> None:
    """Make what was ordered. If an account does not know the files, ask on a terminal, and run again with permission.

    The first run spent nothing and left nothing, so that the second begins anew.
    """
    with told_when_interrupted(order.out):
        try:
            _run(order)
        except ChangedInput as error:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            typer.echo(f"{error}", err=True)
            if not typer.confirm("Charge them to the same account?", err=True):
                raise
            _run(replace(order, changed_files=True))


def _run(order: RunOptions) -> None:
    """A run from its spec to its directory, and then its page if that is wanted.

    One that is resumed was charged before it was interrupted, or is charged now.
    """
    out = order.out
    spec = ReleaseSpec.load(order.spec) if isinstance(order, ReleaseOptions) else SynthesisSpec.load(order.spec)
    with claimed(out), shown(order.quiet) as progress:
        run = RunFolder.beside(place_of(out))
        made, release_id = _finished_before(run, order) if order.resume else (None, None)
        if release_id is None:
            _refuse(run, order)
            if order.resume:
                refuse_changed(run.folder, spec)
            try:
                ledger = _ledger_of(run, spec, order)
                made, release_id = _made(spec, out, run, progress, ledger=ledger, order=order)
            except BaseException as error:
                run.give_up()
                raise _explained(error, run, order, spec.budget) from None
            run.finish()
        page = report_after(out, lambda: _page(made, out, spec), progress) if not order.no_report else None
    with _showing_what_is_complete(out, release_id):
        if isinstance(order, ReleaseOptions) and order.as_json and isinstance(made, Release):
            screen.show_json(screen.release_content(made, out, release_id, page))
        else:
            _show(made, out, release_id, page, quiet=order.quiet)


def _ledger_of(run: RunFolder, spec: Spec, order: RunOptions) -> Path | None:
    """The ledger that pays: for a run that is resumed the one that it was begun with, unless another is named."""
    if not order.resume or order.ledger is not None:
        return spec.ledger_to_charge(order.ledger, without=order.no_ledger)
    ledger = run.state().ledger
    return None if ledger is None else Path(ledger)


def _finished_before(run: RunFolder, order: RunOptions) -> tuple[Release | Synthesis | None, str | None]:
    """A directory that was written whole before its run was cut off: the ledger is told its id, and the run is done."""
    state, release_id = run.state(), run.id_at(order.out)
    if release_id is None:
        return None, None
    if state.ledger is not None and state.receipt is not None and state.stage != "finished":
        receipt = Receipt(state.ledger, state.receipt)
        with warned_if_not_recorded(place_of(order.out), receipt):
            receipt.record(release_id)
    run.finish()
    screen.show(f"{order.out} was written whole before the run was cut off; now it is done.", quiet=order.quiet)
    return Release.load(order.out) if isinstance(order, ReleaseOptions) else None, release_id


def run_demo(out: Path, data: Path, *, households: int, report: bool, quiet: bool) -> None:
    """Make up a country, release it and verify the release."""
    refuse_existing(out, replace=True)
    with shown(quiet) as progress:
        progress(Stage("making up a country"))
        country = make_country(data, households=households)
        spec = ReleaseSpec.load(country.spec)
        ledger = _demo_ledger(spec)
        with claimed(out):
            run = RunFolder.beside(place_of(out))
            run.remove()  # of a country that was made up before
            order = ReleaseOptions(spec=country.spec, out=out)
            made, release_id = _made(spec, out, run, progress, ledger=ledger, order=order, replaces=True)
            run.finish()
            page = report_after(out, lambda: _page(made, out, spec), progress) if report else None
        progress(Stage("verifying"))
        verification = verify(out, progress=progress)
    screen.show(
        f"{country.people}: {country.households:,} households, {country.persons:,} persons, made up",
        f"{country.regions}: their states and counties",
        f"{country.spec}: what was released; point it at files of your own",
        f"{country.spec.with_name(ledger.name)}: what was spent, of ε = {DEMO_TOTAL} in all",
        quiet=quiet,
    )
    _show(made, out, release_id, page, quiet=quiet)
    screen.show("", quiet=quiet)
    screen.show(screen.outcome(verification), quiet=quiet and verification.ok)


def _page(made: Release | Synthesis | None, out: Path, spec: Spec) -> Page:
    """The page of a directory that is in its place."""
    if not isinstance(made, Release) or not isinstance(spec, ReleaseSpec):
        return microdata_page(out)
    wanted = spec.report
    where = None if wanted.map is None else spec.folder / wanted.map
    if len(made.rows) * len(made.sizes) > MOST_CELLS:  # its upper levels are shown
        return page_of(out, words=Words(wanted.groups, wanted.entities), map=where)
    return made.report(map=where, groups=wanted.groups, entities=wanted.entities, directory=out)


def _show(made: Release | Synthesis | None, out: Path, release_id: str, page: Path | None, *, quiet: bool) -> None:
    """What was made at a glance, and what to do next; with `quiet` its id alone."""
    commands = {"Check it:": _checking(out, release_id)}
    if isinstance(made, Release):
        screen.show(screen.release_summary(made, out, release_id), quiet=quiet)
        commands["Ask it:"] = _asking(made, out)
    elif made is not None:
        screen.show(screen.synthesis_summary(made, out, release_id), quiet=quiet)
    else:
        screen.show(f"id {release_id}", quiet=quiet)
    screen.show_commands(commands, quiet=quiet)
    if page is not None:
        screen.show(f"\nLook at it: {page}", quiet=quiet)
    if quiet:
        print(release_id)


def _asking(made: Release, out: Path) -> list[str]:
    """A query that this release can answer."""
    levels = made.hierarchy.levels if made.is_small else made.hierarchy.levels[:2]
    asking = ["tallytree", "query", str(out), "--level", levels[-1], "--size", ">=3"]
    for column in made.hierarchy.by.columns[:1]:
        asking += ["--by", f"{column.name}={column.values[0]}"]
    return asking


def _checking(out: Path, release_id: str) -> list[str]:
    return ["tallytree", "verify", str(out), "--id", release_id[:16]]


def _demo_ledger(spec: ReleaseSpec) -> Path:
    """A new ledger for a country that was made up this moment: like its other files, it replaces that of a past run."""
    path, name = spec.account()
    for old in (path, Ledger(path).anchor_path):
        old.unlink(missing_ok=True)
    Ledger(path).open(name, Budget(epsilon=DEMO_TOTAL), spec.neighbours())
    return path


# -------------------------------------------------------------------- releases


Validated = tuple[dict[str, Any], RenderableType, dict[str, str]]  # for programs, for people, for the data holder alone


@sessions_kept()
def _validated_release(spec: ReleaseSpec, progress: Progress) -> Validated:
    weak = _warned(spec.budget)
    group_sizes = spec.read(progress)
    weak += _warned(spec.budget, group_sizes, but=weak)
    neighbours = Neighbours.of(group_sizes, spec.unit)
    wanted = spec.release
    prior = spec.prior(group_sizes.hierarchy)
    mechanism, plan = decided(
        group_sizes,
        neighbours,
        budget=spec.budget,
        mechanism=wanted.mechanism,
        options=wanted.options,
        shares=wanted.shares,
        priority=wanted.priority,
        prior=prior if wanted.mechanism == "auto" else None,
        progress=progress,
    )
    weak += warn_of_plan(
        mechanism, plan, neighbours, group_sizes.hierarchy, shares=wanted.shares, priority=wanted.priority
    )
    weak += _useless(spec, group_sizes, neighbours, mechanism, plan, prior)
    areas = areas_to_publish(spec.area_files(), group_sizes.hierarchy, group_sizes.max_size + 1)
    ready = screen.release_readiness(group_sizes, neighbours, spec.budget, mechanism, spec.ledger_in_words())
    facts = {
        "regions": screen.regions_of(group_sizes.hierarchy.regions),
        "sizes": [group_sizes.first_size, group_sizes.max_size],
        "budget": spec.budget.to_json(),
        "unit": spec.unit.kind,
        "protects": neighbours.describe(),
        "mechanism": mechanism.name,
        "areas": len(areas),
        "ledger": spec.ledger_in_words(),
        "warnings": weak,
    }
    progress(Stage("counting what is left out"))
    return facts, ready, spec.left_out()


def _useless(
    spec: ReleaseSpec,
    group_sizes: GroupSizes,
    neighbours: Neighbours,
    mechanism: Mechanism,
    plan: Plan,
    prior: Prior | None,
) -> list[str]:
    """Warn of counts that noise will make useless; by public facts and the prior alone."""
    from tallytree.planning.report import uselessness
    from tallytree.planning.simulation import PublicFacts

    facts, wanted = PublicFacts(group_sizes.hierarchy, neighbours, group_sizes.leaf_totals), spec.release
    scenario = facts.scenario(mechanism, spec.budget, wanted.shares, wanted.priority)
    expected = None if prior is None else facts.expect(prior)
    found = uselessness(facts, scenario, plan, expected=expected, confidence=float(wanted.confidence))
    for text in found:
        warnings.warn(text, UselessCounts, stacklevel=2)
    return found


def _warned(budget: Budget, group_sizes: GroupSizes | None = None, *, but: Sequence[str] = ()) -> list[str]:
    """Warn of a budget that promises little; `but` are warnings that were given before."""
    totals = None if group_sizes is None else group_sizes.leaf_totals
    found = [text for text in weaknesses(budget, None if totals is None else int(totals.sum())) if text not in but]
    for text in found:
        warnings.warn(text, WeakPromise, stacklevel=2)
    return found


def _check_account(spec: ReleaseSpec | SynthesisSpec, ledger: Path | None, **flags: Any) -> None:
    """Refuse what the ledger would refuse after a long read. Its reservation is made later, and checks again."""
    if ledger is not None and spec.name is not None:
        asked = spec.name, spec.budget, spec.neighbours()
        Ledger(ledger).check(*asked, **flags)  # at once, before the files are read for their digest
        Ledger(ledger).check(*asked, spec.fingerprint(), **flags)


def _refuse(run: RunFolder, order: RunOptions) -> None:
    """Refuse what cannot be begun or gone on with as it lies there, and say what can be done."""
    state, out, was_there = run.state(), order.out, os.path.lexists(run.folder)
    if state.stage == "other":
        raise ReleaseError(f"{state.in_words()} Choose another --out, or move {run.folder} away.")
    if state.stage in ("nothing", "finished"):
        run.remove()
        if order.resume:
            found = state.in_words() if was_there else f"{run.folder} is not there: nothing was interrupted."
            if os.path.lexists(out):
                raise ReleaseError(f"{found} {out} is there already: there is nothing to resume.")
            raise ReleaseError(f"{found} Nothing was spent now. There is nothing to resume: leave out --resume.")
    elif state.spent and not order.resume:
        raise ReleaseError(
            f"a run for {out} was interrupted. {state.in_words()}\nGo on with:\n  {again(order)} --resume\n"
            f"or delete {run.folder} to give it up."
        )
    elif state.spent and os.path.lexists(out):
        raise ReleaseError(
            f"{out} is there already, and this run did not write it. {state.in_words()}\nMove {out} away. Go on "
            f"with:\n  {again(order)} --resume"
        )
    if not order.resume:
        run.give_up()
    with _nothing_spent(unless=False):
        refuse_existing(out)


@contextmanager
def _nothing_spent(*, unless: bool) -> Iterator[None]:
    """What is done before the ledger is asked: an error says that nothing was spent, whatever the disk can tell now."""
    try:
        yield
    except BaseException as error:
        if not unless:
            error.add_note(NOTHING_SPENT)
        raise


def _explained(error: BaseException, run: RunFolder, order: RunOptions, budget: Budget) -> BaseException:
    """An error that says what was spent and how to go on; what the system refuses is none of our defects."""
    before = NOTHING_SPENT in getattr(error, "__notes__", ())
    try:
        state = RunState(run.folder, "nothing") if before else run.state()
    except ReleaseError as damage:
        state = RunState(run.folder, "begun", unsure=str(damage))
    error = _without_defect(error)
    error.__notes__ = []
    if isinstance(error, ChangedInput):
        error.add_note(_about_changed_files(again(order)))
    elif not state.spent:
        error.add_note(NOTHING_SPENT)
    else:
        if not isinstance(error, SpentError):
            error.add_note(state.in_words())
        if state.unsure:
            error.add_note(f"At most {amount(budget.amount, budget.currency)} is spent.")
        error.add_note(f"Go on with:\n  {again(order)} --resume")
    return error


def _without_defect(error: BaseException) -> BaseException:
    """What the system refuses, in words; any other error as it is. Python without memory may fail in its own code."""
    if not isinstance(error, OSError | MemoryError | SystemError):
        return error
    why = (error.strerror or "it could not be written") if isinstance(error, OSError) else "too little memory"
    if isinstance(error, SystemError):
        why = "Python itself failed, which it does for lack of memory"
    return ReleaseError(f"the run was stopped by the system: {why}.")


def _about_changed_files(again: str) -> str:
    """The two ways on from files that the account does not know, as commands."""
    spec = shlex.quote(shlex.split(again)[2])
    return (
        f"New data: change `name` in the spec, and give it a total budget with:\n  tallytree ledger open {spec} "
        f"--epsilon TOTAL\nThe same data:\n  {again} --changed-files"
    )


def _made(
    spec: ReleaseSpec | SynthesisSpec,
    out: Path,
    run: RunFolder,
    progress: Progress,
    *,
    ledger: Path | None,
    order: RunOptions,
    replaces: bool = False,
) -> tuple[Release | Synthesis, str]:
    """What a spec asks for, written to its directory, and its id."""
    state = run.state()
    how: dict[str, Any] = {
        "ledger": ledger,
        "same_data": order.same_data,
        "changed_files": order.changed_files,
        "progress": progress,
    }
    made: Release | Synthesis
    if isinstance(spec, ReleaseSpec) and state.stage == "measured":
        made = resume(run.folder, **_release_arguments(spec), progress=progress)
    else:
        with _nothing_spent(unless=state.spent):
            progress(Stage("checking the spec"))
            arguments = _release_arguments(spec) if isinstance(spec, ReleaseSpec) else _arguments(spec)
            if not state.spent:
                _check_account(spec, ledger, same_data=order.same_data, changed_files=order.changed_files)
            weak = _warned(spec.budget)
            progress(Stage("reading the data"))
            data = spec.read(progress)
            if isinstance(data, GroupSizes):
                _warned(spec.budget, data, but=weak)
                try_names(out, file_names(data.hierarchy, data.max_size - data.first_size + 1))
            if not order.resume:  # otherwise it is there, or the folder was removed, which must be noticed
                keep_spec(run.folder, spec)
        if isinstance(spec, ReleaseSpec) and isinstance(data, GroupSizes):
            made = release(data, **_more_arguments(spec, data), **arguments, keep=run.folder, **how)
        else:
            progress(Stage("fitting"))
            assert isinstance(spec, SynthesisSpec)
            assert isinstance(data, Households)
            title = spec.synthesis.title
            made = synthesize(data, **arguments, folder=run.folder, resume=order.resume, title=title, **how)
    progress(Stage("writing"))
    return made, made.save(out, replace=replaces, progress=progress)


def _release_arguments(spec: ReleaseSpec) -> dict[str, Any]:
    """The arguments that `release` and `resume` share."""
    wanted = spec.release
    return {
        "mechanism": wanted.mechanism,
        "options": wanted.options,
        "title": wanted.title,
        "intervals": wanted.intervals,
        "confidence": float(wanted.confidence),
        "areas": spec.area_files(),
    }


def _more_arguments(spec: ReleaseSpec, group_sizes: GroupSizes) -> dict[str, Any]:
    """The arguments that `release` has and `resume` has not."""
    wanted = spec.release
    return {
        "budget": spec.budget,
        "unit": spec.unit,
        "shares": wanted.shares,
        "priority": wanted.priority,
        "prior": spec.prior(group_sizes.hierarchy) if wanted.mechanism == "auto" else None,
        "noise": spec.privacy.noise,
    }


# -------------------------------------------------------------------- syntheses


def _validated_synthesis(spec: SynthesisSpec, progress: Progress) -> Validated:
    arguments = _arguments(spec)
    weak = _warned(spec.budget)
    progress(Stage("reading the data"))
    households = spec.read(progress)
    ready = check(households, **arguments)
    told = screen.synthesis_readiness(
        households.schema, ready, spec.budget, households.truncation(), spec.ledger_in_words()
    )
    facts = {
        "tables": len(ready.workload),
        "counts": ready.workload.queries,
        "budget": spec.budget.to_json(),
        "unit": spec.unit.kind,
        "protects": ready.neighbours.describe(),
        "method": ready.method.name,
        "ledger": spec.ledger_in_words(),
        "warnings": weak,
    }
    progress(Stage("counting what is left out"))
    return facts, told, spec.left_out()


def _arguments(spec: SynthesisSpec) -> dict[str, Any]:
    """The arguments of `check` and `synthesize`, with all that is public checked before private rows are read."""
    schema = spec.public_schema()
    method = spec.synthesis.method or DEFAULT
    named = spec.chosen_workload(schema)
    regional = None if spec.regional is None else spec.region
    if spec.regional is not None and regional is None:
        raise SpecError("[regional] needs [agreement] with release and region: the tree of regions is the release's")
    _, _, workload = check_public(schema, method, spec.options, named, regional)
    if spec.release is not None and not spec.release.is_dir():
        raise SpecError(f"[agreement] there is no release at {spec.release}")
    return {
        "budget": spec.budget,
        "unit": spec.unit,
        "workload": workload if regional is None else named,
        "method": method,
        "options": spec.options,
        "number": spec.synthesis.households,
        "release": spec.release,
        "region": spec.region,
        "by": spec.by,
        "regional": spec.regional,
    }
