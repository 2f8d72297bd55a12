"""`plan`: what a budget will buy, level by level, before anything is spent; and `predicted_best`, the choice of `auto`.

From public facts alone: the hierarchy, the sizes, the unit, the budget, totals where they are public, and a public
prior. Errors are predicted by simulation (`simulation`), widths of guaranteed intervals exactly (`widths`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any, get_args

import numpy as np

from tallytree.core.arguments import MAPPING, TEXT, WHOLE, expecting, instance, optional, several, told
from tallytree.core.arrays import Floats, Integers
from tallytree.core.charts import altair, page_title, styled
from tallytree.core.errors import BudgetError, SpecError
from tallytree.core.progress import Progress, Stage, silent
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.interval import checked_level
from tallytree.mechanisms import MECHANISMS, Mechanism, choose
from tallytree.mechanisms.tallytree import FIRST_SHARE
from tallytree.planning.pictures import against_budget, trade
from tallytree.planning.prior import ExpectedCounts, Prior, summed_up
from tallytree.planning.simulation import (
    REPLICATES,
    Effort,
    Prediction,
    PublicFacts,
    Scenario,
    predicted_levels,
    simulated,
)
from tallytree.planning.value import PlanReport, useless
from tallytree.planning.widths import half_widths
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit
from tallytree.privacy.plan import Plan, Priority, Shares, divided, level_shares

MOST_PLANNED = 10**10  # regions × sizes of a release that is planned
MOST_REPLICATES = 100_000
AUTO_MOST_CELLS, AUTO_CELLS_IN_ALL, AUTO_REPLICATES = 20_000, 80_000, (4, 20)  # the same for the choice of auto
AUTO_CANDIDATES = ("tallytree", "joint-cumulative", "joint-counts", "pgsr-hierarchical-dp", "coc-matching", "bottom-up")
TOLD: tuple[dict[str, Any], ...] = ({"leaves": "at_least"}, {"leaves": "lists", "totals_share": FIRST_SHARE})  # by it
LEAST_STANDARD_ERRORS = 3  # by which a mechanism must be better than the usual one to be taken instead
MANY_GROUPS = 1000  # a half-width that is said to be large where nothing is known of the number of groups
LEAST_GAIN = 0.02  # and by this part of the error
AS_GIVEN = "as given"  # the name of shares that the user gave
TIMES = (Fraction(1, 4), Fraction(1, 2), Fraction(2), Fraction(4))  # the other budgets of a picture, by the stated one
RATIOS = (4, 2, 1, 0.5, 0.25)  # of a level's share to the next one's
DRAWN_CELLS = 100_000  # regions × sizes that are simulated: pictures show many budgets and splits
BANDS = "bands"  # the name of a division that bands of sizes say


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
    """Predict the errors of a release for every mechanism and several splits of the budget; nothing is spent.

    `prior` is a shape's name ("households", "heavy-tail", "uniform"), an older public table (columns region, size,
    count) or its path, an earlier `Release`, or a `Prior`. `totals` are the public numbers of groups of
    the leaves, by id or in order; without them `groups` says how many to expect in all, unless the prior does.
    `splits` are shares by name, the three priorities if not given. Each prediction is the mean of `replicates`
    simulations, 3 to 25 of them by the size of the tree.
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
            f"replicates={told(replicates)}; expected a whole number from 2 to {MOST_REPLICATES:,}, for standard errors"
        )
    else:
        effort = Effort(replicates)
    ways = Ways(mechanisms, splits=splits)
    how: dict[str, Any] = {"confidence": confidence, "effort": effort, "progress": progress}
    return planned(facts, Prior.of(prior, groups=groups), budgets, ways, **how)


def _listed(budgets: Any) -> Sequence[Budget]:
    return budgets if isinstance(budgets, Sequence) and not isinstance(budgets, str | bytes) else [budgets]


@dataclass(frozen=True)
class Ways:
    """What is compared: mechanisms by name (all that are usually planned if None) with options, and splits by name."""

    mechanisms: Sequence[str] | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    splits: Mapping[str, Shares | None] | None = None  # the priorities if None

    def candidates(self) -> tuple[list[str], dict[str, str]]:
        """Which mechanisms to try, and why others are left out: those that take long, or are never released."""
        if self.mechanisms is not None:
            for name in self.mechanisms:
                if name not in MECHANISMS:
                    raise SpecError(f"unknown mechanism {name!r}; there are {', '.join(MECHANISMS)}")
            return list(dict.fromkeys(self.mechanisms)), {}
        why = {
            name: f"never released: {one.refused}" if one.refused else one.unplanned for name, one in MECHANISMS.items()
        }
        return [name for name, text in why.items() if not text], {name: text for name, text in why.items() if text}


def planned(
    facts: PublicFacts,
    prior: Prior,
    budgets: Sequence[Budget],
    ways: Ways = Ways(),  # noqa: B008  # it is frozen
    *,
    confidence: float = 0.95,
    effort: Effort | None = None,
    progress: Progress = silent,
) -> PlanReport:
    """`plan` for public facts that are known already."""
    hierarchy, neighbours = facts.hierarchy, facts.neighbours
    if len(hierarchy) * neighbours.max_size > MOST_PLANNED:
        cells = f"{len(hierarchy):,} regions with {told(neighbours.max_size)} sizes"
        raise SpecError(f"max_size is too large to plan with: {cells}, and a plan takes {MOST_PLANNED:,} cells at most")
    if not budgets:
        raise SpecError("there is no budget to plan with")
    checked_level(confidence)
    effort = effort or Effort.usual(facts)
    expected = facts.expect(prior)
    rows, skipped, forks = _scenarios(facts, budgets, ways, expected)
    scenarios = [scenario for scenario, _, _ in rows]
    found = simulated(expected, neighbours, scenarios, effort, confidence=confidence, progress=progress)
    notes = [*expected.notes, *forks]
    if len(found.tree) < len(hierarchy):
        most = int(np.diff(found.tree.child_starts).max())
        notes.append(
            f"simulated on {len(found.tree):,} of {len(hierarchy):,} regions: at most {most} children of each, "
            "small and large ones. Errors of the top levels are then somewhat too small where budgets favour leaves"
        )
    progress(Stage("widths of intervals"))
    predictions: list[Prediction] = []
    for number, (scenario, split, asked) in enumerate(rows):
        widths = half_widths(hierarchy, neighbours, asked, confidence=confidence) or ()
        spent = _spent(asked, hierarchy, neighbours.max_size)
        for depth, level in enumerate(predicted_levels(hierarchy)):
            errors = (*_mean(found.l1[number, :, depth]), *_mean(found.emd[number, :, depth]))
            about = scenario.mechanism.name, split, spent, scenario.budget, level, depth
            width = widths[depth] if depth < len(widths) else None
            reach, none = float(found.reach[number, depth]), float(found.published_as_none[number, depth])
            predictions.append(Prediction(*about, *errors, width, reach, none))
    about_all = prior.source, confidence, effort.replicates
    return PlanReport(facts, *about_all, tuple(predictions), skipped, tuple(notes), expected)


Row = tuple[Scenario, str, Plan]  # with the name of the split, and the plan that is likely


def _scenarios(
    facts: PublicFacts, budgets: Sequence[Budget], ways: Ways, expected: ExpectedCounts
) -> tuple[list[Row], dict[str, str], list[str]]:
    """Every mechanism with every budget and split; who is left out and why; and notes on adaptive plans."""
    splits = {
        name: None if shares is None else level_shares(facts.hierarchy, shares, some_without=True)
        for name, shares in (ways.splits or splits_with(facts.hierarchy, None)).items()
    }
    names, skipped = ways.candidates()
    rows: list[Row] = []
    forks: dict[str, None] = {}
    for name in names:
        given = ways.options.get(name) or {}
        try:
            own = _own_ways(MECHANISMS[name].configured(given), splits)
            for budget, (split, (shares, priority)) in product(budgets, own.items()):
                scenario, asked = facts.prepare(name, budget, given, shares=shares, priority=priority)
                rows.append((scenario, split, _likely_way(asked, expected)))
                if asked.fork is not None:
                    forks[_fork_in_words(scenario.mechanism, rows[-1][2])] = None
        except (SpecError, BudgetError) as error:
            if ways.mechanisms is not None or given:
                raise
            skipped[name] = str(error)
    if not rows:
        raise SpecError("no mechanism can be released on such data: " + "; ".join(skipped.values()))
    return rows, skipped, list(forks)


def uselessness(
    facts: PublicFacts, scenario: Scenario, asked: Plan, *, expected: ExpectedCounts | None, confidence: float
) -> list[str]:
    """For each level whose counts will be useless, why, in a sentence: before anything is spent.

    By simulation where a prior says what to expect; otherwise by half-widths and public totals. Where neither is known,
    counts that are small for the noise are named.
    """
    hierarchy, budget = facts.hierarchy, scenario.budget
    if expected is not None:
        effort = Effort(REPLICATES[0], AUTO_MOST_CELLS)
        found = simulated(expected, facts.neighbours, [scenario], effort, confidence=confidence)
        groups, reach, as_none = summed_up(hierarchy, expected.totals), found.reach[0], found.published_as_none[0]
    else:
        widths = half_widths(hierarchy, facts.neighbours, asked, confidence=confidence)
        if widths is None:
            return []
        if facts.totals is None:
            small = f"regions with fewer than about {2 * widths[-1]:,.0f} groups will be published as little but noise"
            return [f"{budget} is a small budget: {small}, many of them as 0"] if widths[-1] >= MANY_GROUPS else []
        groups, reach, as_none = facts.totals.astype(np.float64), np.array(widths), np.zeros(len(widths))
    told = [
        useless(name, budget, float(reach[level]), float(as_none[level]), groups[hierarchy.level_slice(level)])
        for level, name in enumerate(hierarchy.levels)
    ]
    return [text for text in told if text]


def splits_with(hierarchy: Hierarchy, shares: Shares | None) -> dict[str, Shares | None]:
    """The splits that are usually compared: the given shares where there are any, and each priority.

    A priority has no shares of its own (None): mechanisms divide by it as suits them.
    """
    usual: dict[str, Shares | None] = dict.fromkeys(get_args(Priority))
    return usual if shares is None else {AS_GIVEN: level_shares(hierarchy, shares, some_without=True), **usual}


def _own_ways(mechanism: Mechanism, ways: Mapping[str, Shares | None]) -> dict[str, tuple[Shares | None, str | None]]:
    """By the name of each split that a mechanism is predicted with, the shares or the priority to divide by.

    One that measures leaves only does not depend on the split, and is put with the last one. Bands divide by
    themselves, once; shares that are given beside them are left to `prepare`, which refuses them as a release would.
    """
    if mechanism.leaves_only:
        return {list(ways)[-1]: (None, None)}
    given: dict[str, tuple[Shares | None, str | None]] = {
        split: (shares, None) for split, shares in ways.items() if shares is not None
    }
    if mechanism.divides_itself:
        return given or {BANDS: (None, None)}
    return {split: given.get(split, (None, split)) for split in ways}


def predicted_best(
    facts: PublicFacts,
    prior: Prior,
    budget: Budget,
    *,
    shares: Shares | None = None,
    priority: str | None = None,
    progress: Progress = silent,
) -> Mechanism:
    """The mechanism that `auto` takes where there is a public prior: the one with the least predicted error.

    The error of a mechanism is the geometric mean over the levels of its earth mover's error, weighted by the levels'
    shares of the budget. The usual choice (`choose`) stays unless another is better by `LEAST_STANDARD_ERRORS` and
    `LEAST_GAIN`. Private data have no part in it, so it costs no privacy; it is left to chance where mechanisms are
    nearly as good as each other.
    """
    usual = choose("auto", facts.neighbours)
    parts = level_shares(facts.hierarchy, divided(facts.hierarchy, shares, priority), some_without=True)
    scenarios: list[Scenario] = []
    by: dict[str, Any] = {"shares": shares, "priority": priority}
    for name in dict.fromkeys([usual.name, *AUTO_CANDIDATES]):
        if MECHANISMS[name].leaves_only and priority != "leaves":
            continue
        try:
            chosen, asked = facts.prepare(name, budget, **by)
            told = [] if asked.fork is None else [facts.prepare(name, budget, way, **by)[0] for way in TOLD]
        except (SpecError, BudgetError):
            continue
        scenarios += [chosen, *told]
    effort = Effort.usual(facts, AUTO_MOST_CELLS, AUTO_CELLS_IN_ALL, AUTO_REPLICATES)
    found = simulated(facts.expect(prior), facts.neighbours, scenarios, effort, progress=progress)
    weights = np.array([float(part) for part in parts])
    errors = found.emd[:, :, : len(weights)] + 1  # one more, so that no error counts for all
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
        raise SpecError(f"totals must be {len(ids):,} whole numbers of at least 0, one for each leaf")
    return found.astype(np.int64)


def _likely_way(asked: Plan, expected: ExpectedCounts) -> Plan:
    """The way that a plan takes at its fork if totals are as the prior says; the plan itself where it has none."""
    if asked.fork is None:
        return asked
    return asked.branch(few=bool(expected.totals.mean() < float(asked.fork.fewer_than)))


def _fork_in_words(chosen: Mechanism, likely: Plan) -> str:
    lists = any(question.view == "sorted_sizes" for question in likely.questions)
    return (
        f"{chosen.name} first measures the number of groups in every leaf, and with such data then most likely "
        f"{'lists of sizes' if lists else 'at_least counts'}: widths and shares are those, and errors are those of "
        "what each simulation took"
    )


def _spent(asked: Plan, hierarchy: Hierarchy, max_size: int) -> tuple[Fraction, ...]:
    """What each level gets of the budget, in all its questions; where bands divide it, the mean over the sizes."""
    spent = [Fraction(0)] * hierarchy.depth
    for question in asked.questions:
        band = question.sizes
        spent[question.level] += question.share * (
            1 if band is None else Fraction(band.last - band.first + 1, max_size)
        )
    return tuple(spent)


def _mean(values: Floats) -> tuple[float, float]:
    """The mean and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


# -------------------------------------------------------------------- pictures


def draw_page(
    facts: PublicFacts,
    prior: Prior,
    budget: Budget,
    *,
    mechanisms: Sequence[str] | None = None,
    progress: Progress = silent,
) -> Any:
    """Error against the budget, and the trade between levels, as one Altair chart; it simulates what it shows."""
    alt, hierarchy = altair(), facts.hierarchy
    how: dict[str, Any] = {"effort": Effort.usual(facts, DRAWN_CELLS), "progress": progress}
    even = Ways(mechanisms, splits={"balanced": level_shares(hierarchy, None)})
    pictures = [against_budget(planned(facts, prior, budgets_around(budget), even, **how).in_tree())]
    if hierarchy.depth > 1:
        splits: dict[str, Shares | None] = {
            f"{ratio:g}:1" if ratio >= 1 else f"1:{1 / ratio:g}": level_shares(
                hierarchy, [Fraction(1 / ratio) ** level for level in range(hierarchy.depth)]
            )
            for ratio in RATIOS
        }
        pictures.append(trade(planned(facts, prior, [budget], Ways(mechanisms, splits=splits), **how).in_tree()))
    title = page_title(
        f"What a budget buys, expecting {prior.source}",
        "Predicted by simulation from public facts: no private data were opened",
    )
    both = alt.vconcat(*pictures, title=title, spacing=36).resolve_scale(color="shared", shape="shared")
    return styled(both, subtitle_color="#5b6770", legend_columns=5)


def budgets_around(budget: Budget) -> list[Budget]:
    """The budget, and some that are smaller and larger, in the terms that it was stated in."""
    stated = {"rho": budget.amount} if budget.epsilon is None else {"epsilon": budget.epsilon}
    return [
        budget,
        *(Budget(**{name: by * amount for name, amount in stated.items()}, delta=budget.delta) for by in TIMES),
    ]
