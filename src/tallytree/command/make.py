"""`tallytree validate`, `release`, `synthesize` and `demo`: from a spec to a directory, for both kinds of output.

What was measured is kept beside the directory until that is written whole, so that an interrupted run can be finished.
"""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import RenderableType

from tallytree.command import reports, screen
from tallytree.command.progress_bar import shown
from tallytree.command.release_spec import ReleaseSpec
from tallytree.command.report import page_of, report_after
from tallytree.command.same_spec import keep_spec, refuse_changed
from tallytree.command.spec import is_for_synthesis
from tallytree.command.synthesis_spec import SynthesisSpec
from tallytree.core.errors import BudgetError, ReleaseError, SpecError, TallytreeError
from tallytree.core.progress import Progress, Stage
from tallytree.lab.people import make_country
from tallytree.mechanisms import Mechanism
from tallytree.planning.prior import Prior
from tallytree.privacy.accounts import amount
from tallytree.privacy.budget import Budget
from tallytree.privacy.households.journal import FILE as JOURNAL
from tallytree.privacy.ledger import ChangedInput, Ledger
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.plan import Plan
from tallytree.publish.folder import MANIFEST, claimed, digest, place_of, refuse_existing, try_names
from tallytree.publish.microdata.kept import KeptRun, kept_run, remove_kept, saved_as
from tallytree.publish.microdata.making import check, check_public, synthesize
from tallytree.publish.microdata.value import Synthesis
from tallytree.publish.recording import after_spending, warned_if_not_recorded
from tallytree.publish.release.areas import areas_to_publish
from tallytree.publish.release.keeping import Kept, SpentError, State
from tallytree.publish.release.making import decided, release, resume
from tallytree.publish.release.partition import file_names
from tallytree.publish.release.value import Release
from tallytree.publish.report.microdata_page import microdata_page
from tallytree.publish.report.page import MOST_CELLS, Page
from tallytree.publish.report.words import Words
from tallytree.publish.strength import UselessCounts, WeakPromise, warn_of_plan, weaknesses
from tallytree.publish.verify import verify
from tallytree.synthesis.methods import DEFAULT
from tallytree.tables.group_sizes import GroupSizes
from tallytree.tables.spark import sessions_kept

NO_FLAGS: Mapping[str, Any] = {}  # of a release that charges its own account for the files that this knows
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


def ask_about_changed_files(run: Callable[[bool], None], *, allowed: bool) -> None:
    """Run what may meet files that an account does not know; on a terminal ask, and run it again with permission.

    The first run spent nothing and left nothing, so that the second begins anew.
    """
    try:
        run(allowed)
    except ChangedInput as error:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        typer.echo(f"{error}", err=True)
        if not typer.confirm("Charge them to the same account?", err=True):
            raise
        run(True)


def run_release(
    path: Path,
    out: Path,
    *,
    ledger: Path | None,
    no_ledger: bool,
    same_data: bool,
    changed_files: bool,
    resumed: bool,
    report: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Make the release of a spec, and then its page if `report` is wanted.

    One that is resumed was charged before it was interrupted, or is charged now.
    """
    spec = ReleaseSpec.load(path)
    flags = {"same_data": same_data, "changed_files": changed_files}
    again = _pasted("release", path, out, ledger=ledger, no_ledger=no_ledger, flags=flags)
    with claimed(out), shown(quiet) as progress:
        kept = Kept(place_of(out).with_name(f"{out.name}.partial"))
        _refuse_release(kept, out, again, resumed=resumed)
        if resumed:
            refuse_changed(kept.folder, spec)
        else:
            kept.give_up()
        state = kept.state()
        if state is not None and (state.named or state.stage == "measured"):
            charged = None if state.ledger is None else Path(state.ledger)
        else:
            charged = spec.ledger_to_charge(ledger, without=no_ledger)
        try:
            made, release_id = _released(spec, out, kept, progress, ledger=charged, flags=flags, resumed=resumed)
        except BaseException as error:
            kept.give_up()
            raise _noted(error, kept, again, spec.budget) from None
        page = report_after(out, lambda: _page(made, out, spec), progress) if report else None
    with _showing_what_is_complete(out, release_id):
        if as_json:
            screen.show_json(reports.released(made, out, release_id, page))
        else:
            _show_release(made, out, release_id, page, quiet=quiet)


def run_synthesis(
    path: Path,
    out: Path,
    *,
    ledger: Path | None,
    no_ledger: bool,
    same_data: bool,
    changed_files: bool,
    resumed: bool,
    report: bool,
    quiet: bool,
) -> None:
    """Make the synthesis of a spec, and then its page if `report` is wanted."""
    spec = SynthesisSpec.load(path)
    charged = spec.ledger_to_charge(ledger, without=no_ledger)
    flags = {"same_data": same_data, "changed_files": changed_files}
    again = _pasted("synthesize", path, out, ledger=ledger, no_ledger=no_ledger, flags=flags)
    with claimed(out):
        kept = out.absolute().with_name(f"{out.name}.partial")
        past = kept_run(kept)
        if resumed and (saved := saved_as(past, out)) is not None:
            if charged is not None and past.receipt is not None:
                Ledger(charged).record(past.receipt, saved)
            remove_kept(kept)
            screen.show(f"{out} was written whole before the run was cut off; now it is done.", quiet=quiet)
            if quiet:
                print(saved)
            else:
                screen.show(f"id {saved}")
            return
        _refuse_synthesis(past, out, again, resumed=resumed)
        if resumed:
            refuse_changed(kept, spec)
        try:
            with shown(quiet) as progress:
                made, saved = _synthesized(spec, out, kept, progress, ledger=charged, flags=flags, resumed=resumed)
        except BaseException as error:
            raise _told(error, kept, again) from None
        remove_kept(kept)
        with shown(quiet) as progress:
            page = report_after(out, lambda: microdata_page(out), progress) if report else None
    with _showing_what_is_complete(out, saved):
        screen.show(screen.synthesis_summary(made, out, saved), quiet=quiet)
        if page is not None:
            screen.show(f"\nLook at it: {page}", quiet=quiet)
        screen.show_commands({"Check it:": _checking(out, saved)}, quiet=quiet)
        if quiet:
            print(saved)


def run_demo(out: Path, data: Path, *, households: int, report: bool, quiet: bool) -> None:
    """Make up a country, release it and verify the release."""
    refuse_existing(out, replace=True)
    with shown(quiet) as progress:
        progress(Stage("making up a country"))
        country = make_country(data, households=households)
        spec = ReleaseSpec.load(country.spec)
        ledger = _demo_ledger(spec)
        with claimed(out):
            kept = Kept(place_of(out).with_name(f"{out.name}.partial"))
            kept.remove()  # of a country that was made up before
            made, release_id = _released(spec, out, kept, progress, ledger=ledger, replace=True)
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
    _show_release(made, out, release_id, page, quiet=quiet)
    screen.show("", quiet=quiet)
    screen.show(screen.outcome(verification), quiet=quiet and verification.ok)


def _page(made: Release, out: Path, spec: ReleaseSpec) -> Page:
    """The page of a release that is in its place."""
    wanted = spec.report
    where = None if wanted.map is None else spec.folder / wanted.map
    if len(made.rows) * len(made.sizes) > MOST_CELLS:  # its upper levels are shown
        return page_of(out, words=Words(wanted.groups, wanted.entities), map=where)
    return made.report(map=where, groups=wanted.groups, entities=wanted.entities, directory=out)


def _show_release(made: Release, out: Path, release_id: str, page: Path | None, *, quiet: bool) -> None:
    """A release at a glance, and what to do next; with `quiet` its id alone."""
    screen.show(screen.release_summary(made, out, release_id), quiet=quiet)
    levels = made.hierarchy.levels if made.is_small else made.hierarchy.levels[:2]
    asking = ["tallytree", "query", str(out), "--level", levels[-1], "--size", ">=3"]
    if made.hierarchy.by is not None:
        column = made.hierarchy.by.columns[0]
        asking += ["--by", f"{column.name}={column.values[0]}"]
    screen.show_commands({"Check it:": _checking(out, release_id), "Ask it:": asking}, quiet=quiet)
    if page is not None:
        screen.show(f"\nLook at it: {page}", quiet=quiet)
    if quiet:
        print(release_id)


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
        "regions": reports.regions_of(group_sizes.hierarchy.regions),
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
    from tallytree.planning.report import divided_by, expected_counts, uselessness

    tree, totals, wanted = group_sizes.hierarchy, group_sizes.leaf_totals, spec.release
    found = uselessness(
        mechanism,
        plan,
        tree,
        neighbours,
        shares=divided_by(mechanism, tree, spec.budget, shares=wanted.shares, priority=wanted.priority),
        expected=None if prior is None else expected_counts(prior, tree, neighbours, totals),
        totals=None if totals is None else group_sizes.region_totals,
        confidence=float(wanted.confidence),
    )
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


def _check_account(spec: ReleaseSpec | SynthesisSpec, ledger: Path | None, flags: Mapping[str, Any]) -> None:
    """Refuse what the ledger would refuse after a long read. Its reservation is made later, and checks again."""
    if ledger is not None and spec.name is not None:
        asked = spec.name, spec.budget, spec.neighbours()
        Ledger(ledger).check(*asked, **flags)  # at once, before the files are read for their digest
        Ledger(ledger).check(*asked, spec.fingerprint(), **flags)


def _refuse_release(kept: Kept, out: Path, again: str, *, resumed: bool) -> None:
    """Refuse what cannot be begun or gone on with as it lies there, and say what can be done."""
    state = kept.state()
    if resumed and state is None:
        raise ReleaseError(
            f"{kept.folder} is not there: nothing was interrupted that could be resumed. Leave out --resume."
        )
    if not resumed and state is not None and state.spent:
        raise ReleaseError(
            f"a release to {out} was interrupted. {state.in_words()}\nGo on with:\n  {again} --resume\n"
            f"or delete {kept.folder} to give it up."
        )
    if resumed and kept.in_place(out):
        return
    if resumed and state is not None and state.spent and os.path.lexists(out):
        raise ReleaseError(
            f"{out} is there already, and the interrupted release did not write it. {state.in_words()}\nMove {out} "
            f"away, and go on with:\n  {again} --resume"
        )
    try:
        refuse_existing(out)
    except ReleaseError as error:
        error.add_note(NOTHING_SPENT)
        raise


@contextmanager
def _nothing_spent(*, unless: bool) -> Iterator[None]:
    """What is done before the ledger is asked: an error says that nothing was spent, whatever the disk can tell now."""
    try:
        yield
    except BaseException as error:
        if not unless:
            error.add_note(NOTHING_SPENT)
        raise


def _noted(error: BaseException, kept: Kept, again: str, budget: Budget) -> BaseException:
    """An error that says what was spent and how to go on; what the system refuses is none of our defects."""
    before = NOTHING_SPENT in getattr(error, "__notes__", ())
    try:
        state = None if before else kept.state()
    except ReleaseError as damage:
        state = State(kept.folder, "begun", unsure=str(damage))
    error = _without_defect(error)
    if isinstance(error, ChangedInput):
        error.__notes__ = [_about_changed_files(again)]
    elif state is None or not state.spent:
        error.__notes__ = [NOTHING_SPENT]
    else:
        if not isinstance(error, SpentError):
            error.add_note(state.in_words())
        if state.unsure:
            error.add_note(f"At most {amount(budget.amount, budget.currency)} is spent.")
        error.add_note(f"Go on with:\n  {again} --resume")
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


def _pasted(word: str, path: Path, out: Path, *, ledger: Path | None, no_ledger: bool, flags: Mapping[str, Any]) -> str:
    """The command as it can be pasted into a shell."""
    words = ["tallytree", word, str(path), "--out", str(out)]
    words += [] if ledger is None else ["--ledger", str(ledger)]
    words += ["--no-ledger"] * no_ledger + ["--same-data-other-name"] * flags["same_data"]
    words += ["--changed-files"] * flags["changed_files"]
    return shlex.join(words)


def _released(
    spec: ReleaseSpec,
    out: Path,
    kept: Kept,
    progress: Progress,
    *,
    ledger: Path | None,
    flags: Mapping[str, Any] = NO_FLAGS,
    resumed: bool = False,
    replace: bool = False,
) -> tuple[Release, str]:
    """The release and its id."""
    state = kept.state()
    if resumed and kept.in_place(out):  # it was killed after the renaming
        release_id = digest(out / MANIFEST)
        if state is not None and state.stage == "measured" and (receipt := kept.measurements().receipt) is not None:
            with warned_if_not_recorded(place_of(out), receipt):
                receipt.record(release_id)
        kept.remove()
        return Release.load(out), release_id
    wanted = spec.release
    how: dict[str, Any] = {
        "mechanism": wanted.mechanism,
        "options": wanted.options,
        "title": wanted.title,
        "intervals": wanted.intervals,
        "confidence": float(wanted.confidence),
        "areas": spec.area_files(),
        "progress": progress,
    }
    if state is not None and state.stage == "measured":
        made = resume(kept.folder, **how)
    else:
        with _nothing_spent(unless=state is not None and state.spent):
            if state is None or not state.spent:
                _check_account(spec, ledger, flags)
            weak = _warned(spec.budget)
            group_sizes = spec.read(progress)
            _warned(spec.budget, group_sizes, but=weak)
            try_names(out, file_names(group_sizes.hierarchy, group_sizes.max_size - group_sizes.first_size + 1))
            if not resumed:
                keep_spec(kept.folder, spec)
        made = release(
            group_sizes,
            budget=spec.budget,
            unit=spec.unit,
            shares=wanted.shares,
            priority=wanted.priority,
            prior=spec.prior(group_sizes.hierarchy) if wanted.mechanism == "auto" else None,
            ledger=ledger,
            **flags,
            noise=spec.privacy.noise,
            keep=kept.folder,
            **how,
        )
    progress(Stage("writing"))
    release_id = made.save(out, replace=replace, progress=progress)
    kept.remove()
    return made, release_id


# -------------------------------------------------------------------- syntheses


def _synthesized(
    spec: SynthesisSpec,
    out: Path,
    kept: Path,
    progress: Progress,
    *,
    ledger: Path | None,
    flags: Mapping[str, Any],
    resumed: bool,
) -> tuple[Synthesis, str]:
    """The synthesis and its id."""
    progress(Stage("checking the spec"))
    arguments = _arguments(spec)
    if not resumed:
        _check_account(spec, ledger, flags)
        _warned(spec.budget)
    progress(Stage("reading the data"))
    households = spec.read(progress)
    if not resumed:  # then it is there, or the folder was removed, which must be noticed
        keep_spec(kept, spec)
    progress(Stage("fitting"))
    made = synthesize(
        households,
        **arguments,
        ledger=ledger,
        **flags,
        folder=kept,
        resume=resumed,
        title=spec.synthesis.title,
        progress=progress,
    )
    progress(Stage("drawing households"))
    return made, made.save(out, progress=progress)


def _refuse_synthesis(past: KeptRun, out: Path, again: str, *, resumed: bool) -> None:
    """Refuse what cannot be gone on with, or begun, as it lies there; every refusal says what can be done."""
    there = os.path.lexists(past.folder)
    if past.state == "other":
        raise ReleaseError(f"{past.in_words()} Choose another --out, or move {past.folder} away.")
    if resumed and past.state == "nothing":
        remove_kept(past.folder)
        found = past.in_words() if there else f"{past.folder} is not there: nothing was interrupted."
        if os.path.lexists(out):
            raise ReleaseError(f"{found} {out} is there already: there is nothing to resume.")
        raise ReleaseError(f"{found} Nothing was spent now. There is nothing to resume: leave out --resume to begin.")
    if not resumed and past.state != "nothing":
        raise ReleaseError(
            f"{past.in_words()}\nGo on with:\n  {again} --resume\nor delete {past.folder} to give it up."
        )
    if resumed and os.path.lexists(out):
        raise ReleaseError(
            f"{out} is there already, and this run did not write it. {past.in_words()}\nMove {out} away first. "
            f"Go on with:\n  {again} --resume"
        )
    refuse_existing(out)


def _told(error: BaseException, kept: Path, again: str) -> BaseException:
    """An error with a note that says what was spent and how to go on; what was kept for nothing is removed."""
    told = _without_defect(error)
    try:
        past = kept_run(kept)
    except (TallytreeError, OSError):  # a disk that is full, say, so that the journal cannot even be opened
        if not _was_begun(kept):
            told.__notes__ = ["Nothing was spent."]
            return told
        told.__notes__ = [f"The budget may be reserved and spent; what was drawn is kept in {kept}."]
        told.add_note(f"Go on with:\n  {again} --resume")
        return told
    if isinstance(told, BudgetError) and past.is_spent:
        told = BudgetError(after_spending(told))
    if past.state == "nothing":
        remove_kept(kept)
    if isinstance(told, ChangedInput):
        told.__notes__ = [_about_changed_files(again)]
        return told
    told.__notes__ = [past.in_words() if past.state != "nothing" else "Nothing was spent."]
    if past.state in ("begun", "reserved", "saved"):
        told.add_note(f"Go on with:\n  {again} --resume")
    return told


def _was_begun(kept: Path) -> bool:
    """May the ledger have been asked? It is asked once the journal's first line is on the disk, and not before."""
    try:
        return b"\n" in (kept / JOURNAL).read_bytes()
    except OSError:
        return True


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
