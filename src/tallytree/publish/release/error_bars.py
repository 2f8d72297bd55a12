"""`ErrorBars`: the intervals of a release, how they are computed, and what each column guarantees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from tallytree.core.arguments import told
from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.names import briefly
from tallytree.core.progress import Progress, Stage, Tell, nobody, piece, silent
from tallytree.core.progress import in_percent as in_percent_done
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import entities
from tallytree.estimate.intervals.guaranteed import guaranteed, guaranteed_entities, guaranteed_sums, most_entities
from tallytree.estimate.intervals.interval import Intervals, Kind, checked_level, level_reach, recommended
from tallytree.estimate.intervals.linear import no_guarantee
from tallytree.estimate.intervals.unions import Unions
from tallytree.mechanisms import Mechanism
from tallytree.privacy.measurements import Measurements
from tallytree.publish.about import NOT_STATED, About
from tallytree.publish.release.areas import Area, areas_to_publish
from tallytree.publish.release.descriptions import AS_TRUNCATED, truncation
from tallytree.publish.release.fallback import Made
from tallytree.publish.release.queries import Scope, area_scopes, unions_of
from tallytree.publish.release.table_layout import TableRows
from tallytree.tables.group_sizes import GroupSizes

if TYPE_CHECKING:
    from tallytree.estimate.intervals.typical import Typical

Which = Literal["all", "guaranteed", "none"]
What = Literal["counts", "entities", "areas"]
Reach = Mapping[str, Mapping[str, Mapping[Kind, int]]]  # by what the numbers are of, level and kind of interval

CONFIDENCE = 0.95
KINDS: dict[Which, tuple[Kind, ...]] = {"all": ("guaranteed", "typical"), "guaranteed": ("guaranteed",), "none": ()}
ENDS: dict[Kind, tuple[str, str]] = {"guaranteed": ("lower", "upper"), "typical": ("typical_lower", "typical_upper")}
COLUMNS = {which: [name for kind in kinds for name in ENDS[kind]] for which, kinds in KINDS.items()}
OF_COUNTS = 0.7  # the share of counts in the work on guaranteed intervals
LONG_WAIT = 60  # seconds; progress announces longer waits for typical intervals


class NoReplicatesError(ReleaseError):
    """A mechanism fails on fresh noise, so typical intervals cannot be computed."""


@dataclass(frozen=True, eq=False)
class ErrorBars:
    """Guaranteed and typical intervals of a release at one confidence level.

    Those of counts are `[rows, sizes]` and those of numbers of entities `[rows]`, laid out as `TableRows` describes;
    those
    of published areas are `[areas, sizes]`. If a requested kind could not be computed, its columns are empty and
    `missing`
    says why.
    """

    which: Which = "none"
    confidence: float = CONFIDENCE
    of: Mapping[What, Mapping[Kind, Intervals]] = field(default_factory=dict)
    missing: Mapping[Kind, str] = field(default_factory=dict)
    truncation: str = ""  # a note on what was left out before counting
    reach: Reach = field(default_factory=dict)  # of each level and kind of interval

    __repr__ = briefly

    @property
    def guaranteed(self) -> Intervals | None:
        """Return the guaranteed intervals of counts."""
        return self.of.get("counts", {}).get("guaranteed")

    @property
    def typical(self) -> Intervals | None:
        """Return the typical intervals of counts."""
        return self.of.get("counts", {}).get("typical")

    def recommended(self, what: str, level: str) -> Kind | None:
        """Return the kind of interval to use for a level's counts, entities or areas (`what`), or None."""
        stated = self.reach.get(what, {}).get(level)
        if stated is not None:
            return recommended(stated)
        return next(iter(self.of.get("counts", {})), None)

    @property
    def columns(self) -> dict[str, Integers | None]:
        """Return the interval columns of the table of counts; None for an empty column."""
        return self.columns_of("counts")

    def columns_of(self, what: What) -> dict[str, Integers | None]:
        """Return the same columns of the table of counts, entities or areas."""
        found = self.of.get(what, {})
        return {
            name: None if kind not in found else end
            for kind in KINDS[self.which]
            for name, end in zip(ENDS[kind], _ends(found.get(kind)), strict=True)
        }

    def describe(self, what: What = "counts", max_size: int = 0) -> dict[str, str]:
        """Return one sentence per column: what it guarantees, and when it does not hold."""
        number, each = "true count", "cell"
        if what == "entities":
            number, each = f"true number of entities, no more than {max_size} of each group,", "region"
        percent, number = in_percent(self.confidence), f"{number} {AS_TRUNCATED}" if self.truncation else number
        after = f". {self.truncation}" if self.truncation else ""
        sentences: dict[Kind, str] = {
            "guaranteed": (
                f"for any data the interval from lower to upper holds the {number} with a probability of at least "
                f"{percent} over the noise, separately for each {each} and not jointly{after}"
            ),
            "typical": (
                f"for data like the released ones the interval from typical_lower to typical_upper holds the {number} "
                f"with a probability of about {percent} over the noise, separately for each {each} and not jointly; it "
                "fails where the release smoothed something away, such as ten groups of one odd size in one small "
                f"region{after}"
            ),
        }
        return {
            name: self.missing.get(kind)
            or f"{end} end of the {kind} interval: {sentences[kind]}{self._use(what, kind)}"
            for kind in KINDS[self.which]
            for name, end in zip(ENDS[kind], ("lower", "upper"), strict=True)
        }

    def _use(self, of: str, kind: str) -> str:
        """Return the levels on which a kind is the recommended one."""
        levels = [repr(level) for level in self.reach.get(of, {}) if self.recommended(of, level) == kind]
        if not self.reach:
            return ""
        return f". Recommended on the levels: {', '.join(levels)}" if levels else ". Recommended on no level"

    def beyond_zero(self, counts: Integers, rows: TableRows) -> dict[str, dict[str, int]]:
        """Return the largest upper ends of the intervals of zero cells by level and column, for cells that have no
        row.

        Their lower ends are all 0. So these ends give a missing row a valid, if wide, interval.
        """
        found: dict[str, dict[str, int]] = {}
        counts = rows.lay_out(counts)
        for name, places in rows.levels.items():
            zero = counts[places] == 0
            found[name] = {
                column: int(values[places][zero].max(initial=0))
                for column, values in self.columns.items()
                if values is not None and column in [upper for _, upper in ENDS.values()]
            }
        return found


NO_ERROR_BARS = ErrorBars()


def _ends(found: Intervals | None) -> tuple[Any, Any]:
    return (None, None) if found is None else (found.lower, found.upper)


def intervals_in(columns: Mapping[str, Integers], kinds: Iterable[Kind], level: float) -> dict[Kind, Intervals]:
    """Return the intervals of some kinds whose ends are in the columns of a table."""
    return {kind: Intervals(columns[ENDS[kind][0]], columns[ENDS[kind][1]], level, kind) for kind in kinds}


def reach_by_level(
    bars: ErrorBars, counts: Integers, measurements: Measurements, areas: Sequence[Area] = ()
) -> dict[str, dict[str, dict[Kind, int]]]:
    """Return the reach (`level_reach`) of the intervals of counts, entities and areas on each level."""
    rows = TableRows(measurements.hierarchy)
    numbers = rows.lay_out(counts)
    values: dict[What, tuple[Integers, Mapping[str, Any]]] = {
        "counts": (numbers, rows.levels),
        "entities": (entities(numbers, measurements.first_size), rows.levels),
    }
    if areas:
        slots = len(rows.values)
        places: dict[str, list[int]] = {}
        for number, area in enumerate(areas):
            places.setdefault(area.kind, []).extend(range(number * slots, (number + 1) * slots))
        scopes = area_scopes(areas, measurements.hierarchy)
        values["areas"] = unions_of(scopes, measurements.hierarchy).add_up(counts), places
    return {
        what: {
            level: {kind: level_reach(one, own, np.asarray(places)) for kind, one in bars.of.get(what, {}).items()}
            for level, places in levels.items()
        }
        for what, (own, levels) in values.items()
    }


def checked_which(which: object) -> Which:
    """Return the requested kinds of intervals, or raise a SpecError."""
    if not isinstance(which, str) or which not in get_args(Which):
        raise SpecError(f"intervals = {told(which)} is unknown; choose from {', '.join(map(repr, get_args(Which)))}")
    found: Which = which  # type: ignore[assignment]
    return found


@dataclass(frozen=True)
class Publication:
    """What is published beside the counts, and its title."""

    title: str = "Groups by region and size"
    intervals: Which = "all"
    confidence: float = CONFIDENCE
    areas: tuple[Area, ...] = ()
    about: About = NOT_STATED

    def __post_init__(self) -> None:
        checked_which(self.intervals)
        object.__setattr__(self, "confidence", checked_level(self.confidence))

    @classmethod
    def of(
        cls,
        data: GroupSizes | Measurements,
        title: str | None,
        intervals: Which,
        confidence: float,
        areas: Mapping[str, Any] | None,
        about: About | Mapping[str, Any] | None,
    ) -> Publication:
        """Return what is to be published; `areas` are sources of areas by kind."""
        stated, found = About.of(about), areas_to_publish(areas, data.hierarchy, data.max_size + 1)
        return cls(title or cls.title, intervals, confidence, found, stated)


def error_bars(made: Made, publication: Publication, progress: Progress = silent) -> ErrorBars:
    """Compute both kinds of intervals of counts and of published areas from public values alone; nothing is spent.

    Typical intervals take 25 estimates, and `progress` says so if that is long. An estimate that fails on fresh noise
    leaves the typical columns empty; the release itself is unaffected. Typical intervals are computed first: their
    replicates take most of the memory, and guaranteed ones are then not in memory yet.
    """
    measurements, counts, which = made.measurements, made.counts, publication.intervals
    scopes = area_scopes(publication.areas, measurements.hierarchy)
    found: dict[Kind, dict[What, Intervals]] = {}
    missing: dict[Kind, str] = {}
    if "typical" in KINDS[which]:
        try:
            found["typical"] = _typical(made, scopes, publication.confidence, progress)
        except NoReplicatesError as error:  # the release itself is unaffected
            missing["typical"] = f"there are no typical intervals: {error}"
    if "guaranteed" in KINDS[which]:
        if why_not := no_guarantee(measurements):
            missing["guaranteed"] = why_not
        else:
            found["guaranteed"] = _guaranteed(measurements, counts, scopes, publication.confidence, progress)
    of: dict[What, dict[Kind, Intervals]] = {
        what: {kind: found[kind][what] for kind in KINDS[which] if kind in found} for what in get_args(What)
    }
    bars = ErrorBars(which, publication.confidence, of, missing, truncation(measurements.neighbours))
    if which == "none":
        return bars
    return replace(bars, reach=reach_by_level(bars, counts, measurements, publication.areas))


def _guaranteed(
    measurements: Measurements, counts: Integers, scopes: Sequence[Scope], confidence: float, progress: Progress
) -> dict[What, Intervals]:
    """Return guaranteed intervals, if the release guarantees any."""
    tell, tree = in_percent_done("guaranteed intervals", progress), measurements.hierarchy
    rows = guaranteed_rows(measurements, counts, confidence, piece(tell, 0.0, OF_COUNTS))
    tell(OF_COUNTS)
    of_areas = guaranteed_sums(measurements, counts, unions_of(scopes, tree), rows)
    one, sums = (
        guaranteed_entities(measurements, counts, unions, level=confidence)
        for unions in (None, Unions.of_margins(tree))
    )
    assert one is not None  # since the release guarantees intervals
    assert sums is not None
    return {
        "counts": rows,
        "entities": _lay_out(one, sums, tree),
        "areas": as_in_the_table(of_areas, scopes, rows, tree),
    }


def _typical(made: Made, scopes: Sequence[Scope], confidence: float, progress: Progress) -> dict[What, Intervals]:
    """Return typical intervals, all from the same replicates."""
    measurements, counts = made.measurements, made.counts
    tree, of_entities = measurements.hierarchy, partial(entities, first_size=measurements.first_size)
    of_areas, of_margins = unions_of(scopes, tree), Unions.of_margins(tree)
    functions: list[Callable[[Integers], Any]] = [of_areas.add_up, of_entities]
    functions.append(lambda found: of_margins.add_up(of_entities(found)))
    likely = replicated(measurements, counts, made.by, confidence, functions, seconds=made.seconds, progress=progress)
    rows, most, numbers = typical_rows(likely, measurements), most_entities(measurements), of_entities(counts)
    found = likely.around(of_areas.add_up(counts), likely.deviations[0], of_areas.limits(likely.most)[:, np.newaxis])
    sums = likely.around(of_margins.add_up(numbers), likely.deviations[2], of_margins.limits(most))
    return {
        "counts": rows,
        "entities": _lay_out(likely.around(numbers, likely.deviations[1], most), sums, tree),
        "areas": as_in_the_table(found, scopes, rows, tree),
    }


def guaranteed_rows(measurements: Measurements, counts: Integers, confidence: float, tell: Tell = nobody) -> Intervals:
    """Return guaranteed intervals of all rows of the table, including sums over categories."""
    found, tree = guaranteed(measurements, counts, level=confidence, tell=tell), measurements.hierarchy
    assert found is not None
    return _lay_out(found, guaranteed_sums(measurements, counts, Unions.of_margins(tree), found), tree)


def typical_rows(likely: Typical, measurements: Measurements) -> Intervals:
    """Return typical intervals of all rows; the replicates' last function is the sums over categories."""
    tree = measurements.hierarchy
    sums = Unions.of_margins(tree)
    of_sums = replace(
        likely,
        counts=sums.add_up(likely.counts),
        mean_squares=likely.deviations[-1] ** 2,
        most=sums.limits(likely.most),
    )
    return _lay_out(likely.intervals, of_sums.intervals, tree)


def as_in_the_table(found: Intervals, scopes: Sequence[Scope], rows: Intervals, tree: Hierarchy) -> Intervals:
    """Replace the intervals of an area that is one region by those of the region's row (`rows`, laid out)."""
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
    confidence: float,
    functions: Sequence[Callable[[Integers], Any]],
    *,
    seconds: float = 0.0,
    progress: Progress,
) -> Typical:
    """Run `typical` for a mechanism with its options; progress says how long it takes if that is long."""
    from tallytree.estimate.intervals.typical import REPLICATES, STAGE, Simulation, typical

    minutes = round(seconds * REPLICATES / 60)
    long = f'about {minutes} min; intervals = "guaranteed" leaves them out' if seconds * REPLICATES > LONG_WAIT else ""

    functions = [*functions, Unions.of_margins(measurements.hierarchy).add_up]

    def step(stage: Stage) -> None:
        left = seconds * REPLICATES if seconds and not stage.done else None  # later the pace is known from progress
        progress(replace(stage, about=long, seconds_left=left))

    step(Stage(STAGE, 0, REPLICATES))  # simulating the truth takes one more estimate
    try:
        simulation = Simulation(
            mechanism.estimate, mechanism.derive_facts, mechanism.simulate_truths(measurements, counts)
        )
        return typical(measurements, counts, simulation, level=confidence, functions=functions, progress=step)
    except Exception as error:  # from public values alone, so any error of a solver is safe to show
        raise NoReplicatesError(f"{mechanism.name} cannot estimate from fresh noise ({error})") from error


def in_percent(confidence: float) -> str:
    """Format a confidence level as a percentage.

    >>> in_percent(0.95), in_percent(0.975)
    ('95 %', '97.5 %')
    """
    return f"{100 * confidence:.6g} %"
