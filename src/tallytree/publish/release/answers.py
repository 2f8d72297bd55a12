"""Answers to questions about a release: sums, shares, means, ratios and differences.

Every answer has the released value, which agrees with the published table; the unbiased estimate straight from the
measurements, since whole numbers that are not negative are a little biased; and two intervals. *Guaranteed* ones follow
from least squares (`intervals.linear`), and for a single cell they are those of the table. *Typical* ones come
from the replicates behind the table's, which are run once for all questions that are asked together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tallytree.arrays import Integers
from tallytree.errors import ReleaseError
from tallytree.estimate.intervals import linear
from tallytree.estimate.intervals.guaranteed import guaranteed
from tallytree.estimate.intervals.linear import LinearSum
from tallytree.estimate.intervals.measured_view import MeasuredView, no_guarantee
from tallytree.estimate.intervals.value import Intervals, checked_level
from tallytree.histogram import size_label
from tallytree.long_table import key_columns
from tallytree.notebook import page, paragraph, quoted
from tallytree.progress import Progress, Stage, silent
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.error_bars import in_percent, replicated
from tallytree.publish.release.questions import Asked, Ends, QuestionKind, Regions, Sizes, Sum, named_regions, sizes_in
from tallytree.publish.release.truncation import AS_TRUNCATED, truncation

if TYPE_CHECKING:
    from tallytree.estimate.intervals.typical import Typical

DIGITS_OF_FLOATS = 12  # what comes after these is rounding in floating point
FEWEST_WITH_PROGRESS = 200  # questions; fewer are answered before anybody looks


@dataclass(frozen=True)
class Answer:
    """A value from the released counts with its error bars; all public."""

    question: str
    kind: QuestionKind
    released: float | None  # None where the released denominator is zero
    unbiased: float | None  # a ratio of unbiased estimates for shares and means; None where nothing is known of it
    guaranteed: Ends | None  # may be infinite
    typical: Ends | None
    confidence: float
    notes: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()  # ids
    truncated: bool = False  # were rows dropped before counting? A note says which, and the intervals are of the rest

    def shown(self, value: float | None) -> str:
        """A value of this answer for people: a count, a percentage or a number with at least four digits."""
        return self._text(value, ROUND_HALF_EVEN)

    def between(self, ends: Ends | None) -> str:
        """An interval for people, rounded outward: what is shown holds all that the interval does."""
        return "none" if ends is None else " … ".join(self.shown_ends(ends))

    def shown_ends(self, ends: Ends) -> tuple[str, str]:
        """Both ends for people, the lower one rounded down and the upper one up."""
        return self._text(ends[0], ROUND_FLOOR), self._text(ends[1], ROUND_CEILING)

    def _text(self, value: float | None, rounding: str) -> str:
        if value is None or math.isnan(value):
            return "undefined"
        if math.isinf(value):
            return "−∞" if value < 0 else "∞"
        with localcontext(prec=DIGITS_OF_FLOATS):
            number = +Decimal(value) * (100 if self.kind == "share" else 1)
            whole = number == round(number)
        decimals = (0 if whole else 1) if self.kind in ("sum", "difference") else self._decimals(number)
        with localcontext(prec=100):
            text = f"{number.quantize(Decimal(1).scaleb(-decimals), rounding):,f}"
        if "." in text and self.kind not in ("sum", "difference"):
            text = text.rstrip("0").rstrip(".")
        return f"{text.replace('-', '−')} %" if self.kind == "share" else text.replace("-", "−")

    def _decimals(self, number: Decimal) -> int:
        """Four digits of a number; more where that takes to tell the ends of a narrow interval apart."""
        widths = [high - low for low, high in (self.guaranteed or (0, 0), self.typical or (0, 0))]
        finite = [100 * width if self.kind == "share" else width for width in widths if 0 < width < math.inf]
        needed = [1 - math.floor(math.log10(width)) for width in finite]
        return min(max([3 - number.adjusted() if number else 0, *needed]), DIGITS_OF_FLOATS - 1 - number.adjusted())

    @property
    def truth(self) -> str:
        """What the intervals are about."""
        what = "the truncated mean" if self.kind == "mean" else "the truth"
        return f"{what} {AS_TRUNCATED}" if self.truncated else what

    @property
    def sentence(self) -> str:
        """The answer in words."""
        percent, what = in_percent(self.confidence), f"{self.question[0].upper()}{self.question[1:]}"
        told = [f"{what}: {self.shown(self.released)}."]
        if self.guaranteed is not None:
            if self.guaranteed == (self.released, self.released):
                told.append("It is known exactly.")
            elif all(map(math.isfinite, self.guaranteed)):
                low, high = self.shown_ends(self.guaranteed)
                told.append(
                    f"Whatever the data are, {self.truth} lies from {low} to {high} with a probability of at least "
                    f"{percent}."
                )
            else:
                told.append("The guaranteed interval is unbounded.")
        if self.typical not in (None, self.guaranteed) and all(map(math.isfinite, self.typical)):
            low, high = self.shown_ends(self.typical)
            told.append(
                f"For data like the released ones it lies from {low} to {high} with a probability of about {percent}."
            )
        return " ".join([*told, *self.notes])

    def __repr__(self) -> str:
        percent = in_percent(self.confidence)
        ends = {"guaranteed": self.guaranteed, "typical": self.typical}
        told = [f"{kind} {self.between(found)} at {percent}" for kind, found in ends.items() if found is not None]
        return f"Answer({quoted(self.question)}, {', '.join([self.shown(self.released), *told])})"

    def _repr_html_(self) -> str:
        percent = in_percent(self.confidence)
        found = {
            "released": self.shown(self.released),
            "unbiased": "" if self.unbiased is None else self.shown(self.unbiased),
            f"guaranteed at {percent}": self.between(self.guaranteed),
            f"typical at {percent}": self.between(self.typical),
        }
        return page(self.question, found, paragraph(self.sentence))

    def to_json(self) -> dict[str, Any]:
        """Plain values; an end that is infinite or missing is None."""

        def ends(found: Ends | None) -> list[float | None] | None:
            return None if found is None else [end if math.isfinite(end) else None for end in found]

        return {
            "question": self.question,
            "kind": self.kind,
            "regions": list(self.regions),
            "released": self.released,
            "unbiased": self.unbiased,
            "guaranteed": ends(self.guaranteed),
            "typical": ends(self.typical),
            "confidence": self.confidence,
            "notes": list(self.notes),
            "truncated": self.truncated,
            "sentence": self.sentence,
        }


def answers(
    release: ReleaseContents,
    questions: Sequence[Asked],
    *,
    confidence: float | None = None,
    typical: bool = True,
    progress: Progress = silent,
) -> list[Answer]:
    """Answer questions together; what they have in common is computed once.

    `confidence` is the release's own unless given. `typical=False` leaves typical intervals out, which take 25
    estimates unless only single cells are asked for at the release's own level.
    """
    level = release.error_bars.confidence if confidence is None else checked_level(confidence)
    answering = _Answering(release, questions, level, typical, progress)
    found = []
    for number in range(len(questions)):
        if len(questions) >= FEWEST_WITH_PROGRESS:
            progress(Stage("answering", number, len(questions)))
        found.append(answering.answer(number))
    return found


def bands(release: ReleaseContents, regions: Regions, sizes: Sizes = None, *, confidence: float | None = None) -> Any:
    """Guaranteed intervals that hold together for all sizes of a region: level, region, size, count, lower, upper."""
    import pyarrow as pa

    level = release.error_bars.confidence if confidence is None else checked_level(confidence)
    wanted, columns = named_regions(regions, release.hierarchy), sizes_in(sizes, release.sizes)
    found = guaranteed(release.measurements, release.counts, level=level, simultaneous=True)
    if found is None:
        raise ReleaseError(f"there are no bands: {no_guarantee(release.measurements)}")
    tables = []
    for region in wanted:
        keys = key_columns(release.hierarchy, range(region, region + 1), release.sizes)
        cells = {"count": release.counts, "lower": found.lower, "upper": found.upper}
        rows = pa.table({**keys, **{name: values[region] for name, values in cells.items()}})
        tables.append(rows.take([size - release.sizes.start for size in columns]))
    return pa.concat_tables(tables)


# -------------------------------------------------------------------- how questions are answered


@dataclass(frozen=True, eq=False)
class _Answering:
    """Questions to one release at one level of confidence, and what their answers share."""

    release: ReleaseContents
    questions: Sequence[Asked]
    confidence: float
    wants_typical: bool
    progress: Progress

    @cached_property
    def why_not(self) -> str | None:
        """Why nothing is guaranteed, where nothing is."""
        return no_guarantee(self.release.measurements)

    def answer(self, number: int) -> Answer:
        """The answer to one question."""
        question = self.questions[number]
        released, notes = self._released(question), self._notes(question)
        unbiased, sure, exact = None, None, False
        if self.why_not is None:
            unbiased, sure, exact, unsure = self._guaranteed(question, released)
            if unsure:
                notes.append(unsure)
        else:
            notes.append(self.why_not)
        truncated = self.release.measurements.neighbours.truncated and not exact  # a public total lost nothing
        if truncated:
            notes.append(truncation(self.release.measurements.neighbours))
        likely = None
        if self.wants_typical:
            likely = sure if exact else self._typical(number, released, notes)
        ids = self.release.hierarchy.ids
        return Answer(
            question=question.words,
            kind=question.kind,
            released=released,
            truncated=truncated,
            unbiased=None if unbiased is None or math.isnan(unbiased) else unbiased,
            guaranteed=sure,
            typical=likely,
            confidence=self.confidence,
            notes=tuple(notes),
            regions=tuple(ids[region] for region in question.one.regions),
        )

    # ---------------------------------------------------------------- released

    def _released(self, question: Asked) -> float | None:
        return question.value(self.release.counts, self.release.sizes.start)

    def _notes(self, question: Asked) -> list[str]:
        release, notes = self.release, []
        last = release.sizes[-1]
        if question.kind == "mean":
            notes.append(f"Groups of {size_label(last, last)} count as {last}, so the mean is truncated at {last}.")
        totals = release.measurements.region_totals
        if question.kind == "sum" and totals is not None and len(question.one.sizes) == len(release.sizes):
            public = int(totals[list(question.one.regions)].sum())
            kept = "" if release.made_by.keeps_totals else f", which {release.mechanism} keeps for the root only"
            notes.append(f"The public number of groups there is {public:,}{kept}.")
        if self._released(question) is None:
            notes.append("The released denominator is zero, so there is no released value.")
        return notes

    # ---------------------------------------------------------------- guaranteed

    @cached_property
    def _view(self) -> MeasuredView:
        return MeasuredView.of(self.release.measurements)

    @cached_property
    def _cells(self) -> Intervals:
        """The table's intervals, at this level of confidence."""
        found = guaranteed(self.release.measurements, self.release.counts, level=self.confidence)
        assert found is not None  # asked for only where there is a guarantee
        return found

    def _linear(self, wanted: Sum) -> LinearSum:
        """The unbiased estimate of a sum; public totals make those of most sizes sums of the few others."""
        sizes, totals = self.release.sizes, self.release.measurements.region_totals
        if wanted.entities:
            return linear.entities(self._view, wanted.regions)
        if len(wanted.sizes) == len(sizes):
            return linear.groups(self._view, wanted.regions)
        direct = linear.linear_estimate(self._view, wanted.regions, wanted.sizes)
        if totals is None:
            return direct
        rest = linear.linear_estimate(self._view, wanted.regions, sorted(set(sizes) - set(wanted.sizes)))
        if rest.variance >= direct.variance:
            return direct
        public = float(totals[list(wanted.regions)].sum())
        negated = -rest.column_weights
        return LinearSum(rest.view, rest.region_weights, negated, public - rest.estimate, rest.variance)

    def _guaranteed(self, question: Asked, released: float | None) -> tuple[float, Ends, bool, str]:
        """Unbiased estimate, interval, whether it is exact, and what to say where it is unbounded."""
        one = self._linear(question.one)
        if question.other is None:
            if question.cell is not None:
                return one.estimate, self._of_cell(self._cells, question.cell), False, ""
            ends = _whole(*one.interval(self.confidence))
            return one.estimate, self._possible(question, ends, released), one.variance == 0, ""
        other = self._linear(question.other)
        if question.kind == "difference":
            gap = linear.difference(one, other, level=self.confidence)
            ends = _whole(gap.lower, gap.upper)
            return gap.estimate, self._possible(question, ends, released), gap.variance == 0, ""
        found = linear.ratio(one, other, level=self.confidence)
        ends = self._possible(question, (found.lower, found.upper), released)
        if found.bounded:
            return found.estimate, ends, False, ""
        unbounded = "The denominator may be zero, so the measurements do not bound the answer"
        within = "." if math.isinf(ends[1]) else f" beyond what is possible at all, {ends[0]:g} to {ends[1]:g}."
        return math.nan, ends, False, unbounded + within

    def _possible(self, question: Asked, ends: Ends, released: float | None) -> Ends:
        """The part of an interval that is possible at all, with the released value."""
        least, greatest = self._bounds(question)
        low, high = (min(max(end, least), greatest) for end in ends)
        return (low, high) if released is None else (min(low, released), max(high, released))

    def _bounds(self, question: Asked) -> Ends:
        return question.bounds(self.release.measurements.region_totals, self.release.sizes)

    def _of_cell(self, intervals: Intervals, cell: tuple[int, int]) -> Ends:
        place = cell[0], cell[1] - self.release.sizes.start
        return int(intervals.lower[place]), int(intervals.upper[place])

    # ---------------------------------------------------------------- typical

    @cached_property
    def _functions(self) -> list[Callable[[Integers], Any]]:
        """For every question its value and its logarithm, not a number where there is none."""

        def values(question: Asked) -> Callable[[Integers], Any]:
            def function(counts: Integers) -> Any:
                value = question.value(counts, self.release.sizes.start)
                value = math.nan if value is None else value
                ratio = question.kind == "ratio" and value > 0
                return np.array([value, math.log(value) if ratio else math.nan])

            return function

        return [values(question) for question in self.questions]

    @cached_property
    def _replicates(self) -> Typical | str:
        """What the replicates showed, or why there are none."""
        release = self.release
        try:
            return replicated(
                release.measurements,
                release.counts,
                release.made_by,
                confidence=self.confidence,
                functions=self._functions,
                progress=self.progress,
            )
        except Exception as error:  # of public values alone
            return f"There is no typical interval: {release.mechanism} cannot estimate from fresh noise ({error})."

    def _typical(self, number: int, released: float | None, notes: list[str]) -> Ends | None:
        question, stored = self.questions[number], self.release.error_bars.typical
        if question.cell is not None and stored is not None and stored.level == self.confidence:
            return self._of_cell(stored, question.cell)
        found = self._replicates
        if isinstance(found, str):
            notes.append(found)
            return None
        if question.cell is not None:
            return self._of_cell(found.intervals, question.cell)
        plain, logarithmic = (float(deviation) for deviation in found.deviations[number])
        if released is None or not math.isfinite(plain):
            notes.append("The denominator was zero in some replicates, so the typical interval is unbounded.")
            return self._bounds(question)
        if question.kind in ("sum", "difference"):
            half: float = max(1, math.ceil(found.factor * plain - 1e-9))
            return self._possible(question, (released - half, released + half), released)
        # One group more or less is always typical, even where no replicate showed it.
        first, counts = self.release.sizes.start, self.release.counts
        one, other = (each.of(counts, first) for each in (question.one, question.other) if each is not None)
        if question.kind == "ratio" and math.isfinite(logarithmic):
            spread = math.exp(max(found.factor * logarithmic, math.log1p(1 / one)))
            return self._possible(question, (released / spread, released * spread), released)
        half = max(found.factor * plain, 1 / other)
        return self._possible(question, (released - half, released + half), released)


def _whole(low: float, high: float) -> Ends:
    """The whole numbers within an interval, a little rounding in floats allowed for."""
    slack = 1e-9 * (1 + abs(low) + abs(high))
    return math.ceil(low - slack), math.floor(high + slack)
