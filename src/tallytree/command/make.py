"""`tallytree validate`, `release`, `synthesize` and `demo`: from a spec to a directory, for releases and syntheses.

Also `report` and `export`: from a directory to a report, and to files for other software.

Measurements are stored beside the directory until it is complete, so that an interrupted run can be finished.
"""

from __future__ import annotations

import csv
import io
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from tallytree.command import screen
from tallytree.command.command_options import (
    DemoOptions,
    ExportOptions,
    ReleaseOptions,
    ReportOptions,
    RunOptions,
    ValidateOptions,
    command_line,
)
from tallytree.command.progress_bar import show_progress
from tallytree.command.release_spec import ReleaseSpec
from tallytree.command.screen import show
from tallytree.command.spec import is_for_synthesis, keep_spec, refuse_changed
from tallytree.command.synthesis_spec import SynthesisSpec
from tallytree.core.disk import is_there
from tallytree.core.errors import ReleaseError, SpecError, TallytreeError
from tallytree.core.names import did_you_mean
from tallytree.core.progress import Progress, Stage, silent
from tallytree.demo.country import make_country
from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import UNPAID, ChangedInput, Charge, Ledger, Receipt
from tallytree.publish.folder import (
    MANIFEST,
    REPORT,
    claimed,
    place_of,
    put_report,
    refuse_existing,
    try_names,
    write_new,
    write_whole,
)
from tallytree.publish.microdata.synthesis import Synthesis, is_microdata
from tallytree.publish.release.release_run import CheckedRelease
from tallytree.publish.release.table_layout import file_names
from tallytree.publish.release.value import Release
from tallytree.publish.report import Page
from tallytree.publish.report.synthesis_page import make_synthesis_page
from tallytree.publish.run_folder import NOTHING_SPENT, RunFolder, choose_charge, explain_failures, warn_if_not_recorded
from tallytree.publish.strength import UselessCounts, WeakPromise, weaknesses
from tallytree.publish.verify import verify
from tallytree.tables.group_sizes import GroupSizes
from tallytree.tables.problems import InputProblems
from tallytree.tables.spark import keep_sessions

AnySpec = ReleaseSpec | SynthesisSpec
DEMO_TOTAL = 2  # ε of the demo's account: its release, and one more to try


def kind_of(path: Path) -> type[AnySpec]:
    """Return the kind of a spec."""
    return SynthesisSpec if is_for_synthesis(path) else ReleaseSpec


def run_validate(options: ValidateOptions) -> None:
    """Check spec and data; nothing is spent. Numbers of bad rows go to a file for the data holder alone."""
    path = options.spec
    kind = kind_of(path)
    about = {"spec": str(path), "kind": kind.KIND}
    try:
        with show_progress(options.quiet) as progress, keep_sessions():
            progress(Stage("checking the spec"))
            spec = kind.load(path)
            with _listing_bad_rows(spec, options.problems):
                checked, weak = _check(spec, progress)
            if isinstance(spec, ReleaseSpec):
                weak += [*checked.warnings, *_warn_of_noise(spec, checked)]
                facts, ready = screen.release_readiness(checked, spec)
            else:
                facts, ready = screen.synthesis_readiness(checked, spec)
            progress(Stage("counting rows that are dropped"))
            left_out = spec.left_out()
    except TallytreeError as error:
        if options.as_json:
            screen.show_json({"valid": False, **about, "error": str(error)})
        raise
    if options.as_json:
        alone = {"warnings": weak, "for_the_data_holder_alone": left_out}
        screen.show_json({"valid": True, **about, **facts, **alone})
        return
    done = "released" if kind is ReleaseSpec else "synthesized"
    hidden = screen.for_the_data_holder(left_out)
    screen.show(f"{path} and its data can be {done}. {NOTHING_SPENT}", ready, hidden, quiet=options.quiet)


@contextmanager
def _listing_bad_rows(spec: AnySpec, path: Path | None) -> Iterator[None]:
    """If the data have problems, write the numbers of bad rows to a new private file, and say so in the error."""
    if path is not None and not isinstance(spec, ReleaseSpec):
        raise SpecError("--problems lists bad rows for releases; leave it out for synthetic households")
    if path is not None and is_there(path):
        raise SpecError(f"{path} exists already; nothing was written. Choose another name for --problems")
    try:
        yield
    except InputProblems as error:
        if path is not None and isinstance(spec, ReleaseSpec):
            found = spec.bad_rows()
            lines = io.StringIO()
            csv.writer(lines, lineterminator="\n").writerows([found.columns, *found.rows])
            try:
                write_new(path, lines.getvalue().encode(), mode=0o600)
            except OSError as failure:
                raise SpecError(f"{path} cannot be written: {failure.strerror}") from None
            error.add_note(f"{path} lists {len(found.rows):,} bad rows. It is private: delete it when you are done.")
        raise


def _check(spec: AnySpec, progress: Progress, charge: Charge = UNPAID) -> tuple[Any, list[str]]:
    """Check a spec against its data without spending, and return what it would do and how weak its guarantee is.

    What the ledger would refuse is refused before a long read. Its reservation is made later, and checks again.
    """
    public: Any = spec.check_public()
    budget = spec.charged_budget(charge)
    if charge.ledger is not None and spec.name is not None:
        wanted = spec.name, budget, spec.neighbours()
        charge.ledger.check(charge.of(*wanted))  # at once, before the files are read for their digest
        charge.ledger.check(charge.of(*wanted, spec.fingerprint()))
    weak = _warn(weaknesses(spec.budget), WeakPromise)
    progress(Stage("reading the data"))
    data: Any = spec.read(progress)
    if isinstance(data, GroupSizes) and data.leaf_totals is not None:
        more = weaknesses(spec.budget, int(data.leaf_totals.sum()))
        weak += _warn([text for text in more if text not in weak], WeakPromise)
    return spec.check(data, public, budget, progress), weak


def _warn(texts: list[str], category: type[UserWarning]) -> list[str]:
    for text in texts:
        warnings.warn(text, category, stacklevel=3)
    return texts


def _warn_of_noise(spec: ReleaseSpec, checked: CheckedRelease) -> list[str]:
    """Warn if noise will make the counts useless, from public facts and the prior alone."""
    from tallytree.planning.report import find_useless_levels
    from tallytree.planning.simulation import PublicFacts

    wanted, hierarchy = spec.release, checked.group_sizes.hierarchy
    facts = PublicFacts(hierarchy, checked.neighbours, checked.group_sizes.leaf_totals)
    scenario = facts.scenario(checked.mechanism, checked.plan.budget, wanted.shares, wanted.priority)
    how: dict[str, Any] = {"prior": spec.prior(hierarchy), "confidence": checked.publication.confidence}
    found = find_useless_levels(facts, scenario, checked.plan, **how)
    return _warn(found, UselessCounts)


@contextmanager
def note_when_complete(out: Path) -> Iterator[None]:
    """Add to an interrupt after completion that the output is complete; other code explains earlier interrupts."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if not getattr(interrupt, "__notes__", None) and (out / MANIFEST).exists():
            command = shlex.join(["tallytree", "verify", str(out)])
            interrupt.add_note(f"{out} is complete, and its budget is spent. Check it with:\n  {command}")
        raise


@contextmanager
def _explain_completeness(out: Path, release_id: str) -> Iterator[None]:
    """Add to an error during the final display, which may read files, that the directory is complete and paid for."""
    try:
        yield
    except BrokenPipeError:  # nobody reads the output, which is not an error
        raise
    except (OSError, MemoryError, ReleaseError) as error:
        why = "out of memory" if isinstance(error, MemoryError) else getattr(error, "strerror", error)
        raise ReleaseError(
            f"the system stopped the command ({why}) after {out} was complete. Its budget is spent. "
            f"Check it with:\n  {shlex.join(_verify_command(out, release_id))}"
        ) from None


def again(options: RunOptions) -> str:
    """Return the command of a run for pasting, without `--resume` and display options."""
    return command_line(replace(options, resume=False, no_report=False, quiet=False))


def run_and_ask(options: RunOptions) -> None:
    """Run a release or a synthesis. If an account does not know the files, ask on a terminal and run again.

    The first run spent and left nothing, so the second run starts from the beginning.
    """
    with note_when_complete(options.out):
        try:
            _run(options)
        except ChangedInput as error:
            error.add_note(_about_changed_files(options))
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            typer.echo(f"{error}", err=True)
            if not typer.confirm("Charge them to the same account?", err=True):
                raise
            _run(replace(options, changed_files=True))


def _run(options: RunOptions) -> None:
    """Run a spec to its directory, then write its report if requested.

    A resumed run was charged before it was interrupted, or is charged now.
    """
    out, made = options.out, None
    kind: type[AnySpec] = ReleaseSpec if isinstance(options, ReleaseOptions) else SynthesisSpec
    spec = kind.load(options.spec)
    with claimed(out), show_progress(options.quiet) as progress:
        run = RunFolder.beside(place_of(out))
        release_id = _finish_complete(run, options) if options.resume else None
        if release_id is None:
            _refuse(run, options)
            if options.resume:
                refuse_changed(run.folder, spec)
            with explain_failures(run, spec.budget, f"Go on with:\n  {again(options)} --resume"):
                refuse_existing(out)
                made, release_id = _make(spec, run, _charge(run, spec, options), options, progress)
            run.finish()
        elif kind is ReleaseSpec:
            made = Release.load(out)
        page = None if options.no_report else report_after(out, lambda: _page(made, out, spec), progress)
    with _explain_completeness(out, release_id):
        if isinstance(options, ReleaseOptions) and options.as_json and isinstance(made, Release):
            screen.show_json(screen.release_content(made, out, release_id, page))
        else:
            _show(made, out, release_id, page, spec, quiet=options.quiet)


def _charge(run: RunFolder, spec: AnySpec, options: RunOptions) -> Charge:
    """Return what pays: for a resumed run the ledger that it started with, unless another one is named."""
    if options.resume and options.ledger is None:
        ledger = run.state().ledger
    else:
        path = spec.ledger_to_charge(options.ledger, without=options.no_ledger)
        ledger = None if path is None else str(path)
    return choose_charge(ledger, same_data=options.same_data, changed_files=options.changed_files)


def _make(
    spec: AnySpec, run: RunFolder, charge: Charge, options: RunOptions, progress: Progress, *, replaces: bool = False
) -> tuple[Release | Synthesis, str]:
    """Write what a spec describes to its directory and return its id."""
    state = run.state()
    if isinstance(spec, ReleaseSpec) and state.stage == "measured":
        made: Release | Synthesis = spec.resume(run, progress)
    else:
        progress(Stage("checking the spec"))
        checked, _ = _check(spec, progress, UNPAID if state.spent else charge)
        if isinstance(checked, CheckedRelease):
            data = checked.group_sizes
            try_names(options.out, file_names(data.hierarchy, data.max_size - data.first_size + 1))
        if not options.resume:  # otherwise it exists, or the folder was removed, which must be detected
            keep_spec(run.folder, spec)
        made = spec.make(checked, charge, run, resume=options.resume, progress=progress)
    progress(Stage("writing"))
    return made, made.save(options.out, replace=replaces, progress=progress)


def _finish_complete(run: RunFolder, options: RunOptions) -> str | None:
    """Return the id of a directory that was complete before its run was interrupted, and record it in the ledger."""
    state, release_id = run.state(), run.id_at(options.out)
    if release_id is None:
        return None
    if state.ledger is not None and state.receipt is not None and state.stage != "finished":
        receipt = Receipt(state.ledger, state.receipt)
        with warn_if_not_recorded(place_of(options.out), receipt):
            receipt.record(release_id)
    run.finish()
    screen.show(
        (f"{options.out} was complete before the run was interrupted; the run is now finished."), quiet=options.quiet
    )
    return release_id


def _refuse(run: RunFolder, options: RunOptions) -> None:
    """Refuse a run that cannot start or resume in the present state, and say what to do."""
    state, out, was_there = run.state(), options.out, os.path.lexists(run.folder)
    if state.stage == "other":
        raise ReleaseError(f"{state.in_words()} Choose another --out, or move {run.folder} away.")
    if state.stage in ("nothing", "finished"):
        run.remove()
        if options.resume:
            found = state.in_words() if was_there else f"{run.folder} does not exist: no run was interrupted."
            if os.path.lexists(out):
                raise ReleaseError(f"{found} {out} is there already: there is nothing to resume.")
            raise ReleaseError(f"{found} Nothing was spent now. There is nothing to resume: leave out --resume.")
    elif state.spent and not options.resume:
        raise ReleaseError(
            f"a run for {out} was interrupted. {state.in_words()}\nGo on with:\n  {again(options)} --resume\n"
            f"or delete {run.folder} to give it up."
        )
    elif state.spent and os.path.lexists(out):
        raise ReleaseError(
            f"{out} is there already, and this run did not write it. {state.in_words()}\nMove {out} away. Go on "
            f"with:\n  {again(options)} --resume"
        )
    if not options.resume:
        run.give_up()


def _about_changed_files(options: RunOptions) -> str:
    """Return the two commands to use if the account does not know the files."""
    return (
        "New data: change `name` in the spec, and give it a total budget with:\n  tallytree ledger open "
        f"{shlex.quote(str(options.spec))} --epsilon TOTAL\nThe same data:\n  {again(options)} --changed-files"
    )


# -------------------------------------------------------------------- what was made


def _page(made: Release | Synthesis | None, out: Path, spec: AnySpec) -> Page:
    """Write the report of a finished directory."""
    if not isinstance(made, Release) or not isinstance(spec, ReleaseSpec):
        return make_synthesis_page(out)
    wanted = spec.report
    where = None if wanted.map is None else spec.folder / wanted.map
    if not made.is_small:  # only its upper levels are read
        return page_of(out, map=where)
    return made.report(map=where, directory=out)


def _show(
    made: Release | Synthesis | None, out: Path, release_id: str, page: Path | None, spec: AnySpec, *, quiet: bool
) -> None:
    """Show a summary of the output and the next commands; with `quiet` only its id."""
    commands = {"Check it:": _verify_command(out, release_id)}
    if isinstance(made, Release):
        screen.show(screen.release_summary(made, out, release_id), quiet=quiet)
        commands["Ask it:"] = _query_command(made, out)
    elif isinstance(made, Synthesis):
        screen.show(screen.synthesis_summary(made, out, release_id), quiet=quiet)
    else:
        screen.show(f"id {release_id}", quiet=quiet)
    screen.show_commands(commands, quiet=quiet)
    if page is not None:
        screen.show(f"\nLook at it: {page}", quiet=quiet)
    if quiet:
        print(release_id)


def _query_command(made: Release, out: Path) -> list[str]:
    """Return a query that this release can answer."""
    levels = made.hierarchy.levels if made.is_small else made.hierarchy.levels[:2]
    command = ["tallytree", "query", str(out), "--level", levels[-1], "--size", ">=3"]
    for column in made.hierarchy.by.columns[:1]:
        command += ["--by", f"{column.name}={column.values[0]}"]
    return command


def _verify_command(out: Path, release_id: str) -> list[str]:
    return ["tallytree", "verify", str(out), "--id", release_id[:16]]


# -------------------------------------------------------------------- the demo


def run_demo(options: DemoOptions) -> None:
    """Create a made-up country, release it and verify the release."""
    out, quiet = options.out, options.quiet
    refuse_existing(out, replace=True)
    with show_progress(quiet) as progress:
        progress(Stage("making up a country"))
        country = make_country(options.data, households=options.households)
        spec = ReleaseSpec.load(country.spec)
        ledger = _demo_ledger(spec)
        with claimed(out):
            run = RunFolder.beside(place_of(out))
            run.remove()  # of an earlier made-up country
            how = ReleaseOptions(spec=country.spec, out=out)
            made, release_id = _make(spec, run, Charge(Ledger(ledger)), how, progress, replaces=True)
            run.finish()
            page = None if options.no_report else report_after(out, lambda: _page(made, out, spec), progress)
        progress(Stage("verifying"))
        verification = verify(out, progress=progress)
    screen.show(
        f"{country.people}: {country.households:,} households, {country.persons:,} persons, made up",
        f"{country.regions}: their states and counties",
        f"{country.spec}: what was released; point it at files of your own",
        f"{country.spec.with_name(ledger.name)}: what was spent, of ε = {DEMO_TOTAL} in all",
        quiet=quiet,
    )
    _show(made, out, release_id, page, spec, quiet=quiet)
    screen.show("", quiet=quiet)
    screen.show(screen.outcome(verification), quiet=quiet and verification.ok)


def _demo_ledger(spec: ReleaseSpec) -> Path:
    """Return a new ledger for the made-up country; like its other files, it replaces that of an earlier run."""
    path, name = spec.account()
    for old in (path, Ledger(path).anchor_path):
        old.unlink(missing_ok=True)
    Ledger(path).open(name, Budget(epsilon=DEMO_TOTAL), spec.neighbours())
    return path


# -------------------------------------------------------------------- reports and exports of what is complete


class NoReport(UserWarning):
    """A release is complete, but its report could not be written."""


def run_report(options: ReportOptions) -> None:
    """Write the report of a directory, into it or elsewhere."""
    directory, out = options.directory, options.out
    if not directory.is_dir():
        raise ReleaseError(f"there is no release directory at {directory}")
    with show_progress(options.quiet) as progress:
        progress(Stage("reading the release"))
        words = {"groups": options.groups, "entities": options.entities}
        page = page_of(directory, map=options.map, progress=progress, **words)
        written = put_report(directory, page.encode()) if out is None else page.save(out)
    show(
        f"{written} ({len(page.encode()) / 1000:,.0f} kB): open it in a browser; it needs no network.",
        quiet=options.quiet,
    )


def page_of(directory: Path, *, map: Path | None, progress: Progress = silent, **words: str | None) -> Page:  # noqa: A002
    """Return the report of a directory's contents."""
    if is_microdata(directory):
        if map is not None:
            raise SpecError("synthetic households have no map; --map is for releases")
        return make_synthesis_page(directory)
    from tallytree.publish.report.release_page import read_release_page

    progress(Stage("making the page"))
    return read_release_page(directory, map=map, **words)


def report_after(directory: Path, made: Callable[[], Page], progress: Progress) -> Path | None:
    """Write the report of a complete directory; any failure is only a warning, since nothing is lost."""
    progress(Stage("making the page"))
    try:
        return put_report(directory, made().encode())
    except Exception as error:  # of public values alone
        why = str(error) if isinstance(error, TallytreeError) else getattr(error, "strerror", None)
        why = (why or type(error).__name__).rstrip(".")
        warnings.warn(
            f"{directory} is complete, but its page {REPORT} could not be written: {why}. "
            f"tallytree report {directory} writes it.",
            NoReport,
            stacklevel=2,
        )
        return None


def run_export(options: ExportOptions) -> None:
    """Write the files into a new directory, all of them or none."""
    from tallytree.publish.formats import FORMATS
    from tallytree.publish.microdata.population import FORMS, population_files

    directory, to = options.directory, options.to
    if to not in (*FORMATS, *FORMS):
        raise SpecError(f"--to: unknown export format {to!r}; {did_you_mean(to, (*FORMATS, *FORMS))}")
    if to in FORMATS and is_microdata(directory):
        raise SpecError(f"{directory} holds synthetic households: --to {' or '.join(FORMS)}")
    target = options.out or directory.resolve().with_name(f"{directory.resolve().name}-{to}")
    names: tuple[str, ...] = ()

    def fill(folder: Path) -> tuple[str, ...]:
        nonlocal names
        names = tuple(path.name for path in population_files(directory, folder, form=to, progress=progress))
        return names

    with show_progress(options.quiet) as progress:
        if to in FORMS:
            write_whole(target, fill)
        else:
            progress(Stage("reading the release"))
            names = Release.load(directory).export(target, to=to, progress=progress)  # type: ignore[arg-type]
    show(f"{target}: {', '.join(names)}", quiet=options.quiet)
