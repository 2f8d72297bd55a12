"""`plan`: predicted errors of a budget, level by level, before anything is spent; and the choice of `auto` by
predictions.

Predictions use public facts alone: the hierarchy, the sizes, the unit, the budget, totals if they are public, and a
public prior. Errors are predicted by simulation, and widths of guaranteed intervals exactly (`simulation`). Charts need
the extra `plots`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, get_args

import numpy as np

from tallytree.core import display
from tallytree.core.arguments import MAPPING, TEXT, WHOLE, expecting, instance, optional, several, told
from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import BudgetError, SpecError
from tallytree.core.names import shortened, visible
from tallytree.core.progress import Progress, Stage, silent
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.interval import checked_level
from tallytree.mechanisms import MECHANISMS, Mechanism, choose, mechanism_named, noise_ratio
from tallytree.mechanisms.budget_allocation import Priority, Shares, choose_shares, level_shares
from tallytree.mechanisms.noise_choice import noise_in_words
from tallytree.mechanisms.tallytree import FIRST_SHARE
from tallytree.planning.goals import Suggestion, suggest
from tallytree.planning.prior import ExpectedCounts, Prior, sum_up
from tallytree.planning.simulation import (
    REPLICATES,
    Effort,
    Prediction,
    PublicFacts,
    Scenario,
    half_widths,
    name_levels,
    simulate_releases,
)
from tallytree.privacy.budget import Budget, as_decimal
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit
from tallytree.privacy.plan import Plan
from tallytree.privacy.relations import describe_relation

MOST_PLANNED = 10**10  # limit for a planned release, regions × sizes
MOST_REPLICATES = 100_000
AUTO_MOST_CELLS, AUTO_CELLS_IN_ALL, AUTO_REPLICATES = 20_000, 80_000, (4, 20)  # the same for the choice of auto
AUTO_CANDIDATES = ("tallytree", "joint-cumulative", "joint-counts", "pgsr-hierarchical-dp", "coc-matching", "bottom-up")
EVERY = "all"  # in place of names: every mechanism that a plan can simulate
TOO_NOISY = 4  # times the noise of the better view, from which a mechanism that measures the other is not simulated
TOLD: tuple[dict[str, Any], ...] = ({"leaves": "at_least"}, {"leaves": "lists", "totals_share": FIRST_SHARE})  # by it
LEAST_STANDARD_ERRORS = 3  # by which a mechanism must be better than the usual one to replace it
MANY_GROUPS = 1000  # a half-width that is called large if the number of groups is unknown
LEAST_GAIN = 0.02  # and by this part of the error
AS_GIVEN = "as given"  # the name of shares that the user gave
USUAL_SPLIT = "balanced"
TIMES = (Fraction(1, 4), Fraction(1, 2), Fraction(2), Fraction(4))  # a chart's other budgets, relative to this
RATIOS = (4, 2, 1, 0.5, 0.25)  # of a level's share to the next one's
DRAWN_CELLS = 100_000  # simulated regions × sizes: charts have many budgets and splits
BANDS = "bands"  # the name of an allocation by size bands
USELESS = 0.5  # of a region's number of groups: intervals that reach further are useless
MOST_EMPTY = 0.1  # of the regions with groups may be published as 0
LEAST_SHOWN = 0.01  # entities to move, on a logarithmic axis


@dataclass(frozen=True, eq=False)
class PlanReport:
    """Compare predictions for every mechanism, split, budget and level; everything in it is public."""

    facts: PublicFacts
    prior: str  # in words
    confidence: float  # of the intervals
    replicates: int
    predictions: tuple[Prediction, ...]
    skipped: Mapping[str, str]  # skipped mechanisms, with the reason
    notes: tuple[str, ...]
    expected: ExpectedCounts | None = None  # what the prior expects of this hierarchy

    @property
    def hierarchy(self) -> Hierarchy:
        """Return the regions."""
        return self.facts.hierarchy

    @cached_property
    def budgets(self) -> tuple[Budget, ...]:
        """Return the budgets that were tried."""
        return tuple(dict.fromkeys(one.budget for one in self.predictions))

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """Return the names of the splits of the budget over the levels."""
        return tuple(dict.fromkeys(one.split for one in self.predictions))

    @property
    def levels(self) -> tuple[str, ...]:
        """Return the levels of the predictions; with categories also those of the regions over all categories."""
        return tuple(dict.fromkeys(one.level for one in self.predictions))

    def of(self, *, budget: Budget | None = None, split: str | None = None) -> tuple[Prediction, ...]:
        """Return the predictions for a budget and a split.

        Parameters
        ----------
        budget : Budget, optional
            The budget. The default is the first.
        split : str, optional
            The name of the split. All by default.

        Returns
        -------
        tuple of Prediction
            The predictions.
        """
        wanted = self.budgets[0] if budget is None else budget
        return tuple(one for one in self.predictions if one.budget == wanted and split in (None, one.split))

    def in_tree(self) -> tuple[Prediction, ...]:
        """Return the predictions for the hierarchy's own levels, without those over all categories."""
        return tuple(one for one in self.predictions if one.depth < self.hierarchy.depth)

    def best(self, level: str, *, budget: Budget | None = None, split: str | None = None) -> Prediction:
        """Return the prediction with the smallest earth mover's distance on a level.

        Parameters
        ----------
        level : str
            The name of the level.
        budget : Budget, optional
            The budget. The default is the first.
        split : str, optional
            The name of the split. All by default.

        Returns
        -------
        Prediction
            The prediction.

        Raises
        ------
        SpecError
            If there is no such level.
        """
        if level not in self.levels:
            raise SpecError(f"there is no level {level!r}; there are {', '.join(self.levels)}")
        return min((one for one in self.of(budget=budget, split=split) if one.level == level), key=lambda one: one.emd)

    def suggest(
        self, goals: str | Sequence[str], *, budget: Budget | None = None, mechanism: str = "auto"
    ) -> Suggestion:
        """Suggest shares that meet goals, or the budget that it would take.

        Parameters
        ----------
        goals : str or list of str
            Goals such as "county within 20 at 95%".
        budget : Budget, optional
            The budget. The default is the first.
        mechanism : str, default "auto"
            The mechanism.

        Returns
        -------
        Suggestion
            The shares or the budget; its `toml` can be pasted into a spec.
        """
        wanted = self.budgets[0] if budget is None else budget
        return suggest(self.facts, wanted, goals, mechanism=mechanism, expected=self.expected)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each budget and level whose counts are expected to be useless, with the reason."""
        if self.expected is None:
            return ()
        usual, names = choose("auto", self.facts.neighbours).name, {one.mechanism for one in self.predictions}
        of_one = [one for one in self.in_tree() if one.mechanism == (usual if usual in names else min(names))]
        split = USUAL_SPLIT if any(one.split == USUAL_SPLIT for one in of_one) else of_one[0].split
        groups, found = sum_up(self.hierarchy, self.expected.totals), list[str]()
        for budget in self.budgets:
            rows = [one for one in of_one if (one.split, one.budget) == (split, budget)]
            reach, as_none = [one.reach for one in rows], [one.published_as_none for one in rows]
            found += _useless_levels(self.hierarchy, budget, groups, reach, as_none)
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "levels": list(self.levels),
            "prior": self.prior,
            "confidence": self.confidence,
            "replicates": self.replicates,
            "notes": list(self.notes),
            "skipped": dict(self.skipped),
            "warnings": list(self.warnings),
            "predictions": [{**one.plain(), "budget": one.budget.to_json()} for one in self.predictions],
        }

    def table(self) -> Any:
        """Return the predictions as a pyarrow Table, one row for each mechanism, split, budget and level."""
        import pyarrow as pa

        return pa.Table.from_pylist([one.plain() for one in self.predictions])

    def __repr__(self) -> str:
        mechanisms = len({one.mechanism for one in self.predictions})
        tree = repr(self.hierarchy).removeprefix("Hierarchy(").removesuffix(")")
        budgets = " | ".join(map(str, self.budgets))
        tried = (
            f"{mechanisms} mechanisms × {len(self.splits)} splits × {len(self.budgets)} budgets ({shortened(budgets)})"
        )
        return f"PlanReport({tree}, expecting {visible(shortened(self.prior))}, {tried})"

    def _repr_html_(self) -> str:
        best = [self.best(level, budget=budget) for budget in self.budgets for level in self.levels]
        rows = [
            (
                str(one.budget),
                one.level,
                one.mechanism,
                one.split,
                f"{one.emd:,.1f} ± {one.emd_standard_error:,.1f}",
                "none" if one.reach is None else f"± {one.reach:,.0f}",
                "none" if one.half_width is None else f"± {one.half_width:,.1f}",
            )
            for one in best
        ]
        percent = f"{100 * self.confidence:g} %"
        widths = f"reach at {percent}, for data like the prior", f"guaranteed half-width at {percent}, for any data"
        headers = ("budget", "level", "best mechanism", "split", "entities to move per region", *widths)
        facts = {
            "expecting": self.prior,
            "protects": describe_relation(self.facts.neighbours),
            "simulated": f"{self.replicates} times; ± in the table of errors is the standard error of that",
        }
        title = "What a budget allows: predicted from public facts; nothing was spent"
        found = display.table(headers, rows, right=(4, 5, 6), rest="table() has all of them")
        notes = (display.paragraph(note) for note in (*self.warnings, *self.notes))
        return display.page(title, facts, found, display.inline(self._chart), *notes)

    def _chart(self) -> Any:
        """Return a chart of predicted errors with one split, including mechanisms without splits."""
        split = USUAL_SPLIT if USUAL_SPLIT in self.splits else self.splits[0]
        splits: dict[str, set[str]] = {}
        for one in self.predictions:
            splits.setdefault(one.mechanism, set()).add(one.split)
        shown = [one for one in self.predictions if one.split == split or len(splits[one.mechanism]) < len(self.splits)]
        return display.styled(against_budget(shown), subtitle_color="#5b6770", legend_columns=3)


@expecting(
    hierarchy=instance(Hierarchy),
    groups=optional(WHOLE),
    mechanisms=optional(several(TEXT)),
    splits=optional(MAPPING),
)
def plan(
    hierarchy: Hierarchy,
    *,
    max_size: int,
    budget: Budget | Sequence[Budget],
    unit: PrivacyUnit,
    prior: Any,
    totals: Mapping[str, int] | Sequence[int] | Integers | None = None,
    groups: int | None = None,
    quantity_bound: int = 1,
    rows_per_entity: int = 1,
    mechanisms: Sequence[str] | None = None,
    splits: Mapping[str, Shares] | None = None,
    confidence: float = 0.95,
    replicates: int | None = None,
    progress: Progress = silent,
) -> PlanReport:
    """Predict the errors of a release for every mechanism and several splits of the budget.

    It uses public facts only and spends nothing.

    Parameters
    ----------
    hierarchy : Hierarchy
        The public tree of regions.
    max_size : int
        The largest size that will be counted separately.
    budget : Budget or list of Budget
        The budget of the release, or several to compare.
    unit : PrivacyUnit
        Whom the release will protect: `one_entity()` or `one_group()`.
    prior : str, path, table, Release or Prior
        What may be expected: a shape ("households", "heavy-tail", "uniform"), an older public table (columns region,
        size, count) or its path, an earlier `Release`, or a `Prior`.
    totals : mapping or list of int, optional
        The public number of groups in each leaf, by id or in order.
    groups : int, optional
        How many groups to expect in all, if neither `totals` nor the prior says it.
    quantity_bound : int, default 1
        The largest quantity that one row may have.
    rows_per_entity : int, default 1
        The largest number of rows that one entity may have.
    mechanisms : list of str, optional
        The mechanisms to compare, or "all". The default is those that `auto` chooses from.
    splits : mapping, optional
        Shares of the levels by a name for each split. The three priorities by default.
    confidence : float, default 0.95
        The level of the intervals.
    replicates : int, optional
        How many simulations each prediction is the mean of. The default is 3 to 25, by the size of the tree.
    progress : callable, optional
        A function that is called with each step of the work.

    Returns
    -------
    PlanReport
        The predictions. `PlanReport.best` finds the smallest error, `PlanReport.suggest` shares that meet a goal.

    Raises
    ------
    SpecError
        If an argument is wrong.

    Examples
    --------
    >>> counties = tt.Hierarchy.from_levels({"county": ["X", "Y"]}, ["county"])
    >>> expected = {"prior": "households", "groups": 1000, "mechanisms": ["tallytree"], "replicates": 2}
    >>> report = tt.plan(counties, max_size=3, budget=tt.Budget(epsilon=1), unit=tt.one_entity(), **expected)
    >>> report.best("county").mechanism
    'tallytree'
    """
    leaf_totals = None if totals is None else _leaf_totals(hierarchy, totals)
    neighbours = Neighbours(
        unit, max_size, leaf_totals is not None, quantity_bound=quantity_bound, rows_per_entity=rows_per_entity
    )
    facts = PublicFacts(hierarchy, neighbours, leaf_totals)
    budgets = [Budget.of(one) for one in ([budget] if isinstance(budget, Budget | Mapping) else _listed(budget))]
    if replicates is None:
        effort = None
    elif isinstance(replicates, bool) or not isinstance(replicates, int) or not 2 <= replicates <= MOST_REPLICATES:
        raise SpecError(
            f"replicates={told(replicates)}; expected an integer from 2 to {MOST_REPLICATES:,}, for standard errors"
        )
    else:
        effort = Effort(replicates)
    alternatives = Alternatives(mechanisms, splits=splits)
    how: dict[str, Any] = {"confidence": confidence, "effort": effort, "progress": progress}
    return predict_errors(facts, Prior.of(prior, groups=groups), budgets, alternatives, **how)


def _listed(budgets: Any) -> Sequence[Budget]:
    return budgets if isinstance(budgets, Sequence) and not isinstance(budgets, str | bytes) else [budgets]


@dataclass(frozen=True)
class Alternatives:
    """What a plan compares: mechanisms by name with options, and splits by name.

    Without names it compares the mechanisms that `auto` chooses from.
    """

    mechanisms: Sequence[str] | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    splits: Mapping[str, Shares | None] | None = None  # the priorities if None

    @property
    def named(self) -> Sequence[str]:
        """Return the mechanisms that were named one by one, by alias too; an error about them is raised."""
        return () if self.mechanisms is None or EVERY in self.mechanisms else self.mechanisms

    def candidates(self, neighbours: Neighbours) -> tuple[list[str], dict[str, str]]:
        """Return the mechanisms to try, and why others are skipped: they take long or are never released."""
        if self.named:
            return [name for name in dict.fromkeys(self.named) if mechanism_named(name)], {}
        compared = list_candidates(neighbours) if self.mechanisms is None else MECHANISMS
        why = {
            name: f"never released: {one.refused}" if one.refused else one.unplanned or _left_out(name, compared)
            for name, one in MECHANISMS.items()
        }
        return [name for name, text in why.items() if not text], {name: text for name, text in why.items() if text}


def _left_out(name: str, compared: Iterable[str]) -> str:
    return "" if name in compared else "auto does not choose it here; name it to include it"


def list_candidates(neighbours: Neighbours) -> list[str]:
    """Return the mechanisms that `auto` chooses from: the usual one first, without those that are far too noisy.

    Simulating a mechanism takes time, most of it on the first run, which compiles its kernels. So a mechanism is left
    out if its view has more than `TOO_NOISY` times the noise of the other view (`noise_ratio`).
    """
    usual, ratio = choose("auto", neighbours).name, noise_ratio(neighbours)
    noisy = "counts" if ratio > TOO_NOISY else "at_least" if ratio * TOO_NOISY < 1 else None
    others = [name for name in AUTO_CANDIDATES if MECHANISMS[name].view != noisy]
    return list(dict.fromkeys([usual, *others]))


def predict_errors(
    facts: PublicFacts,
    prior: Prior,
    budgets: Sequence[Budget],
    alternatives: Alternatives = Alternatives(),  # noqa: B008  # it is frozen
    *,
    confidence: float = 0.95,
    effort: Effort | None = None,
    progress: Progress = silent,
) -> PlanReport:
    """Run `plan` for known public facts."""
    hierarchy, neighbours = facts.hierarchy, facts.neighbours
    if len(hierarchy) * neighbours.max_size > MOST_PLANNED:
        cells = f"{len(hierarchy):,} regions with {told(neighbours.max_size)} sizes"
        raise SpecError(f"max_size is too large to plan with: {cells}, and a plan takes {MOST_PLANNED:,} cells at most")
    if not budgets:
        raise SpecError("no budget to plan with")
    checked_level(confidence)
    effort = effort or Effort.usual(facts)
    expected = facts.expect(prior)
    rows, skipped, branches = _scenarios(facts, budgets, alternatives, expected)
    scenarios = [scenario for scenario, _, _ in rows]
    found = simulate_releases(expected, neighbours, scenarios, effort, confidence=confidence, progress=progress)
    notes = [*expected.notes, *branches]
    if len(found.tree) < len(hierarchy):
        most = int(np.diff(found.tree.child_starts).max())
        notes.append(
            f"simulated on {len(found.tree):,} of {len(hierarchy):,} regions: at most {most} children of each, "
            "small and large ones. Errors of the top levels are then somewhat too small where budgets favour leaves"
        )
    progress(Stage("widths of intervals"))
    predictions: list[Prediction] = []
    for number, (scenario, split, likely) in enumerate(rows):
        widths = half_widths(hierarchy, neighbours, likely, confidence=confidence) or ()
        spent = _spent(likely, hierarchy, neighbours.max_size)
        for depth, level in enumerate(name_levels(hierarchy)):
            errors = (*_mean(found.l1[number, :, depth]), *_mean(found.emd[number, :, depth]))
            about = scenario.mechanism.name, split, spent, scenario.asked or scenario.budget, level, depth
            width = widths[depth] if depth < len(widths) else None
            parts = (found.reach, found.published_as_none, found.within_5_percent)
            predictions.append(Prediction(*about, *errors, width, *(float(one[number, depth]) for one in parts)))
    about_all = prior.source, confidence, effort.replicates
    return PlanReport(facts, *about_all, tuple(predictions), skipped, tuple(notes), expected)


Row = tuple[Scenario, str, Plan]  # with the name of the split, and the plan that is likely


def _scenarios(
    facts: PublicFacts, budgets: Sequence[Budget], alternatives: Alternatives, expected: ExpectedCounts
) -> tuple[list[Row], dict[str, str], list[str]]:
    """Return every mechanism with every budget and split, skipped ones with reasons, and notes on adaptive plans."""
    splits = {
        name: None if shares is None else level_shares(facts.hierarchy, shares, some_without=True)
        for name, shares in (alternatives.splits or list_splits(facts.hierarchy, None)).items()
    }
    names, skipped = alternatives.candidates(facts.neighbours)
    rows: list[Row] = []
    branches: dict[str, None] = {}
    noises: dict[Budget, str] = {}
    for name in names:
        row = mechanism_named(name)
        given = alternatives.options.get(row.name) or {}
        try:
            own = _list_divisions(row.configured(given), splits)
            for budget, (split, (shares, priority)) in product(budgets, own.items()):
                scenario, asked = facts.prepare(name, budget, given, shares=shares, priority=priority)
                rows.append((scenario, split, _choose_likely_branch(asked, expected)))
                if asked.branch_rule is not None:
                    branches[_describe_branch(scenario.mechanism, rows[-1][2])] = None
                if budget not in noises and (why := noise_in_words(rows[-1][2], facts.neighbours, facts.hierarchy)):
                    noises[budget] = f"{name} with ε = {as_decimal(budget.epsilon or asked.budget.amount)}: {why}"
        except (SpecError, BudgetError) as error:
            if given or alternatives.named:
                raise
            skipped[name] = str(error)
    if not rows:
        raise SpecError("no mechanism can be released on such data: " + "; ".join(skipped.values()))
    return rows, skipped, [*branches, *noises.values()]


def find_useless_levels(
    facts: PublicFacts, scenario: Scenario, plan: Plan, *, prior: Prior | None, confidence: float
) -> list[str]:
    """Return a sentence for each level whose counts will be useless, with the reason, before anything is spent.

    It uses simulation with a prior; otherwise half-widths and public totals. If neither is known, it names counts that
    are small compared with the noise.
    """
    hierarchy, budget = facts.hierarchy, scenario.budget
    if prior is not None:
        expected, effort = facts.expect(prior), Effort(REPLICATES[0], AUTO_MOST_CELLS)
        found = simulate_releases(expected, facts.neighbours, [scenario], effort, confidence=confidence)
        groups, reach, as_none = sum_up(hierarchy, expected.totals), found.reach[0], found.published_as_none[0]
    else:
        widths = half_widths(hierarchy, facts.neighbours, plan, confidence=confidence)
        if widths is None:
            return []
        if facts.totals is None:
            small = f"regions with fewer than about {2 * widths[-1]:,.0f} groups will be published as mostly noise"
            return [f"{budget} is a small budget: {small}, many of them as 0"] if widths[-1] >= MANY_GROUPS else []
        groups, reach, as_none = facts.totals.astype(np.float64), np.array(widths), np.zeros(len(widths))
    return _useless_levels(hierarchy, budget, groups, reach.tolist(), as_none.tolist())


def _useless_levels(
    hierarchy: Hierarchy, budget: Budget, groups: Floats, reach: Sequence[float | None], as_none: Sequence[float]
) -> list[str]:
    """Return why counts will be useless, level by level; `groups` are the expected groups of all regions.

    `as_none` is the part of a level's regions with groups whose published counts are all 0.
    """
    found = []
    for level, name in enumerate(hierarchy.levels):
        rows, why, most = groups[hierarchy.level_slice(level)], [], reach[level]
        there, mean = int(np.count_nonzero(rows > 0)), float(rows.mean())
        if most is not None and most >= USELESS * mean:
            why.append(f"a region has about {mean:,.0f} groups, and intervals of single counts reach ± {most:,.0f}")
        if as_none[level] >= MOST_EMPTY and (empty := round(as_none[level] * there)):
            why.append(f"{empty:,} of {there:,} regions with groups will be published as 0")
        if why:
            text = f"the counts of level {visible(name)!r} will be useless with {budget}: {'; '.join(why)}"
            found.append(f"{text}. Take a larger budget, larger regions or fewer levels")
    return found


def list_splits(hierarchy: Hierarchy, shares: Shares | None) -> dict[str, Shares | None]:
    """Return the splits that are usually compared: the given shares, if any, and each priority.

    A priority has no shares of its own (None): each mechanism chooses its allocation.
    """
    usual: dict[str, Shares | None] = dict.fromkeys(get_args(Priority))
    return usual if shares is None else {AS_GIVEN: level_shares(hierarchy, shares, some_without=True), **usual}


def _list_divisions(
    mechanism: Mechanism, splits: Mapping[str, Shares | None]
) -> dict[str, tuple[Shares | None, str | None]]:
    """Return the shares or the priority for the name of each split that a mechanism is predicted with.

    A mechanism that measures only leaves does not depend on the split, and is listed with the last one. Size bands
    define their own allocation once; shares given with them are left to `prepare`, which refuses them as a release
    would.
    """
    if mechanism.leaves_only:
        return {list(splits)[-1]: (None, None)}
    given: dict[str, tuple[Shares | None, str | None]] = {
        split: (shares, None) for split, shares in splits.items() if shares is not None
    }
    if mechanism.divides_itself:
        return given or {BANDS: (None, None)}
    return {split: given.get(split, (None, split)) for split in splits}


def choose_by_prediction(
    facts: PublicFacts,
    prior: Prior,
    budget: Budget,
    *,
    shares: Shares | None = None,
    priority: str | None = None,
    progress: Progress = silent,
) -> Mechanism:
    """Return the mechanism that `auto` takes with a public prior: the one with the smallest predicted error.

    The error of a mechanism is the geometric mean over the levels of its earth mover's error, weighted by the levels'
    shares of the budget. The usual choice (`choose`) stays unless another is better by `LEAST_STANDARD_ERRORS` and
    `LEAST_GAIN`. Private data play no part in it, so it costs no privacy. If mechanisms are nearly equal, chance
    decides.
    """
    usual = choose("auto", facts.neighbours)
    parts = level_shares(facts.hierarchy, choose_shares(facts.hierarchy, shares, priority), some_without=True)
    scenarios: list[Scenario] = []
    by: dict[str, Any] = {"shares": shares, "priority": priority}
    for name in list_candidates(facts.neighbours):
        if MECHANISMS[name].leaves_only and priority != "leaves":
            continue
        try:
            chosen, asked = facts.prepare(name, budget, **by)
            told = [] if asked.branch_rule is None else [facts.prepare(name, budget, way, **by)[0] for way in TOLD]
        except (SpecError, BudgetError):
            continue
        scenarios += [chosen, *told]
    effort = Effort.usual(facts, AUTO_MOST_CELLS, AUTO_CELLS_IN_ALL, AUTO_REPLICATES)
    found = simulate_releases(facts.expect(prior), facts.neighbours, scenarios, effort, progress=progress)
    weights = np.array([float(part) for part in parts])
    errors = found.emd[:, :, : len(weights)] + 1  # plus 1, so that an error of 0 does not decide
    scores = np.log(errors) @ weights  # [scenarios, replicates]
    best, least = usual, -LEAST_GAIN
    for number, scenario in enumerate(scenarios[1:], start=1):
        gain, error = _mean(scores[number] - scores[0])
        if gain + LEAST_STANDARD_ERRORS * error < 0 and gain < least:
            best, least = scenario.mechanism, gain
    return best


def _leaf_totals(hierarchy: Hierarchy, totals: Mapping[str, int] | Sequence[int] | Integers) -> Integers:
    first = int(hierarchy.level_starts[-2])
    ids = hierarchy.ids[first:]
    if isinstance(totals, Mapping):
        missing = [region for region in ids if region not in totals]
        if missing:
            raise SpecError(f"totals lack {len(missing):,} of {len(ids):,} leaves, {missing[0]!r} among them")
        totals = [totals[region] for region in ids]
    found = np.asarray(totals)
    if found.shape != (len(ids),) or not np.issubdtype(found.dtype, np.integer) or np.any(found < 0):
        raise SpecError(f"totals must be {len(ids):,} integers of at least 0, one for each leaf")
    return found.astype(np.int64)


def _choose_likely_branch(plan: Plan, expected: ExpectedCounts) -> Plan:
    """Return the branch that a plan chooses if totals are as the prior says; or the plan itself."""
    if plan.branch_rule is None:
        return plan
    return plan.branch(below=bool(expected.totals.mean() < float(plan.branch_rule.fewer_than)))


def _describe_branch(chosen: Mechanism, likely: Plan) -> str:
    lists = any(query.view == "sorted_sizes" for query in likely.queries)
    return (
        f"{chosen.name} first measures the number of groups in every leaf, and with such data then most likely "
        f"{'lists of sizes' if lists else 'at_least counts'}: widths and shares are those, and errors are those of "
        "what each simulation took"
    )


def _spent(plan: Plan, hierarchy: Hierarchy, max_size: int) -> tuple[Fraction, ...]:
    """What each level gets of the budget, for all its queries; where bands divide it, the mean over the sizes."""
    spent = [Fraction(0)] * hierarchy.depth
    for query in plan.queries:
        band = query.sizes
        spent[query.level] += query.share * (1 if band is None else Fraction(band.last - band.first + 1, max_size))
    return tuple(spent)


def _mean(values: Floats) -> tuple[float, float]:
    """Return the mean and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


# -------------------------------------------------------------------- charts


def draw_plan(
    facts: PublicFacts,
    prior: Prior,
    budget: Budget,
    *,
    mechanisms: Sequence[str] | None = None,
    progress: Progress = silent,
) -> Any:
    """Draw error against the budget, and the trade between levels, as one Altair chart from new simulations."""
    alt, hierarchy = display.altair(), facts.hierarchy
    how: dict[str, Any] = {"effort": Effort.usual(facts, DRAWN_CELLS), "progress": progress}
    even = Alternatives(mechanisms, splits={USUAL_SPLIT: level_shares(hierarchy, None)})
    pictures = [against_budget(predict_errors(facts, prior, vary_budget(budget), even, **how).in_tree())]
    if hierarchy.depth > 1:
        splits: dict[str, Shares | None] = {
            f"{ratio:g}:1" if ratio >= 1 else f"1:{1 / ratio:g}": level_shares(
                hierarchy, [Fraction(1 / ratio) ** level for level in range(hierarchy.depth)]
            )
            for ratio in RATIOS
        }
        pictures.append(
            trade(predict_errors(facts, prior, [budget], Alternatives(mechanisms, splits=splits), **how).in_tree())
        )
    title = display.page_title(
        f"What a budget allows, expecting {prior.source}",
        "Predicted by simulation from public facts: no private data were opened",
    )
    both = alt.vconcat(*pictures, title=title, spacing=36).resolve_scale(color="shared", shape="shared")
    return display.styled(both, subtitle_color="#5b6770", legend_columns=5)


def vary_budget(budget: Budget, times: Sequence[Fraction] = TIMES) -> list[Budget]:
    """Return the budget with multiples of it, of the same kind."""
    stated: dict[str, Any] = {"rho": budget.amount} if budget.epsilon is None else {"epsilon": budget.epsilon}
    fixed: dict[str, Any] = {"delta": budget.delta, "noise": budget.noise}
    return [
        budget,
        *(Budget(**{name: by * amount for name, amount in stated.items()}, **fixed) for by in times),
    ]


def against_budget(predictions: Sequence[Prediction]) -> Any:
    """Draw predicted earth mover's error per region against the budget, one panel for each level; both axes
    logarithmic.
    """
    rows = _rows(predictions)
    x = display.budget_axis("amount", rows[0]["currency"], sorted({row["amount"] for row in rows}))
    parts = {level: [row for row in rows if row["level"] == level] for level in dict.fromkeys(r["level"] for r in rows)}
    title = "entities to move per region"
    return display.line_panels(parts, x, "emd", title=title, places=_places(rows), facts=("mechanism", "budget"))


def trade(predictions: Sequence[Prediction]) -> Any:
    """Draw the error of the top level against that of the last as the split moves from one to the other."""
    alt = display.altair()
    by_way: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in _rows(predictions):
        by_way.setdefault((row["mechanism"], row["split"]), []).append(row)
    order = list(dict.fromkeys(split for _, split in by_way))
    rows = [
        {**found[0], "top": found[0]["emd"], "leaves": found[-1]["emd"], "order": order.index(split)}
        for (mechanism, split), found in by_way.items()
        # A mechanism that measures only leaves has a single point, far off, which would squeeze the other lines.
        if sum(way == mechanism for way, _ in by_way) > 1
    ]
    levels = list(dict.fromkeys(one.level for one in predictions))
    places = _places(rows)
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=display.log_axis("top", rows, f"entities to move, {levels[0]}", horizontal=True),
        y=display.log_axis("leaves", rows, f"entities to move per {levels[-1]}"),
        color=display.colors(places),
        order="order:Q",
        tooltip=display.tooltip(("mechanism", "split"), ("emd", "leaves")),
    )
    points = base.mark_point(filled=True, size=45, opacity=1).encode(shape=display.shapes(places))
    best = min(rows, key=lambda row: row["top"] * row["leaves"])["mechanism"]
    labels = (
        alt.Chart(alt.Data(values=[row for row in rows if row["mechanism"] == best]))
        .mark_text(align="right", dx=-6, dy=9, fontSize=10, color="#5b6770")
        .encode(x="top:Q", y="leaves:Q", text="split:N")
    )
    title = f"{levels[0]} against {levels[-1]} at {rows[0]['budget']}; 2:1 = each level twice the next one's share"
    return (base.mark_line(strokeWidth=1.6) + points + labels).properties(
        title=display.panel_title(title), width=2.4 * display.PANEL, height=1.2 * display.PANEL
    )


def _rows(predictions: Iterable[Prediction]) -> list[dict[str, Any]]:
    """Return predictions as plain rows; errors of 0 are raised to the smallest value of a logarithmic axis."""
    return [
        {
            "mechanism": one.mechanism,
            "split": one.split,
            "budget": str(one.budget),
            "currency": "ρ" if one.budget.epsilon is None else "ε",
            "amount": float(one.budget.amount if one.budget.epsilon is None else one.budget.epsilon),
            "level": visible(one.level),
            "emd": max(one.emd, LEAST_SHOWN),
        }
        for one in predictions
    ]


def _places(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return displayed mechanisms with their index among those planned by default, which gives a colour for each."""
    known = [name for name, mechanism in MECHANISMS.items() if not mechanism.refused and not mechanism.unplanned]
    shown = dict.fromkeys(row["mechanism"] for row in rows)
    return {name: known.index(name) if name in known else len(known) for name in shown}
