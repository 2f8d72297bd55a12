"""Answer queries: sums and their differences, quotients of sums, and statistics of sizes.

Every answer has the released value, which agrees with the published table, and two intervals. Sums and quotients also
have the unbiased estimate straight from the measurements, since non-negative integers are slightly biased.
*Guaranteed* intervals of sums and quotients follow from least squares (`intervals.linear`); for a single cell they are
those of the table. Those of statistics follow from bounds of cumulative counts (`intervals.size_distribution`).
*Typical* ones come from the replicates behind the table's intervals, which run once for all queries of one call. If
sorted lists or size bands were measured, no unbiased estimate exists. Then each sum has its own bounds (`SumBounds`),
and what is computed from several sums lies within the ends that their bounds allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.progress import Progress, Stage, silent
from tallytree.domain.histogram import size_label
from tallytree.estimate.intervals import linear
from tallytree.estimate.intervals.disagreement import CHANCE, disagreement
from tallytree.estimate.intervals.guaranteed import SumBounds, guaranteed, guaranteed_sums
from tallytree.estimate.intervals.interval import Intervals, Kind, checked_level
from tallytree.estimate.intervals.linear import LinearSum, MeasuredView, no_guarantee, no_linear
from tallytree.estimate.intervals.size_distribution import Statistic
from tallytree.estimate.intervals.unions import Unions
from tallytree.publish.release.answer import Answer
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.descriptions import truncation
from tallytree.publish.release.error_bars import NoReplicatesError, guaranteed_rows, replicated, typical_rows
from tallytree.publish.release.queries import (
    LINEAR_KINDS,
    SIZE_KINDS,
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
        release,
        [resolve(query, release.hierarchy, release.sizes, release.about) for query in queries],
        level,
        typical,
        progress,
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


class _Found(NamedTuple):
    """A guaranteed interval, if any, with what is known beside it."""

    ends: Ends | None = None
    unbiased: float | None = None
    exact: bool = False
    bounded: bool = True  # the number that the answer is divided by is known not to be zero


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
        found = _Found() if self.why_not else self._guaranteed(question, released)
        sure, exact = found.ends, found.exact
        notes.extend([self.why_not] if self.why_not else self._limits(question, found))
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
            max_size=self.release.sizes[-1],
            unbiased=found.unbiased,
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
        what = "entities" if question.kind == "mean" else "counts"
        for area in self.release.areas if scope.area else ():
            if what == "counts" and area.name == scope.area and area.regions == scope.regions:
                return self.release.recommended("areas", area.kind) or "guaranteed"
        level = tree.regions.levels[max(int(tree.regions.level_of[region]) for region in scope.regions)]
        return self.release.recommended(what, level, scope.values) or "guaranteed"

    # ---------------------------------------------------------------- released

    def _released(self, question: ResolvedQuery) -> float | None:
        return question.value(self.release.counts, self.release.sizes.start)

    def _notes(self, question: ResolvedQuery) -> list[str]:
        release, notes = self.release, []
        last = release.sizes[-1]
        if question.kind in ("mean", "gini"):
            what = "mean" if question.kind == "mean" else "Gini coefficient"
            groups = release.about.groups.capitalize()
            notes.append(
                f"{groups} of {size_label(last, last)} count as {last}, so the {what} is truncated at {last}: a lower "
                "bound where there are larger ones."
            )
        if self._is_public(question) and (public := self._public(question.one)) is not None:
            kept = "" if release.made_by.keeps_totals else f", which {release.mechanism} keeps for the root only"
            notes.append(f"The public number of {release.about.groups} there is {public:,}{kept}.")
        for region in dict.fromkeys(region for each in question.sums for region in each.regions):
            if len(notes) < MOST_NOTES and (found := self._disagreement(region)):
                notes.append(found)
        if self._released(question) is None:
            notes.append(f"The released {self._divisor(question)} is zero, so there is no released value.")
        return notes

    def _limits(self, question: ResolvedQuery, found: _Found) -> list[str]:
        """Return a note if an interval reaches the last size, or if the measurements do not bound the answer."""
        last, ends = self.release.sizes[-1], found.ends
        if not found.bounded and ends is not None:
            within = "." if math.isinf(ends[1]) else f" beyond its possible values, {ends[0]:g} to {ends[1]:g}."
            return [f"The {self._divisor(question)} may be zero, so the measurements do not bound the answer{within}"]
        at_last = question.kind in SIZE_KINDS and ends is not None and ends[1] == last
        return [f"A size of {last} stands for {size_label(last, last)}."] if at_last else []

    def _divisor(self, question: ResolvedQuery) -> str:
        """Return the number that must not be zero, in words."""
        about = self.release.about
        counted = about.entities if question.kind == "gini" else about.groups
        return "denominator" if question.other else f"number of {counted}"

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
        over = self._over_all if all(each.over_all is not None for each in question.sums) else None
        return [
            linear.linear_sum(self._view, each.regions, self._by_size(each))
            if over is None
            else linear.linear_sum(over, each.over_all or (), self._by_size(each))
            for each in question.sums
        ]

    def _by_size(self, wanted: Sum) -> Floats:
        """Return the weights of the sizes 0 … K + 1 in a sum."""
        found = np.zeros(self.release.sizes[-1] + 2)
        found[list(wanted.sizes)] = wanted.sizes if wanted.entities else 1
        return found

    def _guaranteed(self, question: ResolvedQuery, released: float | None) -> _Found:
        """Return the guaranteed interval, and the unbiased estimate if there is one."""
        sums = self._sums(question) if self.not_linear is None and question.statistic is None else []
        if self._is_public(question) and (public := self._public(question.one)) is not None:
            ends = self._possible(question, (public, public), released)
            return _Found(ends, public if sums else None, exact=True)
        if question.cell is not None:
            return _Found(self._of_cell(self._cells, question.cell), sums[0].estimate if sums else None)
        if question.statistic is not None:
            ends, bounded = self._of_statistic(question.one, question.statistic)
            return _Found(self._possible(question, ends, released), bounded=bounded)
        if question.kind in LINEAR_KINDS:
            if sums:
                whole = sums[0].minus(sums[1]) if len(sums) > 1 else sums[0]
                return _Found(self._of_sum(question, whole, released), whole.estimate, exact=whole.variance == 0)
            (low, high), (least, most) = (*self._bounded(question), (0.0, 0.0))[:2]
            return _Found(self._spread(question, self._possible(question, (low - most, high - least), released)))
        ratio = linear.ratio(*sums, level=self.confidence) if sums else None
        unbiased = ratio.estimate if ratio is not None and ratio.bounded else None
        if ratio is None or self._entities_tell(question):
            one, other = self._bounded(question)
            return _Found(self._possible(question, _quotient(one, other), released), unbiased, bounded=other[0] > 0)
        ends = self._possible(question, (ratio.lower, ratio.upper), released)
        if ends[0] == ends[1]:  # it contains no possible value
            one, other = (_reach(each, (1 - self.confidence) / 2) for each in sums)
            ends = self._possible(question, _quotient(one, other), released)
        return _Found(ends, unbiased, bounded=ratio.bounded)

    def _of_statistic(self, wanted: Sum, statistic: Statistic) -> tuple[Ends, bool]:
        """Return the ends of a statistic of sizes from bounds of cumulative counts, and whether they bound it."""
        public, sizes = self._public(wanted), self.release.sizes
        used = statistic.bounds_used(sizes, public=public is not None)
        low, high = self._at_least((1 - self.confidence) / used)[wanted]
        if public is not None:
            low, high = (np.append(public, np.minimum(end[1:], public)) for end in (low, high))
        return statistic.ends(low, high, sizes), bool(low[0] >= 1)

    @cached_property
    def _at_least(self) -> Callable[[float], dict[Sum, tuple[Floats, Floats]]]:
        """Return bounds of the `at_least` counts that queries for statistics need, by the chance of each; cached."""

        def bound(chance: float) -> dict[Sum, tuple[Floats, Floats]]:
            found, over = dict[Sum, tuple[Floats, Floats]](), self._over_all
            every = dict.fromkeys(each.one for each in self.questions if each.statistic is not None)
            summed = {} if over is None else {one: one.over_all for one in every if one.over_all is not None}
            alone = {one: one.regions for one in every if one not in summed}
            for some, measured in ((summed, over), (alone, self.release)):
                if some and measured is not None:
                    unions = Unions.of_regions([regions or () for regions in some.values()])
                    ends = SumBounds(measured.measurements).at_least(unions, chance)
                    found |= zip(some, zip(*ends, strict=True), strict=True)
            return found

        return cache(bound)

    @cached_property
    def _sum_bounds(self) -> SumBounds:
        return SumBounds(self.release.measurements)

    def _bounded(self, question: ResolvedQuery) -> list[Ends]:
        """Return ends of a query's sums that hold jointly; those that are not public share the error probability."""
        every = [not one.entities and len(one.sizes) == len(self.release.sizes) for one in question.sums]
        public = [self._public(one) if whole else None for one, whole in zip(question.sums, every, strict=True)]
        error, found = (1 - self.confidence) / max(1, public.count(None)), list[Ends]()
        for one, known in zip(question.sums, public, strict=True):
            if known is not None:
                found.append((known, known))
                continue
            ends = self._sum_bounds.of(self._by_size(one), Unions.of_regions([one.regions]), error)
            assert ends is not None  # numbers of groups and of entities always have bounds
            found.append((max(0.0, float(ends[0][0])), max(0.0, float(ends[1][0]))))
        return found

    def _of_sum(self, question: ResolvedQuery, found: LinearSum, released: float | None) -> Ends:
        """Return a sum's interval: its estimate, clipped to possible values, ± its half-width, as for cells."""
        least, greatest = self._bounds(question)
        value, half = min(max(found.estimate, least), greatest), found.half_width(self.confidence)
        ends = self._possible(question, _whole(value - half, value + half), released)
        return ends if found.variance == 0 else self._spread(question, ends)

    def _spread(self, question: ResolvedQuery, ends: Ends) -> Ends:
        """Widen a single integer's interval to its neighbours: noise leaves nothing certain."""
        if ends[0] != ends[1]:
            return ends
        least, greatest = self._bounds(question)
        return max(ends[0] - 1, least), min(ends[1] + 1, greatest)

    def _entities_tell(self, question: ResolvedQuery) -> bool:
        """Return whether the region's number of entities was measured and its number of groups is public."""
        measurements = self.release.measurements
        measured = question.kind == "mean" and any(part.view == "entities" for part in measurements.measured)
        return measured and measurements.region_totals is not None

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
                if question.statistic is not None:
                    return question.statistic.excess(question.one.at_least(counts), self.release.sizes)
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
        deviations = found.deviations[number]
        if released is None or not math.isfinite(deviations[0]):
            notes.append(
                f"The {self._divisor(question)} was zero in some replicates, so the typical interval is unbounded."
            )
            return self._bounds(question)
        if question.statistic is not None:
            at_least, sizes = question.one.at_least(self.release.counts), self.release.sizes
            return self._possible(
                question, question.statistic.around(at_least, found.factor * deviations, sizes), released
            )
        plain, logarithmic = deviations.tolist()
        if question.kind in LINEAR_KINDS:
            half: float = max(1, math.ceil(found.factor * plain - 1e-9))
            return self._possible(question, (released - half, released + half), released)
        # One group more or less is always typical, even where no replicate showed it.
        first, counts = self.release.sizes.start, self.release.counts
        one, other = (each.of(counts, first) for each in question.sums)
        if question.kind == "ratio" and math.isfinite(logarithmic):
            spread = math.exp(max(found.factor * logarithmic, math.log1p(1 / one)))
            return self._possible(question, (released / spread, released * spread), released)
        half = max(found.factor * plain, 1 / other)
        return self._possible(question, (released - half, released + half), released)


def _whole(low: float, high: float) -> Ends:
    """Return the integers within an interval, with a small tolerance for float rounding."""
    slack = 1e-9 * (1 + abs(low) + abs(high))
    return math.ceil(low - slack), math.floor(high + slack)


def _reach(found: LinearSum, chance: float) -> Ends:
    """Return the ends of a sum, clipped to possible values before its reach is added, so that none is empty."""
    middle, half = max(0.0, found.estimate), found.reach(chance)
    return max(0.0, middle - half), middle + half


def _quotient(one: Ends, other: Ends) -> Ends:
    """Return the ends of a ratio from those of two sums that hold jointly."""
    return (one[0] / other[1] if other[1] else 0.0), (one[1] / other[0] if other[0] else math.inf)
