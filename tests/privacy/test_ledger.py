import multiprocessing
import os
import sqlite3
import stat
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree import Budget, BudgetError, Ledger, one_entity, one_group
from tallytree.privacy import Neighbours
from tallytree.privacy.ledger import ChangedInput

PEOPLE = Neighbours(one_entity(), max_size=5, public_totals=False)


@pytest.fixture
def ledger(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    book.open("people", Budget(epsilon=1), PEOPLE)
    return book


def test_reservations_add_up_exactly_and_overspending_is_refused(ledger):
    for _ in range(10):
        ledger.reserve("people", Budget(epsilon="0.1"), PEOPLE)
    assert ledger.account("people").left == 0
    with pytest.raises(BudgetError, match="has ε = 0 left of ε = 1; this release would cost ε = 1e-30"):
        ledger.reserve("people", Budget(epsilon=Fraction(1, 10**30)), PEOPLE)
    assert len(ledger.account("people").spendings) == 10


@settings(max_examples=25)
@given(costs=st.lists(st.fractions(Fraction(1, 50), Fraction(9, 10), max_denominator=50), min_size=1, max_size=8))
def test_a_cost_is_taken_if_and_only_if_it_fits_into_what_is_left(tmp_path_factory, costs):
    book = Ledger(tmp_path_factory.mktemp("ledger") / "ledger.db")
    book.open("people", Budget(epsilon=1), PEOPLE)
    left = Fraction(1)
    for cost in costs:
        if cost <= left:
            book.reserve("people", Budget(epsilon=cost), PEOPLE)
            left -= cost
        else:
            with pytest.raises(BudgetError, match="Nothing was spent"):
                book.reserve("people", Budget(epsilon=cost), PEOPLE)
        assert book.account("people").left == left


def test_a_crash_after_reserving_leaves_it_spent(ledger):
    ledger.reserve("people", Budget(epsilon="0.75"), PEOPLE)
    again = Ledger(ledger.path).account("people")
    assert again.spent == Fraction(3, 4)
    assert again.spendings[0].release_id is None


def _race(path, start, results):
    start.wait()
    won = 0
    for _ in range(10):
        try:
            Ledger(path).reserve("people", Budget(epsilon="0.1"), PEOPLE)
            won += 1
        except BudgetError:
            pass
    results.put(won)


def test_racing_processes_cannot_overspend(ledger):
    context = multiprocessing.get_context("spawn")
    start, results = context.Event(), context.Queue()
    racers = [context.Process(target=_race, args=(ledger.path, start, results)) for _ in range(4)]
    for racer in racers:
        racer.start()
    start.set()
    won = [results.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join()
    assert sum(won) == 10
    assert ledger.account("people").left == 0


def test_the_relation_and_the_name_are_fixed(ledger):
    for other in (
        Neighbours(one_group(), 5, False),
        Neighbours(one_entity(), 6, False),
        Neighbours(one_entity(), 5, True),
        Neighbours(one_entity(), 5, False, quantity_bound=2),
        Neighbours(one_entity(), 5, False, rows_per_entity=2),
    ):
        with pytest.raises(BudgetError, match="another neighbour relation"):
            ledger.reserve("people", Budget(epsilon="0.1"), other)
    with pytest.raises(BudgetError, match="already"):
        ledger.open("people", Budget(epsilon=9), PEOPLE)
    with pytest.raises(BudgetError, match="no data set 'persons'"):
        ledger.reserve("persons", Budget(epsilon="0.1"), PEOPLE)
    with pytest.raises(BudgetError, match="needs the data set's name"):
        ledger.reserve(None, Budget(epsilon="0.1"), PEOPLE)
    assert ledger.account("people").spent == 0


def test_pure_epsilon_may_be_charged_to_a_rho_account_and_never_the_reverse(ledger):
    ledger.open("in rho", Budget(rho=1), PEOPLE)
    ledger.reserve("in rho", Budget(epsilon=1), PEOPLE)
    ledger.reserve("in rho", Budget(rho="1/4", delta="1e-9"), PEOPLE)
    assert ledger.account("in rho").left == Fraction(1, 4)
    with pytest.raises(BudgetError, match="no finite pure epsilon"):
        ledger.reserve("people", Budget(rho="0.01"), PEOPLE)


def test_a_changed_input_warns_and_spends_from_the_same_budget(ledger):
    ledger.reserve("people", Budget(epsilon="0.1"), PEOPLE, fingerprint="one")
    ledger.reserve("people", Budget(epsilon="0.1"), PEOPLE, fingerprint="one")
    with pytest.warns(ChangedInput, match="the same budget is spent"):
        ledger.reserve("people", Budget(epsilon="0.1"), PEOPLE, fingerprint="two")
    assert ledger.account("people").spent == Fraction(3, 10)


def test_the_file_is_for_its_owner_only(ledger):
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    os.chmod(ledger.path, 0o644)
    ledger.account("people")
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600


def test_a_release_id_is_kept_with_its_reservation(ledger):
    first = ledger.reserve("people", Budget(epsilon="0.1"), PEOPLE)
    ledger.reserve("people", Budget(epsilon="0.1"), PEOPLE)
    first.record("abc")
    assert [spending.release_id for spending in ledger.account("people").spendings] == ["abc", None]


def test_a_missing_or_broken_ledger_is_a_clear_error(tmp_path):
    with pytest.raises(BudgetError, match="no ledger at"):
        Ledger(tmp_path / "none.db").accounts()
    (tmp_path / "junk.db").write_bytes(b"this is not a database, not at all")
    with pytest.raises(BudgetError, match="cannot be used"):
        Ledger(tmp_path / "junk.db").accounts()


def test_an_interrupted_transaction_leaves_nothing_behind(ledger):
    def interrupted():
        with ledger._transaction() as database:
            database.execute("DELETE FROM data_set")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert ledger.account("people").total == 1
    assert sqlite3.connect(ledger.path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
