"""NOT PRIVATE: `audit`, which runs all rows on all processors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from os import cpu_count

from tallytree.errors import SpecError
from tallytree.evaluate.audit.bounds import CONFIDENCE
from tallytree.evaluate.audit.planted import defects
from tallytree.evaluate.audit.releases import BUDGETS, Setting, audited, settings
from tallytree.evaluate.audit.results import Audit, Row
from tallytree.evaluate.audit.rounds import CASES, ROUNDS, audited_round
from tallytree.evaluate.audit.worlds import PEOPLE
from tallytree.mechanisms import MECHANISMS, mechanism_named
from tallytree.progress import Progress, Stage, silent

RUNS, QUICK_RUNS = 20_000, 2_000
ALONE = 10  # outputs that take a release or a round each: one for so many runs
COUNTS = 20  # outputs that are estimated too

Task = Callable[[], Row]


def audit(
    *,
    mechanisms: list[str] | None = None,
    runs: int | None = None,
    quick: bool = False,
    planted: bool = False,
    confidence: float = CONFIDENCE,
    jobs: int | None = None,
    progress: Progress = silent,
) -> Audit:
    """NOT PRIVATE: lower bounds on the real ε of every mechanism and round, or (`planted`) of planted defects.

    `runs` is the number of outputs on each of two neighbours; where each takes a release of its own, a tenth.
    `mechanisms` leaves others out, and the rounds of synthesis too. `quick` asks for less: fewer runs, private totals,
    one row per person. A bound from outputs is wrong with a chance of 1 − confidence, row by row.
    """
    if runs is not None and runs < 100:
        raise SpecError(f"an audit of {runs} runs shows nothing; give at least 100")
    if not 0.5 <= confidence < 1:
        raise SpecError(f"confidence is {confidence}; expected a number from 0.5 to below 1")
    for name in mechanisms or ():
        if mechanism_named(name).refused:
            raise SpecError(f"{name} cannot be released, so there is no claim to audit")
    if planted:
        tasks: list[Task] = [partial(_defect, number, confidence) for number in range(len(defects()))]
    else:
        tasks = _tasks(mechanisms, runs or (QUICK_RUNS if quick else RUNS), confidence, quick=quick)
    return Audit(tuple(_done(tasks, jobs or cpu_count() or 1, progress)), confidence)


def _tasks(mechanisms: list[str] | None, runs: int, confidence: float, *, quick: bool) -> list[Task]:
    tasks: list[Task] = []
    for setting in settings(mechanisms, quick=quick):
        single = setting.gadgets == 1
        tasks.append(
            partial(
                audited,
                setting,
                runs=max(100, runs // ALONE) if single else runs,
                count_runs=max(100, runs // COUNTS) if _counted(setting) else 0,
                command=_commanded(setting, quick=quick),
                confidence=confidence,
            )
        )
    if mechanisms is None:
        tasks += [
            partial(audited_round, kind, case, max(100, runs // ALONE), confidence) for case in CASES for kind in ROUNDS
        ]
    return tasks


def _counted(setting: Setting) -> bool:
    """Are final counts looked at? Not those of solvers, which take long, nor for every setting."""
    usual = setting.kind == PEOPLE and setting.public_totals == MECHANISMS[setting.mechanism].needs_public_totals
    return usual and MECHANISMS[setting.mechanism].most_cells is None and set(setting.options) <= {"totals_share"}


def _commanded(setting: Setting, *, quick: bool) -> bool:
    """Is it run through the command too? Each mechanism that takes many regions is, under each unit, once."""
    budget = BUDGETS[0] if setting.unit == "one_entity" else BUDGETS[1]
    named = not quick or setting.mechanism == "pgsr-cumulative-dp"
    return named and _counted(setting) and setting.budget == budget


def _defect(number: int, confidence: float) -> Row:
    return defects()[number].audited(confidence)


def _done(tasks: list[Task], jobs: int, progress: Progress) -> list[Row]:
    """The rows of all tasks, in their order."""
    doing = "NOT PRIVATE: auditing"
    progress(Stage(doing, 0, len(tasks)))
    found: dict[int, Row] = {}
    if jobs == 1:
        for number, task in enumerate(tasks):
            found[number] = task()
            progress(Stage(doing, len(found), len(tasks), about=found[number].name))
        return list(found.values())
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(_run, task): number for number, task in enumerate(tasks)}
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            progress(Stage(doing, len(found), len(tasks), about=found[futures[future]].name))
    return [found[number] for number in range(len(tasks))]


def _run(task: Task) -> Row:
    return task()
