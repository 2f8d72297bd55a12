"""NOT PRIVATE: a recorder at the privacy border, on pairs of neighbouring tables.

This audit does not depend on chance. `Recorder` takes the place of the noise. The border adds private numbers in place
to the noise that it receives. So the recorder, which keeps that noise, knows each private number, and chooses noise so
that each *answer* is a fixed public number, for any private number. Then, for two neighbouring tables:

1. Each query's private numbers differ by no more than the sensitivity that its noise is scaled to, in L1 and in L2; and
   all queries together lose no more than the budget allows, by the noise that was really requested.
2. Both tables are accepted, or both are refused. All outputs of a release are identical: every byte of every file, and
   every message. The answers are identical, so any difference reached the output in another way.

It runs the real path: files, `read`, `decided`, the border and the command. If the border took its noise from elsewhere
or did not add to it in place, the answers would not be the fixed ones, and that is flagged. Rounds of synthesis are
recorded in the same way, for (1).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError, SpecError, TallytreeError
from tallytree.core.names import briefly
from tallytree.domain.edit_rules import Role, Structure
from tallytree.domain.schema import Attribute, Marginal, Schema
from tallytree.lab.audit.releases import BUDGETS, UNITS, Setting, settings, spec
from tallytree.lab.audit.verdicts import BorderRow
from tallytree.lab.audit.worlds import BY_GROUP, BY_MEMBERS, Home, State, households_of, random_pair
from tallytree.lab.truth import SeededWords, seeded
from tallytree.privacy import exact_accounting
from tallytree.privacy.budget import Budget
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.privacy.neighbours import HouseholdNeighbours, HouseholdUnitKind, Neighbours, PrivacyUnit, Sensitivity
from tallytree.privacy.noise import NoiseKind, Randomness
from tallytree.privacy.plan import FIRST
from tallytree.privacy.private_tables import PrivateTables
from tallytree.privacy.run import measure_with
from tallytree.privacy.selection import Candidates

TRIES = 20  # tables to try for each accepted pair
STAGES = 4  # an adaptive plan has two; one more run shows that the answers are the fixed ones
PUBLISHED = "published"  # the folder that a release is written to
USUAL_ANSWER = 2  # noise is added to it
MeasureWith = Callable[[Randomness], Measurements]
ReleaseFrom = Callable[[Path], str]  # the folder of spec and files to messages; writes the folder PUBLISHED there


# -------------------------------------------------------------------- the recorder


@dataclass
class Draw:
    """Noise that the border requested, and the result: noise plus private numbers."""

    kind: NoiseKind
    scale: Fraction
    noise: Integers
    answers: Integers

    __repr__ = briefly

    @property
    def private(self) -> Integers:
        """Return the private numbers."""
        found: Integers = self.answers - self.noise
        return found


@dataclass
class Recorder:
    """Noise by a script (zeros where it ends), and a record of it."""

    script: Sequence[Integers] = ()
    draws: list[Draw] = field(default_factory=list)

    __repr__ = briefly

    def randomness(self) -> Randomness:
        """Return the source of the border's draws. A run of the recorder is not a release, and its name says so."""
        laplace, gaussian = (partial(self._draw, kind) for kind in ("discrete_laplace", "discrete_gaussian"))
        return replace(seeded(0), name="a recorder: NOT PRIVATE", laplace=laplace, gaussian=gaussian)

    def _draw(self, kind: NoiseKind, scale: Fraction, count: int) -> Integers:
        number = len(self.draws)
        written = self.script[number] if number < len(self.script) else None
        noise = np.zeros(count, np.int64) if written is None or len(written) != count else written
        self.draws.append(Draw(kind, scale, noise, noise.copy()))
        return self.draws[-1].answers


def fix_answers(measured: MeasureWith, *seed: object) -> tuple[Recorder, Measurements]:
    """Return a recorder whose noise makes all answers those of the seed, and the measurements.

    Later queries may depend on earlier answers. Each run makes the answers of one more stage the wanted ones.
    """
    script: list[Integers] = []
    for _ in range(STAGES):
        recorder = Recorder(script)
        found = measured(recorder.randomness())
        wanted = [_answers(draw, *seed, number) for number, draw in enumerate(recorder.draws)]
        if all(np.array_equal(draw.answers, want) for draw, want in zip(recorder.draws, wanted, strict=True)):
            return recorder, found
        script = [want - draw.private for draw, want in zip(recorder.draws, wanted, strict=True)]
    raise ReleaseError("the border's answers are not its noise plus private numbers, added in place")


def _answers(draw: Draw, *seed: object) -> Integers:
    """Return public numbers that look like answers: a usual value with noise of the requested scale."""
    answers: Integers = USUAL_ANSWER + seeded("answers", *seed).draw(draw.kind, draw.scale, len(draw.noise))
    return answers


@contextmanager
def injected(randomness: Randomness) -> Iterator[None]:
    """Draw the noise of releases from this randomness, and select rows under one fixed key (see `truncated`)."""
    border: Any = import_module("tallytree.privacy.run")
    counting: Any = import_module("tallytree.tables.count")
    own = border.cryptographic, counting.fresh_key
    border.cryptographic, counting.fresh_key = (lambda _: randomness), (lambda: "0" * 64)
    try:
        yield
    finally:
        border.cryptographic, counting.fresh_key = own


# -------------------------------------------------------------------- what is compared


WITH_DELTA = (Budget(epsilon=1, delta="1e-6"), Budget(epsilon=1, delta="1e-6", noise="gaussian"))
LOSS_STEPS = 500  # of the grid of losses in ρ


class Query(NamedTuple):
    """One query at the border: its noise, the sensitivity that is claimed, and the private numbers."""

    name: str
    noise: NoiseKind
    scale: Fraction
    sensitivity: Sensitivity
    private: Integers


class Observed(NamedTuple):
    """The numbers of one table at the border, and the outputs of a release of it."""

    queries: tuple[Query, ...]
    outputs: dict[str, bytes]
    budget: Budget  # that is spent


class Compared(NamedTuple):
    """The result for one pair."""

    change: float  # the largest change of a query, as a part of its sensitivity
    loss: float  # of all queries together, as a part of the budget
    flags: tuple[str, ...]  # without private values: names of queries and files


def compare(here: Observed, there: Observed) -> Compared:
    """Compare two neighbouring tables. Missing noise, or noise too small for its sensitivity, is a flag too."""
    flags, change, loss, budget = [], 0.0, Fraction(0), here.budget
    if budget != there.budget:
        flags.append("the budget depends on private data")
    asked = [
        [(query.name, query.noise, query.scale, len(query.private)) for query in one.queries] for one in (here, there)
    ]
    if asked[0] != asked[1]:
        return Compared(0.0, 0.0, ("the queries themselves depend on private data",))
    for one, two in zip(here.queries, there.queries, strict=True):
        apart = np.abs(one.private - two.private)
        l1, l2_squared = int(apart.sum()), int((apart**2).sum())
        if l1 > one.sensitivity.l1 or l2_squared > one.sensitivity.l2_squared:
            flags.append(f"{one.name} changes by more than its sensitivity")
        if one.noise == "discrete_laplace":
            loss += l1 / one.scale
            change = max(change, l1 / max(one.sensitivity.l1, 1))
        else:
            loss += l2_squared / (2 * one.scale)
            change = max(change, (l2_squared / max(one.sensitivity.l2_squared, 1)) ** 0.5)
    if loss > budget.amount:
        flags.append("all queries together lose more than the budget")
    if budget.is_accounted and _least_delta(here.queries, there.queries, budget) > float(budget.delta or 0):
        flags.append("all queries together lose more than ε with a probability above δ")
    for name in sorted({*here.outputs, *there.outputs}):
        if here.outputs.get(name) != there.outputs.get(name):
            flags.append(f"{name} depends on private data")
    return Compared(change, float(loss / budget.amount), tuple(flags))


def _least_delta(here: Sequence[Query], there: Sequence[Query], budget: Budget) -> float:
    """Return a lower bound on δ for this pair: losses of all changed integers, rounded down to a grid, added up."""
    step = float(budget.amount) / LOSS_STEPS
    law, first = np.ones(1), 0
    for one, two in zip(here, there, strict=True):
        for change in np.abs(one.private - two.private).ravel():
            if change:
                variance, most = float(one.scale), int(9 * float(one.scale) ** 0.5) + 9
                noise = np.arange(-most, most + 1)
                losses = np.floor(change * (change - 2 * noise) / (2 * variance * step)).astype(np.int64)
                weights = np.exp(-(noise**2) / (2 * variance))
                law = np.convolve(law, np.bincount(losses - losses[-1], weights / weights.sum()))
                first += int(losses[-1])
    beyond = np.maximum((first + np.arange(len(law))) * step - float(budget.epsilon or 0), 0)
    return float((law * -np.expm1(-beyond)).sum())


# -------------------------------------------------------------------- releases


def border_settings(mechanisms: list[str] | None = None) -> list[Setting]:
    """Return the settings of the audit from outputs; for the default also its own shares of the budget, and listed
    groups.
    """
    found = list(settings(mechanisms))
    found += [
        replace(one, own_shares=True) for one in found if one.mechanism == "tallytree" and "bands" not in one.options
    ]
    if mechanisms is None or "tallytree" in mechanisms:
        for kind, unit, budget in product((BY_GROUP, BY_MEMBERS), UNITS, BUDGETS):
            found.append(Setting("tallytree", unit, "public by region", budget, kind, own_shares=True))
        found += [Setting("tallytree", unit, budget=budget, own_shares=True) for unit in UNITS for budget in WITH_DELTA]
    return found


def audit_border(setting: Setting, *, pairs: int, published: int, release: ReleaseFrom) -> BorderRow:
    """Compare `pairs` pairs of random neighbours at the border, and all outputs of `published` of them."""
    found: list[Compared] = []
    queries = 0
    about = setting.mechanism, setting.unit, setting.words(), str(setting.budget)
    with tempfile.TemporaryDirectory() as folder:  # the same for all, so that messages name the same one
        for number in range(TRIES * pairs):
            states = 2 - number % 2
            pair = random_pair(setting.kind, setting.unit, setting.totals, *about, number, states=states)
            run = release if len(found) < published else None
            here, there = (observe(setting, one, Path(folder), run, *about, number) for one in (pair.here, pair.there))
            if here is None and there is None:
                continue  # refused by public facts, such as a public list that is too long
            if here is None or there is None:
                found.append(Compared(0.0, 0.0, ("whether the data are accepted depends on private data",)))
            else:
                queries += len(here.queries)
                found.append(compare(here, there))
            if len(found) == pairs:
                return border_row(found, *about, published=min(pairs, published), queries=queries)
    raise ReleaseError(f"too few made-up tables are accepted: {', '.join(about)}")


def border_row(
    found: Sequence[Compared], name: str, unit: str, setting: str, budget: str, *, published: int, queries: int
) -> BorderRow:
    """Return the row of some pairs."""
    return BorderRow(
        name=name,
        unit=unit,
        setting=setting,
        budget=budget,
        pairs=len(found),
        published=published,
        queries=queries,
        change=max(one.change for one in found),
        loss=max(one.loss for one in found),
        flagged=sum(bool(one.flags) for one in found),
        flags=tuple(dict.fromkeys(flag for one in found for flag in one.flags)),
    )


def observe(
    setting: Setting, states: Sequence[State], folder: Path, release: ReleaseFrom | None, *seed: object
) -> Observed | None:
    """Record the numbers of one table at the border, and with `release` all outputs of the release.

    None if reading or planning refuses the table.
    """
    setting.write(states, folder)
    try:
        with injected(seeded(0)):
            private = setting.read(folder)
        mechanism, plan = setting.decide(private)
    except TallytreeError:
        return None
    recorder, measured = fix_answers(
        lambda randomness: measure_with(randomness, private, plan, derive_facts=mechanism.derive_facts), *seed
    )
    outputs = {} if release is None else _published(setting, recorder, folder, len(states), release)
    return Observed(tuple(_queries(measured, recorder)), outputs, plan.budget)


def _published(
    setting: Setting, recorder: Recorder, folder: Path, states: int, release: ReleaseFrom
) -> dict[str, bytes]:
    """Return every file and message of a release whose answers are those of the recorder."""
    (folder / "release.toml").write_text(spec(setting, states, ledger=False), encoding="utf-8")
    replayed = Recorder([draw.noise for draw in recorder.draws])
    # Saving refuses any other name; the folder is deleted here.
    with injected(replace(replayed.randomness(), name="tallytree")):
        messages = release(folder)
    answers = [[draw.answers.tolist() for draw in one.draws] for one in (recorder, replayed)]
    if answers[0] != answers[1]:
        raise ReleaseError("the command did not send the border the queries of its plan")
    root = folder / PUBLISHED
    files = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    shutil.rmtree(root)
    return {**files, "messages": messages.encode()}


def _queries(measured: Measurements, recorder: Recorder) -> Iterator[Query]:
    """Yield each measurement with its draw: first those of the first stage, and lists last in each stage."""
    order = sorted(measured.measured, key=lambda part: (part.view not in FIRST, part.view == "sorted_sizes"))
    parts = [part for part in order if part.values.size]
    for part, draw in zip(parts, recorder.draws, strict=True):
        if draw.scale != part.scale or draw.kind != part.noise or not np.array_equal(part.values.ravel(), draw.answers):
            raise ReleaseError("a measurement is not the answer that was recorded for it")
        yield Query(_name(part), draw.kind, draw.scale, part.sensitivity, draw.private)


def _name(part: Measurement) -> str:
    band = "" if part.sizes is None else f", {part.sizes.in_words()}"
    return f"{part.view} of level {part.level}{' over all categories' if part.summed else ''}{band}"


# -------------------------------------------------------------------- rounds of synthesis

BY_POSITION = Structure((Role("head", position=1),))
BY_ATTRIBUTE = Structure((Role("head", attribute="relation", values=("0",), number="at most one"),))
HOUSEHOLD_UNITS: tuple[HouseholdUnitKind, ...] = ("one_group", "one_group_added_or_removed", "one_person_attributes")
MOST_PERSONS = 3
RHO, EPSILON = Fraction(1, 4), Fraction(1)


def household_schema(structure: Structure) -> Schema:
    """Return a schema of areas, and persons with an age and a relation to the head."""
    area, age = Attribute("area", ("0", "1", "2")), Attribute("age", ("0", "1"))
    return Schema((area,), (age, Attribute("relation", ("0", "1"))), MOST_PERSONS, structure)


def tables_of(schema: Schema) -> list[Marginal]:
    """Return all tables of households and persons, by each set of attributes, by size, and by the head's age.

    Those by area come a second time, with two areas as one group.
    """
    sides = product(("households", "persons"), ((), ("area",)), ((), ("age",), ("age", "relation")))
    whole = [
        Marginal(of, home, person, size, roles)  # type: ignore[arg-type]  # one of two words
        for (of, home, person), size, roles in product(sides, (False, True), ((), (("head", "age"),)))
    ]
    by_area = [table for table in whole if table.household]
    return [*whole, *(replace(table, groups=((0, 0, 1), *table.groups_of_axes[1:])) for table in by_area)]


def random_homes(unit: str, *seed: object) -> tuple[tuple[Home, ...], tuple[Home, ...]]:
    """Return random households, and a random neighbour of them."""
    words = iter(SeededWords("random homes", *seed).words(400).tolist())

    def pick(number: int) -> int:
        return int(next(words)) % number

    def home() -> Home:
        return pick(3), tuple((pick(2), pick(2)) for _ in range(pick(MOST_PERSONS + 1)))

    here = [home() for _ in range(2 + pick(4))]
    here[0] = (pick(3), ((pick(2), pick(2)), *here[0][1][:-1]))  # somebody is in it
    there = list(here)
    if unit == "one_group":
        there[0] = home()
    elif unit == "one_group_added_or_removed":
        del there[0]
    else:
        area, persons = here[0]
        at = pick(len(persons))
        there[0] = area, (*persons[:at], (pick(2), pick(2)), *persons[at + 1 :])
    return tuple(here), tuple(there)


def audit_rounds(unit: HouseholdUnitKind, structure: Structure, *, pairs: int) -> BorderRow:
    """Compare pairs of random neighbouring households: every table measured, some of its cells, and a selection."""
    found, queries = [], 0
    how = "known from an attribute" if structure == BY_ATTRIBUTE else "known from the position"
    for number in range(pairs):
        homes = random_homes(unit, unit, how, number)
        observed = [_observe_rounds(one, unit, structure) for one in homes]
        queries += len(observed[0].queries)
        found.append(compare(observed[0], observed[1]))
    return border_row(
        found, "rounds of synthesis", unit, f"the head {how}", f"ρ = {RHO} a round", published=0, queries=queries
    )


def _observe_rounds(homes: Sequence[Home], unit: HouseholdUnitKind, structure: Structure) -> Observed:
    """Record all tables as queries. The facts that the unit makes public must be the same for neighbours."""
    schema, recorder = household_schema(structure), Recorder()
    neighbours = HouseholdNeighbours(PrivacyUnit(unit), MOST_PERSONS)
    private = households_of(schema, homes)
    tables = PrivateTables(private, neighbours, Budget(rho=1000), randomness=recorder.randomness())
    queries, outputs, offered = [], {}, []
    if neighbours.number_is_public:
        outputs["number of households"] = str(tables.number).encode()
    for table in tables_of(schema):
        try:
            known = tables.sensitivity(table).l1 == 0
        except SpecError:
            continue  # refused under this unit
        if known:
            outputs[table.describe()] = tables.public_counts(table).tobytes()
            continue
        offered.append(table)
        cells = table.cells(schema)
        for places in (None, sorted({0, cells // 2, cells - 1})):
            noisy = tables.measure(table, RHO, places)
            assert noisy is not None  # without a journal no round is lost
            draw = recorder.draws[-1]
            if draw.scale != noisy.scale or not np.array_equal(noisy.values.ravel(), draw.answers):
                raise ReleaseError("a measured table is not the answer that was recorded for it")
            name = table.describe() if places is None else f"some cells of {table.describe()}"
            queries.append(Query(name, draw.kind, draw.scale, noisy.sensitivity, draw.private))
    queries += _scores(tables, offered, schema)
    tables.close()
    return Observed(tuple(queries), outputs, Budget(rho=RHO * len(queries)))


def _scores(tables: PrivateTables, offered: Sequence[Marginal], schema: Schema) -> Iterator[Query]:
    """Yield the scores of a selection, each as a query: a score changes by at most 1 ÷ rate, and the choice costs ε²/8.

    Each is treated as a query with Gaussian noise of that cost, so that the joint loss stays within the rounds' budget.
    """
    selection: Any = import_module("tallytree.privacy.selection")
    seen: list[Candidates] = []
    own = selection.choose

    def choose(candidates: Candidates, _: object) -> int:
        seen.append(candidates)
        return 0

    selection.choose = choose
    try:
        tables.select(offered, [np.ones(table.shape(schema), np.int64) for table in offered], EPSILON)
    finally:
        selection.choose = own
    for place, table in enumerate(offered):
        bound = int(EPSILON / (2 * seen[0].rates[int(seen[0].kinds[place])]))
        score = np.array([seen[0].scores[place]], np.int64)
        scale = Fraction(bound**2) / (2 * RHO)
        yield Query(f"score of {table.describe()}", "discrete_gaussian", scale, Sensitivity(bound, bound**2), score)


# -------------------------------------------------------------------- planted defects


@contextmanager
def halved_sensitivities() -> Iterator[None]:
    """NOT PRIVATE: a planted defect. Every sensitivity of 2 or more is halved, in L1 and in L2."""
    own = Neighbours.sensitivity

    def halved(self: Neighbours, *about: Any, **more: Any) -> Sensitivity:
        found = own(self, *about, **more)
        return Sensitivity(-(-found.l1 // 2), -(-found.l2_squared // 2))

    Neighbours.sensitivity = halved  # type: ignore[method-assign]
    try:
        yield
    finally:
        Neighbours.sensitivity = own  # type: ignore[method-assign]


@contextmanager
def loose_accounting() -> Iterator[None]:
    """NOT PRIVATE: a planted defect. δ is bounded as if all σ² were half as large again as they are."""
    own = exact_accounting.bound_delta

    def loose(cells: exact_accounting.Cells, *about: Fraction) -> float:
        return own(tuple((variance * Fraction(3, 2), count) for variance, count in cells), *about)

    exact_accounting.bound_delta = loose  # type: ignore[assignment]
    exact_accounting.smallest_factor.cache_clear()
    try:
        yield
    finally:
        exact_accounting.bound_delta = own
        exact_accounting.smallest_factor.cache_clear()


def telling_message(release: ReleaseFrom, folder: Path) -> str:
    """NOT PRIVATE: a planted defect. Release with a message that says how many rows were read."""
    rows = (folder / "people.csv").read_text(encoding="utf-8").count("\n") - 1
    return f"{release(folder)}{rows} rows were read\n"


def telling_file(release: ReleaseFrom, folder: Path) -> str:
    """NOT PRIVATE: a planted defect. Release with the size of the largest group in one of its files."""
    messages = release(folder)
    lines = (folder / "people.csv").read_text(encoding="utf-8").splitlines()[1:]
    groups = [line.split(",")[0] for line in lines]
    largest = max((groups.count(group) for group in groups), default=0)
    with (folder / PUBLISHED / "privacy.json").open("a", encoding="utf-8") as file:
        file.write(f"{largest}\n")
    return messages


def audit_planted(release: ReleaseFrom, *, pairs: int) -> list[BorderRow]:
    """Audit each planted defect at the border; `flagged` counts the pairs that show it."""
    group = Setting("tallytree", "one_group", own_shares=True)
    entity = Setting("tallytree", "one_entity", own_shares=True)
    with halved_sensitivities():
        halved = audit_border(group, pairs=pairs, published=0, release=release)
    message = audit_border(entity, pairs=pairs, published=pairs, release=partial(telling_message, release))
    file = audit_border(group, pairs=pairs, published=pairs, release=partial(telling_file, release))
    with loose_accounting():
        exact = replace(entity, budget=WITH_DELTA[1])
        loose = audit_border(exact, pairs=pairs, published=0, release=release)
    names = (
        "a sensitivity halved",
        "σ² a third too small for δ",
        "a message with the number of rows",
        "a file with the largest group's size",
    )
    return [
        replace(row, part="planted", name=name, setting="")
        for name, row in zip(names, (halved, loose, message, file), strict=True)
    ]
