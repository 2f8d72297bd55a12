"""A run: open (check, reserve) → rounds (measure or select) → close. It opens the private counts of a release.

*Open.* `Run` compares a run with its journal, or begins one, and reserves the whole budget in the ledger, once. The
token of the reservation is on disk before the ledger is asked. A run that was killed finds its reservation by it.

*A release* is a run of one or two rounds (`measure`): the plan is checked against the data's public facts, the run is
opened, noise is drawn and the counts are opened. Noise comes before the counts but for lists of sizes: these may be as
long as there are groups, so the noise of each part is drawn when its sizes are added. (The order of these two is for
the reader's ease and not for privacy: a draw depends on its scale and number, which are public, and on nothing else.)
Totals and the largest size, where a plan asks for them, are the first round. What follows from them (`Settled`, and
which branch an adaptive plan takes) shapes the second. Both branches are checked and paid for before anything is drawn.
A run that is kept writes the first answers down (`FirstStage`) before the rest is drawn, and is resumed with them. How
much memory and disk the rest needs follows from them. So if the rest ends for want of either, no first answer is drawn
again: what is released does not depend on whether lists of some length would have fitted. The results are in files, and
nobody sees them before the ledger committed the reservation to their mark (`Ledger.settle_on`).

*A synthesis* is a run of many rounds: `private_tables`.

What holds counts raises from outside, so that no traceback shows them.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, Protocol

import numpy as np

from tallytree.core.arguments import FLAG, expecting, instance, optional
from tallytree.core.arrays import Integers
from tallytree.core.errors import BudgetError, ReleaseError, SpecError, TallytreeError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.privacy.accounting import NOISE_FOR, NoiseKind, scale_for
from tallytree.privacy.accounts import Relation, Spending
from tallytree.privacy.budget import Budget, as_decimal
from tallytree.privacy.journal import Journal, Round, Values
from tallytree.privacy.ledger import Ledger, Receipt, holding
from tallytree.privacy.measurements import Measurement, Measurements, Settle
from tallytree.privacy.neighbours import AS_READ, Neighbours, View
from tallytree.privacy.noise.randomness import NoiseSource, Randomness, cryptographic
from tallytree.privacy.plan import FIRST, Plan, Question
from tallytree.privacy.views import SMALL, folded, noisy_lists, view_of
from tallytree.tables.group_sizes import GroupSizes
from tallytree.tables.guard import from_outside

SUMMED: tuple[View, ...] = ("at_least", "counts")  # which can be asked for over all categories


@dataclass(frozen=True)
class Charge:
    """Which ledger pays, if one does, and what the data holder states of the files (see `Ledger.reserve`)."""

    ledger: Ledger | None = None
    same_data: bool = False
    changed_files: bool = False

    @property
    def flags(self) -> dict[str, Any]:
        """The statements, as the ledger takes them."""
        return {"same_data": self.same_data, "changed_files": self.changed_files}


UNPAID = Charge()


# -------------------------------------------------------------------- a run of either kind


class Named(Protocol):
    """Private data of either kind, as the ledger knows them."""

    @property
    def name(self) -> str | None:
        """The name of the account."""

    def fingerprint(self) -> str | None:
        """A digest of the input files."""


class Run:
    """A budget that was reserved once, and the rounds that it pays for. It holds no private data.

    A round of a synthesis goes through these steps, each on disk before the next: (1) the journal puts it down with a
    mark made by chance, (2) the ledger begins it (`Ledger.begin_round`): it is the next number, and all rounds fit into
    the reservation, (3) noise is drawn, (4) the journal records the result.

    *Over all copies of a journal the rounds that are drawn cost no more than the reservation.* Noise of round n is
    drawn after a call of `begin_round` for n returned, in the process that called it, once per call. The ledger lets
    each n begin once, whoever asks, and the costs that it let begin add up to at most the reservation. This does not
    depend on what any journal holds, so neither copies, restored backups nor kills between the steps can change it.

    *A run that was killed can go on.* An honest journal, which nobody else resumed, has j rounds and the ledger l:

    - killed before (1), or after (2) or later: j = l, and the marks are equal. A round without a result is lost.
    - killed between (1) and (2): j = l + 1, and the last round has no result. It was not drawn. It is begun now, and
      lost: paid for, as its cost is in the journal already.

    Everything else is a journal that another run went on from, or a ledger that is not the one of this run, and is
    refused before private rows are read: j < l (a copy of it drew further), a mark that is not the ledger's (a copy
    drew that round), j > l otherwise (an older ledger was put back).

    A release draws all its noise at once and has no rounds in the journal: its marks are the ledger's alone.
    """

    def __init__(
        self,
        data: Named,
        neighbours: Relation,
        budget: Budget,
        facts: Values,
        *,
        charge: Charge,
        journal: Journal,
        digest: Callable[[bytes], str] | None = None,
    ) -> None:
        self.budget, self.journal, self._ledger = budget, journal, charge.ledger
        self._played = 0
        self._process, self._lock = os.getpid(), threading.RLock()
        self._name = data.name or ""
        past = journal.facts
        if past is not None and charge.ledger is not None and journal.receipt is not None and digest is not None:
            self._check_rounds(past["token"])
        about = {
            "name": data.name,
            "neighbours": neighbours.to_json(),
            "budget": budget.to_json(),
            "ledger": None if charge.ledger is None else str(charge.ledger.path),
            **facts,
        }
        wanted = budget, neighbours, None if charge.ledger is None else data.fingerprint()
        if past is not None:
            self._check_same(past, about, digest)
        else:
            if charge.ledger is not None:
                charge.ledger.check(data.name, *wanted, **charge.flags)
            key = secrets.token_hex(32)
            rows = {} if digest is None else {"key": key, "rows": digest(bytes.fromhex(key))}
            journal.begin({**about, "token": secrets.token_hex(16), **rows})
        self.receipt = self._reserve(charge, data.name, wanted, fresh=past is None)

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The rounds up to here: requests, costs and results, for the privacy statement."""
        return tuple(self.journal.rounds[: self._played])

    @property
    def spent(self) -> Fraction:
        """What the rounds up to here cost, in ρ, lost ones included."""
        return sum((past.cost for past in self.rounds), Fraction(0))

    @property
    def resuming(self) -> bool:
        """Are there rounds in the journal that were not asked for again yet?"""
        return self._played < len(self.journal.rounds)

    def draw_round(
        self, request: Values, cost: Fraction, draw: Callable[[], Values], values: int, withheld: Fraction
    ) -> Values | None:
        """The next round's result: from the journal if it is there, otherwise reserved, drawn and recorded.

        It leaves the part `withheld` of the budget. One round at a time, whichever threads ask, so that each sees what
        those before it spent.
        """
        with self.alone():
            if self.resuming:
                past = self.journal.rounds[self._played]
                if past.request != request or past.cost != cost:
                    raise ReleaseError(
                        f"the journal's round {self._played + 1} was another one ({past.request['kind']}, "
                        f"ρ = {as_decimal(past.cost)}) than is asked for now ({request['kind']}, "
                        f"ρ = {as_decimal(cost)}): resume with the same program and options, or start anew in another "
                        "folder with its own budget"
                    )
                self._played += 1
                return past.result
            left = self.budget.amount - self.spent - withheld
            if cost > left:
                raise BudgetError(
                    f"this round would cost ρ = {as_decimal(cost)}, and ρ = {as_decimal(left, up=False)} is left "
                    f"of ρ = {as_decimal(self.budget.amount, up=False)}. Nothing was spent on it."
                )
            self.journal.reserve(request, cost, values)
            self._played += 1
            self._begin_round(self._played)
            result = from_outside("Drawing a round")(draw)()
            self.journal.record(result)
            return result

    def alone(self) -> threading.RLock:
        """The lock of this run. A forked process has a copy of what is left to spend: it is refused."""
        if os.getpid() != self._process:
            raise BudgetError(
                "private tables belong to the process that opened them, and this is another one (a fork of it): the "
                "budget would be spent in both. Ask in the first process; nothing was spent."
            )
        return self._lock

    def _check_same(self, past: Values, about: Values, digest: Callable[[bytes], str] | None) -> None:
        """Refuse to go on with another run than the journal's."""
        if (past["ledger"] is None) != (about["ledger"] is None):
            which = "without a ledger" if past["ledger"] is None else "with a ledger"
            raise ReleaseError(f"the journal belongs to a run {which}; resume it in the same way")
        if past["ledger"] != about["ledger"] and self._held(past["token"]) is None:
            raise ReleaseError(
                f"the run was begun with the account {past['name']!r} in {past['ledger']}, and {about['ledger']} does "
                "not hold its reservation. Nothing was spent now. Resume with the ledger of the first run."
            )
        if other := [name for name in about if past.get(name) != about[name] and name != "ledger"]:
            raise ReleaseError(
                f"the journal belongs to another run: it was begun with another {', '.join(other)}. Nothing was spent "
                "now. Resume with the same data and options, or use another folder, which needs a budget of its own."
            )
        if digest is not None and past["rows"] != digest(bytes.fromhex(past["key"])):
            raise ReleaseError(
                "the private rows are not those that this run began with, though they have the same name. Resume with "
                "the same rows, or start anew in another folder, which needs a budget of its own."
            )

    def _reserve(
        self, charge: Charge, name: str | None, wanted: tuple[Budget, Relation, str | None], *, fresh: bool
    ) -> Receipt | None:
        if self._ledger is None:
            return None
        # The token is on disk: killed from here on, the run finds its reservation again instead of making another.
        assert self.journal.facts is not None
        token = self.journal.facts["token"]
        try:
            receipt = self._ledger.reserve(name, *wanted, token=token, **charge.flags)
        except TallytreeError:
            if fresh and not self._may_hold(token):
                self.journal.forget()
            raise
        if self.journal.receipt is None:
            self.journal.keep_receipt(receipt.number)
        if "rows" in self.journal.facts:  # a run of rounds
            begun = self._check_rounds(token)
            for number in range(begun + 1, len(self.journal.rounds) + 1):
                self._begin_round(number)  # cut off before the ledger knew: nothing was drawn for it, nothing will be
        return receipt

    def _check_rounds(self, token: str) -> int:
        """How many rounds the ledger began; refuse to resume unless it has ours, and no other run went on from them."""
        held, ours = self._held(token), self.journal.rounds
        if held is None or held.number != self.journal.receipt:
            raise ReleaseError(
                "the ledger does not hold the reservation that this journal was begun with: resume with the ledger "
                "of the first run"
            )
        begun = [(each.mark, each.cost) for each in held.rounds]
        known = [(each.mark, each.cost) for each in ours]
        if len(known) < len(begun) or known[: len(begun)] != begun:
            raise ReleaseError(
                f"this journal is a copy, or was restored: it has {len(known)} rounds, and of the {len(begun)} that "
                "the ledger knows some were drawn by another run. Nothing was drawn now. Go on with that run's folder."
            )
        ahead = ours[len(begun) :]
        if len(ahead) > 1 or any(each.result is not None for each in ahead):
            raise ReleaseError(
                f"the ledger knows {len(begun)} of this journal's {len(known)} rounds: an older copy of the ledger was "
                "put in its place. Nothing was drawn now. Restore the newest copy."
            )
        return len(begun)

    def _begin_round(self, number: int) -> None:
        """Begin a round that the journal put down; its noise may be drawn once this returns."""
        if self._ledger is not None:
            assert self.journal.receipt is not None
            past = self.journal.rounds[number - 1]
            receipt = Receipt(str(self._ledger.path), self.journal.receipt)
            self._ledger.begin_round(receipt, number=number, cost=past.cost, mark=past.mark)

    def _held(self, token: str) -> Spending | None:
        assert self._ledger is not None
        return holding(self._ledger.account(self._name), token)

    def _may_hold(self, token: str) -> bool:
        """Does the ledger hold the reservation with this token? Yes, too, if it cannot be asked."""
        try:
            return self._held(token) is not None
        except TallytreeError:
            return True


# -------------------------------------------------------------------- group sizes: a release


@dataclass(frozen=True)
class FirstStage:
    """Where a run keeps what it measured first: `load` gives that of the run before, `keep` is called before the rest.

    `keep` also sees to the disk space for the rest, whose size is known by then.
    """

    load: Callable[[], Measurements | None]
    keep: Callable[[Measurements], None]


@dataclass(frozen=True)
class Place:
    """Where a release's run is kept: its journal, the public facts that a resumed run must share, and the first stage.

    Without a folder the journal is in memory.
    """

    journal: Journal = field(default_factory=lambda: Journal(None))
    facts: Mapping[str, Any] = field(default_factory=dict)
    first_stage: FirstStage | None = None


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
    place: Place | None = None,
) -> Measurements:
    """Answer the plan's questions with noise that makes them as private as its budget says.

    `settle` turns measured totals and a measured largest size into the ones that the other questions go by. With
    `same_data` the ledger takes files that another account was charged for, with `changed_files` other files than this
    account was charged for before. With a `place` whose journal has the token of a run that was killed it charges
    nothing more. Noise is then drawn anew: who calls this with a place shows nothing of it before `Ledger.settle_on`
    took its mark.

    Privacy: each question's noise is scaled to its exact share of the budget by the sensitivity of its view under the
    data's neighbour relation (`Neighbours.sensitivity`), and the shares add up to the budget at each size (`Plan`),
    whichever branch an adaptive plan takes: its rule reads numbers that have their noise already.
    """
    charge = Charge(ledger, same_data, changed_files)
    return measure_with(cryptographic(noise), group_sizes, plan, settle=settle, charge=charge, place=place)


def measure_with(
    randomness: Randomness,
    group_sizes: GroupSizes,
    plan: Plan,
    *,
    settle: Settle | None = None,
    charge: Charge = UNPAID,
    place: Place | None = None,
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

    branches = [[asked(question) for question in branch.questions] for branch in plan.branches]
    first = [one for one in branches[0] if one.view in FIRST]
    place = Place() if place is None else place
    stage = place.first_stage if first else None
    before = None if stage is None else stage.load()
    if before is not None:
        _check_same_questions(before, first, hierarchy, randomness)
    run = Run(group_sizes, neighbours, plan.budget, dict(place.facts), charge=charge, journal=place.journal)
    known = Measurements(
        hierarchy=hierarchy,
        neighbours=neighbours,
        budget=plan.budget,
        measured=(),
        region_totals=group_sizes.region_totals,
        listed_totals=listed_in_regions(group_sizes),
        noise_source=randomness.name,
        ledgered=charge.ledger is not None,
        same_data_as=() if run.receipt is None else run.receipt.same_data_as,
        receipt=run.receipt,
        regions_declared_public=group_sizes.regions_declared_public,
    )

    if before is None:
        known = _answered(group_sizes, randomness, first, known)
    else:
        answers = zip(first, before.measured, strict=True)
        known = replace(known, measured=tuple(replace(one, values=part.values) for one, part in answers))
    if settle is not None:
        known = replace(known, settled=settle(known))
    rest = branches[0]
    if plan.fork is not None:
        known = replace(known, passed=(passed := known.passing(plan.fork)))
        rest = branches[0 if passed.few else 1]
    if stage is not None:
        stage.keep(known)
    return _answered(group_sizes, randomness, [one for one in rest if one.view not in FIRST], known)


def _check_same_questions(
    before: Measurements, first: list[Measurement], hierarchy: Hierarchy, randomness: Randomness
) -> None:
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
    private = known.hierarchy.aggregate(group_sizes.counts.open_at_the_privacy_border())
    private = folded(private, known.max_size - known.first_size)
    answers = []
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
    return answers


def _check(plan: Plan, group_sizes: GroupSizes, settle: Settle | None) -> None:
    """Refuse a plan that does not fit the data's public facts."""
    depth = group_sizes.hierarchy.depth
    asked = [question for branch in plan.branches for question in branch.questions]
    if any(not 0 <= question.level < depth for question in asked):
        raise SpecError(f"the plan asks for a level that is not there; the hierarchy has {depth}")
    summed = [question for question in asked if question.summed]
    if any(not group_sizes.hierarchy.by.columns or question.level < 1 for question in summed):
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


def _small(scale: Fraction) -> bool:
    """May noisy sizes be kept in 32 bits? Noise alone then leaves their range with a probability below e^−999.

    Where a sum does leave it, `noisy_lists` holds it at the end of the range. That is a function of the noisy sum
    alone, so post-processing: it costs no privacy.
    """
    return 1000 * scale < SMALL.max


def variance_of(kind: NoiseKind, scale: Fraction) -> float:
    """The variance of noise of that kind and scale."""
    from tallytree.privacy.noise.draws import gaussian_variance, laplace_variance

    return laplace_variance(scale) if kind == "discrete_laplace" else gaussian_variance(scale)
