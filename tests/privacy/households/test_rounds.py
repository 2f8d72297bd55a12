"""The border for synthesis: what leaves it, what it costs, and that a crash never makes anything cheaper."""

import copy
import json
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from tallytree import Budget, BudgetError, Ledger
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.domain.schema import Marginal
from tallytree.lab.truth import SeededWords
from tallytree.lab.truth import seeded as chance
from tallytree.privacy.budget import cost_of
from tallytree.privacy.journal import FILE, Journal
from tallytree.privacy.ledger import Charge
from tallytree.privacy.neighbours import HouseholdNeighbours, PrivacyUnit
from tallytree.privacy.noise.samplers import gaussian_sampler, gaussian_variance
from tallytree.privacy.private_tables import PrivateTables
from tallytree.privacy.selection import candidates, choose
from tallytree.tables.households import households_from_codes, read_households
from tests.oracles.households import count, schema_of

SCHEMA = schema_of({"area": 3}, {"age": 4, "sex": 2}, 3)
DATA = tuple(
    ((home % 3,), tuple(((home + person) % 4, (home * person) % 2) for person in range(home % 4))) for home in range(50)
)
BY_AREA = Marginal("households", ("area",))
CONTAINING = Marginal("households", ("area",), ("age",))
PERSONS = Marginal("persons", (), ("age", "sex"), size=True)
TABLES = [BY_AREA, CONTAINING, PERSONS]


def households(name="homes", data=DATA, schema=SCHEMA):
    rows = [(home, person) for home, (_, persons) in enumerate(data) for person in persons]
    return households_from_codes(
        schema,
        {"area": np.array([home[0] for home, _ in data], int)},
        {name: np.array([person[at] for _, person in rows], int) for at, name in enumerate(("age", "sex"))},
        np.array([home for home, _ in rows], int),
        len(data),
        name=name,
    )


def relation(kind="one_group", most=3):
    return HouseholdNeighbours(PrivacyUnit(kind), most)


def tables(budget=None, kind="one_group", **options):
    return PrivateTables(households(), relation(kind), budget or Budget(rho=1), **options)


def seeded(budget=None, kind="one_group", seed=1, **options):
    return tables(budget, kind, randomness=chance(seed), **options)


def estimates(marginals, value=2):
    return [np.full(marginal.shape(SCHEMA), value) for marginal in marginals]


# -------------------------------------------------------------------- what leaves


@pytest.mark.parametrize("kind", ["one_group", "one_group_added_or_removed", "one_person_attributes"])
@pytest.mark.parametrize("table", [CONTAINING, PERSONS], ids=lambda table: table.describe())
def test_a_measurement_is_the_count_plus_exactly_the_noise_it_paid_for(kind, table):
    noisy = seeded(kind=kind).measure(table, "1/50")
    noise = gaussian_sampler(noisy.scale).draw(SeededWords(1), noisy.values.size).reshape(noisy.values.shape)
    assert noisy.sensitivity == relation(kind).sensitivity(table, SCHEMA)
    assert noisy.rho == Fraction(1, 50) == cost_of("discrete_gaussian", noisy.sensitivity, noisy.scale)
    assert noisy.variance == gaussian_variance(noisy.scale)
    assert np.array_equal(noisy.values - noise, count(DATA, table, SCHEMA))
    assert noisy.values.dtype == np.int64


def test_some_cells_are_measured_with_the_noise_that_so_many_need():
    noisy = seeded().measure(PERSONS, Fraction(1, 8), cells=[31, 3])
    noise = gaussian_sampler(noisy.scale).draw(SeededWords(1), 2)
    assert noisy.scale == Fraction(2 * 3**2) / (2 * Fraction(1, 8))
    assert (noisy.values - noise).tolist() == count(DATA, PERSONS, SCHEMA).ravel()[[31, 3]].tolist()
    assert noisy.cells == (31, 3)
    assert seeded().measure(PERSONS, Fraction(1, 8), cells=[5]).sensitivity.l2_squared == 9
    assert seeded().measure(CONTAINING, Fraction(1, 8), cells=[5]).sensitivity.l2_squared == 1


def test_a_whole_table_is_selected_by_its_distance_over_its_own_sensitivity():
    guesses, penalties = estimates(TABLES), [3, -2, 40]
    weights = [Fraction(1), Fraction(1, 2), Fraction(1)]
    scores = [np.abs(count(DATA, each, SCHEMA) - guess).sum() for each, guess in zip(TABLES, guesses, strict=True)]
    offered = candidates(np.array(scores), np.array([2, 6, 6]), Fraction(1, 5), np.array(penalties), weights)
    chosen = set()
    for seed in range(30):
        border = seeded(seed=seed)
        place = border.select(TABLES, guesses, "0.2", penalties=penalties, weights=weights)
        assert place == choose(offered, SeededWords(seed))
        assert border.spent == Fraction(1, 25) / 8
        chosen.add(place)
    assert len(chosen) > 1


def test_a_cell_is_selected_among_all_cells_of_all_tables():
    guesses = estimates(TABLES)
    scores = [np.abs(count(DATA, each, SCHEMA) - guess).ravel() for each, guess in zip(TABLES, guesses, strict=True)]
    bounds = np.repeat([1, 1, 3], [part.size for part in scores])
    offered = candidates(np.concatenate(scores), bounds, Fraction(1, 2))
    places = [(table, cell) for table, part in enumerate(scores) for cell in range(part.size)]
    chosen = set()
    for seed in range(30):
        found = seeded(seed=seed).select_cell(TABLES, guesses, "1/2")
        assert found == places[choose(offered, SeededWords(seed))]
        chosen.add(found[0])
    assert chosen == {0, 1, 2}


def test_real_noise_differs_from_run_to_run():
    one, other = (tables().measure(PERSONS, "1/1000").values for _ in range(2))
    assert not np.array_equal(one, other)
    assert tables().select(TABLES, estimates(TABLES), 1) in {0, 1, 2}
    assert len(tables().select_cell(TABLES, estimates(TABLES), 1)) == 2


def test_what_is_public_is_given_exactly_and_only_that():
    assert tables().number == 50
    assert tables().public_counts(Marginal("households")) == 50
    with pytest.raises(SpecError, match="number of households is private"):
        _ = tables(kind="one_group_added_or_removed").number
    assert tables(kind="one_group_added_or_removed").measure(Marginal("households"), "1/2").sensitivity.l1 == 1
    border = tables(kind="one_person_attributes")
    sizes = Marginal("households", ("area",), size=True)
    assert np.array_equal(border.public_counts(sizes), count(DATA, sizes, SCHEMA))
    border.public_counts(sizes)[...] = 0
    assert np.array_equal(border.public_counts(sizes), count(DATA, sizes, SCHEMA))
    assert border.published_exactly == [sizes]
    assert border.spent == 0
    for kind, table in (("one_group", sizes), ("one_person_attributes", CONTAINING)):
        with pytest.raises(BudgetError, match="is private under this unit"):
            tables(kind=kind).public_counts(table)


def test_tables_that_are_public_are_not_measured_nor_selected():
    border = tables(kind="one_person_attributes")
    with pytest.raises(BudgetError, match="needs no measurement"):
        border.measure(BY_AREA, "1/2")
    with pytest.raises(BudgetError, match="needs no measurement"):
        border.measure(BY_AREA, "1/2", cells=[0])
    with pytest.raises(SpecError, match="needs no selecting"):
        border.select(TABLES, estimates(TABLES), 1)
    with pytest.raises(SpecError, match="needs no selecting"):
        border.select_cell(TABLES, estimates(TABLES), 1)
    assert border.spent == 0


# -------------------------------------------------------------------- accounts


def test_costs_add_up_exactly_and_overspending_is_refused_before_anything_is_drawn():
    border = tables(Budget(rho="1/10"))
    for _ in range(3):
        border.measure(BY_AREA, "1/40")
    border.select(TABLES, estimates(TABLES), "1/5")
    border.select_cell(TABLES, estimates(TABLES), "2/5")
    assert border.left == 0
    for ask in (
        lambda: border.measure(BY_AREA, Fraction(1, 10**20)),
        lambda: border.measure(BY_AREA, Fraction(1, 10**20), cells=[0]),
        lambda: border.select(TABLES, estimates(TABLES), Fraction(1, 10**15)),
    ):
        with pytest.raises(BudgetError, match="Nothing was spent on it"):
            ask()
    assert border.spent == Fraction(1, 10)
    assert [past.request["kind"] for past in border.rounds] == ["measure"] * 3 + ["select", "select_cell"]


def test_a_round_that_costs_more_than_is_left_is_refused_while_something_is_left():
    border = tables(Budget(rho="1/10"))
    border.measure(BY_AREA, "3/50")
    for ask in (
        lambda: border.measure(BY_AREA, Fraction(4, 100) + Fraction(1, 10**20)),
        lambda: border.measure(BY_AREA, "1/20", cells=[0]),
        lambda: border.select(TABLES, estimates(TABLES), "3/5"),  # ρ = ε²/8 = 0.045
    ):
        with pytest.raises(BudgetError, match="Nothing was spent on it"):
            ask()
    border.measure(BY_AREA, "1/25")
    assert border.left == 0


def test_a_budget_without_delta_is_refused_and_one_with_delta_is_spent_in_rho():
    with pytest.raises(BudgetError, match="delta is missing"):
        tables(Budget(epsilon=1))
    budget = Budget(epsilon=1, delta="1e-9")
    border = tables(budget)
    border.measure(BY_AREA, budget.rho)
    assert border.left == 0


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda border: border.measure(BY_AREA, 0), BudgetError, "rho must be positive"),
        (lambda border: border.measure(Marginal("persons", ("age",)), "0.1"), SpecError, "have no attribute 'age'"),
        (lambda border: border.measure(BY_AREA, "0.1", cells=[]), SpecError, "at least one cell"),
        (lambda border: border.measure(BY_AREA, "0.1", cells=[1, 1]), SpecError, "each once"),
        (lambda border: border.measure(BY_AREA, "0.1", cells=[3]), SpecError, "cell 3 is not there"),
        (lambda border: border.select([], [], 1), SpecError, "at least one table"),
        (lambda border: border.select(TABLES, estimates(TABLES)[:2], 1), SpecError, "an estimate for each"),
        (lambda border: border.select([BY_AREA], [np.ones(3)], 1), SpecError, "round them"),
        (lambda border: border.select([BY_AREA], [np.ones(4, int)], 1), SpecError, "of shape"),
        (lambda border: border.select([BY_AREA], [np.full(3, 2**50)], 1), SpecError, "out of range"),
        (lambda border: border.select([BY_AREA], estimates([BY_AREA]), -1), BudgetError, "epsilon must be positive"),
        (lambda border: border.select(TABLES, estimates(TABLES), 1, penalties=[1]), SpecError, "penalties must be"),
        (
            lambda border: border.select(TABLES, estimates(TABLES), 1, weights=[Fraction(2)] * 3),
            SpecError,
            "at most 1",
        ),
    ],
)
def test_bad_requests_cost_nothing(ask, error, message):
    border = tables()
    with pytest.raises(error, match=message):
        ask(border)
    assert border.rounds == ()


def test_the_relation_must_fit_the_schema():
    with pytest.raises(SpecError, match="they must agree"):
        PrivateTables(households(), relation(most=4), Budget(rho=1))


# -------------------------------------------------------------------- order of things


def test_a_round_is_on_disk_before_noise_is_drawn_and_noise_is_drawn_before_counts_are_touched(tmp_path, monkeypatch):
    border, order = tables(journal=Journal(tmp_path)), []
    randomness, true = border._randomness, border._true

    def draw(scale, number):
        order.append(("noise", (tmp_path / FILE).read_bytes().count(b"\n")))
        return randomness.gaussian(scale, number)

    def touch(marginal):
        order.append("counts")
        return true(marginal)

    monkeypatch.setattr(border, "_randomness", replace(randomness, gaussian=draw))
    monkeypatch.setattr(border, "_true", touch)
    border.measure(BY_AREA, "1/2")
    assert order == [("noise", 2), "counts"]
    assert (tmp_path / FILE).read_bytes().count(b"\n") == 3


def test_a_result_is_not_given_out_unless_it_was_recorded(tmp_path, monkeypatch):
    border, calls = tables(journal=Journal(tmp_path)), []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")  # after room was taken and the round put down

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReleaseError, match="cannot write to the journal"):
        border.measure(BY_AREA, "1/2")
    monkeypatch.undo()
    assert border.spent == Fraction(1, 2)
    with pytest.raises(ReleaseError, match="open it anew"):
        border.measure(BY_AREA, "1/4")
    assert border.spent == Fraction(1, 2)


# -------------------------------------------------------------------- crashes and resuming


def loop(border):
    """A small select–measure loop, and what it saw."""
    seen = []
    for _ in range(3):
        place = border.select(TABLES, estimates(TABLES), "1/5")
        if place is None:
            seen.append(None)
            continue
        noisy = border.measure(TABLES[place], "1/20")
        seen.append((place, None if noisy is None else noisy.values.tolist()))
    cell = border.select_cell(TABLES, estimates(TABLES), "1/5")
    noisy = None if cell is None else border.measure(TABLES[cell[0]], "1/20", cells=[cell[1]])
    seen.append((cell, None if noisy is None else noisy.values.tolist()))
    return seen


def untouchable(border, monkeypatch):
    def touch(_):
        raise AssertionError("private data were touched")

    monkeypatch.setattr(border, "_true", touch)
    return border


def test_a_finished_run_is_replayed_without_private_data(tmp_path, monkeypatch):
    first = tables(journal=Journal(tmp_path))
    seen = loop(first)
    first.close()
    again = untouchable(tables(journal=Journal(tmp_path)), monkeypatch)
    assert again.resuming
    assert again.spent == 0
    assert loop(again) == seen
    assert again.spent == first.spent == 4 * Fraction(1, 200) + 4 * Fraction(1, 20)
    assert not again.resuming


def killed_before_recording(folder, number):
    """Run the loop; the program ends between reserving and recording its round of that number."""

    class Killed(BaseException):
        pass

    border = tables(journal=Journal(folder))
    record = border._reservation.journal.record

    def end(result):
        if len(border._reservation.journal.rounds) == number:
            raise Killed
        record(result)

    border._reservation.journal.record = end
    with pytest.raises(Killed):
        loop(border)
    border.close()
    return border.spent


@pytest.mark.parametrize("number", [1, 2, 4, 7])
def test_a_round_cut_off_is_paid_for_and_never_drawn_again(tmp_path, number):
    spent = killed_before_recording(tmp_path, number)
    lines = (tmp_path / FILE).read_text().splitlines()
    assert json.loads(lines[-1])["reserved"] == number
    resumed = tables(journal=Journal(tmp_path))
    seen = loop(resumed)
    assert resumed.spent >= spent
    assert resumed.rounds[number - 1].result is None
    assert sum(past.result is None for past in resumed.rounds) == 1
    lost_select = number in (1, 3, 5, 7)
    assert resumed.spent == 4 * Fraction(1, 200) + (4 - lost_select) * Fraction(1, 20)
    resumed.close()
    assert (tmp_path / FILE).read_text().splitlines()[: len(lines)] == lines
    again = tables(journal=Journal(tmp_path))
    assert loop(again) == seen
    assert again.spent == resumed.spent


def test_a_journal_cut_at_any_byte_resumes_with_nothing_forgotten(tmp_path):
    whole = tables(journal=Journal(tmp_path / "whole"))
    loop(whole)
    whole.close()
    content = (tmp_path / "whole" / FILE).read_bytes()
    header = content.index(b"\n") + 1
    for cut in [0, 5, header - 1, *range(header, len(content) + 1, 97), len(content)]:
        folder = tmp_path / str(cut)
        folder.mkdir(exist_ok=True)
        (folder / FILE).write_bytes(content[:cut])
        lines = content[:cut].split(b"\n")[:-1]
        resumed = tables(journal=Journal(folder))
        loop(resumed)
        reserved = [json.loads(line)["cost"] for line in lines if line.startswith(b'{"reserved')]
        recorded = sum(line.startswith(b'{"recorded') for line in lines)
        assert [str(past.cost) for past in resumed.rounds[: len(reserved)]] == reserved
        assert sum(past.result is None for past in resumed.rounds) == len(reserved) - recorded
        resumed.close()
        assert (folder / FILE).read_bytes().startswith(b"\n".join([*lines, b""]))


PROGRAM = """
import os, signal, sys
from tallytree import Budget, Ledger
from tallytree.privacy import private_tables as rounds
from tallytree.privacy.journal import Journal
from tallytree.privacy.ledger import Charge
from tests.privacy.households.test_rounds import households, loop, relation
border = rounds.PrivateTables(
    households(), relation(), Budget(rho=1), charge=Charge(Ledger(sys.argv[1])), journal=Journal(sys.argv[2])
)
record = border._reservation.journal.record
def end(result):
    if len(border._reservation.journal.rounds) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    record(result)
border._reservation.journal.record = end
loop(border)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_killed_process_is_resumed_on_one_reservation(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("homes", Budget(rho=1), relation())
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ledger.path), str(tmp_path / "run")], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    resumed = tables(charge=Charge(ledger), journal=Journal(tmp_path / "run"))
    loop(resumed)
    assert [past.result is None for past in resumed.rounds] == [False] * 3 + [True] + [False] * 4
    account = ledger.account("homes")
    assert len(account.spendings) == 1
    assert account.left == 0
    assert resumed.receipt.number == account.spendings[0].number
    with pytest.raises(BudgetError, match="Nothing was changed"):
        tables(charge=Charge(ledger), journal=Journal(tmp_path / "another"))


def test_another_request_than_the_journals_is_refused(tmp_path):
    first = tables(journal=Journal(tmp_path))
    first.measure(BY_AREA, "1/4")
    first.select(TABLES, estimates(TABLES), 1)
    first.close()
    asked = [
        lambda border: border.measure(CONTAINING, "1/4"),
        lambda border: border.measure(BY_AREA, "1/8"),
        lambda border: border.measure(BY_AREA, "1/4", cells=[0, 1, 2]),
        lambda border: border.select(TABLES, estimates(TABLES), 1),
    ]
    for ask in asked:
        border = tables(journal=Journal(tmp_path))
        with pytest.raises(ReleaseError, match="round 1 was another one"):
            ask(border)
        border.close()
    border = tables(journal=Journal(tmp_path))
    border.measure(BY_AREA, "1/4")
    with pytest.raises(ReleaseError, match="round 2 was another one"):
        border.select(TABLES[:2], estimates(TABLES[:2]), 1)
    # Estimates are the caller's own and may differ in their last digits: they are not compared.
    assert border.select(TABLES, estimates(TABLES, 3), 1) in {0, 1, 2}


def test_a_journal_of_another_run_is_refused(tmp_path):
    tables(journal=Journal(tmp_path)).close()
    other_schema = schema_of({"area": 4}, {"age": 4, "sex": 2}, 3)
    for make, differ in (
        (lambda: tables(Budget(rho=2), journal=Journal(tmp_path)), "budget"),
        (lambda: tables(kind="one_person_attributes", journal=Journal(tmp_path)), "neighbours"),
        (lambda: PrivateTables(households("h"), relation(), Budget(rho=1), journal=Journal(tmp_path)), "name"),
        (
            lambda: PrivateTables(households(data=DATA[1:]), relation(), Budget(rho=1), journal=Journal(tmp_path)),
            "households",
        ),
        (
            lambda: PrivateTables(
                households(schema=other_schema), relation(), Budget(rho=1), journal=Journal(tmp_path)
            ),
            "schema",
        ),
        (lambda: seeded(journal=Journal(tmp_path)), "noise"),
    ):
        with pytest.raises(ReleaseError, match=f"begun with another {differ}"):
            make()
    tables(journal=Journal(tmp_path)).close()


def test_a_journal_goes_with_its_own_ledger(tmp_path):
    ledgers = [Ledger(tmp_path / name) for name in ("one.db", "two.db")]
    for ledger in ledgers:
        ledger.open("homes", Budget(rho=2), relation())
    tables(charge=Charge(ledgers[0]), journal=Journal(tmp_path / "with")).close()
    tables(journal=Journal(tmp_path / "without")).close()
    with pytest.raises(ReleaseError, match="a run with a ledger"):
        tables(journal=Journal(tmp_path / "with"))
    with pytest.raises(ReleaseError, match="a run without a ledger"):
        tables(charge=Charge(ledgers[0]), journal=Journal(tmp_path / "without"))
    with pytest.raises(ReleaseError, match="does not hold the reservation"):
        tables(charge=Charge(ledgers[1]), journal=Journal(tmp_path / "with"))
    tables(charge=Charge(ledgers[0]), journal=Journal(tmp_path / "with")).close()
    assert ledgers[0].account("homes").spent == 1
    assert ledgers[1].account("homes").spent == 0


def test_two_runs_cannot_use_one_journal_at_a_time(tmp_path):
    first = tables(journal=Journal(tmp_path))
    with pytest.raises(ReleaseError, match="in use by another run"):
        tables(journal=Journal(tmp_path))
    first.close()
    tables(journal=Journal(tmp_path)).close()


@pytest.mark.parametrize(
    "damage",
    [
        b"junk\n",
        b'{"reserved": 3, "request": {}, "cost": "1"}\n',
        b'{"recorded": 1, "result": {}}\n',
        b'{"reserved": 2, "cost": "1"}\n',
        b'{"reserved": 2, "request": {"kind": "measure"}, "cost": "a lot"}\n',
        b"[]\n",
    ],
)
def test_a_damaged_journal_is_refused(tmp_path, damage):
    border = tables(journal=Journal(tmp_path))
    border.measure(BY_AREA, "1/4")
    border.close()
    with (tmp_path / FILE).open("ab") as file:
        file.write(damage)
    with pytest.raises(ReleaseError, match=r"line 4 of .* is damaged"):
        tables(journal=Journal(tmp_path))


def test_recorded_results_that_do_not_fit_are_refused(tmp_path):
    border = tables(journal=Journal(tmp_path))
    border.select(TABLES, estimates(TABLES), 1)
    border.measure(BY_AREA, "1/4")
    border.close()
    lines = (tmp_path / FILE).read_text().splitlines()
    for line, result, ask in (
        (2, {"place": 3}, lambda border: border.select(TABLES, estimates(TABLES), 1)),
        (4, {"values": [1, 2]}, lambda border: border.measure(BY_AREA, "1/4")),
    ):
        changed = [*lines[:line], json.dumps({"recorded": line // 2, "result": result}), *lines[line + 1 :], ""]
        (tmp_path / FILE).write_text("\n".join(changed))
        border = tables(journal=Journal(tmp_path))
        if line == 4:
            border.select(TABLES, estimates(TABLES), 1)
        with pytest.raises(ReleaseError, match=r"that (it was|they were) recorded for"):
            ask(border)
        border.close()


def test_a_journal_of_another_format_is_refused(tmp_path):
    (tmp_path / FILE).write_text('{"format": 1, "facts": {}}\n')
    with pytest.raises(ReleaseError, match=r"has format 1.*Resume with the version that began the run"):
        Journal(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ReleaseError, match="cannot keep a journal"):
        Journal(tmp_path / "file")


# -------------------------------------------------------------------- secrets


def test_nothing_private_is_shown_or_written(tmp_path):
    secret = 4711
    data = tuple((((home == 0) * 1,), ((1, 1),)) for home in range(secret))
    border = PrivateTables(
        households(data=data),
        relation("one_group_added_or_removed"),
        Budget(rho="1/1000000"),
        journal=Journal(tmp_path),
    )
    noisy = border.measure(BY_AREA, "1/2000000")
    border.select([BY_AREA], estimates([BY_AREA], 0), "1/1000000")
    text = (tmp_path / FILE).read_text()
    shown = [repr(border), str(border), str(border.rounds), repr(border._cache), text]
    exact = {str(secret), str(secret - 1)} - {str(value) for value in noisy.values.tolist()}
    assert all(number not in part for number, part in product(exact, shown))
    for use in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            use(border)


# -------------------------------------------------------------------- copies, threads, forks, other rows


@pytest.fixture
def ledger(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    book.open("homes", Budget(rho=1), relation())
    return book


def begun(ledger):
    """What the ledger let begin, in all reservations."""
    return sum((each.cost for spent in ledger.account("homes").spendings for each in spent.rounds), Fraction(0))


def test_of_two_copies_of_a_journal_one_goes_on_and_the_other_is_refused(tmp_path, ledger):
    first = tables(charge=Charge(ledger), journal=Journal(tmp_path / "a"))
    first.measure(BY_AREA, "1/4")
    first.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.copytree(tmp_path / "a", tmp_path / "c")
    one, other = (tables(charge=Charge(ledger), journal=Journal(tmp_path / name)) for name in "ab")
    seen = []
    for border in (one, other):
        border.measure(BY_AREA, "1/4")
        with suppress(BudgetError):
            seen.append(border.measure(PERSONS, "3/4"))
        border.close()
    assert len(seen) == 1
    assert begun(ledger) == 1
    for name in "bc":  # opened after the other went on, and with a round of its own that was refused
        with pytest.raises(ReleaseError, match="is a copy, or was restored"):
            tables(charge=Charge(ledger), journal=Journal(tmp_path / name))
    assert loop_of(tmp_path / "a", ledger) == seen[0].values.tolist()


def loop_of(folder, ledger):
    border = tables(charge=Charge(ledger), journal=Journal(folder))
    border.measure(BY_AREA, "1/4")
    values = border.measure(PERSONS, "3/4").values.tolist()
    border.close()
    return values


@pytest.mark.parametrize("seed", range(12))
def test_copies_resumed_killed_and_restored_in_any_order_never_draw_more_than_was_reserved(tmp_path, ledger, seed):
    chance = np.random.default_rng(seed)
    drawn = []  # (number, cost) of every draw, in whatever copy

    class Killed(BaseException):
        pass

    def run(folder):
        """Resume a copy, go on for some rounds, and be killed at a step of one of them, or not at all."""
        border = tables(charge=Charge(ledger), journal=Journal(folder))
        place = chance.choice(["journal", "ledger", "draw", "record", "none"])
        at = int(chance.integers(1, 4))
        steps = {"journal": (border._reservation.journal, "reserve"), "ledger": (border._reservation, "_begin_round")}
        steps["record"] = (border._reservation.journal, "record")
        new = [0]

        def dying(step):
            real = getattr(*steps[step])

            def wrapped(*arguments):
                if step == "journal":
                    new[0] += 1
                result = real(*arguments)
                if step == place and new[0] == at:
                    raise Killed
                return result

            setattr(*steps[step], wrapped)

        for step in steps:
            dying(step)
        draw = border._randomness.gaussian

        def noise(scale, number):
            drawn.append((border._reservation._replayed, border._reservation.journal.rounds[-1].cost))
            if place == "draw" and new[0] == at:
                raise Killed
            return draw(scale, number)

        border._randomness = replace(border._randomness, gaussian=noise)
        try:
            for _ in range(4):
                border.measure(BY_AREA, "1/4")
        finally:
            border.close()

    folders = [tmp_path / "0"]
    for turn in range(14):
        folder = folders[chance.integers(len(folders))]
        with suppress(Killed, BudgetError, ReleaseError):
            run(folder)
        if (folder / FILE).exists() and chance.random() < 0.5:
            folders.append(tmp_path / str(turn + 1))
            shutil.copytree(folder, folders[-1])
    numbers = [number for number, _ in drawn]
    assert len(set(numbers)) == len(numbers)
    assert sum((cost for _, cost in drawn), Fraction(0)) <= begun(ledger) <= 1
    assert len(ledger.account("homes").spendings) == 1


def test_a_kill_anywhere_before_the_first_round_charges_once(tmp_path, ledger, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(*_, **__):
        raise Killed

    for owner, step in ((Ledger, "reserve"), (Journal, "keep_receipt")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, killed)
            with pytest.raises(Killed):
                tables(charge=Charge(ledger), journal=Journal(tmp_path / "run"))
    border = tables(charge=Charge(ledger), journal=Journal(tmp_path / "run"))
    border.measure(BY_AREA, 1)
    assert len(ledger.account("homes").spendings) == 1


def test_a_round_cut_off_before_the_ledger_knew_is_begun_and_lost(tmp_path, ledger, monkeypatch):
    border = tables(charge=Charge(ledger), journal=Journal(tmp_path / "run"))

    def full(*_, **__):
        raise BudgetError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "begin_round", full)
        with pytest.raises(BudgetError, match="disk full"):
            border.measure(BY_AREA, "1/4")
    border.close()
    assert begun(ledger) == 0
    resumed = tables(charge=Charge(ledger), journal=Journal(tmp_path / "run"))
    assert begun(ledger) == Fraction(1, 4)
    assert resumed.measure(BY_AREA, "1/4") is None
    assert resumed.measure(BY_AREA, "3/4") is not None
    assert begun(ledger) == 1


def test_a_journal_that_is_ahead_of_its_ledger_is_refused(tmp_path, ledger):
    border = tables(charge=Charge(ledger), journal=Journal(tmp_path / "run"))
    kept = {path: path.read_bytes() for path in (ledger.path, ledger.path.with_name("ledger.db.anchor"))}
    border.measure(BY_AREA, "1/4")
    border.close()
    for path, content in kept.items():
        path.write_bytes(content)
    with pytest.raises(ReleaseError, match="an older copy of the ledger was put in its place"):
        tables(charge=Charge(ledger), journal=Journal(tmp_path / "run"))


def test_threads_together_spend_no_more_than_the_budget(tmp_path):
    border = tables(Budget(rho=1))
    start = threading.Barrier(4)

    def ask():
        start.wait()
        for _ in range(25):
            with suppress(BudgetError):
                border.measure(PERSONS, "1/30")

    slow = border._randomness.gaussian

    def late(scale, number):
        time.sleep(0.001)
        return slow(scale, number)

    border._randomness = replace(border._randomness, gaussian=late)
    left = type(border).left.fget

    class Slow(PrivateTables):
        @property
        def left(self):
            found = left(self)
            time.sleep(0.001)  # another thread may come in between looking and spending
            return found

    border.__class__ = Slow
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert border.spent == 1
    assert len(border.rounds) == 30


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_is_refused():
    border = tables()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            border.measure(BY_AREA, "1/4")
        except BudgetError as error:
            code = 0 if "belong to the process that opened them" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert border.measure(BY_AREA, 1) is not None


def test_other_rows_under_the_same_name_are_refused_and_the_same_in_another_order_are_not(tmp_path):
    def border(data):
        return PrivateTables(households(data=data), relation(), Budget(rho=1), journal=Journal(tmp_path))

    first = border(DATA)
    seen = first.measure(BY_AREA, "1/4").values.tolist()
    first.close()
    moved = ((DATA[0][0][0] + 1) % 3,)
    (area, persons), rest = DATA[3], DATA[4:]
    for other in (
        ((moved, DATA[0][1]), *DATA[1:]),
        (*DATA[:3], (area, (((persons[0][0] + 1) % 4, persons[0][1]), *persons[1:])), *rest),
        (*DATA[:3], (area, persons[1:]), *rest),
    ):
        with pytest.raises(ReleaseError, match="rows are not those that this run began with"):
            border(other)
    shuffled = tuple((home, tuple(reversed(people))) for home, people in reversed(DATA))
    assert border(shuffled).measure(BY_AREA, "1/4").values.tolist() == seen


def test_the_journal_is_its_owners_alone(tmp_path):
    tables(journal=Journal(tmp_path / "run")).close()
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "run" / FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("oversize", ["subsample", "drop"])
def test_a_run_on_cut_households_resumes_on_the_same_rows_and_on_no_others(tmp_path, oversize):
    sizes = [1, 3, 6]  # of at most 3
    rows = [[home, person % 4, person % 2] for home, size in enumerate(sizes) for person in range(size)]
    homes = pa.table({"home": range(len(sizes)), "area": ["0", "1", "2"]})

    def border(rows):
        people = pa.table(dict(zip(("home", "age", "sex"), zip(*rows, strict=True), strict=True)))
        read = read_households(homes, people, schema=SCHEMA, household_id="home", oversize=oversize, name="cut")
        return PrivateTables(read, relation(), Budget(rho=1), journal=Journal(tmp_path))

    first = border(rows)
    seen = first.measure(BY_AREA, "1/4").values.tolist()
    first.close()
    for _ in range(3):  # whoever is drawn
        again = border(rows)
        assert again.measure(BY_AREA, "1/4").values.tolist() == seen
        again.close()
    # One person changes: of a small household, of one that is just full, or of one that is cut.
    for place, (home, age, sex) in enumerate(rows):
        with pytest.raises(ReleaseError, match="rows are not those that this run began with"):
            border([*rows[:place], [home, (age + 1) % 4, sex], *rows[place + 1 :]])
    with pytest.raises(ReleaseError, match="rows are not those that this run began with"):
        border(rows[:-1])
