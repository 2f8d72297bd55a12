"""NOT PRIVATE: `audit`, which runs all rows on all processors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from os import cpu_count

from tallytree.core.errors import ReleaseError, SpecError
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
from tallytree.lab.audit.household_rounds import CASES, ROUNDS, audited_round
from tallytree.lab.audit.planted import defects
from tallytree.lab.audit.releases import BUDGETS, Setting, audited, settings
from tallytree.lab.audit.verdicts import CONFIDENCE, Audit, BorderRow, Row
from tallytree.lab.audit.worlds import PEOPLE
from tallytree.lab.workers import Lost, run_all
from tallytree.mechanisms import MECHANISMS, mechanism_named

RUNS, QUICK_RUNS = 10_000, 2_000
ALONE = 10  # runs for each output that needs a whole release or round
COUNTS = 40  # outputs that are estimated too

TRIES = 20  # for each planted defect
BORDER_PAIRS = 2  # for each setting; with a budget in ε, the first is also compared as a whole release
ROUND_PAIRS, PLANTED_PAIRS = 40, 10

# Tasks are sent to other processes, so each is a function of plain values.
Task = Callable[[], Row | BorderRow | list[BorderRow]]


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
    """NOT PRIVATE: return bounds on the real ε and comparisons at the border, or (`planted`) those of planted defects.

    `runs` is the number of outputs on each of two neighbours; if each needs its own release, a tenth of it.
    `mechanisms` restricts the audit to these, without the rounds of synthesis. `quick` does less: fewer runs, private
    totals, one row per person, and no whole releases at the border. All bounds from outputs hold together with the
    confidence. `release` makes a release of a spec, as the command does, in this process.
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
        tasks.append(partial(audit_planted, release, pairs=PLANTED_PAIRS))
    else:
        sampled = _sampled(mechanisms, runs or (QUICK_RUNS if quick else RUNS), confidence, quick=quick)
        tasks = [*sampled, *_at_the_border(mechanisms, release, quick=quick)]
    rows = _run(tasks, jobs or cpu_count() or 1, progress)
    bounds = tuple(row for row in rows if isinstance(row, Row))
    return Audit(bounds, confidence, tuple(row for row in rows if isinstance(row, BorderRow)))


def _sampled(mechanisms: list[str] | None, runs: int, confidence: float, *, quick: bool) -> list[Task]:
    """Return bounds from outputs, with the error divided equally over the rows."""
    chosen = list(settings(mechanisms, quick=quick))
    rounds = [] if mechanisms is not None else [(kind, case) for case in CASES for kind in ROUNDS]
    each = 1 - (1 - confidence) / (len(chosen) + len(rounds))
    tasks: list[Task] = [
        partial(
            audited,
            setting,
            runs=max(100, runs // ALONE) if setting.gadgets == 1 else runs,
            count_runs=max(100, runs // COUNTS) if _counted(setting) else 0,
            command=_commanded(setting, quick=quick),
            confidence=each,
        )
        for setting in chosen
    ]
    return tasks + [partial(audited_round, kind, case, max(100, runs // ALONE), each) for kind, case in rounds]


def _at_the_border(mechanisms: list[str] | None, release: ReleaseFrom, *, quick: bool) -> list[Task]:
    chosen = list(settings(mechanisms, quick=True)) if quick else border_settings(mechanisms)

    def whole(setting: Setting) -> int:
        return 0 if quick or setting.budget != BUDGETS[0] else 1

    tasks: list[Task] = [
        partial(audit_border, setting, pairs=BORDER_PAIRS, published=whole(setting), release=release)
        for setting in chosen
    ]
    if mechanisms is None:
        for unit, structure in product(HOUSEHOLD_UNITS, (BY_POSITION, BY_ATTRIBUTE)):
            tasks.append(partial(audit_rounds, unit, structure, pairs=ROUND_PAIRS))
    return tasks


def _counted(setting: Setting) -> bool:
    """Return whether final counts are audited: not those of solvers, which take long, nor for every setting."""
    usual = setting.kind == PEOPLE and (setting.totals == "public") == MECHANISMS[setting.mechanism].needs_public_totals
    return usual and MECHANISMS[setting.mechanism].most_cells is None and set(setting.options) <= {"totals_share"}


def _commanded(setting: Setting, *, quick: bool) -> bool:
    """Return whether to run it through the command too: once for each mechanism for many regions, under each unit."""
    budget = BUDGETS[0] if setting.unit == "one_entity" else BUDGETS[1]
    named = not quick or setting.mechanism == "tallytree"
    return named and _counted(setting) and setting.budget == budget


def _defect(number: int, confidence: float) -> Row:
    return defects()[number].audited(confidence, TRIES)


class _Auditor:
    """The worker that runs tasks in another process."""

    def prepare(self, task: tuple[int, Task]) -> None:
        """Do nothing: tasks are not timed."""

    def run(self, task: tuple[int, Task]) -> list[Row | BorderRow]:
        """Return the rows of a task."""
        found = task[1]()
        return [*found] if isinstance(found, list) else [found]


def _run(tasks: list[Task], jobs: int, progress: Progress) -> list[Row | BorderRow]:
    """Return the rows of all tasks, in their order."""
    doing = "NOT PRIVATE: auditing"
    progress(Stage(doing, 0, len(tasks)))
    found: dict[int, list[Row | BorderRow]] = {}
    for (number, _), rows in run_all(_Auditor, (), enumerate(tasks), jobs=jobs, limit=None):
        if isinstance(rows, Lost):
            raise ReleaseError(f"an audit could not finish: {rows.message}; the details are above")
        found[number] = rows
        progress(Stage(doing, len(found), len(tasks), about=rows[0].name))
    return [row for number in range(len(tasks)) for row in found[number]]
