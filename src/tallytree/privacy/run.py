"""A run: open (check, reserve) → rounds (measure or select) → close. The one module that opens private data.

*Theorem.* All that leaves a run is as private as its budget says, for its neighbour relation, whichever queries are
chosen by earlier answers, and also if the run is killed and resumed. The proof has these steps:

1. *Open.* The data, the relation and the plan fit each other by public facts alone (`Neighbours.of`, `check_plan`,
   `check_households`); what does not fit is refused before anything is spent. `Reservation` compares the run with its
   journal, or begins one, and reserves the whole budget in the ledger, once.
2. *Measure.* What leaves is a view of private counts plus exact noise, of the scale that the measurement's cost asks
   for (`scale_for`) by the sensitivity of the view under the relation. A view that is the same for all neighbours is
   given exactly (`PrivateTables.public_counts`).
3. *Select.* A choice follows the exponential mechanism exactly, by scores that move at most by their sensitivity
   (`tallytree.privacy.selection`).
4. *Compose.* A release spends the shares of its plan, which add up to the budget (`Plan`). A synthesis pays for each
   round from the rest of it. Each round is begun before it is drawn: it is on disk, in the journal and in the ledger.
   It is never drawn again (`Reservation`).
5. *Close.* Noisy counts, the places of choices and public facts leave, and nothing else. What holds private counts
   raises from outside, so that no traceback shows them.

*A release* (`measure`) is a run of one or two rounds. Noise comes before the counts but for lists of sizes: these may
be as long as there are groups, so the noise of each part is drawn when its sizes are added. (The order of these two is
for the reader's ease and not for privacy: a draw depends on its scale and number, which are public, and on nothing
else.) Totals and the largest size, where a plan asks for them, are the first round. What follows from them
(`FirstStageFacts`, and which branch an adaptive plan takes) shapes the second. Both branches are checked and paid for
before anything is drawn. The journal keeps the first answers before the rest is drawn, and a resumed run goes on with
them. How much memory and disk the rest needs follows from them. So if the rest ends for want of either, no first answer
is drawn again: what is released does not depend on whether lists of some length would have fitted. The results are in
files, and nobody sees them before the ledger committed the reservation to their mark (`Ledger.commit`): so noise
that a killed release drew may be drawn anew.

*A synthesis* (`PrivateTables`) is a run of many rounds. A killed run is resumed by running it again with the same
journal. Each call is compared with the next round of the journal (its kind, its tables and its cost) and answered from
there, without touching private data; new rounds are drawn once the journal is used up. A round that was lost, because
it was begun and its result was not recorded, answers None: it is paid for, and the caller goes on with its next round.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arguments import FLAG, expecting, instance, optional
from tallytree.core.arrays import Integers
from tallytree.core.errors import BudgetError, ReleaseError, SpecError
from tallytree.core.kernels import kernel
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import at_least, entities
from tallytree.privacy.budget import NOISE_FOR, Budget, as_decimal, scale_for
from tallytree.privacy.exact_accounting import check_accounted
from tallytree.privacy.journal import Journal, Reservation, Round, Values
from tallytree.privacy.ledger import UNPAID, Charge, Ledger, Receipt
from tallytree.privacy.measurements import DeriveFacts, Measurement, Measurements, list_starts
from tallytree.privacy.neighbours import AS_READ, Neighbours, Relation, View
from tallytree.privacy.noise import NoiseSource, Randomness, cryptographic, variance_of
from tallytree.privacy.plan import FIRST, Band, MeasurementQuery, Plan
from tallytree.tables.group_sizes import GroupSizes, Sealed, Unsharable
from tallytree.tables.guard import from_outside

Content = TypeVar("Content")
Result = TypeVar("Result")

SUMMED: tuple[View, ...] = ("at_least", "counts")  # which can be asked for over all categories
AT_A_TIME = 1 << 22
SMALL = np.iinfo(np.int32)
CACHED_CELLS = 1 << 25  # of private counts, cached behind a seal for the next round


@from_outside("Reading private data")
def open_sealed(seal: Sealed[Content], view: Callable[[Content], Result]) -> Result:
    """Return what a function makes of private data: the one door.

    What comes out is private still. A caller adds noise to it, makes scores or a keyed digest of it, seals it again, or
    has shown that it is the same for all neighbours.
    """
    return view(seal.open_at_the_privacy_border())


# -------------------------------------------------------------------- a run of either kind


class Private(Protocol):
    """Private data of either kind, as the ledger knows them."""

    @property
    def name(self) -> str | None:
        """Return the name of the account."""

    def fingerprint(self) -> str | None:
        """Return a digest of the input files."""


class Run(Unsharable):
    """Private data of one kind, and a budget that is reserved for what is asked of them.

    `ledger` pays, if there is one: once for all rounds. A run goes on from a `journal` that was begun, or is refused:
    one of another data set, relation, budget or reservation, or one that was begun on other rows. Threads may share one
    run: rounds are drawn one at a time. A forked process is refused. The run closes its journal.
    """

    def __init__(
        self,
        data: Private,
        seal: Sealed[Any],
        neighbours: Relation,
        budget: Budget,
        *,
        charge: Charge,
        journal: Journal,
        facts: Values | None = None,
        digest: Callable[[Any, bytes], str] | None = None,
    ) -> None:
        self.budget, self._seal, self._withheld = budget, seal, Fraction(0)
        self._cache: dict[Hashable, Sealed[Integers]] = {}
        try:
            fingerprint = None if charge.ledger is None else data.fingerprint()
            expense = charge.of(data.name, budget, neighbours, fingerprint)
            rows = None if digest is None else lambda key: open_sealed(seal, lambda content: digest(content, key))
            self._reservation = Reservation(journal, charge.ledger, expense, facts or {}, rows)
        except BaseException:
            journal.close()
            raise

    @property
    def receipt(self) -> Receipt | None:
        """Return the ledger's receipt for the whole budget."""
        return self._reservation.receipt

    @property
    def rounds(self) -> tuple[Round, ...]:
        """Return the rounds up to here: requests, costs and results, for the privacy statement."""
        return self._reservation.rounds

    @property
    def resuming(self) -> bool:
        """Return whether the journal has rounds that were not replayed yet."""
        return self._reservation.resuming

    @property
    def left(self) -> Fraction:
        """Return the rest of the budget, in its currency."""
        return self._reservation.left - self._withheld

    @property
    def spent(self) -> Fraction:
        """Return what the rounds up to here cost, lost ones included."""
        return self.budget.amount - self._reservation.left

    def draw_round(self, request: Values, cost: Fraction, draw: Callable[[], Values], values: int) -> Values | None:
        """Return the next round's result: from the journal if it is there, otherwise begun, drawn and recorded.

        One round at a time, whichever threads ask, so that each sees what those before it spent.
        """
        with self._reservation.lock():
            if self.resuming:
                return self._reservation.replay_round(request, cost).result
            if cost > self.left:
                raise BudgetError(
                    f"this round would cost ρ = {as_decimal(cost)}, and ρ = {as_decimal(self.left, up=False)} is left "
                    f"of ρ = {as_decimal(self.budget.amount, up=False)}. Nothing was spent on it."
                )
            self._reservation.begin_round(request, cost, values)
            result = from_outside("Drawing a round")(draw)()
            self._reservation.journal.record(result)
            return result

    def _count_private(self, view: Callable[[Any], Integers], key: Hashable) -> Integers:
        """Private counts: a view of the data, which the run caches under a key."""
        if (known := self._cache.get(key)) is not None:
            return known.open_at_the_privacy_border()
        counts = open_sealed(self._seal, view)
        cached = sum(seal.open_at_the_privacy_border().size for seal in self._cache.values())
        if counts.size + cached <= CACHED_CELLS:
            self._cache[key] = Sealed(counts)
        return counts

    def close(self) -> None:
        """End the run here; the journal can then be resumed by another."""
        self._reservation.journal.close()


# -------------------------------------------------------------------- group sizes: a release


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
    noise_source: NoiseSource = "tallytree",
    derive_facts: DeriveFacts | None = None,
    same_data: bool = False,
    changed_files: bool = False,
    journal: Journal | None = None,
) -> Measurements:
    """Measure private counts: answer a plan's measurement queries with noise.

    Privacy: each query's noise is scaled to its exact share of the budget by the sensitivity of its view under the
    data's neighbour relation (`Neighbours.sensitivity`), and the shares add up to the budget at each size (`Plan`),
    whichever branch an adaptive plan takes: its rule reads numbers that have their noise already.

    Parameters
    ----------
    group_sizes : GroupSizes
        The private counts.
    plan : Plan
        What to measure, with which share of the budget.
    ledger : Ledger, optional
        The ledger that pays.
    noise_source : {"tallytree", "opendp"}, default "tallytree"
        The library that draws the noise.
    derive_facts : callable, optional
        Turns measured totals and a measured largest size into the ones that the other queries use.
    same_data : bool, default False
        Accept files that another account was charged for.
    changed_files : bool, default False
        Accept files that the account was not charged for before.
    journal : Journal, optional
        The journal of a run that was killed: nothing more is charged, and noise is drawn anew. A caller with a journal
        must not show any of it before `Ledger.commit` has accepted its mark.

    Returns
    -------
    Measurements
        The noisy measurements. They are public.

    Raises
    ------
    BudgetError
        If the plan costs more than the account has.
    """
    charge = Charge(ledger, same_data, changed_files)
    return measure_with(
        cryptographic(noise_source), group_sizes, plan, derive_facts=derive_facts, charge=charge, journal=journal
    )


def measure_with(
    randomness: Randomness,
    group_sizes: GroupSizes,
    plan: Plan,
    *,
    derive_facts: DeriveFacts | None = None,
    charge: Charge = UNPAID,
    journal: Journal | None = None,
) -> Measurements:
    """Return `measure` with the randomness that it chose; `tallytree.lab` calls it with a seed, on public data."""
    hierarchy, kind = group_sizes.hierarchy, NOISE_FOR[plan.budget.currency]
    neighbours = Neighbours.of(group_sizes, plan.unit)
    _check(plan, group_sizes, derive_facts)
    regions = np.diff(hierarchy.level_starts).tolist()

    def asked(query: MeasurementQuery) -> Measurement:
        sensitivity = neighbours.sensitivity(query.view, regions[query.level], summed=query.summed)
        scale = randomness.usable(kind, scale_for(kind, sensitivity, plan.cost(query)))
        facts = query.view, query.level, query.share, sensitivity, kind, scale, variance_of(kind, scale)
        return Measurement(*facts, values=np.empty(0, np.int64), sizes=query.sizes, summed=query.summed)

    branches = [[asked(query) for query in branch.queries] for branch in plan.branches]
    for queries in branches:
        check_accounted(plan.budget, queries)
    first = [one for one in branches[0] if one.view in FIRST]
    journal = Journal(None) if journal is None else journal
    before = journal.first_stage() if first else None
    if before is not None:
        _check_same_queries(before, first, hierarchy, randomness)
    run = Run(group_sizes, group_sizes.counts, neighbours, plan.budget, charge=charge, journal=journal)
    receipt = run.receipt
    listed = group_sizes.listed_totals
    known = Measurements(
        hierarchy=hierarchy,
        neighbours=neighbours,
        budget=plan.budget,
        measured=(),
        region_totals=group_sizes.region_totals,
        listed_totals=None if listed is None else hierarchy.regions.aggregate(listed),
        noise_source=randomness.name,
        ledgered=charge.ledger is not None,
        same_data_as=() if receipt is None else receipt.same_data_as,
        receipt=receipt,
        regions_declared_public=group_sizes.regions_declared_public,
        row_rules=group_sizes.row_rules,
    )
    if before is None:
        known = _answered(group_sizes, randomness, first, known)
    else:
        answers = zip(first, before.measured, strict=True)
        known = replace(known, measured=tuple(replace(one, values=part.values) for one, part in answers))
    if derive_facts is not None:
        known = replace(known, first_stage=derive_facts(known))
    rest = branches[0]
    if plan.branch_rule is not None:
        known = replace(known, branch=(branch := known.choose_branch(plan.branch_rule)))
        rest = branches[0 if branch.below else 1]
    if first:
        journal.keep_first_stage(known)
    return _answered(group_sizes, randomness, [one for one in rest if one.view not in FIRST], known)


def _check_same_queries(
    before: Measurements, first: list[Measurement], hierarchy: Hierarchy, randomness: Randomness
) -> None:
    """Refuse first answers to other queries: a choice among plans after a draw could depend on the draw."""
    asked = hierarchy.to_json(), randomness.name, [one.to_json() for one in first]
    if (before.hierarchy.to_json(), before.noise_source, [part.to_json() for part in before.measured]) != asked:
        raise ReleaseError(
            "the run was begun with another plan, and has measured totals for it. Go on with the same mechanism, "
            "options, budget, shares and regions, or choose another directory, which needs a budget of its own"
        )


@from_outside("Measuring")
def _answered(
    group_sizes: GroupSizes, randomness: Randomness, asked: list[Measurement], known: Measurements
) -> Measurements:
    """Return `known` with noisy values for these further measurements.

    No private count is in any other function's variables when it raises.
    """
    if not asked:
        return known
    drawn = {one: _drawn(randomness, one, known) for one in asked if one.view != "sorted_sizes"}
    private = folded(open_sealed(group_sizes.counts, known.hierarchy.aggregate), known.max_size - known.first_size)
    answers = [*known.measured]
    for one in asked:
        counts = private[known.hierarchy.level_slice(one.level)]
        if one.summed:
            counts = known.hierarchy.on_level(private, one.level).sum(axis=0)
        if one in drawn:
            drawn[one] += view_of(one.view, counts, known.first_size, one.sizes)
            answers.append(replace(one, values=drawn[one]))
        else:
            draw, lengths = partial(randomness.draw, one.noise, one.scale), known.lengths(one.level)
            lists = noisy_lists(draw, counts, known.first_size, lengths, small=_small(one.scale), band=one.sizes)
            answers.append(replace(one, values=lists))
    return replace(known, measured=tuple(answers))


def _check(plan: Plan, group_sizes: GroupSizes, derive_facts: DeriveFacts | None) -> None:
    """Refuse a plan that does not fit the data's public facts."""
    depth = group_sizes.hierarchy.depth
    asked = [query for branch in plan.branches for query in branch.queries]
    if any(not 0 <= query.level < depth for query in asked):
        raise SpecError(f"the plan asks for a level that is not there; the hierarchy has {depth}")
    summed = [query for query in asked if query.summed]
    if any(not group_sizes.hierarchy.by.columns or query.level < 1 for query in summed):
        raise SpecError("sums over categories are asked for on a level below the root of a tree by category")
    if any(query.view not in SUMMED for query in summed):
        raise SpecError(f"sums over categories are measured as {' or '.join(SUMMED)}, and no other view")
    views = {query.view for query in asked}
    bands = [query.sizes for query in asked if query.sizes is not None]
    if (beyond := max((band.last for band in bands), default=0)) > group_sizes.max_size:
        raise SpecError(f"the plan asks for sizes up to {beyond}, beyond the largest one, {group_sizes.max_size}")
    if bands and "largest" in views:
        raise SpecError("bands of sizes go by the public largest size; do not measure the largest size as well")
    if any(query.view == "largest" and query.level > 0 for query in asked):
        raise SpecError("the largest size is one number for the whole: measure it on the top level")
    if "sorted_sizes" in views and not group_sizes.public_totals and ("totals" not in views or derive_facts is None):
        raise SpecError(
            "lists of sizes have as many places as there are groups, and here totals are private: measure totals with "
            "a share of the budget first, or read with a groups table if there is a public one"
        )


def _drawn(randomness: Randomness, one: Measurement, known: Measurements) -> Integers:
    """Draw noise in the shape of the answer."""
    _, level = known.regions_of(one.level, one.summed)
    shape = (level.stop - level.start, known.columns(one.view, one.sizes))
    return randomness.draw(one.noise, one.scale, shape[0] * shape[1]).reshape(shape)


def _small(scale: Fraction) -> bool:
    """Return whether noisy sizes fit into 32 bits. Noise alone leaves that range with a probability below e^−999.

    Where a sum does leave it, `noisy_lists` holds it at the end of the range. That is a function of the noisy sum
    alone, so post-processing: it costs no privacy.
    """
    return 1000 * scale < SMALL.max


# -------------------------------------------------------------------- views of private counts
#
# A list of sizes is as long as a number that is public before the list is measured, and is read from its large end:
# where there are more groups than places the smallest are left out, where there are fewer the first places hold sizes
# of 0.


def noisy_lists(
    draw: Callable[[int], Integers],
    counts: Integers,
    first_size: int,
    lengths: Integers,
    *,
    small: bool,
    band: Band | None = None,
) -> NDArray[Any]:
    """Return noise plus the sizes that `counts` describes, a part at a time, as one flat array.

    With a `band`, what each group has of its size within it: min(size, last) − min(size, first − 1). With `small` the
    sums are kept in 32 bits, those beyond held at the ends of the range: a function of the exact sum, so it tells
    nothing more.
    """
    starts = list_starts(lengths)
    below, above = (0, first_size + counts.shape[1]) if band is None else (band.first - 1, band.last)
    values: NDArray[Any] = np.empty(int(starts[-1]), np.int32 if small else np.int64)
    for begin in range(0, len(values), AT_A_TIME):
        sums = draw(min(AT_A_TIME, len(values) - begin))
        add_sizes(sums, begin, starts, counts, first_size, below, above)
        values[begin : begin + len(sums)] = np.clip(sums, SMALL.min, SMALL.max) if small else sums
    return values


@kernel
def add_sizes(
    sums: Integers, begin: int, starts: Integers, counts: Integers, first_size: int, below: int, above: int
) -> None:
    """Add to `sums`, the places from `begin` on of the flat array, what sizes there have above `below`, to `above`."""
    end = begin + len(sums)
    region = np.searchsorted(starts, begin, side="right") - 1
    while region < len(counts) and starts[region] < end:
        # The next group goes here; the largest ends at the end of the list, so this may lie before its start.
        place = starts[region + 1] - counts[region].sum()
        for size in range(counts.shape[1]):
            stop = place + counts[region, size]
            part = min(first_size + size, above) - min(first_size + size, below)
            for index in range(max(place, starts[region], begin), min(stop, end)):
                sums[index - begin] += part
            place = stop
        region += 1


def view_of(view: View, counts: Integers, first_size: int, band: Band | None = None) -> Integers:
    """Return a view of some regions' counts `[regions, sizes]`; not lists of sizes, which never exist in one piece."""
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
    if view == "counts":
        return counts
    totals: Integers = counts.sum(axis=1, keepdims=True)
    return totals if view == "totals" else np.hstack([counts, totals])


def _chain(counts: Integers) -> Integers:
    """For each cell how many groups are in it or in a later one, size by size and region by region within a size."""
    row = np.cumsum(counts.T.ravel()[::-1])[::-1]
    return np.ascontiguousarray(row.reshape(counts.shape[::-1]).T)


def folded(counts: Integers, last: int) -> Integers:
    """Return the counts with all sizes beyond the column `last` added to it."""
    if last + 1 == counts.shape[1]:
        return counts
    folded = counts[:, : last + 1].copy()
    folded[:, last] = counts[:, last:].sum(axis=1)
    return folded
