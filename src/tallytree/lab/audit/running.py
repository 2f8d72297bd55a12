"""NOT PRIVATE: `audit`, which runs all rows on all processors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import product
from multiprocessing import get_context
from os import cpu_count
from typing import Any

from tallytree.core.errors import SpecError
from tallytree.core.progress import Progress, Stage, silent
from tallytree.lab.audit.border import (
    BY_ATTRIBUTE,
    BY_POSITION,
    HOUSEHOLD_UNITS,
    ReleaseFrom,
    audit_border,
    audit_planted,
    audit_rounds,
    border_settings,
)
from tallytree.lab.audit.bounds import CONFIDENCE
from tallytree.lab.audit.planted import defects
from tallytree.lab.audit.releases import BUDGETS, Setting, audited, settings
from tallytree.lab.audit.results import Audit, BorderRow, Row
from tallytree.lab.audit.rounds import CASES, ROUNDS, Case, audited_round
from tallytree.lab.audit.worlds import PEOPLE
from tallytree.mechanisms import MECHANISMS, mechanism_named
from tallytree.privacy.neighbours import HouseholdUnitKind

RUNS, QUICK_RUNS = 10_000, 2_000
ALONE = 10  # outputs that take a release or a round each: one for so many runs
COUNTS = 40  # outputs that are estimated too

TRIES = 20  # of each planted defect
BORDER_PAIRS = 2  # of each setting; the first of those with a budget in ε is compared as whole releases too
ROUND_PAIRS, PLANTED_PAIRS = 40, 10

Rows = list[Row | BorderRow]
Task = Callable[[], Rows]


def audit(
    *,
    mechanisms: list[str] | None = None,
    runs: int | None = None,
    quick: bool = False,
    planted: bool = False,
    confidence: float = CONFIDENCE,
    jobs: int | None = None,
    progress: Progress = silent,
    release: ReleaseFrom,
) -> Audit:
    """NOT PRIVATE: bounds on the real ε and comparisons at the border, or (`planted`) the same of planted defects.

    `runs` is the number of outputs on each of two neighbours; where each takes a release of its own, a tenth.
    `mechanisms` leaves others out, and the rounds of synthesis too. `quick` asks for less: fewer runs, private totals,
    one row per person, and no whole releases at the border. All bounds from outputs hold together with the confidence.
    `release` makes a release of a spec, as the command does, in this process.
    """
    if runs is not None and runs < 100:
        raise SpecError(f"an audit of {runs} runs shows nothing; give at least 100")
    if not 0.5 <= confidence < 1:
        raise SpecError(f"confidence is {confidence}; expected a number from 0.5 to below 1")
    for name in mechanisms or ():
        if mechanism_named(name).refused:
            raise SpecError(f"{name} cannot be released, so there is no claim to audit")
    if planted:
        number = len(defects())
        each = 1 - (1 - confidence) / (number * TRIES)
        tasks: list[Task] = [partial(_defect, place, each) for place in range(number)]
        tasks.append(partial(_planted_at_the_border, release))
    else:
        sampled = _sampled(mechanisms, runs or (QUICK_RUNS if quick else RUNS), confidence, quick=quick)
        tasks = [*sampled, *_at_the_border(mechanisms, release, quick=quick)]
    rows = _done(tasks, jobs or cpu_count() or 1, progress)
    bounds = tuple(row for row in rows if isinstance(row, Row))
    return Audit(bounds, confidence, tuple(row for row in rows if isinstance(row, BorderRow)))


def _sampled(mechanisms: list[str] | None, runs: int, confidence: float, *, quick: bool) -> list[Task]:
    """Bounds from outputs, with the error divided equally over the rows."""
    chosen = list(settings(mechanisms, quick=quick))
    rounds = [] if mechanisms is not None else [(kind, case) for case in CASES for kind in ROUNDS]
    each = 1 - (1 - confidence) / (len(chosen) + len(rounds))
    tasks: list[Task] = [
        partial(
            _audited,
            setting,
            runs=max(100, runs // ALONE) if setting.gadgets == 1 else runs,
            count_runs=max(100, runs // COUNTS) if _counted(setting) else 0,
            command=_commanded(setting, quick=quick),
            confidence=each,
        )
        for setting in chosen
    ]
    return tasks + [partial(_round, kind, case, max(100, runs // ALONE), each) for kind, case in rounds]


def _at_the_border(mechanisms: list[str] | None, release: ReleaseFrom, *, quick: bool) -> list[Task]:
    chosen = list(settings(mechanisms, quick=True)) if quick else border_settings(mechanisms)

    def whole(setting: Setting) -> int:
        return 0 if quick or setting.budget != BUDGETS[0] else 1

    tasks: list[Task] = [
        partial(_compared, setting, pairs=BORDER_PAIRS, published=whole(setting), release=release) for setting in chosen
    ]
    if mechanisms is None:
        for unit, structure in product(HOUSEHOLD_UNITS, (BY_POSITION, BY_ATTRIBUTE)):
            tasks.append(partial(_compared_rounds, unit, structure is BY_ATTRIBUTE))
    return tasks


def _counted(setting: Setting) -> bool:
    """Are final counts looked at? Not those of solvers, which take long, nor for every setting."""
    usual = setting.kind == PEOPLE and (setting.totals == "public") == MECHANISMS[setting.mechanism].needs_public_totals
    return usual and MECHANISMS[setting.mechanism].most_cells is None and set(setting.options) <= {"totals_share"}


def _commanded(setting: Setting, *, quick: bool) -> bool:
    """Is it run through the command too? Each mechanism that takes many regions is, under each unit, once."""
    budget = BUDGETS[0] if setting.unit == "one_entity" else BUDGETS[1]
    named = not quick or setting.mechanism == "tallytree"
    return named and _counted(setting) and setting.budget == budget


# Tasks are sent to other processes, so each is a function of plain values.


def _audited(setting: Setting, **how: Any) -> Rows:
    return [audited(setting, **how)]


def _round(kind: str, case: Case, runs: int, confidence: float) -> Rows:
    return [audited_round(kind, case, runs, confidence)]


def _compared(setting: Setting, **how: Any) -> Rows:
    return [audit_border(setting, **how)]


def _compared_rounds(unit: HouseholdUnitKind, by_attribute: bool) -> Rows:
    return [audit_rounds(unit, BY_ATTRIBUTE if by_attribute else BY_POSITION, pairs=ROUND_PAIRS)]


def _defect(number: int, confidence: float) -> Rows:
    return [defects()[number].audited(confidence, TRIES)]


def _planted_at_the_border(release: ReleaseFrom) -> Rows:
    return [*audit_planted(release, pairs=PLANTED_PAIRS)]


def _done(tasks: list[Task], jobs: int, progress: Progress) -> Rows:
    """The rows of all tasks, in their order."""
    doing = "NOT PRIVATE: auditing"
    progress(Stage(doing, 0, len(tasks)))
    found: dict[int, Rows] = {}
    if jobs == 1:
        for number, task in enumerate(tasks):
            found[number] = task()
            progress(Stage(doing, len(found), len(tasks), about=found[number][0].name))
        return [row for rows in found.values() for row in rows]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(_run, task): number for number, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                found[futures[future]] = future.result()
                progress(Stage(doing, len(found), len(tasks), about=found[futures[future]][0].name))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [row for number in range(len(tasks)) for row in found[number]]


def _run(task: Task) -> Rows:
    return task()
