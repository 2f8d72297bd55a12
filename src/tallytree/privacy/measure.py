"""The border for releases: `measure` opens private counts, and their sums with noise leave.

In this order: the plan is checked against the data's public facts, the cost of all of it is reserved in the ledger,
noise is drawn and the counts are opened. Noise comes before the counts but for lists of sizes: these may be as long as
there are groups, so the noise of each part is drawn when its sizes are added. (The order of these two is for the
reader's ease and not for privacy: a draw depends on its scale and number, which are public, and on nothing else.)
What holds counts raises from outside, so that no traceback shows them. Totals and the largest size, where a plan asks
for them, are measured first: what follows from them (`Settled`, and which way a plan takes at its fork) shapes the
other questions. Both ways of a fork are checked and paid for before anything is drawn.

A run that may be resumed keeps these first answers (`FirstStage`) before the rest is drawn, and is resumed with them.
How much memory and disk the rest needs follows from them. So if the rest ends for want of either, no first answer is
drawn again: what is released does not depend on whether lists of some length would have fitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from tallytree.core.arguments import FLAG, expecting, instance, optional
from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.domain.category_trees import on_level
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import at_least, entities
from tallytree.privacy.accounting import NOISE_FOR, NoiseKind, scale_for
from tallytree.privacy.ledger import Ledger
from tallytree.privacy.measurements import Measurement, Measurements, Settle
from tallytree.privacy.neighbours import AS_READ, Neighbours, View
from tallytree.privacy.noise.randomness import NoiseSource, Randomness, cryptographic
from tallytree.privacy.plan import FIRST, Band, Plan, Question
from tallytree.privacy.size_lists import SMALL, noisy_lists
from tallytree.tables.group_sizes import GroupSizes
from tallytree.tables.guard import from_outside

SUMMED: tuple[View, ...] = ("at_least", "counts")  # which can be asked for over all categories


@dataclass(frozen=True)
class FirstStage:
    """Where a run keeps what it measured first: `load` gives that of the run before, `keep` is called before the rest.

    `keep` also sees to the disk space for the rest, whose size is known by then.
    """

    load: Callable[[], Measurements | None]
    keep: Callable[[Measurements], None]


@expecting(
    group_sizes=AS_READ,
    plan=instance(Plan),
    ledger=optional(instance(Ledger, "Ledger(path)")),
    same_data=FLAG,
    changed_files=FLAG,
)
def measure(
    group_sizes: GroupSizes,
    plan: Plan,
    *,
    ledger: Ledger | None = None,
    noise: NoiseSource = "tallytree",
    settle: Settle | None = None,
    same_data: bool = False,
    changed_files: bool = False,
    token: str | None = None,
    first_stage: FirstStage | None = None,
) -> Measurements:
    """Answer the plan's questions with noise that makes them as private as its budget says.

    `settle` turns measured totals and a measured largest size into the ones that the other questions go by. With
    `same_data` the ledger takes files that another account was charged for, with `changed_files` other files than this
    account was charged for before, and with the `token` of a run that was
    killed it charges nothing more (`Ledger.reserve`). Noise is then drawn anew: who calls this with a token shows
    nothing of it before `Ledger.settle_on` took its mark.

    Privacy: each question's noise is scaled to its exact share of the budget by the sensitivity of its view under the
    data's neighbour relation (`Neighbours.sensitivity`), and the shares add up to the budget at each size (`Plan`),
    whichever way a fork is passed: its rule reads numbers that have their noise already.
    """
    return measure_with(
        cryptographic(noise),
        group_sizes,
        plan,
        ledger=ledger,
        settle=settle,
        same_data=same_data,
        changed_files=changed_files,
        token=token,
        first_stage=first_stage,
    )


def measure_with(
    randomness: Randomness,
    group_sizes: GroupSizes,
    plan: Plan,
    *,
    ledger: Ledger | None = None,
    settle: Settle | None = None,
    same_data: bool = False,
    changed_files: bool = False,
    token: str | None = None,
    first_stage: FirstStage | None = None,
) -> Measurements:
    """`measure` with the randomness that it chose; `tallytree.lab` calls it with a seed, on public data."""
    hierarchy, kind = group_sizes.hierarchy, NOISE_FOR[plan.budget.currency]
    neighbours = Neighbours.of(group_sizes, plan.unit)
    _check(plan, group_sizes, settle)
    regions = np.diff(hierarchy.level_starts).tolist()

    def asked(question: Question) -> Measurement:
        sensitivity = neighbours.sensitivity(question.view, regions[question.level], summed=question.summed)
        scale = randomness.usable(kind, scale_for(kind, sensitivity, plan.cost(question)))
        facts = question.view, question.level, question.share, sensitivity, kind, scale, variance_of(kind, scale)
        return Measurement(*facts, values=np.empty(0, np.int64), sizes=question.sizes, summed=question.summed)

    ways = [[asked(question) for question in branch.questions] for branch in plan.branches]
    first = [one for one in ways[0] if one.view in FIRST]
    before = first_stage.load() if first_stage is not None and first else None
    if before is not None:
        _check_same(before, first, hierarchy, randomness)

    receipt = None
    if ledger is not None:
        receipt = ledger.reserve(
            group_sizes.name,
            plan.budget,
            neighbours,
            group_sizes.fingerprint(),
            token=token,
            same_data=same_data,
            changed_files=changed_files,
        )
    nothing_yet = Measurements(
        hierarchy=hierarchy,
        neighbours=neighbours,
        budget=plan.budget,
        measured=(),
        region_totals=group_sizes.region_totals,
        listed_totals=listed_in_regions(group_sizes),
        noise_source=randomness.name,
        ledgered=ledger is not None,
        same_data_as=() if receipt is None else receipt.same_data_as,
        receipt=receipt,
        regions_declared_public=group_sizes.regions_declared_public,
    )

    if before is None:
        known = _answered(group_sizes, randomness, first, nothing_yet)
    else:
        answers = zip(first, before.measured, strict=True)
        known = replace(nothing_yet, measured=tuple(replace(one, values=part.values) for one, part in answers))
    if settle is not None:
        known = replace(known, settled=settle(known))
    rest = ways[0]
    if plan.fork is not None:
        known = replace(known, passed=(passed := known.passing(plan.fork)))
        rest = ways[0 if passed.few else 1]
    if first_stage is not None and first:
        first_stage.keep(known)
    return _answered(group_sizes, randomness, [one for one in rest if one.view not in FIRST], known)


def _check_same(before: Measurements, first: list[Measurement], hierarchy: Hierarchy, randomness: Randomness) -> None:
    """Refuse first answers to other questions: whoever may choose among plans after a draw could choose by it."""
    asked = hierarchy.to_json(), randomness.name, [one.to_json() for one in first]
    if (before.hierarchy.to_json(), before.noise_source, [part.to_json() for part in before.measured]) != asked:
        raise ReleaseError(
            "the run was begun with another plan, and has measured totals for it. Go on with the same mechanism, "
            "options, budget, shares and regions, or choose another directory, which needs a budget of its own"
        )


def listed_in_regions(group_sizes: GroupSizes) -> Integers | None:
    """The public number of groups in every region over all categories, where a list has it and no categories."""
    listed = group_sizes.listed_totals
    return None if listed is None else group_sizes.hierarchy.regions.aggregate(listed)


def _answered(
    group_sizes: GroupSizes, randomness: Randomness, asked: list[Measurement], known: Measurements
) -> Measurements:
    """`known`, with values for some more measurements that are still without any."""
    return (
        replace(known, measured=(*known.measured, *_answers(group_sizes, randomness, asked, known))) if asked else known
    )


@from_outside("Measuring")
def _answers(
    group_sizes: GroupSizes, randomness: Randomness, asked: list[Measurement], known: Measurements
) -> list[Measurement]:
    """The measurements with their values. No private count is in any other function's variables when it raises."""
    drawn = {one: _drawn(randomness, one, known) for one in asked if one.view != "sorted_sizes"}
    private = _folded(known.hierarchy.aggregate(group_sizes.counts.open_at_the_privacy_border()), known)
    answers = []
    for one in asked:
        counts = private[known.hierarchy.level_slice(one.level)]
        if one.summed:
            counts = on_level(private, known.hierarchy, one.level).sum(axis=0)
        if one in drawn:
            drawn[one] += view_of(one.view, counts, known.first_size, one.sizes)
            answers.append(replace(one, values=drawn[one]))
        else:
            draw, lengths = partial(randomness.draw, one.noise, one.scale), known.lengths(one.level)
            lists = noisy_lists(draw, counts, known.first_size, lengths, small=_small(one.scale), band=one.sizes)
            answers.append(replace(one, values=lists))
    return answers


def _check(plan: Plan, group_sizes: GroupSizes, settle: Settle | None) -> None:
    """Refuse a plan that does not fit the data's public facts."""
    depth = group_sizes.hierarchy.depth
    asked = [question for branch in plan.branches for question in branch.questions]
    if any(not 0 <= question.level < depth for question in asked):
        raise SpecError(f"the plan asks for a level that is not there; the hierarchy has {depth}")
    summed = [question for question in asked if question.summed]
    if any(group_sizes.hierarchy.by is None or question.level < 1 for question in summed):
        raise SpecError("sums over categories are asked for on a level below the root of a tree by category")
    if any(question.view not in SUMMED for question in summed):
        raise SpecError(f"sums over categories are measured as {' or '.join(SUMMED)}, and no other view")
    views = {question.view for question in asked}
    bands = [question.sizes for question in asked if question.sizes is not None]
    if (beyond := max((band.last for band in bands), default=0)) > group_sizes.max_size:
        raise SpecError(f"the plan asks for sizes up to {beyond}, beyond the largest one, {group_sizes.max_size}")
    if bands and "largest" in views:
        raise SpecError("bands of sizes go by the public largest size; do not measure the largest size as well")
    if any(question.view == "largest" and question.level > 0 for question in asked):
        raise SpecError("the largest size is a question about the whole; ask it of the top level")
    if "sorted_sizes" in views and not group_sizes.public_totals and ("totals" not in views or settle is None):
        raise SpecError(
            "lists of sizes have as many places as there are groups, and here totals are private: measure totals with "
            "a share of the budget first, or read with a groups table if there is a public one"
        )


def _drawn(randomness: Randomness, one: Measurement, known: Measurements) -> Integers:
    """Noise in the shape of the answer."""
    _, level = known.regions_of(one.level, one.summed)
    shape = (level.stop - level.start, known.columns(one.view, one.sizes))
    return randomness.draw(one.noise, one.scale, shape[0] * shape[1]).reshape(shape)


def _folded(counts: Integers, known: Measurements) -> Integers:
    """The counts with all sizes above the settled largest one counted as that."""
    last = known.max_size - known.first_size
    if last + 1 == counts.shape[1]:
        return counts
    folded = counts[:, : last + 1].copy()
    folded[:, last] = counts[:, last:].sum(axis=1)
    return folded


def _small(scale: Fraction) -> bool:
    """May noisy sizes be kept in 32 bits? Noise alone then leaves their range with a probability below e^−999.

    Where a sum does leave it, `noisy_lists` holds it at the end of the range. That is a function of the noisy sum
    alone, so post-processing: it costs no privacy.
    """
    return 1000 * scale < SMALL.max


def view_of(view: View, counts: Integers, first_size: int, band: Band | None = None) -> Integers:
    """A view of some regions' counts `[regions, sizes]`, but for lists of sizes, which are never made whole."""
    if view == "at_least":
        every = at_least(counts, first_size)
        return every if band is None else np.ascontiguousarray(every[:, band.first - 1 : band.last])
    if view == "chain":
        return _chain(counts)
    if view == "entities":
        return entities(counts, first_size)[:, np.newaxis]
    if view == "largest":
        sizes = np.arange(first_size, first_size + counts.shape[1])
        largest: Integers = np.where(counts > 0, sizes, 0).max(axis=1, keepdims=True)
        return largest
    return counts.sum(axis=1, keepdims=True) if view == "totals" else counts


def _chain(counts: Integers) -> Integers:
    """For each cell how many groups are in it or in a later one, size by size and region by region within a size."""
    row = np.cumsum(counts.T.ravel()[::-1])[::-1]
    return np.ascontiguousarray(row.reshape(counts.shape[::-1]).T)


def variance_of(kind: NoiseKind, scale: Fraction) -> float:
    """The variance of noise of that kind and scale."""
    from tallytree.privacy.noise.draws import gaussian_variance, laplace_variance

    return laplace_variance(scale) if kind == "discrete_laplace" else gaussian_variance(scale)
