"""Tools that show the variables of a traceback (pytest --showlocals, Rich, Sentry) show no private value of ours.

Errors are made to happen at many lines of the rooms that hold private data, and every frame of the package that the
error went through is looked at, with all its variables. Frames of the caller are the caller's.
"""

from __future__ import annotations

import sys
import traceback
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tallytree
from tallytree import Budget, Hierarchy, one_entity, read
from tallytree.core.errors import TallytreeError
from tallytree.domain.schema import Attribute, Marginal, Schema
from tallytree.lab.truth import seeded
from tallytree.privacy import measure
from tallytree.privacy.neighbours import HouseholdNeighbours, PrivacyUnit
from tallytree.privacy.plan import MeasurementQuery, Plan
from tallytree.privacy.private_tables import PrivateTables
from tallytree.tables import GroupSizes, Sealed
from tallytree.tables.households import read_households

PACKAGE = Path(tallytree.__file__).parent
ROOMS = ("tables", "privacy")
SECRETS = ("987654321", "SECRET", "7919")
TREE = Hierarchy.from_levels({"county": ["a", "b"]}, ["county"])


def shown(error):
    """All variables of the package's frames that a tool would show, causes and contexts included."""
    texts, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        texts.append(repr(error))
        for frame, line in traceback.walk_tb(error.__traceback__):
            if Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
                for name, value in frame.f_locals.items():
                    texts.append(f"{frame.f_code.co_filename}:{line} {frame.f_code.co_name} {name} = {value!r}")
        error = error.__cause__ or error.__context__
    return texts


def check_nothing_shown(error):
    for text in shown(error):
        assert not any(secret in text for secret in SECRETS), text[:300]


class Injector:
    """Raises at the n-th line that runs in the rooms with private data, counted from 0."""

    def __init__(self, error, at):
        self.error, self.left, self.lines = error, at, 0

    def __call__(self, frame, event, _):
        path = Path(frame.f_code.co_filename)
        if not any(path.is_relative_to(PACKAGE / room) for room in ROOMS) or path.name == "guard.py":
            return None  # the guard's own frame holds what it was called with, up to the moment that it raises
        return self.line

    def line(self, frame, event, _):
        if event == "line":
            self.lines += 1
            self.left -= 1
            if self.left == -1:
                raise self.error
        return self.line


def run(operation, error=KeyboardInterrupt, at=-1):
    """How many lines ran, and what was raised."""
    operation = operation()
    injector, before = Injector(error, at), sys.gettrace()
    sys.settrace(injector)
    try:
        operation()
    except BaseException as raised:
        return injector.lines, raised
    finally:
        sys.settrace(before)
    return injector.lines, None


def measuring():
    counts = np.full((2, 3), 987654321)
    data = GroupSizes(TREE, 2, Sealed(counts), leaf_totals=np.array([3, 4]))
    queries = [MeasurementQuery(view, 1, Fraction(1, 4)) for view in ("counts", "at_least", "sorted_sizes")]
    plan = Plan(Budget(epsilon="1e-6"), one_entity(), (*queries, MeasurementQuery("largest", 0, Fraction(1, 4))))
    return lambda: measure(data, plan, derive_facts=lambda known: known.first_stage)


SCHEMA = Schema(
    (Attribute("kind", tuple(f"k{number:x}" for number in range(8000))),), (Attribute("sex", ("f", "m")),), 2
)
ROWS = 7919
HOMES = pa.table({"home": [f"SECRET-{row}" for row in range(ROWS)], "kind": [f"k{ROWS:x}"] * ROWS})
PERSONS = pa.table({"home": [f"SECRET-{row}" for row in range(ROWS)] * 3, "sex": ["f"] * 3 * ROWS})


def reading_households():
    return lambda: read_households(HOMES, PERSONS, schema=SCHEMA, household_id="home", oversize="subsample")


def asking_rounds():
    households = read_households(HOMES, PERSONS, schema=SCHEMA, household_id="home", oversize="subsample")
    neighbours = HouseholdNeighbours(PrivacyUnit("one_group_added_or_removed"), 2)
    # Noise this large, with this seed, makes no noisy count look like the private one.
    tables = PrivateTables(households, neighbours, Budget(rho="1e-6"), randomness=seeded(0))
    kind = Marginal("households", household=("kind",))

    def ask():
        tables.measure(kind, Fraction(1, 4_000_000))
        tables.measure(kind, Fraction(1, 4_000_000), cells=[0, 1])
        tables.select([kind], [np.zeros(8000, np.int64)], Fraction(1, 2000))
        tables.select_cell([kind], [np.zeros(8000, np.int64)], Fraction(1, 2000))

    return ask


PEOPLE = pa.table({"home": [f"SECRET-{row}" for row in range(ROWS)], "county": ["a"] * ROWS, "who": range(ROWS)})


def reading():
    return lambda: read(
        PEOPLE, group="home", region="county", hierarchy=TREE, max_size=2, entity="who", rows_per_entity=1
    )


@pytest.mark.parametrize(
    ("operation", "points"),
    [(measuring, 60), (reading, 9), (reading_households, 9), (asking_rounds, 12)],
    ids=["measure", "read", "read_households", "rounds"],
)
def test_no_error_shows_a_private_value_wherever_it_happens(operation, points):
    lines, raised = run(operation)
    assert raised is None
    assert lines > points
    for number, at in enumerate(np.linspace(0, lines - 1, points).astype(int).tolist()):
        error = (KeyboardInterrupt, MemoryError, ValueError)[number % 3]
        _, raised = run(operation, error, at)
        if raised is None:
            continue  # lines differ a little from run to run, and some errors are handled where they happen
        assert isinstance(raised, KeyboardInterrupt | MemoryError | ValueError | RuntimeError | TallytreeError)
        check_nothing_shown(raised)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, ValueError, OSError])
def test_failing_noise_shows_nothing(monkeypatch, kind):
    import tallytree.privacy.noise.samplers

    def fail(*_):
        raise kind("quoted: 987654321") if kind is not KeyboardInterrupt else kind

    monkeypatch.setattr(tallytree.privacy.noise.samplers, "discrete_laplace", fail)
    with pytest.raises(kind if kind in (KeyboardInterrupt, MemoryError) else RuntimeError) as raised:
        measuring()()
    check_nothing_shown(raised.value)


def test_problems_of_the_input_show_counts_and_no_rows():
    broken = PEOPLE.set_column(1, "county", pa.array(["SECRET"] * ROWS))
    with pytest.raises(TallytreeError) as raised:
        read(broken, group="home", region="county", hierarchy=TREE, max_size=2)
    raised.value.args = ()  # counts of bad rows are for the data holder
    raised.value.problems = ()
    check_nothing_shown(raised.value)
