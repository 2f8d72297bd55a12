"""Answer queries: sums, shares, means, ratios and differences.

Every answer has the released value, which agrees with the published table. It also has the unbiased estimate straight
from the measurements, since non-negative integers are slightly biased, and two intervals. *Guaranteed* ones follow from
least squares (`intervals.linear`); for a single cell they are those of the table. *Typical* ones come from the
replicates behind the table's intervals, which run once for all queries of one call. If sorted lists or size bands were
measured, no unbiased estimate exists. Sums are then bounded by `at_least_bounds`, and means by bounds of the numbers
of entities and of groups; shares, ratios and differences are not bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.progress import Progress, Stage, silent
from tallytree.domain.categories import ALL
from tallytree.domain.histogram import size_label
from tallytree.estimate.intervals import linear
from tallytree.estimate.intervals.disagreement import CHANCE, disagreement
from tallytree.estimate.intervals.guaranteed import bounded_sums, entity_ends, guaranteed, guaranteed_sums
from tallytree.estimate.intervals.interval import Intervals, Kind, checked_level
from tallytree.estimate.intervals.linear import LinearSum, MeasuredView, no_guarantee, no_linear
from tallytree.estimate.intervals.one_sided_bounds import at_least_bounds
from tallytree.estimate.intervals.unions import Unions
from tallytree.publish.release.answer import Answer
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.descriptions import truncation
from tallytree.publish.release.error_bars import NoReplicatesError, guaranteed_rows, replicated, typical_rows
from tallytree.publish.release.queries import (
    By,
    Ends,
    Query,
    Regions,
    ResolvedQuery,
    Scope,
    Sizes,
    Sum,
    resolve,
    row_in_words,
    sizes_in,
    unions_of,
)
from tallytree.publish.table import key_columns

if TYPE_CHECKING:
    from tallytree.estimate.intervals.typical import Typical

MOST_NOTES = 6  # of one answer, including those on disagreements
FEWEST_WITH_PROGRESS = 200  # queries; fewer finish without noticeable delay


class Options(TypedDict, total=False):
    """How queries are answered: see `Release.ask`."""

    confidence: float | None
    typical: bool
    progress: Progress


def answer_queries(
    release: ReleaseContents,
    queries: Sequence[Query],
    *,
    confidence: float | None = None,
    typical: bool = True,
    progress: Progress = silent,
) -> list[Answer]:
    """Answer several queries in one run; shared parts are computed once.

    `confidence` is the release's own by default. `typical=False` leaves out typical intervals, which take 25 estimates
    unless every query is about a single cell at the release's own confidence.
    """
    level = release.error_bars.confidence if confidence is None else checked_level(confidence)
    answering = _Answering(
        release, [resolve(query, release.hierarchy, release.sizes) for query in queries], level, typical, progress
    )
    found = []
    for number in range(len(queries)):
        if len(queries) >= FEWEST_WITH_PROGRESS:
            progress(Stage("answering", number, len(queries)))
        found.append(answering.answer(number))
    return found


def simultaneous_bands(
    release: ReleaseContents,
    places: Iterable[Regions],
    sizes: Sizes = None,
    *,
    by: By = None,
    confidence: float | None = None,
) -> Any:
    """Return guaranteed intervals that hold jointly for all sizes of one region or area, as a pyarrow Table.

    Each region or area has a band of its own. The columns are level and region, or area; each category, with the value
    that
    `by` gives it; size, count, lower and upper.
    """
    import pyarrow as pa

    level = release.error_bars.confidence if confidence is None else checked_level(confidence)
    tree, columns = release.hierarchy, [size - release.sizes.start for size in sizes_in(sizes, release.sizes)]
    cells = guaranteed(release.measurements, release.counts, level=level, simultaneous=True)
    if cells is None:
        raise ReleaseError(f"no bands: {no_guarantee(release.measurements)}")
    scopes = [Scope.of(place, by, tree) for place in places]
    unions = unions_of(scopes, tree)
    found, counts = guaranteed_sums(release.measurements, release.counts, unions, cells), unions.add_up(release.counts)
    tables = []
    for place, scope in enumerate(scopes):
        keys = key_columns(tree.regions, range(scope.regions[0], scope.regions[0] + 1), release.sizes)
        size, chosen = keys.pop("size"), scope.by(tree)
        keys = {"area": pa.array([scope.area] * len(size))} if scope.area else keys
        values = {"count": counts[place], "lower": found.lower[place], "upper": found.upper[place]}
        by_value = {name: [value] * len(size) for name, value in chosen.items()}
        tables.append(pa.table({**keys, **by_value, "size": size, **values}).take(columns))
    return pa.concat_tables(tables)


# -------------------------------------------------------------------- how questions are answered


@dataclass(frozen=True, eq=False)
class _Answering:
    """Queries to one release at one confidence level, and the values that their answers share."""

    release: ReleaseContents
    questions: Sequence[ResolvedQuery]
    confidence: float
    wants_typical: bool
    progress: Progress

    @cached_property
    def why_not(self) -> str | None:
        """Return why the release guarantees nothing; None if it does."""
        return no_guarantee(self.release.measurements)

    @cached_property
    def not_linear(self) -> str | None:
        """Return why sums have no unbiased estimate."""
        return no_linear(self.release.measurements)

    def answer(self, number: int) -> Answer:
        """Return the answer to one query."""
        question = self.questions[number]
        released, notes = self._released(question), self._notes(question)
        unbiased, sure, exact = None, None, False
        if self.why_not is None and self.not_linear is not None:
            sure, without = self._bounded(question, released)
            exact = sure is not None and sure == (released, released) and self._is_public(question)
            notes.extend(without)
        elif self.why_not is None:
            unbiased, sure, exact, unsure = self._guaranteed(question, released)
            if unsure:
                notes.append(unsure)
        else:
            notes.append(self.why_not)
        truncated = (
            self.release.measurements.neighbours.truncated and not exact
        )  # truncation does not change a public total
        if truncated:
            notes.append(truncation(self.release.measurements.neighbours))
        likely = None
        if self.wants_typical and (not self.release.partial or question.cell is not None):
            likely = sure if exact else self._typical(number, released, notes)
        tree, scope = self.release.hierarchy, question.scope
        return Answer(
            question=question.words,
            kind=question.kind,
            released=released,
            truncated=truncated,
            unbiased=None if unbiased is None or math.isnan(unbiased) else unbiased,
            guaranteed=sure,
            typical=likely,
            recommended=self._recommended(question, sure, likely),
            confidence=self.confidence,
            notes=tuple(notes),
            regions=tuple(tree.regions.ids[region] for region in scope.regions),
            area=scope.area,
            by=tuple(scope.by(tree).items()),
        )

    def _recommended(self, question: ResolvedQuery, sure: Ends | None, likely: Ends | None) -> Kind | None:
        """Return which of two intervals to use: the kind that the release recommends for such numbers, if it exists.

        A mean counts as a number of entities, everything else as counts. Several regions count as those of their lowest
        level.
        So the choice does not depend on the values of this answer's intervals.
        """
        if sure is None or likely is None:
            return "guaranteed" if sure is not None else "typical" if likely is not None else None
        tree, scope = self.release.hierarchy, question.scope
        bars, what = self.release.error_bars, "entities" if question.kind == "mean" else "counts"
        for area in self.release.areas if scope.area else ():
            if what == "counts" and area.name == scope.area and area.regions == scope.regions:
                return bars.recommended("areas", area.kind) or "guaranteed"
        level = tree.regions.levels[max(int(tree.regions.level_of[region]) for region in scope.regions)]
        summed = ALL in scope.values
        return bars.recommended(what, f"{level}, {tree.levels[0]}" if summed else level) or "guaranteed"

    # ---------------------------------------------------------------- released

    def _released(self, question: ResolvedQuery) -> float | None:
        return question.value(self.release.counts, self.release.sizes.start)

    def _notes(self, question: ResolvedQuery) -> list[str]:
        release, notes = self.release, []
        last = release.sizes[-1]
        if question.kind == "mean":
            notes.append(
                f"Groups of {size_label(last, last)} count as {last}, so the mean is truncated at {last}: a lower "
                "bound where there are larger ones."
            )
        if self._is_public(question) and (public := self._public(question.one)) is not None:
            kept = "" if release.made_by.keeps_totals else f", which {release.mechanism} keeps for the root only"
            notes.append(f"The public number of groups there is {public:,}{kept}.")
        for region in dict.fromkeys((*question.one.regions, *(question.other.regions if question.other else ()))):
            if len(notes) < MOST_NOTES and (found := self._disagreement(region)):
                notes.append(found)
        if self._released(question) is None:
            notes.append("The released denominator is zero, so there is no released value.")
        return notes

    def _disagreement(self, region: int) -> str:
        """Return a note on a region whose own measurements differ from its counts by more than noise explains."""
        release = self.release
        found = disagreement(release.measurements, release.counts, region)
        if found is None:
            return ""
        last = release.sizes[-1]
        sizes = f"size {size_label(found.first, last)}"
        if found.first != found.last:
            sizes = f"sizes {found.first} to {size_label(found.last, last)}"
        return (
            f"The measurement of {row_in_words(region, release.hierarchy)} differs from its released counts by "
            f"{abs(found.deviations):.1f} standard deviations of the noise at {sizes}: shrinkage may have moved the "
            "counts towards those of other regions. If the counts were true, noise would do that with a probability "
            f"of at most 1 in {round(1 / CHANCE):,}."
        )

    # ---------------------------------------------------------------- guaranteed

    @cached_property
    def _view(self) -> MeasuredView:
        return MeasuredView.of(self.release.measurements)

    @cached_property
    def _over_all(self) -> MeasuredView | None:
        """Return the measurements of the sums over all categories, if any."""
        over = self.release.measurements.over_categories
        return None if not over.measured or no_linear(over) is not None else MeasuredView.of(over)

    @cached_property
    def _cells(self) -> Intervals:
        """Return the table's intervals at this confidence level."""
        stored = self.release.error_bars.guaranteed
        if self.release.partial and stored is not None and stored.level == self.confidence:
            return stored
        return guaranteed_rows(self.release.measurements, self.release.counts, self.confidence)

    def _sums(self, question: ResolvedQuery) -> list[LinearSum]:
        """Return the unbiased estimates of a query's sums, all from the same measurements."""
        asked = [question.one] if question.other is None else [question.one, question.other]
        over = self._over_all if all(each.over_all is not None for each in asked) else None
        if over is None:
            return [self._linear(self._view, each) for each in asked]
        return [self._linear(over, replace(each, regions=each.over_all or ())) for each in asked]

    def _linear(self, view: MeasuredView, wanted: Sum) -> LinearSum:
        """Return the unbiased estimate of a sum; with public totals, long sums are the total minus the rest."""
        sizes, totals = self.release.sizes, view.measurements.region_totals
        if wanted.entities:
            return linear.entities(view, wanted.regions)
        if len(wanted.sizes) == len(sizes):
            return linear.groups(view, wanted.regions)
        direct = linear.linear_estimate(view, wanted.regions, wanted.sizes)
        if totals is None:
            return direct
        rest = linear.linear_estimate(view, wanted.regions, sorted(set(sizes) - set(wanted.sizes)))
        if rest.variance >= direct.variance:
            return direct
        return LinearSum((), float(totals[list(wanted.regions)].sum())).minus(rest)

    def _guaranteed(self, question: ResolvedQuery, released: float | None) -> tuple[float, Ends, bool, str]:
        """Return unbiased estimate, interval, whether it is exact, and a note if it is unbounded."""
        one, *others = self._sums(question)
        if question.other is None:
            if self._is_public(question) and (public := self._public(question.one)) is not None:
                return public, self._possible(question, (public, public), released), True, ""
            if question.cell is not None:
                return one.estimate, self._of_cell(self._cells, question.cell), False, ""
            return one.estimate, self._of_sum(question, one, released), one.variance == 0, ""
        (other,) = others
        if question.kind == "difference":
            gap = one.minus(other)
            return gap.estimate, self._of_sum(question, gap, released), gap.variance == 0, ""
        found = linear.ratio(one, other, level=self.confidence)
        if question.kind == "mean" and self._entities_tell(question):
            return found.estimate, self._possible(question, self._mean_ends(question), released), False, ""
        ends = self._possible(question, (found.lower, found.upper), released)
        if ends[0] == ends[1]:  # it contains no possible value
            ends = self._possible(question, self._of_two_sums(question, one, other), released)
        if found.bounded:
            return found.estimate, ends, False, ""
        unbounded = "The denominator may be zero, so the measurements do not bound the answer"
        within = "." if math.isinf(ends[1]) else f" beyond its possible values, {ends[0]:g} to {ends[1]:g}."
        return math.nan, ends, False, unbounded + within

    def _bounded(self, question: ResolvedQuery, released: float | None) -> tuple[Ends | None, list[str]]:
        """Return an interval from bounds of `at_least` counts if no unbiased estimate exists, or a note."""
        if question.cell is not None:
            return self._of_cell(self._cells, question.cell), []
        if question.kind == "mean":
            mean = self._mean_ends(question)
            unbounded = ["The number of groups may be zero, so the measurements do not bound the mean."]
            return self._possible(question, mean, released), unbounded if math.isinf(mean[1]) else []
        if question.kind != "sum":
            return None, [f"A {question.kind} has no guaranteed interval here. {self.not_linear}"]
        if self._is_public(question) and (total := self._public(question.one)) is not None:
            return self._possible(question, (total, total), released), []
        one, measurements = question.one, self.release.measurements
        union, sizes = Unions.of_regions([one.regions]), np.array(one.sizes)
        low, high = bounded_sums(measurements, union, sizes, 1 - self.confidence, self._at_least)
        return self._spread(question, self._possible(question, (float(low[0]), float(high[0])), released)), []

    def _of_sum(self, question: ResolvedQuery, found: LinearSum, released: float | None) -> Ends:
        """Return a sum's interval: its estimate, clipped to possible values, ± its half-width, as for cells."""
        least, greatest = self._bounds(question)
        value, half = min(max(found.estimate, least), greatest), found.half_width(self.confidence)
        ends = self._possible(question, _whole(value - half, value + half), released)
        return ends if found.variance == 0 else self._spread(question, ends)

    def _of_two_sums(self, question: ResolvedQuery, one: LinearSum, other: LinearSum) -> Ends:
        """Return the ends of a ratio from those of both sums. Each sum has half of the error probability.

        So both hold jointly. The estimates are clipped to possible values, so the interval is never empty.
        """
        chance = (1 - self.confidence) / 2
        (low, high), (least, most) = (
            (max(0.0, max(0.0, each.estimate) - half), max(0.0, each.estimate) + half)
            for each, half in ((one, one.reach(chance)), (other, other.reach(chance)))
        )
        return (low / most if most else 0.0), (high / least if least else math.inf)

    def _spread(self, question: ResolvedQuery, ends: Ends) -> Ends:
        """Widen a single integer's interval to its neighbours: noise leaves nothing certain."""
        if ends[0] != ends[1]:
            return ends
        least, greatest = self._bounds(question)
        return max(ends[0] - 1, least), min(ends[1] + 1, greatest)

    def _entities_tell(self, question: ResolvedQuery) -> bool:
        """Return whether the region's number of entities was measured and its number of groups is public."""
        measurements, regions = self.release.measurements, question.one.regions
        public = measurements.region_totals is not None and bool(measurements.region_totals[regions[0]] > 0)
        return public and len(regions) == 1 and any(part.view == "entities" for part in measurements.measured)

    def _mean_ends(self, question: ResolvedQuery) -> Ends:
        """Return the ends of a mean: ends of the number of entities, divided by those of groups.

        With public totals it fails if one of 2 n bounds does, n the number of regions; with private ones, one of 4 n.
        """
        measurements, regions = self.release.measurements, list(question.one.regions)
        totals = measurements.region_totals
        chance = (1 - self.confidence) / ((2 if totals is not None else 4) * len(regions))
        low, high = (max(0, int(end[regions].sum())) for end in self._entity_ends(chance))
        if totals is not None:
            least = most = int(totals[regions].sum())
        else:
            least, most = (max(0, int(end[regions, 0].sum(dtype=object))) for end in self._at_least(chance))
        return (low / most if most else 0.0), (high / least if least else math.inf)

    @cached_property
    def _entity_ends(self) -> Callable[[float], tuple[Integers, Integers]]:
        """Return bounds of numbers of entities for a failure probability of each bound; cached."""
        return cache(partial(entity_ends, self.release.measurements))

    @cached_property
    def _at_least(self) -> Callable[[float], tuple[Integers, Integers]]:
        """Return bounds of `at_least` counts for a failure probability of each bound; cached."""
        return cache(partial(at_least_bounds, self.release.measurements))

    def _is_public(self, question: ResolvedQuery) -> bool:
        """Return whether a sum is the number of all groups and that number is public."""
        every = question.kind == "sum" and len(question.one.sizes) == len(self.release.sizes)
        return every and self._public(question.one) is not None

    def _public(self, wanted: Sum) -> int | None:
        """Return the public number of all groups of a scope; None if it is private."""
        measurements = self.release.measurements
        if measurements.region_totals is not None:
            return int(measurements.region_totals[list(wanted.regions)].sum())
        if measurements.listed_totals is not None and wanted.over_all is not None:
            return int(measurements.listed_totals[list(wanted.over_all)].sum())
        return None

    def _possible(self, question: ResolvedQuery, ends: Ends, released: float | None) -> Ends:
        """Return the intersection of an interval with the possible values, extended to the released value."""
        least, greatest = self._bounds(question)
        low, high = (min(max(end, least), greatest) for end in ends)
        return (low, high) if released is None else (min(low, released), max(high, released))

    def _bounds(self, question: ResolvedQuery) -> Ends:
        return question.bounds(self._public, self.release.sizes)

    def _of_cell(self, intervals: Intervals, cell: tuple[int, int]) -> Ends:
        place = cell[0], cell[1] - self.release.sizes.start
        return int(intervals.lower[place]), int(intervals.upper[place])

    # ---------------------------------------------------------------- typical

    @cached_property
    def _functions(self) -> list[Callable[[Integers], Any]]:
        """Return every query's value and its logarithm; NaN for an undefined logarithm."""

        def values(question: ResolvedQuery) -> Callable[[Integers], Any]:
            def function(counts: Integers) -> Any:
                value = question.value(counts, self.release.sizes.start)
                value = math.nan if value is None else value
                ratio = question.kind == "ratio" and value > 0
                return np.array([value, math.log(value) if ratio else math.nan])

            return function

        return [values(question) for question in self.questions]

    @cached_property
    def _replicates(self) -> Typical | str:
        """Return the replicates' values, or why they failed."""
        release = self.release
        try:
            return replicated(
                release.measurements,
                release.counts,
                release.made_by,
                self.confidence,
                self._functions,
                progress=self.progress,
            )
        except NoReplicatesError as error:
            return f"There is no typical interval: {error}."

    def _typical(self, number: int, released: float | None, notes: list[str]) -> Ends | None:
        question, stored = self.questions[number], self.release.error_bars.typical
        if question.cell is not None and stored is not None and stored.level == self.confidence:
            return self._of_cell(stored, question.cell)
        found = self._replicates
        if isinstance(found, str):
            notes.append(found)
            return None
        if question.cell is not None:
            return self._of_cell(typical_rows(found, self.release.measurements), question.cell)
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
    """Return the integers within an interval, with a small tolerance for float rounding."""
    slack = 1e-9 * (1 + abs(low) + abs(high))
    return math.ceil(low - slack), math.floor(high + slack)
