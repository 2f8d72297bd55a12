"""`ErrorBars`: the intervals of a release, how they are made, and what each column of them promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from tallytree.core.arguments import told
from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.core.progress import Progress, Stage, Tell, nobody, piece, silent
from tallytree.core.progress import in_percent as in_percent_done
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import entities
from tallytree.estimate.intervals.guaranteed import guaranteed, guaranteed_entities, guaranteed_sums, most_entities
from tallytree.estimate.intervals.interval import Intervals, Kind, level_reach, recommended
from tallytree.estimate.intervals.linear import no_guarantee
from tallytree.estimate.intervals.unions import Unions
from tallytree.mechanisms import Mechanism
from tallytree.privacy.measurements import Measurements
from tallytree.publish.release.areas import Area
from tallytree.publish.release.rows import TableRows
from tallytree.publish.release.scope import Scope, area_scopes, unions_of
from tallytree.publish.release.truncation import AS_TRUNCATED, truncation

if TYPE_CHECKING:
    from tallytree.estimate.intervals.typical import Typical

Which = Literal["all", "guaranteed", "none"]
Reach = Mapping[str, Mapping[str, Mapping[Kind, int]]]  # by what the numbers are of, level and kind of interval

CONFIDENCE = 0.95
GUARANTEED, TYPICAL = ("lower", "upper"), ("typical_lower", "typical_upper")
COLUMNS: dict[str, tuple[str, ...]] = {"all": (*GUARANTEED, *TYPICAL), "guaranteed": GUARANTEED, "none": ()}
OF_COUNTS = 0.7  # what part of the work on guaranteed intervals is on those of counts
LONG_WAIT = 60  # seconds; whoever waits longer for typical intervals is told


@dataclass(frozen=True, eq=False)
class AreaBars:
    """Intervals `[areas, sizes]` of the areas that are published with a release."""

    guaranteed: Intervals | None = None
    typical: Intervals | None = None

    __repr__ = briefly


@dataclass(frozen=True, eq=False)
class ErrorBars:
    """Guaranteed and typical intervals of all counts at one level of confidence.

    Where a kind was asked for and is not there, its columns are empty and `no_guaranteed` or `no_typical` says why.
    """

    which: Which = "none"
    confidence: float = CONFIDENCE
    guaranteed: Intervals | None = None
    typical: Intervals | None = None
    no_guaranteed: str = ""
    no_typical: str = ""
    truncation: str = ""  # what was left out before counting, if anything may have been
    of_areas: AreaBars = AreaBars()
    entities_guaranteed: Intervals | None = None  # of each row's number of entities, `[rows]`
    entities_typical: Intervals | None = None
    reach: Reach = field(default_factory=dict)  # of each level and kind of interval; releases of 0.3.0 do not state it

    __repr__ = briefly

    def recommended(self, what: str, level: str) -> Kind | None:
        """The kind of interval to use for the counts, entities or areas (`what`) of a level; None if there is none."""
        stated = self.reach.get(what, {}).get(level)
        if stated is not None:
            return recommended(stated)
        return "guaranteed" if self.guaranteed is not None else "typical" if self.typical is not None else None

    @property
    def columns(self) -> dict[str, Integers | None]:
        """For every column that a release with these error bars has: `[rows, sizes]`, laid out as `TableRows` says.

        None for an empty one.
        """
        return self._columns(self.guaranteed, self.typical)

    @property
    def area_columns(self) -> dict[str, Integers | None]:
        """`[areas, sizes]` for the same columns."""
        return self._columns(self.of_areas.guaranteed, self.of_areas.typical)

    @property
    def entity_columns(self) -> dict[str, Integers | None]:
        """The same columns for the numbers of entities, `[rows]`, laid out in the same way."""
        return self._columns(self.entities_guaranteed, self.entities_typical)

    def _columns(self, guaranteed: Intervals | None, typical: Intervals | None) -> dict[str, Integers | None]:
        ends = {}
        for names, found in ((GUARANTEED, guaranteed), (TYPICAL, typical)):
            ends[names[0]] = None if found is None else found.lower
            ends[names[1]] = None if found is None else found.upper
        return {name: ends[name] for name in COLUMNS[self.which]}

    def describe(self) -> dict[str, str]:
        """One sentence for each column: what it promises, and where it does not hold."""
        return {name: text for name, text in self._sentences("counts").items() if name in COLUMNS[self.which]}

    def describe_entities(self, max_size: int) -> dict[str, str]:
        """One sentence for each column of the intervals of numbers of entities."""
        what = f"true number of entities, no more than {max_size} of each group,"
        sentences = self._sentences("entities", what, "region")
        return {name: text for name, text in sentences.items() if name in COLUMNS[self.which]}

    def _sentences(self, of: str, what: str = "true count", each: str = "cell") -> dict[str, str]:
        percent = in_percent(self.confidence)
        true = f"{what} {AS_TRUNCATED}" if self.truncation else what
        after = f". {self.truncation}" if self.truncation else ""
        sure = (
            f"for any truth the interval from lower to upper holds the {true} with a probability of at least "
            f"{percent} over the noise, each {each} by itself and not all together{after}"
        )
        likely = (
            f"for data like the released ones the interval from typical_lower to typical_upper holds the {true} "
            f"with a probability of about {percent} over the noise, each {each} by itself and not all together; it "
            "fails where the release smoothed something away, such as ten groups of one odd size in one small region"
            f"{after}"
        )
        sure, likely = (f"{text}{self._use(of, kind)}" for text, kind in ((sure, "guaranteed"), (likely, "typical")))
        return {
            "lower": self.no_guaranteed or f"lower end of the guaranteed interval: {sure}",
            "upper": self.no_guaranteed or f"upper end of the guaranteed interval: {sure}",
            "typical_lower": self.no_typical or f"lower end of the typical interval: {likely}",
            "typical_upper": self.no_typical or f"upper end of the typical interval: {likely}",
        }

    def _use(self, of: str, kind: str) -> str:
        """On which levels a kind is the recommended one."""
        levels = [repr(level) for level in self.reach.get(of, {}) if self.recommended(of, level) == kind]
        if not self.reach:
            return ""
        return f". Recommended on the levels: {', '.join(levels)}" if levels else ". Recommended on no level"

    def beyond_zero(self, counts: Integers, rows: TableRows) -> dict[str, dict[str, int]]:
        """How far the intervals of zero cells reach at most, by level and column: what a left-out cell may be.

        Their lower ends are all 0, so a missing row with these ends is a true, if wide, interval.
        """
        found: dict[str, dict[str, int]] = {}
        counts = rows.lay_out(counts)
        for name, places in rows.levels.items():
            zero = counts[places] == 0
            found[name] = {
                column: int(values[places][zero].max(initial=0))
                for column, values in self.columns.items()
                if values is not None and column in (GUARANTEED[1], TYPICAL[1])
            }
        return found


NO_ERROR_BARS = ErrorBars()


def reach_by_level(
    bars: ErrorBars, counts: Integers, measurements: Measurements, areas: Sequence[Area] = ()
) -> dict[str, dict[str, dict[Kind, int]]]:
    """How far the intervals of counts, entities and areas reach from these numbers (`level_reach`), level by level."""
    rows, first = TableRows(measurements.hierarchy), measurements.first_size
    numbers = rows.lay_out(counts)
    found = {
        "counts": _reach((bars.guaranteed, bars.typical), numbers, rows.levels),
        "entities": _reach((bars.entities_guaranteed, bars.entities_typical), entities(numbers, first), rows.levels),
    }
    if areas:
        slots = len(rows.values)
        places: dict[str, list[int]] = {}
        for number, area in enumerate(areas):
            places.setdefault(area.kind, []).extend(range(number * slots, (number + 1) * slots))
        scopes = area_scopes(areas, measurements.hierarchy)
        sums = unions_of(scopes, measurements.hierarchy).add_up(counts)
        found["areas"] = _reach((bars.of_areas.guaranteed, bars.of_areas.typical), sums, places)
    return found


def _reach(
    both: Sequence[Intervals | None], numbers: Integers, levels: Mapping[str, Any]
) -> dict[str, dict[Kind, int]]:
    return {
        name: {one.kind: level_reach(one, numbers, np.asarray(rows)) for one in both if one is not None}
        for name, rows in levels.items()
    }


def checked_which(which: object) -> Which:
    """Which intervals are wanted, or a SpecError."""
    if not isinstance(which, str) or which not in get_args(Which):
        raise SpecError(f"intervals = {told(which)} is not known; expected {', '.join(map(repr, get_args(Which)))}")
    found: Which = which  # type: ignore[assignment]
    return found


def error_bars(
    measurements: Measurements,
    counts: Integers,
    mechanism: Mechanism,
    *,
    which: Which = "all",
    confidence: float = CONFIDENCE,
    areas: Sequence[Area] = (),
    seconds: float = 0.0,
    progress: Progress = silent,
) -> ErrorBars:
    """Both kinds of intervals from public values alone, so that nothing is spent.

    `areas` are those that are published: their intervals come from the same replicates.

    `seconds` is how long one estimate took: typical intervals take 25 of them, and `progress` says so where that is
    long. An estimate that fails on fresh noise leaves the typical columns empty; the release itself stands. Typical
    ones come first: their replicates take most of the memory, and guaranteed ones are not there yet.
    """
    bars = ErrorBars(which, confidence, truncation=truncation(measurements.neighbours))
    if which == "all":
        bars = with_typical(bars, measurements, counts, mechanism, areas=areas, seconds=seconds, progress=progress)
    if which == "none":
        return bars
    bars = _with_guaranteed(bars, measurements, counts, areas, progress)
    return replace(bars, reach=reach_by_level(bars, counts, measurements, areas))


def _with_guaranteed(
    bars: ErrorBars, measurements: Measurements, counts: Integers, areas: Sequence[Area], progress: Progress
) -> ErrorBars:
    tell, scopes = in_percent_done("guaranteed intervals", progress), area_scopes(areas, measurements.hierarchy)
    sure = guaranteed_rows(measurements, counts, bars.confidence, piece(tell, 0.0, OF_COUNTS))
    tell(OF_COUNTS)
    return replace(
        bars,
        guaranteed=sure,
        no_guaranteed=no_guarantee(measurements) or "",
        of_areas=replace(bars.of_areas, guaranteed=guaranteed_areas(measurements, counts, scopes, sure)),
        entities_guaranteed=guaranteed_entity_rows(measurements, counts, bars.confidence),
    )


def with_typical(
    bars: ErrorBars,
    measurements: Measurements,
    counts: Integers,
    mechanism: Mechanism,
    *,
    areas: Sequence[Area] = (),
    seconds: float = 0.0,
    progress: Progress = silent,
) -> ErrorBars:
    """The error bars with typical intervals, or with why there are none."""
    tree, scopes = measurements.hierarchy, area_scopes(areas, measurements.hierarchy)
    of_entities = partial(entities, first_size=measurements.first_size)
    of_areas, of_margins = unions_of(scopes, tree), Unions.of_margins(tree)
    try:
        likely = replicated(
            measurements,
            counts,
            mechanism,
            confidence=bars.confidence,
            functions=[of_areas.add_up, of_entities, lambda found: of_margins.add_up(of_entities(found))],
            seconds=seconds,
            progress=progress,
        )
    except Exception as error:  # of public values alone; whatever a solver raises, the release stands
        unable = f"there are no typical intervals: {mechanism.name} cannot estimate from fresh noise ({error})"
        return replace(bars, no_typical=unable)
    typical, most, numbers = typical_rows(likely, measurements), most_entities(measurements), of_entities(counts)
    found = likely.around(of_areas.add_up(counts), likely.deviations[0], of_areas.limits(likely.most)[:, np.newaxis])
    sums = likely.around(of_margins.add_up(numbers), likely.deviations[2], of_margins.limits(most))
    return replace(
        bars,
        typical=typical,
        of_areas=replace(bars.of_areas, typical=as_in_the_table(found, scopes, typical, tree)),
        entities_typical=_lay_out(likely.around(numbers, likely.deviations[1], most), sums, tree),
    )


def guaranteed_rows(
    measurements: Measurements, counts: Integers, confidence: float, tell: Tell = nobody
) -> Intervals | None:
    """Guaranteed intervals of all rows of the table, sums over categories among them."""
    found, tree = guaranteed(measurements, counts, level=confidence, tell=tell), measurements.hierarchy
    if found is None:
        return None
    return _lay_out(found, guaranteed_sums(measurements, counts, Unions.of_margins(tree), found), tree)


def guaranteed_entity_rows(measurements: Measurements, counts: Integers, confidence: float) -> Intervals | None:
    """Guaranteed intervals of the numbers of entities of all rows, sums over categories among them."""
    tree = measurements.hierarchy
    found = guaranteed_entities(measurements, counts, level=confidence)
    sums = guaranteed_entities(measurements, counts, Unions.of_margins(tree), level=confidence)
    return None if found is None or sums is None else _lay_out(found, sums, tree)


def typical_rows(likely: Typical, measurements: Measurements) -> Intervals:
    """Typical intervals of all rows of the table; the last function of the replicates is the sums over categories."""
    tree = measurements.hierarchy
    sums = Unions.of_margins(tree)
    of_sums = replace(
        likely,
        counts=sums.add_up(likely.counts),
        mean_squares=likely.deviations[-1] ** 2,
        most=sums.limits(likely.most),
    )
    return _lay_out(likely.intervals, of_sums.intervals, tree)


def guaranteed_areas(
    measurements: Measurements, counts: Integers, scopes: Sequence[Scope], rows: Intervals | None
) -> Intervals | None:
    """Guaranteed intervals of the areas that `scopes` are about, given those of all rows of the table."""
    if rows is None:
        return None
    tree = measurements.hierarchy
    return as_in_the_table(guaranteed_sums(measurements, counts, unions_of(scopes, tree), rows), scopes, rows, tree)


def as_in_the_table(found: Intervals, scopes: Sequence[Scope], rows: Intervals, tree: Hierarchy) -> Intervals:
    """The same, where an area that is one region has the intervals of the region's row (`rows`, laid out)."""
    for place, scope in enumerate(scopes):
        if (row := scope.table_row(tree)) is not None:
            found.lower[place], found.upper[place] = rows.lower[row], rows.upper[row]
    return found


def _lay_out(one: Intervals, sums: Intervals, tree: Hierarchy) -> Intervals:
    rows = TableRows(tree)
    return replace(one, lower=rows.lay_out(one.lower, sums.lower), upper=rows.lay_out(one.upper, sums.upper))


def replicated(
    measurements: Measurements,
    counts: Integers,
    mechanism: Mechanism,
    *,
    confidence: float = CONFIDENCE,
    functions: Any = (),
    seconds: float = 0.0,
    progress: Progress = silent,
) -> Typical:
    """`typical` for a mechanism with its options; progress says how long it will take where that is long."""
    from tallytree.estimate.intervals.typical import REPLICATES, STAGE, typical

    minutes = round(seconds * REPLICATES / 60)
    long = f'about {minutes} min; intervals = "guaranteed" leaves them out' if seconds * REPLICATES > LONG_WAIT else ""

    functions = (*functions, Unions.of_margins(measurements.hierarchy).add_up)

    def step(stage: Stage) -> None:
        left = seconds * REPLICATES if seconds and not stage.done else None  # later its pace tells
        progress(replace(stage, about=long, seconds_left=left))

    step(Stage(STAGE, 0, REPLICATES))  # what plays the truth takes an estimate too
    return typical(
        measurements,
        counts,
        mechanism.estimate,
        level=confidence,
        functions=functions,
        settle=mechanism.settle,
        played=mechanism.played(measurements, counts),
        progress=step,
    )


def in_percent(confidence: float) -> str:
    """A level of confidence for people.

    >>> in_percent(0.95), in_percent(0.975)
    ('95 %', '97.5 %')
    """
    return f"{100 * confidence:.6g} %"
